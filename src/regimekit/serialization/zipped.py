"""Format 1: a zip with `header.json` and one `NAME.npy` for each array. Read, no longer written."""

from __future__ import annotations

import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.serialization import LARGEST, LARGEST_HEADER, MOST_ARRAYS, not_whole
from regimekit.serialization.validation import Arrays

_HEADER = "header.json"
# What zipfile raises on damaged bytes; the last two where they ask for a method it has not.
# NotImplementedError: a compression that zipfile does not know; RuntimeError: an encrypted file.
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError)
# An .npy member as it was written: its dictionary is matched, never evaluated.
_NPY = re.compile(
    rb"\x93NUMPY\x01\x00(?s:..)\{'descr': '([<>|][fib]\d)', 'fortran_order': (True|False), "
    rb"'shape': \(([\d, ]{0,200})\), \} *\n"
)


def read(data: bytes) -> tuple[bytes, Arrays]:
    """The header's text, and the arrays still in their archive."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (*_DAMAGE, ValueError) as error:
        raise not_whole(f"{len(data)} bytes", error) from None
    members = _members(archive)
    header = _inflated(archive, members.pop(_HEADER), LARGEST_HEADER)
    return header, ZippedArrays(archive, {n.removesuffix(".npy"): m for n, m in members.items()})


class ZippedArrays(Arrays):
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


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The members by name, of which there may be so many and so much."""
    listed = archive.infolist()
    members = {info.filename: info for info in listed}
    if _HEADER not in members:
        raise SnapshotError("This is a zip file but not a regimekit snapshot: no header.")
    if len(members) < len(listed) or len(listed) > MOST_ARRAYS:
        raise SnapshotError("The snapshot is garbled: it has a part twice, or too many parts.")
    size = sum(info.file_size for info in listed)
    if size > LARGEST + LARGEST_HEADER:
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
        raise not_whole(member.filename, error) from None
