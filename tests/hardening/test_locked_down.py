"""Places where little may be written: an unprivileged user, no home, a read-only source.

The package is copied to a folder that nobody may write to and used by a process without
privileges. Permission bits do not bind root: run by root, the process first loads what the package
needs (the interpreter itself may be closed to others), then becomes user 65534 and imports the
package anew.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import regimekit
from regimekit import _numba

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(os, "getuid"), reason="users and modes are those of Unix"),
    pytest.mark.skipif(bool(_numba.config.DISABLE_JIT), reason="nothing is compiled"),
]

NOBODY, STRANGER = 65534, 54321  # the second is in no list of users
DROP = """
import os, sys
import numpy as np
wanted = os.environ.pop("REGIMEKIT_CACHE", None)
os.environ["REGIMEKIT_CACHE"] = os.environ.pop("CACHE_OF_ROOT")
import regimekit as rk
from regimekit import logspace
logspace.logsumexp(np.zeros(3), 3)
rk.make("last_value").run([1.0])
for name in [name for name in sys.modules if name.partition(".")[0] == "regimekit"]:
    del sys.modules[name]
del os.environ["REGIMEKIT_CACHE"], rk, logspace
if wanted is not None:
    os.environ["REGIMEKIT_CACHE"] = wanted
sys.path.insert(0, os.environ["SOURCE"])
uid = int(os.environ["BECOME"])
os.setgroups([])
os.setgid(uid)
os.setuid(uid)
"""
USE = """
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    import regimekit as rk
    import regimekit._numba  # names are looked up when they are asked for; this one asks for room
    regimekit._numba.cache_root()
import numpy as np
from regimekit import _numba, logspace
print("value", round(float(logspace.logsumexp(np.zeros(3), 3)), 6))
print("hits", sum(logspace.logsumexp.stats.cache_hits.values()))
print("root", _numba.cache_root())
print("source", rk.__file__)
rk.make("last_value").run([1.0, 2.0])
for warning in told:
    print("told", warning.category.__name__, warning.message)
"""


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that anyone may look into, with a copy of the package that nobody may write to."""
    folder = Path(tempfile.mkdtemp(prefix="locked-"))
    source = Path(regimekit.__file__).parent
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, folder / "source" / "regimekit", ignore=leave)
    (folder / "home").mkdir()
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield folder
    for path in [folder, *(p for p in folder.rglob("*") if p.is_dir())]:
        path.chmod(0o755)
    shutil.rmtree(folder)


def used(place: Path, uid: int = NOBODY, code: str = USE, **environment: str) -> dict[str, Any]:
    """What a process without privileges prints: lines by their first word."""
    own = {"PATH": os.defpath, "PYTHONPATH": str(place / "source")}
    if os.getuid() == 0:
        code = DROP + code
        own = {"PATH": os.defpath, "SOURCE": str(place / "source"), "BECOME": str(uid)}
        own["CACHE_OF_ROOT"] = str(_numba.cache_root().resolve())
    run = subprocess.run(
        [sys.executable, "-B", "-c", code],
        env=own | environment,
        cwd=place,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    lines: dict[str, Any] = {"told": [], "noise": run.stderr}
    for word, _, rest in (line.partition(" ") for line in run.stdout.splitlines()):
        if word == "told":
            lines["told"].append(rest)
        else:
            lines[word] = rest
    assert lines["source"].startswith(str(place))
    return lines


@pytest.mark.parametrize("home", ["unset", "read-only", "nowhere"])
def test_import_works_with_one_warning(place: Path, home: str) -> None:
    environment = {
        "unset": {},
        "read-only": {"HOME": str(place / "home")},
        "nowhere": {"HOME": "/none/here"},
    }[home]
    if home == "unset" and os.getuid() != 0:
        environment = {"HOME": str(place / "home")}  # ours may have a home by its entry
    found = used(place, **environment)
    assert found["value"] == "1.098612" and found["noise"] == ""
    (warning,) = found["told"]
    assert warning.startswith("RuntimeWarning") and "REGIMEKIT_CACHE" in warning
    assert Path(found["root"]).name.startswith("regimekit-")
    assert not Path(found["root"]).exists(), "the temporary folder outlived its process"


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs another user")
def test_a_user_without_an_entry_or_a_home(place: Path) -> None:
    found = used(place, uid=STRANGER)
    assert found["value"] == "1.098612"
    (warning,) = found["told"]
    assert "no home folder" in warning


def test_not_even_a_temporary_folder(place: Path) -> None:
    nothing = (
        "import tempfile\ndef no(*a, **k): raise OSError('read-only')\ntempfile.mkdtemp = no\n"
    )
    found = used(place, code=nothing + USE, HOME=str(place / "home"))
    assert found["value"] == "1.098612" and found["hits"] == "0" and len(found["told"]) == 1


def test_a_cache_that_was_filled_beforehand_is_used_though_it_cannot_be_written(
    place: Path,
) -> None:
    """As in an image whose build filled the cache."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        first = used(place, REGIMEKIT_CACHE=folder)
        assert first["told"] == [] and first["hits"] == "0" and first["root"] == folder
        inside = [Path(folder), *(p for p in Path(folder).rglob("*") if p.is_dir())]
        for path in inside:
            path.chmod(0o555)
        try:
            second = used(place, REGIMEKIT_CACHE=folder)
        finally:
            for path in inside:
                path.chmod(0o755)
    assert second["hits"] == "1" and len(second["told"]) == 1
