"""The command line as a person meets it: files written, errors of one line."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast import cli, plot


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    rows = zip(
        1000 + 20 * (np.arange(150) // 50) + rng.standard_normal(150), range(150), strict=True
    )
    path = tmp_path / "table.csv"
    path.write_text("load,hour\n" + "".join(f"{y:.4f},{h}\n" for y, h in rows))
    return path


def invoke(*arguments: Any) -> Any:
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def small_run(table: Path, out: Path, *more: Any) -> Any:
    return invoke("run", table, "--target", "load", "--out", out, "--set", "particles=10", *more)


def test_run_writes_forecasts_in_the_targets_units(table: Path, tmp_path: Path) -> None:
    result = small_run(table, tmp_path / "out", "--lags", "1", "--columns", "hour")
    assert result.exit_code == 0, result.output
    with (tmp_path / "out" / "run.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert len(rows) == 150 and 900 < float(rows[-1]["mean"]) < 1100
    units = json.loads((tmp_path / "out" / "units.json").read_text())
    assert units["target"] == "load" and 900 < units["centre"] < 1100
    assert hf.load(tmp_path / "out" / "model.holdfast").settings()["particles"] == 10
    assert (tmp_path / "out" / "run.png").stat().st_size > 1000


def test_run_without_matplotlib_does_all_but_the_picture(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(plot.NoPictures, match=r"holdfast\[plot\]"):
        plot.pyplot()
    result = small_run(table, tmp_path / "out")
    assert result.exit_code == 0 and "holdfast[plot]" in result.output
    assert (tmp_path / "out" / "run.csv").exists()


def test_demo_shows_found_beside_true(tmp_path: Path) -> None:
    result = invoke("demo", "--n", 120, "--out", tmp_path)
    assert result.exit_code == 0 and "found" in result.output and "last value" in result.output
    assert (tmp_path / "demo.png").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--target", "lode"], "lode"),
        (["--target", "load", "--columns", "minute"], "minute"),
        (["--target", "load", "--set", "batch=0"], "batch"),
        (["--target", "load", "--set", "batch"], "name=value"),
        (["--target", "load", "--lags", "one"], "--lags"),
        (["--target", "load", "--model", "br_ihm"], "br_ihmm"),
    ],
)
def test_a_bad_argument_is_named(table: Path, arguments: list[str], word: str) -> None:
    result = invoke("run", table, *arguments)
    assert isinstance(result.exception, hf.HoldfastError) and word in str(result.exception)


def test_main_says_it_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["holdfast", "run", "nowhere.csv", "--target", "y"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "nowhere.csv does not exist" in " ".join(capsys.readouterr().out.split())


def test_models_are_listed() -> None:
    assert "dsm_bocd" in invoke("models").output
