"""Calibrated intervals: an online correction of the mixture.

The mixture's law of Y is replaced by that of c + exp(s) (Y' - c), c its middle, where the peak p
defines Y'. A component of location m and spread R R' is one of m + R z, z standard.

    p > 0   sharper in the middle: Y' = c + F (Y - c),
            F = 0.5, 1, 1.8 with probability p / 2, 1 - p, p / 2
    p < 0   flatter: with probability -p, m + R z becomes m + R (0.6 z + 0.8 e),
            e = -1 or 1 with equal probability

    size   s += G o,   o = (o_80 + 2 o_90 + o_95) / 4,  o_l = 1{y outside l %} - (1 - l / 100)
    peak   p += H (1{y inside 50 %} - 0.5 + o), between -1 and 1

(adaptive conformal inference, Gibbs and Candes 2021, at two places): the size corrects the outer
levels, the peak what is wrong in the middle and not outside, so that a law that is too wide
throughout is not sharpened first. Both are sums of errors of coverage, and both are bounded, so the
mean error goes to 0 at 50 % and over the outer levels together, whatever the members got wrong, as
long as the bounds are not reached. Where the shape is right the peak moves by chance only, in both
directions. All steps are bounded, so an outlier counts as any value outside, and the corrected
forecast is still a mixture of the same kind: quantiles, densities and draws agree with each other.

s follows the last few dozen observations, which is informative about the next one. Beyond that one
the usual size counts, the mean of s over some two hundred observations.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import exp, fabs, isnan, sqrt

if not cython.compiled:
    from regimekit.distributions.student_t import t_cdf
    from regimekit.preprocessing.lag_buffer import sort_order

# Scale and offset of the flatter law: their squares sum to 1, so the covariance is the same.
_NARROW = cython.declare(cython.double, 0.6)
_OFFSET = cython.declare(cython.double, 0.8)
# Step sizes G, in the long run, and H.
_SIZE_STEP = cython.declare(cython.double, 0.04)
_PEAK_STEP = cython.declare(cython.double, 0.04)
# After n observations G is 1 / (n + this), until that is smaller.
_WARM_UP = cython.declare(cython.double, 10.0)
# Step size of the usual size.
_USUAL_STEP = cython.declare(cython.double, 0.005)
# Largest log of the size.
_MAX_SIZE = cython.declare(cython.double, 1.5)
# A peak nearer to 0 is ignored.
_MIN_PEAK = cython.declare(cython.double, 0.02)
# Share at either end of the locations that counts as no farther away than the rest.
_TAIL = cython.declare(cython.double, 0.05)


class Calibration:
    """Size and peak of the correction, and the coverage of 90 % intervals.

    Args:
        dim: number of coordinates d.

    Attributes:
        size: log of the factor of the next forecast; usual_size: of those farther ahead.
        peak: from -1 (flatter) to 1 (sharper).
        n_inside: number of values inside their 90 % interval, out of n_checked.
    """

    FIELDS = {
        "size": ("float64", (), -1.5, 1.5),
        "usual_size": ("float64", (), -1.5, 1.5),
        "peak": ("float64", (), -1.0, 1.0),
        "n_checked": ("int64", (), 0, 2**53),
        "n_inside": ("int64", (), 0, "n_checked"),
    }

    def __init__(self, dim):
        self.dim = dim
        self.size = 0.0
        self.usual_size = 0.0
        self.peak = 0.0
        self.n_inside = 0
        self.n_checked = 0
        self.n_parts = 1
        self.part_offset = np.zeros((5, dim))
        self.centre = np.zeros(dim)
        self.column = np.zeros(16)
        self.weight = np.zeros(16)
        self.order = np.zeros(16, np.int64)
        self.root = np.zeros((dim, dim))
        if not cython.compiled:
            self.part_share, self.part_factor, self.part_narrow = ([0.0] * 5 for _ in range(3))

    def set_parts(self):
        """Compute the parts that each component is split into."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for i in range(5):
            self.part_factor[i] = 1.0
            self.part_narrow[i] = 1.0
            for j in range(self.dim):
                self.part_offset[i, j] = 0.0
        if fabs(self.peak) < _MIN_PEAK:
            self.n_parts = 1
            self.part_share[0] = 1.0
            return
        if self.peak > 0.0:
            self.n_parts = 3
            self.part_share[0] = self.peak / 2.0
            self.part_share[1] = 1.0 - self.peak
            self.part_share[2] = self.peak / 2.0
            self.part_factor[0] = self.part_narrow[0] = 0.5
            self.part_factor[2] = self.part_narrow[2] = 1.8
            return
        # All signs of all coordinates would be 2^d parts. Four are enough to leave neighbouring
        # coordinates uncorrelated: + + +, + - -, - + -, - - + and so on.
        n: cython.Py_ssize_t = 4 if self.dim > 1 else 2
        self.n_parts = n + 1
        for i in range(n):
            self.part_share[i] = -self.peak / n
            self.part_narrow[i] = _NARROW
            for j in range(self.dim):
                positive: cython.bint = (i // 2 == 0) if j % 3 == 0 else (i % 2 == 0)
                if j % 3 == 2:
                    positive = i == 0 or i == 3
                if self.dim == 1:
                    positive = i == 0
                self.part_offset[i, j] = _OFFSET if positive else -_OFFSET
        self.part_share[n] = 1.0 + self.peak

    def corrected(self, law, far=False):
        """Return the corrected mixture of a `Mixture`, of the next or of a later observation."""
        out = type(law)(self.dim, 5 * max(law.size, 1))
        self.apply(law, out, far)
        return out

    def add_room(self, law, out):
        """Make room for the corrected mixture."""
        out.size = 0
        out.reserve(5 * law.size)
        if self.column.shape[0] < law.size:
            n = 2 * law.size
            self.column, self.weight = np.zeros(n), np.zeros(n)
            self.order = np.zeros(n, np.int64)

    def apply(self, law, out, far):
        """Write the corrected mixture of `law` into `out`."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        p: cython.Py_ssize_t
        n: cython.Py_ssize_t = law.size
        if out.share.shape[0] < 5 * n or self.column.shape[0] < n:
            self.add_room(law, out)
        self.set_parts()
        size: cython.double = exp(self.usual_size if far else self.size)
        for j in range(self.dim):
            self.centre[j] = self.middle(law, j)
        for k in range(n):
            if self.n_parts > 3 or (self.n_parts == 3 and self.peak < 0.0):
                self.factorize(law, k)
            for p in range(self.n_parts):
                m: cython.Py_ssize_t = p * n + k
                factor: cython.double = size * self.part_narrow[p]
                out.share[m] = self.part_share[p] * law.share[k]
                out.dof[m] = law.dof[k]
                for i in range(self.dim):
                    away: cython.double = self.part_factor[p] * (
                        law.location[k, i] - self.centre[i]
                    )
                    if self.part_narrow[p] == _NARROW:
                        for j in range(i + 1):
                            away += self.root[i, j] * self.part_offset[p, j]
                    out.location[m, i] = self.centre[i] + size * away
                    for j in range(self.dim):
                        out.spread[m, i, j] = factor * factor * law.spread[k, i, j]
        out.size = self.n_parts * n

    def factorize(self, law, k):
        """Compute the Cholesky root of the spread of component k."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        a: cython.Py_ssize_t
        for i in range(self.dim):
            for j in range(i + 1):
                total: cython.double = law.spread[k, i, j]
                for a in range(j):
                    total -= self.root[i, a] * self.root[j, a]
                if i == j:
                    self.root[i, i] = sqrt(total)
                else:
                    self.root[i, j] = total / self.root[j, j]

    def middle(self, law, j):
        """Return the mean of the locations of coordinate j with both tails clipped.

        Everything is stretched around it. The plain mean would let a component with little weight
        far away, such as a regime not opened yet, move all others.
        """
        n: cython.Py_ssize_t = law.size
        k: cython.Py_ssize_t
        for k in range(n):
            self.column[k] = law.location[k, j]
        sort_order(self.column, 0, n, self.order)
        total: cython.double = 0.0
        for k in range(n):
            total += law.share[self.order[k]]
        low: cython.double = self.column[self.order[n - 1]]
        high: cython.double = low
        lower: cython.bint = False
        running: cython.double = 0.0
        for k in range(n):
            running += law.share[self.order[k]]
            if not lower and running >= total * _TAIL:
                low = self.column[self.order[k]]
                lower = True
            if running >= total * (1.0 - _TAIL):
                high = self.column[self.order[k]]
                break
        mean: cython.double = 0.0
        for k in range(n):
            mean += law.share[k] * min(max(self.column[k], low), high)
        return mean

    def learn(self, corrected, y):
        """Update with one observation (d,) and its corrected forecast."""
        self.update(corrected, np.ascontiguousarray(y, np.float64))

    def update(self, corrected, y):
        """Update with one observation and its corrected forecast."""
        j: cython.Py_ssize_t
        seen: cython.double = 0.0
        for j in range(self.dim):
            if not isnan(y[j]):
                seen += 1.0
        step: cython.double = max(_SIZE_STEP, 1.0 / (self.n_checked + _WARM_UP))
        for j in range(self.dim):
            if isnan(y[j]):
                continue
            away: cython.double = fabs(2.0 * below(corrected, j, y[j]) - 1.0)
            outside: cython.double = (
                0.25 * ((1.0 if away > 0.8 else 0.0) - (1.0 - 0.8))
                + 0.5 * ((1.0 if away > 0.9 else 0.0) - (1.0 - 0.9))
                + 0.25 * ((1.0 if away > 0.95 else 0.0) - (1.0 - 0.95))
            )
            inside: cython.double = 1.0 if away <= 0.5 else 0.0
            self.size += step * outside / seen
            self.peak += _PEAK_STEP * (inside - 0.5 + outside) / seen
            self.n_inside += 1 if away <= 0.9 else 0
            self.n_checked += 1
        self.size = min(max(self.size, -_MAX_SIZE), _MAX_SIZE)
        slow: cython.double = max(_USUAL_STEP, 1.0 / (self.n_checked + _WARM_UP))
        self.usual_size += slow * (self.size - self.usual_size)
        self.peak = min(max(self.peak, -1.0), 1.0)


def below(law, j, y):
    """Return P(Y_j <= y)."""
    point: cython.double = min(max(y, -1e150), 1e150)
    total: cython.double = 0.0
    k: cython.Py_ssize_t
    for k in range(law.size):
        z: cython.double = (point - law.location[k, j]) / sqrt(law.spread[k, j, j])
        total += law.share[k] * t_cdf(min(max(z, -1e100), 1e100), law.dof[k])
    return total
