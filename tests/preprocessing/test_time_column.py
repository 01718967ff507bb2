"""Time stamps: frequency, gaps, repeats, order."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta
from typing import Any

import pytest

from regimekit.core.exceptions import RegimekitError
from regimekit.io import TimeColumn
from regimekit.preprocessing.time_column import DETECTION_ROWS, MAX_GAP
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
    column = TimeColumn(Frequency("seconds", 60))
    stamps = [0, 60, 60, 240, 250, 250 + 60 * (MAX_GAP + 5)]
    found = [
        column.advance(START + timedelta(seconds=s), f"Row {row}") for row, s in enumerate(stamps)
    ]
    assert found == [0, 0, None, 2, 0, 0]
    assert (column.repeats, column.gaps, column.missing) == (1, 1, 2)
    assert (column.between, column.pauses) == (1, 1) and len(column.notes()) == 4


def test_weekends_are_not_gaps() -> None:
    column = TimeColumn(Frequency("business days", 1))
    friday = datetime(2024, 1, 5)
    assert [
        column.advance(friday, "Row 1"),
        column.advance(friday + timedelta(days=3), "Row 2"),
    ] == [0, 0]
    assert column.advance(friday + timedelta(days=5), "Row 3") == 1


def test_an_earlier_time_raises_and_changes_nothing() -> None:
    column = TimeColumn(last=START)
    with pytest.raises(RegimekitError, match="Row 7"):
        column.advance(START - timedelta(hours=1), "Row 7")
    assert column.last == START


def test_frequency_of_a_live_stream_is_detected_and_serialized() -> None:
    column = TimeColumn(first=[])
    for row, time in enumerate(every(DETECTION_ROWS + 2, hours=1)):
        column.advance(time, f"Row {row}")
        column = TimeColumn.from_json(column.to_json())
    assert str(column.frequency) == "hourly"
    assert column.advance(START + timedelta(hours=DETECTION_ROWS + 4), "Row 20") == 2
