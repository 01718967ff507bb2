"""An emission that counts the rows it is asked to filter."""

from __future__ import annotations

from typing import Any

import numpy as np

from holdfast.models.regime_model import RegimeModel


def spied_rows(model: RegimeModel, y: Any, X: Any) -> tuple[float, float, float]:
    """(rows filtered, distinct rows, regimes owned by all particles) per observation.

    Counts what `advance` is really given, and separately what the particles point at.
    """
    filtered, distinct, owned = [], [], []
    for t in range(len(y)):
        if model.engine is not None and not hasattr(model.engine.emission, "spied"):
            _spy(model.engine.emission, filtered)
        if model.engine is not None:
            p = model.engine.particles
            used = np.arange(p.slots.shape[1]) <= p.n_regimes[:, None]
            distinct.append(np.unique(p.slots[used]).size)
            owned.append(int(p.n_regimes.sum()))
        model.update(y[t], None if X is None else X[t])
    return float(np.mean(filtered)), float(np.mean(distinct)), float(np.mean(owned))


def _spy(emission: Any, counts: list[int]) -> None:
    """Wrap `advance` so that it notes how many candidates it moves."""
    advance = emission.advance

    def counting(running: Any, pool: Any, batch: Any, y: Any, design: Any) -> None:
        counts.append(len(running[0]))
        advance(running, pool, batch, y, design)

    emission.advance, emission.spied = counting, True
