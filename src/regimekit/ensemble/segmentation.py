"""Is there a change of level or spread in the latest rows? A test that allows for autocorrelation.

The rows since the latest change are a segment x_1 .. x_n. Under every hypothesis the rows are a
level with AR(1) errors,

    x_t = m_t + e_t,   e_t = phi e_{t-1} + innovation,   phi out of a grid

    no change  m_t constant
    drift      m_t a straight line, or a slow transition from one level to another
    change     one level before tau, another from tau on; the variance may change as well

phi is the value with which the change fits best, the same under all three. If the errors are
white this is the usual test of two means; if they are almost a random walk, only a jump that is
large in units of the innovations counts. For each coordinate the evidence of a change of level is

    log likelihood(change) - log likelihood(no change) - [line over no change]

in nats, and 0 unless the change fits better than a slow transition. That of a change of spread is
the log likelihood ratio for the variances of the innovations before and after, divided by what
heavy tails and autocorrelated squares inflate it by. If values are rounded to a grid, the variance
of the rounding error is added to that of the innovations, so the spread is never below it: a coarse
sensor that flickers between two values does not change. Each coordinate bears two nats of the cost.
A change is found if the evidence of all coordinates together, see `pool`, exceeds `COST` +
log(rows so far).
The cost per test is bounded: segments store `CAPACITY` rows, and long ones are tested less often.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import fabs, log, sqrt

from regimekit.core.exceptions import SnapshotError

COST = 10.0  # nats
CAPACITY = 1024  # rows of a segment that are stored
TESTS = 64  # a segment of n rows is tested every n / TESTS rows
MEMORY = 100  # differences of which the median is the unit of the noise
MIN_LENGTH = 5  # rows of the shorter side of a change of level
_GRID = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95, 0.99)  # of phi
_N_GRID = cython.declare(cython.Py_ssize_t, 7)
# Part of the cost that each coordinate which has changed bears, in nats.
_SHARE = cython.declare(cython.double, 2.0)
_CAPACITY = cython.declare(cython.Py_ssize_t, CAPACITY)
_TESTS = cython.declare(cython.Py_ssize_t, TESTS)
_MEMORY = cython.declare(cython.Py_ssize_t, MEMORY)
_LEAST = cython.declare(cython.Py_ssize_t, MIN_LENGTH)
# Rows of the shorter side of a change of spread.
_LEAST_SPREAD = cython.declare(cython.Py_ssize_t, 12)
# Half the length of the shortest slow transition in rows; nats by which a change must be better.
_LEAST_RAMP = cython.declare(cython.double, 16.0)
_ABRUPT = cython.declare(cython.double, 2.0)
# The unit of the noise counts as this many observations of the variance.
_PRIOR_COUNT = cython.declare(cython.double, 1.0)
_MIN_SHARE = cython.declare(cython.double, 1e-4)  # of the variance of the segment
# A value below this part of the 90 % quantile of the values counts as none.
_REPEATED = cython.declare(cython.double, 0.05)
# Parts of a segment; correlations are those of rows and those of sums over parts.
_BLOCKS = cython.declare(cython.Py_ssize_t, 16)
_MAX_KURTOSIS = cython.declare(cython.double, 20.0)
_TINY = cython.declare(cython.double, 1e-290)
_MAX_VALUE = 1e131
_PHI = cython.declare(cython.double[::1], np.array(_GRID))


class MedianWindow:
    """Medians of the latest `MEMORY` values of each of d coordinates; no value is NaN."""

    def __init__(self, dim):
        self.dim = dim
        self.ring, self.ordered = np.zeros((dim, MEMORY)), np.zeros((dim, MEMORY))
        self.size, self.start = np.zeros(dim, np.int64), np.zeros(dim, np.int64)

    @property
    def values(self):
        """(d, MEMORY) the values, the oldest first, and -1 where there are none."""
        out = np.full((self.dim, MEMORY), -1.0)
        for j in range(self.dim):
            order = (self.start[j] + np.arange(self.size[j])) % MEMORY
            out[j, : self.size[j]] = np.asarray(self.ring)[j, order]
        return out

    @values.setter
    def values(self, given):
        self.size[:] = 0
        self.start[:] = 0
        for j, row in enumerate(np.asarray(given)):
            for value in row[row >= 0.0]:
                self.push(j, value)

    def push(self, j, value):
        """Append a value of coordinate j; the oldest is dropped if there are too many."""
        k: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t = self.size[j]
        at: cython.Py_ssize_t = (self.start[j] + n) % _MEMORY
        if n == _MEMORY:
            old: cython.double = self.ring[j, self.start[j]]
            while k < n - 1 and self.ordered[j, k] != old:
                k += 1
            while k < n - 1:
                self.ordered[j, k] = self.ordered[j, k + 1]
                k += 1
            self.start[j] = (self.start[j] + 1) % _MEMORY
            n -= 1
        self.ring[j, at] = value
        k = n
        while k > 0 and self.ordered[j, k - 1] > value:
            self.ordered[j, k] = self.ordered[j, k - 1]
            k -= 1
        self.ordered[j, k] = value
        self.size[j] = n + 1

    def median(self, j):
        """Return the median of coordinate j; 0 without values."""
        n: cython.Py_ssize_t = self.size[j]
        if n == 0:
            return 0.0
        return 0.5 * (self.ordered[j, n // 2] + self.ordered[j, (n - 1) // 2])

    def typical(self, j):
        """Return the median of the values of coordinate j that are not next to nothing."""
        n: cython.Py_ssize_t = self.size[j]
        if n == 0:
            return 0.0
        small: cython.double = _REPEATED * self.ordered[j, 9 * n // 10]
        return self.ordered[j, min((self.count(j, small) + n) // 2, n - 1)]

    def count(self, j, bound):
        """Return how many values of coordinate j are at most `bound`."""
        k: cython.Py_ssize_t = 0
        while k < self.size[j] and self.ordered[j, k] <= bound:
            k += 1
        return k


class Segmentation:
    """The rows since the latest change, and the test for a change among them.

    Args:
        dim: number of coordinates d.
        cost: what the evidence of a change must exceed, besides the log of the number of rows.
        drifts: whether a drift or a slow transition is another explanation.
        adds_up: whether the evidence of coordinates adds up even if their errors are correlated.

    Attributes:
        size: number of rows stored; dates: (size,) their dates.
        n_rows: number of rows so far.
        earlier: (3, d) number, mean and sum of squares of the rows of this segment that are not
            stored any more.
        excess: evidence of the latest test less what a change must exceed, in nats.
        phi: (d,) autocorrelation of the errors in the latest test.
        least: (d,) smallest unit of the noise variance; rounding: (d,) variance of the rounding
            error. Both are set by the owner.
    """

    FIELDS = {
        "n_rows": ("int64", (), 0, 2**53),
        "waiting": ("int64", (), 0, CAPACITY),
        "excess": ("float64", (), -1e300, 1e300),
        "rows": ("float64", (None, "dim"), -_MAX_VALUE, _MAX_VALUE),
        "times": ("int64", ("size",), 0, 2**53),
        "earlier": ("float64", ("3", "dim"), -1e300, 1e300),
        "differences": ("float64", ("dim", str(MEMORY)), -1.0, 2 * _MAX_VALUE),
    }

    def __init__(self, dim, cost=COST, drifts=True, adds_up=False):
        self.dim = dim
        self.cost, self.drifts, self.adds_up = cost, drifts, adds_up
        self.size = self.waiting = self.n_rows = 0
        self.excess = -cost
        self.storage = np.zeros((CAPACITY, dim))
        self.dates = np.zeros(CAPACITY, np.int64)
        self.earlier = np.zeros((3, dim))
        self.steps = MedianWindow(dim)
        self.residual, self.total = np.zeros(CAPACITY), np.zeros((3, dim))
        self.sums = np.zeros((len(_GRID), 2, CAPACITY + 1))
        self.evidence, self.floor, self.phi = np.zeros(CAPACITY), np.zeros(dim), np.zeros(dim)
        self.gain, self.errors = np.zeros(dim), np.zeros((dim, CAPACITY))
        self.least, self.rounding = np.zeros(dim), np.zeros(dim)

    @property
    def rows(self):
        """(n, d) the rows stored."""
        return np.asarray(self.storage)[: self.size]

    @rows.setter
    def rows(self, given):
        if len(given) > CAPACITY:
            raise SnapshotError(
                f"Invalid snapshot: a segment of {len(given)} rows, expected at most {CAPACITY}."
            )
        self.size = len(given)
        np.asarray(self.storage)[: self.size] = given

    @property
    def times(self):
        """(n,) the dates of the rows stored."""
        return np.asarray(self.dates)[: self.size]

    @times.setter
    def times(self, given):
        np.asarray(self.dates)[: self.size] = given

    @property
    def differences(self):
        """(d, MEMORY) sizes of the latest differences of rows, -1 where there are none."""
        return self.steps.values

    @differences.setter
    def differences(self, given):
        self.steps.values = given

    def append(self, row, date):
        """Append a row (d,) without NaN; return whether a test is due."""
        j: cython.Py_ssize_t
        if self.size > 0:
            for j in range(self.dim):
                self.steps.push(j, fabs(row[j] - self.storage[self.size - 1, j]))
        if self.size == _CAPACITY:
            self.merge(0, _CAPACITY // 4, self.earlier)
            self.drop(_CAPACITY // 4)
        for j in range(self.dim):
            self.storage[self.size, j] = row[j]
        self.dates[self.size] = date
        self.size += 1
        self.n_rows += 1
        self.waiting += 1
        if self.size <= 2 * _LEAST or self.waiting * _TESTS < self.size:
            return False
        self.waiting = 0
        return True

    def drop(self, n):
        """Drop the oldest n rows."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        self.size -= n
        for i in range(self.size):
            self.dates[i] = self.dates[i + n]
            for j in range(self.dim):
                self.storage[i, j] = self.storage[i + n, j]

    def merge(self, first, last, into):
        """Add rows first .. last - 1 to the number, mean and sum of squares of each coordinate."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for i in range(first, last):
            for j in range(self.dim):
                into[0, j] += 1.0
                gap: cython.double = self.storage[i, j] - into[1, j]
                into[1, j] += gap / into[0, j]
                into[2, j] += gap * (self.storage[i, j] - into[1, j])

    def set_floor(self):
        """Set the unit of the noise variance of each coordinate; return whether any varies."""
        j: cython.Py_ssize_t
        moves: cython.bint = False
        for j in range(self.dim):
            self.total[0, j] = self.total[1, j] = self.total[2, j] = 0.0
        self.merge(0, self.size, self.total)
        for j in range(self.dim):
            noise: cython.double = 1.4826 * self.steps.median(j)
            least: cython.double = max(0.5 * noise * noise, self.least[j])
            least = max(least, _MIN_SHARE * self.total[2, j] / self.size)
            self.floor[j] = least
            moves = moves or least > _TINY
        return moves

    def test(self):
        """Return the first row after the most likely change if the evidence suffices, else -1."""
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        n: cython.Py_ssize_t = self.size
        best: cython.Py_ssize_t = _LEAST
        if not self.set_floor():
            return -1
        for k in range(n):
            self.evidence[k] = 0.0
        for j in range(self.dim):
            if self.floor[j] > _TINY:
                self.accumulate(j)
                self.choose_phi(j)
        for k in range(_LEAST, n - 1):
            if self.evidence[k] > self.evidence[best]:
                best = k
        cost: cython.double = self.cost - _SHARE + log(self.n_rows)
        bound: cython.double = -cost
        # A change that seems to be more recent than can be tested is left for later.
        if self.evidence[best] > cost and best <= n - _LEAST:
            for j in range(self.dim):
                self.gain[j] = 0.0
                if self.floor[j] > _TINY:
                    self.accumulate(j)
                    self.gain[j] = max(self.judge(j, best) - _SHARE, 0.0)
            bound += self.pool()
        else:
            bound += min(self.evidence[best], cost)
            self.excess = min(bound, 0.0)
            return -1
        self.excess = bound
        return best if bound > 0.0 else -1

    def pool(self):
        """Return the evidence of all coordinates together.

        That of independent coordinates adds up, that of copies of one does not: the sum is
        divided by the factor by which correlations r increase the variance of a sum of squares,
        sum_ij g_i g_j r_ij^2 / sum_i g_i^2 with the evidence g of each. One alone may suffice.
        """
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        total: cython.double = 0.0
        largest: cython.double = 0.0
        squares: cython.double = 1e-300
        common: cython.double = 0.0
        for i in range(self.dim):
            if self.gain[i] <= 0.0:
                continue
            total += self.gain[i]
            largest = max(largest, self.gain[i])
            squares += self.gain[i] * self.gain[i]
            for j in range(i):
                if self.gain[j] > 0.0 and not self.adds_up:
                    shared: cython.double = max(
                        self.correlation2(i, j, 1), self.correlation2(i, j, self.size // _BLOCKS)
                    )
                    common += 2.0 * self.gain[i] * self.gain[j] * shared
        return max(largest, total / (1.0 + max(common, 0.0) / squares))

    def correlation2(self, i, j, length):
        """Return the squared correlation of sums of `length` errors of two coordinates.

        What chance contributes on average is subtracted.
        """
        k: cython.Py_ssize_t
        s_ii: cython.double = 1e-300
        s_jj: cython.double = 1e-300
        s_ij: cython.double = 0.0
        n: cython.double = 0.0
        first: cython.double = 0.0
        second: cython.double = 0.0
        if length == 0:
            return 0.0
        for k in range(self.size - 1):
            first += self.errors[i, k]
            second += self.errors[j, k]
            if (k + 1) % length == 0:
                s_ii += first * first
                s_jj += second * second
                s_ij += first * second
                first = 0.0
                second = 0.0
                n += 1.0
        return s_ij * s_ij / (s_ii * s_jj) - 1.0 / max(n, 1.0)

    def accumulate(self, j):
        """Compute sums of the innovations and their squares of coordinate j for each phi."""
        g: cython.Py_ssize_t
        i: cython.Py_ssize_t
        for g in range(_N_GRID):
            phi: cython.double = _PHI[g]
            first: cython.double = 0.0
            second: cython.double = 0.0
            before: cython.double = 0.0
            self.sums[g, 0, 0] = self.sums[g, 1, 0] = 0.0
            for i in range(1, self.size):
                now: cython.double = self.storage[i, j] - self.storage[0, j]
                u: cython.double = now - phi * before
                before = now
                first += u
                second += u * u
                self.sums[g, 0, i] = first
                self.sums[g, 1, i] = second

    def constant_fit(self, g):
        """Return the sum of squared innovations around one level."""
        n: cython.Py_ssize_t = self.size - 1
        first: cython.double = self.sums[g, 0, n]
        return max(self.sums[g, 1, n] - first * first / n, 0.0)

    def step_fit(self, g, tau):
        """Return the sum of squared innovations around two levels; store levels and parts."""
        n: cython.Py_ssize_t = self.size - 1
        phi: cython.double = _PHI[g]
        w: cython.double = 1.0 - phi
        a: cython.double = self.sums[g, 0, tau - 1]
        jump: cython.double = self.sums[g, 0, tau] - a
        b: cython.double = self.sums[g, 0, n] - self.sums[g, 0, tau]
        n_a: cython.double = tau - 1.0
        n_b: cython.double = 1.0 * (n - tau)
        g_aa: cython.double = n_a * w * w + phi * phi
        g_bb: cython.double = n_b * w * w + 1.0
        r_a: cython.double = w * a - phi * jump
        r_b: cython.double = w * b + jump
        det: cython.double = g_aa * g_bb - phi * phi
        self.fit_before = (g_bb * r_a + phi * r_b) / det
        self.fit_after = (g_aa * r_b + phi * r_a) / det
        x: cython.double = w * self.fit_before
        y: cython.double = w * self.fit_after
        squares: cython.double = self.sums[g, 1, tau - 1]
        self.rest_before = max(squares - 2.0 * x * a + n_a * x * x, 0.0)
        squares = self.sums[g, 1, n] - self.sums[g, 1, tau]
        self.rest_after = max(squares - 2.0 * y * b + n_b * y * y, 0.0)
        jump -= self.fit_after - phi * self.fit_before
        self.rest_jump = jump * jump
        return self.rest_before + self.rest_jump + self.rest_after

    def prior(self, j, g, n):
        """Return what is added to the sum of n squared innovations of coordinate j."""
        phi: cython.double = _PHI[g]
        least: cython.double = _PRIOR_COUNT * self.floor[j] * (1.0 - phi * phi)
        return least + n * self.rounding[j] * (1.0 + phi * phi)

    def spread_gain(self, j, g, tau):
        """Return the log likelihood ratio of two variances; the latest rows are left out.

        They may be the first ones after a change of level that cannot be tested yet.
        """
        last: cython.Py_ssize_t = self.size - 1 - _LEAST
        n_a: cython.double = tau - 1.0
        n_b: cython.double = 1.0 * (last - tau)
        if n_a < _LEAST_SPREAD or n_b < _LEAST_SPREAD:
            return 0.0
        a: cython.double = self.sums[g, 0, tau - 1]
        b: cython.double = self.sums[g, 0, last] - self.sums[g, 0, tau]
        rest_a: cython.double = max(self.sums[g, 1, tau - 1] - a * a / n_a, 0.0)
        rest_b: cython.double = self.sums[g, 1, last] - self.sums[g, 1, tau] - b * b / n_b
        rest_b = max(rest_b, 0.0)
        both: cython.double = rest_a + rest_b + self.prior(j, g, last - 1)
        both /= n_a + n_b + _PRIOR_COUNT
        rest_a += self.prior(j, g, tau - 1)
        rest_b += self.prior(j, g, last - tau)
        gain: cython.double = n_a * log(both * (n_a + _PRIOR_COUNT) / rest_a)
        gain += n_b * log(both * (n_b + _PRIOR_COUNT) / rest_b)
        return max(0.5 * gain, 0.0)

    def choose_phi(self, j):
        """Find phi for coordinate j, and add the evidence of each row, still without drift."""
        g: cython.Py_ssize_t
        k: cython.Py_ssize_t
        n: cython.Py_ssize_t = self.size
        best: cython.Py_ssize_t = 0
        smallest: cython.double = -1.0
        rest: cython.double
        prior: cython.double
        for g in range(_N_GRID):
            prior = self.prior(j, g, n)
            for k in range(_LEAST, n - 1):
                rest = self.step_fit(g, k) + prior
                if smallest < 0.0 or rest < smallest:
                    smallest = rest
                    best = g
        prior = self.prior(j, best, n)
        whole: cython.double = self.constant_fit(best) + prior
        for k in range(_LEAST, n - 1):
            rest = self.step_fit(best, k) + prior
            self.evidence[k] += max(0.5 * (n - 1) * log(whole / rest), 0.0)
            self.evidence[k] += 0.5 * self.spread_gain(j, best, k)

    def judge(self, j, tau):
        """Return the evidence of coordinate j for a change at row tau."""
        g: cython.Py_ssize_t
        best: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t = self.size
        smallest: cython.double = -1.0
        rest: cython.double
        prior: cython.double
        for g in range(_N_GRID):
            rest = self.step_fit(g, tau) + self.prior(j, g, n)
            if smallest < 0.0 or rest < smallest:
                smallest = rest
                best = g
        self.phi[j] = _PHI[best]
        prior = self.prior(j, best, n)
        whole: cython.double = self.constant_fit(best)
        rest = self.step_fit(best, tau)
        half: cython.double = 0.5 * (n - 1)
        level: cython.double = half * log((whole + prior) / (rest + prior))
        if self.drifts:
            level = self.beyond_drifts(j, best, tau, level, whole, prior)
        self.moments(j, best, tau)
        spread: cython.double = self.spread_gain(j, best, tau)
        return max(level, 0.0) + spread * self.tail_weight * self.square_weight

    def beyond_drifts(self, j, g, tau, level, whole, prior):
        """Return the evidence of a change of level that no drift explains.

        Args:
            j: coordinate.
            g: index of phi.
            tau: first row after the change.
            level: evidence of a change over no change.
            whole: sum of squared innovations around one level.
            prior: what is added to sums of squared innovations.
        """
        n: cython.Py_ssize_t = self.size
        half: cython.double = 0.5 * (n - 1)
        line: cython.double = min(self.smooth_fit(j, g, 0.5 * n, 0.5 * n), whole)
        slow: cython.double = whole
        if n // 8 >= _LEAST_RAMP:
            slow = min(slow, self.smooth_fit(j, g, tau - 0.5, 1.0 * (n // 8)))
        if n // 4 >= _LEAST_RAMP:
            slow = min(slow, self.smooth_fit(j, g, tau - 0.5, 1.0 * (n // 4)))
        if level < half * log((whole + prior) / (slow + prior)) + _ABRUPT:
            level = 0.0
        return level - half * log((whole + prior) / (line + prior))

    def smooth_fit(self, j, g, centre, width):
        """Return the sum of squared innovations around a level that moves from one to another.

        Args:
            centre: middle of the transition, in rows.
        """
        i: cython.Py_ssize_t
        phi: cython.double = _PHI[g]
        w: cython.double = 1.0 - phi
        s_xx: cython.double = 0.0
        s_x: cython.double = 0.0
        s_xu: cython.double = 0.0
        past: cython.double = min(max(0.5 - centre / (2.0 * width), 0.0), 1.0)
        n: cython.Py_ssize_t = self.size - 1
        for i in range(1, n + 1):
            now: cython.double = min(max((i - centre) / (2.0 * width) + 0.5, 0.0), 1.0)
            u: cython.double = self.sums[g, 0, i] - self.sums[g, 0, i - 1]
            x: cython.double = now - phi * past
            past = now
            s_x += x
            s_xx += x * x
            s_xu += x * u
        total: cython.double = self.sums[g, 0, n]
        slope: cython.double = s_xx - s_x * s_x / n
        along: cython.double = s_xu - s_x * total / n
        rest: cython.double = self.sums[g, 1, n] - total * total / n
        # With w > 0 a constant column is the level, so both are fitted as deviations from the mean.
        if w > 0.0 and slope > 1e-12 * (s_xx + 1e-300):
            rest -= along * along / slope
        return max(rest, 0.0)

    def moments(self, j, g, tau):
        """Compute the weights for heavy tails and for autocorrelated squares of innovations."""
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t = self.size - 1
        w: cython.double = 1.0 - _PHI[g]
        self.step_fit(g, tau)
        small: cython.double = 1e-9 * self.floor[j] + 1e-300
        scale_a: cython.double = sqrt(self.rest_before / max(tau - 1, 1) + small)
        scale_b: cython.double = sqrt(self.rest_after / max(n - tau, 1) + small)
        shift_a: cython.double = w * self.fit_before
        shift_b: cython.double = w * self.fit_after
        count: cython.Py_ssize_t = 0
        second: cython.double = 0.0
        fourth: cython.double = 0.0
        for i in range(1, n + 1):
            if i == tau:
                self.errors[j, i - 1] = 0.0
                continue
            u: cython.double = self.sums[g, 0, i] - self.sums[g, 0, i - 1]
            u = (u - shift_a) / scale_a if i < tau else (u - shift_b) / scale_b
            self.errors[j, i - 1] = u
            self.residual[count] = u * u
            second += u * u
            fourth += u * u * u * u
            count += 1
        second = second / count + 1e-12
        kurtosis: cython.double = min(max(fourth / count / (second * second), 3.0), _MAX_KURTOSIS)
        self.tail_weight = 2.0 / (kurtosis - 1.0)
        along: cython.double = 0.0
        total: cython.double = 1e-12
        before: cython.double = 0.0
        for i in range(count):
            now: cython.double = self.residual[i] - second
            total += now * now
            along += now * before
            before = now
        rho: cython.double = min(max(along / total, 0.0), 0.95)
        self.square_weight = (1.0 - rho) / (1.0 + rho)
