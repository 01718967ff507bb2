"""Members that do not matter rest, and are tried again now and then.

A regime model costs the same whether anybody listens or not. One whose weight stayed below `HEARD`
for `TRIAL` observations rests for `REST`: it is neither asked nor taught, and for its sums in the
mixture time stands still. Then it is on trial again. It wakes with the weight it had, so that what
it has missed can do no harm, and long enough for it to learn what is new and to be heard. Only
those rest that do nothing but forecast: who reads regimes is always needed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.ensemble.members import Spec
from regimekit.serialization.validation import Arrays

HEARD = 0.02  # a weight below which a member is not missed
TRIAL, REST = 1000, 4000  # observations


class Parking:
    """Who is awake.

    Args:
        specs: of the regime members.

    Example:
        >>> parking = Parking([Spec("level", reads=True), Spec("lags 1 to 3", (1, 2, 3))])
        >>> for _ in range(TRIAL):
        ...     _ = parking.watch(np.array([0.01, 0.01]))
        >>> parking.awake.tolist()
        [True, False]
    """

    def __init__(self, specs: list[Spec]) -> None:
        self.may_rest = np.array([spec.forecasts and not spec.reads for spec in specs], bool)
        self.awake = np.ones(len(specs), bool)
        self.elapsed = np.zeros(len(specs), np.int64)  # observations since it woke or went to rest
        self.peak = np.zeros(len(specs))  # largest weight since then

    def watch(self, weight: NDArray[np.float64]) -> bool:
        """One observation with these weights of the regime members; whether somebody moved."""
        self.elapsed += 1
        np.maximum(self.peak, weight, out=self.peak)
        tried = self.awake & (self.elapsed >= TRIAL)
        tired = tried & (self.peak < HEARD) & self.may_rest
        rested = ~self.awake & (self.elapsed >= REST)
        self.awake[tired], self.awake[rested] = False, True
        anew = tried | rested
        self.elapsed[anew], self.peak[anew] = 0, 0.0
        return bool(tired.any() or rested.any())

    def pack(self) -> dict[str, NDArray[Any]]:
        """State for a snapshot."""
        names = ("awake", "elapsed", "peak")
        return {f"parking.{name}": getattr(self, name).copy() for name in names}

    def unpack(self, arrays: Arrays) -> None:
        """Take up what `pack` gave."""
        n = self.awake.size
        self.awake = arrays.flags("parking.awake", (n,))
        self.elapsed = arrays.wholes("parking.elapsed", (n,), 0, REST)
        self.peak = arrays.floats("parking.peak", (n,), 0.0, 1.0)
        if (~self.awake & ~self.may_rest).any():
            raise SnapshotError("The snapshot lets members rest that are always needed.")
