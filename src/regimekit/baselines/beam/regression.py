"""Regression with Gaussian noise, one per regime, conjugate: what a beam sweep asks of an emission.

    y = F theta + e,   e ~ N(0, v),   theta ~ N(mu0, v Lambda^-1)
    v known, or v ~ InverseGamma(shape, scale)

Given a regime's observations, theta | v ~ N(mean, v P^-1) with P = Lambda + F'F and
P mean = Lambda mu0 + F'y; v | y ~ InverseGamma(shape + n / 2, scale + misfit / 2) with
misfit = |y - F mean|^2 + |mean - mu0|^2_Lambda, a sum of squares that nothing cancels in.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from regimekit._numba import kernel

LONGEST = 1e150  # a residual whose square is still a number
SMALLEST = 1e-290  # a variance or a pivot below this is taken to be this
ROUNDING = 1e-16  # what is left of a pivot below this share of it is rounding, not information
_LOG_2PI = math.log(2.0 * math.pi)


class Data(NamedTuple):
    """The stream: y (T,), NaN where not observed, and its design F (T, m)."""

    y: np.ndarray
    design: np.ndarray


class Prior(NamedTuple):
    """What is believed before any data.

    Attributes:
        mean: (m,) mu0.
        precision: (m, m) Lambda, in units of the noise: theta ~ N(mu0, v Lambda^-1).
        root: (m, m) with root root' = Lambda^-1.
        known: whether the noise variance is given.
        noise: v where it is given.
        shape: v ~ InverseGamma(shape, scale) where it is not.
        scale: see `shape`.
        concentration: (2, 2) shape and rate of the Gamma priors of alpha and gamma.
    """

    mean: np.ndarray
    precision: np.ndarray
    root: np.ndarray
    known: bool
    noise: float
    shape: float
    scale: float
    concentration: np.ndarray


class Emissions(NamedTuple):
    """Emissions of K regimes given the path.

    Attributes:
        seen: (K,) observations of each regime.
        mean: (K, m) posterior mean of the coefficients.
        root: (K, m, m) lower root of their posterior precision, in units of the noise.
        misfit: (K,) squared residuals plus the squared distance from the prior mean.
    """

    seen: np.ndarray
    mean: np.ndarray
    root: np.ndarray
    misfit: np.ndarray


@kernel
def draw_noise(prior: Prior, seen: float, misfit: float, rng: np.random.Generator) -> float:
    """v given `seen` observations; its prior when there are none."""
    if prior.known:
        return prior.noise
    shape, scale = prior.shape + 0.5 * seen, prior.scale + 0.5 * misfit
    return max(scale / max(rng.standard_gamma(shape), SMALLEST), SMALLEST)


@kernel
def draw_prior_coefficients(
    prior: Prior, noise: float, rng: np.random.Generator, out: np.ndarray
) -> None:
    """theta ~ N(mu0, v Lambda^-1)."""
    out[:] = prior.mean
    for j in range(out.size):
        z = math.sqrt(noise) * rng.standard_normal()
        for i in range(j, out.size):
            out[i] += prior.root[i, j] * z


@kernel
def residual(data: Data, t: int, coefficients: np.ndarray) -> float:
    """y_t - F_t theta, kept where its square is finite."""
    fit = 0.0
    for i in range(coefficients.size):
        fit += data.design[t, i] * coefficients[i]
    return float(min(max(data.y[t] - fit, -LONGEST), LONGEST))


@kernel
def learn(path: np.ndarray, n: int, data: Data, prior: Prior) -> Emissions:
    """Posterior of the n regimes' emissions given who belongs to whom."""
    seen, precision, moment = gather(path, n, data, prior)
    mean, misfit = np.empty((n, prior.mean.size)), np.empty(n)
    for k in range(n):
        cholesky(precision[k])
        mean[k] = moment[k]
        solve_lower(precision[k], mean[k])
        solve_upper(precision[k], mean[k])
        misfit[k] = shrinkage(mean[k], prior)
    for t in range(path.size):
        if not math.isnan(data.y[t]):
            misfit[path[t]] += residual(data, t, mean[path[t]]) ** 2
    return Emissions(seen, mean, precision, misfit)


@kernel
def gather(
    path: np.ndarray, n: int, data: Data, prior: Prior
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per regime: observations, Lambda + F'F (lower triangle), Lambda mu0 + F'y."""
    size = prior.mean.size
    seen, precision, moment = np.zeros(n), np.empty((n, size, size)), np.empty((n, size))
    for k in range(n):
        precision[k] = prior.precision
        for i in range(size):
            moment[k, i] = (prior.precision[i] * prior.mean).sum()
    for t in range(path.size):
        k, y = path[t], data.y[t]
        if math.isnan(y):
            continue
        seen[k] += 1
        for i in range(size):
            f = data.design[t, i]
            moment[k, i] += f * y
            for j in range(i + 1):
                precision[k, i, j] += f * data.design[t, j]
    return seen, precision, moment


@kernel
def draw_coefficients(
    posterior: Emissions, k: int, noise: float, rng: np.random.Generator, out: np.ndarray
) -> None:
    """theta ~ N(mean, v P^-1)."""
    for i in range(out.size):
        out[i] = math.sqrt(noise) * rng.standard_normal()
    solve_upper(posterior.root[k], out)
    for i in range(out.size):
        out[i] += posterior.mean[k, i]


@kernel
def log_evidence(posterior: Emissions, prior: Prior) -> float:
    """log p(y | path) with coefficients, and the noise where unknown, integrated out."""
    total = 0.0
    for k in range(posterior.seen.size):
        n, misfit = posterior.seen[k], posterior.misfit[k]
        total -= 0.5 * n * _LOG_2PI
        for i in range(prior.mean.size):  # |Lambda| / |Lambda + F'F|, square-rooted
            total -= math.log(prior.root[i, i]) + math.log(posterior.root[k, i, i])
        if prior.known:
            total -= 0.5 * (n * math.log(prior.noise) + misfit / prior.noise)
        else:
            shape = prior.shape + 0.5 * n
            total += math.lgamma(shape) - math.lgamma(prior.shape)
            total += prior.shape * math.log(prior.scale)
            total -= shape * math.log(prior.scale + 0.5 * misfit)
    return total


@kernel
def shrinkage(mean: np.ndarray, prior: Prior) -> float:
    """(mean - mu0)' Lambda (mean - mu0)."""
    total = 0.0
    for j in range(mean.size):
        for i in range(mean.size):
            left = min(max(mean[i] - prior.mean[i], -LONGEST), LONGEST)
            right = min(max(mean[j] - prior.mean[j], -LONGEST), LONGEST)
            total += left * prior.precision[i, j] * right
    return max(total, 0.0)


@kernel
def cholesky(matrix: np.ndarray) -> None:
    """Replace the lower triangle of a positive definite matrix by its root L, L L' = matrix."""
    size = matrix.shape[0]
    for j in range(size):
        for i in range(j, size):
            total = matrix[i, j]
            floor = max(ROUNDING * total, SMALLEST)
            for l in range(j):
                total -= matrix[i, l] * matrix[j, l]
            if i == j:
                matrix[j, j] = math.sqrt(max(total, floor))
            else:
                matrix[i, j] = total / matrix[j, j]


@kernel
def solve_lower(root: np.ndarray, vector: np.ndarray) -> None:
    """Replace `vector` by L^-1 vector."""
    for i in range(vector.size):
        total = vector[i]
        for j in range(i):
            total -= root[i, j] * vector[j]
        vector[i] = total / root[i, i]


@kernel
def solve_upper(root: np.ndarray, vector: np.ndarray) -> None:
    """Replace `vector` by L'^-1 vector."""
    for i in range(vector.size - 1, -1, -1):
        total = vector[i]
        for j in range(i + 1, vector.size):
            total -= root[j, i] * vector[j]
        vector[i] = total / root[i, i]
