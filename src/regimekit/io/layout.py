"""Detect which column is the target, which the time, and how their cells are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from regimekit.core.exceptions import RegimekitError, unknown
from regimekit.io import cell_parsing as cells
from regimekit.preprocessing.time_index import Time

# Names under which a column of increasing numbers is taken as the time.
_TIME_NAMES = {
    *("time", "timestamp", "ts", "date", "datetime", "ds", "epoch", "unix"),
    *("t", "index", "step", "year", "month", "day"),
}
_TARGET_NAMES = ("y", "target", "value")
_NUMERIC_SHARE = 0.5  # share of cells that must be numbers in a numeric column


class ColumnChoice(NamedTuple):
    """Columns that the caller names; None where a column is to be detected.

    Attributes:
        target: column to forecast.
        time: column with the time stamps.
        columns: covariates.
        by: column with the name of the series.
    """

    target: str | None = None
    time: str | None = None
    columns: tuple[str, ...] = ()
    by: str | None = None


@dataclass(frozen=True)
class Layout:
    """Columns in use and the notation of their cells.

    Attributes:
        target: column to forecast.
        time: column with the time stamps, or None if rows are taken in their order.
        time_format: format for `cell_parsing.time_parser`.
        columns: covariates.
        by: column with the name of the series, or None for a single series.
        decimal: decimal sign of text cells.
    """

    target: str
    time: str | None = None
    time_format: str = cells.ISO
    columns: tuple[str, ...] = ()
    by: str | None = None
    decimal: str = "."

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the columns to read, in order: target, time, series, covariates."""
        named = (self.target, self.time, self.by, *self.columns)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def to_json(self) -> dict[str, Any]:
        """Return the layout as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Layout:
        """Return the layout that `to_json` described."""
        return cls(**{**state, "columns": tuple(state["columns"])})

    def times(self, column: Sequence[Any]) -> list[Time]:
        """Parse the cells of a time column; missing cells are skipped."""
        parse = cells.time_parser(self.time_format)
        return [parse(cell) for cell in column if not cells.is_missing(cell)]


def detect_layout(
    names: Sequence[str],
    sample: Sequence[tuple[Any, ...]],
    choice: ColumnChoice,
    separator: str = "",
) -> Layout:
    """Detect the target and the time column from the first rows of a table.

    Args:
        names: column names.
        sample: first rows, one cell per column.
        choice: columns that the caller names; they are checked and used.
        separator: column separator of a CSV file.

    Returns:
        The layout.

    Raises:
        RegimekitError: if a named column does not exist or cannot be used, or if the target is
            not unique.

    Example:
        >>> rows = [("2024-01-01", "1,5"), ("2024-01-02", "2,5")]
        >>> found = detect_layout(["when", "load"], rows, ColumnChoice())
        >>> found.target, found.time, found.decimal
        ('load', 'when', ',')
    """
    table = {name: [row[j] for row in sample] for j, name in enumerate(names)}
    _check_names(table, choice)
    decimal = cells.detect_decimal_sign((cell for row in sample for cell in row), separator)
    time, time_format = _detect_time(table, choice)
    if choice.target is not None:
        _check_target(choice.target, table[choice.target], (time, choice.by))
    others = {n: column for n, column in table.items() if n not in (time, choice.by)}
    target = choice.target or _detect_target(table, others, decimal, choice)
    return Layout(target, time, time_format, choice.columns, choice.by, decimal)


def _check_names(table: dict[str, list[Any]], choice: ColumnChoice) -> None:
    named = {"--target": choice.target, "--time": choice.time, "--by": choice.by}
    for option, name in [*named.items(), *(("--columns", name) for name in choice.columns)]:
        if name is not None and name not in table:
            raise unknown(option, name, table)


def _detect_time(table: dict[str, list[Any]], choice: ColumnChoice) -> tuple[str | None, str]:
    """Return the time column and its format."""
    if choice.time is not None:
        column = table[choice.time]
        time_format = cells.detect_time_format(column)
        if time_format is None and all(cells.is_number(cell) for cell in column):
            time_format = cells.detect_epoch_unit(column)
        if time_format is None:
            first = next((c for c in column if not cells.is_missing(c)), None)
            raise RegimekitError(
                f"--time {choice.time}: no time format fits all cells; the first is {first!r}. "
                "Write times as 2024-01-31 13:45."
            )
        return choice.time, time_format
    free = {n: c for n, c in table.items() if n not in (choice.target, choice.by)}
    for name, column in free.items():
        if time_format := cells.detect_time_format(column):
            return name, time_format
    for name, column in free.items():
        if _is_counter(name, column):
            return name, cells.detect_epoch_unit(column)
    return None, cells.ISO


def _check_target(target: str, column: list[Any], taken: tuple[str | None, ...]) -> None:
    if target in taken:
        raise RegimekitError(
            f"--target {target} is also the time or the series column. Name another column."
        )
    if cells.detect_time_format(column) is not None:
        raise RegimekitError(
            f"--target {target} contains times, not numbers. Pass it as --time {target}, and name "
            "the column to forecast with --target."
        )


def _detect_target(
    table: dict[str, list[Any]],
    others: dict[str, list[Any]],
    decimal: str,
    choice: ColumnChoice,
) -> str:
    free = [n for n, c in others.items() if n not in choice.columns and _is_numeric(c, decimal)]
    usual = [name for name in free if name.lower() in _TARGET_NAMES]
    if len(free) == 1 or len(usual) == 1:
        return (usual or free)[0]
    if not free:
        first = ", ".join(f"{name}={column[0]!r}" for name, column in list(table.items())[:8])
        raise RegimekitError(
            f"No column contains numbers to forecast. First row: {first}. Cells of the target "
            "must be numbers without units."
        )
    raise RegimekitError(
        f"Several columns contain numbers. Pass --target with one of {', '.join(free)}."
    )


def _is_numeric(column: list[Any], decimal: str) -> bool:
    given = [cell for cell in column if not cells.is_missing(cell)]
    return sum(cells.is_number(cell, decimal) for cell in given) > _NUMERIC_SHARE * len(given)


def _is_counter(name: str, column: list[Any]) -> bool:
    """Return whether a column is named like a time and its numbers do not decrease."""
    if name.lower() not in _TIME_NAMES or not all(cells.is_number(cell) for cell in column):
        return False
    return cells.is_sorted([cells.parse_number(cell) for cell in column])
