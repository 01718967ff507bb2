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

from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, Self

import numpy as np

from regimekit.baselines.run_length import Mixture, Segments
from regimekit.baselines.run_length_model import RunLengthModel, RunLengthSettings
from regimekit.core.covariates import MOST_COORDINATES
from regimekit.core.exceptions import RegimekitError, moderate, positive, unknown, whole
from regimekit.core.maker import Numbers, Robust, Terms, json_value, maker
from regimekit.core.model import Array
from regimekit.ihmm.emissions.base import Emission, EmissionSpec, Rows, Shape
from regimekit.ihmm.emissions.eager import Eager
from regimekit.ihmm.emissions.linear_gaussian import GaussianSpec
from regimekit.ihmm.weights import CONTAMINATION, Scoring, weight_code
from regimekit.preprocessing import features as feature_maps

EMISSIONS = ("linear_gaussian", "normal_inverse_gamma")
_SCALES = {"noise", "noise_shape", "noise_scale", "prior_mean", "prior_var"}


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
class BocdSettings(RunLengthSettings):
    """Settings of `bocd` beside those of its emission; `bocd` documents them."""

    features: Terms | None = None
    emission: str = "linear_gaussian"
    weight: str = "none"
    threshold: float = 2.0
    weigh_regimes: bool = True
    dim: int | None = None

    def scoring(self) -> Scoring:
        kind = weight_code(self.weight)
        if kind == CONTAMINATION:
            raise RegimekitError("bocd takes the weights imq, huber, mahalanobis and none.")
        threshold = positive("threshold", self.threshold)
        return Scoring(kind, threshold, bool(self.weigh_regimes), True, True, True, True)


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
        self._law = settings.scoring()
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
        features: f(x), from `regimekit.preprocessing.features`; an intercept by default.
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
        >>> from regimekit.baselines.bocd import bocd
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
        from regimekit.ihmm.emissions.normal_inverse_gamma import StudentSpec

        return StudentSpec
    raise unknown("emission", name, EMISSIONS)
