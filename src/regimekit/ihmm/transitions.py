"""Where regimes go: masses after further batches, transition matrices, who remembers what."""

from __future__ import annotations

import math

import numpy as np

from regimekit._numba import kernel
from regimekit.core.logspace import logsumexp
from regimekit.ihmm.batch_update import places, weigh
from regimekit.ihmm.plan import Plan
from regimekit.ihmm.state import Particles, State


@kernel
def propagate(state: State, plan: Plan, g: int, out_mass: np.ndarray) -> None:
    """Candidate masses of island g after 0, 1, .. further batches: out_mass is (steps, K)."""
    p, first = state.particles, state.clock.first[g]
    lookup, log_nu = places(state, g), weigh(state, g)
    evidence = np.empty(log_nu.shape[0])
    for i in range(evidence.size):
        evidence[i] = p.log_weight[first + i] + logsumexp(log_nu[i], p.n_regimes[first + i] + 1)
    total = logsumexp(evidence, evidence.size)
    out_mass[:] = 0.0
    for i in range(evidence.size):
        n = p.n_regimes[first + i]
        here = np.exp(p.log_weight[first + i] + log_nu[i, : n + 1] - total)
        matrix = transition_matrix(p, first + i, plan.concentration.sticky)
        for j in range(out_mass.shape[0]):
            for l in range(n + 1):
                out_mass[j, lookup[p.slots[first + i, l]]] += here[l]
            here = here @ matrix
    share_among_branches(state, g, out_mass)


@kernel
def share_among_branches(state: State, g: int, mass: np.ndarray) -> None:
    """A newborn's mass goes to its branches as they stand (D10)."""
    branch, now = state.candidates.branch[g], state.candidates.mass[g]
    n = mass.shape[1]
    for k in range(n):
        if branch[k] != 0:
            continue
        last = k + 1
        while last < n and branch[last] > 0:
            last += 1
        total = now[k:last].sum()
        if total > 0.0:
            for j in range(mass.shape[0]):
                whole = mass[j, k]
                for at in range(k, last):
                    mass[j, at] = whole * now[at] / total


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


@kernel
def moves(state: State, plan: Plan, g: int) -> np.ndarray:
    """(K, K) expected probability of moving between candidates of island g from batch to batch."""
    p, first, last = state.particles, state.clock.first[g], state.clock.first[g + 1]
    lookup, size = places(state, g), state.clock.candidates[g]
    matrix = np.zeros((size, size))
    for i in range(first, last):
        own = transition_matrix(p, i, plan.concentration.sticky)
        omega = math.exp(p.log_weight[i])
        for s in range(p.n_regimes[i] + 1):
            for l in range(p.n_regimes[i] + 1):
                at, into = lookup[p.slots[i, s]], lookup[p.slots[i, l]]
                matrix[at, into] += omega * own[s, l]
    for k in range(size):
        total = matrix[k].sum()
        if total > 0.0:
            matrix[k] /= total
        else:  # a branch of a newborn moves as its first branch does
            matrix[k] = matrix[k - 1]
    return matrix


@kernel
def held_mass(state: State, out_mass: np.ndarray) -> None:
    """Weight of the particles that remember each row as an opened regime."""
    p, clock = state.particles, state.clock
    out_mass[:] = 0.0
    for g in range(clock.size.size):
        for i in range(clock.first[g], clock.first[g + 1]):
            for l in range(p.n_regimes[i]):
                out_mass[p.slots[i, l]] += math.exp(p.log_weight[i]) / clock.size.size
