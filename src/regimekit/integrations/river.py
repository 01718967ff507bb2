"""river: forecaster, regressor, drift detector and anomaly detector.

All four wrap one model behind river's methods. They are constructed from the name of a model
(None selects the default model) and its settings: `RegimeForecaster("br_ihmm", batch=6)`. Clones
have the same settings; pickles contain the bytes of `to_bytes`.

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
from regimekit.integrations._common import fill_covariates, make_model, require
from regimekit.results import NO_REGIME

require("river", "river")

# After `require`, which reports a missing library.
from river import base, time_series


class _Wrapper:
    """A model that is created at the first observation and pickled as bytes.

    Attributes:
        inner: the regimekit model, for methods that river does not have, such as
            `inner.predict().interval(0.9)`.
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        self.model = model
        self.settings = settings
        self.inner: Model = make_model(model, settings)
        self._latest: dict[str, Any] = {}
        self._started = False

    def _update(self, y: Any, x: dict[Any, Any] | None) -> rk.Step:
        if not self._started:
            self._started = True
            self.inner = make_model(self.model, self.settings, covariates=bool(x))
            self._latest = fill_covariates(x or {}, {})
        self._latest = self._row(x) or {}
        return self.inner.update(y, self._latest or None)

    def _row(self, x: dict[Any, Any] | None) -> dict[str, Any] | None:
        """Return the covariates that the first observation had; None if it had none."""
        return fill_covariates(x or {}, self._latest) if self._latest else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "inner": self.inner.to_bytes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, inner=rk.from_bytes(state["inner"]))


class RegimeForecaster(_Wrapper, time_series.base.Forecaster):
    """Forecaster of a stream with recurring regimes.

    Args:
        model: name of a regimekit model; None selects the default model.
        **settings: settings of the model.
    """

    def learn_one(self, y: float, x: dict[Any, Any] | None = None) -> None:
        """Update the model with an observation and its covariates."""
        self._update(y, x)

    def forecast(self, horizon: int, xs: list[dict[Any, Any]] | None = None) -> list[float]:
        """Return the means of `forecast_distribution`."""
        return [float(step.mean) for step in self.forecast_distribution(horizon, xs)]

    def forecast_distribution(
        self, horizon: int, xs: list[dict[Any, Any]] | None = None
    ) -> list[rk.Forecast]:
        """Return predictive distributions, with `quantile`, `interval` and `cdf`.

        Args:
            horizon: number of steps ahead.
            xs: covariates per step; without them the latest ones are used.

        Returns:
            One forecast per step.
        """
        if not self._latest:
            return list(self.inner.forecast(horizon))
        rows = [self._row(x) or {} for x in xs or [{}] * horizon]
        values = np.array([[row[name] for name in self._latest] for row in rows], dtype=float)
        return list(self.inner.forecast(horizon, X=values))


class RegimeRegressor(_Wrapper, base.Regressor):
    """Regression with coefficients per regime.

    If a feature is missing, its latest value is used. Features that the first observation did
    not have are ignored.
    """

    def learn_one(self, x: dict[Any, Any], y: float) -> None:
        """Update the model with an observation."""
        self._update(y, x)

    def predict_one(self, x: dict[Any, Any]) -> float:
        """Return the predictive mean."""
        return float(self.inner.predict(self._row(x)).mean)


class RegimeDriftDetector(_Wrapper, base.DriftDetector):
    """Drift detector: a drift is a change to a new or known regime; outliers are not drifts.

    Attributes:
        drift_since: after a drift, index (from 0) of the first value of the new regime.
        regime: current regime, -1 before the first one.
    """

    def __init__(self, model: str | None = None, **settings: Any) -> None:
        base.DriftDetector.__init__(self)
        _Wrapper.__init__(self, model, **settings)
        self.regime = NO_REGIME
        self.drift_since: int | None = None

    def update(self, x: float) -> None:
        """Update the model and `drift_detected`."""
        step = self._update(x, None)
        change = next((event for event in step.events if event.is_change), None)
        self.regime, self._drift_detected = step.regime, change is not None
        if change is not None:
            self.drift_since = int(change.since)


class RegimeAnomalyDetector(_Wrapper, base.AnomalyDetector):
    """Anomaly score in [0, 1] of a value under its one-step forecast, see `Forecast.anomaly_score`.

    Args:
        model: name of a regimekit model; None selects the default model.
        target: entry of x to score, with the other entries as covariates. Without it all
            entries are modelled together, with one score for all.
        **settings: settings of the model.
    """

    def __init__(
        self, model: str | None = None, target: str | None = None, **settings: Any
    ) -> None:
        super().__init__(model, **settings)
        self.target = target
        self._targets: list[Any] = []

    def learn_one(self, x: dict[Any, Any]) -> None:
        """Update the model with an observation."""
        if not self._targets:
            self._targets = sorted(x, key=str) if self.target is None else [self.target]
        if self._targets:
            self._update(self._values(x), self._others(x))

    def score_one(self, x: dict[Any, Any]) -> float:
        """Return the score of an observation; 0 before the first `learn_one`."""
        if not self._started:
            return 0.0
        forecast = self.inner.predict(self._row(self._others(x)))
        score = float(np.ravel(forecast.anomaly_score(self._values(x)))[0])
        return 0.0 if math.isnan(score) else score

    def _values(self, x: dict[Any, Any]) -> list[float]:
        return [math.nan if x.get(name) is None else float(x[name]) for name in self._targets]

    def _others(self, x: dict[Any, Any]) -> dict[Any, Any] | None:
        if self.target is None:
            return None
        return {name: value for name, value in x.items() if name != self.target}
