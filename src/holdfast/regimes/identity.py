"""Names: which regime is reported, and one id for what particles opened at different moments.

The reported regime is the id with the largest total weight, not the regime of the heaviest
particle, whose identity jumps.

A regime's id is its birth: particles of an island that open one in the same batch share it. When
a regime is new, some particles see it a batch sooner than others, and islands see it at moments
of their own, so that one regime gets several births, and which of them has most of the weight
changes from batch to batch. Births that are present at the same time, that no particle holds
side by side, and whose coefficients agree within their posterior spread (D12) are told apart by
nobody: they are one, if together they are what most of the weight says is present. (Strays of a
few particles are not.) So are established ones that agree even where a particle holds both: it
has opened a regime twice.
"""

from __future__ import annotations

import math

import numpy as np

from holdfast._numba import kernel
from holdfast.emissions.base import Rows, apart
from holdfast.regimes.plan import MEMORY, Plan
from holdfast.regimes.state import START, UNBORN, State

AGREE = 3.0  # posterior standard deviations within which coefficients are the same
APART = 5.0  # and beyond which they are not
# After so many batches, and so many observations for every coefficient, coefficients alone decide,
# also against a particle's memory.
ESTABLISHED, DETERMINED = 4, 3


@kernel
def weight_of(state: State, i: int, g: int) -> float:
    """Share of particle i of island g among all particles."""
    return math.exp(state.particles.log_weight[i]) / state.clock.size.size


@kernel
def find(ids: np.ndarray, n: int, identity: int) -> int:
    """Place of an id among the first n, or n."""
    for a in range(n):
        if ids[a] == identity:
            return a
    return n


@kernel
def present_shares(state: State, ids: np.ndarray, shares: np.ndarray) -> int:
    """Ids that particles are in now with their total weights; how many."""
    p, clock = state.particles, state.clock
    n = 0
    for g in range(clock.size.size):
        for i in range(clock.first[g], clock.first[g + 1]):
            if p.current[i] == START:
                continue
            identity = state.ledger.identity[p.slots[i, p.current[i]]]
            at = find(ids, n, identity)
            if at == n:
                ids[n], shares[n] = identity, 0.0
                n += 1
            shares[at] += weight_of(state, i, g)
    return n


@kernel
def vote(state: State) -> None:
    """Who is reported (of equals the oldest), how many regimes are known, how many were told."""
    p, clock, ledger = state.particles, state.clock, state.ledger
    ids, shares = np.empty(p.alpha.size, np.int64), np.empty(p.alpha.size)
    n = present_shares(state, ids, shares)
    winner, best = UNBORN, 0.0
    for a in range(n):
        level = shares[a] > best - 1e-12
        if shares[a] > best + 1e-12 or (level and (winner == UNBORN or ids[a] < winner)):
            winner, best = ids[a], shares[a]
    clock.vote[0] = winner
    for row in range(ledger.owners.size):
        if ledger.owners[row] > 0 and ledger.identity[row] == winner and winner != UNBORN:
            ledger.told[row] = 1
    clock.vote[1], clock.vote[2] = count_told(state)


@kernel
def count_told(state: State) -> tuple[int, int]:
    """Regimes once reported that most of the weight remembers, and that anybody does."""
    p, clock, ledger = state.particles, state.clock, state.ledger
    ids = np.empty(ledger.owners.size, np.int64)
    held = np.zeros(ledger.owners.size)
    n = 0
    for g in range(clock.size.size):
        for i in range(clock.first[g], clock.first[g + 1]):
            for l in range(p.n_regimes[i]):
                row = p.slots[i, l]
                if ledger.told[row] == 1 and not held_before(state, i, l):
                    at = find(ids, n, ledger.identity[row])
                    if at == n:
                        ids[n] = ledger.identity[row]
                        n += 1
                    held[at] += weight_of(state, i, g)
    known = 0
    for a in range(n):
        known += held[a] >= MEMORY - 1e-9
    return known, n


@kernel
def held_before(state: State, i: int, l: int) -> bool:
    """Whether particle i holds the id of its slot l in an earlier slot too: opened twice."""
    p, identity = state.particles, state.ledger.identity
    found = False
    for earlier in range(l):
        found = found or identity[p.slots[i, earlier]] == identity[p.slots[i, l]]
    return found


@kernel
def probability_of(state: State, identity: int) -> float:
    """Posterior probability of a regime: by vote right after a batch, by candidates inside."""
    p, clock, candidates = state.particles, state.clock, state.candidates
    total = 0.0
    for g in range(clock.size.size):
        if clock.position[g] > 0:
            for k in range(clock.candidates[g]):
                if state.ledger.identity[candidates.row[g, k]] == identity:
                    total += candidates.mass[g, k] / clock.size.size
            continue
        for i in range(clock.first[g], clock.first[g + 1]):
            present = p.slots[i, max(p.current[i], 0)]
            if p.current[i] != START and state.ledger.identity[present] == identity:
                total += weight_of(state, i, g)
    return min(1.0, total)


@kernel
def reconcile(rows: Rows, state: State, plan: Plan) -> None:
    """Give present regimes that nobody tells apart the most senior of their ids, in place."""
    if plan.agree:
        split(rows, state)
    n_particles = state.particles.alpha.size
    ids, shares = np.empty(n_particles, np.int64), np.empty(n_particles)
    n = present_shares(state, ids, shares)
    if n < 2:
        return
    order = np.argsort(seniority(state, ids[:n]))
    group = np.full(n, -1, np.int64)  # the most senior member's place
    for at in order:
        for head in order:
            if head == at:
                group[at] = at
                break
            if group[head] == head and joins(rows, state, plan, ids, group, head, at):
                group[at] = head
                break
    for head in range(n):
        total = 0.0
        for a in range(n):
            if group[a] == head:
                total += shares[a]
        if total > 0.5:
            for a in range(n):
                if group[a] == head and a != head:
                    rename(state, ids[a], ids[head])


@kernel
def seniority(state: State, ids: np.ndarray) -> np.ndarray:
    """Ids that were reported come first, then the others, the oldest first."""
    rank: np.ndarray = ids + state.clock.next_id[0]
    for row in range(state.ledger.owners.size):
        if state.ledger.told[row] == 1 and state.ledger.owners[row] > 0:
            at = find(ids, ids.size, state.ledger.identity[row])
            if at < ids.size:
                rank[at] = ids[at]
    return rank


@kernel
def joins(
    rows: Rows, state: State, plan: Plan, ids: np.ndarray, group: np.ndarray, head: int, at: int
) -> bool:
    """Whether id `at` can be one with every member of the group of `head`."""
    for member in range(group.size):
        if group[member] == head:
            a, b = heaviest_row(state, ids[member]), heaviest_row(state, ids[at])
            known = plan.agree and established(state, plan, a) and established(state, plan, b)
            if not known and side_by_side(state, ids[member], ids[at]):
                return False
            if plan.agree and not apart(rows, a, b) <= AGREE:  # D12
                return False
            mains = main_row(state, ids[member]), main_row(state, ids[at])
            if plan.agree and apart(rows, mains[0], mains[1]) > APART:  # they would part again
                return False
    return True


@kernel
def established(state: State, plan: Plan, row: int) -> bool:
    """Whether a row has seen enough for its coefficients to say which regime it is."""
    ledger = state.ledger
    old: bool = ledger.batches[row] >= ESTABLISHED
    return old and ledger.visits[row] >= DETERMINED * plan.width


@kernel
def split(rows: Rows, state: State) -> None:
    """Take an id from rows that have grown apart from its main version (D12).

    Births that agreed while they knew little may turn out to be two regimes, and a particle that
    has missed a change drags its regime along.
    """
    ledger, clock = state.ledger, state.clock
    ids, shares = np.empty(ledger.owners.size, np.int64), np.empty(ledger.owners.size)
    n = present_shares(state, ids, shares)
    fresh = clock.next_id[0]
    for a in range(n):
        head = main_row(state, ids[a])
        for row in range(ledger.owners.size):
            if ledger.owners[row] == 0 or ledger.identity[row] != ids[a] or row == head:
                continue
            if apart(rows, row, head) > APART:
                ledger.identity[row] = clock.next_id[0] + a
                ledger.told[row] = 0
                fresh = max(fresh, clock.next_id[0] + a + 1)
    clock.next_id[0] = fresh


@kernel
def side_by_side(state: State, one: int, other: int) -> bool:
    """Whether any particle holds both ids."""
    p, identity = state.particles, state.ledger.identity
    for i in range(p.alpha.size):
        has_one, has_other = False, False
        for l in range(p.n_regimes[i]):
            has_one = has_one or identity[p.slots[i, l]] == one
            has_other = has_other or identity[p.slots[i, l]] == other
        if has_one and has_other:
            return True
    return False


@kernel
def heaviest_row(state: State, identity: int) -> int:
    """The version of a regime that most of the weight is in now."""
    p, clock, ledger = state.particles, state.clock, state.ledger
    mass = np.zeros(ledger.owners.size)
    best = -1
    for g in range(clock.size.size):
        for i in range(clock.first[g], clock.first[g + 1]):
            if p.current[i] == START:
                continue
            row = p.slots[i, p.current[i]]
            if ledger.identity[row] == identity:
                mass[row] += weight_of(state, i, g)
                if best < 0 or mass[row] > mass[best]:
                    best = row
    return best


@kernel
def main_row(state: State, identity: int) -> int:
    """The version of a regime that has most batches in most of the weight, present or not."""
    p, clock, ledger = state.particles, state.clock, state.ledger
    mass = np.zeros(ledger.owners.size)
    best = -1
    for g in range(clock.size.size):
        for i in range(clock.first[g], clock.first[g + 1]):
            for l in range(p.n_regimes[i]):
                row = p.slots[i, l]
                if ledger.identity[row] == identity:
                    mass[row] += weight_of(state, i, g) * ledger.batches[row]
                    if best < 0 or mass[row] > mass[best]:
                        best = row
    return best


@kernel
def rename(state: State, old: int, new: int) -> None:
    """Every row of regime `old` is from now on one of regime `new`."""
    ledger = state.ledger
    told = 0
    for row in range(ledger.owners.size):
        if ledger.identity[row] == old or ledger.identity[row] == new:
            told = max(told, ledger.told[row])
    for row in range(ledger.owners.size):
        if ledger.identity[row] == old:
            ledger.identity[row] = new
        if ledger.identity[row] == new:
            ledger.told[row] = told
