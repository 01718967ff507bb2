"""The latest values of a stream for lags, under two hypotheses about the latest large error.

A large error is either an additive outlier (a spike: the next value does not depend on it) or an
innovational one (a jump: the next value starts from it). Which one is seen one observation later.
Until then both pasts are stored and forecasts mix them; afterwards the one that explains the next
value better is the past. With e the error in noise scales, r the rate of outliers and rho the share
of large errors that turned out innovational so far,

    P(innovational) ~ rho (1 - r) f(e),   P(additive) ~ (1 - rho) r q(e),   q = t_2, 20 scales wide

    f(e) = (t_3(e) + n t_10(e / s) / s) / (1 + n)

with n the number of innovational errors so far and s their usual size. If none was seen yet, a
larger error is more likely a spike: with r = .02, P(innovational) is a half at e = 10, and
P(innovational) e is below 1.5 beyond 30. In a stream with real jumps a jump is accepted at once, up
to the size of its earlier jumps; a single value of 1e300 never becomes a lag.

If the next value is a suspected outlier as well, the stream may have jumped one observation before:
the probability that the first error was innovational is kept, and both are if the second one is.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import exp, fabs, isnan, log, log1p

from regimekit.core.exceptions import SnapshotError
from regimekit.serialization.validation import affordable

if not cython.compiled:
    from regimekit.core.logspace import logaddexp
    from regimekit.distributions.student_t import log_standard

# Indices of the two hypotheses: the cleaned past and the past as observed.
ADDITIVE = cython.declare(cython.Py_ssize_t, 0)
INNOVATIONAL = cython.declare(cython.Py_ssize_t, 1)
# Scale of the density of outliers, in noise scales.
OUTLIER_SCALE = cython.declare(cython.double, 20.0)
# An observation with a smaller probability of being regular is a suspected outlier.
SUSPECT = cython.declare(cython.double, 0.5)
# Degrees of freedom of any innovational error, and of those of the sizes seen before.
_HEAVY_DOF = cython.declare(cython.double, 3.0)
_USUAL_DOF = cython.declare(cython.double, 10.0)
# Range of the stored sizes of innovational errors, in noise scales.
_MIN_SIZE = cython.declare(cython.double, 1.0)
_MAX_SIZE = cython.declare(cython.double, 100.0)
# Discount of the counts of large errors, per large error.
_DISCOUNT = cython.declare(cython.double, 0.99)
# Largest jump, in units of the stream: its square is still finite.
_MAX_JUMP = cython.declare(cython.double, 1e150)
# A component this share of the way to a suspected outlier follows it.
_FOLLOWS = cython.declare(cython.double, 0.25)
# Margin beyond the range of the past in which locations are accepted, as a share of that range.
_REACH = cython.declare(cython.double, 0.25)
CLEAN, RAW = 0, 1  # ADDITIVE and INNOVATIONAL, for callers in Python
SUSPECT_BELOW = 0.5  # SUSPECT, for callers in Python
MAX_VALUE = 1e300  # largest value that is stored, in units of the stream
_MIN_ROOM = 64  # rows between two moves of the window within its storage


class LagBuffer:
    """The latest values of a stream, latest last, in two versions while an outlier is suspected.

    A missing value repeats the one before it, or 0.

    Arguments of the methods:
        version: CLEAN or RAW.
        steps: lags of the design.
        j: coordinate.
        value: number.

    Args:
        depth: number of values to store.
        dim: number of coordinates d.
        largest: values are clipped to this size.

    Attributes:
        values: (2, depth, d) the cleaned and the raw past; equal unless `pending`.
        count: number of values pushed, at most `depth`; values before them are zero.
        pending: whether the latest value is a suspected outlier.
        n_additive, n_innovational: how often a large error turned out to be either, with a prior
            of one each, discounted.
        log_size: sum of the log sizes of the innovational errors.
        p_innovational: probability that the suspected outlier is innovational; 0 if none.
        error: its size in noise scales.

    Example:
        >>> past = LagBuffer(depth=2, dim=1)
        >>> past.doubt(np.array([5.0]), np.array([900.0]), error=895.0, rate=0.05)
        >>> past.decide(-1.0, -400.0), past.values[1].tolist()
        (0, [[0.0], [5.0]])
    """

    FIELDS = {
        "values": ("float64", ("2", "depth", "dim"), "-largest", "largest"),
        "count": ("int64", (), 0, "depth"),
        "pending": ("bool", (), 0, 1),
        "n_additive": ("float64", (), 1.0, 1e3),
        "n_innovational": ("float64", (), 1.0, 1e3),
        "log_size": ("float64", (), 0.0, 1e3),
        "p_innovational": ("float64", (), 0.0, 1.0),
        "error": ("float64", (), 0.0, 100.0),
        "dropped_probability": ("float64", (), 0.0, 1.0),
        "dropped_values": ("float64", ("depth", "dim"), "-largest", "largest"),
    }

    def __init__(self, depth, dim, largest=MAX_VALUE):
        affordable("features", 2.0 * depth * dim)
        self.depth = depth
        self.dim = dim
        self.largest = largest
        self.start = 0
        self.count = 0
        room = depth + max(depth, _MIN_ROOM) if depth else 0
        self.storage = np.zeros((2, room, dim))
        self.dropped = np.zeros((depth, dim))
        self.dropped_probability = 0.0
        self.n_additive = 1.0
        self.n_innovational = 1.0
        self.log_size = 0.0
        self.p_innovational = 0.0
        self.error = 0.0
        self.pending = False
        self.n_pushed = 0
        self.low = np.zeros((2, dim))
        self.high = np.zeros((2, dim))
        if not cython.compiled:
            self.range_known = [False, False]
        self.range_known[0] = False
        self.range_known[1] = False

    @property
    def values(self):
        """(2, depth, d) view of the cleaned and the raw past."""
        self.range_known[0] = False
        self.range_known[1] = False
        return np.asarray(self.storage)[:, self.start : self.start + self.depth]

    @values.setter
    def values(self, given):
        self.values[:] = given

    @property
    def clean(self):
        """(depth, d) view of the cleaned past."""
        return self.values[ADDITIVE]

    @property
    def dropped_values(self):
        """(depth, d) the raw past that was dropped at the latest value; zeros if none was."""
        return np.array(self.dropped) * (self.dropped_probability > 0.0)

    @dropped_values.setter
    def dropped_values(self, given):
        np.asarray(self.dropped)[:] = given

    def refresh(self):
        """Raise SnapshotError if the state is impossible."""
        if self.p_innovational > 0.0 and not self.pending:
            raise SnapshotError(
                f"Invalid snapshot: p_innovational is {self.p_innovational} without a suspected "
                "outlier."
            )

    @property
    def masses(self):
        """Probabilities of the cleaned and of the raw past."""
        return self.mass(ADDITIVE), self.mass(INNOVATIONAL)

    def at(self, version, lag, j):
        """Return coordinate j of the value `lag` observations before the next one."""
        return self.storage[version, self.start + self.depth - lag, j]

    def push(self, clean, raw=None):
        """Append one value; NaN repeats the value before.

        Args:
            clean: (d,) its cleaned version.
            raw: (d,) its version as observed; by default the same.
        """
        self.dropped_probability = 0.0
        self.n_pushed += 1
        if self.depth == 0:
            return
        if self.count < self.depth:
            self.count += 1
        v: cython.Py_ssize_t
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        if self.start + self.depth == self.storage.shape[1]:
            for v in range(2):
                for i in range(self.depth):
                    for j in range(self.dim):
                        self.storage[v, i, j] = self.storage[v, self.start + i, j]
            self.start = 0
        for j in range(self.dim):
            self.append(ADDITIVE, j, clean[j])
            if raw is None:
                self.append(INNOVATIONAL, j, clean[j])
            else:
                self.append(INNOVATIONAL, j, raw[j])
        self.start += 1

    def append(self, version, j, value):
        """Write one coordinate after the window, and update its range."""
        end: cython.Py_ssize_t = self.start + self.depth
        leaving: cython.double = self.storage[version, self.start, j]
        kept: cython.double = self.storage[version, end - 1, j]
        if not isnan(value):
            kept = min(max(value, -self.largest), self.largest)
        self.storage[version, end, j] = kept
        if leaving <= self.low[version, j] or leaving >= self.high[version, j]:
            self.range_known[version] = False
        if kept < self.low[version, j]:
            self.low[version, j] = kept
        if kept > self.high[version, j]:
            self.high[version, j] = kept

    def doubt(self, clean, raw, error, rate):
        """Append a suspected outlier in both versions.

        Args:
            clean: (d,) its cleaned value.
            raw: (d,) its value as observed.
            error: its distance from the forecast in noise scales.
            rate: probability of an outlier.
        """
        size: cython.double = fabs(error)
        rho: cython.double = self.n_innovational / (self.n_additive + self.n_innovational)
        log_jump: cython.double = log(rho * (1.0 - rate)) + self.log_innovation(min(size, 1e100))
        log_spike: cython.double = log((1.0 - rho) * rate) + log_outlier(error)
        alone: cython.double = 1.0 / (1.0 + exp(min(log_spike - log_jump, 700.0)))
        before: cython.double = self.dropped_probability
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        self.push(clean, raw)
        if before > alone:
            for i in range(self.depth - 1):
                for j in range(self.dim):
                    self.storage[INNOVATIONAL, self.start + i, j] = self.dropped[i + 1, j]
            self.range_known[INNOVATIONAL] = False
        # Of two small probabilities 1 - (1 - a)(1 - b) would lose the digits.
        self.p_innovational = alone + before - alone * before
        self.pending = True
        self.error = min(size, _MAX_SIZE)

    def log_innovation(self, error):
        """Return the log density f of an innovational error of this size."""
        n: cython.double = self.n_innovational - 1.0
        size: cython.double = exp(self.log_size / self.n_innovational)
        usual: cython.double = log_standard(error / size, _USUAL_DOF) - log(size)
        return logaddexp(log_standard(error, _HEAVY_DOF), log(max(n, 1e-300)) + usual) - log1p(n)

    def decide(self, log_additive, log_innovational):
        """Keep the version under which the next value had the larger evidence, and return it.

        Args:
            log_additive: log density of the next value given the cleaned past.
            log_innovational: log density of the next value given the raw past.
        """
        p: cython.double = self.p_innovational
        odds: cython.double = log(max(p, 1e-300)) - log1p(-min(p, 1.0 - 1e-15))
        odds += log_innovational - log_additive
        share: cython.double = 1.0 / (1.0 + exp(-max(min(odds, 700.0), -700.0)))
        self.n_additive = 1.0 + _DISCOUNT * (self.n_additive - 1.0) + (1.0 - share)
        self.n_innovational = 1.0 + _DISCOUNT * (self.n_innovational - 1.0) + share
        self.log_size = _DISCOUNT * self.log_size + share * log(max(self.error, _MIN_SIZE))
        self.dropped_probability = 0.0
        if odds > 0.0:
            self.settle(INNOVATIONAL)
            return INNOVATIONAL
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for i in range(self.depth):
            for j in range(self.dim):
                self.dropped[i, j] = self.storage[INNOVATIONAL, self.start + i, j]
        self.settle(ADDITIVE)
        self.dropped_probability = share
        return ADDITIVE

    def settle(self, version):
        """Make this version the past."""
        other: cython.Py_ssize_t = 1 - version
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for i in range(self.start, self.start + self.depth):
            for j in range(self.dim):
                self.storage[other, i, j] = self.storage[version, i, j]
        self.range_known[other] = self.range_known[version]
        for j in range(self.dim):
            self.low[other, j] = self.low[version, j]
            self.high[other, j] = self.high[version, j]
        self.pending = False
        self.p_innovational = 0.0
        self.error = 0.0

    def mass(self, version):
        """Return the probability of this version of the past."""
        p: cython.double = self.p_innovational if self.pending else 0.0
        return p if version == INNOVATIONAL else 1.0 - p

    def jump_of(self, j):
        """Return the difference of the raw and the cleaned latest value, coordinate j."""
        return self.at(INNOVATIONAL, 1, j) - self.at(ADDITIVE, 1, j)

    def find_range(self, version):
        """Find the smallest and the largest value of each coordinate, if not known."""
        if self.range_known[version]:
            return
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for j in range(self.dim):
            low: cython.double = self.storage[version, self.start, j]
            high: cython.double = low
            for i in range(self.start + 1, self.start + self.depth):
                value: cython.double = self.storage[version, i, j]
                if value < low:
                    low = value
                if value > high:
                    high = value
            self.low[version, j] = low
            self.high[version, j] = high
        self.range_known[version] = True

    def bounded(self, version, j, value):
        """Return a forecast of coordinate `j`, at most a margin beyond the range of the past.

        The forecast of a regime that has just been opened among large lags may have any size.
        `find_range` must have been called.
        """
        low: cython.double = self.low[version, j]
        high: cython.double = self.high[version, j]
        margin: cython.double = _REACH * (high - low) + OUTLIER_SCALE
        return min(max(value, low - margin), high + margin)

    def within_reach(self, version, location):
        """Return locations (k, d), clipped to a margin around the range of the past."""
        self.find_range(version)
        return np.array(
            [[self.bounded(version, j, row[j]) for j in range(self.dim)] for row in location]
        )

    def lag(self, version, steps, i, j):
        """Return entry i of the lag design, coordinate j.

        The first entry is the lag of the first step, the others are the differences of their lags
        to it. A lag from before the first value has a difference of zero.
        """
        first: cython.double = self.at(version, steps[0], j)
        if i == 0:
            return first
        if steps[i] > self.count:
            return 0.0
        return self.at(version, steps[i], j) - first

    def design(self, version, steps):
        """Return the lag design (k, d): the first lag, then the differences of the others to it."""
        wanted = np.ascontiguousarray(steps, np.int64)
        return np.array(
            [[self.lag(version, wanted, i, j) for j in range(self.dim)] for i in range(len(wanted))]
        )

    def copy(self):
        """Return an independent buffer with the same values."""
        twin = LagBuffer(self.depth, self.dim, self.largest)
        twin.values = self.values
        np.asarray(twin.dropped)[:] = self.dropped
        twin.count, twin.n_pushed = self.count, self.n_pushed
        twin.dropped_probability = self.dropped_probability
        twin.n_additive, twin.n_innovational = self.n_additive, self.n_innovational
        twin.log_size, twin.p_innovational = self.log_size, self.p_innovational
        twin.error, twin.pending = self.error, self.pending
        return twin


def log_outlier(error):
    """Return the log density of an outlier with this `error` in noise scales."""
    return log_standard(min(fabs(error), 1e100) / OUTLIER_SCALE, 2.0) - log(OUTLIER_SCALE)


def sort_order(values, first, n, order):
    """Write into order[:n] the indices that sort values[first : first + n] (Shell sort)."""
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    for i in range(n):
        order[i] = first + i
    gap: cython.Py_ssize_t = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, n):
            moved: cython.longlong = order[i]
            key: cython.double = values[moved]
            k = i
            while k >= gap and values[order[k - gap]] > key:
                order[k] = order[k - gap]
                k -= gap
            order[k] = moved
        gap = gap // 3


def median_of(values, weight, first, n, order):
    """Return the weighted median of values[first : first + n]; `order` is scratch."""
    sort_order(values, first, n, order)
    i: cython.Py_ssize_t
    total: cython.double = 0.0
    for i in range(first, first + n):
        total += weight[i]
    below: cython.double = 0.0
    for i in range(n):
        below += weight[order[i]]
        if below >= 0.5 * total:
            return values[order[i]]
    return values[order[0]]


def flag_unmoved(share, location, owner, n, buffer, along, order, keep):
    """Set keep[k] to 1 for components that do not follow the suspected outlier, else 0.

    A regime that moved to the suspected value has little weight, but may be far away. Whether the
    value was innovational is decided by the raw version of the past, so such components are left
    out.

    Args:
        share: (n,) share of each component within its owner.
        location: (n, d) its location.
        owner: (n,) its owner; components of one owner are next to each other.
        along: (n,) scratch.
        order: (n,) scratch.
        keep: (n,) output.
    """
    k: cython.Py_ssize_t
    j: cython.Py_ssize_t
    square: cython.double = 0.0
    for j in range(buffer.dim):
        away: cython.double = min(max(buffer.jump_of(j), -_MAX_JUMP), _MAX_JUMP)
        square += away * away
    square = max(square, 1e-300)
    for k in range(n):
        total: cython.double = 0.0
        for j in range(buffer.dim):
            total += location[k, j] * min(max(buffer.jump_of(j), -_MAX_JUMP), _MAX_JUMP)
        along[k] = total / square
    first: cython.Py_ssize_t = 0
    while first < n:
        last: cython.Py_ssize_t = first
        while last < n and owner[last] == owner[first]:
            last += 1
        middle: cython.double = median_of(along, share, first, last - first, order)
        for k in range(first, last):
            keep[k] = 1 if along[k] - middle <= _FOLLOWS else 0
        first = last


def unmoved(share, location, owner, buffer):
    """Return (K,) flags of the components that do not follow the suspected outlier.

    Args:
        share: (K,) share of each component within its owner.
        location: (K, d) its location.
        owner: (K,) its owner; components of one owner are next to each other.
    """
    n = len(share)
    keep = np.zeros(n, np.int64)
    flag_unmoved(
        np.ascontiguousarray(share, np.float64),
        np.ascontiguousarray(location, np.float64),
        np.ascontiguousarray(owner, np.int64),
        n,
        buffer,
        np.zeros(n),
        np.zeros(n, np.int64),
        keep,
    )
    return keep.astype(bool)


def weighted_median(location, weight):
    """Return the weighted median (d,) of `location` (k, d), given `weight` (k,)."""
    n = len(weight)
    order = np.zeros(n, np.int64)
    columns = np.ascontiguousarray(np.asarray(location, np.float64).T)
    weights = np.ascontiguousarray(weight, np.float64)
    return np.array([median_of(column, weights, 0, n, order) for column in columns])
