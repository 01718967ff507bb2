"""Peers from other packages: statsforecast, flaircast and river.

The season length is given. Models of statsforecast and flaircast are fitted again at every origin
on the latest rows; every fit starts with its own rows, so the phase of the season is that of the
data. Those of river learn one observation at a time; their spread is 1.25 times the mean absolute
error at the same horizon from earlier origins.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

HISTORY = 500  # rows of a fit; more if the season needs them
STATSFORECAST = ("AutoETS", "AutoTheta", "AutoCES", "AutoARIMA", "MSTL")
RIVER = ("SNARIMAX", "HoltWinters")
NAMES = (*STATSFORECAST, "flaircast", *RIVER)
_LEVEL = 80
_Z = 1.2815515655446004  # of a central interval of 80 %
_STEP = 8  # observations between the earlier origins of a model of river
# flaircast takes the period as the name of a frequency.
_FREQUENCY = {4: "Q", 7: "D", 12: "M", 24: "H", 48: "30T", 52: "W"}


class Gaussian(NamedTuple):
    """Gaussian forecasts (N, H)."""

    mean: np.ndarray
    sd: np.ndarray

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the scores at the observations (N, H)."""
        z = (y - self.mean) / self.sd
        density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
        return np.asarray(self.sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)))

    def pit(self, y: np.ndarray) -> np.ndarray:
        """Return the distribution functions at the observations (N, H)."""
        return np.asarray(ndtr((y - self.mean) / self.sd))


class Draws(NamedTuple):
    """Forecasts as draws (N, S, H)."""

    values: np.ndarray

    def crps(self, y: np.ndarray) -> np.ndarray:
        """Return the scores at the observations (N, H), unbiased for the number of draws."""
        draws, n = np.sort(self.values, axis=1), self.values.shape[1]
        rank = (2 * np.arange(1, n + 1) - n - 1)[None, :, None]
        spread = (rank * draws).sum(axis=1) / (n * (n - 1))
        return np.asarray(np.abs(draws - y[:, None]).mean(axis=1) - spread)

    def pit(self, y: np.ndarray) -> np.ndarray:
        """Return the shares of draws below the observations (N, H)."""
        return np.asarray((self.values < y[:, None]).mean(axis=1))


Forecasts = Gaussian | Draws


def check(names: list[str]) -> None:
    """Raise an error if a name is not known or its package is not installed."""
    for name in names:
        if name not in NAMES:
            raise SystemExit(f"--peers: {name!r} is not known. Choose from {', '.join(NAMES)}.")
        package = "river" if name in RIVER else name if name == "flaircast" else "statsforecast"
        if importlib.util.find_spec(package) is None:
            raise SystemExit(f"--peers: {name} needs {package}; see make bench-venv.")


def forecasts(
    y: np.ndarray, periods: tuple[int, ...], horizon: int, origins: list[int], chosen: list[str]
) -> tuple[dict[str, Forecasts], dict[str, float]]:
    """Return the forecasts (origins, H) by peer, and seconds per forecast.

    The time of a model of river includes the updates between two origins, not the forecasts that
    its spread is learnt from.
    """
    out: dict[str, Forecasts] = {}
    cost: dict[str, float] = {}
    for name in chosen:
        if name == "MSTL" and not periods:
            continue
        begun, extra = time.process_time(), 0.0
        if name == "flaircast":
            out[name] = _flaircast(y, periods, horizon, origins)
        elif name in RIVER:
            out[name], extra = _river(name, y, periods, horizon, origins)
        else:
            out[name] = _statsforecast(name, y, periods, horizon, origins)
        cost[name] = (time.process_time() - begun - extra) / len(origins)
    return out, cost


def _recent(y: np.ndarray, periods: tuple[int, ...], n: int) -> np.ndarray:
    rows = max(HISTORY, 3 * max(periods, default=1))
    return np.ascontiguousarray(y[max(0, n - rows) : n])


def _usable(mean: np.ndarray, sd: np.ndarray, y: np.ndarray, origins: list[int]) -> Gaussian:
    """Replace failed forecasts by the last value with the spread of the differences."""
    for i, n in enumerate(origins):
        plain = np.std(np.diff(y[:n])) * np.sqrt(np.arange(1, mean.shape[1] + 1))
        failed = ~np.isfinite(mean[i]) | ~np.isfinite(sd[i])
        mean[i][failed], sd[i][failed] = y[n - 1], plain[failed]
    return Gaussian(mean, np.maximum(sd, 1e-9 * (1 + np.abs(y).max())))


def _statsforecast(
    name: str, y: np.ndarray, periods: tuple[int, ...], horizon: int, origins: list[int]
) -> Forecasts:
    from statsforecast import models

    period: Any = periods[0] if periods else 1
    if name == "MSTL":
        period = list(periods)
    elif name == "AutoETS" and period > 24:
        period = 1
    options = {"approximation": True} if name == "AutoARIMA" else {}
    model = getattr(models, name)(season_length=period, **options)
    mean, sd = np.full((2, len(origins), horizon), np.nan)
    for i, n in enumerate(origins):
        try:
            ahead = model.forecast(y=_recent(y, periods, n), h=horizon, level=[_LEVEL])
        except Exception:  # a fit that fails
            continue
        mean[i] = ahead["mean"]
        sd[i] = (ahead[f"hi-{_LEVEL}"] - ahead[f"lo-{_LEVEL}"]) / (2 * _Z)
    return _usable(mean, sd, y, origins)


def _flaircast(
    y: np.ndarray, periods: tuple[int, ...], horizon: int, origins: list[int]
) -> Forecasts:
    """Return draws of flaircast; a period without a frequency name is left out."""
    import flaircast

    frequency = _FREQUENCY.get(periods[0] if periods else 1, "Y")
    draws = [
        flaircast.forecast(_recent(y, periods, n), horizon, frequency, n_samples=400, seed=0)
        for n in origins
    ]
    return Draws(np.array(draws))


def _river(
    name: str, y: np.ndarray, periods: tuple[int, ...], horizon: int, origins: list[int]
) -> tuple[Forecasts, float]:
    """Return the forecasts, and the seconds for those that the spread is learnt from."""
    from river import linear_model, optim, preprocessing, time_series

    period = periods[0] if periods else 1
    if name == "SNARIMAX":
        linear = linear_model.LinearRegression(optimizer=optim.SGD(0.01), intercept_lr=0.3)
        model: Any = time_series.SNARIMAX(
            p=3,
            d=0,
            q=0,
            m=period,
            sp=int(period > 1),
            regressor=preprocessing.StandardScaler() | preprocessing.TargetStandardScaler(linear),
        )
    elif period > 1:
        model = time_series.HoltWinters(alpha=0.3, beta=0.01, gamma=0.1, seasonality=period)
    else:
        model = time_series.HoltWinters(alpha=0.3, beta=0.01)
    first = max(20, 2 * period + 2)
    points: dict[int, np.ndarray] = {}
    extra = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for n in range(1, origins[-1] + 1):
            model.learn_one(float(y[n - 1]))
            if n in origins:
                points[n] = _ahead(model, horizon)
            elif n >= first and n % _STEP == 0:
                begun = time.process_time()
                points[n] = _ahead(model, horizon)
                extra += time.process_time() - begun
    mean, sd = np.full((2, len(origins), horizon), np.nan)
    for i, n in enumerate(origins):
        mean[i] = points[n]
        for h in range(1, horizon + 1):
            errors = [abs(y[m + h - 1] - points[m][h - 1]) for m in points if m + h <= n]
            if len(errors) > 2:
                sd[i, h - 1] = 1.25 * np.mean(errors)
    return _usable(mean, sd, y, origins), extra


def _ahead(model: Any, horizon: int) -> np.ndarray:
    """Return the forecasts of a model of river; NaN if it has none."""
    try:
        return np.array(model.forecast(horizon=horizon), float)
    except (OverflowError, ZeroDivisionError, IndexError):
        return np.full(horizon, np.nan)
