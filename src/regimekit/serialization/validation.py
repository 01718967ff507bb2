"""Validation of a stored state: every value and array is requested by kind, shape and range.

A snapshot may come from any source, and kernels index without bounds checks. So a model gets a
stored number only through one of these methods:

    mean = arrays.floats("mean", (n, 3))              # finite, (n, 3)
    counts = arrays.wholes("counts", (n, None), 0, 9)  # any number of columns
    time = values.whole("time")

Each raises a SnapshotError that names the part and the rule. `refuse_unread` raises one if a value
or array was never requested.
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
LATEST = 2**53  # largest valid time or count; larger integers are not exact as floats
_KINDS = {"f": "floats", "i": "integers", "b": "flags"}
_STORED = {"f": np.float64, "i": np.int64, "b": np.bool_}
_MAX_FLOAT = float(np.finfo(np.float64).max)
_ROUNDING = 1e-6  # allowed deviation of a sum of probabilities from one


class _Tracked(dict[str, Any]):
    """A dict that records which of its keys were requested."""

    what = "value"

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        super().__init__(given or {})
        self.requested: set[str] = set()

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Return `given` as this class."""
        return given if isinstance(given, cls) else cls(given)

    def __getitem__(self, name: str) -> Any:
        self.requested.add(name)
        return super().__getitem__(name)

    def __missing__(self, name: str) -> Any:
        raise SnapshotError(f"Invalid snapshot: the {self.what} {name!r} is missing.")

    def names(self) -> Iterable[str]:
        """Return all names."""
        return self.keys()

    def refuse_unread(self) -> None:
        """Raise SnapshotError if there is a name that was not requested."""
        unread = sorted(set(self.names()) - self.requested)
        if unread:
            raise SnapshotError(f"Invalid snapshot: unknown {self.what} {unread[0]!r}.")


class Values(_Tracked):
    """The JSON values of a stored state.

    Arguments of the methods:
        name: name of the value.
        least: smallest valid number.
        most: largest valid number.
        length: number of entries; None for any.
    """

    def __init__(self, given: Mapping[str, Any] | None = None) -> None:
        super().__init__(given)
        self._parts: list[Values] = []

    def whole(self, name: str, least: int = 0, most: int = LATEST) -> int:
        """Return an integer from `least` to `most`."""
        return _whole(name, self[name], least, most)

    def wholes(
        self, name: str, length: int | None, least: int = 0, most: int = LATEST
    ) -> list[int]:
        """Return a list of integers from `least` to `most`."""
        given = self[name]
        if not isinstance(given, list) or length not in (None, len(given)):
            raise _wrong(name, f"must be a list of {length or 'any length'}", given)
        return [_whole(name, value, least, most) for value in given]

    def number(self, name: str, least: float = -math.inf, most: float = math.inf) -> float:
        """Return a finite number from `least` to `most`."""
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
        """Return a flag."""
        given = self[name]
        if not isinstance(given, bool):
            raise _wrong(name, "must be true or false", given)
        return given

    def part(self, name: str) -> Values:
        """Return nested values; each of them must be requested, too."""
        given = self[name]
        if not isinstance(given, dict):
            raise _wrong(name, "must be an object", given)
        part = Values(given)
        self._parts.append(part)
        return part

    def entries(self, name: str, most: int = LATEST) -> list[Values]:
        """Return a list of at most `most` entries, each as the value `name` of a `Values`."""
        given = self[name]
        if not isinstance(given, list) or len(given) > most:
            raise _wrong(name, f"must be a list of at most {most}", given)
        return [Values({name: entry}) for entry in given]

    def refuse_unread(self) -> None:
        super().refuse_unread()
        for part in self._parts:
            part.refuse_unread()

    def words(self, name: str) -> tuple[str, ...] | None:
        """Return a list of different strings, or None."""
        given = self[name]
        if given is None:
            return None
        if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
            raise _wrong(name, "must be a list of names", given)
        if len(set(given)) < len(given):
            raise _wrong(name, "must be different names", given)
        return tuple(given)


class Arrays(_Tracked):
    """The arrays of a stored state.

    Arguments of the methods:
        name: name of the array.
        shape: its lengths; None for any length.
        least: smallest valid value.
        most: largest valid value.
    """

    what = "array"

    def form(self, name: str) -> tuple[str, tuple[int, ...]]:
        """Return kind ("f", "i" or "b") and shape, without reading the array."""
        array = np.asarray(self[name])
        return array.dtype.kind, array.shape

    def floats(
        self,
        name: str,
        shape: Sizes,
        least: float = -math.inf,
        most: float = math.inf,
        missing: bool = False,
        infinite: bool = False,
    ) -> Array:
        """Return an array of floats.

        Args:
            missing: whether NaN is valid.
            infinite: whether infinities within the range are valid.
        """
        array: Array = self._taken(name, shape, "f")
        if _within(array, max(least, -_MAX_FLOAT), min(most, _MAX_FLOAT)):
            return array
        wrong = ~((array >= least) & (array <= most))
        if not infinite:
            wrong |= np.isinf(array)
        if missing:
            wrong &= ~np.isnan(array)
        words = f"{'' if infinite else 'finite and '}{_between(least, most)}"
        self._refuse(name, array, wrong, f"must be {words}")
        return array

    def wholes(
        self, name: str, shape: Sizes, least: int = 0, most: int = LATEST
    ) -> NDArray[np.int64]:
        """Return an array of integers from `least` to `most`."""
        array: NDArray[np.int64] = self._taken(name, shape, "i")
        if _within(array, least, most):
            return array
        wrong = (array < least) | (array > most)
        self._refuse(name, array, wrong, f"must be {_between(least, most)}")
        return array

    def flags(self, name: str, shape: Sizes) -> NDArray[np.bool_]:
        """Return an array of flags."""
        return np.asarray(self._taken(name, shape, "b"), np.bool_)

    def log_shares(self, name: str, shape: Sizes) -> Array:
        """Return log probabilities that sum to one along the last axis; -inf is valid."""
        array = self.floats(name, shape, most=_ROUNDING, infinite=True)
        if array.size and not np.allclose(np.exp(array).sum(-1), 1.0, rtol=0, atol=_ROUNDING):
            raise SnapshotError(f"Invalid snapshot: exp({name}) must sum to one.")
        return array

    def distinct(self, name: str, array: NDArray[Any]) -> None:
        """Raise SnapshotError if a value occurs twice.

        Args:
            name: name of the array.
            array: the array, which was read.
        """
        if np.unique(array).size < array.size:
            raise SnapshotError(f"Invalid snapshot: the values of {name} must be different.")

    def _taken(self, name: str, shape: Sizes, kind: str) -> NDArray[Any]:
        """Return an array after its kind and shape are checked."""
        found, lengths = self.form(name)
        if found != kind:
            raise SnapshotError(
                f"Invalid snapshot: {name} must have {_KINDS[kind]}, got {_KINDS.get(found)}."
            )
        fits = lengths == shape or (
            len(lengths) == len(shape)
            and all(want in (None, have) for want, have in zip(shape, lengths, strict=False))
        )
        if not fits:
            wanted = str(shape).replace("None", "any")
            raise SnapshotError(
                f"Invalid snapshot: {name} must have shape {wanted}, got {lengths}."
            )
        return np.array(self[name], dtype=_STORED[kind])

    @staticmethod
    def _refuse(name: str, array: NDArray[Any], wrong: NDArray[np.bool_], words: str) -> None:
        if wrong.any():
            raise _wrong(name, words, array[wrong].flat[0])


def _within(array: NDArray[Any], least: float, most: float) -> bool:
    """Return whether all numbers are in a range; NaN is in no range."""
    return not array.size or bool(array.min() >= least and array.max() <= most)


def affordable(argument: str, elements: float, most: float = 2.0**27) -> None:
    """Raise RegimekitError if settings need more numbers than a model may have (1 GB).

    Args:
        argument: name for error messages.
        elements: numbers needed.
        most: largest valid number of them.
    """
    if elements > most:
        raise RegimekitError(
            f"{argument} needs memory for {elements:.2g} numbers; at most {most:.2g} are allowed. "
            "Choose a smaller value."
        )


def _whole(name: str, given: Any, least: int, most: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise _wrong(name, "must be an integer", given)
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
    return SnapshotError(f"Invalid snapshot: {name} {words}, got {shown}.")


class Part(Arrays):
    """The arrays whose names begin with a prefix, by the rest of their names."""

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
