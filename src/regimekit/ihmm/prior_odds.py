"""What the prior over regimes says of entering a regime, staying in it and going back."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from regimekit._numba import kernel
from regimekit.ihmm.emissions.base import Array
from regimekit.ihmm.hdp import Concentration, log_transition_row, sweep
from regimekit.ihmm.state import Particles, blank_particles


class Chances(NamedTuple):
    """What the prior over regimes says, as log odds against staying.

    Attributes:
        enter: of a new regime.
        back: of a known regime that was left once.
        stay: (J,) of staying in a regime j = 1 .. J batches after entering it.
        hold: (J,) the same against going back from it.
    """

    enter: float
    back: float
    stay: Array
    hold: Array


@cache
def prior_chances(visits: float, prior: Concentration, particles: int = 400) -> Chances:
    """Log odds that the prior over regimes makes of `visits` batches in the present one.

    Its own Gibbs sweep averages alpha, gamma and beta, once before and once after an entry.

    Example:
        >>> few, many = prior_chances(5, Concentration()), prior_chances(500, Concentration())
        >>> few.enter > many.enter, bool(few.stay[0] < few.stay[3])
        (True, True)
    """
    rng = np.random.default_rng(0)
    counts = np.array([[max(round(visits) - 1, 1), 1], [1, 0]])
    alone = _swept(counts[:1, :1], prior, particles, rng)
    pair = _swept(counts, prior, particles, rng)
    stay, hold = np.empty(8), np.empty(8)
    for j in range(8):
        entered = _swept(np.array([counts[0], [0, j]]), prior, particles, rng)
        stay[j] = _odds(entered, 1, 1, prior) - _odds(entered, 0, 0, prior)
        hold[j] = _odds(entered, 1, 1, prior) - _odds(entered, 1, 0, prior)
    enter = _odds(alone, 0, 1, prior) - _odds(alone, 0, 0, prior)
    back = _odds(pair, 0, 1, prior) - _odds(pair, 0, 0, prior)
    return Chances(enter, back, stay, hold)


def _swept(counts: Any, prior: Concentration, n: int, rng: np.random.Generator) -> Particles:
    """Particles with these transition counts, after enough sweeps to forget where they began."""
    p = blank_particles(n)
    p.alpha[:] = rng.gamma(prior.alpha_shape, 1.0 / prior.alpha_rate, n)
    p.gamma[:] = rng.gamma(prior.gamma_shape, 1.0 / prior.gamma_rate, n)
    regimes = len(counts)
    p.n_regimes[:] = regimes
    p.current[:] = 0
    p.start[:, 0] = 1
    p.counts[:, :regimes, :regimes] = counts
    p.log_beta[:, : regimes + 1] = -math.log(regimes + 1)
    _sweep_all(p, prior, rng)
    return p


@kernel
def _sweep_all(p: Particles, prior: Concentration, rng: np.random.Generator) -> None:
    """Enough Gibbs passes over every particle to forget where it began."""
    tables = np.empty(p.log_beta.shape[1], np.int64)
    for i in range(p.alpha.size):
        for _ in range(30):
            sweep(p, i, prior, True, rng, tables)


def _odds(p: Particles, source: int, target: int, prior: Concentration) -> float:
    """log of the particles' average P(target | source)."""
    p.current[:] = source
    row = np.empty(p.log_beta.shape[1])
    total = 0.0
    for i in range(p.alpha.size):
        log_transition_row(p, i, prior.sticky, row)
        total += math.exp(row[target])
    return math.log(total / p.alpha.size)
