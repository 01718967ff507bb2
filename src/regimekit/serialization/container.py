"""The container of a snapshot: a JSON header and arrays, each compressed by zlib.

    magic     9 bytes, "regimekit"
    format    1 byte
    sizes     2 x 4 bytes, little-endian: the header decompressed, the header compressed
    header    JSON: values by name, and "arrays": [type, compressed bytes, length, ..] by name
    arrays    in the order of the header

Types are those of NumPy, little-endian: f8, i1, i2, i4, i8, b1. Integers are stored in the
smallest type. "p8" is f8 by byte planes: the first bytes of all numbers, then the second ones, and
so on, which zlib compresses better if few numbers repeat.

The bytes may come from any source. Sizes are compared with limits before anything is decompressed,
and an array is decompressed only when a model requests it with the shape that is stored.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.core.limits import MAX_SNAPSHOT_BYTES
from regimekit.serialization.validation import Arrays

MAGIC = b"regimekit"
FORMAT = 4
MAX_HEADER_BYTES = 2**24
MAX_ARRAYS = 1000
_SIZES = struct.Struct("<II")
_START = len(MAGIC) + 1
_PLANES = "p8"
_MIN_DISTINCT = 0.8  # share of different numbers from which byte planes are shorter
_INTEGERS = ("i1", "i2", "i4", "i8")
_KINDS = {_PLANES: "f", "f8": "f", "b1": "b", **dict.fromkeys(_INTEGERS, "i")}
_WIDE = {"f": np.float64, "i": np.int64, "b": np.bool_}


class _Entry(NamedTuple):
    """A compressed array."""

    code: str
    shape: tuple[int, ...]
    packed: bytes

    @property
    def stored(self) -> np.dtype[Any]:
        return np.dtype("<f8" if self.code == _PLANES else f"<{self.code}")

    @property
    def size(self) -> int:
        """Number of bytes after decompression."""
        return math.prod(self.shape) * self.stored.itemsize


def write(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the container of a header and arrays.

    Args:
        header: JSON values.
        arrays: arrays of numbers and flags by name.
    """
    table: dict[str, list[Any]] = {}
    content: list[bytes] = []
    for name, array in arrays.items():
        code, packed = _compressed(np.asarray(array))
        table[name] = [code, len(packed), *np.shape(array)]
        content.append(packed)
    return sealed(json.dumps({**header, "arrays": table}, separators=(",", ":")).encode(), content)


def sealed(text: bytes, arrays: Iterable[bytes] = ()) -> bytes:
    """Return the container of encoded parts."""
    packed = zlib.compress(text)
    return b"".join((MAGIC, bytes([FORMAT]), _SIZES.pack(len(text), len(packed)), packed, *arrays))


def _compressed(array: NDArray[Any]) -> tuple[str, bytes]:
    """Return the type and the compressed bytes of an array."""
    if array.dtype.kind == "b":
        return "b1", zlib.compress(array.tobytes())
    if array.dtype.kind == "i":
        code = "i1"
        if array.size:
            low, high = int(array.min()), int(array.max())
            ranges = ((code, np.iinfo(code)) for code in _INTEGERS)
            code = next(code for code, r in ranges if r.min <= low and high <= r.max)
        return code, zlib.compress(array.astype(f"<{code}").tobytes())
    numbers = np.ascontiguousarray(array, "<f8").reshape(-1)
    if np.unique(numbers.view(np.int64)).size > _MIN_DISTINCT * numbers.size:
        return _PLANES, zlib.compress(numbers.view(np.uint8).reshape(-1, 8).T.tobytes())
    return "f8", zlib.compress(numbers.tobytes())


def read(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """Return the header without the table of arrays, and the arrays, still compressed.

    Args:
        data: bytes from any source.

    Raises:
        SnapshotError: if the bytes are no container of this format.
    """
    if not data.startswith(MAGIC):
        raise SnapshotError(
            "The data are not a regimekit snapshot, or are truncated. Snapshots of version 0.2 and "
            "earlier are not supported: run the model over its data again."
        )
    if data[_START - 1 : _START] != bytes([FORMAT]):
        raise SnapshotError(
            f"The snapshot is truncated, or its format is not {FORMAT}, the only one that this "
            "version of regimekit reads."
        )
    text, rest = _open_header(data)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise SnapshotError("The snapshot's header is not readable JSON.") from None
    if not isinstance(header, dict):
        raise SnapshotError("Invalid snapshot: the header must be a JSON object.")
    return header, CompressedArrays(_read_table(header.pop("arrays", None), rest))


def _open_header(data: bytes) -> tuple[bytes, bytes]:
    """Return the text of the header, and the bytes after it."""
    try:
        size, packed = _SIZES.unpack_from(data, _START)
    except struct.error as error:
        raise damaged(f"{len(data)} bytes", error) from None
    if size > MAX_HEADER_BYTES:
        raise SnapshotError(
            f"The snapshot's header has {size} bytes; at most {MAX_HEADER_BYTES} are allowed."
        )
    first = _START + _SIZES.size
    return decompressed(data[first : first + packed], size, "header"), data[first + packed :]


def damaged(part: str, error: object) -> SnapshotError:
    """Return the error for bytes that are not a complete snapshot."""
    return SnapshotError(f"The snapshot ({part}) is truncated or damaged: {error}.")


def decompressed(packed: bytes, size: int, part: str) -> bytes:
    """Return decompressed bytes; no more memory than their expected number is used.

    Args:
        packed: compressed bytes.
        size: exact number of bytes after decompression.
        part: name for error messages.
    """
    stream = zlib.decompressobj()
    try:
        # The checksum is compared only at the end of the stream, hence one byte more.
        content = stream.decompress(packed, size + 1)
    except zlib.error as error:
        raise damaged(part, error) from None
    if len(content) != size or not stream.eof or stream.unused_data:
        raise damaged(part, "its length differs from the stored one")
    return content


def _read_table(table: Any, content: bytes) -> dict[str, _Entry]:
    """Return the entries by name; the bytes of the arrays are not decompressed."""
    if not isinstance(table, dict) or len(table) > MAX_ARRAYS:
        raise SnapshotError(f"Invalid snapshot: arrays must be a table of at most {MAX_ARRAYS}.")
    entries: dict[str, _Entry] = {}
    first = total = 0
    for name, given in table.items():
        match given:
            case [str(code), int(size), *shape] if code in _KINDS and size > 0:
                valid = len(shape) <= 32 and all(type(n) is int and 0 <= n < 2**32 for n in shape)
            case _:
                valid = False
        if not valid:
            raise SnapshotError(f"Invalid snapshot: the type or shape of {name} cannot be read.")
        entry = _Entry(code, tuple(shape), content[first : first + size])
        first, total = first + size, total + entry.size
        entries[name] = entry
    if total > MAX_SNAPSHOT_BYTES:
        raise SnapshotError(
            f"The snapshot's arrays have {total:.2g} bytes; at most {MAX_SNAPSHOT_BYTES:.2g} are "
            "allowed."
        )
    if first != len(content):
        raise damaged("arrays", "their length differs from the stored one")
    return entries


class CompressedArrays(Arrays):
    """Stored arrays, each decompressed when it is requested."""

    def __init__(self, entries: dict[str, _Entry]) -> None:
        super().__init__()
        self._entries = entries

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __missing__(self, name: str) -> NDArray[Any]:
        if name not in self._entries:
            super().__missing__(name)
        entry = self._entries[name]
        content = decompressed(entry.packed, entry.size, name)
        if entry.code == _PLANES:
            content = np.frombuffer(content, np.uint8).reshape(8, -1).T.tobytes()
        numbers = np.frombuffer(content, entry.stored)
        self[name] = numbers.astype(_WIDE[_KINDS[entry.code]]).reshape(entry.shape)
        return self[name]

    def names(self) -> Iterable[str]:
        return self._entries

    def form(self, name: str) -> tuple[str, tuple[int, ...]]:
        entry = self._entries.get(name)
        return super().form(name) if entry is None else (_KINDS[entry.code], entry.shape)
