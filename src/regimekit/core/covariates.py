"""Covariates and past of a model that regresses on features: kept within bounds, stored, read back.

A feature of 1e160 would overflow in the first product with another, and spoil every row for good.
So features beyond LARGEST are taken for LARGEST, as residuals beyond all measure are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.emissions.base import Shape
from regimekit.preprocessing.features import Features, Past
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.two_pasts import CLEAN, TwoPasts
from regimekit.serialization.validation import Arrays, Values, affordable

Array = NDArray[np.float64]
# Its product with the largest coefficient, 1e100, still has a finite square.
LARGEST = 1e50
STORED = (-1e155, 1e155)  # no row of statistics leaves this: features, residuals are bounded
MOST_COORDINATES = 10_000


def bounded(features: Array) -> Array:
    """Features of one observation, none beyond LARGEST."""
    if features.size and max(features.max(), -features.min()) > LARGEST:
        return np.clip(features, -LARGEST, LARGEST)
    return features


def new_past(features: Features, dim: int) -> Past:
    """Room for the observations that the features look back on."""
    affordable("features", float(features.depth) * dim)
    return Past(features.depth, dim)


def read_past(arrays: Arrays, features: Features, dim: int) -> Past:
    """The past as it was stored."""
    past = new_past(features, dim)
    past.values[:] = arrays.floats("past", past.values.shape)
    return past


def pack_two_pasts(past: TwoPasts) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The two pasts for a snapshot; where nothing looks back, the one that holds nothing."""
    if not past.depth:
        return {}, {"past": past.values[CLEAN]}
    return past.pack()


def read_two_pasts(values: Values, arrays: Arrays, features: Features, dim: int) -> TwoPasts:
    """The two pasts as they were stored; where nothing looks back, and before D13, one was."""
    past = TwoPasts(features.depth, dim)
    if "in_doubt" in values or "doubts" in arrays:
        past.unpack(values, arrays)
    else:
        past.values[:] = read_past(arrays, features, dim).values
    return past


def pack_first(like: Row | None) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The first covariates, whose order later ones take, for a snapshot."""
    if like is None:
        return {}, {}
    return {"columns": like.names}, {"first_x": like.values.copy()}


def read_first(values: Values, arrays: Arrays, features: Features) -> Row | None:
    """The first covariates as they were stored: there if and only if the features need some."""
    if not features.needs_x:
        return None
    _, shape = arrays.form("first_x")
    names = values.words("columns")
    row = Row(arrays.floats("first_x", shape), names)
    if len(shape) not in (1, 2) or (names is not None and len(names) != shape[-1]):
        raise SnapshotError(f"The snapshot's first_x of shape {shape} has {names} for columns.")
    return features.check(row)


def read_shape(values: Values, wanted: Shape) -> Shape:
    """The shape as it was stored, which must be the one that features and covariates give."""
    found = values["shape"]
    if found != list(wanted):
        raise SnapshotError(f"The snapshot's shape must be {list(wanted)}, got {str(found)[:60]}.")
    return wanted


def read_dim(values: Values) -> int:
    """The number of coordinates of y, from the stored shape."""
    shape = values["shape"]
    if not isinstance(shape, list) or not shape:
        raise SnapshotError(f"The snapshot's shape must be a list, got {str(shape)[:60]}.")
    return Values({"shape": shape[0]}).whole("shape", 1, MOST_COORDINATES)


def try_out(predict: Callable[[], Forecast]) -> None:
    """Refuse a stored state that no stream could have led to: it must be able to forecast."""
    with np.errstate(all="ignore"):
        forecast = predict()
        spread = np.einsum("kii->ki", forecast.spread)
        known = (forecast.location, forecast.spread, np.atleast_1d(forecast.sd))
    finite = all(np.isfinite(part).all() for part in known)
    if not finite or not (spread > 0).all() or not (forecast.dof > 0).all():
        raise SnapshotError("The snapshot's state cannot forecast: it is garbled.")
