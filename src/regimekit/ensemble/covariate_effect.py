"""The effect of covariates on forecasts several steps ahead.

With x_t the covariates of observation t, and lags k_1, k_2, ..,

    y_t = a + sum_i phi_i y_{t - k_i} + b x_t + c x_{t - 1} + noise

is fitted to the stored past by weighted least squares: weights are discounted, and those of
outliers are reduced. The coefficients of covariates have a ridge penalty, that of least generalized
cross-validation (Golub, Heath and Wahba 1979), so columns without effect are shrunk to 0, however
many there are. c is left out if there are too many columns for the observations.

`b x_t` is the direct effect: what is left of y after it is subtracted is a stream without
covariates, with seasons and trends of its own. The equation itself, iterated, is a member too: it
continues the effect of covariates that later values inherit through lags.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_FORGETTING = 0.998  # discount, per observation
_DOF = 8.0  # degrees of freedom of the robust weights
_ROWS_PER_COLUMN = 8.0  # observations that a column must have for its lag to be used
_GRID = np.logspace(4.0, -5.0, 19)  # ridges that are tried, in mean eigenvalues
_COST = 1.4  # of a used degree of freedom (Kim and Gu 2004)
_LEAST_LEFT = 0.3  # share of the observations that must be left
_FEWEST = 12  # observations for a fit
_MOST_USED = 0.7  # degrees of freedom that count as used at most, per observation


class Effect(NamedTuple):
    """Direct effect of the covariates, and the equation that it is a part of."""

    direct: Array  # (n + H,) b x_t, past and future
    inherited: Array  # (n + H,) c x_{t - 1}
    lags: Array  # a, phi_1, phi_2, ..
    steps: tuple[int, ...]
    inflation: float  # errors out of sample over those in sample

    def iterate(self, y: Array, origins: NDArray[np.int64], low: Array, high: Array) -> Array:
        """Return (origins, H) forecasts of y less the direct effect, from the past of each origin.

        Args:
            y: (n,) observations.
            origins: indices in y.
            low: (origins, H) smallest value, high: largest value, both less the direct effect.
        """
        horizon, depth = low.shape[1], max(self.steps)
        path = np.empty((origins.size, depth + horizon))
        path[:, :depth] = y[np.maximum(origins[:, None] - np.arange(depth - 1, -1, -1), 0)]
        out = np.empty(low.shape)
        for h in range(horizon):
            at = origins + h + 1
            known = np.minimum(at, self.direct.size - 1)
            value = self.lags[0] + self.inherited[known]
            for phi, k in zip(self.lags[1:], self.steps, strict=True):
                value += phi * path[:, depth + h - k]
            out[:, h] = np.clip(value, low[:, h], high[:, h])
            path[:, depth + h] = out[:, h] + self.direct[known]
        return out


def fit(y: Array, covariates: Array, steps: tuple[int, ...]) -> Effect | None:
    """Return the effect of standardized covariates, or None with too few observations.

    Args:
        y: (n,) the past without missing values.
        covariates: (n + H, p) those of the past and of the horizon.
        steps: lags k_i.
    """
    n, p = y.size, covariates.shape[1]
    steps = tuple(k for k in steps if k < n // 3) or (1,)
    first = max(steps)
    if n - first < _FEWEST:
        return None
    memory = _FORGETTING ** np.arange(n - first - 1.0, -1.0, -1.0)
    lagged = 2 * p * _ROWS_PER_COLUMN < memory.sum()
    x = covariates
    if lagged:
        x = np.hstack([x, np.vstack([x[:1], x[:-1]])])
    centre = y.mean()
    unit = float(np.abs(y - centre).max()) or 1.0
    z = (y - centre) / unit
    past = np.ones((n - first, 1 + len(steps)))
    for i, k in enumerate(steps):
        past[:, 1 + i] = z[first - k : n - k]
    size = past.shape[1]
    design = np.hstack([past, x[first:n], z[first:, None]])
    weight, ridge, used = memory, -1.0, 0.0
    for _ in range(2):
        moments = (weight[:, None] * design).T @ design
        # What lags explain is taken out of the covariates and of the target.
        own = moments[:size, :size] + 1e-9 * np.diag(np.diagonal(moments)[:size] + 1e-300)
        slopes = np.linalg.solve(own, moments[:size, size:])
        rest = moments[size:, size:] - moments[size:, :size] @ slopes
        square, product = rest[:-1, :-1], rest[:-1, -1]
        if ridge < 0.0:
            ridge, used = _ridge(square, product, float(rest[-1, -1]), n - first - size)
        slope = np.linalg.solve(square + ridge * np.eye(len(square)), product)
        lags = slopes[:, -1] - slopes[:, :-1] @ slope
        error = design[:, -1] - past @ lags - x[first:n] @ slope
        scale = max(float(np.median(np.abs(error))) / 0.6745, 1e-300)
        weight = memory * (_DOF + 1.0) / (_DOF + (error / scale) ** 2)
    share = min((used + size) / memory.sum(), _MOST_USED)
    lags[0] = unit * lags[0] + centre * (1.0 - lags[1:].sum())
    slope *= unit
    inherited = x[:, p:] @ slope[p:] if lagged else np.zeros(len(x))
    inflation = float(np.sqrt((1.0 + share) / (1.0 - share)))
    return Effect(x[:, :p] @ slope[:p], inherited, lags, steps, inflation)


def _ridge(square: Array, product: Array, total: float, rows: int) -> tuple[float, float]:
    """Return the ridge of least generalized cross-validation, and the used degrees of freedom.

    Args:
        square: (k, k) X'X.
        product: (k,) X'y.
        total: y'y.
        rows: number of observations.
    """
    value, vector = np.linalg.eigh(square)
    value = np.maximum(value, 0.0)
    ridge = _GRID[:, None] * (float(value.mean()) + 1e-300)
    z = vector.T @ product
    slope = z / (value + ridge)
    used = (value / (value + ridge)).sum(axis=1)
    rest = np.maximum(
        total - slope @ (2.0 * (vector.T @ product)) + slope**2 @ value, 1e-12 * total
    )
    left = 1.0 - _COST * used / rows
    loss = np.where(left > _LEAST_LEFT, rest / np.maximum(left, _LEAST_LEFT) ** 2, np.inf)
    best = int(np.argmin(loss))
    return float(ridge[best, 0]), float(used[best])
