"""`regimekit run --by`: one model per series of a table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_helpers import FAST, Regimekit, rows_of

import regimekit as rk


@pytest.fixture
def long(tmp_path: Path) -> Path:
    """Three interleaved series; the second has a cell that is not a number."""
    rng = np.random.default_rng(0)
    lines = []
    for day in range(1, 29):
        for shop in ("north", "south", "west/1"):
            value = "broken" if (shop, day) == ("south", 9) else f"{rng.normal(day, 1):.3f}"
            lines.append(f"{shop},2024-02-{day:02d},{value}\n")
    path = tmp_path / "shops.csv"
    path.write_text("shop,day,sales\n" + "".join(lines))
    return path


def test_one_failing_series_does_not_stop_the_others(
    regimekit: Regimekit, long: Path, tmp_path: Path
) -> None:
    said = regimekit("run", long, "--by", "shop", "--model", "last_value", "--horizon", 2, "--json")
    assert said.code == 0 and "series south" in said.err
    summary = json.loads(said.out)
    assert summary["series"] == 2 and list(summary["errors"]) == ["south"]
    rows = rows_of(tmp_path / "out" / "run.csv")
    assert [row["shop"] for row in rows] == ["north"] * 28 + ["west/1"] * 28
    assert "broken" in rows_of(tmp_path / "out" / "errors.csv")[0]["error"]
    assert len(rows_of(tmp_path / "out" / "forecasts.csv")) == 4
    assert len(rows_of(tmp_path / "out" / "scores.csv")) == 2
    assert rk.load(tmp_path / "out" / "models" / "west_1.regimekit").name == "last_value"
    said = regimekit("inspect", "out")
    assert (
        said.code == 2 and "several series" in said.err and "out/models/north.regimekit" in said.err
    )


@pytest.mark.slow
def test_jobs_do_not_change_results(regimekit: Regimekit, long: Path, tmp_path: Path) -> None:
    for jobs in (1, 2):
        assert (
            regimekit("run", long, "--by", "shop", *FAST, "--jobs", jobs, "--out", jobs).code == 0
        )
    for name in ("run.csv", "models/north.regimekit"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


def test_all_failing_is_an_error(regimekit: Regimekit, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("k,y\na,1\na,2\na,x\n")
    assert regimekit("run", "x.csv", "--by", "k", "--model", "last_value").code == 2


def test_similar_keys_get_different_snapshot_files(regimekit: Regimekit, tmp_path: Path) -> None:
    keys = ("a b", "a/b", "A", "a")
    lines = [f"{key},{day},{j}" for j, key in enumerate(keys) for day in range(1, 6)]
    (tmp_path / "alike.csv").write_text("\n".join(["key,day,y", *lines]) + "\n")
    asked = ("run", "alike.csv", "--by", "key", "--target", "y", "--model", "last_value")
    assert regimekit(*asked).code == 0
    models = tmp_path / "out" / "models"
    found = sorted(rk.load(path).predict().mean for path in models.iterdir())
    assert found == [0.0, 1.0, 2.0, 3.0]
    assert regimekit("run", "alike.csv", "--target", "y", "--model", "last_value", "-q").code == 0
    assert not models.exists(), "snapshots of an earlier run outlived it"


@pytest.mark.parametrize("file_format", ["csv", "parquet"])
def test_an_overview_and_a_page_per_series(
    file_format: str, regimekit: Regimekit, long: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    options = ("--by", "shop", "--model", "last_value", "--format", file_format, "--out", out)
    said = regimekit("run", long, *options)
    assert said.code == 0 and "models/ (2 files), reports/ (2 files)" in said.out
    overview = (out / "report.html").read_text()
    assert "reports/north.html" in overview and "<b>south</b>: Row 9" in overview
    assert "<h1>north: sales</h1>" in (out / "reports" / "north.html").read_text()
    for path in (out / "report.html", *(out / "reports").iterdir()):
        path.unlink()
    assert regimekit("report", out).code == 0
    assert (out / "report.html").is_file() and len(list((out / "reports").iterdir())) == 2
