"""sktime: a forecaster that updates without refitting, and two detectors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

import regimekit as rk
from regimekit.integrations._common import PickledAsBytes, make_model, regime_labels, require

require("sktime", "sktime", "skpro")

# After `require`, which reports a missing library.
import pandas as pd
from sktime.detection.base import BaseDetector
from sktime.forecasting.base import BaseForecaster, ForecastingHorizon

__all__ = ["RegimeChangePoints", "RegimeForecaster", "RegimeSegments"]

# Small models for sktime's own checks.
_TEST_PARAMS = [
    {"model": "student_t_ihmm", "settings": {"particles": 10, "batch": 2, "max_regimes": 4}},
    {"model": "br_ihmm", "settings": {"particles": 10, "batch": 3, "max_regimes": 4}},
]
_PROBA_LEVELS = np.linspace(0.01, 0.99, 99)


class RegimeForecaster(PickledAsBytes, BaseForecaster):
    """Forecaster of a series with recurring regimes; `update` does not refit.

    With `update(..., update_params=False)` the new values count as not observed. If X has no row
    for a step of the horizon, the covariates of the step before are used.

    Args:
        model: name of a regimekit model; None selects the default model.
        settings: settings of the model, such as `{"batch": 6, "seed": 0}`.

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
        self.model_ = make_model(self.model, self.settings, covariates=X is not None, times=y.index)
        self._columns = None if X is None else list(X.columns)
        self._last, self._name = y.index[-1], y.name
        self.model_.run(y.to_numpy(float), self._covariates(X))
        return self

    def _update(
        self, y: pd.Series, X: pd.DataFrame | None = None, update_params: bool = True
    ) -> Self:
        ahead = y.index > self._last
        if ahead.any():
            values = y[ahead].to_numpy(float)
            table = None if X is None else X.reindex(y.index[ahead])
            self.model_.run(values if update_params else values * np.nan, self._covariates(table))
            self._last = y.index[-1]
        return self

    def _covariates(self, X: pd.DataFrame | None) -> Any:
        return None if X is None or self._columns is None else X[self._columns].to_numpy(float)

    def _forecasts(self, fh: ForecastingHorizon, X: pd.DataFrame | None) -> list[rk.Forecast]:
        steps = [int(step) for step in fh.to_relative(self.cutoff).to_numpy()]
        if X is not None:
            every = ForecastingHorizon(np.arange(1, max(steps) + 1), is_relative=True)
            X = X.reindex(every.to_absolute_index(self.cutoff)).ffill().bfill()
        path = self.model_.forecast(max(steps), X=self._covariates(X))
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
        """Return the percentiles 1 to 99 of every step, interpolated linearly."""
        from skpro.distributions import HistogramQPD

        index, names = fh.to_absolute_index(self.cutoff), self._get_varnames()
        steps = self._forecasts(fh, X)
        values = [step.quantile(float(q)) for q in _PROBA_LEVELS for step in steps]
        rows = pd.MultiIndex.from_product([_PROBA_LEVELS, index])
        table = pd.DataFrame(values, index=rows, columns=names)
        return HistogramQPD(table, tails="mass", index=index, columns=names)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return the parameters for sktime's own checks."""
        return _TEST_PARAMS


class _Detector(PickledAsBytes, BaseDetector):
    """Base of the detectors.

    Rows that begin after those of `fit` and `update` continue them; other rows are processed by
    a new model.
    """

    def __init__(self, model: str | None = None, settings: dict[str, Any] | None = None) -> None:
        self.model = model
        self.settings = settings
        super().__init__()

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Return the parameters for sktime's own checks."""
        return _TEST_PARAMS

    def _fit(self, X: pd.DataFrame, y: Any = None) -> Self:
        self.model_ = make_model(self.model, self.settings)
        return self._update(X)

    def _update(self, X: pd.DataFrame, y: Any = None) -> Self:
        self.model_.run(X.to_numpy(float))
        self._last = X.index[-1]
        return self

    def update_predict(self, X: Any, y: Any = None) -> pd.DataFrame:
        """Return `predict(X)`, then update the model with X."""
        found = self.predict(X)
        self.update(X, y)
        return found

    def _regimes(self, X: pd.DataFrame) -> Any:
        follows = X.index[0] > self._last
        model = self.model_.copy() if follows else make_model(self.model, self.settings)
        return regime_labels(model.run(X.to_numpy(float)))


def _starts(regimes: Any) -> list[int]:
    """Return the first index of each segment."""
    return [0, *(int(t) + 1 for t in np.flatnonzero(np.diff(regimes)))]


class RegimeChangePoints(_Detector):
    """Change points of a series: the first row of each new segment.

    Args:
        model: name of a regimekit model; None selects the default model.
        settings: settings of the model.

    Example:
        >>> import pandas as pd
        >>> from regimekit.integrations.sktime import RegimeChangePoints
        >>> X = pd.DataFrame({"y": [-3.0, -3.1, -2.9] * 10 + [3.0, 3.1, 2.9] * 10})
        >>> RegimeChangePoints("student_t_ihmm", {"batch": 3}).fit_predict(X)["ilocs"].tolist()
        [30]
    """

    _tags = {
        "python_dependencies": "regimekit",
        "task": "change_point_detection",
        "learning_type": "unsupervised",
        "capability:multivariate": True,
        "capability:missing_values": True,
        "capability:update": True,
    }

    def _predict(self, X: pd.DataFrame) -> pd.Series:
        return pd.Series(_starts(self._regimes(X))[1:], dtype="int64")


class RegimeSegments(_Detector):
    """Segments of a series, labelled by regime; a recurring regime keeps its label.

    Args:
        model: name of a regimekit model; None selects the default model.
        settings: settings of the model.

    Example:
        >>> import pandas as pd
        >>> from regimekit.integrations.sktime import RegimeSegments
        >>> X = pd.DataFrame({"y": [-3.0, -3.1, -2.9] * 10 + [3.0, 3.1, 2.9] * 10})
        >>> RegimeSegments("student_t_ihmm", {"batch": 3}).fit_predict(X)["ilocs"].tolist()
        [Interval(0, 30, closed='left'), Interval(30, 60, closed='left')]
    """

    _tags = RegimeChangePoints._tags | {"task": "segmentation"}

    def _predict(self, X: pd.DataFrame) -> pd.DataFrame:
        regimes = self._regimes(X)
        starts = _starts(regimes)
        spans = pd.IntervalIndex.from_breaks([*starts, len(regimes)], closed="left")
        return pd.DataFrame({"ilocs": spans, "labels": regimes[starts]})
