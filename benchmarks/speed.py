"""Time per observation beside the others, and the small things that are felt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import regimekit as rk
from benchmarks import peers
from benchmarks.timing import best
from regimekit.distributions.forecast import Forecast

ROWS = ((1, 1, 600), (1, 6, 600), (13, 6, 600), (100, 2, 200))  # features, batch, observations


class Cost(NamedTuple):
    """Milliseconds per observation of a peer on one case; or why there are none."""

    peer: str
    width: int
    batch: int
    milliseconds: float
    skipped: str = ""


def compare(rounds: int = 5, say: Callable[[object], None] = print) -> list[Cost]:
    """Every peer on every case; those of one case in turns. Each is said as it is known."""
    found: list[Cost] = []
    for row in ROWS:
        for cost in _case(*row, rounds=rounds):
            say(cost)
            found.append(cost)
    return found


def _case(width: int, batch: int, n: int, rounds: int) -> list[Cost]:
    jobs: dict[str, Callable[[], object]] = {}
    sizes: dict[str, int] = {}
    skipped: dict[str, str] = {}
    for name, prepare, fewer in peers.PEERS:
        size = n // fewer // batch * batch
        try:
            jobs[name] = prepare(peers.case(width, batch, size))
            sizes[name] = size
        except ImportError as error:
            skipped[name] = str(error)
    seconds = best(jobs, rounds)
    timed = [Cost(name, width, batch, 1e3 * seconds[name] / sizes[name]) for name in jobs]
    return timed + [Cost(name, width, batch, np.nan, why) for name, why in skipped.items()]


class Felt(NamedTuple):
    """Something a person waits for: what, how much, in which unit."""

    what: str
    value: float
    unit: str


def felt(rounds: int = 5) -> list[Felt]:
    """More particles, one observation, one score, and the start."""
    return [_more_particles(rounds), _one_observation(rounds), _score(rounds), *_start(rounds)]


def _more_particles(rounds: int) -> Felt:
    case = peers.case(1, 6, 600)
    jobs = {}
    for n in (100, 1000):
        jobs[str(n)] = lambda n=n: rk.br_ihmm(
            noise=peers.NOISE, prior_var=4.0, particles=n, batch=6
        ).run(case.y)
        jobs[str(n)]()
    seconds = best(jobs, rounds)
    return Felt("1000 particles beside 100", seconds["1000"] / seconds["100"], "times")


def _one_observation(rounds: int) -> Felt:
    case = peers.case(1, 6, 2000)
    model = rk.br_ihmm(noise=peers.NOISE, prior_var=4.0, batch=6)
    model.run(case.y[:500])
    values = case.y[500:].tolist()

    def both() -> None:
        for y in values:
            model.predict()
            model.update(y)

    seconds = best({"both": both}, rounds)["both"]
    return Felt("`predict` and `update` of one observation", 1e3 * seconds / len(values), "ms")


def _score(rounds: int) -> Felt:
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
    return Felt("exact CRPS of a mixture of 20 Student-t", 1e3 * seconds / len(points), "ms")


# Processor time of a child and of all its own, as the child itself sees it.
CHILD = """
import json, os, subprocess, sys
before = os.times()
subprocess.run(json.loads(sys.argv[1]), check=True, stdout=subprocess.DEVNULL)
after = os.times()
spent = after.children_user + after.children_system
print(spent - before.children_user - before.children_system)
"""


def spent(command: list[str], **environment: str) -> float:
    """Processor seconds of a command."""
    said = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(command)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | environment,
    )
    return float(said.stdout)


FIRST = "import regimekit as rk; rk.br_ihmm(noise=.25).run([0.0, .1, .2, .1, 3.0, 3.1, 3.0])"


def _start(rounds: int) -> list[Felt]:
    python = [sys.executable, "-c"]
    program = Path(sys.executable).with_name("regimekit")
    commands = {
        "`import regimekit`": [*python, "import regimekit"],
        "`import regimekit` and the first model": [
            *python,
            "import regimekit; regimekit.br_ihmm()",
        ],
        "`regimekit --help`": [str(program), "--help"],
        "(python itself)": [*python, "pass"],
    }
    found = {name: min(spent(c) for _ in range(rounds)) for name, c in commands.items()}
    with tempfile.TemporaryDirectory() as folder:
        compiled = spent([*python, FIRST], REGIMEKIT_CACHE=folder)
    warm = spent([*python, FIRST])
    told = [Felt(name, seconds, "s") for name, seconds in found.items()]
    return [*told, Felt("first compilation of `br_ihmm`", compiled - warm, "s")]
