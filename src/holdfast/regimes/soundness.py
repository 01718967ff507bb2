"""What a filter can hold and what it cannot: limits of stored particles, rows and candidates.

Each limit is one that no stream can cross. Features are at most 1e50 in size, residuals 1e100,
variances given as settings lie between 1e-50 and 1e50, and learning only ever shrinks a
covariance; so coefficients stay below 1e155, and sums of squares of everything are finite and
above zero. Arrays are known by their names, whichever emission they belong to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.checks import LATEST
from holdfast.emissions.base import Emission, Rows
from holdfast.errors import SnapshotError
from holdfast.regimes.plan import Plan
from holdfast.regimes.state import PRIOR_ROW, Clock, Particles

Array = NDArray[np.float64]
Prior = Mapping[str, Array]

_COEFFICIENT = 1e155  # no coefficient, and no scale, is larger
_SHORTEST = 1e-145  # no standard deviation is smaller: its square must not vanish
_DIRECTION = 1e150  # of a step: features times a covariance's root, in units of the noise
_MOVE = 1e128  # of a mean by one step, in standard deviations of the row
_ROUNDING = 1e-6
_MOST_TABLES = 1e8  # drawn at one commit: more would take minutes
# A cloud's coordinates are held within these (see `emissions.garch`), rounding included.
_LEAST_COEFFICIENT, _LEAST_LOSS, _REACH = 1e-11, 5e-6, 60.1


def check_particles(p: Particles, clock: Clock, plan: Plan) -> None:
    """Shares that are shares, and counts that a stream of this length can have led to."""
    used = np.arange(p.log_beta.shape[1]) <= p.n_regimes[:, None]
    with np.errstate(all="ignore"):
        weight = np.add.reduceat(np.exp(p.log_weight), clock.first[:-1])
        beta = np.where(used, np.exp(p.log_beta), 0.0)
        rest = np.take_along_axis(p.log_beta, p.n_regimes[:, None], axis=1)
    _demand((abs(weight - 1.0) < _ROUNDING).all(), "particle_log_weight are not shares of a whole")
    _demand((abs(beta.sum(axis=1) - 1.0) < _ROUNDING).all(), "particle_log_beta are not shares")
    _demand(np.isfinite(rest).all(), "particle_log_beta leave no room for a new regime")
    counts = np.concatenate([p.start[:, None], p.counts], axis=1).astype(float)
    finished = np.repeat(clock.commits, np.diff(clock.first))
    # Each batch is one transition; joining or forgetting a regime may add a table to the start.
    _demand(
        (counts.sum(axis=(1, 2)) <= 2.0 * finished + p.n_regimes + 1.0).all(),
        "particle_counts are more transitions than there were batches",
    )
    _check_tables(p, counts, beta[:, :-1], plan.sweeps)


def _check_tables(p: Particles, counts: Array, beta: Array, sweeps: int) -> None:
    """The tables that will be drawn: at most one for every transition, few unless alpha is vast."""
    share = np.maximum(p.alpha[:, None, None] * beta[:, None], 1e-300)
    with np.errstate(all="ignore"):
        tables = np.minimum(counts, 1.0 + share * np.log1p(counts / share))
    most = tables.sum() * max(sweeps, 1)
    _demand(most <= _MOST_TABLES, "particle_alpha and particle_counts do not go together")


def check_rows(emission: Emission, rows: Rows, live: NDArray[np.int64]) -> None:
    """Refuse rows that no filter could have written."""
    blank = emission.blank(1)
    emission.write_prior(blank, 0)
    prior = {name: array[0] for name, array in blank._asdict().items()}
    own = {name: array[live] for name, array in rows._asdict().items()}
    if live[0] == PRIOR_ROW and emission.timeless:
        same = all(np.array_equal(own[name][0], array) for name, array in prior.items())
        _demand(same, "prior row is not that of its settings")
    _check_named(own, prior)
    emission.check_rows(rows, live)


def check_work(
    emission: Emission, own: Mapping[str, NDArray[Any]], most_steps: NDArray[np.int64]
) -> None:
    """Refuse what no candidate could have made of its batch, in at most so many steps."""
    blank = emission.blank(1)
    emission.write_prior(blank, 0)
    prior = {name: array[0] for name, array in blank._asdict().items()}
    _check_named(own, prior)
    if "taken" in own:
        _check_steps(own, most_steps)


def _check_named(own: Mapping[str, NDArray[Any]], prior: Prior) -> None:
    with np.errstate(all="ignore"):
        for name, check in _CHECKS.items():
            if name in own:
                check(own[name], prior)
        if "coefficients" in own:
            _check_cloud(own, prior)


def _check_mean(mean: Array, prior: Prior) -> None:
    _demand((abs(mean) <= _COEFFICIENT).all(), "coefficients are beyond all measure")


def _check_root(root: Array, prior: Prior) -> None:
    """A covariance only shrinks, and never vanishes."""
    size, whole = np.sqrt((root**2).sum(axis=-1)), np.sqrt((prior["root"] ** 2).sum())
    _demand((size >= _SHORTEST).all(), "covariance is not positive definite")
    _demand((size <= 2.0 * whole).all(), "covariance is larger than that of the prior")


def _check_factor(factor: Array, prior: Prior) -> None:
    """A lower triangular root of a scatter matrix."""
    diagonal = np.einsum("...ii->...i", factor)
    sound = (diagonal >= _SHORTEST).all() and (abs(factor) <= _COEFFICIENT).all()
    _demand(sound and (np.triu(factor, 1) == 0.0).all(), "noise is not positive definite")


def _check_dof(dof: Array, prior: Prior) -> None:
    """Degrees of freedom only grow, by at most one with every observation."""
    least = float(prior["dof"]) * (1.0 - _ROUNDING)
    _demand((dof >= least).all() and (dof <= LATEST + least).all(), "degrees of freedom are wrong")


_CHECKS: dict[str, Callable[[Array, Prior], None]] = {
    "mean": _check_mean,
    "root": _check_root,
    "factor": _check_factor,
    "dof": _check_dof,
}


def _check_cloud(own: Mapping[str, NDArray[Any]], prior: Prior) -> None:
    """Points with a variance and coefficients that `garch` can hold, and shares among them."""
    omega, a, b = np.moveaxis(own["coefficients"], -1, 0)
    lost = 1.0 - a - b
    centre = np.log(prior["coefficients"][:, 0] / (1.0 - prior["coefficients"][:, 1:].sum(axis=1)))
    level = np.log(omega / lost)
    sound = (np.minimum(a, b) >= _LEAST_COEFFICIENT).all() and (lost >= _LEAST_LOSS).all()
    near = (level >= centre.min() - 2 * _REACH).all() and (level <= centre.max() + 2 * _REACH).all()
    _demand(sound and near, "volatility is one that no regime can have")
    _demand((own["variance"] >= 1e-300).all(), "variance is not above zero")
    shares = np.exp(own["log_weight"]).sum(axis=-1)
    _demand((abs(shares - 1.0) < _ROUNDING).all(), "points' log_weight are not shares of a whole")


def _check_steps(own: Mapping[str, NDArray[Any]], most: NDArray[np.int64]) -> None:
    """No candidate has learnt more than its batch has seen, and every step makes it surer."""
    taken = own["taken"]
    if (taken > most).any():  # there would be no room for the rest of the batch
        raise SnapshotError("The snapshot's candidates have learnt more than there was to see.")
    u, shrink, gain = own["u"], own["shrink"], own["gain"]
    unused = np.arange(u.shape[1]) >= taken[:, None]
    with np.errstate(all="ignore"):
        length = np.sqrt((u**2).sum(axis=-1))
        surer = (shrink >= 0.0) & (shrink * length * length <= 1.0 + _ROUNDING)
        move = abs(gain) * length[..., None]
    sound = (abs(u) <= _DIRECTION).all(axis=-1) & surer & (move <= _MOVE).all(axis=-1)
    _demand((sound | unused).all(), "candidates have taken steps that no observation leads to")


def _demand(sound: Any, words: str) -> None:
    if not sound:
        raise SnapshotError(f"The snapshot's {words}.")
