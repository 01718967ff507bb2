"""The end of a batch of one island: the paper's Algorithm 1.

weigh      log omega += log sum_l P(l | s) exp(score_l)                          line 6
resample   if the effective sample size has fallen to the threshold             line 8
assign     draw l from nu, count the transition once                            line 14
learn      the slot points at what the candidate has become                     line 24
prune      forget the stalest of the least visited                              Alg. prune
structure  tables, alpha, gamma, beta                                           line 23
open       every row that a particle of the island holds becomes a candidate
"""

from __future__ import annotations

import math

import numpy as np

from regimekit._numba import bare, kernel
from regimekit.core.logspace import draw_index, logsumexp, normalise
from regimekit.core.loops import fill
from regimekit.ihmm.batch_schedule import next_size
from regimekit.ihmm.emissions.base import Facts, Rows, Work, begin, carry, close, draw_prior
from regimekit.ihmm.hdp import forget, log_transition_row, record, stalest, sweep
from regimekit.ihmm.label_matching import reconcile, vote
from regimekit.ihmm.plan import Plan
from regimekit.ihmm.resampling import (
    ancestors,
    copy_counts,
    copy_each,
    copy_slots,
    effective_sample_size,
)
from regimekit.ihmm.state import PRIOR_ROW, START, UNBORN, State
from regimekit.ihmm.within_batch import spread_mass


@kernel
def commit(
    rows: Rows,
    work: Work,
    facts: Facts,
    state: State,
    plan: Plan,
    g: int,
    rng: np.random.Generator,
) -> None:
    """Finish the batch of island g and open the next."""
    for k in range(state.clock.candidates[g]):
        carry(rows, work, facts, g, k, state.candidates.row[g, k])
    if state.clock.observed[g] > 0 or all_opened(state, g):
        log_nu = weigh(state, g)
        if settle(state, g, log_nu) <= plan.ess_threshold * log_nu.shape[0]:
            resample(state, g, log_nu, plan.resampling, rng)
        drawn = assign(state, g, log_nu, rng)
        count_outliers(state, g, drawn)
        learn(rows, work, facts, state, plan, g, drawn)
        recount(state)
        if not plan.shared_prior:
            draw_prospects(rows, facts, state, g, rng)
        reconcile(rows, state, plan)
        prune(state, g, plan)
        structure(state, g, plan, rng)
    state.clock.commits[g] += 1
    recount(state)
    open_batch(rows, work, state, plan, g)
    vote(state)


@bare
def all_opened(state: State, g: int) -> bool:
    """Whether every particle of the island has a regime."""
    for i in range(state.clock.first[g], state.clock.first[g + 1]):
        if state.particles.n_regimes[i] == 0:
            return False
    return True


@kernel
def places(state: State, g: int) -> np.ndarray:
    """First candidate of each row in island g, -1 where there is none."""
    lookup = np.empty(state.ledger.owners.size, np.int64)
    fill(lookup, lookup.size, -1)
    for k in range(state.clock.candidates[g] - 1, -1, -1):
        lookup[state.candidates.row[g, k]] = k
    return lookup


@kernel
def branch_scores(state: State, g: int) -> np.ndarray:
    """Score of each candidate's row: that of a newborn adds up over its branches (D10).

    They count from the best one, lest a far outlier's swallow all else that is added to them.
    """
    candidates, n = state.candidates, state.clock.candidates[g]
    score, best = np.empty(n), -np.inf
    for k in range(n):
        score[k] = candidates.score[g, k]
        if candidates.branch[g, k] == 0:
            branches = min(state.clock.size[g] // 2, state.clock.observed[g]) + 1
            score[k] = logsumexp(candidates.score[g, k : k + branches], branches)
        best = max(best, score[k])
    for k in range(n):
        score[k] -= best
    return score


@kernel
def weigh(state: State, g: int) -> np.ndarray:
    """log nu_l = log P(l | s) + score_l for l = 1 .. L + 1 of every particle of the island."""
    p, first = state.particles, state.clock.first[g]
    n = state.clock.first[g + 1] - first
    log_nu = np.empty((n, p.log_beta.shape[1]))
    lookup, score = places(state, g), branch_scores(state, g)
    for i in range(n):
        for l in range(p.n_regimes[first + i] + 1):
            at = lookup[p.slots[first + i, l]]
            log_nu[i, l] = state.log_row[first + i, l] + score[at]
    return log_nu


@bare
def settle(state: State, g: int, log_nu: np.ndarray) -> float:
    """omega <- omega * evidence, normalised (Alg. 1, weights); the effective sample size."""
    p, clock = state.particles, state.clock
    first, last = clock.first[g], clock.first[g + 1]
    for i in range(first, last):
        p.log_weight[i] += logsumexp(log_nu[i - first], p.n_regimes[i] + 1)
    total = logsumexp(p.log_weight[first:last], last - first)
    for i in range(first, last):
        even = -math.log(float(last - first))
        p.log_weight[i] = p.log_weight[i] - total if total > -np.inf else even
    ess: float = effective_sample_size(p.log_weight[first:last])
    clock.ess[g] = ess
    return ess


@kernel
def resample(
    state: State, g: int, log_nu: np.ndarray, scheme: int, rng: np.random.Generator
) -> None:
    """Copies of the likely particles, before the regime is drawn, so that each draws its own."""
    p = state.particles
    first, last = state.clock.first[g], state.clock.first[g + 1]
    parents = ancestors(p.log_weight[first:last], scheme, rng)
    widest = 0
    for i in range(first, last):
        widest = max(widest, p.n_regimes[i])
    copy_slots(p.slots, first, parents, widest + 1)
    copy_slots(p.log_beta, first, parents, widest + 1)
    copy_slots(p.start, first, parents, widest)
    copy_slots(log_nu, 0, parents, widest + 1)
    copy_counts(p.counts, first, parents, widest)
    for column in (p.current, p.n_regimes):
        copy_each(column, first, parents)
    for column in (p.alpha, p.gamma):
        copy_each(column, first, parents)
    fill(p.log_weight[first:last], last - first, -math.log(float(last - first)))


@kernel
def assign(state: State, g: int, log_nu: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw each particle's regime and count the transition once; the candidates drawn."""
    p, first = state.particles, state.clock.first[g]
    lookup = places(state, g)
    drawn = np.empty(log_nu.shape[0], np.int64)
    shares = np.empty(log_nu.shape[1])
    for i in range(first, first + log_nu.shape[0]):
        n = p.n_regimes[i]
        normalise(log_nu[i - first], n + 1, shares)
        choice = draw_index(shares, n + 1, rng.random())
        drawn[i - first] = best_branch(state, g, lookup[p.slots[i, choice]])
        if choice == n:
            p.slots[i, n + 1] = PRIOR_ROW
        record(p, i, choice, rng)
    return drawn


@bare
def best_branch(state: State, g: int, k: int) -> int:
    """The candidate itself, or the best of a newborn's branches (D10)."""
    score, best = state.candidates.score[g], k
    if state.candidates.branch[g, k] == 0:
        branches = min(state.clock.size[g] // 2, state.clock.observed[g]) + 1
        for at in range(k + 1, k + branches):
            if score[at] > score[best]:
                best = at
    return best


@bare
def count_outliers(state: State, g: int, drawn: np.ndarray) -> None:
    """Tell the schedule how many observations the chosen regimes took for outliers."""
    first = state.clock.first[g]
    expected = 0.0
    for i in range(drawn.size):
        weight = math.exp(state.particles.log_weight[first + i])
        expected += weight * state.candidates.outliers[g, drawn[i]]
    state.clock.batch_outliers[0] += expected
    state.clock.batch_outliers[1] += state.clock.observed[g]


@kernel
def learn(
    rows: Rows, work: Work, facts: Facts, state: State, plan: Plan, g: int, drawn: np.ndarray
) -> None:
    """Point each chosen slot at its candidate, written once however many particles chose it."""
    p, clock = state.particles, state.clock
    written = np.empty(clock.candidates[g], np.int64)
    fill(written, written.size, -1)
    birth, free = UNBORN, 1
    for i in range(drawn.size):
        k = drawn[i]
        if written[k] < 0:
            while state.ledger.owners[free] != 0:
                free += 1
            row = state.candidates.row[g, k]
            close(rows, work, facts, g, k, row, free)
            if state.ledger.identity[row] == UNBORN and birth == UNBORN:
                birth = clock.next_id[0]
                clock.next_id[0] += 1
            write_ledger(state, g, row, free, birth)
            written[k] = free
        at = clock.first[g] + i
        p.slots[at, p.current[at]] = written[k]


@bare
def write_ledger(state: State, g: int, row: int, into: int, birth: int) -> None:
    """The facts of a row's successor."""
    ledger, clock = state.ledger, state.clock
    unborn = ledger.identity[row] == UNBORN
    ledger.identity[into] = birth if unborn else ledger.identity[row]
    ledger.told[into] = 0 if unborn else ledger.told[row]
    begun = clock.time[0] - clock.size[g]
    ledger.first_seen[into] = begun if ledger.batches[row] == 0 else ledger.first_seen[row]
    ledger.last_seen[into] = clock.time[0] - 1
    ledger.visits[into] = ledger.visits[row] + clock.observed[g]
    ledger.batches[into] = ledger.batches[row] + 1
    ledger.owners[into] = 1  # until the next recount


@bare
def blank_facts(state: State, row: int) -> None:
    """A row starts its life with an empty ledger."""
    ledger = state.ledger
    ledger.identity[row] = UNBORN
    ledger.told[row] = 0
    ledger.first_seen[row] = 0
    ledger.last_seen[row] = 0
    ledger.visits[row] = 0
    ledger.batches[row] = 0


@bare
def draw_prospects(
    rows: Rows, facts: Facts, state: State, g: int, rng: np.random.Generator
) -> None:
    """D9: under the paper's rule every unopened regime has a mean of its own."""
    p, free = state.particles, 1
    for i in range(state.clock.first[g], state.clock.first[g + 1]):
        if p.slots[i, p.n_regimes[i]] == PRIOR_ROW:
            while state.ledger.owners[free] != 0:
                free += 1
            draw_prior(rows, facts, PRIOR_ROW, free, rng)
            blank_facts(state, free)
            state.ledger.owners[free] = 1
            p.slots[i, p.n_regimes[i]] = free


@bare
def recount(state: State) -> None:
    """Count owners afresh: every slot in use, the one not opened yet included."""
    p, owners = state.particles, state.ledger.owners
    fill(owners, owners.size, 0)
    for i in range(p.alpha.size):
        for l in range(p.n_regimes[i] + 1):
            owners[p.slots[i, l]] += 1


@kernel
def prune(state: State, g: int, plan: Plan) -> None:
    """Bring every particle that reached the limit of regimes below it (Alg. prune)."""
    p = state.particles
    for i in range(state.clock.first[g], state.clock.first[g + 1]):
        if p.n_regimes[i] >= plan.max_regimes:
            victim = stalest(p, i, plan.prune_pool, state.ledger.last_seen)
            if victim >= 0:
                forget(p, i, victim, plan.keep_start)


@kernel
def structure(state: State, g: int, plan: Plan, rng: np.random.Generator) -> None:
    """Resample tables, alpha, gamma and beta of every `stride`-th particle.

    Which ones does not depend on what they are, so each pass leaves the posterior as it is. The
    paper zeroes the diagonal from the second sweep on (D5).
    """
    p, clock = state.particles, state.clock
    tables = np.empty(p.log_beta.shape[1], np.int64)
    sweeps = plan.sweeps if plan.sweeps > 0 else clock.size[g]
    for i in range(clock.first[g], clock.first[g + 1]):
        if (i + clock.commits[g]) % plan.stride == 0:
            for b in range(sweeps):
                sweep(p, i, plan.concentration, plan.keep_diagonal or b == 0, rng, tables)


@kernel
def open_batch(rows: Rows, work: Work, state: State, plan: Plan, g: int) -> None:
    """Every row that a particle of the island holds becomes a candidate."""
    clock = state.clock
    clock.size[g] = next_size(plan.schedule, clock.batch_outliers)
    start_batch(rows, work, state, plan, g)


@kernel
def start_batch(rows: Rows, work: Work, state: State, plan: Plan, g: int) -> None:
    """The same for a batch whose size is known."""
    clock, candidates, p = state.clock, state.candidates, state.particles
    clock.position[g] = 0
    clock.observed[g] = 0
    held = np.empty(state.ledger.owners.size, np.bool_)
    fill(held, held.size, False)
    for i in range(clock.first[g], clock.first[g + 1]):
        for l in range(p.n_regimes[i] + 1):
            held[p.slots[i, l]] = True
    k = 0
    for row in range(held.size):
        if held[row]:
            branches = clock.size[g] // 2 + 1 if plan.newborn and row == PRIOR_ROW else 1
            for branch in range(branches):
                candidates.row[g, k] = row
                candidates.branch[g, k] = branch if branches > 1 else -1
                candidates.score[g, k] = 0.0
                candidates.weight[g, k] = 1.0
                candidates.outliers[g, k] = 0
                begin(rows, work, g, k, row)
                k += 1
    clock.candidates[g] = k
    write_prior_mass(state, plan, g, True)


@kernel
def write_prior_mass(state: State, plan: Plan, g: int, births: bool) -> None:
    """log_row of the island's particles, and the candidates' prior masses.

    Without `births` (nothing was observed) a new regime is opened only where there is no other,
    and the others share its probability: a batch that nobody saw must not tell particles apart.
    The branches of a newborn each have its whole prior: their evidences add up (D10).
    """
    p, clock, candidates = state.particles, state.clock, state.candidates
    n = clock.candidates[g]
    lookup = places(state, g)
    for column in (candidates.log_prior, candidates.log_stay, candidates.log_now):
        fill(column[g], n, -np.inf)
    for i in range(clock.first[g], clock.first[g + 1]):
        row, last = state.log_row[i], p.n_regimes[i]
        log_transition_row(p, i, plan.concentration.sticky, row)
        if not births and last > 0:
            rest = logsumexp(row, last)
            for l in range(last):
                row[l] -= rest
            row[last] = -np.inf
        for l in range(last + 1):
            k = lookup[p.slots[i, l]]
            log_mass = p.log_weight[i] + row[l]
            add_log(candidates.log_prior, g, k, log_mass)
            if l == p.current[i] or p.current[i] == START:
                add_log(candidates.log_stay, g, k, log_mass)
        now = last if p.current[i] == START else p.current[i]
        add_log(candidates.log_now, g, lookup[p.slots[i, now]], p.log_weight[i])
    for k in range(1, n):
        if candidates.branch[g, k] > 0:
            candidates.log_prior[g, k] = candidates.log_prior[g, k - 1]
            candidates.log_stay[g, k] = candidates.log_stay[g, k - 1]
    spread_mass(state, g)


@bare
def add_log(array: np.ndarray, g: int, k: int, log_value: float) -> None:
    """array[g, k] <- log(exp(array[g, k]) + exp(log_value))."""
    a, b = array[g, k], log_value
    if b == -np.inf:
        return
    if a < b:
        a, b = b, a
    array[g, k] = a + math.log1p(math.exp(b - a))
