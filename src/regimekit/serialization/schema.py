"""Pack, validate and unpack state objects by the schema of their class.

A state class has an attribute `FIELDS`, a dict from the name of an attribute to its field:

    "mean": ("float64", ("n", "3"), -1e8, 1e8)              an array, or NaN-free numbers
    "buffer": ("float64", (None, "dim"), -1e130, 1e130, "missing")      NaN is allowed
    "count": ("int64", (), 0, "depth")                      a scalar
    "past": "object"                                        a nested state object

A shape is a tuple of lengths: the name of an integer attribute, a number as text, or None for any
length. A bound is a number or the name of an attribute, with a minus sign in front if wanted.
Fields are read in the order of the dict, so a length or bound may be a field before it. Fields may
be properties: a getter gives the stored form, a setter takes it.

Scalars become JSON values, arrays stay arrays; nested objects have their names as prefix. After its
fields, an object's `refresh()` is called, if it has one, to recompute what follows from them and to
refuse states that cannot be.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.serialization.validation import Arrays, Values

NESTED = "object"


class Field(NamedTuple):
    """Type, shape and range of one attribute."""

    dtype: str  # "float64", "int64" or "bool"
    shape: tuple[str | None, ...]
    low: float | str
    high: float | str
    missing: str = ""  # "missing" if NaN is allowed


def pack(state: Any, prefix: str = "") -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the fields of a state object.

    Args:
        state: an object whose class has `FIELDS`.
        prefix: begins all names.

    Returns:
        Scalars as JSON values, and arrays, by prefixed name.
    """
    values: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, given in type(state).FIELDS.items():
        if given == NESTED:
            more_values, more_arrays = pack(getattr(state, name), f"{prefix}{name}.")
            values |= more_values
            arrays |= more_arrays
            continue
        field = Field(*given)
        if field.shape:
            arrays[prefix + name] = np.array(getattr(state, name), dtype=field.dtype)
        else:
            values[prefix + name] = np.dtype(field.dtype).type(getattr(state, name)).item()
    return values, arrays


def unpack(state: Any, values: Values, arrays: Arrays, prefix: str = "") -> None:
    """Set the fields of a state object from what `pack` returned.

    Args:
        state: a fresh object of the packed one's sizes.
        values: the scalars.
        arrays: the arrays.
        prefix: begins all names.

    Raises:
        SnapshotError: if a field is missing or has another type, shape or range. Arrays are
            checked before they are read.
    """
    for name, given in type(state).FIELDS.items():
        if given == NESTED:
            unpack(getattr(state, name), values, arrays, f"{prefix}{name}.")
        else:
            setattr(state, name, validated(state, prefix + name, Field(*given), values, arrays))
    if hasattr(state, "refresh"):
        state.refresh()


def validated(state: Any, name: str, field: Field, values: Values, arrays: Arrays) -> Any:
    """Return the stored value of one field of a state object.

    Raises:
        SnapshotError: if it has another type, shape or range.
    """
    low, high = _bound(state, field.low), _bound(state, field.high)
    if not field.shape:
        if field.dtype == "bool":
            return values.flag(name)
        if field.dtype == "int64":
            return values.whole(name, int(low), int(high))
        return values.number(name, low, high)
    shape = tuple(_length(state, length) for length in field.shape)
    if field.dtype == "bool":
        return arrays.flags(name, shape)
    if field.dtype == "int64":
        return arrays.wholes(name, shape, int(low), int(high))
    return arrays.floats(name, shape, low, high, missing=bool(field.missing))


def equal(one: Any, other: Any) -> bool:
    """Return whether two state objects have the same fields; NaN equals NaN."""
    packed, wanted = pack(one), pack(other)
    return packed[0] == wanted[0] and all(
        np.array_equal(array, wanted[1].get(name), equal_nan=array.dtype.kind == "f")
        for name, array in packed[1].items()
    )


def _length(state: Any, length: str | None) -> int | None:
    if length is None:
        return None
    return int(length) if length.isdigit() else int(getattr(state, length))


def _bound(state: Any, bound: float | str) -> float:
    if not isinstance(bound, str):
        return bound
    sign = -1.0 if bound.startswith("-") else 1.0
    return sign * float(getattr(state, bound.lstrip("-")))
