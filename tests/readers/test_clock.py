"""Time stamps: how often, what is missing, what is refused."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import pytest

from regimekit.core.exceptions import RegimekitError
from regimekit.io import Clock
from regimekit.io.clock import FIRST, LONGEST
from regimekit.preprocessing.time_index import Frequency, find_frequency

START = datetime(2024, 1, 1)


def every(count: int, **step: Any) -> list[datetime]:
    return [START + k * timedelta(**step) for k in range(count)]


def months(count: int, size: int) -> list[datetime]:
    return [datetime(2020 + k * size // 12, k * size % 12 + 1, 1) for k in range(count)]


WEEKDAYS = [day for day in every(40, days=1) if day.weekday() < 5]
MONTH_ENDS = [month - timedelta(days=1) for month in months(20, 1)]


@pytest.mark.parametrize(
    ("times", "words", "season"),
    [
        (every(9, hours=1), "hourly", 24),
        (every(9, days=1), "daily", 7),
        (every(9, minutes=15), "every 15 minutes", 96),
        (every(9, days=7), "weekly", 52),
        (every(9, seconds=1), "every second", None),
        (months(9, 1), "monthly", 12),
        (months(9, 3), "quarterly", 4),
        (months(9, 12), "yearly", None),
        (MONTH_ENDS, "monthly", 12),
        (WEEKDAYS, "daily except weekends", 5),
        ([1.0, 2.0, 3.0, 4.0], "every 1", None),
    ],
)
def test_frequencies(times: list[Any], words: str, season: int | None) -> None:
    found = find_frequency(times)
    assert str(found) == words and found is not None and found.season == season
    for a, b in itertools.pairwise(times):
        assert found.steps(a, b) == 1 and found.after(a, 1) == b


def test_no_frequency_in_disorder_or_nothing() -> None:
    assert find_frequency([START]) is None
    assert find_frequency([START + timedelta(seconds=k**2) for k in range(20)]) is None


def test_gaps_repeats_and_pauses_are_counted() -> None:
    clock = Clock(Frequency("seconds", 60))
    stamps = [0, 60, 60, 240, 250, 250 + 60 * (LONGEST + 5)]
    found = [clock.tick(START + timedelta(seconds=s), f"Row {row}") for row, s in enumerate(stamps)]
    assert found == [0, 0, None, 2, 0, 0]
    assert (clock.repeats, clock.gaps, clock.missing) == (1, 1, 2)
    assert (clock.between, clock.pauses) == (1, 1) and len(clock.words()) == 4


def test_weekends_are_no_gaps() -> None:
    clock = Clock(Frequency("business days", 1))
    friday = datetime(2024, 1, 5)
    assert [clock.tick(friday, "Row 1"), clock.tick(friday + timedelta(days=3), "Row 2")] == [0, 0]
    assert clock.tick(friday + timedelta(days=5), "Row 3") == 1


def test_disorder_is_refused_and_changes_nothing() -> None:
    clock = Clock(last=START)
    with pytest.raises(RegimekitError, match="Row 7"):
        clock.tick(START - timedelta(hours=1), "Row 7")
    assert clock.last == START


def test_a_live_clock_learns_its_step_and_survives_a_snapshot() -> None:
    clock = Clock(first=[])
    for row, time in enumerate(every(FIRST + 2, hours=1)):
        clock.tick(time, f"Row {row}")
        clock = Clock.from_json(clock.to_json())
    assert str(clock.frequency) == "hourly"
    assert clock.tick(START + timedelta(hours=FIRST + 4), "Row 20") == 2
