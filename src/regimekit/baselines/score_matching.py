"""Rows of Gaussian segments learnt by diffusion score matching (Altamirano et al. 2023).

A row holds a *generalised* posterior, pi(eta) ~ pi_0(eta) exp(-omega sum_i loss(x_i, eta)). With
natural parameters

    log p(x | eta) = eta_1 x - eta_2 x^2 / 2 + const,   eta_1 = mu / sigma^2,  eta_2 = 1 / sigma^2

the score is linear, d/dx log p = g'eta with g = (1, -x), and so the diffusion score matching loss
with weight m is quadratic:

    loss = (m g'eta)^2 + 2 d/dx (m^2 g'eta) = eta' L eta + 2 eta' v
    L = m^2 g g',   v = (m^2)' g + m^2 (0, -1)',   m^2 = 1 / (1 + (x - center)^2 / scale^2)

Under a normal prior N(mu_0, P_0^-1) cut off at eta_2 > floor the posterior is of the same kind,

    P = P_0 + 2 omega sum L,     P mu = P_0 mu_0 - 2 omega sum v

and a row is the five sums of m^2, m^2 x, m^2 x^2, (m^2)', (m^2)' x. Each is bounded per observation
(x is counted from `center`), which bounds what an outlier does to the parameters.

Prediction. Given eta_2, eta_1 is normal with precision P_11, hence

    x | eta_2 ~ N((h_1 - P_12 eta_2) / (P_11 eta_2), 1 / eta_2 + 1 / (P_11 eta_2^2)),   h = P mu

With *known* variance eta_2 is pinned at 1 / noise and that is the closed form. With *unknown*
variance eta_2 is a truncated normal, integrated by 24 Gauss-Legendre nodes in sqrt(eta_2): the
forecast is the finite mixture over those nodes. Its log density was within 1e-6 of fine quadrature
for nine in ten of a range of posteriors and points up to 6 sd out, within 1e-3 for all of them.
`floor` = 1 / max_variance keeps the moments finite: without it the predictive has no mean.

Learning rate. omega minimises KL(pi || Bayes) on a training part, where Bayes is the ordinary
posterior under the same prior: everything but eta_2 is integrated in closed form.

Evidence. The published method scores run lengths by the plain predictive (`threshold=inf`). That
alone does not bound what an outlier says about the *run length*: the prior row is the widest, so a
far enough point always favours a new segment. With a finite `threshold` c each node scores by
log N(x; yhat, S (1 + z^2 / c^2)) instead, which all rows share in the limit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from regimekit._numba import kernel
from regimekit.baselines.run_length import Mixture, Segments
from regimekit.ihmm.emissions.base import Array, Rows, Shape
from regimekit.ihmm.weights import IMQ, LONGEST, log_score, log_weight2

_FARTHEST = 1e100  # training values beyond this are taken for this: their squares are finite
_REACH = 6.0  # posterior standard deviations of eta_2 that the nodes cover
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(24)
_FINE_NODES, _FINE_WEIGHTS = np.polynomial.legendre.leggauss(96)


class Setup(NamedTuple):
    """Prior precision P_0 and P_0 mu_0 in centred coordinates, and the rest of the settings.

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
    """eta_1 | eta_2 ~ N((h1 - p12 eta_2) / p11, 1 / p11), eta_2 ~ N(mean, 1 / precision) cut."""

    p11: float
    p12: float
    h1: float
    mean: float
    precision: float


class Sums(NamedTuple):
    """sums: (cap, 5) of m^2, m^2 x, m^2 x^2, (m^2)', (m^2)' x per row."""

    sums: np.ndarray


@kernel
def learn(sums: np.ndarray, y: float, setup: Setup) -> float:
    """Add one observation to a row's sums; its weight m^2."""
    x = min(max(y - setup.center, -LONGEST * setup.scale), LONGEST * setup.scale)
    u = x / setup.scale
    m = 1.0 / math.hypot(1.0, u)
    slope = -2.0 / setup.scale * (u * m) * m * m * m  # (m^2)'
    sums[0] += m * m
    sums[1] += m * (m * x)
    sums[2] += (m * x) * (m * x)
    sums[3] += slope
    sums[4] += slope * x
    return m * m


@kernel
def posterior(sums: np.ndarray, setup: Setup) -> Posterior:
    """The generalised posterior of a row."""
    rate = 2.0 * setup.omega
    p11 = setup.p11 + rate * sums[0]
    p12 = setup.p12 - rate * sums[1]
    h1 = setup.h1 - rate * sums[3]
    h2 = setup.h2 + rate * (sums[4] + sums[0])
    # a Schur complement never falls below the prior's; rounding must not say otherwise
    precision = max(setup.p22 + rate * sums[2] - p12 * p12 / p11, setup.schur)
    return Posterior(p11, p12, h1, (h2 - p12 * h1 / p11) / precision, precision)


@kernel
def spread_nodes(
    belief: Posterior,
    setup: Setup,
    nodes: np.ndarray,
    weights: np.ndarray,
    out_eta: np.ndarray,
    out_share: np.ndarray,
) -> None:
    """Values of eta_2 and their shares: a quadrature of its truncated normal."""
    if setup.pinned > 0.0:
        out_eta[0], out_share[0] = setup.pinned, 1.0
        return
    root = math.sqrt(belief.precision)
    cut = (setup.floor - belief.mean) * root
    low = math.sqrt(max(belief.mean - _REACH / root, setup.floor))
    high = math.sqrt(belief.mean + math.hypot(max(cut, 0.0), _REACH) / root)
    nearest = max(cut, 0.0)  # the largest density among the nodes is at this many sd
    total = 0.0
    for j in range(nodes.size):
        t = low + 0.5 * (high - low) * (nodes[j] + 1.0)
        z = (t * t - belief.mean) * root
        out_eta[j] = t * t
        out_share[j] = weights[j] * t * math.exp(0.5 * (nearest - z) * (nearest + z))
        total += out_share[j]
    for j in range(nodes.size):
        out_share[j] /= total


@kernel
def component(belief: Posterior, eta: float) -> tuple[float, float]:
    """Mean and variance of x given eta_2, in centred coordinates."""
    location = (belief.h1 / eta - belief.p12) / belief.p11
    return location, 1.0 / eta + 1.0 / (belief.p11 * eta * eta)


@kernel
def log_predictive(
    y: float, belief: Posterior, eta: np.ndarray, share: np.ndarray, setup: Setup
) -> float:
    """Log of the nodes' mixture at y, with the evidence bounded beyond the threshold."""
    terms = np.empty(eta.size)
    top = -np.inf
    for j in range(eta.size):
        location, spread = component(belief, eta[j])
        z = min(abs(y - setup.center - location) / math.sqrt(spread), LONGEST)
        log_w2 = log_weight2(IMQ, z, setup.threshold)
        terms[j] = log_score(z, 0.5 * math.log(spread), log_w2, 1)
        if share[j] > 0.0:
            top = max(top, terms[j])
    total = 0.0
    for j in range(eta.size):
        if share[j] > 0.0:
            total += share[j] * math.exp(terms[j] - top)
    return top + math.log(total)


@kernel
def _advance(
    rows: Sums,
    y: float,
    setup: Setup,
    nodes: np.ndarray,
    weights: np.ndarray,
    out_score: np.ndarray,
    out_weight: np.ndarray,
) -> None:
    """Score y under every row, then learn it."""
    n_nodes = 1 if setup.pinned > 0.0 else nodes.size
    eta, share = np.empty(n_nodes), np.empty(n_nodes)
    for k in range(out_score.size):
        belief = posterior(rows.sums[k], setup)
        spread_nodes(belief, setup, nodes, weights, eta, share)
        out_score[k] = log_predictive(y, belief, eta, share, setup)
        out_weight[k] = learn(rows.sums[k], y, setup)


@kernel
def _predictive(
    rows: Sums,
    setup: Setup,
    nodes: np.ndarray,
    weights: np.ndarray,
    out_share: np.ndarray,
    out_location: np.ndarray,
    out_spread: np.ndarray,
) -> None:
    """The nodes' mixture of the first out_share.shape[0] rows."""
    n, n_nodes = out_share.shape
    eta = np.empty(n_nodes)
    for k in range(n):
        belief = posterior(rows.sums[k], setup)
        spread_nodes(belief, setup, nodes, weights, eta, out_share[k])
        for j in range(n_nodes):
            location, out_spread[k, j] = component(belief, eta[j])
            out_location[k, j] = location + setup.center


class ScoreMatching(Segments):
    """Rows of generalised posteriors; `setup` may be replaced when omega is fitted."""

    shape = Shape(1, 1)

    def __init__(self, setup: Setup) -> None:
        self.setup = setup

    def blank(self, capacity: int) -> Sums:
        return Sums(np.zeros((capacity, 5)))

    def write_prior(self, rows: Rows, row: int) -> None:
        rows[0][row] = 0.0

    def advance(self, rows: Rows, y: Array, design: Array, score: Array, weight: Array) -> None:
        _advance(rows, y[0], self.setup, _NODES, _WEIGHTS, score, weight)

    def predictive(self, rows: Rows, n: int, design: Array) -> Mixture:
        shape = (n, 1 if self.setup.pinned else _NODES.size)
        share, location, spread = np.empty(shape), np.empty(shape), np.empty(shape)
        _predictive(rows, self.setup, _NODES, _WEIGHTS, share, location, spread)
        return Mixture(share, location[..., None], spread[..., None, None], np.full(shape, np.inf))

    def coefficients(self, rows: Rows, row: int) -> tuple[Array, Array]:
        belief, eta, share = quadrature(rows[0][row], self.setup)
        level = (belief.h1 / eta - belief.p12) / belief.p11
        mean = share @ level
        variance = share @ ((level - mean) ** 2 + 1.0 / (belief.p11 * eta**2))
        return np.array([mean + self.setup.center]), np.sqrt([variance])

    def possible(self, rows: Rows, visits: NDArray[np.int64]) -> bool:
        """Each observation adds at most so much to each sum, and less than nothing to no square."""
        scale = self.setup.scale
        most = np.outer(1.01 * visits, [1.0, scale, scale**2, 1.0 / scale, 1.0])
        sums = rows[0][: visits.size]
        return bool((np.abs(sums) <= most).all() and (sums[:, [0, 2]] >= 0.0).all())


def quadrature(sums: Array, setup: Setup) -> tuple[Posterior, Array, Array]:
    """A row's posterior with a fine grid of eta_2 and its shares."""
    belief = posterior(sums, setup)
    size = 1 if setup.pinned else _FINE_NODES.size
    eta, share = np.empty(size), np.empty(size)
    spread_nodes(belief, setup, _FINE_NODES, _FINE_WEIGHTS, eta, share)
    return belief, eta, share


def divergence(omega: float, x: Array, setup: Setup) -> float:
    """KL of the generalised posterior to the Bayesian one, up to a constant in omega.

    Args:
        omega: learning rate.
        x: training values.
        setup: prior and weight.
    """
    sums, centred = np.zeros(5), np.clip(x, -_FARTHEST, _FARTHEST) - setup.center
    for value in x:
        learn(sums, value, setup)
    belief, eta, share = quadrature(sums, setup._replace(omega=omega))
    prior = posterior(np.zeros(5), setup)
    mean, variance = (belief.h1 - belief.p12 * eta) / belief.p11, 1.0 / belief.p11
    gap = mean - (prior.h1 - prior.p12 * eta) / prior.p11
    log_prior = -0.5 * prior.p11 * (gap**2 + variance)
    n, total, squares = x.size, centred.sum(), (centred**2).sum()
    log_likelihood = 0.5 * (n * np.log(eta) - eta * squares - n * (mean**2 + variance) / eta)
    log_ratio = 0.5 * math.log(belief.p11) - log_prior - log_likelihood - mean * total
    if not setup.pinned:
        log_ratio += _log_truncated(eta, belief, setup) - _log_truncated(eta, prior, setup)
    return float(share @ log_ratio)


def _log_truncated(eta: Array, belief: Posterior, setup: Setup) -> Array:
    """Log density of eta_2 under a belief, without the constant log 2 pi / 2."""
    root = math.sqrt(belief.precision)
    above = special.log_ndtr((belief.mean - setup.floor) * root)
    return np.asarray(math.log(root) - 0.5 * ((eta - belief.mean) * root) ** 2 - above)


def best_omega(x: Array, setup: Setup) -> float:
    """The learning rate with the least `divergence`: a coarse search, then a fine one."""
    log_rates = math.log(setup.omega) + np.linspace(-9.0, 6.0, 31)

    def cost(log_rate: float) -> float:
        return divergence(math.exp(log_rate), x, setup)

    at = int(np.argmin([cost(log_rate) for log_rate in log_rates]))
    bounds = log_rates[max(at - 1, 0)], log_rates[min(at + 1, log_rates.size - 1)]
    found = optimize.minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return math.exp(float(found.x))
