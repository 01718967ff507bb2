"""Draw ancestors in proportion to the particles' weights."""

from __future__ import annotations

import math

import numpy as np

from holdfast._numba import kernel

SYSTEMATIC, STRATIFIED, MULTINOMIAL = range(3)
SCHEMES = {"systematic": SYSTEMATIC, "stratified": STRATIFIED, "multinomial": MULTINOMIAL}


@kernel
def effective_sample_size(log_weight: np.ndarray) -> float:
    """1 / sum omega^2 of normalised log weights (Eq. ess)."""
    total = 0.0
    for i in range(log_weight.size):
        total += math.exp(2.0 * log_weight[i])
    return 1.0 / total


@kernel
def ancestors(log_weight: np.ndarray, scheme: int, rng: np.random.Generator) -> np.ndarray:
    """Index of each new particle's parent, in ascending order."""
    n = log_weight.size
    points = np.empty(n)
    if scheme == SYSTEMATIC:
        points[:] = rng.random()
    else:
        for i in range(n):
            points[i] = rng.random()
    if scheme == MULTINOMIAL:
        points.sort()
    else:
        for i in range(n):
            points[i] = (points[i] + i) / n
    return select(log_weight, points)


@kernel
def select(log_weight: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The particle whose share of the unit interval holds each of the ascending points."""
    n = log_weight.size
    parents = np.empty(n, np.int64)
    parent, cumulative = 0, math.exp(log_weight[0])
    for i in range(n):
        while points[i] >= cumulative and parent < n - 1:
            parent += 1
            cumulative += math.exp(log_weight[parent])
        parents[i] = parent
    return parents
