"""Changepoint detection robust to outliers (Altamirano, Briol and Knoblauch 2023).

The run-length recursion of `run_length` over generalized posteriors learnt by diffusion score
matching; `score_matching` has the derivation.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.bocd import RunLengthModel, RunLengthSettings
from regimekit.baselines.run_length import RunLengths
from regimekit.baselines.score_matching import ScoreMatching, Setup, best_omega
from regimekit.core.exceptions import (
    RegimekitError,
    SnapshotError,
    moderate,
    positive,
    unknown,
    whole,
)
from regimekit.core.limits import MAX_TRAINING
from regimekit.core.maker import Numbers, json_value, maker
from regimekit.core.model import Array
from regimekit.ihmm.emissions.base import Shape
from regimekit.ihmm.emissions.matrices import read_covariance, read_vector
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.frames import read_series
from regimekit.serialization.validation import Arrays, Values

# The fourth powers of these settings must be finite.
_SCALES = (
    "noise",
    "noise_doubt",
    "prior_mean",
    "prior_var",
    "natural_mean",
    "natural_var",
    "center",
    "scale",
    "omega",
)
MAX_SCALE = 1e25  # units of y
VARIANCES = ("unknown", "known")


@dataclass(frozen=True)
class DsmSettings(RunLengthSettings):
    """Settings of `dsm_bocd`, documented there."""

    max_run_lengths: int = 50
    outlier_weight: float = 0.05
    variance: str = "unknown"
    noise: float = 0.25
    noise_doubt: float = 0.5
    prior_mean: float = 0.0
    prior_var: float = 1.0
    natural_mean: Numbers | None = None
    natural_var: Numbers | None = None
    max_variance: float | None = None
    center: float = 0.0
    scale: float = 1.0
    omega: float | None = None
    training: int = 100
    threshold: float = 4.0

    def setup(self) -> Setup:
        """Return the validated settings in the form of the kernels."""
        if self.variance not in VARIANCES:
            raise unknown("variance", self.variance, VARIANCES)
        for name in _SCALES:
            if getattr(self, name) is not None:
                moderate(name, getattr(self, name), most=MAX_SCALE)
        noise = _finite("noise", self.noise)
        center = float(read_vector("center", self.center, 1)[0])
        mean, precision = self.natural_prior(noise, center)
        shift = precision @ mean
        most = self.largest_variance()
        if most <= noise:
            raise RegimekitError(f"max_variance must be above noise={noise}, got {most}.")
        return Setup(
            p11=precision[0, 0],
            p12=precision[0, 1],
            p22=precision[1, 1],
            h1=shift[0],
            h2=shift[1],
            schur=precision[1, 1] - precision[0, 1] ** 2 / precision[0, 0],
            floor=1.0 / most,
            pinned=1.0 / noise if self.variance == "known" else 0.0,
            omega=noise / 2 if self.omega is None else _finite("omega", self.omega),
            center=center,
            scale=_finite("scale", self.scale),
            threshold=positive("threshold", self.threshold),
        )

    def largest_variance(self) -> float:
        """Return the largest variance that a segment may have."""
        if self.max_variance is not None:
            return float(positive("max_variance", self.max_variance))
        return 400.0 * float(_finite("noise", self.noise))

    def natural_prior(self, noise: float, center: float) -> tuple[Array, Array]:
        """Return mean and precision of eta in centred coordinates.

        By default level and precision are independent a priori, so the prior mean of x is that of
        the level for every eta_2.

        Args:
            noise: variance of an observation.
            center: value at which an observation has full weight.
        """
        level = float(read_vector("prior_mean", self.prior_mean, 1)[0]) - center
        doubt = _finite("noise_doubt", self.noise_doubt)
        prior_var = _finite("prior_var", self.prior_var)
        mean = np.array([level, 1.0]) / noise
        if self.variance == "known":
            return mean, np.diag([noise**2 / prior_var, 1.0])
        spread = np.array([[(1 + doubt**2) * prior_var, 0.0], [0.0, 0.0]])
        spread += doubt**2 * np.outer([level, 1.0], [level, 1.0])
        covariance = spread / noise**2
        shift = np.array([[1.0, -center], [0.0, 1.0]])
        if self.natural_mean is not None:
            mean = shift @ read_vector("natural_mean", self.natural_mean, 2)
        if self.natural_var is not None:
            covariance = shift @ read_covariance("natural_var", self.natural_var, 2) @ shift.T
        return mean, np.asarray(np.linalg.inv(covariance), dtype=np.float64)


class DsmBocd(RunLengthModel):
    """Run-length model with generalized posteriors, created by `dsm_bocd`."""

    name = "dsm_bocd"

    def __init__(self, settings: DsmSettings) -> None:
        super().__init__(settings, feature_maps.intercept())
        self.chosen = settings
        self.rows = ScoreMatching(settings.setup())
        self._training = whole("training", settings.training, least=0, most=MAX_TRAINING)
        if settings.omega is not None:
            self._training = 0
        self.seen: list[float] = []  # training values so far

    @property
    def omega(self) -> float:
        """The present learning rate."""
        return self.rows.setup.omega

    def fit_learning_rate(self, y: Any) -> float:
        """Fit the learning rate to training values; the statistics so far are kept.

        Args:
            y: (n,) training values, if possible of one segment; NaN is left out.

        Returns:
            The learning rate omega.

        Raises:
            RegimekitError: If y is not one series with two or more finite values.

        Example:
            >>> from regimekit.baselines.dsm_bocd import dsm_bocd
            >>> model = dsm_bocd(variance="known", noise=1.0, training=0)
            >>> model.fit_learning_rate([0.2, -0.4, 0.9, -1.3, 0.5, 0.1]) > 0.5
            True
        """
        series = read_series(y).values
        if series.shape[1] != 1:
            raise RegimekitError(f"y must be one series, got {series.shape[1]} columns.")
        values = series[~np.isnan(series)]
        if values.size < 2 or not np.isfinite(values).all():
            raise RegimekitError("y must have at least two observed values, all finite, to fit.")
        self._training, self.seen = 0, []
        setup = self.rows.setup
        self.rows.configure(setup._replace(omega=best_omega(values, setup)))
        return self.omega

    def _learn(self, lengths: RunLengths, y: Array, design: Array) -> float:
        weight = super()._learn(lengths, y, design)
        if self._training and not np.isnan(y[0]):
            self.seen.append(float(y[0]))
            if len(self.seen) == self._training:
                self.fit_learning_rate(self.seen)
        return weight

    def _segments(self, shape: Shape) -> ScoreMatching:
        if shape.dim != 1:
            raise RegimekitError(f"y must be one number for dsm_bocd (d = 1), got {shape.dim}.")
        return self.rows

    def settings(self) -> dict[str, Any]:
        return asdict(self.chosen) | {"max_variance": self.chosen.largest_variance()}

    @classmethod
    def _make(cls, settings: dict[str, Any]) -> Self:
        return cls(DsmSettings(**{name: json_value(value) for name, value in settings.items()}))

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        values, arrays = super()._pack()
        values |= {"omega": self.omega, "training": self._training}
        return values, arrays | {"seen": np.array(self.seen)}

    def _unpack_more(self, values: Values, arrays: Arrays) -> None:
        omega = values.number("omega", least=float(np.finfo(float).tiny))
        self.rows.configure(self.rows.setup._replace(omega=omega))
        self._training = values.whole("training", 0, self._training)
        seen = arrays.floats("seen", (None,))
        if seen.size > max(self._training - 1, 0):
            raise SnapshotError(
                f"Invalid snapshot: seen has {seen.size} values, more than training allows."
            )
        self.seen = seen.tolist()


@maker
def dsm_bocd(
    *,
    hazard: float = 0.01,
    max_run_lengths: int = 50,
    variance: Literal["unknown", "known"] = "unknown",
    noise: float = 0.25,
    noise_doubt: float = 0.5,
    prior_mean: float = 0.0,
    prior_var: float = 1.0,
    natural_mean: Numbers | None = None,
    natural_var: Numbers | None = None,
    max_variance: float | None = None,
    center: float = 0.0,
    scale: float = 1.0,
    omega: float | None = None,
    training: int = 100,
    threshold: float = 4.0,
    outlier_weight: float = 0.05,
) -> DsmBocd:
    """Create robust changepoint detection by diffusion score matching, for one series (d = 1).

    Args:
        hazard: probability that a segment ends before an observation, in (0, 1).
        max_run_lengths: K, number of starts of the segment that are stored, at least 2.
        variance: "unknown" (each segment has its own) or "known" (it is `noise`).
        noise: variance of one observation around its segment's level; a priori if unknown.
        noise_doubt: prior standard deviation of the precision, relative to its mean 1 / noise.
        prior_mean: prior mean of the level.
        prior_var: prior variance of the level.
        natural_mean: prior mean of (level / variance, 1 / variance), in place of the above.
        natural_var: its covariance: a number, a vector of two or a (2, 2) matrix.
        max_variance: largest variance a segment may have; 400 noise by default.
        center: value at which an observation has full weight.
        scale: distance from `center` at which the weight m^2 is 1/2.
        omega: learning rate. By default it is `noise / 2`, the rate of Bayes' rule at full weight,
            for the first `training` observations, and then fitted to them.
        training: number of observations that omega is fitted to; 0 for no fit. Not used if omega
            is given.
        threshold: c, in standard deviations. Beyond it the evidence of an observation about the run
            length is bounded; infinity is the published method.
        outlier_weight: an observation with a weight m^2 below this is flagged as an outlier.

    Returns:
        The model.

    Raises:
        RegimekitError: If a setting is invalid; the message names it.

    Example:
        >>> from regimekit.baselines.dsm_bocd import dsm_bocd
        >>> model = dsm_bocd(noise=0.05, training=0)
        >>> run = model.run([0.1, -0.2, 0.0, 0.3, 1e6, 0.1, -0.1, 0.2])
        >>> run.changepoints, abs(model.predict().mean) < 0.3
        ([], True)
    """
    return DsmBocd._make(locals())


def _finite(argument: str, value: Any) -> float:
    """Return a number, or an array of one number, as a finite positive float."""
    return float(read_covariance(argument, value, 1)[0, 0])
