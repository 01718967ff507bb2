"""The public surface: names found when asked for, none hides a subpackage."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import holdfast as hf

HEAVY = {"numpy", "scipy", "numba", "narwhals", "duckdb", "pandas", "matplotlib", "pooch", "optuna"}


def modules_after(code: str) -> set[str]:
    """Top-level modules that are loaded in a fresh interpreter after `code`."""
    show = "import sys; print('\\n' + ' '.join({name.split('.')[0] for name in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_import_loads_nothing_heavy() -> None:
    assert not modules_after("import holdfast") & HEAVY


def test_every_public_name_is_there_and_listed() -> None:
    for name in hf.__all__:
        assert getattr(hf, name) is not None
    assert set(hf.__all__) <= set(dir(hf))
    with pytest.raises(AttributeError, match="br_ihm'"):
        _ = hf.br_ihm  # type: ignore[attr-defined]


@pytest.mark.parametrize("first", ["holdfast.models.registry", "holdfast.evaluate", "holdfast"])
def test_names_work_whatever_is_imported_first(first: str) -> None:
    code = f"import {first}, holdfast as hf\nassert 'ihmm' in hf.models() and callable(hf.tune)"
    assert "holdfast" in modules_after(code + "\nfrom holdfast import br_ihmm, data, models")


def test_no_public_name_hides_a_submodule() -> None:
    for module in pkgutil.iter_modules(hf.__path__):
        if module.name in hf.__all__:
            assert getattr(hf, module.name) is importlib.import_module(f"holdfast.{module.name}")
