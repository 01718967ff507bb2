"""The model's own posterior of a batch that has not been observed: candidates, run ahead.

The score of a batch belongs to a pool row, whoever owns it. With the prior mass of row r,

    pi_r = sum over particles i and slots l that point at r of omega_i P(l | s_i),

the posterior over (particle, regime) is P(i, l) = omega_i P(l | s_i) exp(score_r) / Z, so the
ratio of two such posteriors depends on the row alone, and their KL over (particle, regime) *is*
the KL over rows with masses pi_r exp(score_r) / Z. Nothing is approximated by working with rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._numba import kernel
from holdfast.emissions.base import Array, Batch, Emission, Rows
from holdfast.engine.engine import Engine
from holdfast.engine.pool import UNBORN
from holdfast.errors import HoldfastError
from holdfast.frames import Row, read_table
from holdfast.hdp import Particles, log_transition_row
from holdfast.models.base import Model
from holdfast.models.regime_model import RegimeModel


class Candidates(NamedTuple):
    """Every live row inside a batch: what it would become, and its score so far."""

    rows: Rows
    score: Array


class Outlook:
    """A fitted model as it stands, ready to be asked about observations it has not seen.

    Attributes:
        start: the candidates as the model stands now, perhaps in the middle of a batch.
        log_prior: (K,) log prior mass of each candidate.
        identity: (K,) regime id of each candidate, UNBORN for a regime not opened yet.
        left: observations until the batch is full.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.engine = _fitted(model)
        engine = self.engine
        self.start = Candidates(_copy(engine.running), engine.batch.score.copy())
        self.identity: NDArray[np.int64] = engine.pool.ledger.identity[engine.batch.live]
        self.left = engine.size - engine.position
        self.log_prior = np.full(engine.batch.live.size, -np.inf)
        sticky = engine.settings.concentration.sticky
        _row_mass(engine.particles, sticky, engine.lookup, self.log_prior)

    @property
    def emission(self) -> Emission:
        return self.engine.emission

    @property
    def born(self) -> NDArray[np.bool_]:
        """Whether each candidate is an open regime."""
        return np.asarray(self.identity != UNBORN)

    def designs(self, y: Array, x: list[Row | None]) -> list[Array]:
        """Design of each observation of the batch y (n, d); lagged features see y itself."""
        model, past = self.model, self.model.past.copy()
        designs = []
        for b, row in enumerate(x):
            phi = model.features.row(row, self.engine.time + b, past.values)
            designs.append(self.emission.design(phi))
            past.push(y[b])
        return designs

    def follow(self, origin: Candidates, y: Array, designs: list[Array]) -> Candidates:
        """The candidates after observing y (n, d), from `origin`; nothing else changes.

        An observation that is missing altogether says nothing, about births neither.
        """
        batch = self.engine.batch
        ours = Batch(batch.live, batch.fresh, origin.score.copy(), batch.weight.copy())
        rows = _copy(origin.rows)
        for b, design in enumerate(designs):
            if not np.isnan(y[b]).all():
                self.emission.advance(rows, self.engine.pool.rows, ours, y[b], design)
        return Candidates(rows, ours.score)

    def log_posterior(self, score: Array) -> Array:
        """Log posterior mass of every candidate; scores may be (.., K)."""
        joint = self.log_prior + score
        top = joint.max(axis=-1, keepdims=True)
        total = top + np.log(np.exp(joint - top).sum(axis=-1, keepdims=True))
        return np.asarray(joint - total)

    def covariates(self, x: Any, n: int) -> list[Row | None]:
        """The covariates of n observations to come, checked."""
        table = read_table(x)
        if table is None:
            return [self.model.features.check(None)] * n
        if len(table.values) != n:
            raise HoldfastError(f"x has {len(table.values)} rows but clean has {n}.")
        return [self.model.features.check(table.row(t)) for t in range(n)]


def read_batch(outlook: Outlook, clean: Any) -> Array:
    """`clean` as (n, d): the observations expected next, at most the rest of the batch."""
    values = np.array(clean, dtype=np.float64)
    dim = outlook.emission.shape.dim
    if values.ndim == 0 or (values.ndim == 1 and dim > 1):
        values = values[None]
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != dim:
        raise HoldfastError(f"clean must be n observations of {dim} value(s), got {values.shape}.")
    if not 1 <= len(values) <= outlook.left:
        raise HoldfastError(
            f"clean has {len(values)} observations; the batch under way has room for "
            f"{outlook.left}."
        )
    if np.isinf(values).any():
        raise HoldfastError("clean is infinite; pass NaN for a value that was not observed.")
    return values


def _fitted(model: Model) -> tuple[RegimeModel, Engine]:
    if not isinstance(model, RegimeModel):
        raise HoldfastError(
            f"model must be one of the infinite HMM family, got {type(model).__name__}."
        )
    if model.engine is None:
        raise HoldfastError("model has seen nothing yet; run it on some observations first.")
    return model, model.engine


def _copy(rows: Rows) -> Rows:
    return type(rows)(*(array.copy() for array in rows))


@kernel
def _row_mass(p: Particles, sticky: float, lookup: np.ndarray, out_log_mass: np.ndarray) -> None:
    """log pi_r of every candidate: particle weight times transition probability, summed in logs."""
    row = np.empty(p.log_beta.shape[1])
    for i in range(p.alpha.size):
        log_transition_row(p, i, sticky, row)
        for l in range(p.n_regimes[i] + 1):
            k = lookup[p.slots[i, l]]
            out_log_mass[k] = np.logaddexp(out_log_mass[k], p.log_weight[i] + row[l])
