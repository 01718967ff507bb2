"""A model that follows run lengths: its segments may be of any kind.

What it reports is told by the module of `bocd`, which is the simplest of them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.run_length import Announcer, RunLengths, Segments, read_hazard, read_kept
from regimekit.core.covariates import (
    bounded,
    new_past,
    pack_first,
    read_dim,
    read_first,
    read_past,
    read_shape,
    try_out,
)
from regimekit.core.exceptions import RegimekitError, share
from regimekit.core.model import Array, Model
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.emissions.base import Shape
from regimekit.preprocessing.features import Features, Past
from regimekit.preprocessing.frames import Row
from regimekit.results import OUTLIER, Event, Regime, Step, Transitions
from regimekit.serialization.validation import Arrays, Values

_FAINTEST = float(np.finfo(float).tiny)  # reported weights lie in (0, 1]


@dataclass(frozen=True)
class RunLengthSettings:
    """Settings of every run-length model; `bocd` documents them."""

    hazard: float = 0.01
    max_run_lengths: int = 100
    outlier_weight: float = 0.2


class RunLengthModel(Model):
    """A model with one live segment at a time, over any kind of rows.

    A subclass gives `_segments(shape)`, `settings()` and `_make()`.
    """

    def __init__(self, shared: RunLengthSettings, features: Features) -> None:
        self.features = features
        self._hazard = read_hazard(shared.hazard)
        self._kept = read_kept(shared.max_run_lengths)
        self._outlier_weight = share("outlier_weight", shared.outlier_weight)
        self.announcer = Announcer()
        self.lengths: RunLengths | None = None
        self.past = new_past(self.features, 1)
        self._like: Row | None = None  # the first covariates: later ones take their order

    @abstractmethod
    def _segments(self, shape: Shape) -> Segments:
        """The rows for observations and features of this shape."""

    def segmentation(self) -> list[int]:
        """First index of each new segment on the most probable path, given all data so far.

        Unlike `Run.changepoints`, which says when changes were noticed, this is hindsight and may
        be revised by the next observation. The latest 1000 segments are remembered.
        """
        return self.lengths.segmentation() if self.lengths else []

    def run_lengths(self) -> dict[int, float]:
        """Posterior probability of each kept start of the present segment, earliest first."""
        if self.lengths is None:
            return {}
        pairs = zip(self.lengths.start.tolist(), self.lengths.mass.tolist(), strict=True)
        return dict(sorted(pairs))

    @property
    def dropped_mass(self) -> float:
        """Posterior mass of the run lengths dropped so far, summed over the observations.

        An upper bound, on average over streams from the model itself, of the total-variation
        distance between the kept posterior of the run length and the full one.
        """
        return self.lengths.dropped if self.lengths else 0.0

    @property
    def latest_dropped_mass(self) -> float:
        """The part of `dropped_mass` that the latest observation added."""
        return self.lengths.latest_dropped if self.lengths else 0.0

    def _check(self, x: Any) -> Row | None:
        return self.features.check(x, like=self._like)

    def _predict(self, x: Row | None) -> Forecast:
        return self._forecast([x])[0]

    @property
    def n_observations(self) -> int:
        """How many observations the model has been given."""
        return 0 if self.lengths is None else int(self.lengths.time)

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        if self.lengths is None:
            self._start(y.size, x)
        lengths = self.lengths
        assert lengths is not None
        design = self._design(lengths, self.past, x, 0)
        forecast = _mixed(lengths, 1, design)
        weight = self._learn(lengths, y, design)
        self.past.push(y)
        log_score = float(forecast.log_density(y if y.size > 1 else y[0]))
        return forecast, self._report(lengths, weight, log_score)

    def _learn(self, lengths: RunLengths, y: Array, design: Array) -> float:
        """Let the rows see y; how much it was believed, or NaN if it is missing."""
        if np.isnan(y).all():
            lengths.skip()
            return math.nan
        return min(max(lengths.observe(y, design), _FAINTEST), 1.0)

    def _report(self, lengths: RunLengths, weight: float, log_score: float) -> Step:
        change, time = self.announcer.change_probability(lengths), lengths.time - 1
        seen = not math.isnan(weight)
        outlier = seen and weight < self._outlier_weight
        events = self.announcer.announce(lengths, time) if seen else []
        if outlier:
            events.append(Event(time, OUTLIER, self.announcer.regime, self.announcer.regime, time))
        return Step(
            regime=self.announcer.regime,
            regime_probability=self.announcer.certainty(lengths),
            weight=weight if seen else 1.0,
            outlier=outlier,
            change_probability=change,
            n_regimes=min(lengths.n, 1),
            ess=1.0 / float((lengths.mass**2).sum()) if lengths.n else 1.0,
            log_score=log_score,
            events=tuple(events),
        )

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        lengths, past = self.lengths, self.past.copy()
        if lengths is None:
            lengths = self._build(self._shape(self.dim or 1, rows[0]))
            past = new_past(self.features, self.dim or 1)
        forecasts = []
        for h, x in enumerate(rows):
            forecasts.append(_mixed(lengths, h + 1, self._design(lengths, past, x, h)))
            past.push(np.atleast_1d(forecasts[-1].mean))  # lags beyond now: the forecast itself
        return forecasts

    def _design(self, lengths: RunLengths, past: Past, x: Row | None, ahead: int) -> Array:
        shape = lengths.segments.shape
        width = self.features.width(x, shape.dim)
        if width != shape.width:
            raise RegimekitError(f"x gives {width} features; the model has {shape.width}.")
        phi = self.features.row(x, lengths.time + ahead, past.values)
        return lengths.segments.design(bounded(phi))

    def regimes(self) -> list[Regime]:
        """The present segment: earlier ones are forgotten."""
        lengths = self.lengths
        if lengths is None or not lengths.n:
            return []
        row, history = lengths.best(), lengths.history
        mean, sd = lengths.segments.coefficients(lengths.rows, row)
        return [
            Regime(
                self.announcer.regime,
                int(history.visits[row]),
                int(history.start[row]),
                lengths.time - 1 - lengths.gap,
                mean,
                sd,
                self.announcer.certainty(lengths),
            )
        ]

    def transitions(self) -> Transitions:
        """The chance that the present segment goes on; the rest is a segment not opened yet."""
        ids = [regime.id for regime in self.regimes()]
        return Transitions(ids, np.full((len(ids), len(ids)), 1.0 - self._hazard))

    def _shape(self, dim: int, x: Row | None) -> Shape:
        return Shape(dim, self.features.width(x, dim), not self.features.is_matrix)

    def _build(self, shape: Shape) -> RunLengths:
        return RunLengths(self._segments(shape), self._hazard, self._kept)

    def _start(self, dim: int, x: Row | None) -> None:
        """The first observation settles d and the number of features."""
        self.lengths = self._build(self._shape(dim, x))
        self.dim, self._like = dim, x
        self.past = new_past(self.features, dim)

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self.lengths is None:
            return {"started": False}, {}
        values, arrays = self.lengths.pack()
        values |= {"started": True, "shape": list(self.lengths.segments.shape)}
        values["announcer"] = self.announcer.pack()
        columns, first = pack_first(self._like)
        return values | columns, arrays | first | self.past.pack()

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        kept, stored = Values.of(values), Arrays.of(arrays)
        self._unpack_more(kept, stored)
        if not kept.flag("started"):
            return
        like = read_first(kept, stored, self.features)
        shape = read_shape(kept, self._shape(read_dim(kept), like))
        lengths = self._build(shape)
        lengths.unpack(kept, stored)
        self.past = read_past(stored, self.features, shape.dim)
        self.announcer.unpack(kept, lengths.time)
        self.dim, self.lengths, self._like = shape.dim, lengths, like
        try_out(lambda: self._forecast([like])[0])

    def _unpack_more(self, values: Values, arrays: Arrays) -> None:
        """Read what a subclass has stored beside."""


def _mixed(lengths: RunLengths, steps: int, design: Array) -> Forecast:
    """The forecast: a mixture over the starts of the segment, a new segment among them."""
    mass, parts = lengths.ahead(steps, design)
    rows, each, dim = parts.location.shape
    return Forecast.mixture(
        (mass[:, None] * parts.share).reshape(-1),
        parts.location.reshape(rows * each, dim),
        parts.spread.reshape(rows * each, dim, dim),
        parts.dof.reshape(-1),
    )
