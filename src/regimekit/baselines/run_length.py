"""The run-length recursion (Adams and MacKay 2007), shared by `bocd` and `dsm_bocd`.

A *segment* is a stretch between two changepoints; one row of statistics stands for each time s at
which the present segment may have begun. Before every observation the segment ends with
probability `hazard`, and the observation that begins a segment is scored by the prior predictive
and learnt by that row. With p_t(s) = P(segment began at s | y_1..y_t) and h the hazard:

    p_t(s) ~ (1 - h) p_{t-1}(s) p(y_t | y_s..y_{t-1})   s < t
    p_t(t) ~ h p(y_t)                                                  (the first h is 1)

A missing observation says nothing but that time goes on: after a gap of g observations
1 - h = (1 - hazard)^(g + 1). Starts inside a gap cannot be told from a start at its end, so one row
for all of them is exact.

Only K starts are kept: when there are more, the least probable one is dropped and its mass
e_t recorded. *Stated error*: what is kept is exactly the posterior given that the path of segments
never was on a dropped start, so its total-variation distance to the full posterior is the
posterior probability of such a path. Between drops that is a martingale under the model, so its
mean is at most `dropped` = sum e_t, and the chance that it ever exceeds delta is at most
dropped / delta.

Beside the sums the same recursion with maxima keeps the most probable path (`segmentation`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel
from regimekit.core.covariates import STORED
from regimekit.core.exceptions import RegimekitError, SnapshotError, whole
from regimekit.core.logspace import normalise
from regimekit.ihmm.emissions.base import Rows, Shape
from regimekit.results import NO_REGIME, OPENED, Event
from regimekit.serialization.validation import Arrays, Values, affordable

Array = NDArray[np.float64]
MOST_KEPT = 100_000  # starts of a segment
LONGEST_TRAIL = 1000  # segments of the most probable path that are remembered


class Mixture(NamedTuple):
    """One-step predictive of n rows with J components each.

    share: (n, J). location: (n, J, d). spread: (n, J, d, d). dof: (n, J).
    """

    share: Array
    location: Array
    spread: Array
    dof: Array


class Segments(ABC):
    """What the recursion asks of the rows: their prior, how they learn, what they predict."""

    shape: Shape

    @abstractmethod
    def blank(self, capacity: int) -> Rows:
        """Room for `capacity` rows."""

    @abstractmethod
    def write_prior(self, rows: Rows, row: int) -> None:
        """Make `row` a segment that has seen nothing."""

    def design(self, features: Array) -> Array:
        """The features of one observation in the shape the kernels want."""
        return features

    @abstractmethod
    def advance(self, rows: Rows, y: Array, design: Array, score: Array, weight: Array) -> None:
        """Score y under the first score.size rows, then let them learn it; the last is new.

        Writes `score` (log predictive density) and `weight` (how much each row believed y).
        """

    @abstractmethod
    def predictive(self, rows: Rows, n: int, design: Array) -> Mixture:
        """One-step predictive of the first n rows."""

    @abstractmethod
    def coefficients(self, rows: Rows, row: int) -> tuple[Array, Array]:
        """Posterior mean and standard deviation of a row's coefficients."""

    def possible(self, rows: Rows, visits: NDArray[np.int64]) -> bool:
        """Whether so many observations can have led to the first rows, as far as that is known."""
        return all((np.abs(array[: visits.size]) < STORED[1]).all() for array in rows)


class History(NamedTuple):
    """Per kept start: time index, observations learnt, log p_t(s), log of its best path."""

    start: np.ndarray
    visits: np.ndarray
    log_mass: np.ndarray
    log_best: np.ndarray


class RunLengths:
    """The posterior over segment starts, with one row of statistics each.

    Args:
        segments: what the rows mean.
        hazard: chance that a segment ends before an observation.
        kept: K, how many starts are kept.
    """

    def __init__(self, segments: Segments, hazard: float, kept: int) -> None:
        affordable("max_run_lengths", (kept + 1.0) * segments.shape.coefficients**2)
        self.segments, self.hazard, self.kept = segments, hazard, kept
        self.rows = segments.blank(kept + 1)
        self.history = History(
            np.zeros(kept + 1, np.int64),
            np.zeros(kept + 1, np.int64),
            np.full(kept + 1, -np.inf),
            np.full(kept + 1, -np.inf),
        )
        self.n = self.time = 0
        self.gap = 0  # observations missing since the latest
        self.dropped = self.latest_dropped = 0.0
        self.trail = Trail()
        self._show_prior()

    def log_stay(self, steps: int) -> float:
        """Log chance that the observation `steps` ahead is of the latest one's segment."""
        if not self.n:
            return -math.inf  # the first observation begins a segment for certain
        return (self.gap + steps) * math.log1p(-self.hazard)

    @property
    def mass(self) -> Array:
        """(n,) posterior probabilities of the kept starts."""
        return np.asarray(np.exp(self.history.log_mass[: self.n]))

    @property
    def start(self) -> NDArray[np.int64]:
        """(n,) the kept starts, in no particular order."""
        return self.history.start[: self.n]

    def skip(self) -> None:
        """An observation that is missing: only the chance of a change grows."""
        self.gap += 1
        self.latest_dropped = 0.0
        self.time += 1

    def observe(self, y: Array, design: Array) -> float:
        """Learn one observation; the posterior mean of how much it was believed."""
        n = self.n
        self.history.start[n], self.history.visits[n] = self.time, 0
        score, weight = np.zeros(n + 1), np.ones(n + 1)
        self.segments.advance(self.rows, y, design, score, weight)
        previous = _weigh(self.history, n, score, self.log_stay(1))
        self.trail.push(self.time, int(self.history.start[previous]) if n else -1)
        self.n, self.gap = n + 1, 0
        self.time += 1
        believed = float(self.mass @ weight)
        self._drop()
        self._show_prior()
        return believed

    def ahead(self, steps: int, design: Array) -> tuple[Array, Mixture]:
        """Shares of the kept starts and of a new segment, and what each predicts.

        Args:
            steps: how many observations ahead, from 1.
            design: features of that observation.
        """
        log_stay = self.log_stay(steps)
        share = np.append(math.exp(log_stay) * self.mass, -math.expm1(log_stay))
        return share, self.segments.predictive(self.rows, self.n + 1, design)

    def best(self) -> int:
        """The slot of the most probable start."""
        return int(np.argmax(self.history.log_mass[: self.n]))

    def segmentation(self) -> list[int]:
        """First index of every segment but the first, on the most probable path so far."""
        if not self.n:
            return []
        winner = int(np.argmax(self.history.log_best[: self.n]))
        return self.trail.path(int(self.history.start[winner]))[1:]

    def _drop(self) -> None:
        """Forget the least probable start if there is one too many."""
        self.latest_dropped = 0.0
        if self.n > self.kept:
            self.n -= 1
            self.latest_dropped = _forget(self.history, self.n, self.rows)
            self.dropped += self.latest_dropped
        self.trail.tidy(self.start)

    def _show_prior(self) -> None:
        """The row after the last one is the segment that may begin next."""
        self.segments.write_prior(self.rows, self.n)

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        values = {
            "n": self.n,
            "time": self.time,
            "gap": self.gap,
            "dropped": self.dropped,
            "latest_dropped": self.latest_dropped,
            "trail_limit": self.trail.limit,
        }
        arrays: dict[str, NDArray[Any]] = {
            f"book_{name}": array[: self.n].copy()
            for name, array in zip(History._fields, self.history, strict=True)
        }
        arrays |= {f"rows_{j}": array[: self.n].copy() for j, array in enumerate(self.rows)}
        arrays["trail"] = np.array(list(self.trail.before.items()), np.int64).reshape(-1, 2)
        return values, arrays

    def unpack(self, values: Values, arrays: Arrays) -> None:
        n, self.time = values.whole("n"), values.whole("time")
        if n > self.kept:
            raise RegimekitError(f"max_run_lengths is {self.kept}, too few for {n} starts.")
        self.n, self.gap = n, values.whole("gap", 0, self.time)
        self.dropped = values.number("dropped", least=0.0)
        self.latest_dropped = values.number("latest_dropped", 0.0, 1.0)
        start, visits, log_mass, log_best = self.history
        start[:n] = arrays.wholes("book_start", (n,), 0, self.time - 1)
        visits[:n] = arrays.wholes("book_visits", (n,), 1, self.time)
        log_mass[:n] = arrays.log_shares("book_log_mass", (n,))
        log_best[:n] = arrays.floats("book_log_best", (n,), most=0.0, endless=True)
        arrays.distinct("book_start", start[:n])
        for j, array in enumerate(self.rows):
            array[:n] = arrays.floats(f"rows_{j}", (n, *array.shape[1:]))
        if not self.segments.possible(self.rows, visits[:n]):
            raise SnapshotError("The snapshot's rows are such as no observations lead to.")
        self.trail.unpack(values, arrays, self.time)
        self._show_prior()


class Trail:
    """For every start that a kept path still uses: where the segment before it began (-1: none)."""

    def __init__(self) -> None:
        self.before: dict[int, int] = {}
        self.limit = 0

    def push(self, start: int, previous: int) -> None:
        self.before[start] = previous

    def path(self, start: int) -> list[int]:
        """The starts up to and with this one, oldest first, as far back as remembered."""
        chain = []
        while start in self.before:
            chain.append(start)
            start = self.before[start]
        return chain[::-1]

    def tidy(self, live: NDArray[np.int64]) -> None:
        """Forget what no live start leads to, when half of it may be such, and the distant past."""
        if len(self.before) <= self.limit:
            return
        used: set[int] = set()
        for start in live.tolist():
            while start in self.before and start not in used:
                used.add(start)
                start = self.before[start]
        recent = sorted(used)[-LONGEST_TRAIL - live.size :]
        self.before = {start: self.before[start] for start in recent}
        self.limit = 2 * len(self.before) + live.size

    def unpack(self, values: Values, arrays: Arrays, time: int) -> None:
        links = arrays.wholes("trail", (None, 2), -1, time - 1)
        if (links[:, 1] >= links[:, 0]).any():  # a circle would have no end
            raise SnapshotError("The snapshot's trail must lead back in time.")
        self.limit = values.whole("trail_limit")
        self.before = dict(links.tolist())


class Announcer:
    """Turns the posterior over starts into segment ids that only ever go up."""

    def __init__(self) -> None:
        self.regime = NO_REGIME
        self.given = -1  # time index at which the present id was given
        self.given_before = -1  # and the one before it

    def change_probability(self, lengths: RunLengths) -> float:
        """Posterior probability of a change since the present id was given."""
        if self.regime == NO_REGIME:
            return 0.0
        later = float(lengths.mass[lengths.start > self.given].sum())
        return min(1.0, 1.0 - (1.0 - later) * (1.0 - lengths.hazard) ** lengths.gap)

    def certainty(self, lengths: RunLengths) -> float:
        """Posterior probability that the present id names the segment."""
        if self.regime == NO_REGIME:
            return 1.0
        start = lengths.start
        ours = (start > self.given_before) & (start <= self.given)
        held = float(lengths.mass[ours].sum()) * (1.0 - lengths.hazard) ** lengths.gap
        return min(max(held, float(np.finfo(float).tiny)), 1.0)

    def announce(self, lengths: RunLengths, time: int) -> list[Event]:
        """Give a new id if the most probable start is later than the present id."""
        if lengths.start[lengths.best()] <= self.given:
            return []
        previous, self.regime = self.regime, self.regime + 1
        self.given_before, self.given = self.given, time
        since = int(lengths.start[lengths.best()])
        return [Event(time, OPENED, self.regime, previous, max(since, 0))]

    def pack(self) -> list[int]:
        return [self.regime, self.given, self.given_before]

    def unpack(self, values: Values, time: int) -> None:
        told = values.wholes("announcer", 3, NO_REGIME, max(time - 1, NO_REGIME))
        self.regime, self.given, self.given_before = told


@kernel
def _weigh(history: History, n: int, score: np.ndarray, log_stay: float) -> int:
    """One step of the sums and of the maxima; the best predecessor of the new start n."""
    before, previous = 0.0, 0
    if n > 0:
        before = -np.inf
        for k in range(n):
            if history.log_best[k] > before:
                before, previous = history.log_best[k], k
        for k in range(n):
            history.log_mass[k] += log_stay + score[k]
            history.log_best[k] += log_stay + score[k]
    log_hazard = math.log(-math.expm1(log_stay))
    history.log_mass[n] = log_hazard + score[n]
    history.log_best[n] = before + log_hazard + score[n]
    top, heaviest = -np.inf, -np.inf
    for k in range(n + 1):
        history.visits[k] += 1
        top = max(top, history.log_best[k])
        heaviest = max(heaviest, history.log_mass[k])
    for k in range(n + 1):
        history.log_mass[k] -= heaviest  # scores of 1e200 would swallow the log of a sum
        history.log_best[k] -= top  # only differences matter, and they must not drift
    total = normalise(history.log_mass, n + 1, np.empty(n + 1))
    for k in range(n + 1):
        history.log_mass[k] -= total
    return previous


def _forget(history: History, last: int, rows: Rows) -> float:
    """Put slot `last` in the place of the least probable start; the mass that was lost."""
    least = int(np.argmin(history.log_mass[: last + 1]))
    lost = math.exp(history.log_mass[least])
    for array in (*history, *rows):
        array[least] = array[last]
    history.log_mass[:last] -= math.log1p(-lost)
    return lost


def read_hazard(value: Any) -> float:
    """The hazard as a float strictly between 0 and 1."""
    try:
        hazard = float(value)
    except (TypeError, ValueError):
        raise RegimekitError(f"hazard must be a number in (0, 1), got {value!r}.") from None
    if not 0 < hazard < 1:
        raise RegimekitError(f"hazard must lie strictly between 0 and 1, got {value!r}.")
    return hazard


def read_kept(value: Any) -> int:
    """K as an integer of at least 2: a segment and its possible successor."""
    return whole("max_run_lengths", value, least=2, most=MOST_KEPT)
