"""The other commands: resume, forecast, inspect, report, compare, tune, demo, models, reproduce."""

from __future__ import annotations

import inspect
import json
import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from cli_helpers import FAST, Regimekit, hourly, rows_of

import regimekit as rk
from regimekit.cli import commands
from regimekit.cli.output import read_rows
from regimekit.cli.pipeline import PipelineOptions
from regimekit.core import registry
from regimekit.integrations import _common
from regimekit.io import ColumnChoice, TableRequest
from regimekit.metrics import comparison
from regimekit.results import Transitions


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("times", [True, False])
def test_resume_equals_one_run(
    regimekit: Regimekit, tmp_path: Path, levels: np.ndarray, form: str, times: bool
) -> None:
    lines = hourly(levels) if times else [f"{v:.4f}\n" for v in levels]
    header = "when,load\n" if times else "load\n"
    grown = tmp_path / "grown.csv"
    grown.write_text(header + "".join(lines[:70]))
    assert regimekit("run", grown, *FAST, "--out", "two", "--format", form).code == 0
    grown.write_text(header + "".join(lines))
    said = regimekit("resume", "two")
    assert said.code == 0 and "80 new observations, 150 in total" in said.out
    regimekit("run", grown, *FAST, "--out", "one", "--format", form)
    names = ["model.regimekit", "events.csv", *(["run.csv"] if form == "csv" else [])]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    one, two = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("one", "two"))
    assert one["scores"] == pytest.approx(two["scores"]) and one["reader"] == two["reader"]
    assert one["calibration"] == two["calibration"]


def test_resume_without_a_new_row_changes_nothing(
    regimekit: Regimekit, table: Path, tmp_path: Path
) -> None:
    regimekit("run", table, *FAST)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    said = regimekit("resume", "out")
    assert said.code == 0 and "no new rows" in said.out
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_resume_needs_a_run(regimekit: Regimekit, tmp_path: Path) -> None:
    said = regimekit("resume", tmp_path)
    assert said.code == 2 and "folder of a run" in said.err


def test_forecast_from_a_snapshot(regimekit: Regimekit, table: Path, tmp_path: Path) -> None:
    regimekit("run", table, *FAST, "--horizon", 3)
    said = regimekit("forecast", "out", "--horizon", 3, "--out", "next.csv")
    assert said.code == 0
    assert rows_of(tmp_path / "next.csv") == rows_of(tmp_path / "out" / "forecasts.csv")
    rk.load(tmp_path / "out" / "model.regimekit").save(tmp_path / "bare.regimekit")
    said = regimekit("forecast", "bare.regimekit", "--horizon", 2, "--json")
    assert json.loads(said.out)["forecasts"]["step"] == [1, 2]
    assert regimekit("forecast", table).code == 2


def test_inspect_prints_settings_and_regimes(regimekit: Regimekit, table: Path) -> None:
    regimekit("run", table, "--model", "br_ihmm", "--set", "particles=5")
    said = regimekit("inspect", "out")
    assert "contains the model br_ihmm" in said.out and "150 observations of load" in said.out
    assert "3 regimes" in said.out and "Transitions from regime" in said.out
    content = json.loads(regimekit("inspect", "out/model.regimekit", "--json").out)
    assert content["settings"]["particles"] == 5 and content["regimes"]["visits"]


def test_label_is_saved_shown_and_kept_by_resume(
    regimekit: Regimekit, table: Path, tmp_path: Path
) -> None:
    regimekit("run", table, *FAST)
    said = regimekit("label", "out/model.regimekit", "0", "--name", "valve stuck")
    assert said.code == 0 and "regime 0" in said.out and "name 'valve stuck'" in said.out
    said = regimekit("label", "out", "0", "--status", "fault", "--json")
    assert json.loads(said.out)["name"] == "valve stuck"  # a label that is not given is kept
    assert rk.load(tmp_path / "out" / "model.regimekit").regime_status(0) == "fault"
    said = regimekit("inspect", "out")
    assert "valve stuck" in said.out and "fault" in said.out
    regimes = json.loads(regimekit("inspect", "out", "--json").out)["regimes"]
    assert regimes["name"][0] == "valve stuck" and regimes["status"][0] == "fault"
    with table.open("a") as lines:
        lines.writelines(hourly([1040.0] * 20, start=150))
    assert regimekit("resume", "out").code == 0
    assert rows_of(tmp_path / "out" / "regimes.csv")[0]["name"] == "valve stuck"


def test_invalid_labels_leave_the_snapshot(
    regimekit: Regimekit, table: Path, tmp_path: Path
) -> None:
    regimekit("run", table, *FAST)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    for arguments, reason in (
        (["0"], "needs --name, --status or both"),
        (["99", "--name", "a"], "id must be that of a regime in memory"),
        (["0", "--status", "broken"], "broken"),
        (["0", "--name", "a" * 201], "at most 200 characters"),
    ):
        said = regimekit("label", "out", *arguments)
        assert said.code == 2 and reason in said.err and said.err.count("\n") == 1
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert regimekit("label", "nothing", "0", "--name", "a").err.count("\n") == 1


def test_inspect_regimes_with_different_coefficients(
    regimekit: Regimekit, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `auto`, whose regimes may come from models with different lags."""
    regimekit("run", table, *FAST)
    regimes = [
        rk.Regime(0, 10, 0, 9, np.array([1.0]), np.array([0.1])),
        rk.Regime(1, 10, 10, 19, np.array([2.0, 0.5]), np.array([0.1, 0.1])),
    ]
    kind = type(rk.load("out/model.regimekit"))
    monkeypatch.setattr(kind, "regimes", lambda self: regimes)
    moves = Transitions([0, 1], np.array([[0.9, 0.1], [0.2, 0.8]]))
    monkeypatch.setattr(kind, "transitions", lambda self: moves)
    said = regimekit("inspect", "out")
    assert said.code == 0 and "2 regimes" in said.out, said.err
    assert "regime 1: no observations" in said.out
    content = json.loads(regimekit("inspect", "out", "--json").out)
    assert content["regimes"]["mean_coefficient_1"] == [None, 0.5]


def test_the_default_model_is_one_constant() -> None:
    assert registry.DEFAULT_MODEL in rk.models()
    assert inspect.signature(rk.run_many).parameters["model"].default == registry.DEFAULT_MODEL
    assert _common.DEFAULT_MODEL == registry.DEFAULT_MODEL
    options = PipelineOptions(TableRequest("x.csv"), ColumnChoice())
    assert options.model_name == registry.DEFAULT_MODEL


def test_report_gets_the_run_that_was_written(
    regimekit: Regimekit, table: Path, levels: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[dict[str, Any]] = []

    def write_report(
        path: Path,
        *,
        run: Any,
        model: Any,
        y: Any,
        times: Any = None,
        title: str = "",
        horizon: int = 24,
        scores: Any = None,
        warnings: Any = (),
        settings: Any = None,
        calibration: Any = None,
    ) -> None:
        seen.append({"run": run, "y": y, "times": times, "scores": scores, "title": title})
        seen[-1]["calibration"] = calibration
        path.write_text("<html>")

    door = ModuleType("regimekit.report")
    door.write_report = write_report
    monkeypatch.setitem(sys.modules, "regimekit.report", door)
    assert regimekit("run", table, *FAST).code == 0 and Path("out/report.html").exists()
    Path("out/report.html").unlink()
    assert regimekit("report", "out").code == 0 and Path("out/report.html").exists()
    first, again = seen
    np.testing.assert_allclose(again["y"], levels, atol=1e-4)
    np.testing.assert_array_equal(first["times"], again["times"])
    for name in ("mean", "lower", "weight", "regime", "outlier"):
        np.testing.assert_array_equal(getattr(first["run"], name), getattr(again["run"], name))
    assert [e.time for e in first["run"].events] == [e.time for e in again["run"].events]
    assert first["title"] == again["title"] == "load"
    assert first["calibration"] == again["calibration"] and first["calibration"].n == 100


def test_the_report_of_a_run_is_calibrated_by_its_forecasts(
    regimekit: Regimekit, table: Path, levels: np.ndarray
) -> None:
    assert regimekit("run", table, *FAST).code == 0
    page = Path("out/report.html").read_text()
    assert "Coverage by level" in page
    assert "Put together from the centre" not in page  # the forecasts' own transforms
    model = rk.br_ihmm(particles=5, noise=1.0)
    pit = rk.evaluate.prequential(model, np.round(levels, 4)).pit
    inside = rk.evaluate.calibration(pit[50:]).coverage[0.5]
    assert f"<td>{100 * inside:.1f} %</td>" in page


def test_compare_one_table_one_figure(regimekit: Regimekit, table: Path, tmp_path: Path) -> None:
    models = "last_value,running_mean,beam_ihmm,dsm_bocd"
    fast = ("--set", "iterations=4", "--set", "burn_in=2")
    said = regimekit("compare", table, "--models", models, "--lags", "1", *fast, "--json")
    assert said.code == 0, said.err
    rows = {row["model"]: row for row in json.loads(said.out)["models"]}
    assert list(rows) == sorted(rows, key=lambda name: rows[name].get("rmse", np.inf))
    assert "rmse" not in rows["beam_ihmm"] and "offline" in rows["beam_ihmm"]["remark"]
    assert rows["last_value"]["mae"] < rows["running_mean"]["mae"]
    assert (tmp_path / "out" / "comparison.png").stat().st_size > 1000
    assert len(rows_of(tmp_path / "out" / "comparison.csv")) == 4
    assert regimekit("compare", table, "--models", "last_valu").code == 2


@pytest.mark.parametrize("skip", [0, 50])
def test_the_figure_of_a_comparison_ends_at_its_table(levels: np.ndarray, skip: int) -> None:
    compared = comparison.compare({"last_value": {}, "running_mean": {}}, levels, skip=skip)
    axes = comparison.figure(compared, "load").axes[0]
    for one, line in zip(compared, axes.lines, strict=True):
        drawn = line.get_ydata()
        assert drawn[-1] == pytest.approx(one.scores["mae"])
        assert np.isnan(drawn[: max(skip, 1)]).all()  # the first errors would dwarf all others
    assert axes.get_ylim()[1] < 60


def test_compare_leaves_a_run_in_the_same_folder(
    regimekit: Regimekit, table: Path, tmp_path: Path
) -> None:
    regimekit("run", table, "--model", "last_value")
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    said = regimekit("compare", table, "--models", "last_value,running_mean")
    after = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert said.code == 0 and "comparison.csv" in after
    assert {name: after.get(name) for name in before} == before


def test_compare_prints_no_warnings_of_the_models(regimekit: Regimekit, table: Path) -> None:
    wrong = ("--set", "noise=1e-4", "--set", "prior_var=1")
    said = regimekit("compare", table, "--models", "bocd,last_value", *wrong)
    assert said.code == 0 and not said.err


def test_databases_can_be_compared_and_tuned(regimekit: Regimekit, levels: np.ndarray) -> None:
    with closing(sqlite3.connect("base.sqlite")) as base, base:
        for name in ("load", "other"):
            base.execute(f"CREATE TABLE {name} (day TEXT, y REAL)")
        days = [f"2024-{1 + j // 28:02d}-{1 + j % 28:02d}" for j in range(150)]
        rows = list(zip(days, levels.tolist(), strict=True))
        base.executemany("INSERT INTO load VALUES (?, ?)", rows[::-1])
    pick = ("base.sqlite", "--table", "load", "--time", "day", "--sort")
    said = regimekit("compare", *pick, "--models", "last_value,running_mean")
    assert said.code == 0, said.err
    said = regimekit("tune", *pick, "--budget", 1, "--set", "particles=5")
    assert said.code == 0, said.err
    hint = said.out.split("use them with: ")[1].splitlines()[0]
    assert regimekit(*shlex.split(hint)[1:]).code == 0


def test_the_command_printed_by_tune_works(
    regimekit: Regimekit, table: Path, levels: np.ndarray
) -> None:
    said = regimekit(
        "tune",
        table,
        "--budget",
        2,
        "--set",
        "particles=5",
        "--out",
        "my settings.json",
        "--objective",
        "rmse",
    )
    assert said.code == 0, said.err
    scores = {}
    for label in ("best of 2 trials", "default settings", "last value"):
        line = [line for line in said.out.splitlines() if line.strip().startswith(label)][-1]
        scores[label] = float(line.split()[-1].replace(",", ""))
    own = rk.evaluate.prequential(rk.br_ihmm(particles=5), np.round(levels, 4), skip=50).scores()
    assert scores["default settings"] == pytest.approx(own["rmse"], rel=0.01)
    assert scores["last value"] == pytest.approx(own["rmse_last_value"], rel=0.01)
    # Searched in the units of the file: settings in other units would forecast near zero.
    assert scores["best of 2 trials"] < 0.1 * np.sqrt(np.mean(levels**2))
    assert scores["default settings"] < 0.1 * np.sqrt(np.mean(levels**2))  # learnt units
    hint = said.out.split("use them with: ")[1].splitlines()[0]
    done = subprocess.run(
        [sys.executable, "-m", "regimekit.cli", *shlex.split(hint)[1:]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_tune_checks_its_file_first(regimekit: Regimekit, table: Path) -> None:
    Path("taken").write_text("")
    said = regimekit("tune", table, "--out", "taken/settings.json")
    assert said.code == 2 and "--out" in said.err


def test_the_numbers_of_the_demo_agree(regimekit: Regimekit, tmp_path: Path) -> None:
    said = regimekit("demo", "--n", 200, "--json")
    content = json.loads(said.out)
    found = content["truth"]
    caught, there = map(int, found["outliers caught"])
    stream = rk.data.regime_stream(seed=0, n=200)
    assert stream.outliers is not None and there == int(stream.outliers.sum()) >= caught
    assert content["scores"]["n_scored"] == 150
    written = {path.name for path in (tmp_path / "out" / "demo").iterdir()}
    assert {"demo.csv", "demo.png", "run.csv", "model.regimekit", "report.html"} <= written
    assert regimekit("run", "out/demo/demo.csv", "--model", "last_value").code == 0
    assert "found" in regimekit("demo", "--n", 100).out


def test_models_say_which_are_offline(regimekit: Regimekit) -> None:
    entries = json.loads(regimekit("models", "--json").out)["models"]
    assert [entry["name"] for entry in entries] == list(rk.models())
    assert [entry["name"] for entry in entries if not entry["online"]] == ["beam_ihmm"]
    assert "dsm_bocd" in regimekit("models").out


def test_reproduce_without_a_checkout_names_the_remedy(
    regimekit: Regimekit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rk, "__file__", str(tmp_path / "lib" / "regimekit" / "__init__.py"))
    said = regimekit("reproduce", "list")
    assert said.code == 2 and "checkout" in said.err
    with pytest.raises(rk.RegimekitError, match="paper"):
        commands._import_paper()


def test_service_commands_are_registered() -> None:
    code = (
        "import sys, types, typer\n"
        "door = types.ModuleType('regimekit.server.cli')\n"
        "door.register = lambda app: app.command('serve')(lambda: None)\n"
        "sys.modules['regimekit.server'] = types.ModuleType('regimekit.server')\n"
        "sys.modules['regimekit.server.cli'] = door\n"
        "from regimekit.cli import main\n"
        "sys.argv = ['regimekit', '--help']\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "serve" in done.stdout


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nsys.argv = ['regimekit', '--help']\nfrom regimekit.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print({'numpy', 'duckdb', 'scipy', 'rich.markdown'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_tune_compares_only_what_can_be_compared(regimekit: Regimekit, table: Path) -> None:
    said = regimekit("tune", table, "--budget", 2, "--set", "particles=10")
    lines = [line.split() for line in said.out.splitlines()]
    (noise,) = (line for line in lines if line[:1] == ["noise"])
    assert noise[1] == "estimated" and float(noise[2]) > 0
    rows = [line for line in lines if line[:2] in (["best", "of"], ["default", "settings"])]
    scores = {line[0]: float(line[-1]) for line in rows}
    worse = scores["default"] <= scores["best"]
    assert ("the default settings forecast" in said.out) == worse


def test_compare_names_only_the_models_it_runs(regimekit: Regimekit, table: Path) -> None:
    said = regimekit("compare", table, "--models", "last_value,running_mean")
    assert said.code == 0 and "auto" not in said.out


def test_wrong_units_give_a_note(regimekit: Regimekit, table: Path) -> None:
    small = ("--model", "br_ihmm", "--set", "particles=5")
    said = regimekit("run", table, *small, "--set", "noise=1e-4", "--set", "prior_var=1")
    assert "note: br_ihmm flagged" in said.out and "Leave out --set noise" in said.out
    assert "as outliers" not in regimekit("run", table, *small).out


def test_rows_read_back_give_the_same_run(
    regimekit: Regimekit, table: Path, tmp_path: Path
) -> None:
    regimekit("run", table, "--model", "br_ihmm", "--set", "particles=5")
    kept = rk.load(tmp_path / "out" / "model.regimekit")
    run, y, _ = read_rows(tmp_path / "out", "csv")
    fresh = rk.make("br_ihmm", **kept.settings()).run(y)
    assert run.changepoints == fresh.changepoints != run.known_changepoints
    assert [e.since for e in run.events] == [e.since for e in fresh.events]
