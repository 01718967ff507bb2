"""The index of a stream: gaps, repeats, order; the same rules as for files."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest

import regimekit as rk

HOURS = pd.date_range("2024-03-29", periods=80, freq="h", tz="Europe/Berlin")
Y = pd.Series(np.arange(80.0), HOURS, name="load")


def test_gaps_are_missing_observations() -> None:
    model = rk.make("last_value")
    with pytest.warns(rk.RegimekitWarning, match="Gaps: 2; missing observations inserted: 4"):
        run = model.run(Y.drop(HOURS[[10, 20, 21, 22]]))
    assert len(run) == model.n_observations == 80
    assert run.index.equals(HOURS) and run.index.dtype == HOURS.dtype
    assert np.flatnonzero(np.isnan(run.y)).tolist() == [10, 20, 21, 22]


def test_covariates_keep_their_value_within_a_gap() -> None:
    X = pd.DataFrame({"x": np.arange(80.0)}, HOURS)
    model = rk.br_ihmm(features=rk.features.columns("x"), batch=4, particles=10)
    kept = HOURS.delete([10, 11])
    with pytest.warns(rk.RegimekitWarning, match="Gaps: 1"):
        run = model.run(Y.loc[kept], X.loc[kept])
    assert len(run) == 80


def test_polars_columns_of_times() -> None:
    dates = pl.Series("t", pd.date_range("2024-01-01", periods=40, freq="D").to_list())
    frame = pl.DataFrame({"t": dates, "y": np.arange(40.0)})
    short = frame.filter(~pl.col("y").is_in([5.0, 6.0]))
    with pytest.warns(rk.RegimekitWarning, match="inserted: 2"):
        run = rk.make("last_value").run(short)
    assert run.frame()["t"].to_list() == dates.to_list()


def test_periods() -> None:
    months = pd.period_range("2020-01", periods=30, freq="M")
    y = pd.Series(np.arange(30.0), months)
    with pytest.warns(rk.RegimekitWarning, match="inserted: 1"):
        run = rk.make("last_value").run(y.drop(months[7]))
    assert run.index.equals(months)


def test_repeated_times_are_dropped() -> None:
    twice = pd.concat([Y.iloc[:30], Y.iloc[29:]])
    with pytest.warns(rk.RegimekitWarning, match="repeat the time above: 1"):
        run = rk.make("last_value").run(twice)
    assert run.index.equals(HOURS)


def test_decreasing_times_are_refused() -> None:
    model = rk.make("last_value")
    with pytest.raises(rk.RegimekitError, match=r"decreases at row 1 .* Sort y by its index"):
        model.run(Y.iloc[::-1])
    assert model.n_observations == 0


def test_a_missing_label_is_refused() -> None:
    labels = HOURS.to_series().reset_index(drop=True)
    labels[3] = pd.NaT
    with pytest.raises(rk.RegimekitError, match="no time at row 3"):
        rk.make("last_value").run(pd.Series(Y.to_numpy(), pd.DatetimeIndex(labels)))


@pytest.mark.parametrize(
    "index",
    [
        HOURS,
        pd.bdate_range("2024-01-01", periods=80),
        pd.date_range("2000-01-31", periods=80, freq="ME"),
        pd.Index(range(0, 160, 2)),
        pd.Index([f"row {k}" for k in range(80)]),
        pd.DatetimeIndex(pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(80) ** 1.5, "min")),
    ],
)
def test_a_regular_or_irregular_index_is_unchanged(index: pd.Index) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = rk.make("last_value").run(pd.Series(np.arange(80.0), index))
    assert run.index.equals(index)


def test_prequential_scores_the_same_rows() -> None:
    short = Y.drop(HOURS[[10, 11]])
    with pytest.warns(rk.RegimekitWarning, match="Gaps"):
        done = rk.metrics.prequential(rk.make("last_value"), short, clean=short + 1.0)
    assert len(done.run) == 80 and np.isnan(done.target[[10, 11]]).all()
    assert done.target[12, 0] == 13.0


def test_forecasts_keep_the_zone_also_after_saving() -> None:
    model = rk.make("last_value").fit(Y)
    for known in (model, rk.from_bytes(model.to_bytes()), model.copy()):
        frame = known.forecast(24).frame()
        expected = pd.date_range(HOURS[-1], periods=25, freq="h")[1:]
        assert list(frame["time"]) == list(expected)
        assert str(frame["time"].dt.tz) == "Europe/Berlin"


@pytest.mark.parametrize("freq", ["h", "B", "MS", "W"])
def test_dates_survive_saving(freq: str) -> None:
    y = pd.Series(np.arange(40.0), pd.date_range("2024-01-01", periods=40, freq=freq))
    model = rk.make("last_value").fit(y)
    before = model.forecast(5).times
    after = rk.from_bytes(model.to_bytes()).forecast(5).times
    np.testing.assert_array_equal(before, after)
    assert before[0] == pd.date_range(y.index[-1], periods=2, freq=freq)[1].to_datetime64()


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"at": 1, "last": "noon", "zone": None, "unit": "seconds", "size": 1.0},
        {"at": 1, "last": "2024-01-01", "zone": "Mars/Olympus", "unit": "seconds", "size": 1.0},
        {"at": 1, "last": "2024-01-01", "zone": None, "unit": "fortnights", "size": 1.0},
        {"at": 1, "last": 3.0, "zone": None, "unit": "seconds", "size": -1.0},
    ],
)
def test_a_garbled_calendar_is_refused(state: dict) -> None:
    from regimekit.preprocessing.calendar import Calendar

    with pytest.raises(rk.SnapshotError, match="calendar"):
        Calendar.from_json(state)


def test_a_zoned_column_of_times_gives_no_warning() -> None:
    hours = pd.date_range("2024-03-29", periods=60, freq="h", tz="Europe/Berlin")
    frame = pd.DataFrame({"time": hours, "y": np.arange(60.0)})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = rk.make("last_value").run(frame)
    assert len(run) == 60
