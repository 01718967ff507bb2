"""The two pasts of a stream (`features.pasts`) as the members of the bank look back on them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.preprocessing.lag_buffer import BROAD, TwoPasts
from regimekit.serialization.validation import Arrays, Values

Array = NDArray[np.float64]

LARGEST = 1e6  # of a lag, in units
REACH = 0.25  # of the width of the past, beyond which nothing is expected


class SharedPast(TwoPasts):
    """One past for all members, in units; what was not seen is filled in before it is pushed.

    Attributes:
        count: how many values were pushed; those before are zero.
    """

    largest = LARGEST

    def __init__(self, depth: int, dim: int) -> None:
        super().__init__(depth, dim)
        self.count = 0

    def push(self, clean: Array, raw: Array) -> None:
        self.count = min(self.count + 1, self.depth)
        super().push(clean, raw)

    def design(self, version: int, steps: NDArray[np.int64], season: Array | None = None) -> Array:
        """The lag of the first step, then the differences of the others to it: (k, d).

        Less the season, (period, d) from the phase of the next value on, if one is given. A lag
        from before the first value differs by nothing: what is learnt then does not hang on it.
        """
        values = self.values[version, -steps]
        if season is not None:
            values -= season[-steps % len(season)]
        values[1:] -= values[0]
        values[1:][steps[1:] > self.count] = 0.0
        return np.asarray(values)

    def within_reach(self, version: int, location: Array) -> Array:
        """Expectations (k, d), none of them far beyond all that the past holds.

        A regime that has just been born among large lags may expect anything.
        """
        values = self.values[version]
        low, high = values.min(axis=0), values.max(axis=0)
        margin = REACH * (high - low) + BROAD
        return np.clip(location, low - margin, high + margin)

    def seasons(self, version: int, period: int, most: int) -> Array:
        """The latest whole periods, at most so many: (k period, d)."""
        whole = min(self.count // period, most) * period
        return self.values[version, self.depth - whole :]

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        values, arrays = super().pack()
        return values | {"count": self.count}, arrays

    def unpack(self, values: Values, arrays: Arrays) -> None:
        super().unpack(values, arrays)
        self.count = values.whole("count", 0, self.depth)
