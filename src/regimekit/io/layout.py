"""Detect which column is the target, which the time, and how their cells are written."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from regimekit.core.exceptions import RegimekitError, unknown
from regimekit.io import cell_parsing as cells
from regimekit.preprocessing.time_index import Time

# Names under which a column of increasing numbers is taken as the time.
_TIME_NAMES = {
    *("time", "timestamp", "ts", "date", "datetime", "ds", "epoch", "unix"),
    *("t", "index", "step", "year", "month", "day"),
}
_CLOCK_NAMES = {"time", "timestamp", "date", "datetime", "ds"}  # of columns that are no numbers
_TARGET_NAMES = ("y", "target", "value")
_NUMERIC_SHARE = 0.5  # share of cells that must be numbers in a numeric column
_MAX_NAMES = 8  # columns that a message names
_MAX_LEVELS = 50  # different texts that a categorical covariate may have
NO_TIME = "none"  # value of --time: use the rows in their order


class ColumnChoice(NamedTuple):
    """Columns that the caller names; None where a column is to be detected.

    Attributes:
        target: column to forecast.
        time: column with the time stamps.
        columns: covariates.
        by: column with the name of the series.
        time_format: format of the times, as for `datetime.strptime`; None to detect it.
        zone: time zone of the times; None to keep their own.
        missing: cells that mean "not observed", in lower case.
    """

    target: str | None = None
    time: str | None = None
    columns: tuple[str, ...] = ()
    by: str | None = None
    time_format: str | None = None
    zone: str | None = None
    missing: tuple[str, ...] = ()


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
        zone: time zone of the times; None to keep their own.
        missing: cells that mean "not observed", in lower case.
        units: units of the numbers by column, which are removed.
        levels: texts of the categorical covariates by column; the first is the reference.
    """

    target: str
    time: str | None = None
    time_format: str = cells.ISO
    columns: tuple[str, ...] = ()
    by: str | None = None
    decimal: str = "."
    zone: str | None = None
    missing: tuple[str, ...] = ()
    units: dict[str, str] = field(default_factory=dict)
    levels: dict[str, list[str]] = field(default_factory=dict)

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the columns to read, in order: target, time, series, covariates."""
        named = (self.target, self.time, self.by, *self.columns)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    @property
    def covariates(self) -> tuple[str, ...]:
        """Names of the covariates: one per numeric column, one per level of a categorical one."""
        found: list[str] = []
        for name in self.columns:
            levels = self.levels.get(name)
            found += [name] if levels is None else [f"{name}={level}" for level in levels[1:]]
        return tuple(found)

    def number(self, name: str, cell: Any) -> float:
        """Parse a cell of a numeric column; NaN if it is missing."""
        unit = self.units.get(name, "")
        return cells.parse_number(cell, self.decimal, unit, self.missing)

    def covariate_values(self, name: str, cell: Any) -> list[float]:
        """Return the covariates of a cell: a number, or 0 and 1 for each level but the first.

        NaN means that the cell is missing; an unknown level is treated like a missing cell.
        """
        if name not in self.levels:
            return [self.number(name, cell)]
        levels = self.levels[name]
        text = str(cell).strip()
        known = not self.is_missing(cell) and text in levels
        return [float(text == level) if known else math.nan for level in levels[1:]]

    def is_missing(self, cell: Any) -> bool:
        """Return whether a cell means "not observed"."""
        return cells.is_missing(cell) or str(cell).strip().lower() in self.missing

    def parse_time(self) -> Callable[[Any], Time]:
        """Return a function that parses cells of the time column."""
        return cells.time_parser(self.time_format, self.zone)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Layout:
        """Return the layout whose fields are given, as `dataclasses.asdict` returns them."""
        tuples = {name: tuple(state.get(name, ())) for name in ("columns", "missing")}
        return cls(**{**state, **tuples})

    def times(self, column: Sequence[Any]) -> list[Time]:
        """Parse the cells of a time column; cells that are missing or no times are skipped."""
        parse = self.parse_time()
        found = []
        for cell in column:
            if not cells.is_missing(cell):
                with suppress(TypeError, ValueError, OverflowError):
                    found.append(parse(cell))
        return found


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
    units = {n: unit for n, column in others.items() if (unit := cells.detect_unit(column))}
    target = choice.target or _detect_target(table, others, decimal, units, choice)
    used = {target, *choice.columns}
    levels = {
        name: _levels(name, table[name], choice.missing)
        for name in choice.columns
        if not is_numeric(table[name], decimal, units.get(name, ""), choice.missing)
    }
    return Layout(
        target,
        time,
        time_format,
        choice.columns,
        choice.by,
        decimal,
        choice.zone,
        choice.missing,
        {name: unit for name, unit in units.items() if name in used - levels.keys()},
        levels,
    )


def _levels(name: str, column: list[Any], missing: tuple[str, ...]) -> list[str]:
    """Return the texts of a categorical column, the most frequent first."""
    texts = [str(cell).strip() for cell in column if not cells.is_missing(cell)]
    counts = Counter(text for text in texts if text.lower() not in missing)
    if len(counts) > _MAX_LEVELS:
        raise RegimekitError(
            f"--columns {name}: the column has {len(counts)} different texts; a categorical "
            f"covariate may have {_MAX_LEVELS}. Use another column."
        )
    return sorted(counts, key=lambda text: (-counts[text], text))


def _check_names(table: dict[str, list[Any]], choice: ColumnChoice) -> None:
    time = None if choice.time == NO_TIME else choice.time
    named = {"--target": choice.target, "--time": time, "--by": choice.by}
    for option, name in [*named.items(), *(("--columns", name) for name in choice.columns)]:
        if name is not None and name not in table:
            raise unknown(option, name, table)


def _detect_time(table: dict[str, list[Any]], choice: ColumnChoice) -> tuple[str | None, str]:
    """Return the time column and its format."""
    if choice.time == NO_TIME and NO_TIME not in table:
        return None, cells.ISO
    if choice.time is not None:
        return choice.time, _format_of(choice.time, table[choice.time], choice.time_format)
    free = {n: c for n, c in table.items() if n not in (choice.target, choice.by, *choice.columns)}
    if choice.time_format is not None:
        raise RegimekitError("--time-format needs --time: the column with the times.")
    for name, column in free.items():
        if time_format := cells.detect_time_format(column):
            return name, time_format
    for name, column in free.items():
        if _is_counter(name, column):
            return name, cells.detect_epoch_unit(column)
    for name, column in free.items():
        if name.lower() in _CLOCK_NAMES and not any(cells.is_number(cell) for cell in column):
            _format_of(name, column, None)
    return None, cells.ISO


def _format_of(name: str, column: list[Any], given: str | None) -> str:
    """Return the format of a column that is known to contain times.

    Raises:
        RegimekitError: if no format fits.
    """
    if given is not None:
        return given
    if found := cells.detect_time_format(column):
        return found
    if all(cells.is_number(cell) for cell in column):
        return cells.detect_epoch_unit(column)
    row, first = next((r, c) for r, c in enumerate(column, 1) if not cells.is_missing(c))
    raise RegimekitError(
        f"Column {name!r} is named like a time, but no time format fits {first!r} in row {row}. "
        "Pass --time with --time-format, such as %d.%m.%Y, or --time none to use the rows in "
        "their order."
    )


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
    units: dict[str, str],
    choice: ColumnChoice,
) -> str:
    free = [
        name
        for name, column in others.items()
        if name not in choice.columns
        and is_numeric(column, decimal, units.get(name, ""), choice.missing)
    ]
    if len(free) > 1 and are_row_numbers(table, free[0]):
        del free[0]
    usual = [name for name in free if name.lower() in _TARGET_NAMES]
    if len(free) == 1 or len(usual) == 1:
        return (usual or free)[0]
    if not free:
        first = shortened([f"{n}={str(column[0])[:40]!r}" for n, column in table.items()])
        raise RegimekitError(
            f"No column contains numbers to forecast. First row: {first}. Cells of the target "
            "must be numbers, with at most one unit."
        )
    raise RegimekitError(
        f"Several columns contain numbers. Pass --target with one of {shortened(free)}; or --wide "
        "if each of them is a series."
    )


def shortened(names: Sequence[str]) -> str:
    """Return a list of names as text: the first ones, and how many there are more."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f", .. ({more} more)" if more > 0 else "")


def is_numeric(
    column: list[Any], decimal: str, unit: str = "", missing: tuple[str, ...] = ()
) -> bool:
    """Return whether most cells of a column are numbers."""
    given = [cell for cell in column if not cells.is_missing(cell)]
    numeric = sum(cells.is_number(cell, decimal, unit, missing) for cell in given)
    return numeric > _NUMERIC_SHARE * len(given)


def are_row_numbers(table: dict[str, list[Any]], name: str) -> bool:
    """Return whether a column is the first one of its table and counts the rows from 0 or 1."""
    column = table[name]
    if name != next(iter(table)) or not all(cells.is_number(cell) for cell in column[:2]):
        return False
    first = cells.parse_number(column[0])
    numbers = range(int(first), int(first) + len(column)) if first in (0, 1) else ()
    return [str(cell).strip() for cell in column] == [str(n) for n in numbers]


def _is_counter(name: str, column: list[Any]) -> bool:
    """Return whether a column is named like a time and its numbers do not decrease."""
    if name.lower() not in _TIME_NAMES or not all(cells.is_number(cell) for cell in column):
        return False
    return cells.is_sorted([cells.parse_number(cell) for cell in column])
