"""Manners of a first meeting: labels kept, words that fit a terminal, advice once with its cure."""

from __future__ import annotations

import subprocess
import sys
import warnings
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import regimekit as rk
from regimekit import RegimekitError, RegimekitWarning
from regimekit.core import explain as explaining
from regimekit.core.model import Model

HOURS = pd.date_range("2024-01-01", periods=60, freq="h")
Y = np.concatenate([np.zeros(30), np.full(30, 8.0)])
Y = Y + 0.3 * np.random.default_rng(0).standard_normal(60)
NAMES = [name for name in rk.models() if name != "garch_ihmm"]  # its kernels are slow to compile


def small(name: str) -> Model:
    settings: dict[str, Any] = {"iterations": 30} if name == "beam_ihmm" else {}
    if name in ("br_ihmm", "wolf_ihmm", "ihmm", "student_t_ihmm"):
        settings = {"particles": 10}
    return rk.make(name, **settings)


@pytest.fixture(scope="module")
def met() -> dict[str, tuple[Model, rk.Run]]:
    """Every model after a first stream with an index of hours."""
    found = {}
    for name in NAMES:
        model = small(name)
        found[name] = (model, model.run(pd.Series(Y, index=HOURS)))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_results_join_the_data(name: str, met: Any) -> None:
    _, run = met[name]
    frame = run.frame()
    assert frame.index.equals(HOURS)
    assert frame["y"].to_numpy() == pytest.approx(Y)
    for event in run.events:
        assert event.label == HOURS[event.since]
        assert event.kind != "outlier" or event.since == event.time
    assert run.changepoint_labels == [HOURS[row] for row in run.changepoints]


@pytest.mark.parametrize("name", NAMES)
def test_words_fit_a_terminal(name: str, met: Any) -> None:
    model, run = met[name]
    shown = [model, run, model.predict(), model.forecast(3), model.transitions(), *model.regimes()]
    if name != "beam_ihmm":  # which says nothing while it is updated
        shown.append(model.copy().update(8.0))
    for thing in shown:
        lines = repr(thing).splitlines()
        assert len(lines) <= 15 and max(map(len, lines)) <= 88
    for thing in (model, run, model.predict(), model.forecast(3), model.transitions()):
        page = thing._repr_html_()
        assert page.startswith("<table>") and page.endswith("</table>")
    assert repr(model).startswith(f"{name}(") and "60 observations" in repr(model)


@pytest.mark.parametrize("name", NAMES)
def test_explained_before_and_after(name: str, met: Any) -> None:
    assert "no observations yet" in small(name).explain()
    model, _ = met[name]
    text = model.explain()
    assert f"{name} after 60 observations" in text
    if name != "beam_ihmm":  # it would have to fit first
        assert f"  regime {model.regimes()[-1].id}: " in text


@pytest.mark.parametrize("name", NAMES)
def test_steps_ahead_are_a_table_with_times(name: str, met: Any) -> None:
    model, _ = met[name]
    ahead = model.forecast(3)
    table = ahead.frame(level=0.5)
    assert list(table) == ["step", "time", "mean", "median", "lower", "upper", "sd"]
    assert list(table["time"]) == list(pd.date_range(HOURS[-1], periods=4, freq="h")[1:])
    assert (table["lower"] <= table["upper"]).all()
    assert table["median"].iloc[0] == ahead[0].median


def test_the_clock_goes_on_with_updates() -> None:
    model = small("last_value")
    model.run(pd.Series(Y, index=HOURS))
    model.update(1.0)
    assert model.forecast(1).frame()["time"].iloc[0] == HOURS[-1] + pd.Timedelta(hours=2)
    model.run(Y)  # without labels nothing is known of the time any more
    assert "time" not in model.forecast(1).frame()


def test_labels_that_are_no_even_times_are_not_continued() -> None:
    uneven = pd.to_datetime(["2024-01-01", "2024-01-05", "2024-03-02"])
    for index in (list("abc"), [1.0, 2.0, 5.0], uneven):
        model = small("last_value")
        model.run(pd.Series([1.0, 2.0, 3.0], index=index))
        assert model.forecast(2).times is None


@pytest.mark.parametrize(
    ("given", "after"),
    [
        (["2024", "2025", "2026"], ["2027-01-01", "2028-01-01"]),
        (["2024-10-31", "2024-11-30", "2024-12-31"], ["2025-01-31", "2025-02-28"]),
        (pd.bdate_range("2024-01-01", periods=10), ["2024-01-15", "2024-01-16"]),
    ],
)
def test_dates_go_on_as_the_calendar_does(given: Any, after: list[str]) -> None:
    """Years, ends of months, days without weekends: for every model, not `auto` alone."""
    index = pd.to_datetime(given)
    model = small("last_value")
    model.run(pd.Series(np.arange(len(index), dtype=float), index=index))
    assert model.forecast(2).frame()["time"].tolist() == pd.to_datetime(after).tolist()


@pytest.mark.parametrize("library", [pd, pl])
def test_a_column_of_times_labels_the_rows(library: Any) -> None:
    given = library.DataFrame({"ds": HOURS.to_pydatetime().tolist(), "y": Y})
    run = small("last_value").run(given)
    assert run.y.shape == (60,)
    assert run.label(3) == datetime(2024, 1, 1, 3)
    table = run.frame()
    assert isinstance(table, library.DataFrame)
    assert list(table.columns)[:2] == ["ds", "y"]
    assert list(table["ds"])[3] == datetime(2024, 1, 1, 3)


def test_times_beside_covariates_label_the_rows_too() -> None:
    given = pl.DataFrame({"when": HOURS.to_pydatetime().tolist(), "x": Y})
    features = rk.features.intercept() + rk.features.columns()
    run = rk.make("least_squares", features=features).run(pl.Series("y", Y), given)
    assert run.frame().columns[:2] == ["when", "y"]
    assert abs(run.mean[-1] - Y[-1]) < 0.1  # the covariate is y itself


def test_a_second_run_counts_on() -> None:
    model = small("br_ihmm")
    first, second = model.run(Y[:20]), model.run(Y[20:])
    assert list(first.frame().index[[0, -1]]) == [0, 19]
    assert list(second.frame().index[[0, -1]]) == [20, 59]
    changes = [event.since for event in second.events if event.kind != "outlier"]
    assert second.changepoint_labels == [since for since in changes if since > 20]


def test_covariates_that_are_not_used_are_not_checked() -> None:
    features = rk.features.intercept() + rk.features.columns("x")
    plain = rk.make("least_squares", features=features).run(Y, pd.DataFrame({"x": Y}))
    odd = {"city": ["Oslo"] * 60, "x": Y, "holes": [np.nan] * 60}
    for table in (pd.DataFrame(odd), pl.DataFrame(odd), odd):
        run = rk.make("least_squares", features=features).run(Y, table)
        np.testing.assert_array_equal(run.mean, plain.mean)
    model = rk.make("least_squares", features=features)
    model.update(1.0, {"city": "Oslo", "x": 2.0, "holes": None})
    with pytest.raises(RegimekitError, match="not a number, in column 'x'"):
        model.predict({"city": "Oslo", "x": "warm", "holes": None})
    with pytest.raises(RegimekitError, match=r"Row 0 of X: .*in column 'city'"):
        rk.make("least_squares", features=rk.features.columns()).run(Y, odd)


def test_odd_streams_are_refused_in_words() -> None:
    model = small("last_value")
    with pytest.raises(RegimekitError, match="'b' at row 1 is not a number"):
        model.run([1.0, "b"])
    with pytest.raises(RegimekitError, match="y must be numeric, got times"):
        model.run(pd.Series(HOURS))
    with pytest.raises(RegimekitError, match="'city' of type String"):
        model.run(pl.DataFrame({"city": ["Oslo"], "y": [1.0]}))
    with pytest.raises(RegimekitError, match="different lengths"):
        model.run(Y, {"a": Y, "b": Y[:3]})
    with pytest.raises(RegimekitError, match='batch must be a whole number or "adaptive"'):
        rk.br_ihmm(batch="6")
    assert model.n_observations == 0


def warnings_of(model: Model, *given: Any) -> list[str]:
    """What a run warns of."""
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        model.run(*given)
    assert all(issubclass(warning.category, RegimekitWarning) for warning in messages)
    assert all(warning.filename == __file__ for warning in messages)
    return [str(warning.message) for warning in messages]


def test_advice_is_given_once_with_its_cure() -> None:
    far = 1000.0 + np.random.default_rng(1).standard_normal(500).cumsum()
    model = rk.br_ihmm(noise=1e-4, prior_var=1.0, particles=10)
    messages = warnings_of(model, far)
    assert len(messages) == 3
    assert "as outliers" in messages[0] and "Leave out `noise` and `prior_var`" in messages[0]
    assert "90% intervals of br_ihmm covered" in messages[1]
    assert "last value is the better forecast" in messages[2] and "lags(1)" in messages[2]
    assert warnings_of(model, far) == []


def test_a_cure_is_one_that_the_model_can_take() -> None:
    far = 1000.0 + np.random.default_rng(1).standard_normal(500).cumsum()
    messages = " ".join(warnings_of(rk.make("dsm_bocd"), far))
    assert "Pass `noise` and `prior_var` in the units of y, or use regimekit.auto()" in messages
    assert "Leave" not in messages and "lags(1)" not in messages


def test_a_good_run_emits_no_warning() -> None:
    y = np.random.default_rng(2).standard_normal(500)
    assert warnings_of(small("br_ihmm"), y) == []
    assert warnings_of(small("running_mean"), y.cumsum()) == []  # what others are measured by


def test_a_column_of_times_as_target_is_noticed() -> None:
    stamps = 1.7e9 + 60.0 * np.arange(30)
    assert "looks like a time stamp" in warnings_of(small("br_ihmm"), stamps)[0]
    assert warnings_of(small("br_ihmm"), np.arange(30.0)) == []


def test_indexes_that_differ_are_noticed() -> None:
    y, X = pd.Series(Y, index=HOURS), pd.DataFrame({"x": Y}, index=HOURS[::-1])
    (message,) = warnings_of(rk.make("least_squares"), y, X)
    assert "first at row 0" in message and "X.reindex(y.index)" in message
    assert warnings_of(rk.make("least_squares"), y, X.set_axis(HOURS)) == []
    assert warnings_of(rk.make("least_squares"), y, X.reset_index(drop=True)) == []


def test_an_offline_fit_emits_a_warning() -> None:
    model = small("beam_ihmm")
    (message,) = warnings_of(model, Y)
    assert "in-sample, not forecasts" in message
    assert warnings_of(model, Y) == []


def test_repr_lists_settings_that_differ_from_the_default() -> None:
    model = rk.br_ihmm(batch=4, features=rk.features.intercept() + rk.features.lags(1))
    assert explaining.summary(model).startswith("br_ihmm(features=intercept() + lags(1), batch=4)")


def test_without_pandas_the_error_names_the_remedy() -> None:
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "import regimekit as rk, polars as pl\n"
        "model = rk.make('last_value')\n"
        "assert model.run(pl.Series('y', [1.0, 2.0])).frame().shape[0] == 2\n"
        "for ask in (model.run([1.0, 2.0]).frame, model.forecast(2).frame):\n"
        "    try: ask()\n"
        "    except rk.RegimekitError as error: print(error)\n"
        "assert list(model.forecast(2).columns())[0] == 'step'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.count("needs pandas, which is not installed") == 2


def test_rows_that_are_only_counted_are_no_labels() -> None:
    run = small("last_value").run(pd.Series(Y))
    assert [event.label for event in run.events] == [None]
    part = small("last_value").run(pd.Series(Y)[20:])
    assert [event.label for event in part.events] == [20] and part.frame().index[0] == 20


class Own(type(rk.make("last_value"))):  # type: ignore[misc]
    """A model that no registry knows."""

    name = "own"


def test_a_model_of_ones_own_shows_itself_too() -> None:
    model = Own()
    model.run(Y)
    assert repr(model) == "own(error_sd=1.0, dim=None) after 60 observations, 1 regime"
    assert "own after 60 observations" in model.explain() and "own(" in model._repr_html_()


def test_a_copy_keeps_emitted_warnings_and_labels() -> None:
    model = small("br_ihmm")
    model.run(pd.Series(1.7e9 + 60.0 * np.arange(30), index=HOURS[:30]))
    twin = model.copy()
    assert warnings_of(twin, 1.7e9 + 60.0 * np.arange(30)) == []
    assert model.copy().forecast(1).times == model.forecast(1).times
