"""Copies as plain loops.

`a[i] = b` on arrays makes Numba write checks of shapes with their messages, which take longer to
compile than a kernel; these copy what is known to fit.
"""

from __future__ import annotations

import numpy as np

from regimekit._numba import bare


@bare
def copy(source: np.ndarray, out: np.ndarray) -> None:
    """out <- source, (n,) each."""
    for i in range(source.size):
        out[i] = source[i]


@bare
def copy_matrix(source: np.ndarray, out: np.ndarray) -> None:
    """out <- source, (n, m) each."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            out[i, j] = source[i, j]


@bare
def fill(out: np.ndarray, n: int, value: float) -> None:
    """The first n entries of out <- value."""
    for i in range(n):
        out[i] = value


@bare
def add_matrix(source: np.ndarray, factor: float, out: np.ndarray) -> None:
    """out <- out + factor * source, (n, m) each."""
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            out[i, j] += factor * source[i, j]
