"""Linear-Gaussian emission with known noise, learnt by the weighted filter (WoLF).

    y = F theta + e,   e ~ N(0, R),   theta ~ N(mu0, Sigma0)
    S = F Sigma F' + R,   S~ = F Sigma F' + R / w^2,   K = Sigma F' S~^-1       Eq. (wolf_update)
    mu += K (y - F mu),   Sigma -= K S~ K'                                      Eq. (kf-update)

Sigma is carried as a square root and learnt one scalar at a time (`linear`). For d > 1 the
observation is first whitened with the Cholesky factor of R; the weight is one number for the
whole vector, measured before any coordinate is learnt. Under contamination w^2 is r, the
probability that y is no outlier: R / r collapses the two-component posterior to one Gaussian.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import bare, kernel
from regimekit.core.exceptions import RegimekitError, numbers
from regimekit.core.loops import copy, copy_matrix
from regimekit.ihmm.emissions.base import (
    Array,
    EmissionSpec,
    Rows,
    Sample,
    Shape,
    View,
    apart,
    apart_anyhow,
    begin,
    close,
    draw_prior,
    learn,
    look,
)
from regimekit.ihmm.emissions.conjugate import Conjugate, Natural
from regimekit.ihmm.emissions.coordinates import in_turn, trial, whiten
from regimekit.ihmm.emissions.linear import (
    Steps,
    add_covariance,
    add_step,
    apply_steps,
    beyond_chance,
    beyond_chance_anyhow,
    blank_steps,
    bounded,
    dot,
    mahalanobis,
    move_by,
    pass_through,
    project,
    squares,
)
from regimekit.ihmm.emissions.matrices import check_roots, read_covariance, read_vector
from regimekit.ihmm.weights import (
    LONGEST,
    Broad,
    Residual,
    Scoring,
    factorise,
    judge,
    log_normal,
)


class GaussianRows(NamedTuple):
    """mean: (cap, 1, m). root: (cap, m, m), Sigma = root root'."""

    mean: np.ndarray
    root: np.ndarray


class GaussianWork(NamedTuple):
    """Candidates: their steps."""

    steps: Steps


class GaussianFacts(NamedTuple):
    """noise: (d, d), R."""

    noise: np.ndarray


@dataclass(frozen=True)
class GaussianSpec(EmissionSpec):
    """Settings of the linear-Gaussian emission: R, mu0, Sigma0."""

    noise: Any = 0.25
    prior_mean: Any = 0.0
    prior_var: Any = 1.0

    def build(self, shape: Shape, scoring: Scoring) -> LinearGaussian:
        return LinearGaussian(shape, self, scoring)

    def dim_hint(self) -> int | None:
        noise = numbers("noise", self.noise)
        if noise.ndim == 0:
            return None
        if noise.ndim != 2:
            raise RegimekitError(f"noise must be a number or a (d, d) matrix, got {self.noise!r}.")
        return int(noise.shape[0])

    def check(self) -> None:
        read_covariance("noise", self.noise, self.dim_hint() or 1)
        for name, read in (("prior_mean", read_vector), ("prior_var", read_covariance)):
            value = getattr(self, name)
            given = numbers(name, value)
            read(name, given, given.shape[0] if given.ndim else 1)


class LinearGaussian(Conjugate):
    """Emission y ~ N(F theta, R) with theta ~ N(mu0, Sigma0) per regime.

    Args:
        shape: sizes of y and of the features.
        spec: R, mu0 and Sigma0.
        scoring: weight and deviations.
    """

    def __init__(self, shape: Shape, spec: GaussianSpec, scoring: Scoring) -> None:
        self.shape, self.scoring = shape, scoring
        self.dim, self.size = shape.dim, shape.coefficients
        self.noise = read_covariance("noise", spec.noise, self.dim)
        self.noise_root = np.linalg.cholesky(self.noise)
        self.prior_mean = read_vector("prior_mean", spec.prior_mean, self.size)
        self.prior_var = read_covariance("prior_var", spec.prior_var, self.size)
        root = np.linalg.cholesky(self.prior_var)
        self.prior_root: Array = np.asarray(root, np.float64)
        self.facts = GaussianFacts(self.noise)

    def blank(self, capacity: int) -> GaussianRows:
        return GaussianRows(
            np.zeros((capacity, 1, self.size)), np.zeros((capacity, self.size, self.size))
        )

    def work(self, islands: int, candidates: int, longest: int) -> GaussianWork:
        sizes = (longest * self.dim, 1, self.dim, self.size)
        return GaussianWork(blank_steps(islands, candidates, *sizes))

    def write_prior(self, rows: Rows, row: int) -> None:
        mean, root = rows
        mean[row, 0] = self.prior_mean
        root[row] = self.prior_root

    def design(self, features: Array) -> Array:
        if features.ndim == 2:
            return features
        return features[None] if self.dim == 1 else np.asarray(np.kron(np.eye(self.dim), features))

    def designs(self, features: Array) -> Array:
        if features.ndim == 3:
            return features
        if self.dim == 1:
            return features[:, None]
        unit = np.eye(self.dim)
        return np.asarray(np.einsum("ij,tm->tijm", unit, features).reshape(-1, self.dim, self.size))

    def design_shape(self) -> tuple[int, int]:
        return (self.dim, self.size)

    def most_steps(self, longest: int) -> int:
        return longest * self.dim

    def check_rows(self, rows: Rows, live: NDArray[np.int64]) -> None:
        check_roots(rows.root[live])

    def noise_covariance(self) -> Array:
        return self.noise

    def coefficients(self, rows: Rows, row: int) -> tuple[Array, Array]:
        mean, root = rows
        return mean[row, 0].copy(), np.sqrt((root[row] ** 2).sum(axis=1))

    def natural(self, rows: Rows, row: int) -> tuple[Array, Array]:
        """Precision, and precision times mean."""
        inverse = np.linalg.inv(rows.root[row])
        precision = inverse.T @ inverse
        return precision, precision @ rows.mean[row, 0]

    def log_partition(self, *natural: Any) -> float:
        """log of the integral of exp(-x' P x / 2 + h' x), up to the power of 2 pi."""
        precision, shift = natural
        factor = np.linalg.cholesky(precision)
        white = np.linalg.solve(factor, shift)
        return float(0.5 * white @ white - np.log(np.diag(factor)).sum())

    def write_natural(self, rows: Rows, row: int, natural: Natural) -> None:
        precision, shift = natural
        covariance = np.linalg.inv(precision)
        rows.mean[row, 0] = covariance @ shift
        rows.root[row] = np.linalg.cholesky((covariance + covariance.T) / 2)


@begin.of(GaussianRows)
@bare
def _begin(rows: GaussianRows, work: GaussianWork, g: int, k: int, row: int) -> None:
    work.steps.taken[g, k] = 0


@look.of(GaussianRows)
@bare
def _look(
    rows: GaussianRows,
    work: GaussianWork,
    facts: GaussianFacts,
    g: int,
    k: int,
    row: int,
    sample: Sample,
    out: View,
) -> None:
    """N(F mu, F Sigma F' + R)."""
    steps = work.steps
    d = sample.design.shape[0]
    for j in range(d):
        f, ahead = sample.design[j], steps.ahead[g, k, j]
        project(rows.root[row], f, steps.raw[g, k, j])
        copy(steps.raw[g, k, j], ahead)
        fitted = dot(f, rows.mean[row, 0])
        out.location[g, k, j] = out.start_location[g, k, j] = fitted
        pass_through(steps, g, k, 0, ahead, out.location[g, k, j : j + 1])
    spread(steps.ahead[g, k], facts.noise, out.spread[g, k])
    spread(steps.raw[g, k], facts.noise, out.start_spread[g, k])


@bare
def spread(projected: np.ndarray, noise: np.ndarray, out_spread: np.ndarray) -> None:
    """P P' + R."""
    for i in range(projected.shape[0]):
        for j in range(i + 1):
            out_spread[i, j] = noise[i, j] + dot(projected[i], projected[j])
            out_spread[j, i] = out_spread[i, j]


@learn.of(GaussianRows)
@bare
def _learn(
    rows: GaussianRows,
    work: GaussianWork,
    facts: GaussianFacts,
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
    if sample.y.size == 1:
        return _learn_scalar(
            work.steps, facts, g, k, sample.y[0], view, scoring, broad, fresh, belief
        )
    return _learn_vector(work.steps, facts, g, k, sample, view, scoring, broad, fresh, belief)


@bare
def _learn_scalar(
    steps: Steps,
    facts: GaussianFacts,
    g: int,
    k: int,
    y: float,
    view: View,
    scoring: Scoring,
    broad: Broad,
    fresh: bool,
    belief: int,
) -> tuple[float, float]:
    noise = facts.noise[0, 0]
    residual = bounded(y - view.location[g, k, 0])
    scored, variance = residual, view.spread[g, k, 0, 0]
    if not scoring.sequential:  # D4: score with the row as the batch began
        scored = bounded(y - view.start_location[g, k, 0])
        variance = view.start_spread[g, k, 0, 0]
    z = min(abs(scored) / math.sqrt(variance), LONGEST)
    far = z if scoring.predictive else min(abs(scored) / math.sqrt(noise), LONGEST)  # D2
    log_scale = 0.5 * math.log(variance)
    seen = Residual(log_normal(z, log_scale, 1), z, far, log_scale, 1)
    score, weight, w2 = judge(scoring, broad, seen, fresh, belief)
    if w2 > 0.0:
        gain = add_step(steps, g, k, steps.ahead[g, k, 0], noise / w2)
        move_by(steps, g, k, 0, gain * residual)
    return score, weight


@kernel
def _learn_vector(
    steps: Steps,
    facts: GaussianFacts,
    g: int,
    k: int,
    sample: Sample,
    view: View,
    scoring: Scoring,
    broad: Broad,
    fresh: bool,
    belief: int,
) -> tuple[float, float]:
    """Whiten the seen coordinates, weigh them as one, learn them one by one."""
    n = sample.seen.size
    log_noise = factorise(facts.noise, sample.seen, sample.lower)
    residual, lines = np.empty(n), np.empty((n, steps.u.shape[3]))
    if scoring.sequential:
        whiten(sample, view.location[g, k], steps.ahead[g, k], residual, lines)
    else:
        whiten(sample, view.start_location[g, k], steps.raw[g, k], residual, lines)
    first = steps.taken[g, k]
    z, log_scale = trial(steps, g, k, residual, lines)
    steps.taken[g, k] = first
    far = z if scoring.predictive else min(math.sqrt(squares(residual)), LONGEST)  # D2
    log_scale += log_noise
    seen = Residual(log_normal(z, log_scale, n), z, far, log_scale, n)
    score, weight, w2 = judge(scoring, broad, seen, fresh, belief)
    if w2 > 0.0:
        if not scoring.sequential:
            whiten(sample, view.location[g, k], steps.ahead[g, k], residual, lines)
        in_turn(steps, g, k, residual, lines, 1.0 / w2)
    return score, weight


@close.of(GaussianRows)
@bare
def _close(
    rows: GaussianRows,
    work: GaussianWork,
    facts: GaussianFacts,
    g: int,
    k: int,
    row: int,
    into: int,
) -> None:
    copy_matrix(rows.mean[row], rows.mean[into])
    apply_steps(work.steps, g, k, rows.root[row], rows.mean[into], rows.root[into])


@draw_prior.of(GaussianRows)
@bare
def _draw_prior(
    rows: GaussianRows, facts: GaussianFacts, prior: int, row: int, rng: np.random.Generator
) -> None:
    """mu_k0 ~ N(mu0, I_m), whatever Sigma0."""
    copy_matrix(rows.mean[prior], rows.mean[row])
    copy_matrix(rows.root[prior], rows.root[row])
    for a in range(rows.mean.shape[2]):
        rows.mean[row, 0, a] += rng.standard_normal()


@apart.of(GaussianRows)
@bare
def _apart(rows: GaussianRows, a: int, b: int) -> float:
    farthest = 0.0
    for j in range(rows.mean.shape[2]):
        variance = squares(rows.root[a, j]) + squares(rows.root[b, j])
        gap = rows.mean[a, 0, j] - rows.mean[b, 0, j]
        farthest = max(farthest, gap * gap / variance)
    return beyond_chance(farthest, rows.mean.shape[2])


@apart_anyhow.of(GaussianRows)
@kernel
def _apart_anyhow(rows: GaussianRows, a: int, b: int) -> float:
    m = rows.mean.shape[2]
    cover, gap = np.zeros((m, m)), rows.mean[a, 0] - rows.mean[b, 0]
    add_covariance(rows.root[a], 1.0, cover)
    add_covariance(rows.root[b], 1.0, cover)
    return beyond_chance_anyhow(mahalanobis(cover, gap), m)
