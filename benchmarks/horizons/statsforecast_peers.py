"""Peers of statsforecast, refitted at every origin on the latest rows.

Every fit begins with its own rows, so the phase of the season is that of the data. The season
length is given; MSTL gets all of them.
"""

from __future__ import annotations

import importlib.util
import time
from typing import Any

import numpy as np

HISTORY = 500  # rows that a fit looks back on; more if the season needs them
_LEVEL = 80
_Z = 1.2815515655446004  # of a central interval of 80 %


def available() -> bool:
    """Return whether statsforecast is installed."""
    return importlib.util.find_spec("statsforecast") is not None


def models(periods: tuple[int, ...], chosen: list[str]) -> dict[str, Any]:
    """Return the chosen models for these seasons."""
    from statsforecast import models as sf

    period = periods[0] if periods else 1
    made = {
        "AutoETS": lambda: sf.AutoETS(season_length=period if period <= 24 else 1),
        "AutoTheta": lambda: sf.AutoTheta(season_length=period),
        "AutoCES": lambda: sf.AutoCES(season_length=period),
        "AutoARIMA": lambda: sf.AutoARIMA(season_length=period, approximation=True),
        "MSTL": lambda: sf.MSTL(season_length=list(periods) or [1]),
    }
    if not periods:
        made.pop("MSTL")
    return {name: make() for name, make in made.items() if name in chosen}


def forecasts(
    y: np.ndarray, periods: tuple[int, ...], horizon: int, origins: list[int], chosen: list[str]
) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], dict[str, float]]:
    """Return means and standard deviations (origins, H) by peer, and seconds per forecast.

    A fit that fails repeats the last value with the spread of the differences.
    """
    out: dict[str, tuple[np.ndarray, np.ndarray]] = {}
    cost: dict[str, float] = {}
    for name, model in models(periods, chosen).items():
        mean, sd = np.empty((len(origins), horizon)), np.empty((len(origins), horizon))
        begun = time.process_time()
        for i, n in enumerate(origins):
            rows = max(HISTORY, 3 * max(periods, default=1))
            recent = np.ascontiguousarray(y[max(0, n - rows) : n])
            try:
                ahead = model.forecast(y=recent, h=horizon, level=[_LEVEL])
                mean[i] = ahead["mean"]
                sd[i] = (ahead[f"hi-{_LEVEL}"] - ahead[f"lo-{_LEVEL}"]) / (2 * _Z)
            except Exception:
                mean[i] = recent[-1]
                sd[i] = np.nan
            plain = np.std(np.diff(recent)) * np.sqrt(np.arange(1, horizon + 1))
            failed = ~np.isfinite(mean[i]) | ~np.isfinite(sd[i])
            mean[i][failed], sd[i][failed] = recent[-1], plain[failed]
        cost[name] = (time.process_time() - begun) / len(origins)
        out[name] = (mean, np.maximum(sd, 1e-9 * (1 + np.abs(y).max())))
    return out, cost
