"""`make soak`: a long stream with ever-new regimes, as a test of constant time and memory.

    python -m benchmarks.soak --observations 1000000

Every segment has its own level, drawn within the reach of the model's prior and never used again,
so a model that removes nothing would grow without limit. One line per twentieth: processor time per
observation, resident memory, size of the snapshot, regimes known now and opened in it. The last
lines compare the last tenth with the first.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import psutil

import regimekit as rk
from regimekit.core.model import Model

_SEGMENT = 200  # observations of a regime before the next new one
_SD = 0.5  # of the noise
_REACH = 50.0  # standard deviation of the levels
_BLOCKS = 20
_KNOWN = {"noise": _SD**2, "prior_var": _REACH**2}  # for models with known noise


class Block(NamedTuple):
    """Costs of a block of observations, and the regimes known after it."""

    observations: int
    seconds: float
    memory: float
    snapshot: int
    regimes: int
    opened: int

    @property
    def each(self) -> float:
        """Milliseconds of processor time per observation."""
        return 1e3 * self.seconds / self.observations

    def line(self) -> str:
        known = f"{self.regimes:8d} {self.opened:8d}"
        return f"{self.each:9.4f} {self.memory:9.1f} {self.snapshot / 1e3:11.1f} {known}"


def stream(length: int, block: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Yield blocks of a stream with a new level every `_SEGMENT` observations, and 1 % spikes."""
    rng = np.random.default_rng(seed)
    levels = rng.normal(0.0, _REACH, length // _SEGMENT + 1)
    for start in range(0, length, block):
        times = np.arange(start, min(start + block, length))
        spikes = np.where(rng.random(times.size) < 0.01, 1e3, 0.0)
        yield levels[times // _SEGMENT] + spikes + _SD * rng.standard_normal(times.size)


def soaked(model: Model, y: np.ndarray, process: psutil.Process) -> Block:
    """Run a block, then measure the process and the model."""
    begun = time.process_time()
    run = model.run(y)
    seconds = time.process_time() - begun
    opened = sum(event.kind == rk.results.OPENED for event in run.events)
    memory = process.memory_info().rss / 1e6
    return Block(len(y), seconds, memory, len(model.to_bytes()), len(model.regimes()), opened)


def compared(blocks: list[Block]) -> str:
    """Return the last tenth relative to the first, which does not depend on the machine."""
    tenth = max(1, len(blocks) // 10)
    first, last = blocks[:tenth], blocks[-tenth:]
    slower = np.mean([b.each for b in last]) / np.mean([b.each for b in first])
    grown = last[-1].memory - first[-1].memory
    larger = last[-1].snapshot / first[-1].snapshot
    opened = sum(block.opened for block in blocks)
    return (
        f"time of the last tenth over the first: {slower:.2f}\n"
        f"memory after the last tenth less that after the first: {grown:+.1f} MB\n"
        f"snapshot after the last tenth over that after the first: {larger:.2f}\n"
        f"regimes opened: {opened}"
    )


def main() -> None:
    arguments = _arguments()
    settings = _KNOWN if arguments.model in ("br_ihmm", "wolf_ihmm", "ihmm") else {}
    model = rk.make(arguments.model, **settings)
    model.copy().run(np.zeros(50))  # compiles
    process = psutil.Process()
    blocks: list[Block] = []
    print(f"{arguments.model}, a new regime every {_SEGMENT} observations, 1 % spikes")
    print("observations   ms each   rss (MB)  state (kB)  regimes   opened")
    seen = 0
    for y in stream(arguments.observations, max(1, arguments.observations // _BLOCKS)):
        blocks.append(soaked(model, y, process))
        seen += len(y)
        print(f"{seen:12d} {blocks[-1].line()}", flush=True)
    print(compared(blocks))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A long stream: time and memory per block.")
    parser.add_argument("--model", default="br_ihmm", choices=list(rk.models()))
    parser.add_argument("--observations", type=int, default=1_000_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
