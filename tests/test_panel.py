"""`rk.run_many`: results in the caller's frame library, independent of jobs and order."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import joblib
import numpy as np
import pandas
import polars
import pytest
from joblib._parallel_backends import ThreadingBackend

import regimekit as rk
from regimekit.io.layout import Layout
from regimekit.panel import PanelSettings, SeriesTask, run_tasks, seed_of, with_seasons
from regimekit.preprocessing.time_index import Frequency

SMALL = {"particles": 5, "noise": 1.0}


def columns(n: int = 40) -> dict[str, list[Any]]:
    """Two series in Nixtla's columns, interleaved, with a covariate."""
    rng = np.random.default_rng(0)
    days = [datetime(2024, 1, 1) + timedelta(days=k) for k in range(n)]
    keys = ["b", "a"] * n
    return {
        "unique_id": keys,
        "ds": [day for day in days for _ in range(2)],
        "y": rng.standard_normal(2 * n).tolist(),
        "price": rng.standard_normal(2 * n).tolist(),
    }


@pytest.mark.parametrize("library", [pandas, polars])
def test_results_are_frames_of_the_callers_library(library: Any) -> None:
    done = rk.run_many(library.DataFrame(columns()), model="last_value", horizon=3)
    for frame in (done.frame, done.events, done.forecasts, done.scores):
        assert isinstance(frame, library.DataFrame)
    assert list(done.frame.columns[:3]) == ["unique_id", "ds", "y"] and len(done.frame) == 80
    assert list(done.frame["unique_id"])[:41:40] == ["b", "a"]
    assert len(done.forecasts) == 6 and done.errors == {}
    assert next(iter(done.forecasts["ds"])) == datetime(2024, 2, 10)


def test_a_series_gives_the_same_result_alone() -> None:
    frame = pandas.DataFrame(columns())
    done = rk.run_many(frame, model="br_ihmm", settings=SMALL, seed=3).frame
    alone = frame[frame.unique_id == "a"]
    model = rk.br_ihmm(**SMALL, seed=seed_of("a", 3))
    np.testing.assert_array_equal(
        done[done.unique_id == "a"]["mean"], model.run(alone.y.to_numpy()).mean
    )


def test_threads_give_the_same_results_in_the_same_order() -> None:
    table = columns(60)
    table["unique_id"] = [f"{key}{i % 5}" for i, key in enumerate(table["unique_id"])]
    frame = pandas.DataFrame(table)
    one = rk.run_many(frame, horizon=2)
    four = rk.run_many(frame, horizon=2, jobs=4)
    for name in ("frame", "events", "forecasts", "scores"):
        pandas.testing.assert_frame_equal(getattr(one, name), getattr(four, name))


def test_threads_hold_few_series_in_memory() -> None:
    taken: list[int] = []

    def tasks() -> Iterator[SeriesTask]:
        for k in range(20):
            taken.append(k)
            yield SeriesTask(k, [(None, "1.0")] * 3, Layout("y", None, "iso", ()))

    results = run_tasks(tasks(), PanelSettings("last_value", {}), jobs=2)
    assert next(results).key == 0
    assert len(taken) <= 4
    assert [one.key for one in results] == list(range(1, 20))


@pytest.mark.slow
def test_jobs_and_order_do_not_change_results() -> None:
    frame = pandas.DataFrame(columns())
    one = rk.run_many(frame, model="br_ihmm", settings=SMALL).frame
    two = rk.run_many(frame, model="br_ihmm", settings=SMALL, jobs=2).frame
    pandas.testing.assert_frame_equal(one, two)
    shuffled = rk.run_many(frame.iloc[::-1], model="br_ihmm", settings=SMALL).frame
    for key in "ab":
        left, right = (f[f.unique_id == key].reset_index(drop=True) for f in (one, shuffled))
        pandas.testing.assert_frame_equal(left, right)


def test_errors_are_collected() -> None:
    table = columns()
    table["y"][0] = float("inf")
    done = rk.run_many(pandas.DataFrame(table), model="last_value")
    assert list(done.errors) == ["b"] and "infinite" in done.errors["b"]
    assert set(done.frame.unique_id) == {"a"}


def test_gaps_are_missing_observations_and_add_no_rows() -> None:
    table = pandas.DataFrame(columns()).query("unique_id == 'a'").reset_index(drop=True)
    gappy = table.drop(index=range(10, 14))
    done = rk.run_many(gappy, model="br_ihmm", settings=SMALL)
    holes = table.y.to_numpy().copy()
    holes[10:14] = np.nan
    whole = rk.br_ihmm(**SMALL, seed=seed_of("a", 0)).run(holes)
    np.testing.assert_array_equal(done.frame["mean"], np.delete(whole.mean, range(10, 14)))


def test_covariates_and_their_future() -> None:
    frame = pandas.DataFrame(columns())
    wanted = rk.features.intercept() + rk.features.columns("price")
    given: dict[str, Any] = {
        "model": "least_squares",
        "columns": ["price"],
        "settings": {"features": wanted},
    }
    future = pandas.DataFrame({"unique_id": ["a", "b", "a", "b"], "price": [1.0, 2.0, 3.0, 4.0]})
    done = rk.run_many(frame, horizon=2, future=future, **given)
    assert len(done.forecasts) == 4 and done.errors == {}
    with pytest.raises(rk.RegimekitError, match="needs future"):
        rk.run_many(frame, horizon=2, **given)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ({"by": "id"}, "by='id'"),
        ({"target": "z"}, "target='z'"),
        ({"level": 90}, "level"),
        ({"model": "br_ihm"}, "Did you mean"),
        ({"settings": {"batch": 0}}, "batch"),
        ({"horizon": -1}, "horizon"),
        ({"time": "when"}, "time='when'"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(rk.RegimekitError, match=word):
        rk.run_many(pandas.DataFrame(columns(4)), **{"model": "br_ihmm"} | arguments)


@pytest.mark.parametrize("streams", [True, False])
def test_any_joblib_backend_gives_the_same_result(streams: bool) -> None:
    class Cluster(ThreadingBackend):  # type: ignore[misc]
        supports_return_generator = streams

    joblib.register_parallel_backend(f"cluster {streams}", Cluster)
    table = pandas.DataFrame(columns())
    plain = rk.run_many(table, model="running_mean", horizon=2)
    with joblib.parallel_config(backend=f"cluster {streams}"):
        spread = rk.run_many(table, model="running_mean", horizon=2, jobs=2)
    pandas.testing.assert_frame_equal(spread.frame, plain.frame)


def test_seasons_of_the_calendar_are_passed_to_auto() -> None:
    hours = Frequency("seconds", 3600.0).seasons
    assert with_seasons("auto", {}, hours) == {"seasons": [24, 168]}
    assert with_seasons("auto", {"seasons": [7]}, hours) == {"seasons": [7]}
    assert with_seasons("br_ihmm", {"seed": 1}, hours) == {"seed": 1}
    lags = {"features": rk.features.lags(1).to_json()}
    assert with_seasons("auto", lags, hours) == lags
