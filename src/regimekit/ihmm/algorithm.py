"""Algorithm 1 of the paper: the batched online infinite HMM with robust updates (BR-iHMM).

    for each observation                                                           lines 2 to 7
        predict       every candidate: one-step predictive distribution            line 4
        learn         every candidate: weight W(y, yhat), Eq. (10), score of the
                      batch so far, Eq. (12), and WoLF update, Eq. (11)            lines 5, 29
    at the end of a batch of B observations
        weigh         log omega += log sum_l P(l | s) exp(score_l)                 line 6
        resample      if ESS <= tau_ESS, else normalize                            lines 8 to 13
        assign        draw the regime of the batch from nu, count the transition   lines 15 to 19
        finalize      the slot of the regime points at what its candidate became   line 29
        prune         drop the least recently used regime at MAX_STATES            line 20
        structure     tables M, then alpha, gamma, beta                            lines 21 to 27
        begin         every row in use starts a candidate of the next batch        line 31

The weighted filter runs over *rows*, not particles: particles that share a regime share its row
(see `state`), so the score of a batch belongs to the row, and what is left per particle is a
transition row, one draw and a structure sweep. With the prior mass of row r,

    pi_r = sum over particles i and slots l that point at r of omega_i P(l | s_i),

its posterior mass given the batch so far is pi_r exp(score_r), normalized within the island. The
forecast inside a batch is the mixture of the candidates by these masses (deviation D7).

Where the text of the paper breaks, a deviation D1 .. D13 is marked at its line; docs/deviations.md
explains each, and `rule="paper"` switches them off.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import cython
import numpy as np
from cython.cimports.libc.math import exp, log, sqrt

if not cython.compiled:
    from regimekit.core.logspace import draw_index, logaddexp, logsumexp, normalize
    from regimekit.core.random import RandomSource
    from regimekit.distributions.mixture import Mixture
    from regimekit.distributions.student_t import log_mixture
    from regimekit.ihmm.hdp import (
        count_transition,
        least_used,
        log_stick_rest,
        log_transition_row,
        remove_regime,
        transition_matrix,
    )
    from regimekit.ihmm.label_matching import LabelMatcher
    from regimekit.ihmm.resampling import Resampler, effective_sample_size
    from regimekit.ihmm.state import (
        PRIOR_ROW,
        START,
        UNBORN,
        Candidates,
        Clock,
        Particles,
        RegimePool,
    )
    from regimekit.ihmm.weights import (
        CONTAMINATION,
        MAX_LENGTH,
        MAX_OUTLIER_RATE,
        OUTLIER_DOF,
        factorize,
        log_outlier_density,
    )

INF = cython.declare(cython.double, float("inf"))
# Observations over which the rate of outliers is remembered.
RATE_MEMORY = cython.declare(cython.double, 1000.0)
# Components of a forecast with a smaller share are left out.
MIN_SHARE = cython.declare(cython.double, 1e-12)
MAX_DATING_EVIDENCE = 6.0  # nats that one observation may contribute to the date of a change


class FilterSettings:
    """Settings of the filter as its kernels read them.

    Attributes:
        scoring: weight and score of an observation.
        schedule: batch sizes.
        concentration: priors of the transitions.
        ess_threshold: resample when the effective sample size falls to this share (tau_ESS).
        max_regimes: a particle with so many regimes drops one (MAX_STATES).
        prune_pool: it drops the least recently used of so many least visited ones (tau_N).
        resampling: code of the scheme.
        sweeps: structure sweeps of a particle per batch; 0 means one for each observation.
        stride: every stride-th particle gets structure sweeps at the end of a batch.
        width: coefficients of a coordinate: a regime with fewer observations is underdetermined.
        outlier_prior: (2,) Beta counts of the outlier rate.
        keep_diagonal: D5. keep_start: D6. mixture: D7. one_noise: D8. shared_prior: D9.
        agree: D12.
    """

    def __init__(self, **fields):
        for name, value in fields.items():
            setattr(self, name, value)

    def replace(self, **changes):
        """Return a copy with some fields changed."""
        fields = {name: getattr(self, name) for name in SETTINGS_FIELDS}
        return FilterSettings(**(fields | changes))


SETTINGS_FIELDS = (
    "scoring",
    "schedule",
    "concentration",
    "ess_threshold",
    "max_regimes",
    "prune_pool",
    "resampling",
    "sweeps",
    "stride",
    "width",
    "outlier_prior",
    "keep_diagonal",
    "keep_start",
    "mixture",
    "one_noise",
    "shared_prior",
    "agree",
)


class Change(NamedTuple):
    """A change of the reported regime, or of the regimes that are remembered.

    Attributes:
        time: the observation after which it was known.
        since: the first observation that belongs to the new regime.
        regime: label reported now.
        previous: label reported before.
        lost: labels once reported that no particle remembers any more.
    """

    time: int
    since: int
    regime: int
    previous: int
    lost: tuple[int, ...]


class Trace:
    """Outputs of the filter for a chunk of T observations.

    Attributes:
        weight: (T,) posterior mean of w^2.
        change: (T,) posterior probability that the regime has just changed.
        ess: (T,) effective sample size.
        regime: (T,) label reported.
        n_known: (T,) regimes known.
        probability: (T,) of the regime reported.
        settled: (T,) size of the largest batch that ended with the observation, or 0.
        offset: (T + 1,) where the components of each forecast begin.
        components: the components of all forecasts, one after another.
        changes: list of Change.
    """

    def __init__(self, n, dim):
        self.weight, self.change, self.ess, self.probability = np.zeros((4, n))
        self.regime, self.n_known, self.settled = np.zeros((3, n), np.int64)
        self.offset = np.zeros(n + 1, np.int64)
        self.components = Mixture(dim, 8 * n + 16)
        self.changes = []


class RegimeFilter:
    """The online infinite HMM: particles over paths, shared rows, and the batches under way.

    Args:
        emission: distribution of an observation given its regime.
        settings: settings of the filter.
        particles: number of particles N.
        islands: number of groups with shifted batches that they are divided into.
        generator: numpy Generator of all draws.
        build_probe: function without arguments that builds another emission of the same kind, for
            computations beside the filter.
        initialize: draw the first particles; otherwise the state must be restored.

    Attributes:
        forecast: mixture of the next observation, written by `predict`; under contamination the
            component of outliers is the last.
        weight, change_probability, regime_probability, ess: of the latest update.
        regime: label of the reported regime, -1 for none.
        n_regimes: number of regimes known.
        settled: size of the largest batch that ended with the latest update, or 0.
        since: first observation of the reported regime.
    """

    def __init__(
        self, emission, settings, particles, islands, generator, build_probe=None, initialize=True
    ):
        self.emission = emission
        self.settings = settings
        if not emission.timeless:
            # The predictive distribution of an earlier time is not stored, so coefficients cannot
            # be compared.
            self.settings = settings.replace(agree=False)
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
        self.recent_y = np.zeros((length, emission.dim))
        self.recent_design = np.zeros((length, *np.asarray(emission.observation.design).shape))
        self.n_recent = 0
        self.reported = -1
        self.changed = -1
        self.since = 0
        self.reported_ever = set()
        self.predicted = False
        self.regime = -1
        self.change = None
        if initialize:
            self.initialize()

    # ------------------------------------------------------------------ one observation

    def predict(self, design):
        """Write the mixture `forecast` of the next observation for a design (r, m)."""
        self.emission.observation.set_design(design)
        for g in range(self.islands):
            for k in range(self.clock.candidates[g]):
                self.emission.predict(
                    g * self.candidates.capacity + k,
                    self.candidates.row[g * self.candidates.capacity + k],
                )
        self.predicted = True
        self.write_forecast()

    def update(self, y, design):
        """Learn one observation y (d,), NaN meaning missing, with its design (r, m)."""
        reported: cython.Py_ssize_t = self.clock.reported
        remembered: cython.Py_ssize_t = self.clock.n_remembered
        change: cython.double
        self.ensure_room()
        if not self.predicted or not self.same_design(design):
            self.predict(design)
        self.predicted = False
        self.emission.observation.set_value(y)
        self.remember(y)
        change = self.learn()
        self.settled = 0
        for g in range(self.islands):
            if self.clock.position[g] < self.clock.size[g]:
                continue
            if self.clock.observed[g] == 0:
                change -= self.posterior_masses(g) / self.islands
                self.prior_masses(g, False)
                change += self.posterior_masses(g) / self.islands
            self.settled = max(self.settled, self.clock.size[g])
            self.end_batch(g)
        self.weight = min(max(self.weight, 1.0 / MAX_LENGTH), 1.0)
        self.change_probability = change
        self.regime = self.clock.reported
        self.n_regimes = self.clock.n_known
        self.regime_probability = self.matcher.probability(self.regime, self.candidates)
        self.ess = 0.0
        for g in range(self.islands):
            self.ess += self.clock.ess[g]
        if self.clock.reported != reported or self.clock.n_remembered != remembered:
            self.record_change()

    def learn(self):
        """Score and update every candidate; set E w^2; return the probability of a change."""
        seen: cython.bint = self.emission.observation.n_seen > 0
        weight: cython.double = 0.0
        change: cython.double = 0.0
        place: cython.Py_ssize_t
        if seen and self.scoring.kind == CONTAMINATION:
            self.set_outlier_density()
        for g in range(self.islands):
            for k in range(self.clock.candidates[g]):
                place = g * self.candidates.capacity + k
                if seen:
                    self.learn_candidate(place)
                else:
                    self.emission.skip(place)
                    self.candidates.weight[place] = 1.0
            self.clock.position[g] += 1
            if seen:
                self.clock.observed[g] += 1
            change += self.posterior_masses(g) / self.islands
            for k in range(self.clock.candidates[g]):
                place = g * self.candidates.capacity + k
                weight += self.candidates.mass[place] * self.candidates.weight[place] / self.islands
        self.clock.time += 1
        if seen and self.scoring.kind == CONTAMINATION:
            self.learn_outlier_rate(min(weight, 1.0))
        self.weight = weight
        return change

    def learn_candidate(self, place):
        """Add the score of the observation to that of the batch, Eq. (12), and update the row."""
        row: cython.Py_ssize_t = self.candidates.row[place]
        self.candidates.score[place] += self.emission.update(place, row, self.pool.visits[row] == 0)
        self.candidates.weight[place] = self.emission.weight
        if self.emission.weight < self.settings.schedule.outlier_weight:
            self.candidates.outliers[place] += 1

    def end_batch(self, g):
        """Finish the batch of island g, lines 6 to 30 of Algorithm 1, and begin the next."""
        first: cython.Py_ssize_t = self.clock.first[g]
        n: cython.Py_ssize_t = self.clock.first[g + 1] - first
        for k in range(self.clock.candidates[g]):
            self.emission.time_update(
                g * self.candidates.capacity + k,
                self.candidates.row[g * self.candidates.capacity + k],
            )
        if self.clock.observed[g] > 0 or self.all_opened(g):
            self.weigh(g)  # line 6
            if self.settle_weights(g) <= self.settings.ess_threshold * n:  # line 8
                self.resample(g)  # lines 9, 10
            self.assign(g)  # lines 15 to 19
            self.count_outliers(g)
            self.finalize(g)  # line 29
            self.pool.count_owners(self.particles)
            if not self.settings.shared_prior:
                self.draw_prior_rows(g)  # Deviation D9
            self.matcher.reconcile()
            self.prune(g)  # line 20
            self.structure(g)  # lines 21 to 27
        self.clock.commits[g] += 1
        self.pool.count_owners(self.particles)
        self.clock.size[g] = self.settings.schedule.next_size(self.clock.batch_outliers)
        self.begin_batch(g)  # line 31
        self.matcher.vote()

    # ------------------------------------------------------------------ the lines of Algorithm 1

    def weigh(self, g):
        """Write log nu_l = log P(l | s) + score_l for l = 1 .. L + 1 of every particle (line 6).

        Scores count from the best one: a far outlier's must not absorb what is added to it.
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
        """Multiply the weights by the evidence and normalize them; return the ESS (line 13)."""
        first: cython.Py_ssize_t = self.clock.first[g]
        n: cython.Py_ssize_t = self.clock.first[g + 1] - first
        total: cython.double
        # The sum includes the new regime; the paper's sum to L_t is a slip.
        for i in range(first, first + n):
            self.particles.log_weight[i] += logsumexp(
                self.particles.log_nu[i], 0, self.particles.n_regimes[i] + 1
            )
        total = logsumexp(self.particles.log_weight, first, n)
        for i in range(first, first + n):
            if total > -INF:
                self.particles.log_weight[i] -= total
            else:
                self.particles.log_weight[i] = -log(n)
        self.clock.ess[g] = effective_sample_size(self.particles.log_weight, first, n)
        return self.clock.ess[g]

    def resample(self, g):
        """Replace the particles by copies of the likely ones (lines 9, 10).

        This happens before the regime is drawn, so that every copy draws its own.
        """
        first: cython.Py_ssize_t = self.clock.first[g]
        n: cython.Py_ssize_t = self.clock.first[g + 1] - first
        widest: cython.Py_ssize_t = 0
        self.resampler.draw(self.particles.log_weight, first, n, self.random)
        for i in range(first, first + n):
            widest = max(widest, self.particles.n_regimes[i])
        self.resampler.copy_integer_columns(self.particles.slots, first, n, widest + 1)
        self.resampler.copy_float_columns(self.particles.log_beta, first, n, widest + 1)
        self.resampler.copy_integer_columns(self.particles.start, first, n, widest)
        self.resampler.copy_float_columns(self.particles.log_nu, first, n, widest + 1)
        self.resampler.copy_counts(self.particles.counts, first, n, widest)
        self.resampler.copy_integers(self.particles.current, first, n)
        self.resampler.copy_integers(self.particles.n_regimes, first, n)
        self.resampler.copy_floats(self.particles.alpha, first, n)
        self.resampler.copy_floats(self.particles.gamma, first, n)
        for i in range(first, first + n):
            self.particles.log_weight[i] = -log(n)

    def assign(self, g):
        """Draw the regime of each particle from nu and count the transition (lines 15 to 19).

        Deviation D5: the transition into the batch is counted once. The paper also counts the
        forced self-transitions inside the batch and removes them again from the tables.
        """
        n: cython.Py_ssize_t
        choice: cython.Py_ssize_t
        self.write_lookup(g)
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            n = self.particles.n_regimes[i]
            normalize(self.particles.log_nu[i], n + 1, self.shares)
            choice = draw_index(self.shares, n + 1, self.random.uniform())
            self.drawn[i] = self.pool.lookup[self.particles.slots[i, choice]]
            if choice == n:
                self.particles.slots[i, n + 1] = PRIOR_ROW
            count_transition(self.particles, i, choice, self.random)

    def finalize(self, g):
        """Point each chosen slot at its candidate, written once for all particles that chose it."""
        base: cython.Py_ssize_t = g * self.candidates.capacity
        new_label: cython.Py_ssize_t = UNBORN
        free: cython.Py_ssize_t = 1
        row: cython.Py_ssize_t
        k: cython.Py_ssize_t
        for k in range(self.clock.candidates[g]):
            self.written[k] = -1
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            k = self.drawn[i]
            if self.written[k] < 0:
                free = self.pool.first_free(free)
                row = self.candidates.row[base + k]
                self.emission.finalize(base + k, row, free)
                if self.pool.label[row] == UNBORN and new_label == UNBORN:
                    new_label = self.clock.next_label
                    self.clock.next_label += 1
                self.write_pool(g, row, free, new_label)
                self.written[k] = free
            self.particles.slots[i, self.particles.current[i]] = self.written[k]

    def prune(self, g):
        """Bring every particle that reached MAX_STATES below it (line 20)."""
        victim: cython.Py_ssize_t
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            if self.particles.n_regimes[i] >= self.settings.max_regimes:
                victim = least_used(
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
        """Draw tables, alpha, gamma and beta of every `stride`-th particle (lines 21 to 27).

        Which particles are drawn does not depend on their state, so each pass leaves the posterior
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

    def begin_batch(self, g):
        """Start a candidate from every row that a particle of the island stores (line 31)."""
        k: cython.Py_ssize_t = 0
        place: cython.Py_ssize_t
        self.clock.position[g] = 0
        self.clock.observed[g] = 0
        for row in range(self.pool.held.shape[0]):
            self.pool.held[row] = 0
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            for l in range(self.particles.n_regimes[i] + 1):
                self.pool.held[self.particles.slots[i, l]] = 1
        for row in range(self.pool.held.shape[0]):
            if self.pool.held[row] == 1:
                place = g * self.candidates.capacity + k
                self.candidates.row[place] = row
                self.candidates.score[place] = 0.0
                self.candidates.weight[place] = 1.0
                self.candidates.outliers[place] = 0
                self.emission.begin(place, row)
                k += 1
        self.clock.candidates[g] = k
        self.prior_masses(g, True)

    # ------------------------------------------------------------------ masses

    def write_lookup(self, g):
        """Write the candidate of each row of island g."""
        for k in range(self.clock.candidates[g]):
            self.pool.lookup[self.candidates.row[g * self.candidates.capacity + k]] = k

    def prior_masses(self, g, births):
        """Write log P(l | s) of the particles of an island and the prior masses of its candidates.

        If `births` is False (nothing was observed), a new regime is opened only by particles
        without any, and the others share its probability: a batch without observations must not
        distinguish particles.
        """
        base: cython.Py_ssize_t = g * self.candidates.capacity
        last: cython.Py_ssize_t
        current: cython.Py_ssize_t
        place: cython.Py_ssize_t
        rest: cython.double
        log_mass: cython.double
        self.write_lookup(g)
        for k in range(self.clock.candidates[g]):
            self.candidates.log_prior[base + k] = -INF
            self.candidates.log_stay[base + k] = -INF
            self.candidates.log_current[base + k] = -INF
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            last = self.particles.n_regimes[i]
            current = self.particles.current[i]
            log_transition_row(self.particles, i, self.settings.concentration.sticky)
            if not births and last > 0:
                rest = logsumexp(self.particles.log_row[i], 0, last)
                for l in range(last):
                    self.particles.log_row[i, l] -= rest
                self.particles.log_row[i, last] = -INF
            for l in range(last + 1):
                place = base + self.pool.lookup[self.particles.slots[i, l]]
                log_mass = self.particles.log_weight[i] + self.particles.log_row[i, l]
                self.candidates.log_prior[place] = logaddexp(
                    self.candidates.log_prior[place], log_mass
                )
                if l == current or current == START:
                    self.candidates.log_stay[place] = logaddexp(
                        self.candidates.log_stay[place], log_mass
                    )
            place = self.particles.slots[i, last if current == START else current]
            place = base + self.pool.lookup[place]
            self.candidates.log_current[place] = logaddexp(
                self.candidates.log_current[place], self.particles.log_weight[i]
            )
        self.posterior_masses(g)

    def posterior_masses(self, g):
        """Write the masses of the candidates given the batch so far; return P(change)."""
        n: cython.Py_ssize_t = self.clock.candidates[g]
        base: cython.Py_ssize_t = g * self.candidates.capacity
        total: cython.double
        stayed: cython.double = 0.0
        for k in range(base, base + n):  # first in logs
            self.candidates.mass[k] = self.candidates.log_prior[k] + self.candidates.score[k]
        total = logsumexp(self.candidates.mass, base, n)
        for k in range(base, base + n):
            if self.candidates.mass[k] > -INF:
                stayed += exp(self.candidates.log_stay[k] + self.candidates.score[k] - total)
            self.candidates.mass[k] = exp(self.candidates.mass[k] - total)
        return max(0.0, 1.0 - stayed)

    # ------------------------------------------------------------------ outliers

    def outlier_rate(self):
        """Return eps, the bounded posterior mean of the rate of outliers."""
        a: cython.double = self.clock.outliers[0]
        b: cython.double = self.clock.outliers[1]
        return min(a / (a + b), MAX_OUTLIER_RATE)

    def write_centre(self):
        """Write the centre of q: the mean forecast of the opened regimes, or of all if none is."""
        total: cython.double = 0.0
        place: cython.Py_ssize_t
        share: cython.double
        for opened in range(2):
            total = 0.0
            for j in range(self.centre.shape[0]):
                self.centre[j] = 0.0
            for g in range(self.islands):
                for k in range(self.clock.candidates[g]):
                    place = g * self.candidates.capacity + k
                    if opened == 0 and self.pool.label[self.candidates.row[place]] == UNBORN:
                        continue
                    share = self.candidates.mass[place]
                    total += share
                    for j in range(self.centre.shape[0]):
                        self.centre[j] += share * self.emission.predictive.location[place, j]
            if total > 1e-6:
                for j in range(self.centre.shape[0]):
                    self.centre[j] /= total
                return

    def set_outlier_density(self):
        """Set the density q of outliers at the observation: a Student-t around the forecast."""
        n: cython.Py_ssize_t = self.emission.observation.n_seen
        squared: cython.double = 0.0
        log_det: cython.double
        value: cython.double
        at: cython.Py_ssize_t
        self.write_centre()
        log_det = factorize(
            self.outlier_scale,
            self.emission.observation.seen,
            n,
            self.emission.observation.lower,
        )
        for i in range(n):
            at = self.emission.observation.seen[i]
            value = self.emission.observation.y[at] - self.centre[at]
            value = min(max(value, -MAX_LENGTH), MAX_LENGTH)
            for b in range(i):
                value -= self.emission.observation.lower[i, b] * self.white[b]
            value /= self.emission.observation.lower[i, i]
            self.white[i] = min(max(value, -MAX_LENGTH / n), MAX_LENGTH / n)
            squared += self.white[i] * self.white[i]
        self.scoring.set_outlier_density(
            self.outlier_rate(), log_outlier_density(sqrt(squared), log_det, n)
        )

    def learn_outlier_rate(self, weight):
        """Add 1 - r to the Beta count of outliers and r to that of regular observations."""
        keep: cython.double = 1.0 - 1.0 / RATE_MEMORY
        prior: cython.double
        for j in range(2):
            prior = self.settings.outlier_prior[j]
            self.clock.outliers[j] = (
                prior
                + keep * (self.clock.outliers[j] - prior)
                + (1.0 - weight if j == 0 else weight)
            )

    def count_outliers(self, g):
        """Count the observations that the chosen regimes took for outliers, for the schedule."""
        expected: cython.double = 0.0
        base: cython.Py_ssize_t = g * self.candidates.capacity
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            expected += (
                exp(self.particles.log_weight[i]) * self.candidates.outliers[base + self.drawn[i]]
            )
        self.clock.batch_outliers[0] += expected
        self.clock.batch_outliers[1] += self.clock.observed[g]

    # ------------------------------------------------------------------ forecast

    def write_forecast(self):
        """Write the components of the forecast, that of outliers last.

        Deviation D7: the candidates, informed by the batch so far. The paper's text takes the
        regime of each particle at the start of the batch, with one noise term for every step since
        (D8, Eq. (25)).
        """
        at: cython.Py_ssize_t = 0
        place: cython.Py_ssize_t
        mass: cython.double
        rate: cython.double = 0.0
        d: cython.Py_ssize_t = self.emission.dim
        need: cython.Py_ssize_t = 1
        for g in range(self.islands):
            need += self.clock.candidates[g]
        if need > self.forecast.share.shape[0]:
            self.forecast.reserve(need)
        if self.scoring.kind == CONTAMINATION:
            rate = self.outlier_rate()
        for g in range(self.islands):
            for k in range(self.clock.candidates[g]):
                place = g * self.candidates.capacity + k
                if self.settings.mixture:
                    mass = self.candidates.mass[place]
                else:
                    mass = exp(self.candidates.log_current[place])
                if mass <= MIN_SHARE:
                    continue
                self.forecast.share[at] = (1.0 - rate) * mass / self.islands
                if self.settings.mixture:
                    self.forecast.dof[at] = self.emission.predictive.dof[place]
                    for i in range(d):
                        self.forecast.location[at, i] = self.emission.predictive.location[place, i]
                        for j in range(d):
                            self.forecast.spread[at, i, j] = self.emission.predictive.spread[
                                place, i, j
                            ]
                else:
                    self.write_start_component(at, place, g)
                at += 1
        if rate > 0.0:
            self.write_centre()
            self.forecast.share[at] = rate
            self.forecast.dof[at] = OUTLIER_DOF
            for i in range(d):
                self.forecast.location[at, i] = self.centre[i]
                for j in range(d):
                    self.forecast.spread[at, i, j] = self.outlier_scale[i, j]
            at += 1
        self.forecast.size = at

    def write_start_component(self, at, place, g):
        """Write the predictive distribution of the row at the start of the batch (D7 off)."""
        extra: cython.double = 0.0
        if not self.settings.one_noise:  # Deviation D8: one noise term for every step
            extra = self.clock.position[g]
        self.forecast.dof[at] = self.emission.predictive.start_dof[place]
        for i in range(self.emission.dim):
            self.forecast.location[at, i] = self.emission.predictive.start_location[place, i]
            for j in range(self.emission.dim):
                self.forecast.spread[at, i, j] = (
                    self.emission.predictive.start_spread[place, i, j] + extra * self.noise[i, j]
                )

    # ------------------------------------------------------------------ bookkeeping

    def all_opened(self, g):
        """Return whether every particle of the island has a regime."""
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            if self.particles.n_regimes[i] == 0:
                return False
        return True

    def write_pool(self, g, row, into, new_label):
        """Write the bookkeeping of the successor of a row."""
        unborn: cython.bint = self.pool.label[row] == UNBORN
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

    def draw_prior_rows(self, g):
        """Give every unopened regime of the island a prior mean of its own (D9 off)."""
        free: cython.Py_ssize_t = 1
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            if self.particles.slots[i, self.particles.n_regimes[i]] == PRIOR_ROW:
                free = self.pool.first_free(free)
                self.emission.draw_prior(PRIOR_ROW, free, self.random)
                self.pool.clear(free)
                self.pool.owners[free] = 1
                self.particles.slots[i, self.particles.n_regimes[i]] = free

    def remember(self, y):
        """Keep the observation and its design, for dating a change."""
        at: cython.Py_ssize_t = self.n_recent % self.recent_y.shape[0]
        for j in range(self.recent_y.shape[1]):
            self.recent_y[at, j] = y[j]
        for i in range(self.recent_design.shape[1]):
            for a in range(self.recent_design.shape[2]):
                self.recent_design[at, i, a] = self.emission.observation.design[i, a]
        self.n_recent += 1

    def same_design(self, design):
        """Return whether the latest prediction was made for this design."""
        for i in range(self.emission.observation.design.shape[0]):
            for a in range(self.emission.observation.design.shape[1]):
                if self.emission.observation.design[i, a] != design[i, a]:
                    return False
        return True

    # ------------------------------------------------------------------ memory

    def ensure_room(self):
        """Make room for the batches that end with the next observation."""
        free: cython.Py_ssize_t = -1
        n: cython.Py_ssize_t
        drawn: cython.Py_ssize_t
        for g in range(self.islands):
            if self.clock.position[g] + 1 < self.clock.size[g]:
                continue
            n = self.clock.first[g + 1] - self.clock.first[g]
            drawn = 0 if self.settings.shared_prior else n
            if 2 * self.clock.candidates[g] + 1 + drawn > self.candidates.capacity:
                self.grow()
                return
            if free < 0:
                free = 0
                for row in range(self.pool.owners.shape[0]):
                    if self.pool.owners[row] == 0:
                        free += 1
            free -= min(self.clock.candidates[g], n) + drawn
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
        self.reserve_rows(used + self.islands * min(most, n) + self.islands * extra + 2)
        self.reserve_slots(int(np.asarray(self.particles.n_regimes).max()) + 2)

    def reserve_candidates(self, n):
        """Make room for n candidates of every island."""
        capacity = self.candidates.capacity
        if n <= capacity:
            return
        while capacity < n:
            capacity *= 2
        self.candidates.grow(capacity)
        self.emission.resize_candidates(self.islands, capacity)
        self.written = np.zeros(capacity, np.int64)

    def reserve_rows(self, n):
        """Make room for n rows."""
        capacity = self.pool.owners.shape[0]
        if n <= capacity:
            return
        while capacity < n:
            capacity *= 2
        self.pool.grow(capacity)
        self.emission.resize_rows(capacity)

    def reserve_slots(self, n):
        """Make room for n regimes of every particle."""
        slots = self.particles.start.shape[1]
        if n >= slots:
            while slots <= n:
                slots *= 2
            self.particles.widen(slots)
        self.settings.concentration.reserve(slots + 1)
        if self.shares.shape[0] < slots + 1:
            self.shares = np.zeros(slots + 1)
            self.visits, self.taken = np.zeros((2, slots + 1), np.int64)

    # ------------------------------------------------------------------ for callers in Python

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
        """Open regime 1 before anything was observed, in rows of its own (D6 off).

        On the row of the prior, its label would pass to every regime opened later.
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

    def count_candidates(self):
        """Return the number of distinct rows that the particles of each island store."""
        slots, n = np.asarray(self.particles.slots), np.asarray(self.particles.n_regimes)
        used = np.arange(slots.shape[1]) <= n[:, None]
        first = np.asarray(self.clock.first)
        return [
            np.unique(slots[a:b][used[a:b]]).size
            for a, b in zip(first[:-1], first[1:], strict=True)
        ]

    def extra_rows(self):
        """Return how many rows a batch may need beside those of its candidates (D9)."""
        return 0 if self.settings.shared_prior else self.particles.alpha.shape[0]

    def restart_batch(self, g):
        """Start the candidates of the batch under way again."""
        self.begin_batch(g)

    def refresh_masses(self, g):
        """Compute the masses of the candidates of an island again; return P(change)."""
        self.prior_masses(g, True)
        return self.posterior_masses(g)

    def predict_one(self, design):
        """Return the components (share, location, spread, dof) of the next observation."""
        values: cython.double[:, ::1] = np.array(design, np.float64, order="C")
        if not (self.predicted and self.same_design(values)):
            with cython.nogil:
                self.predict(values)
        self.raise_error()
        n = self.forecast.size
        return (
            np.array(self.forecast.share[:n]),
            np.array(self.forecast.location[:n]),
            np.array(self.forecast.spread[:n]),
            np.array(self.forecast.dof[:n]),
        )

    def step(self, y, design):
        """Learn one observation y (d,) with its design (r, m).

        Returns:
            (log density of y under its forecast, the Change or None). The log density is NaN if y
            is missing, and is computed for d = 1 only.
        """
        value: cython.double[::1] = y
        features: cython.double[:, ::1] = design
        score: cython.double = float("nan")
        total: cython.double
        with cython.nogil:
            if not self.predicted or not self.same_design(features):
                self.predict(features)
            if self.emission.dim == 1:
                # As in a run, where the shares are normalized first.
                total = 0.0
                for k in range(self.forecast.size):
                    total += self.forecast.share[k]
                for k in range(self.forecast.size):
                    self.forecast.share[k] /= total
                score = log_mixture(
                    value[0],
                    self.forecast.share,
                    self.forecast.location[:, 0],
                    self.forecast.spread[:, 0, 0],
                    self.forecast.dof,
                    self.forecast.size,
                    0,
                )
            self.update(value, features)
        self.raise_error()
        change = self.change
        self.change = None
        return score, change

    def run(self, y, designs, stop_below=0.0):
        """Learn observations y (T, d) with their designs (T, r, m).

        Args:
            y: observations; NaN means missing.
            designs: designs.
            stop_below: stop after the first observation whose weight is below this.

        Returns:
            (number of observations learnt, Trace). The forecasts in the trace were made before
            their observations were learnt.
        """
        values: cython.double[:, ::1] = np.array(y, np.float64, order="C")
        design: cython.double[:, :, ::1] = np.array(designs, np.float64, order="C")
        trace = Trace(values.shape[0], self.emission.dim)
        least: cython.double = stop_below
        with cython.nogil:
            done = self.loop(values, design, least, trace)
        self.raise_error()
        return done, trace

    def loop(self, y, designs, stop_below, trace):
        """Run over a chunk; return the number of observations learnt."""
        for t in range(y.shape[0]):
            if not self.predicted or not self.same_design(designs[t]):
                self.predict(designs[t])
            self.append_forecast(trace, t)
            self.update(y[t], designs[t])
            trace.weight[t] = self.weight
            trace.change[t] = self.change_probability
            trace.ess[t] = self.ess
            trace.regime[t] = self.regime
            trace.n_known[t] = self.n_regimes
            trace.probability[t] = self.regime_probability
            trace.settled[t] = self.settled
            if self.change is not None:
                self.note_change(trace)
            if self.weight < stop_below and self.emission.observation.n_seen > 0:
                return t + 1
        return y.shape[0]

    def append_forecast(self, trace, t):
        """Append the components of the forecast to the trace."""
        at: cython.Py_ssize_t = trace.offset[t]
        n: cython.Py_ssize_t = self.forecast.size
        d: cython.Py_ssize_t = self.emission.dim
        trace.components.size = at
        if at + n > trace.components.share.shape[0]:
            trace.components.reserve(at + n)
        for k in range(n):
            trace.components.share[at + k] = self.forecast.share[k]
            trace.components.dof[at + k] = self.forecast.dof[k]
            for i in range(d):
                trace.components.location[at + k, i] = self.forecast.location[k, i]
                for j in range(d):
                    trace.components.spread[at + k, i, j] = self.forecast.spread[k, i, j]
        trace.offset[t + 1] = at + n

    def note_change(self, trace):
        """Move the latest change to the trace."""
        trace.changes.append(self.change)
        self.change = None

    def raise_error(self):
        """Raise what an emission or a weight written in Python raised inside the loop."""
        for part in (self.emission, self.scoring):
            error = getattr(part, "error", None)
            if error is not None:
                part.error = None
                raise error

    def record_change(self):
        """Record that the reported regime or the remembered regimes changed, and date it."""
        # Labels are Python integers in uncompiled code too, because they go into snapshots.
        now, before = int(self.clock.reported), int(self.reported)
        self.reported = now
        held = self.remembered()
        lost = tuple(sorted(self.reported_ever - held))
        self.reported_ever = (self.reported_ever & held) | ({now} if now != -1 else set())
        if now == before and not lost:
            return
        time = self.clock.time - 1
        since = time
        if now != before and before != -1:
            since = max(self.date_change(before, now), min(self.changed + 1, since))
        elif now != before:
            since = 0
        if now != before:
            self.changed = since
            self.since = since
        self.change = Change(time, since, now, before, lost)

    def date_change(self, old, new):
        """Return the first observation of regime `new`, which has followed `old`.

        A change is known only when batches end. With the latest observations and both regimes as
        they are known now, it is dated to

            argmax over tau of   sum_{t < tau} log p_old(y_t)  +  sum_{t >= tau} log p_new(y_t).
        """
        time = self.clock.time
        if not self.emission.timeless:
            return max(int(time - np.asarray(self.clock.size).max()), 0)
        rows = [self.version_of(label) for label in (old, new)]
        if min(rows) < 0:
            return time - 1
        y, designs = self.recent()
        probe = self.probe()
        location, spread = probe.filter_rows(rows, y, designs, False, True)[2:4]
        variance = np.einsum("rtii->rti", spread)
        residual = np.minimum(np.abs(y - location), 1e100)
        each = -0.5 * (np.log(variance) + residual * residual / variance)
        score = np.where(np.isnan(y), 0.0, each).sum(axis=2)
        # As bounded as the scores of the filter: no single value may decide.
        gain = np.clip(score[1] - score[0], -MAX_DATING_EVIDENCE, MAX_DATING_EVIDENCE)
        after = np.cumsum(gain[::-1])[::-1]  # evidence of all observations from tau on
        return max(time - len(y) + int(np.argmax(after)), 0)

    def recent(self):
        """Return the latest observations (L, d) and their designs (L, r, m), in order."""
        n = self.n_recent
        length = self.recent_y.shape[0]
        order = np.arange(max(n - length, 0), n) % length
        return np.asarray(self.recent_y)[order], np.asarray(self.recent_design)[order]

    def probe(self):
        """Return an emission beside the filter that shares its rows."""
        if self.cached_probe is None:
            self.cached_probe = self.build_probe()
        probe = self.cached_probe
        probe.share_rows(self.emission)
        probe.resize_candidates(1, 1)
        return probe

    def remembered(self):
        """Return the labels that any particle stores."""
        slots, n = np.asarray(self.particles.slots), np.asarray(self.particles.n_regimes)
        used = np.arange(slots.shape[1]) < n[:, None]
        return set(np.asarray(self.pool.label)[slots[used]].tolist())

    def version_of(self, label):
        """Return the row of a regime that most of the weight remembers, or -1."""
        held = self.row_mass()
        held[np.asarray(self.pool.label) != label] = 0.0
        return int(np.argmax(held)) if held.max() > 0 else -1

    def row_mass(self):
        """Return the weight of the particles that remember each row as an opened regime."""
        mass = np.zeros(self.pool.owners.shape[0])
        slots, n = np.asarray(self.particles.slots), np.asarray(self.particles.n_regimes)
        weight = np.exp(np.asarray(self.particles.log_weight)) / self.islands
        for i in range(n.size):
            np.add.at(mass, slots[i, : n[i]], weight[i])
        return mass

    def transitions_of(self, i):
        """Return P(l | s) of particle i among its regimes and, last, a new one."""
        n = int(self.particles.n_regimes[i]) + 1
        matrix = np.empty((n, n))
        transition_matrix(self.particles, i, self.settings.concentration.sticky, matrix)
        return matrix

    def rate(self):
        """Return the outlier rate learnt so far; 0 without contamination."""
        return self.outlier_rate() if self.scoring.is_contamination() else 0.0

    def candidate_places(self, g):
        """Return the places of the candidates of island g."""
        return g * self.candidates.capacity + np.arange(self.clock.candidates[g])

    def expected_moves(self, g):
        """Return the (K, K) expected probabilities of moving between candidates per batch."""
        n = int(self.clock.candidates[g])
        matrix = np.zeros((n, n))
        self.write_lookup(g)
        lookup, slots = np.asarray(self.pool.lookup), np.asarray(self.particles.slots)
        for i in range(int(self.clock.first[g]), int(self.clock.first[g + 1])):
            at = lookup[slots[i, : self.particles.n_regimes[i] + 1]]
            weight = math.exp(self.particles.log_weight[i])
            np.add.at(matrix, (at[:, None], at[None, :]), weight * self.transitions_of(i))
        total = matrix.sum(axis=1, keepdims=True)
        return np.divide(matrix, total, out=np.zeros_like(matrix), where=total > 0.0)

    def masses_ahead(self, g, batches):
        """Return the masses (batches, K) of the candidates of an island after 0, 1, .. batches."""
        n = int(self.clock.candidates[g])
        self.weigh(g)
        lookup, slots = np.asarray(self.pool.lookup), np.asarray(self.particles.slots)
        first, last = int(self.clock.first[g]), int(self.clock.first[g + 1])
        log_nu, log_weight = np.asarray(self.particles.log_nu), self.particles.log_weight
        logs = []
        for i in range(first, last):
            logs.append(log_weight[i] + log_nu[i, : self.particles.n_regimes[i] + 1])
        evidence = np.array([np.logaddexp.reduce(own) for own in logs])
        total = np.logaddexp.reduce(evidence)
        masses = np.zeros((batches, n))
        for i in range(first, last):
            own = logs[i - first]
            at = lookup[slots[i, : own.size]]
            here = np.exp(own - total)
            matrix = self.transitions_of(i)
            for j in range(batches):
                np.add.at(masses[j], at, here)
                here = here @ matrix
        return masses

    def predict_places(self, places, designs):
        """Return (location, spread, dof) of candidates at some places, each with its own design."""
        design: cython.double[:, :, ::1] = np.array(designs, np.float64, order="C")
        n = len(places)
        d = self.emission.dim
        location, spread, dof = np.empty((n, d)), np.empty((n, d, d)), np.empty(n)
        predictive = self.emission.predictive
        for i, place in enumerate(places):
            self.emission.observation.set_design(design[i])
            self.emission.predict(place, self.candidates.row[place])
            location[i] = predictive.location[place]
            spread[i] = predictive.spread[place]
            dof[i] = predictive.dof[place]
        self.predicted = False
        return location, spread, dof

    def skip_candidates(self):
        """Advance every candidate without an observation."""
        for g in range(self.islands):
            for k in range(self.clock.candidates[g]):
                self.emission.skip(g * self.candidates.capacity + k)


def rate_memory():
    """Return the number of observations over which the outlier rate is remembered."""
    return RATE_MEMORY
