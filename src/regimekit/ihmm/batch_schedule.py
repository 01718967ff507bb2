"""The size of the next batch: fixed, or from the rate of outliers observed so far.

The paper sketches (Limitations, "Fixed batch size") a rate of outliers lambda ~ Gamma(a, b) that is
updated by Delta outliers in a batch of B: lambda | Delta, B ~ Gamma(a + Delta, b + B). With lambda
integrated out, the number of outliers of a batch is negative binomial. The next batch is the
smallest one for which the probability that at least half of it are outliers is below a tolerance.
"""

from __future__ import annotations

import math
from typing import Any

import cython
import numpy as np
from cython.cimports.libc.math import exp, lgamma, log

from regimekit.core.exceptions import RegimekitError, positive, share, unknown, whole
from regimekit.core.limits import MAX_BATCH


class BatchSchedule:
    """Settings of the batch size.

    Args:
        fixed: observations of every batch, or 0 for an adaptive size.
        largest: largest adaptive size.
        smallest: smallest adaptive size.
        outlier_weight: an observation with w^2 below this counts as an outlier (tau_w).
        tolerance: accepted probability that half of a batch are outliers (tau_g).
        shape: a of the Gamma prior of the rate.
        rate: b of the Gamma prior of the rate.
    """

    def __init__(
        self,
        fixed=0,
        largest=32,
        smallest=1,
        outlier_weight=0.2,
        tolerance=0.001,
        shape=0.5,
        rate=20.0,
    ):
        self.fixed = fixed
        self.largest = largest
        self.smallest = smallest
        self.outlier_weight = outlier_weight
        self.tolerance = tolerance
        self.shape = shape
        self.rate = rate

    @property
    def longest(self):
        """Return the largest number of observations of a batch."""
        return self.fixed or self.largest

    def next_size(self, counts):
        """Return the size of the next batch, given `counts` (2,) of outliers and observations."""
        if self.fixed > 0:
            return self.fixed
        a: cython.double = self.shape + counts[0]
        b: cython.double = self.rate + counts[1]
        for size in range(self.smallest, self.largest):
            if 1.0 - probability_of_fewer(a, b, size, (size + 1) // 2) < self.tolerance:
                return size
        return self.largest

    def next_size_after(self, outliers, observations):
        """Return the size of the next batch after `outliers` in `observations`, for Python."""
        return self.next_size(np.array([outliers, observations], np.float64))


ADAPTIVE_SETTINGS = ("largest", "smallest", "outlier_weight", "tolerance", "shape", "rate")


def probability_of_fewer(a, b, size, limit):
    """Return P(Delta < limit) for Delta | lambda ~ Poisson(lambda size), lambda ~ Gamma(a, b)."""
    log_stay: cython.double = log(b / (b + size))
    log_leave: cython.double = log(size / (b + size))
    total: cython.double = 0.0
    for k in range(limit):
        log_p: cython.double = lgamma(a + k) - lgamma(a) - lgamma(k + 1.0)
        total += exp(log_p + a * log_stay + k * log_leave)
    return total


def read_schedule(batch: Any) -> BatchSchedule:
    """Return the batch schedule of a setting.

    Args:
        batch: number of observations, "adaptive", or a mapping of adaptive settings.

    Raises:
        RegimekitError: If `batch` is none of these.
    """
    if isinstance(batch, str):
        if batch != "adaptive":
            raise unknown("batch", batch, ["adaptive"])
        return BatchSchedule()
    if isinstance(batch, dict):
        return _read_adaptive(batch)
    return BatchSchedule(_size("batch", whole("batch", batch)))


def _read_adaptive(given: dict[str, Any]) -> BatchSchedule:
    for name in given:
        if name not in ADAPTIVE_SETTINGS:
            raise unknown("batch", name, ADAPTIVE_SETTINGS)
    defaults = BatchSchedule()
    chosen = {name: given.get(name, getattr(defaults, name)) for name in ADAPTIVE_SETTINGS}
    smallest = whole("batch['smallest']", chosen["smallest"])
    largest = whole("batch['largest']", chosen["largest"], least=smallest)
    rate = positive("batch['rate']", chosen["rate"])
    if not math.isfinite(rate):
        raise RegimekitError("batch['rate'] must be finite.")
    return BatchSchedule(
        0,
        _size("batch['largest']", largest),
        smallest,
        float(share("batch['outlier_weight']", chosen["outlier_weight"])),
        float(share("batch['tolerance']", chosen["tolerance"])),
        float(positive("batch['shape']", chosen["shape"])),
        float(rate),
    )


def _size(argument: str, size: int) -> int:
    if size > MAX_BATCH:
        raise RegimekitError(f"{argument} must be at most {MAX_BATCH}, got {size}.")
    return size
