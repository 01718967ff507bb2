"""Regimes shared by particles: every distinct posterior is stored once.

Given its past, a regime's posterior is a function of the batches it was given. Two particles
that hold the same row and give it the same batch hold the same successor, so a particle needs
only row numbers: resampling copies numbers, a batch filters each *distinct* row once, and a row
that nobody points at is free again. Because a row's history is shared too, its id, its visits
and when it was seen belong to the row and not to a particle.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.emissions.base import Emission, Rows

PRIOR_ROW = 0  # what a regime not opened yet would start from
UNBORN = -1  # id of a row that is no regime yet
_FIRST_CAPACITY = 32


class Ledger(NamedTuple):
    """Facts about each row that the engine keeps.

    Attributes:
        owners: (cap,) how many particle slots point here.
        identity: (cap,) regime id, or UNBORN.
        first_seen: (cap,) time its first batch began.
        last_seen: (cap,) time its latest batch ended, whether anything was observed or not.
        visits: (cap,) observations it has learnt from.
        batches: (cap,) batches it was given.
    """

    owners: NDArray[np.int64]
    identity: NDArray[np.int64]
    first_seen: NDArray[np.int64]
    last_seen: NDArray[np.int64]
    visits: NDArray[np.int64]
    batches: NDArray[np.int64]


class Pool:
    """Rows of an emission with their ledger; grows by doubling, never shrinks below its need."""

    def __init__(self, emission: Emission) -> None:
        self.emission = emission
        self.rows: Rows = emission.blank(_FIRST_CAPACITY)
        self.ledger = _blank_ledger(_FIRST_CAPACITY)
        emission.write_prior(self.rows, PRIOR_ROW)

    @property
    def capacity(self) -> int:
        return int(self.ledger.owners.size)

    def live(self) -> NDArray[np.int64]:
        """Rows with an owner, in order."""
        return np.flatnonzero(self.ledger.owners)

    def free(self, n: int) -> NDArray[np.int64]:
        """`n` rows without an owner, the lowest first; the pool grows if there are too few."""
        while True:
            vacant = np.flatnonzero(self.ledger.owners[1:] == 0) + 1
            if vacant.size >= n:
                return vacant[:n]
            self._grow()

    def recount(self, slots: NDArray[np.int64], n_regimes: NDArray[np.int64]) -> None:
        """Count owners afresh: every slot in use, the one not opened yet included."""
        used = np.arange(slots.shape[1]) <= n_regimes[:, None]
        self.ledger.owners[:] = np.bincount(slots[used], minlength=self.capacity)

    def copy_rows(self, source: Rows, picked: NDArray[np.int64], into: NDArray[np.int64]) -> None:
        """Write the statistics `source[picked]` to the rows `into`."""
        for ours, theirs in zip(self.rows, source, strict=True):
            ours[into] = theirs[picked]

    def take(self, which: NDArray[np.int64]) -> Rows:
        """A copy of some rows."""
        return type(self.rows)(*(array[which] for array in self.rows))

    def pack(self) -> dict[str, NDArray[Any]]:
        """Live rows and the ledger, as arrays; vacant rows are not worth saving."""
        live = self.live()
        arrays = {f"ledger_{name}": a for name, a in self.ledger._asdict().items()}
        arrays |= {f"row_{j}": array[live] for j, array in enumerate(self.rows)}
        return arrays

    def unpack(self, arrays: dict[str, NDArray[Any]]) -> None:
        self.ledger = Ledger(*(arrays[f"ledger_{name}"].copy() for name in Ledger._fields))
        self.rows = self.emission.blank(self.capacity)
        self.emission.write_prior(self.rows, PRIOR_ROW)
        live = self.live()
        for j, array in enumerate(self.rows):
            array[live] = arrays[f"row_{j}"]

    def _grow(self) -> None:
        old = self.capacity
        bigger = self.emission.blank(2 * old)
        for new, array in zip(bigger, self.rows, strict=True):
            new[:old] = array
        self.rows = bigger
        fresh = _blank_ledger(2 * old)
        for new, array in zip(fresh, self.ledger, strict=True):
            new[:old] = array
        self.ledger = fresh


def _blank_ledger(capacity: int) -> Ledger:
    zeros = [np.zeros(capacity, np.int64) for _ in Ledger._fields]
    ledger = Ledger(*zeros)
    ledger.identity[:] = UNBORN
    return ledger


def copied(rows: Rows) -> Rows:
    """Rows of the same kind in memory of their own."""
    return type(rows)(*(array.copy() for array in rows))
