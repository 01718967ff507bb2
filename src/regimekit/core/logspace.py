"""Sums of exponentials that neither overflow nor underflow.

    logsumexp(a) = max(a) + log sum exp(a - max(a))

The maximum is taken over exactly what is summed: one over a larger set can underflow to 0/0.
"""

from __future__ import annotations

import cython
from cython.cimports.libc.math import exp, log, log1p

INF = cython.declare(cython.double, float("inf"))


def logsumexp(values, first, n):
    """Return log sum exp of the `n` entries of `values` from `first` on; -inf for an empty set."""
    top: cython.double = -INF
    for k in range(first, first + n):
        if values[k] > top:
            top = values[k]
    if top == -INF:
        return top
    total: cython.double = 0.0
    for k in range(first, first + n):
        total += exp(values[k] - top)
    return top + log(total)


def logaddexp(a, b):
    """Return log(exp(a) + exp(b))."""
    if b == -INF:
        return a
    if a < b:
        a, b = b, a
    return a + log1p(exp(b - a))


def normalize(log_values, n, out_shares):
    """Write shares proportional to exp of the first `n` values; return the log of their sum."""
    total: cython.double = logsumexp(log_values, 0, n)
    for k in range(n):
        out_shares[k] = exp(log_values[k] - total) if total > -INF else 1.0 / n
    return total


def draw_index(shares, n, uniform):
    """Return the index whose cumulative share first exceeds `uniform`, for `n` shares."""
    cumulative: cython.double = 0.0
    last: cython.Py_ssize_t = 0
    for k in range(n):
        if shares[k] > 0.0:
            last = k
            cumulative += shares[k]
            if uniform < cumulative:
                return k
    return last
