"""`python -m benchmarks.stickiness [--seeds 5]`: a batch B against a finite bias kappa.

Both make regimes last. A batch decides once for B observations; kappa adds to the odds of staying
at every decision. Streams: the iid regimes with bursts, Gaussian and t noise, seeds 0 .. 4.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
from joblib import Parallel, delayed
from rich.console import Console
from rich.table import Table

import regimekit as rk

SEEDS = 5
SETTINGS = [(b, kappa) for b in (1, 3, 6) for kappa in (0.0, 10.0, 100.0)]


def cell(batch: int, kappa: float, noise: str, seed: int) -> tuple[float, ...]:
    """Return regimes, switches per true switch, adjusted Rand, and RMSE on clean values."""
    stream = rk.data.iid_regimes(seed, noise=noise)
    run = rk.br_ihmm(batch=batch, sticky=kappa, prior_var=4.0, seed=seed).run(stream.y)
    true = max(rk.evaluate.switches(stream.regimes), 1)
    return (
        rk.evaluate.n_regimes(run.path),
        rk.evaluate.switches(run.path) / true,
        rk.evaluate.adjusted_rand(run.path, stream.regimes),
        rk.evaluate.rmse(stream.clean, run.mean),
    )


def rows(seeds: int) -> Iterator[list[str]]:
    """Yield one row of means over the seeds per setting and noise."""
    cells = [(b, k, noise) for b, k in SETTINGS for noise in ("gauss", "t")]
    tasks = [(*one, s) for one in cells for s in range(seeds)]
    results = iter(Parallel(n_jobs=2)(delayed(cell)(*task) for task in tasks))
    for b, kappa in SETTINGS:
        for noise in ("gauss", "t"):
            mean = np.mean([next(results) for _ in range(seeds)], axis=0)
            yield [str(b), f"{kappa:g}", noise, *(f"{value:.2f}" for value in mean)]


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m benchmarks.stickiness")
    options.add_argument("--seeds", type=int, default=SEEDS)
    table = Table("B", "kappa", "noise", "regimes", "switches / true", "ARI", "RMSE", box=None)
    for row in rows(options.parse_args().seeds):
        table.add_row(*row)
    Console().print(table)
