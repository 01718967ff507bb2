"""Intervals that hold what they say: an online correction on top of the mixture.

The mixture's law of Y is replaced by that of c + f (Y - c), c its middle, with a random factor

    f = exp(s) F_j,   F = 0.5, 1, 1.8 with probability p / 2, 1 - p, p / 2

    size   s += G (1{y outside the 90 % interval} - 0.1)
    peak   p += H (1{y inside the 50 % interval} - 0.5), at most 1, none below 0

(adaptive conformal inference, Gibbs and Candes 2021, at two levels): whatever the members got
wrong, coverage of 90 % is right in the long run, and that of 50 % where values crowd in the middle.
Both steps are bounded, so an outlier counts as any value outside, and the corrected forecast is
still a mixture of the same kind: quantiles, densities and draws agree with each other.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.bank import scores
from holdfast.checks import Values

Array = NDArray[np.float64]

FACTORS = np.array([0.5, 1.0, 1.8])
_SIZE_STEP = _PEAK_STEP = 0.02  # G in the long run, and H
_SLOWER = 10  # after n observations G is 1 / (n + this), until that is smaller
_LARGEST = 1.5  # of the logarithm of the size
_FLATTEST = -0.3  # below 0 the peak is none, but it must be earned again
_FAINT = 0.02  # a peak below this is none
_OUTER, _INNER = 0.9, 0.5
_TAIL = 0.05  # of the shares at either end count as no farther away than the rest


class Components(NamedTuple):
    """A mixture as arrays."""

    share: Array
    location: Array  # (K, d)
    spread: Array  # (K, d, d)
    dof: Array


class Calibration:
    """The size and the peak of the correction, and how often 90 % intervals held."""

    def __init__(self) -> None:
        self.size = 0.0
        self.peak = 0.0
        self.held, self.told = 0, 0

    def apply(self, components: Components) -> Components:
        """The corrected mixture."""
        columns = components.location.T
        centre = np.array([_middle(components.share, column) for column in columns])
        weight, factor = self._factors()
        f, n = np.repeat(factor, components.share.size), factor.size
        return Components(
            np.outer(weight, components.share).ravel(),
            centre + f[:, None] * (np.tile(components.location, (n, 1)) - centre),
            f[:, None, None] ** 2 * np.tile(components.spread, (n, 1, 1)),
            np.tile(components.dof, n),
        )

    def learn(self, components: Components, y: Array) -> None:
        """One observation that `components`, not yet corrected, was the forecast of."""
        seen = np.flatnonzero(~np.isnan(y))
        weight, factor = self._factors()
        step = max(_SIZE_STEP, 1.0 / (self.told + _SLOWER))
        for j in seen:
            away = abs(2.0 * self._below(components, int(j), float(y[j]), weight, factor) - 1.0)
            self.size += step * (float(away > _OUTER) - (1.0 - _OUTER)) / seen.size
            self.peak += _PEAK_STEP * (float(away <= _INNER) - _INNER) / seen.size
            self.held, self.told = self.held + (away <= _OUTER), self.told + 1
        self.size = min(max(self.size, -_LARGEST), _LARGEST)
        self.peak = min(max(self.peak, _FLATTEST), 1.0)

    def _factors(self) -> tuple[Array, Array]:
        size = math.exp(self.size)
        if self.peak < _FAINT:
            return np.ones(1), np.full(1, size)
        half = self.peak / 2.0
        return np.array([half, 1.0 - self.peak, half]), size * FACTORS

    def _below(
        self, components: Components, j: int, y: float, weight: Array, factor: Array
    ) -> float:
        """P(Y_j <= y) under the corrected law."""
        location, scale = components.location[:, j].copy(), np.sqrt(components.spread[:, j, j])
        centre = _middle(components.share, location)
        points = centre + (min(max(y, -1e150), 1e150) - centre) / factor
        below = np.zeros(factor.size)
        scores.below_points(points, components.share, location, scale, components.dof, below)
        return float(weight @ below)

    def pack(self) -> dict[str, Any]:
        """State for a snapshot."""
        return {"size": self.size, "peak": self.peak, "held": int(self.held), "told": self.told}

    def unpack(self, values: Values) -> None:
        """Take up what `pack` gave."""
        self.size = values.number("size", -_LARGEST, _LARGEST)
        self.peak = values.number("peak", _FLATTEST, 1.0)
        self.told = values.whole("told")
        self.held = values.whole("held", most=self.told)


def _middle(share: Array, location: Array) -> float:
    """Mean of the locations with both tails drawn in: a faint component far away moves it little.

    Everything is stretched around it, so the plain mean would let such a component, a regime that
    has not been opened yet, move all others.
    """
    order = np.argsort(location)
    below = np.cumsum(share[order])
    ends = location[order][np.searchsorted(below, below[-1] * np.array([_TAIL, 1.0 - _TAIL]))]
    return float(share @ np.clip(location, ends[0], ends[1]))
