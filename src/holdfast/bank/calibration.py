"""Intervals that hold what they say: an online correction on top of the mixture.

The mixture's law of Y is replaced by that of c + f (Y - c), c its mean, with a random factor f:

    shape    P(f = F_j) = w_j learnt by online EM, w += g r (p_j(y) / p(y) - w): heavier or lighter
             tails, a sharper middle; r is the probability that y was no outlier
    size     all factors times exp(s), s += G (1{y outside the 90 % interval} - 0.1): whatever the
             shape missed, coverage of 90 % is right in the long run (adaptive conformal inference)

Both steps are bounded: an outlier moves them as little as any value outside the interval, and the
corrected forecast is still a mixture of the same kind.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.bank import scores

Array = NDArray[np.float64]

FACTORS = np.array([0.35, 0.6, 1.0, 1.6, 2.6])
_START = np.array([0.0, 0.02, 0.96, 0.02, 0.0]) + 1e-3
_PRIOR = 60.0  # observations that the start is worth
_MEMORY = 500.0
_STEP = 0.02
_FAINT = 0.02  # a copy of the mixture with less weight is left out
_LEVEL = 0.9


class Law(NamedTuple):
    """A mixture as arrays."""

    share: Array
    location: Array  # (K, d)
    spread: Array  # (K, d, d)
    dof: Array


class Calibration:
    """Weights of the factors and the common size."""

    def __init__(self) -> None:
        self.shape = _START / _START.sum()
        self.size = 0.0
        self.count = 0.0
        self.held, self.told = 0, 0  # values inside the 90 % intervals, and values at all

    def apply(self, law: Law) -> Law:
        """The corrected mixture."""
        centre = law.share @ law.location
        keep = self.shape >= min(_FAINT, self.shape.max())
        weight = self.shape[keep] / self.shape[keep].sum()
        factor = FACTORS[keep] * math.exp(self.size)
        f = np.repeat(factor, law.share.size)
        n = factor.size
        return Law(
            np.outer(weight, law.share).ravel(),
            centre + f[:, None] * (np.tile(law.location, (n, 1)) - centre),
            f[:, None, None] ** 2 * np.tile(law.spread, (n, 1, 1)),
            np.tile(law.dof, n),
        )

    def learn(self, law: Law, y: Array, trust: float) -> None:
        """One observation that `law`, not yet corrected, was the forecast of.

        Args:
            law: the mixture before correction.
            y: the observation.
            trust: probability that it was no outlier.
        """
        for j in np.flatnonzero(~np.isnan(y)):
            self._learn_one(law, int(j), float(y[j]), trust)
        self.count += 1.0

    def _learn_one(self, law: Law, j: int, y: float, trust: float) -> None:
        location, scale = law.location[:, j].copy(), np.sqrt(law.spread[:, j, j])
        centre = float(law.share @ location)
        factor = FACTORS * math.exp(self.size)
        points = centre + (min(max(y, -1e150), 1e150) - centre) / factor
        density, below = np.zeros(factor.size), np.zeros(factor.size)
        scores.at_points(points, law.share, location, scale, law.dof, density, below)
        outside = abs(2.0 * float(self.shape @ below) - 1.0) > _LEVEL
        self.held, self.told = self.held + (not outside), self.told + 1
        share = self.shape * density / factor
        if share.sum() > 0:
            gain = trust / min(self.count + _PRIOR, _MEMORY)
            self.shape = self.shape + gain * (share / share.sum() - self.shape)
        step = _STEP * (float(outside) - (1.0 - _LEVEL)) / y_count(law)
        self.size = min(max(self.size + step, -1.5), 1.5)

    def pack(self) -> dict[str, Any]:
        """State for a snapshot."""
        state = {"size": self.size, "count": self.count, "held": self.held, "told": self.told}
        return state | {"shape": self.shape.tolist()}

    def unpack(self, values: dict[str, Any]) -> None:
        """Take up what `pack` gave."""
        self.shape = np.array(values["shape"])
        self.size, self.count = values["size"], values["count"]
        self.held, self.told = values["held"], values["told"]


def y_count(law: Law) -> int:
    """Coordinates."""
    return int(law.location.shape[1])
