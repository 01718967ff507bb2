"""Streams as callers hold them (arrays, lists, series, data frames) turned into plain arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, numbers

Array = NDArray[np.float64]


class Row(NamedTuple):
    """The covariates of one observation, with their column names where known."""

    values: Array
    names: tuple[str, ...] | None = None


class Table(NamedTuple):
    """Covariates of a whole stream: (T, k) values, and column names and labels where known.

    Columns that hold no numbers are NaN: it is for those who use them to refuse them.
    """

    values: Array
    names: tuple[str, ...] | None = None
    index: Any = None

    def row(self, t: int) -> Row:
        return Row(self.values[t], self.names)


class Series(NamedTuple):
    """Observations of a whole stream: (T, d) values, the data-frame module they came in, the
    labels of its rows where it has some (an index, or the column of times as a series), and the
    name of its only column."""

    values: Array
    backend: Any = None
    index: Any = None
    name: str = ""


def read_series(y: Any) -> Series:
    """`y` as (T, d); arrays, lists, series and frames of any library narwhals knows.

    A frame may have a column of times, which labels the rows.
    """
    native = nw.from_native(y, pass_through=True, allow_series=True)
    index, backend, name = None, None, ""
    if isinstance(native, nw.DataFrame):
        native, index = _without_times(native)
        values, backend = _only_numbers(native, "y"), native.implementation
        name = native.columns[0] if len(native.columns) == 1 else ""
    elif isinstance(native, nw.Series):
        _refuse_times(native)
        values, backend = numbers("y", native.to_numpy()), native.implementation
        name = native.name
        index = nw.maybe_get_index(native)
    else:
        values = plain_numbers("y", y)
    if values.ndim not in (1, 2):
        raise RegimekitError(f"y must have one or two dimensions, got shape {values.shape}.")
    table = values[:, None] if values.ndim == 1 else values
    return Series(table, backend, index, str(name or ""))


def read_table(X: Any, length: int | None = None) -> Table | None:
    """`X` as a table of covariates, or None; `length` is what it must have.

    A column of times labels the rows and is no covariate.
    """
    if X is None:
        return None
    if isinstance(X, Table):
        return _checked(X, length)
    if isinstance(X, Mapping):
        return _checked(_from_mapping(X), length)
    native = nw.from_native(X, pass_through=True, allow_series=True)
    if isinstance(native, nw.DataFrame):
        native, index = _without_times(native)
        return _checked(Table(_numbers_or_nan(native), tuple(native.columns), index), length)
    if isinstance(native, nw.Series):
        column = numbers("X", native.to_numpy())
        table = Table(column[:, None], (native.name,), nw.maybe_get_index(native))
        return _checked(table, length)
    values = plain_numbers("X", X)
    return _checked(Table(values[:, None] if values.ndim == 1 else values), length)


def plain_numbers(argument: str, given: Any) -> Array:
    """An array or a list of numbers; the first entry that is none is named."""
    try:
        return numbers(argument, given)
    except RegimekitError:
        if isinstance(given, (list, tuple)):
            for row, entry in enumerate(given):
                if isinstance(entry, str):
                    raise RegimekitError(
                        f"{argument} holds text: {entry!r} at row {row} is not a number. Put NaN "
                        "where nothing was observed."
                    ) from None
        raise


def misaligned(y: Any, X: Any) -> int | None:
    """The first row where two pandas indexes differ; None where they agree or are not known."""
    if not (chosen(y) and chosen(X)) or len(y) != len(X):
        return None
    differ = np.flatnonzero(np.asarray(y) != np.asarray(X))
    return int(differ[0]) if differ.size else None


def chosen(index: Any) -> bool:
    """Whether labels were chosen by somebody: rows counted from 0 are not."""
    counted = getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1
    return index is not None and not counted


def _checked(table: Table, length: int | None) -> Table:
    if length is not None and len(table.values) != length:
        raise RegimekitError(f"X has {len(table.values)} rows but y has {length}.")
    return table


def _from_mapping(X: Mapping[Any, Any]) -> Table:
    """A dict of columns."""
    if not X:
        raise RegimekitError("X is an empty dict; give a column for each name.")
    columns = {name: _column(values) for name, values in X.items()}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r}: {n}" for name, n in lengths.items())
        raise RegimekitError(f"X has columns of different lengths ({told}).")
    return Table(np.column_stack(list(columns.values())), tuple(columns))


def _column(values: Any) -> Array:
    """Values of one covariate; NaN where they are no numbers."""
    if np.ndim(values) != 1:
        raise RegimekitError("X as a dict takes one sequence per name.")
    try:
        return numbers("X", values)
    except RegimekitError:
        return np.full(len(values), np.nan)


def _without_times(frame: nw.DataFrame[Any]) -> tuple[nw.DataFrame[Any], Any]:
    """A frame without its first column of times, and the labels of its rows."""
    times = [name for name in frame.columns if frame.schema[name].is_temporal()]
    if not times or len(frame.columns) == 1:
        return frame, nw.maybe_get_index(frame)
    column = nw.maybe_reset_index(frame[times[0]])
    return frame.drop(times[0]), column.to_native()


def _refuse_times(series: nw.Series[Any]) -> None:
    if series.dtype.is_temporal():
        raise RegimekitError(f"y holds times ({series.dtype}), not numbers; choose another column.")


def _numeric(frame: nw.DataFrame[Any], name: str) -> bool:
    return frame.schema[name].is_numeric() or frame.schema[name] == nw.Boolean


def _only_numbers(frame: nw.DataFrame[Any], argument: str) -> Array:
    for name in frame.columns:
        if not _numeric(frame, name):
            raise RegimekitError(
                f"{argument} has the column {name!r} of type {frame.schema[name]}, which is not "
                "numeric; leave it out or encode it."
            )
    return numbers(argument, frame.to_numpy())


def _numbers_or_nan(frame: nw.DataFrame[Any]) -> Array:
    if all(_numeric(frame, name) for name in frame.columns):
        return numbers("X", frame.to_numpy())
    columns = [
        numbers("X", frame[name].to_numpy())
        if _numeric(frame, name)
        else np.full(len(frame), np.nan)
        for name in frame.columns
    ]
    return np.column_stack(columns)
