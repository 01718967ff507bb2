"""All evidence by one command: every page has its stage, and a stopped call goes on."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.untuned import BY_HAND, write_page
from paper import evidence
from paper.evidence import ROOT, STAGES, Stage

WRITES = "-c \"from pathlib import Path; Path(r'{out}/made').write_text('made')\""


def stage(name: str, command: str = "-c pass", quick: str = "-c pass") -> Stage:
    return Stage(name, "README.md", command, quick, 7.0, ("paper/evidence.py",))


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "evidence.json"
    monkeypatch.setattr(evidence, "RECORD", path)
    return path


def run(stages: list[Stage], out: Path, quick: bool = False) -> dict[str, int]:
    return evidence.run(stages, out, 1, quick, Console(quiet=True))


def test_every_measured_page_has_a_stage_and_every_stage_a_program() -> None:
    pages = {one.page for one in STAGES}
    for path in (ROOT / "docs/measured").glob("*.md"):
        assert path.relative_to(ROOT).as_posix() in pages
    for one in STAGES:
        assert (ROOT / one.page).exists(), one.page
        for name in one.sources:
            assert list(ROOT.glob(name)), name
        for command in (one.command, one.quick):
            option, program, *_ = shlex.split(command)
            path = ROOT / program.replace(".", "/")
            found = [path.with_suffix(".py"), path / "__main__.py"]
            assert option == "-c" or program.startswith("regimekit") or any(map(Path.exists, found))


def test_no_stage_writes_a_page_when_quick() -> None:
    for one in STAGES:
        assert "docs/" not in one.quick and "--write" not in one.quick, one.name


def test_a_stage_that_is_done_is_not_run_again(tmp_path: Path, record: Path) -> None:
    stages = [stage("good"), stage("bad", "-c 'raise SystemExit(3)'")]
    assert run(stages, tmp_path) == {"good": 0, "bad": 3}
    assert set(json.loads(record.read_text())) == {"good"}
    assert run(stages, tmp_path) == {"bad": 3}
    changed = replace(stages[0], command="-c '1'")
    assert evidence.due(changed, evidence.recorded()), "another command is another result"
    assert evidence.minutes(stages[0], evidence.recorded()) == 0.0
    assert evidence.minutes(changed, evidence.recorded()) < 1.0, "as measured, no longer a guess"
    assert evidence.minutes(stages[1], evidence.recorded()) == 7.0


def test_a_quick_run_records_nothing(tmp_path: Path, record: Path) -> None:
    one = stage("one", "-c 'raise SystemExit(3)'", WRITES)
    assert run([one], tmp_path, quick=True) == {"one": 0}
    assert (tmp_path / "quick/made").exists() and not record.exists()


def test_the_plan_states_the_cost(record: Path) -> None:
    console = Console(width=200, file=io.StringIO(), record=True)
    assert evidence.plan([stage("one"), stage("two")], console) == 14.0
    text = console.export_text()
    assert "one" in text and "14 core minutes" in text and "MB of 15 MB" in text


def test_the_folder_docs_stays_small() -> None:
    assert evidence.docs_size() <= evidence.MAX_DOCS


def test_what_was_written_by_hand_stays(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_page(page, "# First\n")
    assert page.read_text() == "# First\n"
    page.write_text(f"# First\n\n{BY_HAND}\n\nA remark.\n")
    for text in ("# Second\n", "# Third\n"):
        write_page(page, text)
        assert page.read_text() == f"{text}\n{BY_HAND}\n\nA remark.\n"
