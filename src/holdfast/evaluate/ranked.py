"""The continuous ranked probability score of mixtures, many forecasts at once.

Gaussian components have the closed form of Grimit et al. (2006),

    CRPS = sum_k w_k A(y - m_k, s_k^2) - 1/2 sum_jk w_j w_k A(m_j - m_k, s_j^2 + s_k^2),
    A(m, v) = m (2 Phi(m / sqrt v) - 1) + 2 sqrt v phi(m / sqrt v).

Student-t components have none (the second sum), so with them the two tails are integrated,

    CRPS = int_{-inf}^y F^2 dx + int_y^inf (1 - F)^2 dx,

by Gauss-Legendre panels walked outward from y. A panel is half as long as the distance to the
nearest component, measured in the complex plane where a component's cdf stops being smooth at
about its scale from its centre; that keeps the error of every panel alike, whatever the mixture.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from holdfast._numba import kernel
from holdfast.forecast import Forecast, side_by_side, standard_cdf

Array = NDArray[np.float64]

_CHUNK = 256
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(6)
_PANEL = 0.5
_GAUSSIAN_REACH = 10.0
_TAIL_DIGITS = 11.0  # what is cut off is below 1e-11 of a component's scale ..
_FARTHEST = 1e13  # .. or, for dof close to 1/2, lies beyond this many scales
_NEGLIGIBLE = 1e-24  # product of two shares
_TWICE_ROOT = 2 / math.sqrt(math.pi)  # E|X - X'| of a standard normal


def ranked_scores(forecasts: Sequence[Forecast], y: Array) -> Array:
    """CRPS of each coordinate of (T, d) observations; NaN where y is NaN."""
    parts = [np.zeros((0, y.shape[1]))]
    for start in range(0, len(forecasts), _CHUNK):
        stop = start + _CHUNK
        parts.append(_chunk(forecasts[start:stop], y[start:stop]))
    return np.concatenate(parts)


def _chunk(forecasts: Sequence[Forecast], y: Array) -> Array:
    share, location, scale, dof = side_by_side(forecasts)
    score = _gaussian if np.isinf(dof).all() else _student
    columns = [
        score(y[:, j], share, location[:, :, j], scale[:, :, j], dof[:, :, 0])
        for j in range(y.shape[1])
    ]
    return np.stack(columns, axis=1)


def _gaussian(y: Array, share: Array, location: Array, scale: Array, dof: Array) -> Array:
    to_y = np.einsum("tk,tk->t", share, _mean_distance(y[:, None] - location, scale))
    return np.asarray(to_y - 0.5 * _between(share, location, scale))


@kernel
def _between(share: np.ndarray, location: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """E|X - X'| of two independent draws of each mixture.

    Most components of a mixture over regimes have next to no share: their pairs are left out.
    """
    rows, n = share.shape
    total = np.zeros(rows)
    for t in range(rows):
        for j in range(n):
            if share[t, j] == 0.0:
                continue
            total[t] += share[t, j] ** 2 * scale[t, j] * _TWICE_ROOT
            for k in range(j):
                both = share[t, j] * share[t, k]
                if both < _NEGLIGIBLE:
                    continue
                width = math.hypot(scale[t, j], scale[t, k])
                gap = abs(location[t, j] - location[t, k])
                z = min(gap / width, 1e150)
                density = math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
                total[t] += 2 * both * (gap * math.erf(z / math.sqrt(2)) + 2 * width * density)
    return total


def _mean_distance(gap: Array, scale: Array) -> Array:
    """E|Z| for Z ~ N(gap, scale^2)."""
    z = np.minimum(np.abs(gap) / scale, 1e150)
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    return np.asarray(np.abs(gap) * special.erf(z / math.sqrt(2)) + 2 * scale * density)


def _student(y: Array, share: Array, location: Array, scale: Array, dof: Array) -> Array:
    reach = scale * _reach(dof)
    low, high = (location - reach).min(axis=1), (location + reach).max(axis=1)
    inside = np.clip(np.nan_to_num(y, nan=0.0), low, high)
    above = _upper_tail(inside, high, share, location, scale, dof)
    below = _upper_tail(-inside, -low, share, -location, scale, dof)
    finite = np.where((dof > 0.5) | (share == 0), 0.0, np.inf).max(axis=1)
    return np.asarray(above + below + np.abs(y - inside) + finite)


def _reach(dof: Array) -> Array:
    """Scales from the centre beyond which the square of a tail can be left out."""
    digits = _TAIL_DIGITS / np.maximum(2 * dof - 1, 1e-3)  # the tail of F^2 is x^(1 - 2 dof)
    student = 10.0 ** np.minimum(digits, math.log10(_FARTHEST))
    return np.where(np.isinf(dof), _GAUSSIAN_REACH, np.maximum(student, 20.0))


def _upper_tail(
    start: Array, end: Array, share: Array, location: Array, scale: Array, dof: Array
) -> Array:
    """Integral of (1 - F)^2 from `start` to `end`, row by row."""
    total = np.zeros(len(start))
    at = start.copy()
    live = np.flatnonzero(at < end)
    while live.size:
        x, centre, width = at[live], location[live], scale[live]
        room = _PANEL * np.hypot(width, x[:, None] - centre).min(axis=1)
        stop = np.minimum(x + room, end[live])
        half = 0.5 * (stop - x)
        nodes = x[:, None] + half[:, None] * (_NODES + 1)
        z = (centre[:, None] - nodes[:, :, None]) / width[:, None]  # P(X > x) by symmetry
        survival = np.einsum("tk,tnk->tn", share[live], standard_cdf(z, dof[live][:, None]))
        total[live] += half * (survival**2 @ _WEIGHTS)
        at[live] = stop
        live = live[(stop < end[live]) & (stop > x)]  # a panel too short for a float ends it
    return total
