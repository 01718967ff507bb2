"""Outputs of a model along a stream, in blocks, and their collection into a `Run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.distributions.forecast import Forecast, Forecasts
from regimekit.preprocessing.frames import Series, chosen
from regimekit.results import Event, Run, Step, StepColumns, retrospective_path

Array = NDArray[np.float64]


# Type of each field of `Step` that a block has as a column.
_TYPES = {name: kind for name, kind in get_type_hints(Step).items() if name != "events"}


@dataclass(eq=False, kw_only=True)
class Block(StepColumns):
    """Outputs for T consecutive observations, an argument of the callbacks of `Model.run`.

    Attributes:
        forecasts: T one-step forecasts, each made before its observation.
        events: events of these observations.
        first: index of the first observation in the stream.
        seconds: time that the model took for the block.

    The other attributes are the fields of `Step`, (T,) each.
    """

    forecasts: Sequence[Forecast]
    settled: NDArray[np.int64]
    anomaly_score: Array = field(default_factory=lambda: np.empty(0))
    events: list[Event] = field(default_factory=list)
    first: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, forecasts: Sequence[Forecast], steps: list[Step], first: int) -> Block:
        """Return the block of some observations.

        Args:
            forecasts: T forecasts.
            steps: their T steps.
            first: index of the first observation in the stream.
        """
        columns: dict[str, Any] = {
            name: np.array([getattr(step, name) for step in steps], dtype=kind)
            for name, kind in _TYPES.items()
        }
        events = [event for step in steps for event in step.events]
        return cls(forecasts=forecasts, **columns, events=events, first=first)

    def scored(self, y: Array) -> Block:
        """Set the anomaly scores and return the block.

        Args:
            y: (T, d) observations.
        """
        self.anomaly_score = Forecasts.stack(self.forecasts).anomaly_score(y)
        return self

    def step(self, t: int) -> Step:
        """Return the step of one observation, as `update` does.

        Args:
            t: its index in the block.
        """
        return Step(
            **{name: getattr(self, name)[t].item() for name in _TYPES},
            events=tuple(e for e in self.events if e.time == self.first + t),
        )


class Recorder:
    """Collect blocks into the columns of a `Run`."""

    def __init__(self, level: float) -> None:
        if not 0 < level < 1:
            raise RegimekitError(f"level must be strictly between 0 and 1, got {level!r}.")
        self.level = level
        self.moments: list[tuple[Array, ...]] = []
        self.blocks: list[Block] = []

    def add(self, block: Block) -> None:
        """Append a block.

        Args:
            block: outputs of the next observations.
        """
        forecasts = Forecasts.stack(block.forecasts)
        ends = ((1 - self.level) / 2, 0.5, (1 + self.level) / 2)
        self.moments.append((*forecasts.moments(), *forecasts.quantiles(ends)))
        block.forecasts = ()
        self.blocks.append(block)

    def run(self, series: Series) -> Run:
        """Return the run of all blocks.

        Args:
            series: the observations with their labels.
        """
        y, index = series.values, series.index
        dim = y.shape[1]
        if self.moments:
            moments = [np.concatenate(column) for column in zip(*self.moments, strict=True)]
        else:
            moments = [np.zeros((0, dim)) for _ in range(5)]
        mean, sd, lower, median, upper, values = (m[:, 0] if dim == 1 else m for m in (*moments, y))
        columns = {n: self._column(n, kind) for n, kind in _TYPES.items() if n != "settled"}
        events = [event for block in self.blocks for event in block.events]
        first = self.blocks[0].first if self.blocks else 0
        path = retrospective_path(columns["regime"], events, first)
        if chosen(index):
            # A change may have begun before this run.
            known = range(first, first + len(index))
            events = [
                e._replace(label=index[e.since - first]) if e.since in known else e for e in events
            ]
        return Run(
            y=values,
            mean=mean,
            median=median,
            sd=sd,
            lower=lower,
            upper=upper,
            **columns,
            path=path,
            events=events,
            level=self.level,
            first=first,
            index=index,
            native=series.backend,
            name=series.name,
        )

    def _column(self, name: str, kind: Any) -> NDArray[Any]:
        parts = [getattr(block, name) for block in self.blocks]
        return np.concatenate(parts).astype(kind) if parts else np.zeros(0, kind)
