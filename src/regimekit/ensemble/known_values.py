"""Streams of few distinct values: the forecast is rounded to the values seen before.

Counts, rounded sensors and codes repeat their values. With a_1 < .. < a_n the distinct values and r
the discounted share of observations that were new, the forecast F becomes

    r F + (1 - r) sum_i (F(b_i) - F(b_{i - 1})) atom at a_i,      b_i = (a_i + a_{i + 1}) / 2,

as long as r is small and F is not wide compared to the distances; b_0 and b_n are infinite. An atom
is a narrow component, so the forecast is still a mixture of the same kind. What the ensemble and
its calibration learn does not change. An outlier adds one value, whose atom has the probability
that F gave to its surroundings.
"""

from __future__ import annotations

import math

import cython
import numpy as np
from cython.cimports.libc.math import isnan, sqrt

from regimekit.core.exceptions import SnapshotError

if not cython.compiled:
    from regimekit.distributions.student_t import t_cdf

_CAPACITY = 64  # distinct values; the one not seen for longest makes room
_NEW_STEP = cython.declare(cython.double, 0.05)  # discount of the share of new values
_MAX_NEW_SHARE = cython.declare(cython.double, 0.1)
_WIDTH = cython.declare(cython.double, 0.01)  # of an atom, over the distance to the next value
_MIN_WIDTH = cython.declare(cython.double, 1e-9)  # of an atom, over the narrowest component
_GAUSSIAN = cython.declare(cython.double, math.inf)  # degrees of freedom of an atom
# Least weight of the forecast that is not rounded.
_LEAST_SMOOTH = cython.declare(cython.double, 0.01)
# With more values than this in either half of the central 90 %, rounding gains little.
_REACH = cython.declare(cython.Py_ssize_t, 10)
_NEGLIGIBLE = cython.declare(cython.double, 1e-3)  # probability beyond an edge
_NEGLIGIBLE_SHARE = cython.declare(cython.double, 3e-3)  # of a component
_FAR = cython.declare(cython.double, 6.0)  # scales from a component to an edge beyond it
_MAX_VALUE = cython.declare(cython.double, 1e130)


class KnownValues:
    """The distinct values of a scalar stream.

    Attributes:
        seen: (n, 2) distinct values, increasing, and the number of the observation that was the
            latest with this value.
        new_share: discounted share of observations whose value was new.
        count: number of observations.
    """

    FIELDS = {
        "count": ("int64", (), 0, 2**53),
        "new_share": ("float64", (), 0.0, 1.0),
        "seen": ("float64", (None, "2"), -1e130, 1e130),
    }

    def __init__(self):
        self.size = self.count = 0
        self.new_share = 1.0
        self.value, self.last = np.zeros(_CAPACITY + 1), np.zeros(_CAPACITY + 1)
        self.mass = np.zeros(_CAPACITY + 1)

    @property
    def seen(self):
        """(n, 2) values, and when each was last seen."""
        return np.column_stack([self.value[: self.size], self.last[: self.size]])

    @seen.setter
    def seen(self, given):
        if len(given) > _CAPACITY or (np.diff(given[:, 0]) <= 0.0).any():
            raise SnapshotError(
                f"Invalid snapshot: seen must be at most {_CAPACITY} increasing values."
            )
        self.size = len(given)
        np.asarray(self.value)[: self.size] = given[:, 0]
        np.asarray(self.last)[: self.size] = given[:, 1]

    def update(self, y):
        """Update with one observation, NaN if missing."""
        i: cython.Py_ssize_t
        at: cython.Py_ssize_t = 0
        oldest: cython.Py_ssize_t = 0
        if isnan(y):
            return
        y = min(max(y, -_MAX_VALUE), _MAX_VALUE)
        self.count += 1
        while at < self.size and self.value[at] < y:
            at += 1
        new: cython.bint = at == self.size or self.value[at] != y
        step: cython.double = max(_NEW_STEP, 1.0 / (self.count + 1.0))
        self.new_share += step * ((1.0 if new else 0.0) - self.new_share)
        if new:
            i = self.size
            while i > at:
                self.value[i] = self.value[i - 1]
                self.last[i] = self.last[i - 1]
                i -= 1
            self.value[at] = y
            self.size += 1
        self.last[at] = self.count
        if self.size == self.value.shape[0]:
            for i in range(self.size):
                if self.last[i] < self.last[oldest]:
                    oldest = i
            for i in range(oldest, self.size - 1):
                self.value[i] = self.value[i + 1]
                self.last[i] = self.last[i + 1]
            self.size -= 1

    def repeats(self):
        """Return whether hardly any value is new, but not all are the same."""
        return self.size > 1 and self.new_share <= _MAX_NEW_SHARE

    def round(self, law):
        """Round a `Mixture` of one coordinate to the values, if hardly any is new."""
        n: cython.Py_ssize_t = law.size
        i: cython.Py_ssize_t
        k: cython.Py_ssize_t
        if n == 0 or not self.repeats():
            return
        if n + self.size > law.share.shape[0]:
            self.add_room(law)
        if not self.weigh(law):
            return
        smooth: cython.double = max(self.new_share, _LEAST_SMOOTH)
        narrowest: cython.double = law.spread[0, 0, 0]
        for k in range(n):
            narrowest = min(narrowest, law.spread[k, 0, 0])
            law.share[k] *= smooth
        for i in range(self.size):
            if not self.mass[i] > 0.0:
                continue
            gap: cython.double = 1e300
            if i > 0:
                gap = self.value[i] - self.value[i - 1]
            if i < self.size - 1:
                gap = min(gap, self.value[i + 1] - self.value[i])
            width: cython.double = _WIDTH * gap
            law.share[law.size] = (1.0 - smooth) * self.mass[i]
            law.location[law.size, 0] = self.value[i]
            # Nor is an atom wider than what it replaces, which may be exact.
            law.spread[law.size, 0, 0] = min(
                max(width * width, _MIN_WIDTH * _MIN_WIDTH * narrowest), narrowest
            )
            law.dof[law.size] = _GAUSSIAN
            law.size += 1

    def add_room(self, law):
        """Make room for the atoms."""
        law.reserve(law.size + self.size)

    def weigh(self, law):
        """Write the probability around each value; return whether they are far enough apart."""
        i: cython.Py_ssize_t
        k: cython.Py_ssize_t
        largest: cython.Py_ssize_t = 0
        for k in range(law.size):
            if law.share[k] > law.share[largest]:
                largest = k
        for i in range(self.size):
            self.mass[i] = 0.0
        # Outwards from the component with the largest share, until hardly anything is left.
        middle: cython.Py_ssize_t = 0
        while middle < self.size - 1 and self.edge(middle) < law.location[largest, 0]:
            middle += 1
        if self.probability(law, middle - _REACH) > 0.05:
            return False
        if self.probability(law, middle + _REACH) < 0.95:
            return False
        below: cython.double = self.probability(law, middle - 1)
        above: cython.double = self.probability(law, middle)
        self.mass[middle] = max(above - below, 0.0)
        i = middle
        while i > 0 and below > 0.0:
            i -= 1
            beyond: cython.double = self.probability(law, i - 1) if below > _NEGLIGIBLE else 0.0
            self.mass[i] = max(below - beyond, 0.0)
            below = beyond
        i = middle
        while i < self.size - 1 and above < 1.0:
            i += 1
            beyond = self.probability(law, i) if 1.0 - above > _NEGLIGIBLE else 1.0
            self.mass[i] = max(beyond - above, 0.0)
            above = beyond
        return True

    def edge(self, i):
        """Return the middle between value i and the next."""
        return 0.5 * self.value[i] + 0.5 * self.value[i + 1]

    def probability(self, law, i):
        """Return the probability below edge i; 0 and 1 beyond the first and the last."""
        k: cython.Py_ssize_t
        if i < 0:
            return 0.0
        if i >= self.size - 1:
            return 1.0
        total: cython.double = 0.0
        lower: cython.double = 0.0
        at: cython.double = self.edge(i)
        for k in range(law.size):
            if law.share[k] < _NEGLIGIBLE_SHARE:
                continue
            z: cython.double = (at - law.location[k, 0]) / sqrt(law.spread[k, 0, 0])
            total += law.share[k]
            if z > _FAR:
                lower += law.share[k]
            elif z > -_FAR:
                lower += law.share[k] * t_cdf(z, law.dof[k])
        return min(lower / max(total, 1e-300), 1.0)
