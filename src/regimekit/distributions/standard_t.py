"""Density of the standard Student t, for kernels."""

from __future__ import annotations

import cython
from cython.cimports.libc.math import exp, isinf, log, log1p, sqrt

_LOG_ROOT = cython.declare(cython.double, 0.91893853320467274178)
_MANY = cython.declare(cython.double, 30.0)


def log_peak(dof):
    """Return the log density of a standard t at its centre.

    log Gamma((n + 1) / 2) - log Gamma(n / 2) by Stirling's series, where n was made large by
    Gamma(a + 1) = a Gamma(a): the difference of two log-gammas would lose digits.
    """
    if isinf(dof):
        return -_LOG_ROOT
    above: cython.double = 1.0
    below: cython.double = 1.0
    n: cython.double = dof
    while n < _MANY:
        above *= n
        below *= n + 1.0
        n += 2.0
    r: cython.double = 1.0 / n
    r2: cython.double = r * r
    series: cython.double = r * (
        -1.0 / 4.0
        + r2 * (1.0 / 24.0 + r2 * (-1.0 / 20.0 + r2 * (17.0 / 112.0 - r2 * (31.0 / 36.0))))
    )
    return log(above / below * sqrt(n / dof)) + series - _LOG_ROOT


def log_growth(z, dof):
    """Return log(1 + z^2 / n), also where the square is too large for a float."""
    ratio: cython.double = z / dof
    if ratio > 1e150 or z * ratio > 1e300:
        return 2.0 * log(z) - log(dof)
    return log1p(z * ratio)


def log_standard(z, dof):
    """Return the log density of a standard t at z >= 0 (Gaussian for dof = inf)."""
    if isinf(dof):
        return -0.5 * z * z - _LOG_ROOT
    return log_peak(dof) - 0.5 * (dof + 1.0) * log_growth(z, dof)


def log_add(a, b):
    """Return log(exp(a) + exp(b))."""
    gap: cython.double = a - b
    if a == b:
        return a + 0.69314718055994530942
    if gap > 0.0:
        return a + log1p(exp(-gap))
    return b + log1p(exp(gap))
