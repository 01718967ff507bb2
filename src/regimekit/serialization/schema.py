"""One schema per state class: name, type, shape and range of every field of its state.

The same fields pack a state object and restore it from values and arrays that may come from
anywhere. Kernels index without bounds checks, so nothing reaches them before its type, shape and
range were found valid. A schema maps the name of an attribute to its field:

    "mean": ("float64", ("n", "3"), -1e8, 1e8)                          an array
    "buffer": ("float64", (None, "dim"), -1e130, 1e130, "missing")      NaN is valid
    "log_share": ("float64", ("n",), -inf, 0.0, "infinite")             infinities are valid
    "count": ("int64", (), 0, "depth")                                  a scalar
    "past": "object"                                                    a nested state object

A shape consists of names of integer attributes, numbers as text, and None for any length. A bound
is a number or the name of an attribute, with a minus sign in front if wanted. Fields are restored
in the order of the schema, so a length or bound may be a field before it. They may be properties: a
getter gives the stored form, a setter takes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.serialization.validation import LATEST, Arrays, Values

Schema = Mapping[str, Any]
COUNT = (0, LATEST)  # range of counts and times
NESTED = "object"


def pack_state(
    state: Any, prefix: str = "", schema: Schema | None = None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return copies of the fields of a state object.

    Args:
        state: the object.
        prefix: put before all names; nested objects add theirs.
        schema: its fields, by default `FIELDS` of its class.

    Returns:
        Scalars as JSON values, and arrays, by prefixed name.
    """
    values: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, given in (schema or type(state).FIELDS).items():
        if given == NESTED:
            more_values, more_arrays = pack_state(getattr(state, name), f"{prefix}{name}.")
            values |= more_values
            arrays |= more_arrays
        elif given[1]:
            arrays[prefix + name] = np.array(getattr(state, name), dtype=given[0])
        else:
            values[prefix + name] = np.dtype(given[0]).type(getattr(state, name)).item()
    return values, arrays


def unpack_state(
    state: Any, values: Values, arrays: Arrays, prefix: str = "", schema: Schema | None = None
) -> None:
    """Restore a state object from the output of `pack_state`.

    After its fields, an object's `refresh()` is called, if it has one, to recompute derived values
    and to raise SnapshotError for impossible states.

    Args:
        state: a new object with the sizes of the packed one.
        values: the scalars.
        arrays: the arrays.
        prefix: put before all names.
        schema: its fields, by default `FIELDS` of its class.

    Raises:
        SnapshotError: If a field is absent, or has the wrong type, shape or range. Arrays are
            checked before they are read.
    """
    for name, given in (schema or type(state).FIELDS).items():
        if given == NESTED:
            unpack_state(getattr(state, name), values, arrays, f"{prefix}{name}.")
        else:
            setattr(state, name, _read(state, values, arrays, prefix + name, *given))
    if hasattr(state, "refresh"):
        state.refresh()


def _read(
    state: Any,
    values: Values,
    arrays: Arrays,
    name: str,
    dtype: str,
    lengths: tuple[str | None, ...],
    low: float | str,
    high: float | str,
    *also: str,
) -> Any:
    """Return a validated field."""
    low, high = _bound(state, low), _bound(state, high)
    if not lengths:
        if dtype == "bool":
            return values.flag(name)
        is_whole = dtype == "int64"
        return (
            values.whole(name, int(low), int(high)) if is_whole else values.number(name, low, high)
        )
    shape = tuple(length if length is None else _length(state, length) for length in lengths)
    if dtype == "bool":
        return arrays.flags(name, shape)
    if dtype == "int64":
        return arrays.wholes(name, shape, int(low), int(high))
    return arrays.floats(name, shape, low, high, "missing" in also, "infinite" in also)


def _length(state: Any, length: str) -> int:
    return int(length) if length.isdigit() else int(getattr(state, length))


def _bound(state: Any, bound: float | str) -> float:
    if not isinstance(bound, str):
        return bound
    sign = -1.0 if bound.startswith("-") else 1.0
    return sign * float(getattr(state, bound.lstrip("-")))
