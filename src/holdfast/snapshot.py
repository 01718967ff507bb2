"""One file for a model's whole state: a JSON header and plain arrays in a zip. No pickle.

    header.json   magic, format version, model name, its state's version, settings, JSON state
    NAME.npy      one member per array

A snapshot is written in the current FORMAT and read in every format up to it. What is read may
come from anywhere: sizes are compared with a limit before anything is inflated, an array is
inflated when a model asks for it by kind and shape (`checks`), and nothing in it is evaluated.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.checks import Arrays, Values
from holdfast.errors import HoldfastError, SnapshotError

MAGIC = "holdfast snapshot"
FORMAT = 1
LARGEST = 2**29  # bytes of all arrays of a snapshot together, inflated
_LARGEST_HEADER = 2**24
_MOST_MEMBERS = 1000
_HEADER = "header.json"
# What zipfile raises on damaged bytes; the last two where they ask for a method it has not.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)
_STAMP = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that equal states are equal bytes
_WRITERS = {1: "0.1"}  # the release that wrote a version of a model's state
# An .npy member as `write` makes it: its dictionary is matched, never evaluated.
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00(?s:..)\{'descr': '([<>|][fib]\d)', 'fortran_order': (True|False), "
    rb"'shape': \(([\d, ]{0,200})\), \} *\n"
)


class Content(NamedTuple):
    """What a snapshot holds. `state` is the version of the model's own values and arrays."""

    model: str
    settings: dict[str, Any]
    values: Values
    arrays: Arrays
    state: int = 1

    def check_state(self, wanted: int) -> None:
        """Raise if the model's state is of another version than this holdfast reads."""
        if self.state == wanted:
            return
        writer = f"holdfast {_WRITERS[self.state]}" if self.state in _WRITERS else "a newer one"
        raise SnapshotError(
            f"The snapshot's {self.model} is of state version {self.state}, which {writer} wrote; "
            f"this holdfast reads version {wanted}. Read it with {writer}."
        )

    def refuse_unread(self) -> None:
        """Raise if something in it was not asked for."""
        self.values.refuse_unread()
        self.arrays.refuse_unread()


def write(
    model: str, settings: dict[str, Any], values: dict[str, Any], arrays: dict[str, NDArray[Any]],
    state: int = 1,
) -> bytes:  # fmt: skip
    """Pack a model's name, settings, JSON values and arrays."""
    size = sum(np.asarray(array).nbytes for array in arrays.values())
    if size > LARGEST:
        raise HoldfastError(f"The model holds {size:.2g} bytes; a snapshot takes {LARGEST:.2g}.")
    header = {
        "magic": MAGIC, "format": FORMAT, "model": model, "state": state, "settings": settings,
        "values": values,
    }  # fmt: skip
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_member(_HEADER), json.dumps(header).encode())
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(array), (1, 0), allow_pickle=False)
            archive.writestr(_member(f"{name}.npy"), buffer.getvalue())
    return target.getvalue()


def read(data: bytes) -> Content:
    """Unpack what `write` packed, or say why that cannot be done."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (*_DAMAGE, ValueError) as error:
        raise _damaged(f"{len(data)} bytes", error) from None
    members = _members(archive)
    header = _header(_inflated(archive, members.pop(_HEADER), _LARGEST_HEADER))
    arrays = StoredArrays(archive, {n.removesuffix(".npy"): m for n, m in members.items()})
    values = Values(header["values"])
    return Content(header["model"], header["settings"], values, arrays, header["state"])


class StoredArrays(Arrays):
    """Arrays still in their archive: each is looked at, then inflated when it is asked for."""

    def __init__(self, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> None:
        super().__init__()
        self._archive, self._members = archive, members

    def __contains__(self, name: object) -> bool:
        return name in self._members

    def __missing__(self, name: str) -> NDArray[Any]:
        if name not in self._members:
            super().__missing__(name)
        start, dtype, shape, by_columns = self._preamble(name)
        content = _inflated(self._archive, self._members[name], LARGEST)
        flat = np.frombuffer(content, dtype, offset=start).astype(dtype.newbyteorder("="))
        array: NDArray[Any] = flat.reshape(shape, order="F" if by_columns else "C")
        self[name] = array
        return array

    def names(self) -> Iterable[str]:
        return self._members

    def form(self, name: str) -> tuple[str, tuple[int, ...]]:
        if name in self.keys() or name not in self._members:
            return super().form(name)
        _, dtype, shape, _ = self._preamble(name)
        return dtype.kind, shape

    def _preamble(self, name: str) -> tuple[int, np.dtype[Any], tuple[int, ...], bool]:
        """Where the numbers begin, their type and shape, and whether columns come first."""
        member = self._members[name]
        found = _NPY.match(_beginning(self._archive, member, 512))
        if found is None:
            raise SnapshotError(f"The snapshot's arrays cannot be read: {name} is not a plain one.")
        try:
            dtype = np.dtype(found[1].decode())
            shape = tuple(int(n) for n in found[3].split(b",") if n.strip())
        except (TypeError, ValueError):
            raise SnapshotError(f"The snapshot's {name} has a garbled type or shape.") from None
        if math.prod(shape) * dtype.itemsize != member.file_size - found.end():
            raise SnapshotError(f"The snapshot's {name} is not as long as its shape {shape} says.")
        return found.end(), dtype, shape, found[2] == b"True"


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


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _STAMP)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members by name, of which there may be so many and so much."""
    listed = archive.infolist()
    members = {info.filename: info for info in listed}
    if _HEADER not in members:
        raise SnapshotError("This is a zip file but not a holdfast snapshot: no header.")
    if len(members) < len(listed) or len(listed) > _MOST_MEMBERS:
        raise SnapshotError("The snapshot is garbled: it has a part twice, or too many parts.")
    size = sum(info.file_size for info in listed)
    if size > LARGEST + _LARGEST_HEADER:
        raise SnapshotError(f"The snapshot says it holds {size:.2g} bytes, over {LARGEST:.2g}.")
    for name, info in members.items():
        if name != _HEADER and not name.endswith(".npy"):
            raise SnapshotError(f"The snapshot has the part {name!r}, which is no array.")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise SnapshotError(f"The snapshot's {name} is packed in a way it never is.")
    return members


def _inflated(archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes:
    """All bytes of a member, which must be as many as the archive says and not too many."""
    if member.file_size > most:
        raise SnapshotError(
            f"The snapshot's {member.filename} says it has {member.file_size:.2g} bytes, over "
            f"{most:.2g}."
        )
    # One more than there may be: the checksum is compared only where the end is seen.
    content = _beginning(archive, member, member.file_size + 1)
    if len(content) != member.file_size:
        raise SnapshotError(f"The snapshot's {member.filename} is truncated.")
    return content


def _beginning(archive: zipfile.ZipFile, member: zipfile.ZipInfo, size: int) -> bytes:
    """At most `size` bytes of a member; no more than that is inflated."""
    try:
        with archive.open(member) as stream:
            return stream.read(size)
    except (*_DAMAGE, ValueError) as error:
        raise _damaged(member.filename, error) from None


def _damaged(what: str, error: Exception) -> SnapshotError:
    return SnapshotError(
        f"Not a whole holdfast snapshot ({what}): truncated, damaged or foreign ({error})."
    )


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise SnapshotError("The snapshot's header is not readable JSON.") from None
    if not isinstance(header, dict) or header.get("magic") != MAGIC:
        raise SnapshotError("This is not a holdfast snapshot: its header says something else.")
    version = header.get("format")
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise SnapshotError(
            f"The snapshot has format {version}; this holdfast reads up to {FORMAT}. "
            "Update holdfast to read it."
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
