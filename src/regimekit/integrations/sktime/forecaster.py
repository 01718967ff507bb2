"""The forecaster: one model that is fed, asked, and never fitted again."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon

import regimekit as rk
from regimekit.integrations.making import Packed, fresh

SMALL = [
    {"model": "student_t_ihmm", "settings": {"particles": 10, "batch": 2, "max_regimes": 4}},
    {"model": "br_ihmm", "settings": {"particles": 10, "batch": 3, "max_regimes": 4}},
]
_LEVELS = np.linspace(0.01, 0.99, 99)


class RegimeForecaster(Packed, BaseForecaster):
    """Forecasts of a series whose regimes change and return; `update` never refits.

    Values that `update(..., update_params=False)` passes over count as not observed. A step of
    the horizon that X says nothing of takes the covariates of the step before it.

    Args:
        model: name of a regimekit model; the default one if not given.
        settings: the model's settings, such as `{"batch": 6, "seed": 0}`.

    Example:
        >>> import pandas as pd
        >>> from regimekit.integrations.sktime import RegimeForecaster
        >>> y = pd.Series([0.0, 0.1, -0.1, 0.1, 0.0, -0.1] * 4)
        >>> forecaster = RegimeForecaster(model="br_ihmm").fit(y, fh=[1, 2])
        >>> list(forecaster.predict().index), bool((forecaster.predict().abs() < 0.3).all())
        ([24, 25], True)
    """

    _tags = {
        "python_dependencies": ["regimekit", "skpro"],
        "capability:exogenous": True,
        "capability:categorical_in_X": False,
        "capability:insample": False,
        "capability:pred_int": True,
        "capability:pred_int:insample": False,
        "capability:missing_values": True,
        "capability:update": True,
        "requires-fh-in-fit": False,
    }

    _config = {"remember_data": False}

    def __init__(self, model: str | None = None, settings: dict[str, Any] | None = None) -> None:
        self.model = model
        self.settings = settings
        super().__init__()
        self._X = self._y = None

    def _fit(self, y: pd.Series, X: pd.DataFrame | None, fh: Any) -> Self:
        self.model_ = fresh(self.model, self.settings, covariates=X is not None, times=y.index)
        self._columns = None if X is None else list(X.columns)
        self._last, self._name = y.index[-1], y.name
        self.model_.run(y.to_numpy(float), self._table(X))
        return self

    def _update(
        self, y: pd.Series, X: pd.DataFrame | None = None, update_params: bool = True
    ) -> Self:
        ahead = y.index > self._last
        if ahead.any():
            values = y[ahead].to_numpy(float)
            table = None if X is None else X.reindex(y.index[ahead])
            self.model_.run(values if update_params else values * np.nan, self._table(table))
            self._last = y.index[-1]
        return self

    def _table(self, X: pd.DataFrame | None) -> Any:
        return None if X is None or self._columns is None else X[self._columns].to_numpy(float)

    def _forecasts(self, fh: ForecastingHorizon, X: pd.DataFrame | None) -> list[rk.Forecast]:
        steps = [int(step) for step in fh.to_relative(self.cutoff).to_numpy()]
        if X is not None:
            every = ForecastingHorizon(np.arange(1, max(steps) + 1), is_relative=True)
            X = X.reindex(every.to_absolute_index(self.cutoff)).ffill().bfill()
        path = self.model_.forecast(max(steps), X=self._table(X))
        return [path[step - 1] for step in steps]

    def _framed(self, fh: ForecastingHorizon, values: Any) -> pd.DataFrame:
        index = fh.to_absolute_index(self.cutoff)
        return pd.DataFrame(values, index=index, columns=self._get_varnames())

    def _predict(self, fh: ForecastingHorizon, X: pd.DataFrame | None) -> pd.Series:
        mean = [forecast.mean for forecast in self._forecasts(fh, X)]
        return pd.Series(mean, index=fh.to_absolute_index(self.cutoff), name=self._name)

    def _predict_quantiles(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None, alpha: list[float]
    ) -> pd.DataFrame:
        table = [[step.quantile(q) for q in alpha] for step in self._forecasts(fh, X)]
        columns = pd.MultiIndex.from_product([self._get_varnames(), alpha])
        return pd.DataFrame(table, index=fh.to_absolute_index(self.cutoff), columns=columns)

    def _predict_var(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None = None, cov: bool = False
    ) -> pd.DataFrame:
        return self._framed(fh, [np.square(forecast.sd) for forecast in self._forecasts(fh, X)])

    def _predict_proba(
        self, fh: ForecastingHorizon, X: pd.DataFrame | None, marginal: bool = True
    ) -> Any:
        """The percentiles 1 to 99 of every step, with straight lines between them."""
        from skpro.distributions import HistogramQPD

        index, names = fh.to_absolute_index(self.cutoff), self._get_varnames()
        steps = self._forecasts(fh, X)
        values = [step.quantile(float(q)) for q in _LEVELS for step in steps]
        rows = pd.MultiIndex.from_product([_LEVELS, index])
        table = pd.DataFrame(values, index=rows, columns=names)
        return HistogramQPD(table, tails="mass", index=index, columns=names)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Settings that sktime's own checks run with."""
        return SMALL
