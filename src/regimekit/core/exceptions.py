"""Errors of the public interface, and checks of arguments that raise them.

Arguments of the functions:
    argument: name for error messages.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


class RegimekitError(ValueError):
    """Invalid argument. The model is unchanged."""


class SnapshotError(RegimekitError):
    """Invalid snapshot, or one of an unsupported version."""


def unknown(argument: str, got: object, known: Iterable[str]) -> RegimekitError:
    """Return the error for an unknown name, with a suggestion."""
    names = list(known)
    near = difflib.get_close_matches(str(got), names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return RegimekitError(f"{argument}={got!r} is not known; choose from {', '.join(names)}.{hint}")


def positive(argument: str, value: Any) -> float:
    """Return a number above zero as a float; infinity is valid."""
    number = _number(argument, value, "a number above 0")
    if math.isnan(number) or number <= 0:
        raise RegimekitError(f"{argument} must be above 0, got {value!r}.")
    return number


def share(argument: str, value: Any) -> float:
    """Return a number in [0, 1] as a float."""
    number = _number(argument, value, "a share in [0, 1]")
    if not 0 <= number <= 1:
        raise RegimekitError(f"{argument} must be a share in [0, 1], got {value!r}.")
    return number


def _number(argument: str, value: Any, wanted: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise RegimekitError(f"{argument} must be {wanted}, got {value!r}.") from None


def whole(argument: str, value: Any, least: int = 1, most: int = 2**53) -> int:
    """Return an integer within bounds, which exclude sizes that would use all memory."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise RegimekitError(f"{argument} must be a whole number, got {value!r}.")
    if value < least:
        raise RegimekitError(f"{argument} must be at least {least}, got {value}.")
    if value > most:
        raise RegimekitError(f"{argument} must be at most {most}, got {_short(value)}.")
    return int(value)


def _short(value: object) -> str:
    """Format a value for a message; a huge integer by its number of bits."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of {value.bit_length()} bits"
    return str(value)


def numbers(argument: str, value: Any) -> NDArray[np.float64]:
    """Return a new float array, never a view of the argument.

    Args:
        value: number, sequence or array.
    """
    try:
        is_complex = np.iscomplexobj(value)
        found = None if is_complex else np.array(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise RegimekitError(f"{argument} must be numeric, got {type(value).__name__}.") from None
    if found is None:
        raise RegimekitError(f"{argument} must be real, got complex numbers. Pass their real part.")
    return found


def moderate(argument: str, value: Any, most: float = 1e100) -> None:
    """Raise RegimekitError if products with a nonzero number would overflow or underflow.

    Args:
        value: number, vector or matrix.
        most: largest valid size; 1 / most is the smallest.
    """
    given = np.abs(numbers(argument, value))
    least = np.diag(given) if given.ndim == 2 else given  # zeros off the diagonal are accepted
    if not (given <= most).all() or not ((least == 0) | (least >= 1 / most)).all():
        raise RegimekitError(
            f"{argument} must have an absolute value from {1 / most:g} to {most:g}, got {value!r}. "
            "Use other units for y."
        )


def observation(y: Any, dim: int | None = None) -> NDArray[np.float64]:
    """Return one observation as a vector; NaN means not observed.

    Args:
        y: number, or d numbers.
        dim: required length d; None accepts any.
    """
    if type(y) is float and dim == 1 and not math.isinf(y):
        return np.array([y])
    vector = numbers("y", math.nan if y is None else y)
    if vector.ndim > 1 or vector.size == 0:
        raise RegimekitError(f"y must be a number or a vector, got shape {vector.shape}.")
    vector = vector.reshape(-1)
    if dim is not None and vector.size != dim:
        if vector.size == 1 and math.isnan(vector[0]):
            return np.full(dim, math.nan)
        raise RegimekitError(f"y must have {dim} value(s) as before, got {vector.size}.")
    if np.isinf(vector).any():
        raise RegimekitError("y is infinite. Pass NaN for a missing value.")
    return vector
