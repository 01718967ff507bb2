"""One file for a model's whole state: a header of JSON values and plain arrays. No pickle.

    header   magic, format version, model name, its state's version, settings, JSON state
    arrays   floats, whole numbers and flags by name

A snapshot is written in the current FORMAT and read in every format up to it (`containers`). What
is read may come from anywhere: sizes are compared with a limit before anything is inflated, an
array is made when a model asks for it by kind and shape (`checks`), and nothing in it is evaluated.
"""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, SnapshotError
from regimekit.serialization import LARGEST, compact, zipped
from regimekit.serialization.validation import LATEST, Arrays, Values

MAGIC = "regimekit snapshot"
FORMAT = compact.FORMAT
_WRITERS = {1: "0.1"}  # the release that wrote a version of a model's state


class Content(NamedTuple):
    """What a snapshot holds. `state` is the version of the model's own values and arrays."""

    model: str
    settings: dict[str, Any]
    values: Values
    arrays: Arrays
    state: int = 1

    def check_state(self, wanted: int) -> None:
        """Raise if the model's state is of another version than this regimekit reads."""
        if self.state == wanted:
            return
        other = "an earlier one" if self.state < wanted else "a newer one"
        writer = f"regimekit {_WRITERS[self.state]}" if self.state in _WRITERS else other
        raise SnapshotError(
            f"The snapshot's {self.model} is of state version {self.state}, which {writer} wrote; "
            f"this regimekit reads version {wanted}. Read it with {writer}."
        )

    def refuse_unread(self) -> None:
        """Raise if something in it was not asked for."""
        self.values.refuse_unread()
        self.arrays.refuse_unread()


def write(
    model: str,
    settings: dict[str, Any],
    values: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    state: int = 1,
) -> bytes:
    """Pack a model's name, settings, JSON values and arrays."""
    size = sum(np.asarray(array).nbytes for array in arrays.values())
    if size > LARGEST:
        raise RegimekitError(f"The model holds {size:.2g} bytes; a snapshot takes {LARGEST:.2g}.")
    # Counts that reached the largest one that is read stay there.
    arrays = {name: _saturated(array) for name, array in arrays.items()}
    values = {name: min(v, LATEST) if type(v) is int else v for name, v in values.items()}
    header = {
        "magic": MAGIC,
        "format": FORMAT,
        "model": model,
        "state": state,
        "settings": settings,
        "values": values,
    }
    return compact.write(header, arrays)


def _saturated(array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype == np.int64 and array.size and array.max() > LATEST:
        return np.minimum(array, LATEST)
    return array


def read(data: bytes) -> Content:
    """Unpack what `write` packed, now or in an earlier release, or say why that cannot be done."""
    arrays: Arrays
    if data.startswith(compact.MAGIC):
        found, arrays = compact.read(data)
    else:
        text, arrays = zipped.read(data)
        found = _parsed(text)
    header = _checked(found)
    values = Values(header["values"])
    return Content(header["model"], header["settings"], values, arrays, header["state"])


def write_file(path: Path, data: bytes) -> None:
    """Write all or nothing: whatever happens, `path` is the earlier file or the new one, whole.

    The temporary file has a name of its own, so that two writers never share one; file and folder
    reach the disk before this returns.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, _mode(path))
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def _mode(path: Path) -> int:
    """The permissions of the file that is replaced, or those of any new file."""
    try:
        return path.stat().st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def _sync_folder(folder: Path) -> None:
    """Bring a renaming to the disk, where the system lets a folder be opened."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SnapshotError("The snapshot's header is not readable JSON.") from None


def _checked(header: Any) -> dict[str, Any]:
    if not isinstance(header, dict) or header.get("magic") != MAGIC:
        raise SnapshotError("This is not a regimekit snapshot: its header says something else.")
    version = header.get("format")
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise SnapshotError(
            f"The snapshot has format {version}; this regimekit reads up to {FORMAT}. "
            "Update regimekit to read it."
        )
    header.setdefault("state", 1)  # 0.1.0 did not write it
    for field, kind in (("model", str), ("state", int), ("settings", dict), ("values", dict)):
        if field not in header:
            raise SnapshotError(f"The snapshot's header lacks {field}.")
        if type(header[field]) is not kind:
            raise SnapshotError(
                f"The snapshot's header garbles the {field}: {str(header[field])[:60]!r}."
            )
    return header
