"""When a change began: the best split between the old regime's scores and the new one's.

A change is known only when batches end. With the last observations at hand, and both regimes as
they are known now, it is dated to

    argmax over tau of   sum_{t < tau} log p_old(y_t)  +  sum_{t >= tau} log p_new(y_t).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel
from regimekit.ihmm.emissions.base import Array, Facts, Rows, Sample, View, Work, begin, look
from regimekit.ihmm.state import blank_view

if TYPE_CHECKING:
    from regimekit.ihmm.engine import Engine


class Recent:
    """The latest observations with their designs."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.y: Array = np.zeros((0, 0))
        self.design: Array = np.zeros((0, 0, 0))

    def add(self, y: Array, design: Array) -> None:
        """Remember some more, and forget the oldest."""
        if not len(y):
            return
        if not len(self.y):
            self.y, self.design = y[-self.length :].copy(), design[-self.length :].copy()
            return
        self.y = np.concatenate([self.y, y])[-self.length :]
        self.design = np.concatenate([self.design, design])[-self.length :]

    def pack(self) -> dict[str, NDArray[Any]]:
        return {"recent_y": self.y, "recent_design": self.design}


def since(engine: Engine, old: int, new: int) -> int:
    """First observation that belongs to regime `new`, which has followed `old`."""
    recent = engine.recent
    n = len(recent.y)
    if not engine.emission.timeless:  # what it would have said then is not kept
        begun = engine.state.clock.time[0] - engine.state.clock.size.max()
        return max(int(begun), 0)
    rows = [_version(engine, identity) for identity in (old, new)]
    if min(rows) < 0:
        return engine.time - 1
    scores = np.zeros((2, n))
    work = engine.emission.work(1, 1, 1)
    view = blank_view(1, engine.emission.shape.dim, 1)
    for row, out in zip(rows, scores, strict=True):
        _row_scores(
            engine.rows, work, engine.emission.facts, row, recent.y, recent.design, view, out
        )
    # As bounded as the filter's own: no single value may decide.
    gain = np.clip(scores[1] - scores[0], -_MOST, _MOST)
    after = np.append(np.cumsum(gain[::-1])[::-1], 0.0)  # evidence of all from tau on
    tau = int(np.argmax(after[:-1]))
    return max(engine.time - n + tau, 0)


_MOST = 6.0  # nats that one observation may say about the date


def _version(engine: Engine, identity: int) -> int:
    """The row of a regime that most of the weight remembers, or -1."""
    held = engine.row_mass()
    held[engine.state.ledger.identity != identity] = 0.0
    return int(np.argmax(held)) if held.max() > 0 else -1


@kernel
def _row_scores(
    rows: Rows,
    work: Work,
    facts: Facts,
    row: int,
    y: np.ndarray,
    design: np.ndarray,
    view: View,
    out_score: np.ndarray,
) -> None:
    """-log of the scaled residual's size and spread, coordinate by coordinate, of each y."""
    d = y.shape[1]
    lower, seen = np.empty((d, d)), np.arange(d)
    begin(rows, work, 0, 0, row)
    for t in range(y.shape[0]):
        look(rows, work, facts, 0, 0, row, Sample(y[t], seen, design[t], lower), view)
        out_score[t] = 0.0
        for j in range(d):
            if not np.isnan(y[t, j]):
                variance = view.spread[0, 0, j, j]
                residual = min(abs(y[t, j] - view.location[0, 0, j]), 1e100)
                out_score[t] -= 0.5 * (np.log(variance) + residual * residual / variance)
