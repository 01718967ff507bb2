"""What a model says about its stored state while it reads it: one line per array or value.

A snapshot may come from anywhere, and kernels index without looking. So nothing read reaches a
model before it was named, and its kind, shape and range were found right:

    rows = arrays.floats("mean", (n, 3))                    # finite, (n, 3)
    slots = arrays.wholes("slots", (n, None), below=rows)   # indices; any number of columns
    shares = arrays.shares("beta", (n, k))                  # every row sums to one
    time = values.whole("time")

Each raises a SnapshotError that says which part is wrong and how. `Values` and `Arrays` also
remember what was asked for: `refuse_unread` names what nobody wanted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, SnapshotError

Array = NDArray[np.float64]
Sizes = tuple[int | None, ...]  # None: any length
LATEST = 2**53  # times and counts beyond this are not believed; floats still tell them apart
_KINDS = {"f": "floats", "i": "whole numbers", "b": "flags"}
_STORED = {"f": np.float64, "i": np.int64, "b": np.bool_}
_MOST = float(np.finfo(np.float64).max)  # the largest that is not infinite
_ROUNDING = 1e-6  # how far a sum of shares may be from one


class _Asked(dict[str, Any]):
    """A dict that remembers which of its keys somebody wanted."""

    what = "value"

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        super().__init__(given or {})
        self.asked: set[str] = set()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """`given` itself if it is one already."""
        return given if isinstance(given, cls) else cls(given)

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def __missing__(self, name: str) -> Any:
        raise SnapshotError(f"The snapshot lacks the {self.what} {name!r}.")

    def names(self) -> Iterable[str]:
        """All that there is."""
        return self.keys()

    def refuse_unread(self) -> None:
        """Raise if there is something that no model asked for."""
        unread = sorted(set(self.names()) - self.asked)
        if unread:
            raise SnapshotError(f"The snapshot has the {self.what} {unread[0]!r}, unknown here.")


class Values(_Asked):
    """The JSON values of a stored state."""

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        super().__init__(given)
        self._parts: list[Values] = []

    def whole(self, name: str, least: int = 0, most: int = LATEST) -> int:
        """A whole number from `least` to `most`."""
        return _whole(name, self[name], least, most)

    def wholes(
        self, name: str, length: int | None, least: int = 0, most: int = LATEST
    ) -> list[int]:
        """A list of `length` (None: any number of) whole numbers from `least` to `most`."""
        given = self[name]
        if not isinstance(given, list) or length not in (None, len(given)):
            raise _wrong(name, f"must be a list of {length or 'any length'}", given)
        return [_whole(name, value, least, most) for value in given]

    def number(self, name: str, least: float = -math.inf, most: float = math.inf) -> float:
        """A finite number from `least` to `most`."""
        given = self[name]
        if isinstance(given, bool) or not isinstance(given, (int, float)):
            raise _wrong(name, "must be a number", given)
        try:
            number = float(given)
        except OverflowError:
            raise _wrong(name, "must be finite", "a larger one") from None
        if not (math.isfinite(number) and least <= number <= most):
            raise _wrong(name, f"must be finite and {_between(least, most)}", given)
        return number

    def flag(self, name: str) -> bool:
        """True or False."""
        given = self[name]
        if not isinstance(given, bool):
            raise _wrong(name, "must be true or false", given)
        return given

    def part(self, name: str) -> Values:
        """Values inside this one, of which none may be left unread either."""
        given = self[name]
        if not isinstance(given, dict):
            raise _wrong(name, "must be named values", given)
        part = Values(given)
        self._parts.append(part)
        return part

    def entries(self, name: str, most: int = LATEST) -> list[Values]:
        """A list of at most so many entries, each of them the value `name` of its Values."""
        given = self[name]
        if not isinstance(given, list) or len(given) > most:
            raise _wrong(name, f"must be a list of at most {most}", given)
        return [Values({name: entry}) for entry in given]

    def refuse_unread(self) -> None:
        super().refuse_unread()
        for part in self._parts:
            part.refuse_unread()

    def words(self, name: str) -> tuple[str, ...] | None:
        """A list of different strings, or None."""
        given = self[name]
        if given is None:
            return None
        if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
            raise _wrong(name, "must be a list of names", given)
        if len(set(given)) < len(given):
            raise _wrong(name, "must be names that differ", given)
        return tuple(given)


class Arrays(_Asked):
    """The arrays of a stored state."""

    what = "array"

    def form(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Kind ("f", "i" or "b") and shape, before the array itself is read."""
        array = np.asarray(self[name])
        return array.dtype.kind, array.shape

    def floats(
        self,
        name: str,
        shape: Sizes,
        least: float = -math.inf,
        most: float = math.inf,
        missing: bool = False,
        endless: bool = False,
    ) -> Array:
        """Floats from `least` to `most`.

        Args:
            name: of the array.
            shape: its lengths; None for any.
            least: smallest that is right.
            most: largest that is right.
            missing: allow NaN.
            endless: allow infinities, where the range does.
        """
        array: Array = self._taken(name, shape, "f")
        if _within(array, max(least, -_MOST), min(most, _MOST)):
            return array
        wrong = ~((array >= least) & (array <= most))
        if not endless:
            wrong |= np.isinf(array)
        if missing:
            wrong &= ~np.isnan(array)
        words = f"{'' if endless else 'finite and '}{_between(least, most)}"
        self._refuse(name, array, wrong, f"must be {words}")
        return array

    def wholes(
        self, name: str, shape: Sizes, least: int = 0, most: int = LATEST
    ) -> NDArray[np.int64]:
        """Whole numbers from `least` to `most`: counts, times, ids."""
        array: NDArray[np.int64] = self._taken(name, shape, "i")
        if _within(array, least, most):
            return array
        wrong = (array < least) | (array > most)
        self._refuse(name, array, wrong, f"must be {_between(least, most)}")
        return array

    def indices(self, name: str, shape: Sizes, below: int) -> NDArray[np.int64]:
        """Places in something of length `below`."""
        return self.wholes(name, shape, 0, below - 1)

    def flags(self, name: str, shape: Sizes) -> NDArray[np.bool_]:
        """True and False."""
        return np.asarray(self._taken(name, shape, "b"), np.bool_)

    def shares(self, name: str, shape: Sizes) -> Array:
        """Probabilities whose last axis sums to one."""
        array = self.floats(name, shape, 0.0, 1.0 + _ROUNDING)
        if array.size and not np.allclose(array.sum(axis=-1), 1.0, rtol=0, atol=_ROUNDING):
            raise SnapshotError(f"The snapshot's {name} must sum to one along its last axis.")
        return array

    def log_shares(self, name: str, shape: Sizes) -> Array:
        """Logs of such probabilities; -inf is the log of none."""
        array = self.floats(name, shape, most=_ROUNDING, endless=True)
        if array.size and not np.allclose(np.exp(array).sum(-1), 1.0, rtol=0, atol=_ROUNDING):
            raise SnapshotError(f"The exponentials of the snapshot's {name} must sum to one.")
        return array

    def permutation(self, name: str, length: int) -> NDArray[np.int64]:
        """Each of 0 .. length - 1 once."""
        array = self.indices(name, (length,), length)
        if np.unique(array).size < length:
            raise SnapshotError(f"The snapshot's {name} must name every place once.")
        return array

    def distinct(self, name: str, array: NDArray[Any]) -> None:
        """Raise if a value of an array that was read stands there twice."""
        if np.unique(array).size < array.size:
            raise SnapshotError(f"The snapshot's {name} must differ from each other.")

    def _taken(self, name: str, shape: Sizes, kind: str) -> NDArray[Any]:
        """The array, of the wanted kind and shape: looked at before it is read."""
        found, lengths = self.form(name)
        if found != kind:
            raise SnapshotError(
                f"The snapshot's {name} must hold {_KINDS[kind]}, it holds {_KINDS.get(found)}."
            )
        fits = lengths == shape or (
            len(lengths) == len(shape)
            and all(want in (None, have) for want, have in zip(shape, lengths, strict=False))
        )
        if not fits:
            wanted = str(shape).replace("None", "any")
            raise SnapshotError(f"The snapshot's {name} must have shape {wanted}, not {lengths}.")
        return np.array(self[name], dtype=_STORED[kind])

    @staticmethod
    def _refuse(name: str, array: NDArray[Any], wrong: NDArray[np.bool_], words: str) -> None:
        if wrong.any():
            raise _wrong(name, words, array[wrong].flat[0])


def _within(array: NDArray[Any], least: float, most: float) -> bool:
    """Whether all numbers are in a range; NaN is in none. Quicker than finding which are not."""
    return not array.size or bool(array.min() >= least and array.max() <= most)


def affordable(argument: str, elements: float, most: float = 2.0**27) -> None:
    """Refuse settings that together ask for more numbers than a model may hold (1 GB of them)."""
    if elements > most:
        raise RegimekitError(
            f"{argument} asks for room for {elements:.2g} numbers; at most {most:.2g} are given. "
            "Make it smaller."
        )


def _whole(name: str, given: Any, least: int, most: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise _wrong(name, "must be a whole number", given)
    if not least <= given <= most:
        raise _wrong(name, f"must be {_between(least, most)}", given)
    return given


def _between(least: float, most: float) -> str:
    if most in (math.inf, LATEST):
        return "any number" if least == -math.inf else f"at least {least}"
    return f"at most {most}" if least == -math.inf else f"from {least} to {most}"


def _wrong(name: str, words: str, given: object) -> SnapshotError:
    text = repr(given.item() if isinstance(given, np.generic) else given)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return SnapshotError(f"The snapshot's {name} {words}, got {shown}.")


class Part(Arrays):
    """The arrays whose names begin with a prefix, without it."""

    def __init__(self, arrays: Arrays, prefix: str) -> None:
        super().__init__()
        self.arrays, self.prefix = arrays, prefix

    def __getitem__(self, name: str) -> NDArray[Any]:
        found: NDArray[Any] = self.arrays[self.prefix + name]
        return found

    def __contains__(self, name: object) -> bool:
        return f"{self.prefix}{name}" in self.arrays

    def form(self, name: str) -> tuple[str, tuple[int, ...]]:
        return self.arrays.form(self.prefix + name)
