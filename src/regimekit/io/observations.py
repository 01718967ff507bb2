"""Convert table rows into observations: parse cells, fill gaps, carry covariates forward.

If a covariate is missing, its previous value is used, also within gaps: a forecast needs a value,
and the previous one was known at the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.io import cell_parsing as cells
from regimekit.io.layout import Layout
from regimekit.io.reader import Row
from regimekit.preprocessing.frames import Table
from regimekit.preprocessing.time_column import TimeColumn
from regimekit.preprocessing.time_index import Time

_SORT = (
    "Sort the rows by time, or pass --sort; if the table contains several series, name their "
    "column with --by."
)
BLOCK_ROWS = 4096  # observations per block, unless the caller chooses


class Observation(NamedTuple):
    """One observation of a stream.

    Attributes:
        time: time stamp, or None if the table has no time column.
        y: value of the target; NaN if not observed.
        x: covariates.
        has_row: False for an observation inserted into a gap.
    """

    time: Time | None
    y: float
    x: tuple[float, ...] = ()
    has_row: bool = True


class ObservationBlock(NamedTuple):
    """Consecutive observations as arrays.

    Attributes:
        times: (T,) time stamps, or None each.
        y: (T,) values of the target.
        X: covariates with their names, (T, k), or None without covariates.
        has_row: (T,) False for observations inserted into gaps.
    """

    times: list[Time | None]
    y: NDArray[np.float64]
    X: Table | None
    has_row: NDArray[np.bool_]


@dataclass
class ObservationReader:
    """Convert the rows of one series, one after the other.

    Attributes:
        layout: columns; cells of a row come in the order of `layout.used`.
        time_column: checks the time stamps.
        first_line: line of the file that contains row 1, for messages; 0 if rows are not lines.
        rows: rows read so far.
        carried: missing covariates replaced by their previous value.
        latest: covariates of the latest row.
    """

    layout: Layout
    time_column: TimeColumn
    first_line: int = 0
    rows: int = 0
    carried: int = 0
    latest: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        self._position = {name: j for j, name in enumerate(self.layout.used)}
        self._parse_time = self.layout.parse_time()

    def read(self, row: Row) -> list[Observation]:
        """Convert one row.

        Args:
            row: cells in the order of `layout.used`.

        Returns:
            Missing observations before the row, then its own; nothing for a repeated time.

        Raises:
            RegimekitError: if a cell cannot be parsed or times are out of order. The message
                names row, column and value.
        """
        self.rows += 1
        target = self.layout.target
        y = self._parsed(target, row[self._position[target]])[0]
        previous = self.time_column.last
        time = self._time(row)
        missing: int | None = 0
        if time is not None:
            missing = self.time_column.advance(time, self._row_name(), _SORT)
        if missing is None:
            return []
        carried = self.latest
        self.latest = self._covariates(row)
        return [*self._fill(previous, missing, carried), Observation(time, y, self.latest)]

    def read_all(self, chunks: Iterable[Iterable[Row]]) -> ObservationBlock | None:
        """Convert all rows into one block; None if there is no observation."""
        observations = [o for chunk in chunks for row in chunk for o in self.read(row)]
        return self._block(observations) if observations else None

    def blocks(
        self, chunks: Iterable[Iterable[Row]], size: int = BLOCK_ROWS
    ) -> Iterator[ObservationBlock]:
        """Convert rows into blocks of at most `size` observations."""
        waiting: list[Observation] = []
        for chunk in chunks:
            for row in chunk:
                waiting += self.read(row)
                while len(waiting) >= size:
                    yield self._block(waiting[:size])
                    del waiting[:size]
        if waiting:
            yield self._block(waiting)

    def notes(self) -> list[str]:
        """Return one sentence for each kind of irregularity that occurred."""
        found = self.time_column.notes()
        if self.carried:
            found.append(f"Missing covariates replaced by their previous value: {self.carried}.")
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        own = {"layout": asdict(self.layout), "time_column": self.time_column.to_json()}
        return asdict(self) | own

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> ObservationReader:
        """Return the reader that `to_json` described."""
        layout = Layout.from_json(state["layout"])
        column = TimeColumn.from_json(state["time_column"], layout.zone)
        own = {"layout": layout, "time_column": column, "latest": tuple(state["latest"])}
        return cls(**{**state, **own})

    def _block(self, observations: list[Observation]) -> ObservationBlock:
        times, y, x, has_row = zip(*observations, strict=True)
        names = self.layout.covariates
        X = Table(np.array(x), names) if names else None
        return ObservationBlock(list(times), np.array(y), X, np.array(has_row))

    def _fill(self, previous: Time | None, missing: int, x: tuple[float, ...]) -> list[Observation]:
        frequency = self.time_column.frequency
        if not missing or previous is None or frequency is None:
            return []
        times = (frequency.after(previous, k) for k in range(1, missing + 1))
        return [Observation(time, math.nan, x, False) for time in times]

    def _time(self, row: Row) -> Time | None:
        name = self.layout.time
        if name is None:
            return None
        cell = row[self._position[name]]
        if cells.is_missing(cell):
            raise self._error(name, "no time is given. Fill the cell in, or remove the row.")
        try:
            time = self._parse_time(cell)
        except (TypeError, ValueError, OverflowError):
            raise self._error(
                name,
                f"{cell!r} is not a time in the format of the other rows "
                f"({self.layout.time_format}). Correct the cell, or remove the row.",
            ) from None
        return _second_pass(time, self.time_column.last)

    def _parsed(self, name: str, cell: Any) -> list[float]:
        """Return the numbers of a cell: one, or one per level of a categorical covariate."""
        is_target = name == self.layout.target
        try:
            if is_target:
                values = [self.layout.number(name, cell)]
            else:
                values = self.layout.covariate_values(name, cell)
        except (TypeError, ValueError):
            unit = self.layout.units.get(name)
            other = f" with the unit {unit!r}, as the other rows have it" if unit else ""
            raise self._error(
                name,
                f"{cell!r} is not a number{other}. Leave the cell empty if nothing was observed, "
                "or choose another column.",
            ) from None
        if any(math.isinf(value) for value in values):
            raise self._error(
                name, f"{cell!r} is infinite. Leave the cell empty if nothing was observed."
            )
        return values

    def _covariates(self, row: Row) -> tuple[float, ...]:
        found: list[float] = []
        for name in self.layout.columns:
            values = self._parsed(name, row[self._position[name]])
            if any(math.isnan(value) for value in values):
                self.carried += 1
                part = slice(len(found), len(found) + len(values))
                values = list(self.latest[part]) if self.latest else [0.0] * len(values)
            found += values
        return tuple(found)

    def _row_name(self) -> str:
        line = f" (line {self.first_line + self.rows - 1})" if self.first_line else ""
        return f"Row {self.rows}{line}"

    def _error(self, column: str, message: str) -> RegimekitError:
        return RegimekitError(f"{self._row_name()}, column {column!r}: {message}")


def _second_pass(time: Time, last: Time | None) -> Time:
    """Return a local time, in the hour that the clock repeats in autumn as the one after `last`."""
    if not isinstance(time, datetime) or time.tzinfo is None or not isinstance(last, datetime):
        return time
    later = time.replace(fold=1)
    if time.fold or later.utcoffset() == time.utcoffset():
        return time
    before, now = last.timestamp(), time.timestamp()
    return later if now <= before else time
