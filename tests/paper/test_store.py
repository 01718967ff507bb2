"""What was run is kept: from one run to the next, over a kill, and in a fresh checkout."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import paper
from paper import output, parts, runner, store
from paper.outcomes import ALL_ROWS, Outcome, drawn_of, run_part
from paper.parts import Part
from paper.plan import Plan
from paper.settings import UNTUNED
from paper.store import Cache, Ledger, Line, run_into
from paper.tables import Item, Made, Results, comparison, parts_of
from paper.tables import Line as Row

DRAWN = Part("iid_t", "ihmm", {"particles": 4}, seed=0, rows=30)
SCORED = Part("iid_t", "ihmm", {"particles": 4}, seed=1, rows=30)
REAL = Part("well_log", "last_value", rows=60)
PROBED = Part("bursts", "4", seed=3)


def same(one: Outcome | None, other: Outcome | None) -> bool:
    assert one is not None and other is not None
    return repr(one.scores) == repr(other.scores) and one.source == other.source


def test_a_ledger_gives_back_what_it_was_given(tmp_path: Path):
    outcomes = [(part, run_part(part)) for part in (DRAWN, SCORED, REAL)]
    outcomes.append((PROBED, Outcome({"opened": 0.25}, {}, parts.code_state(PROBED))))
    Ledger(tmp_path).keep(outcomes, drawn=[DRAWN.key])
    fresh = Ledger(tmp_path)
    assert len(fresh.lines()) == 4 and not any(line.stale() for line in fresh.lines())
    for part, outcome in outcomes:
        found = fresh.get(part)
        assert fresh.has(part) and found is not None and found.source == outcome.source
        assert {name: found.scores[name] for name in outcome.scores} == pytest.approx(
            outcome.scores, abs=0, rel=0, nan_ok=True
        )
    drawn = fresh.get(DRAWN)
    assert drawn is not None and set(drawn.columns) == {"mean", "sd", "path"}
    for name, column in outcomes[0][1].columns.items():
        np.testing.assert_array_equal(drawn.columns[name], column)
    assert fresh.get(SCORED).columns == fresh.get(REAL).columns == {}


def test_a_ledger_is_readable_and_short(tmp_path: Path):
    Ledger(tmp_path).keep([(SCORED, run_part(SCORED))], drawn=[])
    with (tmp_path / "iid_t.csv").open(newline="") as source:
        (row,) = csv.DictReader(source)
    assert row["model"] == "ihmm" and row["settings"] == '{"particles": 4}' and row["seed"] == "1"
    assert not any(name.endswith(ALL_ROWS) for name in row)  # the same as over the rows that count
    assert float(row["rmse"]) == run_part(SCORED).scores["rmse"] and len(row["rmse"]) <= 10
    assert [path.name for path in tmp_path.iterdir()] == ["iid_t.csv"]


def test_writing_the_same_twice_changes_no_byte(tmp_path: Path):
    outcomes = [(part, run_part(part)) for part in (SCORED, DRAWN)]
    before = []
    for given in (outcomes, outcomes[::-1]):
        Ledger(tmp_path).keep(given, drawn=[DRAWN.key])
        before.append([path.read_bytes() for path in sorted(tmp_path.iterdir())])
    assert before[0] == before[1] and len(before[0]) == 2


def test_old_results_are_known_as_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    Ledger(tmp_path).keep([(SCORED, run_part(SCORED)), (REAL, run_part(REAL))], drawn=[])
    monkeypatch.setattr(parts, "state", lambda *_: "edited")
    parts._code.cache_clear()
    later = Ledger(tmp_path)
    assert not later.has(SCORED) and later.get(SCORED) is None
    assert all(line.stale() for line in later.lines())
    later.keep([(DRAWN, run_part(DRAWN))], drawn=[])
    assert [line.part for line in Ledger(tmp_path).lines()] == [DRAWN, REAL]  # of that stream
    monkeypatch.undo()
    parts._code.cache_clear()


def test_data_that_are_not_here_make_nothing_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    outcome = run_part(REAL)
    here = Line(REAL, parts.data_state(REAL), outcome)
    assert not here.stale() and Line(REAL, "other data", outcome).stale()
    monkeypatch.setattr(store, "data_state", lambda _: "")
    assert not here.stale()


def test_two_processes_do_not_write_over_each_other(tmp_path: Path):
    first, second = Ledger(tmp_path), Ledger(tmp_path)
    assert not first.has(DRAWN) and not second.has(SCORED)  # both have looked
    first.keep([(DRAWN, run_part(DRAWN))], drawn=[DRAWN.key])
    second.keep([(SCORED, run_part(SCORED))], drawn=[])
    second.keep([(DRAWN, run_part(DRAWN))], drawn=[])  # an item that does not draw it
    kept = Ledger(tmp_path)
    assert {line.part.seed for line in kept.lines()} == {0, 1}
    assert kept.get(DRAWN).columns


def test_a_damaged_file_is_run_again(tmp_path: Path):
    run_into(SCORED, tmp_path)
    (path,) = tmp_path.glob("*.npz")
    path.write_bytes(path.read_bytes()[:200])
    cache = Cache(tmp_path)
    assert cache.get(SCORED) is None and not cache.has(SCORED)
    run_into(SCORED, tmp_path)
    assert same(cache.get(SCORED), cache.get(SCORED))


def test_of_electricity_what_is_shown_is_kept():
    columns = {name: np.arange(31_912.0) for name in ("mean", "lower", "upper", "path")}
    kept = drawn_of("electricity", columns)
    shown = np.flatnonzero(~np.isnan(kept["mean"]))
    assert (shown[0], shown[-1]) == (24_500, 27_479) and kept["path"].dtype == np.int32
    short = {name: column[:150] for name, column in columns.items()}
    assert not np.isnan(drawn_of("electricity", short)["mean"]).any()  # a quick run shows all


# ---------------------------------------------------------------------------- reproductions

LINES = [Row("iid_t", "last_value", "rmse"), Row("iid_gauss", "last_value", "rmse")]


def drawing_item(lines: list[Row]) -> Item:
    def make(results: Results) -> Made:
        def draw() -> object:
            from regimekit.plotting import pyplot

            figure, ax = pyplot().subplots()
            ax.plot(results.columns(lines[0].parts(results.plan, UNTUNED)[0])["mean"])
            return figure

        return Made([comparison(results, lines)], draw, "A line.")

    return Item("small", "A small one", "nowhere", "no reason", make, parts_of(lines))


def test_a_fresh_checkout_goes_on_where_the_last_one_ended(tmp_path: Path, counted: list[Part]):
    item = drawing_item(LINES)
    here, there = tmp_path / "here", tmp_path / "there"
    paper.reproduce([item], here, Plan(runs=2))
    assert len(counted) == 4
    shutil.copytree(here / store.RUNS, there / store.RUNS)  # what is committed
    counted.clear()
    assert paper.estimate([item], there, Plan(runs=2))[0][1] == 0
    paper.reproduce([item], there, Plan(runs=2))
    assert not counted
    for name in ("small.json", "small.md", "small.png", "runs/iid_t.csv", "runs/iid_t.npz"):
        assert (there / name).read_bytes() == (here / name).read_bytes(), name
    paper.reproduce([item], there, Plan(runs=3))
    assert {(part.stream, part.seed) for part in counted} == {("iid_t", 2), ("iid_gauss", 2)}
    assert len(counted) == 2


def test_columns_that_were_not_kept_are_made_again(tmp_path: Path, counted: list[Part]):
    plain = Item("plain", "Plain", "nowhere", "", lambda _: Made([]), parts_of(LINES[:1]))
    here, there = tmp_path / "here", tmp_path / "there"
    paper.reproduce([plain], here, Plan(runs=1))
    assert not (here / "runs/iid_t.npz").exists()
    shutil.copytree(here / store.RUNS, there / store.RUNS)
    counted.clear()
    paper.reproduce([drawing_item(LINES[:1])], there, Plan(runs=1))
    assert [part.seed for part in counted] == [0] and (there / "small.png").exists()
    assert (there / "runs/iid_t.npz").exists()


def test_all_of_it_drops_what_no_page_rests_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    item = drawing_item(LINES)
    monkeypatch.setattr(runner, "ITEMS", {"small": item})
    paper.reproduce([item], tmp_path, Plan(runs=2))
    fewer = drawing_item(LINES[:1])
    monkeypatch.setattr(runner, "ITEMS", {"small": fewer, "other": item})
    paper.reproduce([fewer], tmp_path, Plan(runs=2))  # not all: nothing is dropped
    assert len(Ledger(tmp_path / store.RUNS).lines()) == 4
    monkeypatch.setattr(runner, "ITEMS", {"small": fewer})
    paper.reproduce([fewer], tmp_path, Plan(runs=1))
    left = [line.part for line in Ledger(tmp_path / store.RUNS).lines()]
    assert [(part.stream, part.seed) for part in left] == [("iid_t", 0), ("iid_t", 1)]


def test_a_quick_run_enters_no_ledger(tmp_path: Path):
    paper.reproduce([drawing_item(LINES)], tmp_path, Plan(quick=True))
    assert not (tmp_path / store.RUNS).exists()


def test_the_index_names_pages_of_an_older_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    paper.reproduce(paper.choose(["garch", "t_difference"]), tmp_path, Plan(quick=True))
    assert "older state" not in (tmp_path / "index.md").read_text()
    monkeypatch.setattr(output, "code_state", lambda _: "edited")
    page = output.write_index(tmp_path).read_text()
    assert "older state of the source, and so to be made again: `garch`." in page


SCRIPT = """
import sys, time
from pathlib import Path
import paper
from paper import store
from paper.plan import Plan
from paper.tables import Item, Line, Made, comparison, parts_of
lines = [Line("iid_t", "last_value", "rmse"), Line("iid_gauss", "last_value", "rmse")]
make = lambda results: Made([comparison(results, lines)])
item = Item("small", "Small", "nowhere", "", make, parts_of(lines))
paper.reproduce([item], Path(sys.argv[1]), Plan(runs=20), jobs=2)
"""


@pytest.mark.slow
def test_a_kill_loses_nothing_that_was_done_and_leaves_nothing_half(tmp_path: Path):
    def begin() -> subprocess.Popen[bytes]:
        root = Path(paper.__file__).parents[1]
        environment = os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"}
        return subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(tmp_path)], env=environment, start_new_session=True
        )

    done: set[str] = set()
    process = begin()
    while process.poll() is None and len(done) < 5:
        time.sleep(0.01)
        done = {path.name for path in (tmp_path / ".parts").glob("iid*.npz")}
    os.killpg(process.pid, signal.SIGKILL)  # its workers too
    process.wait()
    stamps = {name: (tmp_path / ".parts" / name).stat().st_mtime_ns for name in done}
    assert len(stamps) >= 5
    assert begin().wait(timeout=300) == 0
    for name, stamp in stamps.items():
        assert (tmp_path / ".parts" / name).stat().st_mtime_ns == stamp  # not run again
    assert len(Ledger(tmp_path / store.RUNS).lines()) == 40
    assert "(n 20)" in (tmp_path / "small.md").read_text()
