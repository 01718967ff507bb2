"""The state of the filter as arrays: particles, pool of regimes, candidates, clock.

Particles form G *islands*. The batches of different islands begin at different times, so a batch
begins soon after any change, and the particles never all switch at the same time. Weights are
normalized within an island, and resampling stays within it. Rows and regime labels are shared by
all.

Given its past, the posterior of a regime is a function of the batches assigned to it. Two particles
that share a row and assign it the same batch share its successor, so every distinct posterior is
stored once: a particle stores row numbers only, resampling copies numbers, a batch filters each
*distinct* row once, and a row without owners is free again.
"""

from __future__ import annotations

import cython
import numpy as np

PRIOR_ROW = cython.declare(cython.Py_ssize_t, 0)  # the row that new regimes start from
UNBORN = cython.declare(cython.Py_ssize_t, -1)  # label of a row that is not a regime yet
START = cython.declare(cython.Py_ssize_t, -1)  # the "regime" before the first batch

NO_LABEL = -1  # UNBORN, for Python code
FIRST_SLOTS, FIRST_ROWS, FIRST_CANDIDATES = 8, 64, 32


class Particles:
    """N weighted hypotheses about the path of regimes, with C slots for regimes each.

    Args:
        n: number of particles.
        slots: C.

    Attributes:
        log_weight: (N,) normalized within the island.
        current: (N,) slot of the present regime, or START.
        n_regimes: (N,) L, regimes opened.
        slots: (N, C + 1) row of each regime; entry L is the regime not opened yet.
        counts: (N, C, C) transitions between batches, from row to column.
        start: (N, C) transitions from the start into a regime (D6).
        log_beta: (N, C + 1) log shares; entry L is the mass of regimes not opened yet.
        log_row: (N, C + 1) log P(l | s) for the batch under way.
        log_nu: (N, C + 1) scratch: log P(l | s) + score_l.
        alpha: (N,) concentration of the transition rows.
        gamma: (N,) concentration of beta.
    """

    def __init__(self, n, slots=FIRST_SLOTS):
        self.log_weight = np.zeros(n)
        self.current = np.full(n, -1, np.int64)
        self.n_regimes = np.zeros(n, np.int64)
        self.alpha = np.ones(n)
        self.gamma = np.ones(n)
        self.slots = np.zeros((n, slots + 1), np.int64)
        self.counts = np.zeros((n, slots, slots), np.int64)
        self.start = np.zeros((n, slots), np.int64)
        self.log_beta = np.zeros((n, slots + 1))
        self.log_row = np.zeros((n, slots + 1))
        self.log_nu = np.zeros((n, slots + 1))

    def widen(self, slots):
        """Make room for `slots` regimes per particle."""
        wide = Particles(self.log_weight.shape[0], slots)
        for name in ("slots", "start", "log_beta", "log_row", "counts"):
            old, new = np.asarray(getattr(self, name)), np.asarray(getattr(wide, name))
            new[tuple(slice(0, k) for k in old.shape)] = old
            setattr(self, name, new)
        self.log_nu = wide.log_nu

    def copy(self, source, target):
        """Make particle `target` a copy of `source`, except for its weight and `log_row`."""
        n: cython.Py_ssize_t = self.n_regimes[source]
        self.n_regimes[target] = n
        self.current[target] = self.current[source]
        self.alpha[target] = self.alpha[source]
        self.gamma[target] = self.gamma[source]
        for l in range(n + 1):
            self.slots[target, l] = self.slots[source, l]
            self.log_beta[target, l] = self.log_beta[source, l]
            self.log_nu[target, l] = self.log_nu[source, l]
        for l in range(n):
            self.start[target, l] = self.start[source, l]
            for k in range(n):
                self.counts[target, l, k] = self.counts[source, l, k]


class RegimePool:
    """Bookkeeping of the rows of regimes, (capacity,) each.

    Attributes:
        owners: number of particle slots that point at the row.
        label: regime label, or UNBORN.
        reported: 1 once the regime has been reported.
        first_seen: time at which its first batch began.
        last_seen: time at which its latest batch ended, whether anything was observed or not.
        visits: observations it has learnt.
        batches: batches assigned to it.
        version: number of the write that gave the row its present statistics; not stored.
        lookup: scratch: the candidate of each row.
        mass: scratch.
        held: scratch.
    """

    def __init__(self, capacity=FIRST_ROWS):
        for name in POOL_FIELDS:
            setattr(self, name, np.zeros(capacity, np.int64))
        np.asarray(self.label)[:] = -1
        self.version = np.zeros(capacity, np.int64)
        self.n_writes = 0
        self.lookup = np.zeros(capacity, np.int64)
        self.held = np.zeros(capacity, np.int64)
        self.mass = np.zeros(capacity)

    def grow(self, capacity):
        """Make room for `capacity` rows; the present ones are kept."""
        larger = RegimePool(capacity)
        n = self.owners.shape[0]
        for name in POOL_FIELDS:
            np.asarray(getattr(larger, name))[:n] = getattr(self, name)
            setattr(self, name, getattr(larger, name))
        np.asarray(larger.version)[:n] = self.version
        self.version = larger.version
        self.lookup, self.held, self.mass = larger.lookup, larger.held, larger.mass

    def first_free(self, start):
        """Return the first row from `start` on that has no owner."""
        row: cython.Py_ssize_t = start
        while self.owners[row] != 0:
            row += 1
        return row

    def note_write(self, row):
        """Give `row`, whose statistics were written, a new version."""
        self.n_writes += 1
        self.version[row] = self.n_writes

    def clear(self, row):
        """Reset the bookkeeping of `row`, whose statistics were written."""
        self.note_write(row)
        self.label[row] = UNBORN
        self.reported[row] = 0
        self.first_seen[row] = 0
        self.last_seen[row] = 0
        self.visits[row] = 0
        self.batches[row] = 0

    def count_owners(self, particles):
        """Count the owners of every row in `particles`, unopened slots included."""
        for row in range(self.owners.shape[0]):
            self.owners[row] = 0
        for i in range(particles.alpha.shape[0]):
            for l in range(particles.n_regimes[i] + 1):
                self.owners[particles.slots[i, l]] += 1

    def count_owners_of(self, particles):
        """Count the owners of every row in `particles`, for callers in Python."""
        self.count_owners(particles)


POOL_FIELDS = ("owners", "label", "reported", "first_seen", "last_seen", "visits", "batches")


class Candidates:
    """The successor of each row of an island after the batch so far, by place.

    Candidate k of island g is at place g * capacity + k.

    Attributes:
        row: the row it started from.
        score: log evidence of the batch so far.
        weight: w^2 of the latest observation.
        outliers: observations of the batch that it took for outliers.
        log_prior: log of the sum over particles i and slots l that point at `row` of
            omega_i P(l | s_i).
        log_stay: the part of it that stays in the present regime of the particle.
        log_current: log weight of the particles whose present regime it is.
        mass: posterior share within the island given the batch so far.
        fade: share of the mass that counts in a forecast (D17); not stored.
    """

    def __init__(self, islands, capacity=FIRST_CANDIDATES):
        self.islands = islands
        self.capacity = capacity
        for name in ("row", "outliers"):
            setattr(self, name, np.zeros(islands * capacity, np.int64))
        for name in ("score", "weight", "log_prior", "log_stay", "log_current", "mass"):
            setattr(self, name, np.zeros(islands * capacity))
        self.fade = np.ones(islands * capacity)

    def grow(self, capacity):
        """Make room for `capacity` candidates of each of the `islands`; the others are kept."""
        larger = Candidates(self.islands, capacity)
        for name in CANDIDATE_FIELDS:
            old = np.asarray(getattr(self, name)).reshape(self.islands, -1)
            new = np.asarray(getattr(larger, name)).reshape(self.islands, -1)
            new[:, : old.shape[1]] = old
            setattr(self, name, new.reshape(-1))
        self.capacity = capacity


CANDIDATE_FIELDS = (
    "row",
    "outliers",
    "score",
    "weight",
    "log_prior",
    "log_stay",
    "log_current",
    "mass",
    "fade",
)


class Clock:
    """Position of each island in its batch, (G,) each, and counters of the whole filter.

    Attributes:
        first: (G + 1,) first particle of each island.
        candidates: number of candidates.
        size: observations of the batch under way.
        position: how many of them have passed.
        observed: how many of those were observed.
        ess: effective sample size at the end of the latest batch, before resampling.
        commits: batches finished.
        time: observations so far.
        next_label: label of the next new regime.
        outliers: (2,) Beta counts of outliers and regular observations.
        batch_outliers: (2,) outliers and observations, for batches of adaptive size.
        reported: label of the reported regime, or UNBORN.
        n_known: reported regimes that most of the weight remembers.
        n_remembered: reported regimes that any particle remembers.
    """

    def __init__(self, particles, islands):
        self.first = np.arange(islands + 1) * particles // islands
        for name in ("candidates", "size", "position", "observed", "commits"):
            setattr(self, name, np.zeros(islands, np.int64))
        self.ess = np.zeros(islands)
        self.time = 0
        self.next_label = 0
        self.outliers = np.zeros(2)
        self.batch_outliers = np.zeros(2)
        self.reported = -1
        self.n_known = 0
        self.n_remembered = 0
