"""Inside a batch: every candidate forecasts, is scored and learns. No particle is touched.

The score of a batch belongs to a row, whoever owns it. With the prior mass of row r,

    pi_r = sum over particles i and slots l that point at r of omega_i P(l | s_i),

its posterior mass given the batch so far is pi_r exp(score_r), normalised within the island.

A regime not opened yet (D10). What it has seen after one observation is the mixture of "it was
an outlier" and "it was not", which lie far apart while the regime knows nothing: collapsed to
one posterior, a newborn would believe whatever comes first. So it has several candidates: branch
j disbelieves the first j observations, believes the next, and collapses from then on. Their
evidences add up to that of the newborn, exactly; the best one is what is opened.
"""

from __future__ import annotations

import math

import numpy as np

from regimekit._numba import bare, kernel
from regimekit.core.logspace import logsumexp
from regimekit.core.loops import add_matrix, copy, copy_matrix, fill
from regimekit.ihmm.emissions.base import Facts, Rows, Sample, Work, learn, look, rest
from regimekit.ihmm.plan import RATE_MEMORY, Plan
from regimekit.ihmm.state import UNBORN, State
from regimekit.ihmm.weights import (
    BELIEVED,
    BROAD_DOF,
    COLLAPSED,
    CONTAMINATION,
    DISBELIEVED,
    LARGEST_RATE,
    LONGEST,
    Broad,
    factorise,
    log_broad,
    no_outliers,
)

NEGLIGIBLE = 1e-12  # components with a smaller share are left out of a forecast


@bare
def look_all(rows: Rows, work: Work, facts: Facts, state: State, sample: Sample) -> None:
    """Every candidate's forecast of the next observation."""
    clock, candidates = state.clock, state.candidates
    for g in range(clock.size.size):
        for k in range(clock.candidates[g]):
            look(rows, work, facts, g, k, candidates.row[g, k], sample, state.ahead)


@bare
def outlier_rate(state: State) -> float:
    """eps: posterior mean of the rate of outliers, bounded."""
    a, b = state.clock.outliers[0], state.clock.outliers[1]
    rate: float = min(a / (a + b), LARGEST_RATE)
    return rate


@bare
def centre_of(state: State, out_centre: np.ndarray) -> None:
    """Where q is centred: the forecast of the opened regimes, or of all before there is one."""
    clock, candidates = state.clock, state.candidates
    for opened in (True, False):
        total = 0.0
        fill(out_centre, out_centre.size, 0.0)
        for g in range(clock.size.size):
            for k in range(clock.candidates[g]):
                born = state.ledger.identity[candidates.row[g, k]] != UNBORN
                if opened and not born:
                    continue
                share = candidates.mass[g, k]
                total += share
                for j in range(out_centre.size):
                    out_centre[j] += share * state.ahead.location[g, k, j]
        if total > 1e-6:
            for j in range(out_centre.size):
                out_centre[j] /= total
            return


@kernel
def broad_at(state: State, plan: Plan, scale: np.ndarray, sample: Sample) -> Broad:
    """The outliers' density q at the observation: t around the forecast, scale matrix `scale`."""
    if plan.scoring.kind != CONTAMINATION:
        return no_outliers()
    n = sample.seen.size
    centre, white = np.empty(sample.y.size), np.empty(n)
    centre_of(state, centre)
    log_det = factorise(scale, sample.seen, sample.lower)
    squared = 0.0
    for i in range(n):
        at = sample.seen[i]
        white[i] = min(max(sample.y[at] - centre[at], -LONGEST), LONGEST)
        for b in range(i):
            white[i] -= sample.lower[i, b] * white[b]
        white[i] /= sample.lower[i, i]
        white[i] = min(max(white[i], -LONGEST / n), LONGEST / n)
        squared += white[i] * white[i]
    rate = outlier_rate(state)
    return Broad(math.log(rate), math.log1p(-rate), log_broad(math.sqrt(squared), log_det, n))


@bare
def belief(branch: int, observed: int, last: int) -> int:
    """What branch `branch` of `last` makes of the observation after `observed` others."""
    if branch < 0 or observed > branch:
        return COLLAPSED
    if observed < branch:
        return DISBELIEVED
    return BELIEVED if branch < last else COLLAPSED


@bare
def observe(
    rows: Rows,
    work: Work,
    facts: Facts,
    state: State,
    plan: Plan,
    scale: np.ndarray,
    sample: Sample,
) -> tuple[float, float]:
    """Let every candidate see the observation it has looked at; E w^2 and P(change)."""
    clock, candidates = state.clock, state.candidates
    islands, seen = clock.size.size, sample.seen.size > 0
    broad = broad_at(state, plan, scale, sample) if seen else no_outliers()
    weight, change = 0.0, 0.0
    for g in range(islands):
        for k in range(clock.candidates[g]):
            if seen:
                see(rows, work, facts, state, plan, broad, sample, g, k)
            else:
                rest(rows, work, g, k)
                candidates.weight[g, k] = 1.0
        clock.position[g] += 1
        clock.observed[g] += seen
        change += spread_mass(state, g) / islands
        for k in range(clock.candidates[g]):
            weight += candidates.mass[g, k] * candidates.weight[g, k] / islands
    clock.time[0] += 1
    if seen and plan.scoring.kind == CONTAMINATION:
        learn_rate(state, plan, min(weight, 1.0))
    return weight, change


@bare
def see(
    rows: Rows,
    work: Work,
    facts: Facts,
    state: State,
    plan: Plan,
    broad: Broad,
    sample: Sample,
    g: int,
    k: int,
) -> None:
    """One candidate sees one observation."""
    candidates, clock = state.candidates, state.clock
    row = candidates.row[g, k]
    fresh = state.ledger.visits[row] == 0
    trust = belief(candidates.branch[g, k], clock.observed[g], clock.size[g] // 2)
    score, weight = learn(
        rows, work, facts, g, k, row, sample, state.ahead, plan.scoring, broad, fresh, trust
    )
    candidates.score[g, k] += score
    candidates.weight[g, k] = weight
    if weight < plan.schedule.outlier_weight:
        candidates.outliers[g, k] += 1


@bare
def learn_rate(state: State, plan: Plan, weight: float) -> None:
    """eps ~ Beta: one observation adds 1 - r to the outliers and r to the others."""
    keep = 1.0 - 1.0 / RATE_MEMORY
    counts = state.clock.outliers
    for j in range(2):
        prior = plan.outlier_prior[j]
        counts[j] = prior + keep * (counts[j] - prior) + (1.0 - weight if j == 0 else weight)


@bare
def spread_mass(state: State, g: int) -> float:
    """Posterior mass of the candidates of island g given the batch so far; P(change).

    A newborn's branches part one by one as observations arrive: those that have disbelieved
    everything so far are one and the same, and counted once.
    """
    candidates, n = state.candidates, state.clock.candidates[g]
    mass, score = candidates.mass[g], candidates.score[g]
    log_prior, log_stay = candidates.log_prior[g], candidates.log_stay[g]
    for k in range(n):  # first in logs
        parted = candidates.branch[g, k] <= state.clock.observed[g]
        mass[k] = log_prior[k] + score[k] if parted else -np.inf
    total = logsumexp(mass, n)
    stayed = 0.0
    for k in range(n):
        if mass[k] > -np.inf:
            stayed += math.exp(log_stay[k] + score[k] - total)
        mass[k] = math.exp(mass[k] - total)
    return max(0.0, 1.0 - stayed)


@bare
def write_components(
    state: State,
    plan: Plan,
    scale: np.ndarray,
    noise: np.ndarray,
    first: int,
    out_share: np.ndarray,
    out_location: np.ndarray,
    out_spread: np.ndarray,
    out_dof: np.ndarray,
) -> int:
    """The forecast as components from place `first` on, that of outliers last; one past the end.

    D7: the candidates, informed by the batch so far; the paper's text takes each particle's
    regime as the batch began, with a noise for every step since (D8).
    """
    clock, candidates, view = state.clock, state.candidates, state.ahead
    islands, at = clock.size.size, first
    rate = outlier_rate(state) if plan.scoring.kind == CONTAMINATION else 0.0
    for g in range(islands):
        for k in range(clock.candidates[g]):
            mass = candidates.mass[g, k] if plan.mixture else math.exp(candidates.log_now[g, k])
            if mass <= NEGLIGIBLE:
                continue
            out_share[at] = (1.0 - rate) * mass / islands
            if plan.mixture:
                copy(view.location[g, k], out_location[at])
                copy_matrix(view.spread[g, k], out_spread[at])
                out_dof[at] = view.dof[g, k]
            else:
                copy(view.start_location[g, k], out_location[at])
                copy_matrix(view.start_spread[g, k], out_spread[at])
                out_dof[at] = view.start_dof[g, k]
                if not plan.one_noise:
                    add_matrix(noise, float(clock.position[g]), out_spread[at])
            at += 1
    if rate > 0.0:
        centre_of(state, out_location[at])
        copy_matrix(scale, out_spread[at])
        out_share[at], out_dof[at] = rate, BROAD_DOF
        at += 1
    return at
