"""Online ridge regression on the same features as the other models (`naive` has the formulas)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.naive import Naive
from regimekit.core import covariates
from regimekit.core.covariates import bounded, new_past
from regimekit.core.exceptions import RegimekitError, moderate, positive
from regimekit.core.maker import Terms, maker
from regimekit.core.model import Array
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.emissions.base import Rows, Shape
from regimekit.ihmm.emissions.eager import Eager
from regimekit.ihmm.emissions.linear_gaussian import GaussianSpec, LinearGaussian
from regimekit.ihmm.weights import NONE, Scoring
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.features import Past
from regimekit.preprocessing.frames import Row
from regimekit.serialization.validation import Arrays, Values, affordable

_PLAIN = Scoring(NONE, np.inf, False, True, True, True, True)


class LeastSquares(Naive):
    """Online ridge regression on features; made by `least_squares`."""

    name = "least_squares"
    limits = Naive.limits | dict.fromkeys(("rows_0", "rows_1"), covariates.STORED)

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
        self._like: Row | None = None  # the first covariates: later ones take their order

    def _check(self, x: Any) -> Row | None:
        return self.features.check(x, like=self._like)

    def _shape(self, dim: int, x: Row | None) -> Shape:
        return Shape(dim, self.features.width(x, dim), not self.features.is_matrix)

    def _begin(self, shape: Shape) -> None:
        affordable("features", float(shape.coefficients) ** 2)
        spec = GaussianSpec(noise=np.eye(shape.dim).tolist(), prior_var=1.0 / self.ridge)
        self.emission = LinearGaussian(shape, spec, _PLAIN)
        self.eager = Eager(self.emission)
        self.rows: Rows = self.emission.blank(1)
        self.emission.write_prior(self.rows, 0)
        self.past = new_past(self.features, shape.dim)

    def _forecast(self, rows: list[Any]) -> list[Forecast]:
        if self.spread is None:
            return super()._forecast(rows)
        past, forecasts = self.past.copy(), []
        for h, x in enumerate(rows):
            location, leverage = self._regress(self._design(x, h, past))
            forecasts.append(self.spread.forecast(location, leverage))
            past.push(location)  # lags beyond now: the forecast itself
        return forecasts

    def _point(self, x: Row | None, ahead: int) -> tuple[Array, Array]:
        return self._regress(self._design(x, ahead - 1, self.past))

    def _regress(self, design: Array) -> tuple[Array, Array]:
        parts = self.eager.predictive(self.rows, np.zeros(1, np.int64), design)
        return parts.location[0], np.diag(parts.spread[0]).copy()

    def _design(self, x: Row | None, later: int, past: Past) -> Array:
        width = self.features.width(x, self.shape.dim)
        if width != self.shape.width:
            raise RegimekitError(f"x gives {width} features; the model has {self.shape.width}.")
        return self.emission.design(bounded(self.features.row(x, self.time + later, past.values)))

    def _remember(self, y: Array, x: Row | None) -> None:
        if not np.isnan(y).all():
            design, fresh = self._design(x, 0, self.past), np.zeros(1, bool)
            self.eager.advance(self.rows, y, design, fresh, np.zeros(1), np.ones(1))
        self.past.push(y)
        if self.time == 0:
            self._like = x

    def _memory(self) -> dict[str, NDArray[Any]]:
        return {"past": self.past.values} | {f"rows_{j}": a for j, a in enumerate(self.rows)}

    def _level(self) -> Array:
        return self.emission.coefficients(self.rows, 0)[0]

    def _level_sd(self) -> Array:
        each = np.repeat(super()._level_sd(), self.shape.width) if self.shape.shared else 1.0
        return self.emission.coefficients(self.rows, 0)[1] * each

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
    """Online least squares on the same features as the other models.

    Args:
        features: f(x), from `regimekit.preprocessing.features`; an intercept by default.
        ridge: penalty on the squared coefficients, in units of the noise variance.
        error_sd, dim: as for `last_value`.

    Example:
        >>> import regimekit as rk
        >>> from regimekit.baselines.least_squares import least_squares
        >>> line = least_squares(features=rk.features.columns(), ridge=1e-9)
        >>> run = line.run([2.0, 4.0, 6.0], [[1.0], [2.0], [3.0]])
        >>> round(line.predict([4.0]).mean, 6)
        8.0
    """
    return LeastSquares(features, ridge, error_sd, dim)
