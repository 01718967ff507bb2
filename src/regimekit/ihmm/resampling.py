"""Draw ancestors of the particles in proportion to their weights."""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import exp

SCHEMES = {"systematic": 0, "stratified": 1, "multinomial": 2}
SYSTEMATIC = cython.declare(cython.int, 0)
MULTINOMIAL = cython.declare(cython.int, 2)


class Resampler:
    """Resampling of the particles of an island.

    Args:
        scheme: code of the scheme, see `SCHEMES`.
        n: largest number of particles of an island.
    """

    def __init__(self, scheme, n):
        self.scheme = scheme
        self.points = np.zeros(n)
        self.parents = np.zeros(n, np.int64)

    def draw(self, log_weight, first, n, random):
        """Draw the parents of particles, in ascending order, from normalized log weights (N,)."""
        for i in range(n):
            if i == 0 or self.scheme != SYSTEMATIC:
                self.points[i] = random.uniform()
            else:
                self.points[i] = self.points[0]
        if self.scheme == MULTINOMIAL:
            self.sort_points(n)
        else:
            for i in range(n):
                self.points[i] = (self.points[i] + i) / n
        self.select(log_weight, first, n)

    def draw_parents(self, log_weight, random):
        """Return n parents by normalized log weights (n,), for callers in Python."""
        self.draw(log_weight, 0, len(log_weight), random)
        return np.array(self.parents[: len(log_weight)])

    def select(self, log_weight, first, n):
        """Find the particle whose share of the unit interval contains each ascending point."""
        parent: cython.Py_ssize_t = 0
        cumulative: cython.double = exp(log_weight[first])
        for i in range(n):
            while self.points[i] >= cumulative and parent < n - 1:
                parent += 1
                cumulative += exp(log_weight[first + parent])
            self.parents[i] = parent

    def sort_points(self, n):
        """Sort the first `n` points in place (Shell sort)."""
        gap: cython.Py_ssize_t = n // 2
        while gap > 0:
            for i in range(gap, n):
                value: cython.double = self.points[i]
                j: cython.Py_ssize_t = i
                while j >= gap and self.points[j - gap] > value:
                    self.points[j] = self.points[j - gap]
                    j -= gap
                self.points[j] = value
            gap //= 2


def effective_sample_size(log_weight, first, n):
    """Return 1 / sum omega^2 of n normalized log weights, Eq. (124), form:ess."""
    total: cython.double = 0.0
    for i in range(first, first + n):
        total += exp(2.0 * log_weight[i])
    return 1.0 / total
