"""One regime followed through the kernels of an emission, without the filter."""

from __future__ import annotations

from typing import Any

import numpy as np

from regimekit.ihmm.emissions.base import Emission
from regimekit.ihmm.weights import WEIGHTS, Scoring

SWITCHES = ("weigh_regimes", "unit_free", "predictive", "weigh_births", "sequential")
LONGEST = 200  # observations of a batch


def scoring(weight: str = "none", threshold: float = 2.0, **switches: bool) -> Scoring:
    """Return a scoring with every deviation on, except those given as False."""
    chosen = dict.fromkeys(SWITCHES, True) | switches
    return Scoring(WEIGHTS[weight], threshold, **chosen)


class Follower:
    """Row 0 is the regime at the start of the batch; the batch turns it into row 1.

    Observations are stored until a result is asked for, then filtered from row 0.

    Args:
        emission: built for batches of up to `LONGEST` observations.
        fresh: whether the first batch is that of a new regime (D3).
    """

    def __init__(self, emission: Emission, fresh: bool = True) -> None:
        self.emission, self.fresh = emission, fresh
        emission.resize_rows(2)
        emission.resize_candidates(1, 1)
        emission.write_prior(0)
        self.finished = 0.0  # score of the batches before
        self.batch: list[tuple[np.ndarray, np.ndarray]] = []

    def learn(self, y: Any, design: Any) -> None:
        if len(self.batch) == LONGEST:
            self.end_batch()
        value = np.atleast_1d(np.asarray(y, float))
        self.batch.append((value, np.atleast_2d(np.asarray(design, float))))

    def look(self, design: Any) -> tuple[np.ndarray, np.ndarray, float]:
        """Return location, spread and degrees of freedom of the next observation."""
        ahead = (np.full(self.emission.dim, np.nan), np.atleast_2d(np.asarray(design, float)))
        _, _, location, spread, dof = self._filter([*self.batch, ahead])
        return location[-1], spread[-1], float(dof[-1])

    @property
    def score(self) -> float:
        return self.finished + float(self._filter(self.batch)[0].sum())

    @property
    def weight(self) -> float:
        """w^2 of the latest observation."""
        return float(self._filter(self.batch)[1][-1])

    def end_batch(self) -> None:
        """Turn the regime into what it has learnt, and begin another batch."""
        self.finished += float(self._filter(self.batch)[0].sum())
        self.emission.finalize_row(0, 0)
        self.fresh, self.batch = False, []

    def closed(self) -> dict[str, np.ndarray]:
        """Return the arrays of the row that the batch so far has turned the regime into."""
        self._filter(self.batch)
        self.emission.finalize_row(0, 1)
        names = self.emission.row_arrays
        return {name: np.asarray(getattr(self.emission, name))[1].copy() for name in names}

    def _filter(self, batch: list[tuple[np.ndarray, np.ndarray]]) -> list[np.ndarray]:
        emission = self.emission
        shape = np.asarray(emission.observation.design).shape
        y = np.array([value for value, _ in batch]).reshape(len(batch), emission.dim)
        designs = np.array([design for _, design in batch]).reshape(len(batch), *shape)
        return [part[0] for part in emission.filter_rows([0], y, designs, self.fresh)]
