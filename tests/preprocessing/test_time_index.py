"""Time stamps, frequencies, seasons and labels of future steps."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pandas
import polars
import pytest

from regimekit import RegimekitError
from regimekit.preprocessing.time_index import (
    Frequency,
    dates_of_labels,
    find_frequency,
    read_times,
    seasons_of_labels,
)

START = datetime(2024, 1, 1)
_DAYS = ["2024-01-01", "2024-01-02", "2024-01-04"]


@pytest.mark.parametrize(
    "times",
    [
        _DAYS,
        np.array(_DAYS, dtype="M8[D]"),
        [datetime(2024, 1, 1), datetime(2024, 1, 2), datetime(2024, 1, 4)],
        pandas.to_datetime(_DAYS),
        pandas.Series(pandas.to_datetime(_DAYS)).dt.tz_localize("UTC"),
        polars.Series(_DAYS).str.to_date(),
    ],
)
def test_dates_of_every_kind_read_alike(times: object) -> None:
    index = read_times(times, 3)
    assert index.kind == "dates" and index.labels() == _DAYS
    assert index.values[0] == datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    assert index.step == 1.5 * 86_400
    assert index.ahead(1).labels(index) == ["2024-01-05"]


def test_times_with_a_zone_are_shown_in_local_time() -> None:
    east = timezone(timedelta(hours=2))
    assert read_times([datetime(2024, 1, 1, 2, 30, tzinfo=east)], 1).labels() == [
        "2024-01-01 02:30"
    ]


def test_the_repeated_hour_in_autumn_does_not_decrease() -> None:
    hours = pandas.date_range("2024-10-27", periods=6, freq="h", tz="Europe/Berlin")
    index = read_times(hours, 6)
    assert (np.diff(index.values) >= 0).all()
    assert index.labels()[-1] == "2024-10-27 04:00"


@pytest.mark.parametrize(("zone", "offset"), [("Europe/Berlin", "+02:00"), ("UTC", "+00:00")])
def test_hours_follow_each_other_when_the_clock_changes(zone: str, offset: str) -> None:
    hours = pandas.date_range("2024-03-30 12:00", periods=12, freq="h", tz=zone)
    frequency = find_frequency(dates_of_labels(hours))
    assert frequency == Frequency("seconds", 3600.0)
    ahead = frequency.after(dates_of_labels(hours)[-1], 4)
    assert ahead.isoformat().endswith(offset)
    assert ahead == hours[-1] + pandas.Timedelta(hours=4)


def test_days_keep_their_midnights_when_the_clock_changes() -> None:
    days = pandas.date_range("2024-03-25", periods=12, freq="D", tz="Europe/Berlin")
    dates = dates_of_labels(days)
    frequency = find_frequency(dates)
    assert frequency == Frequency("seconds", 86_400.0)
    assert frequency.steps(dates[0], dates[-1]) == 11
    assert frequency.after(dates[0], 11) == days[-1]


def test_long_durations_are_in_years() -> None:
    days = read_times(["2020-01-01", "2020-01-02"], 2)
    assert days.duration(1030) == "2.82 years" and days.duration(400) == "400 days"


def test_numbers_and_rows() -> None:
    assert read_times([0.5, 1.0], 2).labels() == ["0.5", "1"]
    assert read_times(None, 2).kind == "rows" and read_times(None, 2).duration(3) == ""
    assert (
        read_times(np.array(["2024-01-01T00", "2024-01-01T06"], "M8[h]"), 2).duration(6)
        == "1.5 days"
    )


def test_a_missing_time_is_refused_with_its_row() -> None:
    with pytest.raises(RegimekitError, match="missing at row 1"):
        read_times([1.0, float("nan")], 2)
    with pytest.raises(RegimekitError, match="missing at row 1"):
        read_times(np.array(["2024-01-01", "NaT"], "M8[D]"), 2)


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
    assert seasons_of_labels(pandas.date_range("2020-01", periods=9, freq="MS")) == (12,)
    assert seasons_of_labels(pandas.period_range("2020-01", periods=9, freq="Q")) == (4,)
    column = pandas.Series(pandas.date_range("2020-01", periods=9, freq="h"))
    assert seasons_of_labels(column) == (24, 168)
    assert seasons_of_labels(pandas.RangeIndex(9)) == ()
    assert seasons_of_labels(pandas.Index(["a", "b", "c"])) == ()


def test_a_step_is_what_most_neighbours_have() -> None:
    times = [START + timedelta(hours=k) for k in (0, 1, 2, 5, 6, 7)]
    assert find_frequency(times) == Frequency("seconds", 3600.0)
