"""Inputs are read literally, never executed and never overwritten."""

from __future__ import annotations

import csv
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from cli_helpers import FAST, Regimekit, rows_of

FEW = ("--model", "last_value", "--quiet")


def write_table(path: Path, value: float = 1.0, rows: int = 12) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("y\n" + f"{value}\n" * rows)
    return path


def write_sqlite(path: Path, value: float) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("CREATE TABLE t (y REAL)")
        base.executemany("INSERT INTO t VALUES (?)", [(value,)] * 12)


# Results never replace a file that an earlier run has not written.


def test_foreign_files_in_the_result_folder_are_kept(regimekit: Regimekit, tmp_path: Path) -> None:
    write_table(tmp_path / "y.csv")
    for name in ("events.csv", "report.html", "models/a.regimekit"):
        folder = tmp_path / name.replace("/", "_")
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("mine")
        by = ("--by", "y") if name.startswith("models") else ()
        said = regimekit("run", "y.csv", *FEW, "--target", "y", *by, "--out", folder)
        assert said.code == 2, name
        assert name in said.err and "not written by an earlier run" in said.err
        assert [path.name for path in folder.rglob("*") if path.is_file()] == [Path(name).name]
        assert (folder / name).read_text() == "mine"


def test_a_run_replaces_only_files_of_the_earlier_run(regimekit: Regimekit, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("s,y\n" + "".join(f"{k},{i}\n" for k in "ab" for i in range(9)))
    said = regimekit("run", "p.csv", *FEW, "--by", "s", "--out", "o")
    assert said.code == 0, said.err
    own = json.loads((tmp_path / "o/run.json").read_text())["files"]
    assert {"models/a.regimekit", "models/b.regimekit", "run.csv"} <= set(own)
    (tmp_path / "o/models/foreign.regimekit").write_text("mine")
    write_table(tmp_path / "y.csv")
    said = regimekit("run", "y.csv", *FEW, "--out", "o")
    assert said.code == 0, said.err
    assert [path.name for path in (tmp_path / "o/models").iterdir()] == ["foreign.regimekit"]
    assert not (tmp_path / "o/scores.csv").exists()


def test_a_crafted_record_names_no_files_outside_its_folder(
    regimekit: Regimekit, tmp_path: Path
) -> None:
    victim = tmp_path / "victim.txt"
    victim.write_text("mine")
    (tmp_path / "o").mkdir()
    files = ["../victim.txt", str(victim), "run.csv", "run.json"]
    (tmp_path / "o/run.json").write_text(json.dumps({"regimekit_run": 3, "files": files}))
    write_table(tmp_path / "y.csv")
    assert regimekit("run", "y.csv", *FEW, "--out", "o").code == 0
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("name", ["models/a.regimekit", "reports/a.html"])
def test_a_linked_folder_of_a_crafted_result_is_refused(
    regimekit: Regimekit, tmp_path: Path, name: str
) -> None:
    (tmp_path / "p.csv").write_text("s,y\n" + "".join(f"{k},{i}\n" for k in "ab" for i in range(9)))
    assert regimekit("run", "p.csv", *FEW, "--by", "s", "--out", "o").code == 0
    other, folder = tmp_path / "other", tmp_path / "o" / Path(name).parent
    folder.mkdir(exist_ok=True)
    folder.rename(other)
    mine = other / Path(name).name
    mine.write_text("mine")
    folder.symlink_to(other)
    for command in (("run", "p.csv", *FEW, "--target", "y"), ("run", "p.csv", *FEW, "--by", "s")):
        said = regimekit(*command, "--out", "o")
        assert said.code == 2 and "a link to another folder" in said.err
        assert mine.read_text() == "mine"
    assert regimekit("report", "o").code == 2
    assert mine.read_text() == "mine"


def test_further_inputs_are_never_overwritten(regimekit: Regimekit, tmp_path: Path) -> None:
    write_table(tmp_path / "y.csv")
    assert regimekit("run", "y.csv", *FEW, "--out", "o").code == 0
    os.link(tmp_path / "o/run.csv", tmp_path / "link.csv")
    said = regimekit("run", "link.csv", *FEW, "--target", "y", "--out", "o")
    assert said.code == 2 and "would overwrite the input" in said.err
    said = regimekit("run", "--sql", "SELECT y FROM './o/run.csv'", *FEW, "--out", "o")
    assert said.code == 2 and "would overwrite the input" in said.err
    said = regimekit("tune", "y.csv", "--out", "y.csv", "--budget", 1, "-q")
    assert said.code == 2 and "would overwrite the input" in said.err
    (tmp_path / "f.csv.part").write_text("mine")
    said = regimekit("forecast", "o", "--horizon", 2, "--out", "f.csv", "-q")
    assert said.code == 0, said.err
    assert (tmp_path / "f.csv.part").read_text() == "mine"


def test_follow_does_not_truncate_foreign_files(regimekit: Regimekit, tmp_path: Path) -> None:
    write_table(tmp_path / "y.csv")
    for name in ("follow.jsonl", "model.regimekit"):
        (tmp_path / "live" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "live" / name).write_text("mine")
        said = regimekit("run", "y.csv", *FEW, "--follow", "--idle", 0, "--out", "live")
        assert said.code == 2 and name in said.err
        assert (tmp_path / "live" / name).read_text() == "mine"
        (tmp_path / "live" / name).unlink()


# SQL


@pytest.mark.parametrize("name", ["select 1 as y", "from 'x'", "with a as (select 1) from a"])
def test_a_file_name_is_never_sql(regimekit: Regimekit, tmp_path: Path, name: str) -> None:
    said = regimekit("run", name, *FEW)
    assert said.code == 2 and "does not exist" in said.err and "--sql" in said.err
    write_table(tmp_path / name)
    said = regimekit("run", name, *FEW)
    assert said.code == 0, said.err
    assert rows_of(tmp_path / "out/run.csv")[0]["y"] == "1.0"


@pytest.mark.parametrize(
    "sql",
    [
        "COPY (SELECT 1) TO 'victim'",
        "SELECT 1 AS y; COPY (SELECT 1) TO 'victim'",
        "SELECT 1 AS y) TO 'victim' --",
        "ATTACH 'victim' AS v",
        "CREATE TABLE t (y INT)",
        "PRAGMA database_list",
        "INSTALL httpfs",
        "",
    ],
)
@pytest.mark.parametrize("kind", ["memory", "duckdb", "sqlite"])
def test_sql_is_one_read_only_statement(
    regimekit: Regimekit, tmp_path: Path, sql: str, kind: str
) -> None:
    import duckdb

    file = [] if kind == "memory" else [f"base.{kind}"]
    if kind == "duckdb":
        with duckdb.connect(str(tmp_path / "base.duckdb")) as base:
            base.execute("CREATE TABLE t AS SELECT 1.0 AS y FROM range(12)")
    if kind == "sqlite":
        write_sqlite(tmp_path / "base.sqlite", 1.0)
    said = regimekit("run", *file, "--sql", sql, *FEW)
    assert said.code == 2 and "--sql" in said.err, said.err
    assert not (tmp_path / "victim").exists() and not (tmp_path / "out").exists()
    query = "SELECT 1.0 AS y FROM range(12) -- twelve" if kind == "memory" else "SELECT y FROM t;"
    said = regimekit("run", *file, "--sql", query, *FEW)
    assert said.code == 0, said.err


def test_resume_never_runs_stored_sql(regimekit: Regimekit, tmp_path: Path) -> None:
    write_table(tmp_path / "y.csv")
    sql = "SELECT y FROM 'y.csv'"
    assert regimekit("run", "--sql", sql, *FEW, "--out", "o").code == 0
    said = regimekit("resume", "o", "-q")
    assert said.code == 2 and "--sql" in said.err and "y.csv" in said.err
    write_table(tmp_path / "y.csv", rows=15)
    said = regimekit("resume", "o", "--sql", sql, "-q")
    assert said.code == 0, said.err
    assert len(rows_of(tmp_path / "o/run.csv")) == 15
    record = json.loads((tmp_path / "o/run.json").read_text())
    record |= {"file": "SELECT 1 AS y; COPY (SELECT 1) TO 'victim'", "sql": None}
    (tmp_path / "o/run.json").write_text(json.dumps(record))
    said = regimekit("resume", "o", "-q")
    assert said.code == 2 and "does not exist" in said.err
    assert not (tmp_path / "victim").exists()


@pytest.mark.parametrize("content", ["[]", '"x"', "{}", '{"regimekit_run": 3}'])
def test_a_crafted_record_is_refused(regimekit: Regimekit, tmp_path: Path, content: str) -> None:
    write_table(tmp_path / "y.csv")
    assert regimekit("run", "y.csv", *FEW, "--out", "o").code == 0
    (tmp_path / "o/run.json").write_text(content)
    for command in (["resume", "o"], ["report", "o"], ["inspect", "o"]):
        said = regimekit(*command)
        assert said.code in (0, 2), said.err
        assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "change",
    [
        {"format": "csv/../../x"},
        {"format": 5},
        {"reader": []},
        {"reader": {"layout": {}}},
        {"observations": "many"},
        {"level": "x"},
        {"level": 7},
        {"horizon": 10**12},
        {"scores_state": 3},
        {"calibration": None},
        {"target": 5},
        {"season": "x"},
        {"file": 5},
    ],
)
def test_every_field_of_the_record_is_checked(
    regimekit: Regimekit, tmp_path: Path, change: dict[str, object]
) -> None:
    write_table(tmp_path / "y.csv")
    assert regimekit("run", "y.csv", *FEW, "--out", "o").code == 0
    record = json.loads((tmp_path / "o/run.json").read_text()) | change
    (tmp_path / "o/run.json").write_text(json.dumps(record))
    write_table(tmp_path / "y.csv", rows=15)
    said = regimekit("resume", "o")
    assert said.code in (0, 2), said.err
    if next(iter(change)) != "target":
        assert said.code == 2 and "run.json" in said.err, said.err


# Names of files are taken literally.


@pytest.mark.parametrize(
    "name", ["a[b].csv", "a?.csv", "a*.csv", "~/x.csv", "y=5/x.csv", "a'b.csv"]
)
@pytest.mark.parametrize("kind", ["csv", "parquet", "json"])
def test_globs_in_names_are_literal(
    regimekit: Regimekit, tmp_path: Path, name: str, kind: str
) -> None:
    import duckdb

    for decoy in ("ab.csv", "ac.csv", "axy.csv"):
        write_table(tmp_path / decoy, 7.0)
    table = write_table(tmp_path / name, 1.0)
    if kind == "json":
        table.write_text('{"y": 1.0}\n' * 12)
    if kind == "parquet":
        duckdb.execute("COPY (SELECT 1.0::DOUBLE AS y FROM range(12)) TO 'plain.parquet'")
        (tmp_path / "plain.parquet").rename(table)
    said = regimekit("run", name, *FEW, "--out", f"out[1]/{kind}")
    assert said.code == 0, said.err
    written = rows_of(tmp_path / f"out[1]/{kind}/run.csv")
    assert [row["y"] for row in written] == ["1.0"] * 12
    write_table(tmp_path / "out1" / kind / "run.csv", 9.0)
    assert regimekit("report", f"out[1]/{kind}", "-q").code == 0


@pytest.mark.parametrize("name", ["a#b.db", "a?mode=rwc.db", "a%41.db", "a b.db"])
def test_names_of_sqlite_files_are_literal(regimekit: Regimekit, tmp_path: Path, name: str) -> None:
    write_sqlite(tmp_path / name, 1.0)
    write_sqlite(tmp_path / "aA.db", 7.0)
    before = sorted(path.name for path in tmp_path.iterdir())
    said = regimekit("run", name, *FEW)
    assert said.code == 0, said.err
    assert rows_of(tmp_path / "out/run.csv")[0]["y"] == "1.0"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "out") == before


# Cells that a spreadsheet would execute


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r="])
def test_text_cells_are_no_formulae(regimekit: Regimekit, tmp_path: Path, start: str) -> None:
    key = f"{start}cmd|' /C calc'!A0"
    with (tmp_path / "p.csv").open("w", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(["=name()", "y"])
        writer.writerows([key, -1.5] for _ in range(12))
    said = regimekit("run", "p.csv", *FEW, "--by", "=name()", "--out", "o")
    assert said.code == 0, said.err
    with (tmp_path / "o/run.csv").open(newline="") as lines:
        header, first, *_ = csv.reader(lines)
    assert header[0] == "'=name()" and first[0] == "'" + key.replace("\r", " ")
    assert "-1.5" in first


# Streams that end, never begin, or leave files behind


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "regimekit.cli", *map(str, arguments)]


@pytest.mark.parametrize("extra", [[], ["--follow", "--idle", "0"]])
def test_closed_stdin(tmp_path: Path, extra: list[str]) -> None:
    words = command("run", "-", *FEW, *extra)
    done = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, preexec_fn=lambda: os.close(0)
    )
    assert done.returncode == 2 and "standard input is closed" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fifo_without_a_writer_is_refused(
    regimekit: Regimekit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regimekit.io.reader.FIFO_WAIT", 0.2)
    os.mkfifo(tmp_path / "pipe")
    said = regimekit("run", "pipe", *FEW)
    assert said.code == 2 and "no process writes" in said.err
    assert regimekit("run", "/dev/zero", *FEW).code == 2


def test_a_snapshot_is_no_pipe_and_no_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "/dev/zero"):
        words = [sys.executable, "-m", "regimekit.cli", "inspect", name]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "a device or a pipe" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_of_the_output_is_one_line(tmp_path: Path) -> None:
    write_table(tmp_path / "y.csv")
    with Path("/dev/full").open("w") as full:
        words = command("run", "y.csv", *FEW, "--json")
        done = subprocess.run(words, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_fifo_is_read_to_its_end(regimekit: Regimekit, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    def write() -> None:
        with (tmp_path / "pipe").open("w") as pipe:
            pipe.write("y\n" + "1.0\n" * 6)
            pipe.flush()
            time.sleep(0.3)
            pipe.write("2.0\n" * 6)

    writer = threading.Thread(target=write)
    writer.start()
    said = regimekit("run", "pipe", *FEW)
    writer.join()
    assert said.code == 0, said.err
    assert len(rows_of(tmp_path / "out/run.csv")) == 12


def test_folders_of_a_killed_run_are_removed_by_the_next(tmp_path: Path) -> None:
    home = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    write_table(tmp_path / "long.csv", rows=200_000)
    with (tmp_path / "long.csv").open() as lines:
        running = subprocess.Popen(
            command("run", "-", *FAST, "-q", "--out", "o"), cwd=tmp_path, env=home, stdin=lines
        )
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("o/.regimekit-*/run.csv")):
            assert time.monotonic() < deadline and running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGKILL)
        running.wait()
    assert list(tmp_path.glob("o/.regimekit-*")) and list(tmp_path.glob("tmp/regimekit-*"))
    write_table(tmp_path / "y.csv")
    words = command("run", "-", *FEW, "--out", "o")
    with (tmp_path / "y.csv").open() as lines:
        subprocess.run(words, cwd=tmp_path, env=home, stdin=lines, check=True)
    assert not list(tmp_path.glob("o/.regimekit-*")) and not list(tmp_path.glob("tmp/regimekit-*"))
    assert (tmp_path / "o/run.json").exists()
