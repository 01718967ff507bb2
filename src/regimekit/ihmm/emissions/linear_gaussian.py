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

from regimekit.core.exceptions import RegimekitError, numbers
from regimekit.ihmm.emissions.matrices import check_roots, read_covariance, read_vector

if not cython.compiled:
    from regimekit.ihmm.emissions.base import Emission
    from regimekit.ihmm.emissions.linear import (
        WIDE,
        RowCovariances,
        Steps,
        beyond_chance,
        beyond_chance_jointly,
        bounded,
        dot,
    )
    from regimekit.ihmm.weights import MAX_LENGTH, factorize, log_normal

from regimekit.ihmm.emissions.base import EmissionSettings


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
        noise = numbers("noise", self.noise)
        if noise.ndim == 0:
            return None
        if noise.ndim != 2:
            raise RegimekitError(f"noise must be a number or a (d, d) matrix, got {self.noise!r}.")
        return int(noise.shape[0])

    def check(self):
        read_covariance("noise", self.noise, self.dim_hint() or 1)
        for name, read in (("prior_mean", read_vector), ("prior_var", read_covariance)):
            value = getattr(self, name)
            given = numbers(name, value)
            read(name, given, given.shape[0] if given.ndim else 1)


class LinearGaussian(Emission):
    """Emission y ~ N(F theta, R) with theta ~ N(mu0, Sigma0) in every regime.

    Args:
        shape: sizes of y and of the features.
        settings: R, mu0 and Sigma0.
        scoring: weight and score of an observation.
        longest: largest number of observations of a batch.
    """

    def __init__(self, shape, settings, scoring, longest):
        d, m = shape.dim, shape.coefficients
        Emission.__init__(self, shape, scoring, (d, m))
        noise = read_covariance("noise", settings.noise, d)
        self.noise = np.ascontiguousarray(noise, np.float64)
        self.prior_mean = read_vector("prior_mean", settings.prior_mean, m)
        prior_var = read_covariance("prior_var", settings.prior_var, m)
        self.prior_root = np.ascontiguousarray(np.linalg.cholesky(prior_var), np.float64)
        self.mean = np.zeros((0, 1, m))
        self.root = np.zeros((0, m, m))
        self.steps = Steps(longest * d, 1, d, m)
        self.row_arrays = ("mean", "root")
        self.residual, self.lines = np.zeros(d), np.zeros((d, m))
        self.scratch, self.moved = np.zeros(m), np.zeros(1)
        self.covariances = RowCovariances(m)

    # ------------------------------------------------------------------ kernels

    def begin(self, place, row):
        self.steps.begin(place)

    def predict(self, place, row):
        # N(F mu, F Sigma F' + R); what was computed for the same design before is continued.
        fitted: cython.double
        if self.steps.starts(place, self.observation.number):
            for j in range(self.observation.design.shape[0]):
                self.steps.project(place, j, self.root, row, self.observation.design)
                fitted = self.fit(row, j)
                self.predictive.location[place, j] = fitted
                self.predictive.start_location[place, j] = fitted
        elif self.steps.passed[place] == self.steps.taken[place]:
            return
        if self.steps.passed[place] < self.steps.taken[place]:
            for j in range(self.observation.design.shape[0]):
                self.steps.advance(place, j, self.predictive.location, j)
            self.steps.passed[place] = self.steps.taken[place]
        self.write_spread(place)

    def fit(self, row, j):
        """Return f' mu of a row for row j of the design, in the order of `dot`."""
        n: cython.Py_ssize_t = self.mean.shape[2]
        if n >= WIDE:
            return dot(self.observation.design[j], self.mean[row, 0])
        whole: cython.Py_ssize_t = n - n % 4
        a: cython.double = 0.0
        b: cython.double = 0.0
        c: cython.double = 0.0
        d: cython.double = 0.0
        i: cython.Py_ssize_t
        for i in range(0, whole, 4):
            a += self.observation.design[j, i] * self.mean[row, 0, i]
            b += self.observation.design[j, i + 1] * self.mean[row, 0, i + 1]
            c += self.observation.design[j, i + 2] * self.mean[row, 0, i + 2]
            d += self.observation.design[j, i + 3] * self.mean[row, 0, i + 3]
        for i in range(whole, n):
            a += self.observation.design[j, i] * self.mean[row, 0, i]
        return (a + b) + (c + d)

    def write_spread(self, place):
        """Write F Sigma F' + R of a candidate and, if it is needed, of its row."""
        for i in range(self.noise.shape[0]):
            for j in range(i + 1):
                self.predictive.spread[place, i, j] = self.noise[i, j] + self.steps.product(
                    place, i, j
                )
                self.predictive.spread[place, j, i] = self.predictive.spread[place, i, j]
        if self.scoring.sequential and not self.need_start:
            return
        for i in range(self.noise.shape[0]):
            for j in range(i + 1):
                self.predictive.start_spread[place, i, j] = self.noise[i, j] + dot(
                    self.steps.raw[place, i], self.steps.raw[place, j]
                )
                self.predictive.start_spread[place, j, i] = self.predictive.start_spread[
                    place, i, j
                ]

    def update(self, place, row, fresh):
        if self.dim == 1:
            return self.update_scalar(place, fresh)
        return self.update_vector(place, fresh)

    def update_scalar(self, place, fresh):
        """Score and learn a scalar observation."""
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
        """Whiten the observed coordinates, weight them as one, learn them one by one."""
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
        """Write residuals and A' F' of the observed coordinates, whitened by R."""
        n: cython.Py_ssize_t = self.observation.n_seen
        at: cython.Py_ssize_t
        location: cython.double
        for j in range(n):
            at = self.observation.seen[j]
            if at_start:
                location = self.predictive.start_location[place, at]
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

        Each coordinate is conditioned on those before it by steps that the caller takes back.
        """
        n: cython.Py_ssize_t = self.observation.n_seen
        first: cython.Py_ssize_t = self.steps.taken[place]
        squared: cython.double = 0.0
        log_det: cython.double = 0.0
        left: cython.double
        variance: cython.double
        length: cython.double
        gain: cython.double
        for j in range(n):
            for a in range(self.lines.shape[1]):
                self.scratch[a] = self.lines[j, a]
            self.moved[0] = 0.0
            self.steps.pass_through(place, first, self.scratch, self.moved)
            left = self.residual[j] - self.moved[0]
            variance = unit + dot(self.scratch, self.scratch)
            length = min(fabs(left) / sqrt(variance), MAX_LENGTH / n)
            squared += length * length
            log_det += 0.5 * log(variance)
            gain = self.steps.add(place, self.scratch, unit)
            self.steps.move(place, 0, gain * bounded(left))
        return min(sqrt(squared), MAX_LENGTH), log_det

    def learn_lines(self, place, noise):
        """Learn the whitened coordinates one by one."""
        first: cython.Py_ssize_t = self.steps.taken[place]
        left: cython.double
        gain: cython.double
        for j in range(self.observation.n_seen):
            self.moved[0] = 0.0
            self.steps.pass_through(place, first, self.lines[j], self.moved)
            left = bounded(self.residual[j] - self.moved[0])
            gain = self.steps.add(place, self.lines[j], noise)
            self.steps.move(place, 0, gain * left)

    def finalize(self, place, row, into):
        self.steps.apply(place, row, into, self.mean, self.root)
        self.covariances.forget(into)

    def draw_prior(self, prior, row, random):
        # Deviation D9: the paper draws mu_k0 ~ N(mu0, I_m), whatever Sigma0.
        m: cython.Py_ssize_t = self.mean.shape[2]
        self.covariances.forget(row)
        for a in range(m):
            self.mean[row, 0, a] = self.mean[prior, 0, a]
            for b in range(m):
                self.root[row, a, b] = self.root[prior, a, b]
        for a in range(m):
            self.mean[row, 0, a] += random.normal()

    def shift_prior(self, prior, row, level):
        m: cython.Py_ssize_t = self.mean.shape[2]
        self.covariances.forget(row)
        for a in range(m):
            self.mean[row, 0, a] = level[a]
            for b in range(m):
                self.root[row, a, b] = self.root[prior, a, b]

    def coefficient_distance(self, a, b):
        farthest: cython.double = 0.0
        variance: cython.double
        gap: cython.double
        m: cython.Py_ssize_t = self.mean.shape[2]
        self.covariances.write_variance(self.root, a)
        self.covariances.write_variance(self.root, b)
        for j in range(m):
            variance = self.covariances.variance[a, j] + self.covariances.variance[b, j]
            gap = self.mean[a, 0, j] - self.mean[b, 0, j]
            farthest = max(farthest, gap * gap / variance)
        return beyond_chance(farthest, m)

    def joint_distance(self, a, b):
        m: cython.Py_ssize_t = self.mean.shape[2]
        for i in range(m):
            self.scratch[i] = self.mean[a, 0, i] - self.mean[b, 0, i]
        squared: cython.double = self.covariances.squared_distance(
            self.root, a, 1.0, b, 1.0, self.scratch
        )
        return beyond_chance_jointly(squared, m)

    # ------------------------------------------------------------------ memory, description

    def resize_rows(self, capacity):
        Emission.resize_rows(self, capacity)
        self.covariances.resize(capacity)

    def share_rows(self, other):
        Emission.share_rows(self, other)
        self.covariances.resize(self.root.shape[0])

    def resize_candidates(self, islands, capacity):
        Emission.resize_candidates(self, islands, capacity)
        self.steps.resize(islands, capacity)

    def work_state(self):
        arrays = {n: np.asarray(getattr(self.steps, n)) for n in ("u", "shrink", "gain", "taken")}
        return arrays

    def most_steps(self):
        return self.steps.u.shape[1]

    def write_prior(self, row):
        self.covariances.forget(row)
        np.asarray(self.mean)[row, 0] = self.prior_mean
        np.asarray(self.root)[row] = self.prior_root

    def prior_level(self):
        if self.shape.width > 1 or not self.shape.shared:
            return None
        variance = (self.prior_root**2).sum(axis=1) + np.diag(self.noise)
        return np.array([self.prior_mean, np.sqrt(variance)])

    def designs(self, features):
        if features.ndim == 3:
            return features
        if self.dim == 1:
            return features[:, None]
        unit = np.eye(self.dim)
        size = self.shape.coefficients
        return np.asarray(np.einsum("ij,tm->tijm", unit, features).reshape(-1, self.dim, size))

    def check_rows(self, live):
        check_roots(np.asarray(self.root)[live])

    def noise_covariance(self):
        return np.asarray(self.noise)

    def coefficients(self, row):
        root = np.asarray(self.root)[row]
        return np.asarray(self.mean)[row, 0].copy(), np.sqrt((root**2).sum(axis=1))
