"""Bayesian online changepoint detection (Adams and MacKay 2007) on the library's emissions.

The model is a run-length recursion (`runlength`) over rows of an emission. What it reports at
each observation is known then and never revised:

    regime               id of the segment; a new id, never an old one, when the most probable start
                         lies after the observation at which the present id was given
    change_probability   P(the segment began after that observation | data so far)
    regime_probability   P(it began after the id before was given, and not after this one was)

`segmentation()` gives the most probable path of changepoints in hindsight instead.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from holdfast import features as feature_maps
from holdfast.checks import Arrays, Values
from holdfast.emissions.base import Emission, EmissionSpec, Rows, Shape
from holdfast.emissions.eager import Eager
from holdfast.emissions.linear_gaussian import GaussianSpec
from holdfast.errors import HoldfastError, moderate, positive, share, unknown, whole
from holdfast.features import Features, Past
from holdfast.forecast import Forecast
from holdfast.frames import Row
from holdfast.models.base import Array, Model
from holdfast.models.covariates import (
    MOST_COORDINATES,
    bounded,
    new_past,
    pack_first,
    read_dim,
    read_first,
    read_past,
    read_shape,
    try_out,
)
from holdfast.models.maker import Numbers, Robust, Terms, maker
from holdfast.models.runlength import (
    Announcer,
    Mixture,
    RunLengths,
    Segments,
    read_hazard,
    read_kept,
)
from holdfast.results import OUTLIER, Event, Regime, Step, Transitions
from holdfast.score import CONTAMINATION, Law, weight_code

EMISSIONS = ("linear_gaussian", "normal_inverse_gamma")
_SCALES = {"noise", "noise_shape", "noise_scale", "prior_mean", "prior_var"}
_FAINTEST = float(np.finfo(float).tiny)  # reported weights lie in (0, 1]


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
            raise HoldfastError(f"x gives {width} features; the model has {shape.width}.")
        phi = self.features.row(x, lengths.time + ahead, past.values)
        return lengths.segments.design(bounded(phi))

    def regimes(self) -> list[Regime]:
        """The present segment: earlier ones are forgotten."""
        lengths = self.lengths
        if lengths is None or not lengths.n:
            return []
        row, book = lengths.best(), lengths.book
        mean, sd = lengths.segments.coefficients(lengths.rows, row)
        return [
            Regime(
                self.announcer.regime, int(book.visits[row]), int(book.start[row]),
                lengths.time - 1 - lengths.gap, mean, sd, self.announcer.certainty(lengths),
            )
        ]  # fmt: skip

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


class EmissionSegments(Segments):
    """Rows of an emission as segments."""

    def __init__(self, emission: Emission, kept: int) -> None:
        self.emission, self.shape = emission, emission.shape
        self.eager = Eager(emission)
        self._every = np.arange(kept + 1)

    def blank(self, capacity: int) -> Rows:
        return self.emission.blank(capacity)

    def write_prior(self, rows: Rows, row: int) -> None:
        self.emission.write_prior(rows, row)

    def design(self, features: Array) -> Array:
        return self.emission.design(features)

    def advance(self, rows: Rows, y: Array, design: Array, score: Array, weight: Array) -> None:
        fresh = self._every[: score.size] == score.size - 1
        self.eager.advance(rows, y, design, fresh, score, weight)

    def predictive(self, rows: Rows, n: int, design: Array) -> Mixture:
        parts = self.eager.predictive(rows, self._every[:n], design)
        return Mixture(
            np.ones((n, 1)), parts.location[:, None], parts.spread[:, None], parts.dof[:, None]
        )

    def coefficients(self, rows: Rows, row: int) -> tuple[Array, Array]:
        return self.emission.coefficients(rows, row)


@dataclass(frozen=True)
class RunLengthSettings:
    """Settings of every run-length model; `bocd` documents them."""

    hazard: float = 0.01
    max_run_lengths: int = 100
    outlier_weight: float = 0.2


@dataclass(frozen=True)
class BocdSettings(RunLengthSettings):
    """Settings of `bocd` beside those of its emission; `bocd` documents them."""

    features: Terms | None = None
    emission: str = "linear_gaussian"
    weight: str = "none"
    threshold: float = 2.0
    weigh_regimes: bool = True
    dim: int | None = None

    def law(self) -> Law:
        kind = weight_code(self.weight)
        if kind == CONTAMINATION:
            raise HoldfastError("bocd takes the weights imq, huber, mahalanobis and none.")
        threshold = positive("threshold", self.threshold)
        return Law(kind, threshold, bool(self.weigh_regimes), True, True, True, True)


class Bocd(RunLengthModel):
    """Bayesian online changepoint detection with an emission per segment; made by `bocd`."""

    name = "bocd"

    def __init__(self, settings: BocdSettings, spec: EmissionSpec) -> None:
        super().__init__(settings, feature_maps.read(settings.features))
        spec.check()
        for scale in _SCALES & {f.name for f in fields(spec)}:
            moderate(scale, getattr(spec, scale))
        self.spec = spec
        self.chosen = replace(settings, features=self.features.to_json())
        self._law = settings.law()
        self.dim = (
            spec.dim_hint()
            if settings.dim is None
            else whole("dim", settings.dim, most=MOST_COORDINATES)
        )

    def _segments(self, shape: Shape) -> Segments:
        return EmissionSegments(self.spec.build(shape, self._law), self._kept)

    def settings(self) -> dict[str, Any]:
        chosen: dict[str, Any] = asdict(self.spec)
        return chosen | asdict(self.chosen)

    @classmethod
    def _make(cls, settings: dict[str, Any]) -> Self:
        spec, shared = split_settings(settings)
        return cls(shared, spec)


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
    """Bayesian online changepoint detection: segments that end at a constant rate.

    Args:
        emission: "linear_gaussian" (known noise) or "normal_inverse_gamma" (unknown noise).
        features: f(x), from `holdfast.features`; an intercept by default.
        noise: variance of one observation around its segment, where it is known; 0.25 by default.
        prior_mean, prior_var: of the coefficients, as for `br_ihmm`.
        noise_shape, noise_scale, consistent: as for `student_t_ihmm`, where the noise is unknown;
            3, 0.75 and True by default.
        hazard: chance that a segment ends before an observation, in (0, 1); 1 / hazard is the
            expected length of a segment.
        max_run_lengths: K, how many starts of the present segment are kept, at least 2; the least
            probable one is dropped, and `dropped_mass` states the error.
        weight: "none", or "imq", "huber", "mahalanobis" to let rows learn carefully.
        threshold: c of the weight, in standard deviations.
        weigh_regimes: weight the evidence for run lengths too.
        outlier_weight: an observation with a weight below this is flagged as an outlier.
        dim: number of coordinates of y, where the first observation should not settle it.

    Example:
        >>> from holdfast.models.bocd import bocd
        >>> model = bocd(noise=0.25, prior_var=4.0)
        >>> run = model.run([0.1, -0.2, 0.0, 0.3, 0.1, 5.1, 4.8, 5.2, 5.0])
        >>> run.changepoints, model.segmentation()
        ([5], [5])
    """
    told = {name: value for name, value in locals().items() if value is not None}
    return Bocd._make(told)


def split_settings(settings: dict[str, Any]) -> tuple[EmissionSpec, BocdSettings]:
    """The emission's settings and the model's own, none of them shared with the caller."""
    settings = {name: json_value(value) for name, value in settings.items()}
    spec = emission_spec(settings.get("emission", EMISSIONS[0]))
    of_emission = {f.name for f in fields(spec)}
    of_model = {f.name for f in fields(BocdSettings)}
    for given in settings:
        if given not in of_emission | of_model:
            raise unknown("setting", given, sorted(of_emission | of_model))
    shared = BocdSettings(**{k: v for k, v in settings.items() if k in of_model})
    return spec(**{k: v for k, v in settings.items() if k in of_emission}), shared


def emission_spec(name: Any) -> type[EmissionSpec]:
    """The settings type of an emission by name."""
    if name == "linear_gaussian":
        return GaussianSpec
    if name == "normal_inverse_gamma":
        from holdfast.emissions.normal_inverse_gamma import StudentSpec

        return StudentSpec
    raise unknown("emission", name, EMISSIONS)


def json_value(value: Any) -> Any:
    """A setting as a JSON value of its own."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [json_value(entry) for entry in value]
    return value
