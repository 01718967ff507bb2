"""Linear emission with unknown noise covariance: matrix-normal inverse-Wishart per regime.

    y = Theta f + e,   e ~ N(0, Sigma),   Theta | Sigma ~ MN(M, Sigma, V),   Sigma ~ IW(n, Psi)
    nu = n - d + 1,   q = f' V f,   y ~ t_nu(M f, (1 + q) Psi / nu)

For d = 1 this is the normal-inverse-gamma model with a = nu / 2, b = Psi / 2. Without a weight the
update is Bayes' rule and the score the Student-t density: the paper's unknown-variance model. That
model is not robust: between two rows the score of an outlier differs by (nu_2 - nu_1) log |y|, so
the row with fewer observations gets it.

**Geometry.** Residuals are measured under S = G (1 + q), where G = exp E[log s2] is the geometric
posterior mean of the noise variance. It exceeds the plug-in estimate while the noise is uncertain
(by 31 % at nu = 4) and tends to it. With z = |r| / sqrt(S) and the weight w^2(z):

**Score (D1).** log N(y; f' mu, S / w^2). Under IMQ it tends to -log|r| + log c - c^2 / 2 -
log(2 pi) / 2, which does not depend on the regime: an extreme outlier carries no information about
the regime, however often its rows were visited. A Student-t with scale S / w^2 would still depend
on nu.

**Update.** theta is learnt as with known noise, V^-1 += w^2 f f'. The variance is learnt from the
standardized innovation r^2 / (1 + q), whose mean is s2 in every row, fresh or old:

    a += w^2 / 2,   b += w^2 r^2 / (2 kappa (1 + q))

An outlier adds almost nothing to a and at most c^2 G / (2 kappa) to b, however large it is. Without
kappa the weight would make the estimate too small;

    kappa = E[w^2 z^2] / E[w^2]   for z ~ N(0, 1)        (d > 1: z^2 ~ chi^2_d, over d)

makes it consistent for Gaussian noise (at c = 2 it is 31 % too small without). w^2 (z^2 - kappa)
increases with z under IMQ and is bounded: a monotone M-estimate of scale, with one solution and a
breakdown point of kappa / (kappa + c^2). At c = 2 a share of 5 % of outliers, however far, makes
the estimate 59 % too large.

**Missing coordinates.** Given Sigma, learning the observed coordinates moves M exactly as learning
the whole vector would if the missing residuals had their conditional mean. That is what is done;
Psi gains their conditional covariance, and because V and n are shared by all coordinates the vector
counts only for the observed share of an observation.

V is stored as a square root (`linear`) and Psi = factor factor' by rank-one updates of its Cholesky
factor: both stay positive definite however long the stream. Rescaling y by s, with prior_mean by s
and prior_var, noise_scale by s^2, changes no regime.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import cython
import numpy as np
from cython.cimports.libc.math import exp, hypot, lgamma, log, log1p, sqrt

from regimekit.core.exceptions import RegimekitError, SnapshotError, positive
from regimekit.ihmm.emissions.base import EmissionSettings
from regimekit.ihmm.emissions.matrices import (
    check_prior,
    check_roots,
    read_covariance,
    read_dim,
    read_vector,
)
from regimekit.ihmm.weights import WEIGHTS

if not cython.compiled:
    from regimekit.ihmm.emissions.linear import LinearEmission, bounded, dot
    from regimekit.ihmm.weights import (
        CONTAMINATION,
        LOG_PI,
        MAX_LENGTH,
        OUTLIER_DOF,
        update_weight2,
    )

# A product of factors may lose positive definiteness to rounding.
RIDGE = cython.declare(cython.double, 1.0 + 1e-14)
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)


@dataclass(frozen=True)
class StudentTSettings(EmissionSettings):
    """Settings of the emission with unknown noise.

    Attributes:
        prior_mean: mean of the coefficients: a number, or a vector (coordinate by coordinate).
        prior_var: scale of a coefficient around its mean, in the units of y^2 as for known noise:
            theta ~ t_{2 a0}(prior_mean, prior_var), V0 = prior_var / (b0 / a0). For d > 1 a number,
            or a vector or matrix over the features, for a coordinate of typical noise.
        noise_shape: a0. The guess of the noise counts as 2 a0 observations; 2 a0 is also the
            degrees of freedom of a new regime. Above 1 its standard deviation is finite.
        noise_scale: b0, so that b0 / a0 is the guess of the noise variance: a number, or for
            d > 1 a (d, d) matrix.
        consistent: correct the variance for the effect of the weight (kappa).
    """

    prior_mean: Any = field(
        default=0.0, metadata={"doc": "mean of the coefficients: a number or a vector."}
    )
    prior_var: Any = field(
        default=1.0,
        metadata={
            "doc": "scale of the coefficients around their mean, in the units of y^2, as for "
            "`br_ihmm`: a number, or a vector or matrix over the features; by default 100 "
            "if the units are estimated, else 1."
        },
    )
    noise_shape: float = field(
        default=3.0,
        metadata={
            "doc": "a0; the guess of the noise counts as 2 a0 observations. Above 1 the standard "
            "deviation of a forecast is finite. By default 5 if the units are estimated, "
            "else 3."
        },
    )
    noise_scale: Any = field(
        default=0.75,
        metadata={
            "doc": "b0; b0 / a0 is the guess of the noise variance of a regime: a number, or a "
            "(d, d) matrix. By default 5 if the units are estimated, else 0.75."
        },
    )
    consistent: bool = field(
        default=True, metadata={"doc": "correct the learnt variance for the effect of the weight."}
    )

    def build(self, shape, scoring, longest):
        return StudentT(shape, self, scoring, longest)

    def dim_hint(self):
        return read_dim("noise_scale", self.noise_scale)

    def check(self):
        read_covariance("noise_scale", self.noise_scale, self.dim_hint() or 1)
        if math.isinf(positive("noise_shape", self.noise_shape)):
            raise RegimekitError(
                "noise_shape must be finite, got inf. Use br_ihmm for known noise."
            )
        check_prior(self)


class StudentT(LinearEmission):
    """Emission y ~ N(Theta f, Sigma) with Theta and Sigma unknown in every regime.

    Args:
        shape: sizes of y and of the features.
        settings: prior of the coefficients and of the noise.
        scoring: weight and score of an observation.
        longest: largest number of observations of a batch.

    Arguments of the methods:
        factor: (.., d, d) factors of Psi.
        place: place of the candidate.
    """

    def __init__(self, shape, settings, scoring, longest):
        if shape.dim > 1 and not shape.shared:
            raise RegimekitError(
                "Features that share coefficients between the coordinates of y need known noise; "
                "use br_ihmm."
            )
        if math.isinf(scoring.threshold) and not scoring.is_contamination():
            # An infinite threshold means no weight, in scores too.
            scoring = scoring.with_kind(WEIGHTS["none"])
        d, m = shape.dim, shape.width
        noise_shape = positive("noise_shape", settings.noise_shape)
        noise = read_covariance("noise_scale", settings.noise_scale, d) / noise_shape
        typical = math.exp(float(np.linalg.slogdet(noise)[1]) / d)
        spread = read_covariance("prior_var", settings.prior_var, m) / typical
        mean = read_vector("prior_mean", settings.prior_mean, d * m).reshape(d, m)
        LinearEmission.__init__(self, shape, scoring, 1, mean, spread, longest)
        self.prior_dof, self.prior_noise = 2.0 * noise_shape, noise
        self.limit_features(1.0)
        factor = np.linalg.cholesky(self.prior_dof * noise)
        self.prior_factor = np.ascontiguousarray(factor, np.float64)
        if scoring.is_contamination() and self.prior_dof <= OUTLIER_DOF + 2:
            raise RegimekitError(
                f"noise_shape must exceed {OUTLIER_DOF / 2 + 1:g} under contamination, got "
                f"{settings.noise_shape:g}: the tail of a regime must be lighter than that of "
                "outliers."
            )
        kind = scoring.kind if settings.consistent else WEIGHTS["none"]
        kappa = [consistency(kind, scoring.threshold, seen) for seen in range(1, d + 1)]
        self.kappa = np.array(kappa)
        self.factor, self.dof = np.zeros((0, d, d)), np.zeros(0)
        self.row_arrays = ("mean", "root", "factor", "dof")
        self.work_factor, self.work_dof = np.zeros((0, d, d)), np.zeros(0)
        self.q, self.start_q = np.zeros(0), np.zeros(0)
        self.candidate_arrays = ("work_factor", "work_dof", "q", "start_q")
        self.lower, self.basis, self.copy = np.zeros((3, d, d))
        self.white, self.residual, self.rest, self.column = np.zeros((4, d))

    # ------------------------------------------------------------------ kernels

    def begin(self, place, row):
        self.steps.begin(place)
        for i in range(self.dim):
            for j in range(self.dim):
                self.work_factor[place, i, j] = self.factor[row, i, j]
        self.work_dof[place] = self.dof[row]

    def predict(self, place, row):
        # Student-t with location M f and spread (1 + q) Psi / nu.
        if not self.write_location(place, row):
            return
        self.q[place] = self.steps.product(place, 0, 0)
        self.predictive.dof[place] = self.work_dof[place]
        scale: cython.double = (1.0 + self.q[place]) / self.work_dof[place]
        self.write_spread(self.work_factor, place, scale, self.predictive.spread, place)
        if self.scoring.sequential and not self.need_start:
            return
        self.start_q[place] = dot(self.steps.raw[place, 0], self.steps.raw[place, 0])
        self.predictive.start_dof[place] = self.dof[row]
        scale = (1.0 + self.start_q[place]) / self.dof[row]
        self.write_spread(self.factor, row, scale, self.predictive.start_spread, place)

    def write_spread(self, factor, at, scale, out, place):
        """Write scale factor factor' to out[place], (d, d)."""
        for i in range(self.dim):
            for j in range(i + 1):
                total: cython.double = 0.0
                for b in range(j + 1):
                    total += factor[at, i, b] * factor[at, j, b]
                out[place, i, j] = scale * total * (RIDGE if i == j and self.dim > 1 else 1.0)
                out[place, j, i] = out[place, i, j]

    def update(self, place, row, fresh):
        n: cython.Py_ssize_t = self.observation.n_seen
        if self.scoring.sequential:
            self.standardize(self.work_factor, place, self.predictive.location, place)
            log_plain, z, length, log_scale = self.lengths(self.q[place], self.work_dof[place])
        else:
            # Deviation D4: the paper's Algorithm 1 scores with the row at the start of the batch.
            self.standardize(self.factor, row, self.predictive.start_location, place)
            log_plain, z, length, log_scale = self.lengths(self.start_q[place], self.dof[row])
            self.standardize(self.work_factor, place, self.predictive.location, place)
        score, weight, w2 = self.scoring.judge(log_plain, z, length, log_scale, n, fresh)
        if w2 > 0.0:
            weighted: cython.bint = self.scoring.weigh_births or not fresh  # Deviation D3
            self.learn(place, w2, self.kappa[n - 1] if weighted else 1.0)
        self.weight = weight
        return score

    def standardize(self, factor, at, location, place):
        """Write the residuals of the observed coordinates, whitened by Psi.

        Gram-Schmidt of the observed rows of the factor of Psi: factor[seen] = lower basis with an
        orthonormal basis, so lower lower' is the observed block of Psi.

        Args:
            location: (P, d) centres.
        """
        n: cython.Py_ssize_t = self.observation.n_seen
        for i in range(n):
            c: cython.Py_ssize_t = self.observation.seen[i]
            for j in range(self.dim):
                self.basis[i, j] = factor[at, c, j]
            for b in range(i):
                along: cython.double = 0.0
                for j in range(self.dim):
                    along += self.basis[i, j] * self.basis[b, j]
                self.lower[i, b] = along
                for j in range(self.dim):
                    self.basis[i, j] -= along * self.basis[b, j]
            length: cython.double = 0.0
            for j in range(self.dim):
                length += self.basis[i, j] * self.basis[i, j]
            length = sqrt(length)
            self.lower[i, i] = length
            for j in range(self.dim):
                self.basis[i, j] /= length
            short: cython.double = bounded(self.observation.y[c] - location[place, c])
            for b in range(i):
                short -= self.lower[i, b] * self.white[b]
            short /= length
            self.white[i] = min(max(short, -MAX_LENGTH / n), MAX_LENGTH / n)

    def lengths(self, q, dof):
        """Return log f, z, the length for the weight (D2) and log det S / 2 of the residual.

        Args:
            q: f' V f.
            dof: n.
        """
        n: cython.Py_ssize_t = self.observation.n_seen
        squared: cython.double = 0.0
        log_lower: cython.double = 0.0
        for i in range(n):
            squared += self.white[i] * self.white[i]
            log_lower += log(self.lower[i, i])
        half: cython.double = 0.5 * (dof + n)
        plain: cython.double = lgamma(half) - lgamma(0.5 * dof) - 0.5 * n * (LOG_PI + log1p(q))
        plain -= log_lower + half * log1p(squared / (1.0 + q))
        if self.scoring.kind == CONTAMINATION:
            return plain, 0.0, 0.0, 0.0
        log_noise: cython.double = log_geometric(dof, n)
        log_scale: cython.double = log_lower + 0.5 * n * (log_noise + log1p(q))
        noise_sds: cython.double = min(sqrt(squared) * exp(-0.5 * log_noise), MAX_LENGTH)
        z: cython.double = noise_sds / sqrt(1.0 + q)
        # Deviation D2: the paper's text measures the residual under the noise alone.
        return plain, z, (z if self.scoring.predictive else noise_sds), log_scale

    def learn(self, place, w2, kappa):
        """Learn the observed coordinates.

        Args:
            w2: w^2.
            kappa: correction of the variance.
        """
        n: cython.Py_ssize_t = self.observation.n_seen
        count: cython.double = w2 * n / self.dim
        self.impute(place)
        if n < self.dim:
            self.add_unexplained(place, count / self.work_dof[place])
        gain: cython.double = self.steps.add_ahead(place, 1.0 / count)
        scale: cython.double = sqrt(count / (kappa * (1.0 + self.q[place])))
        for j in range(self.dim):
            self.steps.move(place, j, gain * self.residual[j])
            self.residual[j] *= scale
        self.rank_one(place, self.residual)
        self.work_dof[place] += count

    def impute(self, place):
        """Write the residuals: as observed, or their conditional mean where missing."""
        for a in range(self.dim):
            total: cython.double = 0.0
            for j in range(a + 1):
                for i in range(self.observation.n_seen):
                    total += self.work_factor[place, a, j] * self.basis[i, j] * self.white[i]
            self.residual[a] = total

    def add_unexplained(self, place, share):
        """Add the covariance of the missing coordinates given the observed ones to Psi."""
        for a in range(self.dim):
            for b in range(self.dim):
                self.copy[a, b] = self.work_factor[place, a, b]
        for j in range(self.dim):
            for a in range(self.dim):
                self.rest[a] = 1.0 if a == j else 0.0
                for i in range(self.observation.n_seen):
                    self.rest[a] -= self.basis[i, a] * self.basis[i, j]
            for a in range(self.dim):
                self.column[a] = 0.0
                for b in range(a + 1):
                    self.column[a] += sqrt(share) * self.copy[a, b] * self.rest[b]
            self.rank_one(place, self.column)

    def rank_one(self, place, x):
        """Make the factor that of factor factor' + x x', by rotations; overwrite x (d,)."""
        for j in range(self.dim):
            length: cython.double = hypot(self.work_factor[place, j, j], x[j])
            cosine: cython.double = self.work_factor[place, j, j] / length
            sine: cython.double = x[j] / length
            self.work_factor[place, j, j] = length
            for i in range(j + 1, self.dim):
                below: cython.double = self.work_factor[place, i, j]
                self.work_factor[place, i, j] = cosine * below + sine * x[i]
                x[i] = cosine * x[i] - sine * below

    def finalize(self, place, row, into):
        LinearEmission.finalize(self, place, row, into)
        self.copy_noise(self.work_factor, self.work_dof, place, into)

    def copy_noise(self, factor, dof, source, row):
        """Write the statistics of the noise of a row.

        Args:
            dof: (..,) n.
            source: index of both.
        """
        for i in range(self.dim):
            for j in range(self.dim):
                self.factor[row, i, j] = factor[source, i, j]
        self.dof[row] = dof[source]

    def draw_prior(self, prior, row, random):
        LinearEmission.draw_prior(self, prior, row, random)
        self.copy_noise(self.factor, self.dof, prior, row)

    def shift_prior(self, prior, row, level):
        LinearEmission.shift_prior(self, prior, row, level)
        self.copy_noise(self.factor, self.dof, prior, row)

    def noise_variance(self, row, s):
        return dot(self.factor[row, s], self.factor[row, s]) / self.dof[row]

    def squared_noise_gap(self, a, b, s):
        # Rows whose noise differs by a factor are distant, too.
        gap: cython.double = 0.5 * log(self.noise_variance(a, s) / self.noise_variance(b, s))
        return gap * gap / (0.5 / self.dof[a] + 0.5 / self.dof[b])

    # ------------------------------------------------------------------ memory, description

    def work_state(self):
        own = {name: np.asarray(getattr(self, name)) for name in ("work_factor", "work_dof")}
        return LinearEmission.work_state(self) | own

    def write_prior(self, row):
        LinearEmission.write_prior(self, row)
        np.asarray(self.factor)[row] = self.prior_factor
        self.dof[row] = self.prior_dof

    def prior_level(self):
        if self.shape.width > 1:
            return None
        spread = 1.0 + float(self.prior_root[0, 0]) ** 2
        return np.array([self.prior_mean[:, 0], np.sqrt(spread * np.diag(self.prior_noise))])

    def check_rows(self, live):
        LinearEmission.check_rows(self, live)
        check_roots(np.asarray(self.factor)[live])
        if not (np.asarray(self.dof)[live] > 0).all():
            raise SnapshotError("Invalid snapshot: degrees of freedom must be positive.")

    def noise_covariance(self):
        # The prior guess, because the noise of a regime is unknown.
        return self.prior_noise

    def coefficients(self, row):
        relative = (np.asarray(self.root)[row] ** 2).sum(axis=1)
        scale = np.multiply.outer((np.asarray(self.factor)[row] ** 2).sum(axis=1), relative)
        dof = self.dof[row]
        variance = scale / (dof - 2.0) if dof > 2.0 else np.full(scale.shape, np.inf)
        return np.asarray(self.mean)[row].ravel().copy(), np.sqrt(variance).ravel()


def log_geometric(dof, dim):
    """Return log g such that log det (g Psi) is the posterior mean of log det Sigma.

    Args:
        dof: n.
        dim: d.
    """
    total: cython.double = 0.0
    for j in range(dim):
        total += digamma(0.5 * (dof + j))
    return -total / dim - 0.6931471805599453


def digamma(x):
    """Return the derivative of log Gamma for x > 0: recurrence, then the asymptotic series."""
    shift: cython.double = 0.0
    while x < 8.0:
        shift -= 1.0 / x
        x += 1.0
    s: cython.double = 1.0 / (x * x)
    tail: cython.double = s * (
        1.0 / 12.0 - s * (1.0 / 120.0 - s * (1.0 / 252.0 - s * (1.0 / 240.0 - s * (1.0 / 132.0))))
    )
    return shift + log(x) - 0.5 / x - tail


@lru_cache(maxsize=256)
def consistency(kind, threshold, dim):
    """Return kappa = E[w^2 z^2] / (d E[w^2]) for z^2 ~ chi^2_d, by quadrature.

    Args:
        kind: code of the weight.
        threshold: c.
        dim: d.

    Example:
        >>> consistency(0, 2.0, 1)
        1.0
        >>> round(consistency(1, 2.0, 1), 3)
        0.746
    """
    if kind in (WEIGHTS["none"], WEIGHTS["contamination"]):
        return 1.0
    bends = threshold * 4.0 ** np.arange(-2, 3)  # around the bend of the weight
    farthest = math.sqrt(dim) + 12.0
    edges = np.unique(np.append(bends[bends < farthest], np.linspace(0.0, farthest, 17)))
    half = np.diff(edges)[:, None] / 2
    z = (edges[:-1, None] + half * (1 + _NODES)).ravel()
    w2 = np.array([update_weight2(kind, length, threshold) for length in z.tolist()])
    mass = (half * _NODE_WEIGHTS).ravel() * w2 * np.exp((dim - 1) * np.log(z) - z * z / 2)
    return float((mass * z * z).sum() / (dim * mass.sum()))
