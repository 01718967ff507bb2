"""Convert table rows into observations: parse cells, fill gaps, carry covariates forward.

If a covariate is missing, its previous value is used, also within gaps: a forecast needs a value,
and the previous one was known at the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
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


class Block(NamedTuple):
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
        self._parse_time = cells.time_parser(self.layout.time_format)

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
        y = self._number(row, self.layout.target)
        previous = self.time_column.last
        time = self._time(row)
        missing = 0 if time is None else self.time_column.advance(time, self._row_name())
        if missing is None:
            return []
        carried = self.latest
        self.latest = self._covariates(row)
        return [*self._fill(previous, missing, carried), Observation(time, y, self.latest)]

    def read_all(self, chunks: Iterable[Iterable[Row]]) -> Block | None:
        """Convert all rows into one block; None if there is no observation."""
        observations = [o for chunk in chunks for row in chunk for o in self.read(row)]
        return self._block(observations) if observations else None

    def blocks(self, chunks: Iterable[Iterable[Row]], size: int = BLOCK_ROWS) -> Iterator[Block]:
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
        return {
            "layout": self.layout.to_json(),
            "time_column": self.time_column.to_json(),
            "rows": self.rows,
            "carried": self.carried,
            "latest": list(self.latest),
            "first_line": self.first_line,
        }

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> ObservationReader:
        """Return the reader that `to_json` described."""
        return cls(
            Layout.from_json(state["layout"]),
            TimeColumn.from_json(state["time_column"]),
            state["first_line"],
            state["rows"],
            state["carried"],
            tuple(state["latest"]),
        )

    def _block(self, observations: list[Observation]) -> Block:
        times, y, x, has_row = zip(*observations, strict=True)
        X = Table(np.array(x), self.layout.columns) if self.layout.columns else None
        return Block(list(times), np.array(y), X, np.array(has_row))

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
            return self._parse_time(cell)
        except (TypeError, ValueError, OverflowError):
            raise self._error(
                name,
                f"{cell!r} is not a time in the format of the rows above "
                f"({self.layout.time_format}).",
            ) from None

    def _number(self, row: Row, name: str) -> float:
        cell = row[self._position[name]]
        try:
            value = cells.parse_number(cell, self.layout.decimal)
        except (TypeError, ValueError):
            raise self._error(
                name,
                f"{cell!r} is not a number. Leave the cell empty if nothing was observed, or "
                "choose another column.",
            ) from None
        if math.isinf(value):
            raise self._error(
                name, f"{cell!r} is infinite. Leave the cell empty if nothing was observed."
            )
        return value

    def _covariates(self, row: Row) -> tuple[float, ...]:
        found = [self._number(row, name) for name in self.layout.columns]
        for j, value in enumerate(found):
            if math.isnan(value):
                self.carried += 1
                found[j] = self.latest[j] if self.latest else 0.0
        return tuple(found)

    def _row_name(self) -> str:
        line = f" (line {self.first_line + self.rows - 1})" if self.first_line else ""
        return f"Row {self.rows}{line}"

    def _error(self, column: str, message: str) -> RegimekitError:
        return RegimekitError(f"{self._row_name()}, column {column!r}: {message}")


def time_array(times: list[Time | None]) -> NDArray[Any] | None:
    """Return times as a (T,) array of datetime64 or of numbers; None without times."""
    if not times or times[0] is None:
        return None
    if isinstance(times[0], datetime):
        return np.array(times, dtype="datetime64[us]")
    return np.array(times, dtype=float)
