"""The filter in the form that models use: chunks of observations, and properties of its state."""

from __future__ import annotations

import math
from typing import NamedTuple

import cython
import numpy as np
from numpy.typing import NDArray

from regimekit.core.covariates import MAX_FEATURE
from regimekit.distributions.forecast import Forecast, Forecasts
from regimekit.ihmm.changepoint_dating import Change

if not cython.compiled:
    from regimekit.distributions.mixture import Mixture
    from regimekit.distributions.student_t import log_mixture, mixture_tail
    from regimekit.ihmm.algorithm import Algorithm
    from regimekit.ihmm.hdp import transition_matrix


class Outputs(NamedTuple):
    """Outputs of the filter for T consecutive observations, (T,) each unless stated.

    Attributes:
        weight: posterior mean of w^2.
        change: posterior probability that the regime has just changed.
        ess: effective sample size.
        probability: of the regime reported.
        regime: label reported.
        n_known: regimes known.
        settled: size of the largest batch that ended with the observation, or 0.
        forecasts: T forecasts, each made before its observation was learnt.
        changes: the `Change`s of the reported regime.
    """

    weight: NDArray[np.float64]
    change: NDArray[np.float64]
    ess: NDArray[np.float64]
    probability: NDArray[np.float64]
    regime: NDArray[np.int64]
    n_known: NDArray[np.int64]
    settled: NDArray[np.int64]
    forecasts: Forecasts
    changes: list[Change]

    @classmethod
    def joined(cls, parts):
        """Return consecutive outputs, in the order of time, as one."""
        if len(parts) == 1:
            return parts[0]
        *columns, forecasts, changes = zip(*parts, strict=True)
        columns = [np.concatenate(column) for column in columns]
        return cls(*columns, Forecasts.joined(forecasts), [one for part in changes for one in part])


class Trace:
    """Room for the outputs of T observations and the components of their forecasts."""

    def __init__(self, n, dim):
        self.weight, self.change, self.ess, self.probability = np.zeros((4, n))
        self.regime, self.n_known, self.settled = np.zeros((3, n), np.int64)
        self.offset = np.zeros(n + 1, np.int64)
        self.components = Mixture(dim, 8 * n + 16)
        self.changes = []

    def outputs(self, n, outliers):
        """Return the `Outputs` of the first n observations."""
        offset = np.asarray(self.offset)[: n + 1]
        share, location, spread, dof = (
            np.asarray(getattr(self.components, name))[: offset[n]]
            for name in ("share", "location", "spread", "dof")
        )
        rate = share[offset[1:] - 1] if outliers else np.zeros(n)
        columns = [np.asarray(getattr(self, name))[:n] for name in Outputs._fields[:7]]
        return Outputs(
            *columns, Forecasts(offset, share, location, spread, dof, rate), self.changes
        )


class RegimeFilter(Algorithm):
    """The online infinite HMM: particles over paths, shared rows, and the batches under way.

    Args:
        emission, settings, particles, islands, generator, build_probe: see `FilterState`.
        initialize: draw the first particles; otherwise the state must be restored.
    """

    def __init__(
        self, emission, settings, particles, islands, generator, build_probe=None, initialize=True
    ):
        super().__init__(emission, settings, particles, islands, generator, build_probe)
        self.scored = Mixture(1)
        if initialize:
            self.initialize()

    def predict_one(self, design, normalize=False, centre=0.0, scale=1.0):
        """Return (share, location, spread, dof) of the next observation; `design` is (r, m)."""
        values: cython.double[:, ::1] = np.ascontiguousarray(design, np.float64)
        if not (self.predicted and self.same_design(values)):
            with cython.nogil:
                self.predict(values)
        self.raise_error()
        return self.forecast.arrays(normalize, centre, scale)

    def forecast_for(self, features):
        """Return the `Forecast` of the next observation, given its `features` (k,)."""
        parts = self.predict_one(self.designs(features[None])[0], True)
        return Forecast(*parts, self.rate())

    def designs(self, features):
        """Return the designs (T, r, m) of `features` (T, k), clipped to what can be learnt."""
        limit = self.emission.feature_limit
        limit = MAX_FEATURE if limit is None else limit
        return self.emission.designs(np.minimum(np.maximum(features, -limit), limit))

    def step(self, y, design, target=None, centre=0.0, scale=1.0):
        """Learn one observation.

        Args:
            y: (d,) observation; NaN means missing.
            design: (r, m) its design.
            target: the observation in the user's units, for d = 1; by default y[0].
            centre, scale: the user's units are centre + scale * y.

        Returns:
            (log density of the target under its forecast, its anomaly score, the Change or None).
            The first two are NaN if y is missing, and are computed for d = 1 only.
        """
        value: cython.double[::1] = y
        features: cython.double[:, ::1] = design
        score: cython.double = float("nan")
        anomaly: cython.double = float("nan")
        outliers: cython.bint = self.scoring.is_contamination()
        point: cython.double = value[0] if target is None else target
        shift: cython.double = centre
        factor: cython.double = scale
        with cython.nogil:
            if not self.predicted or not self.same_design(features):
                self.predict(features)
            if self.emission.dim == 1:
                score = self.log_score(point, shift, factor)
                anomaly = 1.0 - self.scored_tail(point, outliers)
            self.update(value, features)
        self.raise_error()
        change = self.change
        self.change = None
        return score, anomaly, change

    def log_score(self, y, centre, scale):
        """Return the log density of centre + scale * Y at y, Y the scalar forecast.

        The operations and their order are those of a run, so the result has the same bits.

        Args:
            y: observation in the user's units.
        """
        n: cython.Py_ssize_t = self.forecast.size
        total: cython.double = 0.0
        if n > self.scored.share.shape[0]:
            self.scored.reserve(n)
        for k in range(n):
            total += self.forecast.share[k]
        for k in range(n):
            self.scored.share[k] = self.forecast.share[k] / total
            self.scored.location[k, 0] = centre + scale * self.forecast.location[k, 0]
            self.scored.spread[k, 0, 0] = self.forecast.spread[k, 0, 0] * scale * scale
        return log_mixture(
            y,
            self.scored.share,
            self.scored.location[:, 0],
            self.scored.spread[:, 0, 0],
            self.forecast.dof,
            n,
            0,
        )

    def scored_tail(self, y, outliers):
        """Return the two-sided tail probability of y in the forecast of the latest `log_score`.

        Args:
            y: the observation in the user's units.
            outliers: whether the last component is that of outliers, which is left out.
        """
        n: cython.Py_ssize_t = self.forecast.size
        if outliers and self.scored.share[n - 1] > 0.0:
            n -= 1
        return mixture_tail(
            y,
            self.scored.share,
            self.scored.location[:, 0],
            self.scored.spread[:, 0, 0],
            self.forecast.dof,
            n,
            0,
        )

    def run(self, y, designs, stop_below=0.0):
        """Learn T observations.

        Args:
            y: (T, d) observations; NaN means missing.
            designs: (T, r, m) their designs.
            stop_below: stop after the first observation whose weight is below this.

        Returns:
            The `Outputs` of the observations learnt.
        """
        values: cython.double[:, ::1] = np.array(y, np.float64, order="C")
        design: cython.double[:, :, ::1] = np.array(designs, np.float64, order="C")
        trace = Trace(values.shape[0], self.emission.dim)
        least: cython.double = stop_below
        with cython.nogil:
            done = self.loop(values, design, least, trace)
        self.raise_error()
        return trace.outputs(done, self.scoring.is_contamination())

    def loop(self, y, designs, stop_below, trace):
        """Run over a chunk; `y`, `designs` and `stop_below` as for `run`, outputs go to `trace`.

        Returns:
            The number of observations learnt.
        """
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
                self.append_change(trace)
            if self.weight < stop_below and self.emission.observation.n_seen > 0:
                return t + 1
        return y.shape[0]

    def append_forecast(self, trace, t):
        """Append the components of the forecast of observation `t` to `trace`."""
        at: cython.Py_ssize_t = trace.offset[t]
        n: cython.Py_ssize_t = self.forecast.size
        trace.components.size = at
        if at + n > trace.components.share.shape[0]:
            trace.components.reserve(at + n)
        for k in range(n):
            trace.components.put(
                at + k,
                self.forecast.share[k],
                self.forecast.location,
                self.forecast.spread,
                self.forecast.dof[k],
                k,
            )
        trace.offset[t + 1] = at + n

    def append_change(self, trace):
        """Move the latest change to `trace`."""
        trace.changes.append(self.change)
        self.change = None

    def raise_error(self):
        """Raise the exception of an emission or a weight written in Python, if there is one."""
        for part in (self.emission, self.scoring):
            error = getattr(part, "error", None)
            if error is not None:
                part.error = None
                raise error

    # ------------------------------------------------------------------ questions

    def count_candidates(self):
        """Return the number of distinct rows that the particles of each island store."""
        slots, n = np.asarray(self.particles.slots), np.asarray(self.particles.n_regimes)
        used = np.arange(slots.shape[1]) <= n[:, None]
        counts = []
        for g in range(self.islands):
            a, b = int(self.clock.first[g]), int(self.clock.first[g + 1])
            counts.append(np.unique(slots[a:b][used[a:b]]).size)
        return counts

    def restart_batch(self, g):
        """Start the candidates of the present batch of island `g` again."""
        self.begin_batch(g)

    def refresh_masses(self, g):
        """Compute the masses of island `g` again; return the probability of a change."""
        self.prior_masses(g, True)
        return self.posterior_masses(g)

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
        """Return the row that most of the weight stores for the regime `label`, or -1."""
        held = self.row_mass()
        held[np.asarray(self.pool.label) != label] = 0.0
        return int(np.argmax(held)) if held.max() > 0 else -1

    def row_mass(self):
        """Return the weight of the particles that store each row as an opened regime."""
        slots, n = np.asarray(self.particles.slots), np.asarray(self.particles.n_regimes)
        weight = np.exp(np.asarray(self.particles.log_weight)) / self.islands
        used = np.arange(slots.shape[1]) < n[:, None]
        return np.bincount(slots[used], np.repeat(weight, n), self.pool.owners.shape[0])

    def transitions_of(self, i):
        """Return P(l | s) of particle `i` among its regimes and, last, a new one."""
        n = int(self.particles.n_regimes[i]) + 1
        matrix = np.empty((n, n))
        transition_matrix(self.particles, i, self.settings.concentration.sticky, matrix)
        return matrix

    def rate(self):
        """Return the outlier rate learnt so far; 0 without contamination."""
        return self.outlier_rate() if self.scoring.is_contamination() else 0.0

    def candidate_places(self, g):
        """Return the places of the candidates of island `g`."""
        return g * self.candidates.capacity + np.arange(self.clock.candidates[g])

    def expected_moves(self, g):
        """Return transition probabilities (K, K) per batch of the candidates of island `g`."""
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
        """Return the masses (batches, K) of the candidates of island `g` after 0, 1, .. batches."""
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
        """Return (location, spread, dof) of candidates.

        Args:
            places: (n,) their places.
            designs: (n, r, m) a design for each.
        """
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

    def faded(self, places):
        """Return the share of its mass that each of `places` keeps in a forecast (D17)."""
        if self.settings.fade:
            self.write_fading()
        return np.asarray(self.candidates.fade)[places]

    def skip_candidates(self):
        """Advance every candidate without an observation."""
        for g in range(self.islands):
            for k in range(self.clock.candidates[g]):
                self.emission.skip(g * self.candidates.capacity + k)
