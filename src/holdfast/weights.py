"""How much one observation may say.

A weight is a function of the residual's length z in standard deviations, with c the threshold:

    none          w^2 = 1
    imq           w^2 = 1 / (1 + z^2 / c^2)
    huber         w^2 = min(1, c^2 / z^2)
    mahalanobis   w^2 = 1 if z <= c else 0

All but `none` keep w^2 and w^2 z^2 bounded, which is what bounds an outlier's influence.
Under `mahalanobis` the update is skipped beyond c; a score of -inf for one regime alone would
be no honest comparison, so scores use the Huber weight there.

Everything is computed from z, not z^2, and in logs: z of 1e150 must not overflow.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from holdfast._numba import kernel
from holdfast.errors import unknown

NONE, IMQ, HUBER, MAHALANOBIS, CONTAMINATION = range(5)
WEIGHTS = {
    "none": NONE, "imq": IMQ, "huber": HUBER, "mahalanobis": MAHALANOBIS,
    "contamination": CONTAMINATION,
}  # fmt: skip

LONGEST = 1e150  # residual lengths beyond this say nothing more; its square is still finite
FAINTEST = 1e-280  # weights below this cannot move a parameter; R / w^2 above it is still finite


class Caution(NamedTuple):
    """How carefully an emission scores and learns; the deviations D1..D4 as switches.

    Attributes:
        kind: one of the codes above.
        threshold: c, in standard deviations.
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
    rate: float = 0.0
    log_broad: float = 0.0


def weight_code(name: object) -> int:
    """The code of a weight by name."""
    if not isinstance(name, str) or name not in WEIGHTS:
        raise unknown("weight", name, WEIGHTS)
    return WEIGHTS[name]


@kernel
def log_weight2(kind: int, z: float, threshold: float) -> float:
    """log w^2 as scores use it: finite for every finite z."""
    u = z / threshold
    if kind == CONTAMINATION:
        return 0.0
    if kind == NONE or u == 0.0:
        return 0.0
    if kind == IMQ:
        return -2.0 * math.log(u) if u > 1e8 else -math.log1p(u * u)
    return -2.0 * math.log(u) if u > 1.0 else 0.0


@kernel
def contaminated(log_density: float, rate: float, log_broad: float) -> tuple[float, float]:
    """log p = log((1 - eps) f + eps q), and the responsibility r = (1 - eps) f / p."""
    regular = math.log1p(-rate) + log_density
    broad = math.log(rate) + log_broad
    top = max(regular, broad)
    log_p = top + math.log(math.exp(regular - top) + math.exp(broad - top))
    r = math.exp(regular - log_p)
    return log_p, (r if r > FAINTEST else 0.0)


@kernel
def update_weight2(kind: int, z: float, threshold: float) -> float:
    """w^2 as parameter updates use it."""
    if kind == MAHALANOBIS:
        return 1.0 if z <= threshold else 0.0
    w2 = math.exp(log_weight2(kind, z, threshold))
    return w2 if w2 > FAINTEST else 0.0


@kernel
def log_score(z: float, log_scale: float, log_w2: float, dim: int, unit_free: bool) -> float:
    """Pseudo log-likelihood of a residual of length z under S, log_scale = log det S / 2.

    D1: log N(y; yhat, S / w^2), which rescaling y shifts equally for every regime;
    the paper's w^2 log N(y; yhat, S) otherwise.
    """
    if unit_free:
        squared = math.exp(2.0 * math.log(z) + log_w2) if z > 0.0 else 0.0
        return -0.5 * (dim * (math.log(2.0 * math.pi) - log_w2) + squared) - log_scale
    plain = -0.5 * (dim * math.log(2.0 * math.pi) + z * z) - log_scale
    return math.exp(log_w2) * plain
