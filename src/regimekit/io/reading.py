"""Rows turned into observations: cells read and checked, gaps filled with missing observations.

Covariates that are missing are carried forward from the row above, also through gaps: a forecast
needs some value, and the latest is the one that was known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.io import cells
from regimekit.io.clock import Clock
from regimekit.io.layout import Layout
from regimekit.io.source import Row
from regimekit.preprocessing.time_index import Time

BLOCK = 4096


class Observation(NamedTuple):
    """One observation of a stream: when, what, what was known beforehand, and whether it has a row.

    One that was put into a gap has none.
    """

    time: Time | None
    y: float
    x: tuple[float, ...] = ()
    has_row: bool = True


class Block(NamedTuple):
    """Some observations in a row, as arrays; X is None where no covariates were asked for."""

    times: list[Time | None]
    y: NDArray[np.float64]
    X: NDArray[np.float64] | None
    has_row: NDArray[np.bool_]


@dataclass
class Reading:
    """Reads the rows of a source one after the other.

    Attributes:
        layout: which columns are there, in the order of `layout.used`.
        clock: follows the time stamps.
        first_line: line of the file that holds row 1, for messages; 0 where there is none.
        rows: rows read so far.
        carried: missing covariates that were replaced by the value before.
    """

    layout: Layout
    clock: Clock
    first_line: int = 0
    rows: int = 0
    carried: int = 0
    latest: tuple[float, ...] = ()
    _place: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._place = {name: j for j, name in enumerate(self.layout.used)}
        self._time = cells.time_reader(self.layout.time_form)

    def take(self, row: Row) -> list[Observation]:
        """The observations that a row brings: itself, after those missing before it."""
        self.rows += 1
        y = self._number(row, self.layout.target)
        before = self.clock.last
        time = self._when(row)
        gap = 0 if time is None else self.clock.tick(time, self._where())
        if gap is None:
            return []
        stale = self.latest
        self.latest = self._covariates(row)
        return [*self._missing(before, gap, stale), Observation(time, y, self.latest)]

    def words(self) -> list[str]:
        """What was not as it should be, a sentence each."""
        found = self.clock.words()
        if self.carried:
            found.append(f"Missing covariates, carried forward from the row above: {self.carried}.")
        return found

    def state(self) -> dict[str, Any]:
        """Where it is, as JSON values."""
        return {
            "layout": self.layout.to_json(),
            "clock": self.clock.to_json(),
            "rows": self.rows,
            "carried": self.carried,
            "latest": list(self.latest),
            "first_line": self.first_line,
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Reading:
        """The reading that `state` described."""
        return cls(
            Layout.from_json(state["layout"]),
            Clock.from_json(state["clock"]),
            state["first_line"],
            state["rows"],
            state["carried"],
            tuple(state["latest"]),
        )

    def _missing(self, before: Time | None, gap: int, x: tuple[float, ...]) -> list[Observation]:
        if not gap or before is None or self.clock.frequency is None:
            return []
        times = (self.clock.frequency.after(before, k) for k in range(1, gap + 1))
        return [Observation(time, math.nan, x, False) for time in times]

    def _when(self, row: Row) -> Time | None:
        if self.layout.time is None:
            return None
        cell = row[self._place[self.layout.time]]
        if cells.missing(cell):
            raise RegimekitError(f"{self._where()}, column {self.layout.time!r}: no time is given.")
        try:
            return self._time(cell)
        except (TypeError, ValueError, OverflowError):
            raise RegimekitError(
                f"{self._where()}, column {self.layout.time!r}: {cell!r} is not a time like those "
                f"above ({self.layout.time_form})."
            ) from None

    def _number(self, row: Row, name: str) -> float:
        cell = row[self._place[name]]
        try:
            value = cells.number(cell, self.layout.decimal)
        except (TypeError, ValueError):
            raise RegimekitError(
                f"{self._where()}, column {name!r}: {cell!r} is not a number. Leave the cell empty "
                "if nothing was observed, or choose another column."
            ) from None
        if math.isinf(value):
            raise RegimekitError(
                f"{self._where()}, column {name!r}: {cell!r} is infinite. Leave the cell empty if "
                "nothing was observed."
            )
        return value

    def _covariates(self, row: Row) -> tuple[float, ...]:
        found = [self._number(row, name) for name in self.layout.columns]
        for j, value in enumerate(found):
            if math.isnan(value):
                self.carried += 1
                found[j] = self.latest[j] if self.latest else 0.0
        return tuple(found)

    def _where(self) -> str:
        line = f" (line {self.first_line + self.rows - 1})" if self.first_line else ""
        return f"Row {self.rows}{line}"


def blocks(reading: Reading, chunks: Iterable[Iterable[Row]], size: int = BLOCK) -> Iterator[Block]:
    """The observations of chunks of rows, in blocks of at most `size`."""
    waiting: list[Observation] = []
    for chunk in chunks:
        for row in chunk:
            waiting += reading.take(row)
            while len(waiting) >= size:
                yield as_block(waiting[:size])
                del waiting[:size]
    if waiting:
        yield as_block(waiting)


def as_block(observations: list[Observation]) -> Block:
    """Observations as arrays."""
    X = np.array([o.x for o in observations]) if observations[0].x else None
    y, has_row = (np.array([o[j] for o in observations]) for j in (1, 3))
    return Block([o.time for o in observations], y, X, has_row)


def time_array(times: list[Time | None]) -> NDArray[Any] | None:
    """Times as an array of datetime64 or of numbers; None where there are none."""
    if not times or times[0] is None:
        return None
    if isinstance(times[0], datetime):
        return np.array(times, dtype="datetime64[us]")
    return np.array(times, dtype=float)
