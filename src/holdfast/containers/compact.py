"""Format 2: one JSON header and all numbers of a model, deflated together.

    b"holdfast\\x02"   three sizes: header, lanes, both deflated   (header, lanes) deflated   large

The numbers lie in `lanes`, and the header's table says where. Deflate knows beforehand the words
that headers are made of. An array too large for the lanes is deflated by itself behind them, and
inflated only when a model has asked for it and found its shape right: a few bytes cannot claim
much memory.
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

from holdfast.checks import LATEST, Arrays, Sizes
from holdfast.containers import LARGEST, LARGEST_HEADER, MOST_ARRAYS, not_whole
from holdfast.containers.lanes import (
    FORMS,
    KINDS,
    STORED,
    Lanes,
    Place,
    encode,
    turned,
    turned_back,
)
from holdfast.containers.words import WORDS
from holdfast.errors import SnapshotError

MAGIC = b"holdfast"
FORMAT = 2
MOST_IN_LANES = 2**18  # bytes of the lanes of one snapshot
_LARGE = 2**16  # an array of more bytes is no part of the lanes
_LEVEL = 6
_SIZES = struct.Struct("<III")
_MOST = float(np.finfo(np.float64).max)  # the largest that is not infinite
_START = len(MAGIC) + 1


class Large(NamedTuple):
    """An array by itself: the type of its numbers, its shape, its deflated bytes."""

    code: str
    shape: tuple[int, ...]
    deflated: bytes

    @property
    def size(self) -> int:
        return math.prod(self.shape) * STORED[self.code].itemsize


def write(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Pack a header of JSON values and arrays of floats, whole numbers, bytes or flags."""
    table: dict[str, dict[str, list[int]]] = {}
    parts: dict[str, list[tuple[str, NDArray[Any]]]] = {}
    large, behind, room = [], [], MOST_IN_LANES
    for name, array in arrays.items():
        form, entry, own = encode(np.asarray(array))
        size = sum(STORED[code].itemsize * numbers.size for code, numbers in own)
        if size > min(room, _LARGE):
            code = form[-2:]
            plain = np.ascontiguousarray(array, STORED[code]).reshape(-1)
            behind.append(zlib.compress(turned(plain), _LEVEL))
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
    return sealed(text, lanes.content(), behind)


def sealed(text: bytes, body: bytes, behind: list[bytes]) -> bytes:
    """Header and lanes deflated, with their sizes before them and large arrays behind."""
    packer = zlib.compressobj(_LEVEL, zdict=WORDS)
    packed = packer.compress(text + body) + packer.flush()
    sizes = _SIZES.pack(len(text), len(body), len(packed))
    return b"".join((MAGIC, bytes([FORMAT]), sizes, packed, *behind))


def read(data: bytes) -> tuple[dict[str, Any], Arrays]:
    """The header without its tables, and the arrays, still packed."""
    if data[_START - 1 : _START] != bytes([FORMAT]):
        raise SnapshotError(
            f"The snapshot is truncated, or packed in a newer format than {FORMAT}, which this "
            "holdfast reads. Update holdfast to read it."
        )
    text, body, behind = _opened(data)
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise SnapshotError("The snapshot's header is not readable JSON.") from None
    if not isinstance(header, dict):
        raise SnapshotError("This is not a holdfast snapshot: its header says something else.")
    lanes = Lanes()
    places: dict[str, Place | Large] = {}
    _add_places(places, lanes, header.pop("arrays", None))
    _add_large(places, header.pop("large", None), behind)
    lanes.open(body)
    return header, PackedArrays(places, lanes)


def _opened(data: bytes) -> tuple[bytes, bytes, bytes]:
    """The inflated header and lanes, whose sizes were compared with limits, and what follows."""
    try:
        header, lanes, deflated = _SIZES.unpack_from(data, _START)
    except struct.error as error:
        raise not_whole(f"{len(data)} bytes", error) from None
    if header > LARGEST_HEADER or lanes > MOST_IN_LANES:
        raise SnapshotError(
            f"The snapshot's header.json says it has {header:.2g} bytes, its arrays {lanes:.2g}; "
            f"at most {LARGEST_HEADER:.2g} and {MOST_IN_LANES:.2g} are right."
        )
    start = _START + _SIZES.size
    content = _inflated(data[start : start + deflated], header + lanes, WORDS, "header")
    return content[:header], content[header:], data[start + deflated :]


def _inflated(packed: bytes, size: int, words: bytes, what: str) -> bytes:
    """Exactly `size` bytes; no more than that is inflated."""
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
        for name, entry in entries.items():
            _put(places, name, lanes.place(name, form, entry))


def _add_large(places: dict[str, Place | Large], large: Any, behind: bytes) -> None:
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
        one = Large(code, Lanes().place(name, code, given).shape, behind[first : first + size])
        first, total = first + size, total + one.size
        _put(places, name, one)
    if total > LARGEST:
        raise SnapshotError(f"The snapshot says it holds {total:.2g} bytes, over {LARGEST:.2g}.")
    if first != len(behind):
        raise not_whole("its large arrays", "they are not as long as they say")


def _put(places: dict[str, Place | Large], name: str, place: Place | Large) -> None:
    if name in places or len(places) >= MOST_ARRAYS:
        raise SnapshotError("The snapshot is garbled: it has a part twice, or too many parts.")
    places[name] = place


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
            content = _inflated(place.deflated, place.size, b"", name)
            count = math.prod(place.shape)
            array = turned_back(content, 0, count, place.code).reshape(place.shape)
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
        low, high = self._lanes.reach(place)
        if not (least <= low and high <= most):
            return None
        self.asked.add(name)
        return self._lanes.array(name, place).copy()
