"""Naive forecasters, as reference points for the scores of other models.

    last_value            the latest observation
    seasonal_last_value   the observation one period ago
    running_mean          the mean of the observations
    least_squares         online ridge regression on features

The spread is estimated from their one-step errors e_t: with Var e_t = s^2 leverage_t and an
inverse-gamma prior of s^2 equivalent to three errors of size `error_sd`,

    y ~ t_{3 + n}(prediction, leverage (3 error_sd^2 + sum e_t^2 / leverage_t) / (3 + n))

for each coordinate, as if they were independent. The leverage is 1 one step ahead; for the last
values it grows with the number of steps, as for a random walk. For `least_squares` it is 1 + f'(sum
f f' + ridge)^-1 f: Bayesian regression with unknown noise. The only regime is 0.

The sums, the mean and the regression are over the observations since the last *break*, usually all.
A second fit starts in every block of 48 observations. It learns its level in the first third and
its spread from then on; its forecasts of the second half are scored. If their log score exceeds
that of the model by more than 16 nats, the second fit replaces it: a break. A spread that is three
times too wide loses 0.65 nats per observation. If the model is correct, the exponential of the
difference has mean 1 or less, so the probability of a false break in a block is about e^-16 at
most. One observation counts at most 2 nats. Levels that last for blocks and differ by several
standard deviations of the noise cause breaks of the mean and of the regression, and past outliers
breaks of the spread.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.run_length import EmissionSegments
from regimekit.core import covariates
from regimekit.core.covariates import bounded
from regimekit.core.exceptions import RegimekitError, moderate, positive, whole
from regimekit.core.limits import MAX_COEFFICIENTS, MAX_COORDINATES, MAX_PERIOD
from regimekit.core.maker import Terms, maker
from regimekit.core.model import Array, Model
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.emissions.base import Shape
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings
from regimekit.ihmm.weights import Scoring, weight_code
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.lag_buffer import LagBuffer
from regimekit.results import OPENED, Event, Regime, Step, Transitions
from regimekit.serialization.validation import Arrays, Values, affordable

MAX_ERROR = 1e100  # errors and leverages are clipped to this: their products are finite
# The smallest integer for which the first forecast has a variance.
PRIOR_ERRORS = 3.0
_ROUNDING = 1.001  # of stored roots
# A second fit begins every BLOCK observations, its spread at SETTLED, the comparison at COMPARED.
BLOCK, SETTLED, COMPARED = 48, 16, 24
BREAK_GAIN = 16.0  # nats, the log of the odds of a false break
LEAST_GAIN, MOST_GAIN = -100.0, 2.0  # of one observation


class Spread:
    """Sums of squared one-step errors of each coordinate, and the t distribution they imply."""

    def __init__(self, error_sd: float, dim: int) -> None:
        self.start = PRIOR_ERRORS * error_sd**2
        self.squares = np.zeros(dim)
        self.count = np.zeros(dim, np.int64)

    def update(self, y: Array, location: Array, leverage: Array) -> None:
        """Add the errors of one observation; NaN coordinates are skipped.

        Args:
            y: (d,) observation.
            location: (d,) its forecast.
            leverage: (d,) variance of the error over s^2.
        """
        seen = ~np.isnan(y)
        # Halved to avoid overflow.
        error = np.clip(y[seen] / 2 - location[seen] / 2, -MAX_ERROR, MAX_ERROR)
        self.squares[seen] += (2 * error) ** 2 / leverage[seen]
        self.count[seen] += 1

    def variance(self) -> Array:
        """Return the variance of an error with leverage 1, (d,)."""
        return np.asarray((self.start + self.squares) / (PRIOR_ERRORS + self.count))

    def forecast(self, location: Array, leverage: Array) -> Forecast:
        """Return a t distribution.

        Its degrees of freedom are those of the coordinate with the fewest observations.

        Args:
            location: (d,) centre.
            leverage: (d,) variance of the error over s^2.
        """
        spread = np.diag(np.minimum(leverage, MAX_ERROR) * self.variance())
        dof = np.array([PRIOR_ERRORS + self.count.min()])
        return Forecast(np.ones(1), location[None], spread[None], dof)


class Naive(Model):
    """Base class of point forecasts with the spread of their errors, and one regime."""

    # No advice: these models are references for others.
    advised = False
    state_version = 2
    # Arrays of the state in which NaN means not observed yet.
    holes: ClassVar[tuple[str, ...]] = ()
    limits: Mapping[str, tuple[float, float]] = MappingProxyType({"squares": (0.0, 1e220)})

    def __init__(self, error_sd: float = 1.0, dim: int | None = None) -> None:
        self.error_sd = positive("error_sd", error_sd)
        moderate("error_sd", self.error_sd)
        self.dim = self._given_dim = (
            None if dim is None else whole("dim", dim, most=MAX_COORDINATES)
        )
        self.time = self.visits = 0
        self.spread: Spread | None = None
        self.second: Naive | None = None  # the second fit
        self.gain = 0.0

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

    def _begin_again(self, first: Self) -> None:
        """Begin as the second fit of a stream."""
        self._begin(first.shape)

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
        assert self.second is not None
        fits: tuple[Naive, Naive] = self, self.second
        points = [fit._point(x, 1) for fit in fits]
        forecast, log_score = self._score(y, *points[0])
        seen = not bool(np.isnan(y).all())
        if seen and self.time % BLOCK >= COMPARED:
            gain = self.second._score(y, *points[1])[1] - log_score
            self.gain += 0.0 if np.isnan(gain) else float(np.clip(gain, LEAST_GAIN, MOST_GAIN))
        for fit, (location, leverage) in zip(fits, points, strict=True):
            assert fit.spread is not None
            fit.spread.update(y, location, leverage)
            fit._learn(y, x)
        events = (Event(0, OPENED, 0),) if self.time == 0 else ()
        self.visits += seen
        self._pass()
        return forecast, Step(regime=0, n_regimes=1, log_score=log_score, events=events)

    def _score(self, y: Array, location: Array, leverage: Array) -> tuple[Forecast, float]:
        assert self.spread is not None
        forecast = self.spread.forecast(location, leverage)
        return forecast, float(forecast.log_density(y if y.size > 1 else y[0]))

    def _pass(self) -> None:
        """Pass on to the next observation; at the end of a block choose a fit."""
        assert self.second is not None
        self.time += 1
        self.second.time = self.time
        if self.time % BLOCK == SETTLED:
            self.second.spread = Spread(self.error_sd, self.shape.dim)
        elif self.time % BLOCK == 0:
            if self.gain > BREAK_GAIN:
                better = self.second._state()
                for name, array in self._state().items():
                    array[...] = better[name]
            self._renew()

    def _start(self, shape: Shape) -> None:
        self._begin(shape)
        self.dim, self.shape = shape.dim, shape
        self.spread = Spread(self.error_sd, shape.dim)
        self._renew()

    def _renew(self) -> None:
        """Begin the second fit."""
        second: Any = self._make(self.settings())
        second.dim, second.shape, second.time = self.dim, self.shape, self.time
        second.spread = Spread(self.error_sd, self.shape.dim)
        second._begin_again(self)
        self.second, self.gain = second, 0.0

    def _regimes(self) -> list[Regime]:
        """Return the only regime: its level, and the standard deviation of its errors."""
        if self.spread is None:
            return []
        return [Regime(0, self.visits, 0, self.time - 1, self._level(), self._level_sd())]

    def transitions(self) -> Transitions:
        """Return the transition matrix of the only regime."""
        ids = [regime.id for regime in self._regimes()]
        return Transitions(ids, np.ones((len(ids), len(ids))))

    def settings(self) -> dict[str, Any]:
        return {"error_sd": self.error_sd, "dim": self._given_dim}

    def _state(self) -> dict[str, NDArray[Any]]:
        assert self.spread is not None
        return {"squares": self.spread.squares, "count": self.spread.count} | self._arrays()

    def _stored(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of both fits by name; those that they share once."""
        assert self.second is not None
        own = self._state()
        second = self.second._state().items()
        return own | {f"second_{name}": array for name, array in second if array is not own[name]}

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        if self.spread is None:
            return {"started": False}, {}
        values = {"started": True, "time": self.time, "shape": list(self.shape)}
        values |= {"visits": self.visits, "gain": self.gain}
        return values, {name: array.copy() for name, array in self._stored().items()}

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        kept, stored = Values.of(values), Arrays.of(arrays)
        if not kept.flag("started"):
            return
        like = self._read_like(kept, stored)
        self._start(covariates.read_shape(kept, self._shape(covariates.read_dim(kept), like)))
        assert self.second is not None
        self.time = self.second.time = kept.whole("time")
        self.visits = kept.whole("visits", 0, self.time)
        self.gain = kept.number("gain", LEAST_GAIN * BLOCK, MOST_GAIN * BLOCK)
        for name, array in self._stored().items():
            key = name.removeprefix("second_")
            if array.dtype.kind == "i":
                array[...] = stored.wholes(name, array.shape, 0, self.time)
            else:
                limits = self.limits.get(key, (-np.inf, np.inf))
                array[...] = stored.floats(name, array.shape, *limits, missing=key in self.holes)
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

    def _begin_again(self, first: Self) -> None:
        self.slots, self.latest = first.slots, first.latest  # both fits learn the same

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
    """The mean of the observations since the last break, created by `running_mean`.

    It is 0 before the first observation.
    """

    name = "running_mean"

    def _begin(self, shape: Shape) -> None:
        self.mean = np.zeros(shape.dim)
        self.seen = np.zeros(shape.dim, np.int64)
        self.latest = np.zeros(shape.dim)  # the first forecast of a second fit

    def _begin_again(self, first: Self) -> None:
        super()._begin_again(first)
        self.mean[:], self.latest = first.latest, first.latest

    def _point(self, x: Row | None, ahead: int) -> tuple[Array, Array]:
        return self.mean.copy(), np.ones(self.mean.size)

    def _learn(self, y: Array, x: Row | None) -> None:
        known = ~np.isnan(y)
        self.seen[known] += 1
        n = self.seen[known]
        self.latest[known] = y[known]
        # The first observation replaces what the mean began with. y - mean could overflow.
        before = np.where(n == 1, 0.0, self.mean[known])
        self.mean[known] = before + (y[known] / n - before / n)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"mean": self.mean, "seen": self.seen, "latest": self.latest}

    def _level(self) -> Array:
        return self.mean.copy()


class LeastSquares(Naive):
    """Online ridge regression on features, created by `least_squares`."""

    name = "least_squares"

    def __init__(
        self,
        features: Terms | None = None,
        ridge: float = 1e-3,
        error_sd: float = 1.0,
        dim: int | None = None,
    ) -> None:
        super().__init__(error_sd, dim)
        self.features = feature_maps.read(features)
        self.ridge = positive("ridge", ridge)
        moderate("ridge", self.ridge)
        # The posterior covariance is below the prior one, and so is its root.
        widest = _ROUNDING / np.sqrt(self.ridge)
        self.limits = {**Naive.limits, "rows_0": covariates.STORED, "rows_1": (-widest, widest)}
        self._like: Row | None = None  # first covariates: they set the order of the columns

    def _check(self, x: Any) -> Row | None:
        return self.features.check(x, like=self._like)

    def _shape(self, dim: int, x: Row | None) -> Shape:
        return Shape(dim, self.features.width(x, dim), not self.features.is_matrix)

    def _begin(self, shape: Shape) -> None:
        if shape.coefficients > MAX_COEFFICIENTS:
            raise RegimekitError(
                f"features must give at most {MAX_COEFFICIENTS} coefficients, got "
                f"{shape.coefficients}."
            )
        settings = GaussianSettings(noise=np.eye(shape.dim).tolist(), prior_var=1.0 / self.ridge)
        unweighted = Scoring(weight_code("none"), np.inf, False, True, True, True, True)
        self.rows = EmissionSegments(settings.build(shape, unweighted, 1))
        self.rows.resize(1)
        self.rows.write_prior(0)
        self.past = LagBuffer(self.features.depth, shape.dim)

    def _begin_again(self, first: Self) -> None:
        super()._begin_again(first)
        self.past = first.past.copy()

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        if self.spread is None:
            return super()._forecast(rows)
        past, forecasts = self.past.copy(), []
        for h, x in enumerate(rows):
            location, leverage = self._regress(self._design(x, h, past))
            forecasts.append(self.spread.forecast(location, leverage))
            past.push(location)  # future lags are forecasts
        return forecasts

    def _point(self, x: Row | None, ahead: int) -> tuple[Array, Array]:
        return self._regress(self._design(x, ahead - 1, self.past))

    def _regress(self, design: Array) -> tuple[Array, Array]:
        self.rows.set_observation(None, design)
        location, spread = self.rows.predictive(0)
        return location, np.diag(spread).copy()

    def _design(self, x: Row | None, later: int, past: LagBuffer) -> Array:
        width = self.features.width(x, self.shape.dim)
        if width != self.shape.width:
            raise RegimekitError(f"x gives {width} features; the model has {self.shape.width}.")
        return np.asarray(
            self.rows.design(bounded(self.features.row(x, self.time + later, past.clean)))
        )

    def _learn(self, y: Array, x: Row | None) -> None:
        if not np.isnan(y).all():
            self.rows.set_observation(y, self._design(x, 0, self.past))
            self.rows.learn(0)
        self.past.push(y)
        if self.time == 0:
            self._like = x

    def _arrays(self) -> dict[str, NDArray[Any]]:
        rows = enumerate(self.rows.arrays())
        return {"past": self.past.clean} | {f"rows_{j}": array for j, array in rows}

    def _level(self) -> Array:
        return np.asarray(self.rows.coefficients(0)[0])

    def _level_sd(self) -> Array:
        each = np.repeat(super()._level_sd(), self.shape.width) if self.shape.shared else 1.0
        return np.asarray(self.rows.coefficients(0)[1] * each)

    def settings(self) -> dict[str, Any]:
        return {"features": self.features.to_json(), "ridge": self.ridge} | super().settings()

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        values, arrays = super()._pack()
        columns, first = covariates.pack_first(self._like)
        return values | columns, arrays | first

    def _read_like(self, values: Values, arrays: Arrays) -> Row | None:
        self._like = covariates.read_first(values, arrays, self.features)
        return self._like


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
    """Create the forecast by the mean of the observations since the last break, usually all.

    A break is a change after which the mean since then forecasts much better: the module's text.

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


@maker
def least_squares(
    *,
    features: Terms | None = None,
    ridge: float = 1e-3,
    error_sd: float = 1.0,
    dim: int | None = None,
) -> LeastSquares:
    """Create online least squares on the same features as the other models.

    Args:
        features: f(x), from `regimekit.preprocessing.features`; an intercept by default.
        ridge: penalty on the squared coefficients, in units of the noise variance.
        error_sd, dim: as for `last_value`.

    Returns:
        The model.

    Raises:
        RegimekitError: If a setting is invalid; the message names it.

    Example:
        >>> import regimekit as rk
        >>> from regimekit.baselines.naive import least_squares
        >>> line = least_squares(features=rk.features.columns(), ridge=1e-9)
        >>> run = line.run([2.0, 4.0, 6.0], [[1.0], [2.0], [3.0]])
        >>> round(line.predict([4.0]).mean, 6)
        8.0
    """
    return LeastSquares(features, ridge, error_sd, dim)
