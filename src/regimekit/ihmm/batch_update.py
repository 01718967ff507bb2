"""The end of a batch: lines 6 to 30 of Algorithm 1, one method each."""

from __future__ import annotations

import math

import cython
import numpy as np
from cython.cimports.libc.math import exp, log

if not cython.compiled:
    from regimekit.core.logspace import draw_index, logsumexp, normalize
    from regimekit.ihmm.hdp import count_transition, least_used, log_stick_rest, remove_regime
    from regimekit.ihmm.resampling import effective_sample_size
    from regimekit.ihmm.state import PRIOR_ROW, UNBORN
    from regimekit.ihmm.within_batch import WithinBatch
    from regimekit.preprocessing.lag_buffer import sort_order

INF = cython.declare(cython.double, float("inf"))
MAX_LEVEL = cython.declare(cython.double, 1e100)  # of the prior of new regimes (D16)


class BatchUpdate(WithinBatch):
    """Particles at the end of a batch, and at the start of the stream.

    Arguments of the methods:
        g: island.
    """

    def weigh(self, g):
        """Write log nu_l = log P(l | s) + score_l for l = 1 .. L + 1 of every particle (line 6).

        Scores are relative to the largest one, because that of a distant outlier would absorb the
        prior.
        """
        best: cython.double = -INF
        base: cython.Py_ssize_t = g * self.candidates.capacity
        for k in range(self.clock.candidates[g]):
            best = max(best, self.candidates.score[base + k])
        self.write_lookup(g)
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            for l in range(self.particles.n_regimes[i] + 1):
                self.particles.log_nu[i, l] = self.particles.log_row[i, l] + (
                    self.candidates.score[base + self.pool.lookup[self.particles.slots[i, l]]]
                    - best
                )

    def settle_weights(self, g):
        """Normalize the weights times the evidence (line 12); return the sample size, Eq. (124)."""
        first: cython.Py_ssize_t = self.clock.first[g]
        n: cython.Py_ssize_t = self.clock.first[g + 1] - first
        # The sum includes the new regime; the paper's sum to L_t is a misprint.
        for i in range(first, first + n):
            if not self.settings.keep_weights and self.clock.observed[g] > 0:
                self.particles.log_weight[i] = 0.0  # Deviation D15: line 6 has no omega_t
            self.particles.log_weight[i] += logsumexp(
                self.particles.log_nu[i], 0, self.particles.n_regimes[i] + 1
            )
        total: cython.double = logsumexp(self.particles.log_weight, first, n)
        for i in range(first, first + n):
            if total > -INF:
                self.particles.log_weight[i] -= total
            else:
                self.particles.log_weight[i] = -log(n)
        self.clock.ess[g] = effective_sample_size(self.particles.log_weight, first, n)
        return self.clock.ess[g]

    def resample(self, g):
        """Resample the particles by weight and reset the weights (lines 9 and 10).

        Resampling precedes the draw of the regime, so that every copy draws its own.
        """
        first: cython.Py_ssize_t = self.clock.first[g]
        n: cython.Py_ssize_t = self.clock.first[g + 1] - first
        self.resampler.draw(self.particles.log_weight, first, n, self.random)
        # Parents ascend, so in this order none is overwritten before its last copy.
        for i in range(n):
            if self.resampler.parents[i] > i:
                self.particles.copy(first + self.resampler.parents[i], first + i)
        for i in range(n - 1, -1, -1):
            if self.resampler.parents[i] < i:
                self.particles.copy(first + self.resampler.parents[i], first + i)
        for i in range(first, first + n):
            self.particles.log_weight[i] = -log(n)

    def assign(self, g):
        """Draw the regime of each particle from nu and count the transition (lines 15 to 19).

        Deviation D5: the transition into the batch is counted once. The paper also counts the
        forced self-transitions inside the batch and removes them again from the tables.
        """
        self.write_lookup(g)
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            n: cython.Py_ssize_t = self.particles.n_regimes[i]
            normalize(self.particles.log_nu[i], n + 1, self.shares)
            choice: cython.Py_ssize_t = draw_index(self.shares, n + 1, self.random.uniform())
            self.drawn[i] = self.pool.lookup[self.particles.slots[i, choice]]
            if choice == n:
                self.particles.slots[i, n + 1] = PRIOR_ROW
            count_transition(self.particles, i, choice, self.random)

    def finalize(self, g):
        """Write each chosen candidate to a row, once for all particles that chose it (line 27)."""
        base: cython.Py_ssize_t = g * self.candidates.capacity
        new_label: cython.Py_ssize_t = UNBORN
        free: cython.Py_ssize_t = 1
        for k in range(self.clock.candidates[g]):
            self.written[k] = -1
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            k = self.drawn[i]
            if self.written[k] < 0:
                free = self.pool.first_free(free)
                row: cython.Py_ssize_t = self.candidates.row[base + k]
                self.emission.finalize(base + k, row, free)
                if self.pool.label[row] == UNBORN and new_label == UNBORN:
                    new_label = self.clock.next_label
                    self.clock.next_label += 1
                self.write_pool(g, row, free, new_label)
                self.written[k] = free
            self.particles.slots[i, self.particles.current[i]] = self.written[k]

    def prune(self, g):
        """Remove a regime from every particle that reached MAX_STATES (line 20)."""
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            if self.particles.n_regimes[i] >= self.settings.max_regimes:
                victim: cython.Py_ssize_t = least_used(
                    self.particles,
                    i,
                    self.settings.prune_pool,
                    self.pool.last_seen,
                    self.visits,
                    self.taken,
                )
                if victim >= 0:
                    remove_regime(self.particles, i, victim, self.settings.keep_start)

    def structure(self, g):
        """Draw tables, alpha, gamma and beta of every `stride`-th particle (lines 21 to 26).

        Which particles are drawn does not depend on their state, so each sweep leaves the posterior
        invariant. Deviation D5: the paper zeroes the diagonal from the second sweep on.
        """
        sweeps: cython.Py_ssize_t = self.settings.sweeps
        if sweeps == 0:
            sweeps = self.clock.size[g]
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            if (i + self.clock.commits[g]) % self.settings.stride == 0:
                for b in range(sweeps):
                    self.settings.concentration.sweep(
                        self.particles, i, self.settings.keep_diagonal or b == 0, self.random
                    )

    def follow_stream(self, g):
        """Choose the prior of the regimes that the next batch of an island may open.

        Deviation D16: if most of the latest values of a coordinate lie beyond the reach of the
        prior, on one side, the prior is centred at their median. Otherwise no regime could be
        opened there. The prior has a row of its own, because batches of other islands still use the
        present one.
        """
        row: cython.Py_ssize_t = PRIOR_ROW
        if not self.settings.follow:
            return
        if self.stream_level():
            row = self.pool.first_free(1)
            self.emission.shift_prior(PRIOR_ROW, row, self.level)
            self.pool.clear(row)
            self.pool.owners[row] = 1
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            last: cython.Py_ssize_t = self.particles.n_regimes[i]
            self.particles.slots[i, last] = row

    def stream_level(self):
        """Write the level of new regimes; return whether it differs from that of the prior."""
        n: cython.Py_ssize_t = self.recent_y.shape[0]
        seen: cython.Py_ssize_t
        above: cython.Py_ssize_t
        below: cython.Py_ssize_t
        moved: cython.bint = False
        if self.n_recent < n or not self.are_levels():
            return False
        for j in range(self.level.shape[0]):
            self.level[j] = self.base[j]
            seen = above = below = 0
            for t in range(n):
                if self.recent_y[t, j] == self.recent_y[t, j]:
                    self.levels[seen] = self.recent_y[t, j]
                    above += self.levels[seen] > self.base[j] + self.reach[j]
                    below += self.levels[seen] < self.base[j] - self.reach[j]
                    seen += 1
            if 2 * max(above, below) > n:
                sort_order(self.levels, 0, seen, self.order)
                self.level[j] = self.levels[self.order[seen // 2]]
                self.level[j] = min(max(self.level[j], -MAX_LEVEL), MAX_LEVEL)
                moved = True
        return moved

    def are_levels(self):
        """Return whether the only feature of the latest observations was an intercept."""
        for t in range(self.recent_design.shape[0]):
            for i in range(self.recent_design.shape[1]):
                if self.recent_design[t, i, i] != 1.0:
                    return False
        return True

    def begin_batch(self, g):
        """Start a candidate from every row that a particle of the island stores (line 30)."""
        k: cython.Py_ssize_t = 0
        self.clock.position[g] = 0
        self.clock.observed[g] = 0
        for row in range(self.pool.held.shape[0]):
            self.pool.held[row] = 0
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            for l in range(self.particles.n_regimes[i] + 1):
                self.pool.held[self.particles.slots[i, l]] = 1
        for row in range(self.pool.held.shape[0]):
            if self.pool.held[row] == 1:
                place: cython.Py_ssize_t = g * self.candidates.capacity + k
                self.candidates.row[place] = row
                self.candidates.score[place] = 0.0
                self.candidates.weight[place] = 1.0
                self.candidates.outliers[place] = 0
                self.emission.begin(place, row)
                k += 1
        self.clock.candidates[g] = k
        self.prior_masses(g, True)

    def count_outliers(self, g):
        """Count the observations that the chosen regimes classified as outliers."""
        expected: cython.double = 0.0
        base: cython.Py_ssize_t = g * self.candidates.capacity
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            expected += (
                exp(self.particles.log_weight[i]) * self.candidates.outliers[base + self.drawn[i]]
            )
        self.clock.batch_outliers[0] += expected
        self.clock.batch_outliers[1] += self.clock.observed[g]

    def draw_prior_rows(self, g):
        """Write a separate prior mean for every unopened regime of the island (D9 off)."""
        free: cython.Py_ssize_t = 1
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            if self.particles.slots[i, self.particles.n_regimes[i]] == PRIOR_ROW:
                free = self.pool.first_free(free)
                self.emission.draw_prior(PRIOR_ROW, free, self.random)
                self.pool.clear(free)
                self.pool.owners[free] = 1
                self.particles.slots[i, self.particles.n_regimes[i]] = free

    # ------------------------------------------------------------------ start of the stream

    def initialize(self):
        """Draw alpha and gamma from their priors and begin the first batches.

        With a start row (D6) no regime is open yet, and the first batch opens regime 1. Without it,
        regime 1 exists from the start, with a share beta_1 ~ Beta(1, gamma).
        """
        prior, generator = self.settings.concentration, self.random.generator
        n = self.particles.alpha.shape[0]
        least = 1e-300
        alpha = generator.gamma(prior.alpha_shape, 1.0 / prior.alpha_rate, n)
        np.asarray(self.particles.alpha)[:] = np.maximum(alpha, least)
        gamma = generator.gamma(prior.gamma_shape, 1.0 / prior.gamma_rate, n)
        np.asarray(self.particles.gamma)[:] = np.maximum(gamma, least)
        np.asarray(self.clock.outliers)[:] = self.settings.outlier_prior
        first = np.asarray(self.clock.first).tolist()
        for g in range(self.islands):
            self.clock.ess[g] = first[g + 1] - first[g]
            np.asarray(self.particles.log_weight)[first[g] : first[g + 1]] = -math.log(
                first[g + 1] - first[g]
            )
        self.reserve_slots(2)
        if not self.settings.keep_start:
            self.open_first_regime()
        self.pool.count_owners(self.particles)
        for g in range(self.islands):
            if not self.settings.shared_prior:
                self.reserve_rows(n + 2 + (0 if self.settings.keep_start else n))
                self.draw_prior_rows(g)
            size = self.settings.schedule.next_size(self.clock.batch_outliers)
            # The first batches of the islands begin together and end one after another.
            self.clock.size[g] = size + g * size // self.islands
            self.reserve_candidates(2 * (1 if self.settings.shared_prior else n) + self.longest)
            self.begin_batch(g)
        self.pool.count_owners(self.particles)

    def open_first_regime(self):
        """Open regime 1 before the first observation, in rows of its own (D6 off).

        On the row of the prior, every regime opened later would inherit its label.
        """
        p = self.particles
        n = p.alpha.shape[0]
        for i in range(n):
            p.log_beta[i, 1] = log_stick_rest(p.gamma[i], self.random)
        log_beta = np.asarray(p.log_beta)
        log_beta[:, 0] = np.log(-np.expm1(log_beta[:, 1]))
        np.asarray(p.current)[:] = 0
        if self.settings.shared_prior:
            self.emission.write_prior(1)
            np.asarray(p.slots)[:, 0] = 1
        else:
            self.reserve_rows(2 * n + 1)
            for g in range(self.islands):
                self.draw_prior_rows(g)
        np.asarray(p.n_regimes)[:] = 1
        rows = np.unique(np.asarray(p.slots)[:, 0])
        np.asarray(self.pool.label)[rows] = self.clock.next_label
        np.asarray(self.pool.owners)[rows] = 1
        self.clock.next_label += 1
