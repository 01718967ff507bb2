"""Regimes inferred from the observations themselves, beside the members that forecast.

The level view finds changes of level and spread, also where lags could follow them, and, for two
to four coordinates, changes of correlation: the signs of the products of two second differences
are further coordinates. Outliers and bursts of up to three rows are replaced by the median of
their neighbours first (Hampel filter), so a row is used three rows late.

After a change, the new segment is compared with the regimes known so far. If it cannot be
distinguished from one of them, that regime has returned; otherwise a new one is opened. The
change itself is decided by `segmentation`.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import exp, fabs, isnan, log

from regimekit.core.exceptions import SnapshotError
from regimekit.ensemble.segmentation import COST, MEMORY, MedianWindow, Segmentation

NEIGHBOURS = 3  # rows on either side whose median replaces an outlier
MAX_REGIMES = 64  # beyond this the most similar regime is reported again
_NEIGHBOURS = cython.declare(cython.Py_ssize_t, NEIGHBOURS)
_WIDTH = cython.declare(cython.Py_ssize_t, 2 * NEIGHBOURS + 1)
_MAX_REGIMES = cython.declare(cython.longlong, MAX_REGIMES)
# Robust standard deviations from the median of its neighbours beyond which a value is an outlier,
# and the distances needed to know them.
_OUTLYING = cython.declare(cython.double, 4.0)
_LEAST_DISTANCES = cython.declare(cython.longlong, 10)
# Part of a usual difference that counts as none; shares of those above which values are on a grid
# and below which they are not; differences over which the share is averaged, and how many count as
# larger at first.
_NEAR = cython.declare(cython.double, 0.05)
_MANY = cython.declare(cython.double, 0.25)
_FEW = cython.declare(cython.double, 0.125)
_MOVES = cython.declare(cython.double, 50.0)
_FIRST_MOVES = cython.declare(cython.double, 10.0)
DIFFERENT = 6.0  # nats above which a segment of levels is not the regime it is compared with
# A segment counts as at least so many independent rows, a regime as at most so many.
_MIN_ROWS = cython.declare(cython.double, 2.0)
_MAX_ROWS = cython.declare(cython.double, 1000.0)
_LEAST_SPREAD = cython.declare(cython.double, 12.0)
_MOST_CORRELATED = 4  # coordinates, for which signs of products are followed
_LARGEST = cython.declare(cython.double, 1e130)
_MAX_VALUE = 1e131


class Cleaner:
    """Replaces outliers by the median of their neighbours, `NEIGHBOURS` rows late.

    Args:
        dim: number of coordinates d.
    """

    FIELDS = {
        "recent": ("float64", (None, "dim"), -_MAX_VALUE, _MAX_VALUE),
        "recent_times": ("int64", ("size",), 0, 2**53),
        "distances": ("float64", ("dim", str(MEMORY)), -1.0, 2 * _MAX_VALUE),
        "moves": ("float64", ("dim", str(MEMORY)), -1.0, 2 * _MAX_VALUE),
        "repeated": ("float64", ("dim",), 0.0, 1.0),
        "on_grid": ("int64", ("dim",), 0, 1),
    }

    def __init__(self, dim):
        self.dim = dim
        self.size = 0
        self.latest = np.zeros((2 * NEIGHBOURS + 1, dim))
        self.times = np.zeros(2 * NEIGHBOURS + 1, np.int64)
        self.date = 0
        self.sizes, self.changes = MedianWindow(dim), MedianWindow(dim)
        self.repeated, self.on_grid = np.zeros(dim), np.zeros(dim, np.int64)
        self.sorting, self.cleaned = np.zeros(2 * NEIGHBOURS + 1), np.zeros(dim)

    @property
    def recent(self):
        """(n, d) latest rows."""
        return np.asarray(self.latest)[: self.size]

    @recent.setter
    def recent(self, given):
        if len(given) > 2 * NEIGHBOURS + 1:
            raise SnapshotError(f"Invalid snapshot: recent has {len(given)} rows.")
        self.size = len(given)
        np.asarray(self.latest)[: self.size] = given

    @property
    def recent_times(self):
        """(n,) times of the latest rows."""
        return np.asarray(self.times)[: self.size]

    @recent_times.setter
    def recent_times(self, given):
        np.asarray(self.times)[: self.size] = given

    @property
    def distances(self):
        """(d, MEMORY) distances from the median of the neighbours."""
        return self.sizes.values

    @distances.setter
    def distances(self, given):
        self.sizes.values = given

    @property
    def moves(self):
        """(d, MEMORY) sizes of the latest differences of rows that are not zero."""
        return self.changes.values

    @moves.setter
    def moves(self, given):
        self.changes.values = given

    def push(self, y, time):
        """Take a row (d,); return whether `cleaned` is a row, that of `NEIGHBOURS` rows ago.

        A value that is missing is the one before it. The time of `cleaned` is `date`.
        """
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        if self.size == _WIDTH:
            for i in range(_WIDTH - 1):
                self.times[i] = self.times[i + 1]
                for j in range(self.dim):
                    self.latest[i, j] = self.latest[i + 1, j]
            self.size -= 1
        i = self.size
        for j in range(self.dim):
            if isnan(y[j]):
                self.latest[i, j] = self.latest[i - 1, j] if i > 0 else 0.0
            else:
                self.latest[i, j] = min(max(y[j], -_LARGEST), _LARGEST)
                if i > 0:
                    self.move(j, fabs(self.latest[i, j] - self.latest[i - 1, j]))
        self.times[i] = time
        self.size += 1
        if self.size <= _NEIGHBOURS:
            return False
        self.date = self.times[self.size - 1 - _NEIGHBOURS]
        for j in range(self.dim):
            self.cleaned[j] = self.clean(j)
        return True

    def move(self, j, size):
        """Note the size of a difference of coordinate j."""
        near: cython.double = 1.0 if size <= _NEAR * self.changes.typical(j) else 0.0
        seen: cython.double = self.sizes.size[j] + _FIRST_MOVES
        self.repeated[j] += (near - self.repeated[j]) / min(seen, _MOVES)
        if self.repeated[j] > _MANY or self.repeated[j] < _FEW:
            self.on_grid[j] = self.repeated[j] > _MANY
        if size > 0.0:
            self.changes.push(j, size)

    def grid(self, j):
        """Return the step of the grid that the values of coordinate j are on, 0 if on none.

        They are if a quarter of the differences are next to nothing beside the usual size of the
        others, as those of a rounded or digital sensor, until fewer than half as many are.
        """
        return self.changes.typical(j) if self.on_grid[j] else 0.0

    def clean(self, j):
        """Return coordinate j of the row `NEIGHBOURS` rows ago, or the median around it."""
        i: cython.Py_ssize_t
        k: cython.Py_ssize_t
        n: cython.Py_ssize_t = self.size
        for i in range(n):
            value: cython.double = self.latest[i, j]
            k = i
            while k > 0 and self.sorting[k - 1] > value:
                self.sorting[k] = self.sorting[k - 1]
                k -= 1
            self.sorting[k] = value
        middle: cython.double = 0.5 * (self.sorting[n // 2] + self.sorting[(n - 1) // 2])
        own: cython.double = self.latest[n - 1 - _NEIGHBOURS, j]
        self.sizes.push(j, fabs(own - middle))
        scale: cython.double = 1.4826 * self.sizes.median(j)
        if self.sizes.size[j] < _LEAST_DISTANCES or scale == 0.0:
            return own
        scale = max(scale, 0.5 * self.grid(j))
        return own if fabs(own - middle) <= _OUTLYING * scale else middle


class View:
    """The segments of a sequence of rows, and which of them are the same regime.

    Args:
        dim: number of coordinates d.
        cost: of a change, in nats.
        different: evidence above which a segment is not a regime known before, in nats.
        drifts: whether a drift is no change.
        adds_up: whether the evidence of correlated coordinates adds up.

    Attributes:
        regime: id of the present regime; since: date of its first row.
        changed: whether it changed with the latest row.
        statistics: (3, K, d) number, mean and sum of squared deviations of the rows of each regime
            up to its latest segment, which is not included.
    """

    FIELDS = {
        "n_regimes": ("int64", (), 1, MAX_REGIMES),
        "n_changes": ("int64", (), 0, 2**53),
        "regime": ("int64", (), 0, MAX_REGIMES - 1),
        "since": ("int64", (), 0, 2**53),
        "segmentation": "object",
        "known": ("float64", ("3", "n_regimes", "dim"), -1e300, 1e300),
    }

    def __init__(self, dim, cost=COST, different=DIFFERENT, drifts=True, adds_up=False):
        self.dim, self.different = dim, different
        self.regime = self.since = self.n_changes = 0
        self.n_regimes = 1
        self.changed = False
        self.segmentation = Segmentation(dim, cost, drifts, adds_up)
        self.statistics = np.zeros((3, 4, dim))
        self.fresh = np.zeros((3, dim))

    @property
    def known(self):
        """(3, K, d) number, mean and sum of squared deviations of the rows of each regime."""
        return np.asarray(self.statistics)[:, : self.n_regimes]

    @known.setter
    def known(self, given):
        self.statistics = np.zeros((3, max(4, self.n_regimes), self.dim))
        np.asarray(self.statistics)[:, : self.n_regimes] = given

    def refresh(self):
        """Refuse states that cannot be."""
        if self.regime >= self.n_regimes:
            raise SnapshotError(
                f"Invalid snapshot: regime is {self.regime}, expected below {self.n_regimes}."
            )

    def update(self, row, date):
        """Take a row (d,) without NaN and its date."""
        self.changed = False
        if self.segmentation.append(row, date):
            tau: cython.Py_ssize_t = self.segmentation.test()
            if tau > 0:
                self.switch_regime(tau)

    def switch_regime(self, tau):
        """Begin a segment with row tau, and find out which regime it is."""
        j: cython.Py_ssize_t
        for j in range(self.dim):
            self.segmentation.earlier[0, j] = min(self.segmentation.earlier[0, j], _MAX_ROWS)
        self.segmentation.merge(0, tau, self.segmentation.earlier)
        self.absorb()
        self.segmentation.drop(tau)
        for j in range(self.dim):
            self.segmentation.earlier[0, j] = self.segmentation.earlier[
                1, j
            ] = self.segmentation.earlier[2, j] = 0.0
            self.fresh[0, j] = self.fresh[1, j] = self.fresh[2, j] = 0.0
        self.segmentation.merge(0, self.segmentation.size, self.fresh)
        self.regime = self.identify()
        self.since = self.segmentation.dates[0]
        self.changed = True
        # What spoke for the change speaks for the new regime until the next test.
        self.segmentation.excess = -self.segmentation.excess
        self.n_changes += 1

    def absorb(self):
        """Add the rows of the segment that ends to its regime."""
        j: cython.Py_ssize_t
        k: cython.longlong = self.regime
        for j in range(self.dim):
            old: cython.double = self.statistics[0, k, j]
            more: cython.double = self.segmentation.earlier[0, j]
            n: cython.double = old + more
            gap: cython.double = self.segmentation.earlier[1, j] - self.statistics[1, k, j]
            squares: cython.double = self.statistics[2, k, j] + self.segmentation.earlier[2, j]
            squares += gap * gap * old * more / n
            self.statistics[1, k, j] += gap * more / n
            self.statistics[0, k, j] = min(n, _MAX_ROWS)
            self.statistics[2, k, j] = squares * min(n, _MAX_ROWS) / n

    def identify(self):
        """Return the regime that the new segment cannot be distinguished from, or a new one."""
        k: cython.longlong
        best: cython.longlong = -1
        least: cython.double = 0.0
        for k in range(self.n_regimes):
            if k != self.regime:
                apart: cython.double = self.difference(k)
                if best < 0 or apart < least:
                    least = apart
                    best = k
        if best >= 0 and (least < self.different or self.n_regimes >= _MAX_REGIMES):
            return best
        if self.n_regimes >= self.statistics.shape[1]:
            self.grow()
        self.n_regimes += 1
        return self.n_regimes - 1

    def difference(self, k):
        """Return the evidence in nats that the new segment is not regime k."""
        j: cython.Py_ssize_t
        total: cython.double = 0.0
        for j in range(self.dim):
            floor: cython.double = max(self.segmentation.floor[j], 1e-290)
            phi: cython.double = self.segmentation.phi[j]
            a: cython.double = self.statistics[0, k, j]
            b: cython.double = self.fresh[0, j]
            n: cython.double = a + b
            gap: cython.double = self.fresh[1, j] - self.statistics[1, k, j]
            rest_a: cython.double = self.statistics[2, k, j]
            rest_b: cython.double = self.fresh[2, j]
            both: cython.double = (rest_a + rest_b + floor) / (n + 1.0)
            share: cython.double = max((1.0 - phi) / (1.0 + phi), min(_MIN_ROWS / b, 1.0))
            total += share * 0.5 * n * log(1.0 + gap * gap * a * b / (n * (n + 1.0) * both))
            if a >= _LEAST_SPREAD and b >= _LEAST_SPREAD:
                gain: cython.double = a * log(both * (a + 1.0) / (rest_a + floor))
                gain += b * log(both * (b + 1.0) / (rest_b + floor))
                share = (1.0 - phi * phi) / (1.0 + phi * phi)
                total += share * 0.5 * self.segmentation.tail_weight * max(gain, 0.0)
        return total

    def grow(self):
        """Make room for more regimes."""
        n = self.n_regimes
        grown = np.zeros((3, min(2 * n, MAX_REGIMES), self.dim))
        grown[:, :n] = self.known
        self.statistics = grown

    def change_probability(self):
        """Return the posterior probability of a change by the latest test, at even odds."""
        if self.changed:
            return 1.0
        return 1.0 / (1.0 + exp(min(-self.segmentation.excess, 700.0)))

    def moments(self):
        """Return means and standard deviations (K, d) of the regimes, rows of now included."""
        own = self.known.copy()
        now = np.asarray(self.segmentation.earlier).copy()
        rows = self.segmentation.rows
        counted, mean, rest = now[0], now[1], now[2]
        if len(rows):
            centre = rows.mean(axis=0)
            n = counted + len(rows)
            rest = rest + ((rows - centre) ** 2).sum(axis=0)
            rest += (centre - mean) ** 2 * counted * len(rows) / n
            mean, counted = mean + (centre - mean) * len(rows) / n, n
        old = own[:, self.regime].copy()
        n = np.maximum(old[0] + counted, 1.0)
        own[0, self.regime] = n
        own[1, self.regime] = (old[0] * old[1] + counted * mean) / n
        own[2, self.regime] = old[2] + rest + (mean - old[1]) ** 2 * old[0] * counted / n
        return own[1], np.sqrt(own[2] / np.maximum(own[0], 1.0))


class LevelView:
    """Regimes of level, spread and, for two to four coordinates, correlation.

    Args:
        dim: number of coordinates d of the observations.
    """

    FIELDS = {
        "cleaner": "object",
        "view": "object",
        "before": ("float64", ("2", "dim"), -_MAX_VALUE, _MAX_VALUE),
    }

    def __init__(self, dim):
        self.dim = dim
        self.n_signs = dim * (dim - 1) // 2 if dim <= _MOST_CORRELATED else 0
        self.cleaner = Cleaner(dim)
        n = dim + self.n_signs
        # Any of n coordinates may be the one that seems to change.
        self.view = View(n, COST + np.log(n))
        self.view.segmentation.least[dim:] = 1.0  # the variance of a sign
        self.row, self.before = np.zeros(dim + self.n_signs), np.zeros((2, dim))

    def observe(self, y, time):
        """Take one observation, for Python; return whether the regime changed with it."""
        self.update(np.array(y, np.float64).reshape(-1), time)
        return self.view.changed

    def update(self, y, time):
        """Take an observation (d,), NaN where missing, and its time."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        at: cython.Py_ssize_t = self.dim
        seen: cython.bint = False
        for j in range(self.dim):
            seen = seen or not isnan(y[j])
        self.view.changed = False
        if not seen or not self.cleaner.push(y, time):
            return
        for j in range(self.dim):
            self.row[j] = self.cleaner.cleaned[j]
            step: cython.double = self.cleaner.grid(j)
            self.view.segmentation.least[j] = 0.25 * step * step
            # The error of rounding is uniform.
            self.view.segmentation.rounding[j] = step * step / 12.0
        if self.n_signs > 0:
            for i in range(self.dim):
                for j in range(i):
                    up: cython.double = self.bend(i)
                    side: cython.double = self.bend(j)
                    self.row[at] = 0.0
                    if up != 0.0 and side != 0.0:
                        self.row[at] = 1.0 if (up > 0.0) == (side > 0.0) else -1.0
                    at += 1
        for j in range(self.dim):
            self.before[1, j] = self.before[0, j]
            self.before[0, j] = self.row[j]
        self.view.update(self.row, self.cleaner.date)

    def bend(self, j):
        """Return the second difference of coordinate j, which no level or slow drift enters."""
        return self.row[j] - 2.0 * self.before[0, j] + self.before[1, j]
