"""Predictive distributions: a finite mixture of Student-t and Gaussian components.

    p(y) = sum_k share_k t_{dof_k}(y; location_k, spread_k)

`spread` is the squared scale (d = 1) or the scale matrix (d > 1). A component with infinite
degrees of freedom is Gaussian. For d = 1 results are scalars, for d > 1 arrays: `cdf`, `quantile`
and `interval` are computed for each coordinate, `log_density` and `sample` for all jointly.

If a model has an outlier component, it is the last one: broad, with heavy tails and the share
`outlier`. It is part of the distribution, so that log scores are calibrated in the tails. `mean`
and `sd` leave it out, and `ordinary` is the forecast without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regimekit.core import display
from regimekit.core.exceptions import RegimekitError
from regimekit.distributions.crps import fill_crps
from regimekit.distributions.mixture import (
    Mixture,
    fill_cdf,
    fill_log_densities,
    fill_moments,
    fill_quantiles,
    fill_tails,
    normalize_shares,
)
from regimekit.results import labelled

Array = NDArray[np.float64]
# A component with a smaller fraction of the total share is dropped.
MIN_SHARE = 1e-14
_SHOWN_STEPS = 10  # steps that a terminal or a notebook shows


@dataclass(frozen=True, eq=False, slots=True)
class Forecast:
    """Predictive distribution of one observation: a mixture of K components in R^d.

    The constructor does not validate its arrays; `gaussian` and `mixture` do.

    Attributes:
        share: (K,) probabilities of the components, which sum to one.
        location: (K, d) centres.
        spread: (K, d, d) scale matrices.
        dof: (K,) degrees of freedom; infinity for a Gaussian component.
        outlier: share of the outlier component, which is the last one; 0 if there is none.

    Example:
        >>> import regimekit as rk
        >>> forecast = rk.Forecast.gaussian(mean=1.0, variance=4.0)
        >>> forecast.mean, forecast.sd
        (1.0, 2.0)
        >>> round(forecast.cdf(1.0), 3)
        0.5
    """

    share: Array
    location: Array
    spread: Array
    dof: Array
    outlier: float = 0.0

    @classmethod
    def gaussian(cls, mean: ArrayLike, variance: ArrayLike) -> Forecast:
        """Return a Gaussian forecast.

        Args:
            mean: number, or vector of d values.
            variance: number, or (d, d) covariance matrix.
        """
        location = np.atleast_1d(np.asarray(mean, dtype=float))
        spread = np.asarray(variance, dtype=float).reshape(location.size, location.size)
        return cls(np.ones(1), location[None], spread[None], np.full(1, np.inf))

    @classmethod
    def mixture(
        cls,
        share: Array,
        location: Array,
        spread: Array,
        dof: Array | None = None,
        outlier: float = 0.0,
    ) -> Forecast:
        """Return a mixture forecast; shares are normalized and negligible components dropped.

        Args:
            share: (K,) non-negative weights.
            location: (K,) or (K, d) centres.
            spread: (K,) squared scales or (K, d, d) scale matrices.
            dof: (K,) degrees of freedom. If it is None, all components are Gaussian.
            outlier: share of the last component if it is the outlier component.

        Raises:
            RegimekitError: If the sum of `share` is not positive.
        """
        total = share.sum()
        if not total > 0:
            raise RegimekitError(f"share must have a positive sum, got {total}.")
        keep = np.flatnonzero(share > MIN_SHARE * total)
        kept = share[keep]
        location = location[keep].reshape(kept.size, -1)
        spread = spread[keep].reshape(kept.size, location.shape[1], location.shape[1])
        degrees = np.full(kept.size, np.inf) if dof is None else dof[keep]
        return cls(kept / kept.sum(), location, spread, degrees, outlier)

    @classmethod
    def normalized(
        cls, share: Array, location: Array, spread: Array, dof: Array, outlier: float = 0.0
    ) -> Forecast:
        """Return a mixture forecast that owns its arrays; only the shares are normalized.

        Args:
            share, location, spread, dof, outlier: as for `mixture`.
        """
        return cls(share / share.sum(), location, spread, dof, outlier)

    @classmethod
    def from_mixture(cls, mixture: Mixture, outlier: float = 0.0) -> Forecast:
        """Return a forecast with copies of the components of a mixture of the core.

        Args:
            mixture: the mixture.
            outlier: share of the last component if it is the outlier component.
        """
        share, location, spread, dof = mixture.components()
        return cls(share, location, spread, dof, outlier)

    def __repr__(self) -> str:
        return display.short(f"Forecast({', '.join(f'{k} {v}' for k, v in self._summary())})")

    def _repr_html_(self) -> str:
        return display.html("Forecast", [], [[k, v] for k, v in self._summary()])

    def _summary(self) -> list[tuple[str, str]]:
        """Return names and formatted values for display."""
        lower, upper = (display.vector(end) for end in self.interval(0.9))
        return [
            ("median", display.vector(self.median)),
            ("90 % within", f"{lower} .. {upper}"),
            ("mean", display.vector(self.mean)),
            ("sd", display.vector(self.sd)),
        ]

    @property
    def ordinary(self) -> Forecast:
        """Forecast conditional on the observation not being an outlier."""
        if self.outlier == 0.0:
            return self
        share = self.share[:-1] / self.share[:-1].sum()
        return Forecast(share, self.location[:-1], self.spread[:-1], self.dof[:-1])

    def rescaled(self, centre: ArrayLike, scale: ArrayLike) -> Forecast:
        """Return the forecast of centre + scale * Y, coordinate by coordinate.

        Args:
            centre: number or (d,).
            scale: number or (d,).
        """
        factor = np.broadcast_to(np.asarray(scale, dtype=float), (self.dim,))
        spread = self.spread * factor[:, None] * factor
        moved = np.asarray(centre, dtype=float) + factor * self.location
        return replace(self, location=moved, spread=spread)

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return int(self.location.shape[1])

    @property
    def mean(self) -> float | Array:
        """Mean of each coordinate, without the outlier component."""
        return self._first(self._stacked().mean)

    @property
    def sd(self) -> float | Array:
        """Standard deviation of each coordinate, without the outlier component."""
        return self._first(self._stacked().sd)

    @property
    def variance(self) -> float | Array:
        """Variance of each coordinate; infinite if a component has dof <= 2."""
        return self.sd**2

    @property
    def median(self) -> float | Array:
        """Median of each coordinate: the recommended point forecast.

        Regimes that may still appear have distant locations. Their small share moves the mean but
        not the median.
        """
        return self.quantile(0.5)

    def cdf(self, y: ArrayLike) -> Any:
        """Return P(Y <= y), coordinate by coordinate; NaN if y is NaN.

        Args:
            y: for d = 1 an array of any shape, else an array whose last axis has length d.

        Returns:
            Probabilities in the shape of y; a float for d = 1 and a single value.

        Raises:
            RegimekitError: If the last axis of y does not have length d.
        """
        points = np.asarray(y, dtype=float)
        if self.dim > 1 and points.shape[-1:] != (self.dim,):
            raise RegimekitError(f"y must have {self.dim} values, got shape {points.shape}.")
        values = self._stacked().cdf(points.reshape(-1, self.dim)).reshape(points.shape)
        return float(values) if points.ndim == 0 else values

    def quantile(self, q: float) -> float | Array:
        """Return the value below which the probability is `q`, for each coordinate.

        Args:
            q: probability.

        Raises:
            RegimekitError: If q is not one number strictly between 0 and 1.
        """
        if not isinstance(q, (int, float, np.floating)):
            raise RegimekitError(f"q must be one number, got {q!r}; call quantile once for each.")
        return self._first(self._stacked().quantile(q))

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Return the ends of the central interval, in the units of y.

        Args:
            level: probability of the interval.

        Raises:
            RegimekitError: If level is not strictly between 0 and 1.
        """
        lower, upper = self._stacked().interval(level)
        return self._first(lower), self._first(upper)

    def log_density(self, y: ArrayLike) -> Any:
        """Return the log density of an observation.

        NaN coordinates are integrated out; an observation of NaN only gives NaN.

        Args:
            y: for d = 1 an array of any shape, else one vector of d values.

        Returns:
            A float for one observation, else an array in the shape of y.

        Raises:
            RegimekitError: If d > 1 and y does not have d values.
        """
        return self._at(y, self._stacked().log_density)

    def anomaly_score(self, y: ArrayLike) -> Any:
        """Return 1 - p, p the two-sided tail probability of an observation; NaN if y is NaN.

        It is uniform on [0, 1] if the forecast is right. The outlier component is left out. For
        d > 1 the smallest conditional tail probability of the coordinates counts; it is corrected
        for their number.

        Args:
            y: for d = 1 an array of any shape, else one vector of d values.

        Returns:
            A float for one observation, else an array in the shape of y.

        Raises:
            RegimekitError: If d > 1 and y does not have d values.
        """
        return self._at(y, self._stacked().anomaly_score)

    def _at(self, y: ArrayLike, evaluate: Callable[[Array], Array]) -> Any:
        """Return a function of rows (n, d) at y: a float for one observation, else an array."""
        points = np.asarray(y, dtype=float)
        if self.dim > 1 and points.size != self.dim:
            raise RegimekitError(f"y must have {self.dim} values, got {points.size}.")
        values = evaluate(points.reshape(-1, self.dim))
        single = points.ndim == 0 or self.dim > 1
        return float(values[0]) if single else values.reshape(points.shape)

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """Return draws from the distribution: (n,) for d = 1, (n, d) otherwise.

        Args:
            n: number of draws.
            rng: generator.
        """
        which = rng.choice(self.share.size, size=n, p=self.share)
        factor = np.linalg.cholesky(self.spread)[which]
        noise = np.einsum("nij,nj->ni", factor, rng.standard_normal((n, self.dim)))
        degrees = self.dof[which]
        finite = np.isfinite(degrees)
        noise[finite] /= np.sqrt(rng.chisquare(degrees[finite]) / degrees[finite])[:, None]
        draws = self.location[which] + noise
        return np.asarray(draws[:, 0] if self.dim == 1 else draws)

    def _stacked(self) -> Forecasts:
        """Return this forecast as a stack of one, without a copy."""
        offset, outlier = np.array([0, self.share.size]), np.array([self.outlier])
        parts = (self.share, self.location, self.spread, self.dof)
        return Forecasts(offset, *parts, outlier, normalized=True)

    def _first(self, values: Array) -> float | Array:
        """Return the entry of a stack of one."""
        return float(values[0]) if self.dim == 1 else np.asarray(values[0])


class Forecasts(Sequence[Forecast]):
    """Forecasts of consecutive observations in stacked arrays; `forecasts[h]` is a `Forecast`.

    `mean`, `median`, `sd`, `quantile` and `interval` are arrays, (T,) for d = 1 and (T, d)
    otherwise, in the units of y.

    Attributes:
        times: (T,) labels of the observations, or None if they are not known.
        native: data-frame library for `frame`; None for pandas.

    Example:
        >>> import regimekit as rk
        >>> ahead = rk.make("last_value").fit([1.0, 2.0, 4.0]).forecast(3)
        >>> len(ahead), ahead.mean.tolist(), ahead[0].mean
        (3, [4.0, 4.0, 4.0], 4.0)

    Args:
        offset: (T + 1,) index of the first component of each forecast.
        share: (P,) probabilities of the components of all forecasts.
        location: (P, d) centres.
        spread: (P, d, d) scale matrices.
        dof: (P,) degrees of freedom.
        outlier: (T,) share of the last component of each forecast if it is the outlier component.
        normalized: whether the shares of each forecast sum to one already.
    """

    times: Any = None
    native: Any = None

    def __init__(
        self,
        offset: NDArray[np.int64],
        share: Array,
        location: Array,
        spread: Array,
        dof: Array,
        outlier: Array,
        normalized: bool = False,
    ) -> None:
        self.offset, self.outlier = offset, outlier
        self.share = share if normalized else np.array(share)
        self.location, self.spread, self.dof = location, spread, dof
        if not normalized:
            normalize_shares(offset, self.share)

    @classmethod
    def stack(cls, forecasts: Sequence[Forecast], normalized: bool = False) -> Forecasts:
        """Return a sequence of forecasts as one stack.

        Args:
            forecasts: T forecasts.
            normalized: as for the class.
        """
        if isinstance(forecasts, Forecasts):
            return forecasts
        if not forecasts:
            empty = np.zeros(0)
            parts = (empty, np.zeros((0, 1)), np.zeros((0, 1, 1)), empty)
            return cls(np.zeros(1, np.int64), *parts, outlier=empty)
        found = cls.joined([forecast._stacked() for forecast in forecasts])
        if not normalized:
            normalize_shares(found.offset, found.share)
        return found

    @classmethod
    def joined(cls, parts: Sequence[Forecasts]) -> Forecasts:
        """Return the forecasts of consecutive stacks as one.

        Args:
            parts: the stacks.
        """
        sizes = np.concatenate([np.diff(part.offset) for part in parts])
        names = ("share", "location", "spread", "dof", "outlier")
        share, location, spread, dof, outlier = (
            np.concatenate([getattr(part, name) for part in parts]) for name in names
        )
        offset = np.append(0, np.cumsum(sizes))
        return cls(offset, share, location, spread, dof, outlier, normalized=True)

    def rescaled(self, centre: Array, scale: Array) -> Forecasts:
        """Return the forecasts of centre + scale * Y, coordinate by coordinate.

        The shares are not normalized again: they keep their bits.

        Args:
            centre: (d,).
            scale: (d,).
        """
        location, spread = centre + scale * self.location, self.spread * scale[:, None] * scale
        return Forecasts(
            self.offset, self.share, location, spread, self.dof, self.outlier, normalized=True
        )

    def __len__(self) -> int:
        return len(self.offset) - 1

    def __getitem__(self, t: Any) -> Any:
        if isinstance(t, slice):
            return [self[i] for i in range(*t.indices(len(self)))]
        if not -len(self) <= t < len(self):
            raise IndexError(t)
        t %= len(self)
        part = slice(self.offset[t], self.offset[t + 1])
        return Forecast(
            self.share[part],
            self.location[part],
            self.spread[part],
            self.dof[part],
            float(self.outlier[t]),
        )

    def moments(self) -> tuple[Array, Array]:
        """Return (T, d) means and (T, d) standard deviations, without outlier components."""
        mean, sd = (np.empty((len(self), self.location.shape[1])) for _ in range(2))
        fill_moments(self.offset, *self._components(), self.outlier, mean, sd)
        return mean, sd

    def quantiles(self, levels: Sequence[float]) -> Array:
        """Return quantiles of each coordinate, (L, T, d).

        Args:
            levels: L probabilities.

        Raises:
            RegimekitError: If a level is not strictly between 0 and 1.
        """
        for q in levels:
            if not 0 < q < 1:
                raise RegimekitError(f"q must lie strictly between 0 and 1, got {q!r}.")
        out = np.empty((len(levels), len(self), self.location.shape[1]))
        fill_quantiles(np.array(levels, dtype=float), self.offset, *self._components(), out)
        # Rounding errors of the two tails may differ by a unit in the last place.
        order = np.argsort(levels)
        out[order] = np.maximum.accumulate(out[order], axis=0)
        return out

    def log_density(self, y: Array) -> Array:
        """Return the log density of the observations, (T,); NaN if nothing was observed.

        Args:
            y: (T, d) observations.
        """
        out = np.empty(len(y))
        fill_log_densities(y, self.offset, *self._components(), out)
        return out

    def cdf(self, y: Array) -> Array:
        """Return P(Y <= y), coordinate by coordinate, (T, d).

        Args:
            y: (T, d) observations.
        """
        out = np.empty(y.shape)
        fill_cdf(y, self.offset, *self._components(), out)
        return out

    def anomaly_score(self, y: Array) -> Array:
        """Return the anomaly scores of the observations, (T,); see `Forecast.anomaly_score`.

        Args:
            y: (T, d) observations.
        """
        out = np.empty(len(y))
        fill_tails(y, self.offset, *self._components(), self.outlier, out)
        return 1.0 - out

    def crps(self, y: Array) -> Array:
        """Return the CRPS of the observations, coordinate by coordinate, (T, d).

        Args:
            y: (T, d) observations.
        """
        out = np.empty(y.shape)
        fill_crps(y, self.offset, *self._components(), out)
        return out

    @property
    def mean(self) -> Array:
        """Means, without outlier components."""
        return self._squeezed(self.moments()[0])

    @property
    def sd(self) -> Array:
        """Standard deviations, without outlier components."""
        return self._squeezed(self.moments()[1])

    @property
    def median(self) -> Array:
        """Medians."""
        return self.quantile(0.5)

    def quantile(self, q: float | Sequence[float]) -> Array:
        """Return the values below which the probability is `q`.

        Args:
            q: one probability, or Q of them.

        Returns:
            (T,) for one probability and (T, Q) for several if d = 1; (T, d) and (T, Q, d)
            otherwise.

        Raises:
            RegimekitError: If a probability is not strictly between 0 and 1.
        """
        if isinstance(q, (int, float, np.floating)):
            return self._squeezed(self.quantiles([float(q)])[0])
        found = self.quantiles([float(level) for level in q]).transpose(1, 0, 2)
        return found[:, :, 0] if found.shape[2] == 1 else found

    def interval(self, level: float = 0.9) -> tuple[Array, Array]:
        """Return lower and upper ends of the central intervals.

        Args:
            level: probability of the intervals.

        Raises:
            RegimekitError: If level is not strictly between 0 and 1.
        """
        if not 0 < level < 1:
            raise RegimekitError(f"level must lie strictly between 0 and 1, got {level!r}.")
        lower, upper = self.quantiles([(1 - level) / 2, (1 + level) / 2])
        return self._squeezed(lower), self._squeezed(upper)

    def columns(self, level: float = 0.9, time: Any = None) -> dict[str, NDArray[Any]]:
        """Return one row per step as named columns: step, time, mean, median, lower, upper, sd.

        Args:
            level: probability of the interval `lower` .. `upper`.
            time: labels of the steps, if the model does not know them.

        Returns:
            Columns of length T (`mean_0`, `mean_1`, .. for d > 1); `time` if it is known.
        """
        table: dict[str, NDArray[Any]] = {"step": np.arange(1, len(self) + 1)}
        labels = self.times if time is None else np.array(list(time))
        if labels is not None:
            table["time"] = labels
        mean, sd = self.moments()
        lower, median, upper = self.quantiles([(1 - level) / 2, 0.5, (1 + level) / 2])
        wide = {"mean": mean, "median": median, "lower": lower, "upper": upper, "sd": sd}
        for name, values in wide.items():
            if values.shape[1] == 1:
                table[name] = values[:, 0]
            else:
                table |= {f"{name}_{j}": values[:, j] for j in range(values.shape[1])}
        return table

    def frame(self, level: float = 0.9, time: Any = None) -> Any:
        """Return `columns` as a data frame of the caller's library (pandas for arrays).

        Args:
            level, time: as for `columns`.
        """
        return labelled(self.columns(level, time), self.native, None)

    def plot(self, ax: Any = None, **options: Any) -> Any:
        """Draw the median with a 50 % and a 90 % band. Needs matplotlib.

        Args:
            ax: axes to draw into; a new figure if not given.
            **options: as for `regimekit.plotting.plot_forecast`: `y`, `times`, `level`, ..

        Returns:
            The axes.
        """
        # By name: figures are a layer above, and matplotlib is not loaded without need.
        return import_module("regimekit.plotting").plot_forecast(self, ax=ax, **options)

    def __repr__(self) -> str:
        header, rows = self._cells()
        more = [] if len(self) <= _SHOWN_STEPS else [f".. and {len(self) - _SHOWN_STEPS} more"]
        head = f"{display.count(len(self), 'step')} ahead"
        return "\n".join([head, display.table(header, rows), *more])

    def _repr_html_(self) -> str:
        return display.html(f"{display.count(len(self), 'step')} ahead", *self._cells())

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = []
        for h, forecast in enumerate(self[:_SHOWN_STEPS]):
            lower, upper = (display.vector(end) for end in forecast.interval(0.9))
            label = str(h + 1) if self.times is None else _time_text(self.times[h])
            rows.append([label, display.vector(forecast.median), f"{lower} .. {upper}"])
        return ["step" if self.times is None else "time", "median", "90 % interval"], rows

    def _squeezed(self, values: Array) -> Array:
        return values[:, 0] if values.shape[1] == 1 else values

    def _components(self) -> tuple[Array, Array, Array, Array]:
        return self.share, self.location, self.spread, self.dof


def _time_text(time: Any) -> str:
    """Return a time as text."""
    if isinstance(time, np.datetime64):
        return str(time.astype("datetime64[s]")).replace("T", " ")
    return str(time) if isinstance(time, datetime) else f"{time:.10g}"


def log_densities(forecasts: Forecasts, y: Array) -> Array:
    """Return `forecasts.log_density(y)`.

    Args:
        forecasts: T forecasts.
        y: (T, d) observations.
    """
    return forecasts.log_density(y)
