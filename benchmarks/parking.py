"""What it saves that members rest, and what it costs: `python -m benchmarks.parking`.

Two seasonal streams of 8000 rows (seed 0), told nothing, once with all members awake all the time
and once as they come. Time is processor time in one run; a look at the ratio is all it is good for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from unittest import mock

import numpy as np

import regimekit as rk
from regimekit.ensemble import sleeping_experts as parking

ROWS = 8000


def streams() -> Iterator[tuple[str, np.ndarray]]:
    """A season of 24 with noise; the same on a random walk."""
    rng = np.random.default_rng(0)
    season = 5 * np.sin(2 * np.pi * np.arange(ROWS) / 24)
    yield "season and noise", season + rng.standard_normal(ROWS)
    walk = np.cumsum(0.2 * rng.standard_normal(ROWS))
    yield "season on a walk", season + walk + 0.5 * rng.standard_normal(ROWS)


def measure(y: np.ndarray, heard: float) -> tuple[float, float]:
    """Seconds, and the mean absolute error one step ahead, with this weight to stay awake."""
    with mock.patch.object(parking, "HEARD", heard):
        model = rk.auto()
        model.run(y[:50])  # compiled, and the members are there
        begin = time.process_time()
        run = model.run(y[50:])
        return time.process_time() - begin, float(np.abs(run.mean - y[50:]).mean())


def main() -> None:
    print("| stream | seconds awake | as they come | error awake | as they come |")
    print("|---|---|---|---|---|")
    for name, y in streams():
        (slow, wide), (quick, narrow) = measure(y, 0.0), measure(y, parking.HEARD)
        print(f"| {name} | {slow:.1f} | {quick:.1f} | {wide:.4f} | {narrow:.4f} |", flush=True)


if __name__ == "__main__":
    main()
