"""`python -m benchmarks.labels [--seeds 16] [--first 0]`: D12 and the prior of gamma.

One row per rule and stream, means over the seeds, 100 particles, nothing tuned. Streams of levels:
the paper's iid levels (`benchmarks.untuned`), and 1500 observations of K levels N(0, s^2) with
noise 1, a change every 100 observations and 1 % outliers up to 20 away. Well-log is in units from
its first 100 differences; its scores are by what was known at the time, of all rows and of those
after the first 1700, which the search of the first edition did not see.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import regimekit as rk
from benchmarks.untuned import RUN_THRESHOLD, UNITS, Array, in_units
from paper.settings import FIRST, of
from paper.streams import stream

SEEDS = 16
LEARNT = 1700  # rows of well-log in the search of the first edition
KNOWN: dict[str, Any] = {"noise": 1.0, "prior_var": 100.0}
LEVELS = ((3, 1.0), (3, 3.0), (10, 1.0), (10, 4.0))
RULES: dict[str, dict[str, Any]] = {
    "default": {},
    "default, without D12": {"rule": {"D12": "paper"}},
    "gamma prior (1, 1)": {"gamma_prior": (1.0, 1.0)},
    "gamma prior (1, 1), without D12": {"gamma_prior": (1.0, 1.0), "rule": {"D12": "paper"}},
}


def levels(seed: int, k: int, sd: float, n: int = 1500) -> tuple[Array, Array, Array]:
    """Return observations, their means, and the regimes."""
    rng = np.random.default_rng([7, seed, k, int(10 * sd)])
    level, regimes = rng.normal(0.0, sd, k), np.zeros(n, int)
    for t in range(1, n):
        moves = rng.random() >= 0.99
        regimes[t] = (regimes[t - 1] + moves * (1 + rng.integers(k - 1))) % k
    y, hit = level[regimes] + rng.normal(size=n), rng.random(n) < 0.01
    return y + hit * rng.uniform(-20.0, 20.0, n), level[regimes], regimes


def of_levels(rule: dict[str, Any], seed: int, k: int, sd: float) -> tuple[float, ...]:
    y, clean, regimes = levels(seed, k, sd)
    run = rk.br_ihmm(**KNOWN, seed=seed, **rule).run(y)
    found = rk.metrics.n_regimes(run.path) / rk.metrics.n_regimes(regimes)
    rand = rk.metrics.adjusted_rand(run.path, regimes)
    return found, rand, rk.metrics.rmse(clean, run.mean)


def of_iid(rule: dict[str, Any], seed: int, noise: str) -> tuple[float, ...]:
    source = rk.datasets.iid_regimes(seed, noise=noise)
    y, centre, scale = in_units(source.y)
    run = rk.student_t_ihmm(**UNITS, seed=seed, **rule).run(y)
    found = rk.metrics.n_regimes(run.path) / 3
    rand = rk.metrics.adjusted_rand(run.path, source.regimes)
    return found, rand, rk.metrics.rmse(source.clean, centre + scale * run.mean)


def of_iid_with_noise(rule: dict[str, Any], seed: int) -> tuple[float, ...]:
    """Return the scores with t noise of variance 1.125, given as 0.25 as in the paper."""
    source = rk.datasets.iid_regimes(seed, noise="t")
    run = rk.br_ihmm(noise=0.25, prior_var=4.0, seed=seed, **rule).run(source.y)
    rand = rk.metrics.adjusted_rand(run.path, source.regimes)
    return rk.metrics.n_regimes(run.path) / 3, rand, rk.metrics.rmse(source.clean, run.mean)


def of_well_log(model: rk.Model, y: Array, changes: list[int]) -> tuple[float, ...]:
    """Return PPV, TPR and delay of all rows and of the later rows, and the number of regimes."""
    run, scores = model.run(y), []
    for first in (0, LEARNT):
        known, truth = run.regime[first:], [t - first for t in changes if t > first]
        match = rk.metrics.match_regimes(known, truth, RUN_THRESHOLD)
        scores += [match.ppv, match.tpr, rk.metrics.detection_delay(known, truth)]
    return *scores, rk.metrics.n_regimes(run.path)


def rows(seeds: range) -> Iterator[str]:
    """Yield the lines of both tables."""
    yield "| stream | rule | regimes / true | adjusted Rand | RMSE on clean values |"
    yield "|---|---|---|---|---|"
    asked: dict[str, Callable[..., tuple[float, ...]]]
    asked = {f"iid, {noise}": partial(of_iid, noise=noise) for noise in ("gauss", "t")}
    asked["iid, t, noise 0.25 given"] = of_iid_with_noise
    asked |= {f"{k} levels, s = {sd:g}": partial(of_levels, k=k, sd=sd) for k, sd in LEVELS}
    for name, ask in asked.items():
        for rule, settings in RULES.items():
            yield line([name, rule], [ask(settings, seed) for seed in seeds])
    yield ""
    yield "| rule on well-log | PPV | TPR | delay | late PPV | late TPR | late delay | regimes |"
    yield "|---|---|---|---|---|---|---|---|"
    source = stream("well_log")
    changes, first = list(source.data.changepoints), of("well_log", "br_ihmm", FIRST)
    first |= {"features": rk.features.intercept()}
    edition = [rk.br_ihmm(**(first | {"seed": seed})) for seed in seeds]
    yield line(
        ["first edition, tuned on the first 1700 rows"],
        [of_well_log(model, source.data.y, changes) for model in edition],
    )
    y = in_units(rk.datasets.load("well_log").y)[0]
    for rule, settings in RULES.items():
        made = [rk.br_ihmm(**KNOWN, batch=5, seed=seed, **settings) for seed in seeds]
        yield line([rule], [of_well_log(model, y, changes) for model in made])


def line(names: list[str], scores: list[tuple[float, ...]]) -> str:
    means = [f"{value:.3g}" for value in np.mean(scores, axis=0)]
    return f"| {' | '.join([*names, *means])} |"


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m benchmarks.labels")
    options.add_argument("--seeds", type=int, default=SEEDS)
    options.add_argument("--first", type=int, default=0, help="the first seed")
    given = options.parse_args()
    for text in rows(range(given.first, given.first + given.seeds)):
        print(text, flush=True)
