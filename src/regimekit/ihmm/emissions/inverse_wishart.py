"""Kernels of the matrix-normal inverse-Wishart posterior; d = 1 is the normal-inverse-gamma.

    y = Theta f + e,   e ~ N(0, Sigma),   Theta | Sigma ~ MN(M, Sigma, V),   Sigma ~ IW(n, Psi)
    nu = n - d + 1,   q = f' V f,   y ~ t_nu(M f, (1 + q) Psi / nu)

V is carried as a square root (`linear`) and Psi = factor factor' by rank-one updates of its
Cholesky factor: both stay positive definite however long the stream. `normal_inverse_gamma` says
what the weight does to the update and how rows are scored.

A partly missing y. Given Sigma, learning the seen coordinates moves M exactly as learning the
whole vector would, had the missing residuals taken their conditional mean. That is what is done,
Psi gains their conditional covariance, and because V and n are shared by all coordinates the
vector counts only for the seen share of an observation.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from regimekit._numba import kernel
from regimekit.ihmm.emissions.base import (
    Sample,
    View,
    apart,
    apart_anyhow,
    begin,
    close,
    draw_prior,
    learn,
    look,
)
from regimekit.ihmm.emissions.linear import (
    Steps,
    add_covariance,
    add_step,
    apply_steps,
    beyond_chance,
    beyond_chance_anyhow,
    bounded,
    dot,
    mahalanobis,
    move_by,
    pass_through,
    project,
    squares,
)
from regimekit.ihmm.weights import CONTAMINATION, LONGEST, Broad, Residual, Scoring, judge

_LOG_PI = math.log(math.pi)
_RIDGE = 1.0 + 1e-14  # a product of factors may lose definiteness to rounding


class WishartRows(NamedTuple):
    """mean: (cap, d, m), M. root: (cap, m, m), V. factor: (cap, d, d), Psi. dof: (cap,), nu."""

    mean: np.ndarray
    root: np.ndarray
    factor: np.ndarray
    dof: np.ndarray


class WishartWork(NamedTuple):
    """Candidates: steps of V and M; factor (G, K, d, d), dof (G, K) and q of f, now and before."""

    steps: Steps
    factor: np.ndarray
    dof: np.ndarray
    q: np.ndarray
    start_q: np.ndarray


class WishartFacts(NamedTuple):
    """kappa: (d,) consistency factor for 1 .. d seen coordinates."""

    kappa: np.ndarray


class Sight(NamedTuple):
    """A candidate's view of a sample.

    Attributes:
        lower: (s, s) and basis: (s, d) with factor[seen] = lower basis, basis orthonormal.
        white: (s,) lower^-1 times the seen residuals.
        residual: (d,) the residuals, missing ones at their conditional mean.
    """

    lower: np.ndarray
    basis: np.ndarray
    white: np.ndarray
    residual: np.ndarray


@begin.of(WishartRows)
@kernel
def _begin(rows: WishartRows, work: WishartWork, g: int, k: int, row: int) -> None:
    work.steps.taken[g, k] = 0
    work.factor[g, k] = rows.factor[row]
    work.dof[g, k] = rows.dof[row]


@look.of(WishartRows)
@kernel
def _look(
    rows: WishartRows,
    work: WishartWork,
    facts: WishartFacts,
    g: int,
    k: int,
    row: int,
    sample: Sample,
    out: View,
) -> None:
    """Student-t with location M f and spread (1 + q) Psi / nu."""
    steps, f = work.steps, sample.design[0]
    d = rows.mean.shape[1]
    raw, ahead, moved = steps.raw[g, k, 0], steps.ahead[g, k, 0], out.location[g, k]
    project(rows.root[row], f, raw)
    ahead[:] = raw
    for j in range(d):
        fitted = dot(f, rows.mean[row, j])
        moved[j] = fitted
        out.start_location[g, k, j] = fitted
    pass_through(steps, g, k, 0, ahead, moved)
    work.q[g, k] = squares(ahead)
    work.start_q[g, k] = squares(raw)
    out.dof[g, k] = work.dof[g, k]
    out.start_dof[g, k] = rows.dof[row]
    spread(work.factor[g, k], (1.0 + work.q[g, k]) / work.dof[g, k], out.spread[g, k])
    spread(rows.factor[row], (1.0 + work.start_q[g, k]) / rows.dof[row], out.start_spread[g, k])


@kernel
def spread(factor: np.ndarray, scale: float, out_spread: np.ndarray) -> None:
    """scale Psi."""
    d = factor.shape[0]
    for i in range(d):
        for j in range(i + 1):
            total = 0.0
            for b in range(j + 1):
                total += factor[i, b] * factor[j, b]
            out_spread[i, j] = scale * total * (_RIDGE if i == j and d > 1 else 1.0)
            out_spread[j, i] = out_spread[i, j]


@learn.of(WishartRows)
@kernel
def _learn(
    rows: WishartRows,
    work: WishartWork,
    facts: WishartFacts,
    g: int,
    k: int,
    row: int,
    sample: Sample,
    view: View,
    scoring: Scoring,
    broad: Broad,
    fresh: bool,
    belief: int,
) -> tuple[float, float]:
    d, n_seen = sample.y.size, sample.seen.size
    sight = Sight(np.zeros((n_seen, n_seen)), np.empty((n_seen, d)), np.empty(n_seen), np.empty(d))
    see(work.factor[g, k], sample, view.location[g, k], sight)
    if scoring.sequential:
        seen = residual_of(sight, work.q[g, k], work.dof[g, k], scoring)
    else:  # D4: score with the row as the batch began
        before = Sight(
            np.zeros((n_seen, n_seen)), np.empty((n_seen, d)), np.empty(n_seen), np.empty(d)
        )
        see(rows.factor[row], sample, view.start_location[g, k], before)
        seen = residual_of(before, work.start_q[g, k], rows.dof[row], scoring)
    score, weight, w2 = judge(scoring, broad, seen, fresh, belief)
    if w2 > 0.0:
        weighted = scoring.weigh_births or not fresh  # D3
        kappa = facts.kappa[n_seen - 1] if weighted else 1.0
        _absorb(work, g, k, w2, kappa, n_seen, sight)
    return score, weight


@kernel
def see(factor: np.ndarray, sample: Sample, location: np.ndarray, out: Sight) -> None:
    """The residuals of the seen coordinates, whitened by Psi."""
    orthogonalise(factor, sample.seen, out)
    n_seen = sample.seen.size
    for i in range(n_seen):
        at = sample.seen[i]
        short = bounded(sample.y[at] - location[at])
        for b in range(i):
            short -= out.lower[i, b] * out.white[b]
        short /= out.lower[i, i]
        out.white[i] = min(max(short, -LONGEST / n_seen), LONGEST / n_seen)


@kernel
def orthogonalise(factor: np.ndarray, seen: np.ndarray, out: Sight) -> None:
    """Gram-Schmidt of the seen rows of Psi's factor: lower lower' is the seen block of Psi."""
    d = factor.shape[0]
    for i in range(seen.size):
        out.basis[i] = factor[seen[i]]
        for b in range(i):
            along = np.dot(out.basis[i], out.basis[b])
            out.lower[i, b] = along
            for j in range(d):
                out.basis[i, j] -= along * out.basis[b, j]
        length = math.sqrt(np.dot(out.basis[i], out.basis[i]))
        out.lower[i, i] = length
        for j in range(d):
            out.basis[i, j] /= length


@kernel
def residual_of(sight: Sight, q: float, dof: float, scoring: Scoring) -> Residual:
    """What the row sees: the Student-t density, and lengths under the geometric scale."""
    dim = sight.white.size
    squared, log_lower = 0.0, 0.0
    for i in range(dim):
        squared += sight.white[i] * sight.white[i]
        log_lower += math.log(sight.lower[i, i])
    half = 0.5 * (dof + dim)
    plain = math.lgamma(half) - math.lgamma(0.5 * dof) - 0.5 * dim * (_LOG_PI + math.log1p(q))
    plain -= log_lower + half * math.log1p(squared / (1.0 + q))
    if scoring.kind == CONTAMINATION:
        return Residual(plain, 0.0, 0.0, 0.0, dim)
    log_noise = log_geometric(dof, dim)
    log_scale = log_lower + 0.5 * dim * (log_noise + math.log1p(q))
    noise_sds = min(math.sqrt(squared) * math.exp(-0.5 * log_noise), LONGEST)
    z = noise_sds / math.sqrt(1.0 + q)
    return Residual(plain, z, z if scoring.predictive else noise_sds, log_scale, dim)  # D2


@kernel
def log_geometric(dof: float, dim: int) -> float:
    """log g with g Psi the scale whose determinant has the posterior mean log: E log det Sigma."""
    total = 0.0
    for j in range(dim):
        total += digamma(0.5 * (dof + j))
    return -total / dim - math.log(2.0)


@kernel
def digamma(x: float) -> float:
    """Derivative of log Gamma for x > 0: upwards by recurrence, then the asymptotic series."""
    shift = 0.0
    while x < 8.0:
        shift -= 1.0 / x
        x += 1.0
    s = 1.0 / (x * x)
    tail = s * (1 / 12 - s * (1 / 120 - s * (1 / 252 - s * (1 / 240 - s * (1 / 132)))))
    return shift + math.log(x) - 0.5 / x - tail


@kernel
def _absorb(
    work: WishartWork, g: int, k: int, w2: float, kappa: float, n_seen: int, sight: Sight
) -> None:
    """Learn what was seen, with weight w^2."""
    factor = work.factor[g, k]
    d = factor.shape[0]
    impute(factor, sight)
    count = w2 * n_seen / d
    if n_seen < d:
        add_unexplained(factor, count / work.dof[g, k], sight)
    gain = add_step(work.steps, g, k, work.steps.ahead[g, k, 0], 1.0 / count)
    for j in range(d):
        move_by(work.steps, g, k, j, gain * sight.residual[j])
    scale = math.sqrt(count / (kappa * (1.0 + work.q[g, k])))
    for j in range(d):
        sight.residual[j] *= scale
    rank_one(factor, sight.residual)
    work.dof[g, k] += count


@kernel
def impute(factor: np.ndarray, sight: Sight) -> None:
    """residual = factor basis' white: as seen where seen, the conditional mean where missing."""
    d = factor.shape[0]
    for a in range(d):
        total = 0.0
        for j in range(a + 1):
            for i in range(sight.white.size):
                total += factor[a, j] * sight.basis[i, j] * sight.white[i]
        sight.residual[a] = total


@kernel
def add_unexplained(factor: np.ndarray, share: float, sight: Sight) -> None:
    """Psi += share * (covariance of the missing coordinates given the seen ones, under Psi)."""
    d = factor.shape[0]
    whole = factor.copy()
    rest, column = np.empty(d), np.empty(d)
    for j in range(d):
        for a in range(d):
            rest[a] = 1.0 if a == j else 0.0
            for i in range(sight.white.size):
                rest[a] -= sight.basis[i, a] * sight.basis[i, j]
        for a in range(d):
            column[a] = 0.0
            for b in range(a + 1):
                column[a] += math.sqrt(share) * whole[a, b] * rest[b]
        rank_one(factor, column)


@kernel
def rank_one(factor: np.ndarray, x: np.ndarray) -> None:
    """Lower factor of (factor factor' + x x') in place, by rotations; x is used up."""
    d = x.size
    for j in range(d):
        length = math.hypot(factor[j, j], x[j])
        cosine, sine = factor[j, j] / length, x[j] / length
        factor[j, j] = length
        for i in range(j + 1, d):
            below = factor[i, j]
            factor[i, j] = cosine * below + sine * x[i]
            x[i] = cosine * x[i] - sine * below


@close.of(WishartRows)
@kernel
def _close(
    rows: WishartRows, work: WishartWork, facts: WishartFacts, g: int, k: int, row: int, into: int
) -> None:
    rows.mean[into] = rows.mean[row]
    apply_steps(work.steps, g, k, rows.root[row], rows.mean[into], rows.root[into])
    rows.factor[into] = work.factor[g, k]
    rows.dof[into] = work.dof[g, k]


@draw_prior.of(WishartRows)
@kernel
def _draw_prior(
    rows: WishartRows, facts: WishartFacts, prior: int, row: int, rng: np.random.Generator
) -> None:
    """The mean ~ N(mu0, I), as with known noise."""
    rows.mean[row] = rows.mean[prior]
    rows.root[row] = rows.root[prior]
    rows.factor[row] = rows.factor[prior]
    rows.dof[row] = rows.dof[prior]
    for j in range(rows.mean.shape[1]):
        for a in range(rows.mean.shape[2]):
            rows.mean[row, j, a] += rng.standard_normal()


@apart.of(WishartRows)
@kernel
def _apart(rows: WishartRows, a: int, b: int) -> float:
    """Of the coefficients; rows whose noise differs by a factor are told apart by it."""
    farthest = 0.0
    for i in range(rows.mean.shape[1]):
        noise_a = squares(rows.factor[a, i]) / rows.dof[a]
        noise_b = squares(rows.factor[b, i]) / rows.dof[b]
        log_gap = 0.5 * abs(math.log(noise_a / noise_b))
        doubt = 0.5 / rows.dof[a] + 0.5 / rows.dof[b]
        farthest = max(farthest, log_gap * log_gap / doubt)
        for j in range(rows.mean.shape[2]):
            variance = noise_a * squares(rows.root[a, j]) + noise_b * squares(rows.root[b, j])
            gap = rows.mean[a, i, j] - rows.mean[b, i, j]
            farthest = max(farthest, gap * gap / variance)
    return beyond_chance(farthest, rows.mean.shape[1] * rows.mean.shape[2])


@apart_anyhow.of(WishartRows)
@kernel
def _apart_anyhow(rows: WishartRows, a: int, b: int) -> float:
    """Of the coefficients of each coordinate of y."""
    d, m = rows.mean.shape[1:]
    farthest = 0.0
    for i in range(d):
        cover = np.zeros((m, m))
        add_covariance(rows.root[a], squares(rows.factor[a, i]) / rows.dof[a], cover)
        add_covariance(rows.root[b], squares(rows.factor[b, i]) / rows.dof[b], cover)
        farthest = max(farthest, mahalanobis(cover, rows.mean[a, i] - rows.mean[b, i]))
    return beyond_chance_anyhow(farthest, d * m)
