"""Draw ancestors in proportion to the particles' weights."""

from __future__ import annotations

import math

import numpy as np

from regimekit._numba import bare, kernel
from regimekit.core.loops import copy

SYSTEMATIC, STRATIFIED, MULTINOMIAL = range(3)
SCHEMES = {"systematic": SYSTEMATIC, "stratified": STRATIFIED, "multinomial": MULTINOMIAL}


@bare
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
    for i in range(n):
        points[i] = rng.random() if i == 0 or scheme != SYSTEMATIC else points[0]
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


@kernel
def copy_each(array: np.ndarray, first: int, parents: np.ndarray) -> None:
    """array[first + i] <- array[first + parents[i]]."""
    before = np.empty(parents.size, array.dtype)
    copy(array[first : first + parents.size], before)
    for i in range(parents.size):
        array[first + i] = before[parents[i]]


@kernel
def copy_slots(array: np.ndarray, first: int, parents: np.ndarray, width: int) -> None:
    """The same for the first `width` entries of each row."""
    before = np.empty((parents.size, width), array.dtype)
    for i in range(parents.size):
        for l in range(width):
            before[i, l] = array[first + i, l]
    for i in range(parents.size):
        for l in range(width):
            array[first + i, l] = before[parents[i], l]


@kernel
def copy_counts(counts: np.ndarray, first: int, parents: np.ndarray, width: int) -> None:
    """The same for the transition counts."""
    before = np.empty((parents.size, width, width), counts.dtype)
    for i in range(parents.size):
        for l in range(width):
            for k in range(width):
                before[i, l, k] = counts[first + i, l, k]
    for i in range(parents.size):
        if parents[i] != i:
            for l in range(width):
                for k in range(width):
                    counts[first + i, l, k] = before[parents[i], l, k]
