"""Parse one table cell as a number or as a time stamp, in the notation of the file."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from typing import Any

from regimekit.preprocessing.time_index import Time, find_zone, instant

# Cells, in lower case, that mean "not observed".
MISSING = frozenset(
    {"", "na", "n/a", "n.a.", "#n/a", "<na>", "nan", "nat", "null", "none", "missing", "?"}
    | {"-", "--", "---", ".", ".."}
)
ISO = "ISO 8601"
NUMBER = "numbers"
_DECIMAL_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_POINT_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_COMMA_GROUPS = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
_COMPACT_DATE = re.compile(r"(19|20)\d{6}")
# Date formats are tried in this order after ISO 8601. The first one that parses every cell into
# non-decreasing times is used: 1/12/2023 is January unless the order of the rows says otherwise.
_DATE_PARTS = (
    *("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d", "%d %b %Y"),
    *("%b %d %Y", "%b %d, %Y", "%B %d, %Y", "%B %d %Y", "%d %B %Y", "%d-%b-%Y", "%d-%b-%y"),
    *("%a, %d %b %Y", "%d.%m.%y", "%m/%d/%y", "%d/%m/%y"),
)
_CLOCK_PARTS = (" %H:%M:%S", " %H:%M", "", " %I:%M %p", " %I:%M:%S %p", " %H:%M:%S.%f")
_DATE_FORMATS = (
    *(f"{day}{clock}" for day in _DATE_PARTS for clock in _CLOCK_PARTS),
    *("%Y-%m", "%Y/%m", "%m/%Y", "%b %Y", "%B %Y", "%b-%Y", "%Y %b", "%Y %B", "%Y %m", "%Y %m %d"),
)
QUARTER = "quarters"
_QUARTER = re.compile(
    r"(?P<year>\d{4})[ -]?Q(?P<q>[1-4])|Q(?P<q2>[1-4])[ -]?(?P<year2>\d{4})", re.I
)
EITHER = " or "  # joins two formats that occur in one column
_PROBED = 20  # cells after which a format that never fits is given up
_MOST = 0.8  # share of the cells that a format must parse to be that of the column
# A space or an apostrophe between thousands: 1 200, 1'200.
_THOUSANDS = re.compile("(?<=\\d)[ '\u00a0\u202f\u2019](?=\\d{3}(?!\\d))")
_NAMED_UTC = re.compile(r" ?(UTC|GMT)$")
_CURRENCIES = "$\u20ac\u00a3\u00a5\u20b9"
# Sign, currency, number, unit: $1,200.50 or 12.5 kWh or 40%.
_WITH_UNIT = re.compile(
    rf"(?P<sign>[+-]?)\s*(?P<currency>[{_CURRENCIES}]?)\s*"
    r"(?P<number>[+-]?[\d.,]*\d[\d.,]*([eE][+-]?\d+)?)\s*(?P<unit>[^\d\s.,+-][^\d]{0,11})?"
)
# Smallest value, units per second and name of each unit of time since 1970.
_EPOCH_UNITS = ((1e8, 1.0, "seconds"), (1e11, 1e3, "milliseconds"), (1e14, 1e6, "microseconds"))


def is_missing(cell: Any) -> bool:
    """Return whether a cell means "not observed": empty, NaN, or one of `MISSING`."""
    if isinstance(cell, float):
        return math.isnan(cell)
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING)


def parse_missing(text: str) -> tuple[str, ...]:
    """Parse comma-separated cells that mean "not observed"; they are compared in lower case."""
    return tuple(word.strip().lower() for word in text.split(",") if word.strip())


def split_unit(cell: str) -> tuple[str, str] | None:
    """Split a cell into its number and its unit.

    Returns:
        Both as text, without spaces around; None if the cell is not a number with a unit.

    Example:
        >>> split_unit("-$1,200.50"), split_unit("12.5 kWh"), split_unit("40%"), split_unit("B12")
        (('-1,200.50', '$'), ('12.5', 'kWh'), ('40', '%'), None)
    """
    found = _WITH_UNIT.fullmatch(_plain(cell))
    if found is None:
        return None
    unit = (found["currency"] or "") + (found["unit"] or "").strip()
    return found["sign"] + found["number"], unit


def detect_unit(cells: Iterable[Any]) -> str:
    """Return the unit that the cells of a column share; "" if they have none or several."""
    found = {split[1] for c in cells if isinstance(c, str) and (split := split_unit(c))}
    found.discard("")
    return found.pop() if len(found) == 1 else ""


def parse_number(
    cell: Any, decimal: str = ".", unit: str = "", missing: Sequence[str] = ()
) -> float:
    """Parse a cell as a number.

    Args:
        cell: text or a typed value.
        decimal: decimal sign of text cells, "." or ",".
        unit: unit of the column, which text cells may have.
        missing: other cells that mean "not observed", in lower case.

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
    if missing and isinstance(cell, str) and cell.strip().lower() in missing:
        return math.nan
    number = _parse_number(cell, decimal, unit)
    return math.nan if missing and number in _numbers(missing) else number


def _numbers(words: Sequence[str]) -> set[float]:
    return {float(word) for word in words if is_number(word)}


def _plain(cell: str) -> str:
    """Return a cell without signs that only print has: the Unicode minus, spaces in numbers."""
    text = cell.strip().replace("\u2212", "-")
    return text if text.isalnum() else _THOUSANDS.sub("", text)


def _parse_number(cell: Any, decimal: str, unit: str) -> float:
    if not isinstance(cell, str):
        if isinstance(cell, (date, bytes, list, dict)):
            raise TypeError(f"{cell!r} is not a number")
        return float(cell)
    text = _plain(cell)
    # Accountants write negative numbers in parentheses.
    if text[:1] == "(" and text[-1:] == ")" and text[1:2] not in "+-":
        text = f"-{text[1:-1]}"
    if unit and (split := split_unit(text)) and split[1] in (unit, ""):
        text = split[0]
    if decimal == "," and ("," in text or _POINT_GROUPS.fullmatch(text)):
        text = text.replace(".", "").replace(",", ".")
    elif "," in text and _COMMA_GROUPS.fullmatch(text):
        text = text.replace(",", "")
    # Python accepts 1_000 as a number; in a data file it is an identifier.
    if "_" in text:
        raise ValueError(f"{cell!r} is not a number")
    return float(text)


def is_number(cell: Any, decimal: str = ".", unit: str = "", missing: Sequence[str] = ()) -> bool:
    """Return whether `parse_number` accepts the cell."""
    try:
        parse_number(cell, decimal, unit, missing)
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
    splits = [split_unit(c) for c in cells if isinstance(c, str) and "," in c]
    commas = [split[0] for split in splits if split and _DECIMAL_COMMA.fullmatch(split[0])]
    if not commas or (separator == "," and all(_COMMA_GROUPS.fullmatch(t) for t in commas)):
        return "."
    return ","


def time_parser(time_format: str, zone: str | None = None) -> Callable[[Any], Time]:
    """Return a function that parses cells of a time column.

    Args:
        time_format: `ISO`, `NUMBER`, `QUARTER`, "epoch seconds" (or milliseconds, microseconds), a
            format of `datetime.strptime`, or several of them joined by `EITHER`.
        zone: time zone of the column. Cells with an offset are converted to it, others are local
            times there. Without it, cells keep their own offset.

    Returns:
        A function from a cell to a datetime or to a number. Times since 1970 are in UTC: with
        `zone` they are converted, without it they have no zone.
    """
    parse = _plain_parser(time_format)
    if zone is None:
        return parse
    place = find_zone(zone)
    is_epoch = time_format.startswith("epoch ")

    def convert(cell: Any) -> Time:
        time = parse(cell)
        if not isinstance(time, datetime):
            return time
        if time.tzinfo is None and not is_epoch:
            return time.replace(tzinfo=place)
        return (time.replace(tzinfo=UTC) if is_epoch else time).astimezone(place)

    return convert


def _plain_parser(time_format: str) -> Callable[[Any], Time]:
    if EITHER in time_format:
        parsers = [_plain_parser(part) for part in time_format.split(EITHER)]

        def parse_either(cell: Any) -> Time:
            for parse in parsers:
                with suppress(TypeError, ValueError, OverflowError):
                    return parse(cell)
            raise ValueError(f"{cell!r} is not a time stamp")

        return parse_either
    if time_format == ISO:
        return _parse_iso
    if time_format == NUMBER:
        return parse_number
    if time_format == QUARTER:
        return _parse_quarter
    if time_format.startswith("epoch "):
        scale = next(scale for _, scale, unit in _EPOCH_UNITS if time_format == f"epoch {unit}")
        return lambda cell: datetime.fromtimestamp(parse_number(cell) / scale, UTC).replace(
            tzinfo=None
        )
    return lambda cell: datetime.strptime(str(cell).strip(), time_format)


def _parse_quarter(cell: Any) -> datetime:
    found = _QUARTER.fullmatch(str(cell).strip())
    if found is None:
        raise ValueError(f"{cell!r} is not a quarter")
    year, quarter = found["year"] or found["year2"], found["q"] or found["q2"]
    return datetime(int(year), 3 * int(quarter) - 2, 1)


def detect_time_format(cells: Sequence[Any]) -> str | None:
    """Return the time format of a column, or None if it contains no times.

    A format that parses every cell is preferred, then two formats that do so together, then one
    that parses at least 80 % of the cells: reading fails at the others, with their row. Formats
    under which the times do not decrease are preferred. Plain numbers are not times, except dates
    such as 20240131.
    """
    given = [cell for cell in cells if not is_missing(cell)]
    if not given or (all(is_number(cell) for cell in given) and not _are_compact_dates(given)):
        return None
    parsed = {f: _parse_each(f, given) for f in (ISO, *_DATE_FORMATS, QUARTER)}
    parsed = {f: times for f, times in parsed.items() if any(t is not None for t in times)}
    fitting = [f for f, times in parsed.items() if None not in times]
    if fitting:
        return next((f for f in fitting if is_sorted(parsed[f])), fitting[0])
    for one, other in itertools.combinations(parsed, 2):
        both = [b if a is None else a for a, b in zip(parsed[one], parsed[other], strict=True)]
        if None not in both and is_sorted(both):
            return f"{one}{EITHER}{other}"
    counts = {f: sum(t is not None for t in times) for f, times in parsed.items()}
    best = max(counts, key=lambda f: counts[f], default=None)
    return best if best is not None and counts[best] >= max(_MOST * len(given), 2) else None


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
    return compact and None not in _parse_each("%Y%m%d", cells)


def _parse_iso(cell: Any) -> datetime:
    if isinstance(cell, datetime):
        return cell
    if isinstance(cell, date):
        return datetime(cell.year, cell.month, cell.day)
    if isinstance(cell, str):
        return datetime.fromisoformat(_NAMED_UTC.sub("+00:00", cell.strip()))
    raise ValueError(f"{cell!r} is not a time stamp")


def _parse_each(time_format: str, cells: Sequence[Any]) -> list[Any]:
    """Return the time of each cell, None where the format does not fit."""
    parse = time_parser(time_format)
    found: list[Any] = []
    for cell in cells:
        try:
            found.append(parse(cell))
        except (TypeError, ValueError, OverflowError):
            found.append(None)
        # A format that fails at first fits hardly any cell of the column.
        if len(found) == _PROBED and not any(t is not None for t in found):
            return found + [None] * (len(cells) - _PROBED)
    return found


def is_sorted(times: Sequence[Time]) -> bool:
    """Return whether values do not decrease; dates with and without a zone are not sorted."""
    try:
        ordered: Any = [instant(time) for time in times]
        return all(a <= b for a, b in itertools.pairwise(ordered))
    except TypeError:
        return False
