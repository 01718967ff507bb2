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
FORMS = [*KINDS, SPARSE + "f8", SPARSE + "f4", DISTINCT + "f8"]
_WHOLE = ("i1", "i2", "i4", "i8")
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
    bits = flat.astype(np.float64).view(np.int64)
    used = bits != 0
    n = int(used.sum())
    if code == "f8":
        values, index = np.unique(bits, return_inverse=True)
        by_index = 8 * _BITS * values.size + n * math.log2(values.size + 1) / 8
        by_zeros = 8 * _BITS * n + (array.size / 24 if n < array.size else 0)
        if by_index < by_zeros and values.size <= 2**15:
            where = "i1" if values.size <= 2**7 else "i2"
            numbers = values.view(np.float64)
            return f"{DISTINCT}f8", [values.size, *shape], [("f8", numbers), (where, index)]
    if n > 0.8 * array.size:
        return code, shape, [(code, flat)]
    marks = np.packbits(used).view(np.int8)
    return f"{SPARSE}{code}", [n, *shape], [(code, flat[used]), ("s1", marks)]


def _code(array: NDArray[Any]) -> str:
    """The smallest type that holds every number of an array to the bit."""
    if array.dtype.kind == "b":
        return "b1"
    if array.dtype == np.int8:
        return "s1"
    if array.dtype.kind == "i":
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        return next(c for c in _WHOLE if np.iinfo(c).min <= low and high <= np.iinfo(c).max)
    wide = np.ascontiguousarray(array, np.float64)
    with np.errstate(all="ignore"):
        again = wide.astype(np.float32).astype(np.float64)
    return "f4" if (wide.view(np.int64) == again.view(np.int64)).all() else "f8"


def turned(numbers: NDArray[Any]) -> bytes:
    """First bytes first."""
    return numbers.view(np.uint8).reshape(numbers.size, numbers.itemsize).T.tobytes()


def turned_back(content: bytes, first: int, count: int, code: str) -> NDArray[Any]:
    """`count` numbers of a lane whose bytes begin at `first`, as the models want them."""
    width = STORED[code].itemsize
    planes = np.frombuffer(content, np.uint8, count * width, first).reshape(width, count)
    numbers = np.ascontiguousarray(planes.T).view(STORED[code]).reshape(count)
    return numbers.astype(KINDS[code], copy=False)


class Lanes:
    """Numbers by type, behind each other: written part by part, then read part by part."""

    def __init__(self) -> None:
        self.sizes = dict.fromkeys(KINDS, 0)
        self._written: dict[str, list[NDArray[Any]]] = {code: [] for code in KINDS}
        self._content = b""
        self._read: dict[str, NDArray[Any]] = {}

    def write(self, code: str, numbers: NDArray[Any]) -> None:
        """Add numbers to a lane."""
        self._written[code].append(np.ascontiguousarray(numbers, STORED[code]))
        self.sizes[code] += numbers.size

    def content(self) -> bytes:
        """All that was written."""
        return b"".join(turned(np.concatenate(lane)) for lane in self._written.values() if lane)

    def place(self, name: str, form: str, entry: Any) -> Place:
        """Where the next array of this form lies, which must be a possible one."""
        code, kind = form[-2:], form[:-2]
        numbers = _entry(name, entry)
        shape = numbers if kind == PLAIN else numbers[1:]
        count = math.prod(shape)
        if kind == PLAIN:
            return Place(kind, code, shape, (self._next(code, count),))
        n = numbers[0] if numbers else 0
        if n > count:
            raise SnapshotError(f"The snapshot's {name} has a garbled type or shape.")
        second = ("s1", (count + 7) // 8) if kind == SPARSE else _index(n, count)
        return Place(kind, code, shape, (self._next(code, n), self._next(*second)))

    def _next(self, code: str, count: int) -> Part:
        first = self.sizes[code]
        self.sizes[code] += count
        return Part(code, first, count)

    def open(self, content: bytes) -> None:
        """Read from these bytes, which must be as many as the places say."""
        if sum(STORED[code].itemsize * n for code, n in self.sizes.items()) != len(content):
            raise SnapshotError("The snapshot's arrays are not as long as their shapes say.")
        self._content = content

    def array(self, name: str, place: Place) -> NDArray[Any]:
        """The array of this place."""
        parts = [self._part(part) for part in place.parts]
        if place.form == SPARSE:
            flat = _spread(name, parts[0], parts[1], math.prod(place.shape))
        elif place.form == DISTINCT:
            values, index = parts
            if index.size and (index.min() < 0 or index.max() >= values.size):
                raise SnapshotError(f"The snapshot's {name} names numbers that are not there.")
            flat = values[index]
        else:
            flat = parts[0]
        return flat.reshape(place.shape)

    def _part(self, part: Part) -> NDArray[Any]:
        if part.code not in self._read:
            first = 0
            for code, size in self.sizes.items():
                if code == part.code:
                    break
                first += size * STORED[code].itemsize
            size = self.sizes[part.code]
            self._read[part.code] = turned_back(self._content, first, size, part.code)
        return self._read[part.code][part.first : part.first + part.length]


def _index(n: int, count: int) -> tuple[str, int]:
    return ("i1" if n <= 2**7 else "i2"), count


def _spread(name: str, values: NDArray[Any], marks: NDArray[Any], count: int) -> NDArray[Any]:
    """Numbers where the bits say, zeros elsewhere."""
    used = np.unpackbits(marks.view(np.uint8), count=count).view(np.bool_)
    if int(used.sum()) != values.size:
        raise SnapshotError(f"The snapshot's {name} is not as long as its shape says.")
    flat = np.zeros(count)
    flat[used] = values
    return flat


def _entry(name: str, given: Any) -> tuple[int, ...]:
    right = type(given) is list and len(given) <= 33
    for n in given if right else ():
        right = right and type(n) is int and 0 <= n < 2**32
    if not right:
        raise SnapshotError(f"The snapshot's {name} has a garbled type or shape.")
    return tuple(given)
