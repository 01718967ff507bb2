"""The arrays of one part of a snapshot, under the names that the part gave them."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


class Part(dict[str, NDArray[Any]]):
    """The arrays whose names begin with a prefix, without it."""

    def __init__(self, arrays: dict[str, NDArray[Any]], prefix: str) -> None:
        super().__init__()
        self.arrays, self.prefix = arrays, prefix

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.arrays[self.prefix + name]
