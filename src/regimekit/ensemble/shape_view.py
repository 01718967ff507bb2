"""Regimes of shape: what the periods of a periodic stream look like.

A stream is periodic if the autocorrelation of its ranks says so (`seasonality.dominant`), which is
tested at rows 96, 128, 192, .., 1536, 2048, and every 512 rows from then on. Then, once per period,
the latest four periods are described by 14 numbers. One is the mean of the rows in the middle that
belong to one period, five are the log power in bands of the spectrum of the windowed, centred rows

    below the period   around it (it is in the second band)   2   4   8 times and faster

The power does not depend on phases, so a shape, its reverse and its mirror image have the same. Six
numbers are real and imaginary parts of the coupling of the phases of pairs of harmonics a and b,

    sum F(i) F(j) conj F(i + j) / sum |F(i) F(j) F(i + j)|,   i next to a, j next to b

(bispectrum, Kim and Powers 1979) for (1, 1), (1, 2) and (2, 2). It does not depend on where in the
period the window begins. Two are the asymmetry, sum d |d| / sum d^2, of the centred rows d and of
their differences over a sixteenth of the period: above and below, rise and fall.

`segmentation` finds the changes of these numbers. What was stored before the period became
known is described in the same way, so early changes are found late, but dated where they were.
Four windows overlap with a change, fewer than a segment has at least, so the transition is no
segment. A change is dated at the middle of the window that it begins with.

A value beyond the range that at least three of the four periods reach is an outlier: the value one
period before or after it takes its place, so a spike or a short burst has no shape of its own.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import fabs, isnan, log, sqrt

from regimekit.core.exceptions import SnapshotError
from regimekit.ensemble import seasonality
from regimekit.ensemble.regime_views import View

CAPACITY = 2048  # latest rows that are stored
CYCLES = 5  # periods that must have been seen
SHORTEST, LONGEST = 8, CAPACITY // CYCLES  # periods, in rows
PERIODS = 4  # in a window
BANDS = 5
# Pairs of harmonics, and numbers besides the mean and the bands: couplings and asymmetries.
_PAIRS = ((1, 1), (1, 2), (2, 2))
NUMBERS = 1 + BANDS + 2 * len(_PAIRS) + 2
# Nats of a change or a new regime; three times that of levels: windows overlap, and the numbers
# that describe one are correlated, but their evidence adds up.
COST = 30.0
# Least spread of couplings and asymmetries, on scales from -1 to 1: if a stream has little noise,
# smaller differences would be significant, but no one would recognise them.
LEAST_COUPLING, LEAST_ASYMMETRY = 0.05, 0.02
# Rows at which a period is searched for first, and rows between two searches in the long run.
_FIRST = cython.declare(cython.longlong, 128)
_EVERY = cython.declare(cython.longlong, 512)
_CAPACITY = cython.declare(cython.Py_ssize_t, CAPACITY)
_PERIODS = cython.declare(cython.Py_ssize_t, PERIODS)
_BANDS = cython.declare(cython.Py_ssize_t, BANDS)
# Last frequency of each band but the fastest, in cycles per window.
_EDGES = (2.5, 5.5, 11.5, 23.5)
# First and last frequency of the couplings, in cycles per window.
_LOWEST, _HIGHEST = PERIODS - 1, 4 * PERIODS + 2
_LOW = cython.declare(cython.Py_ssize_t, _LOWEST)
_HIGH = cython.declare(cython.Py_ssize_t, _HIGHEST)
_N_PAIRS = cython.declare(cython.Py_ssize_t, len(_PAIRS))
_PAIR = cython.declare(cython.longlong[:, ::1], np.array(_PAIRS, np.int64))
_FRACTION = cython.declare(cython.Py_ssize_t, 16)  # of the period, over which rows are differenced
_LEAST_POWER = cython.declare(cython.double, 1e-6)  # of the variance of the rows
_LEAST_COUPLED = cython.declare(cython.double, 1e-9)  # cubed sum of the weighted rows
# Part of the usual range by which a value may lie beyond it.
_MARGIN = cython.declare(cython.double, 0.1)
_LARGEST = cython.declare(cython.double, 1e6)  # standard deviations
_MAX_VALUE = cython.declare(cython.double, 1e130)
_HANN = 0.375  # mean square of the weights of a window


class ShapeView:
    """Regimes of the shape of a periodic stream; silent until the stream is known to be periodic.

    Args:
        dim: number of coordinates d of the observations.

    Attributes:
        period: in rows, 0 if not known.
        found: whether the period became known with the latest row.
        origin: first row described.
        segments: (regime, first row) of each segment until then.
    """

    FIELDS = {
        "count": ("int64", (), 0, 2**53),
        "origin": ("int64", (), 0, 2**53),
        "waiting": ("int64", (), 0, LONGEST),
        "period": ("int64", (), 0, LONGEST),
        "units": ("float64", ("2", "dim"), -1.1e130, 1.1e130),
        "recent": ("float64", (None, "dim"), -1e130, 1e130),
        "view": "object",
    }

    def __init__(self, dim):
        self.dim = dim
        self.count = self.origin = self.waiting = self.period = 0
        self.start = self.size = self.length = 0
        self.found = False
        self.segments = []
        self.units = np.zeros((2, dim))
        self.storage = np.zeros((2 * CAPACITY, dim))
        self.view = View(NUMBERS * dim, COST, COST, drifts=False, adds_up=True)
        rounding = np.asarray(self.view.segmentation.rounding)[(1 + BANDS) * dim :]
        rounding.reshape(dim, -1)[:, :-2] = LEAST_COUPLING**2
        rounding.reshape(dim, -1)[:, -2:] = LEAST_ASYMMETRY**2
        self.row = np.zeros(NUMBERS * dim)

    @property
    def recent(self):
        """(n, d) the latest rows, as many as are needed."""
        needed = PERIODS * self.period if self.period else CAPACITY
        last = self.start + self.size
        return np.asarray(self.storage)[last - min(self.size, needed) : last]

    @recent.setter
    def recent(self, given):
        if len(given) > CAPACITY:
            raise SnapshotError(
                f"Invalid snapshot: recent has {len(given)} rows, expected at most {CAPACITY}."
            )
        self.start, self.size = 0, len(given)
        np.asarray(self.storage)[: self.size] = given

    def refresh(self):
        """Prepare the spectrum for a known period; refuse periods that cannot be."""
        if self.period:
            if self.period < SHORTEST or np.asarray(self.units)[1].min() < 0.0:
                raise SnapshotError(
                    f"Invalid snapshot: period is {self.period}, expected {SHORTEST} to {LONGEST} "
                    "rows, and scales that are not negative."
                )
            self.prepare()

    def prepare(self):
        """Compute the window, the band of each frequency, and the tables of the transform."""
        n = PERIODS * int(self.period)
        self.length = 1 << (n - 1).bit_length()
        order = np.arange(self.length)
        self.window = np.hanning(n)
        self.band = np.searchsorted(_EDGES, order[: self.length // 2 + 1] * n / self.length)
        angle = 2.0 * np.pi * order[: self.length // 2] / self.length
        self.cosine, self.sine = np.cos(angle), np.sin(angle)
        place = np.zeros(self.length, np.int64)
        for bit in range((n - 1).bit_length()):
            place = 2 * place + (order >> bit) % 2
        self.place = place
        self.real, self.imaginary = np.zeros(self.length), np.zeros(self.length)
        self.power, self.cleaned = np.zeros(BANDS), np.zeros(n)
        angle = 2.0 * np.pi * np.arange(n) / n
        self.waves = np.stack([np.cos(angle), -np.sin(angle)])
        self.harmonics = np.zeros((2, _HIGHEST + 1))

    def observe(self, y, time):
        """Take one observation, for Python; return whether the regime changed with it."""
        self.update(np.array(y, np.float64).reshape(-1), time)
        return self.view.changed

    def update(self, y, time):
        """Take an observation (d,), NaN where missing, and its time; missing ones count, too."""
        self.view.changed = False
        self.found = False
        if not self.push(y):
            return
        if self.period == 0:
            if self.is_due():
                self.search(time)
            return
        self.waiting += 1
        if self.waiting >= self.period:
            self.waiting = 0
            self.describe(self.size, time + 1)

    def is_due(self):
        """Return whether a period is searched for at this row."""
        n: cython.longlong = self.count
        if n >= _CAPACITY:
            return n % _EVERY == 0
        if n % 3 == 0:
            n = 4 * n // 3
        return n >= _FIRST and n & (n - 1) == 0

    def push(self, y):
        """Store a row; a missing value is the one before it. Return whether any was seen yet."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        seen: cython.bint = self.count > 0
        for j in range(self.dim):
            seen = seen or not isnan(y[j])
        if not seen:
            return False
        if self.size == _CAPACITY:
            self.start += 1
            self.size -= 1
        if self.start + self.size == 2 * _CAPACITY:
            for i in range(self.size):
                for j in range(self.dim):
                    self.storage[i, j] = self.storage[self.start + i, j]
            self.start = 0
        i = self.start + self.size
        for j in range(self.dim):
            if isnan(y[j]):
                self.storage[i, j] = self.storage[i - 1, j] if self.size > 0 else 0.0
            else:
                self.storage[i, j] = min(max(y[j], -_MAX_VALUE), _MAX_VALUE)
        self.size += 1
        self.count += 1
        return True

    def search(self, time):
        """Search for a period; if there is one, describe what is stored."""
        rows = np.asarray(self.storage)[self.start : self.start + self.size]
        found = [seasonality.dominant(values, SHORTEST, CYCLES) for values in rows.T]
        self.period = next((period for period in found if period), 0)
        if not self.period:
            return
        self.found = True
        centre = rows.mean(axis=0)
        self.units = np.stack([centre, np.abs(rows - centre).mean(axis=0)])
        self.prepare()
        self.origin = time + 1 - self.size
        self.segments = [(0, self.origin)]
        for last in range(PERIODS * self.period, self.size + 1, self.period):
            self.describe(last, time + 1 - self.size + last)
            if self.view.changed:
                self.segments.append((self.view.regime, self.view.since))
        self.view.changed = False
        self.waiting = self.size % self.period

    def describe(self, last, end):
        """Describe the window that ends before row `last` of those stored, at time `end`."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t = 0
        n: cython.Py_ssize_t = _PERIODS * self.period
        if last < n:
            return
        first: cython.Py_ssize_t = self.start + last - n
        middle: cython.Py_ssize_t = n // 2 - self.period // 2
        for j in range(self.dim):
            self.clean(first, j)
            mean: cython.double = 0.0
            self.row[j] = 0.0
            for i in range(n):
                mean += self.cleaned[i]
                if middle <= i < middle + self.period:
                    self.row[j] += self.cleaned[i] / self.period
            mean /= n
            for i in range(n):
                self.cleaned[i] -= mean
            for i in range(self.length):
                self.real[self.place[i]] = self.window[i] * self.cleaned[i] if i < n else 0.0
                self.imaginary[i] = 0.0
            self.transform()
            k = self.dim + _BANDS * j
            for i in range(_BANDS):
                self.row[k + i] = log(self.power[i] / self.length + _LEAST_POWER)
            k = self.dim * (1 + _BANDS) + (2 * _N_PAIRS + 2) * j
            self.couple(k)
            k += 2 * _N_PAIRS
            self.row[k] = self.asymmetry(0)
            self.row[k + 1] = self.asymmetry(max(1, (self.period + _FRACTION // 2) // _FRACTION))
        self.view.update(self.row, end - n // 2)

    def clean(self, first, j):
        """Copy coordinate j of the window from row `first` into `cleaned`, without outliers."""
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t = _PERIODS * self.period
        # The second smallest maximum and the second largest minimum of the periods.
        high: cython.double = _LARGEST
        higher: cython.double = _LARGEST
        low: cython.double = -_LARGEST
        lower: cython.double = -_LARGEST
        least: cython.double = _LARGEST
        most: cython.double = -_LARGEST
        for i in range(n):
            x: cython.double = self.scaled(first + i, j)
            self.cleaned[i] = x
            least = min(least, x)
            most = max(most, x)
            if (i + 1) % self.period == 0:
                higher = min(higher, max(high, most))
                high = min(high, most)
                lower = max(lower, min(low, least))
                low = max(low, least)
                least, most = _LARGEST, -_LARGEST
        margin: cython.double = _MARGIN * max(higher - lower, 0.0)
        for i in range(n):
            x = self.cleaned[i]
            if lower - margin <= x <= higher + margin:
                continue
            # Earlier rows of the window are clean already.
            other: cython.Py_ssize_t = i - self.period if i >= self.period else i + self.period
            x = self.cleaned[other]
            self.cleaned[i] = min(max(x, lower - margin), higher + margin)

    def scaled(self, i, j):
        """Return coordinate j of a stored row in units."""
        scale: cython.double = self.units[1, j]
        if scale <= 0.0:
            return 0.0
        return min(max((self.storage[i, j] - self.units[0, j]) / scale, -_LARGEST), _LARGEST)

    def transform(self):
        """Compute the power in each band by a fast Fourier transform of the rows in `place`."""
        i: cython.Py_ssize_t
        k: cython.Py_ssize_t
        half: cython.Py_ssize_t = 1
        while half < self.length:
            stride: cython.Py_ssize_t = self.length // (2 * half)
            for k in range(half):
                c: cython.double = self.cosine[k * stride]
                s: cython.double = self.sine[k * stride]
                i = k
                while i < self.length:
                    x: cython.double = self.real[i + half]
                    y: cython.double = self.imaginary[i + half]
                    re: cython.double = c * x + s * y
                    im: cython.double = c * y - s * x
                    self.real[i + half] = self.real[i] - re
                    self.imaginary[i + half] = self.imaginary[i] - im
                    self.real[i] += re
                    self.imaginary[i] += im
                    i += 2 * half
            half *= 2
        for k in range(_BANDS):
            self.power[k] = 0.0
        for i in range(1, self.length // 2 + 1):
            self.power[self.band[i]] += (
                self.real[i] * self.real[i] + self.imaginary[i] * self.imaginary[i]
            )

    def couple(self, at):
        """Write the couplings of the window in `cleaned` from number `at` of the row on."""
        a: cython.Py_ssize_t
        b: cython.Py_ssize_t
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        n: cython.Py_ssize_t = _PERIODS * self.period
        for k in range(_LOW, _HIGH + 1):
            re: cython.double = 0.0
            im: cython.double = 0.0
            j = 0
            for i in range(n):
                x: cython.double = self.window[i] * self.cleaned[i]
                re += x * self.waves[0, j]
                im += x * self.waves[1, j]
                j = (j + k) % n
            self.harmonics[0, k] = re
            self.harmonics[1, k] = im
        for k in range(_N_PAIRS):
            a = _PERIODS * _PAIR[k, 0]
            b = _PERIODS * _PAIR[k, 1]
            re = 0.0
            im = 0.0
            size: cython.double = _LEAST_COUPLED
            for i in range(a - 1, a + 2):
                for j in range(b - 1, b + 2):
                    x = self.harmonics[0, i] * self.harmonics[0, j]
                    x -= self.harmonics[1, i] * self.harmonics[1, j]
                    y: cython.double = self.harmonics[0, i] * self.harmonics[1, j]
                    y += self.harmonics[1, i] * self.harmonics[0, j]
                    u: cython.double = self.harmonics[0, i + j]
                    v: cython.double = self.harmonics[1, i + j]
                    re += x * u + y * v
                    im += y * u - x * v
                    size += sqrt((x * x + y * y) * (u * u + v * v))
            self.row[at + 2 * k] = re / size
            self.row[at + 2 * k + 1] = im / size

    def asymmetry(self, lag):
        """Return that of the centred rows in `cleaned`, or of their differences if lag > 0."""
        i: cython.Py_ssize_t
        n: cython.Py_ssize_t = _PERIODS * self.period
        signed: cython.double = 0.0
        squares: cython.double = _LEAST_POWER * (n - lag)
        for i in range(lag, n):
            d: cython.double = self.cleaned[i]
            if lag > 0:
                d -= self.cleaned[i - lag]
            signed += d * fabs(d)
            squares += d * d
        return signed / squares

    def change_probability(self):
        """Return the posterior probability of a change by the latest test, at even odds."""
        return self.view.change_probability() if self.period > 0 else 0.0

    def moments(self):
        """Return means and standard deviations (K, d) of the observations in the regimes."""
        rows, _ = self.view.moments()
        units, n = np.asarray(self.units), max(PERIODS * self.period, 1)
        bands = np.exp(rows[:, self.dim : (1 + BANDS) * self.dim])
        bands = bands.reshape(len(rows), self.dim, BANDS)
        variance = 2.0 * bands.sum(axis=2) / (_HANN * n)
        return units[0] + units[1] * rows[:, : self.dim], units[1] * np.sqrt(variance)
