"""The simple members: smoothing, local trends, last values and least squares, in one kernel.

Each predicts a Student-t around its point with a scale learnt from its own errors,

    v += g (w e^2 - v),   w = (nu + 1) / (nu + e^2 / v),   g = max(1 / (n + 3), 1 / memory)

the robust estimate of a t with nu degrees of freedom. The same w weighs what it learns from y.

    smoothing     level += a w e, slope += b w e     a = max(limit, gain of least squares after n)
    least squares on the design of lags, forgetting slowly, each observation weighed by w

Gains that begin as those of least squares make the first forecasts good: after n observations the
running mean has a = 1 / n, the line a = 2 (2n - 1) / (n (n + 1)), b = 6 / (n (n + 1)).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel

Array = NDArray[np.float64]

DOF = 8.0
PRIOR = 3.0  # observations that the first guess of the scale is worth
MEMORY = 100.0  # observations that a scale remembers
FORGET = 0.998  # of least squares, per observation
RIDGE = 100.0  # prior variance of its coefficients, in units of the noise

# name -> (limit of a, limit of b, has a slope)
SMOOTHERS: dict[str, tuple[float, float, float]] = {
    "running mean": (0.0, 0.0, 0.0),
    "smoothing .05": (0.05, 0.0, 0.0),
    "smoothing .2": (0.2, 0.0, 0.0),
    "smoothing .5": (0.5, 0.0, 0.0),
    "last value": (1.0, 0.0, 0.0),
    "slow trend": (0.02, 0.0001, 1.0),
    "trend": (0.2, 0.011, 1.0),
    "fast trend": (0.9, 0.05, 1.0),
}
_RATES = np.array(list(SMOOTHERS.values()))


class Smoothers(NamedTuple):
    """State of the smoothing members of one coordinate: (J,) each."""

    level: Array
    slope: Array
    variance: Array
    seen: Array  # (1,) observations learnt


class Squares(NamedTuple):
    """State of one least-squares member: coefficients, their covariance over the noise, scale."""

    theta: Array
    cover: Array
    variance: Array  # (1,)
    seen: Array  # (1,)


def smoothers() -> Smoothers:
    """Fresh smoothing members."""
    n = len(SMOOTHERS)
    return Smoothers(np.zeros(n), np.zeros(n), np.ones(n), np.zeros(1))


def squares(width: int) -> Squares:
    """A fresh least-squares member on a design of this width."""
    return Squares(np.zeros(width), np.eye(width) * RIDGE, np.ones(1), np.zeros(1))


@kernel
def learn_scale(variance: float, error: float, count: float) -> tuple[float, float]:
    """The scale after one error, and the weight of that error."""
    far = 1e90 * math.sqrt(variance)
    error = min(max(error, -far), far)
    w = (DOF + 1.0) / (DOF + error * error / variance)
    gain = max(1.0 / (count + PRIOR), 1.0 / MEMORY)
    return max(variance + gain * (w * error * error - variance), 1e-12), w


@kernel
def learn_scales(variance: Array, error: Array, count: Array) -> None:
    """Scales of members whose points come from elsewhere."""
    for j in range(variance.size):
        variance[j] = learn_scale(variance[j], error[j], count[0])[0]
    count[0] += 1.0


@kernel
def gain(rates: Array, n: float) -> tuple[float, float]:
    """How far level and slope follow the n-th observation."""
    if rates[2] == 0.0:
        return max(rates[0], 1.0 / n), 0.0
    a = max(rates[0], 2.0 * (2.0 * n - 1.0) / (n * (n + 1.0)))
    b = max(rates[1], 6.0 / (n * (n + 1.0))) if n > 1.0 else 0.0
    return a, b


@kernel
def smooth(state: Smoothers, rates: Array, y: float, trust: float) -> None:
    """Learn one observation; with `trust` 1 it moves levels fully, whatever its weight."""
    n = state.seen[0] + 1.0
    for j in range(state.level.size):
        expected = state.level[j] + state.slope[j]
        error = y - expected
        if n > 1.0:
            state.variance[j], w = learn_scale(state.variance[j], error, n - 1.0)
        else:
            w = 1.0
        w = max(min(w, 1.0), trust)
        a, b = gain(rates[j], n)
        if rates[j, 0] == 1.0:
            w = 1.0
        error = min(max(error, -1e90), 1e90)
        state.level[j] = expected + a * w * error
        state.slope[j] += b * w * error
    state.seen[0] = n


@kernel
def drift(state: Smoothers) -> None:
    """One observation was missing: trends go on."""
    for j in range(state.level.size):
        state.level[j] += state.slope[j]


@kernel
def regress(state: Squares, x: Array, y: float, trust: float, forget: float) -> None:
    """Weighted recursive least squares, one observation."""
    m = x.size
    gain = np.zeros(m)
    leverage, expected = 1.0, 0.0
    for i in range(m):
        expected += state.theta[i] * x[i]
        for j in range(m):
            gain[i] += state.cover[i, j] * x[j]
        leverage += x[i] * gain[i]
    error = y - expected
    state.variance[0], w = learn_scale(state.variance[0], error / leverage**0.5, state.seen[0])
    w = max(w, trust)
    s = leverage - 1.0 + 1.0 / w
    for i in range(m):
        state.theta[i] += gain[i] * error / s
    for i in range(m):
        for j in range(m):
            state.cover[i, j] = (state.cover[i, j] - gain[i] * gain[j] / s) / forget
    top = 0.0
    for i in range(m):
        top = max(top, state.cover[i, i])
    if top > RIDGE * 100.0:  # nothing new came this way for long: do not forget for ever
        for i in range(m):
            for j in range(m):
                state.cover[i, j] *= RIDGE * 100.0 / top
    state.seen[0] += 1.0


def learn(state: Smoothers, y: float, trust: float = 0.0) -> None:
    """Learn one observation, in units."""
    smooth(state, _RATES, y, trust)


def gains(state: Smoothers) -> tuple[Array, Array]:
    """How far levels and slopes follow the next observation: (J,) each."""
    n = float(state.seen[0]) + 1.0
    pairs = np.array([gain(rates, n) for rates in _RATES])
    return pairs[:, 0], pairs[:, 1]
