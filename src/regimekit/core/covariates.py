"""State that models with features share: covariates and lags, clipped, packed and unpacked.

Features are clipped to MAX_FEATURE, because products of larger ones would overflow in the
statistics of a regime.

Arguments of the functions:
    values: values of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.core.limits import MAX_COORDINATES
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.emissions.base import Shape
from regimekit.preprocessing.features import Features
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.lag_buffer import LagBuffer
from regimekit.serialization import schema
from regimekit.serialization.validation import Arrays, Values

Array = NDArray[np.float64]
# The square of its product with the largest coefficient, 1e100, is finite.
MAX_FEATURE = 1e50
STORED = (-1e155, 1e155)  # range of stored statistics, because features and residuals are clipped


def bounded(features: Array) -> Array:
    """Return the features of one observation, clipped to MAX_FEATURE.

    Args:
        features: (k,).
    """
    if features.size and max(features.max(), -features.min()) > MAX_FEATURE:
        return np.clip(features, -MAX_FEATURE, MAX_FEATURE)
    return features


def read_past(arrays: Arrays, features: Features, dim: int) -> LagBuffer:
    """Return the buffer of a snapshot without suspected outliers."""
    past = LagBuffer(features.depth, dim)
    past.values = arrays.floats("past", (features.depth, dim))
    return past


def pack_lags(past: LagBuffer) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return values and arrays of the lag buffer; empty if no feature is a lag."""
    return schema.pack_state(past, "past.") if past.depth else ({}, {})


def read_lags(values: Values, arrays: Arrays, features: Features, dim: int) -> LagBuffer:
    """Return the lag buffer of a snapshot.

    Args:
        arrays, features, dim: as for `read_past`.
    """
    past = LagBuffer(features.depth, dim)
    if past.depth:
        schema.unpack_state(past, values, arrays, "past.")
    return past


def pack_first(like: Row | None) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return values and arrays of the first covariates, which set the order of later ones.

    Args:
        like: the first covariates, or None.
    """
    if like is None:
        return {}, {}
    names = None if like.names is None else list(like.names)  # as JSON has them
    return {"columns": names}, {"first_x": like.values.copy()}


def read_first(values: Values, arrays: Arrays, features: Features) -> Row | None:
    """Return the first covariates of a snapshot; None if the features use none."""
    if not features.needs_x:
        return None
    _, shape = arrays.form("first_x")
    names = values.words("columns")
    row = Row(arrays.floats("first_x", shape), names)
    if len(shape) not in (1, 2) or (names is not None and len(names) != shape[-1]):
        raise SnapshotError(f"Invalid snapshot: first_x has shape {shape} but columns {names}.")
    return features.check(row)


def read_shape(values: Values, wanted: Shape) -> Shape:
    """Return the stored shape if it is that of features and covariates.

    Args:
        wanted: the shape of features and covariates.
    """
    found = values["shape"]
    if found != list(wanted):
        raise SnapshotError(
            f"Invalid snapshot: shape must be {list(wanted)}, got {str(found)[:60]}."
        )
    return wanted


def read_dim(values: Values) -> int:
    """Return the number of coordinates of y from the stored shape."""
    shape = values["shape"]
    if not isinstance(shape, list) or not shape:
        raise SnapshotError(f"Invalid snapshot: shape must be a list, got {str(shape)[:60]}.")
    return Values({"shape": shape[0]}).whole("shape", 1, MAX_COORDINATES)


def try_out(predict: Callable[[], Forecast]) -> None:
    """Raise SnapshotError if a stored state cannot forecast, which no stream leads to."""
    with np.errstate(all="ignore"):
        forecast = predict()
        spread = np.einsum("kii->ki", forecast.spread)
        known = (forecast.location, forecast.spread, np.atleast_1d(forecast.sd))
    finite = all(np.isfinite(part).all() for part in known)
    if not finite or not (spread > 0).all() or not (forecast.dof > 0).all():
        raise SnapshotError("Invalid snapshot: the forecast of its state is not finite.")
