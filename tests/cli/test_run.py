"""`regimekit run`: detection, results, units, formats."""

from __future__ import annotations

import gzip
import io
import json
import re
import sqlite3
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from cli_helpers import FAST, Regimekit, hourly, rows_of

import regimekit as rk
from regimekit.cli import output, stream_run
from regimekit.cli.console import Console
from regimekit.io import TableRequest, open_source
from regimekit.results import CHANGES


def test_no_option_is_needed(regimekit: Regimekit, table: Path, tmp_path: Path) -> None:
    said = regimekit("run", table)
    assert said.code == 0, said.err
    for found in ("separated by comma", "target:   load", "when (ISO 8601), hourly", "24 steps"):
        assert found in said.out
    assert "features:" in said.out and "model:" in said.out and "in its own units" in said.out
    rows = rows_of(tmp_path / "out" / "run.csv")
    assert len(rows) == 150 and rows[0]["time"] == "2024-01-01 00:00:00"
    asked = "y mean lower upper sd regime regime_probability weight outlier change_probability"
    assert set(asked.split()) <= set(rows[0])
    for name in ("events.csv", "regimes.csv", "model.regimekit", "run.json"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    assert not list((tmp_path / "out").glob(".regimekit-*"))


def test_values_and_errors_are_in_the_users_units(
    regimekit: Regimekit, table: Path, tmp_path: Path, levels: np.ndarray
) -> None:
    said = regimekit("run", table, "--model", "last_value", "--json", "--burn-in", 0)
    summary = json.loads(said.out)
    np.testing.assert_allclose(
        summary["scores"]["mae_last_value"], np.abs(np.diff(levels)).mean(), rtol=1e-3
    )
    assert summary["scores"]["mae"] == pytest.approx(summary["scores"]["mae_last_value"])
    assert "mae_seasonal_last_value" in summary["scores"]
    forecast = rk.load(tmp_path / "out" / "model.regimekit").predict()
    assert forecast.mean == pytest.approx(levels[-1], abs=1e-3)  # the snapshot needs no rescaling


def test_seasons_of_dates_and_options_reach_auto(
    regimekit: Regimekit, table: Path, tmp_path: Path
) -> None:
    """Hourly rows suggest days and weeks; `--season` replaces them."""
    for name, options, seasons in (("dates", (), [24, 168]), ("option", ("--season", 12), [12])):
        assert regimekit("run", table, "--out", name, *options).code == 0
        settings = rk.load(tmp_path / name / "model.regimekit").settings()
        assert settings["seasons"] == seasons and settings["features"] is None


def test_block_size_does_not_change_results(
    regimekit: Regimekit, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regimekit("run", table, *FAST, "--out", "whole")
    monkeypatch.setattr(stream_run, "BLOCK_ROWS", 7)
    monkeypatch.setattr(output, "REPORT_ROWS", 20)
    regimekit("run", table, *FAST, "--out", "blocks")
    for name in ("run.csv", "model.regimekit"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "blocks" / name).read_bytes()
    whole, few = (rows_of(tmp_path / name / "events.csv") for name in ("whole", "blocks"))
    assert [e["time"] for e in whole] == [e["time"] for e in few] and whole


def written(form: str, folder: Path, values: np.ndarray) -> list[Any]:
    """The same series in another format, and the arguments that name it."""
    lines = hourly(values)
    if form == "gz":
        (folder / "x.csv.gz").write_bytes(gzip.compress(("t,y\n" + "".join(lines)).encode()))
        return [folder / "x.csv.gz"]
    if form == "decimal comma":
        text = "".join(line.replace(",", ";").replace(".", ",") for line in lines)
        (folder / "x.csv").write_text("t;y\n" + text)
        return [folder / "x.csv"]
    if form == "json":
        cells = [line.strip().split(",") for line in lines]
        text = "\n".join(json.dumps({"t": t, "y": float(y)}) for t, y in cells)
        (folder / "x.jsonl").write_text(text)
        return [folder / "x.jsonl"]
    (folder / "plain.csv").write_text("t,y\n" + "".join(lines))
    if form == "query":
        return ["--sql", f"SELECT * FROM '{folder / 'plain.csv'}'"]
    relation = f"read_csv('{folder / 'plain.csv'}')"
    if form == "parquet":
        duckdb.execute(f"COPY (FROM {relation}) TO '{folder / 'x.parquet'}'")
        return [folder / "x.parquet"]
    if form == "duckdb":
        with duckdb.connect(str(folder / "x.db")) as base:
            base.execute(f"CREATE TABLE readings AS FROM {relation}; CREATE TABLE other (z int)")
        return [folder / "x.db", "--table", "readings"]
    assert form == "sqlite"
    with closing(sqlite3.connect(folder / "x.sqlite")) as lite:
        lite.execute("CREATE TABLE readings (t TEXT, y REAL)")
        cells = [line.strip().split(",") for line in lines]
        lite.executemany("INSERT INTO readings VALUES (?, ?)", cells)
        lite.commit()
    return [folder / "x.sqlite"]


@pytest.mark.parametrize(
    ("form", "note"),
    [
        ("gz", "gzipped"),
        ("decimal comma", "decimal comma"),
        ("json", "JSON"),
        ("parquet", "Parquet"),
        ("query", "target"),
        ("duckdb", "duckdb"),
        ("sqlite", "SQLite"),
    ],
)
def test_formats(
    regimekit: Regimekit, tmp_path: Path, levels: np.ndarray, form: str, note: str
) -> None:
    said = regimekit("run", *written(form, tmp_path, levels), "--model", "last_value")
    assert said.code == 0 and note in said.out, said
    rows = rows_of(tmp_path / "out" / "run.csv")
    np.testing.assert_allclose([float(row["y"]) for row in rows], levels, atol=1e-4)
    assert rows[24]["time"].startswith("2024-01-02 00:00")


def test_standard_input(
    regimekit: Regimekit, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(table.read_bytes())))
    said = regimekit("run", "-", "--model", "last_value", "--quiet")
    assert said.code == 0 and said.out == ""
    assert len(rows_of(tmp_path / "out" / "run.csv")) == 150


def test_parquet_and_horizon(regimekit: Regimekit, table: Path, tmp_path: Path) -> None:
    said = regimekit("run", table, *FAST, "--format", "parquet", "--horizon", 48, "--level", 0.5)
    assert said.code == 0, said.err
    found = duckdb.execute(f"SELECT count(*), max(time) FROM '{tmp_path}/out/run.parquet'")
    assert found.fetchall()[0][0] == 150 and not (tmp_path / "out" / "run.csv").exists()
    ahead = rows_of(tmp_path / "out" / "forecasts.csv")
    assert len(ahead) == 48 and ahead[0]["time"] == "2024-01-07 06:00:00"
    assert all(float(r["lower"]) <= float(r["median"]) <= float(r["upper"]) for r in ahead)


def test_lags_seasons_covariates_and_settings(regimekit: Regimekit, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    lines = [f"{v:.3f},{i % 5},{i}\n" for i, v in enumerate(rng.standard_normal(80))]
    (tmp_path / "x.csv").write_text("y,temperature,z\n" + "".join(lines))
    (tmp_path / "s.json").write_text('{"model_name": "br_ihmm", "best": {"batch": 3}}')
    said = regimekit(
        "run",
        "x.csv",
        "--columns",
        "temperature",
        "--lags",
        "1,2",
        "--season",
        "5",
        "--settings",
        "s.json",
        "--set",
        "particles=5",
    )
    assert said.code == 0 and "intercept, temperature, season of 5, lags 1, 2" in said.out
    model = rk.load(tmp_path / "out" / "model.regimekit")
    assert model.settings()["batch"] == 3 and model.settings()["particles"] == 5
    (tmp_path / "next.csv").write_text("temperature\n1\n2\n")
    assert regimekit("forecast", "out", "--horizon", 2).code == 2
    said = regimekit("forecast", "out", "--horizon", 2, "--future", "next.csv", "--json")
    assert len(json.loads(said.out)["forecasts"]["mean"]) == 2


@pytest.mark.parametrize("model", list(rk.models()))
def test_every_model_runs(regimekit: Regimekit, table: Path, model: str, tmp_path: Path) -> None:
    few = ["--set", "iterations=4", "--set", "burn_in=2"] if model == "beam_ihmm" else []
    said = regimekit("run", table, "--model", model, *few, "--json")
    assert said.code == 0, said.err
    summary = json.loads(said.out)
    assert summary["observations"] == 150 and summary["model"] == model
    if model == "beam_ihmm":
        assert summary["offline"] and not summary["scores"]
        assert "offline fit" in summary["warnings"][0]
        assert len(summary["warnings"]) == 1
    else:
        assert summary["scores"]["rmse"] > 0


@pytest.mark.parametrize("model", ["garch_ihmm", "dsm_bocd", "last_value"])
def test_models_without_features_accept_a_season(
    regimekit: Regimekit, table: Path, model: str
) -> None:
    said = regimekit("run", table, "--model", model, "--season", 12)
    assert said.code == 0, said.err
    assert "seasonal last" in said.out and "features: default of the model" in said.out
    said = regimekit("run", table, "--model", model, "--lags", 1)
    assert said.code == 2 and "takes no features" in said.err


def test_run_time_and_speed_are_reported(regimekit: Regimekit, table: Path) -> None:
    summary = json.loads(regimekit("run", table, "--model", "last_value", "--json").out)
    assert 0 < summary["ms_per_observation"] < 20
    said = regimekit("run", table, "--model", "last_value")
    assert re.search(r"^150 rows read, \d+\.\d s, [\d ]+ rows/s$", said.out, re.MULTILINE)


def test_changes_are_dated_across_blocks(
    regimekit: Regimekit, table: Path, levels: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_run, "BLOCK_ROWS", 7)
    paths = []
    report = stream_run.write_report
    monkeypatch.setattr(
        stream_run, "write_report", lambda *a, **k: (paths.append(a[2][0].path), report(*a, **k))
    )
    assert regimekit("run", table, "--model", "br_ihmm", "--set", "particles=5").code == 0
    whole = rk.br_ihmm(particles=5).run(np.round(levels, 4))
    assert len(np.unique(whole.path)) > 1
    np.testing.assert_array_equal(paths[0], whole.path)


def test_progress_shows_rows_done_of_all(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    source = open_source(TableRequest(str(table)))
    with Console().progress("rows", source.count) as update:
        update(50)
        update(150)
    assert "150/150" in terminal.getvalue() and "rows" in terminal.getvalue()
    terminal.truncate(0)
    with Console().progress("rows", lambda: None) as update:
        update(50)
    assert "50/?" in terminal.getvalue()
    asked: list[int] = []
    with Console(quiet=True).progress("rows", lambda: asked.append(1)) as update:
        update(50)
    assert not asked  # rows are counted only if the total is shown


def test_version_help_and_completion(regimekit: Regimekit) -> None:
    assert regimekit("--version").out == f"regimekit {rk.__version__}\n"
    commands = "run resume compare tune forecast inspect label report models demo reproduce"
    said = regimekit("--help")
    assert regimekit("-h").out == said.out
    assert regimekit("run", "-h").out == regimekit("run", "--help").out
    assert all(command in said.out for command in commands.split())
    assert "--show-completion" in said.out and "warm-up" not in said.out


def test_changes_that_a_period_revokes_are_not_counted(
    regimekit: Regimekit, tmp_path: Path
) -> None:
    """Saw teeth are changes of level until they are known to be periodic; then sines follow."""
    t = np.arange(1500)
    y = np.where(t < 700, np.sqrt(12) * (t / 24 % 1 - 0.5), np.sqrt(2) * np.sin(2 * np.pi * t / 24))
    lines = hourly(y + 0.1 * np.random.default_rng(0).standard_normal(1500))
    (tmp_path / "cycles.csv").write_text("when,y\n" + "".join(lines))
    said, out = regimekit("run", tmp_path / "cycles.csv"), tmp_path / "out"
    events = [row for row in rows_of(out / "events.csv") if row["kind"] in CHANGES]
    visits = sum(int(row["n_visits"]) for row in rows_of(out / "regimes.csv"))
    assert len(events) > 4 and visits == 2
    assert " 1 change, " in said.out
    assert "the regime changed once" in (out / "report.html").read_text()


def test_console_report_and_tables_agree_on_the_number_of_changes(
    regimekit: Regimekit, tmp_path: Path
) -> None:
    """Three levels that return, stays of 60 to 199 rows; in one run and resumed in the middle."""
    rng = np.random.default_rng(0)
    level, path = 0, []
    while len(path) < 1500:
        path += [level] * int(rng.integers(60, 200))
        level = (level + int(rng.integers(1, 3))) % 3
    y = np.array([0.0, 6.0, -7.0])[path[:1500]] + rng.standard_normal(1500)
    lines, table = hourly(y), tmp_path / "levels.csv"
    for first in (1500, 700):
        table.write_text("when,y\n" + "".join(lines[:first]))
        said = regimekit("run", table)
        if first < 1500:
            table.write_text("when,y\n" + "".join(lines))
            said = regimekit("resume", "out")
        out = tmp_path / "out"
        events = [row for row in rows_of(out / "events.csv") if row["kind"] in CHANGES]
        visits = sum(int(row["n_visits"]) for row in rows_of(out / "regimes.csv"))
        regime = [row["regime"] for row in rows_of(out / "run.csv")]
        changes = int(np.count_nonzero(np.diff(np.array(path[:1500]))))
        assert f" {changes} changes, " in said.out
        assert json.loads((out / "run.json").read_text())["changes"] == changes
        assert len(events) - 1 == changes  # the first event opens the first regime
        assert visits - 1 == changes
        assert sum(a != b for a, b in pairwise(regime)) == changes
        assert f"The regime changed {changes} times" in (out / "report.html").read_text()
        assert rk.load(out / "model.regimekit").transitions().ids == [0, 1, 2]
