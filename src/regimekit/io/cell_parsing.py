"""Parse one table cell as a number or as a time stamp, in the notation of the file."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any

from regimekit.preprocessing.time_index import Time

# Cells, in lower case, that mean "not observed".
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "missing", "?", "-"})
ISO = "ISO 8601"
NUMBER = "numbers"
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_POINT_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_COMMA_GROUPS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_COMPACT_DATE = re.compile(r"(19|20)\d{6}")
# Date formats are tried in this order after ISO 8601. The first one that parses every cell into
# non-decreasing times is used: 1/12/2023 is January unless the order of the rows says otherwise.
_DATE_PARTS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d", "%d %b %Y")
_CLOCK_PARTS = (" %H:%M:%S", " %H:%M", "", " %I:%M %p", " %H:%M:%S.%f")
_DATE_FORMATS = (
    *(f"{day}{clock}" for day in _DATE_PARTS for clock in _CLOCK_PARTS),
    "%Y-%m",
    "%b %Y",
)
# Smallest value, units per second and name of each unit of time since 1970.
_EPOCH_UNITS = ((1e8, 1.0, "seconds"), (1e11, 1e3, "milliseconds"), (1e14, 1e6, "microseconds"))


def is_missing(cell: Any) -> bool:
    """Return whether a cell means "not observed": empty, NaN, or one of `MISSING`."""
    if isinstance(cell, float):
        return math.isnan(cell)
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING)


def parse_number(cell: Any, decimal: str = ".") -> float:
    """Parse a cell as a number.

    Args:
        cell: text or a typed value.
        decimal: decimal sign of text cells, "." or ",".

    Returns:
        The number; NaN for a missing cell.

    Raises:
        ValueError: if text is not a number.
        TypeError: if a typed value is not a number.

    Example:
        >>> parse_number("1.234,5", ","), parse_number("1,234.5"), parse_number(None)
        (1234.5, 1234.5, nan)
    """
    if is_missing(cell):
        return math.nan
    if not isinstance(cell, str):
        if isinstance(cell, (date, bytes, list, dict)):
            raise TypeError(f"{cell!r} is not a number")
        return float(cell)
    # Spreadsheets write the Unicode minus sign.
    text = cell.strip().replace("\u2212", "-")
    if decimal == "," and ("," in text or _POINT_GROUPS.fullmatch(text)):
        text = text.replace(".", "").replace(",", ".")
    elif "," in text and _COMMA_GROUPS.fullmatch(text):
        text = text.replace(",", "")
    # Python accepts 1_000 as a number; in a data file it is an identifier.
    if "_" in text:
        raise ValueError(f"{cell!r} is not a number")
    return float(text)


def is_number(cell: Any, decimal: str = ".") -> bool:
    """Return whether `parse_number` accepts the cell."""
    try:
        parse_number(cell, decimal)
    except (TypeError, ValueError):
        return False
    return True


def detect_decimal_sign(cells: Iterable[Any], separator: str) -> str:
    """Return the decimal sign of text cells.

    It is a comma only if cells cannot be parsed otherwise: in a file separated by commas, 1,234
    is a number with a thousands separator.

    Args:
        cells: cells of all columns.
        separator: column separator of the file.

    Returns:
        "." or ",".
    """
    texts = [c.strip() for c in cells if isinstance(c, str) and "," in c]
    commas = [t for t in texts if _DECIMAL_COMMA.fullmatch(t)]
    if not commas or (separator == "," and all(_COMMA_GROUPS.fullmatch(t) for t in commas)):
        return "."
    return ","


def time_parser(time_format: str) -> Callable[[Any], Time]:
    """Return a function that parses cells of a time column.

    Args:
        time_format: `ISO`, `NUMBER`, "epoch seconds" (or milliseconds, microseconds), or a format
            of `datetime.strptime`.

    Returns:
        A function from a cell to a datetime in UTC without zone, or to a number.
    """
    if time_format == ISO:
        return _parse_iso
    if time_format == NUMBER:
        return parse_number
    if time_format.startswith("epoch "):
        scale = next(scale for _, scale, unit in _EPOCH_UNITS if time_format == f"epoch {unit}")
        return lambda cell: datetime.fromtimestamp(parse_number(cell) / scale, UTC).replace(
            tzinfo=None
        )
    return lambda cell: datetime.strptime(str(cell).strip(), time_format)


def detect_time_format(cells: Sequence[Any]) -> str | None:
    """Return the first time format that parses every cell, or None if there is none.

    Formats under which the times do not decrease are preferred. Plain numbers are not times,
    except dates such as 20240131.
    """
    given = [cell for cell in cells if not is_missing(cell)]
    if not given or (all(is_number(cell) for cell in given) and not _are_compact_dates(given)):
        return None
    fitting = [f for f in (ISO, *_DATE_FORMATS) if _parse_all(f, given) is not None]
    ordered = [f for f in fitting if is_sorted(_parse_all(f, given) or [])]
    return next(iter(ordered or fitting), None)


def detect_epoch_unit(cells: Sequence[Any]) -> str:
    """Return what a numeric time column counts: "epoch seconds" or finer, else `NUMBER`."""
    values = [parse_number(cell) for cell in cells if not is_missing(cell)]
    for smallest, _, unit in _EPOCH_UNITS:
        if values and all(smallest <= value < 1e3 * smallest for value in values):
            return f"epoch {unit}"
    return NUMBER


def _are_compact_dates(cells: Sequence[Any]) -> bool:
    """Return whether cells are dates such as 20240131, which are also numbers."""
    compact = all(isinstance(c, str) and _COMPACT_DATE.fullmatch(c.strip()) for c in cells)
    return compact and _parse_all("%Y%m%d", cells) is not None


def _parse_iso(cell: Any) -> datetime:
    if isinstance(cell, datetime):
        found = cell
    elif isinstance(cell, date):
        found = datetime(cell.year, cell.month, cell.day)
    elif isinstance(cell, str):
        found = datetime.fromisoformat(cell.strip())
    else:
        raise ValueError(f"{cell!r} is not a time stamp")
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def _parse_all(time_format: str, cells: Iterable[Any]) -> list[Any] | None:
    parse = time_parser(time_format)
    try:
        return [parse(cell) for cell in cells]
    except (TypeError, ValueError, OverflowError):
        return None


def is_sorted(times: list[Any]) -> bool:
    """Return whether values do not decrease."""
    return all(a <= b for a, b in itertools.pairwise(times))
