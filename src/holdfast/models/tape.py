"""Forecasts and steps of a stream collected into the columns of a Run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.forecast import Forecast, quantiles
from holdfast.results import Run, Step

Array = NDArray[np.float64]
_CHUNK = 1024  # forecasts summarised together
_TOLERANCE = 1e-6  # of the interval's ends, in probability


class Tape:
    """Collects forecasts and steps into the columns of a Run."""

    def __init__(self, level: float) -> None:
        self.tail = ((1 - level) / 2, (1 + level) / 2)
        self.pending: list[Forecast] = []
        self.blocks: list[tuple[Array, Array, Array, Array]] = []
        self.steps: list[Step] = []
        self.path: list[int] = []

    def add(self, forecast: Forecast, step: Step) -> None:
        self.pending.append(forecast)
        self.steps.append(step)
        self.path.append(step.regime)
        if step.settled:
            recent = min(step.settled, len(self.path))
            self.path[-recent:] = [step.regime] * recent
        if len(self.pending) == _CHUNK:
            self._flush()

    def _flush(self) -> None:
        if not self.pending:
            return
        mean = np.stack([np.atleast_1d(f.mean) for f in self.pending])
        sd = np.stack([np.atleast_1d(f.sd) for f in self.pending])
        lower, upper = (quantiles(self.pending, q, _TOLERANCE) for q in self.tail)
        self.blocks.append((mean, sd, lower, upper))
        self.pending = []

    def run(self, backend: Any, dim: int) -> Run:
        self._flush()
        if self.blocks:
            moments = [np.concatenate(column) for column in zip(*self.blocks, strict=True)]
        else:
            moments = [np.zeros((0, dim)) for _ in range(4)]
        mean, sd, lower, upper = (m[:, 0] if dim == 1 else m for m in moments)
        return Run(
            mean=mean, sd=sd, lower=lower, upper=upper,
            log_score=self._column("log_score", float),
            weight=self._column("weight", float),
            outlier=self._column("outlier", bool),
            regime=self._column("regime", np.int64),
            regime_probability=self._column("regime_probability", float),
            change_probability=self._column("change_probability", float),
            n_regimes=self._column("n_regimes", np.int64),
            ess=self._column("ess", float),
            path=np.array(self.path, dtype=np.int64),
            events=[event for step in self.steps for event in step.events],
            native=backend,
        )  # fmt: skip

    def _column(self, name: str, kind: Any) -> NDArray[Any]:
        return np.array([getattr(step, name) for step in self.steps], dtype=kind)


def ticks(n: int, progress: bool) -> Any:
    """0 .. n - 1, with a progress bar if asked for."""
    if not progress:
        return range(n)
    from rich.progress import track

    return track(range(n), description="observations")
