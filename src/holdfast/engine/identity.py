"""One id for a regime that particles opened at different moments.

A regime's id is its birth: particles that open one in the same batch share it. When a regime is
new, some particles see it a batch sooner than others, so that one regime gets several births, and
which of them has most of the weight changes from batch to batch. Births that are present at
the same time and that no particle holds side by side are told apart by nobody: they are one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from holdfast.hdp import Particles


def reconcile(p: Particles, identity: NDArray[np.int64]) -> None:
    """Give present regimes that no particle tells apart the oldest of their ids, in place.

    `identity` is the id of each pool row. A particle never holds an id twice.
    """
    present = np.unique(identity[p.slots[np.arange(p.current.size), p.current]])
    if present.size == 1:
        return
    opened = np.arange(p.slots.shape[1]) < p.n_regimes[:, None]
    ids = identity[p.slots]
    holders = [((ids == one) & opened).any(axis=1) for one in present]
    kept: list[int] = []
    for j in range(present.size):
        twin = next((k for k in kept if not (holders[k] & holders[j]).any()), None)
        if twin is None:
            kept.append(j)
            continue
        identity[identity == present[j]] = present[twin]
        holders[twin] |= holders[j]
