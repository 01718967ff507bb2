"""`run --follow`: one line per row, and every row exactly once after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli_helpers import FAST, Regimekit, hourly, rows_of

import regimekit as rk

COMMAND = [sys.executable, "-m", "regimekit.cli", "run"]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_follow_gives_the_results_of_run(regimekit: Regimekit, table: Path, tmp_path: Path) -> None:
    regimekit("run", table, *FAST, "--out", "batch")
    said = regimekit("run", table, *FAST, "--follow", "--idle", 0, "--out", "live")
    assert said.code == 0, said.err
    lines, rows = lines_of(tmp_path / "live" / "follow.jsonl"), rows_of(tmp_path / "batch/run.csv")
    assert len(lines) == len(rows) == 150
    for line, row in zip(lines, rows, strict=True):
        assert line["regime"] == int(row["regime"]) and line["y"] == float(row["y"])
        assert line["mean"] == pytest.approx(float(row["mean"]))
        assert line["lower"] == pytest.approx(float(row["lower"]), rel=1e-4)
    model, same = (rk.load(tmp_path / name / "model.regimekit") for name in ("live", "batch"))
    assert model.to_bytes() == same.to_bytes()


def test_each_row_is_answered_at_once(table: Path) -> None:
    content = table.read_text().splitlines(keepends=True)
    process = subprocess.Popen(
        [*COMMAND, "-", "--follow", "--model", "last_value"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    assert process.stderr is not None
    process.stdin.write("".join(content[:2]))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["y"] > 900  # before the second row is there
    process.stdin.write(content[2])
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["time"] == "2024-01-01T01:00:00"
    process.stdin.close()
    assert process.wait(timeout=20) == 0
    assert "standard input is a CSV file" in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


@pytest.mark.slow
def test_every_row_is_processed_once_after_kills(tmp_path: Path, levels: np.ndarray) -> None:
    grown, calm, torn = (tmp_path / name for name in ("grown.csv", "calm", "torn"))
    text = hourly(levels)
    del text[70:73]  # a gap in the times
    grown.write_text("when,load\n" + "".join(text[:20]))
    options = [str(grown), *FAST, "--follow", "--snapshot-every", "7", "--resume"]
    subprocess.run([*COMMAND, *options, "--idle", "0", "--out", calm], check=True)
    for part in (text[20:60], text[60:61], text[61:]):
        process = subprocess.Popen([*COMMAND, *options, "--out", torn], stderr=subprocess.DEVNULL)
        _wait_for(torn / "follow.jsonl", least=1)
        half = "".join(part)
        with grown.open("a") as target:
            target.write(half[: len(half) // 2])  # ends within a row
            target.flush()
            time.sleep(0.3)
            target.write(half[len(half) // 2 :])
        time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    for out in (calm, torn):
        subprocess.run([*COMMAND, *options, "--idle", "0.3", "--out", out], check=True)
    assert (calm / "follow.jsonl").read_bytes() == (torn / "follow.jsonl").read_bytes()
    lines = lines_of(torn / "follow.jsonl")
    assert len(lines) == 150 and len({line["time"] for line in lines}) == 150
    same = [(out / "model.regimekit").read_bytes() for out in (calm, torn)]
    assert same[0] == same[1]


def _wait_for(path: Path, least: int) -> None:
    for _ in range(300):
        if path.exists() and path.stat().st_size >= least:
            return
        time.sleep(0.1)
    raise AssertionError(f"{path} did not grow")


@pytest.mark.slow
def test_ctrl_c_writes_the_results_so_far(tmp_path: Path) -> None:
    big = tmp_path / "big.csv"
    big.write_text("y\n" + "".join(f"{i % 7}\n" for i in range(400_000)))
    process = subprocess.Popen(
        [*COMMAND, str(big), "--model", "last_value", "--out", tmp_path / "out", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    for _ in range(300):
        if any(path.stat().st_size > 10_000 for path in tmp_path.glob("out/.regimekit-*/run.csv")):
            break
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    summary = json.loads(said)
    assert process.returncode == 130 and summary["interrupted"]
    assert 0 < summary["observations"] < 400_000
    rows = rows_of(tmp_path / "out" / "run.csv")
    assert len(rows) == summary["observations"]
    model = rk.load(tmp_path / "out" / "model.regimekit")
    assert model.predict().mean == float(rows[-1]["y"])  # model and rows agree


@pytest.mark.parametrize(
    ("more", "word"),
    [
        (["--resume"], "--out"),
        (["--model", "beam_ihmm"], "whole stream"),
        (["--by", "load"], "--by"),
        (["--snapshot-every", "0"], "--snapshot-every"),
    ],
)
def test_options_that_exclude_follow(
    regimekit: Regimekit, table: Path, more: list[str], word: str
) -> None:
    said = regimekit("run", table, "--follow", "--idle", 0, *more)
    assert said.code == 2 and word in said.err


def test_a_followed_stream_is_not_overwritten(regimekit: Regimekit, table: Path) -> None:
    follow = ("run", table, "--model", "last_value", "--follow", "--idle", 0, "--out", "live")
    assert regimekit(*follow).code == 0
    said = regimekit(*follow)
    assert said.code == 2 and "--resume" in said.err


def crafted(checkpoint: Path, *path: Any, size: int = 0) -> None:
    """Change an entry of a checkpoint, the last of `path`, or fill it with `size` blanks."""
    *keys, last, value = path
    with zipfile.ZipFile(checkpoint) as archive:
        state, model = json.loads(archive.read("follow.json")), archive.read("model.regimekit")
    entry = state
    for key in keys:
        entry = entry[key]
    entry[last] = value
    with zipfile.ZipFile(checkpoint, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("follow.json", json.dumps(state) + " " * size)
        archive.writestr("model.regimekit", model)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (("output_bytes", "x"), "output_bytes must be a whole number"),
        (("output_bytes", 10**30), "output_bytes must be at most"),
        (("output_bytes", 10**9), "its checkpoint counts"),
        (("position", -5), "position must be at least 0"),
        (("lines", None), "lines must be a whole number"),
        (("observations", 1.5), "observations must be a whole number"),
        (("level", "x"), "is not a checkpoint"),
        (("level", 7), "level must be between 0 and 1"),
        (("line_format", "header", "x"), "header must be a whole number"),
        (("line_format", "names", ["zz"]), "are not in the table"),
        (("line_format", 5), "is not a checkpoint"),
        (("reader", "rows", "x"), "rows must be a whole number"),
        (("reader", "layout", "target", "zz"), "are not in the table"),
        (("reader", []), "is not a checkpoint"),
    ],
)
def test_a_crafted_checkpoint_is_refused(
    regimekit: Regimekit, table: Path, tmp_path: Path, path: tuple[Any, ...], reason: str
) -> None:
    options = ("--model", "last_value", "--follow", "--idle", 0, "--out", "live")
    assert regimekit("run", table, *options).code == 0
    before = (tmp_path / "live/follow.jsonl").read_bytes()
    crafted(tmp_path / "live/follow.checkpoint", *path)
    said = regimekit("run", table, *options, "--resume")
    assert said.code == 2 and reason in said.err, said.err
    assert (tmp_path / "live/follow.jsonl").read_bytes() == before


def test_a_checkpoint_that_is_a_bomb_is_not_unpacked(
    regimekit: Regimekit, table: Path, tmp_path: Path
) -> None:
    options = ("--model", "last_value", "--follow", "--idle", 0, "--out", "live")
    assert regimekit("run", table, *options).code == 0
    crafted(tmp_path / "live/follow.checkpoint", "level", 0.9, size=2**25)
    said = regimekit("run", table, *options, "--resume")
    assert said.code == 2 and "follow.json has 3355" in said.err, said.err


def test_a_linked_output_is_not_written(regimekit: Regimekit, table: Path, tmp_path: Path) -> None:
    options = ("--model", "last_value", "--follow", "--idle", 0, "--out", "live")
    assert regimekit("run", table, *options).code == 0
    lines, other = tmp_path / "live/follow.jsonl", tmp_path / "other"
    content = lines.read_bytes()
    lines.rename(other)
    lines.symlink_to(other)
    assert regimekit("run", table, *options, "--resume").code == 2
    assert other.read_bytes() == content
