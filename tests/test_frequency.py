"""Which seasons a calendar gives a stream, by the step between its times."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from regimekit.preprocessing.frequency import Frequency, find_frequency, seasons_of_labels

START = datetime(2024, 1, 1)


@pytest.mark.parametrize(
    ("frequency", "seasons"),
    [
        (Frequency("seconds", 60), (60, 1440, 10_080)),
        (Frequency("seconds", 900), (96, 672)),
        (Frequency("seconds", 1800), (48, 336)),
        (Frequency("seconds", 3600), (24, 168)),
        (Frequency("seconds", 7 * 3600), (24,)),
        (Frequency("seconds", 86_400), (7,)),
        (Frequency("seconds", 604_800), (52,)),
        (Frequency("business days", 1), (5,)),
        (Frequency("months", 1), (12,)),
        (Frequency("months", 3), (4,)),
        (Frequency("months", 12), ()),
        (Frequency("numbers", 1), ()),
    ],
)
def test_seasons_of_a_calendar(frequency: Frequency, seasons: tuple[int, ...]) -> None:
    assert frequency.seasons == seasons


def test_labels_that_are_dates_name_seasons() -> None:
    hours = [START + timedelta(hours=k) for k in range(30)]
    assert seasons_of_labels(hours) == (24, 168)
    assert seasons_of_labels([str(hour) for hour in hours]) == (24, 168)


@pytest.mark.parametrize(
    "labels",
    [None, [], ["a", "b", "c"], range(30), [START, START], [START, START - timedelta(days=1)]],
)
def test_other_labels_name_none(labels: object) -> None:
    assert seasons_of_labels(labels) == ()


def test_pandas_indexes() -> None:
    pandas = pytest.importorskip("pandas")
    assert seasons_of_labels(pandas.date_range("2020-01", periods=9, freq="MS")) == (12,)
    assert seasons_of_labels(pandas.period_range("2020-01", periods=9, freq="Q")) == (4,)
    column = pandas.Series(pandas.date_range("2020-01", periods=9, freq="h"))
    assert seasons_of_labels(column) == (24, 168)
    assert seasons_of_labels(pandas.RangeIndex(9)) == ()
    assert seasons_of_labels(pandas.Index(["a", "b", "c"])) == ()


def test_a_step_is_what_most_neighbours_have() -> None:
    times = [START + timedelta(hours=k) for k in (0, 1, 2, 5, 6, 7)]
    assert find_frequency(times) == Frequency("seconds", 3600.0)
