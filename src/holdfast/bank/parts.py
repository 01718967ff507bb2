"""The arrays of one part of a snapshot, under the names that the part gave them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from holdfast.checks import Arrays


class Part(Arrays):
    """The arrays whose names begin with a prefix, without it."""

    def __init__(self, arrays: Arrays, prefix: str) -> None:
        super().__init__()
        self.arrays, self.prefix = arrays, prefix

    def __getitem__(self, name: str) -> NDArray[Any]:
        found: NDArray[Any] = self.arrays[self.prefix + name]
        return found

    def form(self, name: str) -> tuple[str, tuple[int, ...]]:
        return self.arrays.form(self.prefix + name)
