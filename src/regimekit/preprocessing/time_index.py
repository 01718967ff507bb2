"""Time index of a stream: time stamps, their frequency, seasons, and labels of future steps.

`read_times` converts dates, texts that are dates, or numbers into a `TimeIndex`: floats for an axis
and text for people. `find_frequency` infers the step between observations and `Frequency.seasons`
the season lengths that a calendar suggests.

Time zones: steps shorter than a day are counted in absolute time, days, weeks and months in local
time. When the clock changes, a series of days therefore keeps its midnights, and a day of hours has
23 or 25 steps.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError

Array = NDArray[np.float64]
Time = datetime | float
DATES, NUMBERS, ROWS = "dates", "numbers", "rows"

_MINUTE, _HOUR, _DAY, _WEEK = 60, 3600, 86_400, 604_800  # seconds
_RESOLUTIONS = (("D", _DAY), ("m", _MINUTE), ("s", 1))  # coarsest first
_DURATIONS = (
    ("years", 365.25 * 86_400),
    ("days", 86_400.0),
    ("hours", 3600.0),
    ("minutes", 60.0),
    ("seconds", 1.0),
)
_STEP_NAMES = {
    1: "every second",
    60: "every minute",
    3600: "hourly",
    86400: "daily",
    _WEEK: "weekly",
}
# Main season by step: seconds -> observations.
_SEASONS = {60: 1440, 300: 288, 600: 144, 900: 96, 1800: 48, 3600: 24, 86400: 7, _WEEK: 52}
_MIN_REGULAR_SHARE = 0.6  # share of equal steps from which a stream counts as regular
_MIN_SEASON = 4  # observations
_FIRST_LABELS = 200  # labels from which the frequency of a series is inferred


class TimeIndex(NamedTuple):
    """Times of T observations.

    Attributes:
        values: (T,) seconds since 1970 for dates, in local time if they have a time
            zone; the given numbers; or 0 .. T - 1.
        kind: "dates", "numbers" or "rows".
    """

    values: Array
    kind: str

    @property
    def step(self) -> float:
        """Median distance between neighbours; 1 if there are fewer than two."""
        gaps = np.diff(self.values)
        return float(np.median(gaps)) if gaps.size else 1.0

    def ahead(self, n: int) -> TimeIndex:
        """Return the next times, at the median distance."""
        last = self.values[-1] if len(self.values) else -1.0
        steps = np.arange(1, n + 1, dtype=np.float64)
        return TimeIndex(float(last) + self.step * steps, self.kind)

    def labels(self, like: TimeIndex | None = None) -> list[str]:
        """Return each time as text.

        Args:
            like: times whose resolution is used; by default its own.
        """
        if self.kind != DATES:
            return [f"{value:.10g}" for value in self.values]
        known = (like or self).values
        unit = next((u for u, length in _RESOLUTIONS if not np.any(known % length)), "ms")
        stamps = np.round(self.values * 1000).astype("datetime64[ms]")
        floored = stamps.astype(f"datetime64[{unit}]").astype(str)
        return [text.replace("T", " ") for text in floored.tolist()]

    def duration(self, n: float) -> str:
        """Return a time span as text, e.g. "1.5 days"; "" if the times are no dates."""
        if self.kind != DATES:
            return ""
        seconds = n * self.step
        # Up to two years are given in days.
        units = _DURATIONS[0 if seconds >= 2 * _DURATIONS[0][1] else 1 :]
        name, length = next((unit for unit in units if seconds >= unit[1]), units[-1])
        amount = f"{seconds / length:.3g}"
        return f"{amount} {name[:-1] if amount == '1' else name}"


def read_times(times: Any, length: int) -> TimeIndex:
    """Convert time stamps to a time index.

    Args:
        times: dates, texts that are dates, numbers, or None for row numbers.
        length: number of observations.

    Returns:
        The time index; dates with a time zone are in local time.

    Raises:
        RegimekitError: if the length differs, a time is missing, or times decrease.

    Example:
        >>> read_times(["2024-01-01", "2024-01-02"], 2).labels()
        ['2024-01-01', '2024-01-02']
    """
    if times is None:
        return TimeIndex(np.arange(length, dtype=float), ROWS)
    native = nw.from_native(times, pass_through=True, allow_series=True, series_only=True)
    plain = native.to_list() if isinstance(native, nw.Series) else list(times)
    if len(plain) != length:
        raise RegimekitError(
            f"times must have one entry per observation ({length}), got {len(plain)}."
        )
    if all(isinstance(t, (int, float, np.integer, np.floating)) for t in plain):
        found = TimeIndex(np.array(plain, dtype=float), NUMBERS)
    else:
        found = _parse_dates(plain)
    _check_order(found.values)
    return found


def _parse_dates(plain: list[Any]) -> TimeIndex:
    try:
        local = [_wall_clock(t) for t in plain]
        stamps = np.array(local, dtype="datetime64[us]")
    except (TypeError, ValueError):
        raise RegimekitError(
            f"times must be dates or numbers, got {plain[0]!r}. Write dates as 2024-01-31 12:00."
        ) from None
    seconds = np.where(np.isnat(stamps), np.nan, stamps.astype(np.int64) / 1e6)
    if any(getattr(t, "tzinfo", None) is not None for t in plain):
        _check_order(np.array([_absolute(t).timestamp() for t in plain]))
        # In autumn local time repeats an hour; an axis must not go back.
        seconds = np.maximum.accumulate(seconds)
    return TimeIndex(seconds, DATES)


def _wall_clock(time: Any) -> Any:
    """Return a time without its zone, as a clock there shows it."""
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    return time.replace(tzinfo=None) if isinstance(time, datetime) else time


def _absolute(time: datetime) -> datetime:
    """Return a time in UTC; a time without a zone is unchanged."""
    return time if time.tzinfo is None else time.astimezone(UTC)


def instant(time: Time) -> Time:
    """Return a time that can be compared with others of its stream.

    Two times with the same zone are compared by their local time, which repeats an hour in
    autumn; two times in UTC are compared in the order in which they happen.
    """
    return _absolute(time) if isinstance(time, datetime) else time


def time_array(times: Sequence[Time | None]) -> NDArray[Any] | None:
    """Return times as a (T,) array of datetime64, of datetimes with a zone, or of numbers.

    Returns:
        The array; None without times.
    """
    if not times or times[0] is None:
        return None
    if not isinstance(times[0], datetime):
        return np.array(times, dtype=float)
    if times[0].tzinfo is None:
        return np.array(times, dtype="datetime64[us]")
    found = np.empty(len(times), dtype=object)
    found[:] = times
    return found


def time_to_json(time: Time | None) -> str | float | None:
    """Return a time as a JSON value, without the name of its zone."""
    return time.isoformat() if isinstance(time, datetime) else time


def time_from_json(value: str | float | None, zone: str | None = None) -> Time | None:
    """Return the time of a JSON value.

    Args:
        value: output of `time_to_json`.
        zone: name of its zone, or None.
    """
    if not isinstance(value, str):
        return value
    time = datetime.fromisoformat(value)
    return time if zone is None else time.astimezone(find_zone(zone))


def find_zone(name: str) -> tzinfo:
    """Return a time zone by its name.

    Raises:
        RegimekitError: if the name is not known.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RegimekitError(
            f"The time zone {name!r} is not known. Write it as Europe/Berlin or UTC."
        ) from None


def _check_order(values: Array) -> None:
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise RegimekitError(f"times is missing at row {row}. Every observation needs a time.")
    decreasing = np.flatnonzero(np.diff(values) < 0)
    if decreasing.size:
        raise RegimekitError(
            f"times decreases at row {int(decreasing[0]) + 1}. Sort the observations by time."
        )


@dataclass(frozen=True)
class Frequency:
    """Step between two observations: `size` times `unit`.

    Attributes:
        unit: "seconds", "months", "business days" or "numbers" (a counter without a calendar).
        size: number of units in a step.
    """

    unit: str
    size: float

    def __str__(self) -> str:
        if self.unit == "business days":
            return "daily except weekends"
        if self.unit == "months":
            names = {1: "monthly", 3: "quarterly", 12: "yearly"}
            return names.get(int(self.size), f"every {self.size:g} months")
        if self.unit == "numbers":
            return f"every {self.size:g}"
        return _STEP_NAMES.get(int(self.size)) or _describe_seconds(self.size)

    @property
    def season(self) -> int | None:
        """Main season length in steps: a day of hours, a week of days, a year of months."""
        if self.unit == "business days":
            return 5
        if self.unit == "months":
            return {1: 12, 3: 4}.get(int(self.size))
        return _SEASONS.get(int(self.size)) if self.unit == "seconds" else None

    @property
    def seasons(self) -> tuple[int, ...]:
        """Season lengths in steps that the clock or the calendar suggests, shortest first.

        Example:
            >>> Frequency("seconds", 3600).seasons, Frequency("months", 1).seasons
            ((24, 168), (12,))
        """
        if self.unit != "seconds" or self.size == _WEEK:
            return () if self.season is None else (self.season,)
        # An hour is a season only for steps of at most a minute; fractions of an hour have days.
        hours = (_HOUR,) if self.size <= _MINUTE else ()
        exact = [length / self.size for length in (*hours, _DAY, _WEEK)]
        return tuple(int(steps) for steps in exact if steps >= _MIN_SEASON and steps.is_integer())

    @property
    def _by_calendar(self) -> bool:
        """Whether steps are counted in local time."""
        return self.unit != "seconds" or self.size % _DAY == 0

    def steps(self, before: Time, after: Time) -> int | None:
        """Return the number of steps between two times; None if it is not whole."""
        convert = _wall_clock if self._by_calendar else instant
        before, after = convert(before), convert(after)
        if self.unit == "months":
            assert isinstance(before, datetime) and isinstance(after, datetime)
            return _round_ratio(_months(before, after) / self.size)
        if self.unit == "business days":
            assert isinstance(before, datetime) and isinstance(after, datetime)
            return _business_days(before, after)
        return _round_ratio(_distance(before, after) / self.size)

    def after(self, time: Time, steps: int) -> Time:
        """Return a later time."""
        if not isinstance(time, datetime):
            return time + steps * self.size
        if self.unit == "months":
            return _add_months(time, round(steps * self.size))
        if self.unit == "business days":
            return _add_business_days(time, steps)
        step = timedelta(seconds=steps * self.size)
        if time.tzinfo is None or self._by_calendar:
            return time + step
        return (_absolute(time) + step).astimezone(time.tzinfo)


def find_frequency(times: Sequence[Time]) -> Frequency | None:
    """Infer the step that most neighbouring times have.

    Args:
        times: increasing dates or numbers.

    Returns:
        The frequency, or None if fewer than 60 % of the steps are equal.

    Example:
        >>> day = [datetime(2024, 1, 1, hour) for hour in (0, 1, 2, 4, 5)]
        >>> str(find_frequency(day))
        'hourly'
    """
    local = [_wall_clock(time) for time in times]
    gaps = [gap for a, b in itertools.pairwise(local) if (gap := _distance(a, b)) > 0]
    by_calendar = bool(gaps) and isinstance(local[0], datetime) and not any(g % _DAY for g in gaps)
    times = local if by_calendar else [instant(time) for time in times]
    gaps = [gap for a, b in itertools.pairwise(times) if (gap := _distance(a, b)) > 0]
    if not gaps:
        return None
    calendar = _find_calendar_frequency(times, gaps)
    if calendar is not None:
        return calendar
    size, count = Counter(round(gap, 6) for gap in gaps).most_common(1)[0]
    if count < _MIN_REGULAR_SHARE * len(gaps):
        return None
    return Frequency("seconds" if isinstance(times[0], datetime) else "numbers", size)


def seasons_of(frequency: Frequency | None) -> tuple[int, ...]:
    """Return the season lengths of a frequency in steps; () without a frequency.

    Args:
        frequency: the frequency, or None.
    """
    return () if frequency is None else frequency.seasons


def dates_of_labels(labels: Any) -> list[datetime]:
    """Convert the labels of a series to dates with their zones.

    Args:
        labels: index or column of times of any library, or a list of dates or texts. A pandas
            PeriodIndex is represented by the start of each period.

    Returns:
        The dates; [] if the labels are not dates or not sorted.
    """
    try:
        started = getattr(labels, "start_time", labels)
        native = nw.from_native(started, pass_through=True, allow_series=True, series_only=True)
        plain = native.to_list() if isinstance(native, nw.Series) else list(started)
        dates = [_date(label) for label in plain]
    except (RegimekitError, TypeError, KeyError, ValueError):
        return []
    ordered = all(_absolute(a) <= _absolute(b) for a, b in itertools.pairwise(dates))
    return dates if ordered else []


def _date(label: Any) -> datetime:
    """Return a label as a date; ValueError if it is none."""
    if isinstance(label, str):
        return datetime.fromisoformat(label)
    if isinstance(label, np.datetime64):
        label = label.astype("datetime64[us]").item()
    if isinstance(label, datetime) and label == label:  # NaT is a datetime that equals nothing
        rounded = getattr(label, "floor", None)
        found = rounded("us").to_pydatetime() if rounded else label
        # Arithmetic with zones of pytz would keep the offset when the clock changes.
        name = getattr(found.tzinfo, "zone", None)
        return found.astimezone(find_zone(name)) if name else found
    if isinstance(label, date) and label == label:
        return datetime(label.year, label.month, label.day)
    raise ValueError(f"{label!r} is not a date")


def seasons_of_labels(labels: Any) -> tuple[int, ...]:
    """Return the season lengths in steps that the dates of a series suggest.

    Args:
        labels: index or column of times; None or other labels give ().

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


def _round_ratio(ratio: float) -> int | None:
    return round(ratio) if abs(ratio - round(ratio)) < 1e-3 and round(ratio) else None


def _months(a: datetime, b: datetime) -> float:
    """Calendar months from a to b; not whole if the day or the time of day differs."""
    both_last = _is_month_end(a) and _is_month_end(b)
    same = both_last or (a.day, a.time()) == (b.day, b.time())
    return 12 * (b.year - a.year) + b.month - a.month + (0.0 if same else 0.5)


def _is_month_end(time: datetime) -> bool:
    return (time + timedelta(days=1)).day == 1


def _add_months(time: datetime, months: int) -> datetime:
    year, month = divmod(12 * time.year + time.month - 1 + months, 12)
    first = time.replace(year=year, month=month + 1, day=1)
    next_month = (first + timedelta(days=32)).replace(day=1)
    length = (next_month - first).days
    return first.replace(day=length if _is_month_end(time) else min(time.day, length))


def _business_days(a: datetime, b: datetime) -> int | None:
    if a.time() != b.time() or b.weekday() > 4:
        return None
    weeks, rest = divmod((b.date() - a.date()).days, 7)
    return 5 * weeks + sum((a.weekday() + k) % 7 < 5 for k in range(1, rest + 1))


def _add_business_days(time: datetime, steps: int) -> datetime:
    weeks, rest = divmod(steps, 5)
    time += timedelta(weeks=weeks)
    for _ in range(rest):
        time += timedelta(days=3 if time.weekday() == 4 else 1)
    return time


def _find_calendar_frequency(times: Sequence[Time], gaps: list[float]) -> Frequency | None:
    """Frequencies whose steps differ in length: months, years, days without weekends."""
    days = [gap / _DAY for gap in gaps]
    dates = [time for time in times if isinstance(time, datetime)]
    if len(dates) < 3:
        return None
    if min(days) >= 28:
        months = [_months(a, b) for a, b in itertools.pairwise(dates) if a < b]
        size, count = Counter(months).most_common(1)[0]
        regular = size.is_integer() and count > _MIN_REGULAR_SHARE * len(gaps)
        return Frequency("months", size) if regular else None
    weekdays = {time.weekday() for time in dates}
    if min(days) == 1 and len(dates) >= 10 and weekdays <= set(range(5)):
        return Frequency("business days", 1)
    return None


def _describe_seconds(seconds: float) -> str:
    for unit, size in (("days", _DAY), ("hours", _HOUR), ("minutes", _MINUTE)):
        if seconds >= size and seconds % size == 0:
            return f"every {seconds / size:g} {unit}"
    return f"every {seconds:g} seconds"
