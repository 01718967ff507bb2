"""Linear-Gaussian emission with known noise covariance, learnt by the weighted filter (WoLF).

    y = F theta + e,   e ~ N(0, R),   theta ~ N(mu0, Sigma0)
    S = F Sigma F' + R,   S~ = F Sigma F' + R / w^2,   K = Sigma F' S~^-1
    mu += K (y - F mu),   Sigma -= K S~ K'

Sigma is stored as a square root and learnt one scalar at a time (`linear`). For d > 1 the
observation is first whitened by the Cholesky factor of R. The weight is one number for the whole
vector, computed before any coordinate is learnt. Under contamination w^2 is r, the probability
that y is not an outlier: R / r collapses the two-component posterior to one Gaussian.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import cython
import numpy as np
from cython.cimports.libc.math import fabs, log, sqrt

from regimekit.ihmm.emissions.base import EmissionSettings
from regimekit.ihmm.emissions.matrices import check_prior, read_covariance, read_dim, read_vector

if not cython.compiled:
    from regimekit.ihmm.emissions.linear import LinearEmission, bounded, dot
    from regimekit.ihmm.weights import MAX_LENGTH, factorize, log_normal


@dataclass(frozen=True)
class GaussianSettings(EmissionSettings):
    """Settings of the linear-Gaussian emission: R, mu0, Sigma0."""

    noise: Any = field(
        default=0.25,
        metadata={
            "doc": "R, the variance of one observation around its regime: a number or a (d, d) "
            "matrix; by default 1 if the units are estimated, else 0.25."
        },
    )
    prior_mean: Any = field(
        default=0.0, metadata={"doc": "mu0 of the coefficients: a number or a vector."}
    )
    prior_var: Any = field(
        default=1.0,
        metadata={
            "doc": "Sigma0 of the coefficients: a number, a vector or a matrix; by default 100 "
            "if the units are estimated, else 1."
        },
    )

    def build(self, shape, scoring, longest):
        return LinearGaussian(shape, self, scoring, longest)

    def dim_hint(self):
        return read_dim("noise", self.noise)

    def check(self):
        read_covariance("noise", self.noise, self.dim_hint() or 1)
        check_prior(self)


class LinearGaussian(LinearEmission):
    """Emission y ~ N(F theta, R) with theta ~ N(mu0, Sigma0) in every regime.

    Args:
        shape: sizes of y and of the features.
        settings: R, mu0 and Sigma0.
        scoring: weight and score of an observation.
        longest: largest number of observations of a batch.

    Arguments of the methods:
        place: place of the candidate.
    """

    def __init__(self, shape, settings, scoring, longest):
        d, m = shape.dim, shape.coefficients
        mean = read_vector("prior_mean", settings.prior_mean, m)[None]
        prior_var = read_covariance("prior_var", settings.prior_var, m)
        LinearEmission.__init__(self, shape, scoring, d, mean, prior_var, longest * d)
        noise = read_covariance("noise", settings.noise, d)
        self.noise = np.ascontiguousarray(noise, np.float64)
        self.limit_features(np.linalg.eigvalsh(noise).min())
        self.residual, self.lines = np.zeros(d), np.zeros((d, m))
        self.scratch, self.moved = np.zeros(m), np.zeros(1)

    # ------------------------------------------------------------------ kernels

    def predict(self, place, row):
        # N(F mu, F Sigma F' + R)
        if self.write_location(place, row):
            self.write_spread(place)

    def write_spread(self, place):
        """Write F Sigma F' + R of a candidate and, if D4 or D7 is off, of its row."""
        with_start: cython.bint = self.need_start or not self.scoring.sequential
        for i in range(self.dim):
            for j in range(i + 1):
                covariance: cython.double = self.noise[i, j] + self.steps.product(place, i, j)
                self.predictive.spread[place, i, j] = covariance
                self.predictive.spread[place, j, i] = covariance
                if with_start:
                    covariance = dot(self.steps.raw[place, i], self.steps.raw[place, j])
                    covariance += self.noise[i, j]
                    self.predictive.start_spread[place, i, j] = covariance
                    self.predictive.start_spread[place, j, i] = covariance

    def update(self, place, row, fresh):
        if self.dim == 1:
            return self.update_scalar(place, fresh)
        return self.update_vector(place, fresh)

    def update_scalar(self, place, fresh):
        """Score and learn a scalar observation, Eqs. (3) and (11); return the score.

        Args:
            fresh: whether its row has no observations yet (D3).
        """
        noise: cython.double = self.noise[0, 0]
        y: cython.double = self.observation.y[0]
        residual: cython.double = bounded(y - self.predictive.location[place, 0])
        scored: cython.double = residual
        variance: cython.double = self.predictive.spread[place, 0, 0]
        if not self.scoring.sequential:
            # Deviation D4: the paper's Algorithm 1 scores with the row at the start of the batch.
            scored = bounded(y - self.predictive.start_location[place, 0])
            variance = self.predictive.start_spread[place, 0, 0]
            variance += self.observation.extra_noise * noise  # D8
        z: cython.double = min(fabs(scored) / sqrt(variance), MAX_LENGTH)
        length: cython.double = z
        if not self.scoring.predictive:
            # Deviation D2: the paper's text measures the residual under the noise R.
            length = min(fabs(scored) / sqrt(noise), MAX_LENGTH)
        log_scale: cython.double = 0.5 * log(variance)
        score, weight, w2 = self.scoring.judge(
            log_normal(z, log_scale, 1), z, length, log_scale, 1, fresh
        )
        if w2 > 0.0:
            gain: cython.double = self.steps.add_ahead(place, noise / w2)
            self.steps.move(place, 0, gain * residual)
        self.weight = weight
        return score

    def update_vector(self, place, fresh):
        """Whiten and weight the observed coordinates as one, and learn them; return the score.

        Args:
            fresh: whether its row has no observations yet (D3).
        """
        n: cython.Py_ssize_t = self.observation.n_seen
        log_noise: cython.double = factorize(
            self.noise, self.observation.seen, n, self.observation.lower
        )
        self.whiten(place, not self.scoring.sequential)
        first: cython.Py_ssize_t = self.steps.taken[place]
        unit: cython.double = 1.0
        if not self.scoring.sequential:
            unit += self.observation.extra_noise  # D8
        z, log_scale = self.trial(place, unit)
        self.steps.taken[place] = first
        length: cython.double = z
        if not self.scoring.predictive:  # Deviation D2
            squared: cython.double = 0.0
            for j in range(n):
                squared += self.residual[j] * self.residual[j]
            length = min(sqrt(squared), MAX_LENGTH)
        log_scale += log_noise
        score, weight, w2 = self.scoring.judge(
            log_normal(z, log_scale, n), z, length, log_scale, n, fresh
        )
        if w2 > 0.0:
            if not self.scoring.sequential:
                self.whiten(place, False)
            self.learn_lines(place, 1.0 / w2)
        self.weight = weight
        return score

    def whiten(self, place, at_start):
        """Write residuals and A' F' whitened by R; of the row `at_start` if D4 is off."""
        n: cython.Py_ssize_t = self.observation.n_seen
        for j in range(n):
            at: cython.Py_ssize_t = self.observation.seen[j]
            if at_start:
                location: cython.double = self.predictive.start_location[place, at]
            else:
                location = self.predictive.location[place, at]
            self.residual[j] = min(max(self.observation.y[at], -MAX_LENGTH), MAX_LENGTH) - location
            for a in range(self.lines.shape[1]):
                if at_start:
                    self.lines[j, a] = self.steps.raw[place, at, a]
                else:
                    self.lines[j, a] = self.steps.ahead[place, at, a]
            for b in range(j):
                self.residual[j] -= self.observation.lower[j, b] * self.residual[b]
                for a in range(self.lines.shape[1]):
                    self.lines[j, a] -= self.observation.lower[j, b] * self.lines[b, a]
            self.residual[j] /= self.observation.lower[j, j]
            self.residual[j] = min(max(self.residual[j], -MAX_LENGTH / n), MAX_LENGTH / n)
            for a in range(self.lines.shape[1]):
                self.lines[j, a] /= self.observation.lower[j, j]

    def trial(self, place, unit):
        """Return the length of the whitened residual under S = P P' + unit I, and log det S / 2.

        Each coordinate is conditioned on those before it by steps that the caller removes.

        Args:
            unit: variance of the whitened noise.
        """
        n: cython.Py_ssize_t = self.observation.n_seen
        first: cython.Py_ssize_t = self.steps.taken[place]
        squared: cython.double = 0.0
        log_det: cython.double = 0.0
        for j in range(n):
            for a in range(self.lines.shape[1]):
                self.scratch[a] = self.lines[j, a]
            self.moved[0] = 0.0
            self.steps.pass_through(place, first, self.scratch, self.moved)
            left: cython.double = self.residual[j] - self.moved[0]
            variance: cython.double = unit + dot(self.scratch, self.scratch)
            length: cython.double = min(fabs(left) / sqrt(variance), MAX_LENGTH / n)
            squared += length * length
            log_det += 0.5 * log(variance)
            gain: cython.double = self.steps.add(place, self.scratch, unit)
            self.steps.move(place, 0, gain * bounded(left))
        return min(sqrt(squared), MAX_LENGTH), log_det

    def learn_lines(self, place, noise):
        """Learn the whitened coordinates, of variance `noise`, one by one."""
        first: cython.Py_ssize_t = self.steps.taken[place]
        for j in range(self.observation.n_seen):
            self.moved[0] = 0.0
            self.steps.pass_through(place, first, self.lines[j], self.moved)
            left: cython.double = bounded(self.residual[j] - self.moved[0])
            gain: cython.double = self.steps.add(place, self.lines[j], noise)
            self.steps.move(place, 0, gain * left)

    # ------------------------------------------------------------------ description

    def prior_level(self):
        if self.shape.width > 1 or not self.shape.shared:
            return None
        variance = (self.prior_root**2).sum(axis=1) + np.diag(self.noise)
        return np.array([self.prior_mean[0], np.sqrt(variance)])

    def designs(self, features):
        if features.ndim == 3:
            return features
        if self.dim == 1:
            return features[:, None]
        unit = np.eye(self.dim)
        size = self.shape.coefficients
        return np.asarray(np.einsum("ij,tm->tijm", unit, features).reshape(-1, self.dim, size))

    def noise_covariance(self):
        return np.asarray(self.noise)

    def coefficients(self, row):
        root = np.asarray(self.root)[row]
        return np.asarray(self.mean)[row, 0].copy(), np.sqrt((root**2).sum(axis=1))
