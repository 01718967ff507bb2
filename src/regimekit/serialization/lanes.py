"""Arrays as few numbers of few types, and back, to the bit.

Numbers of one type lie in one *lane*, whichever array they belong to. The bytes of a lane are
turned: the first bytes of all its numbers, then the second ones, and so on, so that exponents lie
beside exponents and deflate finds them alike. An array is stored as the smallest type that holds
every number of it, in the form that takes fewest bytes:

    plain      its numbers
    sparse     those that are not zero, and a bit for each number that says which
    distinct   each different number once, and for each place which it is
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError

# What a lane holds, and what its numbers become again, in the order of the lanes. "r1" are bytes
# that nothing makes fewer, "s1" others: both stay bytes.
KINDS: dict[str, Any] = {
    "r1": np.int8,
    "f8": np.float64,
    "f4": np.float64,
    "i1": np.int64,
    "i2": np.int64,
    "i4": np.int64,
    "i8": np.int64,
    "b1": np.bool_,
    "s1": np.int8,
}
STORED = {code: np.dtype("<i1" if KINDS[code] is np.int8 else f"<{code}") for code in KINDS}
NOISE = 6  # bytes of an eight-byte float, its last ones, that nothing makes fewer either
PLAIN, SPARSE, DISTINCT = "", "sparse ", "distinct "
FORMS = frozenset((*KINDS, SPARSE + "f8", SPARSE + "f4", DISTINCT + "f8"))
_NARROWEST = {
    np.dtype(np.bool_): "b1",
    np.dtype(np.int8): "r1",
    np.dtype(np.int64): "i1",
    np.dtype(np.float64): "f8",  # where there is no number, this is the lane of others
}
_REACH = [(code, np.iinfo(code).max) for code in ("i1", "i2", "i4", "i8")]
_MOST_PLACES = 2**15  # different numbers of an array that are told apart by their places
_NONE = (math.inf, -math.inf)  # from where to where no numbers go
_SMALL = 16  # numbers that are not worth a form
_BITS = 7.0 / 8  # of an eight-byte float that deflate leaves, about


class Place(NamedTuple):
    """Where an array lies: its form, the type of its numbers, its shape, and these in their lane.

    Other forms than the plain one have bits or places beside their numbers, in a lane of theirs.
    """

    form: str
    code: str
    shape: tuple[int, ...]
    first: int
    length: int
    beside: tuple[str, int, int] = ("", 0, 0)


class Lane(NamedTuple):
    """Numbers of one type, and from where to where those of each array go, by its first place."""

    numbers: NDArray[Any]
    reach: dict[int, tuple[float, float]]


def encode(array: NDArray[Any], code: str) -> tuple[str, list[int], list[tuple[str, NDArray[Any]]]]:
    """Form with type, what its entry says, and its parts as (lane, numbers)."""
    flat, shape = array.reshape(-1), list(array.shape)
    if code not in ("f8", "f4") or array.size <= _SMALL:
        return code, shape, [(code, flat)]
    bits = flat.astype(np.float64, copy=False).view(np.int64)
    n, width = int(np.count_nonzero(bits)), STORED[code].itemsize
    values = _different(bits)
    by_index = 8 * _BITS * values.size + n * math.log2(values.size + 1) / 8
    by_zeros = width * _BITS * n + (array.size / 24 if n < array.size else 0)
    if by_index < by_zeros and values.size <= _MOST_PLACES:
        index = np.searchsorted(values, bits)
        own = [("f8", values.view(np.float64)), (_places(values.size), index)]
        return f"{DISTINCT}f8", [values.size, *shape], own
    if n > 0.8 * array.size:
        return code, shape, [(code, flat)]
    used = bits != 0
    marks = np.packbits(used).view(np.int8)
    return f"{SPARSE}{code}", [n, *shape], [(code, flat[used]), ("s1", marks)]


def _different(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Each number once, in order."""
    ordered = np.sort(bits)
    first = np.empty(bits.size, np.bool_)
    first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def codes(arrays: Iterable[NDArray[Any]]) -> list[str]:
    """The smallest types that hold every number of each array to the bit.

    All of one kind are looked at together: most arrays are small.
    """
    given = list(arrays)
    found = [_NARROWEST[array.dtype] for array in given]
    for kind, narrowest in ((np.int64, _wholes), (np.float64, _floats)):
        some = [i for i, array in enumerate(given) if array.size and array.dtype == kind]
        if some:
            firsts = np.cumsum([0, *(given[i].size for i in some[:-1])])
            numbers = np.concatenate([given[i].reshape(-1) for i in some])
            for i, code in zip(some, narrowest(numbers, firsts), strict=True):
                found[i] = code
    return found


def _wholes(numbers: NDArray[np.int64], firsts: NDArray[np.int64]) -> Iterator[str]:
    low, high = (of.reduceat(numbers, firsts).tolist() for of in (np.minimum, np.maximum))
    for least, largest in zip(low, high, strict=True):
        yield next(code for code, most in _REACH if -most - 1 <= least and largest <= most)


def _floats(numbers: NDArray[np.float64], firsts: NDArray[np.int64]) -> Iterator[str]:
    with np.errstate(all="ignore"):
        again = numbers.astype(np.float32).astype(np.float64)
    lost = numbers.view(np.int64) != again.view(np.int64)
    return ("f8" if wide else "f4" for wide in np.logical_or.reduceat(lost, firsts).tolist())


def turned(numbers: NDArray[Any]) -> bytes:
    """First bytes first."""
    return numbers.view(np.uint8).reshape(numbers.size, numbers.itemsize).T.tobytes()


def turned_back(content: bytes, first: int, count: int, code: str) -> NDArray[Any]:
    """`count` numbers of a lane whose bytes begin at `first`, of the type they are stored as."""
    stored = STORED[code]
    width = stored.itemsize
    if width == 1:
        return np.frombuffer(content, stored, count, first)
    planes = np.frombuffer(content, np.uint8, count * width, first).reshape(width, count)
    return np.ascontiguousarray(planes.T).view(stored).reshape(count)


class Lanes:
    """Numbers by type, behind each other: written part by part, then read part by part."""

    def __init__(self) -> None:
        self.sizes = dict.fromkeys(KINDS, 0)
        self._parts: dict[str, list[NDArray[Any]]] = {}  # written
        self._firsts: dict[str, list[int]] = {code: [] for code in KINDS}  # of those to be read
        self._content = b""
        self._lanes: dict[str, Lane] = {}

    def write(self, code: str, numbers: NDArray[Any]) -> None:
        """Add numbers to a lane."""
        part = np.ascontiguousarray(numbers, STORED[code])
        self._parts.setdefault(code, []).append(part)
        self.sizes[code] += numbers.size

    def content(self) -> tuple[bytes, int]:
        """All that was written, and how many of the first bytes nothing makes fewer."""
        lanes = [self._parts[code] for code in KINDS if code in self._parts]
        noise = self.sizes["r1"] + NOISE * self.sizes["f8"]
        return b"".join(turned(np.concatenate(lane)) for lane in lanes), noise

    def places(self, form: str, entries: dict[str, Any]) -> dict[str, Place]:
        """Where the next arrays of this form lie, all of which must be possible ones."""
        code, kind = form[-2:], form[:-2]
        if kind != PLAIN:
            return {name: self._place(name, kind, code, entries[name]) for name in entries}
        found = {}
        firsts, first = self._firsts[code], self.sizes[code]
        for name, entry in entries.items():
            shape = _entry(name, entry)
            n = math.prod(shape)
            found[name] = Place(PLAIN, code, shape, first, n)
            if n:
                firsts.append(first)
                first += n
        self.sizes[code] = first
        return found

    def _place(self, name: str, kind: str, code: str, entry: Any) -> Place:
        """The same of an array that has bits or places beside its numbers."""
        n, *shape = _entry(name, entry) or (0,)
        count = math.prod(shape)
        if n > count:
            raise SnapshotError(f"The snapshot's {name} has a garbled type or shape.")
        first = self._next(code, n)
        where, size = ("s1", (count + 7) // 8) if kind == SPARSE else (_places(n), count)
        return Place(kind, code, tuple(shape), first, n, (where, self._next(where, size), size))

    def _next(self, code: str, count: int) -> int:
        first = self.sizes[code]
        if count:
            self.sizes[code] = first + count
            self._firsts[code].append(first)
        return first

    def open(self, content: bytes) -> None:
        """Read from these bytes, which must be as many as the places say."""
        if sum(STORED[code].itemsize * n for code, n in self.sizes.items()) != len(content):
            raise SnapshotError("The snapshot's arrays are not as long as their shapes say.")
        self._content = content

    def array(self, name: str, place: Place) -> NDArray[Any]:
        """The array of this place, in memory of its own."""
        flat = self._lane(place.code).numbers[place.first : place.first + place.length]
        made = flat.copy() if place.form == PLAIN else self._made(name, place, flat)
        return made.reshape(place.shape)

    def within(self, place: Place, least: float, most: float) -> bool:
        """Whether all numbers of an array are known to be in a range. NaN is in none."""
        low, high = self._lane(place.code).reach.get(place.first, _NONE)
        if place.form == SPARSE:
            low, high = min(low, 0.0), max(high, 0.0)
        return least <= low and high <= most

    def _made(self, name: str, place: Place, values: NDArray[Any]) -> NDArray[Any]:
        """The numbers of a form that is not plain."""
        code, first, count = place.beside
        lane = self._lane(code)
        beside = lane.numbers[first : first + count]
        if place.form == SPARSE:
            return _spread(name, values, beside, math.prod(place.shape))
        low, high = lane.reach.get(first, _NONE)
        if count and (low < 0 or high >= values.size):
            raise SnapshotError(f"The snapshot's {name} names numbers that are not there.")
        found: NDArray[Any] = values[beside]
        return found

    def _lane(self, wanted: str) -> Lane:
        found = self._lanes.get(wanted)
        if found is None:
            first = 0
            for code, size in self.sizes.items():
                if code == wanted:
                    break
                first += size * STORED[code].itemsize
            numbers = turned_back(self._content, first, self.sizes[wanted], wanted)
            reach = _reaches(numbers, self._firsts[wanted])
            found = Lane(numbers.astype(KINDS[wanted]), reach)
            self._lanes[wanted] = found
        return found


def _reaches(numbers: NDArray[Any], firsts: list[int]) -> dict[int, tuple[float, float]]:
    """The least and the largest number from each place to the next one; NaN where there is one."""
    if not firsts:
        return {}
    at = np.array(firsts)
    low, high = (of.reduceat(numbers, at).tolist() for of in (np.minimum, np.maximum))
    return dict(zip(firsts, zip(low, high, strict=True), strict=True))


def _places(n: int) -> str:
    """The lane of places among n numbers."""
    return "i1" if n <= 2**7 else "i2"


def _spread(name: str, values: NDArray[Any], marks: NDArray[Any], count: int) -> NDArray[Any]:
    """Numbers where the bits say, zeros elsewhere."""
    used = np.unpackbits(marks.view(np.uint8), count=count).view(np.bool_)
    if int(used.sum()) != values.size:
        raise SnapshotError(f"The snapshot's {name} is not as long as its shape says.")
    flat = np.zeros(count)
    flat[used] = values
    return flat


def _entry(name: str, given: Any) -> tuple[int, ...]:
    if type(given) is list and len(given) <= 33:
        for n in given:
            if type(n) is not int or not 0 <= n < 2**32:
                break
        else:
            return tuple(given)
    raise SnapshotError(f"The snapshot's {name} has a garbled type or shape.")
