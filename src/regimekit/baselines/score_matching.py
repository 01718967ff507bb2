"""Gaussian segments learnt by diffusion score matching (Altamirano et al. 2023).

A row stores a *generalized* posterior, pi(eta) ~ pi_0(eta) exp(-omega sum_i loss(x_i, eta)). With
natural parameters

    log p(x | eta) = eta_1 x - eta_2 x^2 / 2 + const,   eta_1 = mu / sigma^2,  eta_2 = 1 / sigma^2

the score is linear, d/dx log p = g'eta with g = (1, -x), and so the diffusion score matching loss
with weight m is quadratic:

    loss = (m g'eta)^2 + 2 d/dx (m^2 g'eta) = eta' L eta + 2 eta' v
    L = m^2 g g',   v = (m^2)' g + m^2 (0, -1)',   m^2 = 1 / (1 + (x - center)^2 / scale^2)

Under a normal prior N(mu_0, P_0^-1) truncated to eta_2 > floor the posterior has the same form,

    P = P_0 + 2 omega sum L,     P mu = P_0 mu_0 - 2 omega sum v

and a row is the five sums of m^2, m^2 x, m^2 x^2, (m^2)', (m^2)' x. Each is bounded per observation
(x is relative to `center`), which bounds the influence of an outlier on the parameters.

Prediction. Given eta_2, eta_1 is normal with precision P_11, hence

    x | eta_2 ~ N((h_1 - P_12 eta_2) / (P_11 eta_2), 1 / eta_2 + 1 / (P_11 eta_2^2)),   h = P mu

With *known* variance eta_2 is fixed at 1 / noise and that is the closed form. With *unknown*
variance eta_2 is a truncated normal, integrated by 24 Gauss-Legendre nodes in sqrt(eta_2): the
forecast is the finite mixture over those nodes. Its log density was within 1e-6 of fine quadrature
for nine in ten of a range of posteriors and points up to 6 sd out, within 1e-3 for all of them.
`floor` = 1 / max_variance keeps the moments finite: without it the predictive has no mean.

Learning rate. omega minimizes KL(pi || Bayes) on a training part, where Bayes is the ordinary
posterior under the same prior. Everything but eta_2 is integrated in closed form.

Evidence. The published method scores run lengths by the plain predictive (`threshold=inf`). That
alone does not bound the influence of an outlier on the *run length*: the prior row is the widest,
so a distant point always favours a new segment. With a finite `threshold` c each node scores by
log N(x; yhat, S (1 + z^2 / c^2)) instead, which all rows share in the limit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import cython
import numpy as np
from cython.cimports.libc.math import exp, fabs, hypot, log, sqrt

from regimekit.distributions.normal import log_normal_cdf
from regimekit.ihmm.emissions.base import Shape

if not cython.compiled:
    from regimekit.baselines.run_length import Segments
    from regimekit.ihmm.weights import IMQ, MAX_LENGTH, log_score, log_weight2

INF = cython.declare(cython.double, math.inf)
GOLDEN = 0.6180339887498949
MAX_TRAINING_VALUE = 1e100  # training values are clipped to this: their squares are finite
# Posterior standard deviations of eta_2 that the nodes cover.
NODE_RANGE = cython.declare(cython.double, 6.0)
N_NODES = cython.declare(cython.Py_ssize_t, 24)
NODES = cython.declare(cython.double[::1], np.polynomial.legendre.leggauss(24)[0])
WEIGHTS = cython.declare(cython.double[::1], np.polynomial.legendre.leggauss(24)[1])
_FINE_NODES, _FINE_WEIGHTS = np.polynomial.legendre.leggauss(96)


class Setup(NamedTuple):
    """Prior precision P_0 and h = P_0 mu_0 in centred coordinates, and the other settings.

    `pinned` is the known eta_2, or 0. `schur` is the prior precision of eta_2 alone.
    """

    p11: float
    p12: float
    p22: float
    h1: float
    h2: float
    schur: float
    floor: float
    pinned: float
    omega: float
    center: float
    scale: float
    threshold: float


class Posterior(NamedTuple):
    """eta_1 | eta_2 ~ N((h1 - p12 eta_2) / p11, 1 / p11), eta_2 ~ N(mean, 1 / precision)."""

    p11: float
    p12: float
    h1: float
    mean: float
    precision: float


class ScoreMatching(Segments):
    """Rows of generalized posteriors.

    Args:
        setup: prior, weight and learning rate.

    Attributes:
        sums: (capacity, 5) sums of m^2, m^2 x, m^2 x^2, (m^2)', (m^2)' x of each row.
        y: the present observation.
    """

    def __init__(self, setup):
        Segments.__init__(self, Shape(1, 1), 1 if setup.pinned else N_NODES)
        self.sums = np.zeros((0, 5))
        self.eta, self.share = np.zeros(N_NODES), np.zeros(N_NODES)
        self.term = np.zeros(N_NODES)
        self.configure(setup)

    def configure(self, setup):
        """Replace the settings; the rows are kept."""
        self.setup = setup
        self.p11, self.p12, self.p22 = setup.p11, setup.p12, setup.p22
        self.h1, self.h2, self.schur = setup.h1, setup.h2, setup.schur
        self.floor, self.pinned, self.omega = setup.floor, setup.pinned, setup.omega
        self.center, self.scale, self.threshold = setup.center, setup.scale, setup.threshold

    # ------------------------------------------------------------------ kernels

    def update(self, row, fresh):
        p11: cython.double
        p12: cython.double
        h1: cython.double
        mean: cython.double
        precision: cython.double
        score: cython.double
        p11, p12, h1, mean, precision = self.posterior(row)
        self.fill_nodes(mean, precision, NODES, WEIGHTS, self.eta, self.share)
        score = self.log_predictive(self.y, p11, p12, h1)
        self.weight = self.add(row, self.y)
        return score

    def predict(self, row, out, at):
        p11: cython.double
        p12: cython.double
        h1: cython.double
        mean: cython.double
        precision: cython.double
        p11, p12, h1, mean, precision = self.posterior(row)
        self.fill_nodes(mean, precision, NODES, WEIGHTS, self.eta, self.share)
        for j in range(self.n_components):
            eta: cython.double = self.eta[j]
            out.share[at + j] = self.share[j]
            out.location[at + j, 0] = (h1 / eta - p12) / p11 + self.center
            out.spread[at + j, 0, 0] = 1.0 / eta + 1.0 / (p11 * eta * eta)
            out.dof[at + j] = INF

    def add(self, row, y):
        """Add an observation to the sums of a row; return its weight m^2."""
        limit: cython.double = MAX_LENGTH * self.scale
        x: cython.double = y - self.center
        x = min(max(x, -limit), limit)
        u: cython.double = x / self.scale
        m: cython.double = 1.0 / hypot(1.0, u)
        # (m^2)'
        slope: cython.double = -2.0 / self.scale * (u * m) * m * m * m
        self.sums[row, 0] += m * m
        self.sums[row, 1] += m * (m * x)
        self.sums[row, 2] += (m * x) * (m * x)
        self.sums[row, 3] += slope
        self.sums[row, 4] += slope * x
        return m * m

    def posterior(self, row):
        """Return p11, p12, h1, mean and precision of the generalized posterior of a row."""
        rate: cython.double = 2.0 * self.omega
        p11: cython.double = self.p11 + rate * self.sums[row, 0]
        p12: cython.double = self.p12 - rate * self.sums[row, 1]
        h1: cython.double = self.h1 - rate * self.sums[row, 3]
        h2: cython.double = self.h2 + rate * (self.sums[row, 4] + self.sums[row, 0])
        precision: cython.double = self.p22 + rate * self.sums[row, 2] - p12 * p12 / p11
        # A Schur complement is at least that of the prior, except for rounding.
        if precision < self.schur:
            precision = self.schur
        return p11, p12, h1, (h2 - p12 * h1 / p11) / precision, precision

    def fill_nodes(self, mean, precision, nodes, weights, eta, share):
        """Write a quadrature of the truncated normal of eta_2.

        Args:
            nodes, weights: (n,) Gauss-Legendre rule on (-1, 1).
            eta: (n,) output, values of eta_2.
            share: (n,) output, their shares.
        """
        if self.pinned > 0.0:
            eta[0] = self.pinned
            share[0] = 1.0
            return
        root: cython.double = sqrt(precision)
        # The largest density among the nodes is this many standard deviations from the mean.
        nearest: cython.double = max((self.floor - mean) * root, 0.0)
        low: cython.double = sqrt(max(mean - NODE_RANGE / root, self.floor))
        high: cython.double = sqrt(mean + hypot(nearest, NODE_RANGE) / root)
        total: cython.double = 0.0
        for j in range(nodes.shape[0]):
            t: cython.double = low + 0.5 * (high - low) * (nodes[j] + 1.0)
            z: cython.double = (t * t - mean) * root
            eta[j] = t * t
            share[j] = weights[j] * t * exp(0.5 * (nearest - z) * (nearest + z))
            total += share[j]
        for j in range(nodes.shape[0]):
            share[j] /= total

    def log_predictive(self, y, p11, p12, h1):
        """Return the log of the mixture of the nodes at y, bounded beyond the threshold."""
        top: cython.double = -INF
        total: cython.double = 0.0
        for j in range(self.n_components):
            eta: cython.double = self.eta[j]
            location: cython.double = (h1 / eta - p12) / p11
            spread: cython.double = 1.0 / eta + 1.0 / (p11 * eta * eta)
            z: cython.double = fabs(y - self.center - location) / sqrt(spread)
            if z > MAX_LENGTH:
                z = MAX_LENGTH
            log_w2: cython.double = log_weight2(IMQ, z, self.threshold)
            self.term[j] = log_score(z, 0.5 * log(spread), log_w2, 1)
            if self.share[j] > 0.0 and self.term[j] > top:
                top = self.term[j]
        for j in range(self.n_components):
            if self.share[j] > 0.0:
                total += self.share[j] * exp(self.term[j] - top)
        return top + log(total)

    # ------------------------------------------------------------------ memory, description

    def set_observation(self, y, design):
        if y is not None:
            self.y = y[0]

    def resize(self, capacity):
        self.sums = np.zeros((capacity, 5))

    def write_prior(self, row):
        np.asarray(self.sums)[row] = 0.0

    def arrays(self):
        return [np.asarray(self.sums)]

    def learn(self, row, y):
        """Add an observation to a row; return its weight m^2."""
        return self.add(row, y)

    def quadrature(self, row):
        """Return the posterior of a row with a fine grid of eta_2 and its shares."""
        found = Posterior(*self.posterior(row))
        size = 1 if self.setup.pinned else len(_FINE_NODES)
        eta, share = np.empty(size), np.empty(size)
        self.fill_nodes(found.mean, found.precision, _FINE_NODES, _FINE_WEIGHTS, eta, share)
        return found, eta, share

    def coefficients(self, row):
        found, eta, share = self.quadrature(row)
        level = (found.h1 / eta - found.p12) / found.p11
        mean = np.dot(share, level)
        variance = np.dot(share, (level - mean) ** 2 + 1.0 / (found.p11 * eta**2))
        return np.array([mean + self.setup.center]), np.sqrt([variance])

    def are_possible(self, visits):
        # Each observation changes each sum by a bounded amount, and squares are not negative.
        scale = self.setup.scale
        most = np.outer(1.01 * visits, [1.0, scale, scale**2, 1.0 / scale, 1.0])
        sums = np.asarray(self.sums)[: len(visits)]
        return bool((np.abs(sums) <= most).all() and (sums[:, [0, 2]] >= 0.0).all())


def divergence(omega, x, setup):
    """Return the KL divergence of the generalized posterior to the Bayesian one.

    It is computed up to a constant in omega.

    Args:
        x: (n,) training values.
        setup: prior and weight.
    """
    rows = ScoreMatching(setup._replace(omega=omega))
    rows.resize(2)
    for value in x:
        rows.learn(0, float(value))
    found, eta, share = rows.quadrature(0)
    prior = rows.quadrature(1)[0]
    centred = np.clip(x, -MAX_TRAINING_VALUE, MAX_TRAINING_VALUE) - setup.center
    mean, variance = (found.h1 - found.p12 * eta) / found.p11, 1.0 / found.p11
    gap = mean - (prior.h1 - prior.p12 * eta) / prior.p11
    log_prior = -0.5 * prior.p11 * (gap**2 + variance)
    n, total, squares = x.size, centred.sum(), (centred**2).sum()
    log_likelihood = 0.5 * (n * np.log(eta) - eta * squares - n * (mean**2 + variance) / eta)
    log_ratio = 0.5 * math.log(found.p11) - log_prior - log_likelihood - mean * total
    if not setup.pinned:
        log_ratio += _log_truncated(eta, found, setup) - _log_truncated(eta, prior, setup)
    return float(np.dot(share, log_ratio))


def _log_truncated(eta, posterior, setup):
    """Return the log density of eta_2 without the constant log(2 pi) / 2."""
    root = math.sqrt(posterior.precision)
    above = log_normal_cdf((posterior.mean - setup.floor) * root)
    return math.log(root) - 0.5 * ((eta - posterior.mean) * root) ** 2 - above


def best_omega(x, setup):
    """Return the learning rate with the smallest `divergence`: coarse search, then a fine one.

    Args:
        x: (n,) training values.
        setup: prior and weight.
    """
    log_rates = math.log(setup.omega) + np.linspace(-9.0, 6.0, 31)

    def cost(log_rate):
        return divergence(math.exp(log_rate), x, setup)

    at = int(np.argmin([cost(log_rate) for log_rate in log_rates]))
    low, high = log_rates[max(at - 1, 0)], log_rates[min(at + 1, log_rates.size - 1)]
    return math.exp(golden_section(cost, float(low), float(high)))


def golden_section(cost, low, high):
    """Return the minimum of a function with one minimum in an interval, to 1e-6."""
    inner, outer = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_inner, at_outer = cost(inner), cost(outer)
    while high - low > 1e-6:
        if at_inner <= at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - GOLDEN * (high - low)
            at_inner = cost(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + GOLDEN * (high - low)
            at_outer = cost(outer)
    return 0.5 * (low + high)
