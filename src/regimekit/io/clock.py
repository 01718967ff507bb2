"""What the time stamps of a stream say: repeats, gaps, disorder.

a time before the one above it   refused, with its row
the same time again              a second delivery: the first is kept
k steps later, k > 1             k - 1 observations are missing, and are put in as missing
more than LONGEST steps later    a pause: nothing is put in
between two steps                taken as the next observation
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from regimekit.core.exceptions import RegimekitError
from regimekit.preprocessing.time_index import Frequency, Time, find_frequency

LONGEST = 10_000  # missing observations put into one gap
FIRST = 10  # times by which the frequency of a live stream is found


def _earlier(time: Any, other: Any) -> bool:
    """Times of one stream are all of one kind: numbers, or dates, which can be compared."""
    return bool(time < other)


@dataclass
class Clock:
    """Follows the time stamps of a stream and counts what is not as it should be."""

    frequency: Frequency | None = None
    last: Time | None = None
    repeats: int = 0
    gaps: int = 0
    missing: int = 0
    pauses: int = 0
    between: int = 0
    first: list[Time] | None = None  # the first times, where the frequency is to be learnt

    def tick(self, time: Time, where: str) -> int | None:
        """Missing observations before `time`, or None if it is here for the second time.

        `where` names the row in a message.
        """
        before, self.last = self.last, time
        if self.first is not None:
            self._learn(time)
        if before is None:
            return 0
        if _earlier(time, before):
            self.last = before
            raise RegimekitError(
                f"{where}: its time {show(time)} is earlier than that of the row above, "
                f"{show(before)}. Sort the rows by time, or let --sort do it."
            )
        if time == before:
            self.repeats += 1
            return None
        return self._gap(before, time)

    def _learn(self, time: Time) -> None:
        """Find the frequency by the first times, whatever part of the stream is there already."""
        assert self.first is not None
        self.first.append(time)
        if len(self.first) == FIRST:
            self.frequency, self.first = find_frequency(self.first), None

    def _gap(self, before: Time, time: Time) -> int:
        if self.frequency is None:
            return 0
        steps = self.frequency.steps(before, time)
        if steps is None:
            self.between += 1
            return 0
        if steps <= 1:
            return 0
        if steps - 1 > LONGEST:
            self.pauses += 1
            return 0
        self.gaps += 1
        self.missing += steps - 1
        return steps - 1

    def words(self) -> list[str]:
        """What was not as it should be, a sentence each."""
        found = []
        if self.repeats:
            found.append(f"Rows with the time of the row above, left out: {self.repeats}.")
        if self.gaps:
            found.append(f"Gaps: {self.gaps}; observations put in as missing: {self.missing}.")
        if self.pauses:
            found.append(f"Pauses of more than {LONGEST} steps, not filled: {self.pauses}.")
        if self.between:
            found.append(
                "Rows between two steps of the clock, each taken as the next observation: "
                f"{self.between}."
            )
        return found

    def to_json(self) -> dict[str, Any]:
        """Its state as JSON values."""
        state = asdict(self)
        state["last"] = _pack(self.last)
        state["first"] = self.first and [_pack(time) for time in self.first]
        return state

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Clock:
        """The clock that `to_json` described."""
        frequency = state["frequency"] and Frequency(**state["frequency"])
        first = state["first"] and [_unpack(time) for time in state["first"]]
        last = _unpack(state["last"])
        return cls(**{**state, "frequency": frequency, "last": last, "first": first})


def show(time: Time) -> str:
    """A time as it is written to files."""
    return time.isoformat(sep=" ") if isinstance(time, datetime) else f"{time:g}"


def _pack(time: Time | None) -> str | float | None:
    return time.isoformat() if isinstance(time, datetime) else time


def _unpack(time: str | float | None) -> Time | None:
    return datetime.fromisoformat(time) if isinstance(time, str) else time
