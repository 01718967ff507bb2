"""The steps of a batch under way, told in few numbers and made again to the bit.

A step of a scalar observation (y, f) is u, s and gain r, with its residual r (`emissions.linear`).
The row and the latest observations are known, so u = A' f under the steps before it follows, and
so does r = y - f' mu. Potter's s gives the gain: with q = u'u,

    gain = s (2 - s q).

What is left to tell of a step is s, which observation it has learnt, and how many floats lie
between gain r and this: none or one. Only sums, products and quotients are used, which are the same
on every machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel
from regimekit.ihmm.emissions.linear import Steps, bounded, dot, pass_through, project, squares

if TYPE_CHECKING:
    from regimekit.ihmm.engine import Engine

_MOST_BITS = 62  # of a batch: which observations were learnt is one number for each candidate
MOST_LEARNT = 2**_MOST_BITS - 1  # that number at its largest
FARTHEST = 8  # floats between a gain and what it should be


class Batches(NamedTuple):
    """What candidates have learnt from.

    Attributes:
        mean: (cap, 1, m) of the rows.
        root: (cap, m, m) of the rows.
        row: (G, K) the candidates' rows.
        counts: (G,) candidates of each island.
        position: (G,) observations of its batch so far.
        y: (n, 1) the latest observations.
        design: (n, 1, m) their features.
    """

    mean: np.ndarray
    root: np.ndarray
    row: np.ndarray
    counts: np.ndarray
    position: np.ndarray
    y: np.ndarray
    design: np.ndarray


class Told(NamedTuple):
    """Steps in few numbers, those of one candidate after those of another.

    Attributes:
        learnt: (G, K) a bit for each observation of the batch.
        step_shrink: (T,) s of each step.
        step_off: (T,) floats between its gain times residual and what this should be.
    """

    learnt: np.ndarray
    step_shrink: np.ndarray
    step_off: np.ndarray


def tell(engine: Engine) -> Told | None:
    """The steps of all candidates in few numbers; None where these do not lead to them."""
    steps = steps_of(engine)
    if steps is None or not possible(engine):
        return None
    size = steps.shrink.size
    told = Told(np.zeros(steps.taken.shape, np.int64), np.zeros(size), np.zeros(size, np.int64))
    again = Steps(*(np.zeros_like(part) for part in steps))
    n = _tell(_batches(engine), steps, again, told)
    return None if n < 0 else Told(told.learnt, told.step_shrink[:n], told.step_off[:n])


def seen(engine: Engine, learnt: NDArray[np.int64]) -> bool:
    """Whether candidates have learnt nothing that their batch has not seen."""
    return possible(engine) and bool(_seen(_batches(engine), learnt))


def make(engine: Engine, told: Told) -> None:
    """Make the steps that were told, as many as `learnt` has bits."""
    steps = steps_of(engine)
    assert steps is not None
    _make(_batches(engine), steps, told)


def steps_of(engine: Engine) -> Steps | None:
    """The candidates' steps, where each is of one scalar observation."""
    steps = getattr(engine.work, "steps", None)
    scalar = engine.emission.shape.dim == 1 and isinstance(steps, Steps)
    return steps if scalar else None


def possible(engine: Engine) -> bool:
    """Whether a batch's observations have room in the bits of one number."""
    return int(engine.state.clock.position.max()) <= _MOST_BITS


def _batches(engine: Engine) -> Batches:
    clock, rows, recent = engine.state.clock, engine.rows, engine.recent
    return Batches(
        rows.mean,
        rows.root,
        engine.state.candidates.row,
        clock.candidates,
        clock.position,
        recent.y,
        recent.design,
    )


@kernel
def _tell(batches: Batches, steps: Steps, again: Steps, out: Told) -> int:
    """Find which observation each step has learnt, and count them; -1 if one has learnt none."""
    t = 0
    for g in range(batches.counts.size):
        n = batches.position[g]
        for k in range(batches.counts[g]):
            for i in range(n):
                at = batches.y.shape[0] - n + i
                b = again.taken[g, k]
                if b == steps.taken[g, k] or np.isnan(batches.y[at, 0]):
                    continue
                expected = _expect(batches, again, g, k, at, steps.shrink[g, k, b])
                between = _between(expected, steps.gain[g, k, b, 0])
                same = (again.u[g, k, b] == steps.u[g, k, b]).all()
                if same and abs(between) <= FARTHEST:
                    again.shrink[g, k, b] = out.step_shrink[t] = steps.shrink[g, k, b]
                    again.gain[g, k, b, 0] = steps.gain[g, k, b, 0]
                    again.taken[g, k] = b + 1
                    out.learnt[g, k] |= 1 << i
                    out.step_off[t] = between
                    t += 1
            if again.taken[g, k] < steps.taken[g, k]:
                return -1
    return t


@kernel
def _make(batches: Batches, steps: Steps, told: Told) -> None:
    t = 0
    for g in range(batches.counts.size):
        n = batches.position[g]
        for k in range(batches.counts[g]):
            steps.taken[g, k] = 0
            for i in range(n):
                if told.learnt[g, k] >> i & 1:
                    b = steps.taken[g, k]
                    at = batches.y.shape[0] - n + i
                    expected = _expect(batches, steps, g, k, at, told.step_shrink[t])
                    steps.shrink[g, k, b] = told.step_shrink[t]
                    steps.gain[g, k, b, 0] = _moved(expected, told.step_off[t])
                    steps.taken[g, k] = b + 1
                    t += 1


@kernel
def _seen(batches: Batches, learnt: np.ndarray) -> bool:
    for g in range(batches.counts.size):
        n, bits = batches.position[g], 0
        for i in range(n):
            if not np.isnan(batches.y[batches.y.shape[0] - n + i, 0]):
                bits |= 1 << i
        for k in range(learnt.shape[1]):
            if learnt[g, k] & ~(bits if k < batches.counts[g] else 0):
                return False
    return True


@kernel
def _expect(batches: Batches, steps: Steps, g: int, k: int, at: int, shrink: float) -> float:
    """Write u of the step that learns observation `at` now, and give its gain times residual."""
    row, f = batches.row[g, k], batches.design[at, 0]
    b = steps.taken[g, k]
    u, moved = steps.u[g, k, b], steps.gain[g, k, b]  # which is not known yet: room for a sum
    project(batches.root[row], f, u)
    moved[0] = dot(f, batches.mean[row, 0])
    pass_through(steps, g, k, 0, u, moved)
    gain = shrink * (2.0 - shrink * squares(u))
    return gain * bounded(batches.y[at, 0] - moved[0])


@kernel
def _between(first: float, second: float) -> int:
    """Floats from the first to the second, one more than FARTHEST where there are many."""
    towards = 1 if second > first else -1
    for n in range(FARTHEST + 1):
        if first == second:
            return n * towards
        first = np.nextafter(first, second)
    return FARTHEST + 1


@kernel
def _moved(value: float, floats: int) -> float:
    """The float so many places further on."""
    end = np.inf if floats > 0 else -np.inf
    for _ in range(abs(floats)):
        value = np.nextafter(value, end)
    return value
