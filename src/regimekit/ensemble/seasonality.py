"""Detection of seasons by the robust autocorrelation of the recent past.

Values are replaced by their ranks in the window, a slow level is removed, and peaks of the
autocorrelation that are significant and exceed their neighbours are proposed. Periods of clocks
and calendars need less evidence than others, and those suggested by the time stamps of the stream
still less. A proposed season becomes a member; its weight in the ensemble depends on its forecasts.

If days of hours or of half hours are found, weeks are tested directly: after the mean day is
removed, values one week apart must be more alike than those a smaller number of days apart.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST = 20  # observations before a season can be proposed
CYCLES, SURE = 3.0, 4.5  # least number of cycles; standard errors above zero
CALENDAR = (4, 7, 12, 24, 48, 52, 96, 144, 168, 288)  # quarters, days, months, hours, parts of them
CALENDAR_CYCLES, CALENDAR_SURE = 2.2, 3.0  # the latter of values; of steps it must be as sure
TOLD_CYCLES, TOLD_SURE = (1.4, 2.0), 2.0  # of the first suggested season, and of a further one
DAYS, WEEK = (24, 48), 7  # observations per day, and days per week
WEEK_LEAST = 0.1  # least difference of the correlations
_FEWEST = 5  # pairs of steps one season apart
_PLAIN, _STEPS = 0.4, 0.15  # least correlation of values, and of steps from one to the next


def propose(values: Array, most: int = 2, named: tuple[int, ...] = ()) -> list[int]:
    """Return the periods of up to `most` seasons, strongest first; NaN values are ignored.

    Args:
        values: the latest observations.
        most: seasons.
        named: periods suggested by the user or the time stamps; the shortest is tested first.

    Example:
        >>> wave = np.sin(2 * np.pi * np.arange(200) / 12)
        >>> propose(wave), propose(wave[:18]), propose(wave[:18], named=(12,))
        ([12], [], [12])
    """
    if np.isfinite(values).sum() < (2 if named else LEAST):
        return []
    z = ranks = _flat_ranks(values)
    found: list[int] = []
    for period in sorted(named):
        if len(found) < most and _supported(z, period, TOLD_CYCLES[bool(found)]):
            found.append(period)
            z = _without(z, period)
    while len(found) < most and z.size >= LEAST:
        period = _strongest(z, found, named or CALENDAR)
        if period == 0:
            break
        found.append(period)
        z = _without(z, period)
    return found if named or most < 2 else _with_weeks(ranks, found)


def _with_weeks(z: Array, found: list[int]) -> list[int]:
    """Return the day and the week if both are found in the ranks, else the periods given."""
    for day in DAYS:
        week = WEEK * day
        if week in found or (day in found and _has_weeks(z, day, week)):
            return [day, week]
    return found


def _has_weeks(z: Array, day: int, week: int) -> bool:
    """Return whether values one week apart are more alike than those other days apart.

    With x the ranks less their mean day, a day d, and w the observations of a week, the mean of

        x_t (x_{t-w} - mean of x_{t-d}, x_{t-2d}, .., x_{t-6d})

    must be positive by three standard errors of its daily means. The same is tested on the
    innovations of a first-order autoregression of x, for streams that drift.
    """
    if z.size < CALENDAR_CYCLES * week:
        return False
    rest = _without(z, day)
    rest -= rest.mean()
    slope = float(rest[1:] @ rest[:-1]) / max(float(rest @ rest), 1e-300)
    for x in (rest, rest[1:] - slope * rest[:-1]):
        others = sum(x[week - k : x.size - k] for k in range(day, week, day)) / (WEEK - 1)
        product = x[week:] * (x[:-week] - others)
        n_days = product.size // day
        excess = product[product.size - n_days * day :].reshape(n_days, day).mean(axis=1)
        mean, error = float(excess.mean()), float(excess.std(ddof=1)) / np.sqrt(n_days)
        if mean > max(CALENDAR_SURE * error, WEEK_LEAST * float(x @ x) / x.size):
            return True
    return False


def dominant(values: Array, shortest: int, cycles: int) -> int:
    """Return the period that most of the variance of the ranks repeats with, or 0.

    Their autocorrelation must exceed .4 at the period and at twice the period, and fall by more
    than .4 before it.

    Args:
        values: the latest observations, none missing.
        shortest: period, in observations.
        cycles: periods that the values must contain.

    Example:
        >>> dominant(np.sin(2 * np.pi * np.arange(200) / 25), 8, 5)
        25
    """
    z = _flat_ranks(values)
    rho, _ = _autocorrelation(z - z.mean())
    lag = np.arange(rho.size)
    possible = (lag >= shortest) & (lag <= z.size / cycles)
    # Noise makes small peaks on the first slope of a long, smooth season.
    possible &= rho - np.minimum.accumulate(rho) > _PLAIN
    period = _plain_peak(rho, np.where(possible, _PLAIN, np.inf), [])
    near = rho[period : period + period // 4 + 1]
    return period + int(np.argmax(near)) if period else 0


def _supported(z: Array, period: int, cycles: float) -> bool:
    """Return whether differences one period apart are significantly correlated."""
    steps = np.diff(z)
    now, ago = steps[period:], steps[:-period]
    if z.size < cycles * period or now.size < _FEWEST:
        return False
    size = float(np.sqrt((now @ now) * (ago @ ago)))
    return size > 0 and float(now @ ago) / size > max(TOLD_SURE / np.sqrt(now.size), _STEPS)


def _strongest(z: Array, known: list[int], calendar: tuple[int, ...]) -> int:
    """Return the period with the strongest correlation of values, else of differences; or 0."""
    rho, error = _autocorrelation(z - z.mean())
    period = _plain_peak(rho, _demanded(error, z.size, _PLAIN, CALENDAR_SURE, calendar), known)
    if period == 0:
        rho, error = _autocorrelation(np.diff(z))
        period = _peak(rho, _demanded(error, z.size, _STEPS, SURE, calendar), known)
    return _refined(rho[: int(z.size / CYCLES) + 1], period)


def _demanded(
    error: Array, n: int, least: float, enough: float, calendar: tuple[int, ...]
) -> Array:
    """Return the smallest significant correlation at each lag; infinity for lags too long."""
    lag = np.arange(error.size)
    usual = np.isin(lag, calendar)
    longest = np.where(usual, n / CALENDAR_CYCLES, n / CYCLES)
    sure = np.where(usual, enough, SURE)
    return np.where(lag <= longest, np.maximum(sure * error, least), np.inf)


def _flat_ranks(values: Array) -> Array:
    """Ranks in [-1, 1] of the values less a straight line; 0 where nothing was seen."""
    seen = np.isfinite(values)
    t = np.arange(values.size)
    line = _robust_line(t[seen].astype(float), values[seen])
    rest = values[seen] - line
    ordered = np.sort(rest)
    below = np.searchsorted(ordered, rest, "left") + np.searchsorted(ordered, rest, "right")
    z = np.zeros(values.size)
    z[seen] = below / rest.size - 1.0
    return z


def _robust_line(t: Array, y: Array) -> Array:
    """A line through the medians of the first and the last third."""
    third = max(1, y.size // 3)
    left, right = np.median(y[:third]), np.median(y[-third:])
    slope = (right - left) / max(np.median(t[-third:]) - np.median(t[:third]), 1.0)
    return np.asarray(left + slope * (t - np.median(t[:third])))


def _autocorrelation(z: Array) -> tuple[Array, Array]:
    """Correlation at lags up to half the length, and its standard error under independence."""
    longest = z.size // 2
    size = 1 << (2 * z.size - 1).bit_length()
    cover = np.fft.irfft(np.abs(np.fft.rfft(z, size)) ** 2, size)[: longest + 1]
    if cover[0] <= 1e-12 * z.size:
        return np.zeros(longest + 1), np.ones(longest + 1)
    pairs = z.size - np.arange(longest + 1)
    return cover / cover[0] * z.size / pairs, 1.0 / np.sqrt(pairs)


def _peak(rho: Array, least: Array, known: list[int]) -> int:
    """The shortest lag whose local maximum is high enough and nearly the highest one, or 0."""
    lag = np.arange(3, rho.size - 1)
    if lag.size == 0:
        return 0
    top = (rho[lag] >= rho[lag - 1]) & (rho[lag] >= rho[lag + 1]) & (rho[lag] >= least[lag])
    for period in known:
        top &= (np.abs(lag - period * np.round(lag / period)) != 1) & (lag != period)
    if not top.any():
        return 0
    high = 0.8 * rho[lag[top]].max()
    return int(lag[top & (rho[lag] >= high)][0])


def _plain_peak(rho: Array, least: Array, known: list[int]) -> int:
    """A peak that the correlation fell far below before it, and comes back to after it."""
    period = _peak(rho, least, known)
    if period == 0:
        return 0
    valley = rho[1:period].min()
    again = rho[2 * period - 1 : 2 * period + 2].max(initial=rho[period] - 0.2)
    return period if rho[period] - valley > 0.4 and again > 0.4 else 0


def _refined(rho: Array, period: int) -> int:
    """The period from the peaks at its multiples, which place it more exactly."""
    if period < 4:
        return period
    exact, k = float(period), 2
    while round(k * exact) + 2 < rho.size and k <= 20:
        near = max(1, min(2, period // 4))
        at = np.arange(round(k * exact) - near, round(k * exact) + near + 1)
        best = int(at[np.argmax(rho[at])])
        if rho[best] < 0.3 * rho[period]:
            break
        exact, k = best / k, k + 1
    return round(exact)


def _without(z: Array, period: int) -> Array:
    """The series less its mean at each phase of the season."""
    phase = np.arange(z.size) % period
    mean = np.bincount(phase, z, period) / np.maximum(np.bincount(phase, minlength=period), 1)
    return np.asarray(z - mean[phase])
