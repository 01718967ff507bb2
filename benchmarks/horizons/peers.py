"""Simple peers: point forecasts from every origin, with the spread of their own past errors.

Every peer gets the season length. Its forecast h steps ahead is Gaussian; the standard deviation is
1.25 times the mean absolute error that it made h steps ahead up to the origin.
"""

from __future__ import annotations

import numpy as np

_RATES = np.array([0.05, 0.1, 0.2, 0.4, 0.7, 1.0])


def _last(y: np.ndarray, horizon: int, period: int) -> np.ndarray:
    return np.repeat(y[:, None], horizon, axis=1)


def _mean(y: np.ndarray, horizon: int, period: int) -> np.ndarray:
    return np.repeat((np.cumsum(y) / np.arange(1, len(y) + 1))[:, None], horizon, axis=1)


def _drift(y: np.ndarray, horizon: int, period: int) -> np.ndarray:
    slope = (y - y[0]) / np.maximum(np.arange(len(y)), 1)
    return y[:, None] + slope[:, None] * np.arange(1, horizon + 1)


def _season_ago(y: np.ndarray, horizon: int, period: int) -> np.ndarray:
    t, h = np.arange(len(y))[:, None], np.arange(horizon)
    at = t + 1 - period + h % period
    return np.where(at >= 0, y[np.maximum(at, 0)], y[:, None])


def _season_mean(y: np.ndarray, horizon: int, period: int) -> np.ndarray:
    out = _season_ago(y, horizon, period)
    total, count = np.zeros(period), np.zeros(period)
    for t, value in enumerate(y):
        total[t % period] += value
        count[t % period] += 1
        phase = (t + 1 + np.arange(horizon)) % period
        if t >= period:
            out[t] = total[phase] / count[phase]
    return out


def _smoothing(y: np.ndarray, horizon: int, period: int, damping: float = 0.0) -> np.ndarray:
    """Return exponential smoothing with the best rate so far, with a damped slope if requested."""
    level, slope = np.full(_RATES.size, y[0]), np.zeros(_RATES.size)
    loss, out = np.zeros(_RATES.size), np.empty((len(y), horizon))
    steps = np.cumsum(damping ** np.arange(1, horizon + 1)) if damping else np.zeros(horizon)
    for t, value in enumerate(y):
        error = value - level - damping * slope
        loss += np.abs(error)
        rate = np.maximum(_RATES, 1.0 / (t + 1))
        level = level + damping * slope + rate * error
        slope = damping * slope + (0.2 * rate * error if t and damping else 0.0)
        best = int(np.argmin(loss))
        out[t] = level[best] + slope[best] * steps
    return out


def _damped_trend(y: np.ndarray, horizon: int, period: int) -> np.ndarray:
    return _smoothing(y, horizon, period, 0.95)


def _holt_winters(y: np.ndarray, horizon: int, period: int) -> np.ndarray:
    out = _smoothing(y, horizon, period)
    if period < 2 or len(y) < 2 * period:
        return out
    level = np.full(_RATES.size, y[:period].mean())
    season, loss = np.tile(y[:period] - y[:period].mean(), (_RATES.size, 1)), np.zeros(_RATES.size)
    for t in range(period, len(y)):
        phase = t % period
        error = y[t] - level - season[:, phase]
        loss += np.abs(error)
        level = level + _RATES * error
        season[:, phase] += 0.2 * (1 - _RATES) * error
        best = int(np.argmin(loss))
        out[t] = level[best] + season[best, (t + 1 + np.arange(horizon)) % period]
    return out


def _autoregression(y: np.ndarray, horizon: int, period: int, season: bool = False) -> np.ndarray:
    """Return iterated forecasts of recursive least squares on lags 1 to 3 and perhaps a season."""
    steps = [1, 2, 3] + ([period, period + 1] if season and period > 3 else [])
    deepest, width = max(steps), len(steps) + 1
    centre, scale = y[:20].mean(), y[:20].std() + 1e-12
    z = (y - centre) / scale
    theta, covariance = np.zeros(width), np.eye(width) * 10.0
    theta[1] = 1.0
    found = np.tile(theta, (len(z), 1))
    for t in range(deepest, len(z)):
        x = np.concatenate([[1.0], z[t - np.array(steps)]])
        gain = covariance @ x
        size = 1.0 + x @ gain
        theta = theta + gain * (z[t] - x @ theta) / size
        covariance -= np.outer(gain, gain) / size
        found[t] = theta
    reach = 1.5 * np.maximum.accumulate(np.abs(z))
    held = np.stack([np.concatenate([np.full(k, z[0]), z[: len(z) - k]]) for k in range(deepest)])
    out = np.empty((len(z), horizon))
    for h in range(horizon):
        ahead = found[:, 0] + sum(found[:, 1 + i] * held[k - 1] for i, k in enumerate(steps))
        ahead = np.clip(ahead, -reach, reach)
        out[:, h] = centre + scale * ahead
        held = np.concatenate([ahead[None], held[:-1]])
    return out


def _season_lags(y: np.ndarray, horizon: int, period: int) -> np.ndarray:
    return _autoregression(y, horizon, period, True)


def _theta(y: np.ndarray, horizon: int, period: int) -> np.ndarray:
    base = _holt_winters(y, horizon, period)
    t = np.arange(len(y))
    total, moment, k = np.cumsum(y), np.cumsum(t * y), t + 1.0
    slope = 12 * (moment - total * (k - 1) / 2) / np.maximum(k * (k * k - 1), 1)
    slope[:5] = 0.0
    return base + 0.5 * slope[:, None] * np.arange(1, horizon + 1)


PEERS = {
    "last value": _last,
    "mean": _mean,
    "drift": _drift,
    "season ago": _season_ago,
    "season mean": _season_mean,
    "smoothing": _smoothing,
    "damped trend": _damped_trend,
    "Holt-Winters": _holt_winters,
    "theta": _theta,
    "autoregression": _autoregression,
    "season lags": _season_lags,
}


def forecasts(
    y: np.ndarray, period: int, horizon: int, origins: list[int]
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return for each peer the means and standard deviations (origins, H) of its forecasts.

    Args:
        y: (n,) the series.
        period: its season; 1 for none.
        horizon: number of steps H.
        origins: numbers of observations known.
    """
    out = {}
    for name, peer in PEERS.items():
        if name.startswith("season") and period < 2:
            continue
        ahead = peer(y, horizon, period)
        sd = np.empty((len(origins), horizon))
        for h in range(horizon):
            error = np.abs(y[h + 1 :] - ahead[: len(y) - h - 1, h])
            for i, n in enumerate(origins):
                known = error[min(5, n // 3) : n - h - 1]
                sd[i, h] = 1.25 * known.mean() if known.size > 2 else np.abs(np.diff(y[:n])).mean()
        out[name] = (ahead[np.array(origins) - 1], np.maximum(sd, 1e-9 * (1 + np.abs(y).max())))
    return out
