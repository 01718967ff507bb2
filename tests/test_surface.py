"""The public surface: names found when asked for, none hides a subpackage."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import regimekit as rk

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"numpy", "scipy", "narwhals", "duckdb", "pandas", "matplotlib", "pooch", "optuna"}


def modules_after(code: str) -> set[str]:
    """Top-level modules that are loaded in a fresh interpreter after `code`."""
    show = "import sys; print('\\n' + ' '.join({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_import_loads_nothing_heavy() -> None:
    assert not modules_after("import regimekit") & HEAVY


def test_package_citation_and_project_have_one_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert citation is not None
    assert rk.__version__ == citation[1] == project


def test_every_public_name_is_there_and_listed() -> None:
    for name in rk.__all__:
        assert getattr(rk, name) is not None
    assert set(rk.__all__) <= set(dir(rk))
    with pytest.raises(AttributeError, match="br_ihm'"):
        _ = rk.br_ihm  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", ["regimekit.core.registry", "regimekit.metrics", "regimekit"])
def test_names_work_whatever_is_imported_first(first: str) -> None:
    code = f"import {first}, regimekit as rk\nassert 'ihmm' in rk.models() and callable(rk.tune)"
    assert "regimekit" in modules_after(code + "\nfrom regimekit import br_ihmm, data, models")


def test_no_public_name_hides_a_submodule() -> None:
    for module in pkgutil.iter_modules(rk.__path__):
        if module.name in rk.__all__:
            assert getattr(rk, module.name) is importlib.import_module(f"regimekit.{module.name}")
