"""Peers that forecast one step ahead, each as predict and learn; none is tuned to a series.

A peer that has no forecast of its own, because it has seen too little or because its library
failed, repeats the latest value and says so by `own`: the report counts such rows.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

import holdfast as hf
from holdfast.adapters.making import default_model

HISTORY = 500  # rows that a refitted peer looks back on
REFIT, GROWTH = 50, 1.1  # refitted after so many rows, or when the past has grown so much
Z90 = 1.6448536269514722


class Peer(Protocol):
    """predict the next value, then learn it."""

    own: bool  # whether the latest forecast was the peer's own

    def predict(self) -> hf.Forecast: ...

    def learn(self, y: float) -> None: ...


class OfHoldfast:
    """Any model of holdfast by name."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.model = hf.make(name, **settings)
        self.own = True

    def predict(self) -> hf.Forecast:
        return self.model.predict()

    def learn(self, y: float) -> None:
        self.model.update(y)


class OfRiver:
    """A point forecaster of river with the spread of its own past errors, as a Gaussian."""

    def __init__(self, model: Any) -> None:
        self.model, self.latest, self.own = model, 0.0, True
        self.squares, self.count = 1.0, 1  # one error of size 1 before any is seen

    def predict(self) -> hf.Forecast:
        self.point = self._point()
        return hf.Forecast.gaussian(self.point, self.squares / self.count)

    def learn(self, y: float) -> None:
        if math.isnan(y):
            return
        self.squares += (y - self.point) ** 2
        self.count += 1
        self.model.learn_one(y)
        self.latest = y

    def _point(self) -> float:
        try:
            value = float(self.model.forecast(1)[0])
        except Exception:  # whatever it is, the row is counted as not its own
            value = math.nan
        self.own = math.isfinite(value)
        return value if self.own else self.latest


class Ets:
    """statsforecast's AutoETS on the latest rows: refitted at times, run on in between."""

    def __init__(self, period: int) -> None:
        from statsforecast.models import AutoETS

        self.model, self.period = AutoETS(season_length=period), period
        self.past: list[float] = []
        self.fitted_at, self.own = 0, False

    def predict(self) -> hf.Forecast:
        self.own = len(self.past) >= max(10, 2 * self.period + 1)
        if not self.own:
            return hf.Forecast.gaussian(self.past[-1] if self.past else 0.0, 1.0)
        recent = np.array(self.past[-HISTORY:])
        if len(self.past) >= min(self.fitted_at + REFIT, GROWTH * self.fitted_at):
            self.model.fit(recent)
            self.fitted_at = len(self.past)
        ahead = self.model.forward(recent, h=1, level=[90])
        sd = (float(ahead["hi-90"][0]) - float(ahead["lo-90"][0])) / (2 * Z90)
        return hf.Forecast.gaussian(float(ahead["mean"][0]), max(sd, 1e-9) ** 2)

    def learn(self, y: float) -> None:
        self.past.append(self.past[-1] if math.isnan(y) and self.past else y)


def _snarimax(period: int) -> OfRiver:
    from river import time_series

    return OfRiver(time_series.SNARIMAX(p=2, d=0, q=1, m=max(period, 1), sp=int(period > 1), sq=0))


def _holt_winters(period: int) -> OfRiver:
    from river import time_series

    season = {"gamma": 0.1, "seasonality": period} if period > 1 else {}
    return OfRiver(time_series.HoltWinters(alpha=0.3, beta=0.1, **season))


def _least_squares(period: int) -> OfHoldfast:
    steps = (1, 2, period) if period > 2 else (1, 2)
    return OfHoldfast("least_squares", features=hf.features.intercept() + hf.features.lags(*steps))


PEERS = {
    "holdfast": lambda period: OfHoldfast(default_model()),
    "last_value": lambda period: OfHoldfast("last_value"),
    "seasonal_last_value": lambda period: OfHoldfast("seasonal_last_value", period=max(period, 1)),
    "least_squares": _least_squares,
    "river_snarimax": _snarimax,
    "river_holt_winters": _holt_winters,
    "statsforecast_auto_ets": Ets,
}
