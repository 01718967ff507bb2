"""Times as callers hold them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pandas
import polars
import pytest

from regimekit import RegimekitError
from regimekit.preprocessing.time_index import read_times

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
    line = read_times(times, 3)
    assert line.kind == "dates" and line.words() == _DAYS
    assert line.values[0] == datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    assert line.ahead(1).words(line) == ["2024-01-05"] or line.step != 86_400


def test_zones_become_utc() -> None:
    east = timezone(timedelta(hours=2))
    assert read_times([datetime(2024, 1, 1, 2, 30, tzinfo=east)], 1).words() == ["2024-01-01 00:30"]


def test_numbers_and_rows() -> None:
    assert read_times([0.5, 1.0], 2).words() == ["0.5", "1"]
    assert read_times(None, 2).kind == "rows" and read_times(None, 2).span(3) == ""
    assert (
        read_times(np.array(["2024-01-01T00", "2024-01-01T06"], "M8[h]"), 2).span(6) == "1.5 days"
    )


def test_a_missing_time_is_refused_with_its_row() -> None:
    with pytest.raises(RegimekitError, match="missing at row 1"):
        read_times([1.0, float("nan")], 2)
    with pytest.raises(RegimekitError, match="missing at row 1"):
        read_times(np.array(["2024-01-01", "NaT"], "M8[D]"), 2)
