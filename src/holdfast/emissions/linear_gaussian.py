"""Linear-Gaussian emission with known noise, learnt by the weighted filter (WoLF).

    y = F theta + e,   e ~ N(0, R),   theta ~ N(mu0, Sigma0)
    S = F Sigma F' + R,   S~ = F Sigma F' + R / w^2,   K = Sigma F' S~^-1       Eq. (wolf_update)
    mu += K (y - F mu),   Sigma -= K S~ K'                                      Eq. (kf-update)

Sigma is carried as a square root, Sigma = A A', and updated by Potter's formula one scalar at a
time: positive definite by construction, however long the stream and however small R. For d > 1
the observation is first whitened with the Cholesky factor of R; the weight is one number for
the whole vector, measured before any coordinate is learnt.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast._numba import kernel
from holdfast.emissions.base import (
    Array,
    Batch,
    Components,
    Emission,
    EmissionSpec,
    Rows,
    Shape,
)
from holdfast.errors import HoldfastError, numbers
from holdfast.weights import (
    CONTAMINATION, LONGEST, Caution, contaminated, log_score, log_weight2, update_weight2,
)  # fmt: skip

FARTHEST = 1e100  # residuals beyond this are taken for this


class GaussianRows(NamedTuple):
    """mean: (cap, m). root: (cap, m, m), Sigma = root root'."""

    mean: np.ndarray
    root: np.ndarray


@dataclass(frozen=True)
class GaussianSpec(EmissionSpec):
    """Settings of the linear-Gaussian emission: R, mu0, Sigma0."""

    noise: Any = 0.25
    prior_mean: Any = 0.0
    prior_var: Any = 1.0

    def build(self, shape: Shape, caution: Caution) -> LinearGaussian:
        return LinearGaussian(shape, self, caution)

    def dim_hint(self) -> int | None:
        noise = numbers("noise", self.noise)
        if noise.ndim == 0:
            return None
        if noise.ndim != 2:
            raise HoldfastError(f"noise must be a number or a (d, d) matrix, got {self.noise!r}.")
        return int(noise.shape[0])

    def check(self) -> None:
        read_covariance("noise", self.noise, self.dim_hint() or 1)
        for name, read in (("prior_mean", read_vector), ("prior_var", read_covariance)):
            value = getattr(self, name)
            given = numbers(name, value)
            read(name, given, given.shape[0] if given.ndim else 1)


class LinearGaussian(Emission):
    """Emission y ~ N(F theta, R) with theta ~ N(mu0, Sigma0) per regime.

    Args:
        shape: sizes of y and of the features.
        spec: R, mu0 and Sigma0.
        caution: weight and deviations.
    """

    def __init__(self, shape: Shape, spec: GaussianSpec, caution: Caution) -> None:
        self.shape, self.caution = shape, caution
        self.dim, self.size = shape.dim, shape.coefficients
        self.noise = read_covariance("noise", spec.noise, self.dim)
        self.noise_root = np.linalg.cholesky(self.noise)
        self.prior_mean = read_vector("prior_mean", spec.prior_mean, self.size)
        self.prior_root = np.linalg.cholesky(
            read_covariance("prior_var", spec.prior_var, self.size)
        )

    def blank(self, capacity: int) -> GaussianRows:
        return GaussianRows(
            np.zeros((capacity, self.size)), np.zeros((capacity, self.size, self.size))
        )

    def write_prior(self, rows: Rows, row: int) -> None:
        mean, root = rows
        mean[row] = self.prior_mean
        root[row] = self.prior_root

    def draw_prior(self, rows: Rows, row: int, rng: np.random.Generator) -> None:
        self.write_prior(rows, row)
        rows[0][row] += rng.standard_normal(self.size)  # mu_k0 ~ N(mu0, I_m), whatever Sigma0

    def design(self, features: Array) -> Array:
        if features.ndim == 2:
            return features
        return features[None] if self.dim == 1 else np.asarray(np.kron(np.eye(self.dim), features))

    def advance(self, running: Rows, pool: Rows, batch: Batch, y: Array, design: Array) -> None:
        if self.dim == 1:
            _advance_scalar(running, pool, batch, y[0], design[0], self.noise[0, 0], self.caution)
            return
        seen = ~np.isnan(y)
        root = self.noise_root
        if not seen.all():
            root = np.linalg.cholesky(self.noise[np.ix_(seen, seen)])
        observed = np.clip(y[seen], -LONGEST, LONGEST)  # room for the division by a small root
        white = np.linalg.solve(root, np.column_stack([observed, design[seen]]))
        log_scale = float(np.log(np.diag(root)).sum())
        _advance_vector(
            running, pool, batch, white[:, 0].copy(), white[:, 1:].copy(), log_scale, self.caution
        )

    def predictive(self, rows: Rows, which: NDArray[np.int64], design: Array) -> Components:
        mean, root = rows
        n = which.size
        location, spread = np.empty((n, self.dim)), np.empty((n, self.dim, self.dim))
        _predictive(mean, root, which, design, self.noise, location, spread)
        return Components(location, spread, np.full(n, np.inf))

    def noise_covariance(self) -> Array:
        return self.noise

    def coefficients(self, rows: Rows, row: int) -> tuple[Array, Array]:
        mean, root = rows
        return mean[row].copy(), np.sqrt((root[row] ** 2).sum(axis=1))


@kernel
def projection(mean: np.ndarray, root: np.ndarray, f: np.ndarray, out_v: np.ndarray) -> float:
    """v = root' f, so that f' Sigma f = v'v; returns f' mean."""
    m = f.size
    out_v[:] = 0.0
    fitted = 0.0
    for a in range(m):
        if f[a] != 0.0:
            fitted += f[a] * mean[a]
            for b in range(m):
                out_v[b] += f[a] * root[a, b]
    return fitted


@kernel
def potter(
    mean: np.ndarray, root: np.ndarray, v: np.ndarray, residual: float, noise: float
) -> None:
    """Learn one scalar with noise variance `noise` in place; v = root' f of that scalar."""
    m = mean.size
    squared = 0.0
    for b in range(m):
        squared += v[b] * v[b]
    gain = 1.0 / (squared + noise)
    shrink = gain / (1.0 + math.sqrt(gain * noise))
    for a in range(m):
        along = 0.0
        for b in range(m):
            along += root[a, b] * v[b]
        mean[a] += along * gain * residual
        step = along * shrink
        for b in range(m):
            root[a, b] -= step * v[b]


@kernel
def bounded(residual: float) -> float:
    """A residual whose square still fits a float, and whose length stays below LONGEST.

    Were lengths cut off too, regimes with a smaller S would be cut off sooner, and an outlier
    beyond all measure would tell regimes apart.
    """
    return min(max(residual, -FARTHEST), FARTHEST)


@kernel
def _advance_scalar(
    running: GaussianRows, pool: GaussianRows, batch: Batch,
    y: float, f: np.ndarray, noise: float, caution: Caution,
) -> None:  # fmt: skip
    """One scalar observation for every candidate."""
    v = np.empty(f.size)
    for k in range(batch.live.size):
        residual = bounded(y - projection(running.mean[k], running.root[k], f, v))
        scored, spread = residual, np.dot(v, v) + noise
        if not caution.sequential:  # D4: score with the row as the batch began
            row = batch.live[k]
            at_start = np.empty(f.size)
            scored = bounded(y - projection(pool.mean[row], pool.root[row], f, at_start))
            spread = np.dot(at_start, at_start) + noise
        z = min(abs(scored) / math.sqrt(spread), LONGEST)
        far = z if caution.predictive else min(abs(scored) / math.sqrt(noise), LONGEST)  # D2
        w2 = judge(batch, k, z, far, 0.5 * math.log(spread), 1, caution)
        if w2 > 0.0:
            potter(running.mean[k], running.root[k], v, residual, noise / w2)


@kernel
def judge(
    batch: Batch, k: int, z: float, far: float, log_scale: float, dim: int, caution: Caution
) -> float:
    """Score candidate k and return the w^2 of its update.

    z is the residual's length under S, `far` the length that the weight looks at (D2).
    """
    if caution.kind == CONTAMINATION:
        plain = log_score(z, log_scale, 0.0, dim, True)
        log_p, r = contaminated(plain, caution.rate, caution.log_broad)
        batch.weight[k] = r
        batch.score[k] += log_p
        return r
    w2 = update_weight2(caution.kind, far, caution.threshold)
    batch.weight[k] = w2
    log_w2 = 0.0
    if caution.weigh_regimes:
        log_w2 = log_weight2(caution.kind, far, caution.threshold)
    batch.score[k] += log_score(z, log_scale, log_w2, dim, caution.unit_free)
    if batch.fresh[k] and not caution.weigh_births:  # D3
        return 1.0
    return w2


@kernel
def _advance_vector(
    running: GaussianRows, pool: GaussianRows, batch: Batch,
    y: np.ndarray, design: np.ndarray, log_scale: float, caution: Caution,
) -> None:  # fmt: skip
    """One whitened vector (unit noise, log_scale = log det R / 2) for every candidate."""
    d = y.size
    v = np.empty(design.shape[1])
    white = np.empty(d)
    for k in range(batch.live.size):
        if caution.sequential:
            near, log_det = whiten(running.mean[k], running.root[k], y, design, white)
        else:
            row = batch.live[k]
            near, log_det = whiten(pool.mean[row], pool.root[row], y, design, white)
        far = 0.0
        for j in range(d):
            far += white[j] * white[j]
        z = near if caution.predictive else min(math.sqrt(far), LONGEST)
        w2 = judge(batch, k, near, z, log_det + log_scale, d, caution)
        if w2 > 0.0:
            for j in range(d):
                fitted = projection(running.mean[k], running.root[k], design[j], v)
                potter(running.mean[k], running.root[k], v, bounded(y[j] - fitted), 1.0 / w2)


@kernel
def whiten(
    mean: np.ndarray, root: np.ndarray, y: np.ndarray, design: np.ndarray, out_residual: np.ndarray
) -> tuple[float, float]:
    """Residual of a whitened observation, its length under S and log det S / 2.

    S = P P' + I with P = F root. Forming P P' would drown the I where the noise is small, so
    its factor comes from the QR decomposition of (P, I)'.
    """
    d, m = design.shape
    stacked = np.zeros((m + d, d))
    v = np.empty(m)
    for j in range(d):
        fitted = projection(mean, root, design[j], v)
        out_residual[j] = min(max(y[j] - fitted, -LONGEST / d), LONGEST / d)
        stacked[:m, j] = v
        stacked[m + j, j] = 1.0
    factor = np.linalg.qr(stacked)[1].T
    squared, log_det = 0.0, 0.0
    solved = np.empty(d)
    for j in range(d):
        solved[j] = out_residual[j]
        for b in range(j):
            solved[j] -= factor[j, b] * solved[b]
        solved[j] /= factor[j, j]
        log_det += math.log(abs(factor[j, j]))
        squared += solved[j] * solved[j]
    return min(math.sqrt(squared), LONGEST), log_det


@kernel
def _predictive(
    mean: np.ndarray, root: np.ndarray, which: np.ndarray, design: np.ndarray,
    noise: np.ndarray, out_location: np.ndarray, out_spread: np.ndarray,
) -> None:  # fmt: skip
    """N(F mu, F Sigma F' + R) of the rows `which`."""
    d, m = design.shape
    projected = np.empty((d, m))
    for k in range(which.size):
        for j in range(d):
            row = which[k]
            out_location[k, j] = projection(mean[row], root[row], design[j], projected[j])
        for a in range(d):
            for b in range(d):
                out_spread[k, a, b] = noise[a, b] + np.dot(projected[a], projected[b])


def read_vector(argument: str, value: Any, size: int) -> Array:
    """A number or a vector as a vector of `size` finite values."""
    vector = numbers(argument, value)
    if vector.ndim > 1 or vector.size not in (1, size):
        raise HoldfastError(
            f"{argument} must be a number or a vector of {size}, got shape {vector.shape}."
        )
    if not np.isfinite(vector).all():
        raise HoldfastError(f"{argument} must be finite, got {value!r}.")
    return np.broadcast_to(vector, (size,)).copy()


def read_covariance(argument: str, value: Any, size: int) -> Array:
    """A variance, a vector of variances or a matrix as a positive definite matrix."""
    given = numbers(argument, value)
    if given.ndim < 2:
        if given.size not in (1, size):
            raise HoldfastError(
                f"{argument} must be a number, a vector of {size} or a ({size}, {size}) matrix, "
                f"got shape {given.shape}."
            )
        given = np.diag(np.broadcast_to(given.reshape(-1), (size,)))
    if given.shape != (size, size):
        raise HoldfastError(f"{argument} must be a ({size}, {size}) matrix, got {given.shape}.")
    symmetric = np.allclose(given, given.T, rtol=1e-10, atol=0)
    if not np.isfinite(given).all() or not symmetric or np.linalg.eigvalsh(given).min() <= 0:
        raise HoldfastError(
            f"{argument} must be positive"
            f"{'' if size == 1 else ' definite and symmetric'}, got {value!r}."
        )
    return given
