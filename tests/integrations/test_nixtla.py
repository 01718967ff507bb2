"""The long frame: in and out in the caller's library, and windows without a refit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import regimekit as rk
from regimekit.integrations import nixtla

CHOICE = {"model": "student_t_ihmm", "settings": {"particles": 10, "batch": 2}}


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    stamps = pd.date_range("2026-01-01", periods=40, freq="h")
    parts = [
        pd.DataFrame({"unique_id": key, "ds": stamps, "y": level + 0.1 * rng.standard_normal(40)})
        for key, level in (("b", -1.0), ("a", 1.0))
    ]
    return pd.concat(parts, ignore_index=True)


def test_forecast_continues_every_series(frame):
    ahead = nixtla.forecast(frame.sample(frac=1, random_state=0), h=3, level=[80, 95], **CHOICE)
    assert ahead["unique_id"].tolist() == ["a"] * 3 + ["b"] * 3
    assert ahead["ds"].iloc[0] == pd.Timestamp("2026-01-02 16:00")
    assert ahead["regimekit"].to_numpy() == pytest.approx([1, 1, 1, -1, -1, -1], abs=0.3)
    assert (ahead["regimekit-lo-95"] < ahead["regimekit-lo-80"]).all()
    assert (ahead["regimekit-hi-80"] < ahead["regimekit-hi-95"]).all()


def test_months_go_on_as_the_calendar_does(frame):
    months = pd.date_range("2020-01-31", periods=20, freq="ME")
    table = pd.DataFrame({"unique_id": "a", "ds": months, "y": np.arange(20.0)})
    ahead = nixtla.forecast(table, h=3, **CHOICE)
    assert ahead["ds"].tolist() == pd.date_range("2021-09-30", periods=3, freq="ME").tolist()


def test_polars_comes_back_as_polars(frame):
    assert isinstance(nixtla.forecast(pl.from_pandas(frame), h=1, **CHOICE), pl.DataFrame)


def test_one_pass_equals_a_fit_to_each_cutoff(frame):
    table = nixtla.cross_validation(frame, h=2, n_windows=4, step_size=3, **CHOICE)
    assert table.groupby("unique_id", observed=True)["cutoff"].nunique().tolist() == [4, 4]
    for (key, cutoff), window in table.groupby(["unique_id", "cutoff"]):
        past = frame[(frame["unique_id"] == key) & (frame["ds"] <= cutoff)]
        fitted = rk.make("student_t_ihmm", particles=10, batch=2)
        fitted.run(past["y"].to_numpy())
        assert window["regimekit"].tolist() == [step.mean for step in fitted.forecast(2)]
        later = frame[(frame["unique_id"] == key) & (frame["ds"] > cutoff)].head(2)
        assert window["y"].tolist() == later["y"].tolist()
    assert table["ds"].max() == frame["ds"].max()


def test_covariates_are_used_and_asked_for(frame):
    frame["x"] = np.sin(np.arange(80))
    frame["y"] += 2 * frame["x"]
    with pytest.raises(rk.RegimekitError, match="X_df is required"):
        nixtla.forecast(frame, h=1, **CHOICE)
    future = pd.DataFrame({"unique_id": ["a", "b"], "ds": frame["ds"].max(), "x": [1.0, -1.0]})
    ahead = nixtla.forecast(frame, h=1, X_df=future, **CHOICE)
    assert ahead["regimekit"].to_numpy() == pytest.approx([3.0, -3.0], abs=0.5)


def test_short_and_headless_frames_are_refused(frame):
    with pytest.raises(rk.RegimekitError, match="'y'"):
        nixtla.forecast(frame.drop(columns="y"), h=1)
    with pytest.raises(rk.RegimekitError, match="at least 41 rows"):
        nixtla.cross_validation(frame, h=40)


def test_anomaly_scores_are_those_of_each_series(frame):
    frame.loc[70, "y"] = 30.0  # row 30 of series a
    scores = nixtla.anomaly_scores(frame.sample(frac=1, random_state=0), **CHOICE)
    assert list(scores.columns) == ["unique_id", "ds", "y", "anomaly_score", "regime"]
    assert scores.loc[scores["anomaly_score"].idxmax(), "y"] == 30.0
    for key in ("a", "b"):
        own = frame[frame["unique_id"] == key]
        run = rk.make(CHOICE["model"], **CHOICE["settings"]).run(own["y"].to_numpy())
        told = scores[scores["unique_id"] == key]
        np.testing.assert_array_equal(told["anomaly_score"], run.anomaly_score)
        np.testing.assert_array_equal(told["regime"], run.regime)
    with pytest.raises(rk.RegimekitError, match="'y'"):
        nixtla.anomaly_scores(frame.drop(columns="y"))
