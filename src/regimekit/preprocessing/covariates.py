"""The covariates of one observation as callers hold them, turned into a Row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import narwhals as nw
import numpy as np

from regimekit.core.exceptions import RegimekitError, numbers
from regimekit.preprocessing.frames import Row


def position(name: str | int, names: tuple[str, ...] | None, size: int) -> int:
    """Where a covariate stands, by name or by position."""
    if isinstance(name, int):
        if name >= size:
            raise RegimekitError(f"x has {size} column(s), so none at position {name} (from 0).")
        return name
    if names is None:
        raise RegimekitError(
            f"x has no column names but the features ask for {name!r}; pass a mapping or a row "
            "of a data frame, or choose columns by position."
        )
    if name not in names:
        raise RegimekitError(f"x has no column {name!r}; it has {', '.join(map(str, names))}.")
    return names.index(name)


def read_row(x: Any) -> Row:
    """Covariates of one observation as callers hold them; never a view of theirs."""
    if isinstance(x, Row):
        row = Row(np.atleast_1d(numbers("x", x.values)), x.names)
        if row.names is not None and len(row.names) != row.values.shape[-1]:
            raise RegimekitError(f"x has {len(row.names)} names for {row.values.shape[-1]} values.")
        return row
    if not isinstance(x, (Mapping, np.ndarray, list, tuple, float, int)):
        x = _read_native(x)
    if not isinstance(x, Mapping):
        return Row(np.atleast_1d(numbers("x", x)))
    return Row(np.array([_number(value) for value in x.values()]), tuple(x))


def _read_native(x: Any) -> Any:
    """A row of a data frame as a mapping; anything else as it is."""
    native = nw.from_native(x, pass_through=True, allow_series=True)
    if isinstance(native, nw.DataFrame):
        if len(native) != 1:
            raise RegimekitError(f"x must be one row, got a frame of {len(native)}.")
        return native.rows(named=True)[0]
    if isinstance(native, nw.Series):
        labels = nw.maybe_get_index(native)
        return native.to_list() if labels is None else dict(zip(labels, native, strict=True))
    return x


def _number(value: Any) -> float:
    """A covariate; NaN where it is no number, which is refused if a feature needs it."""
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError):
        return math.nan


def aligned(row: Row, like: Row) -> Row:
    """`row` with the covariates of an earlier one, in its order."""
    if row.names is None or like.names is None or row.names == like.names:
        if row.values.shape != like.values.shape:
            raise RegimekitError(
                f"x must have shape {like.values.shape} as before, got {row.values.shape}."
            )
        return row
    order = [position(name, row.names, row.values.size) for name in like.names]
    return Row(row.values[order], like.names)
