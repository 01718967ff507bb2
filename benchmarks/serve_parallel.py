"""Threads or processes for many streams: how much of a model's computing could leave the lock.

    python -m benchmarks.serve_parallel

A kernel could be compiled to let go of the interpreter's lock; the Python around it cannot. The
share of computing inside kernels therefore bounds what a second thread can bring (Amdahl's law),
while a second process brings all of it. Seconds of computing are counted, not those on the clock,
so other work on the machine does not enter.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from numba.core.registry import CPUDispatcher

import regimekit as rk
from regimekit import datasets as data

MODELS: dict[str, dict[str, Any]] = {
    "br_ihmm": {"particles": 20, "noise": 0.16},
    "auto": {},
}
ROWS, WARM_UP = 400, 100
Y = data.regime_stream(seed=1, n=WARM_UP + ROWS).y


class Timed:
    """Kernels as Python calls them, with the computing inside them added up."""

    def __init__(self) -> None:
        self.inside = 0.0

    def wrap(self, kernel: Any) -> Any:
        def call(*arguments: Any) -> Any:
            before = time.thread_time()
            try:
                return kernel(*arguments)
            finally:
                self.inside += time.thread_time() - before

        return call

    def replace_all(self) -> None:
        """Kernels already compiled call one another directly and are not touched by this."""
        for name, module in list(sys.modules.items()):
            if name.startswith("regimekit"):
                for key, value in list(vars(module).items()):
                    if isinstance(value, CPUDispatcher):
                        setattr(module, key, self.wrap(value))


def learn(model: Any, first: int, last: int, piece: int) -> None:
    for start in range(first, last, piece):
        model.run(Y[start : min(start + piece, last)])


def measure(timed: Timed, name: str, piece: int) -> None:
    model = rk.make(name, **MODELS[name])
    learn(model, 0, WARM_UP, piece)
    inside, began = timed.inside, time.thread_time()
    learn(model, WARM_UP, WARM_UP + ROWS, piece)
    whole = time.thread_time() - began
    share = (timed.inside - inside) / whole
    print(
        f"{name:8s} pieces of {piece:2d}: {1e3 * whole / ROWS:.2f} ms of computing per row, "
        f"{100 * share:.0f} % of it in kernels; two threads at most "
        f"{1 / (1 - share / 2):.2f} times one, two processes 2"
    )


def main() -> None:
    print(f"{os.cpu_count()} cores")
    for name in MODELS:  # everything is compiled, and what Python calls is known
        learn(rk.make(name, **MODELS[name]), 0, WARM_UP, 10)
    timed = Timed()
    timed.replace_all()
    for name in MODELS:
        for piece in (1, 20):
            measure(timed, name, piece)


if __name__ == "__main__":
    main()
