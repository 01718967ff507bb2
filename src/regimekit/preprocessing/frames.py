"""Conversion of arrays, lists, series and data frames to the arrays that models use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, numbers

Array = NDArray[np.float64]


class Row(NamedTuple):
    """Covariates of one observation: (k,) values, and column names if known."""

    values: Array
    names: tuple[str, ...] | None = None


class Table(NamedTuple):
    """Covariates of a stream.

    Attributes:
        values: (T, k). A column that is not numeric is NaN; features that use it raise an error.
        names: column names, if known.
        index: row labels, if known.
    """

    values: Array
    names: tuple[str, ...] | None = None
    index: Any = None

    def row(self, t: int) -> Row:
        """Return the covariates of one observation."""
        return Row(self.values[t], self.names)


class Series(NamedTuple):
    """Observations of a stream.

    Attributes:
        values: (T, d).
        backend: data-frame library of the input, or None.
        index: row labels, if any: an index, or the column of times.
        name: name of the column, if there is only one.
    """

    values: Array
    backend: Any = None
    index: Any = None
    name: str = ""


def read_series(y: Any) -> Series:
    """Convert observations to (T, d) values.

    Args:
        y: array, list, series or data frame of any library that narwhals supports. The first
            column of times in a data frame labels the rows.

    Raises:
        RegimekitError: if y is not numeric or has more than two dimensions.
    """
    # An array needs no conversion; a service passes one for each request.
    native = y if type(y) is np.ndarray else nw.from_native(y, pass_through=True, allow_series=True)
    index, backend, name = None, None, ""
    if isinstance(native, nw.DataFrame):
        native, index = _without_times(native)
        for column in native.columns:
            if not _numeric(native, column):
                raise RegimekitError(
                    f"y must be numeric, got column {column!r} of type {native.schema[column]}. "
                    "Leave it out or encode it."
                )
        values, backend = numbers("y", native.to_numpy()), native.implementation
        name = native.columns[0] if len(native.columns) == 1 else ""
    elif isinstance(native, nw.Series):
        if native.dtype.is_temporal():
            raise RegimekitError(
                f"y must be numeric, got times ({native.dtype}). Choose another column."
            )
        values, backend = numbers("y", native.to_numpy()), native.implementation
        name = native.name
        index = nw.maybe_get_index(native)
    else:
        values = plain_numbers("y", y)
    if values.ndim not in (1, 2):
        raise RegimekitError(f"y must have one or two dimensions, got shape {values.shape}.")
    if values.shape[-1] == 0 and values.ndim == 2:
        raise RegimekitError(f"y must have at least one column, got shape {values.shape}.")
    # Data frames have their columns in a row; the kernels need the rows so.
    table = np.ascontiguousarray(values[:, None] if values.ndim == 1 else values)
    return Series(table, backend, index, str(name or ""))


def read_table(X: Any, length: int | None = None) -> Table | None:
    """Convert covariates to a table.

    Args:
        X: array, list, mapping, series, data frame, `Table` or None. The first column of times
            labels the rows and is not a covariate.
        length: required number of rows; None accepts any.

    Returns:
        The table, or None if X is None.
    """
    if X is None:
        return None
    table = _to_table(X)
    if length is not None and len(table.values) != length:
        raise RegimekitError(f"X has {len(table.values)} rows but y has {length}.")
    return table


def _to_table(X: Any) -> Table:
    if isinstance(X, Table):
        return X
    if isinstance(X, Mapping):
        return _from_mapping(X)
    native = nw.from_native(X, pass_through=True, allow_series=True)
    if isinstance(native, nw.DataFrame):
        native, index = _without_times(native)
        return Table(_numbers_or_nan(native), tuple(native.columns), index)
    if isinstance(native, nw.Series):
        column = numbers("X", native.to_numpy())
        return Table(column[:, None], (native.name,), nw.maybe_get_index(native))
    values = plain_numbers("X", X)
    return Table(values[:, None] if values.ndim == 1 else values)


def plain_numbers(argument: str, given: Any) -> Array:
    """Convert an array or a list to floats; the error names the first entry that is text."""
    try:
        return numbers(argument, given)
    except RegimekitError:
        texts = enumerate(given) if isinstance(given, (list, tuple)) else ()
        for row, entry in texts:
            try:
                float(entry if isinstance(entry, str) else 0.0)
            except ValueError:
                raise RegimekitError(
                    f"{argument} must be numeric: {entry!r} at row {row} is not a number. "
                    "Use NaN for a missing value."
                ) from None
        raise


def misaligned(y: Any, X: Any) -> int | None:
    """Return the first row where two indexes differ; None if they agree or are not known."""
    if not (chosen(y) and chosen(X)) or len(y) != len(X):
        return None
    differ = np.flatnonzero(np.asarray(y) != np.asarray(X))
    return int(differ[0]) if differ.size else None


def chosen(index: Any) -> bool:
    """Return whether row labels carry information; a default index 0, 1, .. does not."""
    counted = getattr(index, "start", None) == 0 and getattr(index, "step", None) == 1
    return index is not None and not counted


def take(labels: Any, rows: NDArray[np.int64]) -> Any:
    """Return the labels of some rows; an index or a series keeps its type and its time zone."""
    if isinstance(labels, (list, tuple)):
        return np.asarray(labels)[rows]
    return labels.take(rows) if hasattr(labels, "take") else labels[rows]


def _from_mapping(X: Mapping[Any, Any]) -> Table:
    """A dict of columns."""
    if not X:
        raise RegimekitError("X is an empty dict; give a column for each name.")
    columns = {name: _column(values) for name, values in X.items()}
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r}: {n}" for name, n in lengths.items())
        raise RegimekitError(f"X has columns of different lengths ({found}).")
    return Table(np.column_stack(list(columns.values())), tuple(columns))


def _column(values: Any) -> Array:
    """Values of one covariate; all NaN if they are not numeric."""
    if np.ndim(values) != 1:
        raise RegimekitError("X as a mapping must have one sequence per name.")
    try:
        return numbers("X", values)
    except RegimekitError:
        return np.full(len(values), np.nan)


def _without_times(frame: nw.DataFrame[Any]) -> tuple[nw.DataFrame[Any], Any]:
    """A data frame without its first column of times, and the row labels."""
    times = [name for name in frame.columns if frame.schema[name].is_temporal()]
    if not times or len(frame.columns) == 1:
        return frame, nw.maybe_get_index(frame)
    column = nw.maybe_reset_index(frame[times[0]])
    return frame.drop(times[0]), column.to_native()


def _numeric(frame: nw.DataFrame[Any], name: str) -> bool:
    return frame.schema[name].is_numeric() or frame.schema[name] == nw.Boolean


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


def position(name: str | int, names: tuple[str, ...] | None, size: int) -> int:
    """Return the index of a covariate.

    Args:
        name: its name or its position.
        names: names of all covariates, if known.
        size: number of covariates.
    """
    if isinstance(name, int):
        if name >= size:
            raise RegimekitError(
                f"x has {size} column(s), so position {name} (from 0) does not exist."
            )
        return name
    if names is None:
        raise RegimekitError(
            f"x has no column names, but the features need {name!r}. Pass a mapping or a row of a "
            "data frame, or choose columns by position."
        )
    if name not in names:
        raise RegimekitError(f"x has no column {name!r}; it has {', '.join(map(str, names))}.")
    return names.index(name)


def read_row(x: Any) -> Row:
    """Convert the covariates of one observation to a Row, never a view of the argument.

    Args:
        x: number, vector, mapping of names to numbers, Row, or a row of a data frame.
    """
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
    """Convert a row of a data frame to a mapping; return anything else unchanged."""
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
    """Convert a covariate; NaN if it is not a number. Features that use NaN raise an error."""
    try:
        return math.nan if value is None else float(value)
    except (TypeError, ValueError):
        return math.nan


def aligned(row: Row, like: Row) -> Row:
    """Return covariates in the order of an earlier row."""
    if row.names is None or like.names is None or row.names == like.names:
        if row.values.shape != like.values.shape:
            raise RegimekitError(
                f"x must have shape {like.values.shape} as before, got {row.values.shape}."
            )
        return row
    order = [position(name, row.names, row.values.size) for name in like.names]
    return Row(row.values[order], like.names)
