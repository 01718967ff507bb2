"""Peers that forecast one step ahead, each as predict and learn; none is tuned to a series.

A peer that has no forecast of its own, because it has seen too little or because its library
failed, borrows that of `last_value`, spread and all, and says so by `own`: the report counts such
rows. A library that gives points only is lent the spread that the trivial forecasters have: a t
distribution of its own past errors.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

import holdfast as hf
from holdfast.adapters.making import default_model
from holdfast.models.spread import Spread

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


class Borrower:
    """A peer that falls back on `last_value`."""

    def __init__(self) -> None:
        self.lender, self.own = hf.make("last_value"), False

    def borrowed(self) -> hf.Forecast:
        self.own = False
        return self.lender.predict()

    def learn(self, y: float) -> None:
        self.lender.update(y)


class OfRiver(Borrower):
    """A point forecaster of river with the spread of its own past errors."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model, self.spread = model, Spread(1.0, 1)
        self.point = math.nan

    def predict(self) -> hf.Forecast:
        try:
            self.point = float(self.model.forecast(1)[0])
        except Exception:  # whatever it is, the row is counted as not its own
            self.point = math.nan
        if not math.isfinite(self.point):
            return self.borrowed()
        self.own = True
        return self.spread.forecast(np.array([self.point]), np.ones(1))

    def learn(self, y: float) -> None:
        super().learn(y)
        if math.isnan(y):
            return
        if math.isfinite(self.point):
            self.spread.learn(np.array([y]), np.array([self.point]), np.ones(1))
        self.model.learn_one(y)


class Ets(Borrower):
    """statsforecast's AutoETS on the latest rows: refitted at times, run on in between."""

    def __init__(self, period: int) -> None:
        from statsforecast.models import AutoETS

        super().__init__()
        self.model, self.period = AutoETS(season_length=period), period
        self.past: list[float] = []
        self.fitted_at = 0

    def predict(self) -> hf.Forecast:
        if len(self.past) < max(10, 2 * self.period + 1):
            return self.borrowed()
        self.own = True
        recent = np.array(self.past[-HISTORY:])
        if len(self.past) >= min(self.fitted_at + REFIT, GROWTH * self.fitted_at):
            self.model.fit(recent)
            self.fitted_at = len(self.past)
        ahead = self.model.forward(recent, h=1, level=[90])
        sd = (float(ahead["hi-90"][0]) - float(ahead["lo-90"][0])) / (2 * Z90)
        return hf.Forecast.gaussian(float(ahead["mean"][0]), max(sd, 1e-9) ** 2)

    def learn(self, y: float) -> None:
        super().learn(y)
        if self.past or not math.isnan(y):
            self.past.append(self.past[-1] if math.isnan(y) else y)


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
