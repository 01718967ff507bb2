"""A stream on a regular time index: rows in order, repeated times dropped, gaps filled.

The same rules apply to the rows of a file (`TimeColumn`): a time that repeats is skipped, k steps
without a row are k missing observations, and a covariate keeps its previous value within a gap.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.core.warnings import warn_once
from regimekit.preprocessing.frames import Series, Table, misaligned, read_series, read_table, take
from regimekit.preprocessing.time_column import TimeColumn
from regimekit.preprocessing.time_index import dates_of_labels, find_frequency

MISALIGNED = (
    "The indexes of y and X differ, first at row {row} ({one!r} and {other!r}). Rows are matched "
    "by position; to match them by label, pass X.reindex(y.index)."
)
_SAMPLE_LABELS = 1000  # labels from which the frequency is detected
_TEMPORAL = ("datetime", "date", "period")  # how the dtypes of times begin, in lower case


class Stream(NamedTuple):
    """Observations and covariates of a stream, row by row.

    Attributes:
        series: observations with their labels.
        table: covariates, or None.
        rows: (T,) the caller's row of each observation; -1 for one inserted into a gap.
    """

    series: Series
    table: Table | None
    rows: NDArray[np.int64]

    def expand(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return values of the caller's rows at the observations, (T, d); NaN in gaps.

        Args:
            values: (n, d), one per row of the caller.
        """
        found = values[np.maximum(self.rows, 0)]
        found[self.rows < 0] = np.nan
        return found


def read_stream(y: Any, X: Any, emitted: list[str]) -> Stream:
    """Read the observations and covariates of a stream and put them on a regular index.

    Args:
        y: observations, (T,) or (T, d): array, list, series or frame.
        X: covariates, one row per observation, or None.
        emitted: keys of the warnings emitted so far.

    Returns:
        The stream. Labels are those of y, or else those of X.

    Raises:
        RegimekitError: if y or X cannot be used, or if their dates decrease.
    """
    series = read_series(y)
    table = read_table(X, length=len(series.values))
    labels = series.index
    if table is not None:
        row = misaligned(series.index, table.index)
        if row is not None:
            one, other = str(series.index[row]), str(table.index[row])
            message = MISALIGNED.format(row=row, one=one, other=other)
            warn_once(emitted, "misaligned", message, stacklevel=5)
        labels = table.index if labels is None else labels
    stream = Stream(series._replace(index=labels), table, np.arange(len(series.values)))
    return _regular(stream, emitted) if is_temporal(labels) else stream


def is_temporal(labels: Any) -> bool:
    """Return whether labels are an index or a column of dates."""
    dtype = getattr(labels, "dtype", None)
    return dtype is not None and str(dtype).lower().startswith(_TEMPORAL)


def _regular(stream: Stream, emitted: list[str]) -> Stream:
    labels = stream.series.index
    if len(labels) < 3 or _is_even(labels):
        return stream
    dates = _dates(labels)
    column = TimeColumn(find_frequency(dates[:_SAMPLE_LABELS]))
    times: list[datetime] = []
    rows: list[int] = []
    for row, date in enumerate(dates):
        previous = column.last
        missing = column.advance(date, f"Row {row} of the index of y", "Sort y by its index.")
        if missing is None:
            continue
        for k in range(1, missing + 1):
            assert column.frequency is not None and isinstance(previous, datetime)
            filled: Any = column.frequency.after(previous, k)
            times.append(filled)
            rows.append(-1)
        times.append(date)
        rows.append(row)
    if not column.repeats and not column.gaps:
        return stream
    for note in column.notes():
        warn_once(emitted, note, f"{note} The index of y was made regular.", stacklevel=6)
    return _select(stream, np.array(rows), times)


def _is_even(labels: Any) -> bool:
    """Return whether all steps are equal in absolute time; quick, for long streams."""
    try:
        values = labels.tz_convert(None) if getattr(labels, "tz", None) is not None else labels
        array = np.asarray(values)
        if array.dtype.kind == "O" and array[0].tzinfo is not None:
            # numpy warns of each date with a zone.
            array = np.array([date.astimezone(UTC).replace(tzinfo=None) for date in array])
        steps = np.diff(array.astype("datetime64[us]").astype(np.int64))
    except (AttributeError, TypeError, ValueError):
        return False
    return bool(steps[0] > 0 and (steps == steps[0]).all())


def _dates(labels: Any) -> list[datetime]:
    """Return all labels as dates; a missing label, or dates that decrease, raise RegimekitError."""
    if dates := dates_of_labels(labels):
        return dates
    for row in range(len(labels)):
        if not dates_of_labels(labels[row : row + 1]):
            raise RegimekitError(f"The index of y has no time at row {row}. Drop the row.")
        if row and not dates_of_labels(labels[row - 1 : row + 1]):
            now, before = labels[row : row + 1], labels[row - 1 : row]
            raise RegimekitError(
                f"The index of y decreases at row {row} ({dates_of_labels(now)[0]} after "
                f"{dates_of_labels(before)[0]}). Sort y by its index."
            )
    raise RegimekitError("The index of y cannot be read as dates.")


def _select(stream: Stream, rows: NDArray[np.int64], times: list[datetime]) -> Stream:
    series, table = stream.series, stream.table
    gaps = rows < 0
    # Within a gap a covariate keeps its previous value.
    latest = np.maximum.accumulate(rows)
    values = series.values[latest].copy()
    values[gaps] = np.nan
    index = _labels(series.index, rows, times)
    if table is not None:
        table = table._replace(values=table.values[latest], index=index)
    return Stream(series._replace(values=values, index=index), table, rows)


def _labels(labels: Any, rows: NDArray[np.int64], times: list[datetime]) -> Any:
    """Return an index or column like `labels` for the given times."""
    if (rows >= 0).all():
        return take(labels, rows)
    column = nw.from_native(labels, pass_through=True, allow_series=True, series_only=True)
    if isinstance(column, nw.Series):
        backend = column.implementation
        return nw.new_series(column.name, times, column.dtype, backend=backend).to_native()
    if hasattr(labels, "start_time"):  # a pandas PeriodIndex
        return type(labels)(times, freq=labels.freq, name=labels.name)
    return type(labels)(times, name=labels.name).astype(labels.dtype)
