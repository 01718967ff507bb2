"""One id for a regime that particles opened at different moments.

A regime's id is its birth: particles that open one in the same batch share it. When a regime is
new, some particles see it a batch sooner than others, so that one regime gets several births, and
which of them has most of the weight changes from batch to batch. Births that are present at
the same time and that no particle holds side by side are told apart by nobody: they are one, if
together they are what most of the weight says is present. (Strays of a few particles are not.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.hdp import Particles


def reconcile(p: Particles, identity: NDArray[np.int64]) -> None:
    """Give present regimes that no particle tells apart the oldest of their ids, in place.

    `identity` is the id of each pool row. A particle never holds an id twice.
    """
    now = identity[p.slots[np.arange(p.current.size), p.current]]
    present = np.unique(now)
    if present.size == 1:
        return
    opened = np.arange(p.slots.shape[1]) < p.n_regimes[:, None]
    ids = identity[p.slots]
    weight = np.exp(p.log_weight)
    groups: list[_Group] = []
    for one in present.tolist():
        holders = ((ids == one) & opened).any(axis=1)
        share = float(weight[now == one].sum())
        group = next((g for g in groups if not (g.holders & holders).any()), None)
        if group is None:
            groups.append(_Group([one], holders, share))
        else:
            group.add(one, holders, share)
    for group in groups:
        if group.share > 0.5:
            identity[np.isin(identity, group.ids)] = group.ids[0]


@dataclass
class _Group:
    """Ids that no particle holds side by side, who holds one of them, and their present weight."""

    ids: list[int]
    holders: NDArray[np.bool_]
    share: float

    def add(self, one: int, holders: NDArray[np.bool_], share: float) -> None:
        self.ids.append(one)
        self.holders = self.holders | holders
        self.share += share
