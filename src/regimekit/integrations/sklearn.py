"""scikit-learn: a regressor with regimes and a segmenter of time series.

Rows are a time series: the model is updated in their order, and shuffling changes the result.
Cross-validate with `TimeSeriesSplit`.

Example:
    >>> import numpy as np
    >>> from regimekit.integrations.sklearn import RegimeSegmenter
    >>> y = np.repeat([-3.0, 3.0], 60) + 0.1 * np.sin(np.arange(120))
    >>> segmenter = RegimeSegmenter(model="br_ihmm", settings={"noise": 0.25})
    >>> labels = segmenter.fit_predict(y[:, None])
    >>> len(set(labels[:50])), bool(labels[40] != labels[110])
    (1, True)
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

import regimekit as rk
from regimekit.integrations._common import PickledAsBytes, make_model, regime_labels, require

require("sklearn", "sklearn")

# After `require`, which reports a missing library.
from sklearn.base import BaseEstimator, ClusterMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

Array = NDArray[np.float64]


class RegimeRegressor(PickledAsBytes, RegressorMixin, BaseEstimator):
    """Regression with coefficients per regime.

    `predict` treats every row as the next one after the fitted rows.

    Args:
        model: name of a regimekit model; None selects the default model.
        settings: settings of the model, such as `{"batch": 6, "seed": 0}`.

    Attributes:
        model_: the fitted regimekit model.
    """

    def __init__(self, model: str | None = None, settings: dict[str, Any] | None = None) -> None:
        self.model = model
        self.settings = settings

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit a new model to rows in time order.

        Args:
            X: covariates, shape (T, p).
            y: target, shape (T,).
        """
        rows, target = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        self.model_ = make_model(self.model, self.settings, covariates=True)
        self.model_.run(target, rows)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Update the model with rows that follow those of `fit`; arguments as in `fit`."""
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        rows, target = validate_data(self, X, y, y_numeric=True, dtype=np.float64, reset=False)
        self.model_.run(target, rows)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Return the predictive mean of y, shape (n,), and its standard deviation if asked for."""
        forecasts = self._forecasts(X)
        mean = np.array([forecast.mean for forecast in forecasts])
        return (mean, np.array([forecast.sd for forecast in forecasts])) if return_std else mean

    def predict_quantile(self, X: ArrayLike, q: float) -> Array:
        """Return the predictive quantile `q` of y for each row, shape (n,)."""
        return np.array([forecast.quantile(q) for forecast in self._forecasts(X)])

    def _forecasts(self, X: ArrayLike) -> list[rk.Forecast]:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return [self.model_.predict(row) for row in rows]


class RegimeSegmenter(PickledAsBytes, TransformerMixin, ClusterMixin, BaseEstimator):
    """Label every row of a time series with its regime; a recurring regime keeps its label.

    `predict` and `transform` treat X as the continuation of the rows of `fit`, and do not change
    the fitted model. Arguments as for `RegimeRegressor`.

    Attributes:
        model_: the fitted regimekit model.
        labels_: regime of each row of `fit`.
        regimes_: regimes of the columns of `transform`; its last column is for all others.
    """

    def __init__(self, model: str | None = None, settings: dict[str, Any] | None = None) -> None:
        self.model = model
        self.settings = settings

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Fit a new model to the rows of X, shape (T, d), in time order; y is ignored."""
        rows = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        self.model_ = make_model(self.model, self.settings)
        self.labels_ = regime_labels(self.model_.run(rows))
        self.regimes_ = np.unique(self.labels_)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Return the regime of each row of X, shape (n,)."""
        return regime_labels(self._continue(X))

    def transform(self, X: ArrayLike) -> Array:
        """Return regime probabilities, shape (n, number of `regimes_` + 1).

        The model reports the most probable regime and its probability. The column of that
        regime has this probability, the last column has the remainder.
        """
        run = self._continue(X)
        known = np.searchsorted(self.regimes_, run.regime).clip(max=self.regimes_.size - 1)
        column = np.where(self.regimes_[known] == run.regime, known, self.regimes_.size)
        table = np.zeros((len(run), self.regimes_.size + 1))
        table[:, -1] = 1 - run.regime_probability
        table[np.arange(len(run)), column] += run.regime_probability
        return table

    def anomaly_score(self, X: ArrayLike) -> Array:
        """Return the anomaly score of each row of X, shape (n,), see `Step.anomaly_score`.

        If `model_.label_regime` has marked a regime as a fault, rows in it keep a high score.
        """
        return self._continue(X).anomaly_score

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the columns of `transform`."""
        check_is_fitted(self)
        return np.array([f"regime_{k}" for k in self.regimes_] + ["regime_other"], dtype=object)

    def _continue(self, X: ArrayLike) -> rk.Run:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return self.model_.copy().run(rows)
