"""Seasons proposed from what has been seen: robust autocorrelation of the recent past.

Values are ranked within the window (an outlier is one more rank), a slow level is taken out, and
peaks of the autocorrelation that stand above their surroundings and above chance are proposed.
Whether a season helps is not decided here: it becomes a member and the mixture decides.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST = 40  # observations before a season can be proposed
CYCLES = 3  # how often a season must have been seen
SURE = 4.5  # standard errors above zero


def propose(values: Array, most: int = 2) -> list[int]:
    """Periods of up to `most` seasons, strongest first; NaN are left out of the sums.

    Example:
        >>> t = np.arange(200)
        >>> propose(np.sin(2 * np.pi * t / 12))
        [12]
    """
    n = values.size
    if np.isfinite(values).sum() < LEAST:
        return []
    z = _flat_ranks(values)
    longest = n // CYCLES
    rho, error = _autocorrelation(z, longest)
    found: list[int] = []
    while len(found) < most:
        peak = _peak(rho, error, found)
        if peak == 0:
            break
        found.append(peak)
        z = _without(z, peak)
        rho, error = _autocorrelation(z, longest)
    return found


def _flat_ranks(values: Array) -> Array:
    """Ranks in [-1, 1] of the values less a straight line; 0 where nothing was seen."""
    seen = np.isfinite(values)
    t = np.arange(values.size)
    line = _robust_line(t[seen].astype(float), values[seen])
    rest = values[seen] - line
    order = np.argsort(np.argsort(rest, kind="stable"), kind="stable")
    z = np.zeros(values.size)
    z[seen] = 2.0 * (order + 0.5) / order.size - 1.0
    return z


def _robust_line(t: Array, y: Array) -> Array:
    """A line through the medians of the first and the last third."""
    third = max(1, y.size // 3)
    left, right = np.median(y[:third]), np.median(y[-third:])
    slope = (right - left) / max(np.median(t[-third:]) - np.median(t[:third]), 1.0)
    return np.asarray(left + slope * (t - np.median(t[:third])))


def _autocorrelation(z: Array, longest: int) -> tuple[Array, Array]:
    """Correlation at lags 0 .. longest of the differences, and its standard error."""
    steps = np.diff(z)
    size = 1 << (2 * steps.size - 1).bit_length()
    power = np.abs(np.fft.rfft(steps, size)) ** 2
    cover = np.fft.irfft(power, size)[: longest + 1]
    if cover[0] <= 1e-12 * steps.size:
        return np.zeros(longest + 1), np.ones(longest + 1)
    pairs = steps.size - np.arange(longest + 1)
    return cover / cover[0] * steps.size / pairs, 1.0 / np.sqrt(pairs)


def _peak(rho: Array, error: Array, known: list[int]) -> int:
    """The lag with the highest significant local maximum, or 0; multiples of a found one are not new
    unless they are what is left."""
    best, height = 0, 0.0
    for lag in range(3, rho.size - 1):
        if rho[lag] < max(SURE * error[lag], 0.15) or lag in known:
            continue
        if rho[lag] >= rho[lag - 1] and rho[lag] >= rho[lag + 1] and rho[lag] > height * 1.05 + 0.02:
            best, height = lag, float(rho[lag])
    return best


def _without(z: Array, period: int) -> Array:
    """The series less its mean at each phase of the season."""
    phase = np.arange(z.size) % period
    mean = np.bincount(phase, z, period) / np.maximum(np.bincount(phase, minlength=period), 1)
    return np.asarray(z - mean[phase])
