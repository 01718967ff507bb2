"""The state of the source: what decides a number changes it, and nothing else does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import regimekit
from paper import probes, state
from paper.parts import Part, code_state
from regimekit.core.registry import REGISTRY

MODULES = {name: entry.module for name, entry in REGISTRY.items()}
RUNS = ("br_ihmm", "student_t_ihmm", "garch_ihmm", "auto", "bocd", "last_value")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the library, to be edited."""
    folder = tmp_path_factory.mktemp("source")
    root = Path(regimekit.__file__).parent
    shutil.copytree(root, folder / "regimekit", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def states(root: Path) -> dict[str, str]:
    return {name: state.state([MODULES[name]], root=root) for name in RUNS}


def changed(root: Path, file: str, old: str, new: str) -> set[str]:
    """The models whose state an edit changes."""
    before = states(root)
    path = root / "regimekit" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    after = states(root)
    path.write_text(text)
    return {name for name in RUNS if before[name] != after[name]}


FAMILY = {"br_ihmm", "student_t_ihmm", "garch_ihmm", "auto"}


@pytest.mark.parametrize(
    ("file", "models"),
    [
        ("ihmm/batch_update.py", FAMILY),  # a kernel; auto makes its members by name
        ("ihmm/resampling.py", FAMILY),
        ("ihmm/makers.py", FAMILY),
        ("baselines/bocd.py", {"bocd", "auto"}),
        ("ihmm/emissions/garch.py", FAMILY),
        ("ensemble/aggregation.py", {"auto"}),
        ("preprocessing/scaling.py", FAMILY),
        ("ihmm/weights.py", set(RUNS)),
        ("preprocessing/feature_terms.py", set(RUNS)),
        ("distributions/mixture.py", set(RUNS)),
    ],
)
def test_an_edit_of_what_decides_numbers_is_noticed(source: Path, file: str, models: set[str]):
    line = "from __future__ import annotations\n"
    found = changed(source, file, line, line + "\n_EDITED = 1\n")
    assert found == models


@pytest.mark.parametrize(
    "file",
    [
        "cli/commands.py",
        "cli/snapshots.py",
        "report/__init__.py",
        "plotting/__init__.py",
        "core/display.py",
        "core/exceptions.py",
        "core/warnings.py",
        "serialization/snapshot.py",
        "serialization/container.py",
        "core/explain.py",
        "core/advice.py",
        "ensemble/explain.py",
        "panel.py",
        "tuning/__init__.py",
        "__init__.py",
    ],
)
def test_an_edit_of_texts_does_not_change_the_state(source: Path, file: str):
    line = "from __future__ import annotations\n"
    assert changed(source, file, line, line + "\n_EDITED = 1\n") == set()


def test_comments_docstrings_and_layout_do_not_count(source: Path):
    kernel = "ihmm/algorithm.py"
    line = "from __future__ import annotations\n"
    assert changed(source, kernel, line, f"# A comment.\n\n\n{line}") == set()
    parts = (source / "regimekit" / kernel).read_text().split('"""')
    assert changed(source, kernel, parts[1], "Said in other words.") == set()
    assert changed(source, kernel, f'"""{parts[3]}"""', '"""In other words."""') == set()


def test_types_alone_are_no_import(tmp_path: Path):
    file = tmp_path / "one.py"
    file.write_text(
        "from typing import TYPE_CHECKING\nimport regimekit as rk\n"
        "if TYPE_CHECKING:\n    from regimekit.report import page\n"
        "def f():\n    from regimekit.preprocessing import scaling\n"
        "    return rk.features, rk.bocd\n"
    )
    assert state.imported(file) == (
        "regimekit",
        "regimekit.baselines.bocd",
        "regimekit.preprocessing.features",
        "regimekit.preprocessing.scaling",
    )


def test_the_code_of_a_model_is_what_it_imports():
    family = {code_state(Part("iid_t", model)) for model in ("br_ihmm", "wolf_ihmm", "ihmm")}
    others = {code_state(Part("iid_t", model)) for model in ("auto", "bocd")}
    assert len(family) == 1 and len(family | others) == 3
    asked = {code_state(Part(name, "x")) for name in probes.PROBES}
    assert len(asked) == len(probes.PROBES)


def test_a_probe_depends_on_the_models_it_asks():
    for name in ("untuned", "bursts", "auto"):
        found = state.reached(state.imported(probes.PROBES[name].source))
        assert {"regimekit.ihmm.algorithm", "regimekit.ihmm.makers"} <= found, name
    stressed = probes.PROBES["stress"]
    assert set(stressed.models) == {model for model, _ in probes.STRESSED.values()}
    found = state.reached(
        [*state.imported(stressed.source), *(MODULES[name] for name in stressed.models)]
    )
    assert "regimekit.ihmm.algorithm" in found and "regimekit.ensemble.aggregation" not in found
