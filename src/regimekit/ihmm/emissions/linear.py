"""A batch of scalar observations of a linear row, learnt without touching its matrix.

A row holds coefficients theta ~ N(mu, A A'). Inside a batch each scalar y = f' theta + e with
noise variance R changes the root by one factor (Potter's formula),

    A <- A (I - s u u'),   u = A' f,   gain = 1 / (u'u + R),   s = gain / (1 + sqrt(gain R))
    mu += A u gain (y - f' mu)

so a candidate is its row and a short list of (u, s, gain * residual): the *steps*. The current
A' f is the row's A' f passed through the steps, in O(steps x m). The matrix itself is read once
per observation and written only for candidates that are chosen, at the end of the batch.
Positive definite by construction, however long the stream and however small R.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from regimekit._numba import bare, kernel
from regimekit.core.loops import copy

FARTHEST = 1e100  # residuals beyond this are taken for this


class Steps(NamedTuple):
    """Steps of every candidate (g, k) of a batch.

    Attributes:
        u: (G, K, S, m) direction of each step.
        shrink: (G, K, S) its s.
        gain: (G, K, S, c) gain times residual, for each of c sets of coefficients.
        taken: (G, K) steps so far.
        raw: (G, K, r, m) A' f of the next observation under the row as the batch began.
        ahead: (G, K, r, m) the same under the candidate.
    """

    u: np.ndarray
    shrink: np.ndarray
    gain: np.ndarray
    taken: np.ndarray
    raw: np.ndarray
    ahead: np.ndarray


def blank_steps(
    islands: int, candidates: int, longest: int, sets: int, rows: int, width: int
) -> Steps:
    """Room for `longest` steps of every candidate."""
    g, k = islands, candidates
    return Steps(
        u=np.zeros((g, k, longest, width)),
        shrink=np.zeros((g, k, longest)),
        gain=np.zeros((g, k, longest, sets)),
        taken=np.zeros((g, k), np.int64),
        raw=np.zeros((g, k, rows, width)),
        ahead=np.zeros((g, k, rows, width)),
    )


@bare
def dot(u: np.ndarray, v: np.ndarray) -> float:
    """u'v in four running sums, which the processor adds up side by side."""
    n = u.size
    whole = n - n % 4
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(0, whole, 4):
        a += u[i] * v[i]
        b += u[i + 1] * v[i + 1]
        c += u[i + 2] * v[i + 2]
        d += u[i + 3] * v[i + 3]
    for i in range(whole, n):
        a += u[i] * v[i]
    return (a + b) + (c + d)


@bare
def project(root: np.ndarray, f: np.ndarray, out_v: np.ndarray) -> None:
    """v = root' f, so that f' A A' f = v'v."""
    m = f.size
    for b in range(m):
        out_v[b] = 0.0
    for a in range(m):
        if f[a] != 0.0:
            for b in range(m):
                out_v[b] += f[a] * root[a, b]


@bare
def pass_through(
    steps: Steps, g: int, k: int, first: int, v: np.ndarray, out_moved: np.ndarray
) -> None:
    """v <- v under the candidate's root, from step `first` on, in place; adds f' (mu moved)."""
    for b in range(first, steps.taken[g, k]):
        u = steps.u[g, k, b]
        along = dot(u, v)
        for j in range(out_moved.size):
            out_moved[j] += steps.gain[g, k, b, j] * along
        along *= steps.shrink[g, k, b]
        for a in range(v.size):
            v[a] -= along * u[a]


@bare
def add_step(steps: Steps, g: int, k: int, v: np.ndarray, noise: float) -> float:
    """Learn one scalar with noise variance `noise`; v is A' f of that scalar, now.

    Returns the gain; `move_by` takes what it makes of the residual of each set of coefficients.
    """
    gain = 1.0 / (squares(v) + noise)
    b = steps.taken[g, k]
    copy(v, steps.u[g, k, b])
    steps.shrink[g, k, b] = gain / (1.0 + math.sqrt(gain * noise))
    steps.taken[g, k] = b + 1
    return gain


@bare
def move_by(steps: Steps, g: int, k: int, j: int, moved: float) -> None:
    """The last step moves the j-th set of coefficients by gain times residual."""
    steps.gain[g, k, steps.taken[g, k] - 1, j] = moved


@bare
def apply_steps(
    steps: Steps, g: int, k: int, root: np.ndarray, out_mean: np.ndarray, out_root: np.ndarray
) -> None:
    """Root and means (c, m) after the steps; the matrix is passed over once."""
    m = root.shape[0]
    for a in range(m):
        line = out_root[a]
        copy(root[a], line)
        for b in range(steps.taken[g, k]):
            u = steps.u[g, k, b]
            along = dot(line, u)
            for j in range(out_mean.shape[0]):
                out_mean[j, a] += along * steps.gain[g, k, b, j]
            along *= steps.shrink[g, k, b]
            for j in range(m):
                line[j] -= along * u[j]


@bare
def bounded(residual: float) -> float:
    """A residual whose square still fits a float, and whose length stays below LONGEST.

    Were lengths cut off too, regimes with a smaller S would be cut off sooner, and an outlier
    beyond all measure would tell regimes apart.
    """
    return min(max(residual, -FARTHEST), FARTHEST)


@bare
def squares(v: np.ndarray) -> float:
    """v'v."""
    return dot(v, v)


@bare
def beyond_chance(squared: float, n: int) -> float:
    """How far the largest of n standardised distances exceeds what chance alone would give."""
    return max(0.0, math.sqrt(squared) - math.sqrt(2.0 * math.log(float(n))))


@kernel
def add_covariance(root: np.ndarray, noise: float, out: np.ndarray) -> None:
    """out <- out + noise root root', below and on the diagonal."""
    for i in range(root.shape[0]):
        for j in range(i + 1):
            out[i, j] += noise * dot(root[i], root[j])


@kernel
def mahalanobis(cover: np.ndarray, gap: np.ndarray) -> float:
    """gap' cover^-1 gap by a Cholesky factor, in place; directions that rounding ate are left out.

    Of n coefficients that differ by chance alone its root is about sqrt(n - 1) or less.
    """
    total = 0.0
    for i in range(gap.size):
        variance = cover[i, i]
        for j in range(i):
            rest = cover[i, j]
            for k in range(j):
                rest -= cover[i, k] * cover[j, k]
            cover[i, j] = rest / cover[j, j] if cover[j, j] > 0.0 else 0.0
            variance -= cover[i, j] * cover[i, j]
            gap[i] -= cover[i, j] * gap[j]
        whole = variance > 1e-12 * cover[i, i]
        cover[i, i] = math.sqrt(variance) if whole else 0.0
        gap[i] = gap[i] / cover[i, i] if whole else 0.0
        total += gap[i] * gap[i]
    return total


@bare
def beyond_chance_anyhow(squared: float, n: int) -> float:
    """How far the distance along the worst direction of n exceeds what chance alone would give."""
    return max(0.0, math.sqrt(squared) - math.sqrt(float(n - 1)))
