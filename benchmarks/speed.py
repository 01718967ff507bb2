"""Time per observation of `br_ihmm` beside other packages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import regimekit as rk
from benchmarks import peers
from benchmarks.goals import RUN_GOALS, Measurement
from benchmarks.timing import best
from regimekit.distributions.forecast import Forecast

ROWS = ((1, 1, 600), (1, 6, 600), (13, 6, 600), (100, 2, 200))  # features, batch, observations
OURS = "regimekit"


class Cost(NamedTuple):
    """Milliseconds per observation of a peer on one case, or the reason why it is not measured."""

    peer: str
    width: int
    batch: int
    milliseconds: float
    skipped: str = ""

    def __str__(self) -> str:
        cost = self.skipped or f"{self.milliseconds:.3g} ms"
        return f"{self.peer}, m = {self.width}, B = {self.batch}: {cost}"


def compare(rounds: int = 5, say: Callable[[object], object] = print) -> list[Cost]:
    """Measure every peer on every case; the peers of one case take turns."""
    found: list[Cost] = []
    for row in ROWS:
        for cost in _case(*row, rounds=rounds):
            say(cost)
            found.append(cost)
    return found


def run_goals(costs: list[Cost]) -> list[Measurement]:
    """Return the rows of `br_ihmm.run` with their goals."""
    return [
        Measurement(
            f"`br_ihmm.run`, m = {cost.width}, B = {cost.batch}",
            cost.milliseconds,
            "ms",
            RUN_GOALS[cost.width, cost.batch],
        )
        for cost in costs
        if cost.peer == OURS
    ]


def _case(width: int, batch: int, n: int, rounds: int) -> list[Cost]:
    jobs: dict[str, Callable[[], object]] = {}
    sizes: dict[str, int] = {}
    skipped: dict[str, str] = {}
    for name, prepare, fewer in peers.PEERS:
        size = n // fewer // batch * batch
        try:
            jobs[name] = prepare(peers.make_case(width, batch, size))
            sizes[name] = size
        except ImportError as error:
            skipped[name] = str(error)
    seconds = best(jobs, rounds)
    timed = [Cost(name, width, batch, 1e3 * seconds[name] / sizes[name]) for name in jobs]
    return timed + [Cost(name, width, batch, np.nan, why) for name, why in skipped.items()]


def other(rounds: int) -> list[Measurement]:
    """Measure quantities without a goal: more particles, one score."""
    return [_more_particles(rounds), _score(rounds)]


def _more_particles(rounds: int) -> Measurement:
    case = peers.make_case(1, 6, 600)
    jobs = {}
    for n in (100, 1000):
        jobs[str(n)] = lambda n=n: rk.br_ihmm(
            noise=peers.NOISE, prior_var=4.0, particles=n, batch=6
        ).run(case.y)
        jobs[str(n)]()
    seconds = best(jobs, rounds)
    ratio = seconds["1000"] / seconds["100"]
    return Measurement("time with 1000 particles over that with 100", ratio, "")


def _score(rounds: int) -> Measurement:
    rng = np.random.default_rng(0)
    share = rng.dirichlet(np.ones(20))
    forecast = Forecast.mixture(
        share, rng.standard_normal((20, 1)), rng.gamma(3, 1, (20, 1, 1)), rng.uniform(2.5, 30, 20)
    )
    rk.evaluate.crps([forecast], [0.3])
    points = rng.standard_normal(20).tolist()

    def scores() -> None:
        for y in points:
            rk.evaluate.crps([forecast], [y])

    seconds = best({"crps": scores}, rounds)["crps"]
    return Measurement("exact CRPS of a mixture of 20 Student-t", 1e3 * seconds / len(points), "ms")
