"""Duplicates inside a particle (D11): two regimes that are one become one.

A new level is at times opened twice by the same particle, and nothing in the filter can undo it.
So when a regime has been given its 2nd, 4th, 8th, .. batch it is compared with the others of its
particle. With p_0 the prior and p_a, p_b the posteriors of what each has seen,

    Bayes factor of one regime against two  =  integral of p_a(theta) p_b(theta) / p_0(theta)

which is closed form for conjugate rows. Above `EVIDENCE` the two become one row: their statistics
add up, and so do their transition counts and their shares.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from holdfast._numba import kernel
from holdfast.emissions.base import apart
from holdfast.regimes.commit import recount, start_batch
from holdfast.regimes.prior import forget

if TYPE_CHECKING:
    from holdfast.regimes.engine import Engine

EVIDENCE = math.log(10.0)  # ten to one
_NEAR = 4.0  # posterior standard deviations: farther ones need no closer look


def join_duplicates(engine: Engine) -> bool:
    """Join what is the same in every island whose batch has just ended; whether anything was."""
    clock = engine.state.clock
    joined = False
    for g in range(clock.size.size):
        if clock.position[g] == 0 and _join_island(engine, g):
            recount(engine.ref)
            held = int((engine.state.ledger.owners > 0).sum())
            engine.ensure_candidates(held + int(clock.size[g]) // 2 + 1)
            start_batch(engine.rows, engine.work, engine.ref, engine.plan_ref, g)
            joined = True
    return joined


def _join_island(engine: Engine, g: int) -> bool:
    made: dict[tuple[int, int], int] = {}  # pair of rows -> what it has become, -1 if it stays two
    clock, joined = engine.state.clock, False
    for i in range(clock.first[g], clock.first[g + 1]):
        p = engine.state.particles
        present = int(p.slots[i, p.current[i]])
        if p.n_regimes[i] < 2 or not due(int(engine.state.ledger.batches[present])):
            continue
        for other in p.slots[i, : p.n_regimes[i]].tolist():
            if other != present and _joined_row(engine, present, other, made) >= 0:
                _join_slots(engine, i, present, other, made[present, other])
                joined = True
                break
    return joined


@kernel
def due(batches: int) -> bool:
    """Whether this is the 2nd, 4th, 8th, .. batch of a regime."""
    return batches > 1 and batches & (batches - 1) == 0


def _joined_row(engine: Engine, a: int, b: int, made: dict[tuple[int, int], int]) -> int:
    """The row that a and b become, or -1."""
    if (a, b) not in made:
        near = apart(engine.rows, a, b) <= _NEAR
        same = near and engine.emission.log_same(engine.rows, a, b) > EVIDENCE
        made[a, b] = _write(engine, a, b) if same else -1
    return made[a, b]


def _write(engine: Engine, a: int, b: int) -> int:
    engine.ensure_rows(int((engine.state.ledger.owners > 0).sum()) + 2)
    ledger = engine.state.ledger
    into = int(np.flatnonzero(ledger.owners[1:] == 0)[0]) + 1
    engine.emission.join(engine.rows, a, b, into)
    ledger.owners[into] = 1  # until the next recount
    senior = min(a, b, key=lambda row: (1 - ledger.told[row], ledger.identity[row]))
    ledger.identity[into] = ledger.identity[senior]  # a name that was reported stays
    ledger.told[into] = max(ledger.told[a], ledger.told[b])
    ledger.first_seen[into] = min(ledger.first_seen[a], ledger.first_seen[b])
    ledger.last_seen[into] = max(ledger.last_seen[a], ledger.last_seen[b])
    ledger.visits[into] = ledger.visits[a] + ledger.visits[b]
    ledger.batches[into] = ledger.batches[a] + ledger.batches[b]
    return into


def _join_slots(engine: Engine, i: int, a: int, b: int, row: int) -> None:
    """Particle i's regimes a and b become one: counts and shares add up."""
    p = engine.state.particles
    n = int(p.n_regimes[i])
    held = p.slots[i, :n].tolist()
    keep, drop = sorted((held.index(a), held.index(b)))
    p.counts[i, keep, :n] += p.counts[i, drop, :n]
    p.counts[i, :n, keep] += p.counts[i, :n, drop]
    p.start[i, keep] += p.start[i, drop]
    p.log_beta[i, keep] = np.logaddexp(p.log_beta[i, keep], p.log_beta[i, drop])
    p.slots[i, keep] = row
    p.current[i] = keep
    p.log_beta[i, drop] = -np.inf
    forget(p, i, drop, engine.plan.keep_start)
