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

Where the text of the paper breaks, a deviation D1 .. D18 is marked at its line; docs/deviations.md
explains each, and `rule="paper"` switches them off.
"""

from __future__ import annotations

import cython

from regimekit.ihmm.changepoint_dating import record_change

if not cython.compiled:
    from regimekit.ihmm.batch_update import BatchUpdate
    from regimekit.ihmm.weights import CONTAMINATION, MAX_LENGTH


class Algorithm(BatchUpdate):
    """One step of Algorithm 1."""

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
            self.note_change()

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
        self.follow_stream(g)  # Deviation D16
        self.pool.count_owners(self.particles)
        self.clock.size[g] = self.settings.schedule.next_size(self.clock.batch_outliers)
        self.begin_batch(g)  # line 31
        self.matcher.vote()

    def note_change(self):
        """Record that the reported regime or the remembered regimes changed, and date it."""
        record_change(self)
