"""Recognise tables that contain several series, or a date in several columns."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from regimekit.core.exceptions import RegimekitError
from regimekit.io import cell_parsing as cells
from regimekit.io.layout import Layout
from regimekit.preprocessing.time_column import format_time
from regimekit.preprocessing.time_index import instant

_MAX_REPEATS = 0.2  # share of rows that may repeat the time of another row
_MAX_KEYS = 0.5  # different values of a key per row, at most
_DATE_COLUMNS = ("year", "month", "day", "hour")


def date_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that form a date together, such as year and month; else ().

    Example:
        >>> date_columns(["Year", "Month", "passengers"])
        ('Year', 'Month')
    """
    lower = {name.lower(): name for name in names}
    found = tuple(itertools.takewhile(lambda part: part in lower, _DATE_COLUMNS))
    return tuple(lower[part] for part in found) if len(found) > 1 else ()


def check_single_series(
    names: Sequence[str], sample: Sequence[Sequence[Any]], layout: Layout
) -> None:
    """Raise an error if the first rows of a table seem to contain several series.

    Args:
        names: column names.
        sample: first rows, one cell per column.
        layout: detected columns.

    Raises:
        RegimekitError: if times repeat or start again, and a column tells the series apart; or if
            more than 20 % of the rows repeat a time.
    """
    if layout.time is None or layout.by is not None:
        return
    position = list(names).index(layout.time)
    rows = [row for row in sample if not cells.is_missing(row[position])]
    times = layout.times([row[position] for row in rows])
    if len(times) != len(rows):
        return  # a cell that is no time is reported with its row when it is read
    moments = [instant(time) for time in times]
    repeats = len(moments) - len(set(moments))
    if not repeats and cells.is_sorted(times):
        return
    taken = {layout.target, layout.time, *layout.columns}
    keys = [
        name
        for j, name in enumerate(names)
        if name not in taken and _is_key([row[j] for row in rows], moments)
    ]
    first = next((t for k, t in enumerate(times) if instant(t) in moments[:k]), times[0])
    if keys and repeats:
        others = f" (or {', '.join(keys[1:])})" if len(keys) > 1 else ""
        raise RegimekitError(
            f"Several rows have the time {format_time(first)}: the table contains several series. "
            f"Pass --by {keys[0]}{others} to run one model per series."
        )
    if repeats > _MAX_REPEATS * len(moments):
        raise RegimekitError(
            f"{repeats} of the first {len(moments)} rows repeat the time of another row, such as "
            f"{format_time(first)}. If the table contains several series, name their column with "
            "--by; if not, pass --time none to use the rows in their order."
        )


def _is_key(column: list[Any], moments: list[Any]) -> bool:
    """Return whether a column tells series apart: times do not repeat within one value."""
    values = [str(cell) for cell in column]
    different = len(set(values))
    if not 1 < different <= _MAX_KEYS * len(values):
        return False
    pairs = set(zip(values, moments, strict=True))
    return len(pairs) == len(values) or len(values) - len(pairs) < 0.01 * len(values)
