"""Streams as callers hold them (arrays, lists, series, data frames) turned into plain arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from holdfast.errors import HoldfastError, numbers

Array = NDArray[np.float64]


class Row(NamedTuple):
    """The covariates of one observation, with their column names where known."""

    values: Array
    names: tuple[str, ...] | None = None


class Table(NamedTuple):
    """Covariates of a whole stream: (T, k) values and column names where known."""

    values: Array
    names: tuple[str, ...] | None = None

    def row(self, t: int) -> Row:
        return Row(self.values[t], self.names)


class Series(NamedTuple):
    """Observations of a whole stream: (T, d) values, the data-frame module they came in, and
    the labels of its index where it has one."""

    values: Array
    backend: Any = None
    index: Any = None


def read_series(y: Any) -> Series:
    """`y` as (T, d); arrays, lists, series and frames of any library narwhals knows."""
    native = nw.from_native(y, pass_through=True, allow_series=True)
    index = None
    if isinstance(native, (nw.DataFrame, nw.Series)):
        values = numbers("y", native.to_numpy())
        backend, index = native.implementation, nw.maybe_get_index(native)
    else:
        values, backend = numbers("y", y), None
    if values.ndim not in (1, 2):
        raise HoldfastError(f"y must have one or two dimensions, got shape {values.shape}.")
    return Series(values[:, None] if values.ndim == 1 else values, backend, index)


def read_table(X: Any, length: int | None = None) -> Table | None:
    """`X` as a table of covariates, or None; `length` is what it must have."""
    if X is None:
        return None
    if isinstance(X, Table):
        return _checked(X, length)
    native = nw.from_native(X, pass_through=True, allow_series=True)
    names: tuple[str, ...] | None = None
    if isinstance(native, nw.DataFrame):
        names = tuple(native.columns)
        values = _frame_values(native)
    elif isinstance(native, nw.Series):
        names, values = (native.name,), numbers("X", native.to_numpy())
    else:
        values = numbers("X", X)
    if values.ndim == 1:
        values = values[:, None]
    return _checked(Table(values, names), length)


def _checked(table: Table, length: int | None) -> Table:
    if length is not None and len(table.values) != length:
        raise HoldfastError(f"X has {len(table.values)} rows but y has {length}.")
    return table


def _frame_values(frame: nw.DataFrame[Any]) -> Array:
    for name in frame.columns:
        if not frame.schema[name].is_numeric() and frame.schema[name] != nw.Boolean:
            raise HoldfastError(
                f"X has the column {name!r} of type {frame.schema[name]}, which is not numeric; "
                "leave it out or encode it."
            )
    return numbers("X", frame.to_numpy())
