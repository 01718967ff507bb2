"""Conjugate regressions of the regimes, the emission of the beam sampler.

    y_t | s_t = k ~ N(F_t theta_k, v_k),          theta_k ~ N(mu0, v_k Lambda^-1)

The noise variance v is known or v ~ InverseGamma(shape, scale). Given the observations of a regime,
theta | v ~ N(mean, v P^-1) with P = Lambda + F'F and P mean = Lambda mu0 + F'y;
v | y ~ InverseGamma(shape + n / 2, scale + misfit / 2) with
misfit = |y - F mean|^2 + |mean - mu0|^2_Lambda, a sum of squares without cancellation.
"""

from __future__ import annotations

import math

import cython
import numpy as np
from cython.cimports.libc.math import isnan, lgamma, log, sqrt

MAX_RESIDUAL = cython.declare(cython.double, 1e150)  # units of y; its square is finite
MIN_VARIANCE = cython.declare(cython.double, 1e-290)  # of noise, pivots and concentrations
# The remainder of a pivot below this fraction of it is rounding error.
ROUNDING = cython.declare(cython.double, 1e-16)
LOG_2PI = cython.declare(cython.double, math.log(2.0 * math.pi))


class Regression:
    """Conjugate regressions of the regimes on the whole stream.

    Arguments of the methods:
        path: (T,) regime of each observation.
        k: regime.
        noise: v.
        coefficients: (K, m) theta of all regimes.
        random: `RandomSource`.
        out: (m,) output.

    Args:
        data: object with y (T,), NaN if missing, and design (T, m).
        prior: object with mean (m,), precision (m, m) Lambda, root (m, m) with
            root root' = Lambda^-1, known, noise, shape and scale.

    Attributes:
        seen: (K,) number of observations of each regime, after `learn`.
        mean: (K, m) posterior mean of the coefficients.
        root: (K, m, m) lower Cholesky factor of their posterior precision, in units of the noise.
        misfit: (K,) squared residuals plus the squared distance from the prior mean.
    """

    def __init__(self, data, prior):
        self.y = data.y
        self.design = np.ascontiguousarray(data.design)
        self.prior_mean = np.ascontiguousarray(prior.mean)
        self.prior_precision = np.ascontiguousarray(prior.precision)
        self.prior_root = np.ascontiguousarray(prior.root)
        self.known = prior.known
        self.noise, self.shape, self.scale = prior.noise, prior.shape, prior.scale

    def learn(self, path, n):
        """Compute the posterior of `n` regimes, given the path."""
        size: cython.Py_ssize_t = self.prior_mean.shape[0]
        self.seen, self.misfit = np.zeros(n), np.empty(n)
        self.mean = np.empty((n, size))
        self.root = np.empty((n, size, size))
        self.add_observations(path)

    def add_observations(self, path):
        """Compute sums, Cholesky factors, means and misfits of all regimes."""
        size: cython.Py_ssize_t = self.prior_mean.shape[0]
        k: cython.Py_ssize_t
        for k in range(self.seen.shape[0]):
            for i in range(size):
                total: cython.double = 0.0
                for j in range(size):
                    self.root[k, i, j] = self.prior_precision[i, j]
                    total += self.prior_precision[i, j] * self.prior_mean[j]
                self.mean[k, i] = total
        for t in range(path.shape[0]):
            if isnan(self.y[t]):
                continue
            k = path[t]
            self.seen[k] += 1.0
            for i in range(size):
                f: cython.double = self.design[t, i]
                self.mean[k, i] += f * self.y[t]
                for j in range(i + 1):
                    self.root[k, i, j] += f * self.design[t, j]
        for k in range(self.seen.shape[0]):
            self.factorize(k)
            self.solve(k)
            self.misfit[k] = self.shrinkage(k)
        for t in range(path.shape[0]):
            if not isnan(self.y[t]):
                error: cython.double = self.residual(t, self.mean, path[t])
                self.misfit[path[t]] += error * error

    def factorize(self, k):
        """Replace the lower triangle of the precision of regime k by its Cholesky factor."""
        size: cython.Py_ssize_t = self.prior_mean.shape[0]
        for j in range(size):
            for i in range(j, size):
                total: cython.double = self.root[k, i, j]
                floor: cython.double = ROUNDING * total
                if floor < MIN_VARIANCE:
                    floor = MIN_VARIANCE
                for l in range(j):
                    total -= self.root[k, i, l] * self.root[k, j, l]
                if i == j:
                    self.root[k, j, j] = sqrt(total if total > floor else floor)
                else:
                    self.root[k, i, j] = total / self.root[k, j, j]

    def solve(self, k):
        """Replace P mean of regime k by its mean."""
        for i in range(self.prior_mean.shape[0]):
            total: cython.double = self.mean[k, i]
            for j in range(i):
                total -= self.root[k, i, j] * self.mean[k, j]
            self.mean[k, i] = total / self.root[k, i, i]
        self.solve_upper(k, self.mean[k])

    def solve_upper(self, k, vector):
        """Replace `vector` by L'^-1 vector with the factor L of regime k."""
        size: cython.Py_ssize_t = self.prior_mean.shape[0]
        for step in range(size):
            i: cython.Py_ssize_t = size - 1 - step
            total: cython.double = vector[i]
            for j in range(i + 1, size):
                total -= self.root[k, j, i] * vector[j]
            vector[i] = total / self.root[k, i, i]

    def shrinkage(self, k):
        """Return (mean - mu0)' Lambda (mean - mu0) of regime k."""
        size: cython.Py_ssize_t = self.prior_mean.shape[0]
        total: cython.double = 0.0
        for j in range(size):
            for i in range(size):
                left: cython.double = self.mean[k, i] - self.prior_mean[i]
                right: cython.double = self.mean[k, j] - self.prior_mean[j]
                left = min(max(left, -MAX_RESIDUAL), MAX_RESIDUAL)
                right = min(max(right, -MAX_RESIDUAL), MAX_RESIDUAL)
                total += left * self.prior_precision[i, j] * right
        return total if total > 0.0 else 0.0

    def residual(self, t, coefficients, k):
        """Return y_t - F_t theta_k, clipped so that its square is finite."""
        fit: cython.double = 0.0
        for i in range(self.prior_mean.shape[0]):
            fit += self.design[t, i] * coefficients[k, i]
        error: cython.double = self.y[t] - fit
        return min(max(error, -MAX_RESIDUAL), MAX_RESIDUAL)

    def draw_noise(self, seen, misfit, random):
        """Draw v given `seen` observations; from its prior if there are none."""
        if self.known:
            return self.noise
        draw: cython.double = random.gamma(self.shape + 0.5 * seen, 1.0)
        if draw < MIN_VARIANCE:
            draw = MIN_VARIANCE
        variance: cython.double = (self.scale + 0.5 * misfit) / draw
        return variance if variance > MIN_VARIANCE else MIN_VARIANCE

    def draw_prior_coefficients(self, noise, random, out):
        """Draw theta ~ N(mu0, v Lambda^-1)."""
        size: cython.Py_ssize_t = self.prior_mean.shape[0]
        for i in range(size):
            out[i] = self.prior_mean[i]
        for j in range(size):
            z: cython.double = sqrt(noise) * random.normal()
            for i in range(j, size):
                out[i] += self.prior_root[i, j] * z

    def draw_coefficients(self, k, noise, random, out):
        """Draw theta ~ N(mean, v P^-1) of regime k."""
        size: cython.Py_ssize_t = self.prior_mean.shape[0]
        for i in range(size):
            out[i] = sqrt(noise) * random.normal()
        self.solve_upper(k, out)
        for i in range(size):
            out[i] += self.mean[k, i]

    def log_evidence(self):
        """Return log p(y | path); coefficients and unknown noise are integrated out."""
        total: cython.double = 0.0
        for k in range(self.seen.shape[0]):
            n: cython.double = self.seen[k]
            total -= 0.5 * n * LOG_2PI
            # Square root of |Lambda| / |Lambda + F'F|.
            for i in range(self.prior_mean.shape[0]):
                total -= log(self.prior_root[i, i]) + log(self.root[k, i, i])
            if self.known:
                total -= 0.5 * (n * log(self.noise) + self.misfit[k] / self.noise)
            else:
                shape: cython.double = self.shape + 0.5 * n
                total += lgamma(shape) - lgamma(self.shape)
                total += self.shape * log(self.scale)
                total -= shape * log(self.scale + 0.5 * self.misfit[k])
        return total
