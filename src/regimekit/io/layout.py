"""Which column is which: the target, the time, the name of the series, the covariates."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from regimekit.core.exceptions import RegimekitError, unknown
from regimekit.io import cells
from regimekit.preprocessing.time_index import Time

_TIME_NAMES = frozenset(
    [
        "time",
        "timestamp",
        "ts",
        "date",
        "datetime",
        "ds",
        "epoch",
        "unix",
        "t",
        "index",
        "step",
        "year",
        "month",
        "day",
    ]
)
_TARGET_NAMES = ("y", "target", "value")
_MOSTLY = 0.5  # share of numbers above which a column with other cells is a numeric one


class Wishes(NamedTuple):
    """What the caller says about the columns; None where it is to be found."""

    target: str | None = None
    time: str | None = None
    columns: tuple[str, ...] = ()
    by: str | None = None


@dataclass(frozen=True)
class Layout:
    """The columns that are used, and how their cells are written."""

    target: str
    time: str | None = None
    time_form: str = cells.ISO
    columns: tuple[str, ...] = ()
    by: str | None = None
    decimal: str = "."

    @property
    def used(self) -> tuple[str, ...]:
        """Names of the columns to be read: target, time, series, covariates."""
        named = (self.target, self.time, self.by, *self.columns)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Layout:
        """The layout that `to_json` described."""
        return cls(**{**state, "columns": tuple(state["columns"])})

    def times(self, column: Sequence[Any]) -> list[Time]:
        """The cells of the time column that are there, as times."""
        read = cells.time_reader(self.time_form)
        return [read(cell) for cell in column if not cells.missing(cell)]


def find_layout(
    names: Sequence[str], sample: Sequence[tuple[Any, ...]], wishes: Wishes, separator: str = ""
) -> Layout:
    """Find the target and the time among named columns by their first rows, or say what is unclear.

    Args:
        names: the columns.
        sample: the first rows.
        wishes: what the caller has chosen.
        separator: what separates the cells of the file; a comma there is no decimal comma.

    Example:
        >>> find_layout(["when", "load"], [("2024-01-01", "1,5"), ("2024-01-02", "2,5")], Wishes())
        Layout(target='load', time='when', time_form='ISO 8601', columns=(), by=None, decimal=',')
    """
    table = {name: [row[j] for row in sample] for j, name in enumerate(names)}
    _check_names(table, wishes)
    decimal = cells.find_decimal((cell for row in sample for cell in row), separator)
    time, form = _find_time(table, wishes)
    numeric = [n for n in table if n not in (time, wishes.by) and _is_numeric(table[n], decimal)]
    if wishes.target is not None:
        _check_target(wishes.target, table[wishes.target], (time, wishes.by))
    target = wishes.target or _find_target(table, numeric, wishes)
    return Layout(target, time, form, wishes.columns, wishes.by, decimal)


def _check_names(table: dict[str, list[Any]], wishes: Wishes) -> None:
    named = {"--target": wishes.target, "--time": wishes.time, "--by": wishes.by}
    for option, name in [*named.items(), *(("--columns", name) for name in wishes.columns)]:
        if name is not None and name not in table:
            raise unknown(option, name, table)


def _find_time(table: dict[str, list[Any]], wishes: Wishes) -> tuple[str | None, str]:
    """The time column and its notation."""
    if wishes.time is not None:
        column = table[wishes.time]
        form = cells.find_time_form(column)
        if form is None and all(cells.is_number(cell) for cell in column):
            form = cells.find_epoch(column)
        if form is None:
            odd = next((c for c in column if not cells.missing(c)), None)
            raise RegimekitError(
                f"--time {wishes.time}: {odd!r} and the cells below cannot be read as times; "
                "write them as 2024-01-31 13:45."
            )
        return wishes.time, form
    for name, column in table.items():
        if name == wishes.target or name == wishes.by:
            continue
        if form := cells.find_time_form(column):
            return name, form
    for name, column in table.items():
        if name not in (wishes.target, wishes.by) and _is_counter(name, column):
            return name, cells.find_epoch(column)
    return None, cells.ISO


def _check_target(target: str, column: list[Any], taken: tuple[str | None, ...]) -> None:
    if target in taken:
        raise RegimekitError(f"--target {target} is also the time or the name of the series.")
    if cells.find_time_form(column) is not None:
        raise RegimekitError(
            f"--target {target} holds times, not numbers; name the column to forecast as the "
            f"target, and this one with --time {target}."
        )


def _find_target(table: dict[str, list[Any]], numeric: list[str], wishes: Wishes) -> str:
    free = [name for name in numeric if name not in wishes.columns]
    usual = [name for name in free if name.lower() in _TARGET_NAMES]
    if len(free) == 1 or len(usual) == 1:
        return (usual or free)[0]
    if not free:
        first = ", ".join(f"{name}={cells[0]!r}" for name, cells in list(table.items())[:8])
        raise RegimekitError(
            f"No column holds numbers to forecast; the first row is {first}. Cells of the target "
            "must be numbers alone, without units."
        )
    raise RegimekitError(
        f"Several columns hold numbers: say --target with one of {', '.join(free)}."
    )


def _is_numeric(column: list[Any], decimal: str) -> bool:
    given = [cell for cell in column if not cells.missing(cell)]
    return sum(cells.is_number(cell, decimal) for cell in given) > _MOSTLY * len(given)


def _is_counter(name: str, column: list[Any]) -> bool:
    """Whether numbers that only grow, under a name that says time, are the time."""
    if name.lower() not in _TIME_NAMES or not all(cells.is_number(cell) for cell in column):
        return False
    values = [cells.number(cell) for cell in column]
    return all(a <= b for a, b in itertools.pairwise(values))
