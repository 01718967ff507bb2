"""Files: two writers at once, a process killed while it saves, a disk that fails."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import crafted
import pytest

import regimekit as rk
from regimekit.serialization import snapshot

# Without the package's own imports: it is the file that is under test, and it starts at once.
WRITER = """
import sys, time, types
from pathlib import Path
sys.modules["regimekit"] = package = types.ModuleType("regimekit")
package.__path__ = [sys.argv[4]]
from regimekit.serialization.snapshot import write_file
path, letter, seconds = Path(sys.argv[1]), sys.argv[2].encode(), float(sys.argv[3])
end = time.monotonic() + seconds
print("ready", flush=True)
while time.monotonic() < end:
    write_file(path, letter * int(sys.argv[5]))
"""

SIZE = 4_000_000  # long enough to be met half written
PACKAGE = str(Path(snapshot.__file__).parent.parent)


def writer(path: Path, letter: str, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), letter, str(seconds), PACKAGE, str(SIZE)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    return process


def whole(content: bytes) -> bool:
    return len(content) == SIZE and len(set(content)) == 1


def test_two_writers_never_tear_a_file(tmp_path: Path) -> None:
    """Every read finds one writer's file or the other's, whole; nothing is left over."""
    path = tmp_path / "model"
    snapshot.write_file(path, b"c" * SIZE)
    both = [writer(path, letter, 1.5) for letter in "ab"]
    found = set()
    while any(process.poll() is None for process in both):
        content = path.read_bytes()
        assert whole(content)
        found.add(content[:1])
    assert all(process.wait() == 0 and process.stdout.close() is None for process in both)
    assert {b"a", b"b"} <= found
    assert os.listdir(tmp_path) == ["model"]


def test_a_killed_save_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "model"
    snapshot.write_file(path, b"c" * SIZE)
    for wait in (0.0, 0.003, 0.011, 0.02, 0.037, 0.05):
        process = writer(path, "a", 60)
        time.sleep(wait)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL and process.stdout is not None
        process.stdout.close()
        assert whole(path.read_bytes())
    snapshot.write_file(path, b"d" * SIZE)  # what a killed writer left is in nobody's way
    assert path.read_bytes() == b"d" * SIZE


@pytest.mark.parametrize("step", ["fsync", "replace", "chmod", "fdopen"])
def test_a_failed_save_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "model"
    model = rk.from_bytes(crafted.stored("bocd"))
    model.save(path)
    before = path.read_bytes()
    model.update(1.0, crafted.X0)

    def fail(*_: object, **__: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, step, fail)
        with pytest.raises(OSError, match="disk full"):
            model.save(path)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model"]


def test_file_and_folder_reach_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def note(handle: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    monkeypatch.setattr(os, "fsync", note)
    snapshot.write_file(tmp_path / "model", b"content")
    assert synced == ["file", "folder"]


def test_permissions_are_those_of_any_file(tmp_path: Path) -> None:
    path, plain = tmp_path / "model", tmp_path / "plain"
    plain.write_bytes(b"")
    snapshot.write_file(path, b"1")
    assert path.stat().st_mode == plain.stat().st_mode
    path.chmod(0o640)
    snapshot.write_file(path, b"2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
