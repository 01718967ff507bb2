"""Formats 2 and 3: one JSON header and all numbers of a model, packed together.

    b"regimekit\\x03"   sizes: header, lanes, both packed, noise   (header, lanes) packed   large

The numbers lie in `lanes`, and the header's table says where. Their first bytes are noise: nothing
makes fewer of them, so they stand as they are, with a checksum before them. The rest is deflated,
by a deflate that knows beforehand the words that headers are made of. An array too large for the
lanes is packed in the same way by itself behind them, and inflated only when a model has asked for
it and found its shape right: a few bytes cannot claim much memory.

In format 2, which is only read, nothing was noise, and three sizes were told.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.serialization import LARGEST, LARGEST_HEADER, MOST_ARRAYS, not_whole
from regimekit.serialization.lanes import (
    FORMS,
    KINDS,
    NOISE,
    STORED,
    Lanes,
    Place,
    codes,
    encode,
    turned,
    turned_back,
)
from regimekit.serialization.validation import LATEST, Arrays, Sizes
from regimekit.serialization.words import WORDS

MAGIC = b"regimekit"
FORMAT = 3
MOST_IN_LANES = 2**18  # bytes of the lanes of one snapshot
_LARGE = 2**16  # an array of more bytes is no part of the lanes
_LEVEL = 6
_SIZES = {b"\x02": struct.Struct("<III"), b"\x03": struct.Struct("<IIII")}
_SUM = 4  # bytes of a checksum
_MOST = float(np.finfo(np.float64).max)  # the largest that is not infinite
_VERSION = bytes([FORMAT])
_START = len(MAGIC) + 1


class Large(NamedTuple):
    """An array by itself: the type of its numbers, its shape, its bytes and how many are noise."""

    code: str
    shape: tuple[int, ...]
    packed: bytes
    noise: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) * STORED[self.code].itemsize


def write(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Pack a header of JSON values and arrays of floats, whole numbers, bytes or flags."""
    table: dict[str, dict[str, list[int]]] = {}
    parts: dict[str, list[tuple[str, NDArray[Any]]]] = {}
    large, behind, room = [], [], MOST_IN_LANES
    given = {name: _plain(array) for name, array in arrays.items()}
    for (name, array), code in zip(given.items(), codes(given.values()), strict=True):
        form, entry, own = encode(array, code)
        size = sum(STORED[code].itemsize * numbers.size for code, numbers in own)
        if size > min(room, _LARGE):
            plain = np.ascontiguousarray(array, STORED[code]).reshape(-1)
            behind.append(_packed(turned(plain), _noise(code, plain.size), b""))
            large.append([name, code, len(behind[-1]), list(np.shape(array))])
            continue
        room -= size
        table.setdefault(form, {})[name] = entry
        parts.setdefault(form, []).extend(own)
    lanes = Lanes()
    for form in table:
        for code, numbers in parts[form]:
            lanes.write(code, numbers)
    text = json.dumps({**header, "arrays": table, "large": large}, separators=(",", ":")).encode()
    return sealed(text, *lanes.content(), behind=behind)


def _plain(given: NDArray[Any]) -> NDArray[Any]:
    """Floats or whole numbers of eight bytes; flags and single bytes stay what they are."""
    array = np.asarray(given)
    if array.dtype.kind == "b" or array.dtype == np.int8:
        return array
    return np.asarray(array, np.int64 if array.dtype.kind == "i" else np.float64)


def _noise(code: str, count: int) -> int:
    """How many bytes of so many numbers by themselves are noise."""
    return NOISE * count if code == "f8" else 0


def sealed(text: bytes, body: bytes, noise: int = 0, behind: Sequence[bytes] = ()) -> bytes:
    """Header and lanes packed, with their sizes before them and large arrays behind."""
    packed = _packed(body[:noise] + text + body[noise:], noise, WORDS[FORMAT])
    sizes = _SIZES[_VERSION].pack(len(text), len(body), len(packed), noise)
    return b"".join((MAGIC, _VERSION, sizes, packed, *behind))


def _packed(content: bytes, noise: int, words: bytes) -> bytes:
    """The first bytes as they are, if any, after a checksum of them; the rest deflated."""
    packer = zlib.compressobj(_LEVEL, zdict=words)
    deflated = packer.compress(content[noise:]) + packer.flush()
    if not noise:
        return deflated
    first = content[:noise]
    return zlib.crc32(first).to_bytes(_SUM, "little") + first + deflated


def read(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """The header without its tables, and the arrays, still packed."""
    version = data[_START - 1 : _START]
    if version not in _SIZES:
        raise SnapshotError(
            f"The snapshot is truncated, or packed in a newer format than {FORMAT}, which this "
            "regimekit reads. Update regimekit to read it."
        )
    text, body, behind = _opened(data, version)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise SnapshotError("The snapshot's header is not readable JSON.") from None
    if not isinstance(header, dict):
        raise SnapshotError("This is not a regimekit snapshot: its header says something else.")
    lanes = Lanes()
    places: dict[str, Place | Large] = {}
    _add_places(places, lanes, header.pop("arrays", None))
    _add_large(places, header.pop("large", None), behind, version == _VERSION)
    lanes.open(body)
    return header, PackedArrays(places, lanes)


def _opened(data: bytes, version: bytes) -> tuple[bytes, bytes, bytes]:
    """The header and the lanes, whose sizes were compared with limits, and what follows."""
    try:
        header, lanes, packed, *more = _SIZES[version].unpack_from(data, _START)
    except struct.error as error:
        raise not_whole(f"{len(data)} bytes", error) from None
    noise = sum(more)
    if header > LARGEST_HEADER or not noise <= lanes <= MOST_IN_LANES:
        raise SnapshotError(
            f"The snapshot's header.json says it has {header:.2g} bytes, its arrays {lanes:.2g}; "
            f"at most {LARGEST_HEADER:.2g} and {MOST_IN_LANES:.2g} are right."
        )
    start = _START + _SIZES[version].size
    end = start + packed
    content = _unpacked(data[start:end], header + lanes, noise, WORDS[version[0]], "header")
    stop = noise + header
    return content[noise:stop], content[:noise] + content[stop:], data[end:]


def _unpacked(packed: bytes, size: int, noise: int, words: bytes, what: str) -> bytes:
    """Exactly `size` bytes; no more than that is inflated."""
    if not noise:
        return _inflated(packed, size, words, what)
    end = _SUM + noise
    first = packed[_SUM:end]
    if zlib.crc32(first).to_bytes(_SUM, "little") != packed[:_SUM]:
        raise not_whole(what, "its checksum is wrong")
    return first + _inflated(packed[end:], size - noise, words, what)


def _inflated(packed: bytes, size: int, words: bytes, what: str) -> bytes:
    opener = zlib.decompressobj(zdict=words)
    try:
        # One more than there may be: the checksum is compared only where the end is seen.
        content = opener.decompress(packed, size + 1)
    except zlib.error as error:
        raise not_whole(what, error) from None
    if len(content) != size or not opener.eof or opener.unused_data:
        raise not_whole(what, "it is not as long as it says")
    return content


def _add_places(places: dict[str, Place | Large], lanes: Lanes, table: Any) -> None:
    """The places of all arrays in the lanes, in the order they were written."""
    if not isinstance(table, dict) or not table.keys() <= FORMS:
        raise SnapshotError("The snapshot's header garbles the arrays.")
    for form, entries in table.items():
        if not isinstance(entries, dict):
            raise SnapshotError("The snapshot's header garbles the arrays.")
        _put(places, lanes.places(form, entries))


def _add_large(places: dict[str, Place | Large], large: Any, behind: bytes, noisy: bool) -> None:
    """The arrays behind the lanes: their bytes are cut out, not inflated."""
    if not isinstance(large, list):
        raise SnapshotError("The snapshot's header garbles the large arrays.")
    first, total = 0, 0
    for entry in large:
        match entry:
            case [str(name), str(code), int(size), [*given]] if code in KINDS and size > 0:
                pass
            case _:
                raise SnapshotError("The snapshot's header garbles the large arrays.")
        place = Lanes().places(code, {name: given})[name]
        noise = _noise(code, place.length) if noisy else 0
        one = Large(code, place.shape, behind[first : first + size], noise)
        first, total = first + size, total + one.size
        _put(places, {name: one})
    if total > LARGEST:
        raise SnapshotError(f"The snapshot says it holds {total:.2g} bytes, over {LARGEST:.2g}.")
    if first != len(behind):
        raise not_whole("its large arrays", "they are not as long as they say")


def _put(places: dict[str, Place | Large], more: Mapping[str, Place | Large]) -> None:
    before = len(places)
    places.update(more)
    if len(places) < before + len(more) or len(places) > MOST_ARRAYS:
        raise SnapshotError("The snapshot is garbled: it has a part twice, or too many parts.")


class PackedArrays(Arrays):
    """Arrays in their lanes: each is made when it is asked for, large ones are inflated then.

    The range of every array in a lane is known once one of them was asked for. Where it is right
    there is nothing to look at; where it is not, or not known, `checks` looks and says what is.
    """

    def __init__(self, places: dict[str, Place | Large], lanes: Lanes) -> None:
        super().__init__()
        self._places, self._lanes = places, lanes

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __missing__(self, name: str) -> NDArray[Any]:
        if name not in self._places:
            super().__missing__(name)
        place = self._places[name]
        if isinstance(place, Large):
            content = _unpacked(place.packed, place.size, place.noise, b"", name)
            count = math.prod(place.shape)
            numbers = turned_back(content, 0, count, place.code)
            array = numbers.astype(KINDS[place.code]).reshape(place.shape)
        else:
            array = self._lanes.array(name, place)
        self[name] = array
        return array

    def names(self) -> Iterable[str]:
        return self._places

    def form(self, name: str) -> tuple[str, tuple[int, ...]]:
        place = self._places.get(name)
        if place is None:
            return super().form(name)
        return STORED[place.code].kind, place.shape

    def floats(
        self,
        name: str,
        shape: Sizes,
        least: float = -math.inf,
        most: float = math.inf,
        missing: bool = False,
        endless: bool = False,
    ) -> NDArray[np.float64]:
        found = self._sure(name, np.float64, shape, max(least, -_MOST), min(most, _MOST))
        if found is None:
            return super().floats(name, shape, least, most, missing, endless)
        return found

    def wholes(
        self, name: str, shape: Sizes, least: int = 0, most: int = LATEST
    ) -> NDArray[np.int64]:
        found = self._sure(name, np.int64, shape, least, most)
        return super().wholes(name, shape, least, most) if found is None else found

    def _sure(
        self, name: str, kind: type, shape: Sizes, least: float, most: float
    ) -> NDArray[Any] | None:
        """An array of its own if kind, shape and range are known to be these."""
        place = self._places.get(name)
        if not isinstance(place, Place) or place.shape != shape or KINDS[place.code] is not kind:
            return None
        if not self._lanes.within(place, least, most):
            return None
        self.asked.add(name)
        return self._lanes.array(name, place)
