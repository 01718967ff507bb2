"""Weighted points for a posterior without closed form, redrawn without a random generator.

If few points carry most of the weight, points are drawn again by weight and smoothed with a
shrinking kernel (Liu and West 2001),

    x_j <- k x_drawn(j) + (1 - k) mean(x) + h L xi_j,   L L' = cov(x),   k = sqrt(1 - h^2),

which preserves mean and covariance for every bandwidth h. The positions of the systematic draw and
the normals xi come from additive low-discrepancy sequences, entered at an index that the number of
earlier redraws of the cloud determines. The result is therefore a function of the cloud alone, to
the last bit: particles can share clouds, and errors are smaller than with random draws.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import cos, exp, log, sin, sqrt

from regimekit.distributions.normal import normal_quantile

MIN_EFFECTIVE_SHARE = cython.declare(cython.double, 0.5)  # of the points; below, redraw
MIN_TEMPERED_SHARE = cython.declare(cython.double, 0.125)  # effective points of a redraw
# The powers 1 .. 4 of 1 / g with g^5 = g + 1: the additive sequence that fills four dimensions
# most evenly, as that of the golden ratio fills one.
STRIDE_1 = cython.declare(cython.double, 0.8566748838545029)
STRIDE_2 = cython.declare(cython.double, 0.7338918566271260)
STRIDE_3 = cython.declare(cython.double, 0.6287067210378087)
STRIDE_4 = cython.declare(cython.double, 0.5385972572236101)
GOLDEN = cython.declare(cython.double, 0.6180339887498949)
PI = cython.declare(cython.double, 3.141592653589793)


class KernelSmoother:
    """Replace weighted points by equally weighted ones.

    Args:
        size: number of points n.
        side: number of coordinates of a point, at most 4.
        bandwidth: h, between 0 and 1.

    Attributes:
        points: (n, side) input of `redraw`.
        redrawn: (n, side) output of `redraw`.
        share: (n,) tempered shares of the points.

    Arguments of the methods:
        log_weight: (n,) log weights.
    """

    def __init__(self, size, side, bandwidth):
        self.size, self.side, self.bandwidth = size, side, bandwidth
        self.points, self.redrawn = np.zeros((size, side)), np.zeros((size, side))
        self.share, self.drawn = np.zeros(size), np.zeros(size, np.int64)
        self.equal = np.full(size, 1.0 / size)
        self.mean, self.centre, self.xi = np.zeros(side), np.zeros(side), np.zeros(4)
        self.root = np.zeros((side, side))

    def resample(self, points, log_weight, redraws):
        """Return `redraw` of points (n, side), for callers in Python."""
        np.asarray(self.points)[:] = points
        self.redraw(np.ascontiguousarray(log_weight, np.float64), redraws)
        return np.array(self.redrawn)

    def is_uneven(self, log_weight):
        """Return whether the effective number of points is too small."""
        return effective_points(log_weight, 1.0) < MIN_EFFECTIVE_SHARE * self.size

    def redraw(self, log_weight, redraws):
        """Write equally weighted points to `redrawn`."""
        bandwidth: cython.double = self.bandwidth
        tempered: cython.bint = self.temper(log_weight)
        self.write_moments(self.share, self.mean)
        self.draw_systematically((0.5 + redraws * GOLDEN) % 1.0)
        if tempered:
            # The posterior lies outside the cloud: move there without becoming narrower.
            self.write_moments(self.equal, self.centre)
            bandwidth = 1.0
        keep: cython.double = sqrt(1.0 - bandwidth * bandwidth)
        for j in range(self.size):
            quasi_normal(redraws * self.size + j, self.xi)
            for a in range(self.side):
                x: cython.double = (
                    keep * self.points[self.drawn[j], a] + (1.0 - keep) * self.mean[a]
                )
                for b in range(a + 1):
                    x += bandwidth * self.root[a, b] * self.xi[b]
                self.redrawn[j, a] = x

    def temper(self, log_weight):
        """Write shares by weight, flattened if too few effective points would remain.

        A cloud cannot follow a posterior much narrower than itself, or outside it, in one step.
        With flattened weights it does in a few batches, instead of collapsing to a point.

        Returns:
            Whether the weights were flattened.
        """
        least: cython.double = MIN_TEMPERED_SHARE * self.size
        # Bounds of the logarithm of the power: log weights may be 1e300 apart.
        low: cython.double = -700.0
        high: cython.double = 0.0
        tempered: cython.bint = effective_points(log_weight, 1.0) < least
        if not tempered:
            low = 0.0
        while high - low > 1e-6:
            middle: cython.double = 0.5 * (low + high)
            if effective_points(log_weight, exp(middle)) < least:
                high = middle
            else:
                low = middle
        top: cython.double = log_weight[0]
        for j in range(self.size):
            top = max(top, log_weight[j])
        total: cython.double = 0.0
        for j in range(self.size):
            self.share[j] = exp(exp(low) * (log_weight[j] - top))
            total += self.share[j]
        for j in range(self.size):
            self.share[j] /= total
        return tempered

    def write_moments(self, share, out_mean):
        """Write the weighted mean, and in `root` a lower triangular root of the covariance.

        Args:
            share: (n,) shares of the points.
            out_mean: (side,) output.
        """
        for a in range(self.side):
            out_mean[a] = 0.0
            for j in range(self.size):
                out_mean[a] += share[j] * self.points[j, a]
            for b in range(a + 1):
                self.root[a, b] = 0.0
                for j in range(self.size):
                    self.root[a, b] += (
                        share[j]
                        * (self.points[j, a] - out_mean[a])
                        * (self.points[j, b] - out_mean[b])
                    )
        for a in range(self.side):
            # One coordinate may be a function of the others.
            least: cython.double = 1e-9 * self.root[a, a]
            for b in range(a + 1):
                for c in range(b):
                    self.root[a, b] -= self.root[a, c] * self.root[b, c]
                if a == b:
                    self.root[a, a] = sqrt(max(self.root[a, a], least))
                elif self.root[b, b] > 0.0:
                    self.root[a, b] /= self.root[b, b]
                else:
                    self.root[a, b] = 0.0

    def draw_systematically(self, offset):
        """Write the points at the shares (i + offset) / n, with `offset` in [0, 1)."""
        j: cython.Py_ssize_t = 0
        cumulative: cython.double = self.share[0]
        for i in range(self.size):
            while cumulative <= (i + offset) / self.size and j < self.size - 1:
                j += 1
                cumulative += self.share[j]
            self.drawn[i] = j


def effective_points(log_weight, power):
    """Return the effective number of points under their weights raised to a power."""
    top: cython.double = log_weight[0]
    for j in range(log_weight.shape[0]):
        top = max(top, log_weight[j])
    total: cython.double = 0.0
    squares: cython.double = 0.0
    for j in range(log_weight.shape[0]):
        w: cython.double = exp(power * (log_weight[j] - top))
        total += w
        squares += w * w
    return total * total / squares


def quasi_normal(index, out_xi):
    """Write an entry (4,) of a sequence that fills the four-dimensional normal (Box and Muller)."""
    u: cython.double = (0.5 + (index + 1) * STRIDE_1) % 1.0
    v: cython.double = (0.5 + (index + 1) * STRIDE_2) % 1.0
    radius: cython.double = sqrt(-2.0 * log(max(u, 1e-300)))
    out_xi[0] = radius * cos(2.0 * PI * v)
    out_xi[1] = radius * sin(2.0 * PI * v)
    u = (0.5 + (index + 1) * STRIDE_3) % 1.0
    v = (0.5 + (index + 1) * STRIDE_4) % 1.0
    radius = sqrt(-2.0 * log(max(u, 1e-300)))
    out_xi[2] = radius * cos(2.0 * PI * v)
    out_xi[3] = radius * sin(2.0 * PI * v)


def quasi_normal_points(n, side):
    """Return evenly spread standard normal points with mean 0 and covariance I exactly, (n, side).

    Args:
        side: number of coordinates, at most 4.

    Example:
        >>> points = quasi_normal_points(64, 3)
        >>> bool(abs(points.T @ points / 64 - np.eye(3)).max() < 1e-12)
        True
    """
    strides = np.array([STRIDE_1, STRIDE_2, STRIDE_3, STRIDE_4])[:side]
    positions = (0.5 + np.arange(1, n + 1)[:, None] * strides) % 1.0
    points = normal_quantile(np.clip(positions, 1e-12, 1 - 1e-12))
    points -= points.mean(axis=0)
    factor = np.linalg.cholesky(points.T @ points / n)
    return np.linalg.solve(factor, points.T).T
