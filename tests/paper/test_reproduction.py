"""The reproduction: settings as printed, runs kept and resumed, no number that was not computed."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import holdfast as hf
import paper
from holdfast import cli, data, evaluate
from holdfast.errors import HoldfastError
from paper import (
    ablation,
    output,
    runner,
    settings,
    streams,
    targets,
    toys,
    volatility,
)
from paper.parts import RUN_THRESHOLDS, Cache, Outcome, Part, run_into, run_part
from paper.plan import LEAST, LEAST_SHARED, Plan
from paper.tables import Cell, Item, Line, Made, Results, Table, comparison, parts_of

QUICK = Plan(quick=True)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """The parts that were really run."""
    ran: list[Part] = []

    def run(part: Part, folder: Path) -> tuple[Part, str]:
        ran.append(part)
        return run_into(part, folder)

    monkeypatch.setattr(runner, "run_into", run)
    return ran


def small_item(*lines: Line) -> Item:
    """An item that compares a few lines."""
    return Item(
        "small", "A small one", "nowhere", "no reason",
        lambda results: Made([comparison(results, lines)]), parts_of(lines),
    )  # fmt: skip


# ---------------------------------------------------------------------------- settings


def test_fitted_values_are_the_printed_ones():
    # Typed by hand from the paper's Table "Summary of fitted hyperparameters".
    br = settings.paper("well_log", "br_ihmm")
    assert (br["batch"], br["ess_threshold"], br["prior_var"]) == (21, 0.10, 1.0)
    assert br["threshold"] ** 2 == pytest.approx(2.124)
    assert br["rule"] == "paper" and br["max_regimes"] == 30
    wolf = settings.paper("electricity", "wolf_ihmm")
    assert (wolf["ess_threshold"], wolf["prior_var"]) == (0.5, 99.619)
    assert wolf["threshold"] ** 2 == pytest.approx(3.909)
    assert settings.degree("electricity", "wolf_ihmm", "paper") == 1
    assert settings.degree("electricity", "br_ihmm", "paper") == 2
    assert settings.paper("electricity", "br_ihmm")["threshold"] == 1.0
    assert settings.paper("electricity", "ihmm")["prior_var"] == 31.334
    assert settings.paper("synthetic", "ihmm")["ess_threshold"] == 0.0
    assert settings.paper("synthetic", "br_ihmm")["threshold"] ** 2 == pytest.approx(1.348)
    assert "batch" not in settings.paper("synthetic", "wolf_ihmm")


def test_order_flow_prior_is_the_paper_equation():
    # rho 0.114 and Sigma_0 0.001: y = rho y' - (1 - rho) theta, theta ~ N(0, Sigma_0).
    given = settings.paper("ofi", "br_ihmm")
    assert given["prior_mean"] == [0.0, 0.114]
    assert given["prior_var"][0] == pytest.approx((1 - 0.114) ** 2 * 0.001)
    assert given["noise"] == pytest.approx(1 - 0.114**2)


def test_order_flow_prior_holds_the_lag(rng: np.random.Generator):
    y = np.cumsum(rng.standard_normal(200)) / 10  # a walk would pull the coefficient to 1
    features = hf.features.intercept() + hf.features.lags(1)
    model = hf.ihmm(features=features, particles=5, **settings.ofi_prior(0.3, 1.0))
    model.run(y)
    for regime in model.regimes():
        assert regime.mean[1] == pytest.approx(0.3, abs=1e-6)


@pytest.mark.parametrize("stream", settings.CHOSEN)
@pytest.mark.parametrize("rule", ["paper", "holdfast"])
def test_every_setting_is_one_of_its_model(stream: str, rule: str):
    for model in settings.ONLINE:
        part = settings.part(stream, model, rule)
        assert set(part.settings) <= set(hf.make(model).settings())
        assert hf.make(model, **part.settings).settings()["rule"] == rule


def test_tuned_settings_replace_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(settings, "TUNED", tmp_path)
    before = settings.part("electricity", "br_ihmm", "holdfast")
    best = {"batch": 7, "noise": 0.5, "features": None, "seed": 3, "particles": 20}
    content = {"model_name": "br_ihmm", "best": best, "info": {"degree": 3}}
    (tmp_path / "electricity-br_ihmm.json").write_text(json.dumps(content))
    after = settings.part("electricity", "br_ihmm", "holdfast")
    assert after.settings == before.settings | {"batch": 7, "noise": 0.5}
    assert after.degree == 3 and before.degree == 1
    assert settings.part("electricity", "br_ihmm", "paper").settings["batch"] == 6


# ---------------------------------------------------------------------------- parts and plans


def test_scores_of_a_part_are_those_of_its_run():
    part = QUICK.parts("iid_t", "br_ihmm", "holdfast")[0]
    outcome = run_part(part)
    stream = data.iid_regimes(part.seed, noise="t")
    mean = outcome.columns["mean"]
    clean = stream.clean[: mean.size]
    assert outcome.scores["rmse"] == pytest.approx(math.sqrt(np.mean((clean - mean) ** 2)))
    told = evaluate.oracle(stream, 1.125, 4.0).mean[: mean.size]
    ratio = outcome.scores["rmse"] / math.sqrt(np.mean((clean - told) ** 2))
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


def test_dear_variants_get_fewer_runs():
    plan = Plan(runs=100)
    assert len(plan.parts("iid_t", "br_ihmm", "paper")) == 100
    dear = len(plan.parts("synthetic", "br_ihmm", "paper"))
    assert LEAST <= dear < len(plan.parts("synthetic", "br_ihmm", "holdfast")) < 100
    assert len(plan.parts("well_log", "beam_ihmm", "holdfast")) == 1
    assert len(plan.parts("well_log", "bocd", "holdfast")) == 1
    assert len(Plan(runs=2).parts("electricity", "br_ihmm", "paper")) == 2
    assert [part.seed for part in plan.parts("iid_t", "ihmm", "paper")][:3] == [0, 1, 2]
    some = Plan(runs=20).parts("ofi", "br_ihmm", "holdfast", share=0.25)
    assert len(some) == LEAST_SHARED
    dearest = Plan(runs=20).parts("electricity", "br_ihmm", "paper", share=0.25)
    assert len(dearest) == 1 and dearest[0].rows == 12_000


def test_targets_are_met_on_the_right_side():
    least = targets.Target("well_log", "ppv", "", 0.7, at_least=True)
    most = targets.Target("well_log", "delay", "", 15.0)
    verdicts = [least.met(Cell(m, None, 1)) for m in (0.69, 0.7, 0.8)]
    assert verdicts == ["no", "yes", "yes"]
    assert [most.met(Cell(m, None, 1)) for m in (14.0, 15.0, 16.0)] == ["yes", "yes", "no"]
    assert most.met(Cell(None, None, 0, "not run")) == ""


def test_run_thresholds_are_those_of_the_matching():
    part = settings.part("iid_gauss", "ihmm", "holdfast", {"particles": 5})
    outcome = run_part(part)
    truth = part.load().data.changepoints
    for n in RUN_THRESHOLDS:
        match = evaluate.match_regimes(outcome.columns["path"], truth, n)
        assert (outcome.scores[f"ppv_{n}"], outcome.scores[f"tpr_{n}"]) == (match.ppv, match.tpr)
    assert outcome.scores["ppv"] == outcome.scores["ppv_2"]


def test_quick_cuts_rows_and_particles_of_every_item():
    for item in paper.ITEMS.values():
        for part in item.parts(QUICK):
            assert part.rows is not None and part.rows <= 500
            assert part.settings.get("particles", 0) <= 15 and part.seed == 0


def test_every_item_says_where_it_is_from_and_why_it_differs():
    assert len(paper.ITEMS) == 26
    for name, item in paper.ITEMS.items():
        assert item.name == name and item.title and item.source and len(item.note) > 40


def test_ablation_switches_each_deviation_alone():
    assert list(ablation.VARIANTS) == ["holdfast", *(f"D{k}" for k in range(1, 10)), "all nine"]
    for stream in settings.CHOSEN:
        base = ablation._parts(QUICK, stream, "holdfast")[0].settings
        for name, rule in ablation.VARIANTS.items():
            changed = ablation._parts(QUICK, stream, name)[0].settings
            assert changed == base | {"rule": rule}


# ---------------------------------------------------------------------------- running


def test_items_end_to_end_and_resumed(tmp_path: Path, counted: list[Part]):
    chosen = paper.choose(["eye_candy", "t_difference"])
    written = paper.reproduce(chosen, tmp_path, QUICK)
    assert [done.runs for done in written] == [4, 0] and len(counted) == 4
    for name in ("eye_candy", "t_difference"):
        content = json.loads((tmp_path / f"{name}.json").read_text())
        assert content["versions"]["holdfast"] == hf.__version__ and content["quick"]
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert content["title"] in (tmp_path / f"{name}.md").read_text()
        assert f"![{content['title']}]({name}.png)" in (tmp_path / f"{name}.md").read_text()
        assert f"[{content['title']}]({name}.md)" in (tmp_path / "index.md").read_text()
    content = json.loads((tmp_path / "eye_candy.json").read_text())
    assert {group["settings"]["rule"] for group in content["variants"]} == {"paper", "holdfast"}
    assert all(group["seeds"] == [0] for group in content["variants"])
    assert len(content["sources"]) == 1

    before = (tmp_path / "eye_candy.json").read_text()
    paper.reproduce(chosen, tmp_path, QUICK)
    assert len(counted) == 4  # nothing was run again
    assert (tmp_path / "eye_candy.json").read_text() == before


def test_an_interrupted_run_takes_up_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    item = small_item(Line("iid_gauss", "ihmm", "rmse"), Line("iid_gauss", "wolf_ihmm", "rmse"))
    ran: list[Part] = []

    def stopped(part: Part, folder: Path) -> tuple[Part, str]:
        if len(ran) == 2:
            raise KeyboardInterrupt
        ran.append(part)
        return run_into(part, folder)

    monkeypatch.setattr(runner, "run_into", stopped)
    with pytest.raises(KeyboardInterrupt):
        paper.reproduce([item], tmp_path, QUICK)
    first = [part.key for part in ran]
    ran.clear()
    paper.reproduce([item], tmp_path, QUICK)
    second = [part.key for part in ran]
    assert len(first) == 2 and len(second) == 2 and not set(first) & set(second)


def test_missing_data_is_said_and_no_number_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: list[Part]
):
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    streams.stream.cache_clear()
    out = tmp_path / "out"
    written = paper.reproduce(paper.choose(["ofi", "electricity_raw"]), out, QUICK)
    streams.stream.cache_clear()
    assert not counted and written[0].runs == 0
    content = json.loads((out / "ofi.json").read_text())
    cells = [row[5] for row in content["tables"][0]["rows"]]
    assert cells and all("mean" not in cell for cell in cells)
    assert "cannot be downloaded" in (out / "ofi.md").read_text()
    assert written[0].figure.startswith("not drawn")
    assert "cannot be downloaded" in (out / "electricity_raw.md").read_text()
    assert not list(out.glob("*.png"))


def test_a_missing_model_and_a_failed_run_are_said(tmp_path: Path, counted: list[Part]):
    bad = {"noise": -1.0}
    item = small_item(
        Line("iid_gauss", "no_such_ihmm", "rmse", ruled=False),
        Line("iid_gauss", "ihmm", "rmse", changes=bad, ruled=False),
    )
    for _ in range(2):  # a failure is not kept: it is tried again
        (done,) = paper.reproduce([item], tmp_path, QUICK)
        assert done.runs == 0
        assert "no model no_such_ihmm" in done.absent["no_such_ihmm on iid_gauss"]
        assert "noise" in done.absent["ihmm on iid_gauss"]
    assert [part.model for part in counted] == ["ihmm", "ihmm"]


@pytest.mark.slow
def test_processes_give_what_one_process_gives(tmp_path: Path):
    item = small_item(Line("iid_gauss", "ihmm", "rmse"), Line("iid_gauss", "br_ihmm", "rmse"))
    for jobs in (1, 2):
        paper.reproduce([item], tmp_path / str(jobs), QUICK, jobs=jobs)
    one, two = (json.loads((tmp_path / j / "small.json").read_text()) for j in ("1", "2"))
    assert one["tables"] == two["tables"]


# ---------------------------------------------------------------------------- tables


def test_cells_say_how_many_runs_they_rest_on():
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


def test_markdown_keeps_bars_inside_cells():
    text = Table(["|y|", "b"], [["a|b", None], [0.123456, 3]]).markdown()
    assert text.splitlines() == [
        "| \\|y\\| | b |", "| --- | --- |", "| a\\|b | -- |", "| 0.1235 | 3 |",
    ]  # fmt: skip


def test_json_has_no_nan():
    assert output._plain({"a": [float("nan"), 1.0], "b": float("inf")}) == {
        "a": [None, 1.0],
        "b": None,
    }


def test_order_flow_is_never_set_beside_the_paper_as_equal():
    for name in ("forecast", "runtimes", "ofi"):
        item = paper.ITEMS[name]
        table = item.make(Results(QUICK, {}, {})).tables[0]
        printed = [row[3] for row in table.rows if row[0] == "ofi" and row[3] != "not printed"]
        assert printed and all("MSFT: another series" in str(text) for text in printed)


# ---------------------------------------------------------------------------- toys


def test_heavy_tails_grow_at_the_rate_of_theory():
    slope = (toys.t_difference(1e12) - toys.t_difference(1e11)) / math.log(10)
    assert slope == pytest.approx(995, rel=1e-9)


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


def test_the_index_is_links_the_targets_and_a_note_that_stays(tmp_path: Path):
    kept = Path(__file__).parents[2] / "docs" / "reproduction"
    shutil.copytree(kept, tmp_path / "made", ignore=shutil.ignore_patterns("*.png"))
    page = output.write_index(tmp_path / "made").read_text()
    assert page == (kept / "index.md").read_text()  # the index is as the results make it
    assert page.count("\n| --- |") == 1 and "<!-- note: begin -->" in page


def test_command_refuses_an_unknown_item():
    with pytest.raises(HoldfastError, match="Did you mean 'garch'"):
        paper.choose(["garhc"])
    assert CliRunner().invoke(cli.app, ["reproduce", "garhc"]).exit_code != 0
