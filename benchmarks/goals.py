"""Goals for the costs of the library, and measured costs, for `make bench`.

Every function measures one or several rows of the table. Times per observation are processor times
of one core; other load on the machine increases them by up to a half, so compare them with the rows
of other packages in the same run.
"""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import regimekit as rk
from benchmarks import peers
from benchmarks.timing import best

ROOT = Path(__file__).parent.parent
HOURLY_ROWS = 8000
RUN_GOALS = {(1, 1): 0.04, (1, 6): 0.03, (13, 6): 0.06, (100, 2): 0.25}  # ms, by (m, B)


class Measurement(NamedTuple):
    """One measured quantity and its goal.

    Attributes:
        what: the work.
        value: what was reached.
        unit: its unit; "times" is a ratio of which more is better.
        goal: what should be reached, or None.
    """

    what: str
    value: float
    unit: str
    goal: float | None = None

    def __str__(self) -> str:
        goal = "" if self.goal is None else f" (goal {self.goal:g})"
        return f"{self.what}: {self.value:.3g} {self.unit}{goal}"

    @property
    def reached(self) -> bool:
        """Whether the goal is reached."""
        if self.goal is None:
            return True
        return self.value >= self.goal if self.unit == "times" else self.value <= self.goal


def levels(n: int = 2000) -> np.ndarray:
    """Return four levels that take turns every 250 values, with spikes of 10 sd at 2 % of them."""
    rng = np.random.default_rng(0)
    y = np.array([0.0, 6.0, -3.0, 9.0])[np.arange(n) // 250 % 4] + rng.standard_normal(n)
    return np.where(rng.random(n) < 0.02, y + 10.0 * rng.choice([-1.0, 1.0], n), y)


def hourly(n: int = 2000) -> np.ndarray:
    """Return hourly data with a daily season, a working day and noise."""
    rng = np.random.default_rng(1)
    hour = np.arange(n) % 24
    day = 3.0 * np.sin(2 * np.pi * hour / 24) + 2.0 * ((hour > 8) & (hour < 18))
    return 20.0 + day + 0.5 * rng.standard_normal(n)


def vectors(n: int = 400, dim: int = 8) -> np.ndarray:
    """Return a random walk of `dim` coordinates."""
    return np.cumsum(np.random.default_rng(2).standard_normal((n, dim)), axis=0)


def measure(rounds: int, say: Callable[[Measurement], object]) -> list[Measurement]:
    """Measure everything except `br_ihmm.run`, whose rows are in the comparison with others."""
    found = []
    jobs = (per_observation, run_many, command_line, first_forecast, snapshot, installed_size)
    for job in jobs:
        for one in job(rounds):
            say(one)
            found.append(one)
    return found


def per_observation(rounds: int) -> Iterator[Measurement]:
    """Yield milliseconds per observation of `auto` and `br_ihmm`."""
    series = {"levels with spikes": (levels(), 0.15), "hourly with a daily season": (hourly(), 0.4)}
    for name, (y, goal) in series.items():
        seconds = best({"run": lambda y=y: rk.auto().run(y)}, rounds)["run"]
        yield Measurement(f"`auto().run`, {name}", 1e3 * seconds / len(y), "ms", goal)
    y = vectors()
    seconds = best({"run": lambda: rk.auto().run(y)}, min(rounds, 2))["run"]
    yield Measurement("`auto().run`, 8 coordinates, per row", 1e3 * seconds / len(y), "ms", 2.0)
    known = peers.make_case(1, 6, 2000).y
    models: tuple[tuple[str, Callable[[], Any], np.ndarray, float], ...] = (
        ("`auto()`", rk.auto, levels(), 0.2),
        (
            "`br_ihmm(noise=..)`",
            lambda: rk.br_ihmm(noise=peers.NOISE, prior_var=4.0, batch=6),
            known,
            0.02,
        ),
        ("`br_ihmm()`, units estimated", rk.br_ihmm, known, 0.03),
    )
    for name, make, values, goal in models:
        spent = _predict_and_update(make, values, rounds)
        yield Measurement(f"{name}: `predict` + `update`", spent, "ms", goal)


def _predict_and_update(make: Callable[[], Any], y: np.ndarray, rounds: int) -> float:
    """Return milliseconds per observation after the first quarter of a stream."""
    n = len(y) // 4
    values = y[n:].tolist()
    least = float("inf")
    for _ in range(rounds):
        model = make()
        model.run(y[:n])

        def both(model: Any = model) -> None:
            for value in values:
                model.predict()
                model.update(value)

        least = min(least, best({"both": both}, 1)["both"])
    return 1e3 * least / len(values)


def run_many(rounds: int) -> Iterator[Measurement]:
    """Yield the speed-up of two threads over one: 200 series of 500 rows, elapsed time."""
    rng = np.random.default_rng(3)
    table = {
        "unique_id": np.repeat(np.arange(200), 500).tolist(),
        "y": rng.standard_normal(200 * 500).cumsum().tolist(),
    }
    import pandas

    frame = pandas.DataFrame(table)
    seconds = {1: float("inf"), 2: float("inf")}
    for _ in range(min(rounds, 2)):
        for jobs in seconds:
            begin = time.perf_counter()
            rk.run_many(frame, time=None, jobs=jobs)
            seconds[jobs] = min(seconds[jobs], time.perf_counter() - begin)
    yield Measurement("`run_many`, 200 series x 500 rows, one thread", seconds[1], "s elapsed")
    ratio = seconds[1] / seconds[2]
    yield Measurement("the same, two threads over one", ratio, "times", 1.8)


def command_line(rounds: int) -> Iterator[Measurement]:
    """Yield processor seconds of `regimekit run` on 8000 hourly rows, with report."""
    program = Path(sys.executable).with_name("regimekit")
    command = [str(program)] if program.exists() else [sys.executable, "-m", "regimekit"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "load.csv"
        start = datetime(2024, 1, 1)
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("when", "load"))
            for i, value in enumerate(hourly(HOURLY_ROWS).tolist()):
                writer.writerow((start + timedelta(hours=i), f"{value:.3f}"))
        out = str(Path(folder) / "out")
        seconds = spent([*command, "run", str(path), "--horizon", "48", "--out", out])
    what = f"`regimekit run`, {HOURLY_ROWS} hourly rows, `--horizon 48`, with report"
    yield Measurement(what, seconds, "s", 5.0)


FIRST = "import regimekit as rk; model = rk.auto(); model.update(1.0); print(model.predict().mean)"


def first_forecast(rounds: int) -> Iterator[Measurement]:
    """Yield processor seconds of fresh processes."""
    python = [sys.executable, "-c"]
    least = min(spent([*python, FIRST]) for _ in range(rounds))
    yield Measurement("first forecast of `auto` in a fresh process", least, "s", 1.0)
    least = min(spent([*python, "import regimekit"]) for _ in range(rounds))
    yield Measurement("`import regimekit` in a fresh process", least, "s")


def snapshot(rounds: int) -> Iterator[Measurement]:
    """Yield size and load time of a snapshot of `auto` after 8000 hourly rows."""
    model = rk.auto()
    model.run(hourly(HOURLY_ROWS))
    data = model.to_bytes()
    rk.from_bytes(data)
    seconds = best({"load": lambda: rk.from_bytes(data)}, max(rounds, 10))["load"]
    what = f"snapshot of `auto` after {HOURLY_ROWS} hourly rows"
    yield Measurement(what, len(data) / 1e3, "kB", 150.0)
    yield Measurement("load time of that snapshot", 1e3 * seconds, "ms", 5.0)


def installed_size(rounds: int) -> Iterator[Measurement]:
    """Yield the size of the package and of its dependencies without extras."""
    package = Path(rk.__file__).parent
    kinds = (".py", ".so", ".pyd", ".pxd", ".js", ".css", ".html", ".svg")
    size = sum(f.stat().st_size for f in package.rglob("*") if f.suffix in kinds)
    setup = (ROOT / "setup.py").read_text()
    required = re.search(r"^RUNTIME = (\[.*\])$", setup, re.M)
    assert required is not None
    names = {re.split("[><=]", one)[0] for one in json.loads(required[1])}
    for name in names:
        files = importlib.metadata.distribution(name).files or []
        size += sum(os.path.getsize(f.locate()) for f in files if os.path.exists(f.locate()))
    listed = ", ".join(sorted(names))
    yield Measurement(f"installed size with {listed}, no extras", size / 1e6, "MB", 150.0)


def build_time() -> Measurement:
    """Return processor seconds of translating and compiling all kernels."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "setup.py", "build_ext", "--force", "--build-lib", folder]
        command += ["--build-temp", f"{folder}/temp"]
        seconds = spent(command, cwd=ROOT, REGIMEKIT_BUILD_DIR=f"{folder}/c")
    return Measurement("translating and compiling all kernels", seconds, "s")


# Processor time of a child and of its own children, measured in the child.
CHILD = """
import json, os, subprocess, sys
before = os.times()
subprocess.run(json.loads(sys.argv[1]), check=True, stdout=subprocess.DEVNULL)
after = os.times()
used = after.children_user + after.children_system
print(used - before.children_user - before.children_system)
"""


def spent(command: list[str], cwd: Path | None = None, **environment: str) -> float:
    """Return the processor seconds of a command and of the processes it starts."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(command)],
        capture_output=True,
        text=True,
        check=True,
        cwd=cwd,
        env=os.environ | environment,
    )
    return float(done.stdout)
