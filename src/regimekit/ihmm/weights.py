"""The weight of an observation, and the score of a regime.

A *weight* is a function of the length z of the residual in standard deviations, with threshold c:

    none          w^2 = 1
    imq           w^2 = 1 / (1 + z^2 / c^2)                       Eq. (10)
    huber         w^2 = min(1, c^2 / z^2)
    mahalanobis   w^2 = 1 if z <= c else 0

All except `none` keep w^2 and w^2 z^2 bounded, which bounds the influence of an outlier. Under
`mahalanobis` the update is skipped beyond c. Scores use the Huber weight there, because a score of
-inf for a single regime would exclude that regime for good. The score log N(y; yhat, S / w^2) is
not a density: where regimes learn their noise variance, it favours those that underestimate it.

`contamination` is a density. With probability eps an observation comes from one broad density q
that all regimes share, otherwise from the density f_k of the regime:

    p_k(y) = (1 - eps) f_k(y) + eps q(y),      r_k = (1 - eps) f_k / p_k

The score is log p_k. The weight of the update is r_k, the probability that y is not an outlier. As
|y| grows, p_k tends to eps q(y) for every regime, so an extreme value carries no information about
the regime. The rate eps is learnt; no threshold has to be chosen (docs/robustness.md).

All functions work with z, not z^2, and with logarithms, so that z = 1e150 does not overflow.
"""

from __future__ import annotations

import cython
from cython.cimports.libc.math import exp, lgamma, log, log1p, sqrt

from regimekit.core.exceptions import unknown

WEIGHTS = {"contamination": 4, "imq": 1, "huber": 2, "mahalanobis": 3, "none": 0}

NONE = cython.declare(cython.int, 0)
IMQ = cython.declare(cython.int, 1)
HUBER = cython.declare(cython.int, 2)
MAHALANOBIS = cython.declare(cython.int, 3)
CONTAMINATION = cython.declare(cython.int, 4)

# Standard deviations: longer residuals are cut to this length, whose square is still finite.
MAX_LENGTH = cython.declare(cython.double, 1e150)
# Weights below this are 0: R / w^2 stays finite above it.
MIN_WEIGHT = cython.declare(cython.double, 1e-280)
OUTLIER_DOF = cython.declare(cython.double, 2.0)  # degrees of freedom of q
MAX_OUTLIER_RATE = cython.declare(cython.double, 0.3)  # outliers are a minority by definition
OUTLIER_SCALE = 20.0  # scale of q in standard deviations of the noise

LOG_2PI = cython.declare(cython.double, 1.8378770664093453)
LOG_PI = cython.declare(cython.double, 1.1447298858494002)


class Scoring:
    """How observations are weighted and regimes are scored.

    The deviations D1 to D4 are switches here (docs/deviations.md). The three `log_` fields describe
    the density of outliers at the present observation; the filter sets them before each update.

    Args:
        kind: code of the weight, see `WEIGHTS`.
        threshold: c in standard deviations; not used by `contamination`.
        weigh_regimes: weight the scores of regimes too; False means plain likelihood (`wolf_ihmm`).
        unit_free: D1, score log N(y; yhat, S / w^2) instead of w^2 log N(y; yhat, S).
        predictive: D2, measure z under the predictive covariance S instead of the noise R.
        weigh_births: D3, weight the first batch of a new regime too.
        sequential: D4, score with the posterior inside the batch instead of at its start.
    """

    def __init__(
        self, kind, threshold, weigh_regimes, unit_free, predictive, weigh_births, sequential
    ):
        self.kind = kind
        self.threshold = threshold
        self.weigh_regimes = weigh_regimes
        self.unit_free = unit_free
        self.predictive = predictive
        self.weigh_births = weigh_births
        self.sequential = sequential
        self.log_rate = -float("inf")
        self.log_regular = 0.0
        self.log_density = 0.0

    def with_kind(self, kind):
        """Return the same settings with another weight, a code of `WEIGHTS`."""
        return Scoring(
            kind,
            self.threshold,
            self.weigh_regimes,
            self.unit_free,
            self.predictive,
            self.weigh_births,
            self.sequential,
        )

    def is_contamination(self):
        """Return whether outliers have a density of their own."""
        return self.kind == CONTAMINATION

    def set_outlier_density(self, rate, log_density):
        """Set the density of outliers at the present observation.

        Args:
            rate: outlier rate eps.
            log_density: log q(y).
        """
        self.log_rate = log(rate)
        self.log_regular = log1p(-rate)
        self.log_density = log_density

    def judge(self, log_plain, z, length, log_scale, dim, fresh):
        """Return the score of a regime, the weight to report and w^2 of the update.

        Args:
            log_plain: log density of the observation under the regime alone.
            z: length of the residual under the predictive covariance S.
            length: length of the residual that the weight is a function of (D2).
            log_scale: log det S / 2.
            dim: number of observed coordinates.
            fresh: whether the regime has no observations yet (D3).
        """
        if self.kind == CONTAMINATION:
            score, r = self.judge_contamination(log_plain)
            return score, r, r
        w2: cython.double = update_weight2(self.kind, length, self.threshold)
        # Deviation D3: the paper's text does not weight the first batch of a new regime.
        learnt: cython.double = 1.0 if fresh and not self.weigh_births else w2
        if self.kind == NONE or not self.weigh_regimes:
            return log_plain, w2, learnt
        log_w2: cython.double = log_weight2(self.kind, length, self.threshold)
        if self.unit_free:  # Deviation D1: the paper's text has w^2 log N(y; yhat, S)
            return log_score(z, log_scale, log_w2, dim), w2, learnt
        return exp(log_w2) * log_plain, w2, learnt

    def judge_in_python(self, log_plain, z, length, log_scale, dim, fresh):
        """Return the output of `judge`, with its arguments, for emissions written in Python."""
        return self.judge(log_plain, z, length, log_scale, dim, fresh)

    def judge_contamination(self, log_plain):
        """Return the score under contamination and r, the probability of no outlier."""
        regular: cython.double = self.log_regular + log_plain
        outlier: cython.double = self.log_rate + self.log_density
        top: cython.double = max(regular, outlier)
        log_p: cython.double = top + log(exp(regular - top) + exp(outlier - top))
        r: cython.double = exp(regular - log_p)
        if r <= MIN_WEIGHT:
            r = 0.0
        return (log_p if self.weigh_regimes else log_plain), r


def outlier_constants():
    """Return the degrees of freedom of q and the largest outlier rate, for Python code."""
    return OUTLIER_DOF, MAX_OUTLIER_RATE


class PythonScoring(Scoring):
    """A weight written in plain Python, used for scores and updates alike.

    Args:
        scoring: the settings; its kind must not be `contamination`, whose weight is a probability.
        log_weight2: function of z / c that returns log w^2. w^2 and w^2 z^2 must be bounded.
    """

    def __init__(self, scoring, log_weight2):
        Scoring.__init__(
            self,
            scoring.kind,
            scoring.threshold,
            scoring.weigh_regimes,
            scoring.unit_free,
            scoring.predictive,
            scoring.weigh_births,
            scoring.sequential,
        )
        self.function = log_weight2
        self.error = None

    def judge(self, log_plain, z, length, log_scale, dim, fresh):
        log_w2: cython.double = 0.0
        try:
            log_w2 = min(float(self.function(length / self.threshold)), 0.0)
        except Exception as error:
            # Kernels cannot raise: the filter raises the first error after the loop.
            self.error = self.error or error
        w2: cython.double = exp(log_w2)
        learnt: cython.double = 1.0 if fresh and not self.weigh_births else w2
        if not self.weigh_regimes:
            return log_plain, w2, learnt
        if self.unit_free:
            return log_score(z, log_scale, log_w2, dim), w2, learnt
        return w2 * log_plain, w2, learnt


def weight_code(name):
    """Return the code of a weight.

    Raises:
        RegimekitError: If there is no weight of that name.
    """
    if not isinstance(name, str) or name not in WEIGHTS:
        raise unknown("weight", name, WEIGHTS)
    return WEIGHTS[name]


def log_weight2(kind, z, threshold):
    """Return log w^2 as scores use it; finite for every finite z.

    Args:
        kind: code of the weight.
        z: length of the residual in standard deviations.
        threshold: c.
    """
    u: cython.double = z / threshold
    if kind == NONE or kind == CONTAMINATION or u == 0.0:
        return 0.0
    if kind == IMQ:
        return -2.0 * log(u) if u > 1e8 else -log1p(u * u)
    return -2.0 * log(u) if u > 1.0 else 0.0


def update_weight2(kind, z, threshold):
    """Return w^2 as parameter updates use it."""
    if kind == MAHALANOBIS:
        return 1.0 if z <= threshold else 0.0
    w2: cython.double = exp(log_weight2(kind, z, threshold))
    return w2 if w2 > MIN_WEIGHT else 0.0


def log_score(z, log_scale, log_w2, dim):
    """Return log N(y; yhat, S / w^2); rescaling y shifts it equally for every regime (D1).

    Args:
        log_scale: log det S / 2.
        log_w2: log w^2.
    """
    squared: cython.double = exp(2.0 * log(z) + log_w2) if z > 0.0 else 0.0
    return -0.5 * (dim * (LOG_2PI - log_w2) + squared) - log_scale


def log_normal(z, log_scale, dim):
    """Return the log density of a Gaussian."""
    return -0.5 * (dim * LOG_2PI + z * z) - log_scale


def log_outlier_density(z, log_scale, dim):
    """Return log q.

    Args:
        z: length of the residual under the scale matrix of q.
        log_scale: half the log determinant of this matrix.
        dim: number of observed coordinates.
    """
    half: cython.double = 0.5 * (OUTLIER_DOF + dim)
    constant: cython.double = lgamma(half) - lgamma(0.5 * OUTLIER_DOF)
    constant -= 0.5 * dim * log(OUTLIER_DOF * 3.141592653589793)
    if z > 1e8:
        return constant - log_scale - half * (2.0 * log(z) - log(OUTLIER_DOF))
    return constant - log_scale - half * log1p(z * z / OUTLIER_DOF)


def factorize(matrix, seen, n, out_lower):
    """Write the Cholesky factor of the observed block of a covariance; return log det / 2.

    Args:
        matrix: (d, d) covariance.
        seen: (d,) the observed coordinates come first.
        out_lower: (d, d) output; its first n rows and columns are written.
    """
    log_det: cython.double = 0.0
    for i in range(n):
        for j in range(i + 1):
            value: cython.double = matrix[seen[i], seen[j]]
            for b in range(j):
                value -= out_lower[i, b] * out_lower[j, b]
            if i == j:
                out_lower[i, i] = sqrt(value)
                log_det += log(out_lower[i, i])
            else:
                out_lower[i, j] = value / out_lower[j, j]
    return log_det
