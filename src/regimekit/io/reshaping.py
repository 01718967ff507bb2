"""Tables in other shapes: a date in several columns, one column per series."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from regimekit.core.exceptions import RegimekitError
from regimekit.io import cell_parsing as cells
from regimekit.io.layout import ColumnChoice, is_numeric
from regimekit.io.reader import Source, quote_name, quote_text
from regimekit.io.series_keys import date_columns

SERIES, VALUE = "series", "value"  # columns of a wide table after it was made long


def join_date_columns(source: Source, choice: ColumnChoice) -> tuple[Source, ColumnChoice]:
    """Add a time column to a table that has its date in several columns, such as year and month.

    Args:
        source: the table.
        choice: columns that the caller names; nothing is done if the time is among them.

    Returns:
        The table and the choice of columns, with the new column as time.
    """
    parts = date_columns(source.names)
    if choice.time is not None or not parts or set(parts) & {choice.target, *choice.columns}:
        return source, choice
    position = {name: j for j, name in enumerate(source.names)}
    sample = source.sample()
    others = [name for name in source.names if name not in parts]
    if any(cells.detect_time_format([row[position[n]] for row in sample]) for n in others):
        return source, choice
    joined = [" ".join(str(row[position[name]]).strip() for name in parts) for row in sample]
    time_format = _joined_format(joined, len(parts))
    if time_format is None:
        return source, choice
    name = " ".join(parts)
    texts = ", ".join(f"trim(CAST({quote_name(part)} AS VARCHAR))" for part in parts)
    relation = f"(SELECT *, concat_ws(' ', {texts}) AS {quote_name(name)} FROM {source.relation})"
    notes = [*source.notes, f"The columns {', '.join(parts)} form the time."]
    joined_source = replace(source, relation=relation, names=(*others, name), notes=notes)
    return joined_source, choice._replace(time=name, time_format=time_format)


def _joined_format(texts: list[str], parts: int) -> str | None:
    """Return the format of joined dates: the month is a number or a name."""
    rest = ["%d", "%H"][: parts - 2]
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
    time = choice.time or _find_time(table)
    free = [name for name in table if name != time]
    series = list(choice.columns) or [n for n in free if is_numeric(table[n], decimal)]
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
    notes = [*source.notes, f"Each of the {len(series)} columns {_listed(series)} is a series."]
    long = replace(source, relation=relation, names=names, notes=notes)
    return long, choice._replace(target=VALUE, by=SERIES, time=time or "none", columns=())


def _find_time(table: dict[str, list[Any]]) -> str | None:
    return next((name for name, column in table.items() if cells.detect_time_format(column)), None)


def _listed(names: list[str], most: int = 5) -> str:
    more = f", .. ({len(names) - most} more)" if len(names) > most else ""
    return ", ".join(names[:most]) + more
