"""P(next regime): a hierarchical Dirichlet process.

    beta ~ SB(gamma),   pi_l ~ Dir(alpha beta),   alpha, gamma ~ Gamma

A particle carries the transition counts n, the shares beta of its L regimes and, last, of all
regimes not opened yet, and alpha and gamma. With pi integrated out,

    P(l | s) = (n_sl + alpha beta_l) / (n_s. + alpha)                    Eq. (transition_prob)

and given table counts m ~ Antoniak(n, alpha beta) the rest has closed-form conditionals.
A finite `sticky` kappa adds kappa to the self-transition (Fox et al. 2008).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from regimekit._numba import bare, kernel
from regimekit.ihmm.state import START, Particles

LEAST = 1e-300  # a concentration below this is taken for this: its log must stay finite
_SHORTEST_STICK = 1e-300
_ONE_BY_ONE = 16  # customers seated singly before jumping from table to table


class Concentration(NamedTuple):
    """Gamma(shape, rate) priors of alpha and gamma, and the self-transition bias kappa."""

    alpha_shape: float = 1.0
    alpha_rate: float = 1.0
    gamma_shape: float = 1.0
    gamma_rate: float = 1.0
    sticky: float = 0.0


@bare
def log_transition_row(p: Particles, i: int, sticky: float, out_log_p: np.ndarray) -> None:
    """log P(l | current regime) of particle i for l = 0 .. L, the last a new regime."""
    n, s, alpha = p.n_regimes[i], p.current[i], p.alpha[i]
    counts = p.start[i] if s == START else p.counts[i, s]
    total = 0
    for k in range(n):
        total += counts[k]
    bias = 0.0 if s == START else sticky
    log_norm = math.log(total + alpha + bias)
    for k in range(n + 1):
        count = float(counts[k]) if k < n else 0.0
        if k == s:
            count += bias
        if count > 0.0:
            out_log_p[k] = math.log(count + alpha * math.exp(p.log_beta[i, k])) - log_norm
        else:  # in logs: a tiny share must not underflow to an impossible regime
            out_log_p[k] = math.log(alpha) + p.log_beta[i, k] - log_norm


@bare
def log_stick_rest(gamma: float, rng: np.random.Generator) -> float:
    """log (1 - v) of v ~ Beta(1, gamma): 1 - v = U^(1 / gamma), in logs lest it underflow."""
    return min(math.log(1.0 - rng.random()) / gamma, -_SHORTEST_STICK)


@bare
def record(p: Particles, i: int, choice: int, rng: np.random.Generator) -> None:
    """Count particle i's transition into slot `choice`; a new regime splits the last stick."""
    n = p.n_regimes[i]
    if choice == n:
        log_rest = log_stick_rest(p.gamma[i], rng)
        p.log_beta[i, n + 1] = p.log_beta[i, n] + log_rest
        p.log_beta[i, n] += math.log(-math.expm1(log_rest))
        p.n_regimes[i] = n + 1
        for k in range(n + 1):
            p.counts[i, k, n] = 0
            p.counts[i, n, k] = 0
        p.start[i, n] = 0
    if p.current[i] == START:
        p.start[i, choice] += 1
    else:
        p.counts[i, p.current[i], choice] += 1
    p.current[i] = choice


@bare
def antoniak(n: int, concentration: float, bias: float, rng: np.random.Generator) -> int:
    """Tables that beta explains among n customers of a restaurant, exactly, in O(tables log n).

    With j seated the next opens a table with probability (a + bias) / (a + bias + j), and a
    share a / (a + bias) of those is not the bias's: a / (a + bias + j) in all. The first
    customers are seated one by one. After that no such table is opened before the (k+1)-th
    with probability G(bias + k) G(a + bias + j) / (G(bias + j) G(a + bias + k)), so one uniform
    finds the next table by bisection. Without a bias the first customer opens a table for sure.
    """
    if n == 0:
        return 0
    seated = 1 if bias == 0.0 else 0
    tables = seated
    total = concentration + bias
    while seated < min(n, _ONE_BY_ONE):
        if rng.random() * (total + seated) < concentration:
            tables += 1
        seated += 1
    while seated < n and concentration > 0.0:
        target = math.log(1.0 - rng.random())
        target -= math.lgamma(total + seated) - math.lgamma(bias + seated)
        if math.lgamma(bias + n) - math.lgamma(total + n) > target:
            break
        low, high = seated, n  # survival(low) > u >= survival(high)
        while high - low > 1:
            middle = (low + high) // 2
            if math.lgamma(bias + middle) - math.lgamma(total + middle) > target:
                low = middle
            else:
                high = middle
        tables += 1
        seated = high
    return tables


@bare
def log_gamma_draw(shape: float, rng: np.random.Generator) -> float:
    """Log of a Gamma(shape, 1) draw; small shapes would underflow if drawn directly."""
    if shape <= 0.0:
        return -np.inf
    if shape >= 1.0:
        return math.log(rng.gamma(shape, 1.0))
    log_boosted = math.log(rng.gamma(shape + 1.0, 1.0))
    return log_boosted + math.log(1.0 - rng.random()) / shape


@bare
def log_beta_draw(a: float, b: float, rng: np.random.Generator) -> float:
    """Log of a Beta(a, b) draw; for small a it would underflow to 0 if drawn directly."""
    x, y = log_gamma_draw(a, rng), log_gamma_draw(b, rng)
    top = max(x, y)
    return x - top - math.log(math.exp(x - top) + math.exp(y - top))


@bare
def row_tables(
    p: Particles,
    i: int,
    source: int,
    sticky: float,
    diagonal: bool,
    rng: np.random.Generator,
    out_tables: np.ndarray,
) -> tuple[int, int]:
    """Seat the customers of one transition row; add its tables; return (customers, tables)."""
    customers, opened = 0, 0
    for k in range(p.n_regimes[i]):
        count = p.start[i, k] if source == START else p.counts[i, source, k]
        if count == 0 or (source == k and not diagonal):
            continue
        customers += count
        share = p.alpha[i] * math.exp(p.log_beta[i, k])
        tables = antoniak(count, share, sticky if source == k else 0.0, rng)
        out_tables[k] += tables
        opened += tables
    return customers, opened


@bare
def sweep(
    p: Particles,
    i: int,
    prior: Concentration,
    diagonal: bool,
    rng: np.random.Generator,
    tables: np.ndarray,
) -> None:
    """One Gibbs pass over tables, alpha, gamma, beta of particle i (Eqs. sample_u .. sample_beta).

    `diagonal=False` leaves self-transitions out of the tables *and* of u, v (D5's guard).
    `tables` is scratch.
    """
    n = p.n_regimes[i]
    for k in range(n):
        tables[k] = 0
    total, log_u, v = 0, 0.0, 0.0
    alpha = p.alpha[i]
    for source in range(START, n):
        customers, opened = row_tables(p, i, source, prior.sticky, diagonal, rng, tables)
        total += opened
        if customers == 0:
            continue
        if prior.sticky == 0.0:
            log_u += math.log(rng.beta(alpha + 1.0, customers))  # Eq. (sample_u)
            v += rng.random() * (customers + alpha) < customers  # Eq. (sample_v)
        else:  # with kappa fixed, u ~ Beta(alpha + kappa, n) alone makes alpha conjugate
            bias = 0.0 if source == START else prior.sticky
            log_u += log_beta_draw(alpha + bias, float(customers), rng)
    alpha = rng.gamma(prior.alpha_shape + total - v, 1.0 / (prior.alpha_rate - log_u))
    p.alpha[i] = max(alpha, LEAST)
    p.gamma[i] = max(draw_gamma(p.gamma[i], n, total, prior, rng), LEAST)
    draw_beta(p, i, rng, tables)


@bare
def draw_gamma(
    gamma: float, n: int, total: int, prior: Concentration, rng: np.random.Generator
) -> float:
    """gamma given L regimes at `total` tables (Eqs. sample_phi, sample_gamma)."""
    if total == 0:
        return rng.gamma(prior.gamma_shape, 1.0 / prior.gamma_rate)
    rate = prior.gamma_rate - math.log(rng.beta(gamma + 1.0, total))
    shape = prior.gamma_shape + n
    odds = (shape - 1.0) / (total * rate)
    if rng.random() * (1.0 + odds) >= odds:
        shape -= 1.0
    return rng.gamma(shape, 1.0 / rate)


@bare
def draw_beta(p: Particles, i: int, rng: np.random.Generator, tables: np.ndarray) -> None:
    """beta ~ Dir(m_.1, .., m_.L, gamma), in logs (Eq. sample_beta)."""
    n = p.n_regimes[i]
    top = -np.inf
    for k in range(n + 1):
        shape = float(tables[k]) if k < n else p.gamma[i]
        p.log_beta[i, k] = log_gamma_draw(shape, rng)
        top = max(top, p.log_beta[i, k])
    renormalise(p.log_beta[i], n + 1, top)


@bare
def renormalise(log_beta: np.ndarray, n: int, top: float) -> None:
    """Make the first n log shares sum to one; `top` is their largest."""
    total = 0.0
    for k in range(n):
        total += math.exp(log_beta[k] - top)
    log_total = top + math.log(total)
    for k in range(n):
        log_beta[k] -= log_total


@kernel
def stalest(p: Particles, i: int, pool: int, last_seen: np.ndarray) -> int:
    """The regime to forget (Alg. prune): least recently seen of the `pool` least visited.

    Visits are transitions out of the regime, as in the paper. Never the current regime.
    """
    n = p.n_regimes[i]
    visits = np.empty(n, np.int64)
    for l in range(n):
        visits[l] = 0
        for k in range(n):
            visits[l] += p.counts[i, l, k]
    victim = -1
    taken = np.zeros(n, np.bool_)
    for _ in range(min(pool, n - 1)):
        least = -1
        for l in range(n):
            open_to_pick = l != p.current[i] and not taken[l]
            if open_to_pick and (least < 0 or visits[l] < visits[least]):
                least = l
        taken[least] = True
        if victim < 0 or last_seen[p.slots[i, least]] < last_seen[p.slots[i, victim]]:
            victim = least
    return victim


@bare
def forget(p: Particles, i: int, victim: int, keep_start: bool) -> None:
    """Remove regime `victim` of particle i: its row and column, its share, its slot.

    D6: a regime whose every entry led through the forgotten one keeps a table in the start row.
    """
    n = p.n_regimes[i]
    for l in range(n - 1):
        for k in range(n - 1):
            p.counts[i, l, k] = p.counts[i, l + (l >= victim), k + (k >= victim)]
    for k in range(victim, n - 1):
        p.start[i, k] = p.start[i, k + 1]
    for k in range(victim, n):
        p.slots[i, k] = p.slots[i, k + 1]
        p.log_beta[i, k] = p.log_beta[i, k + 1]
    p.n_regimes[i] = n - 1
    if p.current[i] > victim:
        p.current[i] -= 1
    top = -np.inf
    for k in range(n):
        top = max(top, p.log_beta[i, k])
    renormalise(p.log_beta[i], n, top)
    if keep_start:
        for k in range(n - 1):
            entries = p.start[i, k]
            for l in range(n - 1):
                if l != k:  # staying is no entry, and its tables may all be the bias's or zeroed
                    entries += p.counts[i, l, k]
            if entries == 0:
                p.start[i, k] = 1
