"""The seasonal members: what the past says of the same phase of a season.

season ago            y_{t-s}
season ago and step   y_{t-1} + y_{t-s} - y_{t-s-1}
mean season           the latest seasons averaged, on a level that follows at a rate a

For the last, with the latest k seasons as the rows of a table Y, whose first column is of the same
phase as the next value, and i = 1, 2, .. counting back from the latest value,

    b = median of the differences between the means of successive rows / s     what a step adds
    S_j = median over rows of (Y_j - mean of the row) - b (j - (s - 1) / 2)    the season
    L = sum_i w_i (y_{t-i} - S + b i),   w_i ~ (1 - a)^i over the table        the level
    y_{t+h} is expected at L + b h + S_h

Averages are medians, so that a level which shifts in the middle of a season does not bend it. All
of it is read off the cleaned past, so there is nothing to learn but how large the errors are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.ensemble.shared_lags import SharedPast

Array = NDArray[np.float64]

RATES = (0.1, 0.4)  # at which the level under a mean season follows
CYCLES = 6  # seasons that a mean is taken over, at most
MEANS = tuple(f"mean season, level {a:g}" for a in RATES)
NAMES = ("season ago", "season ago and step", *MEANS)


class Seasonal(NamedTuple):
    """Scales of the seasonal members of one coordinate."""

    variance: Array  # (members,)
    seen: Array  # (1,)


def fresh() -> Seasonal:
    """Members that have seen nothing."""
    return Seasonal(np.ones(len(NAMES)), np.zeros(1))


def points(past: SharedPast, version: int, period: int, h: int) -> Array:
    """(members, d) what is expected h observations after the next one."""
    values, latest = past.values[version], past.seasons(version, period, CYCLES)
    ago = values[-period + h % period]
    step = values[-1] + ago - values[-period - 1]
    if len(latest) < 2 * period:
        return np.stack([ago, step] + [ago] * len(RATES))
    means = [mean_season(column, period, h) for column in latest.T]
    return np.concatenate([[ago, step], np.column_stack(means)])


def variances(state: Seasonal, period: int, h: int) -> Array:
    """(members,) how uncertain that is: a season ago once more for each season, steps add up."""
    grown = [1.0 + h // period, 1.0 + h, *(1.0 + h * a * a for a in RATES)]
    return np.asarray(state.variance * grown)


def season_of(past: SharedPast, version: int, period: int) -> Array | None:
    """(period, d) the usual season, the phase of the next value first; None before it is known."""
    latest = past.seasons(version, period, CYCLES)
    if len(latest) < 2 * period:
        return None
    return np.column_stack([profile(column, period)[0] for column in latest.T])


def mean_season(latest: Array, period: int, h: int) -> Array:
    """(rates,) the usual season on the level of now, h after the next value.

    Example:
        >>> t = np.arange(24)
        >>> mean_season(100.0 + t + np.array([0, 5, -5.0])[t % 3], 3, 0).round(6).tolist()
        [124.0, 124.0]
    """
    season, slope = profile(latest, period)
    back = np.arange(latest.size, 0, -1)
    level = _fading(latest.size) @ (latest - np.tile(season, latest.size // period) + slope * back)
    return np.asarray(level + slope * h + season[h % period])


def profile(latest: Array, period: int) -> tuple[Array, float]:
    """S and b: the season, the phase of the next value first, and what a step adds."""
    table = latest.reshape(-1, period)
    middle = table.mean(axis=1)
    slope = float(np.median(np.diff(middle))) / period
    season = np.median(table - middle[:, None], axis=0)
    season -= slope * (np.arange(period) - (period - 1) / 2)
    return season - season.mean(), slope


def _fading(n: int) -> Array:
    """(rates, n) weights that fade with the distance from now."""
    age = np.arange(n - 1, -1, -1)
    weight = np.array([(1.0 - a) ** age for a in RATES])
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))
