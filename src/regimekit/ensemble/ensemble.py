"""All members on one stream, in units: forecasts are mixed, observations update the members.

One observation z takes these steps: components of every member under each version of the past,
their scores, the decision about the past, the updates, the suspicion about z itself. Nothing here
knows the user's units or the names of columns.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import exp, fabs, isnan, log, log1p, sqrt

if not cython.compiled:
    from regimekit.core.logspace import logaddexp
    from regimekit.distributions.mixture import joint_log_density
    from regimekit.ensemble.aggregation import set_log_densities
    from regimekit.ensemble.members import SPLIT_SCALE
    from regimekit.preprocessing.lag_buffer import flag_unmoved, log_outlier, median_of

    ADDITIVE, INNOVATIONAL, SUSPECT = 0, 1, 0.5

from regimekit.ensemble.aggregation import Aggregation, SleepingExperts
from regimekit.ensemble.members import Components, RegimeMember, SimpleMembers
from regimekit.preprocessing.lag_buffer import LagBuffer

DEPTH = 700  # values in the lag buffer: two weeks of half hours
MAX_LAG_VALUE = 1e6  # in units
# Prior counts of outliers and of regular observations.
_OUTLIERS = cython.declare(cython.double, 1.0)
_REGULAR = cython.declare(cython.double, 49.0)
_MAX_OUTLIER_RATE = cython.declare(cython.double, 0.3)
# Discount of these counts, per observation.
_DISCOUNT = cython.declare(cython.double, 0.999)
# A member with a smaller weight moves the mean by at most _MAX_PULL noise scales.
_SMALL_WEIGHT = cython.declare(cython.double, 0.1)
_MAX_PULL = cython.declare(cython.double, 0.25)
_MAX_LAG_VALUE = cython.declare(cython.double, MAX_LAG_VALUE)
_NEGATIVE_INFINITY = cython.declare(cython.double, float("-inf"))


class Ensemble:
    """Members, their weights and their past.

    Args:
        specs: designs of the regression members (`regimekit.ensemble.design.Spec`).
        filters: one `RegimeFilter` per design.
        dim: number of coordinates of z.
        prior: function of the members' names that returns their prior weights.
        period: period of the seasonal members, 0 for none.

    Attributes:
        members: the regime members; `simple` all others.
        parts: components of the forecast of the next observation; those of the cleaned past come
            first, `cut` is their number.
        weight: of each component in the mixture.
        centre, noise: (d,) mean of the mixture and geometric mean of the scales.
        regular_probability: probability that the latest observation was no outlier.
        log_scores: of the regime members for the latest observation, bounded below by the density
            of outliers.
    """

    FIELDS = {
        "time": ("int64", (), 0, 2**53),
        "outlier_count": ("float64", (), 0.5, 1e4),
        "regular_count": ("float64", (), 0.5, 1e4),
        "buffer": "object",
        "simple": "object",
        "aggregation": "object",
        "sleeping": "object",
    }

    def __init__(self, specs, filters, dim, prior, period=0):
        self.dim = dim
        self.time = 0
        self.simple = SimpleMembers([spec for spec in specs if spec.squares], dim, period)
        deepest = max(
            [DEPTH] + [step + 1 + spec.difference for spec in specs for step in spec.steps]
        )
        self.buffer = LagBuffer(deepest, dim, MAX_LAG_VALUE)
        self.outlier_count = _OUTLIERS
        self.regular_count = _REGULAR
        pairs = zip([spec for spec in specs if spec.regimes], filters, strict=True)
        self.set_members([RegimeMember(spec, dim, own, 0) for spec, own in pairs])
        self.aggregation = Aggregation(self.forecasting, prior(self.names))
        self.aggregation.set_present(self.present)
        self.parts = Components(dim, 64)
        self.weight = np.zeros(64)
        self.centre = np.zeros(dim)
        self.noise = np.ones(dim)
        self.cut = 0
        self.bounded_z, self.clean, self.raw = np.zeros(dim), np.zeros(dim), np.zeros(dim)
        self.white, self.root = np.zeros(dim), np.zeros((dim, dim))
        self.point = np.zeros((1, dim))
        self.allocate()

    def set_members(self, members):
        """Set the regime members."""
        self.members = list(members)
        self.n_regime_members = len(self.members)
        self.first = None
        for i in range(len(self.members) - 1, -1, -1):
            member: RegimeMember = self.members[i]
            member.index = i
            member.next = self.first
            self.first = member
        self.sleeping = SleepingExperts(
            [m.spec.forecasts and not m.spec.infers for m in self.members]
        )

    def allocate(self):
        """Allocate scratch for the present number of members and components."""
        room, members = self.parts.share.shape[0], self.aggregation.n_members
        self.weight = np.zeros(room)
        self.term, self.along, self.column = np.zeros(room), np.zeros(room), np.zeros(room)
        self.order, self.keep = np.zeros(room, np.int64), np.zeros(room, np.int64)
        self.each = np.zeros((2, members))
        self.top, self.total = np.zeros(members), np.zeros(members)
        self.log_scores = np.zeros(self.n_regime_members)

    @property
    def forecasting(self):
        """Flags of the members that forecast; others only infer regimes, or are logarithms."""
        own = [member.spec.forecasts for member in self.members]
        squares = [self.simple.forecasts(i) for i in range(self.simple.n_squares)]
        rest = len(self.simple.names) - len(squares)
        return np.array(own + squares + [True] * rest, bool)

    @property
    def names(self):
        """Names of all members, regime models first."""
        return [f"regimes, {m.spec.name}" for m in self.members] + self.simple.names

    @property
    def masses(self):
        """Probabilities of the cleaned and of the raw past."""
        return self.buffer.masses

    def refresh(self):
        """Recompute what follows from the stored fields."""
        self.set_active(self.first)
        self.aggregation.set_present(self.present)

    @property
    def present(self):
        """Flags of the active members."""
        squares = [self.simple.used(i) for i in range(self.simple.n_squares)]
        rest = np.ones(len(self.simple.names) - len(squares), np.int64)
        return np.concatenate([np.asarray(self.sleeping.active), squares, rest]).astype(np.int64)

    def tidy(self):
        """Make the unused state of the simple members equal to the used one, before packing."""
        if not self.buffer.pending:
            self.simple.copy_state(ADDITIVE, INNOVATIONAL)

    def set_logs(self, offset, lowest, wide):
        """Set the scale of the logarithms (`SimpleMembers.set_logs`), and who uses them."""
        i: cython.Py_ssize_t
        same: cython.bint = (offset > 0.0) == (self.simple.offset > 0.0)
        same = same and wide == self.simple.wide
        self.simple.set_logs(offset, lowest, wide)
        if same:
            return
        for i in range(self.simple.n_squares):
            m: cython.Py_ssize_t = self.n_regime_members + i
            self.aggregation.forecasting[m] = self.simple.forecasts(i)
            self.aggregation.present[m] = self.simple.used(i)
        self.aggregation.set_weights()

    def join(self, other, prior, period):
        """Take over the members of `other`, in place of namesakes, and its season."""
        old = self.names
        members = list(self.members)
        for newcomer in other.members:
            places = [i for i, m in enumerate(members) if m.spec.name == newcomer.spec.name]
            if places:
                members[places[0]] = newcomer
            else:
                members.append(newcomer)
        self.set_members(members)
        self.set_active(self.first)
        self.simple.join(period, other.simple)
        self.aggregation.regroup(old, self.names, self.forecasting, prior(self.names))
        self.aggregation.set_present(self.present)
        self.allocate()

    def feed(self, z, covariates):
        """Predict and update with one observation."""
        self.predict(covariates)
        self.update(z, covariates)

    def expect(self, covariates):
        """Predict the next observation, for Python."""
        self.predict(np.ascontiguousarray(covariates, np.float64))

    def predict(self, covariates):
        """Compute the mixture of all members for the next observation."""
        k: cython.Py_ssize_t
        self.parts.size = 0
        self.collect(ADDITIVE, covariates)
        if self.buffer.pending:
            self.drop_followers()
            for k in range(self.parts.size):
                self.parts.share[k] *= self.buffer.mass(ADDITIVE)
        self.cut = self.parts.size
        if self.buffer.pending:
            self.collect(INNOVATIONAL, covariates)
            for k in range(self.cut, self.parts.size):
                self.parts.share[k] *= self.buffer.mass(INNOVATIONAL)
        self.set_weights()

    def collect(self, version, covariates):
        """Append the components of all members under one version of the past."""
        first: cython.Py_ssize_t = self.parts.size
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        if self.first is not None:
            self.predict_members(self.first, version, covariates)
        if self.parts.size + self.simple.room() > self.parts.share.shape[0]:
            self.parts.add_room(self.parts.size + self.simple.room())
        state: cython.Py_ssize_t = version if self.buffer.pending else ADDITIVE
        self.simple.predict(
            state, self.buffer, version, covariates, self.parts, self.n_regime_members
        )
        self.buffer.find_range(version)
        for k in range(first, self.parts.size):
            for j in range(self.dim):
                self.parts.location[k, j] = self.buffer.bounded(
                    version, j, self.parts.location[k, j]
                )
                self.parts.scale[k, j] = sqrt(self.parts.spread[k, j, j])
        if self.weight.shape[0] < self.parts.share.shape[0]:
            self.add_room()

    def predict_members(self, member, version, covariates):
        """Append the components of this regime member and of those after it."""
        if member.active:
            member.predict(self.buffer, version, covariates, self.parts)
        if member.next is not None:
            self.predict_members(member.next, version, covariates)

    def add_room(self):
        """Allocate scratch again after the number of components grew."""
        scores = self.log_scores
        self.allocate()
        self.log_scores = scores

    def drop_followers(self):
        """Drop the components that follow the suspected outlier, under the cleaned past."""
        k: cython.Py_ssize_t
        m: cython.Py_ssize_t
        n: cython.Py_ssize_t = 0
        flag_unmoved(
            self.parts.share,
            self.parts.location,
            self.parts.owner,
            self.parts.size,
            self.buffer,
            self.along,
            self.order,
            self.keep,
        )
        for m in range(self.total.shape[0]):
            self.total[m] = 0.0
        for k in range(self.parts.size):
            if self.keep[k]:
                if n < k:
                    self.parts.copy_component(k, n)
                self.total[self.parts.owner[n]] += self.parts.share[n]
                n += 1
        self.parts.size = n
        for k in range(n):
            self.parts.share[k] /= self.total[self.parts.owner[k]]

    def set_weights(self):
        """Compute weights of the components, centre and noise scale of the mixture."""
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        n: cython.Py_ssize_t = self.parts.size
        total: cython.double = 0.0
        for k in range(n):
            self.weight[k] = self.parts.share[k] * self.aggregation.weight[self.parts.owner[k]]
            total += self.weight[k]
        split: cython.double = 0.0
        for k in range(n):
            self.weight[k] /= total
            i: cython.Py_ssize_t = self.parts.owner[k] - self.n_regime_members
            if i >= 0 and i < self.simple.n_squares and self.simple.split[i]:
                split += self.weight[k]
        for j in range(self.dim):
            # A law that is split into components is wider than each of them.
            mean: cython.double = -split * log(SPLIT_SCALE)
            for k in range(n):
                mean += self.weight[k] * log(self.parts.scale[k, j])
            self.noise[j] = exp(mean)
        self.limit_weights()
        for j in range(self.dim):
            mean = 0.0
            for k in range(n):
                mean += self.weight[k] * self.parts.location[k, j]
            self.centre[j] = mean

    def limit_weights(self):
        """Limit the pull of simple members with little weight on the mean.

        One that followed a fault may be left a thousand noise scales away, and its weight falls
        slowly. A distant regime keeps the weight of its return, which may be known well.
        """
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        m: cython.Py_ssize_t
        n: cython.Py_ssize_t = self.parts.size
        for m in range(self.total.shape[0]):
            self.total[m] = 0.0
        for k in range(n):
            self.total[self.parts.owner[k]] += self.weight[k]
            self.along[k] = 0.0
        for j in range(self.dim):
            for k in range(n):
                self.column[k] = self.parts.location[k, j]
            middle: cython.double = median_of(self.column, self.weight, 0, n, self.order)
            for k in range(n):
                self.along[k] = max(self.along[k], fabs(self.column[k] - middle) / self.noise[j])
        total: cython.double = 0.0
        for k in range(n):
            m = self.parts.owner[k]
            if m >= self.n_regime_members and self.total[m] < _SMALL_WEIGHT:
                most: cython.double = _MAX_PULL / max(self.along[k], _MAX_PULL)
                self.weight[k] = min(self.weight[k], most)
            total += self.weight[k]
        for k in range(n):
            self.weight[k] /= total

    def update(self, z, covariates):
        """Update with the observation (d,) that `predict` was called for."""
        j: cython.Py_ssize_t
        m: cython.Py_ssize_t
        seen: cython.double = 0.0
        error: cython.double = 0.0
        log_noise: cython.double = 0.0
        self.time += 1
        for j in range(self.dim):
            if not isnan(z[j]):
                seen += 1.0
                error = max(error, fabs((z[j] - self.centre[j]) / self.noise[j]))
                log_noise += log(self.noise[j])
        if seen == 0.0:
            self.skip(z, covariates)
            return
        rate: cython.double = min(
            self.outlier_count / (self.outlier_count + self.regular_count), _MAX_OUTLIER_RATE
        )
        log_q: cython.double = log(rate) + seen * log_outlier(error) - log_noise
        self.set_densities(ADDITIVE, z)
        regular: cython.double = log(max(self.buffer.mass(ADDITIVE), 1e-300)) + self.mixed(ADDITIVE)
        if self.buffer.pending:
            self.set_densities(INNOVATIONAL, z)
            regular = logaddexp(
                regular, log(max(self.buffer.mass(INNOVATIONAL), 1e-300)) + self.mixed(INNOVATIONAL)
            )
        regular += log1p(-rate)
        r: cython.double = 1.0 / (1.0 + exp(min(log_q - regular, 700.0)))
        version: cython.Py_ssize_t = self.decide(rate, log_q)
        for m in range(self.n_regime_members):
            self.log_scores[m] = logaddexp(self.each[version, m], log_q)
        self.aggregation.begin()
        for j in range(self.dim):
            if not isnan(z[j]):
                self.aggregation.score(self.parts, j, z[j], self.centre[j], self.noise[j])
        self.aggregation.finish()
        self.sleep()
        self.outlier_count = _OUTLIERS + _DISCOUNT * (self.outlier_count - _OUTLIERS) + (1.0 - r)
        self.regular_count = _REGULAR + _DISCOUNT * (self.regular_count - _REGULAR) + r
        for j in range(self.dim):
            # No regime is opened farther away.
            self.bounded_z[j] = z[j]
            if not isnan(z[j]):
                self.bounded_z[j] = min(max(z[j], -_MAX_LAG_VALUE), _MAX_LAG_VALUE)
        if self.first is not None:
            self.update_members(self.first, self.bounded_z, version, covariates)
        if r >= SUSPECT:
            self.simple.update(ADDITIVE, z, self.buffer, version, covariates, 0.0)
        else:
            self.simple.copy_state(ADDITIVE, INNOVATIONAL)
            self.simple.update(INNOVATIONAL, z, self.buffer, version, covariates, 1.0)
            self.simple.skip(ADDITIVE)
        for j in range(self.dim):
            self.raw[j] = self.centre[j] if isnan(z[j]) else z[j]
            part: cython.double = r * (self.raw[j] - self.centre[j])
            part = min(max(part, -self.noise[j]), self.noise[j])
            self.clean[j] = self.centre[j] + part
        if r >= SUSPECT:
            self.buffer.push(self.raw, self.raw)
        else:
            self.buffer.doubt(self.clean, self.raw, error, rate)
        self.regular_probability = r

    def skip(self, z, covariates):
        """Take a missing observation: regimes move on, the past repeats the forecast."""
        j: cython.Py_ssize_t
        m: cython.Py_ssize_t
        if self.first is not None:
            self.update_members(self.first, z, ADDITIVE, covariates)
        self.simple.skip(ADDITIVE)
        if self.buffer.pending:
            self.simple.skip(INNOVATIONAL)
        for j in range(self.dim):
            self.raw[j] = self.centre[j]
            if self.buffer.pending:
                self.raw[j] = self.buffer.at(INNOVATIONAL, 1, j)
        self.buffer.push(self.centre, self.raw)
        self.regular_probability = 1.0
        for m in range(self.n_regime_members):
            self.log_scores[m] = 0.0

    def set_densities(self, version, z):
        """Compute the log density of z under each member, given one version of the past."""
        first: cython.Py_ssize_t = 0 if version == ADDITIVE else self.cut
        last: cython.Py_ssize_t = self.cut if version == ADDITIVE else self.parts.size
        m: cython.Py_ssize_t
        j: cython.Py_ssize_t
        if self.dim == 1:
            set_log_densities(
                self.parts,
                first,
                last,
                z[0],
                self.buffer.mass(version),
                self.term,
                self.each[version],
                self.top,
            )
            return
        for m in range(self.each.shape[1]):
            self.each[version, m] = _NEGATIVE_INFINITY
        for j in range(self.dim):
            self.point[0, j] = z[j]
        while first < last:
            n: cython.Py_ssize_t = 1
            m = self.parts.owner[first]
            while first + n < last and self.parts.owner[first + n] == m:
                n += 1
            self.each[version, m] = joint_log_density(
                self.point,
                0,
                self.parts.share,
                self.parts.location,
                self.parts.spread,
                self.parts.dof,
                first,
                n,
                self.root,
                self.white,
            )
            first += n

    def mixed(self, version):
        """Return the log of the members' densities mixed by their weights."""
        m: cython.Py_ssize_t
        top: cython.double = _NEGATIVE_INFINITY
        for m in range(self.each.shape[1]):
            self.top[m] = log(max(self.aggregation.weight[m], 1e-300)) + self.each[version, m]
            top = max(top, self.top[m])
        total: cython.double = 0.0
        for m in range(self.each.shape[1]):
            total += exp(self.top[m] - top)
        return top + log(total)

    def decide(self, rate, log_q):
        """Decide which past was right, if the latest value was suspected; return the version."""
        if not self.buffer.pending:
            return ADDITIVE
        additive: cython.double = logaddexp(log1p(-rate) + self.mixed(ADDITIVE), log_q)
        innovational: cython.double = logaddexp(log1p(-rate) + self.mixed(INNOVATIONAL), log_q)
        version: cython.Py_ssize_t = self.buffer.decide(additive, innovational)
        if version == INNOVATIONAL:
            self.simple.copy_state(INNOVATIONAL, ADDITIVE)
        return version

    def sleep(self):
        """Let members sleep that have no weight, and wake those that have slept long enough."""
        if not self.sleeping.update(self.aggregation.weight):
            return
        m: cython.Py_ssize_t
        self.set_active(self.first)
        for m in range(self.n_regime_members):
            self.aggregation.present[m] = self.sleeping.active[m]
        self.aggregation.set_weights()

    def set_active(self, member):
        """Set the flag of this regime member and of those after it."""
        if member is None:
            return
        member.active = self.sleeping.active[member.index] != 0
        self.set_active(member.next)

    def update_members(self, member, z, version, covariates):
        """Update this regime member, if active, and those after it."""
        if member.active:
            member.update(z, self.buffer, version, covariates)
        if member.next is not None:
            self.update_members(member.next, z, version, covariates)
