"""Stacks of small matrices, as the bounds need them; covariances in units of the noise."""

from __future__ import annotations

import numpy as np

from regimekit.ihmm.emissions.base import Array


def times(share: Array, value: Array | float) -> Array:
    """share * value where a share of 0 beats a value of infinity."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(share > 0, share * value, 0.0))


def squares(a: Array) -> Array:
    """A A' of each row."""
    return np.asarray(a @ a.transpose(0, 2, 1))


def information(a: Array) -> Array:
    """A' A of each row."""
    return np.asarray(a.transpose(0, 2, 1) @ a)


def largest(symmetric: Array) -> Array:
    """Largest eigenvalue, not below 0, of each matrix of a stack."""
    if symmetric.shape[-1] == 1:
        return np.asarray(np.maximum(symmetric[..., 0, 0], 0.0))
    return np.asarray(np.maximum(eigenvalues(symmetric)[..., -1], 0.0))


def eigenvalues(symmetric: Array) -> Array:
    """In ascending order, of each matrix of a stack."""
    return np.asarray(np.linalg.eigvalsh(symmetric), np.float64)


def log_det(stack: Array) -> Array:
    """log |V| of each covariance of a stack."""
    return np.asarray(np.linalg.slogdet(stack)[1])


def push(leverage: Array, predictive: bool) -> Array:
    """phi(h): the largest squared move of a mean in one step, per unit of C.

    z measured under the predictive S: (h + 1) / 4, or h / (1 + h) for h < 1. Under the noise
    alone (D2 off): 1 / 4, or h / (1 + h)^2.
    """
    if predictive:
        return np.where(leverage >= 1, (leverage + 1) / 4, leverage / (1 + leverage))
    return np.where(leverage >= 1, 0.25, leverage / (1 + leverage) ** 2)
