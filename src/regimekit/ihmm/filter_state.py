"""The filter's fields and memory: settings, particles, rows, candidates.

`FilterState` is the base of the classes that Algorithm 1 is divided into:

    FilterState      fields, memory                                    this module
    WithinBatch      one observation inside a batch                    within_batch
    BatchUpdate      the end of a batch, line by line                  batch_update
    Algorithm        one step, on one page                             algorithm
    RegimeFilter     chunks of observations, properties of the state   regime_filter
"""

from __future__ import annotations

import cython
import numpy as np

if not cython.compiled:
    from regimekit.core.random import RandomSource
    from regimekit.distributions.mixture import Mixture
    from regimekit.ihmm.label_matching import LabelMatcher
    from regimekit.ihmm.resampling import Resampler
    from regimekit.ihmm.state import UNBORN, Candidates, Clock, Particles, RegimePool


# Predictive standard deviations of a new regime beyond which its prior does not reach a level.
MAX_PRIOR_DISTANCE = 5.0
MIN_WINDOW = 12  # latest observations that D16 and D17 use


class FilterSettings:
    """Settings of one filter in the form of its kernels.

    Attributes:
        scoring: weight and score of an observation.
        schedule: batch sizes.
        concentration: priors of the transitions.
        ess_threshold: resample when the effective sample size falls to this share (tau_ESS).
        max_regimes: number of regimes at which a particle drops one (MAX_STATES).
        prune_pool: number of least visited regimes, of which the least recent is dropped (tau_N).
        resampling: code of the scheme.
        sweeps: structure sweeps of a particle per batch; 0 means one for each observation.
        stride: every stride-th particle gets structure sweeps at the end of a batch.
        width: coefficients of a coordinate: a regime with fewer observations is underdetermined.
        outlier_prior: (2,) Beta counts of the outlier rate.
        keep_diagonal: D5. keep_start: D6. mixture: D7. one_noise: D8. shared_prior: D9.
        agree: D12. date_changes: D14. keep_weights: D15. follow: D16. fade: D17. renew: D18.
    """

    def __init__(self, **fields):
        for name, value in fields.items():
            setattr(self, name, value)


class FilterState:
    """Fields and memory of the online infinite HMM.

    Args:
        emission: distribution of an observation given its regime.
        settings: settings of the filter.
        particles: number of particles N.
        islands: number of groups with shifted batches that they are divided into.
        generator: numpy Generator of all draws.
        build_probe: function without arguments that builds another emission of the same kind, for
            computations beside the filter.

    Attributes:
        forecast: mixture of the next observation, written by `predict`; under contamination the
            component of outliers is the last.
        weight, change_probability, regime_probability, ess: of the latest update.
        regime: label of the reported regime, -1 for none.
        n_regimes: number of regimes known.
        settled: size of the largest batch that ended with the latest update, or 0.
        since: first observation of the reported regime.
    """

    def __init__(self, emission, settings, particles, islands, generator, build_probe=None):
        self.emission = emission
        self.settings = settings
        if not emission.timeless:
            # The predictive distribution of an earlier time is not stored, so coefficients cannot
            # be compared.
            settings.agree = False
        level = emission.prior_level()
        if level is None:  # D16 moves levels
            settings.follow = False
            level = np.zeros((2, emission.dim))
        self.base, self.reach = level[0], MAX_PRIOR_DISTANCE * level[1]
        self.scoring = emission.scoring
        self.random = RandomSource(generator)
        self.build_probe = build_probe
        self.cached_probe = None
        self.islands = islands
        self.noise = np.ascontiguousarray(emission.noise_covariance(), np.float64)
        self.outlier_scale = np.ascontiguousarray(emission.outlier_scale(), np.float64)
        self.particles = Particles(particles)
        self.pool = RegimePool()
        self.candidates = Candidates(islands)
        self.clock = Clock(particles, islands)
        self.resampler = Resampler(settings.resampling, particles)
        self.forecast = Mixture(emission.dim)
        self.drawn = np.zeros(particles, np.int64)
        self.written = np.zeros(self.candidates.capacity, np.int64)
        self.shares = np.zeros(self.particles.log_beta.shape[1])
        self.visits, self.taken = np.zeros((2, self.particles.log_beta.shape[1]), np.int64)
        self.centre, self.white = np.zeros(emission.dim), np.zeros(emission.dim)
        emission.need_start = not self.settings.mixture or not emission.scoring.sequential
        emission.resize_rows(self.pool.owners.shape[0])
        emission.resize_candidates(islands, self.candidates.capacity)
        emission.write_prior(0)
        self.matcher = LabelMatcher(
            self.particles,
            self.pool,
            self.clock,
            emission,
            self.settings.agree,
            self.settings.width,
        )
        # The first batch of an island may be longer than the others.
        longest = settings.schedule.longest
        self.longest = longest if islands == 1 else 2 * longest
        length = 2 * self.longest
        if self.settings.follow or self.settings.fade:
            length = max(length, MIN_WINDOW)
        self.recent_y = np.zeros((length, emission.dim))
        self.recent_design = np.zeros((length, *np.asarray(emission.observation.design).shape))
        self.n_recent = 0
        self.levels = np.zeros(length)
        self.order = np.zeros(length, np.int64)
        self.level = np.zeros(emission.dim)
        self.reported = -1
        self.changed = -1
        self.since = 0
        self.reported_ever = set()
        self.predicted = False
        self.regime = -1
        self.change = None

    def write_lookup(self, g):
        """Write the candidate of each row of island `g`."""
        for k in range(self.clock.candidates[g]):
            self.pool.lookup[self.candidates.row[g * self.candidates.capacity + k]] = k

    def write_pool(self, g, row, into, new_label):
        """Write the bookkeeping of a row's successor, with `new_label` if the row has none."""
        unborn: cython.bint = self.pool.label[row] == UNBORN
        self.pool.note_write(into)
        self.pool.label[into] = new_label if unborn else self.pool.label[row]
        self.pool.reported[into] = 0 if unborn else self.pool.reported[row]
        if self.pool.batches[row] == 0:
            self.pool.first_seen[into] = self.clock.time - self.clock.size[g]
        else:
            self.pool.first_seen[into] = self.pool.first_seen[row]
        self.pool.last_seen[into] = self.clock.time - 1
        self.pool.visits[into] = self.pool.visits[row] + self.clock.observed[g]
        self.pool.batches[into] = self.pool.batches[row] + 1
        self.pool.owners[into] = 1  # until owners are counted again

    def all_opened(self, g):
        """Return whether every particle of island `g` has a regime."""
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            if self.particles.n_regimes[i] == 0:
                return False
        return True

    def remember(self, y):
        """Store the observation `y`, (d,), and its design, for the date of a change."""
        at: cython.Py_ssize_t = self.n_recent % self.recent_y.shape[0]
        for j in range(self.recent_y.shape[1]):
            self.recent_y[at, j] = y[j]
        for i in range(self.recent_design.shape[1]):
            for a in range(self.recent_design.shape[2]):
                self.recent_design[at, i, a] = self.emission.observation.design[i, a]
        self.n_recent += 1

    def same_design(self, design):
        """Return whether the latest prediction was made for this `design`, (r, m)."""
        for i in range(self.emission.observation.design.shape[0]):
            for a in range(self.emission.observation.design.shape[1]):
                if self.emission.observation.design[i, a] != design[i, a]:
                    return False
        return True

    # ------------------------------------------------------------------ memory

    def ensure_room(self):
        """Make room for the batches that end with the next observation."""
        free: cython.Py_ssize_t = -1
        for g in range(self.islands):
            if self.clock.position[g] + 1 < self.clock.size[g]:
                continue
            n: cython.Py_ssize_t = self.clock.first[g + 1] - self.clock.first[g]
            drawn: cython.Py_ssize_t = 0 if self.settings.shared_prior else n
            if 2 * self.clock.candidates[g] + 1 + drawn > self.candidates.capacity:
                self.grow()
                return
            if free < 0:
                free = 0
                for row in range(self.pool.owners.shape[0]):
                    if self.pool.owners[row] == 0:
                        free += 1
            free -= min(self.clock.candidates[g], n) + drawn + self.settings.follow
            if free <= 0:
                self.grow()
                return
            for i in range(self.clock.first[g], self.clock.first[g + 1]):
                if self.particles.n_regimes[i] + 1 >= self.particles.start.shape[1]:
                    self.grow()
                    return

    def grow(self):
        """Enlarge candidates, rows and slots to what the next batches may need."""
        most = int(np.asarray(self.clock.candidates).max())
        n = self.particles.alpha.shape[0]
        extra = 0 if self.settings.shared_prior else n
        self.reserve_candidates(2 * most + 1 + extra)
        used = int((np.asarray(self.pool.owners) > 0).sum())
        self.reserve_rows(used + self.islands * min(most, n) + self.islands * (extra + 1) + 2)
        self.reserve_slots(int(np.asarray(self.particles.n_regimes).max()) + 2)

    def reserve_candidates(self, n):
        """Make room for `n` candidates of every island."""
        capacity = self.candidates.capacity
        if n <= capacity:
            return
        while capacity < n:
            capacity *= 2
        self.candidates.grow(capacity)
        self.emission.resize_candidates(self.islands, capacity)
        self.written = np.zeros(capacity, np.int64)

    def reserve_rows(self, n):
        """Make room for `n` rows."""
        capacity = self.pool.owners.shape[0]
        if n <= capacity:
            return
        while capacity < n:
            capacity *= 2
        self.pool.grow(capacity)
        self.emission.resize_rows(capacity)

    def reserve_slots(self, n):
        """Make room for `n` regimes of every particle."""
        slots = self.particles.start.shape[1]
        if n >= slots:
            while slots <= n:
                slots *= 2
            self.particles.widen(slots)
        self.settings.concentration.reserve(slots + 1)
        if self.shares.shape[0] < slots + 1:
            self.shares = np.zeros(slots + 1)
            self.visits, self.taken = np.zeros((2, slots + 1), np.int64)
