"""The members of the ensemble.

regimes          `student_t_ihmm` in units, on a level, on lags, on covariates
least squares    the same designs without regimes
smoothing        running mean, exponential smoothing, last value, local trends
season           the value one period ago; its step; the mean season

Members other than regime models predict a Student-t around their point with a scale estimated from
their own errors,

    v += g (w e^2 - v),   w = (nu + 1) / (nu + e^2 / v),   g = max(1 / (n + 3), 1 / memory)

the robust estimate of a t with nu degrees of freedom. The same w weighs their update with y.

    smoothing      level += a w e, slope += b w e    a = max(limit, gain of least squares after n)
    least squares  on the lag design, with slow forgetting, each observation weighted by w
    logs           least squares of L log(1 + z / L) on its lags, if all values were positive

where -L is the zero of the user's scale, in units: near the centre the logarithms are in units too.
Their law of z is skewed. It is written as five components: those of a t in logarithms, each of
which is narrow enough to be one of z,

    t ~ sum_k w_k (o_k + s t_k),    z = L (e^m - 1),  m = (location + o_k scale) / L

Gains that begin as those of least squares make the first forecasts good: after n observations the
running mean has a = 1 / n, the line a = 2 (2n - 1) / (n (n + 1)), b = 6 / (n (n + 1)).

The mean season uses the latest k periods as the rows of a table Y, whose first column is of the
same phase as the next value. With i = 1, 2, .. counting back from the latest value,

    b = median of the differences between the means of successive rows / s     slope per step
    S_j = median over rows of (Y_j - mean of the row) - b (j - (s - 1) / 2)    season
    L = sum_i w_i (y_{t-i} - S + b i),   w_i ~ (1 - a)^i over the table        level
    y_{t+h} is expected at L + b h + S_h

Averages are medians, so that a level which shifts in the middle of a period does not bend the
season. All of it is computed from the cleaned past; only the scale of the errors is state.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import exp, isnan, log, sqrt

from regimekit.core.exceptions import SnapshotError

if not cython.compiled:
    from regimekit.distributions.mixture import Mixture

_NAN = cython.declare(cython.double, float("nan"))
# Degrees of freedom of the members that are not regime models.
SMOOTHING_DOF = cython.declare(cython.double, 8.0)
N_SMOOTHERS = cython.declare(cython.Py_ssize_t, 8)
N_SEASONAL = cython.declare(cython.Py_ssize_t, 4)
# Observations that the initial scale counts for.
_PRIOR_COUNT = cython.declare(cython.double, 3.0)
# Observations over which a scale is estimated.
_SCALE_MEMORY = cython.declare(cython.double, 100.0)
# Discount of least squares, per observation.
_FORGETTING = cython.declare(cython.double, 0.998)
# Prior variance of its coefficients, in variances of the noise.
_RIDGE = cython.declare(cython.double, 100.0)
# Largest observation for members without outlier model, in units.
_MAX_VALUE = cython.declare(cython.double, 1e6)
# Components of a regime model with a smaller share are dropped.
_MIN_SHARE = cython.declare(cython.double, 1e-3)
# A t with 8 degrees of freedom as five narrower ones: shares, offsets and their scale. Chosen by
# least squares; the distribution function differs by .0024 at most.
N_SPLIT = cython.declare(cython.Py_ssize_t, 5)
SPLIT_SCALE = cython.declare(cython.double, 0.55)
_SPLIT_SHARE = cython.declare(
    cython.double[::1], np.array([0.0374, 0.2313, 0.4626, 0.2313, 0.0374])
)
_SPLIT_OFFSET = cython.declare(cython.double[::1], np.array([-2.4, -0.98, 0.0, 0.98, 2.4]))
# Scales of logarithms: below the first one component serves, above the second none is wider.
_MIN_SPLIT = cython.declare(cython.double, 0.03)
_MAX_SPLIT = cython.declare(cython.double, 2.0)
# Largest logarithm of a ratio to the centre.
_MAX_LOG = cython.declare(cython.double, 30.0)
_LEAST_RATIO = cython.declare(cython.double, 1e-300)  # a ratio that underflows has no logarithm
# Periods that a mean season is taken over, at most.
_MAX_CYCLES = cython.declare(cython.Py_ssize_t, 6)

# name -> (limit of a, limit of b, has a slope)
SMOOTHERS = {
    "running mean": (0.0, 0.0, 0.0),
    "smoothing .05": (0.05, 0.0, 0.0),
    "smoothing .2": (0.2, 0.0, 0.0),
    "smoothing .5": (0.5, 0.0, 0.0),
    "last value": (1.0, 0.0, 0.0),
    "slow trend": (0.02, 0.0001, 1.0),
    "trend": (0.2, 0.011, 1.0),
    "fast trend": (0.9, 0.05, 1.0),
}
_SQUARES = ("coefficient", "covariance", "square_variance", "square_seen")
SEASON_RATES = (0.1, 0.4)  # at which the level under a mean season follows
MEAN_SEASONS = tuple(f"mean season, level {a:g}" for a in SEASON_RATES)
SEASONAL = ("season ago", "season ago and step") + MEAN_SEASONS
DOF = 8.0
MIN_SHARE = 1e-3
_RATES = cython.declare(cython.double[:, ::1], np.array(list(SMOOTHERS.values())))
_SEASON_RATES = cython.declare(cython.double[::1], np.array(SEASON_RATES))


class Components(Mixture):
    """Components of all members: `share` within the member, `owner` its index, `scale` (K, d)."""

    def __init__(self, dim, capacity=16):
        Mixture.__init__(self, dim, capacity)
        self.owner = np.zeros(capacity, np.int64)
        self.scale = np.zeros((capacity, dim))

    def add_room(self, capacity):
        """Make room for at least `capacity` components; the present ones are kept."""
        if capacity <= self.share.shape[0]:
            return
        self.reserve(capacity)
        owner, scale = np.asarray(self.owner), np.asarray(self.scale)
        room = self.share.shape[0]
        self.owner = np.zeros(room, np.int64)
        self.scale = np.zeros((room, self.dim))
        np.asarray(self.owner)[: len(owner)] = owner
        np.asarray(self.scale)[: len(scale)] = scale

    def copy_component(self, source, target):
        """Copy one component to another place."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        self.share[target] = self.share[source]
        self.dof[target] = self.dof[source]
        self.owner[target] = self.owner[source]
        for i in range(self.dim):
            self.location[target, i] = self.location[source, i]
            self.scale[target, i] = self.scale[source, i]
            for j in range(self.dim):
                self.spread[target, i, j] = self.spread[source, i, j]


class SeasonalProfile:
    """Seasonal profile of one period, computed from the lag buffer on request.

    Args:
        period: observations per season.
        dim: number of coordinates d.

    Attributes:
        season: (2, period, d) S for each version of the past, the phase of the next value first.
        slope: (2, d) b.
        level: (2, rates, d) L.
    """

    def __init__(self, period, dim):
        self.period = period
        self.dim = dim
        self.season = np.zeros((2, period, dim))
        self.slope = np.zeros((2, dim))
        self.level = np.zeros((2, len(SEASON_RATES), dim))
        self.weight = np.zeros((len(SEASON_RATES), _MAX_CYCLES * period))
        self.n_weights = 0
        if not cython.compiled:
            self.stamp, self.known = [-1, -1], [False, False]
        self.stamp[0] = self.stamp[1] = -1
        self.known[0] = self.known[1] = False

    def update(self, buffer, version):
        """Compute the profile of the next value; return whether two periods have been seen."""
        if self.stamp[version] == buffer.n_pushed:
            return self.known[version]
        self.stamp[version] = buffer.n_pushed
        cycles: cython.Py_ssize_t = min(buffer.count // self.period, _MAX_CYCLES)
        j: cython.Py_ssize_t
        self.known[version] = cycles >= 2
        if cycles >= 2:
            self.set_weights(cycles * self.period)
            for j in range(self.dim):
                self.fit(buffer, version, cycles, j)
        return self.known[version]

    def set_weights(self, n):
        """Compute the weights w of the latest n values, oldest first."""
        if n == self.n_weights:
            return
        self.n_weights = n
        a: cython.Py_ssize_t
        i: cython.Py_ssize_t
        for a in range(_SEASON_RATES.shape[0]):
            total: cython.double = 0.0
            power: cython.double = 1.0
            for i in range(n):
                self.weight[a, n - 1 - i] = power
                total += power
                power *= 1.0 - _SEASON_RATES[a]
            for i in range(n):
                self.weight[a, i] /= total

    def fit(self, buffer, version, cycles, j):
        """Compute season, slope and level of coordinate j."""
        s: cython.Py_ssize_t = self.period
        n: cython.Py_ssize_t = cycles * s
        i: cython.Py_ssize_t
        k: cython.Py_ssize_t
        c: cython.Py_ssize_t
        middle = cython.declare(cython.double[6])
        sorted_values = cython.declare(cython.double[6])
        if not cython.compiled:
            middle, sorted_values = [0.0] * 6, [0.0] * 6
        for c in range(cycles):
            total: cython.double = 0.0
            for i in range(s):
                total += buffer.at(version, n - c * s - i, j)
            middle[c] = total / s
        for c in range(cycles - 1):
            insert(sorted_values, c, middle[c + 1] - middle[c])
        slope: cython.double = middle_of(sorted_values, cycles - 1) / s
        mean: cython.double = 0.0
        for i in range(s):
            for c in range(cycles):
                insert(sorted_values, c, buffer.at(version, n - c * s - i, j) - middle[c])
            value: cython.double = middle_of(sorted_values, cycles) - slope * (i - (s - 1) / 2.0)
            self.season[version, i, j] = value
            mean += value
        mean /= s
        for i in range(s):
            self.season[version, i, j] -= mean
        for k in range(_SEASON_RATES.shape[0]):
            level: cython.double = 0.0
            for c in range(cycles):
                for i in range(s):
                    level += self.weight[k, c * s + i] * (
                        buffer.at(version, n - c * s - i, j)
                        - self.season[version, i, j]
                        + slope * (n - c * s - i)
                    )
            self.level[version, k, j] = level
        self.slope[version, j] = slope

    def point(self, buffer, version, member, j):
        """Return the forecast of seasonal member `member` (in the order of SEASONAL)."""
        ago: cython.double = buffer.at(version, self.period, j)
        if member == 1:
            return buffer.at(version, 1, j) + ago - buffer.at(version, self.period + 1, j)
        if member == 0 or not self.update(buffer, version):
            return ago
        return self.level[version, member - 2, j] + self.season[version, 0, j]

    def known_season(self, buffer, version):
        """Return (period, d) the season, or None before two periods have been seen."""
        return np.array(self.season[version]) if self.update(buffer, version) else None

    def points(self, buffer, version, h):
        """Return (members, d) forecasts of the observation h steps after the next one."""
        values = buffer.values[version]
        ago = values[buffer.depth - self.period + h % self.period]
        step = values[buffer.depth - 1] + ago - values[buffer.depth - self.period - 1]
        if not self.update(buffer, version):
            return np.stack([ago, step, ago, ago])
        level, slope = np.asarray(self.level[version]), np.asarray(self.slope[version])
        means = level + slope * h + np.asarray(self.season)[version, h % self.period]
        return np.concatenate([[ago, step], means])


def insert(sorted_values, n, value):
    """Insert a value into n sorted values."""
    k: cython.Py_ssize_t = n
    while k > 0 and sorted_values[k - 1] > value:
        sorted_values[k] = sorted_values[k - 1]
        k -= 1
    sorted_values[k] = value


def middle_of(sorted_values, n):
    """Return the median of n sorted values."""
    half: cython.Py_ssize_t = n // 2
    if n % 2 == 1:
        return sorted_values[half]
    return 0.5 * (sorted_values[half - 1] + sorted_values[half])


class SimpleMembers:
    """All members that are not regime models, on every coordinate.

    Every array has a leading axis of length 2: the state under the cleaned past, and the state as
    it would be if the suspected outlier were innovational.

    Args:
        specs: designs of the least-squares members.
        dim: number of coordinates d.
        period: period of the seasonal members; 0 for none.

    Attributes:
        level, slope, variance: (2, d, smoothers); seen: (2, d) number of observations.
        coefficient: (2, squares, d, width), covariance: (2, squares, d, width, width), in variances
            of the noise; square_variance, square_seen: (2, squares, d).
        season_variance: (2, d, seasonal), season_seen: (2, d).
        offset: L of the logarithms, 0 if they are not used; lowest: smallest argument of a
            logarithm; wide: whether they may have weight. All follow from the units and from the
            smallest and the largest value.
        split: flags of the least-squares members whose latest law has several components.
    """

    FIELDS = {
        "level": ("float64", ("2", "dim", "n_smoothers"), -1e8, 1e8),
        "slope": ("float64", ("2", "dim", "n_smoothers"), -1e8, 1e8),
        "variance": ("float64", ("2", "dim", "n_smoothers"), 1e-12, 1e100),
        "seen": ("float64", ("2", "dim"), 0.0, 2.0**53),
        "coefficient": ("float64", ("2", "n_squares", "dim", "max_width"), -1e8, 1e8),
        "covariance": ("float64", ("2", "n_squares", "dim", "max_width", "max_width"), -1e12, 1e12),
        "square_variance": ("float64", ("2", "n_squares", "dim"), 1e-12, 1e100),
        "square_seen": ("float64", ("2", "n_squares", "dim"), 0.0, 2.0**53),
        "season_variance": ("float64", ("2", "dim", "n_seasonal"), 1e-12, 1e100),
        "season_seen": ("float64", ("2", "dim"), 0.0, 2.0**53),
    }

    def __init__(self, specs, dim, period=0):
        self.dim = dim
        self.offset, self.lowest, self.wide = 0.0, 1.0, False
        self.n_smoothers = N_SMOOTHERS
        self.n_seasonal = N_SEASONAL
        self.set_period(period)
        self.level = np.zeros((2, dim, N_SMOOTHERS))
        self.slope = np.zeros((2, dim, N_SMOOTHERS))
        self.variance = np.ones((2, dim, N_SMOOTHERS))
        self.seen = np.zeros((2, dim))
        self.season_variance = np.ones((2, dim, N_SEASONAL))
        self.season_seen = np.zeros((2, dim))
        self.set_specs(specs)

    def set_period(self, period):
        """Set the period of the seasonal members."""
        self.period = period
        self.profile = SeasonalProfile(period, self.dim) if period else None

    def set_specs(self, specs):
        """Set the designs of least squares; their state is new."""
        self.specs = list(specs)
        s = self.n_squares = len(self.specs)
        widths = [1 + len(spec.steps) + spec.width for spec in specs]
        w = self.max_width = max(widths, default=1)
        deepest = max([1] + [len(spec.steps) for spec in specs])
        steps = np.ones((s, deepest), np.int64)
        for row, spec in zip(steps, specs, strict=True):
            row[: len(spec.steps)] = spec.steps
        self.steps = steps
        self.n_steps = np.array([len(spec.steps) for spec in specs], np.int64)
        self.first_column = np.array([spec.columns[0] for spec in specs], np.int64)
        self.n_columns = np.array([spec.width for spec in specs], np.int64)
        self.difference = np.array([spec.difference for spec in specs], np.int64)
        self.logs = np.array([spec.logs for spec in specs], np.int64)
        self.split = np.zeros(s, np.int64)
        self.coefficient = np.zeros((2, s, self.dim, w))
        self.covariance = np.tile(np.eye(w) * _RIDGE, (2, s, self.dim, 1, 1))
        self.square_variance = np.ones((2, s, self.dim))
        self.square_seen = np.zeros((2, s, self.dim))
        self.x = np.zeros(w)
        self.gain = np.zeros(w)

    @property
    def names(self):
        """Names of the members in the order of their components."""
        names = [f"least squares, {spec.name}" for spec in self.specs] + list(SMOOTHERS)
        return names + (list(SEASONAL) if self.period else [])

    def join(self, period, other):
        """Take over the least-squares members that `other` has beyond the present ones.

        They take the place of namesakes. The season is that of `other`.
        """
        before = {spec: i for i, spec in enumerate(self.specs)}
        names = {spec.name for spec in other.specs}
        arrays = {name: np.array(getattr(self, name)) for name in _SQUARES}
        self.set_specs([spec for spec in before if spec.name not in names] + other.specs)
        for name, array in arrays.items():
            new, joined = np.asarray(getattr(self, name)), np.asarray(getattr(other, name))
            for place, spec in enumerate(self.specs):
                w = 1 + len(spec.steps) + spec.width
                if spec in before:
                    _copy_corner(array[:, before[spec]], new[:, place], w)
                else:
                    _copy_corner(joined[:1, other.specs.index(spec)], new[:, place], w)
        self.set_period(period)
        np.asarray(self.season_variance)[:] = np.asarray(other.season_variance)[0]
        np.asarray(self.season_seen)[:] = np.asarray(other.season_seen)[0]

    def refresh(self):
        """Refuse what is no covariance, rounding aside."""
        covariance = np.asarray(self.covariance).reshape(-1, self.max_width, self.max_width)
        mirrored = covariance.transpose(0, 2, 1)
        values = np.linalg.eigvalsh((covariance + mirrored) / 2)
        if not values.size:
            return
        rounding = 1e-9 * np.maximum(values.max(1), 1.0)
        if (values.min(1) < -rounding).any():
            raise SnapshotError("Invalid snapshot: a covariance of least squares is not positive.")
        if (np.abs(covariance - mirrored).max((1, 2)) > rounding).any():
            raise SnapshotError("Invalid snapshot: a covariance of least squares is not symmetric.")

    def size(self):
        """Return the number of members."""
        return self.n_squares + N_SMOOTHERS + (N_SEASONAL if self.period else 0)

    def room(self):
        """Return the largest number of components."""
        return self.size() + (N_SPLIT - 1) * self.n_squares

    def set_logs(self, offset, lowest, wide):
        """Set L, 0 for no logs; the smallest value over the centre; whether logs have weight."""
        self.offset, self.wide = offset, wide
        self.lowest = max(0.5 * lowest, _LEAST_RATIO)

    def used(self, i):
        """Return whether least squares i is used."""
        return self.logs[i] == 0 or self.offset > 0.0

    def forecasts(self, i):
        """Return whether least squares i may have weight."""
        return self.logs[i] == 0 or (self.offset > 0.0 and self.wide)

    def view(self, i, z):
        """Return a value in units as least squares i sees it."""
        if self.logs[i] == 0:
            return z
        return self.offset * log(max(1.0 + z / self.offset, self.lowest))

    def set_row(self, i, j, buffer, version, covariates):
        """Write the design of least squares i, coordinate j, into `x`; return its width."""
        k: cython.Py_ssize_t
        n: cython.Py_ssize_t = self.n_steps[i]
        self.x[0] = 1.0
        period: cython.Py_ssize_t = self.difference[i]
        nearest: cython.double = 0.0
        for k in range(n):
            # As LagBuffer.lag, of one row of the table of steps.
            value: cython.double = self.view(i, buffer.at(version, self.steps[i, k], j))
            if period > 0:
                value -= self.view(i, buffer.at(version, self.steps[i, k] + period, j))
                if self.steps[i, k] + period > buffer.count:
                    value = 0.0
            elif k > 0:
                value -= nearest
                if self.steps[i, k] > buffer.count:
                    value = 0.0
            else:
                nearest = value
            self.x[1 + k] = value
        for k in range(self.n_columns[i]):
            self.x[1 + n + k] = covariates[self.first_column[i] + k]
        return 1 + n + self.n_columns[i]

    def base(self, i, j, buffer, version):
        """Return the value that the target of least squares i is a difference from."""
        period: cython.Py_ssize_t = self.difference[i]
        if period > 0:
            return self.view(i, buffer.at(version, period, j))
        return 0.0

    def predict(self, state, buffer, version, covariates, parts, first_owner):
        """Append the components of all members to `parts`, which must have room for them.

        One per member comes first; those of logarithms have more, which come last.
        """
        first: cython.Py_ssize_t = parts.size
        size: cython.Py_ssize_t = self.size()
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        a: cython.Py_ssize_t
        b: cython.Py_ssize_t
        for i in range(size):
            parts.share[first + i] = 1.0
            parts.dof[first + i] = SMOOTHING_DOF
            parts.owner[first + i] = first_owner + i
            for a in range(self.dim):
                for b in range(self.dim):
                    parts.spread[first + i, a, b] = 0.0
        for j in range(self.dim):
            for i in range(self.n_squares):
                if not self.used(i):
                    # Its weight is 0.
                    self.set_component(parts, first + i, j, 0.0, 1.0)
                    continue
                width: cython.Py_ssize_t = self.set_row(i, j, buffer, version, covariates)
                point: cython.double = self.base(i, j, buffer, version)
                leverage: cython.double = 0.0
                for a in range(width):
                    point += self.coefficient[state, i, j, a] * self.x[a]
                    total: cython.double = 0.0
                    for b in range(width):
                        total += self.covariance[state, i, j, a, b] * self.x[b]
                    leverage += self.x[a] * total
                self.set_component(
                    parts,
                    first + i,
                    j,
                    point,
                    self.square_variance[state, i, j] * (1.0 + min(leverage, 1e100)),
                )
            for i in range(N_SMOOTHERS):
                self.set_component(
                    parts,
                    first + self.n_squares + i,
                    j,
                    self.level[state, j, i] + self.slope[state, j, i],
                    self.variance[state, j, i],
                )
            if self.period:
                for i in range(N_SEASONAL):
                    self.set_component(
                        parts,
                        first + self.n_squares + N_SMOOTHERS + i,
                        j,
                        self.profile.point(buffer, version, i, j),
                        self.season_variance[state, j, i],
                    )
        parts.size = first + size
        for i in range(self.n_squares):
            if self.logs[i] and self.offset > 0.0:
                self.write_logs(parts, first + i, i)

    def write_logs(self, parts, first, i):
        """Replace component `first`, in logarithms, by components of the values."""
        location: cython.double = parts.location[first, 0] / self.offset
        size: cython.double = sqrt(parts.spread[first, 0, 0]) / self.offset
        size = min(size, _MAX_SPLIT)
        k: cython.Py_ssize_t
        at: cython.Py_ssize_t = first
        self.split[i] = size > _MIN_SPLIT
        if not self.split[i]:
            self.write_ratio(parts, first, location, size)
            return
        for k in range(N_SPLIT):
            self.write_ratio(parts, at, location + size * _SPLIT_OFFSET[k], size * SPLIT_SCALE)
            parts.share[at] = _SPLIT_SHARE[k]
            parts.dof[at] = SMOOTHING_DOF
            parts.owner[at] = parts.owner[first]
            at = parts.size
            if k < N_SPLIT - 1:
                parts.size += 1

    def write_ratio(self, parts, k, location, size):
        """Write component k, given location and scale of the log of its ratio to the centre.

        It is placed at the mean of a lognormal law, up to the second order.
        """
        ratio: cython.double = exp(min(max(location, -_MAX_LOG), _MAX_LOG))
        parts.location[k, 0] = self.offset * (ratio * (1.0 + 0.5 * size * size) - 1.0)
        size *= self.offset * ratio
        parts.spread[k, 0, 0] = size * size

    def set_component(self, parts, k, j, location, variance):
        """Write coordinate j of component k."""
        parts.location[k, j] = location
        parts.spread[k, j, j] = variance

    def update(self, state, z, buffer, version, covariates, trust):
        """Update with one observation; with `trust` 1 it counts in full."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for j in range(self.dim):
            if isnan(z[j]):
                for i in range(N_SMOOTHERS):
                    self.level[state, j, i] += self.slope[state, j, i]
                continue
            y: cython.double = min(max(z[j], -_MAX_VALUE), _MAX_VALUE)
            for i in range(self.n_squares):
                if self.used(i):
                    width: cython.Py_ssize_t = self.set_row(i, j, buffer, version, covariates)
                    value: cython.double = self.view(i, y) - self.base(i, j, buffer, version)
                    self.regress(state, i, j, width, value, trust)
            self.smooth(state, j, y, trust)
            if self.period:
                for i in range(N_SEASONAL):
                    error: cython.double = y - self.profile.point(buffer, version, i, j)
                    self.season_variance[state, j, i], _ = update_scale(
                        self.season_variance[state, j, i], error, self.season_seen[state, j]
                    )
                self.season_seen[state, j] += 1.0

    def skip(self, state):
        """Take a missing observation: trends continue."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for j in range(self.dim):
            for i in range(N_SMOOTHERS):
                self.level[state, j, i] += self.slope[state, j, i]

    def smooth(self, state, j, y, trust):
        """Update the smoothing members of coordinate j; with `trust` 1 levels move fully."""
        n: cython.double = self.seen[state, j] + 1.0
        i: cython.Py_ssize_t
        w: cython.double
        for i in range(N_SMOOTHERS):
            expected: cython.double = self.level[state, j, i] + self.slope[state, j, i]
            error: cython.double = y - expected
            w = 1.0
            if n > 1.0:
                self.variance[state, j, i], w = update_scale(
                    self.variance[state, j, i], error, n - 1.0
                )
            w = max(min(w, 1.0), trust)
            a, b = smoothing_gains(i, n)
            if _RATES[i, 0] == 1.0:
                w = 1.0
            error = min(max(error, -1e90), 1e90)
            self.level[state, j, i] = expected + a * w * error
            self.slope[state, j, i] += b * w * error
        self.seen[state, j] = n

    def regress(self, state, i, j, width, y, trust):
        """Update least squares i of coordinate j, weighted and recursive, with the design `x`."""
        a: cython.Py_ssize_t
        b: cython.Py_ssize_t
        leverage: cython.double = 1.0
        expected: cython.double = 0.0
        for a in range(width):
            expected += self.coefficient[state, i, j, a] * self.x[a]
            total: cython.double = 0.0
            for b in range(width):
                total += self.covariance[state, i, j, a, b] * self.x[b]
            self.gain[a] = total
            leverage += self.x[a] * total
        error: cython.double = y - expected
        w: cython.double
        self.square_variance[state, i, j], w = update_scale(
            self.square_variance[state, i, j], error / sqrt(leverage), self.square_seen[state, i, j]
        )
        w = max(w, trust)
        s: cython.double = leverage - 1.0 + 1.0 / w
        top: cython.double = 0.0
        for a in range(width):
            self.coefficient[state, i, j, a] += self.gain[a] * error / s
            for b in range(width):
                self.covariance[state, i, j, a, b] = (
                    self.covariance[state, i, j, a, b] - self.gain[a] * self.gain[b] / s
                ) / _FORGETTING
            top = max(top, self.covariance[state, i, j, a, a])
        if top > _RIDGE * 100.0:
            # Without information in a direction, forgetting would increase its variance forever.
            for a in range(width):
                for b in range(width):
                    self.covariance[state, i, j, a, b] *= _RIDGE * 100.0 / top
        self.square_seen[state, i, j] += 1.0

    def copy_state(self, source, target):
        """Copy one of the two states over the other."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        a: cython.Py_ssize_t
        b: cython.Py_ssize_t
        for j in range(self.dim):
            self.seen[target, j] = self.seen[source, j]
            self.season_seen[target, j] = self.season_seen[source, j]
            for i in range(N_SMOOTHERS):
                self.level[target, j, i] = self.level[source, j, i]
                self.slope[target, j, i] = self.slope[source, j, i]
                self.variance[target, j, i] = self.variance[source, j, i]
            for i in range(N_SEASONAL):
                self.season_variance[target, j, i] = self.season_variance[source, j, i]
            for i in range(self.n_squares):
                self.square_variance[target, i, j] = self.square_variance[source, i, j]
                self.square_seen[target, i, j] = self.square_seen[source, i, j]
                for a in range(self.max_width):
                    self.coefficient[target, i, j, a] = self.coefficient[source, i, j, a]
                    for b in range(self.max_width):
                        self.covariance[target, i, j, a, b] = self.covariance[source, i, j, a, b]


def _copy_corner(source, target, width):
    """Copy (2, d), (2, d, width) or (2, d, width, width) entries."""
    if source.ndim == 2:
        target[:] = source
    elif source.ndim == 3:
        target[:, :, :width] = source[:, :, :width]
    else:
        target[:, :, :width, :width] = source[:, :, :width, :width]


def update_scale(variance, error, count):
    """Return the squared scale after one error, and the weight of that error."""
    far: cython.double = 1e90 * sqrt(variance)
    bounded: cython.double = min(max(error, -far), far)
    w: cython.double = (SMOOTHING_DOF + 1.0) / (SMOOTHING_DOF + bounded * bounded / variance)
    gain: cython.double = max(1.0 / (count + _PRIOR_COUNT), 1.0 / _SCALE_MEMORY)
    return max(variance + gain * (w * bounded * bounded - variance), 1e-12), w


def smoothing_gains(member, n):
    """Return how far level and slope of a smoothing member follow the n-th observation."""
    a: cython.double = _RATES[member, 0]
    b: cython.double = 0.0
    if _RATES[member, 2] == 0.0:
        return max(a, 1.0 / n), b
    a = max(a, 2.0 * (2.0 * n - 1.0) / (n * (n + 1.0)))
    if n > 1.0:
        b = max(_RATES[member, 1], 6.0 / (n * (n + 1.0)))
    return a, b


class RegimeMember:
    """A regime model whose lags come from the ensemble's lag buffer.

    Args:
        spec: its design (`regimekit.ensemble.design.Spec`).
        dim: number of coordinates d.
        filter: the `RegimeFilter`.
        index: its place among the members.

    Attributes:
        active: whether it is predicted and updated.
        changed: whether its regime changed at the latest update.
        next: the regime member after it, or None.
    """

    def __init__(self, spec, dim, filter, index):
        self.spec = spec
        self.filter = filter
        self.index = index
        self.dim = dim
        self.active = True
        self.infers = spec.infers
        self.changed = False
        self.steps = np.array(spec.steps, np.int64)
        self.first_column, self.n_columns = spec.columns[0], spec.width
        self.design = np.ones((1, 1 + len(spec.steps) * dim + spec.width))
        self.target = np.zeros(dim)
        self.profile = SeasonalProfile(spec.season, dim) if spec.season else None
        self.next = None

    def forecast_at(self, row):
        """Return share, location, spread and dof of the forecast at a design row (m - 1,)."""
        return self.filter.predict_one(np.concatenate([[1.0], row])[None])

    def set_design(self, buffer, version, covariates):
        """Write the design row; return whether the season, if one is removed, is known."""
        known: cython.bint = False
        if self.profile is not None:
            known = self.profile.update(buffer, version)
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        n: cython.Py_ssize_t = self.steps.shape[0]
        for j in range(self.dim):
            first: cython.double = 0.0
            for i in range(n):
                step: cython.Py_ssize_t = self.steps[i]
                value: cython.double = buffer.at(version, step, j)
                if known:
                    period: cython.Py_ssize_t = self.profile.period
                    value -= self.profile.season[version, (period - step % period) % period, j]
                if i == 0:
                    first = value
                else:
                    value = 0.0 if step > buffer.count else value - first
                self.design[0, 1 + i * self.dim + j] = value
        for i in range(self.n_columns):
            self.design[0, 1 + n * self.dim + i] = covariates[self.first_column + i]
        return known

    def predict(self, buffer, version, covariates, parts):
        """Append the components of its forecast to `parts`.

        Components with a share of at most `_MIN_SHARE`, and that of outliers (2 degrees of
        freedom, which the ensemble models itself), are dropped.
        """
        known: cython.bint = self.set_design(buffer, version, covariates)
        self.filter.predict(self.design)
        n: cython.Py_ssize_t = self.filter.forecast.size
        first: cython.Py_ssize_t = parts.size
        k: cython.Py_ssize_t
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        largest: cython.double = 0.0
        kept: cython.Py_ssize_t = 0
        for k in range(n):
            largest = max(largest, self.filter.forecast.share[k])
            if self.filter.forecast.share[k] > _MIN_SHARE and self.filter.forecast.dof[k] > 2.0:
                kept += 1
        if first + n > parts.share.shape[0]:
            parts.add_room(first + n)
        total: cython.double = 0.0
        m: cython.Py_ssize_t = first
        for k in range(n):
            share: cython.double = self.filter.forecast.share[k]
            if kept > 0:
                if not (share > _MIN_SHARE and self.filter.forecast.dof[k] > 2.0):
                    continue
            elif share != largest:
                continue
            parts.share[m] = share
            parts.dof[m] = self.filter.forecast.dof[k]
            parts.owner[m] = self.index
            total += share
            for i in range(self.dim):
                parts.location[m, i] = self.filter.forecast.location[k, i]
                if known:
                    parts.location[m, i] += self.profile.season[version, 0, i]
                for j in range(self.dim):
                    parts.spread[m, i, j] = self.filter.forecast.spread[k, i, j]
            m += 1
        for k in range(first, m):
            parts.share[k] /= total
        parts.size = m

    def update(self, z, buffer, version, covariates):
        """Update with one observation; it is missing while its season is not known."""
        known: cython.bint = self.set_design(buffer, version, covariates)
        j: cython.Py_ssize_t
        for j in range(self.dim):
            self.target[j] = z[j]
            if self.profile is not None:
                if known:
                    self.target[j] = z[j] - self.profile.season[version, 0, j]
                else:
                    self.target[j] = _NAN
        before: cython.longlong = self.filter.clock.reported
        self.filter.update(self.target, self.design)
        self.changed = self.filter.clock.reported != before
