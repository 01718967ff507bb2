"""Making, growing, copying and packing the particles' arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import SnapshotError
from holdfast.hdp import LEAST, START, Concentration, Particles, log_stick_rest

_FIRST_SLOTS = 8


def initial(n: int, prior: Concentration, open_first: bool, rng: np.random.Generator) -> Particles:
    """N particles with alpha, gamma from their priors.

    With the start row (D6) nothing is open yet and the first batch opens regime 1. Without it
    regime 1 exists from the beginning, with a share beta_1 ~ Beta(1, gamma).
    """
    c = _FIRST_SLOTS
    alpha = np.maximum(rng.gamma(prior.alpha_shape, 1.0 / prior.alpha_rate, n), LEAST)
    gamma = np.maximum(rng.gamma(prior.gamma_shape, 1.0 / prior.gamma_rate, n), LEAST)
    log_beta = np.zeros((n, c + 1))
    if open_first:
        for i in range(n):
            log_beta[i, 1] = log_stick_rest(gamma[i], rng)
        log_beta[:, 0] = np.log(-np.expm1(log_beta[:, 1]))
    return Particles(
        log_weight=np.full(n, -np.log(n)),
        current=np.full(n, 0 if open_first else START, np.int64),
        n_regimes=np.full(n, int(open_first), np.int64),
        slots=np.zeros((n, c + 1), np.int64),
        counts=np.zeros((n, c, c), np.int64),
        start=np.zeros((n, c), np.int64),
        log_beta=log_beta,
        alpha=alpha,
        gamma=gamma,
    )


def with_room(p: Particles) -> Particles:
    """The same particles with a slot to spare for each."""
    slots = p.start.shape[1]
    if p.n_regimes.max() < slots:
        return p
    n = p.alpha.size
    counts = np.zeros((n, 2 * slots, 2 * slots), np.int64)
    counts[:, :slots, :slots] = p.counts
    return p._replace(
        slots=_widen(p.slots, 2 * slots + 1),
        counts=counts,
        start=_widen(p.start, 2 * slots),
        log_beta=_widen(p.log_beta, 2 * slots + 1),
    )


def descend(p: Particles, parents: NDArray[np.int64]) -> Particles:
    """Each particle replaced by a copy of its parent, all with equal weight."""
    children = Particles(*(array[parents] for array in p))
    children.log_weight[:] = -np.log(parents.size)
    return children


def pack(p: Particles) -> dict[str, NDArray[Any]]:
    """The particles as named arrays, for a snapshot."""
    return {f"particle_{name}": array for name, array in p._asdict().items()}


def unpack(arrays: dict[str, NDArray[Any]], n: int) -> Particles:
    """The `n` particles that `pack` named; kernels trust their shapes, so they are checked here."""
    p = Particles(*(arrays[f"particle_{name}"].copy() for name in Particles._fields))
    c = p.start.shape[-1]
    wanted = [(n,), (n,), (n,), (n, c + 1), (n, c, c), (n, c), (n, c + 1), (n,), (n,)]
    if [array.shape for array in p] != wanted:
        raise SnapshotError(f"The snapshot's arrays do not fit {n} particles of {c} regimes.")
    return p


def _widen(array: NDArray[Any], width: int) -> NDArray[Any]:
    wider = np.zeros((array.shape[0], width), array.dtype)
    wider[:, : array.shape[1]] = array
    return wider
