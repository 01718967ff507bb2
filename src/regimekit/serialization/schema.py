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

from regimekit.serialization.validation import LATEST, Arrays

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


def restore(
    state: Any,
    arrays: Arrays,
    fields: Iterable[Field],
    sizes: Mapping[str, int],
    prefix: str = "",
) -> None:
    """Set the attributes of a state object from validated arrays; numbers have shape ()."""
    for name, array in unpack(arrays, fields, sizes, prefix).items():
        setattr(state, name, array if array.ndim else array.item())
