"""How long the next batch is: fixed, or from the rate of outliers seen so far.

The paper sketches (Limitations, "Fixed batch size") a rate of outliers lambda ~ Gamma(a, b) that
learns Delta outliers in a batch of B as lambda | Delta, B ~ Gamma(a + Delta, b + B). With lambda
integrated out the outliers of a batch are negative binomial, and the next batch is the smallest
in which the chance that outliers are at least half of it is below a tolerance.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from holdfast.errors import HoldfastError, positive, share, unknown, whole


class AdaptiveBatch(NamedTuple):
    """Settings of the adaptive batch.

    Attributes:
        largest: no batch is longer.
        smallest: no batch is shorter.
        outlier_weight: an observation with w^2 below this counts as an outlier (tau_w).
        tolerance: accepted chance that outliers make up half a batch (tau_g).
        shape: a of the rate's Gamma prior.
        rate: b of the rate's Gamma prior.
    """

    largest: int = 32
    smallest: int = 1
    outlier_weight: float = 0.2
    tolerance: float = 0.001
    shape: float = 0.5
    rate: float = 20.0


class Schedule:
    """The length of each batch. `counts` is (outliers, observations) so far."""

    def __init__(self, fixed: int | None, adaptive: AdaptiveBatch | None) -> None:
        self.fixed, self.adaptive = fixed, adaptive
        self.counts = np.zeros(2)
        self._table = (
            None if adaptive is None else np.arange(adaptive.smallest, adaptive.largest + 1)
        )

    def next_size(self) -> int:
        """Length of the batch about to begin."""
        if self.adaptive is None or self._table is None:
            return int(self.fixed or 1)
        rule, sizes = self.adaptive, self._table
        a, b = rule.shape + self.counts[0], rule.rate + self.counts[1]
        # Delta | B is negative binomial: a Gamma(a, b) mixture of Poisson(lambda B).
        too_many = special.betainc(np.ceil(sizes / 2), a, sizes / (b + sizes))
        fine = np.flatnonzero(too_many < rule.tolerance)
        return int(sizes[fine[0]]) if fine.size else rule.largest

    def learn(self, outliers: float, observed: int) -> None:
        """Update the rate with a finished batch."""
        self.counts += outliers, observed


def read_schedule(batch: Any) -> Schedule:
    """A whole number, "adaptive", or a mapping of AdaptiveBatch settings."""
    if isinstance(batch, str):
        if batch != "adaptive":
            raise unknown("batch", batch, ["adaptive"])
        return Schedule(None, AdaptiveBatch())
    if isinstance(batch, dict):
        return Schedule(None, _read_adaptive(batch))
    return Schedule(whole("batch", batch), None)


def _read_adaptive(given: dict[str, Any]) -> AdaptiveBatch:
    for name in given:
        if name not in AdaptiveBatch._fields:
            raise unknown("batch", name, AdaptiveBatch._fields)
    rule = AdaptiveBatch(**given)
    whole("batch['smallest']", rule.smallest)
    whole("batch['largest']", rule.largest, least=rule.smallest)
    share("batch['outlier_weight']", rule.outlier_weight)
    share("batch['tolerance']", rule.tolerance)
    positive("batch['shape']", rule.shape)
    if not math.isfinite(positive("batch['rate']", rule.rate)):
        raise HoldfastError("batch['rate'] must be finite.")
    return rule
