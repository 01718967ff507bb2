"""Online ridge regression on the same features as the other models (`naive` has the formulas)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.naive import Naive
from regimekit.baselines.run_length import EmissionSegments
from regimekit.core import covariates
from regimekit.core.covariates import bounded, new_past
from regimekit.core.exceptions import RegimekitError, moderate, positive
from regimekit.core.limits import MAX_COEFFICIENTS
from regimekit.core.maker import Terms, maker
from regimekit.core.model import Array
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.emissions.base import Shape
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings
from regimekit.ihmm.weights import Scoring, weight_code
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.features import Past
from regimekit.preprocessing.frames import Row
from regimekit.serialization.validation import Arrays, Values

_ROUNDING = 1.001  # of stored roots


class LeastSquares(Naive):
    """Online ridge regression on features, created by `least_squares`."""

    name = "least_squares"

    def __init__(
        self,
        features: Terms | None = None,
        ridge: float = 1e-3,
        error_sd: float = 1.0,
        dim: int | None = None,
    ) -> None:
        super().__init__(error_sd, dim)
        self.features = feature_maps.read(features)
        self.ridge = positive("ridge", ridge)
        moderate("ridge", self.ridge)
        # The posterior covariance is below the prior one, and so is its root.
        widest = _ROUNDING / np.sqrt(self.ridge)
        self.limits = {**Naive.limits, "rows_0": covariates.STORED, "rows_1": (-widest, widest)}
        self._like: Row | None = None  # first covariates: they set the order of the columns

    def _check(self, x: Any) -> Row | None:
        return self.features.check(x, like=self._like)

    def _shape(self, dim: int, x: Row | None) -> Shape:
        return Shape(dim, self.features.width(x, dim), not self.features.is_matrix)

    def _begin(self, shape: Shape) -> None:
        if shape.coefficients > MAX_COEFFICIENTS:
            raise RegimekitError(
                f"features must give at most {MAX_COEFFICIENTS} coefficients, got "
                f"{shape.coefficients}."
            )
        settings = GaussianSettings(noise=np.eye(shape.dim).tolist(), prior_var=1.0 / self.ridge)
        unweighted = Scoring(weight_code("none"), np.inf, False, True, True, True, True)
        self.rows = EmissionSegments(settings.build(shape, unweighted, 1))
        self.rows.resize(1)
        self.rows.write_prior(0)
        self.past = new_past(self.features, shape.dim)

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        if self.spread is None:
            return super()._forecast(rows)
        past, forecasts = self.past.copy(), []
        for h, x in enumerate(rows):
            location, leverage = self._regress(self._design(x, h, past))
            forecasts.append(self.spread.forecast(location, leverage))
            past.push(location)  # future lags are forecasts
        return forecasts

    def _point(self, x: Row | None, ahead: int) -> tuple[Array, Array]:
        return self._regress(self._design(x, ahead - 1, self.past))

    def _regress(self, design: Array) -> tuple[Array, Array]:
        self.rows.set_observation(None, design)
        location, spread = self.rows.predictive(0)
        return location, np.diag(spread).copy()

    def _design(self, x: Row | None, later: int, past: Past) -> Array:
        width = self.features.width(x, self.shape.dim)
        if width != self.shape.width:
            raise RegimekitError(f"x gives {width} features; the model has {self.shape.width}.")
        return np.asarray(
            self.rows.design(bounded(self.features.row(x, self.time + later, past.values)))
        )

    def _learn(self, y: Array, x: Row | None) -> None:
        if not np.isnan(y).all():
            self.rows.set_observation(y, self._design(x, 0, self.past))
            self.rows.learn(0)
        self.past.push(y)
        if self.time == 0:
            self._like = x

    def _arrays(self) -> dict[str, NDArray[Any]]:
        rows = enumerate(self.rows.arrays())
        return {"past": self.past.values} | {f"rows_{j}": array for j, array in rows}

    def _level(self) -> Array:
        return np.asarray(self.rows.coefficients(0)[0])

    def _level_sd(self) -> Array:
        each = np.repeat(super()._level_sd(), self.shape.width) if self.shape.shared else 1.0
        return np.asarray(self.rows.coefficients(0)[1] * each)

    def settings(self) -> dict[str, Any]:
        return {"features": self.features.to_json(), "ridge": self.ridge} | super().settings()

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        values, arrays = super()._pack()
        columns, first = covariates.pack_first(self._like)
        return values | columns, arrays | first

    def _read_like(self, values: Values, arrays: Arrays) -> Row | None:
        self._like = covariates.read_first(values, arrays, self.features)
        return self._like


@maker
def least_squares(
    *,
    features: Terms | None = None,
    ridge: float = 1e-3,
    error_sd: float = 1.0,
    dim: int | None = None,
) -> LeastSquares:
    """Create online least squares on the same features as the other models.

    Args:
        features: f(x), from `regimekit.preprocessing.features`; an intercept by default.
        ridge: penalty on the squared coefficients, in units of the noise variance.
        error_sd, dim: as for `last_value`.

    Returns:
        The model.

    Raises:
        RegimekitError: If a setting is invalid; the message names it.

    Example:
        >>> import regimekit as rk
        >>> from regimekit.baselines.least_squares import least_squares
        >>> line = least_squares(features=rk.features.columns(), ridge=1e-9)
        >>> run = line.run([2.0, 4.0, 6.0], [[1.0], [2.0], [3.0]])
        >>> round(line.predict([4.0]).mean, 6)
        8.0
    """
    return LeastSquares(features, ridge, error_sd, dim)
