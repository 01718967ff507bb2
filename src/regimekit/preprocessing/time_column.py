"""Check the time stamps of a stream: order, repeats, gaps.

=================================  =============================================================
time of a row                      treatment
=================================  =============================================================
earlier than in the row above      error with the row number
same as in the row above           duplicate delivery: the row is skipped
k > 1 steps after the row above    k - 1 missing observations are inserted
more than `MAX_GAP` steps after    pause: nothing is inserted
between two steps                  taken as the next observation
=================================  =============================================================
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from regimekit.core.exceptions import RegimekitError
from regimekit.preprocessing.time_index import (
    Frequency,
    Time,
    find_frequency,
    instant,
    time_from_json,
    time_to_json,
)

MAX_GAP = 10_000  # missing observations inserted into one gap
DETECTION_ROWS = 10  # rows from which the frequency of a live stream is detected


@dataclass
class TimeColumn:
    """Time stamps of a stream, checked one after the other.

    Attributes:
        frequency: step between two observations, or None if there is no regular step.
        last: time of the latest row.
        repeats: rows skipped because they repeat the time of the row above.
        gaps: gaps filled with missing observations.
        missing: observations inserted into these gaps.
        pauses: gaps too long to fill.
        between: rows between two steps.
        first: first times of a live stream until its frequency is detected; None otherwise.
    """

    frequency: Frequency | None = None
    last: Time | None = None
    repeats: int = 0
    gaps: int = 0
    missing: int = 0
    pauses: int = 0
    between: int = 0
    first: list[Time] | None = None

    def advance(self, time: Time, row: str, remedy: str = "Sort the rows by time.") -> int | None:
        """Move to the time of the next row.

        Args:
            time: time of the row.
            row: name of the row in error messages.
            remedy: what to do if rows are out of order.

        Returns:
            Number of missing observations before the row; None if the row is a repeat.

        Raises:
            RegimekitError: if `time` is earlier than the last one. The state is unchanged.
        """
        previous = self.last
        # Times of one column are all numbers or all dates, so they can be compared.
        now: Any = instant(time)
        before: Any = None if previous is None else instant(previous)
        if previous is not None and now < before:
            raise RegimekitError(
                f"{row}: time {format_time(time)} is earlier than {format_time(previous)} in the "
                f"row above. {remedy}"
            )
        self.last = time
        if self.first is not None:
            self.first.append(time)
            if len(self.first) == DETECTION_ROWS:
                self.frequency, self.first = find_frequency(self.first), None
        if previous is None:
            return 0
        if now == before:
            self.repeats += 1
            return None
        return self._count_missing(previous, time)

    def _count_missing(self, previous: Time, time: Time) -> int:
        if self.frequency is None:
            return 0
        steps = self.frequency.steps(previous, time)
        if steps is None:
            self.between += 1
            return 0
        if steps <= 1:
            return 0
        if steps - 1 > MAX_GAP:
            self.pauses += 1
            return 0
        self.gaps += 1
        self.missing += steps - 1
        return steps - 1

    def notes(self) -> list[str]:
        """Return one sentence for each kind of irregularity that occurred."""
        sentences = (
            (self.repeats, f"Rows skipped because they repeat the time above: {self.repeats}."),
            (self.gaps, f"Gaps: {self.gaps}; missing observations inserted: {self.missing}."),
            (self.pauses, f"Pauses of more than {MAX_GAP} steps, not filled: {self.pauses}."),
            (
                self.between,
                f"Rows between two time steps, taken as the next observation: {self.between}.",
            ),
        )
        return [sentence for count, sentence in sentences if count]

    def to_json(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        state = asdict(self)
        state["last"] = time_to_json(self.last)
        state["first"] = self.first and [time_to_json(time) for time in self.first]
        return state

    @classmethod
    def from_json(cls, state: dict[str, Any], zone: str | None = None) -> TimeColumn:
        """Return the time column of a JSON value.

        Args:
            state: output of `to_json`.
            zone: name of the zone of its times, or None.
        """
        frequency = state["frequency"] and Frequency(**state["frequency"])
        first = state["first"] and [time_from_json(time, zone) for time in state["first"]]
        last = time_from_json(state["last"], zone)
        return cls(**{**state, "frequency": frequency, "last": last, "first": first})


def format_time(time: Time) -> str:
    """Return a time as text for files."""
    return time.isoformat(sep=" ") if isinstance(time, datetime) else f"{time:g}"
