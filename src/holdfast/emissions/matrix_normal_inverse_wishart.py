"""Kernels of the matrix-normal inverse-Wishart posterior; d = 1 is the normal-inverse-gamma.

    y = Theta f + e,   e ~ N(0, Sigma),   Theta | Sigma ~ MN(M, Sigma, V),   Sigma ~ IW(n, Psi)
    nu = n - d + 1,   q = f' V f,   y ~ t_nu(M f, (1 + q) Psi / nu)

V = root root' is updated by Potter's formula and Psi = factor factor' by rank-one updates of its
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

from holdfast._numba import kernel
from holdfast.emissions.base import Batch
from holdfast.emissions.linear_gaussian import bounded, projection
from holdfast.weights import (
    CONTAMINATION, LONGEST, NONE, Caution, contaminated, log_score, log_weight2, update_weight2,
)  # fmt: skip

_LOG_PI = math.log(math.pi)
_RIDGE = 1.0 + 1e-14  # a product of factors may lose definiteness to rounding


class WishartRows(NamedTuple):
    """mean: (cap, d, m), M. root: (cap, m, m), V. factor: (cap, d, d), Psi. dof: (cap,), nu."""

    mean: np.ndarray
    root: np.ndarray
    factor: np.ndarray
    dof: np.ndarray


class Sample(NamedTuple):
    """One observation: y (d,), its features (m,), the coordinates seen, the consistency factor."""

    y: np.ndarray
    features: np.ndarray
    seen: np.ndarray
    kappa: float


class Scratch(NamedTuple):
    """Work space of one row's view of a sample.

    Attributes:
        v: (m,) root' f, so that q = v'v.
        lower: (s, s) and basis: (s, d) with factor[seen] = lower basis, basis orthonormal.
        white: (s,) lower^-1 times the seen residuals.
        residual: (d,) the residuals, missing ones at their conditional mean.
    """

    v: np.ndarray
    lower: np.ndarray
    basis: np.ndarray
    white: np.ndarray
    residual: np.ndarray


@kernel
def scratch(dim: int, n_seen: int, width: int) -> Scratch:
    """Fresh work space."""
    return Scratch(
        np.empty(width), np.zeros((n_seen, n_seen)), np.empty((n_seen, dim)), np.empty(n_seen),
        np.empty(dim),
    )  # fmt: skip


@kernel
def advance(
    running: WishartRows, pool: WishartRows, batch: Batch, sample: Sample, caution: Caution
) -> None:
    """One observation for every candidate."""
    work = scratch(sample.y.size, sample.seen.size, sample.features.size)
    for k in range(batch.live.size):
        if caution.sequential:
            q = look(running, k, sample, work)
            w2 = judge(running, k, q, batch, k, work, caution)
        else:  # D4: score with the row as the batch began
            row = batch.live[k]
            q = look(pool, row, sample, work)
            w2 = judge(pool, row, q, batch, k, work, caution)
            q = look(running, k, sample, work)
        if w2 > 0.0:
            weighted = caution.weigh_births or not batch.fresh[k]  # D3
            kappa = sample.kappa if weighted else 1.0
            learn(running, k, q, w2, kappa, sample.seen, work)


@kernel
def look(rows: WishartRows, row: int, sample: Sample, out: Scratch) -> float:
    """A row's residual of the sample, whitened by Psi; returns q = f' V f."""
    orthogonalise(rows.factor[row], sample.seen, out)
    n_seen = sample.seen.size
    for i in range(n_seen):
        j = sample.seen[i]
        fitted = projection(rows.mean[row, j], rows.root[row], sample.features, out.v)
        short = bounded(sample.y[j] - fitted)
        for b in range(i):
            short -= out.lower[i, b] * out.white[b]
        short /= out.lower[i, i]
        out.white[i] = min(max(short, -LONGEST / n_seen), LONGEST / n_seen)
    q: float = np.dot(out.v, out.v)
    return q


@kernel
def orthogonalise(factor: np.ndarray, seen: np.ndarray, out: Scratch) -> None:
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
def judge(
    rows: WishartRows, row: int, q: float, batch: Batch, k: int, seen: Scratch, caution: Caution
) -> float:
    """Score candidate k by what `row` saw of the sample and return the w^2 of its update."""
    dim, dof = seen.white.size, rows.dof[row]
    log_noise = log_geometric(dof, dim)
    squared, log_scale = 0.0, 0.5 * dim * (log_noise + math.log1p(q))
    for i in range(dim):
        squared += seen.white[i] * seen.white[i]
        log_scale += math.log(seen.lower[i, i])
    noise_sds = min(math.sqrt(squared) * math.exp(-0.5 * log_noise), LONGEST)
    z = noise_sds / math.sqrt(1.0 + q)
    far = z if caution.predictive else noise_sds  # D2
    if caution.kind == CONTAMINATION:
        plain = log_student(z, log_scale, dof, dim)
        log_p, r = contaminated(plain, caution.rate, caution.log_broad)
        batch.weight[k] = r
        batch.score[k] += log_p
        return r
    w2 = update_weight2(caution.kind, far, caution.threshold)
    batch.weight[k] = w2
    batch.score[k] += score(z, far, log_scale, dof, dim, caution)
    if batch.fresh[k] and not caution.weigh_births:  # D3
        return 1.0
    return w2


@kernel
def score(z: float, far: float, log_scale: float, dof: float, dim: int, caution: Caution) -> float:
    """What the observation says for the row: Student-t, or with tails alike for every row (D1)."""
    if caution.kind == NONE or not caution.weigh_regimes:
        return log_student(z, log_scale, dof, dim)
    log_w2 = log_weight2(caution.kind, far, caution.threshold)
    if caution.unit_free:
        return log_score(z, log_scale, log_w2, dim, True)
    return math.exp(log_w2) * log_student(z, log_scale, dof, dim)


@kernel
def log_student(z: float, log_scale: float, dof: float, dim: int) -> float:
    """Log density of the predictive t, for z and log_scale under the geometric scale."""
    log_noise = log_geometric(dof, dim)
    half = 0.5 * (dof + dim)
    constant = math.lgamma(half) - math.lgamma(0.5 * dof) + 0.5 * dim * (log_noise - _LOG_PI)
    return constant - log_scale - half * math.log1p(z * z * math.exp(log_noise))


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
def learn(
    rows: WishartRows, row: int, q: float, w2: float, kappa: float, seen: np.ndarray, work: Scratch
) -> None:
    """Learn what `look` saw, with weight w^2, in place."""
    d = rows.mean.shape[1]
    factor = rows.factor[row]
    impute(factor, work)
    count = w2 * seen.size / d
    if seen.size < d:
        add_unexplained(factor, count / rows.dof[row], work)
    potter(rows.mean[row], rows.root[row], work, 1.0 / count)
    scale = math.sqrt(count / (kappa * (1.0 + q)))
    for j in range(d):
        work.residual[j] *= scale
    rank_one(factor, work.residual)
    rows.dof[row] += count


@kernel
def impute(factor: np.ndarray, work: Scratch) -> None:
    """residual = factor basis' white: as seen where seen, the conditional mean where missing."""
    d = factor.shape[0]
    for a in range(d):
        total = 0.0
        for j in range(a + 1):
            for i in range(work.white.size):
                total += factor[a, j] * work.basis[i, j] * work.white[i]
        work.residual[a] = total


@kernel
def add_unexplained(factor: np.ndarray, share: float, work: Scratch) -> None:
    """Psi += share * (covariance of the missing coordinates given the seen ones, under Psi)."""
    d = factor.shape[0]
    rest = np.eye(d) - work.basis.T @ work.basis
    spare = factor @ rest
    column = np.empty(d)
    for j in range(d):
        for a in range(d):
            column[a] = math.sqrt(share) * spare[a, j]
        rank_one(factor, column)


@kernel
def potter(mean: np.ndarray, root: np.ndarray, work: Scratch, noise: float) -> None:
    """Learn the residuals of every coordinate with noise `noise` (in units of Sigma) in place."""
    d, m = mean.shape
    gain = 1.0 / (np.dot(work.v, work.v) + noise)
    shrink = gain / (1.0 + math.sqrt(gain * noise))
    for a in range(m):
        along = 0.0
        for b in range(m):
            along += root[a, b] * work.v[b]
        for j in range(d):
            mean[j, a] += along * gain * work.residual[j]
        for b in range(m):
            root[a, b] -= along * shrink * work.v[b]


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


@kernel
def predictive(
    rows: WishartRows, which: np.ndarray, features: np.ndarray,
    out_location: np.ndarray, out_spread: np.ndarray,
) -> None:  # fmt: skip
    """Location and spread (1 + q) Psi / nu of the Student-t of the rows `which`."""
    d = rows.mean.shape[1]
    v = np.empty(features.size)
    for k in range(which.size):
        row = which[k]
        for j in range(d):
            out_location[k, j] = projection(rows.mean[row, j], rows.root[row], features, v)
        scale = (1.0 + np.dot(v, v)) / rows.dof[row]
        for a in range(d):
            for b in range(d):
                cross = scale * np.dot(rows.factor[row, a], rows.factor[row, b])
                out_spread[k, a, b] = cross * _RIDGE if a == b and d > 1 else cross
