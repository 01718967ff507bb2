"""Rolling-origin evaluation: what is known at an origin, and how it is scored."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import regimekit as rk
from regimekit.metrics import backtest


def test_forecasts_are_those_of_a_model_stopped_at_each_origin() -> None:
    y = np.random.default_rng(0).normal(size=120)
    model = rk.br_ihmm(batch=4, particles=20, seed=1)
    done = backtest(model, y, horizon=3, step=20, start=60)
    assert done.origins == [60, 80, 100]
    for origin in done.origins:
        stopped = model.copy()
        stopped.run(y[:origin])
        expected = [f.mean for f in stopped.forecast(3)]
        np.testing.assert_allclose(done.mean[done.origin == origin], expected, rtol=1e-12)
    assert model.n_observations == 0


def test_scores_match_their_definitions() -> None:
    y = np.r_[np.arange(40.0), [7.0, np.nan]]
    done = backtest(rk.make("last_value"), y, horizon=2, step=1, start=30)
    frame = done.frame()
    assert list(frame["step"][:2]) == [1, 2] and len(frame) == 2 * len(done.origins)
    np.testing.assert_array_equal(done.y, y[done.origin + done.step - 1])
    seen = ~np.isnan(done.y)
    scores = done.scores()
    assert scores["n"] == seen.sum()
    assert scores["mae"] == pytest.approx(np.abs(done.mean - done.y)[seen].mean())
    assert scores["rmse"] == pytest.approx(np.sqrt(((done.mean - done.y)[seen] ** 2).mean()))
    assert scores["mae_last_value"] == pytest.approx(scores["mae"])
    by_step = done.scores(by="step")
    assert list(by_step["step"]) == [1, 2]
    assert by_step["n"].sum() == scores["n"]


def test_the_seasonal_reference_repeats_the_last_known_season() -> None:
    y = np.tile(np.arange(7.0), 20)
    done = backtest(rk.make("last_value"), y, horizon=10, step=10, start=71, period=7)
    assert done.scores()["mae_seasonal_last_value"] == 0.0
    assert done.scores()["mae_last_value"] > 1.0


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_times_and_season_come_from_the_dates(library: str) -> None:
    dates = pd.date_range("2024-03-30", periods=96, freq="h", tz="Europe/Berlin")
    y = np.tile(np.arange(24.0), 4)
    given = pd.Series(y, dates) if library == "pandas" else pl.DataFrame({"t": dates, "y": y})
    done = backtest(rk.make("last_value"), given, horizon=24, step=24, start=48)
    assert "seasonal_last_value" in done.references
    times = list(done.frame()["time"])
    assert pd.Timestamp(times[0]) == dates[48]
    assert pd.Timestamp(times[0]).utcoffset() == dates[48].utcoffset()


def test_covariates_of_the_forecast_steps_are_taken_from_the_table() -> None:
    x = np.random.default_rng(1).normal(size=200)
    y = 3.0 * x + 0.01 * np.random.default_rng(2).normal(size=200)
    features = rk.features.columns("x")
    model = rk.br_ihmm(features=features, noise=1e-4, batch=4, particles=20)
    done = backtest(model, y, {"x": x}, horizon=5, step=25, start=100)
    assert done.scores()["mae"] < 0.1


def test_several_coordinates_have_one_column_each() -> None:
    y = np.random.default_rng(3).normal(size=(80, 2))
    done = backtest(rk.br_ihmm(batch=4, particles=20), y, horizon=2, step=20, start=40)
    assert done.mean.shape == (len(done), 2)
    assert {"mean_0", "mean_1", "crps_1"} <= set(done.columns())
    assert np.isfinite(done.scores()["crps"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"start": 58}, "needs at least 82 observations, got 60"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"level": 1.5, "horizon": 2}, "level must lie strictly between 0 and 1"),
    ],
)
def test_errors_name_the_argument(options: dict, words: str) -> None:
    with pytest.raises(rk.RegimekitError, match=words):
        backtest(rk.make("last_value"), np.arange(60.0), **options)


def test_unknown_group_is_refused() -> None:
    done = backtest(rk.make("last_value"), np.arange(60.0), horizon=2, step=10)
    with pytest.raises(rk.RegimekitError, match="by must be"):
        done.scores(by="month")
