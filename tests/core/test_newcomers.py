"""What a newcomer tries first: calls of other libraries, slips, and plots with dates."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from matplotlib import dates as matplotlib_dates
from matplotlib import pyplot as plt

import regimekit as rk

HOURS = pd.date_range("2024-01-01", periods=60, freq="h")
Y = pd.Series(100.0 + np.random.default_rng(0).normal(size=60), HOURS, name="load")


@pytest.mark.parametrize("name", ["auto", "br_ihmm", "last_value", "bocd"])
def test_predict_with_a_horizon_names_forecast(name: str) -> None:
    model = rk.make(name).fit([1.0, 2.0, 1.5])
    with pytest.raises(rk.RegimekitError, match=r"Call forecast\(12\)"):
        model.predict(12)


def test_predict_takes_a_number_as_the_only_covariate() -> None:
    model = rk.br_ihmm(features=rk.features.columns(0), particles=10)
    model.update(1.0, [2])
    assert np.isfinite(model.predict(np.array([2])).mean)


@pytest.mark.parametrize(
    ("name", "instead"), [("learn_one", "update"), ("score", "prequential"), ("transform", "run")]
)
def test_methods_of_other_libraries_name_ours(name: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute '{name}'. Use .*{instead}"):
        getattr(rk.make("last_value"), name)


def test_a_misspelt_model_is_suggested() -> None:
    with pytest.raises(AttributeError, match="Did you mean 'br_ihmm'"):
        _ = rk.br_ihm  # type: ignore[attr-defined]


def test_the_entry_that_is_no_number_is_named() -> None:
    with pytest.raises(rk.RegimekitError, match="'x' at row 2 is not a number"):
        rk.make("last_value").run(["1", "2", "x"])


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(rk.RegimekitError, match="y must be real"):
        rk.make("last_value").run(np.array([1 + 2j, 3]))


def test_fit_returns_the_model_and_continues() -> None:
    model = rk.make("last_value")
    assert model.fit([1.0, 2.0]) is model and model.fit([5.0]).n_observations == 3
    ahead = model.forecast(4)
    assert isinstance(ahead, rk.Forecasts) and isinstance(model, rk.Model)
    assert ahead.mean.shape == (4,) and ahead.quantile([0.1, 0.9]).shape == (4, 2)
    lower, upper = ahead.interval(0.5)
    assert (lower < ahead.median).all() and (ahead.median < upper).all()
    assert ahead[0].mean == ahead.mean[0] and len(ahead[:2]) == 2


def test_forecasts_of_vectors_have_a_column_per_coordinate() -> None:
    model = rk.br_ihmm(particles=10).fit(np.random.default_rng(0).normal(size=(30, 2)))
    ahead = model.forecast(3)
    assert ahead.mean.shape == (3, 2) and ahead.quantile([0.1, 0.5]).shape == (3, 2, 2)
    assert {"mean_0", "upper_1"} <= set(ahead.frame().columns)


def _dates(ax: object) -> list[pd.Timestamp]:
    line = ax.lines[-1]  # type: ignore[attr-defined]
    return [pd.Timestamp(d).round("s") for d in matplotlib_dates.num2date(line.get_xdata())]


@pytest.mark.parametrize("with_history", [True, False])
def test_forecasts_are_drawn_at_their_dates(with_history: bool) -> None:
    model = rk.make("last_value").fit(Y)
    ax = model.forecast(3).plot(y=Y if with_history else None)
    expected = [d.tz_localize("UTC") for d in pd.date_range(HOURS[-1], periods=4, freq="h")[1:]]
    assert _dates(ax) == expected
    plt.close("all")


def test_the_prior_is_not_drawn() -> None:
    forecast = rk.make("last_value").run(Y).plot().lines[0].get_ydata()
    assert np.isnan(forecast[0]) and not np.isnan(forecast[1:]).any()
    plt.close("all")


def test_run_many_keeps_its_models() -> None:
    frame = pd.DataFrame(
        {"unique_id": np.repeat(["a", "b"], 60), "ds": [*HOURS, *HOURS], "y": [*Y, *(2 * Y)]}
    )
    done = rk.run_many(frame, model="last_value", horizon=2)
    assert isinstance(done, rk.PanelRun) and isinstance(done.model("a"), rk.Model)
    later = done.forecast(5)
    assert list(later["unique_id"].unique()) == ["a", "b"] and len(later) == 10
    first = later[later["step"] <= 2].reset_index(drop=True)
    pd.testing.assert_frame_equal(first, done.forecasts, check_dtype=False)
    with pytest.raises(rk.RegimekitError, match="choose from a, b"):
        done.model("c")


def test_holidays_are_covariates() -> None:
    pytest.importorskip("holidays")
    days = pd.date_range("2023-12-20", periods=20, tz="Europe/Berlin")
    X = rk.holidays(days, "DE")
    assert [d.day for d, flag in zip(days, X["holiday"], strict=True) if flag] == [25, 26, 1]
    assert rk.holidays(days, "DE", region="BW")["holiday"].sum() == 4
    with pytest.raises(rk.RegimekitError, match="'XX'"):
        rk.holidays(days, "XX")
