"""When each observation was made: dates, numbers, or nothing but its row.

Everything that draws or prints a time goes through a `Timeline`: floats on one axis, and words
for a person.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError

Array = NDArray[np.float64]
DATES, NUMBERS, ROWS = "dates", "numbers", "rows"
_UNITS = (("D", 86_400), ("m", 60), ("s", 1))  # the coarsest that tells all times apart
_SPANS = (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))


class Timeline(NamedTuple):
    """The times of T observations.

    Attributes:
        values: (T,) seconds since 1970 (UTC) for dates, the numbers as given, or 0 .. T - 1.
        kind: "dates", "numbers" or "rows".
    """

    values: Array
    kind: str

    @property
    def step(self) -> float:
        """The usual distance between neighbours, 1 where there are none."""
        gaps = np.diff(self.values)
        return float(np.median(gaps)) if gaps.size else 1.0

    def ahead(self, n: int) -> Timeline:
        """The n times that come next, at the usual distance."""
        last = self.values[-1] if len(self.values) else -1.0
        steps = np.arange(1, n + 1, dtype=np.float64)
        return Timeline(float(last) + self.step * steps, self.kind)

    def words(self, like: Timeline | None = None) -> list[str]:
        """Every time for a person to read, as finely as `like` (these times) needs it."""
        if self.kind != DATES:
            return [f"{value:.10g}" for value in self.values]
        known = (like or self).values
        unit = next((u for u, length in _UNITS if not np.any(known % length)), "ms")
        stamps = np.round(self.values * 1000).astype("datetime64[ms]")
        floored = stamps.astype(f"datetime64[{unit}]").astype(str)
        return [text.replace("T", " ") for text in floored.tolist()]

    def span(self, n: float) -> str:
        """How long n observations take, where that can be said: "1.5 days", else ""."""
        if self.kind != DATES:
            return ""
        seconds = n * self.step
        name, length = next((s for s in _SPANS if seconds >= s[1]), _SPANS[-1])
        told = f"{seconds / length:.3g}"
        return f"{told} {name[:-1] if told == '1' else name}"


def read_times(times: Any, length: int) -> Timeline:
    """`times` of `length` observations: dates, texts that are dates, numbers, or None.

    Example:
        >>> read_times(["2024-01-01", "2024-01-02"], 2).words()
        ['2024-01-01', '2024-01-02']
    """
    if times is None:
        return Timeline(np.arange(length, dtype=float), ROWS)
    native = nw.from_native(times, pass_through=True, allow_series=True, series_only=True)
    plain = native.to_list() if isinstance(native, nw.Series) else list(times)
    if len(plain) != length:
        raise RegimekitError(f"times has {len(plain)} entries but there are {length} observations.")
    found = _numbers(plain) or _dates(plain)
    _check_order(found.values)
    return found


def _numbers(plain: list[Any]) -> Timeline | None:
    if not all(isinstance(t, (int, float, np.integer, np.floating)) for t in plain):
        return None
    return Timeline(np.array(plain, dtype=float), NUMBERS)


def _dates(plain: list[Any]) -> Timeline:
    try:
        stamps = np.array([_naive(t) for t in plain], dtype="datetime64[us]")
    except (TypeError, ValueError):
        raise RegimekitError(
            f"times must be dates or numbers, got {plain[0]!r}; write dates as 2024-01-31 12:00."
        ) from None
    seconds = stamps.astype(np.int64) / 1e6
    return Timeline(np.where(np.isnat(stamps), np.nan, seconds), DATES)


def _naive(time: Any) -> Any:
    """One time without a zone, in UTC if it had one."""
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    if isinstance(time, datetime) and time.tzinfo is not None:
        return time.astimezone(UTC).replace(tzinfo=None)
    return time


def _check_order(values: Array) -> None:
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise RegimekitError(f"times is missing at row {row}; every observation needs its time.")
    back = np.flatnonzero(np.diff(values) < 0)
    if back.size:
        raise RegimekitError(
            f"times goes back at row {int(back[0]) + 1}; sort the observations by time."
        )
