"""`make soak`: a long stream with ever-new regimes, to see that time and memory stay flat.

    python -m benchmarks.soak --model br_ihmm --observations 1000000 --block 50000

Every segment has a level that was never seen before (the levels drift away for good), so a model
that forgets nothing would grow without end. One line per block: time per observation, resident
memory, size of the snapshot, regimes known. The last line compares the last block with the second
(the first compiles and fills up).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import psutil

import holdfast as hf
from holdfast.models.base import Model

_SEGMENT = 200  # observations of a regime before the next, never seen one
_STEP = 4.0  # from level to level, in standard deviations of the noise
_SD = 0.5


class Block(NamedTuple):
    """What a block of observations cost."""

    observations: int
    seconds: float
    memory: float
    snapshot: int
    regimes: int

    def line(self) -> str:
        each = 1e3 * self.seconds / self.observations
        return f"{each:9.4f} {self.memory:9.1f} {self.snapshot / 1e3:9.1f} {self.regimes:8d}"


def stream(length: int, block: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Blocks of a stream whose level takes a step for good every `_SEGMENT` observations."""
    rng = np.random.default_rng(seed)
    for start in range(0, length, block):
        times = np.arange(start, min(start + block, length))
        level = _STEP * _SD * (times // _SEGMENT)
        spikes = np.where(rng.random(times.size) < 0.01, 1e3, 0.0)
        yield level + spikes + _SD * rng.standard_normal(times.size)


def soaked(model: Model, y: np.ndarray, process: psutil.Process) -> Block:
    """Run a block, then weigh the process and the model."""
    begun = time.perf_counter()
    model.run(y)
    seconds = time.perf_counter() - begun
    memory = process.memory_info().rss / 1e6
    return Block(len(y), seconds, memory, len(model.to_bytes()), len(model.regimes()))


def main() -> None:
    arguments = _arguments()
    model = hf.make(arguments.model)
    process = psutil.Process()
    blocks: list[Block] = []
    print(f"{arguments.model}, a new regime every {_SEGMENT} observations, 1 % spikes")
    print("observations   ms each   rss (MB)  state (kB)  regimes")
    seen = 0
    for y in stream(arguments.observations, arguments.block):
        blocks.append(soaked(model, y, process))
        seen += len(y)
        print(f"{seen:12d} {blocks[-1].line()}", flush=True)
    if len(blocks) > 2:
        early, late = blocks[1], blocks[-1]
        slower = (late.seconds / late.observations) / (early.seconds / early.observations)
        print(f"time x {slower:.2f}, memory {late.memory - early.memory:+.1f} MB since block 2")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A long stream: time and memory per block.")
    parser.add_argument("--model", default="br_ihmm", choices=list(hf.models()))
    parser.add_argument("--observations", type=int, default=1_000_000)
    parser.add_argument("--block", type=int, default=50_000)
    return parser.parse_args()


if __name__ == "__main__":
    main()
