"""The memory that lags look back on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError, whole

Array = NDArray[np.float64]


class Past:
    """The last observations, for lags: a missing value repeats the one before it, or 0.

    Example:
        >>> past = Past(depth=2, dim=1)
        >>> for y in (5.0, np.nan):
        ...     past.push(np.array([y]))
        >>> past.values.tolist()
        [[5.0], [5.0]]
    """

    values: Array  # (depth, d), latest last

    def __init__(self, depth: int, dim: int) -> None:
        self.values = np.zeros((whole("depth", depth, 0), whole("dim", dim)))

    def push(self, y: Array) -> None:
        """Remember one more observation and forget the oldest."""
        if len(self.values):
            self.values[:-1] = self.values[1:]
            np.copyto(self.values[-1], y, where=~np.isnan(y))

    def copy(self) -> Past:
        """An independent memory of the same observations."""
        twin = Past(*self.values.shape)
        twin.values[:] = self.values
        return twin

    def pack(self) -> dict[str, Array]:
        """The memory as arrays, for a snapshot."""
        return {"past": self.values.copy()}

    def unpack(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take up what `pack` gave."""
        if arrays["past"].shape != self.values.shape:
            raise SnapshotError(
                f"The snapshot's past has shape {arrays['past'].shape}, not {self.values.shape}."
            )
        self.values[:] = arrays["past"]
