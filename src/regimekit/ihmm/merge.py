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

from regimekit.ihmm.batch_schedule import NEAR, merge_due
from regimekit.ihmm.batch_update import recount, start_batch
from regimekit.ihmm.emissions.base import apart
from regimekit.ihmm.emissions.conjugate import Conjugate, Part
from regimekit.ihmm.hdp import forget

if TYPE_CHECKING:
    from regimekit.ihmm.engine import Engine

EVIDENCE = math.log(10.0)  # ten to one


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


class _Pairs:
    """Pairs of rows that were looked at: each row is taken apart once, each pair judged once."""

    def __init__(self, engine: Engine, emission: Conjugate) -> None:
        self.engine, self.emission = engine, emission
        self.parts: dict[int, Part] = {}
        self.made: dict[tuple[int, int], int] = {}

    def row(self, a: int, b: int) -> int:
        """The row that a and b become, or -1 where they stay two."""
        if (a, b) not in self.made:
            try:
                self.made[a, b] = self._write(a, b) if self._same(a, b) else -1
            except np.linalg.LinAlgError:  # they know all too much for what floats can say
                self.made[a, b] = -1
        return self.made[a, b]

    def _same(self, a: int, b: int) -> bool:
        if not apart(self.engine.rows, a, b) <= NEAR:
            return False
        return self.emission.log_same(self.part(a), self.part(b)) > EVIDENCE

    def part(self, row: int) -> Part:
        """What a row has seen."""
        if row not in self.parts:
            self.parts[row] = self.emission.part(self.engine.rows, row)
        return self.parts[row]

    def _write(self, a: int, b: int) -> int:
        engine = self.engine
        engine.ensure_rows(int((engine.state.ledger.owners > 0).sum()) + 2)
        into = int(np.flatnonzero(engine.state.ledger.owners[1:] == 0)[0]) + 1
        self.emission.join(engine.rows, self.part(a), self.part(b), into)
        _write_ledger(engine, a, b, into)
        return into


def _join_island(engine: Engine, g: int) -> bool:
    if not isinstance(engine.emission, Conjugate):
        return False
    pairs = _Pairs(engine, engine.emission)
    clock, joined = engine.state.clock, False
    for i in range(clock.first[g], clock.first[g + 1]):
        p = engine.state.particles
        present = int(p.slots[i, p.current[i]])
        if p.n_regimes[i] < 2 or not _due(engine, present):
            continue
        for other in p.slots[i, : p.n_regimes[i]].tolist():
            if other != present and pairs.row(present, other) >= 0:
                _join_slots(engine, i, present, other, pairs.row(present, other))
                joined = True
                break
    return joined


def _due(engine: Engine, row: int) -> bool:
    ledger = engine.state.ledger
    return bool(merge_due(int(ledger.batches[row]), int(ledger.visits[row]), engine.plan.width))


def _write_ledger(engine: Engine, a: int, b: int, into: int) -> None:
    """The facts of what a and b have become."""
    ledger = engine.state.ledger
    ledger.owners[into] = 1  # until the next recount
    senior = min(a, b, key=lambda row: (1 - ledger.told[row], ledger.identity[row]))
    ledger.identity[into] = ledger.identity[senior]  # a name that was reported stays
    ledger.told[into] = max(ledger.told[a], ledger.told[b])
    ledger.first_seen[into] = min(ledger.first_seen[a], ledger.first_seen[b])
    ledger.last_seen[into] = max(ledger.last_seen[a], ledger.last_seen[b])
    ledger.visits[into] = ledger.visits[a] + ledger.visits[b]
    ledger.batches[into] = ledger.batches[a] + ledger.batches[b]


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
