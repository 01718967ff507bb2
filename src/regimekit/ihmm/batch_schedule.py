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

from regimekit._numba import bare
from regimekit.core.exceptions import RegimekitError, positive, share, unknown, whole

LONGEST_BATCH = 10_000
NEAR = 4.0  # posterior standard deviations: regimes farther apart are not compared (D11)


class Schedule(NamedTuple):
    """Settings of the batch.

    Attributes:
        fixed: observations of every batch, or 0 where the outliers decide.
        largest: no batch is longer.
        smallest: no batch is shorter.
        outlier_weight: an observation with w^2 below this counts as an outlier (tau_w).
        tolerance: accepted chance that outliers make up half a batch (tau_g).
        shape: a of the rate's Gamma prior.
        rate: b of the rate's Gamma prior.
    """

    fixed: int = 0
    largest: int = 32
    smallest: int = 1
    outlier_weight: float = 0.2
    tolerance: float = 0.001
    shape: float = 0.5
    rate: float = 20.0

    @property
    def longest(self) -> int:
        """No batch has more observations."""
        return self.fixed or self.largest


@bare
def next_size(schedule: Schedule, counts: np.ndarray) -> int:
    """Length of the batch about to begin, given (outliers, observations) so far."""
    if schedule.fixed > 0:
        return schedule.fixed
    a, b = schedule.shape + counts[0], schedule.rate + counts[1]
    for size in range(schedule.smallest, schedule.largest):
        if 1.0 - fewer(a, b, size, (size + 1) // 2) < schedule.tolerance:
            return size
    return schedule.largest


@bare
def fewer(a: float, b: float, size: int, limit: int) -> float:
    """P(Delta < limit) for Delta | lambda ~ Poisson(lambda size), lambda ~ Gamma(a, b)."""
    log_stay, log_leave = math.log(b / (b + size)), math.log(size / (b + size))
    total = 0.0
    for k in range(limit):
        log_p = math.lgamma(a + k) - math.lgamma(a) - math.lgamma(k + 1.0)
        total += math.exp(log_p + a * log_stay + k * log_leave)
    return total


def read_schedule(batch: Any) -> Schedule:
    """A whole number, "adaptive", or a mapping of Schedule settings."""
    if isinstance(batch, str):
        if batch != "adaptive":
            raise unknown("batch", batch, ["adaptive"])
        return Schedule()
    if isinstance(batch, dict):
        return _read_adaptive(batch)
    return Schedule(fixed=_short("batch", whole("batch", batch)))


def _read_adaptive(given: dict[str, Any]) -> Schedule:
    known = [name for name in Schedule._fields if name != "fixed"]
    for name in given:
        if name not in known:
            raise unknown("batch", name, known)
    rule = Schedule(**given)
    whole("batch['smallest']", rule.smallest)
    _short("batch['largest']", whole("batch['largest']", rule.largest, least=rule.smallest))
    share("batch['outlier_weight']", rule.outlier_weight)
    share("batch['tolerance']", rule.tolerance)
    positive("batch['shape']", rule.shape)
    if not math.isfinite(positive("batch['rate']", rule.rate)):
        raise RegimekitError("batch['rate'] must be finite.")
    return rule._replace(
        outlier_weight=float(rule.outlier_weight),
        tolerance=float(rule.tolerance),
        shape=float(rule.shape),
        rate=float(rule.rate),
    )


def _short(argument: str, size: int) -> int:
    if size > LONGEST_BATCH:
        raise RegimekitError(f"{argument} must be at most {LONGEST_BATCH}, got {size}.")
    return size


@bare
def merge_due(batches: int, visits: int, width: int) -> bool:
    """Whether a regime is to be compared with the others of its particle (D11).

    It is with its 2nd, 4th, 8th, .. batch, once it has an observation for every coefficient.
    """
    return batches > 1 and batches & (batches - 1) == 0 and visits >= width
