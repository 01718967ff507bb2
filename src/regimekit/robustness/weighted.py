"""What any contamination can do under a weight: IMQ, Huber, Mahalanobis.

Admissible weights lie between a / (1 + z^2/c^2) and A / (1 + z^2/c^2) with w^2 <= 1, and
w^2 z^2 <= C. Then, whatever is observed from some position of the batch on,

    score_k - score_l  <=  G_kl = sum_b [C + d log(A/a) + d log Lambda_kl + log |S_l| / |S_k|] / 2
    |mean moved|       <=  tau  = sum_b sqrt(C phi(h_b))            in prior standard deviations

docs/robustness.md has the proofs; the names are those used there.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.ihmm.emissions.base import Array
from regimekit.ihmm.weights import IMQ, NONE, Scoring
from regimekit.robustness.shapes import information, largest, log_det, push, squares, times


class Stage(NamedTuple):
    """K rows of one island before the first observation that may be contaminated.

    Attributes:
        scoring: how observations are weighed.
        mean: (K, m) and `root` (K, m, m) of the rows now.
        start_mean: (K, m) and `start_root` (K, m, m) of the rows as the batch began (D4).
        fresh: (K,) whether a row has learnt nothing before this batch (D3).
        designs: F of every observation that may be contaminated, in units of the noise.
        log_noise: log |R|.
    """

    scoring: Scoring
    mean: Array
    root: Array
    start_mean: Array
    start_root: Array
    fresh: NDArray[np.bool_]
    designs: list[Array]
    log_noise: float


class Admissible(NamedTuple):
    """Constants of a weight: lower a and upper A of w^2 (1 + z^2/c^2), and C = sup w^2 z^2."""

    lower: float
    upper: float
    product: float


def admissible(scoring: Scoring) -> Admissible:
    """The constants of a weight of `regimekit.ihmm.weights`; C is infinite where nothing is bounded."""
    if scoring.kind == NONE or math.isinf(scoring.threshold):
        return Admissible(1.0, 1.0, math.inf)
    return Admissible(1.0, 1.0 if scoring.kind == IMQ else 2.0, scoring.threshold**2)


def stretch(ratio: Array, gap: Array) -> Array:
    """Lambda(rho, D) = sup over u >= 0 of (1 + (sqrt(rho) u + D)^2) / (1 + u^2).

    The quotient is a quadratic form in (1, u), so its supremum is a 2 x 2 eigenvalue.
    """
    total = 1.0 + gap**2 + ratio
    root = np.hypot(1.0 + gap**2 - ratio, 2.0 * np.sqrt(ratio) * gap)
    return np.asarray(0.5 * (total + root))


def reach(stage: Stage) -> Array:
    """(n + 1, K): tau, how far each row's mean can have moved before each observation.

    In standard deviations of the row as the contamination begins.
    """
    scoring, product = stage.scoring, admissible(stage.scoring).product
    moved = np.zeros((len(stage.designs) + 1, stage.fresh.size))
    for b, design in enumerate(stage.designs):
        leverage = largest(squares(design @ stage.root))
        if scoring.sequential:
            step = times(np.sqrt(push(leverage, scoring.predictive)), math.sqrt(product))
        else:  # D4 off: the weight looks at the row as the batch began, the update does not
            before = 1 + largest(squares(design @ stage.start_root)) if scoring.predictive else 1.0
            behind = np.linalg.norm((stage.start_mean - stage.mean) @ design.T, axis=1)
            seen = math.sqrt(product) * np.sqrt(before) + behind + np.sqrt(leverage) * moved[b]
            step = times(np.sqrt(push(leverage, False)), seen)
        moved[b + 1] = moved[b] + step
    if not scoring.weigh_births:  # D3 off: a newborn follows whatever it sees
        moved[1:, stage.fresh] = math.inf
    return moved


def score_gaps(stage: Stage, moved: Array) -> Array:
    """(K, K): G_kl, an upper bound on score_k - score_l over the contaminated observations."""
    scoring = stage.scoring
    if not scoring.weigh_regimes or math.isinf(admissible(scoring).product):
        return np.full((stage.fresh.size,) * 2, math.inf)
    mean, root = stage.mean, stage.root
    if not scoring.sequential:
        mean, root, moved = stage.start_mean, stage.start_root, np.zeros_like(moved)
    gaps = np.zeros((stage.fresh.size,) * 2)
    shrunk = np.broadcast_to(np.eye(mean.shape[1]), root.shape).copy()
    for b, design in enumerate(stage.designs):
        box = Box.of(mean, root, design, shrunk, moved[b])
        gaps += _unit_free_gap(box, scoring) if scoring.unit_free else _paper_gap(box, stage)
        if scoring.sequential:
            shrunk += information(design @ root)
    return gaps


class Box(NamedTuple):
    """What one observation's predictive can be, for K rows, in units of the noise.

    Attributes:
        location: (K, d) prediction as the contamination began.
        low: (K, d, d) least predictive covariance: every observation fully believed.
        high: (K, d, d) greatest: none believed.
        reach: (K,) how far the mean may have moved.
    """

    location: Array
    low: Array
    high: Array
    reach: Array

    @classmethod
    def of(cls, mean: Array, root: Array, design: Array, shrunk: Array, moved: Array) -> Box:
        """From the rows as the contamination began and the precision gained since, if believed."""
        seen = design @ root  # (K, d, m)
        unit = np.eye(design.shape[0])
        least = seen @ np.linalg.solve(shrunk, seen.transpose(0, 2, 1))
        return cls(mean @ design.T, unit + least, unit + squares(seen), moved)


def _unit_free_gap(box: Box, scoring: Scoring) -> Array:
    """G_kl of one observation under the score log N(y; yhat, S / w^2) (D1)."""
    dim = box.low.shape[1]
    constants = admissible(scoring)
    unit = np.eye(dim)
    metric = box.low if scoring.predictive else np.broadcast_to(unit, box.low.shape)
    # Residuals of l are measured by metric_l or more, so their length is at most this one.
    factor = np.asarray(np.linalg.cholesky(metric), np.float64)
    apart = box.location[:, None] - box.location[None]
    distance = np.linalg.norm(_whitened(factor, apart[..., None])[..., 0], axis=-1)
    wander = np.sqrt(largest(_conjugate(factor, box.high - unit)))  # (k, l)
    moved = times(wander, box.reach[:, None]) + times(np.diagonal(wander), box.reach)[None]
    gap = (distance + moved) / scoring.threshold
    ratio = largest(_conjugate(factor, box.high)) if scoring.predictive else np.ones_like(gap)
    volume = log_det(box.high)[None] - log_det(box.low)[:, None]
    spread = math.log(constants.upper / constants.lower)
    tail = np.log(stretch(ratio, gap))
    return np.asarray(0.5 * (constants.product + dim * (spread + tail) + volume))


def _paper_gap(box: Box, stage: Stage) -> Array:
    """G_kl of one observation under the score w^2 log N(y; yhat, S): each score has a range."""
    constant = box.low.shape[1] * math.log(2 * math.pi) + stage.log_noise
    highest = 0.5 * np.maximum(-(constant + log_det(box.low)), 0.0)
    product = admissible(stage.scoring).product
    lowest = -0.5 * (np.maximum(constant + log_det(box.high), 0.0) + product)
    return np.asarray(highest[:, None] - lowest[None])


def _whitened(factor: Array, columns: Array) -> Array:
    """L_l^-1 columns_kl for every pair (k, l)."""
    factors = np.broadcast_to(factor, (len(columns), *factor.shape))
    return np.asarray(np.linalg.solve(factors, columns))


def _conjugate(factor: Array, covariance: Array) -> Array:
    """L_l^-1 V_k L_l^-T for every pair (k, l)."""
    k, dim = len(covariance), covariance.shape[1]
    pairs = np.broadcast_to(covariance[:, None], (k, k, dim, dim))
    half = _whitened(factor, pairs)
    return _whitened(factor, half.transpose(0, 1, 3, 2))
