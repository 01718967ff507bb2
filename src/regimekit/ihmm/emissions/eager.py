"""Rows that learn each observation as it comes, for models without batches of their own."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel
from regimekit.ihmm.emissions.base import (
    Array,
    Emission,
    Facts,
    Rows,
    Sample,
    View,
    Work,
    begin,
    close,
    learn,
    look,
)
from regimekit.ihmm.weights import CONTAMINATION, Scoring, no_outliers


class Components(NamedTuple):
    """One-step predictive of K rows: location (K, d), spread (K, d, d), dof (K,)."""

    location: Array
    spread: Array
    dof: Array


class Eager:
    """An emission whose rows are their own candidates."""

    def __init__(self, emission: Emission) -> None:
        assert emission.scoring.kind != CONTAMINATION  # the outliers' rate is the engine's to learn
        self.emission = emission
        self.work = emission.work(1, 1, 1)
        at, d = (1, 1), emission.shape.dim
        shapes = [(*at, d), (*at, d, d), at] * 2
        self.view = View(*(np.full(shape, np.inf) for shape in shapes))

    def advance(
        self,
        rows: Rows,
        y: Array,
        design: Array,
        fresh: NDArray[np.bool_],
        out_score: Array,
        out_weight: Array,
    ) -> None:
        """Let the first rows see one observation; their scores grow, their weights are written."""
        d = y.size
        sample = Sample(y, np.flatnonzero(~np.isnan(y)), design, np.empty((d, d)))
        _advance(
            rows,
            self.work,
            self.emission.facts,
            sample,
            self.view,
            self.emission.scoring,
            fresh,
            out_score,
            out_weight,
        )

    def predictive(self, rows: Rows, which: NDArray[np.int64], design: Array) -> Components:
        """One-step predictive of some rows."""
        n, d = which.size, self.emission.shape.dim
        parts = Components(np.empty((n, d)), np.empty((n, d, d)), np.full(n, np.inf))
        sample = Sample(np.zeros(d), np.arange(d), design, np.empty((d, d)))
        _predict(rows, self.work, self.emission.facts, sample, self.view, which, parts)
        return parts


@kernel
def _advance(
    rows: Rows,
    work: Work,
    facts: Facts,
    sample: Sample,
    view: View,
    scoring: Scoring,
    fresh: np.ndarray,
    out_score: np.ndarray,
    out_weight: np.ndarray,
) -> None:
    broad = no_outliers()
    for row in range(out_score.size):
        begin(rows, work, 0, 0, row)
        look(rows, work, facts, 0, 0, row, sample, view)
        score, weight = learn(
            rows, work, facts, 0, 0, row, sample, view, scoring, broad, fresh[row], 0
        )
        out_score[row] += score
        out_weight[row] = weight
        close(rows, work, facts, 0, 0, row, row)


@kernel
def _predict(
    rows: Rows,
    work: Work,
    facts: Facts,
    sample: Sample,
    view: View,
    which: np.ndarray,
    out: Components,
) -> None:
    for i in range(which.size):
        begin(rows, work, 0, 0, which[i])
        look(rows, work, facts, 0, 0, which[i], sample, view)
        out.location[i] = view.location[0, 0]
        out.spread[i] = view.spread[0, 0]
        out.dof[i] = view.dof[0, 0]
