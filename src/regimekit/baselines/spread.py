"""How far a forecaster's own one-step errors went, and the t distribution that follows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regimekit.distributions.forecast import Forecast

FARTHEST = 1e100  # errors and leverages beyond this are taken for this: products stay finite
Array = NDArray[np.float64]
_PRIOR_ERRORS = 3.0  # the least whole number that gives the first forecast a variance


class Spread:
    """Running sums of squared one-step errors, per coordinate."""

    def __init__(self, error_sd: float, dim: int) -> None:
        self.start = _PRIOR_ERRORS * error_sd**2
        self.squares = np.zeros(dim)
        self.count = np.zeros(dim, np.int64)

    def learn(self, y: Array, location: Array, leverage: Array) -> None:
        """Count the error of one observation; NaN where a coordinate was not observed."""
        seen = ~np.isnan(y)
        error = np.clip(y[seen] / 2 - location[seen] / 2, -FARTHEST, FARTHEST)  # no overflow
        self.squares[seen] += (2 * error) ** 2 / leverage[seen]
        self.count[seen] += 1

    def variance(self) -> Array:
        """Of an error with leverage 1, per coordinate."""
        return np.asarray((self.start + self.squares) / (_PRIOR_ERRORS + self.count))

    def forecast(self, location: Array, leverage: Array) -> Forecast:
        """A t distribution around `location`; the degrees of the least observed coordinate."""
        spread = np.diag(np.minimum(leverage, FARTHEST) * self.variance())
        dof = np.array([_PRIOR_ERRORS + self.count.min()])
        return Forecast(np.ones(1), location[None], spread[None], dof)
