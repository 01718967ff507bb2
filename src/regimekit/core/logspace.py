"""Sums of exponentials that neither overflow nor underflow.

    logsumexp(a) = max(a) + log sum exp(a - max(a))

The maximum is taken over exactly what is summed: one over a larger set can underflow to 0/0.
"""

from __future__ import annotations

import math

import numpy as np

from regimekit._numba import bare


@bare
def logsumexp(values: np.ndarray, n: int) -> float:
    """log sum exp of the first `n` entries; -inf for an empty or impossible set."""
    top = -np.inf
    for k in range(n):
        top = max(top, values[k])
    if top == -np.inf:
        return top
    total = 0.0
    for k in range(n):
        total += math.exp(values[k] - top)
    return top + math.log(total)


@bare
def normalise(log_values: np.ndarray, n: int, out_shares: np.ndarray) -> float:
    """Write shares proportional to exp(log_values); return the log of their sum."""
    total = logsumexp(log_values, n)
    for k in range(n):
        out_shares[k] = math.exp(log_values[k] - total) if total > -np.inf else 1.0 / n
    return total


@bare
def draw_index(shares: np.ndarray, n: int, uniform: float) -> int:
    """The index whose cumulative share first exceeds `uniform` (shares sum to one)."""
    cumulative = 0.0
    last = 0
    for k in range(n):
        if shares[k] > 0.0:
            last = k
            cumulative += shares[k]
            if uniform < cumulative:
                return k
    return last
