"""Bayesian online changepoint detection (Adams and MacKay 2007) on the emissions of the library.

The model is a run-length recursion (`run_length`) over rows of an emission. The results for an
observation use the data up to it and are never revised:

    regime               id of the segment. A new id is given when the most probable start lies
                         after the observation at which the present id was given; ids never return
    change_probability   P(the segment began after that observation | data so far)
    regime_probability   P(it began after the previous id was given, and not after this one was)

`segmentation()` gives the most probable path of changepoints in hindsight instead.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.run_length import EmissionSegments, RunLengths, Segments
from regimekit.core.covariates import (
    bounded,
    pack_first,
    read_dim,
    read_first,
    read_past,
    read_shape,
    try_out,
)
from regimekit.core.exceptions import RegimekitError, moderate, positive, share, unknown, whole
from regimekit.core.limits import MAX_DIM, MAX_RUN_LENGTHS
from regimekit.core.maker import Numbers, Robust, Terms, json_value, maker
from regimekit.core.model import Array, Model
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.emissions.base import EmissionSettings, Shape
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings
from regimekit.ihmm.weights import Scoring, weight_code
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.features import Features
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.lag_buffer import LagBuffer
from regimekit.results import NO_REGIME, OPENED, OUTLIER, Event, Regime, Step, Transitions
from regimekit.serialization.validation import Arrays, Values

EMISSIONS = ("linear_gaussian", "normal_inverse_gamma")
# Reported weights lie in (0, 1].
MIN_WEIGHT = float(np.finfo(float).tiny)
_SCALES = {"noise", "noise_shape", "noise_scale", "prior_mean", "prior_var"}


@dataclass(frozen=True)
class RunLengthSettings:
    """Settings of every run-length model, documented in `bocd`."""

    hazard: float = 0.01
    max_run_lengths: int = 100
    outlier_weight: float = 0.2


class SegmentLabels:
    """Increasing segment ids from the posterior distribution over starts.

    Arguments of the methods:
        lengths: the run-length posterior.
        time: index of the latest observation.
    """

    def __init__(self) -> None:
        self.regime = NO_REGIME
        self.given = -1  # time index at which the present id was given
        self.given_before = -1  # and the one before it

    def change_probability(self, lengths: RunLengths) -> float:
        """Return the posterior probability of a change since the present id was given."""
        if self.regime == NO_REGIME:
            return 0.0
        later = float(lengths.mass[lengths.start > self.given].sum())
        return min(1.0, 1.0 - (1.0 - later) * (1.0 - lengths.hazard) ** lengths.gap)

    def certainty(self, lengths: RunLengths) -> float:
        """Return the posterior probability that the present id is that of the segment."""
        if self.regime == NO_REGIME:
            return 1.0
        start = lengths.start
        ours = (start > self.given_before) & (start <= self.given)
        mass = float(lengths.mass[ours].sum()) * (1.0 - lengths.hazard) ** lengths.gap
        return min(max(mass, MIN_WEIGHT), 1.0)

    def update(self, lengths: RunLengths, time: int) -> list[Event]:
        """Give a new id if the most probable start lies after the present id was given.

        Returns:
            The event of the new id, if any.
        """
        if lengths.start[lengths.best()] <= self.given:
            return []
        previous, self.regime = self.regime, self.regime + 1
        self.given_before, self.given = self.given, time
        since = int(lengths.start[lengths.best()])
        return [Event(time, OPENED, self.regime, previous, max(since, 0))]

    def pack(self) -> list[int]:
        """Return the state as integers."""
        return [self.regime, self.given, self.given_before]

    def unpack(self, values: Values, time: int) -> None:
        """Restore the state that `pack` returned, from the `values` of a snapshot."""
        stored = values.wholes("announcer", 3, NO_REGIME, max(time - 1, NO_REGIME))
        self.regime, self.given, self.given_before = stored


class RunLengthModel(Model):
    """Base class of models with a run-length recursion.

    A subclass implements `_segments(shape)`, `settings()` and `_make()`.
    """

    def __init__(self, shared: RunLengthSettings, features: Features) -> None:
        self.features = features
        self._hazard = read_hazard(shared.hazard)
        self._kept = read_kept(shared.max_run_lengths)
        self._outlier_weight = share("outlier_weight", shared.outlier_weight)
        self.labels = SegmentLabels()
        self.lengths: RunLengths | None = None
        self.past = LagBuffer(self.features.depth, 1)
        self._like: Row | None = None  # first covariates: they set the order of the columns

    @abstractmethod
    def _segments(self, shape: Shape) -> Segments:
        """Return the rows for observations and features of this shape."""

    def segmentation(self) -> list[int]:
        """Return the first index of each segment but the first on the most probable path.

        The path uses all data so far, so the next observation may revise it. At least the latest
        1000 segments are stored.
        """
        return self.lengths.segmentation() if self.lengths else []

    def run_lengths(self) -> dict[int, float]:
        """Return the posterior probability of each stored start of the segment, earliest first."""
        if self.lengths is None:
            return {}
        pairs = zip(self.lengths.start.tolist(), self.lengths.mass.tolist(), strict=True)
        return dict(sorted(pairs))

    @property
    def dropped_mass(self) -> float:
        """Posterior mass of the run lengths dropped so far, summed over the observations.

        On average over streams from the model, it is an upper bound of the total-variation distance
        between the stored posterior of the run length and the full one.
        """
        return self.lengths.dropped if self.lengths else 0.0

    @property
    def latest_dropped_mass(self) -> float:
        """The part of `dropped_mass` due to the latest observation."""
        return self.lengths.latest_dropped if self.lengths else 0.0

    def _check(self, x: Any) -> Row | None:
        return self.features.check(x, like=self._like)

    def _predict(self, x: Row | None) -> Forecast:
        return self._forecast([x])[0]

    @property
    def n_observations(self) -> int:
        """Number of observations so far."""
        return 0 if self.lengths is None else int(self.lengths.time)

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        if self.lengths is None:
            self._start(y.size, x)
        lengths = self.lengths
        assert lengths is not None
        design = self._design(lengths, self.past, x, 0)
        forecast = Forecast.from_mixture(lengths.ahead(1, design))
        weight = self._learn(lengths, y, design)
        self.past.push(y)
        log_score = float(forecast.log_density(y if y.size > 1 else y[0]))
        return forecast, self._report(lengths, weight, log_score)

    def _learn(self, lengths: RunLengths, y: Array, design: Array) -> float:
        """Learn y; return its weight, or NaN if it is missing."""
        if np.isnan(y).all():
            lengths.skip()
            return math.nan
        return min(max(lengths.observe(y, design), MIN_WEIGHT), 1.0)

    def _report(self, lengths: RunLengths, weight: float, log_score: float) -> Step:
        change, time = self.labels.change_probability(lengths), lengths.time - 1
        seen = not math.isnan(weight)
        outlier = seen and weight < self._outlier_weight
        events = self.labels.update(lengths, time) if seen else []
        if outlier:
            events.append(Event(time, OUTLIER, self.labels.regime, self.labels.regime, time))
        return Step(
            regime=self.labels.regime,
            regime_probability=self.labels.certainty(lengths),
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
            past = LagBuffer(self.features.depth, self.dim or 1)
        forecasts = []
        for h, x in enumerate(rows):
            design = self._design(lengths, past, x, h)
            forecasts.append(Forecast.from_mixture(lengths.ahead(h + 1, design)))
            past.push(np.atleast_1d(forecasts[-1].mean))  # future lags are forecasts
        return forecasts

    def _design(self, lengths: RunLengths, past: LagBuffer, x: Row | None, ahead: int) -> Array:
        shape = lengths.segments.shape
        width = self.features.width(x, shape.dim)
        if width != shape.width:
            raise RegimekitError(f"x gives {width} features; the model has {shape.width}.")
        phi = self.features.row(x, lengths.time + ahead, past.clean)
        return lengths.segments.design(bounded(phi))

    def _regimes(self) -> list[Regime]:
        """Return the present segment; earlier ones are not stored."""
        lengths = self.lengths
        if lengths is None or not lengths.n:
            return []
        row = lengths.best()
        mean, sd = lengths.segments.coefficients(row)
        return [
            Regime(
                self.labels.regime,
                int(lengths.visits[row]),
                int(lengths.starts[row]),
                lengths.time - 1 - lengths.gap,
                mean,
                sd,
                self.labels.certainty(lengths),
            )
        ]

    def transitions(self) -> Transitions:
        """Return the probability that the segment continues; the rest is a new segment."""
        ids = [regime.id for regime in self._regimes()]
        return Transitions(ids, np.full((len(ids), len(ids)), 1.0 - self._hazard))

    def _shape(self, dim: int, x: Row | None) -> Shape:
        return Shape(dim, self.features.width(x, dim), not self.features.is_matrix)

    def _build(self, shape: Shape) -> RunLengths:
        return RunLengths(self._segments(shape), self._hazard, self._kept)

    def _start(self, dim: int, x: Row | None) -> None:
        """Set d and the number of features from the first observation."""
        self.lengths = self._build(self._shape(dim, x))
        self.dim, self._like = dim, x
        self.past = LagBuffer(self.features.depth, dim)

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self.lengths is None:
            return {"started": False}, {}
        values, arrays = self.lengths.pack()
        values |= {"started": True, "shape": list(self.lengths.segments.shape)}
        values["announcer"] = self.labels.pack()
        columns, first = pack_first(self._like)
        return values | columns, arrays | first | {"past": self.past.clean.copy()}

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
        self.labels.unpack(kept, lengths.time)
        self.dim, self.lengths, self._like = shape.dim, lengths, like
        try_out(lambda: self._forecast([like])[0])

    def _unpack_more(self, values: Values, arrays: Arrays) -> None:
        """Restore the additional state of a subclass."""


@dataclass(frozen=True)
class BocdSettings(RunLengthSettings):
    """Settings of `bocd` other than those of its emission, documented in `bocd`."""

    features: Terms | None = None
    emission: str = "linear_gaussian"
    weight: str = "none"
    threshold: float = 2.0
    weigh_regimes: bool = True
    dim: int | None = None

    def scoring(self) -> Scoring:
        """Return the weight and the score of an observation."""
        kind = weight_code(self.weight)
        if self.weight == "contamination":
            raise RegimekitError(
                "weight of bocd must be imq, huber, mahalanobis or none, got 'contamination'."
            )
        threshold = positive("threshold", self.threshold)
        return Scoring(kind, threshold, bool(self.weigh_regimes), True, True, True, True)


class Bocd(RunLengthModel):
    """Bayesian online changepoint detection, created by `bocd`."""

    name = "bocd"

    def __init__(self, settings: BocdSettings, emission: EmissionSettings) -> None:
        super().__init__(settings, feature_maps.read(settings.features))
        emission.check()
        for scale in _SCALES & {f.name for f in fields(emission)}:
            moderate(scale, getattr(emission, scale))
        self.emission = emission
        self.chosen = replace(settings, features=self.features.to_json())
        self._scoring = settings.scoring()
        self.dim = (
            emission.dim_hint()
            if settings.dim is None
            else whole("dim", settings.dim, most=MAX_DIM)
        )

    def _segments(self, shape: Shape) -> Segments:
        whole("dim", shape.dim, most=MAX_DIM)
        return EmissionSegments(self.emission.build(shape, self._scoring, 1))

    def settings(self) -> dict[str, Any]:
        chosen: dict[str, Any] = asdict(self.emission)
        return chosen | asdict(self.chosen)

    @classmethod
    def _make(cls, settings: dict[str, Any]) -> Self:
        emission, shared = split_settings(settings)
        return cls(shared, emission)


@maker
def bocd(
    *,
    emission: Literal["linear_gaussian", "normal_inverse_gamma"] = "linear_gaussian",
    features: Terms | None = None,
    noise: Numbers | None = None,
    prior_mean: Numbers = 0.0,
    prior_var: Numbers = 1.0,
    noise_shape: float | None = None,
    noise_scale: Numbers | None = None,
    consistent: bool | None = None,
    hazard: float = 0.01,
    max_run_lengths: int = 100,
    weight: Robust = "none",
    threshold: float = 2.0,
    weigh_regimes: bool = True,
    outlier_weight: float = 0.2,
    dim: int | None = None,
) -> Bocd:
    """Create Bayesian online changepoint detection with segments that end at a constant rate.

    Args:
        emission: "linear_gaussian" (known noise) or "normal_inverse_gamma" (unknown noise).
        features: f(x), from `regimekit.preprocessing.features`; an intercept by default.
        noise: known variance of one observation around its segment; 0.25 by default.
        prior_mean, prior_var: of the coefficients, as for `br_ihmm`.
        noise_shape, noise_scale, consistent: for unknown noise, as for `student_t_ihmm`;
            3, 0.75 and True by default.
        hazard: probability that a segment ends before an observation, in (0, 1); 1 / hazard is the
            expected length of a segment.
        max_run_lengths: K, number of starts of the segment that are stored, at least 2. The least
            probable one is dropped; `dropped_mass` bounds the error.
        weight: "none", or "imq", "huber", "mahalanobis" to down-weight outliers.
        threshold: c of the weight, in standard deviations.
        weigh_regimes: whether to weight the evidence for run lengths too.
        outlier_weight: an observation with a weight below this is flagged as an outlier.
        dim: number of coordinates of y; by default that of the first observation.

    Returns:
        The model.

    Raises:
        RegimekitError: If a setting is invalid; the message names it.

    Example:
        >>> from regimekit.baselines.bocd import bocd
        >>> model = bocd(noise=0.25, prior_var=4.0)
        >>> run = model.run([0.1, -0.2, 0.0, 0.3, 0.1, 5.1, 4.8, 5.2, 5.0])
        >>> run.changepoints, model.segmentation()
        ([5], [5])
    """
    given = {name: value for name, value in locals().items() if value is not None}
    return Bocd._make(given)


def split_settings(settings: dict[str, Any]) -> tuple[EmissionSettings, BocdSettings]:
    """Return copies of the settings of the emission and of the model."""
    settings = {name: json_value(value) for name, value in settings.items()}
    emission = emission_settings(settings.get("emission", EMISSIONS[0]))
    of_emission = {f.name for f in fields(emission)}
    of_model = {f.name for f in fields(BocdSettings)}
    for given in settings:
        if given not in of_emission | of_model:
            raise unknown("setting", given, sorted(of_emission | of_model))
    shared = BocdSettings(**{k: v for k, v in settings.items() if k in of_model})
    return emission(**{k: v for k, v in settings.items() if k in of_emission}), shared


def emission_settings(name: Any) -> type[EmissionSettings]:
    """Return the class of the settings of an emission.

    Args:
        name: one of `EMISSIONS`.
    """
    if name == "linear_gaussian":
        return GaussianSettings
    if name == "normal_inverse_gamma":
        from regimekit.ihmm.emissions.student_t import StudentTSettings

        return StudentTSettings
    raise unknown("emission", name, EMISSIONS)


def read_hazard(value: Any) -> float:
    """Return the hazard as a float strictly between 0 and 1."""
    try:
        hazard = float(value)
    except (TypeError, ValueError):
        raise RegimekitError(f"hazard must be a number in (0, 1), got {value!r}.") from None
    if not 0 < hazard < 1:
        raise RegimekitError(f"hazard must lie strictly between 0 and 1, got {value!r}.")
    return hazard


def read_kept(value: Any) -> int:
    """Return K, an integer of at least 2: a segment and its possible successor."""
    return whole("max_run_lengths", value, least=2, most=MAX_RUN_LENGTHS)
