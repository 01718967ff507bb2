"""The particle kernels of one batch: weigh, vote, assign, prune, structure."""

from __future__ import annotations

import math

import numpy as np

from holdfast._numba import kernel
from holdfast.hdp import (
    START,
    Concentration,
    Particles,
    forget,
    log_transition_row,
    record,
    stalest,
    sweep,
)
from holdfast.logspace import draw_index, logsumexp, normalise


@kernel
def weigh(
    p: Particles, sticky: float, lookup: np.ndarray, score: np.ndarray, births: bool,
    out_log_nu: np.ndarray, out_evidence: np.ndarray,
) -> None:  # fmt: skip
    """log nu_l = log P(l | s) + score_l for l = 1 .. L + 1, and log sum_l nu_l per particle.

    The sum includes the new regime. `lookup` maps a pool row to its candidate. Without `births`
    (nothing was observed) a new regime is opened only where there is no other, and the others
    share its probability: a batch that nobody saw must not tell particles apart.
    Scores count from the best one, lest a far outlier's swallow all else that is added to them.
    """
    best = score.max()
    for i in range(p.alpha.size):
        n = p.n_regimes[i]
        log_nu = out_log_nu[i]
        log_transition_row(p, i, sticky, log_nu)
        for l in range(n + 1):
            log_nu[l] += score[lookup[p.slots[i, l]]] - best
        open_mass = logsumexp(log_nu, n)
        if not births and open_mass > -np.inf:
            for l in range(n):
                log_nu[l] -= open_mass
            log_nu[n] = -np.inf
        out_evidence[i] = logsumexp(log_nu, n + 1)


@kernel
def spread_mass(
    p: Particles, lookup: np.ndarray, log_nu: np.ndarray, evidence: np.ndarray, out_mass: np.ndarray
) -> float:
    """Posterior mass of each candidate given the batch so far; returns P(the regime changed)."""
    log_joint = np.empty(evidence.size)
    for i in range(evidence.size):
        log_joint[i] = p.log_weight[i] + evidence[i]
    total = logsumexp(log_joint, log_joint.size)
    out_mass[:] = 0.0
    stayed = 0.0
    for i in range(p.alpha.size):
        for l in range(p.n_regimes[i] + 1):
            share = math.exp(p.log_weight[i] + log_nu[i, l] - total)
            out_mass[lookup[p.slots[i, l]]] += share
            if l == p.current[i] or p.current[i] == START:
                stayed += share
    return max(0.0, 1.0 - stayed)


@kernel
def settle(p: Particles, evidence: np.ndarray) -> None:
    """omega <- omega * evidence, normalised (Alg. 1, weights)."""
    n = evidence.size
    for i in range(n):
        p.log_weight[i] += evidence[i]
    total = logsumexp(p.log_weight, n)
    for i in range(n):
        p.log_weight[i] = p.log_weight[i] - total if total > -np.inf else -math.log(n)


@kernel
def assign(
    p: Particles, log_nu: np.ndarray, prior_row: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw each particle's regime for the batch and count the transition once.

    Returns the pool row each was drawn from, before it learns.
    """
    drawn = np.empty(p.alpha.size, np.int64)
    shares = np.empty(log_nu.shape[1])
    for i in range(p.alpha.size):
        n = p.n_regimes[i]
        normalise(log_nu[i], n + 1, shares)
        choice = draw_index(shares, n + 1, rng.random())
        drawn[i] = p.slots[i, choice]
        if choice == n:
            p.slots[i, n + 1] = prior_row
        record(p, i, choice, rng)
    return drawn


@kernel
def prune(p: Particles, limit: int, pool: int, last_seen: np.ndarray, keep_start: bool) -> None:
    """Bring every particle that reached `limit` regimes below it (Alg. prune)."""
    for i in range(p.alpha.size):
        if p.n_regimes[i] >= limit:
            victim = stalest(p, i, pool, last_seen)
            if victim >= 0:
                forget(p, i, victim, keep_start)


@kernel
def structure(
    p: Particles, prior: Concentration, sweeps: int, keep_diagonal: bool, rng: np.random.Generator
) -> None:
    """Resample tables, alpha, gamma and beta of every particle, `sweeps` times.

    The paper zeroes the diagonal from the second sweep on (D5).
    """
    tables = np.empty(p.log_beta.shape[1], np.int64)
    for i in range(p.alpha.size):
        for b in range(sweeps):
            sweep(p, i, prior, keep_diagonal or b == 0, rng, tables)


@kernel
def current_mass(p: Particles, out_mass: np.ndarray) -> None:
    """Weight of the particles whose present regime is each pool row (START: the unopened one)."""
    out_mass[:] = 0.0
    for i in range(p.alpha.size):
        slot = p.n_regimes[i] if p.current[i] == START else p.current[i]
        out_mass[p.slots[i, slot]] += math.exp(p.log_weight[i])


@kernel
def held_mass(p: Particles, out_mass: np.ndarray) -> None:
    """Weight of the particles that remember each pool row as an opened regime."""
    out_mass[:] = 0.0
    for i in range(p.alpha.size):
        for l in range(p.n_regimes[i]):
            out_mass[p.slots[i, l]] += math.exp(p.log_weight[i])


@kernel
def propagate(
    p: Particles, sticky: float, lookup: np.ndarray, log_nu: np.ndarray, steps: int,
    out_mass: np.ndarray,
) -> None:  # fmt: skip
    """Candidate masses after 0 .. steps further batches: out_mass is (steps + 1, K)."""
    evidence = np.empty(p.alpha.size)
    for i in range(p.alpha.size):
        evidence[i] = logsumexp(log_nu[i], p.n_regimes[i] + 1)
    total = logsumexp(p.log_weight + evidence, evidence.size)
    out_mass[:] = 0.0
    for i in range(p.alpha.size):
        n = p.n_regimes[i]
        here = np.exp(p.log_weight[i] + log_nu[i, : n + 1] - total)
        matrix = transition_matrix(p, i, sticky)
        for j in range(steps + 1):
            for l in range(n + 1):
                out_mass[j, lookup[p.slots[i, l]]] += here[l]
            here = here @ matrix


@kernel
def transition_matrix(p: Particles, i: int, sticky: float) -> np.ndarray:
    """P(l | s) of particle i among its regimes and, last, a new one (which goes by beta)."""
    n = p.n_regimes[i]
    matrix = np.empty((n + 1, n + 1))
    alpha = p.alpha[i]
    for s in range(n + 1):
        total = alpha + sticky
        for l in range(n + 1):
            count = float(p.counts[i, s, l]) if s < n and l < n else 0.0
            total += count
            if s == l:
                count += sticky
            matrix[s, l] = count + alpha * math.exp(p.log_beta[i, l])
        matrix[s] /= total
    return matrix
