"""`python -m benchmarks.faults [--seeds 6] [--out FILE]`: effect of a fault on `auto` afterwards.

`python -m benchmarks.faults starts [--first 10] [--seeds 200] [--models ..]`: from how many of
those random starts of each kind a model with default settings does not recover. A start is followed
by 200 ordinary values, 2 +- 0.3 (0 +- 0.3 for `garch_ihmm`, whose mean is zero). A model has
recovered if its 90 % interval covers at least 80 % of the last 100 of them and has a median width
of at most five times the ideal one; its mean, if the median error is below two noise sds.

A sensor is faulty for twelve observations: off by the distance in the row, or by a factor of a
thousand. That is as long as two batches, so it may open a regime that is stored. The later rows are
scored, from twelve observations after the fault to the end: errors of mean and median over those of
the same model on the clean stream, and the width of the intervals beside the clean ones.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

import regimekit as rk
from benchmarks.untuned import Array, Question, ask_all
from regimekit.core.registry import REGISTRY

ROWS, START, LENGTH = 700, 300, 12
LATE = slice(START + 2 * LENGTH, None)
FAULTS: dict[str, Callable[[Array], Array]] = {
    "50 off": lambda y: y + 50.0,
    "1000 off": lambda y: y + 1000.0,
    "times 1000": lambda y: 1000.0 * y,
    "1e300": lambda y: np.full_like(y, 1e300),
}


def levels(rng: np.random.Generator) -> Array:
    path = np.resize([-1.0, 1.0, 3.0], ROWS // 100)
    return np.repeat(path, 100) + 0.5 * rng.standard_normal(ROWS)


def autoregression(rng: np.random.Generator) -> Array:
    y = np.zeros(ROWS)
    for t in range(1, ROWS):
        y[t] = 0.7 * y[t - 1] + rng.standard_normal()
    return y


STREAMS = {"three levels, noise .5": levels, "AR(1) .7, noise 1": autoregression}


def after(make: Callable[[np.random.Generator], Array], fault: str, seed: int) -> dict[str, float]:
    y = make(np.random.default_rng(seed))
    seen = y.copy()
    during = slice(START, START + LENGTH)
    seen[during] = FAULTS[fault](y[during])
    hurt, well = (rk.auto(seed=seed).run(stream) for stream in (seen, y))
    error = {
        name: rk.evaluate.rmse(y[LATE], getattr(hurt, name)[LATE])
        / rk.evaluate.rmse(y[LATE], getattr(well, name)[LATE])
        for name in ("mean", "median")
    }
    width = [float(np.mean((run.upper - run.lower)[LATE])) for run in (hurt, well)]
    return {
        "RMSE of the mean over the clean run's": error["mean"],
        "RMSE of the median over the clean run's": error["median"],
        "width of 90 % over the clean run's": width[0] / width[1],
    }


QUESTIONS = {
    f"{stream}, {fault}": Question(f"{stream}; {fault}", partial(after, make, fault), ())
    for stream, make in STREAMS.items()
    for fault in FAULTS
}


LEVEL, NOISE, ORDINARY = 2.0, 0.3, 200
IDEAL_WIDTH = 2.0 * 1.6449 * NOISE
KINDS = ("staircase", "ramp", "burst", "constant", "units", "mixture")


def ordinary(rng: np.random.Generator, n: int) -> Array:
    return LEVEL + NOISE * rng.standard_normal(n)


def bad_start(kind: str, rng: np.random.Generator) -> Array:
    """Return up to some 300 values of a kind, on a random scale between 10 and 10 000."""
    size = rng.choice([-1, 1]) * 10 ** rng.uniform(1, 4)
    if kind == "staircase":
        steps, length = rng.integers(5, 21), rng.integers(2, 8)
        levels = size * np.arange(1, steps + 1)
        levels = rng.permutation(levels) if rng.random() < 0.5 else levels
        return np.repeat(levels, length) + ordinary(rng, steps * length) - LEVEL
    if kind == "ramp":
        n = rng.integers(20, 101)
        return size * np.arange(n)[:: rng.choice([-1, 1])] + ordinary(rng, n) - LEVEL
    if kind == "burst":
        y, at = ordinary(rng, rng.integers(20, 101)), 0
        while at < len(y):
            length = rng.integers(1, 13)
            y[at : at + length] += size * rng.standard_normal()
            at += length + rng.integers(1, 7)
        return y
    if kind == "constant":
        return np.full(rng.integers(1, 101), rng.choice([0.0, 1.0, size, 100 * size]))
    if kind == "units":
        return ordinary(rng, rng.integers(10, 101)) * rng.choice([1e3, 1e-3])
    kinds = rng.choice(KINDS[:-1], size=rng.integers(2, 4))
    return np.concatenate([bad_start(str(one), rng) for one in kinds])


def recovers(
    name: str, kind: str, seed: int, settings: Mapping[str, Any] = MappingProxyType({})
) -> tuple[bool, bool]:
    """Return whether interval and mean recover from a random start."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    y = np.concatenate([bad_start(kind, rng), ordinary(rng, ORDINARY)])
    y -= LEVEL if name == "garch_ihmm" else 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = rk.make(name, **settings).run(y)
    late = slice(len(y) - ORDINARY // 2, None)
    covered = np.mean((run.lower[late] <= y[late]) & (y[late] <= run.upper[late]))
    width = np.median(run.upper[late] - run.lower[late])
    level = 0.0 if name == "garch_ihmm" else LEVEL
    near = np.median(np.abs(run.mean[late] - level)) < 2.0 * NOISE
    return bool(covered >= 0.8 and width <= 5.0 * IDEAL_WIDTH), bool(near)


def starts() -> None:
    """Print the table of failures: interval / mean."""
    online = [entry.name for entry in REGISTRY.values() if entry.online]
    options = argparse.ArgumentParser(prog="python -m benchmarks.faults starts")
    options.add_argument("--first", type=int, default=10)
    options.add_argument("--seeds", type=int, default=200)
    options.add_argument("--models", nargs="*", choices=online, default=online)
    options.add_argument("--settings", type=json.loads, default={}, help="JSON, of all models")
    given = options.parse_args(sys.argv[2:])
    seeds = range(given.first, given.first + given.seeds)
    print(f"Failures (interval / mean) in {given.seeds} starts, seeds from {given.first}\n")
    print("| model | " + " | ".join(KINDS) + " |\n" + "|---" * (1 + len(KINDS)) + "|")
    for name in given.models:
        cells = []
        for kind in KINDS:
            found = np.array([recovers(name, kind, seed, given.settings) for seed in seeds])
            cells.append(" / ".join(str(int(n)) for n in (~found).sum(axis=0)))
        print(f"| `{name}` | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__" and sys.argv[1:2] == ["starts"]:
    starts()
elif __name__ == "__main__":
    ask_all(QUESTIONS, "benchmarks.faults", "`auto` after a fault of its sensor", 6)
