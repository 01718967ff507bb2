"""A posterior without a closed form as a cloud of weighted points, redrawn without a generator.

When the weights have become uneven, points are drawn again by weight and smoothed with a
shrinking kernel (Liu and West 2001),

    x_j <- k x_drawn(j) + (1 - k) mean(x) + h L xi_j,   L L' = cov(x),   k = sqrt(1 - h^2),

which keeps the cloud's mean and covariance whatever the bandwidth h. The places of the draw and
the normals xi come from additive low-discrepancy sequences, entered at a place that the cloud's
own count of redraws decides: the result is a function of the cloud alone, to the last bit, so
clouds may be shared, and their errors are smaller than those of random draws.
"""

from __future__ import annotations

import math
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy import special

from regimekit._numba import kernel

UNEVEN = 0.5  # redraw when fewer than this share of the points carry the weight
THINNEST = 0.125  # and let no redraw keep fewer than this share of them
# The powers 1 .. 4 of 1 / g with g^5 = g + 1: the additive sequence that fills four dimensions
# most evenly, as that of the golden ratio fills one.
STRIDES = (0.8566748838545029, 0.7338918566271260, 0.6287067210378087, 0.5385972572236101)
_GOLDEN = 0.6180339887498949


@kernel
def carriers(log_weight: np.ndarray, power: float) -> float:
    """Effective number of points under their weights raised to a power."""
    top = log_weight.max()
    total, squares = 0.0, 0.0
    for j in range(log_weight.size):
        w = math.exp(power * (log_weight[j] - top))
        total += w
        squares += w * w
    return total * total / squares


@kernel
def redraw(
    points: np.ndarray,
    log_weight: np.ndarray,
    redraws: int,
    bandwidth: float,
    out_points: np.ndarray,
) -> None:
    """Equally weighted points in place of weighted ones; at most four coordinates."""
    n, side = points.shape
    share, drawn, xi = np.empty(n), np.empty(n, np.int64), np.empty(4)
    tempered = temper(log_weight, share)
    mean, root = moments(points, share)
    systematic(share, (0.5 + redraws * _GOLDEN) % 1.0, drawn)
    if tempered:  # the posterior lies outside: go there, but do not narrow on the way
        root = moments(points, np.full(n, 1.0 / n))[1]
        bandwidth = 1.0
    keep = math.sqrt(1.0 - bandwidth * bandwidth)
    for j in range(n):
        even_normal(redraws * n + j, xi)
        for a in range(side):
            x = keep * points[drawn[j], a] + (1.0 - keep) * mean[a]
            for b in range(a + 1):
                x += bandwidth * root[a, b] * xi[b]
            out_points[j, a] = x


@kernel
def temper(log_weight: np.ndarray, out_share: np.ndarray) -> bool:
    """Shares by weight, flattened where too few points would be left; whether they were.

    A cloud cannot follow at once a posterior much narrower than itself, or outside it; flattened
    weights let it get there over a few batches in place of collapsing to a point.
    """
    least = THINNEST * log_weight.size
    low, high = -700.0, 0.0  # of the power's logarithm: log weights may be 1e300 apart
    tempered = carriers(log_weight, 1.0) < least
    if not tempered:
        low = 0.0
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        if carriers(log_weight, math.exp(middle)) < least:
            high = middle
        else:
            low = middle
    top = log_weight.max()
    for j in range(log_weight.size):
        out_share[j] = math.exp(math.exp(low) * (log_weight[j] - top))
    out_share /= out_share.sum()
    return tempered


@kernel
def moments(points: np.ndarray, share: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weighted mean, and a lower triangular root of the weighted covariance."""
    n, side = points.shape
    mean, root = np.zeros(side), np.zeros((side, side))
    for j in range(n):
        mean += share[j] * points[j]
    for j in range(n):
        for a in range(side):
            for b in range(a + 1):
                root[a, b] += share[j] * (points[j, a] - mean[a]) * (points[j, b] - mean[b])
    for a in range(side):
        least = 1e-9 * root[a, a]  # one coordinate may be a function of the others
        for b in range(a + 1):
            for c in range(b):
                root[a, b] -= root[a, c] * root[b, c]
            if a == b:
                root[a, a] = math.sqrt(max(root[a, a], least))
            else:
                root[a, b] = root[a, b] / root[b, b] if root[b, b] > 0.0 else 0.0
    return mean, root


@kernel
def systematic(share: np.ndarray, offset: float, out_drawn: np.ndarray) -> None:
    """Indices at the evenly spaced places (i + offset) / n of the cumulative shares."""
    n = share.size
    j = 0
    cumulative = share[0]
    for i in range(n):
        while cumulative <= (i + offset) / n and j < n - 1:
            j += 1
            cumulative += share[j]
        out_drawn[i] = j


@kernel
def even_normal(index: int, out_xi: np.ndarray) -> None:
    """Entry `index` of a sequence that fills the four-dimensional normal (Box and Muller)."""
    for pair in range(0, 4, 2):
        u = (0.5 + (index + 1) * STRIDES[pair]) % 1.0
        v = (0.5 + (index + 1) * STRIDES[pair + 1]) % 1.0
        radius = math.sqrt(-2.0 * math.log(max(u, 1e-300)))
        out_xi[pair] = radius * math.cos(2.0 * math.pi * v)
        out_xi[pair + 1] = radius * math.sin(2.0 * math.pi * v)


def even_cloud(n: int, side: int) -> NDArray[np.float64]:
    """(n, side) standard normal points, as even as can be, with exact mean 0 and covariance I.

    Example:
        >>> points = even_cloud(64, 3)
        >>> bool(abs(points.T @ points / 64 - np.eye(3)).max() < 1e-12)
        True
    """
    places = (0.5 + np.arange(1, n + 1)[:, None] * np.array(STRIDES[:side])) % 1.0
    points = special.ndtri(np.clip(places, 1e-12, 1 - 1e-12))
    points -= points.mean(axis=0)
    factor = np.linalg.cholesky(points.T @ points / n)
    return cast(NDArray[np.float64], np.linalg.solve(factor, points.T).T)
