"""One observation inside a batch: scores, masses of the candidates, outliers, forecast.

The weighted filter runs over *rows*, not particles: particles that share a regime share its row
(see `state`), so the score of a batch belongs to the row, and what is left per particle is a
transition row, one draw and a structure sweep. With the prior mass of row r,

    pi_r = sum over particles i and slots l that point at r of omega_i P(l | s_i),

its posterior mass given the batch so far is pi_r exp(score_r), normalized within the island. The
forecast inside a batch is the mixture of the candidates by these masses (deviation D7).
"""

from __future__ import annotations

import cython
from cython.cimports.libc.math import exp, fabs, sqrt

if not cython.compiled:
    from regimekit.core.logspace import logaddexp, logsumexp
    from regimekit.ihmm.filter_state import FilterState
    from regimekit.ihmm.hdp import log_transition_row
    from regimekit.ihmm.state import START, UNBORN
    from regimekit.ihmm.weights import (
        CONTAMINATION,
        MAX_LENGTH,
        MAX_OUTLIER_RATE,
        OUTLIER_DOF,
        factorize,
        log_outlier_density,
    )

INF = cython.declare(cython.double, float("inf"))
# Memory of the rate of outliers, in observations.
RATE_MEMORY = cython.declare(cython.double, 1000.0)
# Its memory while the rate is above HIGH_RATE times its first guess (D18).
OUTLIER_MEMORY = cython.declare(cython.double, 30.0)
HIGH_RATE = cython.declare(cython.double, 3.0)
# Standard deviations beyond which a regime that was not visited lately fades from forecasts (D17).
FADE_DISTANCE = cython.declare(cython.double, 50.0)
# Components of a forecast with a smaller share are left out.
MIN_SHARE = cython.declare(cython.double, 1e-12)


class WithinBatch(FilterState):
    """Candidates of the batches under way and the forecast that they make."""

    def learn_candidate(self, place):
        """Add the score of the observation to that of the batch, Eq. (12); update the candidate."""
        row: cython.Py_ssize_t = self.candidates.row[place]
        if not self.settings.one_noise:  # Deviation D8: Eq. (25) has b R at the b-th observation
            self.emission.observation.extra_noise = self.clock.position[
                place // self.candidates.capacity
            ]
        self.candidates.score[place] += self.emission.update(place, row, self.pool.visits[row] == 0)
        self.candidates.weight[place] = self.emission.weight
        if self.emission.weight < self.settings.schedule.outlier_weight:
            self.candidates.outliers[place] += 1

    def prior_masses(self, g, births):
        """Write log P(l | s) of the particles of an island and the prior masses of its candidates.

        Args:
            births: whether new regimes may be opened. If nothing was observed, they are opened
                only by particles without any, and the others share their probability, because a
                batch without observations must not distinguish particles.
        """
        base: cython.Py_ssize_t = g * self.candidates.capacity
        self.write_lookup(g)
        for k in range(self.clock.candidates[g]):
            self.candidates.log_prior[base + k] = -INF
            self.candidates.log_stay[base + k] = -INF
            self.candidates.log_current[base + k] = -INF
        for i in range(self.clock.first[g], self.clock.first[g + 1]):
            last: cython.Py_ssize_t = self.particles.n_regimes[i]
            current: cython.Py_ssize_t = self.particles.current[i]
            log_transition_row(self.particles, i, self.settings.concentration.sticky)
            if not births and last > 0:
                rest: cython.double = logsumexp(self.particles.log_row[i], 0, last)
                for l in range(last):
                    self.particles.log_row[i, l] -= rest
                self.particles.log_row[i, last] = -INF
            for l in range(last + 1):
                place: cython.Py_ssize_t = base + self.pool.lookup[self.particles.slots[i, l]]
                log_mass: cython.double = (
                    self.particles.log_weight[i] + self.particles.log_row[i, l]
                )
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
        """Write the masses of the candidates of island `g` in the batch; return P(change)."""
        n: cython.Py_ssize_t = self.clock.candidates[g]
        base: cython.Py_ssize_t = g * self.candidates.capacity
        stayed: cython.double = 0.0
        for k in range(base, base + n):  # first in logs
            self.candidates.mass[k] = self.candidates.log_prior[k] + self.candidates.score[k]
        total: cython.double = logsumexp(self.candidates.mass, base, n)
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
        """Write the centre of q: the mean forecast of the opened regimes, or of all without any."""
        total: cython.double = 0.0
        for opened in range(2):
            total = 0.0
            for j in range(self.centre.shape[0]):
                self.centre[j] = 0.0
            for g in range(self.islands):
                for k in range(self.clock.candidates[g]):
                    place: cython.Py_ssize_t = g * self.candidates.capacity + k
                    if opened == 0 and self.pool.label[self.candidates.row[place]] == UNBORN:
                        continue
                    share: cython.double = self.candidates.mass[place] * self.candidates.fade[place]
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
        self.write_centre()
        log_det: cython.double = factorize(
            self.outlier_scale, self.emission.observation.seen, n, self.emission.observation.lower
        )
        for i in range(n):
            at: cython.Py_ssize_t = self.emission.observation.seen[i]
            value: cython.double = self.emission.observation.y[at] - self.centre[at]
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
        """Add 1 - r to the Beta count of outliers and r to that of regular observations.

        Deviation D18: the first observations of a stream may be classified as outliers for long.
        While the rate is high, outliers are discounted sooner, so that they do not widen the
        intervals of hundreds of ordinary observations.

        Args:
            weight: r.
        """
        prior: cython.double = self.settings.outlier_prior[0]
        total: cython.double = prior + self.settings.outlier_prior[1]
        keep: cython.double = 1.0 - 1.0 / RATE_MEMORY
        if self.settings.renew and self.outlier_rate() * total > HIGH_RATE * prior:
            keep = 1.0 - 1.0 / OUTLIER_MEMORY
        self.clock.outliers[0] = prior + keep * (self.clock.outliers[0] - prior) + (1.0 - weight)
        prior = self.settings.outlier_prior[1]
        keep = 1.0 - 1.0 / RATE_MEMORY
        self.clock.outliers[1] = prior + keep * (self.clock.outliers[1] - prior) + weight

    # ------------------------------------------------------------------ forecast

    def write_fading(self):
        """Write the share of its mass that each candidate has in a forecast, and return their sum.

        Deviation D17: at z > 50 standard deviations from the most likely candidate, a regime that
        was not visited within the window of recent observations counts with (50 / z)^2 of its mass,
        so its effect on the mean falls as 1 / z. Otherwise a regime thousands of standard
        deviations away would move the mean, however unlikely its return is.
        """
        heaviest: cython.Py_ssize_t = 0
        total: cython.double = 0.0
        for g in range(self.islands):
            for k in range(self.clock.candidates[g]):
                place: cython.Py_ssize_t = g * self.candidates.capacity + k
                if self.candidates.mass[place] > self.candidates.mass[heaviest]:
                    heaviest = place
        for g in range(self.islands):
            for k in range(self.clock.candidates[g]):
                place = g * self.candidates.capacity + k
                row: cython.Py_ssize_t = self.candidates.row[place]
                self.candidates.fade[place] = 1.0
                if self.clock.time - self.pool.last_seen[row] > self.recent_y.shape[0]:
                    self.candidates.fade[place] = self.fading(place, heaviest)
                if self.candidates.fade[place] < 1.0:
                    total += self.candidates.mass[place] * (1.0 - self.candidates.fade[place])
        return 1.0 - total / self.islands

    def fading(self, place, heaviest):
        """Return the share of its mass that candidate `place` keeps beside candidate `heaviest`."""
        z: cython.double = 0.0
        for j in range(self.emission.dim):
            scale: cython.double = max(
                self.emission.predictive.spread[place, j, j],
                self.emission.predictive.spread[heaviest, j, j],
            )
            z = max(
                z,
                fabs(
                    self.emission.predictive.location[place, j]
                    - self.emission.predictive.location[heaviest, j]
                )
                / sqrt(scale),
            )
        if z <= FADE_DISTANCE:
            return 1.0
        return (FADE_DISTANCE / z) * (FADE_DISTANCE / z)

    def write_forecast(self):
        """Write the components of the forecast, that of outliers last.

        Deviation D7: the candidates, informed by the batch so far. The paper's text takes the
        regime of each particle at the start of the batch, with one noise term for every step since
        (D8, Eq. (25)).
        """
        at: cython.Py_ssize_t = 0
        rate: cython.double = 0.0
        kept: cython.double = 1.0
        need: cython.Py_ssize_t = 1
        for g in range(self.islands):
            need += self.clock.candidates[g]
        if need > self.forecast.share.shape[0]:
            self.forecast.reserve(need)
        if self.scoring.kind == CONTAMINATION:
            rate = self.outlier_rate()
        if self.settings.fade:
            kept = self.write_fading()
        for g in range(self.islands):
            for k in range(self.clock.candidates[g]):
                place: cython.Py_ssize_t = g * self.candidates.capacity + k
                mass: cython.double = self.candidates.mass[place]
                if not self.settings.mixture:
                    mass = exp(self.candidates.log_current[place])
                elif kept < 1.0:
                    mass *= self.candidates.fade[place] / kept
                if mass > MIN_SHARE:
                    self.write_component(at, (1.0 - rate) * mass / self.islands, place, g)
                    at += 1
        if rate > 0.0:
            self.write_centre()
            self.forecast.share[at] = rate
            self.forecast.dof[at] = OUTLIER_DOF
            for i in range(self.emission.dim):
                self.forecast.location[at, i] = self.centre[i]
                for j in range(self.emission.dim):
                    self.forecast.spread[at, i, j] = self.outlier_scale[i, j]
            at += 1
        self.forecast.size = at

    def write_component(self, at, share, place, g):
        """Write the predictive distribution of a candidate; with D7 off that of its row."""
        if self.settings.mixture:
            self.forecast.put(
                at,
                share,
                self.emission.predictive.location,
                self.emission.predictive.spread,
                self.emission.predictive.dof[place],
                place,
            )
            return
        self.forecast.put(
            at,
            share,
            self.emission.predictive.start_location,
            self.emission.predictive.start_spread,
            self.emission.predictive.start_dof[place],
            place,
        )
        if not self.settings.one_noise:  # Deviation D8: one noise term for every step
            for i in range(self.emission.dim):
                for j in range(self.emission.dim):
                    self.forecast.spread[at, i, j] += self.clock.position[g] * self.noise[i, j]


def rate_memory():
    """Return RATE_MEMORY and OUTLIER_MEMORY, for Python code."""
    return RATE_MEMORY, OUTLIER_MEMORY
