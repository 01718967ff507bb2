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

from regimekit._numba import bare, kernel
from regimekit.core.loops import fill
from regimekit.ihmm.emissions.base import Rows, apart, apart_anyhow
from regimekit.ihmm.plan import MEMORY, Plan
from regimekit.ihmm.state import START, UNBORN, State

AGREE = 3.0  # posterior standard deviations within which coefficients are the same
APART = 5.0  # and beyond which they are not
# After so many batches, and so many observations for every coefficient, coefficients alone decide,
# also against a particle's memory.
ESTABLISHED, DETERMINED = 4, 3


@bare
def weight_of(state: State, i: int, g: int) -> float:
    """Share of particle i of island g among all particles."""
    return math.exp(state.particles.log_weight[i]) / state.clock.size.size


@kernel
def weights(state: State) -> np.ndarray:
    """`weight_of` every particle."""
    clock, found = state.clock, np.empty(state.particles.alpha.size)
    for g in range(clock.size.size):
        for i in range(clock.first[g], clock.first[g + 1]):
            found[i] = weight_of(state, i, g)
    return found


@bare
def find(ids: np.ndarray, n: int, identity: int) -> int:
    """Place of an id among the first n, or n."""
    for a in range(n):
        if ids[a] == identity:
            return a
    return n


@bare
def present_shares(
    state: State, weight: np.ndarray, out_ids: np.ndarray, out_shares: np.ndarray
) -> int:
    """Ids that particles are in now with their total weights; how many."""
    p, n = state.particles, 0
    for i in range(weight.size):
        if p.current[i] == START:
            continue
        identity = state.ledger.identity[p.slots[i, p.current[i]]]
        at = find(out_ids, n, identity)
        if at == n:
            out_ids[n], out_shares[n] = identity, 0.0
            n += 1
        out_shares[at] += weight[i]
    return n


@kernel
def vote(state: State) -> None:
    """Who is reported (of equals the oldest), how many regimes are known, how many were told."""
    p, clock, ledger = state.particles, state.clock, state.ledger
    ids, shares, weight = np.empty(p.alpha.size, np.int64), np.empty(p.alpha.size), weights(state)
    n = present_shares(state, weight, ids, shares)
    winner, best = UNBORN, 0.0
    for a in range(n):
        level = shares[a] > best - 1e-12
        if shares[a] > best + 1e-12 or (level and (winner == UNBORN or ids[a] < winner)):
            winner, best = ids[a], shares[a]
    clock.vote[0] = winner
    for row in range(ledger.owners.size):
        if ledger.owners[row] > 0 and ledger.identity[row] == winner and winner != UNBORN:
            ledger.told[row] = 1
    clock.vote[1], clock.vote[2] = count_told(state, weight)


@kernel
def count_told(state: State, weight: np.ndarray) -> tuple[int, int]:
    """Regimes once reported that most of the weight remembers, and that anybody does."""
    p, ledger = state.particles, state.ledger
    ids, held, n = np.empty(ledger.owners.size, np.int64), np.empty(ledger.owners.size), 0
    for i in range(weight.size):
        for l in range(p.n_regimes[i]):
            row = p.slots[i, l]
            if ledger.told[row] == 1 and not held_before(state, i, l):
                at = find(ids, n, ledger.identity[row])
                if at == n:
                    ids[n], held[n] = ledger.identity[row], 0.0
                    n += 1
                held[at] += weight[i]
    known = 0
    for a in range(n):
        known += held[a] >= MEMORY - 1e-9
    return known, n


@bare
def held_before(state: State, i: int, l: int) -> bool:
    """Whether particle i holds the id of its slot l in an earlier slot too: opened twice."""
    p, identity = state.particles, state.ledger.identity
    found = False
    for earlier in range(l):
        found = found or identity[p.slots[i, earlier]] == identity[p.slots[i, l]]
    return found


@bare
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
    weight = weights(state)
    ids, shares = np.empty(weight.size, np.int64), np.empty(weight.size)
    if plan.agree:
        split(rows, state, weight, ids, shares)
    n = present_shares(state, weight, ids, shares)
    if n < 2:
        return
    order = by_seniority(state, ids[:n])
    group = np.empty(n, np.int64)  # the most senior member's place
    fill(group, n, -1)
    for at in order:
        for head in order:
            if head == at:
                group[at] = at
                break
            if group[head] == head and joins(rows, state, plan, weight, ids, group, head, at):
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
def by_seniority(state: State, ids: np.ndarray) -> np.ndarray:
    """Places of the ids: those that were reported come first, then the others, the oldest first."""
    n, ledger = ids.size, state.ledger
    told, order = np.empty(n, np.bool_), np.empty(n, np.int64)
    fill(told, n, False)
    for row in range(ledger.owners.size):
        if ledger.told[row] == 1 and ledger.owners[row] > 0:
            at = find(ids, n, ledger.identity[row])
            if at < n:
                told[at] = True
    for at in range(n):
        place = 0
        for other in range(n):
            place += told[other] > told[at] or (told[other] == told[at] and ids[other] < ids[at])
        order[place] = at
    return order


@kernel
def joins(
    rows: Rows,
    state: State,
    plan: Plan,
    weight: np.ndarray,
    ids: np.ndarray,
    group: np.ndarray,
    head: int,
    at: int,
) -> bool:
    """Whether id `at` can be one with every member of the group of `head`."""
    for member in range(group.size):
        if group[member] == head:
            a, b = heaviest_row(state, weight, ids[member]), heaviest_row(state, weight, ids[at])
            known = plan.agree and established(state, plan, a) and established(state, plan, b)
            if not known and side_by_side(state, ids[member], ids[at]):
                return False
            if plan.agree and not within(rows, a, b, AGREE):  # D12
                return False
            a, b = (
                main_row(rows, state, weight, ids[member]),
                main_row(rows, state, weight, ids[at]),
            )
            if plan.agree and not within(rows, a, b, APART):  # they would part again
                return False
    return True


@bare
def within(rows: Rows, a: int, b: int, most: float) -> bool:
    """Whether two rows are so near, by each coefficient and by all of them together."""
    near: bool = apart(rows, a, b) <= most
    return near and bool(apart_anyhow(rows, a, b) <= most)


@bare
def established(state: State, plan: Plan, row: int) -> bool:
    """Whether a row has seen enough for its coefficients to say which regime it is."""
    ledger = state.ledger
    old: bool = ledger.batches[row] >= ESTABLISHED
    return old and ledger.visits[row] >= DETERMINED * plan.width


@kernel
def split(
    rows: Rows, state: State, weight: np.ndarray, ids: np.ndarray, shares: np.ndarray
) -> None:
    """Take an id from rows that have grown apart from its main version (D12).

    Births that agreed while they knew little may turn out to be two regimes, and a particle that
    has missed a change drags its regime along. `ids` and `shares` are scratch.
    """
    ledger, clock = state.ledger, state.clock
    n = present_shares(state, weight, ids, shares)
    fresh = clock.next_id[0]
    for a in range(n):
        head = main_row(rows, state, weight, ids[a])
        for row in range(ledger.owners.size):
            if ledger.owners[row] == 0 or ledger.identity[row] != ids[a] or row == head:
                continue
            if apart(rows, row, head) > APART:
                ledger.identity[row] = clock.next_id[0] + a
                ledger.told[row] = 0
                fresh = max(fresh, clock.next_id[0] + a + 1)
    clock.next_id[0] = fresh


@bare
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
def heaviest_row(state: State, weight: np.ndarray, identity: int) -> int:
    """The version of a regime that most of the weight is in now."""
    p, ledger = state.particles, state.ledger
    mass, best = np.empty(ledger.owners.size), -1
    fill(mass, mass.size, 0.0)
    for i in range(weight.size):
        if p.current[i] == START:
            continue
        row = p.slots[i, p.current[i]]
        if ledger.identity[row] == identity:
            mass[row] += weight[i]
            if best < 0 or mass[row] > mass[best]:
                best = row
    return best


@kernel
def main_row(rows: Rows, state: State, weight: np.ndarray, identity: int) -> int:
    """The heaviest of those versions of a regime, present or not, that agree and weigh most.

    A version weighs its particles' weight times its batches. Every island has versions of its own,
    so one that has been dragged along by a change may outweigh each of those that have not; it
    does not outweigh all of them.
    """
    p, ledger = state.particles, state.ledger
    held, mass, n = np.empty(ledger.owners.size, np.int64), np.empty(ledger.owners.size), 0
    for i in range(weight.size):
        for l in range(p.n_regimes[i]):
            row = p.slots[i, l]
            if ledger.identity[row] == identity:
                at = find(held, n, row)
                if at == n:
                    held[n], mass[n] = row, 0.0
                    n += 1
                mass[at] += weight[i] * ledger.batches[row]
    best, most, left = -1, -1.0, n
    while left > 0:
        leader = heaviest(mass[:n], held[:n])
        row, support = held[leader], 0.0
        for k in range(n):
            if held[k] >= 0 and (k == leader or apart(rows, held[k], row) <= APART):
                support += mass[k]
                held[k] = -1
                left -= 1
        if support > most:
            best, most = row, support
    return best


@bare
def heaviest(mass: np.ndarray, held: np.ndarray) -> int:
    """Place of the largest mass among those still held, of equals the first."""
    best = -1
    for k in range(mass.size):
        if held[k] >= 0 and (best < 0 or mass[k] > mass[best]):
            best = k
    return best


@bare
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
