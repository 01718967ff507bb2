"""A GARCH(1, 1) recursion under a cloud of points: what each of them says of an observation.

A point is (omega, a, b) with the variance sigma^2 of the next observation under it; the emission's
module says why, and what a weight does to score and recursion (kappa and lambda, `Correction`).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from regimekit._numba import kernel
from regimekit.ihmm.weights import (
    CONTAMINATION,
    IMQ,
    LONGEST,
    MAHALANOBIS,
    Broad,
    Scoring,
    judge_mixture,
    log_weight2,
    update_weight2,
)

SMALLEST, _LARGEST = 1e-300, 1e300  # variances
_LEAST_SCORE = 1e-6  # kappa of a threshold so small that nothing is inside it
_REACH = 60.0  # a log long-run variance stays this near the prior's
_LOGIT_REACH = 12.0  # a + b up to 1 - 6e-6


class Correction(NamedTuple):
    """What the weight takes from a Gaussian's spread: kappa of the score, lambda of the driver."""

    score: float
    driver: float


class Impression(NamedTuple):
    """One observation as each point of a cloud sees it, (J,) each."""

    plain: np.ndarray
    cautious: np.ndarray
    w2: np.ndarray
    believed: np.ndarray


def correction(scoring: Scoring) -> Correction:
    """kappa and lambda of a weight under Gaussian noise.

    With V = sigma^2 / w^2 and e = d log V / d log sigma^2 (w^2 for imq, 1 inside c and 0 beyond
    for the others), the score's expected slope is zero when kappa = E[e w^2 z^2] / E[e].
    """
    z = (np.arange(4000) + 0.5) * 0.003
    chance = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    kind, c = scoring.kind, scoring.threshold
    w2 = np.exp([log_weight2(kind, length, c) for length in z])
    slope = chance * (w2 if kind == IMQ else w2 == 1.0)
    said = chance * [update_weight2(kind, length, c) for length in z]
    score = slope @ (w2 * z**2) / max(slope.sum(), SMALLEST)
    driver = chance[said > 0].sum() / max(said @ z**2, SMALLEST)
    return Correction(max(float(score), _LEAST_SCORE), float(driver))


@kernel
def impress(
    variance: np.ndarray,
    y: float,
    scoring: Scoring,
    broad: Broad,
    correction: Correction,
    out: Impression,
) -> None:
    """What every point makes of y: its log likelihoods, w^2, and the share of y^2 it believes."""
    half_log = 0.5 * math.log(2.0 * math.pi)
    stretch = 0.5 * math.log(correction.score)
    for j in range(variance.size):
        z = min(abs(y) / math.sqrt(variance[j]), LONGEST)
        base = -half_log - 0.5 * math.log(variance[j])
        out.plain[j] = base - 0.5 * z * z
        if scoring.kind == CONTAMINATION:
            out.cautious[j], r, _ = judge_mixture(scoring, broad, out.plain[j], 0)
            out.w2[j] = r
            out.believed[j] = r * z * z + (1.0 - r) if r > 0.0 else 1.0
            continue
        log_w2 = log_weight2(scoring.kind, z, scoring.threshold)
        w2 = math.exp(log_w2) if log_w2 < 0.0 else 1.0
        out.cautious[j] = base - stretch + 0.5 * (log_w2 - w2 * z * z / correction.score)
        out.believed[j] = correction.driver * w2 * z * z
        out.w2[j] = w2
        if scoring.kind == MAHALANOBIS and z > scoring.threshold:
            out.w2[j], out.believed[j] = 0.0, 1.0


@kernel
def summary(variance: np.ndarray, log_weight: np.ndarray) -> tuple[float, float]:
    """Scale and dof of the t with the mixture's moments.

    Its kurtosis 3 E[s^2] / E[s]^2 is 3 (dof - 2) / (dof - 4).
    """
    mean, squares = 0.0, 0.0
    for j in range(variance.size):
        mean += math.exp(log_weight[j]) * variance[j]
    for j in range(variance.size):
        squares += math.exp(log_weight[j]) * (variance[j] / mean - 1.0) ** 2
    dof = 4.0 + 2.0 / squares if squares > 1e-6 else np.inf
    return mean * (1.0 - 2.0 / dof), dof


@kernel
def average(log_weight: np.ndarray, values: np.ndarray) -> float:
    """Mean of values in (0, 1] over the cloud."""
    total = 0.0
    for j in range(values.size):
        total += math.exp(log_weight[j]) * values[j]
    return min(total, 1.0)


@kernel
def move_on(coefficients: np.ndarray, variance: np.ndarray, believed: np.ndarray) -> None:
    """The recursion of every point, in place; `believed` is y^2 / sigma^2 as far as trusted."""
    for j in range(variance.size):
        growth = coefficients[j, 1] * believed[j] + coefficients[j, 2]
        ahead = coefficients[j, 0] + growth * variance[j]
        variance[j] = min(max(ahead, SMALLEST), _LARGEST)


@kernel
def to_coordinates(coefficients: np.ndarray, variance: np.ndarray, out_points: np.ndarray) -> None:
    """x of every point (`regimekit.ihmm.emissions.garch`)."""
    for j in range(variance.size):
        omega, a, b = coefficients[j, 0], coefficients[j, 1], coefficients[j, 2]
        out_points[j, 0] = math.log(omega / (1.0 - a - b))
        out_points[j, 1] = math.log((a + b) / (1.0 - a - b))
        out_points[j, 2] = math.log(a / b)
        out_points[j, 3] = math.log(variance[j])


@kernel
def from_coordinates(
    points: np.ndarray, centre: float, out_coefficients: np.ndarray, out_variance: np.ndarray
) -> None:
    """The points with coordinates x, held where floats and a + b < 1 are safe."""
    for j in range(out_variance.size):
        level = math.exp(centre + min(max(points[j, 0] - centre, -_REACH), _REACH))
        lost = 1.0 / (1.0 + math.exp(min(max(points[j, 1], -_LOGIT_REACH), _LOGIT_REACH)))
        reaction = 1.0 / (1.0 + math.exp(-min(max(points[j, 2], -_LOGIT_REACH), _LOGIT_REACH)))
        out_coefficients[j, 0] = level * lost
        out_coefficients[j, 1] = (1.0 - lost) * reaction
        out_coefficients[j, 2] = (1.0 - lost) * (1.0 - reaction)
        out_variance[j] = math.exp(min(max(points[j, 3], -690.0), 690.0))


@kernel
def long_run(coefficients: np.ndarray, log_weight: np.ndarray) -> tuple[float, float]:
    """Mean and variance over the cloud of log omega / (1 - a - b)."""
    mean, square = 0.0, 0.0
    for j in range(log_weight.size):
        lost = 1.0 - coefficients[j, 1] - coefficients[j, 2]
        level = math.log(coefficients[j, 0] / lost)
        mean += math.exp(log_weight[j]) * level
        square += math.exp(log_weight[j]) * level * level
    return mean, max(square - mean * mean, 0.0)
