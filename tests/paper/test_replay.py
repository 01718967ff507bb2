"""A replay carries over what comes out the same, says who made it, and nothing else."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import paper
from paper import parts, replay, runner, settings, store, tuning
from paper.outcomes import Outcome, run_part
from paper.parts import Part
from paper.plan import Plan
from paper.replay import CHANGED, CONFIRMED, LEFT, Verdict
from paper.settings import UNTUNED
from paper.store import Ledger, Line
from paper.tables import Item, Made, comparison, parts_of
from paper.tables import Line as Row

QUICK = {"particles": 4}
DRAWN = [Part("iid_t", "ihmm", QUICK, seed=seed, rows=30) for seed in range(3)]
SIMPLE = [Part("iid_t", "last_value", seed=seed, rows=30) for seed in range(2)]
GIVEN = [Part("well_log", "last_value", rows=60)]
SEARCH = tuning.Search("iid_t", "ihmm", "second")


def quiet(_: str) -> None:
    pass


@pytest.fixture
def edit(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Makes the source another one, by the name of its state."""

    def to(name: str) -> None:
        monkeypatch.setattr(parts, "state", lambda *_, **__: name)
        parts._code.cache_clear()

    to("old")
    yield to
    monkeypatch.undo()
    parts._code.cache_clear()


@pytest.fixture
def ledger(tmp_path: Path, edit: Callable[[str], None]) -> Path:
    """Runs by the old source, the first with what is drawn of it; then the source is edited."""
    done = [(part, run_part(part)) for part in (*DRAWN, *SIMPLE, *GIVEN)]
    Ledger(tmp_path / store.RUNS).keep(done, drawn=[DRAWN[0].key])
    edit("new")
    return tmp_path


def lines(out: Path) -> dict[tuple[str, str, int], Line]:
    found = Ledger(out / store.RUNS).lines()
    return {(line.part.stream, line.part.model, line.part.seed): line for line in found}


def states(out: Path) -> dict[tuple[str, str, int], tuple[str, str]]:
    """By run the state that made it, and the one that it counts for."""
    return {name: (line.made, line.outcome.source) for name, line in lines(out).items()}


def kinds(verdicts: list[Verdict]) -> dict[str, str]:
    return {" ".join(verdict.name.split()[:2]): verdict.kind for verdict in verdicts}


def tamper(out: Path, model: str, seed: int, score: str, value: str) -> None:
    path = out / store.RUNS / "iid_t.csv"
    with path.open(newline="") as source:
        rows = list(csv.DictReader(source))
    for row in rows:
        if (row["model"], row["seed"]) == (model, str(seed)):
            row[score] = value
    with path.open("w", newline="") as target:
        sheet = csv.DictWriter(target, list(rows[0]), lineterminator="\n")
        sheet.writeheader()
        sheet.writerows(rows)


def test_equal_runs_are_kept_with_their_origin(ledger: Path, counted: list[Part]):
    before = lines(ledger)
    assert all(line.stale() for line in before.values())
    verdicts = replay.replay(ledger, tell=quiet)
    assert set(kinds(verdicts).values()) == {CONFIRMED} and len(verdicts) == 3
    assert sum(verdict.carried for verdict in verdicts) == 3
    assert {(part.stream, part.model, part.seed) for part in counted} == {
        ("iid_t", "ihmm", 0),
        ("iid_t", "last_value", 0),
        ("well_log", "last_value", 0),
    }
    assert states(ledger) == {
        ("iid_t", "ihmm", 0): ("new", "new"),
        ("iid_t", "ihmm", 1): ("old", "new"),
        ("iid_t", "ihmm", 2): ("old", "new"),
        ("iid_t", "last_value", 0): ("new", "new"),
        ("iid_t", "last_value", 1): ("old", "new"),
        ("well_log", "last_value", 0): ("new", "new"),
    }
    after = lines(ledger)
    assert not any(line.stale() for line in after.values())
    assert not any(replay.differences(before[n].outcome, after[n].outcome) for n in before)
    drawn = after["iid_t", "ihmm", 0].outcome.columns
    for name, column in before["iid_t", "ihmm", 0].outcome.columns.items():
        np.testing.assert_array_equal(drawn[name], column)
    assert Ledger(ledger / store.RUNS).has(DRAWN[2])  # where `reproduce` looks for it


def test_nobody_forgets_who_made_a_run(ledger: Path, edit: Callable[[str], None]):
    replay.replay(ledger, tell=quiet)
    edit("newer")
    replay.replay(ledger, tell=quiet)
    assert states(ledger)["iid_t", "ihmm", 2] == ("old", "newer")
    kept = Ledger(ledger / store.RUNS)
    found = kept.get(DRAWN[2])
    assert found is not None
    kept.keep([(DRAWN[2], found)], drawn=[])  # as `reproduce` enters what it has found
    assert states(ledger)["iid_t", "ihmm", 2] == ("old", "newer")


def test_one_number_that_differs_leaves_the_group_stale(ledger: Path, counted: list[Part]):
    tamper(ledger, "ihmm", 0, "rmse", "0.5")
    verdicts = replay.replay(ledger, tell=quiet)
    assert kinds(verdicts) == {
        "iid_t ihmm": CHANGED,
        "iid_t last_value": CONFIRMED,
        "well_log last_value": CONFIRMED,
    }
    found = lines(ledger)
    true = run_part(DRAWN[0]).scores["rmse"]
    assert found["iid_t", "ihmm", 0].outcome.scores["rmse"] == true  # the new run replaces it
    gap = abs(true - 0.5) / max(true, 0.5)
    (printed,) = (verdict.why for verdict in verdicts if verdict.kind == CHANGED)
    assert printed == f"largest relative difference {gap:.2g}"
    assert any(printed in line for line in replay.summary(verdicts))
    assert [n for n, line in found.items() if line.stale()] == [
        ("iid_t", "ihmm", 1),
        ("iid_t", "ihmm", 2),
    ]
    counted.clear()
    again = replay.replay(ledger, tell=quiet)  # another seed may agree, and must not be asked
    assert kinds(again) == {"iid_t ihmm": LEFT} and not counted
    assert states(ledger)["iid_t", "ihmm", 1] == ("old", "old")


def test_a_column_that_differs_counts_and_a_time_does_not():
    columns = {"mean": np.array([1.0, np.nan], np.float16), "path": np.array([0, 4], np.int32)}
    old = Outcome({"rmse": float("nan"), "seconds": 1.0, "cpu_seconds": 1.0}, columns)
    new = Outcome({"rmse": float("nan"), "seconds": 2.0, "cpu_seconds": 3.0}, columns)
    assert replay.differences(old, new) == {}
    moved = Outcome(new.scores, columns | {"path": np.array([0, 5], np.int32)})
    assert replay.differences(old, moved) == {"column path": 0.2}
    assert replay.differences(old, Outcome({"rmse": 1.0}, columns)) == {"rmse": np.inf}
    assert replay.differences(old, Outcome(new.scores | {"mae": 1.0}, columns)) == {"mae": np.inf}
    assert replay.differences(Outcome({"a": 0.0}, {}), Outcome({"a": -0.0}, {})) == {"a": 0.0}


def test_a_difference_in_a_later_seed_is_seen_by_more_seeds(ledger: Path):
    tamper(ledger, "ihmm", 1, "mae", "0.5")
    verdicts = replay.replay(ledger, ["iid_t"], seeds=2, tell=quiet)
    assert kinds(verdicts) == {"iid_t ihmm": CHANGED, "iid_t last_value": CONFIRMED}
    assert lines(ledger)["well_log", "last_value", 0].stale()  # it was not asked for


def test_other_data_are_not_replayed(
    ledger: Path, counted: list[Part], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        replay, "data_state", lambda part: "" if part.seed else store.data_state(part)
    )
    assert set(kinds(replay.replay(ledger, ["iid_t"], tell=quiet)).values()) == {LEFT}
    assert not counted


def test_an_interrupted_replay_goes_on_where_it_stopped(
    ledger: Path, counted: list[Part], monkeypatch: pytest.MonkeyPatch
):
    before = states(ledger)
    printed: list[str] = []

    def stop(line: str) -> None:
        printed.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay.replay(ledger, tell=stop)
    assert len(counted) == 1 and printed[0].endswith("2 replays to go")
    assert states(ledger) == before  # a group that is half done is as it was
    counted.clear()
    verdicts = replay.replay(ledger, tell=quiet)
    assert len(counted) == 2 and set(kinds(verdicts).values()) == {CONFIRMED}
    assert not any(line.stale() for line in lines(ledger).values())
    counted.clear()
    assert replay.replay(ledger, tell=quiet) == [] and not counted


def test_a_replay_that_fails_leaves_the_group(ledger: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runner, "run_into", lambda part, _: (part, "ArithmeticError: no"))
    verdicts = replay.replay(ledger, tell=quiet)
    assert {verdict.why for verdict in verdicts} == {"it failed: ArithmeticError: no"}
    assert all(line.stale() for line in lines(ledger).values())


def test_a_ledger_from_before_there_were_replays_is_read(ledger: Path):
    path = ledger / store.RUNS / "iid_t.csv"
    with path.open(newline="") as source:
        rows = [{k: v for k, v in row.items() if k != "made"} for row in csv.DictReader(source)]
    with path.open("w", newline="") as target:
        sheet = csv.DictWriter(target, list(rows[0]), lineterminator="\n")
        sheet.writeheader()
        sheet.writerows(rows)
    assert states(ledger)["iid_t", "ihmm", 0] == ("old", "old")


def test_pages_list_what_was_confirmed(tmp_path: Path, edit: Callable[[str], None]):
    rows = [Row("iid_t", "last_value", "rmse", only=UNTUNED)]
    item = Item(
        "targets", "Small", "nowhere", "", lambda r: Made([comparison(r, rows)]), parts_of(rows)
    )
    paper.reproduce([item], tmp_path, Plan(runs=2))
    assert "replays" not in (tmp_path / "targets.md").read_text()
    edit("new")
    replay.replay(tmp_path, tell=quiet)
    assert paper.estimate([item], tmp_path, Plan(runs=2))[0][1] == 0
    paper.reproduce([item], tmp_path, Plan(runs=2))
    page = (tmp_path / "targets.md").read_text()
    assert "runs of last_value (made by old, confirmed for new)." in page
    content = json.loads((tmp_path / "targets.json").read_text())
    assert content["confirmed"] == ["last_value:old:new"]
    assert (
        "confirmed by replays; each page lists them: `targets`."
        in (tmp_path / "index.md").read_text()
    )


# ---------------------------------------------------------------------------- tuned settings


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short search by the source as it was before it was edited."""
    whole = tuning.training_part
    monkeypatch.setattr(settings, "TUNED", tmp_path)
    monkeypatch.setattr(tuning, "searches", lambda: [SEARCH])
    monkeypatch.setattr(replay, "searches", lambda: [SEARCH])
    monkeypatch.setattr(tuning, "training_part", lambda *given: short(whole(*given)))
    tuning._seen.cache_clear()
    monkeypatch.setattr(tuning, "state", lambda *_, **__: "old")
    path = tuning.run(SEARCH, budget=2, progress=False)
    assert replay.stale_searches() == []
    monkeypatch.setattr(tuning, "state", lambda *_, **__: "new")
    yield path
    monkeypatch.undo()
    tuning._seen.cache_clear()


def short(seen: tuning.Training) -> tuning.Training:
    return tuning.Training(seen.y[:150], None)


def test_settings_that_score_the_same_are_carried_over(searched: Path):
    before = json.loads(searched.read_text())
    assert replay.stale_searches() == [SEARCH]
    assert replay.replay_search(SEARCH).kind == CONFIRMED
    after = json.loads(searched.read_text())
    assert after == before | {"state": SEARCH.state, "made": before["state"]}
    assert replay.stale_searches() == [] and SEARCH.done(budget=2)
    assert [path.name for path in searched.parent.rglob("*.jsonl")] == []


@pytest.mark.parametrize(
    ("changed", "kind"),
    [({"value": 0.25}, CHANGED), ({"terms": "others"}, LEFT), ({"value": 0.0}, LEFT)],
)
def test_other_settings_stay_stale(searched: Path, changed: dict[str, object], kind: str):
    content = json.dumps(json.loads(searched.read_text()) | changed)
    searched.write_text(content)
    assert replay.replay_search(SEARCH).kind == kind
    assert searched.read_text() == content and replay.stale_searches() == [SEARCH]


def test_the_command_estimates_the_time(
    ledger: Path, searched: Path, capsys: pytest.CaptureFixture[str]
):
    replay.main(["--out", str(ledger), "--estimate"])
    printed = capsys.readouterr().out
    assert "iid_t: 2 groups, 5 stale runs, 2 replays to do" in printed
    assert "tuned settings: 1 replays to do" in printed
    replay.main(["--out", str(ledger), "--only", "iid_t"])
    printed = capsys.readouterr().out
    assert "confirmed: 3 of 3 groups and tuned settings, 3 runs carried over" in printed
    assert "changed: 0" in printed
