"""The trivial forecasters that every honest table needs beside its scores.

    last_value            the latest observation
    seasonal_last_value   the observation one period ago
    running_mean          the mean of all observations
    least_squares         online ridge regression, in a module of its own

The spread is learnt from their own one-step errors e_t: with Var e_t = s^2 leverage_t and an
inverse-gamma prior of s^2 worth three errors of size `error_sd`,

    y ~ t_{3 + n}(prediction, leverage (3 error_sd^2 + sum e_t^2 / leverage_t) / (3 + n))

coordinate by coordinate, as if they were independent. The leverage is 1 one step ahead; for the
last values it grows with the steps, as a random walk's does. For `least_squares` it is
1 + f'(sum f f' + ridge)^-1 f: Bayesian regression with unknown noise. The one regime is 0.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.spread import Spread
from regimekit.core import covariates
from regimekit.core.covariates import MOST_COORDINATES
from regimekit.core.exceptions import moderate, positive, whole
from regimekit.core.maker import maker
from regimekit.core.model import Array, Model
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.emissions.base import Shape
from regimekit.preprocessing.frames import Row
from regimekit.results import OPENED, Event, Regime, Step, Transitions
from regimekit.serialization.validation import Arrays, Values, affordable

MOST_PERIODS = 1_000_000  # observations per season


class Naive(Model):
    """A point forecast with the spread of its own errors, and one regime.

    A subclass says how it begins, what it expects and how it learns.
    """

    advised = False  # these are what others are measured by
    holes: ClassVar[tuple[str, ...]] = ()  # arrays of the state where NaN means not seen yet
    limits: ClassVar[dict[str, tuple[float, float]]] = {"squares": (0.0, 1e220)}

    def __init__(self, error_sd: float = 1.0, dim: int | None = None) -> None:
        self.error_sd = positive("error_sd", error_sd)
        moderate("error_sd", self.error_sd)
        self.dim = self._given_dim = (
            None if dim is None else whole("dim", dim, most=MOST_COORDINATES)
        )
        self.time = 0
        self.spread: Spread | None = None

    @abstractmethod
    def _begin(self, shape: Shape) -> None:
        """Make room for observations and features of this shape."""

    @abstractmethod
    def _point(self, x: Row | None, ahead: int) -> tuple[Array, Array]:
        """Location of the observation `ahead` steps on (from 1), and its leverage."""

    @abstractmethod
    def _remember(self, y: Array, x: Row | None) -> None:
        """Learn an observation; NaN where a coordinate was not observed."""

    @abstractmethod
    def _memory(self) -> dict[str, NDArray[Any]]:
        """The arrays that `_remember` writes to, by name."""

    @abstractmethod
    def _level(self) -> Array:
        """What the model holds for constant now, as a fresh array."""

    def _level_sd(self) -> Array:
        """Its standard deviation; that of the errors where it has none of its own."""
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
        self.spread.learn(y, location, leverage)
        self._remember(y, x)
        events = (Event(0, OPENED, 0),) if self.time == 0 else ()
        self.time += 1
        return forecast, Step(regime=0, n_regimes=1, log_score=log_score, events=events)

    def _start(self, shape: Shape) -> None:
        self._begin(shape)
        self.dim, self.shape = shape.dim, shape
        self.spread = Spread(self.error_sd, shape.dim)

    def regimes(self) -> list[Regime]:
        """The one regime there is: its level, and the standard deviation of its errors."""
        if self.spread is None:
            return []
        visits = int(self.spread.count.max())
        return [Regime(0, visits, 0, self.time - 1, self._level(), self._level_sd())]

    def transitions(self) -> Transitions:
        """The one regime stays."""
        ids = [regime.id for regime in self.regimes()]
        return Transitions(ids, np.ones((len(ids), len(ids))))

    def settings(self) -> dict[str, Any]:
        return {"error_sd": self.error_sd, "dim": self._given_dim}

    @classmethod
    def _make(cls, settings: dict[str, Any]) -> Self:
        return cls(**settings)

    def _state(self) -> dict[str, NDArray[Any]]:
        assert self.spread is not None
        return {"squares": self.spread.squares, "count": self.spread.count} | self._memory()

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
        """The first covariates, where the model looks at any."""
        return None


class SeasonalLastValue(Naive):
    """The observation one period ago; made by `seasonal_last_value`.

    Where a phase has not been seen, the latest value of all stands in; where nothing has, 0.
    """

    name = "seasonal_last_value"
    holes = ("slots",)

    def __init__(self, period: int = 1, error_sd: float = 1.0, dim: int | None = None) -> None:
        super().__init__(error_sd, dim)
        self.period = whole("period", period, most=MOST_PERIODS)

    def _begin(self, shape: Shape) -> None:
        affordable("period", float(self.period) * shape.dim)
        self.slots = np.full((self.period, shape.dim), np.nan)
        self.latest = np.zeros(shape.dim)

    def _point(self, x: Row | None, ahead: int) -> tuple[Array, Array]:
        slot = self.slots[(self.time + ahead - 1) % self.period]
        cycles = 1 + (ahead - 1) // self.period
        return np.where(np.isnan(slot), self.latest, slot), np.full(slot.size, float(cycles))

    def _remember(self, y: Array, x: Row | None) -> None:
        for target in (self.slots[self.time % self.period], self.latest):
            np.copyto(target, y, where=~np.isnan(y))

    def _memory(self) -> dict[str, NDArray[Any]]:
        return {"slots": self.slots, "latest": self.latest}

    def _level(self) -> Array:
        return self.latest.copy()

    def settings(self) -> dict[str, Any]:
        return {"period": self.period} | super().settings()


class LastValue(SeasonalLastValue):
    """The latest observation: a season of one; made by `last_value`."""

    name = "last_value"

    def __init__(self, error_sd: float = 1.0, dim: int | None = None) -> None:
        super().__init__(1, error_sd, dim)

    def settings(self) -> dict[str, Any]:
        return Naive.settings(self)


class RunningMean(Naive):
    """The mean of all observations so far, 0 before the first; made by `running_mean`."""

    name = "running_mean"

    def _begin(self, shape: Shape) -> None:
        self.mean = np.zeros(shape.dim)
        self.seen = np.zeros(shape.dim, np.int64)

    def _point(self, x: Row | None, ahead: int) -> tuple[Array, Array]:
        return self.mean.copy(), np.ones(self.mean.size)

    def _remember(self, y: Array, x: Row | None) -> None:
        known = ~np.isnan(y)
        self.seen[known] += 1
        n = self.seen[known]
        self.mean[known] += y[known] / n - self.mean[known] / n  # y - mean could overflow

    def _memory(self) -> dict[str, NDArray[Any]]:
        return {"mean": self.mean, "seen": self.seen}

    def _level(self) -> Array:
        return self.mean.copy()


@maker
def last_value(*, error_sd: float = 1.0, dim: int | None = None) -> LastValue:
    """The forecast that is hard to beat: the latest observation.

    Args:
        error_sd: how large errors are expected to be before any was seen; worth three of them.
        dim: number of coordinates of y, where the first observation should not settle it.

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
    """The observation one period ago.

    Args:
        period: observations per season; 1, without a season, is `last_value`.
        error_sd, dim: as for `last_value`.

    Example:
        >>> from regimekit.baselines.naive import seasonal_last_value
        >>> seasonal_last_value(period=2).run([1.0, 5.0, 2.0, 6.0]).mean.tolist()
        [0.0, 1.0, 1.0, 5.0]
    """
    return SeasonalLastValue(period, error_sd, dim)


@maker
def running_mean(*, error_sd: float = 1.0, dim: int | None = None) -> RunningMean:
    """The mean of all observations so far.

    Args:
        error_sd, dim: as for `last_value`.

    Example:
        >>> from regimekit.baselines.naive import running_mean
        >>> running_mean().run([1.0, 3.0, 2.0, 4.0]).mean.tolist()
        [0.0, 1.0, 2.0, 2.0]
    """
    return RunningMean(error_sd, dim)
