"""One schema per state class: name, kind, shape and range of every array of its state.

The same list of fields packs a state object into arrays and restores it from arrays that may come
from anywhere. Kernels index without bounds checks, so nothing reaches them before its kind, shape
and range were found valid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.serialization.validation import LATEST, Arrays, Values

FLOAT, INTEGER, FLAG = "f", "i", "b"
COUNT = (0, LATEST)  # range of counts and times


class Field(NamedTuple):
    """One array of a state object.

    Attributes:
        name: attribute of the object.
        shape: lengths as numbers or as names that the caller resolves; None for any length.
        kind: FLOAT, INTEGER or FLAG.
        low: smallest valid value.
        high: largest valid value, or the name of a limit that the caller resolves.
        missing: whether NaN is valid.
        infinite: whether infinities within the range are valid.
    """

    name: str
    shape: tuple[int | str | None, ...] = ()
    kind: str = FLOAT
    low: float = -math.inf
    high: float | str = math.inf
    missing: bool = False
    infinite: bool = False


def pack(state: Any, fields: Iterable[Field], prefix: str = "") -> dict[str, NDArray[Any]]:
    """Return copies of the arrays of a state object.

    Args:
        state: object with one attribute per field: an array, a memoryview or a number.
        fields: its schema.
        prefix: put before the names.
    """
    kinds = {FLOAT: np.float64, INTEGER: np.int64, FLAG: np.bool_}
    return {
        prefix + field.name: np.array(getattr(state, field.name), kinds[field.kind])
        for field in fields
    }


def unpack(
    arrays: Arrays,
    fields: Iterable[Field],
    sizes: Mapping[str, int],
    prefix: str = "",
    limits: Mapping[str, float] | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the validated arrays of a state object by field name.

    Args:
        arrays: stored arrays.
        fields: the schema.
        sizes: lengths for the names that occur in shapes.
        prefix: before the names.
        limits: largest valid values for the names that occur as `high`.

    Raises:
        SnapshotError: If an array is absent, or has the wrong kind, shape or range.
    """
    found: dict[str, NDArray[Any]] = {}
    for field in fields:
        name = prefix + field.name
        shape = tuple(sizes[n] if isinstance(n, str) else n for n in field.shape)
        top = (limits or {})[field.high] if isinstance(field.high, str) else field.high
        if field.kind == FLOAT:
            found[field.name] = arrays.floats(
                name, shape, field.low, top, field.missing, field.infinite
            )
        elif field.kind == INTEGER:
            low = -LATEST if field.low == -math.inf else int(field.low)
            high = LATEST if top == math.inf else int(top)
            found[field.name] = arrays.wholes(name, shape, low, high)
        else:
            found[field.name] = arrays.flags(name, shape)
    return found


NESTED = "object"
_KINDS = {"float64": FLOAT, "int64": INTEGER, "bool": FLAG}


def pack_state(state: Any, prefix: str = "") -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the fields of a state object whose class has a dict `FIELDS`.

    The dict maps the name of an attribute to its field:

        "mean": ("float64", ("n", "3"), -1e8, 1e8)                          an array
        "buffer": ("float64", (None, "dim"), -1e130, 1e130, "missing")      NaN is allowed
        "count": ("int64", (), 0, "depth")                                  a scalar
        "past": "object"                                                    a nested state object

    A shape consists of the name of an integer attribute, a number as text, or None for any length.
    A bound is a number or the name of an attribute, with a minus sign in front if wanted. Fields
    are restored in the order of the dict, so a length or bound may be a field before it. They may
    be properties: a getter gives the stored form, a setter takes it.

    Args:
        state: the object.
        prefix: put before all names; nested objects add theirs.

    Returns:
        Scalars as JSON values, and arrays, by prefixed name.
    """
    values: dict[str, Any] = {}
    arrays: dict[str, NDArray[Any]] = {}
    for name, given in type(state).FIELDS.items():
        if given == NESTED:
            more_values, more_arrays = pack_state(getattr(state, name), f"{prefix}{name}.")
            values |= more_values
            arrays |= more_arrays
        elif given[1]:
            arrays[prefix + name] = np.array(getattr(state, name), dtype=given[0])
        else:
            values[prefix + name] = np.dtype(given[0]).type(getattr(state, name)).item()
    return values, arrays


def unpack_state(state: Any, values: Values, arrays: Arrays, prefix: str = "") -> None:
    """Restore a state object from the output of `pack_state`.

    After its fields, an object's `refresh()` is called, if it has one, to recompute derived values
    and to raise SnapshotError for impossible states.

    Args:
        state: a new object with the sizes of the packed one.
        values: the scalars.
        arrays: the arrays.
        prefix: put before all names.

    Raises:
        SnapshotError: If a field is absent, or has the wrong type, shape or range. Arrays are
            checked before they are read.
    """
    for name, given in type(state).FIELDS.items():
        if given == NESTED:
            unpack_state(getattr(state, name), values, arrays, f"{prefix}{name}.")
            continue
        dtype, lengths, low, high = given[:4]
        low, high = _bound(state, low), _bound(state, high)
        if lengths:
            named = (getattr(state, n, n) if isinstance(n, str) else n for n in lengths)
            shape = tuple(None if length is None else int(length) for length in named)
            field = Field(prefix + name, shape, _KINDS[dtype], low, high, len(given) > 4)
            setattr(state, name, unpack(arrays, [field], {})[prefix + name])
        else:
            setattr(state, name, _scalar(values, prefix + name, _KINDS[dtype], low, high))
    if hasattr(state, "refresh"):
        state.refresh()


def _scalar(values: Values, name: str, kind: str, low: float, high: float) -> Any:
    if kind == FLAG:
        return values.flag(name)
    if kind == INTEGER:
        return values.whole(name, int(low), int(high))
    return values.number(name, low, high)


def _bound(state: Any, bound: float | str) -> float:
    if not isinstance(bound, str):
        return bound
    sign = -1.0 if bound.startswith("-") else 1.0
    return sign * float(getattr(state, bound.lstrip("-")))
