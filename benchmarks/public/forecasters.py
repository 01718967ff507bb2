"""Peers that forecast one step ahead, each with `predict` and `learn`; none is tuned to a series.

A peer without a forecast, because it has too few observations or because its library failed, uses
that of `last_value` with its spread, and sets `own` to False: the report counts such rows. A
library with point forecasts only gets the spread of the trivial forecasters: a t distribution of
its own past errors. Other libraries get the series in its own units, for their multiplicative
parts, except `river_snarimax`, which learns scaled values better.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

import regimekit as rk
from benchmarks.public.series import Series
from regimekit.baselines.naive import Spread
from regimekit.core.registry import DEFAULT_MODEL

HISTORY = 500  # rows of a refitted peer
REFIT, GROWTH = 50, 1.1  # rows and growth of the past between two fits
Z90 = 1.6448536269514722


class Peer(Protocol):
    """Predict the next value, then learn it."""

    own: bool  # whether the latest forecast is of the peer itself

    def predict(self) -> rk.Forecast: ...

    def learn(self, y: float) -> None: ...


class OfRegimekit:
    """A model of regimekit by name."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.model = rk.make(name, **settings)
        self.own = True

    def predict(self) -> rk.Forecast:
        return self.model.predict()

    def learn(self, y: float) -> None:
        self.model.update(y)


class Guest:
    """A peer of another library, which works in the units of the series."""

    def __init__(self, one: Series) -> None:
        self.centre, self.scale, self.period = one.centre, one.scale, one.period
        self.lender, self.own = rk.make("last_value"), False

    def borrowed(self) -> rk.Forecast:
        self.own = False
        return self.lender.predict()

    def learn(self, y: float) -> None:
        self.lender.update(y)


class OfRiver(Guest):
    """A point forecaster of river with the spread of its own past errors."""

    def __init__(self, one: Series, model: Any) -> None:
        super().__init__(one)
        self.model, self.spread = model, Spread(1.0, 1)
        self.point = math.nan

    def predict(self) -> rk.Forecast:
        try:
            self.point = (float(self.model.forecast(1)[0]) - self.centre) / self.scale
        except Exception:  # after any failure the forecast is borrowed
            self.point = math.nan
        if not math.isfinite(self.point):
            return self.borrowed()
        self.own = True
        return self.spread.forecast(np.array([self.point]), np.ones(1))

    def learn(self, y: float) -> None:
        super().learn(y)
        if math.isfinite(self.point):
            self.spread.update(np.array([y]), np.array([self.point]), np.ones(1))
        filled = self.point if math.isnan(y) else y  # so that a gap does not shift the season
        if math.isfinite(filled):
            self.model.learn_one(self.centre + self.scale * filled)


class Ets(Guest):
    """statsforecast's AutoETS on the latest rows: refitted at times, continued in between."""

    def __init__(self, one: Series) -> None:
        from statsforecast.models import AutoETS

        super().__init__(one)
        self.model = AutoETS(season_length=self.period)
        self.past: list[float] = []
        self.fitted_at = 0

    def predict(self) -> rk.Forecast:
        if len(self.past) < max(10, 2 * self.period + 1):
            return self.borrowed()
        self.own = True
        recent = np.array(self.past[-HISTORY:])
        if len(self.past) >= min(self.fitted_at + REFIT, GROWTH * self.fitted_at):
            self.model.fit(recent)
            self.fitted_at = len(self.past)
        ahead = self.model.forward(recent, h=1, level=[90])
        sd = (float(ahead["hi-90"][0]) - float(ahead["lo-90"][0])) / (2 * Z90 * self.scale)
        mean = (float(ahead["mean"][0]) - self.centre) / self.scale
        return rk.Forecast.gaussian(mean, max(sd, 1e-9) ** 2)

    def learn(self, y: float) -> None:
        super().learn(y)
        if self.past or not math.isnan(y):
            own = self.centre + self.scale * y
            self.past.append(self.past[-1] if math.isnan(y) else own)


def _snarimax(one: Series) -> OfRiver:
    from river import time_series

    m = max(one.period, 1)
    scaled = replace(one, centre=0.0, scale=1.0)  # its gradient steps need targets of size one
    return OfRiver(scaled, time_series.SNARIMAX(p=2, d=0, q=1, m=m, sp=int(m > 1), sq=0))


def _holt_winters(one: Series) -> OfRiver:
    """Return Holt-Winters with the rates of river's example and an additive season."""
    from river import time_series

    season = {"gamma": 0.6, "seasonality": one.period} if one.period > 1 else {}
    return OfRiver(one, time_series.HoltWinters(alpha=0.3, beta=0.1, **season))


def _least_squares(one: Series) -> OfRegimekit:
    steps = (1, 2, one.period) if one.period > 2 else (1, 2)
    return OfRegimekit("least_squares", features=rk.features.intercept() + rk.features.lags(*steps))


def _seasonal(one: Series) -> OfRegimekit:
    return OfRegimekit("seasonal_last_value", period=max(one.period, 1))


PEERS: dict[str, Callable[[Series], Peer]] = {
    "regimekit": lambda one: OfRegimekit(DEFAULT_MODEL),
    "last_value": lambda one: OfRegimekit("last_value"),
    "seasonal_last_value": _seasonal,
    "least_squares": _least_squares,
    "river_snarimax": _snarimax,
    "river_holt_winters": _holt_winters,
    "statsforecast_auto_ets": Ets,
}
