"""Tables in other shapes: a date in several columns, one column per series, several series."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from regimekit.core.exceptions import RegimekitError
from regimekit.io import cell_parsing as cells
from regimekit.io.layout import ColumnChoice, Layout, are_row_numbers, is_numeric, shortened
from regimekit.io.reader import Source, quote_name, quote_text
from regimekit.preprocessing.time_column import format_time
from regimekit.preprocessing.time_index import instant

SERIES, VALUE = "series", "value"  # columns of a wide table after it was made long
_MAX_REPEATS = 0.2  # share of rows that may repeat the time of another row
_MAX_KEYS = 0.5  # different values of a key per row, at most
_DATE_COLUMNS = ("year", "month", "day", "hour")
_DATE_AND_CLOCK = (("date", "day", "datum"), ("time", "hour", "clock", "zeit", "uhrzeit"))


def join_date_columns(source: Source, choice: ColumnChoice) -> tuple[Source, ColumnChoice]:
    """Add a time column to a table that has its date in several columns, such as year and month.

    Args:
        source: the table.
        choice: columns that the caller names; nothing is done if the time is among them.

    Returns:
        The table and the choice of columns, with the new column as time.
    """
    parts = date_columns(source.names)
    taken = {choice.target, choice.by, *choice.columns}
    if choice.time is not None or not parts or taken.intersection(parts):
        return source, choice
    name, others = " ".join(parts), tuple(n for n in source.names if n not in parts)
    texts = [f"trim(CAST({quote_name(part)} AS VARCHAR))" for part in parts]
    if parts[1].lower() == "hour":
        texts[1] = f"concat(lpad({texts[1]}, 2, '0'), ':00')"
    column = f"concat_ws(' ', {', '.join(texts)}) AS {quote_name(name)}"
    joined = replace(
        source,
        relation=f"(SELECT *, {column} FROM {source.relation})",
        names=(*others, name),
        notes=[*source.notes, f"The columns {', '.join(parts)} form the time."],
    )
    *columns, times = zip(*joined.sample(), strict=True)
    time_format = _joined_format(times, parts)
    if time_format is None or any(cells.detect_time_format(column) for column in columns):
        return source, choice
    return joined, choice._replace(time=name, time_format=time_format)


def _joined_format(texts: Sequence[str], parts: tuple[str, ...]) -> str | None:
    """Return the format of joined dates: the month is a number or a name."""
    if parts[0].lower() != "year":
        return cells.detect_time_format(texts)
    rest = ["%d", "%H"][: len(parts) - 2]
    for month in ("%m", "%b", "%B"):
        time_format = " ".join(["%Y", month, *rest])
        parse = cells.time_parser(time_format)
        try:
            for text in texts:
                parse(text)
        except ValueError:
            continue
        return time_format
    return None


def make_long(source: Source, choice: ColumnChoice, decimal: str) -> tuple[Source, ColumnChoice]:
    """Turn a table with one column per series into a table with one row per series and time.

    Args:
        source: the table.
        choice: columns that the caller names; `columns` names the series, all by default.
        decimal: decimal sign of text cells.

    Returns:
        The long table with the columns time, `SERIES` and `VALUE`, and the choice of columns.

    Raises:
        RegimekitError: if there is no numeric column, or if other columns were named.
    """
    if choice.target is not None or choice.by is not None:
        raise RegimekitError(
            "--wide takes every numeric column as a series, so it cannot be combined with --target "
            "or --by. Name the series with --columns to use only some of them."
        )
    sample = source.sample()
    table = {name: [row[j] for row in sample] for j, name in enumerate(source.names)}
    times = (name for name, column in table.items() if cells.detect_time_format(column))
    time = choice.time or next(times, None)
    free = [name for name in table if name != time]
    series = list(choice.columns) or [
        n for n in free if is_numeric(table[n], decimal) and not are_row_numbers(table, n)
    ]
    if not series:
        raise RegimekitError(f"--wide: {source.name} has no numeric columns.")
    chosen = [] if time is None else [quote_name(time)]
    parts = [
        f"SELECT {', '.join([*chosen, f'{quote_text(name)} AS {SERIES}'])}, "
        f"CAST({quote_name(name)} AS VARCHAR) AS {VALUE} FROM {source.relation}"
        for name in series
    ]
    relation = f"({' UNION ALL '.join(parts)})"
    names = ((time,) if time else ()) + (SERIES, VALUE)
    note = f"Each of the {len(series)} columns {shortened(series)} is a series."
    notes = [*source.notes, note]
    long = replace(source, relation=relation, names=names, notes=notes)
    return long, choice._replace(target=VALUE, by=SERIES, time=time or "none", columns=())


def date_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that form a time together: year and month, or date and clock; else ().

    Example:
        >>> date_columns(["Year", "Month", "passengers"])
        ('Year', 'Month')
        >>> date_columns(["Date", "Time", "flow"])
        ('Date', 'Time')
    """
    lower = {name.lower(): name for name in names}
    found = tuple(itertools.takewhile(lambda part: part in lower, _DATE_COLUMNS))
    if not found:
        found = tuple(n for known in _DATE_AND_CLOCK for n in known if n in lower)
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
