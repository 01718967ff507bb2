"""The snapshot of a model: name, settings, version and values of its state, and arrays. No pickle.

`container` has the bytes. They may come from any source: an array is read only when a model
requests it by kind, shape and range (`validation`), and nothing is evaluated.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, SnapshotError
from regimekit.core.limits import MAX_SNAPSHOT_BYTES
from regimekit.serialization import container
from regimekit.serialization.validation import LATEST, Arrays, Values

_FIELDS = (("model", str), ("state", int), ("settings", dict), ("values", dict))


class Snapshot(NamedTuple):
    """Content of a snapshot; `state` is the version of the model's values and arrays."""

    model: str
    settings: dict[str, Any]
    values: Values
    arrays: Arrays
    state: int = 1

    def check_state(self, wanted: int) -> None:
        """Raise SnapshotError if the state has another version than this regimekit reads."""
        if self.state != wanted:
            age = "an earlier" if self.state < wanted else "a newer"
            raise SnapshotError(
                f"The snapshot's {self.model} has state version {self.state}, written by {age} "
                f"version of regimekit; this one reads version {wanted}. Run the model over its "
                "data again, or use that version."
            )

    def refuse_unread(self) -> None:
        """Raise SnapshotError if a value or array was not requested."""
        self.values.refuse_unread()
        self.arrays.refuse_unread()


def write(
    model: str,
    settings: dict[str, Any],
    values: dict[str, Any],
    arrays: dict[str, NDArray[Any]],
    state: int = 1,
) -> bytes:
    """Return the snapshot of a model.

    Raises:
        RegimekitError: if a setting is a function, or if the arrays are larger than those of a
            snapshot that can be read.
    """
    for name, value in settings.items():
        if callable(value):
            raise RegimekitError(
                f"A model whose {name} is a function cannot be saved: a snapshot contains no code."
            )
    size = sum(np.asarray(array).nbytes for array in arrays.values())
    if size > MAX_SNAPSHOT_BYTES:
        raise RegimekitError(
            f"The state of the model has {size:.2g} bytes; a snapshot has at most "
            f"{MAX_SNAPSHOT_BYTES:.2g}."
        )
    # Counts above the largest that is read are stored as that.
    arrays = {
        name: np.minimum(array, LATEST) if array.dtype == np.int64 else array
        for name, array in arrays.items()
    }
    values = {name: min(v, LATEST) if type(v) is int else v for name, v in values.items()}
    header = {"model": model, "state": state, "settings": settings, "values": values}
    return container.write(header, arrays)


def read(data: bytes) -> Snapshot:
    """Return the content of a snapshot.

    Args:
        data: bytes from any source.

    Raises:
        SnapshotError: if the bytes are not a snapshot of the present format.
    """
    header, arrays = container.read(data)
    for field, kind in _FIELDS:
        if type(header.get(field)) is not kind:
            raise SnapshotError(
                f"Invalid snapshot: {field} must be a {kind.__name__}, got "
                f"{str(header.get(field))[:60]!r}."
            )
    values = Values(header["values"])
    return Snapshot(header["model"], header["settings"], values, arrays, header["state"])


def write_file(path: Path, data: bytes) -> None:
    """Replace a file atomically: after a crash it is the previous file or the complete new one.

    The temporary file has a unique name, so two processes can write at once. File and folder are on
    the disk when this returns.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        try:
            mode = path.stat().st_mode & 0o777
        except OSError:  # a new file
            mask = os.umask(0)
            os.umask(mask)
            mode = 0o666 & ~mask
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    with suppress(OSError):  # not every system opens folders
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
