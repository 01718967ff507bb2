"""The run-length recursion (Adams and MacKay 2007) of `bocd` and `dsm_bocd`.

A *segment* lies between two changepoints. For each time s at which the present segment may have
begun there is one row of sufficient statistics. Before every observation the segment ends with
probability `hazard`. The observation that begins a segment is scored by the prior predictive
distribution and learnt by the new row. With p_t(s) = P(segment began at s | y_1..y_t) and the
hazard h:

    p_t(s) ~ (1 - h) p_{t-1}(s) p(y_t | y_s..y_{t-1})   s < t
    p_t(t) ~ h p(y_t)                                                  (the first h is 1)

After a gap of g missing observations 1 - h = (1 - hazard)^(g + 1). A start inside a gap cannot be
distinguished from a start at its end, so one row for all of them is exact.

At most K starts are stored: if there are more, the least probable one is dropped and its mass e_t
recorded. The stored posterior is exactly the posterior given that the path of segments never used a
dropped start, so its total-variation distance to the full posterior is the posterior probability of
such a path. Between drops that is a martingale under the model, so its mean is at most
`dropped` = sum e_t, and the probability that it ever exceeds delta is at most dropped / delta.

The same recursion with maxima gives the most probable path (`segmentation`).
"""

from __future__ import annotations

import math

import cython
import numpy as np
from cython.cimports.libc.math import exp, expm1, log

from regimekit.core.exceptions import RegimekitError, SnapshotError
from regimekit.serialization.validation import affordable

if not cython.compiled:
    from regimekit.core.logspace import logsumexp
    from regimekit.ihmm.emissions.base import Emission

    _ = Emission

from regimekit.distributions.mixture import Mixture

INF = cython.declare(cython.double, math.inf)
MAX_STATISTIC = 1e155  # statistics of a stored row: features and residuals are bounded
MAX_TRAIL = 1000  # segments of the most probable path that are stored


class Segments:
    """Base class of the rows of a run-length recursion.

    Arguments of the methods:
        row: row of a segment.
        fresh: whether it has no observations yet.
        design: features of the observation.

    Args:
        shape: sizes of y and of the features.
        n_components: number J of components of the predictive distribution of a row.

    Attributes:
        weight: weight of the observation in the latest update.
    """

    def __init__(self, shape, n_components=1):
        self.shape = shape
        self.n_components = n_components
        self.weight = 1.0

    def update(self, row, fresh):
        """Score and learn the present observation; return the score and set `weight`."""
        return 0.0

    def predict(self, row, out, at):
        """Write the J components of the predictive distribution to `out` from index `at` on."""

    def set_observation(self, y, design):
        """Set the present observation, (d,), and its design. If y is None, only the design."""

    def resize(self, capacity):
        """Make room for `capacity` rows."""

    def write_prior(self, row):
        """Write the statistics of a segment without observations."""

    def arrays(self):
        """Return the arrays whose first axis is the row."""
        return []

    def design(self, features):
        """Return the design of one observation from its features."""
        return features

    def coefficients(self, row):
        """Return posterior mean and standard deviation of the coefficients of a row."""
        raise NotImplementedError(
            f"{type(self).__name__} must define coefficients(row): regimes() reports them."
        )

    def are_possible(self, visits):
        """Return whether the first rows can result from `visits` (n,) observations each."""
        n = len(visits)
        return all((np.abs(array[:n]) < MAX_STATISTIC).all() for array in self.arrays())


class EmissionSegments(Segments):
    """Rows of an emission whose candidates are finalized after each observation.

    Args:
        emission: an `Emission` for batches of one observation.
    """

    def __init__(self, emission):
        Segments.__init__(self, emission.shape)
        self.emission = emission
        emission.resize_candidates(1, 1)

    def update(self, row, fresh):
        score: cython.double
        self.emission.begin(0, row)
        self.emission.predict(0, row)
        score = self.emission.update(0, row, fresh)
        self.weight = self.emission.weight
        self.emission.finalize(0, row, row)
        return score

    def predict(self, row, out, at):
        self.emission.begin(0, row)
        self.emission.predict(0, row)
        out.share[at] = 1.0
        out.dof[at] = self.emission.predictive.dof[0]
        for i in range(out.dim):
            out.location[at, i] = self.emission.predictive.location[0, i]
            for j in range(out.dim):
                out.spread[at, i, j] = self.emission.predictive.spread[0, i, j]

    def set_observation(self, y, design):
        self.emission.observation.set_design(np.array(design, np.float64, order="C"))
        if y is not None:
            self.emission.observation.set_value(np.array(y, np.float64))

    def resize(self, capacity):
        self.emission.resize_rows(capacity)

    def write_prior(self, row):
        self.emission.write_prior(row)

    def arrays(self):
        return [np.asarray(getattr(self.emission, name)) for name in self.emission.row_arrays]

    def design(self, features):
        return self.emission.design(features)

    def coefficients(self, row):
        return self.emission.coefficients(row)

    def learn(self, row):
        """Learn the present observation in one row."""
        self.update(row, False)

    def predictive(self, row):
        """Return location (d,) and spread (d, d) of the predictive distribution of one row."""
        out: Mixture = Mixture(self.shape.dim, 1)
        self.predict(row, out, 0)
        return np.asarray(out.location)[0], np.asarray(out.spread)[0]


class RunLengths:
    """Posterior distribution of the start of the present segment.

    Arguments of the methods:
        y: (d,) observation.
        design: its features.
        log_stay: log probability that the segment continues.

    Args:
        segments: the rows.
        hazard: probability that a segment ends before an observation.
        kept: K, number of starts that are stored.

    Attributes:
        n: number of stored starts.
        time: number of observations so far.
        gap: number of missing observations since the latest one.
        dropped: posterior mass of the dropped starts, summed over the observations.
        latest_dropped: the part of `dropped` due to the latest observation.
        starts, visits: (K + 1,) time index and number of observations of each stored start.
        log_mass, log_best: (K + 1,) log p_t(s), and log probability of its most probable path.
    """

    def __init__(self, segments, hazard, kept):
        affordable("max_run_lengths", (kept + 1.0) * segments.shape.coefficients**2)
        self.segments, self.hazard, self.kept = segments, hazard, kept
        segments.resize(kept + 1)
        self.starts, self.visits = np.zeros(kept + 1, np.int64), np.zeros(kept + 1, np.int64)
        self.log_mass, self.log_best = np.full(kept + 1, -np.inf), np.full(kept + 1, -np.inf)
        self.score, self.weight = np.zeros(kept + 1), np.zeros(kept + 1)
        self.mixture = Mixture(segments.shape.dim)
        self.n = self.time = self.gap = 0
        self.dropped = self.latest_dropped = 0.0
        self.trail = Trail()
        segments.write_prior(0)

    def log_stay(self, steps):
        """Return the log probability that the observation `steps` ahead is in the same segment."""
        # The first observation begins a segment.
        return (self.gap + steps) * math.log1p(-self.hazard) if self.n else -math.inf

    @property
    def mass(self):
        """(n,) posterior probabilities of the stored starts."""
        return np.exp(np.asarray(self.log_mass)[: self.n])

    @property
    def start(self):
        """(n,) stored starts, in no particular order."""
        return np.asarray(self.starts)[: self.n]

    def skip(self):
        """Advance time without an observation: only the probability of a change grows."""
        self.gap += 1
        self.latest_dropped = 0.0
        self.time += 1

    def observe(self, y, design):
        """Learn an observation; return the posterior mean of its weight."""
        n: cython.Py_ssize_t = self.n
        log_stay: cython.double = self.log_stay(1)
        previous: cython.Py_ssize_t
        self.starts[n], self.visits[n] = self.time, 0
        self.segments.set_observation(y, design)
        with cython.nogil:
            self.update_rows()
            previous = self.weigh(log_stay)
        self.trail.push(self.time, int(self.starts[previous]) if n else -1)
        self.n, self.gap = n + 1, 0
        self.time += 1
        weight = float(np.dot(self.mass, np.asarray(self.weight)[: n + 1]))
        self.drop()
        self.segments.write_prior(self.n)
        return weight

    def update_rows(self):
        """Score and learn the present observation in every row; the last one is new."""
        for k in range(self.n + 1):
            self.score[k] = self.segments.update(k, k == self.n)
            self.weight[k] = self.segments.weight

    def weigh(self, log_stay):
        """Update sums and maxima; return the best predecessor of the new start."""
        n: cython.Py_ssize_t = self.n
        previous: cython.Py_ssize_t = 0
        before: cython.double = 0.0
        if n > 0:
            before = -INF
            for k in range(n):
                if self.log_best[k] > before:
                    before = self.log_best[k]
                    previous = k
            for k in range(n):
                self.log_mass[k] += log_stay + self.score[k]
                self.log_best[k] += log_stay + self.score[k]
        log_hazard: cython.double = log(-expm1(log_stay))
        self.log_mass[n] = log_hazard + self.score[n]
        self.log_best[n] = before + log_hazard + self.score[n]
        top: cython.double = -INF
        heaviest: cython.double = -INF
        for k in range(n + 1):
            self.visits[k] += 1
            if self.log_best[k] > top:
                top = self.log_best[k]
            if self.log_mass[k] > heaviest:
                heaviest = self.log_mass[k]
        # Scores of 1e200 would absorb the log of a sum. Only differences of `log_best` matter.
        for k in range(n + 1):
            self.log_mass[k] -= heaviest
            self.log_best[k] -= top
        total: cython.double = logsumexp(self.log_mass, 0, n + 1)
        for k in range(n + 1):
            self.log_mass[k] -= total
        return previous

    def drop(self):
        """Drop the least probable start if there is one too many."""
        self.latest_dropped = 0.0
        if self.n > self.kept:
            self.n -= 1
            last, log_mass = self.n, np.asarray(self.log_mass)
            least = int(np.argmin(log_mass[: last + 1]))
            lost = math.exp(log_mass[least])
            for array in (*self.history(), *self.segments.arrays()):
                array[least] = array[last]
            log_mass[:last] -= math.log1p(-lost)
            self.latest_dropped = lost
            self.dropped += lost
        self.trail.prune(self.start)

    def history(self):
        """Return starts, visits, log_mass and log_best as arrays."""
        names = ("starts", "visits", "log_mass", "log_best")
        return [np.asarray(getattr(self, name)) for name in names]

    def ahead(self, steps, design):
        """Return the mixture `steps` (from 1) ahead over the stored starts and a new segment."""
        log_stay: cython.double = self.log_stay(steps)
        self.segments.set_observation(None, design)
        self.mixture.reserve((self.n + 1) * self.segments.n_components)
        with cython.nogil:
            self.fill_mixture(log_stay)
        return self.mixture

    def fill_mixture(self, log_stay):
        """Write the components of all rows, with the probabilities of their starts."""
        each: cython.Py_ssize_t = self.segments.n_components
        stay: cython.double = exp(log_stay)
        for k in range(self.n + 1):
            mass: cython.double = stay * exp(self.log_mass[k]) if k < self.n else -expm1(log_stay)
            self.segments.predict(k, self.mixture, k * each)
            for j in range(k * each, (k + 1) * each):
                self.mixture.share[j] = mass * self.mixture.share[j]
        self.mixture.size = (self.n + 1) * each

    def best(self):
        """Return the index of the most probable start."""
        return int(np.argmax(np.asarray(self.log_mass)[: self.n]))

    def segmentation(self):
        """Return the first index of every segment but the first, on the most probable path."""
        if not self.n:
            return []
        winner = int(np.argmax(np.asarray(self.log_best)[: self.n]))
        return self.trail.path(int(self.starts[winner]))[1:]

    def pack(self):
        """Return values and arrays for a snapshot."""
        names = ("n", "time", "gap", "dropped", "latest_dropped")
        values = {name: getattr(self, name) for name in names}
        values["trail_limit"] = self.trail.limit
        names = ("start", "visits", "log_mass", "log_best")
        columns = zip(names, self.history(), strict=True)
        arrays = {f"book_{name}": array[: self.n].copy() for name, array in columns}
        rows = self.segments.arrays()
        arrays |= {f"rows_{j}": array[: self.n].copy() for j, array in enumerate(rows)}
        arrays["trail"] = np.array(list(self.trail.before.items()), np.int64).reshape(-1, 2)
        return values, arrays

    def unpack(self, values, arrays):
        """Restore the state from the values and arrays of a snapshot.

        Raises:
            RegimekitError: If more starts are stored than `max_run_lengths` allows.
            SnapshotError: If the state is invalid.
        """
        n, self.time = values.whole("n"), values.whole("time")
        if n > self.kept:
            raise RegimekitError(
                f"max_run_lengths must be at least {n}, the number of stored starts, got "
                f"{self.kept}."
            )
        self.n, self.gap = n, values.whole("gap", 0, self.time)
        self.dropped = values.number("dropped", least=0.0)
        self.latest_dropped = values.number("latest_dropped", 0.0, 1.0)
        start, visits, log_mass, log_best = self.history()
        start[:n] = arrays.wholes("book_start", (n,), 0, self.time - 1)
        visits[:n] = arrays.wholes("book_visits", (n,), 1, self.time)
        log_mass[:n] = arrays.log_shares("book_log_mass", (n,))
        log_best[:n] = arrays.floats("book_log_best", (n,), most=0.0, infinite=True)
        arrays.distinct("book_start", start[:n])
        for j, array in enumerate(self.segments.arrays()):
            array[:n] = arrays.floats(f"rows_{j}", (n, *array.shape[1:]))
        if not self.segments.are_possible(visits[:n]):
            raise SnapshotError("Invalid snapshot: the statistics of a segment are impossible.")
        self.trail.unpack(values, arrays, self.time)
        self.segments.write_prior(n)


class Trail:
    """The start of the previous segment (-1 if there is none) for every start on a stored path."""

    def __init__(self):
        self.before = {}
        self.limit = 0

    def push(self, start, previous):
        """Add `start`, after the segment that began at `previous`."""
        self.before[start] = previous

    def path(self, start):
        """Return the starts up to `start`, oldest first, as far back as they are stored."""
        chain = []
        while start in self.before:
            chain.append(start)
            start = self.before[start]
        return chain[::-1]

    def prune(self, live):
        """Delete starts that no live start leads to, and those before the latest MAX_TRAIL.

        It runs only after the number of stored starts has doubled.
        """
        if len(self.before) <= self.limit:
            return
        used = set()
        for start in live.tolist():
            while start in self.before and start not in used:
                used.add(start)
                start = self.before[start]
        recent = sorted(used)[len(used) - min(len(used), MAX_TRAIL + live.size) :]
        self.before = {start: self.before[start] for start in recent}
        self.limit = 2 * len(self.before) + live.size

    def unpack(self, values, arrays, time):
        """Restore the trail from the `values` and `arrays` of a snapshot at a `time`."""
        links = arrays.wholes("trail", (None, 2), -1, time - 1)
        # A cycle would have no end.
        if (links[:, 1] >= links[:, 0]).any():
            raise SnapshotError("Invalid snapshot: trail must lead back in time.")
        self.limit = values.whole("trail_limit")
        self.before = dict(links.tolist())
