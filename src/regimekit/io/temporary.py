"""Temporary folders that also disappear after a process was killed.

A folder contains a file on which its process has a lock. If the process is killed, the system
releases the lock, and the next process that needs a folder in the same place deletes the rest.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from pathlib import Path

_LOCK = "lock"
_GRACE_SECONDS = 60  # a younger folder without a lock may be about to get one


class TemporaryFolder:
    """Temporary folder that is deleted by `close`, or with the last reference to it.

    Args:
        prefix: start of its name.
        parent: folder in which it is created; the system's temporary folder by default.

    Raises:
        OSError: if it cannot be created.
    """

    def __init__(self, prefix: str = "regimekit-", parent: Path | None = None) -> None:
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        _delete_abandoned(parent, prefix)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        lock = os.open(self.path / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self.close = weakref.finalize(self, _close, self.path, lock)

    def files(self) -> list[Path]:
        """Return the paths of all files relative to the folder, in order."""
        found = (path for path in self.path.rglob("*") if path.is_file())
        return sorted(path.relative_to(self.path) for path in found if path.name != _LOCK)


def _close(folder: Path, lock: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    os.close(lock)


def _delete_abandoned(parent: Path, prefix: str) -> None:
    """Delete folders whose process has ended."""
    for folder in parent.glob(f"{prefix}*"):
        try:
            about = folder.lstat()
            if about.st_uid != os.getuid() or folder.is_symlink() or not folder.is_dir():
                continue
            if not (folder / _LOCK).exists():
                if time.time() - about.st_mtime > _GRACE_SECONDS and not any(folder.iterdir()):
                    folder.rmdir()
                continue
            lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(lock)
