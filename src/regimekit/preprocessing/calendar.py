"""Labels of the steps after a stream."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, SnapshotError
from regimekit.preprocessing.time_index import (
    NUMBERS,
    Frequency,
    Time,
    dates_of_labels,
    find_frequency,
    read_times,
    time_array,
    time_from_json,
    time_to_json,
)

_LAST_LABELS = 100  # labels from which future labels are extrapolated
_UNITS = ("seconds", "months", "business days", "numbers")


class Calendar:
    """Labels of the steps after a stream.

    Dates continue at their inferred frequency, including months and days without weekends, and
    keep their time zone. Numbers continue if they are evenly spaced. Other labels are not
    continued.

    Args:
        at: number of observations seen at the last label.
        last: the last label.
        frequency: step between two labels; None if they are not continued.
        native: data-frame library of the caller, or None.
    """

    def __init__(
        self, at: int, last: Time | None, frequency: Frequency | None, native: Any = None
    ) -> None:
        self.at, self.last, self.frequency, self.native = at, last, frequency, native

    @classmethod
    def of_labels(cls, index: Any, at: int, native: Any = None) -> Calendar:
        """Return the calendar of a stream.

        Args:
            index: its labels.
            at: number of observations at the last label.
            native: data-frame library of the caller, or None.
        """
        latest = index[-_LAST_LABELS:]
        if dates := dates_of_labels(latest):
            return cls(at, dates[-1], find_frequency(dates), native)
        try:
            numbers = read_times(latest, len(latest))
        except (RegimekitError, TypeError):  # labels that are no times, such as names
            return cls(at, None, None, native)
        gaps = np.diff(numbers.values)
        even = gaps.size > 0 and gaps[0] > 0 and np.allclose(gaps, gaps[0], rtol=1e-6, atol=0.0)
        if numbers.kind != NUMBERS or not even:
            return cls(at, None, None, native)
        step = Frequency("numbers", float(np.median(gaps)))
        return cls(at, float(numbers.values[-1]), step, native)

    def ahead(self, seen: int, n: int) -> NDArray[Any] | None:
        """Return the labels of future steps; None if they are not known.

        Returns:
            (n,) numbers, datetime64, or datetimes with their zone as objects.
        """
        if self.frequency is None or self.last is None:
            return None
        past = seen - self.at
        steps = range(past + 1, past + n + 1)
        return time_array([self.frequency.after(self.last, k) for k in steps])

    def time_of(self, row: int) -> Time | None:
        """Return the label of an observation; None if labels are not continued."""
        if self.frequency is None or self.last is None:
            return None
        try:
            return self.frequency.after(self.last, row - self.at + 1)
        except OverflowError:  # before the year 1
            return None

    def to_json(self) -> dict[str, Any] | None:
        """Return the calendar as JSON values; None if labels are not continued."""
        if self.frequency is None or self.last is None:
            return None
        return {
            "at": self.at,
            "last": time_to_json(self.last),
            "zone": getattr(getattr(self.last, "tzinfo", None), "key", None),
            "unit": self.frequency.unit,
            "size": self.frequency.size,
        }

    @classmethod
    def from_json(cls, state: Any) -> Self:
        """Return the calendar of a JSON value.

        Args:
            state: output of `to_json`.

        Raises:
            SnapshotError: if a value is not valid.
        """
        try:
            at, unit, size = int(state["at"]), state["unit"], float(state["size"])
            last: Any = time_from_json(state["last"], state["zone"])
            is_date = isinstance(last, datetime)
            last = last if is_date else float(last)
            if unit not in _UNITS or not 0 < size < 1e12 or is_date == (unit == "numbers"):
                raise ValueError(f"step of {size} {unit}")
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SnapshotError(f"Invalid snapshot: calendar cannot be read ({error}).") from None
        return cls(at, last, Frequency(unit, size))
