"""The past that forecasts of several steps are learnt from."""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import isnan

from regimekit.core.exceptions import SnapshotError

# Largest size of a stored value.
_MAX_VALUE = cython.declare(cython.double, 1e130)
_MAX_FORECAST = cython.declare(cython.double, 1e140)


class History:
    """The latest observations with their one-step forecasts, in the user's units.

    Args:
        dim: number of coordinates d.
        window: number of observations stored.

    Attributes:
        values: (n, 3 d + 1) observations (NaN if missing), one-step forecasts, their noise scales,
            and the probability of being no outlier.
    """

    FIELDS = {"values": ("float64", (None, "width"), -1e140, 1e140, "missing")}

    def __init__(self, dim, window):
        self.dim, self.window, self.width = dim, window, 3 * dim + 1
        self.storage = np.zeros((window + max(64, window // 4), 3 * dim + 1))
        self.first = self.size = 0

    @property
    def values(self):
        """(n, 3 d + 1) view of what is stored."""
        return np.asarray(self.storage)[self.first : self.first + self.size]

    @values.setter
    def values(self, given):
        if len(given) > self.window:
            raise SnapshotError(
                f"Invalid snapshot: the history has {len(given)} rows, expected at most "
                f"{self.window}."
            )
        np.asarray(self.storage)[: len(given)] = given
        self.first, self.size = 0, len(given)

    def append(self, y, centre, noise, shift, scale, regular):
        """Append one observation; centre and noise are in units of `scale` around `shift`."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        if self.size == self.window:
            self.first += 1
            self.size -= 1
        if self.first + self.size == self.storage.shape[0]:
            for i in range(self.size):
                for j in range(self.width):
                    self.storage[i, j] = self.storage[self.first + i, j]
            self.first = 0
        i = self.first + self.size
        for j in range(self.dim):
            self.storage[i, j] = y[j]
            if not isnan(y[j]):
                self.storage[i, j] = min(max(y[j], -_MAX_VALUE), _MAX_VALUE)
            forecast: cython.double = shift[j] + scale[j] * centre[j]
            self.storage[i, self.dim + j] = min(max(forecast, -_MAX_FORECAST), _MAX_FORECAST)
            self.storage[i, 2 * self.dim + j] = min(scale[j] * noise[j], _MAX_FORECAST)
        self.storage[i, 3 * self.dim] = regular
        self.size += 1

    def set_regular(self, regular):
        """Set the probability that the latest observation is no outlier."""
        self.storage[self.first + self.size - 1, 3 * self.dim] = regular

    def keep(self, n):
        """Drop all but the latest n observations."""
        if n < self.size:
            self.first += self.size - n
            self.size = n
