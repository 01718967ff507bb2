"""The loop over observations: look, tell the forecast, observe, commit the batches that are full.

It runs without Python from one pause to the next. A pause is for what is rare: memory to be
made, a change to be told and dated, duplicates to be looked for, an outlier that may be a lag.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from regimekit._numba import bare, kernel
from regimekit.core.loops import fill
from regimekit.ihmm.batch_schedule import NEAR, merge_due
from regimekit.ihmm.batch_update import commit, write_prior_mass
from regimekit.ihmm.emissions.base import Facts, Rows, Sample, Work, apart
from regimekit.ihmm.label_matching import probability_of
from regimekit.ihmm.plan import Plan
from regimekit.ihmm.state import START, State
from regimekit.ihmm.track import Track
from regimekit.ihmm.weights import LONGEST
from regimekit.ihmm.within_batch import look_all, observe, spread_mass, write_components

DONE, ROOM, PAUSE, DOUBTED = range(4)


class Scales(NamedTuple):
    """scale: (d, d) of the outliers' density. noise: (d, d) of an observation (D8)."""

    scale: np.ndarray
    noise: np.ndarray


class Machine(NamedTuple):
    """All that the loop works with."""

    rows: Rows
    work: Work
    facts: Facts
    state: State
    plan: Plan
    scales: Scales
    rng: np.random.Generator


@kernel
def drive(
    machine: Machine,
    y: np.ndarray,
    design: np.ndarray,
    track: Track,
    first: int,
    looked: bool,
    doubt: float,
) -> tuple[int, int]:
    """Observations y (T, d), design (T, r, m) from `first` on; the next one to do, and why.

    `looked` says that the forecast of the first is there already. After an observation whose
    weight is below `doubt` later designs may be others: there the loop ends.
    """
    rows, work, facts = machine.rows, machine.work, machine.facts
    state, plan, scales, rng = machine.state, machine.plan, machine.scales, machine.rng
    lower = np.empty((y.shape[1], y.shape[1]))
    for t in range(first, y.shape[0]):
        if not has_room(state, plan, track, t):
            return t, ROOM
        sample = sample_at(y[t], design[t], lower)
        if t > first or not looked:
            look_all(rows, work, facts, state, sample)
        track.offset[t + 1] = write_components(
            state,
            plan,
            scales.scale,
            scales.noise,
            track.offset[t],
            track.share,
            track.location,
            track.spread,
            track.dof,
        )
        reported, remembered = state.clock.vote[0], state.clock.vote[2]
        merge = step(rows, work, facts, state, plan, scales, rng, sample, track, t)
        if merge or state.clock.vote[0] != reported or state.clock.vote[2] != remembered:
            return t + 1, PAUSE
        if track.weight[t] < doubt and sample.seen.size > 0:
            return t + 1, DOUBTED
    return y.shape[0], DONE


@kernel
def sample_at(y: np.ndarray, design: np.ndarray, lower: np.ndarray) -> Sample:
    """An observation, ready for the kernels."""
    seen = np.empty(y.size, np.int64)
    n = 0
    for j in range(y.size):
        if not np.isnan(y[j]):
            seen[n] = j
            n += 1
    return Sample(y, seen[:n], design, lower)


@kernel
def step(
    rows: Rows,
    work: Work,
    facts: Facts,
    state: State,
    plan: Plan,
    scales: Scales,
    rng: np.random.Generator,
    sample: Sample,
    track: Track,
    t: int,
) -> bool:
    """One observation, and the end of every batch that it fills; whether a merge may be due."""
    clock = state.clock
    weight, change = observe(rows, work, facts, state, plan, scales.scale, sample)
    settled, merge = 0, False
    for g in range(clock.size.size):
        if clock.position[g] < clock.size[g]:
            continue
        if clock.observed[g] == 0:
            before = spread_mass(state, g)
            write_prior_mass(state, plan, g, False)
            change += (spread_mass(state, g) - before) / clock.size.size
        settled = max(settled, clock.size[g])
        commit(rows, work, facts, state, plan, g, rng)
        merge = merge or (plan.merge and wants_merge(rows, state, plan, g))
    track.weight[t] = min(max(weight, 1.0 / LONGEST), 1.0)
    track.change[t] = change
    track.ess[t] = total(clock.ess)
    track.settled[t] = settled
    tell(state, track, t)
    return merge


@bare
def total(values: np.ndarray) -> float:
    """Their sum."""
    found = 0.0
    for i in range(values.size):
        found += values[i]
    return found


@bare
def tell(state: State, track: Track, t: int) -> None:
    """What is known of the regime after observation t."""
    vote = state.clock.vote
    track.regime[t] = vote[0]
    track.known[t] = vote[1]
    track.probability[t] = probability_of(state, vote[0])


@kernel
def wants_merge(rows: Rows, state: State, plan: Plan, g: int) -> bool:
    """Whether a present regime of island g is due, and near another one of its particle (D11)."""
    p, ledger = state.particles, state.ledger
    compared = np.empty(ledger.owners.size, np.int64)  # with which row each was, last
    fill(compared, compared.size, -1)
    for i in range(state.clock.first[g], state.clock.first[g + 1]):
        if p.current[i] == START or p.n_regimes[i] < 2:
            continue
        row = p.slots[i, p.current[i]]
        if not merge_due(ledger.batches[row], ledger.visits[row], plan.width):
            continue
        for l in range(p.n_regimes[i]):
            other = p.slots[i, l]
            if other != row and compared[other] != row:
                compared[other] = row
                if apart(rows, row, other) <= NEAR:
                    return True
    return False


@bare
def has_room(state: State, plan: Plan, track: Track, t: int) -> bool:
    """Whether memory suffices for the forecast and for the batches that end here."""
    clock, p = state.clock, state.particles
    need = track.offset[t] + 1
    for g in range(clock.size.size):
        need += clock.candidates[g]
    if need > track.share.size:
        return False
    free = -1  # counted when it is needed
    for g in range(clock.size.size):
        if clock.position[g] + 1 < clock.size[g]:
            continue
        free = free if free >= 0 else free_rows(state)
        n = clock.first[g + 1] - clock.first[g]
        prospects = 0 if plan.shared_prior else n
        k = clock.candidates[g]
        branches = max(plan.schedule.fixed, plan.schedule.largest) // 2 + 1
        if 2 * k + branches + prospects > state.candidates.row.shape[1]:
            return False
        free -= min(k, n) + prospects
        if free <= 0:
            return False
        for i in range(clock.first[g], clock.first[g + 1]):
            if p.n_regimes[i] + 1 >= p.start.shape[1]:
                return False
    return True


@bare
def free_rows(state: State) -> int:
    """Rows that nobody points at."""
    free = 0
    for row in range(state.ledger.owners.size):
        free += state.ledger.owners[row] == 0
    return free
