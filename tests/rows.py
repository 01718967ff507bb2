"""One regime followed by hand through an emission's kernels, without the engine."""

from __future__ import annotations

from typing import Any

import numpy as np

from regimekit.ihmm.emissions.base import Emission, Sample, begin, close, learn, look, rest
from regimekit.ihmm.state import blank_view
from regimekit.ihmm.weights import COLLAPSED, WEIGHTS, Broad, Scoring, no_outliers


def scoring(weight: str = "none", threshold: float = 2.0, **switches: bool) -> Scoring:
    """A law with every deviation on, unless said."""
    ours = dict.fromkeys(Scoring._fields[2:], True) | switches
    return Scoring(WEIGHTS[weight], threshold, **ours)


class Follower:
    """Row 0 is the regime as the batch began; what the batch makes of it is written to row 1."""

    def __init__(self, emission: Emission, fresh: bool = True, longest: int = 200) -> None:
        self.emission, self.fresh, self.longest = emission, fresh, longest
        self.rows = emission.blank(2)
        emission.write_prior(self.rows, 0)
        self.work = emission.work(1, 1, longest)
        self.view = blank_view(1, emission.shape.dim, 1)
        self.score, self.weight, self.learnt = 0.0, 1.0, 0
        begin(self.rows, self.work, 0, 0, 0)

    def sample(self, y: Any, design: Any) -> Sample:
        y = np.atleast_1d(np.asarray(y, dtype=float))
        f = np.ascontiguousarray(np.atleast_2d(design), dtype=float)
        return Sample(y, np.flatnonzero(~np.isnan(y)), f, np.empty((y.size, y.size)))

    def look(self, design: Any) -> tuple[np.ndarray, np.ndarray, float]:
        """Location, spread and degrees of freedom of the next observation."""
        sample = self.sample(np.zeros(self.emission.shape.dim), design)
        look(self.rows, self.work, self.emission.facts, 0, 0, 0, sample, self.view)
        return self.view.location[0, 0], self.view.spread[0, 0], float(self.view.dof[0, 0])

    def learn(
        self, y: Any, design: Any, broad: Broad | None = None, belief: int = COLLAPSED
    ) -> None:
        sample = self.sample(y, design)
        if not sample.seen.size:
            rest(self.rows, self.work, 0, 0)
            return
        if self.learnt == self.longest:
            self.end_batch()
        facts = self.emission.facts
        look(self.rows, self.work, facts, 0, 0, 0, sample, self.view)
        score, self.weight = learn(
            self.rows,
            self.work,
            facts,
            0,
            0,
            0,
            sample,
            self.view,
            self.emission.scoring,
            no_outliers() if broad is None else broad,
            self.fresh,
            belief,
        )
        self.score += score
        self.learnt += 1

    def end_batch(self) -> None:
        """The regime becomes what it has learnt, and a new batch begins."""
        for array, other in zip(self.rows, self.closed(), strict=True):
            array[0] = other[1]
        self.fresh, self.learnt = False, 0
        begin(self.rows, self.work, 0, 0, 0)

    def closed(self) -> Any:
        """The rows, with what the candidate has become in row 1."""
        close(self.rows, self.work, self.emission.facts, 0, 0, 0, 1)
        return self.rows
