"""Share of bursts that open a regime: the table of docs/robustness.md.

    python -m benchmarks.bursts [--runs 60]

A regime of variance 1 has lasted for 20 batches; then come `length` observations `height` standard
deviations away, at every position in the batch in turn, and two ordinary batches. A burst counts if
another regime than the present one is reported at any time.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

import regimekit as rk
from regimekit.core.random import RandomSource

HEIGHTS = (3.0, 4.0, 6.0, 20.0, 1e6)
RUNS = 60
SETTINGS: tuple[dict[str, Any], ...] = (
    {"prior_var": 4.0},
    {"prior_var": 100.0},
    {"prior_var": 4.0, "threshold": 2.0},
)


@cache
def _warm(batch: int, prior_var: float, threshold: float | None, seed: int) -> bytes:
    model = rk.br_ihmm(
        batch=batch,
        noise=1.0,
        prior_var=prior_var,
        threshold=threshold,
        seed=seed,
        outlier_rate=0.02,
    )
    for y in np.random.default_rng(seed).standard_normal(20 * batch):
        model.update(y)
    return model.to_bytes()


def opens(
    batch: int,
    length: int,
    height: float,
    k: int,
    *,
    prior_var: float,
    threshold: float | None = None,
) -> bool:
    """Return whether run k reports another regime than the present one."""
    model: Any = rk.from_bytes(_warm(batch, prior_var, threshold, k % 4))
    model.engine.random = RandomSource(np.random.default_rng([k, 1]))
    present = model.reporter.names[model.engine.clock.reported]
    phase = k % batch
    time = np.arange(phase + length + 2 * batch)
    y = np.random.default_rng([k, 2]).standard_normal(time.size)
    y += np.where((time >= phase) & (time < phase + length), height, 0.0)
    return any(model.update(value).regime != present for value in y)


def table(batches: tuple[int, ...] = (4, 6, 8), runs: int = RUNS) -> Iterator[str]:
    """Yield the numbers of bursts that open a regime, as lines of Markdown."""
    heads = [f"{height:g} sd" for height in HEIGHTS]
    yield _row(["B", "weight", "prior_var", "length", *heads])
    yield _row(["---"] * 9)
    for batch in batches:
        for chosen in SETTINGS:
            name = "imq, c = 2" if "threshold" in chosen else "contamination"
            for length in range(max(batch // 2 - 1, 1), batch // 2 + 2):
                counts = [
                    sum(opens(batch, length, height, k, **chosen) for k in range(runs))
                    for height in HEIGHTS
                ]
                yield _row([batch, name, f"{chosen['prior_var']:g}", length, *counts])


def _row(cells: list[Any]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


if __name__ == "__main__":
    options = argparse.ArgumentParser(prog="python -m benchmarks.bursts")
    options.add_argument("--runs", type=int, default=RUNS)
    for line in table(runs=options.parse_args().runs):
        print(line, flush=True)
