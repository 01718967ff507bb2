"""Several coordinates of one observation: whitened by the noise, then learnt one by one."""

from __future__ import annotations

import math

import numpy as np

from regimekit._numba import bare, kernel
from regimekit.core.loops import copy
from regimekit.ihmm.emissions.base import Sample
from regimekit.ihmm.emissions.linear import Steps, add_step, bounded, move_by, pass_through, squares
from regimekit.ihmm.weights import LONGEST


@bare
def whiten(
    sample: Sample,
    location: np.ndarray,
    projected: np.ndarray,
    out_residual: np.ndarray,
    out_lines: np.ndarray,
) -> None:
    """Residuals and A' F' of the seen coordinates in units where the noise is the identity."""
    n = sample.seen.size
    for j in range(n):
        at = sample.seen[j]
        out_residual[j] = min(max(sample.y[at], -LONGEST), LONGEST) - location[at]
        copy(projected[at], out_lines[j])
        for b in range(j):
            out_residual[j] -= sample.lower[j, b] * out_residual[b]
            for a in range(out_lines.shape[1]):
                out_lines[j, a] -= sample.lower[j, b] * out_lines[b, a]
        out_residual[j] /= sample.lower[j, j]
        out_residual[j] = min(max(out_residual[j], -LONGEST / n), LONGEST / n)
        for a in range(out_lines.shape[1]):
            out_lines[j, a] /= sample.lower[j, j]


@kernel
def trial(
    steps: Steps, g: int, k: int, residual: np.ndarray, lines: np.ndarray
) -> tuple[float, float]:
    """Length of the whitened residual under S = P P' + I, and log det S / 2, by the chain rule.

    Each coordinate is conditioned on those before it by steps that the caller takes back.
    """
    first = steps.taken[g, k]
    squared, log_det = 0.0, 0.0
    v, moved = np.empty(lines.shape[1]), np.empty(1)
    for j in range(residual.size):
        copy(lines[j], v)
        moved[0] = 0.0
        pass_through(steps, g, k, first, v, moved)
        left = residual[j] - moved[0]
        variance = 1.0 + squares(v)
        length = min(abs(left) / math.sqrt(variance), LONGEST / residual.size)
        squared += length * length
        log_det += 0.5 * math.log(variance)
        move_by(steps, g, k, 0, add_step(steps, g, k, v, 1.0) * bounded(left))
    return min(math.sqrt(squared), LONGEST), log_det


@kernel
def in_turn(
    steps: Steps, g: int, k: int, residual: np.ndarray, lines: np.ndarray, noise: float
) -> None:
    """Learn whitened coordinates one by one."""
    first = steps.taken[g, k]
    moved = np.empty(1)
    for j in range(residual.size):
        moved[0] = 0.0
        pass_through(steps, g, k, first, lines[j], moved)
        left = bounded(residual[j] - moved[0])
        move_by(steps, g, k, 0, add_step(steps, g, k, lines[j], noise) * left)
