"""Everything the filter remembers, as arrays: particles, rows' facts, candidates, clocks.

Particles form G *islands*. Each island has batches of its own, which begin at other moments than
those of the other islands, so that there is always a fresh batch near a change and no moment at
which every particle may switch at once. Weights are normalised within an island, and resampling
stays within it. Rows and regime ids are common to all.

Given its past, a regime's posterior is a function of the batches it was given. Two particles
that hold the same row and give it the same batch hold the same successor, so every distinct
posterior is stored once: a particle needs only row numbers, resampling copies numbers, a batch
filters each *distinct* row once, and a row that nobody points at is free again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.ihmm.emissions.base import View

PRIOR_ROW = 0  # what a regime not opened yet would start from
UNBORN = -1  # id of a row that is no regime yet
START = -1  # the regime before the first batch

_FIRST_SLOTS, _FIRST_ROWS, _FIRST_CANDIDATES = 8, 64, 32


class Particles(NamedTuple):
    """N weighted hypotheses of the path so far, C slots each (grown as needed, D6 start row apart).

    Attributes:
        log_weight: (N,) normalised within the island.
        current: (N,) slot of the present regime, or START.
        n_regimes: (N,) L, regimes opened.
        slots: (N, C + 1) row of each regime; entry L is the regime not opened yet.
        counts: (N, C, C) transitions between batches, from row to column.
        start: (N, C) transitions out of nowhere: the first regime's (D6).
        log_beta: (N, C + 1) log shares; entry L is the mass of regimes not opened yet.
        alpha: (N,) concentration of the transition rows.
        gamma: (N,) concentration of beta.
    """

    log_weight: np.ndarray
    current: np.ndarray
    n_regimes: np.ndarray
    slots: np.ndarray
    counts: np.ndarray
    start: np.ndarray
    log_beta: np.ndarray
    alpha: np.ndarray
    gamma: np.ndarray


class Ledger(NamedTuple):
    """Facts about each row, (cap,) each.

    Attributes:
        owners: how many particle slots point here.
        identity: regime id, or UNBORN.
        told: 1 once the regime has been reported.
        first_seen: time its first batch began.
        last_seen: time its latest batch ended, whether anything was observed or not.
        visits: observations it has learnt from.
        batches: batches it was given.
    """

    owners: np.ndarray
    identity: np.ndarray
    told: np.ndarray
    first_seen: np.ndarray
    last_seen: np.ndarray
    visits: np.ndarray
    batches: np.ndarray


class Candidates(NamedTuple):
    """What each row of an island would become with the batch under way, (G, K) each.

    Attributes:
        row: the row it began from.
        branch: -1, or for a regime not opened yet how many observations it disbelieves first.
        score: log evidence of the batch so far.
        weight: w^2 of the latest observation under each.
        outliers: observations of the batch that it took for outliers.
        log_prior: log sum over particles and slots that point at `row` of omega_i P(l | s_i).
        log_stay: the part of it that stays in the particle's present regime.
        log_now: log weight of the particles whose present regime it is.
        mass: posterior share within the island given the batch so far.
    """

    row: np.ndarray
    branch: np.ndarray
    score: np.ndarray
    weight: np.ndarray
    outliers: np.ndarray
    log_prior: np.ndarray
    log_stay: np.ndarray
    log_now: np.ndarray
    mass: np.ndarray


class Clock(NamedTuple):
    """Where each island is, (G,) each unless said.

    Attributes:
        first: (G + 1,) first particle of each island.
        candidates: how many there are.
        size: observations of the batch under way.
        position: how many of them have passed.
        observed: how many of those were observed.
        ess: effective sample size at the last commit, before resampling.
        commits: batches finished.
        time: (1,) observations so far.
        next_id: (1,) id of the next birth.
        outliers: (2,) Beta counts of outliers and others: eps.
        batch_outliers: (2,) outliers and observations that adapt the size of a batch.
        vote: (3,) id reported, regimes known, told regimes that somebody remembers.
    """

    first: np.ndarray
    candidates: np.ndarray
    size: np.ndarray
    position: np.ndarray
    observed: np.ndarray
    ess: np.ndarray
    commits: np.ndarray
    time: np.ndarray
    next_id: np.ndarray
    outliers: np.ndarray
    batch_outliers: np.ndarray
    vote: np.ndarray


class State(NamedTuple):
    """All of it. `log_row` (N, C + 1) is log P(l | s) of the batch under way."""

    particles: Particles
    ledger: Ledger
    candidates: Candidates
    ahead: View
    clock: Clock
    log_row: np.ndarray


def blank_particles(n: int) -> Particles:
    """N particles that have opened nothing."""
    c = _FIRST_SLOTS
    return Particles(
        log_weight=np.zeros(n),
        current=np.full(n, START, np.int64),
        n_regimes=np.zeros(n, np.int64),
        slots=np.zeros((n, c + 1), np.int64),
        counts=np.zeros((n, c, c), np.int64),
        start=np.zeros((n, c), np.int64),
        log_beta=np.zeros((n, c + 1)),
        alpha=np.ones(n),
        gamma=np.ones(n),
    )


def blank_ledger(capacity: int = _FIRST_ROWS) -> Ledger:
    """An empty ledger."""
    ledger = Ledger(*(np.zeros(capacity, np.int64) for _ in Ledger._fields))
    ledger.identity[:] = UNBORN
    return ledger


def blank_candidates(islands: int, capacity: int = _FIRST_CANDIDATES) -> Candidates:
    """Room for candidates."""
    whole = ("row", "branch", "outliers")
    at = (islands, capacity)
    return Candidates(
        *(np.zeros(at, np.int64) if name in whole else np.zeros(at) for name in Candidates._fields)
    )


def blank_view(islands: int, dim: int, capacity: int = _FIRST_CANDIDATES) -> View:
    """Room for the candidates' forecasts."""
    at = (islands, capacity)
    shapes = [(*at, dim), (*at, dim, dim), at] * 2
    view = View(*(np.zeros(shape) for shape in shapes))
    view.dof[:] = np.inf
    view.start_dof[:] = np.inf
    return view


def blank_clock(particles: int, islands: int) -> Clock:
    """Islands of (nearly) equal size before their first batch."""
    whole = {"candidates", "size", "position", "observed", "commits"}
    each = {
        name: np.zeros(islands, np.int64) if name in whole else np.zeros(islands)
        for name in ("candidates", "size", "position", "observed", "ess", "commits")
    }
    return Clock(
        first=np.arange(islands + 1) * particles // islands,
        time=np.zeros(1, np.int64),
        next_id=np.zeros(1, np.int64),
        outliers=np.zeros(2),
        batch_outliers=np.zeros(2),
        vote=np.array([UNBORN, 0, 0], np.int64),
        **each,
    )


def wider(p: Particles) -> Particles:
    """The same particles with twice the slots."""
    n, c = p.start.shape
    counts = np.zeros((n, 2 * c, 2 * c), np.int64)
    counts[:, :c, :c] = p.counts
    return p._replace(
        slots=padded(p.slots, 1, 2 * c + 1),
        counts=counts,
        start=padded(p.start, 1, 2 * c),
        log_beta=padded(p.log_beta, 1, 2 * c + 1),
    )


def padded(array: NDArray[Any], axis: int, length: int, fill: float = 0) -> NDArray[Any]:
    """The same array, longer along one axis."""
    shape = list(array.shape)
    shape[axis] = length
    longer = np.full(shape, fill, array.dtype)
    longer[tuple(slice(0, n) for n in array.shape)] = array
    return longer


def stretched(arrays: Any, axis: int, length: int) -> Any:
    """A NamedTuple of arrays (nested or not), each longer along one axis."""
    parts = []
    for part in arrays:
        longer = padded if isinstance(part, np.ndarray) else stretched
        parts.append(longer(part, axis, length))
    return type(arrays)(*parts)
