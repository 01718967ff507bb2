"""regimekit in scikit-learn: a regressor with regimes, and a segmenter of series.

Rows are a time series: they are learnt in the order they come in, and shuffling them changes the
model. Cross-validate with `TimeSeriesSplit`.

Example:
    >>> import numpy as np
    >>> from regimekit.integrations.sklearn import RegimeSegmenter
    >>> y = np.repeat([-3.0, 3.0], 30) + 0.1 * np.sin(np.arange(60))
    >>> labels = RegimeSegmenter(model="br_ihmm").fit_predict(y[:, None])
    >>> len(set(labels[:24])), bool(labels[20] != labels[50])
    (1, True)
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

import regimekit as rk
from regimekit.integrations.making import Packed, fresh, labels, need

need("sklearn", "sklearn")

# After the hint for those who lack the package.
from sklearn.base import (
    BaseEstimator,
    ClusterMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted, validate_data

Array = NDArray[np.float64]


class RegimeRegressor(Packed, RegressorMixin, BaseEstimator):
    """Regression whose coefficients belong to regimes that change and return.

    Every row given to `predict` is answered as the one that follows the rows learnt so far.

    Args:
        model: name of a regimekit model; the default one if not given.
        settings: the model's settings, such as `{"batch": 6, "seed": 0}`.

    Attributes:
        model_: the regimekit model, with `regimes()`, `forecast()` and the rest.
    """

    def __init__(self, model: str | None = None, settings: dict[str, Any] | None = None) -> None:
        self.model = model
        self.settings = settings

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Forget everything, then learn the rows in their order."""
        rows, target = validate_data(self, X, y, y_numeric=True, dtype=np.float64)
        self.model_ = fresh(self.model, self.settings, covariates=True)
        self.model_.run(target, rows)
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn further rows, which follow those learnt before."""
        if not hasattr(self, "model_"):
            return self.fit(X, y)
        rows, target = validate_data(self, X, y, y_numeric=True, dtype=np.float64, reset=False)
        self.model_.run(target, rows)
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Mean of y for each row, with its standard deviation if asked for."""
        forecasts = self._forecasts(X)
        mean = np.array([forecast.mean for forecast in forecasts])
        return (mean, np.array([forecast.sd for forecast in forecasts])) if return_std else mean

    def predict_quantile(self, X: ArrayLike, q: float) -> Array:
        """The value below which y lies with probability `q`, for each row."""
        return np.array([forecast.quantile(q) for forecast in self._forecasts(X)])

    def _forecasts(self, X: ArrayLike) -> list[rk.Forecast]:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return [self.model_.predict(row) for row in rows]


class RegimeSegmenter(Packed, TransformerMixin, ClusterMixin, BaseEstimator):
    """Gives every row of a series the id of its regime; ids stay, and regimes come back.

    `predict` and `transform` read X as what follows the rows of `fit`, without learning it for
    good. Arguments as for `RegimeRegressor`.

    Attributes:
        model_: the regimekit model.
        labels_: regime of each row given to `fit`.
        regimes_: ids of the columns of `transform`; the last column stands for all others.
    """

    def __init__(self, model: str | None = None, settings: dict[str, Any] | None = None) -> None:
        self.model = model
        self.settings = settings

    def fit(self, X: ArrayLike, y: Any = None) -> Self:
        """Forget everything, then follow the rows of X; y is not used."""
        rows = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        self.model_ = fresh(self.model, self.settings)
        self.labels_ = labels(self.model_.run(rows))
        self.regimes_ = np.unique(self.labels_)
        return self

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """Regime of each row of X."""
        return labels(self._follow(X))

    def transform(self, X: ArrayLike) -> Array:
        """Probability of each regime at each row as far as it is reported.

        The model reports the likeliest regime with its probability; that goes into the
        regime's column, and what is left into the last one.
        """
        run = self._follow(X)
        known = np.searchsorted(self.regimes_, run.regime).clip(max=self.regimes_.size - 1)
        column = np.where(self.regimes_[known] == run.regime, known, self.regimes_.size)
        table = np.zeros((len(run), self.regimes_.size + 1))
        table[:, -1] = 1 - run.regime_probability
        table[np.arange(len(run)), column] += run.regime_probability
        return table

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Names of the columns of `transform`."""
        check_is_fitted(self)
        return np.array([f"regime_{k}" for k in self.regimes_] + ["regime_other"], dtype=object)

    def _follow(self, X: ArrayLike) -> rk.Run:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return self.model_.copy().run(rows)
