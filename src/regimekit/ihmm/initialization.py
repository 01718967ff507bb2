"""The state before anything was seen: alpha and gamma from their priors, and the first batches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from regimekit.ihmm.batch_schedule import next_size
from regimekit.ihmm.batch_update import draw_prospects, recount, start_batch
from regimekit.ihmm.hdp import LEAST, log_stick_rest

if TYPE_CHECKING:
    from regimekit.ihmm.engine import Engine


def begin(engine: Engine) -> None:
    """alpha and gamma from their priors, and the first batches.

    With the start row (D6) nothing is open yet and the first batch opens regime 1. Without
    it regime 1 exists from the beginning, with a share beta_1 ~ Beta(1, gamma).
    """
    p, clock, prior = engine.state.particles, engine.state.clock, engine.plan.concentration
    n = p.alpha.size
    draws = (prior.alpha_shape, prior.alpha_rate), (prior.gamma_shape, prior.gamma_rate)
    for column, (shape, rate) in zip((p.alpha, p.gamma), draws, strict=True):
        column[:] = np.maximum(engine.rng.gamma(shape, 1.0 / rate, n), LEAST)
    clock.outliers[:] = engine.plan.outlier_prior
    islands = range(clock.size.size)
    for g in islands:
        clock.ess[g] = clock.first[g + 1] - clock.first[g]
        p.log_weight[clock.first[g] : clock.first[g + 1]] = -math.log(clock.ess[g])
    if not engine.plan.keep_start:
        _open_first(engine)
    recount(engine.ref)
    for g in islands:
        if not engine.plan.shared_prior:
            engine.ensure_rows(clock.first[-1] + 1)
            draw_prospects(engine.rows, engine.emission.facts, engine.ref, g, engine.rng)
        _first_batch(engine, g)
    recount(engine.ref)  # prospects have taken the prior's place (D9)


def _first_batch(engine: Engine, g: int) -> None:
    """Islands begin together; their first batches end one after the other."""
    clock = engine.state.clock
    size = int(next_size(engine.plan.schedule, clock.batch_outliers))
    clock.size[g] = size + g * size // clock.size.size
    held = 1 if engine.plan.shared_prior else engine.state.particles.alpha.size
    engine.ensure_candidates(2 * held + engine.longest)
    start_batch(engine.rows, engine.work, engine.ref, engine.plan_ref, g)


def _open_first(engine: Engine) -> None:
    """The paper's regime 1 exists before it has seen anything, in rows of its own.

    On the prior's row its id would pass to every regime opened later.
    """
    p = engine.state.particles
    for i in range(p.alpha.size):
        p.log_beta[i, 1] = log_stick_rest(p.gamma[i], engine.rng)
    p.log_beta[:, 0] = np.log(-np.expm1(p.log_beta[:, 1]))
    p.current[:] = 0
    if engine.plan.shared_prior:
        engine.emission.write_prior(engine.rows, 1)
        p.slots[:, 0] = 1
    else:
        engine.ensure_rows(2 * p.alpha.size + 1)
        for g in range(engine.state.clock.size.size):
            draw_prospects(engine.rows, engine.emission.facts, engine.ref, g, engine.rng)
    p.n_regimes[:] = 1
    engine.state.ledger.identity[np.unique(p.slots[:, 0])] = engine.state.clock.next_id[0]
    engine.state.clock.next_id[0] += 1
    engine.state.ledger.owners[np.unique(p.slots[:, 0])] = 1
