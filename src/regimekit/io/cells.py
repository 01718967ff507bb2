"""One cell as a number or a time, in the notation that the file uses."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any

from regimekit.preprocessing.time_index import Time

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "missing", "?", "-"})
_COMMA = re.compile(r"[+-]?(\d+|\d{1,3}(\.\d{3})+),\d+")
_POINTED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")  # thousands, where the comma is decimal
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
# Tried in this order after ISO 8601; the first that reads every cell, and in order, is taken.
_DAYS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d", "%d %b %Y")
_CLOCKS = (" %H:%M:%S", " %H:%M", "", " %I:%M %p", " %H:%M:%S.%f")
_MONTHS = ("%Y-%m", "%b %Y")
_FORMATS = (*(f"{day}{clock}" for day in _DAYS for clock in _CLOCKS), *_MONTHS)
_EPOCHS = ((1e8, 1.0, "seconds"), (1e11, 1e3, "milliseconds"), (1e14, 1e6, "microseconds"))
ISO = "ISO 8601"
NUMBER = "numbers"


def missing(cell: Any) -> bool:
    """Whether a cell says that nothing was observed."""
    if isinstance(cell, float):
        return math.isnan(cell)
    return cell is None or (isinstance(cell, str) and cell.strip().lower() in MISSING)


def number(cell: Any, decimal: str = ".") -> float:
    """A cell as a float, NaN if missing; ValueError or TypeError if it is no number.

    Example:
        >>> number("1.234,5", ","), number("1.234", ","), number("1,234.5"), number(None)
        (1234.5, 1234.0, 1234.5, nan)
    """
    if missing(cell):
        return math.nan
    if not isinstance(cell, str):
        if isinstance(cell, (date, bytes, list, dict)):
            raise TypeError(f"{cell!r} is not a number")
        return float(cell)
    text = cell.strip().replace("\u2212", "-")
    if decimal == "," and ("," in text or _POINTED.fullmatch(text)):
        text = text.replace(".", "").replace(",", ".")
    elif "," in text and _GROUPED.fullmatch(text):
        text = text.replace(",", "")
    if "_" in text:  # Python reads 1_000 as a number; a data file does not
        raise ValueError(f"{cell!r} is not a number")
    return float(text)


def is_number(cell: Any, decimal: str = ".") -> bool:
    """Whether `number` reads the cell."""
    try:
        number(cell, decimal)
    except (TypeError, ValueError):
        return False
    return True


def find_decimal(cells: Iterable[Any], separator: str) -> str:
    """The decimal sign of text cells: a comma only where cells cannot be read without it."""
    texts = [c.strip() for c in cells if isinstance(c, str) and "," in c]
    commas = [t for t in texts if _COMMA.fullmatch(t)]
    if not commas or (separator == "," and all(_GROUPED.fullmatch(t) for t in commas)):
        return "."
    return ","


def time_reader(form: str) -> Callable[[Any], Time]:
    """A function from cells to times: UTC without zone, or plain numbers."""
    if form == ISO:
        return _iso
    if form == NUMBER:
        return number
    if form.startswith("epoch "):
        scale = next(scale for _, scale, unit in _EPOCHS if form == f"epoch {unit}")
        return lambda cell: datetime.fromtimestamp(number(cell) / scale, UTC).replace(tzinfo=None)
    return lambda cell: datetime.strptime(str(cell).strip(), form)


def find_time_form(cells: Sequence[Any]) -> str | None:
    """The notation in which every cell is a time stamp, or None if there is none."""
    given = [cell for cell in cells if not missing(cell)]
    if not given or (all(is_number(cell) for cell in given) and not _compact(given)):
        return None
    fitting = [form for form in (ISO, *_FORMATS) if _reads(form, given)]
    ordered = [form for form in fitting if _in_order(form, given)]
    return next(iter(ordered or fitting), None)


def find_epoch(cells: Sequence[Any]) -> str:
    """What a numeric time column counts: seconds since 1970 or a part of them, or just steps."""
    values = [number(cell) for cell in cells if not missing(cell)]
    for least, _, unit in _EPOCHS:
        if values and all(least <= value < 1e3 * least for value in values):
            return f"epoch {unit}"
    return NUMBER


def _compact(cells: Sequence[Any]) -> bool:
    """Whether cells are dates written as 20240131, which are also numbers."""
    return all(
        isinstance(c, str) and re.fullmatch(r"(19|20)\d{6}", c.strip()) for c in cells
    ) and _reads("%Y%m%d", cells)


def _iso(cell: Any) -> datetime:
    if isinstance(cell, datetime):
        found = cell
    elif isinstance(cell, date):
        found = datetime(cell.year, cell.month, cell.day)
    elif isinstance(cell, str):
        found = datetime.fromisoformat(cell.strip())
    else:
        raise ValueError(f"{cell!r} is not a time stamp")
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


def _reads(form: str, cells: Iterable[Any]) -> bool:
    read = time_reader(form)
    try:
        for cell in cells:
            read(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _in_order(form: str, cells: Sequence[Any]) -> bool:
    times: list[Any] = [time_reader(form)(cell) for cell in cells]  # all of one kind
    return all(a <= b for a, b in itertools.pairwise(times))
