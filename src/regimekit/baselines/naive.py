"""Naive forecasters, as reference points for the scores of other models.

    last_value            the latest observation
    seasonal_last_value   the observation one period ago
    running_mean          the mean of all observations
    least_squares         online ridge regression, in its own module

The spread is estimated from their one-step errors e_t: with Var e_t = s^2 leverage_t and an
inverse-gamma prior of s^2 equivalent to three errors of size `error_sd`,

    y ~ t_{3 + n}(prediction, leverage (3 error_sd^2 + sum e_t^2 / leverage_t) / (3 + n))

for each coordinate, as if they were independent. The leverage is 1 one step ahead; for the last
values it grows with the number of steps, as for a random walk. For `least_squares` it is
1 + f'(sum f f' + ridge)^-1 f: Bayesian regression with unknown noise. The only regime is 0.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from regimekit.core import covariates
from regimekit.core.exceptions import moderate, positive, whole
from regimekit.core.limits import MAX_COORDINATES, MAX_PERIOD
from regimekit.core.maker import maker
from regimekit.core.model import Array, Model
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.emissions.base import Shape
from regimekit.preprocessing.frames import Row
from regimekit.results import OPENED, Event, Regime, Step, Transitions
from regimekit.serialization.validation import Arrays, Values, affordable

MAX_ERROR = 1e100  # errors and leverages are clipped to this: their products are finite
# The smallest integer for which the first forecast has a variance.
PRIOR_ERRORS = 3.0


class Spread:
    """Sums of squared one-step errors of each coordinate, and the t distribution they imply."""

    def __init__(self, error_sd: float, dim: int) -> None:
        self.start = PRIOR_ERRORS * error_sd**2
        self.squares = np.zeros(dim)
        self.count = np.zeros(dim, np.int64)

    def update(self, y: Array, location: Array, leverage: Array) -> None:
        """Add the errors of one observation; NaN coordinates are skipped."""
        seen = ~np.isnan(y)
        # Halved to avoid overflow.
        error = np.clip(y[seen] / 2 - location[seen] / 2, -MAX_ERROR, MAX_ERROR)
        self.squares[seen] += (2 * error) ** 2 / leverage[seen]
        self.count[seen] += 1

    def variance(self) -> Array:
        """Return the variance of an error with leverage 1, (d,)."""
        return np.asarray((self.start + self.squares) / (PRIOR_ERRORS + self.count))

    def forecast(self, location: Array, leverage: Array) -> Forecast:
        """Return a t distribution around `location`.

        Its degrees of freedom are those of the coordinate with the fewest observations.
        """
        spread = np.diag(np.minimum(leverage, MAX_ERROR) * self.variance())
        dof = np.array([PRIOR_ERRORS + self.count.min()])
        return Forecast(np.ones(1), location[None], spread[None], dof)


class Naive(Model):
    """Base class of point forecasts with the spread of their errors, and one regime."""

    # No advice: these models are references for others.
    advised = False
    # Arrays of the state in which NaN means not observed yet.
    holes: ClassVar[tuple[str, ...]] = ()
    limits: Mapping[str, tuple[float, float]] = MappingProxyType({"squares": (0.0, 1e220)})

    def __init__(self, error_sd: float = 1.0, dim: int | None = None) -> None:
        self.error_sd = positive("error_sd", error_sd)
        moderate("error_sd", self.error_sd)
        self.dim = self._given_dim = (
            None if dim is None else whole("dim", dim, most=MAX_COORDINATES)
        )
        self.time = 0
        self.spread: Spread | None = None

    @abstractmethod
    def _begin(self, shape: Shape) -> None:
        """Make room for observations and features of this shape."""

    @abstractmethod
    def _point(self, x: Row | None, ahead: int) -> tuple[Array, Array]:
        """Return location and leverage of the observation `ahead` steps ahead, from 1."""

    @abstractmethod
    def _learn(self, y: Array, x: Row | None) -> None:
        """Learn an observation; NaN coordinates are missing."""

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of the state by name."""

    @abstractmethod
    def _level(self) -> Array:
        """Return the present level as a new array."""

    def _level_sd(self) -> Array:
        """Return the standard deviation of the level; by default that of the errors."""
        assert self.spread is not None
        return np.sqrt(self.spread.variance())

    def _check(self, x: Any) -> Row | None:
        return None

    def _shape(self, dim: int, x: Row | None) -> Shape:
        return Shape(dim, 0)

    def _predict(self, x: Row | None) -> Forecast:
        return self._forecast([x])[0]

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        if self.spread is None:
            twin = self._make(self.settings())
            twin._start(self._shape(self.dim or 1, rows[0]))
            return twin._forecast(rows)
        return [self.spread.forecast(*self._point(x, h + 1)) for h, x in enumerate(rows)]

    def _observe(self, y: Array, x: Row | None) -> tuple[Forecast, Step]:
        if self.spread is None:
            self._start(self._shape(y.size, x))
        assert self.spread is not None
        location, leverage = self._point(x, 1)
        forecast = self.spread.forecast(location, leverage)
        log_score = float(forecast.log_density(y if y.size > 1 else y[0]))
        self.spread.update(y, location, leverage)
        self._learn(y, x)
        events = (Event(0, OPENED, 0),) if self.time == 0 else ()
        self.time += 1
        return forecast, Step(regime=0, n_regimes=1, log_score=log_score, events=events)

    def _start(self, shape: Shape) -> None:
        self._begin(shape)
        self.dim, self.shape = shape.dim, shape
        self.spread = Spread(self.error_sd, shape.dim)

    def regimes(self) -> list[Regime]:
        """Return the only regime: its level, and the standard deviation of its errors."""
        if self.spread is None:
            return []
        visits = int(self.spread.count.max())
        return [Regime(0, visits, 0, self.time - 1, self._level(), self._level_sd())]

    def transitions(self) -> Transitions:
        """Return the transition matrix of the only regime."""
        ids = [regime.id for regime in self.regimes()]
        return Transitions(ids, np.ones((len(ids), len(ids))))

    def settings(self) -> dict[str, Any]:
        return {"error_sd": self.error_sd, "dim": self._given_dim}

    def _state(self) -> dict[str, NDArray[Any]]:
        assert self.spread is not None
        return {"squares": self.spread.squares, "count": self.spread.count} | self._arrays()

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self.spread is None:
            return {"started": False}, {}
        values = {"started": True, "time": self.time, "shape": list(self.shape)}
        return values, {name: array.copy() for name, array in self._state().items()}

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        kept, stored = Values.of(values), Arrays.of(arrays)
        if not kept.flag("started"):
            return
        like = self._read_like(kept, stored)
        self._start(covariates.read_shape(kept, self._shape(covariates.read_dim(kept), like)))
        self.time = kept.whole("time")
        for name, array in self._state().items():
            if array.dtype.kind == "i":
                array[...] = stored.wholes(name, array.shape, 0, self.time)
            else:
                limits = self.limits.get(name, (-np.inf, np.inf))
                array[...] = stored.floats(name, array.shape, *limits, missing=name in self.holes)
        covariates.try_out(lambda: self._forecast([like])[0])

    def _read_like(self, values: Values, arrays: Arrays) -> Row | None:
        """Return the first covariates if the model uses any."""
        return None


class SeasonalLastValue(Naive):
    """The observation one period ago, created by `seasonal_last_value`.

    If a phase was not observed yet, the latest value is used; before any observation, 0.
    """

    name = "seasonal_last_value"
    holes = ("slots",)

    def __init__(self, period: int = 1, error_sd: float = 1.0, dim: int | None = None) -> None:
        super().__init__(error_sd, dim)
        self.period = whole("period", period, most=MAX_PERIOD)

    def _begin(self, shape: Shape) -> None:
        affordable("period", float(self.period) * shape.dim)
        self.slots = np.full((self.period, shape.dim), np.nan)
        self.latest = np.zeros(shape.dim)

    def _point(self, x: Row | None, ahead: int) -> tuple[Array, Array]:
        slot = self.slots[(self.time + ahead - 1) % self.period]
        cycles = 1 + (ahead - 1) // self.period
        return np.where(np.isnan(slot), self.latest, slot), np.full(slot.size, float(cycles))

    def _learn(self, y: Array, x: Row | None) -> None:
        for target in (self.slots[self.time % self.period], self.latest):
            np.copyto(target, y, where=~np.isnan(y))

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"slots": self.slots, "latest": self.latest}

    def _level(self) -> Array:
        return self.latest.copy()

    def settings(self) -> dict[str, Any]:
        return {"period": self.period} | super().settings()


class LastValue(SeasonalLastValue):
    """The latest observation, a season of period 1, created by `last_value`."""

    name = "last_value"

    def __init__(self, error_sd: float = 1.0, dim: int | None = None) -> None:
        super().__init__(1, error_sd, dim)

    def settings(self) -> dict[str, Any]:
        return Naive.settings(self)


class RunningMean(Naive):
    """The mean of all observations so far, 0 before the first, created by `running_mean`."""

    name = "running_mean"

    def _begin(self, shape: Shape) -> None:
        self.mean = np.zeros(shape.dim)
        self.seen = np.zeros(shape.dim, np.int64)

    def _point(self, x: Row | None, ahead: int) -> tuple[Array, Array]:
        return self.mean.copy(), np.ones(self.mean.size)

    def _learn(self, y: Array, x: Row | None) -> None:
        known = ~np.isnan(y)
        self.seen[known] += 1
        n = self.seen[known]
        # y - mean could overflow.
        self.mean[known] += y[known] / n - self.mean[known] / n

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"mean": self.mean, "seen": self.seen}

    def _level(self) -> Array:
        return self.mean.copy()


@maker
def last_value(*, error_sd: float = 1.0, dim: int | None = None) -> LastValue:
    """Create the forecast by the latest observation.

    Args:
        error_sd: prior guess of the standard deviation of the errors, equivalent to three errors.
        dim: number of coordinates of y; by default that of the first observation.

    Returns:
        The model.

    Example:
        >>> from regimekit.baselines.naive import last_value
        >>> last_value().run([1.0, 3.0, 2.0]).mean.tolist()
        [0.0, 1.0, 3.0]
    """
    return LastValue(error_sd, dim)


@maker
def seasonal_last_value(
    *, period: int = 1, error_sd: float = 1.0, dim: int | None = None
) -> SeasonalLastValue:
    """Create the forecast by the observation one period ago.

    Args:
        period: observations per season; 1 gives `last_value`.
        error_sd, dim: as for `last_value`.

    Returns:
        The model.

    Example:
        >>> from regimekit.baselines.naive import seasonal_last_value
        >>> seasonal_last_value(period=2).run([1.0, 5.0, 2.0, 6.0]).mean.tolist()
        [0.0, 1.0, 1.0, 5.0]
    """
    return SeasonalLastValue(period, error_sd, dim)


@maker
def running_mean(*, error_sd: float = 1.0, dim: int | None = None) -> RunningMean:
    """Create the forecast by the mean of all observations so far.

    Args:
        error_sd, dim: as for `last_value`.

    Returns:
        The model.

    Example:
        >>> from regimekit.baselines.naive import running_mean
        >>> running_mean().run([1.0, 3.0, 2.0, 4.0]).mean.tolist()
        [0.0, 1.0, 2.0, 2.0]
    """
    return RunningMean(error_sd, dim)
