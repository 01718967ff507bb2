"""One predictive distribution for every model: a finite mixture.

    p(y) = sum_k share_k t_{dof_k}(y; location_k, spread_k)

`spread` is a variance (d = 1) or a covariance matrix (d > 1) in the scale sense; a component
with infinite degrees of freedom is Gaussian. Scalars come back for d = 1, arrays for d > 1,
where `cdf`, `quantile` and `interval` speak of each coordinate on its own and `log_density`
and `sample` of all of them together.

Where a model reckons with outliers, the last component is theirs: broad, with heavy tails and
the share `outlier`. It belongs to the distribution, so that log scores are honest in the tails;
`mean` and `sd` leave it out, and `ordinary` is the forecast without it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from regimekit.core import display
from regimekit.core.exceptions import RegimekitError
from regimekit.distributions.student_t_mixture import log_mixture, log_mixtures, mixture_quantiles

Array = NDArray[np.float64]
_LONGEST = 1e150  # residuals beyond this say nothing more; its square is still finite


@dataclass(frozen=True, eq=False)
class Forecast:
    """A mixture of K components in R^d.

    Attributes:
        share: (K,) weights that sum to one.
        location: (K, d) centres.
        spread: (K, d, d) scale matrices.
        dof: (K,) degrees of freedom; infinity is Gaussian.
        outlier: share of the last component if it is that of outliers, else 0.

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
        """A single Gaussian: numbers, or a vector and a covariance matrix."""
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
        """Components given as (K,) or (K, d) locations with (K,) or (K, d, d) spreads.

        Shares need not be normalised; components without a share are dropped.
        """
        total = share.sum()
        if not total > 0:
            raise RegimekitError("share must have a positive sum.")
        keep = share > 1e-14 * total
        kept = share[keep]
        location = location[keep].reshape(kept.size, -1)
        spread = spread[keep].reshape(kept.size, location.shape[1], location.shape[1])
        degrees = np.full(kept.size, np.inf) if dof is None else dof[keep]
        return cls(kept / kept.sum(), location, spread, degrees, outlier)

    def __repr__(self) -> str:
        return display.short(f"Forecast({', '.join(f'{k} {v}' for k, v in self._told())})")

    def _repr_html_(self) -> str:
        return display.html("Forecast", [], [[k, v] for k, v in self._told()])

    def _told(self) -> list[tuple[str, str]]:
        """What one wants to know of it, in words."""
        lower, upper = (display.vector(end) for end in self.interval(0.9))
        return [
            ("median", display.vector(self.median)),
            ("90 % within", f"{lower} .. {upper}"),
            ("mean", display.vector(self.mean)),
            ("sd", display.vector(self.sd)),
        ]

    @property
    def ordinary(self) -> Forecast:
        """The same forecast for an observation that is no outlier."""
        if self.outlier == 0.0:
            return self
        share = self.share[:-1] / self.share[:-1].sum()
        return Forecast(share, self.location[:-1], self.spread[:-1], self.dof[:-1])

    def rescaled(self, centre: ArrayLike, scale: ArrayLike) -> Forecast:
        """The forecast of centre + scale * Y, coordinate by coordinate."""
        factor = np.broadcast_to(np.asarray(scale, dtype=float), (self.dim,))
        spread = self.spread * factor[:, None] * factor
        moved = np.asarray(centre, dtype=float) + factor * self.location
        return replace(self, location=moved, spread=spread)

    @property
    def dim(self) -> int:
        """Number of coordinates d."""
        return int(self.location.shape[1])

    @property
    def variance(self) -> float | Array:
        """Variance of each coordinate; infinite where a component has dof <= 2."""
        if self.outlier > 0.0:
            return self.ordinary.variance
        finite = np.isfinite(self.dof) & (self.dof > 2)
        inflate = np.where(self.dof > 2, 1.0, np.inf)
        inflate[finite] = self.dof[finite] / (self.dof[finite] - 2)
        within = np.einsum("kii->ki", self.spread) * inflate[:, None]
        centred = self.location - self._mean()
        return self._plain(self.share @ (within + centred**2))

    @property
    def mean(self) -> float | Array:
        """Centre of mass of the mixture's locations, that of outliers apart."""
        return self._plain(self._mean())

    @property
    def median(self) -> float | Array:
        """The value that is as likely to be exceeded as not.

        The point forecast to prefer: regimes not opened yet are far away, and what little share
        they have drags the mean but not the median.
        """
        return self.quantile(0.5)

    @property
    def sd(self) -> float | Array:
        """Standard deviation of each coordinate, outliers apart."""
        return self._plain(np.sqrt(np.atleast_1d(self.variance)))

    def cdf(self, y: ArrayLike) -> Any:
        """P(Y <= y), coordinate by coordinate. For d = 1 `y` may be any array of points."""
        points = np.asarray(y, dtype=float)
        if self.dim == 1:
            flat = self._cdf(points.reshape(-1, 1))[:, 0]
            return float(flat[0]) if points.ndim == 0 else flat.reshape(points.shape)
        return self._cdf(self._points(points)).reshape(points.shape)

    def quantile(self, q: float) -> float | Array:
        """The value below which a share `q` of the probability lies."""
        if not isinstance(q, (int, float, np.floating)):
            raise RegimekitError(f"q must be one number, got {q!r}; call quantile once for each.")
        return self._plain(quantiles([self], q)[0])

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Central interval that holds a share `level` of the probability."""
        if not 0 < level < 1:
            raise RegimekitError(f"level must lie strictly between 0 and 1, got {level!r}.")
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def log_density(self, y: ArrayLike) -> Any:
        """Log density of one observation. A NaN coordinate is integrated out; all NaN gives NaN."""
        points = np.asarray(y, dtype=float)
        if self.dim == 1:
            flat = self._log_density_1d(points.reshape(-1))
            return float(flat[0]) if points.ndim == 0 else flat.reshape(points.shape)
        point = points.reshape(-1)
        if point.size != self.dim:
            raise RegimekitError(f"y must have {self.dim} values, got {point.size}.")
        seen = ~np.isnan(point)
        if not seen.any():
            return math.nan
        residual = np.clip((point - self.location)[:, seen], -_LONGEST, _LONGEST)
        spread = self.spread[:, seen][:, :, seen]
        factor = np.linalg.cholesky(spread)
        white = np.linalg.solve(factor, residual[..., None])[..., 0]
        white = np.clip(white, -_LONGEST, _LONGEST)
        log_det = np.log(np.einsum("kii->ki", factor)).sum(axis=1)
        terms = _log_t((white**2).sum(axis=1), log_det, self.dof, int(seen.sum()))
        return float(_log_mean(terms[None], self.share)[0])

    def sample(self, n: int, rng: np.random.Generator) -> Array:
        """`n` draws: shape (n,) for d = 1, (n, d) otherwise."""
        which = rng.choice(self.share.size, size=n, p=self.share)
        factor = np.linalg.cholesky(self.spread)[which]
        noise = np.einsum("nij,nj->ni", factor, rng.standard_normal((n, self.dim)))
        degrees = self.dof[which]
        finite = np.isfinite(degrees)
        noise[finite] /= np.sqrt(rng.chisquare(degrees[finite]) / degrees[finite])[:, None]
        draws = self.location[which] + noise
        return np.asarray(draws[:, 0] if self.dim == 1 else draws)

    def _mean(self) -> Array:
        share = self.share if self.outlier == 0.0 else self.share[:-1]
        return np.asarray(share @ self.location[: share.size] / share.sum())

    def _plain(self, values: Array) -> float | Array:
        return float(values[0]) if self.dim == 1 else values

    def _points(self, points: Array) -> Array:
        if points.shape[-1:] != (self.dim,):
            raise RegimekitError(f"y must have {self.dim} values, got shape {points.shape}.")
        return points.reshape(-1, self.dim)

    def _cdf(self, points: Array) -> Array:
        scale = np.sqrt(np.einsum("kii->ki", self.spread))
        z = (points[:, None] - self.location) / scale
        return np.asarray(np.einsum("k,nkd->nd", self.share, standard_cdf(z, self.dof[:, None])))

    def _log_density_1d(self, points: Array) -> Array:
        parts = _scalars(self)
        return np.array([log_mixture(float(y), *parts) for y in points])


class Forecasts(Sequence[Forecast]):
    """Forecasts of a stretch of a stream, side by side in few arrays.

    Attributes:
        offset: (T + 1,) where the components of each forecast begin.
        share: (P,), location: (P, d), spread: (P, d, d), dof: (P,) components of all of them.
        outlier: (T,) share of the last component of each if it is that of outliers.
    """

    def __init__(
        self,
        offset: NDArray[np.int64],
        share: Array,
        location: Array,
        spread: Array,
        dof: Array,
        outlier: Array,
    ) -> None:
        self.offset, self.outlier = offset, outlier
        self.share, self.location, self.spread, self.dof = share, location, spread, dof

    def __len__(self) -> int:
        return len(self.offset) - 1

    def __getitem__(self, t: Any) -> Any:
        if isinstance(t, slice):
            return [self[i] for i in range(*t.indices(len(self)))]
        if not -len(self) <= t < len(self):
            raise IndexError(t)
        t %= len(self)
        part = slice(self.offset[t], self.offset[t + 1])
        share = self.share[part]
        return Forecast(
            share / share.sum(),
            self.location[part],
            self.spread[part],
            self.dof[part],
            float(self.outlier[t]),
        )

    def moments(self) -> tuple[Array, Array]:
        """Mean and standard deviation of each coordinate of each forecast, outliers apart."""
        share = self.share.copy()
        share[self.offset[1:][self.outlier > 0] - 1] = 0.0
        starts = self.offset[:-1]
        total = np.add.reduceat(share, starts)[:, None]
        mean = np.add.reduceat(share[:, None] * self.location, starts) / total
        with np.errstate(invalid="ignore", divide="ignore"):
            inflate = np.where(np.isinf(self.dof), 1.0, self.dof / (self.dof - 2))
        inflate[self.dof <= 2] = np.inf
        inflate[share == 0.0] = 0.0
        own = np.einsum("kii->ki", self.spread) * inflate[:, None]
        centred = self.location - np.repeat(mean, np.diff(self.offset), axis=0)
        within = share[:, None] * (own + centred**2)
        return mean, np.sqrt(np.add.reduceat(within, starts) / total)


def log_densities(forecasts: Forecasts, y: Array) -> Array:
    """Log density of each of (T, d) observations; NaN where nothing was observed."""
    if y.shape[1] > 1 or not len(y):
        each = zip(forecasts, y, strict=True)
        return np.array([float(f.log_density(row)) for f, row in each])
    found = np.empty(len(y))
    values = np.ascontiguousarray(y[:, 0])
    log_mixtures(values, forecasts.offset, *_scalars(forecasts), found)
    return found


def _scalars(of: Forecast | Forecasts) -> tuple[Array, Array, Array, Array]:
    """Shares, locations, variances and dof of components with one coordinate, as kernels read."""
    columns = (of.share, of.location[:, 0], of.spread[:, 0, 0], of.dof)
    share, location, variance, dof = (np.ascontiguousarray(column) for column in columns)
    return share, location, variance, dof


def quantiles(forecasts: Sequence[Forecast], q: float) -> Array:
    """The q-quantile of each coordinate of many forecasts at once: (T, d)."""
    return several_quantiles(forecasts, (q,))[0]


def several_quantiles(forecasts: Sequence[Forecast], levels: Sequence[float]) -> list[Array]:
    """`quantiles` for each of some levels."""
    for q in levels:
        if not 0 < q < 1:
            raise RegimekitError(f"q must lie strictly between 0 and 1, got {q!r}.")
    share, location, scale, dof = side_by_side(forecasts)
    found = [np.empty_like(location[:, 0]) for _ in levels]
    for j in range(location.shape[2]):
        centre, width = (np.ascontiguousarray(part[..., j]) for part in (location, scale))
        for q, out in zip(levels, found, strict=True):
            out[:, j] = mixture_quantiles(float(q), share, centre, width, dof[..., 0])
    return found


def side_by_side(forecasts: Sequence[Forecast]) -> tuple[Array, Array, Array, Array]:
    """Forecasts side by side, filled up with copies of a component that have no share."""
    if isinstance(forecasts, Forecasts):
        return _block(forecasts)
    width = max(f.share.size for f in forecasts)
    share = np.zeros((len(forecasts), width))
    pick = np.empty((len(forecasts), width), np.int64)
    for row, chosen, f in zip(share, pick, forecasts, strict=True):
        row[: f.share.size] = f.share
        chosen[:] = np.minimum(np.arange(width), f.share.size - 1)
    location = np.stack([f.location[i] for f, i in zip(forecasts, pick, strict=True)])
    scale = np.stack(
        [np.sqrt(np.einsum("kii->ki", f.spread))[i] for f, i in zip(forecasts, pick, strict=True)]
    )
    dof = np.stack([f.dof[i] for f, i in zip(forecasts, pick, strict=True)])[..., None]
    return share, location, scale, dof


def _block(block: Forecasts) -> tuple[Array, Array, Array, Array]:
    """`side_by_side` of forecasts that share their arrays."""
    counts = np.diff(block.offset)
    width = int(counts.max(initial=1))
    pick = block.offset[:-1, None] + np.minimum(np.arange(width), counts[:, None] - 1)
    share = np.where(np.arange(width) < counts[:, None], block.share[pick], 0.0)
    share /= share.cumsum(axis=1)[:, -1:]  # in order: the padding must not change a bit
    scale = np.sqrt(np.einsum("kii->ki", block.spread))
    return share, block.location[pick], scale[pick], block.dof[pick][..., None]


def standard_cdf(z: Array, dof: Array) -> Array:
    """Distribution function of a standard t (normal where dof is infinite)."""
    gaussian = special.ndtr(z)
    if np.isinf(dof).all():
        return np.asarray(gaussian)
    student = special.stdtr(np.where(np.isinf(dof), 1, dof), z)
    return np.asarray(np.where(np.isinf(dof), gaussian, student))


def _log_mean(terms: Array, share: Array) -> Array:
    """log sum_k share_k exp(terms_k) along the last axis, in order, whatever the padding."""
    top = terms.max(axis=-1, keepdims=True)
    total = (share * np.exp(terms - top)).cumsum(axis=-1)[..., -1]
    return np.asarray(np.log(total) + top[..., 0])


def _log_t(z2: Array, log_scale: Array, dof: Array, d: int) -> Array:
    """Log density of a d-variate t at squared Mahalanobis length z2 (Gaussian for dof = inf)."""
    gaussian = -0.5 * (d * math.log(2 * math.pi) + z2)
    if np.isinf(dof).all():
        return np.asarray(gaussian - log_scale)
    nu = np.where(np.isinf(dof), 1.0, dof)
    student = special.gammaln((nu + d) / 2) - special.gammaln(nu / 2)
    student = student - 0.5 * (d * np.log(nu * np.pi) + (nu + d) * np.log1p(z2 / nu))
    return np.asarray(np.where(np.isinf(dof), gaussian, student) - log_scale)
