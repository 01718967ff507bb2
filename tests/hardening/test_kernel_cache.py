"""Compiled kernels on disk: when they are made anew, and what a damaged file does."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regimekit
from regimekit import _numba
from regimekit.core import logspace

pytestmark = pytest.mark.skipif(bool(_numba.config.DISABLE_JIT), reason="nothing is compiled")

PACKAGE = {
    "__init__.py": "",
    "shapes.py": "class Batch(NamedTuple):\n    live: int\n    score: float\n",
    "limits.py": "LONGEST = 1e150\n",
    "inner/__init__.py": "from regimekit.limits import LONGEST\n",
    "inner/deep.py": "FAR = 1\n",
    "lazy.py": "LATE = 1\n",
    "door.py": "import regimekit.kernels\n",
    "kernels.py": (
        "from regimekit.shapes import (\n    Batch,  # (a comment)\n    Other as Another,\n)\n"
        "from regimekit.inner import LONGEST, deep\n"
        "def late():\n    import regimekit.lazy\n"
        "@kernel\ndef f(b): return b.live\n"
    ),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package of the same name, whose keys are asked for."""
    for name, text in PACKAGE.items():
        path = tmp_path / "regimekit" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(_numba, "_SOURCE", tmp_path)
    return tmp_path / "regimekit"


def key(module: str = "regimekit.kernels") -> str:
    for remembered in (_numba._folder_name, _numba._path, _numba._imports):
        remembered.cache_clear()
    return str(_numba._folder_name(module))


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    for remembered in (_numba._folder_name, _numba._path, _numba._imports):
        remembered.cache_clear()


def test_swapped_fields_in_a_file_without_a_kernel_change_the_key(package: Path) -> None:
    before = key()
    shapes = package / "shapes.py"
    first, live, score = shapes.read_text().splitlines()
    shapes.write_text("\n".join([first, score, live]))
    assert key() != before


@pytest.mark.parametrize("name", ["limits.py", "inner/__init__.py", "inner/deep.py", "lazy.py"])
def test_every_file_that_is_reached_is_in_the_key(package: Path, name: str) -> None:
    """By a name of a package, by a module of it, over several lines, inside a function."""
    before = key()
    (package / name).write_text(PACKAGE[name] + "\nMORE = 2\n")
    assert key() != before


def test_files_that_are_not_reached_are_not(package: Path) -> None:
    before = key()
    (package / "door.py").write_text("import regimekit.kernels  # more\n")
    assert key() == before and key("regimekit.door") != before


def test_versions_are_in_the_key(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key()
    monkeypatch.setattr(_numba, "_VERSIONS", ("another",))
    assert key() != before


def modules() -> list[types.ModuleType]:
    """All of the package with kernels in them."""
    found = pkgutil.walk_packages(regimekit.__path__, "regimekit.")
    names = [m.name for m in found if "@kernel" in _source(m.name)]
    return [importlib.import_module(name) for name in names]


def _source(name: str) -> str:
    path = _numba._path(name)
    return "" if path is None else path.read_text()


def test_what_kernel_modules_use_is_in_their_keys() -> None:
    """Classes, functions and modules of the package that a kernel's globals name."""
    checked = 0
    for module in modules():
        reached = _numba._sources(module.__name__)
        for value in vars(module).values():
            home = value if isinstance(value, types.ModuleType) else _home(value)
            if home is not None and home.__name__.startswith("regimekit."):
                assert Path(str(home.__file__)) in reached, (module.__name__, home.__name__)
                checked += 1
    assert checked > 50


def _home(value: Any) -> types.ModuleType | None:
    return sys.modules.get(getattr(value, "__module__", None) or "")


def test_imports_are_written_out_in_full() -> None:
    """The key follows `from regimekit.x import y`; a relative import it would not see."""
    for path in Path(regimekit.__file__).parent.rglob("*.py"):
        assert "\nfrom ." not in path.read_text(), path


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, empty."""
    monkeypatch.setattr(_numba, "_roots", lambda: (tmp_path,))
    return tmp_path


def compiled() -> Any:
    """A kernel as a new process would have it."""
    return _numba.kernel(logspace.logsumexp.py_func)


def hits(function: Any) -> int:
    assert function(np.zeros(4), 4) == pytest.approx(np.log(4.0))
    return sum(function.stats.cache_hits.values())


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "cut": lambda whole: whole[: len(whole) // 2],
    "short": lambda whole: whole[:-1],
    "garbage": lambda whole: b"garbage" * 500,
    "zeros": lambda whole: bytes(len(whole)),
    "one bit": lambda w: w[: len(w) // 2] + bytes([w[len(w) // 2] ^ 1]) + w[len(w) // 2 + 1 :],
    "its end": lambda whole: whole[:-9] + bytes(9),
}


@pytest.mark.parametrize("damage", list(DAMAGE))
def test_a_damaged_file_is_compiled_anew(shelf: Path, damage: str) -> None:
    assert hits(compiled()) == 0 and hits(compiled()) == 1
    files = list(shelf.rglob("*.nb?"))
    assert len(files) == 1
    files[0].write_bytes(DAMAGE[damage](files[0].read_bytes()))
    assert hits(compiled()) == 0, "damaged code was used"
    assert hits(compiled()) == 1, "the damaged file was not replaced"


def test_a_folder_in_the_place_of_a_file_is_survived(shelf: Path) -> None:
    hits(compiled())
    (file,) = shelf.rglob("*.nbc")
    file.unlink()
    file.mkdir()
    assert hits(compiled()) == 0
    assert not list(shelf.rglob("*.part"))


def test_signatures_do_not_get_in_each_others_way(shelf: Path) -> None:
    function = compiled()
    function(np.zeros(3), 3)
    function(np.zeros(3, np.float32), 3)
    assert len(list(shelf.rglob("*.nbc"))) == 2
    assert hits(compiled()) == 1
    function._cache.flush()
    assert not list(shelf.rglob("*.nbc"))


TWICE = """
import hashlib
import numpy as np
import regimekit as rk
from regimekit.emissions import eager
rng = np.random.default_rng(0)
X = rng.standard_normal((120, 2))
y = np.repeat([0.0, 4.0], 60) + X @ [0.3, -0.2] + 0.3 * rng.standard_normal(120)
y[30], y[70:73] = 1e6, np.nan
features = rk.features.intercept() + rk.features.columns() + rk.features.lags(1, 3)
model = rk.bocd(features=features, weight="imq", max_run_lengths=40)
run = model.run(y, X)
told = b"".join(a.tobytes() for a in (run.mean, run.sd, run.log_score, run.weight))
print(hashlib.sha256(told + model.to_bytes()).hexdigest())
print(sum(eager._advance.stats.cache_hits.values()))
"""


@pytest.mark.slow
def test_the_process_that_compiles_and_the_next_agree_to_the_last_bit(tmp_path: Path) -> None:
    """Forecasts, scores and the state; recovery by replay relies on it."""
    environment = os.environ | {
        "REGIMEKIT_CACHE": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    told = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", TWICE], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        told.append(done.stdout.split())
    (first, compiled_hits), (second, read_hits) = told
    assert compiled_hits == "0" and int(read_hits) > 0, "the second did not read what was compiled"
    assert first == second


def test_kernels_keep_to_strict_arithmetic() -> None:
    """Rearranged sums would differ between a kernel compiled alone and inside its caller."""
    checked = 0
    for module in modules():
        for value in vars(module).values():
            if hasattr(value, "py_func") and value.__module__ == module.__name__:
                options = value.targetoptions
                assert not options.get("fastmath") and not options.get("parallel"), value
                checked += 1
    assert checked > 50
