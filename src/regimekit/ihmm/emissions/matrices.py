"""Numbers, vectors and covariances in settings and snapshots, checked.

Arguments of the functions:
    argument: name for error messages.
    value: the value.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, SnapshotError, numbers, positive

Array = NDArray[np.float64]


def read_finite(argument: str, value: Any) -> float:
    """Return a number, or an array of one number, as a finite positive float."""
    number = positive(argument, np.reshape(value, ())[()] if np.size(value) == 1 else value)
    if math.isinf(number):
        raise RegimekitError(f"{argument} must be finite, got {value!r}.")
    return number


def read_pair(argument: str, value: Any, names: str) -> tuple[float, float]:
    """Return two finite positive numbers.

    Args:
        value: the pair.
        names: what they are, as in "(shape, rate)".
    """
    pair = numbers(argument, value).reshape(-1)
    if pair.size != 2:
        raise RegimekitError(f"{argument} must be {names}, got {value!r}.")
    return read_finite(argument, pair[0]), read_finite(argument, pair[1])


def read_vector(argument: str, value: Any, size: int) -> Array:
    """Return a number or a vector as a vector of finite values, (size,)."""
    vector = numbers(argument, value)
    if vector.ndim > 1 or vector.size not in (1, size):
        raise RegimekitError(
            f"{argument} must be a number or a vector of {size}, got shape {vector.shape}."
        )
    if not np.isfinite(vector).all():
        raise RegimekitError(f"{argument} must be finite, got {value!r}.")
    return np.broadcast_to(vector, (size,)).copy()


def read_covariance(argument: str, value: Any, size: int) -> Array:
    """Return a variance, a vector of variances or a matrix as a positive definite matrix."""
    given = numbers(argument, value)
    if given.ndim < 2:
        if given.size not in (1, size):
            raise RegimekitError(
                f"{argument} must be a number, a vector of {size} or a ({size}, {size}) matrix, "
                f"got shape {given.shape}."
            )
        given = np.diag(np.broadcast_to(given.reshape(-1), (size,)))
    if given.shape != (size, size):
        raise RegimekitError(f"{argument} must be a ({size}, {size}) matrix, got {given.shape}.")
    symmetric = np.allclose(given, given.T, rtol=1e-10, atol=0)
    if not np.isfinite(given).all() or not symmetric or np.linalg.eigvalsh(given).min() <= 0:
        raise RegimekitError(
            f"{argument} must be positive"
            f"{'' if size == 1 else ' definite and symmetric'}, got {value!r}."
        )
    return given


def read_dim(argument: str, value: Any) -> int | None:
    """Return d of a (d, d) noise covariance, or None for a number, which is valid for every d."""
    given = numbers(argument, value)
    if given.ndim not in (0, 2):
        raise RegimekitError(f"{argument} must be a number or a (d, d) matrix, got {value!r}.")
    return int(given.shape[0]) if given.ndim else None


def check_prior(settings: Any) -> None:
    """Raise RegimekitError if `prior_mean` or `prior_var` are invalid for every shape.

    Args:
        settings: settings with these fields.
    """
    for name, read in (("prior_mean", read_vector), ("prior_var", read_covariance)):
        given = numbers(name, getattr(settings, name))
        read(name, given, given.shape[0] if given.ndim else 1)


def check_roots(roots: Array) -> None:
    """Raise SnapshotError if a square root of a covariance is singular.

    Args:
        roots: (n, m, m).
    """
    with np.errstate(all="ignore"):
        sizes = np.linalg.slogdet(roots)[1] if roots.size else np.zeros(1)
    if not np.isfinite(sizes).all():
        raise SnapshotError("Invalid snapshot: a covariance is not positive definite.")
