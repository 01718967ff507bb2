"""The prior over regimes: a hierarchical Dirichlet process (HDP) over transition rows.

    beta ~ SB(gamma),   pi_l ~ Dir(alpha beta),   alpha, gamma ~ Gamma

A particle stores the transition counts n, the shares beta of its L regimes and, last, of all
regimes not opened yet, and alpha and gamma. With pi integrated out,

    P(l | s) = (n_sl + alpha beta_l) / (n_s. + alpha)               Eq. (28), form:transition_prob

and given table counts m ~ Antoniak(n, alpha beta), Eq. (31), the other conditionals are closed
form, Eqs. (32) to (37). A finite `sticky` kappa adds kappa to the self-transition (Fox et al.
2008); the paper's degenerate sticky prior, Eqs. (13) and (14), is the batch itself: kappa is
infinite inside a batch.

Arguments of the functions:
    p: the `Particles`.
    i: particle.
    random: `RandomSource`.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import exp, expm1, lgamma, log

if not cython.compiled:
    from regimekit.ihmm.state import START

INF = cython.declare(cython.double, float("inf"))
# Smaller concentrations are replaced by this: their logarithm must stay finite.
MIN_CONCENTRATION = cython.declare(cython.double, 1e-300)
MIN_STICK = cython.declare(cython.double, 1e-300)
# Customers that are seated one by one before jumping from table to table.
SEATED_SINGLY = cython.declare(cython.Py_ssize_t, 16)


class Concentration:
    """Priors Gamma(shape, rate) of alpha and gamma, and the self-transition bias kappa.

    Arguments of the methods:
        p: the `Particles`.
        i: particle.
        random: `RandomSource`.
        diagonal: whether self-transitions count (D5).
    """

    def __init__(
        self, alpha_shape=1.0, alpha_rate=1.0, gamma_shape=1.0, gamma_rate=1.0, sticky=0.0
    ):
        self.alpha_shape = alpha_shape
        self.alpha_rate = alpha_rate
        self.gamma_shape = gamma_shape
        self.gamma_rate = gamma_rate
        self.sticky = sticky
        self.customers = 0
        self.tables = np.zeros(16, np.int64)

    def reserve(self, regimes):
        """Make room for the tables of `regimes` regimes."""
        if regimes > self.tables.shape[0]:
            self.tables = np.zeros(2 * regimes, np.int64)

    def row_tables(self, p, i, source, diagonal, random):
        """Seat the customers of the transition row of `source`, Eq. (31), form:m_law.

        The tables of each regime are added to `tables`; `customers` is set to their number.

        Returns:
            The number of tables opened.
        """
        opened: cython.Py_ssize_t = 0
        self.customers = 0
        for k in range(p.n_regimes[i]):
            count: cython.Py_ssize_t = p.start[i, k] if source == START else p.counts[i, source, k]
            if count == 0 or (source == k and not diagonal):
                continue
            self.customers += count
            share: cython.double = p.alpha[i] * exp(p.log_beta[i, k])
            found: cython.Py_ssize_t = antoniak(
                count, share, self.sticky if source == k else 0.0, random
            )
            self.tables[k] += found
            opened += found
        return opened

    def sweep(self, p, i, diagonal, random):
        """Draw tables, alpha, gamma and beta of a particle in one Gibbs pass (update_struct).

        If `diagonal` is False, self-transitions are left out of the tables *and* of u and v, the
        safeguard of deviation D5 against a row without tables.
        """
        n: cython.Py_ssize_t = p.n_regimes[i]
        total: cython.Py_ssize_t = 0
        log_u: cython.double = 0.0
        v: cython.double = 0.0
        alpha: cython.double = p.alpha[i]
        for k in range(n):
            self.tables[k] = 0
        for source in range(-1, n):
            opened: cython.Py_ssize_t = self.row_tables(p, i, source, diagonal, random)
            total += opened
            if self.customers == 0:
                continue
            if self.sticky == 0.0:
                log_u += log(random.beta(alpha + 1.0, self.customers))  # Eq. (32), form:sample_u
                if random.uniform() * (self.customers + alpha) < self.customers:
                    v += 1.0  # Eq. (33), form:sample_v
            else:
                # With kappa fixed, u ~ Beta(alpha + kappa, n) alone makes alpha conjugate.
                bias: cython.double = 0.0 if source == START else self.sticky
                log_u += log_beta_draw(alpha + bias, self.customers, random)
        # Eq. (35), form:sample_alpha
        alpha = random.gamma(self.alpha_shape + total - v, 1.0 / (self.alpha_rate - log_u))
        p.alpha[i] = max(alpha, MIN_CONCENTRATION)
        p.gamma[i] = max(self.draw_gamma(p.gamma[i], n, total, random), MIN_CONCENTRATION)
        self.draw_beta(p, i, random)

    def sweep_all(self, particles, random, sweeps, diagonal=True):
        """Draw the structure of every particle `sweeps` times, for callers in Python."""
        self.reserve(particles.start.shape[1] + 1)
        for i in range(particles.alpha.shape[0]):
            for _ in range(sweeps):
                self.sweep(particles, i, diagonal, random)

    def draw_gamma(self, gamma, n, total, random):
        """Draw gamma given `n` regimes at `total` tables, Eqs. (34) and (36)."""
        if total == 0:
            return random.gamma(self.gamma_shape, 1.0 / self.gamma_rate)
        rate: cython.double = self.gamma_rate - log(random.beta(gamma + 1.0, total))
        shape: cython.double = self.gamma_shape + n
        odds: cython.double = (shape - 1.0) / (total * rate)
        if random.uniform() * (1.0 + odds) >= odds:
            shape -= 1.0
        return random.gamma(shape, 1.0 / rate)

    def draw_beta(self, p, i, random):
        """Draw beta ~ Dir(m_.1, .., m_.L, gamma) in logs, Eq. (37), form:sample_beta."""
        n: cython.Py_ssize_t = p.n_regimes[i]
        for k in range(n + 1):
            shape: cython.double = self.tables[k] if k < n else p.gamma[i]
            p.log_beta[i, k] = log_gamma_draw(shape, random)
        normalize_beta(p, i, n + 1)


def log_transition_row(p, i, sticky):
    """Write log P(l | s), Eq. (28), form:transition_prob, for l = 0 .. L; the last is a new regime.

    Args:
        sticky: kappa between batches.
    """
    n: cython.Py_ssize_t = p.n_regimes[i]
    s: cython.Py_ssize_t = p.current[i]
    alpha: cython.double = p.alpha[i]
    bias: cython.double = 0.0 if s == START else sticky
    total: cython.Py_ssize_t = 0
    for k in range(n):
        total += p.start[i, k] if s == START else p.counts[i, s, k]
    log_norm: cython.double = log(total + alpha + bias)
    for k in range(n + 1):
        count: cython.double = 0.0
        if k < n:
            count = p.start[i, k] if s == START else p.counts[i, s, k]
        if k == s:
            count += bias
        if count > 0.0:
            p.log_row[i, k] = log(count + alpha * exp(p.log_beta[i, k])) - log_norm
        else:
            # In logs: a tiny share must not underflow to an impossible regime.
            p.log_row[i, k] = log(alpha) + p.log_beta[i, k] - log_norm


def log_stick_rest(gamma, random):
    """Draw log(1 - v) for v ~ Beta(1, gamma): 1 - v = U^(1 / gamma), in logs against underflow."""
    return min(log(1.0 - random.uniform()) / gamma, -MIN_STICK)


def count_transition(p, i, choice, random):
    """Count the transition of a particle, Eq. (29), form:app_increment_N (update_counts).

    A new regime splits the last stick, Eq. (30). (The paper prints (1 - v) v b for (1 - v) b.)
    """
    n: cython.Py_ssize_t = p.n_regimes[i]
    if choice == n:
        log_rest: cython.double = log_stick_rest(p.gamma[i], random)
        p.log_beta[i, n + 1] = p.log_beta[i, n] + log_rest
        p.log_beta[i, n] += log(-expm1(log_rest))
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


def antoniak(n, concentration, bias, random):
    """Draw how many tables beta explains among `n` customers, exactly, Eq. (31), form:m_law.

    With a = alpha beta_l (`concentration`) and j customers seated, the next one opens a table with
    probability (a + bias) / (a + bias + j), and a share a / (a + bias) of those belongs to beta, in
    all a / (a + bias + j). The first customers are seated one by one. After that, no such table is
    opened before customer k + 1 with probability

        G(bias + k) G(a + bias + j) / (G(bias + j) G(a + bias + k)),

    so one uniform draw of `random` gives the next table by bisection, in O(tables log n). Without a
    bias the first customer always opens a table.
    """
    if n == 0:
        return 0
    seated: cython.Py_ssize_t = 1 if bias == 0.0 else 0
    tables: cython.Py_ssize_t = seated
    total: cython.double = concentration + bias
    while seated < min(n, SEATED_SINGLY):
        if random.uniform() * (total + seated) < concentration:
            tables += 1
        seated += 1
    while seated < n and concentration > 0.0:
        target: cython.double = log(1.0 - random.uniform())
        target -= lgamma(total + seated) - lgamma(bias + seated)
        if lgamma(bias + n) - lgamma(total + n) > target:
            break
        low: cython.Py_ssize_t = seated  # survival(low) > u >= survival(high)
        high: cython.Py_ssize_t = n
        while high - low > 1:
            middle: cython.Py_ssize_t = (low + high) // 2
            if lgamma(bias + middle) - lgamma(total + middle) > target:
                low = middle
            else:
                high = middle
        tables += 1
        seated = high
    return tables


def log_gamma_draw(shape, random):
    """Draw the log of a Gamma(shape, 1) variable, which would underflow for a small shape."""
    if shape <= 0.0:
        return -INF
    if shape >= 1.0:
        return log(random.gamma(shape, 1.0))
    log_boosted: cython.double = log(random.gamma(shape + 1.0, 1.0))
    return log_boosted + log(1.0 - random.uniform()) / shape


def log_beta_draw(a, b, random):
    """Draw the log of a Beta(a, b) variable, which would underflow for a small a."""
    x: cython.double = log_gamma_draw(a, random)
    y: cython.double = log_gamma_draw(b, random)
    top: cython.double = max(x, y)
    return x - top - log(exp(x - top) + exp(y - top))


def normalize_beta(p, i, n):
    """Make the first log shares of a particle sum to one."""
    top: cython.double = -INF
    total: cython.double = 0.0
    for k in range(n):
        top = max(top, p.log_beta[i, k])
    for k in range(n):
        total += exp(p.log_beta[i, k] - top)
    log_total: cython.double = top + log(total)
    for k in range(n):
        p.log_beta[i, k] -= log_total


def least_used(p, i, pool, last_seen, visits, taken):
    """Return the regime to prune: the least recently visited of the least visited ones.

    Visits are transitions out of the regime, as in the paper (Algorithm "prune"). The present
    regime is never pruned.

    Args:
        pool: tau_N, number of least visited regimes to choose from.
        last_seen: (R,) time of the latest batch of each row.
        visits, taken: scratch.

    Returns:
        Its slot, or -1 if there is none.
    """
    n: cython.Py_ssize_t = p.n_regimes[i]
    victim: cython.Py_ssize_t = -1
    for l in range(n):
        taken[l] = 0
        visits[l] = 0
        for k in range(n):
            visits[l] += p.counts[i, l, k]
    for _ in range(min(pool, n - 1)):
        least: cython.Py_ssize_t = -1
        for l in range(n):
            if l != p.current[i] and taken[l] == 0:
                if least < 0 or visits[l] < visits[least]:
                    least = l
        taken[least] = 1
        if victim < 0 or last_seen[p.slots[i, least]] < last_seen[p.slots[i, victim]]:
            victim = least
    return victim


def remove_regime(p, i, victim, keep_start):
    """Remove a regime of a particle: its row and column of counts, its share, its slot.

    Args:
        keep_start: whether a regime whose every entry led through the removed one keeps a table
            in the start row (D6).
    """
    n: cython.Py_ssize_t = p.n_regimes[i]
    for l in range(n - 1):
        for k in range(n - 1):
            p.counts[i, l, k] = p.counts[
                i, l + 1 if l >= victim else l, k + 1 if k >= victim else k
            ]
    for k in range(victim, n - 1):
        p.start[i, k] = p.start[i, k + 1]
    for k in range(victim, n):
        p.slots[i, k] = p.slots[i, k + 1]
        p.log_beta[i, k] = p.log_beta[i, k + 1]
    p.n_regimes[i] = n - 1
    if p.current[i] > victim:
        p.current[i] -= 1
    normalize_beta(p, i, n)
    if keep_start:
        for k in range(n - 1):
            entries: cython.Py_ssize_t = p.start[i, k]
            for l in range(n - 1):
                if l != k:  # a self-transition is not an entry
                    entries += p.counts[i, l, k]
            if entries == 0:
                p.start[i, k] = 1


def transition_matrix(p, i, sticky, out):
    """Write P(l | s) of a particle among its L regimes and, last, a new one.

    Args:
        sticky: kappa between batches.
        out: (L + 1, L + 1).
    """
    n: cython.Py_ssize_t = p.n_regimes[i]
    alpha: cython.double = p.alpha[i]
    for s in range(n + 1):
        total: cython.double = alpha + sticky
        for l in range(n + 1):
            count: cython.double = p.counts[i, s, l] if s < n and l < n else 0.0
            total += count
            if s == l:
                count += sticky
            out[s, l] = count + alpha * exp(p.log_beta[i, l])
        for l in range(n + 1):
            out[s, l] /= total
