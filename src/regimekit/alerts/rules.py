"""Alert rules and mute windows: validated, immutable, convertible from and to JSON values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from regimekit.core.exceptions import RegimekitError, unknown

ANOMALY = "anomaly"
REGIME_CHANGE = "regime change"
FAULT = "fault"
FORECAST_LIMIT = "forecast limit"
STALE = "stale"
SEVERITIES = ("info", "warning", "critical")
DEFAULT_WARMUP = 60  # rows
MAX_ROWS = 100_000  # largest number of rows of a rule's setting
_COMMON = {"name", "kind", "stream", "prefix", "severity"}
# Settings of each kind, besides the common ones.
_SETTINGS = {
    ANOMALY: {"threshold", "count", "window", "quiet", "warmup", "budget"},
    REGIME_CHANGE: {"dwell", "returning", "quiet", "warmup", "budget"},
    FAULT: {"dwell"},
    FORECAST_LIMIT: {"above", "below", "horizon", "probability", "quiet", "warmup"},
    STALE: {"seconds"},
}
ALERT_KINDS = tuple(_SETTINGS)


@dataclass(frozen=True)
class Rule:
    """What to alert on, and for which streams.

    Attributes:
        name: unique name; part of the id of an alert.
        kind: "anomaly" (at least `count` of the latest `window` rows have an anomaly score above
            `threshold`), "regime change" (a regime that was not seen before lasts `dwell` rows),
            "fault" (the regime has the status "fault"), "forecast limit" (the
            forecast crosses a limit within `horizon` steps) or "stale" (no row for `seconds`).
        stream: key of the only stream it applies to; None for all streams with `prefix`.
        prefix: beginning of the keys of the streams it applies to.
        severity: "info", "warning" or "critical".
        threshold: anomaly score in [0, 1). The default has a false-alarm probability of 1e-4 per
            row if the forecasts are calibrated.
        count: anomalous rows among the latest `window` rows that open an alert.
        window: rows.
        dwell: rows that a regime must last before it counts; None for 20 ("regime change") or 5
            ("fault", where it is the number of rows without the fault that resolve an alert).
        returning: whether a change to a regime that was seen before also opens an alert.
        above: upper limit of the stream.
        below: lower limit of the stream.
        horizon: steps ahead.
        probability: probability of a crossing at one step that opens an alert.
        seconds: seconds without a row.
        quiet: rows without the cause after which the alert resolves; for "regime change" the
            rows after which the new regime counts as usual. None for 1000 ("regime change") or
            100.
        warmup: rows at the start of a stream on which the rule does not open alerts.
        budget: alerts per 10 000 rows that open on the usual evidence. Each alert of the kinds
            "anomaly" and "regime change" that the stream had before makes the next one need ten
            times smaller tail probabilities, or twice the `dwell`; this fades over 10 000 /
            `budget` rows. 0 for no such limit.
    """

    name: str
    kind: str
    stream: str | None = None
    prefix: str = ""
    severity: str = "warning"
    threshold: float = 0.9999
    count: int = 2
    window: int = 10
    dwell: int | None = None
    returning: bool = False
    above: float | None = None
    below: float | None = None
    horizon: int = 12
    probability: float = 0.5
    seconds: float = 600.0
    quiet: int | None = None
    warmup: int = DEFAULT_WARMUP
    budget: float = 2.0

    def __post_init__(self) -> None:
        if self.kind not in _SETTINGS:
            raise unknown("rule kind", self.kind, ALERT_KINDS)
        if self.severity not in SEVERITIES:
            raise unknown("severity", self.severity, SEVERITIES)
        if not isinstance(self.name, str) or not re.fullmatch(r"[^\x00-\x1f\x7f]{1,80}", self.name):
            raise RegimekitError(
                f"The name of a rule must have 1 to 80 printable characters, got {self.name!r}."
            )
        # The dataclass is frozen; the defaults depend on the kind.
        change = self.kind == REGIME_CHANGE
        if self.dwell is None:
            object.__setattr__(self, "dwell", 20 if change else 5)
        if self.quiet is None:
            object.__setattr__(self, "quiet", 1000 if change else 100)
        for name in ("count", "window", "dwell", "horizon", "quiet"):
            _check_rows(name, getattr(self, name), 1)
        _check_rows("warmup", self.warmup, 0)
        if self.count > self.window:
            raise RegimekitError(
                f"count must be at most window, got count {self.count} and window {self.window}."
            )
        for name in ("threshold", "probability"):
            value = getattr(self, name)
            if not _is_number(value) or not 0 <= value < 1:
                raise RegimekitError(f"{name} must be in [0, 1), got {value!r}.")
        if not _is_number(self.budget) or self.budget < 0:
            raise RegimekitError(f"budget must be at least 0, got {self.budget!r}.")
        if not _is_number(self.seconds) or not self.seconds > 0:
            raise RegimekitError(f"seconds must be positive, got {self.seconds!r}.")
        for name in ("above", "below"):
            value = getattr(self, name)
            if value is not None and not _is_number(value):
                raise RegimekitError(f"{name} must be a finite number, got {value!r}.")
        if self.kind == FORECAST_LIMIT and self.above is None and self.below is None:
            raise RegimekitError("A rule of kind 'forecast limit' needs `above` or `below`.")

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Rule:
        """Create a rule from JSON values.

        Raises:
            RegimekitError: if the kind is unknown, a setting does not belong to the kind, or a
                value is out of range.
        """
        for name in ("name", "kind"):
            if not given.get(name):
                raise RegimekitError(f"A rule needs {name!r}, got {dict(given)}.")
        if given["kind"] not in _SETTINGS:
            raise unknown("rule kind", str(given["kind"]), ALERT_KINDS)
        allowed = sorted(_COMMON | _SETTINGS[given["kind"]])
        check_names(f"setting of a rule of kind {given['kind']!r}", given, allowed)
        return cls(**given)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings of the rule's kind as JSON values, for `from_dict`."""
        allowed = _COMMON | _SETTINGS[self.kind]
        return {name: value for name, value in asdict(self).items() if name in allowed}

    def applies(self, stream: str) -> bool:
        """Return whether the rule applies to a stream with this key."""
        return stream == self.stream if self.stream is not None else stream.startswith(self.prefix)


def check_names(what: str, given: Iterable[str], known: Sequence[str]) -> None:
    """Raise RegimekitError if a given name is not known."""
    for name in given:
        if name not in known:
            raise unknown(what, name, known)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _check_rows(name: str, value: Any, least: int) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not least <= value <= MAX_ROWS:
        raise RegimekitError(
            f"{name} must be a whole number from {least} to {MAX_ROWS}, got {value!r}."
        )


@dataclass(frozen=True)
class Mute:
    """A time window without notifications. An alert that is open at its end is sent then.

    Attributes:
        prefix: beginning of the keys of the streams it applies to.
        start: begin of a single window, in seconds since 1970.
        end: end of a single window, in seconds since 1970.
        daily: a window that repeats instead, as "HH:MM-HH:MM"; it may pass midnight.
        days: days on which a daily window begins, 0 is Monday; all if empty.
        timezone: name of the time zone of a daily window.
        note: reason.
    """

    prefix: str = ""
    start: float | None = None
    end: float | None = None
    daily: str | None = None
    days: tuple[int, ...] = ()
    timezone: str = "UTC"
    note: str = ""

    def __post_init__(self) -> None:
        if self.daily is None:
            if self.start is None or self.end is None or not self.start < self.end:
                raise RegimekitError(
                    "A mute window needs `start` before `end`, or `daily` as 'HH:MM-HH:MM'."
                )
            return
        if self.start is not None or self.end is not None:
            raise RegimekitError("A mute window has `daily`, or `start` and `end`, not both.")
        self._clock()
        if any(day not in range(7) for day in self.days):
            raise RegimekitError(f"days must be from 0 (Monday) to 6, got {list(self.days)}.")
        self._zone()

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Mute:
        """Create a window from JSON values.

        Raises:
            RegimekitError: if a field is unknown or a value is invalid.
        """
        check_names("field of a mute window", given, [entry.name for entry in fields(cls)])
        return cls(**{**given, "days": tuple(given.get("days", ()))})

    def to_dict(self) -> dict[str, Any]:
        """Return the fields that are set as JSON values, for `from_dict`."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return given | {"days": list(self.days)}

    def until(self, stream: str, now: float) -> float | None:
        """Return the end of the window that mutes a stream at `now`, or None if there is none."""
        if not stream.startswith(self.prefix):
            return None
        if self.start is not None and self.end is not None:
            return self.end if self.start <= now < self.end else None
        begin, end = self._clock()
        today = datetime.fromtimestamp(now, UTC).astimezone(self._zone())
        # A window that passes midnight may have begun yesterday.
        for day in (today, today - timedelta(days=1)):
            if self.days and day.weekday() not in self.days:
                continue
            first = datetime.combine(day.date(), begin, day.tzinfo)
            last_day = day.date() + timedelta(days=1) if end <= begin else day.date()
            last = datetime.combine(last_day, end, day.tzinfo)
            if first.timestamp() <= now < last.timestamp():
                return last.timestamp()
        return None

    def _clock(self) -> tuple[time, time]:
        try:
            begin, end = (time.fromisoformat(part.strip()) for part in str(self.daily).split("-"))
        except ValueError:
            raise RegimekitError(f"daily must be 'HH:MM-HH:MM', got {self.daily!r}.") from None
        return begin, end

    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(self.timezone)
        except (ZoneInfoNotFoundError, ValueError):
            raise RegimekitError(
                f"timezone must be a name such as 'Europe/Berlin', got {self.timezone!r}."
            ) from None


def mute_end(mutes: Iterable[Mute], stream: str, now: float) -> float | None:
    """Return the time until which notifications of a stream are muted, or None.

    Windows that follow each other without a gap count as one.
    """
    end: float | None = None
    windows = list(mutes)
    moment = now
    # Each round passes one window; a chain of windows is at most as long as their number.
    for _ in range(len(windows) + 1):
        found = [until for mute in windows if (until := mute.until(stream, moment)) is not None]
        if not found or (end is not None and max(found) <= end):
            break
        end = moment = max(found)
    return end
