"""Algorithm 1 of the paper: the batched online infinite HMM with robust updates (BR-iHMM).

All particles that store a regime share its row, and the particles of an island share the batches
(`state`). Lines 4, 5, 6 and 27 are therefore computed once per *candidate*, a row together with the
batch so far; a transition row and a sum per particle remain of the loop in lines 3 to 7. What the
text computes for all observations at the end of a batch is computed here when each arrives, so
forecasts use the part of the batch that is known.

Lines and equations have the numbers that LaTeX prints. Where the code differs from the text, the
deviation D1 .. D18 is marked; docs/deviations.md explains each, `rule="paper"` switches them off.
"""

from __future__ import annotations

import cython

from regimekit.ihmm.changepoint_dating import record_change

if not cython.compiled:
    from regimekit.ihmm.batch_update import BatchUpdate
    from regimekit.ihmm.weights import CONTAMINATION, MAX_LENGTH


class Algorithm(BatchUpdate):
    """One step of Algorithm 1 and the end of a batch; the base classes have one method per line."""

    def predict(self, design):
        """Write the mixture of the next observation, of design (r, m), to `forecast` (line 4)."""
        self.emission.observation.set_design(design)
        # Line 4: the predictive distribution of every candidate, Eq. (4), form:lg_post_pred, and
        # Eqs. (22) to (24), form:obs_cond_likelihood.
        for g in range(self.islands):
            for k in range(self.clock.candidates[g]):
                place: cython.Py_ssize_t = g * self.candidates.capacity + k
                self.emission.predict(place, self.candidates.row[place])
        self.predicted = True
        # Deviation D7: the mixture of all candidates given the batch so far; the paper forecasts
        # the whole batch by the present regime of each particle, Eq. (25), form:multistep_pred,
        # with b R (D8). Deviation D17: distant regimes that were not visited lately count less.
        self.write_forecast()

    def update(self, y, design):
        """Learn one observation (lines 5 and 27; at the end of a batch lines 6 to 30).

        Deviation D13: lags in the design are those of a cleaned past (`lagged`).

        Args:
            y: (d,) observation; NaN means missing.
            design: (r, m) its design.
        """
        reported: cython.Py_ssize_t = self.clock.reported
        remembered: cython.Py_ssize_t = self.clock.n_remembered
        self.ensure_room()
        if not self.predicted or not self.same_design(design):
            self.predict(design)  # line 4
        self.predicted = False
        self.emission.observation.set_value(y)
        self.remember(y)
        change: cython.double = self.learn()  # lines 5 and 27, for one observation of the batch
        self.settled = 0
        for g in range(self.islands):
            if self.clock.position[g] < self.clock.size[g]:
                continue
            if self.clock.observed[g] == 0:
                change -= self.posterior_masses(g) / self.islands
                self.prior_masses(g, False)
                change += self.posterior_masses(g) / self.islands
            self.settled = max(self.settled, self.clock.size[g])
            self.end_batch(g)  # lines 6 to 30
        self.weight = min(max(self.weight, 1.0 / MAX_LENGTH), 1.0)
        self.change_probability = change
        self.regime = self.clock.reported
        self.n_regimes = self.clock.n_known
        self.regime_probability = self.matcher.probability(self.regime, self.candidates)
        self.ess = 0.0
        for g in range(self.islands):
            self.ess += self.clock.ess[g]
        if self.clock.reported != reported or self.clock.n_remembered != remembered:
            self.note_change()  # Deviation D14: dated to its first observation

    def learn(self):
        """Score and update every candidate, set `weight`; return the probability of a change."""
        seen: cython.bint = self.emission.observation.n_seen > 0
        weight: cython.double = 0.0
        change: cython.double = 0.0
        if seen and self.scoring.kind == CONTAMINATION:
            self.set_outlier_density()
        for g in range(self.islands):
            for k in range(self.clock.candidates[g]):
                place: cython.Py_ssize_t = g * self.candidates.capacity + k
                if seen:
                    # Line 5: the weight W(y, yhat), Eq. (10), under S instead of R (D2). The first
                    # term of Eq. (12), form:batched_posterior_pred, grows by the score
                    # log N(y; yhat, S / w^2) (D1), given the batch so far (D4), without b R (D8).
                    # Line 27: the WoLF update, Eq. (3), eq:kf-update, and Eq. (11),
                    # form:wolf_update, weighted in the first batch of a regime too (D3).
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
            self.learn_outlier_rate(min(weight, 1.0))  # Deviation D18: with a memory by the rate
        self.weight = weight
        return change

    def end_batch(self, g):
        """Finish the batch of island `g`, lines 6 to 30 of Algorithm 1, and begin the next."""
        n: cython.Py_ssize_t = self.clock.first[g + 1] - self.clock.first[g]
        for k in range(self.clock.candidates[g]):
            place: cython.Py_ssize_t = g * self.candidates.capacity + k
            self.emission.time_update(place, self.candidates.row[place])
        if self.clock.observed[g] > 0 or self.all_opened(g):
            # Line 6: log nu_l = log P(l | s) + score_l, l = 1 .. L + 1, by Eq. (28),
            # form:transition_prob, and Eq. (12); omega = omega sum_l nu_l (Deviation D15: line 6
            # prints no omega on the right).
            self.weigh(g)
            ess: cython.double = self.settle_weights(g)  # line 12: omega / sum omega
            if ess <= self.settings.ess_threshold * n:  # line 8, Eq. (124), form:ess
                self.resample(g)  # lines 9 and 10, before each particle draws its own regime
            # Lines 15 to 19: s ~ nu, a new regime splits its stick, Eq. (30), and N counts the
            # transition, Eq. (29), form:app_increment_N. Inside a batch kappa is infinite,
            # Eq. (13), form:degen_sticky_HDP, and Eq. (14), form:kappa_t. Deviation D5: only the
            # transition into the batch is counted. D6: the first leads from a start row into
            # regime 1.
            self.assign(g)
            self.count_outliers(g)
            self.finalize(g)  # line 27: the chosen candidate becomes the row of s
            self.pool.count_owners(self.particles)
            if not self.settings.shared_prior:
                self.draw_prior_rows(g)  # Deviation D9: the paper draws mu_0 for every particle
            self.matcher.reconcile()  # Deviation D12: one label only if coefficients agree
            self.prune(g)  # line 20, Algorithm "prune"
            # Lines 21 to 26: tables M, Eq. (31), form:m_law, then alpha, gamma and beta, Eqs. (32)
            # to (37), form:sample_u to form:sample_beta. Deviation D5: the diagonal of M stays, one
            # sweep per batch instead of B.
            self.structure(g)
        self.clock.commits[g] += 1
        self.follow_stream(g)  # Deviation D16: the prior of new regimes follows the stream
        self.pool.count_owners(self.particles)
        self.clock.size[g] = self.settings.schedule.next_size(self.clock.batch_outliers)
        self.begin_batch(g)  # line 30: t = t + B
        self.matcher.vote()

    def note_change(self):
        """Record and date a change of the reported regime or of the remembered regimes."""
        record_change(self)
