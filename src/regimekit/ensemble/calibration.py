"""Intervals that hold what they say: an online correction on top of the mixture.

The mixture's law of Y is replaced by that of c + exp(s) (Y' - c), c its middle, where the peak p
says what Y' is. A component of location m and spread R R' is one of m + R z, z standard.

    p > 0   sharper in the middle: Y' = c + F (Y - c),
            F = 0.5, 1, 1.8 with probability p / 2, 1 - p, p / 2
    p < 0   flatter: with probability -p, m + R z becomes m + R (0.6 z + 0.8 e),
            e = -1 or 1 with even chances

    size   s += G o,   o = (o_80 + 2 o_90 + o_95) / 4,  o_l = 1{y outside l %} - (1 - l / 100)
    peak   p += H (1{y inside 50 %} - 0.5 + o), between -1 and 1

(adaptive conformal inference, Gibbs and Candes 2021, at two places): the size answers for the outer
levels, the peak for what is wrong in the middle and not outside, so that a law that is too wide
throughout is not sharpened first. Both are sums of what coverage was off by, and both are bounded,
so the mean of it goes to 0 at 50 % and over the outer levels together, whatever the members got
wrong, as long as the bounds are not reached. Nothing but chance moves the peak where the shape is
right; if it could only sharpen, chance would move it one way. All steps are bounded, so an outlier
counts as any value outside, and the corrected forecast is still a mixture of the same kind:
quantiles, densities and draws agree with each other.

s follows what the last few dozen observations were like, which says something of the next one.
Beyond that one the usual size counts, the mean of s over some two hundred observations.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.ensemble import crps_grid as scores
from regimekit.serialization.validation import Values

Array = NDArray[np.float64]

_SHARPER = np.array([0.5, 1.0, 1.8])  # F
_NARROW, _APART = 0.6, 0.8  # their squares sum to 1: the flatter law has the same covariance
_SIGNS = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])  # columns not correlated
_SIZE_STEP = _PEAK_STEP = 0.04  # G in the long run, and H
_SLOWER = 10  # after n observations G is 1 / (n + this), until that is smaller
_USUAL_STEP = 0.005  # of the usual size
_LARGEST = 1.5  # of the logarithm of the size
_FAINT = 0.02  # a peak nearer to 0 is none
_INNER, _OUTER = 0.5, np.array([0.8, 0.9, 0.95])
_COUNTS = np.array([0.25, 0.5, 0.25])  # how much each outer level does
_CHECKED = 0.9  # the level whose coverage is told
_TAIL = 0.05  # of the shares at either end count as no farther away than the rest


class Components(NamedTuple):
    """A mixture as arrays."""

    share: Array
    location: Array  # (K, d)
    spread: Array  # (K, d, d)
    dof: Array


class Split(NamedTuple):
    """What each component becomes: parts with probabilities."""

    share: Array
    factor: Array  # of the distance from the middle
    narrow: Array  # of the root of the spread
    apart: Array  # (parts, d), in roots of the spread


class Calibration:
    """The size and the peak of the correction, and how often 90 % intervals held."""

    def __init__(self) -> None:
        self.size = self.usual = 0.0
        self.peak = 0.0
        self.held, self.told = 0, 0

    def apply(self, components: Components, far: bool = False) -> Components:
        """The corrected mixture, of the next observation or of one that is farther away."""
        share, location, spread, dof = components
        size, d = math.exp(self.usual if far else self.size), location.shape[1]
        parts = _split(self.peak, d)
        n = parts.share.size
        centre = np.array([_middle(share, column) for column in location.T])
        away = parts.factor[:, None, None] * (location - centre)
        if parts.apart.any():
            root = np.linalg.cholesky(spread) if d > 1 else np.sqrt(spread)
            away += np.einsum("kij,nj->nki", root, parts.apart)
        return Components(
            np.outer(parts.share, share).ravel(),
            centre + size * away.reshape(-1, d),
            np.repeat(size * parts.narrow, len(share))[:, None, None] ** 2
            * np.tile(spread, (n, 1, 1)),
            np.tile(dof, n),
        )

    def learn(self, corrected: Components, y: Array) -> None:
        """One observation, and what `apply` had made of its forecast."""
        seen = np.flatnonzero(~np.isnan(y))
        step = max(_SIZE_STEP, 1.0 / (self.told + _SLOWER))
        for j in seen:
            away = abs(2.0 * _below(corrected, int(j), float(y[j])) - 1.0)
            outside = float(_COUNTS @ ((away > _OUTER) - (1.0 - _OUTER)))
            self.size += step * outside / seen.size
            self.peak += _PEAK_STEP * (float(away <= _INNER) - _INNER + outside) / seen.size
            self.held, self.told = self.held + (away <= _CHECKED), self.told + 1
        self.size = min(max(self.size, -_LARGEST), _LARGEST)
        slowly = max(_USUAL_STEP, 1.0 / (self.told + _SLOWER))
        self.usual += slowly * (self.size - self.usual)
        self.peak = min(max(self.peak, -1.0), 1.0)

    def pack(self) -> dict[str, Any]:
        """State for a snapshot."""
        learnt = {"size": self.size, "usual": self.usual, "peak": self.peak}
        return learnt | {"held": int(self.held), "told": self.told}

    def unpack(self, values: Values) -> None:
        """Take up what `pack` gave."""
        self.size = values.number("size", -_LARGEST, _LARGEST)
        self.usual = values.number("usual", -_LARGEST, _LARGEST)
        self.peak = values.number("peak", -1.0, 1.0)
        self.told = values.whole("told")
        self.held = values.whole("held", most=self.told)


def _split(peak: float, d: int) -> Split:
    """Of components in d dimensions."""
    if abs(peak) < _FAINT:
        return Split(np.ones(1), np.ones(1), np.ones(1), np.zeros((1, d)))
    if peak > 0.0:
        share = np.array([peak / 2.0, 1.0 - peak, peak / 2.0])
        return Split(share, _SHARPER, _SHARPER, np.zeros((3, d)))
    # All signs of all coordinates would be 2^d parts; among four no two neighbours go together.
    signs = _SIGNS[:, np.arange(d) % 3] if d > 1 else _SIGNS[::2, :1]
    n = len(signs)
    return Split(
        np.append(np.full(n, -peak / n), 1.0 + peak),
        np.ones(n + 1),
        np.append(np.full(n, _NARROW), 1.0),
        np.vstack([_APART * signs, np.zeros((1, d))]),
    )


def _below(components: Components, j: int, y: float) -> float:
    """P(Y_j <= y)."""
    location, scale = components.location[:, j].copy(), np.sqrt(components.spread[:, j, j])
    below = np.zeros(1)
    points = np.array([min(max(y, -1e150), 1e150)])
    scores.below_points(points, components.share, location, scale, components.dof, below)
    return float(below[0])


def _middle(share: Array, location: Array) -> float:
    """Mean of the locations with both tails drawn in: a faint component far away moves it little.

    Everything is stretched around it, so the plain mean would let such a component, a regime that
    has not been opened yet, move all others.
    """
    order = np.argsort(location)
    below = np.cumsum(share[order])
    ends = location[order][np.searchsorted(below, below[-1] * np.array([_TAIL, 1.0 - _TAIL]))]
    return float(share @ np.clip(location, ends[0], ends[1]))
