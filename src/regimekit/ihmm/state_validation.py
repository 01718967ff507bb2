"""What a filter can hold and what it cannot: limits of stored particles, rows and candidates.

Each limit is one that no stream can cross. Features are at most 1e50 in size, residuals 1e100,
variances given as settings lie between 1e-50 and 1e50, and learning only ever shrinks a
covariance; so coefficients stay below 1e155, and sums of squares of everything are finite and
above zero. Arrays are known by their names, whichever emission they belong to.

Ranges were looked at before (`checks`): no index here is beyond its array. What many small arrays
must have in common is looked at in kernels, which give the number of a fault in FAULTS.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel
from regimekit.core.exceptions import SnapshotError
from regimekit.ihmm.emissions.base import Emission, Rows
from regimekit.ihmm.emissions.linear import Steps
from regimekit.ihmm.plan import Plan
from regimekit.ihmm.state import PRIOR_ROW, START, UNBORN, Clock, Ledger, Particles
from regimekit.serialization.validation import LATEST

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


FAULTS = (
    "",
    "The snapshot stands beyond the end of a batch.",
    "The snapshot's clock_time is before the end of batches it has seen.",
    "The snapshot's clock_vote names a regime that was never born.",
    "The snapshot has particles in regimes that they do not have.",
    "The snapshot's particle_log_weight are not shares of a whole.",
    "The snapshot's particle_log_beta are not shares.",
    "The snapshot's particle_log_beta leave no room for a new regime.",
    "The snapshot's particle_counts are more transitions than there were batches.",
    "The snapshot's ledger_identity is not that of opened regimes.",
    "The snapshot's particles have priors of their own.",
    "The snapshot's coefficients are beyond all measure.",
    "The snapshot's covariance is not positive definite.",
    "The snapshot's covariance is larger than that of the prior.",
    "The snapshot's candidate_outliers are more than was observed.",
    "The snapshot's candidates have learnt more than there was to see.",
    "The snapshot's candidates have taken steps that no observation leads to.",
)
(
    _BEYOND,
    _EARLY,
    _VOTE,
    _CURRENT,
    _WEIGHT,
    _BETA,
    _NO_ROOM,
    _COUNTS,
    _IDENTITY,
    _PRIORS,
    _MEAN,
    _SINGULAR,
    _LARGE,
    _OUTLIERS,
    _TOO_MANY,
    _STEP,
) = range(1, len(FAULTS))


def refuse(fault: int) -> None:
    """Raise if there is one."""
    if fault:
        raise SnapshotError(FAULTS[fault])


def check_particles(p: Particles, clock: Clock, plan: Plan) -> None:
    """Clocks that go together, shares that are shares, and counts that a stream can have led to."""
    refuse(_clock_fault(clock))
    refuse(_particle_fault(p, clock))
    # No more tables are drawn than there were transitions: few streams ask for a closer look.
    most = p.alpha.size * (2.0 * max(clock.commits.tolist()) + p.start.shape[1] + 1.0)
    if most * max(plan.sweeps, 1) > _MOST_TABLES:
        _check_tables(p, plan.sweeps)


@kernel
def _clock_fault(clock: Clock) -> int:
    for g in range(clock.size.size):
        position = clock.position[g]
        if position >= clock.size[g] or clock.observed[g] > position:
            return _BEYOND
        if max(position, clock.commits[g]) > clock.time[0]:
            return _EARLY
    vote = clock.vote
    if vote[0] >= max(clock.next_id[0], 1) or min(vote[1], vote[2]) < 0:
        return _VOTE
    return 0


@kernel
def _particle_fault(p: Particles, clock: Clock) -> int:
    for g in range(clock.size.size):
        whole = 0.0
        for i in range(clock.first[g], clock.first[g + 1]):
            whole += np.exp(p.log_weight[i])
            fault = _fault_of(p, i, clock.commits[g])
            if fault:
                return fault
        if not abs(whole - 1.0) < _ROUNDING:
            return _WEIGHT
    return 0


@kernel
def _fault_of(p: Particles, i: int, commits: int) -> int:
    """What is wrong with one particle that has seen so many batches end."""
    last = p.n_regimes[i]
    if p.current[i] >= last or (p.current[i] == START and last > 0):
        return _CURRENT
    if not np.isfinite(p.log_beta[i, last]):
        return _NO_ROOM
    whole = 0.0
    for l in range(last + 1):
        whole += np.exp(p.log_beta[i, l])
    if not abs(whole - 1.0) < _ROUNDING:
        return _BETA
    # Each batch is one transition; joining or forgetting a regime may add a table to the start.
    # Of floats, as the sum of whole numbers could come round to where it began.
    made = 0.0
    for l in range(p.start.shape[1]):
        made += p.start[i, l]
        for j in range(p.start.shape[1]):
            made += p.counts[i, l, j]
    return 0 if made <= 2.0 * commits + last + 1.0 else _COUNTS


def _check_tables(p: Particles, sweeps: int) -> None:
    """The tables that will be drawn: at most one for every transition, few unless alpha is vast."""
    used = np.arange(p.start.shape[1]) <= p.n_regimes[:, None]
    counts = np.concatenate([p.start[:, None], p.counts], axis=1).astype(float)
    with np.errstate(all="ignore"):
        beta = np.where(used, np.exp(p.log_beta[:, :-1]), 0.0)
        share = np.maximum(p.alpha[:, None, None] * beta[:, None], 1e-300)
        tables = np.minimum(counts, 1.0 + share * np.log1p(counts / share))
    most = tables.sum() * max(sweeps, 1)
    _demand(most <= _MOST_TABLES, "particle_alpha and particle_counts do not go together")


@kernel
def count_owners(p: Particles, out_owners: np.ndarray) -> None:
    """How many slots of particles point at each row."""
    for i in range(p.alpha.size):
        for l in range(p.n_regimes[i] + 1):
            out_owners[p.slots[i, l]] += 1


def check_ledger(p: Particles, ledger: Ledger, plan: Plan) -> None:
    """Regimes that are open have an id, and only they have."""
    refuse(_ledger_fault(p, ledger.identity, plan.shared_prior))


@kernel
def _ledger_fault(p: Particles, identity: np.ndarray, shared_prior: bool) -> int:
    for i in range(p.alpha.size):
        last = p.n_regimes[i]
        for l in range(last + 1):
            if (identity[p.slots[i, l]] == UNBORN) != (l == last):
                return _IDENTITY
        if shared_prior and p.slots[i, last] != PRIOR_ROW:
            return _PRIORS
    return 0


def check_rows(emission: Emission, rows: Rows, live: NDArray[np.int64], prior: Prior) -> None:
    """Refuse rows that no filter could have written."""
    parts = rows._asdict()
    if live[0] == PRIOR_ROW and emission.timeless:
        same = all(
            array[PRIOR_ROW].tobytes() == prior[name].tobytes() for name, array in parts.items()
        )
        _demand(same, "prior row is not that of its settings")
    if "root" in parts:
        whole = float(np.sqrt((prior["root"] ** 2).sum()))
        refuse(_linear_fault(parts["mean"], parts["root"], live, whole))
    _check_named({name: array[live] for name, array in parts.items() if name in _NAMED}, prior)
    emission.check_rows(rows, live)


@kernel
def _linear_fault(mean: np.ndarray, root: np.ndarray, live: np.ndarray, whole: float) -> int:
    """A covariance only shrinks from that of the prior, of size `whole`, and never vanishes."""
    for row in live:
        for j in range(mean.shape[1]):
            for a in range(mean.shape[2]):
                if not abs(mean[row, j, a]) <= _COEFFICIENT:
                    return _MEAN
        for a in range(root.shape[1]):
            square = 0.0
            for b in range(root.shape[2]):
                square += root[row, a, b] * root[row, a, b]
            size = np.sqrt(square)
            if not size >= _SHORTEST:
                return _SINGULAR
            if not size <= 2.0 * whole:
                return _LARGE
    return 0


def check_work(work: Any, clock: Clock, most_steps: list[int], prior: Prior) -> None:
    """Refuse what no candidate could have made of its batch, in at most so many steps."""
    own = {name: array for name, array in work._asdict().items() if name in _NAMED}
    if own:
        used = np.arange(next(iter(own.values())).shape[1]) < clock.candidates[:, None]
        _check_named({name: array[used] for name, array in own.items()}, prior)
    if hasattr(work, "steps"):
        refuse(_step_fault(work.steps, clock.candidates, np.array(most_steps)))


def check_outliers(clock: Clock, outliers: NDArray[np.int64]) -> None:
    """No candidate has taken more for outliers than its batch has seen."""
    refuse(_outlier_fault(clock.candidates, clock.observed, outliers))


@kernel
def _outlier_fault(counts: np.ndarray, observed: np.ndarray, outliers: np.ndarray) -> int:
    for g in range(counts.size):
        for k in range(counts[g]):
            if outliers[g, k] > observed[g]:
                return _OUTLIERS
    return 0


def _check_named(own: Mapping[str, NDArray[Any]], prior: Prior) -> None:
    if not own:
        return
    with np.errstate(all="ignore"):
        for name, array in own.items():
            if name in _CHECKS:
                _CHECKS[name](array, prior)
        if "coefficients" in own:
            _check_cloud(own, prior)


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
    "factor": _check_factor,
    "dof": _check_dof,
}
_NAMED = frozenset((*_CHECKS, "coefficients", "variance", "log_weight"))


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


@kernel
def _step_fault(steps: Steps, counts: np.ndarray, most: np.ndarray) -> int:
    """No candidate has learnt more than its batch has seen, and every step makes it surer."""
    for g in range(counts.size):
        for k in range(counts[g]):
            if steps.taken[g, k] > most[g]:  # there would be no room for the rest of the batch
                return _TOO_MANY
            for b in range(steps.taken[g, k]):
                if not _sound_step(steps.u[g, k, b], steps.shrink[g, k, b], steps.gain[g, k, b]):
                    return _STEP
    return 0


@kernel
def _sound_step(u: np.ndarray, shrink: float, gain: np.ndarray) -> bool:
    """NaN is within no bound."""
    sound, square = shrink >= 0.0, 0.0
    for a in range(u.size):
        sound = sound and abs(u[a]) <= _DIRECTION
        square += u[a] * u[a]
    length = np.sqrt(square)
    sound = sound and shrink * length * length <= 1.0 + _ROUNDING
    for j in range(gain.size):
        sound = sound and abs(gain[j]) * length <= _MOVE
    return sound


def _demand(sound: Any, words: str) -> None:
    if not sound:
        raise SnapshotError(f"The snapshot's {words}.")
