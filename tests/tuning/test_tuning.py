"""Tuning: the search spaces, both optimisers, the log, and that only the training part is seen."""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from typer.testing import CliRunner

import regimekit as rk
from regimekit import cli
from regimekit import metrics as evaluate
from regimekit.core.exceptions import RegimekitError
from regimekit.core.registry import REGISTRY
from regimekit.tuning import Choice, Float, Int, TuneResult, tune
from regimekit.tuning.search import BACKENDS, OBJECTIVES, Search, open_search
from regimekit.tuning.space import key, plain, read_spec

SMALL: dict[str, Any] = {"particles": 3}
BATCHES = {"batch": ("int", 1, 8)}
NOISE = 0.04


def levels(n: int = 120) -> np.ndarray:
    """Two levels that return, with Gaussian noise of variance NOISE."""
    rng = np.random.default_rng(11)
    level = np.where(np.arange(n) // 40 % 2, 1.0, -1.0)
    return level + math.sqrt(NOISE) * rng.standard_normal(n)


def points(result: TuneResult) -> list[tuple[str, float | None]]:
    return [(key(trial["settings"]), trial["value"]) for trial in result.trials]


class Counted:
    """An objective that counts its calls and can be interrupted on the way."""

    def __init__(self, stop_after: int = -1) -> None:
        self.calls = 0
        self.stop_after = stop_after

    def __call__(self, result: Any) -> float:
        if self.calls == self.stop_after:
            raise KeyboardInterrupt
        self.calls += 1
        return float(result.scores()["rmse"])


# Spaces


@pytest.mark.parametrize(
    "spec", [Float(-2.0, 3.0), Float(0.01, 10.0, log=True), Int(2, 9), Int(1, 24, log=True)]
)
def test_a_place_and_its_value_belong_together(spec: Float | Int) -> None:
    assert spec.at(0.0) == spec.low and spec.at(1.0) == spec.high
    values = [spec.at(u) for u in np.linspace(0, 1, 41)]
    assert values == sorted(values)
    for value in values:
        assert spec.contains(value)
        assert spec.at(spec.place(value)) == pytest.approx(value, rel=1e-12)


def test_every_whole_number_has_its_share_of_the_unit_interval() -> None:
    drawn = [Int(1, 4).at(u) for u in (np.arange(4000) + 0.5) / 4000]
    assert np.bincount(drawn).tolist() == [0, 1000, 1000, 1000, 1000]


def test_a_choice_may_be_of_anything_a_setting_can_be() -> None:
    deep = rk.features.intercept() + rk.features.lags(1)
    spec = read_spec("features", ("choice", [rk.features.intercept(), deep]))
    assert isinstance(spec, Choice)
    assert spec.at(0.99) == deep.to_json()
    assert spec.at(spec.place(deep.to_json())) == deep.to_json()
    assert spec.contains(deep) and not spec.contains(rk.features.lags(2))


@pytest.mark.parametrize(
    "spec",
    [Float(1.0, 2.0), Int(1, 2, log=True), ["float", 1, 2, "log"], ("choice", ["imq", "huber"])],
)
def test_a_spec_survives_json(spec: Any) -> None:
    read = read_spec("a", spec)
    assert read_spec("a", json.loads(json.dumps(read.to_json()))) == read


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("float", "must be"),
        (("float", 1.0), "must be"),
        (("float", 1.0, 2.0, "lin"), "must be"),
        (("real", 1.0, 2.0), "must be"),
        (("choice", []), "must be"),
        (("float", 2.0, 1.0), "below high"),
        (("float", 0.0, 1.0, "log"), "above 0"),
        (("float", 0.0, math.inf), "bounds must"),
        (("int", 1, 2.5), "bounds must"),
        (("int", True, 4), "bounds must"),
    ],
)
def test_a_spec_that_cannot_be_read_is_named(spec: Any, word: str) -> None:
    with pytest.raises(RegimekitError, match=rf"space\['batch'\].*{word}"):
        read_spec("batch", spec)


TRIVIAL = ("auto", "last_value", "seasonal_last_value", "running_mean")


@pytest.mark.parametrize("name", TRIVIAL)
def test_a_model_without_anything_to_search_says_so(name: str) -> None:
    with pytest.raises(RegimekitError, match="space"):
        tune(name, levels(12), budget=1)


@pytest.mark.parametrize(
    "name",
    [entry.name for entry in REGISTRY.values() if entry.online and entry.name not in TRIVIAL],
)
def test_a_default_space_holds_the_models_default_and_leaves_out_what_is_fixed(name: str) -> None:
    default = rk.make(name).settings()
    if default.get("units") == "auto":
        default = rk.make(name, units="given").settings()  # the search is in the units of y
    fixed = {setting: 3.0 for setting in ("prior_var",) if setting in default}
    fixed |= SMALL if "particles" in default else {}
    found = tune(name, levels(12), budget=1, settings=fixed)
    first = found.trials[0]["settings"]
    assert first and first == {setting: default[setting] for setting in first}
    assert not set(first) & set(fixed) and fixed.items() <= found.best.items()


def test_the_family_keeps_what_makes_each_model_itself() -> None:
    tuned = {
        name: set(tune(name, levels(12), budget=1, settings=SMALL).trials[0]["settings"])
        for name in ("br_ihmm", "wolf_ihmm", "ihmm")
    }
    assert tuned["br_ihmm"] - tuned["wolf_ihmm"] == {"batch", "outlier_rate"}
    assert tuned["wolf_ihmm"] - tuned["ihmm"] == {"threshold"}
    assert tuned["ihmm"] == {"noise", "prior_var", "ess_threshold"}


# Searches, without a model


def bowl(settings: dict[str, Any]) -> float:
    """Least at a = 0.1, n = 6, kind "b"."""
    away = 0.0 if settings["kind"] == "b" else 1.0
    return math.log10(settings["a"] / 0.1) ** 2 + (settings["n"] - 6) ** 2 / 9 + away


def descend(search: Search, total: int, side_by_side: int = 1) -> list[float]:
    values: list[float] = []
    while len(values) < total:
        asked = search.ask(side_by_side)
        batch = [bowl(settings) for settings in asked]
        for settings, value in zip(asked, batch, strict=True):
            search.tell(settings, value)
        values += batch
    return values


def three() -> dict[str, Any]:
    return {"a": Float(1e-3, 10.0, log=True), "n": Int(1, 12), "kind": Choice(("a", "b", "c"))}


@pytest.mark.parametrize(
    ("backend", "total", "side_by_side", "seeds"),
    [
        ("optuna", 40, 1, 4),
        ("optuna", 40, 2, 4),
        pytest.param("bayesopt", 18, 1, 3, marks=pytest.mark.slow),
    ],
)
def test_a_search_beats_random_points(
    backend: str, total: int, side_by_side: int, seeds: int
) -> None:
    rng = np.random.default_rng(0)
    space = three()
    random = [bowl({name: s.at(rng.uniform()) for name, s in space.items()}) for _ in range(20000)]
    chance = np.reshape(random[: 20000 // total * total], (-1, total)).min(axis=1)
    searches = [open_search(backend, space, seed) for seed in range(seeds)]
    best = [min(descend(search, total, side_by_side)) for search in searches]
    better = sum(float(np.mean(chance < value)) for value in best)
    # Each term is uniform for a search that learns nothing, so that P(sum < x) = x^n / n! below 1:
    # it would pass with probability 0.01.
    assert better < (0.01 * math.factorial(seeds)) ** (1 / seeds)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_search_repeats_itself_and_takes_points_it_never_asked_for(backend: str) -> None:
    def course() -> list[dict[str, Any]]:
        search = open_search(backend, three(), 3)
        for i in range(7):
            settings = {"a": 0.01 * 2**i, "n": 1 + i, "kind": "abc"[i % 3]}
            search.tell(settings, bowl(settings))
            search.tell(settings, bowl(settings))
        return search.ask(3) + search.ask(1)

    first = course()
    assert first == course()
    assert len({key(settings) for settings in first}) == 4
    for settings in first:
        assert all(spec.contains(settings[name]) for name, spec in three().items())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failure_costs_the_worst_value_so_far(backend: str) -> None:
    search = open_search(backend, three(), 0)
    point = {"a": 0.1, "n": 6, "kind": "b"}
    search.tell(point, None)  # no value known yet: nothing to learn, nothing breaks
    for value in (2.0, 5.0, 3.0):
        search.tell(point | {"a": value}, value)
    learnt: list[float] = []
    search._observe = lambda settings, value: learnt.append(value)  # type: ignore[method-assign]
    search.tell(point, None)
    assert learnt == [5.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_space_smaller_than_the_budget_is_no_trap(backend: str) -> None:
    search = open_search(backend, {"kind": Choice(("a", "b"))}, 0)
    asked = []
    for _ in range(12):
        batch = search.ask(2)
        asked += batch
        for settings in batch:
            search.tell(settings, 1.0)
    assert len(asked) == 24
    assert {settings["kind"] for settings in asked} == {"a", "b"}


# The whole


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_noise_that_made_the_data_is_found(backend: Any) -> None:
    space = {"noise": ("float", 1e-4, 10.0, "log")}
    found = tune(
        "ihmm",
        levels(),
        space=space,
        objective="log_score",
        budget=12,
        backend=backend,
        settings={"particles": 5},
        skip=20,
    )
    values = [trial["value"] for trial in found.trials]
    assert NOISE / 3 < found.best["noise"] < NOISE * 3
    assert found.value == min(values)
    assert found.trials[0]["settings"]["noise"] == 0.25  # the default goes first
    assert found.value < values[0] - 0.1 and found.value < max(values) - 0.5
    assert found.model().settings()["noise"] == found.best["noise"]


def test_the_value_is_that_of_a_prequential_run() -> None:
    y = levels(60)
    for objective in OBJECTIVES:
        found = tune(
            "br_ihmm",
            y,
            space=BATCHES,
            objective=objective,
            budget=2,
            settings=SMALL,
            skip=10,
            seeds=2,
            train=50,
        )
        models = [found.model(seed=seed) for seed in (0, 1)]
        results = [evaluate.prequential(model, y[:50], skip=10) for model in models]
        assert found.value == np.mean([OBJECTIVES[objective](result) for result in results])
        assert found.objective == objective
    score = [-result.scores()["log_score"] for result in results]
    assert OBJECTIVES["log_score"](results[0]) == score[0]
    ahead = np.array([np.mean(y[t : min(t + 10, 50)]) for t in range(10, 50)])
    by_hand = np.abs(results[0].run.mean[10:] - ahead).mean()
    assert OBJECTIVES["lookahead_mae"](results[0]) == pytest.approx(by_hand, rel=1e-12)


def test_only_the_training_part_is_seen() -> None:
    y, X = levels(80), np.random.default_rng(0).standard_normal((80, 2))
    features = rk.features.intercept() + rk.features.columns()

    def course(y: np.ndarray, X: Any) -> Any:
        settings = SMALL | {"features": features}
        return points(tune("br_ihmm", y, X, BATCHES, budget=3, train=50, settings=settings))

    first = course(y, X)
    other_y, other_X = y.copy(), X.copy()
    other_y[50:], other_X[50:] = 1e6, np.nan
    assert course(other_y, other_X) == first
    assert course(y[:50], X[:50]) == first
    other_y[49] = 7.0
    assert course(other_y, other_X) != first


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_keep_their_column_names(library: Any) -> None:
    rng = np.random.default_rng(0)
    X = library.DataFrame({"wind": rng.standard_normal(40), "rain": rng.standard_normal(40)})
    y = library.Series(levels(40))
    choices = [rk.features.columns("wind"), rk.features.columns("rain")]
    found = tune(
        "br_ihmm", y, X, {"features": ("choice", choices)}, budget=3, train=30, settings=SMALL
    )
    assert found.best["features"] in [choice.to_json() for choice in choices]
    assert not found.failures
    frame = found.frame(library.__name__)
    assert isinstance(frame, library.DataFrame)
    assert list(frame.columns) == ["features", "value", "seconds", "state", "reason"]


def test_settings_that_fail_are_recorded_and_the_search_goes_on() -> None:
    space = {"batch": ("choice", [0, 2, 4]), "weight": ("choice", ["imq", "soft"])}
    found = tune("br_ihmm", levels(40), space=space, budget=14, settings=SMALL)
    assert len(found.trials) == 14 and 0 < len(found.failures) < 14
    for trial in found.failures:
        assert trial["value"] is None and trial["reason"].startswith("RegimekitError")
        assert trial["settings"]["batch"] == 0 or trial["settings"]["weight"] == "soft"
    assert found.best["batch"] > 0 and found.best["weight"] == "imq"


def test_an_objective_that_is_not_finite_fails_with_its_reason() -> None:
    def picky(result: Any) -> float:
        return math.nan if result.run.path.max() == 0 else 1.0

    with pytest.raises(RegimekitError, match=r"None of 3 trials succeeded: the objective is nan"):
        tune("br_ihmm", np.zeros(20), space=BATCHES, objective=picky, budget=3, settings=SMALL)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_interrupted_search_ends_where_an_uninterrupted_one_does(
    backend: Any, tmp_path: Path
) -> None:
    def search(objective: Counted, storage: Path | None) -> TuneResult:
        return tune(
            "br_ihmm",
            levels(30),
            space={"noise": ("float", 0.01, 1.0, "log")},
            budget=9,
            objective=objective,
            backend=backend,
            settings=SMALL,
            storage=storage,
        )

    whole = search(Counted(), None)
    log = tmp_path / "deep" / "trials.jsonl"
    part = search(Counted(stop_after=4), log)
    assert part.interrupted and not whole.interrupted
    assert points(part) == points(whole)[:4]
    rest = Counted()
    assert points(search(rest, log)) == points(whole)
    assert rest.calls == 5
    again = Counted()
    assert points(search(again, log)) == points(whole)
    assert again.calls == 0


def test_a_log_serves_another_budget_another_backend_and_other_jobs(tmp_path: Path) -> None:
    log = tmp_path / "trials.jsonl"
    space = {"noise": ("float", 0.01, 1.0, "log")}

    def search(**how: Any) -> TuneResult:
        return tune("br_ihmm", levels(30), space=space, settings=SMALL, storage=log, **how)

    def lines() -> int:
        return len(log.read_text().splitlines()) - 1

    first = search(budget=4)
    longer = search(budget=6)
    assert points(longer)[:4] == points(first) and lines() == 6
    moved = search(budget=8, backend="bayesopt", seed=5)
    assert set(points(longer)) <= set(points(moved))
    assert len(moved.trials) == 8 and lines() == 8
    assert len(search(budget=3).trials) == 3 and lines() == 8


def test_an_interruption_before_the_first_trial_is_passed_on() -> None:
    with pytest.raises(KeyboardInterrupt):
        tune("br_ihmm", levels(20), space=BATCHES, objective=Counted(0), settings=SMALL)


def test_a_damaged_line_is_dropped_and_a_foreign_log_refused(tmp_path: Path) -> None:
    log = tmp_path / "trials.jsonl"
    y = levels(30)

    def search(y: np.ndarray = y, **how: Any) -> TuneResult:
        given = {"space": BATCHES, "budget": 4, "settings": SMALL, "storage": log} | how
        return tune("br_ihmm", y, **given)

    whole = points(search())
    text = log.read_text()
    log.write_text(text[:-20])
    assert points(search()) == whole
    assert len(log.read_text().splitlines()) == len(text.splitlines())
    with pytest.raises(RegimekitError, match=r"another search: different data"):
        search(y + 1.0)
    with pytest.raises(RegimekitError, match=r"another search: different objective"):
        search(objective="mae")
    with pytest.raises(RegimekitError, match=r"another search: different space"):
        search(space={"noise": ("float", 0.1, 1.0)})
    log.write_text("time,y\n1,2\n")
    with pytest.raises(RegimekitError, match=r"not a log of trials"):
        search()
    assert log.read_text() == "time,y\n1,2\n"


def test_the_same_settings_are_run_once() -> None:
    counted = Counted()
    found = tune(
        "br_ihmm",
        levels(20),
        space={"batch": ("int", 1, 2)},
        objective=counted,
        budget=8,
        settings=SMALL,
    )
    assert len(found.trials) == 8 and counted.calls == 2


def test_two_processes_take_the_same_course_twice() -> None:
    def search() -> TuneResult:
        space = {"noise": ("float", 0.01, 1.0, "log"), "batch": ("int", 1, 6)}
        return tune("br_ihmm", levels(30), space=space, budget=5, jobs=2, settings=SMALL)

    first = search()
    assert points(first) == points(search())
    assert len(first.trials) == 5 and first.info["jobs"] == 2
    alone = first.trials[3]
    fixed = SMALL | alone["settings"]
    one = {"prior_var": ("choice", [1.0])}
    here = tune("br_ihmm", levels(30), space=one, budget=1, settings=fixed)
    assert here.value == alone["value"]


def test_a_result_survives_its_file(tmp_path: Path) -> None:
    settings = SMALL | {"features": rk.features.intercept(), "threshold": math.inf}
    found = tune("br_ihmm", levels(30), space=BATCHES, budget=3, settings=settings)
    found.save(tmp_path / "settings.json")
    read = TuneResult.read(tmp_path / "settings.json")
    assert read.best == found.best and read.trials == found.trials and read.value == found.value
    assert read.info == json.loads(json.dumps(plain(found.info)))
    assert read.model().settings() == found.model().settings()
    assert read.model(seed=9).settings()["seed"] == 9


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("no json", "cannot be read"),
        ("[1]", "not a settings file"),
        ('{"best": {}}', "not a settings file"),
        ('{"model_name": "ihmm", "best": {}, "colour": 1}', "colour"),
        ('{"model_name": "ihmm", "best": {}, "regimekit_settings": 99}', "format 99"),
    ],
)
def test_a_settings_file_that_is_none_is_refused(text: str, word: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text(text)
    with pytest.raises(RegimekitError, match=word):
        TuneResult.read(path)


def test_a_settings_file_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_text('{"model_name": "br_ihmm", "best": {"batch": 3}}')
    assert TuneResult.read(path).model().settings()["batch"] == 3
    with pytest.raises(RegimekitError, match="cannot be read"):
        TuneResult.read(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("how", "word"),
    [
        ({"model_name": "br_hmm"}, r"name='br_hmm'.*Did you mean 'br_ihmm'"),
        ({"model_name": "beam_ihmm"}, "must be an online model, got 'beam_ihmm'"),
        ({"space": {"bach": ("int", 1, 2)}}, r"space='bach'.*Did you mean 'batch'"),
        ({"space": {"seed": ("int", 1, 2)}}, "space must not contain the seed"),
        ({"space": {}}, "non-empty mapping"),
        ({"space": BATCHES, "settings": {"batch": 2}}, "both contain 'batch'"),
        ({"settings": {"bach": 2}}, "bach"),
        ({"objective": "rsme"}, "Did you mean 'rmse'"),
        ({"objective": 3}, "objective must be"),
        ({"budget": 0}, "budget must be at least 1"),
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"seeds": 0}, "seeds must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"train": 0}, "train must be at least 1"),
        ({"train": 21}, "train must be at most the length of y 20, got 21"),
        ({"skip": 20}, "skip must be less than the 20 training rows"),
        ({"backend": "grid"}, "backend='grid'"),
        ({"X": np.zeros((3, 1))}, "X has 3 rows but y has 20"),
        ({"y": np.full(20, np.inf), "budget": 2}, "None of 2 trials succeeded.*y is infinite"),
    ],
)
def test_bad_arguments_are_named(how: dict[str, Any], word: str) -> None:
    with pytest.raises(RegimekitError, match=word):
        tune(**({"model_name": "br_ihmm", "y": np.zeros(20)} | how))


@pytest.mark.parametrize(
    ("module", "how"),
    [("optuna", {}), ("bayes_opt", {"backend": "bayesopt"}), ("joblib", {"jobs": 2})],
)
def test_the_error_for_a_missing_package_names_the_extra(
    module: str, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RegimekitError, match=rf"{module}: pip install 'regimekit\[tune\]'"):
        tune("br_ihmm", levels(20), space=BATCHES, budget=4, settings=SMALL, **how)


def test_a_progress_bar_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    shown, quiet = (
        tune("br_ihmm", levels(20), space=BATCHES, budget=3, settings=SMALL, progress=progress)
        for progress in (True, False)
    )
    assert points(shown) == points(quiet)
    assert "best" in capsys.readouterr().out


# The command line


def command(*words: object) -> str:
    """Run it as a user would; what it printed."""
    answer = CliRunner().invoke(cli.app, [str(word) for word in words])
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    assert answer.exit_code == 0, answer.output
    return answer.output


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    wind = rng.standard_normal(60)
    frame = pd.DataFrame({"load": 50 + 9 * (levels(60) + wind), "wind": wind})
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


def test_run_takes_what_tune_wrote(table: Path, tmp_path: Path) -> None:
    (tmp_path / "space.json").write_text('{"batch": ["int", 1, 4]}')
    where = tmp_path / "new" / "settings.json"
    command(
        "tune",
        table,
        "--target",
        "load",
        "--columns",
        "wind",
        "--lags",
        2,
        "--budget",
        3,
        "--train",
        50,
        "--burn-in",
        20,
        "--space",
        tmp_path / "space.json",
        "--log",
        tmp_path / "log.jsonl",
        "--set",
        "particles=3",
        "--objective",
        "mae",
        "--backend",
        "bayesopt",
        "--out",
        where,
    )
    tuned = TuneResult.read(where)
    assert tuned.objective == "mae" and len(tuned.trials) == 3
    assert tuned.info["rows"] == 50 and tuned.info["burn_in"] == "20"
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) <= 4
    command("run", table, "--target", "load", "--settings", where, "--out", tmp_path / "out")
    made = rk.load(tmp_path / "out" / "model.regimekit").settings()
    assert made == tuned.model().settings()
    assert [term["term"] for term in made["features"]] == ["intercept", "columns", "lags"]


def test_options_beside_a_settings_file_win(table: Path, tmp_path: Path) -> None:
    where = tmp_path / "settings.json"
    best = {"batch": 3, "particles": 3, "features": rk.features.columns("wind").to_json()}
    where.write_text(json.dumps({"model_name": "wolf_ihmm", "best": best}))
    command(
        "run",
        table,
        "--target",
        "load",
        "--settings",
        where,
        "--set",
        "batch=2",
        "--lags",
        "1",
        "--burn-in",
        10,
        "--out",
        tmp_path / "out",
    )
    made = rk.load(tmp_path / "out" / "model.regimekit")
    assert made.name == "wolf_ihmm" and made.settings()["batch"] == 2
    lags = rk.features.intercept() + rk.features.lags(1)
    assert made.settings()["features"] == lags.to_json()


def test_a_file_of_no_space_is_refused(table: Path, tmp_path: Path) -> None:
    with pytest.raises(RegimekitError, match="--space"):
        command("tune", table, "--target", "load", "--space", tmp_path / "absent.json")


def test_clean_values_are_what_is_scored() -> None:
    """Spikes that no forecast can know are no part of the error."""
    rng = np.random.default_rng(0)
    clean = rng.standard_normal(60)
    y = clean.copy()
    y[::10] += 50.0
    found = tune(
        "br_ihmm",
        y,
        space={"batch": ("int", 2, 4)},
        budget=1,
        clean=clean,
        train=50,
        settings={"particles": 5, "noise": 1.0},
        objective="rmse",
    )
    model = rk.make("br_ihmm", **found.best)
    wanted = evaluate.rmse(clean[:50], model.run(y[:50]).mean)
    assert found.value == pytest.approx(wanted, rel=1e-12)
    assert wanted < 3.0 < evaluate.rmse(y[:50], rk.make("br_ihmm", **found.best).run(y[:50]).mean)
    with pytest.raises(RegimekitError, match="clean must have the shape"):
        tune("br_ihmm", y, budget=1, clean=clean[:-1])


def test_the_default_and_the_last_value_stand_beside_the_best() -> None:
    y = levels(60)
    found = tune("br_ihmm", y, space=BATCHES, budget=2, settings={"particles": 5}, skip=10)
    own = evaluate.prequential(rk.br_ihmm(particles=5), y, skip=10).scores()
    last = evaluate.prequential(rk.make("last_value"), y, skip=10).scores()
    assert found.objective == "crps"
    assert found.default == own["crps"] and found.last_value == last["crps"]
    assert repr(found).startswith("TuneResult(br_ihmm: crps ") and "last value" in repr(found)
    assert max(map(len, repr(found).splitlines())) <= 88
