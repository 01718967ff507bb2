"""The largest share of a particle, told in few bytes and found again to the bit.

The log shares of a particle are those of a whole: the largest follows from the others. How many
floats lie between it and this is told in its place; where it is nearly all, how many steps of a
grid, since near zero floats are finer than any log that was computed.

exp and log are made of sums, products and quotients here, which are the same on every machine: its
own might not be.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel

MOST_LEFT = 2**31 - 1  # floats between the largest share and what it should be
_NEAR, _GRID = 2.0**-8, 2.0**60  # to zero, and the grid there, of which all is a multiple
_LN2 = (0.6931471803691238, 1.9082149292705877e-10)  # its first bits, and the rest
_EXP = tuple(1.0 / math.factorial(k) for k in range(13, -1, -1))  # of the series, last one first
_LOG = tuple(2.0 / k for k in range(23, 0, -2))


class Left(NamedTuple):
    """shares: (N, C) without the largest. told: (2, N) its place, and the floats between."""

    shares: np.ndarray
    told: np.ndarray


class Scratch(NamedTuple):
    """A float, and its bits in the same memory, (1,) each."""

    value: np.ndarray
    bits: np.ndarray


def leave_out(log_beta: NDArray[np.float64], n_regimes: NDArray[np.int64]) -> Left | None:
    """The shares but the largest of each particle; None where these do not lead to it."""
    n, width = log_beta.shape
    left = Left(np.zeros((n, width - 1)), np.zeros((2, n), np.int64))
    return left if _leave_out(log_beta, n_regimes, left, _scratch()) else None


def put_back(left: Left, n_regimes: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """All shares again; None where the largest is told to be in a place that is none."""
    n, width = left.shares.shape
    log_beta = np.zeros((n, width + 1))
    return log_beta if _put_back(left, n_regimes, log_beta, _scratch()) else None


def _scratch() -> Scratch:
    value = np.zeros(1)
    return Scratch(value, value.view(np.int64))


@kernel
def _leave_out(log_beta: np.ndarray, n_regimes: np.ndarray, out: Left, scratch: Scratch) -> bool:
    for i in range(n_regimes.size):
        n = n_regimes[i]
        largest = 0
        for l in range(n + 1):
            if log_beta[i, l] > log_beta[i, largest]:
                largest = l
        for l in range(n):
            out.shares[i, l] = log_beta[i, l + 1 if l >= largest else l]
        expected = _rest(out.shares[i], n)
        between = _places_between(expected, log_beta[i, largest], scratch)
        if not -MOST_LEFT <= between <= MOST_LEFT:
            return False
        bits = _bits(log_beta[i, largest], scratch)
        if _bits(_further(expected, between, scratch), scratch) != bits:
            return False
        out.told[0, i] = largest
        out.told[1, i] = between
    return True


@kernel
def _put_back(
    left: Left, n_regimes: np.ndarray, out_log_beta: np.ndarray, scratch: Scratch
) -> bool:
    for i in range(n_regimes.size):
        n, largest = n_regimes[i], left.told[0, i]
        if not 0 <= largest <= n:
            return False
        for l in range(n):
            out_log_beta[i, l + 1 if l >= largest else l] = left.shares[i, l]
        expected = _rest(left.shares[i], n)
        out_log_beta[i, largest] = _further(expected, left.told[1, i], scratch)
    return True


@kernel
def _places_between(first: float, second: float, scratch: Scratch) -> int:
    """Places of the grid, or floats, from the first to the second; neither is above zero."""
    if first > -_NEAR:
        steps = second * _GRID - math.floor(first * _GRID + 0.5)
        return int(steps) if abs(steps) <= MOST_LEFT else MOST_LEFT + 1
    # Of floats that are not above zero the bits differ by the floats between.
    return _bits(min(second, -_NEAR), scratch) - _bits(first, scratch)


@kernel
def _further(value: float, places: int, scratch: Scratch) -> float:
    """The number so many places further on."""
    if value > -_NEAR:
        return (math.floor(value * _GRID + 0.5) + places) / _GRID
    scratch.value[0] = value
    scratch.bits[0] += places
    return float(scratch.value[0])


@kernel
def _bits(value: float, scratch: Scratch) -> int:
    scratch.value[0] = value
    return int(scratch.bits[0])


@kernel
def _rest(log_shares: np.ndarray, n: int) -> float:
    """log(1 - the sum of n shares); 0 where they are no shares, or there are none."""
    total = 0.0
    for l in range(n):
        total += _exp(log_shares[l])
    if not 0.0 < total < 1.0:
        return 0.0
    if total < 0.25:
        return _log_ratio(-total / (2.0 - total))
    mantissa, exponent = math.frexp(1.0 - total)
    # From 1 / sqrt(2) to sqrt(2), where the series is short.
    if mantissa < 0.7071067811865476:
        mantissa *= 2.0
        exponent -= 1
    log = _log_ratio((mantissa - 1.0) / (mantissa + 1.0))
    return exponent * _LN2[0] + (log + exponent * _LN2[1])


@kernel
def _exp(x: float) -> float:
    """exp of a number that is not above zero by more than rounding."""
    if not x > -700.0:
        return 0.0
    n = math.floor(x / (_LN2[0] + _LN2[1]) + 0.5)
    r = (x - n * _LN2[0]) - n * _LN2[1]
    series = 0.0
    for c in _EXP:
        series = series * r + c
    return math.ldexp(series, int(n))


@kernel
def _log_ratio(s: float) -> float:
    """log((1 + s) / (1 - s)) for |s| below 0.18."""
    square, series = s * s, 0.0
    for c in _LOG:
        series = series * square + c
    return s * series
