"""User errors: one line, exit code 2, and no files written."""

from __future__ import annotations

import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cli_helpers import Regimekit, rows_of

FILES = {
    "text.csv": "t,y\n2024-01-01,1\n2024-01-02,abc\n2024-01-03,3\n",
    "late_text.csv": "y\n" + "1.5\n" * 3000 + "oops\n",
    "empty.csv": "",
    "header.csv": "time,y\n",
    "two.csv": "time,load,price\n2024-01-01,1,2\n2024-01-02,2,3\n",
    "disorder.csv": "time,y\n2024-01-02,1\n2024-01-01,2\n2024-01-03,2\n",
    "no_time.csv": "time,y\n2024-01-01,1\n,2\n2024-01-03,3\n",
    "words.csv": "a,b\nred,blue\ngreen,red\n",
    "units.csv": "t,y\n2024-01-01,3 s\n2024-01-02,4 min\n",
    "ragged.csv": "t,y\n" + "".join(f"{j},{j}{',' * (j == 2)}\n" for j in range(60)),
    "infinite.csv": "y\n1\ninf\n2\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    with zipfile.ZipFile(tmp_path / "book.xlsx", "w") as book:
        book.writestr("xl/workbook.xml", "<workbook/>")
    with closing(sqlite3.connect(tmp_path / "base.sqlite")) as base:
        base.executescript("CREATE TABLE load (y REAL); CREATE TABLE price (y REAL);")
    (tmp_path / "bytes.csv").write_bytes(bytes(range(256)) * 20)
    (tmp_path / "taken").write_text("a file where a folder should be")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["text.csv"], ["Row 2 (line 3)", "'y'", "'abc'", "empty"]),
        (["late_text.csv", "--model", "last_value"], ["Row 3001 (line 3002)", "'oops'"]),
        (["empty.csv"], ["is empty"]),
        (["header.csv"], ["no rows"]),
        (["nowhere.csv"], ["does not exist"]),
        (["."], ["is a folder"]),
        (["book.xlsx"], ["Save", "CSV"]),
        (["two.csv"], ["--target", "load, price"]),
        (["two.csv", "--target", "lode"], ["Did you mean 'load'"]),
        (["two.csv", "--target", "time"], ["contains times"]),
        (["two.csv", "--target", "load", "--time", "price", "--columns", "pric"], ["'price'"]),
        (["disorder.csv"], ["Row 2", "--sort"]),
        (["no_time.csv"], ["Row 2", "no time"]),
        (["words.csv"], ["No column contains numbers", "a='red', b='blue'"]),
        (["units.csv"], ["No column contains numbers", "y='3 s'", "at most one unit"]),
        (["ragged.csv"], ["2 columns in its header", "line 4", "Correct"]),
        (["bytes.csv"], ["not text"]),
        (["infinite.csv"], ["Row 2", "infinite"]),
        (["--sql", "SELECT * FROM nothing"], ["cannot be read", "nothing"]),
        (["two.csv", "--target", "load", "--out", "taken"], ["--out taken is a file"]),
        (["two.csv", "--target", "load", "--out", "taken/below"], ["--out taken/below"]),
        (["two.csv", "--target", "load", "--set", "batch"], ["name=value"]),
        (["two.csv", "--target", "load", "--set", "batch=0"], ["batch"]),
        (["two.csv", "--target", "load", "--lags", "one"], ["--lags"]),
        (["two.csv", "--target", "load", "--model", "br_ihm"], ["Did you mean 'br_ihmm'"]),
        (["two.csv", "--target", "load", "--model", "dsm_bocd", "--lags", "1"], ["no features"]),
        (["two.csv", "--target", "load", "--level", "90"], ["--level"]),
        (["two.csv", "--target", "load", "--format", "xml"], ["csv or parquet"]),
        (["two.csv", "--target", "load", "--columns", "price", "--horizon", "2"], ["--future"]),
        (["two.csv", "--target", "load", "--settings", "text.csv"], ["settings"]),
        (["two.csv", "--target", "load", "--settings", "nowhere"], ["--settings nowhere"]),
        (["two.csv", "--target", "load", "--future", "two.csv"], ["--future", "--horizon"]),
        (["two.csv", "--sql", "SELECT 1"], ["need a database", "SELECT .. FROM 'two.csv'"]),
        (["base.sqlite", "--table", "lode"], ["Did you mean 'load'"]),
        (["base.sqlite"], ["--table", "load, price"]),
    ],
)
def test_one_line_and_nothing_written(
    regimekit: Regimekit, folder: Path, arguments: list[Any], words: list[str]
) -> None:
    before = sorted(folder.rglob("*"))
    said = regimekit("run", *arguments)
    assert said.code == 2
    (line,) = [line for line in said.err.splitlines() if not line.startswith("regimekit: report")]
    assert line.startswith("regimekit: ")
    for word in words:
        assert word in line
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("header", ['"load, MW"', "load, MW"])
def test_a_separator_in_the_name_of_the_only_column(
    regimekit: Regimekit, tmp_path: Path, header: str
) -> None:
    (tmp_path / "x.csv").write_text(header + "\n" + "".join(f"{j % 5}.5\n" for j in range(60)))
    assert regimekit("run", "x.csv", "--model", "last_value").code == 0
    assert len(rows_of(tmp_path / "out" / "run.csv")) == 60


def test_sort_orders_the_rows_by_time(regimekit: Regimekit, folder: Path) -> None:
    assert regimekit("run", "disorder.csv", "--sort", "--model", "last_value").code == 0
    assert [row["y"] for row in rows_of(folder / "out" / "run.csv")] == ["2.0", "1.0", "2.0"]


def test_one_row_gives_no_scores(regimekit: Regimekit, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("time,y\n2024-01-01,1\n")
    said = regimekit("run", "one.csv", "--model", "last_value")
    assert said.code == 0 and "RMSE" not in said.out and "1 observation, 1 regime" in said.out
    assert "Too few rows" in said.out


def test_gaps_repeats_and_missing_cells_are_reported(regimekit: Regimekit, tmp_path: Path) -> None:
    days = [1, 2, 3, 3, 4, 7, 8, 9, 10]
    lines = [f"2024-01-{day:02d},{'NA' if day == 9 else day}\n" for day in days]
    (tmp_path / "x.csv").write_text("time,y\n" + "".join(lines))
    said = regimekit("run", "x.csv", "--model", "last_value")
    assert "repeat the time above: 1" in said.out
    assert "Gaps: 1; missing observations inserted: 2" in said.out
    rows = rows_of(tmp_path / "out" / "run.csv")
    assert [row["time"][8:10] for row in rows] == [f"{day:02d}" for day in range(1, 11)]
    assert [row["y"] for row in rows][4:6] == ["", ""] and rows[8]["y"] == ""


def test_a_failed_run_leaves_the_earlier_one(regimekit: Regimekit, folder: Path) -> None:
    (folder / "good.csv").write_text("y\n1\n2\n3\n")
    assert regimekit("run", "good.csv", "--model", "last_value").code == 0
    before = (folder / "out" / "run.csv").read_bytes()
    assert regimekit("run", "late_text.csv", "--model", "last_value").code == 2
    assert (folder / "out" / "run.csv").read_bytes() == before


def test_thousands_with_points_where_the_comma_is_decimal(
    regimekit: Regimekit, tmp_path: Path
) -> None:
    cells = ["1.234,5", "1.235", "0,125", "12.345.678", "0.125"]
    (tmp_path / "de.csv").write_text("\n".join(["y;n", *(f"{c};x" for c in cells)]) + "\n")
    assert regimekit("run", "de.csv", "--model", "last_value").code == 0
    found = [float(row["y"]) for row in rows_of(tmp_path / "out" / "run.csv")]
    assert found == [1234.5, 1235.0, 0.125, 12345678.0, 0.125]


def test_an_earlier_time_names_its_line(regimekit: Regimekit, tmp_path: Path) -> None:
    (tmp_path / "back.csv").write_text("time,y\n2024-01-02,1\n2024-01-01,2\n")
    said = regimekit("run", "back.csv", "--model", "last_value")
    assert said.code == 2 and "Row 2 (line 3): time 2024-01-01" in said.err
    assert "is earlier than 2024-01-02 00:00:00 in the row above" in said.err


@pytest.mark.parametrize("lags", ["1.5", "0", "-1"])
def test_lags_are_whole_steps(regimekit: Regimekit, tmp_path: Path, lags: str) -> None:
    (tmp_path / "y.csv").write_text("y\n1\n2\n")
    said = regimekit("run", "y.csv", f"--lags={lags}")
    assert said.code == 2 and "--lags must be whole numbers from 1 on" in said.err


@pytest.mark.parametrize("command", ["run", "compare"])
def test_the_input_is_never_overwritten(regimekit: Regimekit, tmp_path: Path, command: str) -> None:
    (tmp_path / "out").mkdir()
    name = "run.csv" if command == "run" else "comparison.csv"
    table = tmp_path / "out" / name
    table.write_text("y\n" + "1\n2\n" * 10)
    for file in ([f"out/{name}"], [table], ["--sql", f"SELECT * FROM 'out/{name}'"]):
        said = regimekit(command, *file, "--out", "out")
        assert said.code == 2 and "would overwrite the input" in said.err
    assert table.read_text() == "y\n" + "1\n2\n" * 10
    (tmp_path / "more" / "out").mkdir(parents=True)
    (tmp_path / "more" / "out" / "run.csv").write_text("y\n" + "1\n2\n" * 10)
    said = regimekit("run", "more/out/run.csv", "--model", "last_value", "-q", "--out", "new")
    assert said.code == 0, said.err


def test_the_input_of_follow_is_never_overwritten(regimekit: Regimekit, tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    table = tmp_path / "live" / "follow.jsonl"
    table.write_text('{"y": 1.0}\n{"y": 2.0}\n')
    said = regimekit("run", table, "--follow", "--idle", 0, "--out", "live")
    assert said.code == 2 and "would overwrite the input" in said.err
    assert table.read_text() == '{"y": 1.0}\n{"y": 2.0}\n'
