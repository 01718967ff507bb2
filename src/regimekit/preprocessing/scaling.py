"""Centre and scale of a stream, estimated from the stream itself.

    z = (y - centre) / scale,   scale = 1.4826 median |y_t - y_{t-1}| / sqrt 2,   centre = median y

Levels, trends and regimes drop out of a median of differences; what is left is the noise, or, with
strong autocorrelation, the size of the innovations. In these units the noise is about 1, so "noise
1, levels of variance 100" is a prior for any stream.

The scale is usable from the second observation on and is refined at a few counts
(`REFINEMENT_COUNTS`) while the observations are still in the buffer; a model in these units is
rebuilt from them. Then it is frozen. From the 60th observation on it is checked every 20
observations: if the scale of the latest 40 differs by a factor of more than 30 (a unit changed by
1000, a start unlike the rest), or they lie more than 1e6 units from the centre, centre and scale
are estimated again from the latest observations alone. A smaller scale within the usual range must
have lasted longer, see `confirmed_drop`.

    scaling = Standardizer()
    if scaling.update(y):            # the units changed: rebuild
        model = fresh()
        for old in scaling.buffer: model.update(scaling.to_units(old))
"""

from __future__ import annotations

import math

import cython
import numpy as np
from cython.cimports.libc.math import fabs, isnan, log

from regimekit.core.exceptions import SnapshotError

if not cython.compiled:
    from regimekit.preprocessing.lag_buffer import sort_order

REFINEMENT_COUNTS = (1, 2, 3, 5, 10, 20, 40, 80)  # observations
_LAST_REFINEMENT = cython.declare(cython.longlong, 80)
# Observations between two later checks.
_CHECK_INTERVAL = cython.declare(cython.longlong, 20)
# Observations after which a stream that has not moved is taken to be constant.
_CONSTANT_AFTER = cython.declare(cython.longlong, 5)
# Observations of the window that a later check uses.
_RECENT = cython.declare(cython.Py_ssize_t, 40)
CONFIRMATION = 200  # observations with a smaller scale before it is adopted within the usual range
# Moves of a constant coordinate after which it is measured.
_MOVES = cython.declare(cython.Py_ssize_t, 3)
# Largest size of a value: squares of such values are still finite.
_MAX_VALUE = cython.declare(cython.double, 1e130)
# Largest size of a standardized covariate, in its own spreads.
_MAX_COVARIATE = cython.declare(cython.double, 1e4)
MAX_VALUE = 1e130
MAX_COVARIATE_VALUE = 1e140  # covariates as given are clipped to this size
INF = float("inf")
REBUILD_DISTANCE = 0.25  # log ratio of scales from which a rebuild pays
OTHER_UNITS = math.log(30.0)  # log ratio of scales that means other units
MAX_DISTANCE = 1e6  # units from the centre, beyond which a level means other units
MIN_SCALE = 1e-130  # its square must not vanish
_ROOT_TWO = cython.declare(cython.double, math.sqrt(2.0))
_OTHER_UNITS = cython.declare(cython.double, OTHER_UNITS)
_MAX_DISTANCE = cython.declare(cython.double, MAX_DISTANCE)
_MIN_SCALE = cython.declare(cython.double, MIN_SCALE)
_MIN_SPREAD = 1e-140  # of a covariate: its inverse must not overflow
COVARIATE_VARIANCE = 4.0  # variance that covariates may explain a priori, in variances of y


class Standardizer:
    """Centre and scale of each coordinate, with the window of observations they are estimated from.

    Arguments of the methods:
        y: observation (d,), or observations (.., d), in the user's units.
        z: values (.., d) in units.
        j: coordinate.

    Args:
        dim: number of coordinates d.
        window: number of observations in the buffer.

    Attributes:
        centre: (d,) the value of y that is 0 in units.
        scale: (d,) the size of one unit.
        reported_scale: (d,) the scale for forecasts: before anything has moved, a unit may be as
            large as y.
        alive: (d,) whether a coordinate has ever moved.
        buffer: (n, d) the latest observations in the user's units, n <= window.
        count: number of observations with at least one value.
        rows: number of observations since the units were last changed, missing ones included.

    Example:
        >>> scaling = Standardizer(dim=1)
        >>> for y in (30_000.0, 30_700.0, 30_200.0, 29_800.0, 30_100.0):
        ...     rebuild = scaling.update(np.array([y]))
        >>> float(scaling.centre[0]), 200 < float(scaling.scale[0]) < 1000
        (30100.0, True)
    """

    FIELDS = {
        "count": ("int64", (), 0, 2**53),
        "rows": ("int64", (), 0, 2**53),
        "centre": ("float64", ("dim",), -1e130, 1e130),
        "scale": ("float64", ("dim",), 1e-130, 1e131),
        "alive": ("int64", ("dim",), 0, 1),
        "buffer": ("float64", (None, "dim"), -1e130, 1e130, "missing"),
    }

    def __init__(self, dim=1, window=200):
        self.dim = dim
        self.window = max(window, max(REFINEMENT_COUNTS))
        self.storage = np.zeros((2 * self.window, dim))
        self.start = 0
        self.size = 0
        self.count = 0
        self.rows = 0
        self.centre = np.zeros(dim)
        self.scale = np.ones(dim)
        self.reported_scale = np.ones(dim)
        self.alive = np.zeros(dim, np.int64)
        self.all_alive = False
        self.window_steps = np.zeros(_RECENT)
        self.window_order = np.zeros(_RECENT, np.int64)
        self.set_reported_scale()

    @property
    def buffer(self):
        """(n, d) view of the latest observations."""
        return np.asarray(self.storage)[self.start : self.start + self.size]

    @buffer.setter
    def buffer(self, given):
        if not 0 < len(given) <= self.window:
            raise SnapshotError(
                f"Invalid snapshot: the buffer has {len(given)} observations, "
                f"expected 1 to {self.window}."
            )
        np.asarray(self.storage)[: len(given)] = given
        self.start = 0
        self.size = len(given)

    def refresh(self):
        """Recompute what follows from the stored fields."""
        self.all_alive = bool(np.all(self.alive))
        self.set_reported_scale()

    def update(self, y):
        """Append one observation; return whether centre or scale changed.

        If so, models must be rebuilt from `buffer`, which contains the observation.
        """
        self.append(y)
        self.rows += 1
        j: cython.Py_ssize_t
        seen: cython.bint = False
        for j in range(self.dim):
            if not isnan(y[j]):
                seen = True
        if not seen:
            return False
        self.count += 1
        changed: cython.bint = False
        due: cython.bint = self.count > _RECENT and self.count % _CHECK_INTERVAL == 0
        early: cython.bint = self.count <= _CONSTANT_AFTER and self.refines()
        if not early and not self.all_alive and self.moves_again():
            changed = self.restart()
        elif due and not self.still_fits():
            changed = self.check_again()
        if not changed and self.refines():
            changed = self.refine()
        self.set_reported_scale()
        return changed

    def first_units(self):
        """Return centre and reported scale of the first coordinate."""
        return self.centre[0], self.reported_scale[0]

    def refines(self):
        """Return whether the count is one at which centre and scale are refined."""
        n: cython.longlong = self.count
        if n > _LAST_REFINEMENT:
            return False
        return 1 <= n <= 3 or n == 5 or n == 10 or n == 20 or n == 40 or n == 80

    def append(self, y):
        """Append one observation to the buffer."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        if self.size == self.window:
            self.start += 1
            self.size -= 1
        if self.start + self.size == self.storage.shape[0]:
            for i in range(self.size):
                for j in range(self.dim):
                    self.storage[i, j] = self.storage[self.start + i, j]
            self.start = 0
        for j in range(self.dim):
            self.storage[self.start + self.size, j] = min(max(y[j], -_MAX_VALUE), _MAX_VALUE)
            if isnan(y[j]):
                self.storage[self.start + self.size, j] = y[j]
        self.size += 1

    def standardize(self, y, out):
        """Write an observation in units into `out`."""
        j: cython.Py_ssize_t
        for j in range(self.dim):
            value: cython.double = y[j]
            if not isnan(value):
                value = min(max(value, -_MAX_VALUE), _MAX_VALUE)
            out[j] = (value - self.centre[j]) / self.scale[j]

    def to_units(self, y):
        """Return observations in units, (.., d)."""
        bounded = np.minimum(np.maximum(y, -MAX_VALUE), MAX_VALUE)
        return (bounded - np.asarray(self.centre)) / np.asarray(self.scale)

    def from_units(self, z):
        """Return values in the user's units, (.., d)."""
        return np.asarray(self.centre) + np.asarray(self.scale) * z

    def spread(self):
        """Return the usual distance of the buffer from the centre, in units; at least 1."""
        away = np.abs(self.to_units(self.buffer))
        seen = away[~np.isnan(away)]
        return max(1.0, 1.4826 * float(np.median(seen))) if seen.size else 1.0

    def forecast(self, inside):
        """Return a forecast in the user's units."""
        return inside.rescaled(np.asarray(self.centre), np.asarray(self.reported_scale))

    def set_reported_scale(self):
        """Find the scale of forecasts."""
        j: cython.Py_ssize_t
        wide: cython.double
        size: cython.double
        for j in range(self.dim):
            self.reported_scale[j] = self.scale[j]
            if self.count < _CONSTANT_AFTER and not self.all_alive and not self.alive[j]:
                size = fabs(self.centre[j])
                wide = size / 10.0 if size > 0.0 else 1.0
                self.reported_scale[j] = max(self.scale[j], wide)

    def moves_again(self):
        """Return whether a constant coordinate has moved often enough to be measured."""
        n: cython.Py_ssize_t = min(self.size, _RECENT)
        first: cython.Py_ssize_t = self.start + self.size - n
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for j in range(self.dim):
            if self.alive[j]:
                continue
            moves: cython.Py_ssize_t = 0
            for i in range(first + 1, first + n):
                if fabs(self.storage[i, j] - self.storage[i - 1, j]) > 0.0:
                    moves += 1
            if moves >= _MOVES:
                return True
        return False

    def refine(self):
        """Estimate centre and scale from the whole buffer; return whether they changed."""
        return _adopt(self, *measure(self.buffer), REBUILD_DISTANCE)

    def restart(self):
        """Estimate both from the first move of a coordinate on; return whether they changed."""
        recent = self.buffer[-_RECENT:]
        first = max(0, first_move(recent[:, ~np.asarray(self.alive, bool)]) - 1)
        self.start = self.start + self.size - len(recent) + first
        self.size = len(recent) - first
        self.count = self.size
        return _adopt(self, *measure(self.buffer), 0.0)

    def still_fits(self):
        """Return whether the recent window certainly has the present units in every coordinate.

        Where most steps are moves, the scale of a window is 1.4826 / sqrt 2 times their median;
        this case is decided here, all others by `check_again`.
        """
        n: cython.Py_ssize_t = min(self.size, _RECENT)
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for j in range(self.dim):
            steps: cython.Py_ssize_t = 0
            moves: cython.Py_ssize_t = 0
            distant: cython.Py_ssize_t = 0
            largest: cython.double = 0.0
            before: cython.double = self.storage[self.start + self.size - n, j]
            for i in range(self.start + self.size - n + 1, self.start + self.size):
                value: cython.double = self.storage[i, j]
                if isnan(value):
                    continue
                if not isnan(before):
                    self.window_steps[steps] = fabs(value - before)
                    if self.window_steps[steps] > 0.0:
                        moves += 1
                    steps += 1
                before = value
                largest = max(largest, fabs(value))
                if fabs(value - self.centre[j]) > _MAX_DISTANCE * self.scale[j]:
                    distant += 1
            if 2 * moves <= steps or 2 * distant >= steps:
                return False
            sort_order(self.window_steps, 0, steps, self.window_order)
            middle: cython.double = self.window_steps[self.window_order[steps // 2]]
            if steps % 2 == 0:
                middle = 0.5 * (middle + self.window_steps[self.window_order[steps // 2 - 1]])
            scale: cython.double = 1.4826 * middle / _ROOT_TWO
            if scale <= 1e-13 * largest or scale <= _MIN_SCALE:
                return False
            if fabs(log(scale / self.scale[j])) > 0.999 * _OTHER_UNITS:
                return False
        return True

    def check_again(self):
        """Estimate both from the recent window if it does not fit; return whether they changed."""
        centre, scale, alive = measure(self.buffer[-_RECENT:])
        log_ratio = np.log(scale / np.asarray(self.scale))
        distant = np.abs(centre - np.asarray(self.centre)) > MAX_DISTANCE * np.asarray(self.scale)
        kept: cython.Py_ssize_t = self.size
        stuck: cython.bint = False
        for j in range(self.dim):
            if distant[j]:
                kept = min(kept, _RECENT // 2)
                steps = np.diff(self.buffer[-kept:, j])
                if 2 * (np.abs(steps) > 0).sum() <= steps.size:  # no scale from a stuck sensor
                    stuck, scale[j] = True, max(self.scale[j], 1e-13 * abs(centre[j]))
            elif log_ratio[j] < -OTHER_UNITS:
                lasted = self.confirmed_drop(j, centre[j])
                if lasted > 0:
                    kept = min(kept, lasted)
                else:
                    log_ratio[j] = 0.0
            elif log_ratio[j] > OTHER_UNITS:  # at least half of the window, or what began to move
                latest = self.buffer[-(_RECENT // 2) :, j : j + 1]
                kept = min(kept, len(latest) - max(0, first_move(latest) - 1))
        adrift = distant | (np.abs(log_ratio) > OTHER_UNITS)
        if not (adrift & alive).any():
            return False
        if kept > _RECENT:
            centre, scale, alive = measure(self.buffer[-kept:])
        centre = np.where(adrift, centre, np.asarray(self.centre))
        scale = np.where(adrift, scale, np.asarray(self.scale))
        self.start += self.size - kept
        self.size = kept
        self.count = _LAST_REFINEMENT if stuck else kept
        return _adopt(self, centre, scale, alive, 0.0)

    def confirmed_drop(self, j, centre):
        """Return for how many observations a smaller scale has lasted; 0 if it is not confirmed.

        A sensor that is stuck for some time has no other units: the scale must be smaller in every
        part of the window, and most of the differences must not be zero. If the values stay in
        their usual range, it must also have lasted half as long as the units before it, or
        CONFIRMATION observations. So units learnt at an untypical start are soon replaced.
        """
        part: cython.Py_ssize_t = _RECENT // 2
        column = self.buffer[:, j]
        lasted: cython.Py_ssize_t = 0
        while lasted + part <= self.size:
            end = self.size - lasted
            if not _log_drop(column[end - part : end], self.scale[j]) < -OTHER_UNITS:
                break
            lasted += part
        before = column[: max(0, self.size - lasted - part)]  # without the part of the change
        before = np.append(before[~np.isnan(before)], self.centre[j])
        low, high = np.quantile(before, [0.01, 0.99])
        needed: cython.Py_ssize_t = 2 * part
        if low <= centre <= high:
            needed = max(needed, min(CONFIRMATION, (self.count - lasted) // 2))
        return lasted if lasted >= needed else 0


def _log_drop(values, scale):
    """Return the log ratio of the scale of (n,) values to the present one; 0 if few move."""
    seen = values[~np.isnan(values)]
    steps = np.abs(np.diff(seen))
    if 2 * (steps > 0).sum() <= steps.size:
        return 0.0
    return math.log(_measure_one(seen)[1] / scale)


def _adopt(scaling, centre, scale, alive, far):
    """Set centre and scale if they are far from the present ones; return whether they are."""
    moved = np.abs(centre - np.asarray(scaling.centre)) / scale
    changed = (np.abs(np.log(scale / np.asarray(scaling.scale))) > far) | (moved > 2.0)
    np.asarray(scaling.alive)[alive] = 1
    scaling.all_alive = bool(np.all(scaling.alive))
    if not changed.any():
        return False
    np.asarray(scaling.centre)[:] = centre
    np.asarray(scaling.scale)[:] = scale
    scaling.rows = scaling.size
    return True


class CovariateScaler:
    """Centre and spread of covariates, estimated whenever the units of y are.

    A priori the coefficient of each covariate has the same variance, however many there are. So
    each of k covariates is brought to a spread with which all together are expected to move y by
    sqrt(COVARIATE_VARIANCE) times its own spread. Without that, a regime not opened yet would be
    expected to lie sqrt(k) times too far away, and would never be opened.

    Args:
        width: number of covariates k.

    Attributes:
        centre: (k,) medians.
        scale: (k,) sizes of one unit.
    """

    FIELDS = {
        "centre": ("float64", ("width",), -1e140, 1e140),
        "scale": ("float64", ("width",), 1e-140, 1e141),
    }

    def __init__(self, width):
        self.width = width
        self.centre = np.zeros(width)
        self.scale = np.ones(width)

    def fit(self, rows, spread_of_y, prior_variance):
        """Estimate centre and scale.

        Args:
            rows: (n, k) the covariates in the buffer.
            spread_of_y: usual distance of y from its centre, in units.
            prior_variance: prior variance of a coefficient.
        """
        if not self.width:
            return
        centre = np.median(rows, axis=0)
        away = np.abs(rows - centre)
        mean = (away / len(away)).sum(axis=0)  # the sum of all could overflow
        spread = np.maximum(1.4826 * np.median(away, axis=0), 1.2533 * mean)
        usual = np.where(spread > _MIN_SPREAD, spread, np.maximum(np.abs(centre), 1.0))
        reach = spread_of_y * math.sqrt(COVARIATE_VARIANCE / (prior_variance * self.width))
        self.centre = np.ascontiguousarray(centre)
        self.scale = np.ascontiguousarray(usual / reach)

    def standardize(self, raw, out):
        """Write the standardized covariates of one observation into `out`.

        Args:
            raw: (k,) covariates.
            out: (k,) output.
        """
        i: cython.Py_ssize_t
        for i in range(self.width):
            value: cython.double = (raw[i] - self.centre[i]) / self.scale[i]
            out[i] = min(max(value, -_MAX_COVARIATE), _MAX_COVARIATE)

    def scaled(self, raw):
        """Return standardized covariates, (.., k)."""
        z = (raw - np.asarray(self.centre)) / np.asarray(self.scale)
        return np.clip(z, -_MAX_COVARIATE, _MAX_COVARIATE)


def first_move(values):
    """Return the index of the first of the `values` (n, d) unlike the one before; 0 if none is."""
    moved = np.flatnonzero((np.abs(np.diff(values, axis=0)) > 0).any(axis=1))
    return int(moved[0]) + 1 if moved.size else 0


def measure(values):
    """Return centre, scale and whether it moves, of each column of `values` (n, d) without NaN."""
    columns = [_measure_one(column[~np.isnan(column)]) for column in values.T]
    centre, scale, alive = zip(*columns, strict=True)
    return np.array(centre), np.array(scale), np.array(alive)


def _measure_one(values):
    if values.size == 0:
        return 0.0, 1.0, False
    centre = float(np.median(values))
    steps = np.abs(np.diff(values))
    moves = steps[steps > 0]
    if moves.size == 0:
        return centre, constant_scale(centre), False
    return centre, max(_from_steps(steps, moves), 1e-13 * abs(centre), MIN_SCALE), True


def _from_steps(steps, moves):
    """Return the noise scale from differences, also if most are zero (rounded or rarely moving)."""
    plain = max(1.4826 * float(np.median(steps)) / math.sqrt(2), _rounding(steps, moves))
    if 2 * moves.size > steps.size and plain > 0:
        return plain
    kept = np.sort(steps)[: max(1, math.ceil(0.9 * steps.size))]
    return max(plain, float(kept.mean()), 0.1 * float(np.median(moves)))


def _rounding(steps, moves):
    """Return half the step of a lattice that the values move on often; 0 if there is none."""
    grain = float(moves.min())
    often = moves.size > max(5.0, 0.1 * steps.size)
    if not often or grain < MIN_SCALE or np.unique(moves).size > moves.size / 2:
        return 0.0
    whole = moves / grain
    return 0.5 * grain if bool((np.abs(whole - np.round(whole)) < 1e-6).all()) else 0.0


def constant_scale(level):
    """Return the unit of a stream that never moved, small against its `level`."""
    return max(1e-6 * abs(level), MIN_SCALE) if level else 1.0
