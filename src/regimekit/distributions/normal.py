"""The standard normal distribution for arrays: cdf, its logarithm, and quantiles."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_FAR = -20.0  # below this the asymptotic series of the tail is exact to the last digits
_erfc = np.vectorize(math.erfc, otypes=[float])
_inverse = np.vectorize(NormalDist().inv_cdf, otypes=[float])


def normal_cdf(z: ArrayLike) -> Any:
    """Return P(Z <= z), with full relative accuracy in the lower tail.

    Args:
        z: number or array.
    """
    return 0.5 * _erfc(np.asarray(z) / -math.sqrt(2.0))


def log_normal_cdf(z: float) -> float:
    """Return log P(Z <= z); finite for every z above -1e150."""
    if z > _FAR:
        return (
            math.log1p(-0.5 * math.erfc(z / math.sqrt(2.0)))
            if z > 0.0
            else math.log(0.5 * math.erfc(z / -math.sqrt(2.0)))
        )
    u = 1.0 / (z * z)
    series = 1.0 - u * (1.0 - 3.0 * u * (1.0 - 5.0 * u * (1.0 - 7.0 * u * (1.0 - 9.0 * u))))
    return -0.5 * z * z - math.log(-z * math.sqrt(2.0 * math.pi)) + math.log(series)


def normal_quantile(p: ArrayLike) -> Any:
    """Return z with P(Z <= z) = p.

    Args:
        p: number or array, strictly between 0 and 1.
    """
    return _inverse(p)
