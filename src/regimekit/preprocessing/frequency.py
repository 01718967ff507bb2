"""How often a stream speaks: the step between its times, and which seasons a calendar gives it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from regimekit.core.exceptions import RegimekitError
from regimekit.preprocessing.time_index import DATES, read_times

Time = datetime | float

_USUAL = 0.6  # share of the steps that must be alike for a stream to be called regular
_NAMES = {
    1: "every second",
    60: "every minute",
    3600: "hourly",
    86400: "daily",
    604800: "weekly",
}
_SEASONS = {60: 1440, 300: 288, 600: 144, 900: 96, 1800: 48, 3600: 24, 86400: 7, 604800: 52}
_MINUTE, _HOUR, _DAY, _WEEK = 60, 3600, 86_400, 604_800
_SHORTEST = 4  # steps of a season that is worth naming
_FIRST_LABELS = 200  # by which the frequency of a labelled series is found


@dataclass(frozen=True)
class Frequency:
    """The step between two observations: `size` of a `unit`.

    Attributes:
        unit: "seconds", "months", "business days" or "numbers" (a counter without a calendar).
        size: how many of them make a step.
    """

    unit: str
    size: float

    def __str__(self) -> str:
        if self.unit == "business days":
            return "daily but at weekends"
        if self.unit == "months":
            words = {1: "monthly", 3: "quarterly", 12: "yearly"}
            return words.get(int(self.size), f"every {self.size:g} months")
        if self.unit == "numbers":
            return f"every {self.size:g}"
        return _NAMES.get(int(self.size), _spell(self.size))

    @property
    def season(self) -> int | None:
        """The usual length of a season in steps: a day of hours, a week of days, .."""
        if self.unit == "business days":
            return 5
        if self.unit == "months":
            return {1: 12, 3: 4}.get(int(self.size))
        return _SEASONS.get(int(self.size)) if self.unit == "seconds" else None

    @property
    def seasons(self) -> tuple[int, ...]:
        """The seasons that a clock or a calendar may give the stream, in steps, shortest first.

        Example:
            >>> Frequency("seconds", 3600).seasons, Frequency("months", 1).seasons
            ((24, 168), (12,))
        """
        if self.unit != "seconds" or self.size == _WEEK:
            return () if self.season is None else (self.season,)
        hours = (_HOUR,) if self.size <= _MINUTE else ()  # parts of an hour have days
        exact = [length / self.size for length in (*hours, _DAY, _WEEK)]
        return tuple(int(steps) for steps in exact if steps >= _SHORTEST and steps.is_integer())

    def steps(self, before: Time, after: Time) -> int | None:
        """How many steps later `after` is; None if it lies between two steps."""
        if self.unit == "months":
            assert isinstance(before, datetime) and isinstance(after, datetime)
            return _whole(_months(before, after) / self.size)
        if self.unit == "business days":
            assert isinstance(before, datetime) and isinstance(after, datetime)
            return _business_days(before, after)
        return _whole(_distance(before, after) / self.size)

    def after(self, time: Time, steps: int) -> Time:
        """The time `steps` later."""
        if not isinstance(time, datetime):
            return time + steps * self.size
        if self.unit == "months":
            return _add_months(time, round(steps * self.size))
        if self.unit == "business days":
            return _add_business_days(time, steps)
        return time + timedelta(seconds=steps * self.size)


def find_frequency(times: Sequence[Time]) -> Frequency | None:
    """The step that most neighbours among `times` have, or None if there is no such step.

    Example:
        >>> day = [datetime(2024, 1, 1, hour) for hour in (0, 1, 2, 4, 5)]
        >>> str(find_frequency(day))
        'hourly'
    """
    gaps = [_distance(a, b) for a, b in itertools.pairwise(times)]
    gaps = [gap for gap in gaps if gap > 0]
    if not gaps:
        return None
    calendar = _calendar(times, gaps)
    if calendar is not None:
        return calendar
    size, count = Counter(round(gap, 6) for gap in gaps).most_common(1)[0]
    if count < _USUAL * len(gaps):
        return None
    return Frequency("seconds" if isinstance(times[0], datetime) else "numbers", size)


def seasons_of(frequency: Frequency | None) -> tuple[int, ...]:
    """The seasons that a calendar may give a stream; none where it has no step."""
    return () if frequency is None else frequency.seasons


def dates_of_labels(labels: Any) -> list[datetime]:
    """Labels of a series as dates; none where they are others, or in disorder."""
    try:
        begun = getattr(labels, "start_time", labels)  # periods of time are called by their start
        line = read_times(begun, len(begun))
    except (RegimekitError, TypeError, KeyError):
        return []
    start = datetime(1970, 1, 1)
    return [start + timedelta(seconds=float(s)) for s in line.values] if line.kind == DATES else []


def seasons_of_labels(labels: Any) -> tuple[int, ...]:
    """The seasons that the dates of a series may have, in steps; none where these say nothing.

    Example:
        >>> seasons_of_labels([f"2024-{month:02d}-01" for month in range(1, 7)])
        (12,)
    """
    if labels is None:
        return ()
    return seasons_of(find_frequency(dates_of_labels(labels[:_FIRST_LABELS])))


def _distance(a: Time, b: Time) -> float:
    if isinstance(a, datetime) and isinstance(b, datetime):
        return (b - a).total_seconds()
    assert not isinstance(a, datetime) and not isinstance(b, datetime)
    return b - a


def _whole(ratio: float) -> int | None:
    return round(ratio) if abs(ratio - round(ratio)) < 1e-3 and round(ratio) else None


def _months(a: datetime, b: datetime) -> float:
    """Calendar months from a to b; a fraction where the day or the hour is another one."""
    last = _month_end(a) and _month_end(b)
    same = last or (a.day, a.time()) == (b.day, b.time())
    return 12 * (b.year - a.year) + b.month - a.month + (0.0 if same else 0.5)


def _month_end(time: datetime) -> bool:
    return (time + timedelta(days=1)).day == 1


def _add_months(time: datetime, months: int) -> datetime:
    year, month = divmod(12 * time.year + time.month - 1 + months, 12)
    first = time.replace(year=year, month=month + 1, day=1)
    length = (_next_month(first) - first).days
    return first.replace(day=length if _month_end(time) else min(time.day, length))


def _next_month(first: datetime) -> datetime:
    return (first + timedelta(days=32)).replace(day=1)


def _business_days(a: datetime, b: datetime) -> int | None:
    if a.time() != b.time() or b.weekday() > 4:
        return None
    weeks, rest = divmod((b.date() - a.date()).days, 7)
    return 5 * weeks + sum((a.weekday() + k) % 7 < 5 for k in range(1, rest + 1))


def _add_business_days(time: datetime, steps: int) -> datetime:
    for _ in range(steps):
        time += timedelta(days=3 if time.weekday() == 4 else 1)
    return time


def _calendar(times: Sequence[Time], gaps: list[float]) -> Frequency | None:
    """Steps that are not equally long: months, years, days without weekends."""
    days = [gap / 86400 for gap in gaps]
    dates = [time for time in times if isinstance(time, datetime)]
    if len(dates) < 3:
        return None
    if min(days) >= 28:
        months = [_months(a, b) for a, b in itertools.pairwise(dates) if a < b]
        size, count = Counter(months).most_common(1)[0]
        return (
            Frequency("months", size) if size.is_integer() and count > _USUAL * len(gaps) else None
        )
    weekdays = {time.weekday() for time in dates}
    if min(days) == 1 and len(dates) >= 10 and weekdays <= set(range(5)):
        return Frequency("business days", 1)
    return None


def _spell(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= size and seconds % size == 0:
            return f"every {seconds / size:g} {unit}"
    return f"every {seconds:g} seconds"
