"""How much one observation may say: the score of a regime and the weight of its update.

Two families. A *weight* is a function of the residual's length z in standard deviations, with c
the threshold:

    none          w^2 = 1
    imq           w^2 = 1 / (1 + z^2 / c^2)
    huber         w^2 = min(1, c^2 / z^2)
    mahalanobis   w^2 = 1 if z <= c else 0

All but `none` keep w^2 and w^2 z^2 bounded, which is what bounds an outlier's influence. Under
`mahalanobis` the update is skipped beyond c; a score of -inf for one regime alone would be no
honest comparison, so scores use the Huber weight there. Their score log N(y; yhat, S / w^2) is
no density: where regimes learn their noise it rewards those that claim too little of it.

`contamination` is a density. An observation comes from the regime, f_k, or with probability eps
from one broad density q that is the same for all regimes:

    p_k(y) = (1 - eps) f_k(y) + eps q(y),      r_k = (1 - eps) f_k / p_k

The score is log p_k and r_k, the probability that y is no outlier, is the weight of the update.
As |y| grows every regime says eps q(y): as good as not seen. `eps` is learnt, so that no
threshold is left to choose (docs/robustness.md).

Everything is computed from z, not z^2, and in logs: z of 1e150 must not overflow.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from regimekit._numba import bare
from regimekit.core.exceptions import unknown

NONE, IMQ, HUBER, MAHALANOBIS, CONTAMINATION = range(5)
WEIGHTS = {
    "contamination": CONTAMINATION,
    "imq": IMQ,
    "huber": HUBER,
    "mahalanobis": MAHALANOBIS,
    "none": NONE,
}

LONGEST = 1e150  # residual lengths beyond this say nothing more; its square is still finite
FAINTEST = 1e-280  # weights below this cannot move a parameter; R / w^2 above it is still finite

COLLAPSED, BELIEVED, DISBELIEVED = range(3)  # what a newborn makes of one observation

BROAD_DOF = 2.0  # of q: the heaviest tail among those with a mean
BROAD_SCALE = 20.0  # of q, in standard deviations of the noise
LARGEST_RATE = 0.3  # eps stays below: outliers are a minority by definition


class Scoring(NamedTuple):
    """How carefully regimes are scored and learnt; the deviations D1..D4 as switches.

    Attributes:
        kind: one of the codes above.
        threshold: c, in standard deviations; contamination has none.
        weigh_regimes: weight the scores of regimes too (False: plain likelihood, `wolf_ihmm`).
        unit_free: D1, score log N(y; yhat, S / w^2) instead of w^2 log N(y; yhat, S).
        predictive: D2, measure z under the predictive S instead of the noise R.
        weigh_births: D3, weight a new regime's first batch too.
        sequential: D4, score and weight with the posterior inside the batch, not at its start.
    """

    kind: int
    threshold: float
    weigh_regimes: bool
    unit_free: bool
    predictive: bool
    weigh_births: bool
    sequential: bool


class Broad(NamedTuple):
    """The shared density of outliers at one observation: log eps, log (1 - eps), log q(y)."""

    log_rate: float
    log_rest: float
    log_density: float


class Residual(NamedTuple):
    """What one regime sees of one observation.

    Attributes:
        log_plain: its log density under the regime alone, log f.
        z: its length under the predictive S.
        far: the length that a weight looks at (D2).
        log_scale: log det S / 2.
        dim: coordinates seen.
    """

    log_plain: float
    z: float
    far: float
    log_scale: float
    dim: int


def weight_code(name: object) -> int:
    """The code of a weight by name."""
    if not isinstance(name, str) or name not in WEIGHTS:
        raise unknown("weight", name, WEIGHTS)
    return WEIGHTS[name]


@bare
def no_outliers() -> Broad:
    """Where no contamination is asked for."""
    return Broad(-np.inf, 0.0, 0.0)


@bare
def judge(
    scoring: Scoring, broad: Broad, seen: Residual, fresh: bool, belief: int
) -> tuple[float, float, float]:
    """Score of the regime, weight that is reported, and w^2 of its update."""
    if scoring.kind == CONTAMINATION:
        return judge_mixture(scoring, broad, seen.log_plain, belief)
    w2 = update_weight2(scoring.kind, seen.far, scoring.threshold)
    learnt = 1.0 if fresh and not scoring.weigh_births else w2  # D3
    if scoring.kind == NONE or not scoring.weigh_regimes:
        return seen.log_plain, w2, learnt
    log_w2 = log_weight2(scoring.kind, seen.far, scoring.threshold)
    if scoring.unit_free:  # D1
        return log_score(seen.z, seen.log_scale, log_w2, seen.dim), w2, learnt
    return math.exp(log_w2) * seen.log_plain, w2, learnt


@bare
def judge_mixture(
    scoring: Scoring, broad: Broad, log_plain: float, belief: int
) -> tuple[float, float, float]:
    """The same under contamination; a newborn may be told what to believe (`BELIEVED` ..)."""
    regular = broad.log_rest + log_plain
    outlier = broad.log_rate + broad.log_density
    if belief == BELIEVED:
        return regular, 1.0, 1.0
    if belief == DISBELIEVED:
        return outlier, 0.0, 0.0
    top = max(regular, outlier)
    log_p = top + math.log(math.exp(regular - top) + math.exp(outlier - top))
    r = math.exp(regular - log_p)
    r = r if r > FAINTEST else 0.0
    return (log_p if scoring.weigh_regimes else log_plain), r, r


@bare
def log_weight2(kind: int, z: float, threshold: float) -> float:
    """log w^2 as scores use it: finite for every finite z."""
    u = z / threshold
    if kind in (NONE, CONTAMINATION) or u == 0.0:
        return 0.0
    if kind == IMQ:
        return -2.0 * math.log(u) if u > 1e8 else -math.log1p(u * u)
    return -2.0 * math.log(u) if u > 1.0 else 0.0


@bare
def update_weight2(kind: int, z: float, threshold: float) -> float:
    """w^2 as parameter updates use it."""
    if kind == MAHALANOBIS:
        return 1.0 if z <= threshold else 0.0
    w2 = math.exp(log_weight2(kind, z, threshold))
    return w2 if w2 > FAINTEST else 0.0


@bare
def log_score(z: float, log_scale: float, log_w2: float, dim: int) -> float:
    """D1: log N(y; yhat, S / w^2), which rescaling y shifts equally for every regime."""
    squared = math.exp(2.0 * math.log(z) + log_w2) if z > 0.0 else 0.0
    return -0.5 * (dim * (math.log(2.0 * math.pi) - log_w2) + squared) - log_scale


@bare
def log_normal(z: float, log_scale: float, dim: int) -> float:
    """Log density of a Gaussian at a residual of length z, log_scale = log det S / 2."""
    return -0.5 * (dim * math.log(2.0 * math.pi) + z * z) - log_scale


@bare
def log_broad(z: float, log_scale: float, dim: int) -> float:
    """log q of a residual of length z under q's scale matrix, log_scale = log det / 2."""
    half = 0.5 * (BROAD_DOF + dim)
    constant = math.lgamma(half) - math.lgamma(0.5 * BROAD_DOF)
    constant -= 0.5 * dim * math.log(BROAD_DOF * math.pi)
    far = 2.0 * math.log(z) - math.log(BROAD_DOF) if z > 1e8 else math.log1p(z * z / BROAD_DOF)
    return constant - log_scale - half * far


@bare
def factorise(matrix: np.ndarray, seen: np.ndarray, out_lower: np.ndarray) -> float:
    """Cholesky factor of the seen block of a covariance; returns log det / 2."""
    log_det = 0.0
    for i in range(seen.size):
        for j in range(i + 1):
            value = matrix[seen[i], seen[j]]
            for b in range(j):
                value -= out_lower[i, b] * out_lower[j, b]
            if i == j:
                out_lower[i, i] = math.sqrt(value)
                log_det += math.log(out_lower[i, i])
            else:
                out_lower[i, j] = value / out_lower[j, j]
    return log_det
