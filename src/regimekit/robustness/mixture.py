"""What any contamination can do under p_k = (1 - eps) f_k + eps q.

Every regime says at least eps q(y) of an observation, and none says more than

    eps q(y) (1 + (1 - eps) / eps * sup f_k / q),

so totals of two regimes differ by a bounded amount, whatever y. A step of a mean is weighed by
r_k <= min(1, (1 - eps) f_k / (eps q)), which falls with exp(-z^2 / 2): r z^2 is bounded. q is
centred on the forecast, which the contamination moves too, so the bounds are carried from one
observation to the next. docs/robustness.md has the proofs; the names are those used there.

A *wild* candidate is a branch of a newborn that has yet to believe its first observation, for
sure and without weight (D10). It may go anywhere, and pays exp(-z^2 / 2) for it: everything about
it is a function of that z, tabulated over cells with the pessimistic end of each cell.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.ihmm.emissions.base import Array
from regimekit.ihmm.plan import RATE_MEMORY
from regimekit.ihmm.weights import BROAD_DOF, BROAD_SCALE, LARGEST_RATE
from regimekit.robustness.shapes import information, largest, log_det, push
from regimekit.robustness.weighted import Box

_CELLS = np.concatenate([[0.0], np.geomspace(1e-3, 1e5, 3000)])  # of z; see docs/robustness.md
_WIDE = 0.5 * BROAD_DOF * BROAD_SCALE**2  # 1 + |y - c|^2 / (dof scale^2) <= (1 + r^2/_WIDE)(..)


class Crowd(NamedTuple):
    """All candidates of all islands before the first observation that may be contaminated.

    Attributes:
        mean: (C, m) and `root` (C, m, m).
        wild: (C,) whether it may believe an observation for sure.
        designs: F of every observation that may be contaminated, in units of the noise.
        rates: (n,) least eps at each of them, as odds (1 - eps) / eps.
        branches: most wild candidates of any island.
    """

    mean: Array
    root: Array
    wild: NDArray[np.bool_]
    designs: list[Array]
    rates: Array
    branches: int


class Limits(NamedTuple):
    """What can have happened after 0 .. n observations.

    Attributes:
        gain: (n + 1, C) log evidence beyond that of "all were outliers", at most.
        reach: (n + 1, C) how far a mean has moved, in standard deviations of the row at first; of
            wild candidates, if it is the best of its newborn's.
    """

    gain: Array
    reach: Array


def least_odds(counts: Array, prior: tuple[float, float], n: int) -> Array:
    """(n,) the largest (1 - eps) / eps that n observations can lead to: all taken for regular."""
    outliers, others = float(counts[0]), float(counts[1])
    odds = np.empty(n)
    keep = 1.0 - 1.0 / RATE_MEMORY
    for b in range(n):
        rate = min(outliers / (outliers + others), LARGEST_RATE)
        odds[b] = (1.0 - rate) / rate
        outliers = prior[0] + keep * (outliers - prior[0])
        others = prior[1] + keep * (others - prior[1]) + 1.0
    return odds


def limits(crowd: Crowd) -> Limits:
    """Bounds on every candidate's evidence and movement, observation by observation."""
    n, tame = len(crowd.designs), ~crowd.wild
    gain, reach = np.zeros((n + 1, tame.size)), np.zeros((n + 1, tame.size))
    wilds = _Wild(n) if crowd.wild.any() else None
    shrunk = np.broadcast_to(np.eye(crowd.mean.shape[1]), crowd.root.shape).copy()
    for b, design in enumerate(crowd.designs):
        box = Box.of(crowd.mean, crowd.root, design, shrunk, reach[b])
        spread = np.sqrt(largest(box.high - np.eye(len(design))))
        wander = spread * reach[b]
        drift = wander[tame].max(initial=0.0)
        if wilds is not None:
            drift += crowd.branches * wilds.pull(spread[crowd.wild].max())
        apart = np.linalg.norm(box.location[:, None] - box.location[None, tame], axis=2)
        off_centre = apart.max(axis=1) + drift
        step = _Step.of(box, crowd.rates[b])
        told, product = step.bounds(off_centre + wander)
        gain[b + 1] = gain[b] + told
        reach[b + 1] = reach[b] + np.sqrt(product * push(spread**2, True))
        if wilds is not None:
            at = int(np.argmax(crowd.wild))
            wilds.observe(b, step.one(at), off_centre[at], float(spread[at]))
            gain[b + 1, crowd.wild], reach[b + 1, crowd.wild] = wilds.summary()
        shrunk += information(design @ crowd.root)
    return Limits(gain, reach)


class _Step(NamedTuple):
    """One observation: what the largest f / q of each candidate depends on.

    Attributes:
        constant: log of (1 - eps) / eps times the ratio of the densities at their centres.
        high: largest eigenvalue of the predictive covariance.
        half: (dof + d) / 2, the power of q's tail.
    """

    constant: Array
    high: Array
    half: float

    @classmethod
    def of(cls, box: Box, odds: float) -> _Step:
        d = box.low.shape[1]
        half = 0.5 * (BROAD_DOF + d)
        ratio = math.lgamma(0.5 * BROAD_DOF) - math.lgamma(half)
        ratio += d * (math.log(BROAD_SCALE) + 0.5 * math.log(0.5 * BROAD_DOF))
        return cls(math.log(odds) + ratio - 0.5 * log_det(box.low), largest(box.high), half)

    def one(self, at: int) -> _Step:
        """That of one candidate, to be set against many distances."""
        return _Step(self.constant[at : at + 1], self.high[at : at + 1], self.half)

    def log_ratio(self, distance: Array, squared: Array, paid: Array) -> Array:
        """log of (1 - eps) f / (eps q) at most, for z^2 up to `squared` and from `paid` on."""
        far = self.half * (np.log1p(distance**2 / _WIDE) + np.log1p(squared * self.high / _WIDE))
        return np.asarray(self.constant + far - 0.5 * paid)

    def bounds(self, distance: Array) -> tuple[Array, Array]:
        """sup log p / (eps q), and sup r z^2, at a distance from the centre of q."""
        best = np.maximum(2.0 * self.half - _WIDE / self.high, 0.0)
        told = np.logaddexp(0.0, self.log_ratio(distance, best, best))
        start = self.log_ratio(distance, np.zeros(1), np.zeros(1))
        tangent = np.maximum(4.0 * self.half - _WIDE / self.high, 0.0)
        tail = self.half * np.log1p(tangent * self.high / _WIDE)
        squared = np.maximum(4.0 * (start + tail) - tangent, 0.0)
        for _ in range(30):  # from above towards the largest z^2 with r = 1 still possible
            tail = self.half * np.log1p(squared * self.high / _WIDE)
            squared = np.minimum(squared, np.maximum(2.0 * (start + tail), 0.0))
        return told, np.maximum(squared, 2.0 * (1.0 + self.half))


class _Wild:
    """Branches that believe one observation for sure: by which one and, per cell, its z."""

    def __init__(self, n: int) -> None:
        self.low, self.high = _CELLS[:-1], _CELLS[1:]
        self.gain = np.full((n, self.low.size), -np.inf)
        self.reach = np.zeros((n, self.low.size))

    def pull(self, spread: float) -> float:
        """How far one of them can pull the centre of q: its distance times its mass."""
        mass = np.exp(np.minimum(self.gain, 0.0))
        return float((mass * self.reach).max(initial=0.0) * spread)

    def observe(self, b: int, step: _Step, off_centre: float, spread: float) -> None:
        """Those that believe observation b, and those that have believed an earlier one."""
        told, product = step.bounds(off_centre + spread * self.reach[:b])
        self.gain[:b] += told
        self.reach[:b] += np.sqrt(product * push(np.array(spread**2), True))
        at = np.array(off_centre)
        self.gain[b] = step.log_ratio(at, self.high**2, self.low**2)
        self.reach[b] = self.high * spread / math.sqrt(1.0 + spread**2)

    def summary(self) -> tuple[float, float]:
        """Largest gain, and the farthest that a branch with none to be ashamed of has gone."""
        far = np.where(self.gain >= 0.0, self.reach, 0.0).max(initial=0.0)
        return max(float(self.gain.max()), 0.0), float(far)
