"""regimekit in river: forecaster, regressor, drift detector and anomaly detector.

All four are one model behind river's verbs, made from a model's name (the default one if not
given) and its settings: `RegimeForecaster("br_ihmm", batch=6)`. They are cloned from these and
pickled through the model's own bytes, so a pickle holds nothing of the engine.

Example:
    >>> from regimekit.integrations.river import RegimeForecaster
    >>> model = RegimeForecaster("br_ihmm", particles=20, batch=3)
    >>> for y in [0.0, 0.1, -0.1, 0.1, 0.0, -0.1]:
    ...     model.learn_one(y)
    >>> [abs(value) < 0.2 for value in model.forecast(horizon=2)]
    [True, True]
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import regimekit as rk
from regimekit.core.model import Model
from regimekit.integrations.making import NO_REGIME, change_of, completed, fresh, need

need("river", "river")

# After the hint for those who lack the package.
from river import base, time_series


class _Kept:
    """A model that is made at the first observation and travels as bytes.

    Attributes:
        inner: the regimekit model, for what river has no verb for: `inner.predict().interval(0.9)`.
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        self.model = model
        self.settings = settings
        self.inner: Model = fresh(model, settings)
        self._latest: dict[str, Any] = {}
        self._started = False

    def _learn(self, y: Any, x: dict[Any, Any] | None) -> rk.Step:
        if not self._started:
            self._started = True
            self.inner = fresh(self.model, self.settings, covariates=bool(x))
            self._latest = completed(x or {}, {})
        self._latest = self._row(x) or {}
        return self.inner.update(y, self._latest or None)

    def _row(self, x: dict[Any, Any] | None) -> dict[str, Any] | None:
        """Covariates as the first observation had them; without any there, none at all."""
        return completed(x or {}, self._latest) if self._latest else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "inner": self.inner.to_bytes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, inner=rk.from_bytes(state["inner"]))


class RegimeForecaster(_Kept, time_series.base.Forecaster):
    """Forecasts of a stream whose regimes change and return."""

    def learn_one(self, y: float, x: dict[Any, Any] | None = None) -> None:
        self._learn(y, x)

    def forecast(self, horizon: int, xs: list[dict[Any, Any]] | None = None) -> list[float]:
        return [float(step.mean) for step in self.forecast_distribution(horizon, xs)]

    def forecast_distribution(
        self, horizon: int, xs: list[dict[Any, Any]] | None = None
    ) -> list[rk.Forecast]:
        """The forecasts with their uncertainty: `quantile`, `interval`, `cdf`."""
        if not self._latest:
            return list(self.inner.forecast(horizon))
        rows = [self._row(x) or {} for x in xs or [{}] * horizon]
        values = np.array([[row[name] for name in self._latest] for row in rows], dtype=float)
        return list(self.inner.forecast(horizon, X=values))


class RegimeRegressor(_Kept, base.Regressor):
    """Regression whose coefficients belong to regimes that change and return.

    A feature that is absent keeps its latest value; one that was not there at the first
    observation is not used."""

    def learn_one(self, x: dict[Any, Any], y: float) -> None:
        self._learn(y, x)

    def predict_one(self, x: dict[Any, Any]) -> float:
        return float(self.inner.predict(self._row(x)).mean)


class RegimeDriftDetector(_Kept, base.DriftDetector):
    """Tells when a stream of numbers enters another regime, new or known; spikes are no drift.

    After a drift `drift_since` is the position (from 0) of the first value that belongs to it."""

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        base.DriftDetector.__init__(self)
        _Kept.__init__(self, model, **settings)
        self.regime = NO_REGIME
        self.drift_since: int | None = None

    def update(self, x: float) -> None:
        step = self._learn(x, None)
        change = change_of(step.events, self.regime)
        self.regime, self._drift_detected = step.regime, change is not None
        if change is not None:
            self.drift_since = int(getattr(change, "since", change.time))


class RegimeAnomalyDetector(_Kept, base.AnomalyDetector):
    """Scores in [0, 1] how far out a value is in its one-step forecast: 2 |cdf - 1/2|.

    `target` is the entry of x that is watched, with the other entries as covariates. Without it
    all entries are watched together, and the strangest of them gives the score.
    """

    def __init__(
        self, model: str | None = None, target: str | None = None, **settings: Any
    ) -> None:
        super().__init__(model, **settings)
        self.target = target
        self._watched: list[Any] = []

    def learn_one(self, x: dict[Any, Any]) -> None:
        self._watched = self._watched or ([self.target] if self.target is not None else list(x))
        if self._watched:
            self._learn(self._values(x), self._others(x))

    def score_one(self, x: dict[Any, Any]) -> float:
        if not self._started:
            return 0.0
        cdf = self.inner.predict(self._row(self._others(x))).cdf(self._values(x))
        scores = 2 * np.abs(np.asarray(cdf) - 0.5)
        return 0.0 if np.isnan(scores).all() else float(np.nanmax(scores))

    def _values(self, x: dict[Any, Any]) -> list[float]:
        return [math.nan if x.get(name) is None else float(x[name]) for name in self._watched]

    def _others(self, x: dict[Any, Any]) -> dict[Any, Any] | None:
        if self.target is None:
            return None
        return {name: value for name, value in x.items() if name != self.target}
