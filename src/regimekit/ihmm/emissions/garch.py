"""GARCH(1, 1) emission: regimes of volatility, learnt by a cloud of parameter points per row.

    y_t = sigma_t e_t,   e_t ~ N(0, 1),   sigma_t^2 = omega + a y_{t-1}^2 + b sigma_{t-1}^2

The coefficients have no conjugate prior, so a row stores J weighted points (omega, a, b), each with
the variance sigma^2 of the next observation under it. An observation multiplies the weight of a
point by N(y; 0, sigma^2). If the weights are uneven at the end of a batch, the points are redrawn
and smoothed (`particle_cloud`) in the coordinates

    x = (log omega / (1 - a - b), logit(a + b), logit(a / (a + b)), log sigma^2),

so a + b < 1 always, and a variance moves together with the coefficients that produced it.

**Hidden variance.** In the switching model the variance depends on the whole path of regimes. As in
Haas, Mittnik and Paolella (2004) every regime runs its own recursion, driven by the common y_{t-1},
whether it was chosen or not. `time_update` writes those variances (not the weights) to the row at
the end of every batch, and `skip` advances them with E y^2 = sigma^2 if nothing was observed. A
recursion is computed for a new regime too, so its first variance depends on the series.

**Sharing.** Particles share rows because the successor of a row is a function of the row and the
batch. A redraw therefore takes its numbers from a low-discrepancy sequence at an index that the
row's own number of redraws determines, never from the generator of the filter.

**Outliers.** With a weight w(z), z = y / sigma, the score of a point is
log N(y; 0, kappa sigma^2 / w^2) (D1): as |y| grows every point and every row tends to the same
score, so an extreme value carries no information about regime or coefficients. Without kappa, w
would make every variance too small; kappa restores E[d score / d sigma^2] = 0 for Gaussian e. The
recursion is driven by lambda w^2 y^2 instead of y^2, lambda such that its mean is sigma^2: it is
bounded by a multiple of sigma^2. Under `mahalanobis` points are scored as under `huber`, because
beyond c their score is constant already, and a value beyond c drives the recursion like a missing
one. Predictive and noise variance are the same here, so D2 has no effect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import cython
import numpy as np
from cython.cimports.libc.math import exp, fabs, log, sqrt

from regimekit.core.exceptions import RegimekitError, SnapshotError, positive, whole
from regimekit.ihmm.emissions.base import EmissionSettings
from regimekit.ihmm.emissions.matrices import read_pair
from regimekit.ihmm.emissions.particle_cloud import quasi_normal_points
from regimekit.ihmm.weights import OUTLIER_SCALE

if not cython.compiled:
    from regimekit.core.logspace import logsumexp
    from regimekit.ihmm.emissions.base import Emission
    from regimekit.ihmm.emissions.particle_cloud import KernelSmoother
    from regimekit.ihmm.weights import (
        CONTAMINATION,
        IMQ,
        MAHALANOBIS,
        MAX_LENGTH,
        NONE,
        log_weight2,
        update_weight2,
    )

MIN_VARIANCE = cython.declare(cython.double, 1e-300)
MAX_VARIANCE = cython.declare(cython.double, 1e300)
MAX_LEVEL_SHIFT = cython.declare(cython.double, 60.0)  # of a log long-run variance from its prior
MAX_LOGIT = cython.declare(cython.double, 12.0)  # a + b up to 1 - 6e-6
MIN_SCORE_SCALE = 1e-6  # kappa, if the threshold is so small that nothing is inside it
HALF_LOG_2PI = cython.declare(cython.double, 0.9189385332046727)
INF = cython.declare(cython.double, float("inf"))


@dataclass(frozen=True)
class GarchSettings(EmissionSettings):
    """Settings of the GARCH emission; `regimekit.garch_ihmm` documents them."""

    variance_prior: Any = field(
        default=(1.0, 1.5),
        metadata={
            "doc": "(median, spread of the log) of the long-run variance omega / (1 - a - b) of "
            "a regime, in the units of y^2."
        },
    )
    persistence_prior: Any = field(
        default=(0.9, 0.5), metadata={"doc": "(median, spread of the logit) of a + b."}
    )
    reaction_prior: Any = field(
        default=(0.1, 0.5),
        metadata={
            "doc": "(median, spread of the logit) of a / (a + b), the part of the persistence "
            "due to the latest observation."
        },
    )
    cloud: int = field(
        default=192,
        metadata={
            "doc": "number of points per regime; the cost is proportional to it, the error to "
            "the inverse of its square root."
        },
    )
    bandwidth: float = field(
        default=0.7,
        metadata={"doc": "h of the kernel that smooths redrawn points, between 0 and 1."},
    )

    def build(self, shape, scoring, longest):
        return Garch(shape, self, scoring, longest)

    def dim_hint(self):
        return None  # the message of `build` about d > 1 is clearer

    def check(self):
        whole("cloud", self.cloud, least=16)
        if not 0 < positive("bandwidth", self.bandwidth) < 1:
            raise RegimekitError(f"bandwidth must lie between 0 and 1, got {self.bandwidth!r}.")
        self.coordinates()

    def coordinates(self):
        """Return prior centre (3,) and spread (3,) of the first three coordinates of x."""
        level, level_sd = read_pair("variance_prior", self.variance_prior, "(median, spread)")
        if not 1e-200 < level < 1e200:
            raise RegimekitError(
                f"variance_prior must have a median between 1e-200 and 1e200, got {level}."
            )
        pairs = [(math.log(level), level_sd)]
        for name in ("persistence_prior", "reaction_prior"):
            median, sd = read_pair(name, getattr(self, name), "(median, spread)")
            if median >= 1:
                raise RegimekitError(f"{name} must have its median between 0 and 1, got {median}.")
            pairs.append((math.log(median / (1.0 - median)), sd))
        centre, spread = np.array(pairs).T
        return centre, spread


class Garch(Emission):
    """Emission y ~ N(0, sigma_t^2), sigma_t^2 from the regime's own GARCH(1, 1) recursion.

    Args:
        shape: sizes of y and of the features; d must be 1, features are not used.
        settings: priors, number of points, bandwidth.
        scoring: weight and score of an observation.
        longest: largest number of observations of a batch; not used.

    Attributes:
        parameters: (R, J, 3) omega, a, b of each point of each row.
        variance: (R, J) variance of the next observation.
        log_weight: (R, J) normalized.
        redraws: (R,) how often the points of a row were redrawn.

    Arguments of the methods:
        place: place of the candidate.
        row: the row.
    """

    def __init__(self, shape, settings, scoring, longest):
        if shape.dim != 1:
            raise RegimekitError(
                f"y has {shape.dim} coordinates; a GARCH regime describes one series. "
                "Use one model per series."
            )
        # The variance of every row depends on the time.
        Emission.__init__(self, shape, scoring, (1, shape.width), False)
        n = settings.cloud
        centre, spread = settings.coordinates()
        self.size, self.centre, self.spread = n, centre[0], np.ascontiguousarray(spread)
        self.score_scale, self.drive_scale = correction(scoring)
        prior = np.empty((n, 4))
        prior[:, :3] = centre + spread * quasi_normal_points(n, 3)
        # A regime without observations has its long-run variance.
        prior[:, 3] = prior[:, 0]
        self.prior = prior
        self.smoother = KernelSmoother(n, 4, settings.bandwidth)
        self.parameters, self.variance = np.zeros((0, n, 3)), np.zeros((0, n))
        self.log_weight, self.redraws = np.zeros((0, n)), np.zeros(0, np.int64)
        self.row_arrays = ("parameters", "variance", "log_weight", "redraws")
        self.work_parameters, self.work_variance = np.zeros((0, n, 3)), np.zeros((0, n))
        self.work_log_weight, self.work_redraws = np.zeros((0, n)), np.zeros(0, np.int64)
        self.candidate_arrays = tuple(f"work_{name}" for name in self.row_arrays)
        self.plain, self.robust, self.w2 = np.zeros(n), np.zeros(n), np.zeros(n)
        self.drive, self.share = np.zeros(n), np.zeros(n)

    # ------------------------------------------------------------------ kernels

    def begin(self, place, row):
        for j in range(self.size):
            for a in range(3):
                self.work_parameters[place, j, a] = self.parameters[row, j, a]
            self.work_variance[place, j] = self.variance[row, j]
            self.work_log_weight[place, j] = self.log_weight[row, j]
        self.work_redraws[place] = self.redraws[row]

    def predict(self, place, row):
        # A Student-t with the variance and the kurtosis of the mixture over the points.
        self.predictive.location[place, 0] = 0.0
        scale, dof = self.match_moments(place, self.work_log_weight, place)
        self.predictive.spread[place, 0, 0] = scale
        self.predictive.dof[place] = dof
        if self.need_start:
            # Without the weights learnt in the batch, but with the variances of the present time.
            self.predictive.start_location[place, 0] = 0.0
            scale, dof = self.match_moments(place, self.log_weight, row)
            self.predictive.start_spread[place, 0, 0] = scale
            self.predictive.start_dof[place] = dof

    def match_moments(self, place, log_weight, at):
        """Return squared scale and degrees of freedom of the t with the moments of the mixture.

        Its kurtosis 3 E[s^2] / E[s]^2 is 3 (dof - 2) / (dof - 4).

        Args:
            log_weight: (P, J) log weights of the points.
        """
        mean: cython.double = 0.0
        squares: cython.double = 0.0
        for j in range(self.size):
            self.share[j] = exp(log_weight[at, j])
            mean += self.share[j] * self.work_variance[place, j]
        for j in range(self.size):
            excess: cython.double = self.work_variance[place, j] / mean - 1.0
            squares += self.share[j] * (excess * excess)
        dof: cython.double = 4.0 + 2.0 / squares if squares > 1e-6 else INF
        return mean * (1.0 - 2.0 / dof), dof

    def update(self, place, row, fresh):
        weight: cython.double = 1.0
        y: cython.double = min(max(self.observation.y[0], -MAX_LENGTH), MAX_LENGTH)
        self.assess(place, y)
        if self.scoring.kind != NONE:
            weight = 0.0
            for j in range(self.size):
                weight += exp(self.work_log_weight[place, j]) * self.w2[j]
            weight = min(weight, 1.0)
        if self.scoring.kind != CONTAMINATION and not self.scoring.unit_free:
            # Deviation D1: the paper's text has w^2 log N, with one w for a row.
            for j in range(self.size):
                self.robust[j] = weight * self.plain[j]
        for j in range(self.size):
            self.share[j] = self.robust[j] if self.scoring.weigh_regimes else self.plain[j]
            # Deviation D4: the paper's Algorithm 1 scores with the row at the start of the batch.
            if self.scoring.sequential:
                self.share[j] += self.work_log_weight[place, j]
            else:
                self.share[j] += self.log_weight[row, j]
            # Deviation D3: the paper's text does not weight the first batch of a new regime.
            if not fresh or self.scoring.weigh_births:
                self.work_log_weight[place, j] += self.robust[j]
            else:
                self.work_log_weight[place, j] += self.plain[j]
        score: cython.double = logsumexp(self.share, 0, self.size)
        total: cython.double = logsumexp(self.work_log_weight[place], 0, self.size)
        for j in range(self.size):
            self.work_log_weight[place, j] -= total
        self.advance(place)
        self.weight = weight
        return score

    def assess(self, place, y):
        """Write two log likelihoods, w^2 and the effective y^2 / sigma^2 of each point."""
        log_kappa: cython.double = 0.5 * log(self.score_scale)
        for j in range(self.size):
            z: cython.double = min(fabs(y) / sqrt(self.work_variance[place, j]), MAX_LENGTH)
            base: cython.double = -HALF_LOG_2PI - 0.5 * log(self.work_variance[place, j])
            self.plain[j] = base - 0.5 * z * z
            if self.scoring.kind == CONTAMINATION:
                score, r = self.scoring.judge_contamination(self.plain[j])
                self.robust[j] = score
                self.w2[j] = r
                self.drive[j] = r * z * z + (1.0 - r) if r > 0.0 else 1.0
                continue
            log_w2: cython.double = log_weight2(self.scoring.kind, z, self.scoring.threshold)
            w2: cython.double = exp(log_w2) if log_w2 < 0.0 else 1.0
            self.robust[j] = base - log_kappa + 0.5 * (log_w2 - w2 * z * z / self.score_scale)
            self.drive[j] = self.drive_scale * w2 * z * z
            self.w2[j] = w2
            if self.scoring.kind == MAHALANOBIS and z > self.scoring.threshold:
                self.w2[j] = 0.0
                self.drive[j] = 1.0

    def advance(self, place):
        """Advance the variance of every point by its recursion, with `drive` for y^2 / sigma^2."""
        for j in range(self.size):
            growth: cython.double = (
                self.work_parameters[place, j, 1] * self.drive[j]
                + self.work_parameters[place, j, 2]
            )
            ahead: cython.double = (
                self.work_parameters[place, j, 0] + growth * self.work_variance[place, j]
            )
            self.work_variance[place, j] = min(max(ahead, MIN_VARIANCE), MAX_VARIANCE)

    def skip(self, place):
        # E y^2 = sigma^2
        for j in range(self.size):
            self.drive[j] = 1.0
        self.advance(place)

    def time_update(self, place, row):
        for j in range(self.size):
            self.variance[row, j] = self.work_variance[place, j]

    def finalize(self, place, row, into):
        for j in range(self.size):
            for a in range(3):
                self.parameters[into, j, a] = self.work_parameters[place, j, a]
            self.variance[into, j] = self.work_variance[place, j]
            self.log_weight[into, j] = self.work_log_weight[place, j]
        self.redraws[into] = self.work_redraws[place]
        if self.smoother.is_uneven(self.log_weight[into]):
            self.read_points(into)
            self.smoother.redraw(self.log_weight[into], self.redraws[into])
            self.write_points(self.smoother.redrawn, into)
            for j in range(self.size):
                self.log_weight[into, j] = -log(self.size)
            self.redraws[into] += 1

    def read_points(self, row):
        """Write the coordinates x of the points of a row to the smoother."""
        for j in range(self.size):
            a: cython.double = self.parameters[row, j, 1]
            b: cython.double = self.parameters[row, j, 2]
            rest: cython.double = 1.0 - a - b
            self.smoother.points[j, 0] = log(self.parameters[row, j, 0] / rest)
            self.smoother.points[j, 1] = log((a + b) / rest)
            self.smoother.points[j, 2] = log(a / b)
            self.smoother.points[j, 3] = log(self.variance[row, j])

    def write_points(self, points, row):
        """Write the points of a row from coordinates (J, 4), limited so that a + b < 1."""
        for j in range(self.size):
            level: cython.double = exp(
                self.centre + limited(points[j, 0] - self.centre, MAX_LEVEL_SHIFT)
            )
            rest: cython.double = 1.0 / (1.0 + exp(limited(points[j, 1], MAX_LOGIT)))
            reaction: cython.double = 1.0 / (1.0 + exp(-limited(points[j, 2], MAX_LOGIT)))
            self.parameters[row, j, 0] = level * rest
            self.parameters[row, j, 1] = (1.0 - rest) * reaction
            self.parameters[row, j, 2] = (1.0 - rest) * (1.0 - reaction)
            self.variance[row, j] = exp(limited(points[j, 3], 690.0))

    def draw_prior(self, prior, row, random):
        # The whole cloud is shifted by one draw from the prior.
        self.read_points(prior)
        for a in range(3):
            shift: cython.double = self.spread[a] * random.normal()
            for j in range(self.size):
                self.smoother.points[j, a] += shift
                if a == 0:
                    self.smoother.points[j, 3] += shift
        self.write_points(self.smoother.points, row)
        for j in range(self.size):
            self.log_weight[row, j] = self.log_weight[prior, j]
        self.redraws[row] = self.redraws[prior]

    def coefficient_distance(self, a, b):
        # Of the log long-run variance.
        mean_a, variance_a = self.long_run(a)
        mean_b, variance_b = self.long_run(b)
        return fabs(mean_a - mean_b) / sqrt(variance_a + variance_b + MIN_VARIANCE)

    def long_run(self, row):
        """Return mean and variance over the points of log omega / (1 - a - b)."""
        mean: cython.double = 0.0
        square: cython.double = 0.0
        for j in range(self.size):
            share: cython.double = 1.0 - self.parameters[row, j, 1] - self.parameters[row, j, 2]
            level: cython.double = log(self.parameters[row, j, 0] / share)
            share = exp(self.log_weight[row, j])
            mean += share * level
            square += share * level * level
        return mean, max(square - mean * mean, 0.0)

    # ------------------------------------------------------------------ memory, description

    def most_steps(self):
        return 1 << 53  # redraws of a cloud

    def write_prior(self, row):
        self.write_points(self.prior, row)
        np.asarray(self.log_weight)[row] = -math.log(self.size)
        self.redraws[row] = 0

    def designs(self, features):
        return features.reshape(len(features), 1, -1)

    def check_rows(self, live):
        parameters, variance = np.asarray(self.parameters)[live], np.asarray(self.variance)[live]
        valid = (parameters > 0).all() and (variance > 0).all()
        if not valid or not (parameters[..., 1] + parameters[..., 2] < 1).all():
            raise SnapshotError(
                "Invalid snapshot: GARCH coefficients and variances must be positive, and a + b "
                "below 1."
            )
        if (np.asarray(self.redraws)[live] < 0).any():
            raise SnapshotError("Invalid snapshot: the number of redraws must not be negative.")

    def noise_covariance(self):
        # There is no noise apart from the variance of the row, which `skip` advances.
        return np.zeros((1, 1))

    def outlier_scale(self):
        return np.full((1, 1), OUTLIER_SCALE**2 * math.exp(self.centre))

    def coefficients(self, row):
        """Return posterior mean (3,) and standard deviation (3,) of (omega, a, b)."""
        share, points = np.exp(np.asarray(self.log_weight)[row]), np.asarray(self.parameters)[row]
        mean = share @ points
        return mean, np.sqrt(share @ (points - mean) ** 2)


def limited(x, limit):
    """Return x, clipped to [-limit, limit]."""
    return min(max(x, -limit), limit)


def correction(scoring):
    """Return kappa of the score and lambda of the recursion for a weight under Gaussian noise.

    With V = sigma^2 / w^2 and e = d log V / d log sigma^2 (w^2 for imq, 1 inside c and 0 beyond for
    the others), the expected slope of the score is zero if kappa = E[e w^2 z^2] / E[e].
    """
    z = (np.arange(4000) + 0.5) * 0.003
    density = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    kind, c = scoring.kind, scoring.threshold
    w2 = np.exp([log_weight2(kind, length, c) for length in z])
    slope = density * (w2 if kind == IMQ else w2 == 1.0)
    learnt = density * [update_weight2(kind, length, c) for length in z]
    score = slope @ (w2 * z**2) / max(slope.sum(), MIN_VARIANCE)
    drive = density[learnt > 0].sum() / max(learnt @ z**2, MIN_VARIANCE)
    return max(float(score), MIN_SCORE_SCALE), float(drive)
