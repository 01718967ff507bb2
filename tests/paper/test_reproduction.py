"""The reproduction: settings as printed, runs kept and resumed, no number that was not computed."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import paper
import regimekit as rk
from paper import (
    ablation,
    ahead,
    output,
    parts,
    plan,
    probes,
    recovery,
    runner,
    settings,
    streams,
    targets,
    toys,
    tuning,
    volatility,
)
from paper.__main__ import main
from paper.outcomes import RUN_THRESHOLDS, Outcome, run_part
from paper.parts import Part
from paper.plan import FEW, MANY, PAIR, SEEDS, Plan
from paper.settings import PRINTED, SECOND, UNTUNED
from paper.store import Cache, run_into
from paper.tables import Cell, Difference, Item, Line, Made, Results, Table, comparison, parts_of
from regimekit import cli
from regimekit import datasets as data
from regimekit import metrics as evaluate
from regimekit.core.exceptions import RegimekitError
from regimekit.ihmm import published
from regimekit.tuning import search as trials

QUICK = Plan(quick=True)


def forget() -> None:
    """Streams are made again, and their data looked at again."""
    streams.made.cache_clear()
    streams.refusal.cache_clear()
    parts._data.cache_clear()


def small_item(*lines: Line) -> Item:
    """An item that compares a few lines."""
    return Item(
        "small",
        "A small one",
        "nowhere",
        "no reason",
        lambda results: Made([comparison(results, lines)]),
        parts_of(lines),
    )


# ---------------------------------------------------------------------------- settings


def test_fitted_values_are_the_printed_ones():
    # Typed by hand from the paper's Table "Summary of fitted hyperparameters".
    br = published.printed("well_log", "br_ihmm")
    assert (br["batch"], br["ess_threshold"], br["prior_var"]) == (21, 0.10, 1.0)
    assert br["threshold"] ** 2 == pytest.approx(2.124)
    assert br["rule"] == "paper" and br["max_regimes"] == 30
    wolf = published.printed("electricity", "wolf_ihmm")
    assert (wolf["ess_threshold"], wolf["prior_var"]) == (0.5, 99.619)
    assert wolf["threshold"] ** 2 == pytest.approx(3.909)
    assert settings.degree("electricity", "wolf_ihmm", PRINTED) == 1
    assert settings.degree("electricity", "br_ihmm", PRINTED) == 2
    assert published.printed("electricity", "br_ihmm")["threshold"] == 1.0
    assert published.printed("electricity", "ihmm")["prior_var"] == 31.334
    assert published.printed("synthetic", "ihmm")["ess_threshold"] == 0.0
    assert published.printed("synthetic", "br_ihmm")["threshold"] ** 2 == pytest.approx(1.348)
    assert "batch" not in published.printed("synthetic", "wolf_ihmm")


def test_order_flow_prior_is_the_paper_equation():
    # rho 0.114 and Sigma_0 0.001: y = rho y' - (1 - rho) theta, theta ~ N(0, Sigma_0).
    given = published.printed("ofi", "br_ihmm")
    assert given["prior_mean"] == [0.0, 0.114]
    assert given["prior_var"][0] == pytest.approx((1 - 0.114) ** 2 * 0.001)
    assert given["noise"] == pytest.approx(1 - 0.114**2)


def test_order_flow_prior_fixes_the_lag(rng: np.random.Generator):
    y = np.cumsum(rng.standard_normal(200)) / 10  # a walk would pull the coefficient to 1
    features = rk.features.intercept() + rk.features.lags(1)
    model = rk.ihmm(features=features, particles=5, **published.ofi_prior(0.3, 1.0))
    model.run(y)
    for regime in model.regimes():
        assert regime.mean[1] == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize("stream", settings.STARTS)
def test_every_setting_is_one_of_its_model(stream: str):
    for model, variants in settings.VARIANTS.items():
        if model == "garch_ihmm":
            continue
        for variant in variants:
            rk.make(model, **settings.of(stream, model, variant))  # an unknown one is an error


def test_variants_have_the_rules_of_their_names():
    def rule(variant: str, stream: str = "iid_t") -> tuple[object, str]:
        made = rk.make("br_ihmm", **settings.of(stream, "br_ihmm", variant))
        return made.settings()["rule"], made.settings()["weight"]

    assert rule(PRINTED)[0] == rule(settings.PAPER)[0] == "paper"
    first, weight = rule(settings.FIRST)
    assert weight == "imq" and isinstance(first, dict)
    assert {name for name, side in first.items() if side == "paper"} == {"D12"}
    raw = rule(settings.FIRST, "ofi")[0]
    assert isinstance(raw, dict) and raw["D13"] == "paper"
    assert rule(SECOND) == ("default", "contamination")
    assert settings.of("iid_t", "br_ihmm", UNTUNED) == {}
    with pytest.raises(RegimekitError, match="variant"):
        settings.of("iid_t", "br_ihmm", "third")


def test_what_a_search_found_replaces_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settings, "TUNED", tmp_path)
    before = settings.part("electricity", "br_ihmm", SECOND)
    content = {"best": {"batch": 7, "noise": 0.5}, "degree": 2}
    (tmp_path / "electricity-br_ihmm-second.json").write_text(json.dumps(content))
    after = settings.part("electricity", "br_ihmm", SECOND)
    assert after.settings == before.settings | {"batch": 7, "noise": 0.5}
    assert after.degree == 2 and before.degree == 1
    assert settings.part("electricity", "br_ihmm", PRINTED).settings["batch"] == 6
    beam = settings.of("electricity", "beam_ihmm", SECOND)
    assert beam["noise"] == settings.of("electricity", "ihmm", SECOND)["noise"]


# ---------------------------------------------------------------------------- the search


def test_every_tuned_column_has_a_search_over_what_its_model_has():
    found = tuning.searches()
    assert len(found) == len(set(found))
    for stream in settings.STARTS:
        for model in (*published.MODELS, "student_t_ihmm"):
            for variant in settings.VARIANTS[model]:
                searched = tuning.Search(stream, model, variant) in found
                assert searched == (variant not in (PRINTED, UNTUNED))
    for search in found:
        known = rk.make(search.model).settings()
        assert set(search.space()) <= set(known) & set(tuning.RANGES)
        assert ("sticky" in search.space()) == (
            search.model in settings.WITH_PARTICLES
            and "paper" not in settings.TITLES[search.variant]
        )
    noise = {s.stream for s in found if "noise" in s.space()}
    assert not noise & set(published.STATED_NOISE)  # stated in the paper, so not searched


def test_a_search_sees_no_row_that_is_scored():
    well_log = streams.stream("well_log")
    assert len(tuning.training_part(well_log).y) == well_log.held_out == 1700
    iid = streams.stream("iid_gauss")
    used = [streams.stream("iid_gauss", seed).data.y for seed in range(MANY)]
    joined = tuning.training_part(iid).y
    assert len(joined) == 3 * len(iid.data)
    assert all(not np.isin(one[:5], joined).any() for one in used)
    assert len(tuning.training_part(well_log, hindsight=True).y) == len(well_log.data)


def test_a_search_keeps_what_it_found_and_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(settings, "TUNED", tmp_path)
    monkeypatch.setattr(tuning, "_USUAL_SEEDS", (10_000,))
    tuning._seen.cache_clear()
    search = tuning.Search("iid_gauss", "ihmm", SECOND)
    assert not search.done(2) and settings.unsearched(*search)
    path = tuning.run(search, budget=2, progress=False)
    kept = json.loads(path.read_text())
    assert set(kept["best"]) == set(search.space()) and "noise" not in kept["best"]
    assert kept["objective"] == "regimes" and kept["trials"] == 2 and kept["rows"] == 1180
    assert search.done(2) and not search.done(3) and not settings.unsearched(*search)
    assert settings.of("iid_gauss", "ihmm", SECOND)["sticky"] == kept["best"]["sticky"]
    assert not tuning.outdated(*search)
    monkeypatch.setitem(tuning.RANGES, "sticky", ("float", 0.1, 3.0, "log"))  # other terms
    assert not search.done(2) and tuning.outdated(*search)
    monkeypatch.undo()
    tuning._seen.cache_clear()


def test_a_search_that_is_cut_off_takes_up_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    search = tuning.Search("iid_gauss", "bocd", SECOND)  # quick; not one of those that are made
    monkeypatch.setattr(tuning, "_USUAL_SEEDS", (10_000,))
    tuning._seen.cache_clear()
    monkeypatch.setattr(settings, "TUNED", tmp_path / "whole")
    whole = json.loads(tuning.run(search, budget=4, progress=False).read_text())
    monkeypatch.setattr(settings, "TUNED", tmp_path / "cut")
    done: list[float] = []
    value = trials.Task._value

    def cut(task: trials.Task, chosen: dict[str, object], seed: int | None) -> float:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(value(task, chosen, seed))
        return done[-1]

    monkeypatch.setattr(trials.Task, "_value", cut)
    with pytest.raises(KeyboardInterrupt):
        tuning.run(search, budget=4, progress=False)
    assert settings.unsearched(*search)  # what is not finished is not taken for found
    monkeypatch.setattr(trials.Task, "_value", value)
    path = tuning.run(search, budget=4, progress=False)
    again = json.loads(path.read_text())
    assert again | {"seconds": 0} == whole | {"seconds": 0}
    assert [left.name for left in path.parent.rglob("*.json*")] == [path.name]
    monkeypatch.undo()
    tuning._seen.cache_clear()


def test_the_command_lists_its_searches(capsys: pytest.CaptureFixture[str]):
    asked = ["tune", "--estimate", "--again", "--streams", "ofi", "--models", "bocd", "ihmm"]
    main(asked)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:-1]] == [
        "ofi ihmm paper",
        "ofi ihmm second",
        "ofi bocd second",
    ]
    with pytest.raises(SystemExit, match="name one of"):
        main(["bake"])


def test_hindsight_is_judged_by_the_printed_numbers():
    goals = (recovery.Goal("ppv", 0.5, True), recovery.Goal("rmse_observed", 2.0))
    assert [goal.gap(1.0) for goal in goals] == [0.0, 0.0]
    assert goals[0].gap(0.25) == 0.5 and goals[1].gap(3.0) == 0.5
    assert goals[0].gap(None) == math.inf
    stream = data.iid_regimes(0)
    result = evaluate.prequential(rk.make("last_value"), stream.y)
    rmse = result.scores()["rmse"]
    judged = tuning.printed_gap((recovery.Goal("rmse_observed", rmse / 2),), ())(result)
    assert judged == pytest.approx(1.0)


# ---------------------------------------------------------------------------- parts and plans


def test_scores_of_a_part_are_those_of_its_run():
    part = QUICK.parts("iid_t", "br_ihmm", SECOND)[0]
    outcome = run_part(part)
    stream = data.iid_regimes(part.seed, noise="t")
    model = rk.br_ihmm(**part.settings, features=rk.features.intercept(), seed=part.seed)
    mean = model.run(stream.y[: part.rows]).mean
    assert outcome.columns["mean"] == pytest.approx(mean, rel=2e-3, abs=1e-3)  # for a picture
    clean = stream.clean[: mean.size]
    assert outcome.scores["rmse"] == pytest.approx(math.sqrt(np.mean((clean - mean) ** 2)))
    oracle = evaluate.oracle(stream, 1.125, 4.0).mean[: mean.size]
    ratio = outcome.scores["rmse"] / math.sqrt(np.mean((clean - oracle) ** 2))
    assert outcome.scores["oracle_ratio"] == pytest.approx(ratio)
    assert outcome.scores["true_switches"] == np.count_nonzero(np.diff(stream.regimes[: mean.size]))


def test_only_the_drawn_run_keeps_its_columns(tmp_path: Path):
    first = Part("iid_gauss", "ihmm", {"particles": 4}, seed=0, rows=30)
    second = Part("iid_gauss", "ihmm", {"particles": 4}, seed=1, rows=30)
    cache = Cache(tmp_path)
    for part in (first, second):
        assert run_into(part, tmp_path) == (part, "")
    drawn, scored = cache.get(first), cache.get(second)
    assert drawn is not None and scored is not None
    assert drawn.columns["path"].shape == (30,) and scored.columns == {}
    assert np.isfinite(scored.scores["rmse"])
    assert drawn.scores["rmse"] == run_part(first).scores["rmse"]


def test_scores_are_of_rows_that_no_search_has_seen():
    part = Part("well_log", "last_value", rows=400)
    scores, y = run_part(part).scores, part.load().data.y
    assert part.load().held_out == 200
    late = np.sqrt(np.mean(np.diff(y[199:]) ** 2))
    assert scores["rmse"] == pytest.approx(late)
    first = y[0] - rk.make("last_value").predict().mean
    whole = np.sqrt((first**2 + np.sum(np.diff(y) ** 2)) / 400)
    assert scores["rmse_all"] == pytest.approx(whole)
    cut = streams.stream("well_log").rows(1700)
    true = [t - 1700 for t in streams.stream("well_log").data.changepoints if t > 1700]
    assert list(cut.data.changepoints) == true and len(cut.data) == 4050 - 1700
    generated = run_part(Part("iid_t", "last_value", rows=100)).scores
    assert generated["rmse"] == generated["rmse_all"]  # tuned on other seeds


def test_a_setting_that_a_model_does_not_know_is_refused():
    with pytest.raises(RegimekitError, match="hazard"):
        run_part(Part("iid_t", "ihmm", {"hazard": 0.1}, rows=20))


def test_a_key_follows_all_that_the_outcome_depends_on(monkeypatch: pytest.MonkeyPatch):
    part = Part("iid_t", "bocd", rows=20)
    key = part.key
    assert Part("iid_t", "bocd", rows=20).key == key
    others = [Part("iid_t", "bocd", {"hazard": 0.1}, rows=20), Part("iid_t", "bocd", rows=21)]
    others += [Part("iid_t", "bocd", rows=20, seed=1), Part("iid_gauss", "bocd", rows=20)]
    assert len({key, *(other.key for other in others)}) == 5

    made = streams.stream("iid_t")
    edited = dataclasses.replace(made, data=dataclasses.replace(made.data, y=made.data.y + 1))
    assert edited.digest() != made.digest()
    parts._data.cache_clear()
    monkeypatch.setattr(parts, "stream", lambda *_: edited)
    assert part.key != key
    monkeypatch.undo()
    parts._data.cache_clear()
    assert part.key == key
    monkeypatch.setattr(parts, "state", lambda *_: "edited")
    parts._code.cache_clear()
    assert part.key != key
    monkeypatch.undo()
    parts._code.cache_clear()


def test_the_code_of_a_model_is_what_it_imports():
    bank, bocd = Part("iid_t", "auto"), Part("iid_t", "bocd")
    family = {parts.code_state(Part("iid_t", model)) for model in published.MODELS}
    assert len({parts.code_state(bank), parts.code_state(bocd), *family}) == 3
    asked = {parts.code_state(Part(name, "x")) for name in probes.PROBES}
    assert len(asked) == len(probes.PROBES)


def test_many_runs_of_what_takes_under_a_minute_five_of_the_rest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(plan, "costs", lambda: {"synthetic br_ihmm prior means drawn": 30.0})

    def runs(*asked: str, most: int = MANY, short: bool = False) -> int:
        return len(Plan(runs=most).parts(*asked, short=short))

    assert runs("iid_t", "br_ihmm", PRINTED) == MANY
    assert runs("synthetic", "br_ihmm", PRINTED) == FEW  # more than a minute
    assert runs("synthetic", "br_ihmm", PRINTED, most=2) == 2
    assert runs("iid_t", "student_t_ihmm", SECOND) == MANY
    assert runs("iid_t", "br_ihmm", SECOND, short=True) == MANY  # a point of a sweep
    assert runs("well_log", "dsm_bocd", SECOND) == runs("ofi", "beam_ihmm", SECOND) == 1
    assert runs("synthetic", "bocd", SECOND) == SEEDS["synthetic"]  # the stream is drawn
    monkeypatch.setattr(plan, "costs", lambda: {"electricity auto": 8.0})
    assert runs("electricity", "auto", UNTUNED) == PAIR and runs("ofi", "auto", UNTUNED) == FEW
    assert [part.seed for part in Plan().parts("iid_t", "ihmm", SECOND)][:3] == [0, 1, 2]


def test_all_that_is_paired_has_the_same_seeds():
    for claim in ahead.CLAIMS:
        for ours, rival, variant in ahead._pairs(claim):
            mine = Plan().parts(claim.stream, "br_ihmm", ours)
            others = Plan().parts(claim.stream, rival, variant)
            given = claim.stream in plan.GIVEN and rival in plan.DRAWS_NOTHING
            assert len(others) == (1 if given else len(mine))


def test_a_sweep_scores_hours_that_no_search_has_seen():
    part = Plan().parts("electricity", "ihmm", SECOND, short=True)[0]
    assert part.load().held_out == 12_000 and len(part.load().data) == 16_000


def test_a_run_waits_for_the_search_for_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[Part]
):
    monkeypatch.setattr(settings, "TUNED", tmp_path / "tuned")
    waiting = settings.part("iid_t", "last_value", UNTUNED), settings.part("iid_t", "ihmm", SECOND)
    assert [part.pending for part in waiting] == [False, True]
    assert settings.part(
        "synthetic", "beam_ihmm", SECOND
    ).pending  # uses the settings found for ihmm
    item = small_item(Line("iid_t", "student_t_ihmm", "rmse"))
    (done,) = paper.reproduce([item], tmp_path / "out", Plan(runs=1))
    assert [part.settings for part in counted] == [{}] and done.runs == 1  # the untuned one alone
    page = (tmp_path / "out" / "small.md").read_text()
    assert "its settings are not searched yet" in page and "Not tuned yet: iid_t student" in page
    assert paper.estimate([item], tmp_path / "out", Plan(runs=1))[0][1] == 2


def test_settings_hold_while_an_item_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settings, "TUNED", tmp_path)
    asked = ("iid_t", "ihmm", SECOND)
    with settings.cached_files():
        assert settings.unsearched(*asked)
        settings.tuned_path(*asked).write_text('{"best": {"sticky": 7.0}}')
        assert settings.unsearched(*asked) and "sticky" not in settings.of(*asked)
    assert settings.of(*asked)["sticky"] == 7.0


def test_targets_are_met_on_the_right_side():
    least = targets.Target("", "well_log", "ppv", 0.7, at_least=True)
    most = targets.Target("", "well_log", "delay", 15.0)
    verdicts = [least.met(Cell(m, None, 1)) for m in (0.69, 0.7, 0.8)]
    assert verdicts == ["no", "yes", "yes"]
    assert [most.met(Cell(m, None, 1)) for m in (14.0, 15.0, 16.0)] == ["yes", "yes", "no"]
    assert most.met(Cell(None, None, 0, "not run")) == ""


def test_run_thresholds_are_those_of_the_matching():
    part = settings.part("iid_gauss", "ihmm", SECOND, {"particles": 5})
    outcome = run_part(part)
    truth = part.load().data.changepoints
    for n in RUN_THRESHOLDS:
        match = evaluate.match_regimes(outcome.columns["path"], truth, n)
        found = (outcome.scores[f"ppv_{n}"], outcome.scores[f"tpr_{n}"])
        assert found == pytest.approx((match.ppv, match.tpr), rel=1e-6)  # scores have seven digits
    assert outcome.scores["ppv"] == outcome.scores["ppv_2"]


def test_quick_cuts_rows_and_particles_of_every_item():
    for item in paper.ITEMS.values():
        for part in item.parts(QUICK):
            assert part.seed == 0
            if part.stream not in probes.PROBES:
                assert part.rows is not None and part.rows <= 400
                assert part.settings.get("particles", 0) <= 12


def test_every_item_states_source_and_differences():
    assert len(paper.ITEMS) == 38
    for name, item in paper.ITEMS.items():
        assert item.name == name and item.title and item.source and len(item.note) > 40


def test_ablation_takes_one_piece_at_a_time():
    for stream in settings.STARTS:
        for edition, taken in ablation.TAKEN.items():
            base = ablation._parts(QUICK, stream, edition, ablation.WHOLE)[0].settings
            for piece, changes in taken(stream).items():
                changed = ablation._parts(QUICK, stream, edition, piece)[0].settings
                assert changed == base | changes
                rk.make("br_ihmm", **changed)
    pieces = ablation.taken_from_second("iid_t")
    whole = settings.of("iid_t", "br_ihmm", SECOND)
    without = rk.make("br_ihmm", **whole | pieces["contamination score: IMQ, c = 2"])
    islands = rk.make("br_ihmm", **whole).settings()["islands"]
    assert without.settings()["islands"] == islands > 1


def test_mending_starts_from_the_text_and_ends_with_the_first_edition():
    def rule(*corrected: str) -> dict[str, str]:
        part = recovery.corrected_parts(QUICK, "iid_gauss", corrected)[0]
        found: dict[str, str] = part.settings["rule"]
        return found

    assert set(rule().values()) == {"paper"}
    assert [name for name, side in rule("D4").items() if side == "default"] == ["D4"]
    own_steps = dict.fromkeys(("D12", "D14", "D15"), "paper")
    assert rule(*recovery.NINE) == {f"D{k}": "default" for k in range(1, 10)} | own_steps


def test_taking_away_ends_with_what_cannot_be_done_without(monkeypatch: pytest.MonkeyPatch):
    worth = {"D1": 0.3, "D4": 0.5, "D9": 0.2}
    beyond = 0.0

    def gap(results: Results, stream: str, corrected: tuple[str, ...]) -> float:
        return max(0.0, 1.0 + beyond - sum(worth.get(d, 0.0) for d in corrected))

    monkeypatch.setattr(recovery, "_gap", gap)
    everything = Results(QUICK, {}, {})
    monkeypatch.setattr(everything, "why_not", lambda part: "")
    course = recovery.path(everything, "iid_gauss")
    assert course[0] == recovery.NINE and course[-1] == ("D1", "D4", "D9")
    assert [len(step) for step in course] == [9, 8, 7, 6, 5, 4, 3]
    beyond = 0.5  # out of reach even with all nine: as near as they come is enough
    assert recovery.path(everything, "iid_gauss")[-1] == ("D1", "D4", "D9")
    monkeypatch.setattr(everything, "why_not", lambda part: "not run")
    assert recovery.path(everything, "iid_gauss") == [recovery.NINE]  # no further than the runs go


def test_pairs_compare_tuned_with_tuned_and_untuned_with_untuned():
    for claim in ahead.CLAIMS:
        for ours, rival, variant in ahead._pairs(claim):
            assert (ours == UNTUNED) == (variant == UNTUNED) or rival == "last_value"


# ---------------------------------------------------------------------------- running


def test_items_end_to_end_and_resumed(tmp_path: Path, counted: list[Part]):
    chosen = paper.choose(["eye_candy", "t_difference"])
    written = paper.reproduce(chosen, tmp_path, QUICK)
    assert [done.runs for done in written] == [9, 0] and len(counted) == 9
    for name in ("eye_candy", "t_difference"):
        content = json.loads((tmp_path / f"{name}.json").read_text())
        assert content["versions"]["regimekit"] == rk.__version__ and content["quick"]
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert content["title"] in (tmp_path / f"{name}.md").read_text()
        assert f"![{content['title']}]({name}.png)" in (tmp_path / f"{name}.md").read_text()
        assert f"[{content['title']}]({name}.md)" in (tmp_path / "index.md").read_text()
    content = json.loads((tmp_path / "eye_candy.json").read_text())
    rules = [group["settings"].get("rule") for group in content["variants"]]
    assert rules.count("paper") == 4 and rules.count("default") == 2 and rules.count(None) == 2
    assert all(group["seeds"] == [0] for group in content["variants"])
    assert [source.partition(":")[0] for source in content["sources"]] == ["br_ihmm", "ihmm"]

    before = (tmp_path / "eye_candy.json").read_text()
    paper.reproduce(chosen, tmp_path, QUICK)
    assert len(counted) == 9  # nothing was run again
    assert (tmp_path / "eye_candy.json").read_text() == before


def test_an_interrupted_run_takes_up_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    item = small_item(Line("iid_gauss", "ihmm", "rmse"), Line("iid_gauss", "wolf_ihmm", "rmse"))
    ran: list[Part] = []
    limit = 2

    def stopped(part: Part, folder: Path) -> tuple[Part, str]:
        if len(ran) == limit:
            raise KeyboardInterrupt
        ran.append(part)
        return run_into(part, folder)

    monkeypatch.setattr(runner, "run_into", stopped)
    with pytest.raises(KeyboardInterrupt):
        paper.reproduce([item], tmp_path, QUICK)
    first = [part.key for part in ran]
    ran.clear()
    limit = 100
    paper.reproduce([item], tmp_path, QUICK)
    second = [part.key for part in ran]
    assert len(first) == 2 and len(second) == 6 and not set(first) & set(second)


def test_an_item_may_ask_for_more_until_it_is_content(tmp_path: Path, counted: list[Part]):
    wanted = [Part("iid_t", "last_value", rows=20 + k) for k in range(3)]

    def more(results: Results) -> list[Part]:
        done = sum(not results.why_not(part) for part in wanted)
        return wanted[: done + 1]

    item = Item("grows", "It grows", "nowhere", "", lambda _: Made([]), lambda _: wanted[:1], more)
    (written,) = paper.reproduce([item], tmp_path, QUICK)
    assert written.runs == 3 and [part.rows for part in counted] == [20, 21, 22]


def test_an_estimate_counts_what_is_left_and_shared_runs_once(tmp_path: Path):
    twice = [small_item(Line("iid_gauss", "last_value", "rmse")) for _ in range(2)]
    (_, runs, minutes), (_, shared, none) = paper.estimate(twice, tmp_path, QUICK)
    assert (runs, shared, none) == (1, 0, 0.0) and minutes > 0
    paper.reproduce(twice[:1], tmp_path, QUICK)
    assert [row[1] for row in paper.estimate(twice, tmp_path, QUICK)] == [0, 0]


def test_missing_data_is_reported_without_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[Part]
):
    monkeypatch.setenv("REGIMEKIT_DATA", str(tmp_path))
    forget()
    out = tmp_path / "out"
    written = paper.reproduce(paper.choose(["ofi", "electricity_raw"]), out, QUICK)
    forget()
    assert not counted and written[0].runs == 0
    content = json.loads((out / "ofi.json").read_text())
    cells = [cell for row in content["tables"][0]["rows"] for cell in row[4:]]
    assert cells and all("mean" not in cell for cell in cells)
    assert "cannot be downloaded" in (out / "ofi.md").read_text()
    assert written[0].figure.startswith("not drawn")
    assert "cannot be downloaded" in (out / "electricity_raw.md").read_text()
    assert not list(out.glob("*.png"))


def test_a_download_that_fails_is_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def no_network(name: str) -> None:
        asked.append(name)
        raise RegimekitError(f"{name} could not be downloaded")

    monkeypatch.setattr(data, "load", no_network)
    forget()
    try:
        due = [Part("well_log", "ihmm", seed=seed) for seed in range(4)]
        item = Item("small", "A small one", "nowhere", "", lambda _: Made([]), lambda _: due)
        assert runner.estimate([item], tmp_path, QUICK) == [("small", 0, 0.0)]
        (done,) = paper.reproduce([item], tmp_path, QUICK)
    finally:
        forget()
    assert "could not be downloaded" in done.absent["ihmm on well_log"]
    assert asked == ["well_log"]


def test_a_missing_model_and_a_failed_run_are_reported(tmp_path: Path, counted: list[Part]):
    bad = [Part("iid_gauss", "no_such_ihmm"), Part("iid_gauss", "ihmm", {"noise": -1.0}, rows=20)]
    item = Item("bad", "Bad", "nowhere", "", lambda _: Made([]), lambda _: bad)
    for _ in range(2):  # a failure is not kept: it is tried again
        (done,) = paper.reproduce([item], tmp_path, QUICK)
        assert done.runs == 0
        assert "no model no_such_ihmm" in done.absent["no_such_ihmm on iid_gauss"]
        assert "noise" in done.absent["ihmm on iid_gauss"]
    assert [part.model for part in counted] == ["ihmm", "ihmm"]


@pytest.mark.slow
def test_processes_give_what_one_process_gives(tmp_path: Path):
    item = small_item(Line("iid_gauss", "ihmm", "rmse"), Line("iid_gauss", "bocd", "rmse"))
    for jobs in (1, 2):
        paper.reproduce([item], tmp_path / str(jobs), QUICK, jobs=jobs)
    one, two = (json.loads((tmp_path / j / "small.json").read_text()) for j in ("1", "2"))
    assert one["tables"] == two["tables"]


# ---------------------------------------------------------------------------- tables


def test_cells_state_the_number_of_runs():
    assert str(Cell(0.5, 0.25, 3)) == "0.5 ± 0.25 (n 3)"
    assert str(Cell(0.5, None, 1)) == "0.5 (n 1)"
    assert Cell(None, None, 0, "not run").to_json() == {"absent": "not run"}
    results = Results(Plan(), {}, {})
    assert results.cell([Part("iid_t", "ihmm")], "rmse").absent == "not run"


def test_cell_is_mean_and_deviation_over_the_runs_with_a_value():
    parts = [Part("iid_t", "ihmm", seed=seed) for seed in range(4)]
    values = (1.0, 2.0, float("nan"), 6.0)
    outcomes = {
        part.key: Outcome({"rmse": value}, {}) for part, value in zip(parts, values, strict=True)
    }
    cell = Results(Plan(), outcomes, {}).cell(parts, "rmse")
    assert (cell.mean, cell.runs) == (3.0, 3)
    assert cell.sd == pytest.approx(math.sqrt(7.0))
    assert Results(Plan(), outcomes, {}).cell(parts, "ppv").absent == "not defined on these rows"


def test_paired_differences_have_intervals_and_verdicts():
    mine = [Part("iid_t", "ihmm", seed=seed) for seed in range(4)]
    others = [Part("iid_t", "bocd", seed=seed) for seed in range(4)]
    ours, rival = (1.0, 2.0, 3.0, math.nan), (2.0, 3.5, 3.5, 9.0)
    outcomes = {p.key: Outcome({"rmse": v}, {}) for p, v in zip(mine, ours, strict=True)}
    outcomes |= {p.key: Outcome({"rmse": v}, {}) for p, v in zip(others, rival, strict=True)}
    results = Results(Plan(), outcomes, {})
    found = results.paired(mine, others, "rmse")
    assert found is not None and found.pairs == 3 and found.mean == -1.0
    assert found.half == pytest.approx(4.302653 * 0.5 / math.sqrt(3))  # Student's, two degrees
    assert found.verdict(lower_is_better=True) == "undecided"
    assert Difference(-1.0, 0.5, 3).verdict(lower_is_better=True) == "ahead"
    assert Difference(-1.0, 0.5, 3).verdict(lower_is_better=False) == "behind"
    fixed = results.paired(mine, others[:1], "rmse")  # a rival that draws nothing
    assert fixed is not None and fixed.mean == 0.0 and fixed.pairs == 3
    assert results.paired(mine, [Part("iid_t", "auto")], "rmse") is None


def test_models_without_a_rule_stand_in_the_tuned_and_the_untuned_column():
    table = comparison(Results(QUICK, {}, {}), [Line("synthetic", "bocd", "rmse")])
    shown = dict(zip(table.columns[4:], table.rows[0][4:], strict=True))
    assert [name for name, cell in shown.items() if cell != "--"] == [
        settings.COLUMNS[SECOND],
        settings.COLUMNS[UNTUNED],
    ]


def test_a_table_lists_columns_that_are_not_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settings, "TUNED", tmp_path)
    lines = [Line("ofi", model, "rmse") for model in ("bocd", "beam_ihmm", "auto")]
    caption = comparison(Results(QUICK, {}, {}), lines).caption
    assert caption.endswith("**Not tuned yet: ofi bocd second, ofi beam_ihmm second.**")
    (tmp_path / "ofi-bocd-second.json").write_text('{"best": {}, "state": "another"}')
    caption = comparison(Results(QUICK, {}, {}), lines[:1]).caption
    assert caption.endswith("**Tuned by an older state of the source: ofi bocd second.**")
    state = tuning.Search("ofi", "bocd", SECOND).state
    (tmp_path / "ofi-bocd-second.json").write_text(json.dumps({"best": {}, "state": state}))
    assert "tuned" not in comparison(Results(QUICK, {}, {}), lines[:1]).caption.partition("--")[2]


# Tables of numbers that the paper prints, of differences and of settings.
POINTS_ALONE = (
    *("ahead", "attempt", "corrections", "hyperparameters"),
    *("objective", "protocol", "stability"),
)


@pytest.mark.parametrize("name", paper.ITEMS)
def test_every_forecast_table_has_the_coverage(name: str):
    for table in paper.ITEMS[name].make(Results(QUICK, {}, {})).tables:
        words = " ".join([*table.columns, *(str(row[2]) for row in table.rows if len(row) > 2)])
        forecasts = any(word in words for word in ("RMSE", "MAE", "CRPS", "error"))
        if forecasts and name not in POINTS_ALONE:
            assert "coverage of" in words


@pytest.mark.parametrize("name", paper.ITEMS)
def test_every_table_and_figure_has_a_caption(name: str):
    made = paper.ITEMS[name].make(Results(QUICK, {}, {}))
    captions = [table.caption for table in made.tables] + ([made.caption] if made.draw else [])
    for caption in captions:
        assert len(caption) > 30 and caption.rstrip("*").endswith("."), caption


def test_what_most_hangs_on_comes_first():
    first = ["targets", "regimes", "forecast", "welllog_regimes", "iid_gauss", "iid_t", "ahead"]
    assert list(paper.ITEMS)[: len(first)] == first


def test_markdown_keeps_bars_inside_cells():
    text = Table(["|y|", "b"], [["a|b", None], [0.123456, 3]]).markdown()
    assert text.splitlines() == [
        "| \\|y\\| | b |",
        "| --- | --- |",
        "| a\\|b | -- |",
        "| 0.1235 | 3 |",
    ]


def test_json_has_no_nan():
    assert output._plain({"a": [float("nan"), 1.0], "b": float("inf")}) == {
        "a": [None, 1.0],
        "b": None,
    }


def test_order_flow_is_never_set_beside_the_paper_as_equal():
    for name in ("forecast_real", "runtimes", "ofi"):
        item = paper.ITEMS[name]
        table = item.make(Results(QUICK, {}, {})).tables[0]
        printed = [row[3] for row in table.rows if row[0] == "ofi" and row[3] != "not printed"]
        assert printed and all("MSFT: another series" in str(text) for text in printed)


# ---------------------------------------------------------------------------- toys


def test_heavy_tails_grow_at_the_rate_of_theory():
    slope = (toys.t_difference(1e12) - toys.t_difference(1e11)) / math.log(10)
    assert slope == pytest.approx(995, rel=1e-9)


def test_the_second_edition_forgets_an_extreme_value_in_the_toys():
    far = toys.pif([1e6], "second", batch=1, threshold=2.0)[0]
    near = toys.pif([1.0], "second", batch=1, threshold=2.0)[0]
    clean = toys._posterior(np.zeros((1, 1)))[0]
    unseen = float((np.exp(clean) * (clean - math.log(0.5))).sum())
    assert far == pytest.approx(unseen, rel=1e-6) and near > far


def test_garch_recursion_and_fit():
    made = data.garch_regimes(seed=3, n=800, low=(0.1, 0.1, 0.8), high=(0.1, 0.1, 0.8))
    variance = volatility.garch_variance(made.y, 0.1, 0.1, 0.8)
    slow = [float(np.mean(made.y**2))]
    for value in made.y[:-1]:
        slow.append(0.1 + 0.1 * value**2 + 0.8 * slow[-1])
    assert variance == pytest.approx(np.array(slow))

    def loss(coefficients: tuple[float, float, float]) -> float:
        v = volatility.garch_variance(made.y, *coefficients)
        return float(np.mean(np.log(v) + made.y**2 / v))

    fitted = volatility.fit_garch(made.y)
    assert loss(fitted) <= loss((0.1, 0.1, 0.8))  # maximum likelihood is at least the truth's
    assert fitted[1] + fitted[2] < 1


# ---------------------------------------------------------------------------- command line


def test_command_lists_every_item():
    result = CliRunner().invoke(cli.app, ["reproduce", "list"])
    assert result.exit_code == 0
    for name in paper.ITEMS:
        assert name in result.output


def test_command_makes_an_item(tmp_path: Path):
    arguments = ["reproduce", "hyperparameter_summary", "--quick", "--out", str(tmp_path)]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    assert "tau_ESS" in (tmp_path / "hyperparameter_summary.md").read_text()


def test_command_estimates_and_runs_nothing(tmp_path: Path):
    arguments = ["reproduce", "eye_candy", "--quick", "--estimate", "--out", str(tmp_path)]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0 and "core minutes" in result.output
    assert not list(tmp_path.rglob("*.npz")) and not list(tmp_path.glob("*.md"))


def test_the_index_is_links_the_targets_and_a_note_that_stays(tmp_path: Path):
    paper.reproduce(paper.choose(["targets", "t_difference"]), tmp_path, Plan(quick=True))
    page = (tmp_path / "index.md").read_text()
    note = "<!-- note: begin -->\nA word.\n<!-- note: end -->"
    (tmp_path / "index.md").write_text(page.replace("# Reproduction", f"# Reproduction\n\n{note}"))
    again = output.write_index(tmp_path).read_text()
    assert note in again and again.replace(f"{note}\n\n", "") == page
    assert page.count("\n| --- |") == 1 and "(t_difference.md)" in page


def test_command_refuses_an_unknown_item():
    with pytest.raises(RegimekitError, match="Did you mean 'garch'"):
        paper.choose(["garhc"])
    assert CliRunner().invoke(cli.app, ["reproduce", "garhc"]).exit_code != 0
