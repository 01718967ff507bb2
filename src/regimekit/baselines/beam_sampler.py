"""One sweep of the beam sampler for the infinite HMM (Van Gael, Saatci, Teh, Ghahramani 2008).

    beta ~ SB(gamma),   pi_j ~ DP(alpha, beta),   s_t | s_{t-1} ~ pi_{s_{t-1}}
    y_t | s_t = k ~ N(F_t theta_k, v_k),          theta_k ~ N(mu0, v_k Lambda^-1)

Given a slice u_t ~ U(0, pi_{s_{t-1}, s_t}), finitely many regimes can reach time t, so the whole
path is drawn at once:

    a_t(k) = p(s_t = k | y_1:t, u_1:t)  ~  p(y_t | s_t = k)  sum_j 1[u_t <= pi_jk] a_{t-1}(j)

Shares, transition rows, slices and the filter are stored as logarithms: an outlier makes every
density underflow, and so do the smallest entries of a row. Row 0 of the transition matrix is the
initial distribution. `beam_regression` is the emission.
"""

from __future__ import annotations

import math

import cython
import numpy as np
from cython.cimports.libc.math import exp, fabs, isnan, lgamma, log, sqrt

if not cython.compiled:
    from regimekit.baselines.beam_regression import MAX_RESIDUAL, MIN_VARIANCE
    from regimekit.core.logspace import draw_index, logaddexp, logsumexp, normalize
    from regimekit.ihmm.hdp import antoniak, log_gamma_draw

from regimekit.baselines.beam_regression import Regression
from regimekit.core.random import RandomSource

INF = cython.declare(cython.double, math.inf)


class Chain:
    """One point of the Markov chain, with room for C regimes of which K are represented.

    Args:
        data: see `Regression`.
        prior: see `Regression`; its `concentration` (2, 2) has shape and rate of the Gamma priors
            of alpha and gamma.
        path: (T,) initial regime of each observation, from 0 to K - 1.
        n_regimes: K.
        capacity: C.
        generator: NumPy generator of the random draws.

    Attributes:
        path: (T,) regime of each observation.
        size: K.
        log_beta: (C + 1,) log shares; entry K is the mass of regimes not represented.
        log_rows: (C + 1, C + 1) log transition probabilities. Row k + 1 leaves regime k, row 0 is
            the initial distribution, column K leads to regimes not represented.
        coefficients: (C, m) theta.
        noise: (C,) v.
        concentration: (2,) alpha, gamma.
        counts: (K + 1, K) transitions of the path, after `count_transitions`.
        log_slices: (T,) log u_t, after `draw_slices`.
        log_filter: (T, K) log filter up to a constant per row, after `filter_forward`.
    """

    def __init__(self, data, prior, path, n_regimes, capacity, generator):
        self.regression = Regression(data, prior)
        self.random = RandomSource(generator)
        self.path, self.size = np.array(path, np.int64), n_regimes
        log_beta = np.full(capacity + 1, -np.inf)
        log_beta[: n_regimes + 1] = -np.log(n_regimes + 1)
        self.log_beta = log_beta
        self.log_rows = np.full((capacity + 1, capacity + 1), -np.inf)
        self.coefficients = np.zeros((capacity, len(prior.mean)))
        self.noise, self.concentration = np.ones(capacity), np.ones(2)
        self.concentration_prior = np.ascontiguousarray(prior.concentration)
        self.log_slices = np.empty(len(path))
        self.sources, self.pair = np.zeros(capacity + 1, np.int64), np.empty(2)
        self.log_mass, self.shares = np.zeros(capacity + 1), np.zeros(capacity + 1)
        self.resample_parameters()

    def sweep(self):
        """Move the chain once; return the log joint density and whether capacity was too small."""
        self.draw_slices()
        truncated = self.extend(np.min(self.log_slices))
        self.filter_forward()
        self.sample_backward()
        self.relabel()
        return self.resample_parameters(), truncated

    def resample_parameters(self):
        """Draw everything but the path, given the path.

        Returns:
            log p(y, path, alpha, gamma) up to a constant, with alpha and gamma as before.
        """
        self.count_transitions()
        log_joint = self.sample_structure()
        self.sample_rows()
        return log_joint + self.sample_emissions()

    def draw_slices(self):
        """Draw log u_t with u_t uniform below the probability of the transition taken."""
        row: cython.Py_ssize_t = 0
        for t in range(self.path.shape[0]):
            regime: cython.Py_ssize_t = self.path[t]
            self.log_slices[t] = self.log_rows[row, regime] - self.random.exponential()
            row = regime + 1

    def extend(self, log_least):
        """Represent regimes until the mass left in every row is less than the smallest slice.

        Returns:
            Whether the capacity was too small for that.
        """
        least: cython.double = log_least
        while True:
            n: cython.Py_ssize_t = self.size
            hidden: cython.double = -INF
            for j in range(n + 1):
                if self.log_rows[j, n] > hidden:
                    hidden = self.log_rows[j, n]
            if hidden < least:
                return False
            if n == self.coefficients.shape[0]:
                return True
            self.represent()
            self.noise[n] = self.regression.draw_noise(0.0, 0.0, self.random)
            self.regression.draw_prior_coefficients(
                self.noise[n], self.random, self.coefficients[n]
            )

    def represent(self):
        """Split one regime off the mass not represented: of beta, and of every row."""
        n: cython.Py_ssize_t = self.size
        alpha: cython.double = self.concentration[0]
        self.split(self.log_beta, n, 1.0, self.concentration[1])
        part: cython.double = alpha * exp(self.log_beta[n])
        rest: cython.double = alpha * exp(self.log_beta[n + 1])
        for j in range(n + 1):
            self.split(self.log_rows[j], n, part, rest)
        self.size = n + 1
        for k in range(n + 2):
            self.log_rows[n + 1, k] = alpha * exp(self.log_beta[k])
        self.log_dirichlet(self.log_rows[n + 1], n + 2)

    def split(self, log_shares, last, part, rest):
        """Divide entry `last` of `log_shares` in two by a Beta(part, rest) draw."""
        self.pair[0] = part
        self.pair[1] = rest
        self.log_dirichlet(self.pair, 2)
        whole: cython.double = log_shares[last]
        log_shares[last] = whole + self.pair[0]
        log_shares[last + 1] = whole + self.pair[1]

    def log_dirichlet(self, shapes, n):
        """Replace the first n shapes by the log of a Dirichlet draw with those shapes."""
        for k in range(n):
            shapes[k] = log_gamma_draw(shapes[k], self.random)
        total: cython.double = logsumexp(shapes, 0, n)
        # If every shape underflowed, the last entry takes the whole mass.
        if total == -INF:
            shapes[n - 1] = 0.0
            return
        for k in range(n):
            shapes[k] -= total

    def filter_forward(self):
        """Compute the (T, K) log filter given the slices; -inf for unreachable regimes."""
        n = self.size
        self.log_filter = np.full((self.path.shape[0], n), -np.inf)
        # From the most to the least probable target, so that the loop over targets can stop early.
        rows = np.asarray(self.log_rows)[: n + 1, :n]
        self.order = np.ascontiguousarray(np.argsort(-rows, axis=1), np.int64)
        with cython.nogil:
            self.filter_loop()

    def filter_loop(self):
        """Run the filter over all observations."""
        # The first source is the initial distribution, row 0.
        n_sources: cython.Py_ssize_t = 1
        self.sources[0] = 0
        self.log_mass[0] = 0.0
        for t in range(self.path.shape[0]):
            for i in range(n_sources):
                j: cython.Py_ssize_t = self.sources[i]
                for m in range(self.size):
                    k: cython.Py_ssize_t = self.order[j, m]
                    if self.log_rows[j, k] < self.log_slices[t]:
                        break
                    self.log_filter[t, k] = logaddexp(self.log_mass[i], self.log_filter[t, k])
            n_sources = self.weigh_reached(t)

    def weigh_reached(self, t):
        """Multiply by the density of y_t; store the reached regimes and return their number."""
        top: cython.double = -INF
        reached: cython.Py_ssize_t = 0
        for k in range(self.size):
            if self.log_filter[t, k] > -INF:
                self.log_filter[t, k] += self.log_density(t, k)
                if self.log_filter[t, k] > top:
                    top = self.log_filter[t, k]
        for k in range(self.size):
            if self.log_filter[t, k] > -INF:
                self.log_filter[t, k] -= top
                self.sources[reached] = k + 1
                self.log_mass[reached] = self.log_filter[t, k]
                reached += 1
        return reached

    def log_density(self, t, k):
        """Return log N(y_t; F_t theta_k, v_k) without the constant; 0 if y_t is missing."""
        if isnan(self.regression.y[t]):
            return 0.0
        error: cython.double = self.regression.residual(t, self.coefficients, k)
        z: cython.double = fabs(error / sqrt(self.noise[k]))
        if z > MAX_RESIDUAL:
            z = MAX_RESIDUAL
        return -0.5 * (z * z + log(self.noise[k]))

    def sample_backward(self):
        """Draw the path from its last regime to its first."""
        with cython.nogil:
            self.backward_loop()

    def backward_loop(self):
        """Draw the regimes one by one."""
        length: cython.Py_ssize_t = self.path.shape[0]
        for step in range(length):
            t: cython.Py_ssize_t = length - 1 - step
            for k in range(self.size):
                self.log_mass[k] = self.log_filter[t, k]
                if (
                    t + 1 < length
                    and self.log_rows[k + 1, self.path[t + 1]] < self.log_slices[t + 1]
                ):
                    self.log_mass[k] = -INF
            normalize(self.log_mass, self.size, self.shares)
            self.path[t] = draw_index(self.shares, self.size, self.random.uniform())

    def relabel(self):
        """Keep the regimes in use, numbered by first appearance; the rest joins the last share."""
        n = self.size
        path, log_beta = np.asarray(self.path), np.asarray(self.log_beta)
        used, first = np.unique(path, return_index=True)
        used = used[np.argsort(first)]
        label = np.full(n, -1, np.int64)
        label[used] = np.arange(used.size)
        rest: cython.double = log_beta[n]
        for k in range(n):
            if label[k] < 0:
                rest = logaddexp(rest, log_beta[k])
        log_beta[: used.size] = log_beta[used]
        log_beta[used.size] = rest
        path[:] = label[path]
        self.size = used.size

    def count_transitions(self):
        """Count the transitions of the path: (K + 1, K); row 0 is the one out of the start."""
        self.counts = np.zeros((self.size + 1, self.size), np.int64)
        row: cython.Py_ssize_t = 0
        for t in range(self.path.shape[0]):
            self.counts[row, self.path[t]] += 1
            row = self.path[t] + 1

    def sample_structure(self):
        """Draw table counts, then alpha, gamma and beta given them (rows are integrated out).

        Returns:
            log p(path, alpha, gamma) as it was before: see `log_marginal_path`.
        """
        n: cython.Py_ssize_t = self.size
        alpha: cython.double = self.concentration[0]
        gamma: cython.double = self.concentration[1]
        tables: cython.double[::1] = np.zeros(n)
        customers: cython.double[::1] = np.zeros(n + 1)
        total: cython.double[::1] = np.zeros(1)
        for j in range(n + 1):
            for k in range(n):
                if self.counts[j, k] > 0:
                    customers[j] += self.counts[j, k]
                    share: cython.double = alpha * exp(self.log_beta[k])
                    opened: cython.Py_ssize_t = antoniak(self.counts[j, k], share, 0.0, self.random)
                    tables[k] += opened
                    total[0] += opened
        log_joint: cython.double = self.log_marginal_path(tables)
        prior = self.concentration_prior
        log_joint += (prior[0, 0] - 1.0) * log(alpha) - prior[0, 1] * alpha
        log_joint += (prior[1, 0] - 1.0) * log(gamma) - prior[1, 1] * gamma
        self.concentration[0] = self.draw_concentration(alpha, total[0], customers, n + 1, 0)
        self.concentration[1] = self.draw_concentration(gamma, n, total, 1, 1)
        for k in range(n):
            self.log_beta[k] = tables[k]
        self.log_beta[n] = self.concentration[1]
        self.log_dirichlet(self.log_beta, n + 1)
        return log_joint

    def log_marginal_path(self, tables):
        """Return log p(path | alpha, gamma), beta integrated out, by one draw of the tables m_k.

        p(path, m | alpha, gamma) / p(m | path, alpha, beta) is unbiased for p(path | alpha, gamma)
        if m was drawn from the denominator. The Stirling numbers of both cancel, and the ratio
        hardly depends on m if beta_k is about m_k / m. It compares paths with different numbers
        of regimes; p(path | alpha, beta) does not, since each path has its own beta.
        """
        gamma: cython.double = self.concentration[1]
        total: cython.double = self.log_path()
        total += lgamma(gamma) - lgamma(gamma + np.sum(tables))
        for k in range(self.size):
            count: cython.double = tables[k]
            total += log(gamma) + lgamma(count) - count * self.log_beta[k]
        return total

    def log_path(self):
        """Return log p(path | alpha, beta); the transition rows are integrated out."""
        alpha: cython.double = self.concentration[0]
        total: cython.double = 0.0
        for j in range(self.size + 1):
            customers: cython.double = 0.0
            for k in range(self.size):
                if self.counts[j, k] > 0:
                    # G(a + n) / G(a) as a G(a + n) / G(a + 1), because a may underflow.
                    log_share: cython.double = log(alpha) + self.log_beta[k]
                    share: cython.double = exp(log_share)
                    total += log_share + lgamma(share + self.counts[j, k]) - lgamma(share + 1.0)
                    customers += self.counts[j, k]
            if customers > 0.0:
                total -= log(alpha) + lgamma(alpha + customers) - lgamma(alpha + 1.0)
        return total

    def draw_concentration(self, value, tables, customers, n, which):
        """Draw a concentration, given the tables of several restaurants.

        The likelihood a^tables prod_j G(a) / G(a + n_j) becomes a Gamma density in `a` given u_j ~
        Beta(a + 1, n_j) and v_j ~ Bernoulli(n_j / (n_j + a)).

        Args:
            customers: (n,) customers n_j of each restaurant.
            which: 0 for alpha, 1 for gamma.
        """
        shape: cython.double = self.concentration_prior[which, 0] + tables
        rate: cython.double = self.concentration_prior[which, 1]
        for j in range(n):
            count: cython.double = customers[j]
            if count > 0.0:
                u: cython.double = self.random.beta(value + 1.0, count)
                rate -= log(u if u > MIN_VARIANCE else MIN_VARIANCE)
                if self.random.uniform() * (count + value) < count:
                    shape -= 1.0
        drawn: cython.double = self.random.gamma(shape, 1.0) / rate
        return drawn if drawn > MIN_VARIANCE else MIN_VARIANCE

    def sample_rows(self):
        """Draw pi_j ~ Dir(alpha beta + n_j); its last entry is the regimes not represented."""
        n: cython.Py_ssize_t = self.size
        alpha: cython.double = self.concentration[0]
        for j in range(n + 1):
            for k in range(n + 1):
                self.log_rows[j, k] = alpha * exp(self.log_beta[k])
            for k in range(n):
                self.log_rows[j, k] += self.counts[j, k]
            self.log_dirichlet(self.log_rows[j], n + 1)

    def sample_emissions(self):
        """Draw noise and coefficients of each regime; return log p(y | path)."""
        self.regression.learn(self.path, self.size)
        for k in range(self.size):
            self.noise[k] = self.regression.draw_noise(
                self.regression.seen[k], self.regression.misfit[k], self.random
            )
            self.regression.draw_coefficients(k, self.noise[k], self.random, self.coefficients[k])
        return self.regression.log_evidence()
