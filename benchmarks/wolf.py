"""One weighted Kalman filter (WoLF) over a stream, compiled: the floor under any model here."""

from __future__ import annotations

import math

import numba
import numpy as np


@numba.njit
def run(
    y: np.ndarray, X: np.ndarray, noise: float, prior_var: float, threshold: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One-step means, variances and log scores of y (n,) on X (n, m)."""
    n, m = X.shape
    mean, cov, along = np.zeros(m), prior_var * np.eye(m), np.empty(m)
    location, spread, log_score = np.empty(n), np.empty(n), np.empty(n)
    for t in range(n):
        expected, variance = 0.0, noise
        for i in range(m):
            along[i] = 0.0
            for j in range(m):
                along[i] += cov[i, j] * X[t, j]
            variance += along[i] * X[t, i]
            expected += mean[i] * X[t, i]
        residual = y[t] - expected
        squared = residual * residual / variance
        location[t], spread[t] = expected, variance
        log_score[t] = -0.5 * (math.log(2.0 * math.pi * variance) + squared)
        total = variance - noise + noise * (1.0 + squared / threshold**2)
        for i in range(m):
            mean[i] += along[i] * residual / total
            for j in range(m):
                cov[i, j] -= along[i] * along[j] / total
    return location, spread, log_score
