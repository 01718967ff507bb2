"""One sweep of the beam sampler for the infinite HMM (Van Gael, Saatci, Teh, Ghahramani 2008).

    beta ~ SB(gamma),   pi_j ~ DP(alpha, beta),   s_t | s_{t-1} ~ pi_{s_{t-1}}
    y_t | s_t = k ~ N(F_t theta_k, v_k),          theta_k ~ N(mu0, v_k Lambda^-1)

A slice u_t ~ U(0, pi_{s_{t-1}, s_t}) leaves finitely many regimes able to reach time t, so the
whole path is drawn at once:

    a_t(k) = p(s_t = k | y_1:t, u_1:t)  ~  p(y_t | s_t = k)  sum_j 1[u_t <= pi_jk] a_{t-1}(j)

Shares, rows, slices and the filter are held in logs: an outlier makes every density underflow,
and a row's smallest entries do so on their own. Row 0 of the transition matrix is the start.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from regimekit._numba import kernel
from regimekit.baselines.beam.regression import (
    LONGEST,
    SMALLEST,
    Data,
    Prior,
    draw_coefficients,
    draw_noise,
    draw_prior_coefficients,
    learn,
    log_evidence,
    residual,
)
from regimekit.core.logspace import draw_index, logsumexp, normalise
from regimekit.ihmm.hdp import antoniak, log_gamma_draw


class Chain(NamedTuple):
    """One point of the Markov chain, with room for C regimes of which K are represented.

    Attributes:
        path: (T,) regime of each observation.
        size: (1,) K.
        log_beta: (C + 1,) log shares; entry K is the mass of regimes not represented.
        log_rows: (C + 1, C + 1) log transitions; row k + 1 leaves regime k, row 0 is the start,
            column K leads to regimes not represented.
        coefficients: (C, m) theta.
        noise: (C,) v.
        concentration: (2,) alpha, gamma.
    """

    path: np.ndarray
    size: np.ndarray
    log_beta: np.ndarray
    log_rows: np.ndarray
    coefficients: np.ndarray
    noise: np.ndarray
    concentration: np.ndarray


@kernel
def sweep(chain: Chain, data: Data, prior: Prior, rng: np.random.Generator) -> tuple[float, bool]:
    """Move the chain once; return the log joint of the new path and whether room ran out.

    The chain must be complete on entry: see `resample_parameters`.
    """
    log_slices = draw_slices(chain, rng)
    cut = extend(chain, prior, log_slices.min(), rng)
    log_filter = filter_forward(chain, data, log_slices)
    sample_backward(chain, log_filter, log_slices, rng)
    relabel(chain)
    return resample_parameters(chain, data, prior, rng), cut


@kernel
def resample_parameters(chain: Chain, data: Data, prior: Prior, rng: np.random.Generator) -> float:
    """Draw everything but the path given the path; return its log joint with y, alpha, gamma."""
    counts = count_transitions(chain)
    log_joint = sample_structure(chain, counts, prior, rng)
    sample_rows(chain, counts, rng)
    return log_joint + sample_emissions(chain, data, prior, rng)


@kernel
def draw_slices(chain: Chain, rng: np.random.Generator) -> np.ndarray:
    """log u_t, u_t uniform below the probability of the transition taken."""
    log_slices = np.empty(chain.path.size)
    row = 0
    for t in range(chain.path.size):
        regime = chain.path[t]
        log_slices[t] = chain.log_rows[row, regime] - rng.standard_exponential()
        row = regime + 1
    return log_slices


@kernel
def extend(chain: Chain, prior: Prior, log_least: float, rng: np.random.Generator) -> bool:
    """Represent regimes until no row hides more mass than the least slice; True if room ran out."""
    while True:
        n = chain.size[0]
        hidden = -np.inf
        for j in range(n + 1):
            hidden = max(hidden, chain.log_rows[j, n])
        if hidden < log_least:
            return False
        if n == chain.coefficients.shape[0]:
            return True
        represent(chain, rng)
        chain.noise[n] = draw_noise(prior, 0.0, 0.0, rng)
        draw_prior_coefficients(prior, chain.noise[n], rng, chain.coefficients[n])


@kernel
def represent(chain: Chain, rng: np.random.Generator) -> None:
    """Break one regime off the mass not represented: of beta, and of every row."""
    n = chain.size[0]
    alpha = chain.concentration[0]
    split(chain.log_beta, n, 1.0, chain.concentration[1], rng)
    part = alpha * math.exp(chain.log_beta[n])
    rest = alpha * math.exp(chain.log_beta[n + 1])
    for j in range(n + 1):
        split(chain.log_rows[j], n, part, rest, rng)
    chain.size[0] = n + 1
    for k in range(n + 2):
        chain.log_rows[n + 1, k] = alpha * math.exp(chain.log_beta[k])
    log_dirichlet(chain.log_rows[n + 1], n + 2, rng)


@kernel
def split(
    log_shares: np.ndarray, last: int, part: float, rest: float, rng: np.random.Generator
) -> None:
    """Divide entry `last` into itself and its successor by a Beta(part, rest) draw, in logs."""
    pair = np.empty(2)
    pair[0], pair[1] = part, rest
    log_dirichlet(pair, 2, rng)
    whole = log_shares[last]
    log_shares[last] = whole + pair[0]
    log_shares[last + 1] = whole + pair[1]


@kernel
def log_dirichlet(shapes: np.ndarray, n: int, rng: np.random.Generator) -> None:
    """Replace the first n shapes by the log of a Dirichlet draw with those shapes."""
    for k in range(n):
        shapes[k] = log_gamma_draw(shapes[k], rng)
    total = logsumexp(shapes, n)
    if total == -np.inf:  # every shape underflowed: the mass belongs to what has the rest
        shapes[n - 1] = 0.0
        return
    for k in range(n):
        shapes[k] -= total


@kernel
def filter_forward(chain: Chain, data: Data, log_slices: np.ndarray) -> np.ndarray:
    """(T, K) log filter given the slices, each row up to a constant; -inf where unreachable."""
    n, length = chain.size[0], chain.path.size
    order = descending(chain.log_rows, n)
    log_filter = np.full((length, n), -np.inf)
    sources, log_mass = np.zeros(n + 1, np.int64), np.zeros(n + 1)
    n_sources = 1  # the start
    for t in range(length):
        row = log_filter[t]
        for i in range(n_sources):
            j = sources[i]
            for k in order[j]:
                if chain.log_rows[j, k] < log_slices[t]:
                    break
                row[k] = log_add(row[k], log_mass[i])
        n_sources = weigh_reached(chain, data, t, row, sources, log_mass)
    return log_filter


@kernel
def weigh_reached(
    chain: Chain,
    data: Data,
    t: int,
    row: np.ndarray,
    out_sources: np.ndarray,
    out_log_mass: np.ndarray,
) -> int:
    """Multiply in the density of y_t; list the regimes reached and return how many they are."""
    top, reached = -np.inf, 0
    for k in range(row.size):
        if row[k] > -np.inf:
            row[k] += log_density(chain, data, t, k)
            top = max(top, row[k])
    for k in range(row.size):
        if row[k] > -np.inf:
            row[k] -= top
            out_sources[reached] = k + 1
            out_log_mass[reached] = row[k]
            reached += 1
    return reached


@kernel
def sample_backward(
    chain: Chain, log_filter: np.ndarray, log_slices: np.ndarray, rng: np.random.Generator
) -> None:
    """Draw the path from its last regime to its first."""
    length, n = log_filter.shape
    log_mass, shares = np.empty(n), np.empty(n)
    for t in range(length - 1, -1, -1):
        for k in range(n):
            log_mass[k] = log_filter[t, k]
            if t + 1 < length and chain.log_rows[k + 1, chain.path[t + 1]] < log_slices[t + 1]:
                log_mass[k] = -np.inf
        normalise(log_mass, n, shares)
        chain.path[t] = draw_index(shares, n, rng.random())


@kernel
def log_density(chain: Chain, data: Data, t: int, k: int) -> float:
    """log N(y_t; F_t theta_k, v_k) without the constant; 0 where y_t was not observed."""
    if math.isnan(data.y[t]):
        return 0.0
    z = residual(data, t, chain.coefficients[k]) / math.sqrt(chain.noise[k])
    z = min(abs(z), LONGEST)
    return -0.5 * (z * z + math.log(chain.noise[k]))


@kernel
def log_add(a: float, b: float) -> float:
    """log(exp a + exp b)."""
    if a == -np.inf:
        return b
    return max(a, b) + math.log1p(math.exp(-abs(a - b)))


@kernel
def descending(log_rows: np.ndarray, n: int) -> np.ndarray:
    """(n + 1, n): for each row the regimes from the likeliest to the least likely."""
    order = np.empty((n + 1, n), np.int64)
    for j in range(n + 1):
        order[j] = np.argsort(-log_rows[j, :n])
    return order


@kernel
def relabel(chain: Chain) -> None:
    """Keep the regimes in use, numbered by first appearance; the rest of beta joins the last."""
    n = chain.size[0]
    label = np.full(n, -1, np.int64)
    log_beta = np.empty(n + 1)
    used = 0
    for t in range(chain.path.size):
        k = chain.path[t]
        if label[k] < 0:
            label[k] = used
            log_beta[used] = chain.log_beta[k]
            used += 1
        chain.path[t] = label[k]
    rest = chain.log_beta[n]
    for k in range(n):
        if label[k] < 0:
            rest = log_add(rest, chain.log_beta[k])
    chain.log_beta[:used] = log_beta[:used]
    chain.log_beta[used] = rest
    chain.size[0] = used


@kernel
def count_transitions(chain: Chain) -> np.ndarray:
    """(K + 1, K) transitions of the path; row 0 holds the one out of the start."""
    n = chain.size[0]
    counts = np.zeros((n + 1, n), np.int64)
    row = 0
    for t in range(chain.path.size):
        counts[row, chain.path[t]] += 1
        row = chain.path[t] + 1
    return counts


@kernel
def sample_structure(
    chain: Chain, counts: np.ndarray, prior: Prior, rng: np.random.Generator
) -> float:
    """Table counts, then alpha, gamma and beta given them (rows integrated out).

    Returns log p(path, alpha, gamma) as it was on entry: see `log_marginal_path`.
    """
    n = chain.size[0]
    alpha, gamma = chain.concentration
    tables, customers = np.zeros(n), np.zeros(n + 1)
    for j in range(n + 1):
        for k in range(n):
            if counts[j, k] > 0:
                customers[j] += counts[j, k]
                tables[k] += antoniak(counts[j, k], alpha * math.exp(chain.log_beta[k]), 0.0, rng)
    log_joint = log_marginal_path(chain, counts, tables)
    total = np.array([tables.sum()])
    for i, value in enumerate((alpha, gamma)):
        shape, rate = prior.concentration[i]
        log_joint += (shape - 1.0) * math.log(value) - rate * value
    chain.concentration[0] = draw_concentration(
        alpha, total[0], customers, prior.concentration[0], rng
    )
    chain.concentration[1] = draw_concentration(gamma, float(n), total, prior.concentration[1], rng)
    chain.log_beta[:n] = tables
    chain.log_beta[n] = chain.concentration[1]
    log_dirichlet(chain.log_beta, n + 1, rng)
    return log_joint


@kernel
def log_marginal_path(chain: Chain, counts: np.ndarray, tables: np.ndarray) -> float:
    """log p(path | alpha, gamma), beta integrated out, by one draw of the tables m_k.

    p(path, m | alpha, gamma) / p(m | path, alpha, beta) is unbiased for p(path | alpha, gamma)
    if m was drawn from the denominator. The Stirling numbers of both cancel, and it hardly
    depends on m as long as beta_k is about m_k / m. Paths with different numbers of regimes can
    be compared by it; by p(path | alpha, beta) they cannot, each comes with a beta of its own.
    """
    gamma, n = chain.concentration[1], chain.size[0]
    total = log_path(chain, counts)
    total += math.lgamma(gamma) - math.lgamma(gamma + tables.sum())
    for k in range(n):
        total += math.log(gamma) + math.lgamma(tables[k]) - tables[k] * chain.log_beta[k]
    return total


@kernel
def draw_concentration(
    value: float, tables: float, customers: np.ndarray, prior: np.ndarray, rng: np.random.Generator
) -> float:
    """Concentration of restaurants with these customers that opened `tables` in all.

    The likelihood a^tables prod_j G(a) / G(a + n_j) becomes a Gamma density in `a` given
    u_j ~ Beta(a + 1, n_j) and v_j ~ Bernoulli(n_j / (n_j + a)).
    """
    shape, rate = prior[0] + tables, prior[1]
    for n in customers:
        if n > 0:
            rate -= math.log(max(rng.beta(value + 1.0, n), SMALLEST))
            if rng.random() * (n + value) < n:
                shape -= 1.0
    return float(max(rng.standard_gamma(shape) / rate, SMALLEST))


@kernel
def sample_rows(chain: Chain, counts: np.ndarray, rng: np.random.Generator) -> None:
    """pi_j ~ Dir(alpha beta + n_j), its last entry the regimes not represented."""
    n = chain.size[0]
    alpha = chain.concentration[0]
    for j in range(n + 1):
        row = chain.log_rows[j]
        for k in range(n + 1):
            row[k] = alpha * math.exp(chain.log_beta[k])
        for k in range(n):
            row[k] += counts[j, k]
        log_dirichlet(row, n + 1, rng)


@kernel
def log_path(chain: Chain, counts: np.ndarray) -> float:
    """log p(path | alpha, beta) with the transition rows integrated out."""
    n = chain.size[0]
    alpha = chain.concentration[0]
    total = 0.0
    for j in range(n + 1):
        customers = 0
        for k in range(n):
            if counts[j, k] > 0:  # G(a + n) / G(a) as a G(a + n) / G(a + 1): a may underflow
                log_share = math.log(alpha) + chain.log_beta[k]
                share = math.exp(log_share)
                total += log_share + math.lgamma(share + counts[j, k]) - math.lgamma(share + 1.0)
                customers += counts[j, k]
        if customers > 0:
            total -= math.log(alpha) + math.lgamma(alpha + customers) - math.lgamma(alpha + 1.0)
    return total


@kernel
def sample_emissions(chain: Chain, data: Data, prior: Prior, rng: np.random.Generator) -> float:
    """Noise and coefficients of each regime given its observations; return log p(y | path)."""
    n = chain.size[0]
    posterior = learn(chain.path, n, data, prior)
    for k in range(n):
        chain.noise[k] = draw_noise(prior, posterior.seen[k], posterior.misfit[k], rng)
        draw_coefficients(posterior, k, chain.noise[k], rng, chain.coefficients[k])
    return log_evidence(posterior, prior)
