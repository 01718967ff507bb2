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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import SnapshotError

# What a lane holds, and what its numbers become again. "s1" are bytes that stay bytes.
KINDS: dict[str, Any] = {
    "f8": np.float64,
    "f4": np.float64,
    "i1": np.int64,
    "i2": np.int64,
    "i4": np.int64,
    "i8": np.int64,
    "b1": np.bool_,
    "s1": np.int8,
}
STORED = {code: np.dtype("<i1" if code == "s1" else f"<{code}") for code in KINDS}
PLAIN, SPARSE, DISTINCT = "", "sparse ", "distinct "
FORMS = frozenset((*KINDS, SPARSE + "f8", SPARSE + "f4", DISTINCT + "f8"))
_REACH = [(code, np.iinfo(code).max) for code in ("i1", "i2", "i4", "i8")]
_MOST_PLACES = 2**15  # different numbers of an array that are told apart by their places
_SMALL = 16  # numbers that are not worth a form
_BITS = 7.0 / 8  # of an eight-byte float that deflate leaves, about


class Part(NamedTuple):
    """Numbers of a lane: which lane, the first of them, how many."""

    code: str
    first: int
    length: int


class Place(NamedTuple):
    """Where an array lies: its form, the type of its numbers, its shape, its parts."""

    form: str
    code: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]


def encode(array: NDArray[Any]) -> tuple[str, list[int], list[tuple[str, NDArray[Any]]]]:
    """Form with type, what its entry says, and its parts as (lane, numbers)."""
    code, flat = _code(array), array.reshape(-1)
    shape = list(array.shape)
    if code not in ("f8", "f4") or array.size <= _SMALL:
        return code, shape, [(code, flat)]
    bits = flat.astype(np.float64, copy=False).view(np.int64)
    n = int(np.count_nonzero(bits))
    if code == "f8":
        values = _different(bits)
        by_index = 8 * _BITS * values.size + n * math.log2(values.size + 1) / 8
        by_zeros = 8 * _BITS * n + (array.size / 24 if n < array.size else 0)
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


def _code(array: NDArray[Any]) -> str:
    """The smallest type that holds every number of an array to the bit."""
    if array.dtype.kind == "b":
        return "b1"
    if array.dtype == np.int8:
        return "s1"
    if array.dtype.kind == "i":
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        return next(code for code, most in _REACH if -most - 1 <= low and high <= most)
    wide = np.ascontiguousarray(array, np.float64)
    with np.errstate(all="ignore"):
        # Few arrays pass, and the last number alone tells of most that they do not.
        for some in (wide.reshape(-1)[-1:], wide):
            again = some.astype(np.float32).astype(np.float64)
            if (some.view(np.int64) != again.view(np.int64)).any():
                return "f8"
    return "f4"


def turned(numbers: NDArray[Any]) -> bytes:
    """First bytes first."""
    return numbers.view(np.uint8).reshape(numbers.size, numbers.itemsize).T.tobytes()


def turned_back(content: bytes, first: int, count: int, code: str) -> NDArray[Any]:
    """`count` numbers of a lane whose bytes begin at `first`, as the models want them."""
    stored = STORED[code]
    width = stored.itemsize
    if width == 1:
        return np.frombuffer(content, stored, count, first).astype(KINDS[code])
    planes = np.frombuffer(content, np.uint8, count * width, first).reshape(width, count)
    numbers = np.ascontiguousarray(planes.T).view(stored).reshape(count)
    return numbers.astype(KINDS[code], copy=False)


class Lanes:
    """Numbers by type, behind each other: written part by part, then read part by part."""

    def __init__(self) -> None:
        self.sizes = dict.fromkeys(KINDS, 0)
        self._parts: dict[str, list[NDArray[Any]]] = {code: [] for code in KINDS}  # written
        self._firsts: dict[str, list[int]] = {code: [] for code in KINDS}  # of those to be read
        self._content = b""
        self._read: dict[str, NDArray[Any]] = {}
        self._reaches: dict[str, dict[int, tuple[float, float]]] = {}

    def write(self, code: str, numbers: NDArray[Any]) -> None:
        """Add numbers to a lane."""
        self._parts[code].append(np.ascontiguousarray(numbers, STORED[code]))
        self.sizes[code] += numbers.size

    def content(self) -> bytes:
        """All that was written."""
        return b"".join(turned(np.concatenate(lane)) for lane in self._parts.values() if lane)

    def place(self, name: str, form: str, entry: Any) -> Place:
        """Where the next array of this form lies, which must be a possible one."""
        code, kind = form[-2:], form[:-2]
        numbers = _entry(name, entry)
        if kind == PLAIN:
            return Place(kind, code, numbers, (self._next(code, math.prod(numbers)),))
        n, shape = numbers[0] if numbers else 0, numbers[1:]
        count = math.prod(shape)
        if n > count:
            raise SnapshotError(f"The snapshot's {name} has a garbled type or shape.")
        second = ("s1", (count + 7) // 8) if kind == SPARSE else (_places(n), count)
        return Place(kind, code, shape, (self._next(code, n), self._next(*second)))

    def _next(self, code: str, count: int) -> Part:
        first = self.sizes[code]
        if count:
            self.sizes[code] += count
            self._firsts[code].append(first)
        return Part(code, first, count)

    def open(self, content: bytes) -> None:
        """Read from these bytes, which must be as many as the places say."""
        if sum(STORED[code].itemsize * n for code, n in self.sizes.items()) != len(content):
            raise SnapshotError("The snapshot's arrays are not as long as their shapes say.")
        self._content = content

    def array(self, name: str, place: Place) -> NDArray[Any]:
        """The array of this place, which may share its memory with the lane."""
        flat = self._numbers(place.parts[0])
        if place.form == SPARSE:
            flat = _spread(name, flat, self._numbers(place.parts[1]), math.prod(place.shape))
        elif place.form == DISTINCT:
            index = place.parts[1]
            low, high = self._reach(index)
            if low < 0 or high >= flat.size:
                raise SnapshotError(f"The snapshot's {name} names numbers that are not there.")
            flat = flat[self._numbers(index)]
        return flat.reshape(place.shape)

    def reach(self, place: Place) -> tuple[float, float]:
        """From where to where an array's numbers go, at most; NaN where one of them is."""
        low, high = self._reach(place.parts[0])
        return (min(low, 0.0), max(high, 0.0)) if place.form == SPARSE else (low, high)

    def _reach(self, part: Part) -> tuple[float, float]:
        """The least and the largest number of a part; those of a whole lane are found at once."""
        if not part.length:
            return math.inf, -math.inf
        if part.code not in self._reaches:
            lane, firsts = self._lane(part.code), self._firsts[part.code]
            low, high = (of.reduceat(lane, firsts).tolist() for of in (np.minimum, np.maximum))
            self._reaches[part.code] = dict(zip(firsts, zip(low, high, strict=True), strict=True))
        return self._reaches[part.code][part.first]

    def _numbers(self, part: Part) -> NDArray[Any]:
        return self._lane(part.code)[part.first : part.first + part.length]

    def _lane(self, wanted: str) -> NDArray[Any]:
        if wanted not in self._read:
            first = 0
            for code, size in self.sizes.items():
                if code == wanted:
                    break
                first += size * STORED[code].itemsize
            self._read[wanted] = turned_back(self._content, first, self.sizes[wanted], wanted)
        return self._read[wanted]


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
