"""`make bench`: what it costs beside others, how time and memory grow.

    python -m benchmarks                  everything, on the terminal
    python -m benchmarks peers            beside others, and what is felt
    python -m benchmarks peers --write    the same, kept in benchmarks/RESULTS.md
    python -m benchmarks inside           a long stream, every model

Times are processor times on one core; read the ratios, which come from one run each.
"""

from __future__ import annotations

from benchmarks.timing import one_core

one_core()  # before anything that makes threads is imported

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import psutil
from rich.console import Console
from rich.markdown import Markdown
from rich.table import Table

import regimekit as rk
from benchmarks import results, same_law, speed
from regimekit import datasets as data
from regimekit.datasets import standardise

console = Console()
RESULTS = Path(__file__).with_name("RESULTS.md")


def long_stream(n: int = 200_000) -> None:
    """Time per observation and resident memory early and late in one stream."""
    rng = np.random.default_rng(0)
    model = rk.br_ihmm(noise=0.25, prior_var=4.0)
    process = psutil.Process()
    regime = (np.arange(n) // 500) % 3
    y = np.array([-2.0, 0.0, 2.0])[regime] + 0.5 * rng.standard_t(4, n)
    marks = {5_000: (0.0, 0.0), 200_000: (0.0, 0.0)}
    for t in range(n):
        begin = time.perf_counter() if t + 2_000 in marks else None
        if begin is not None:
            start = begin
        model.update(y[t])
        if t + 1 in marks:
            seconds = (time.perf_counter() - start) / 2_000
            marks[t + 1] = (seconds, process.memory_info().rss / 2**20)
    (early, early_mb), (late, late_mb) = marks[5_000], marks[200_000]
    console.print(
        f"\nupdate at observation 5 000: {1e3 * early:.3f} ms, at 200 000: {1e3 * late:.3f} ms, "
        f"ratio {late / early:.2f} (wanted <= 1.2); "
        f"resident {early_mb:.0f} MB, then {late_mb:.0f} MB"
    )


def synthetic_time() -> None:
    """The paper's synthetic stream: 2500 observations, 100 features, 100 particles."""
    stream = data.synthetic_regression(0)
    model = rk.br_ihmm(features=rk.features.columns(), noise=1.0, batch=4, threshold=8**0.5)
    begin = time.perf_counter()
    model.run(stream.y, stream.X)
    console.print(f"\nsynthetic stream, d = 100: {time.perf_counter() - begin:.2f} s")


def every_model(n: int = 600) -> None:
    """Time per observation of each model beside br_ihmm, on one standardised series."""
    stream = data.iid_regimes(0)
    y = standardise(stream.y[:n])
    table = Table("model", "ms per observation", "beside br_ihmm", box=None)
    base = 0.0
    for name in rk.models():
        rk.make(name).run(y[:20])  # compile outside the timed part
        begin = time.perf_counter()
        rk.make(name).run(y)
        seconds = (time.perf_counter() - begin) / n
        base = base or seconds
        table.add_row(name, f"{1e3 * seconds:.3f}", f"{seconds / base:.2f}")
    console.print(f"\nevery model, {n} observations of the iid stream")
    console.print(table)


def beside_others(write: bool, rounds: int) -> None:
    """The comparison with peers, printed and perhaps kept."""
    costs = speed.compare(rounds, console.print)
    things = speed.felt(rounds)
    try:
        law: Sequence[same_law.Agreement] | str = same_law.check()
    except ImportError as error:
        law = str(error)
    text = results.page(costs, things, law)
    console.print(Markdown(text))
    if write:
        RESULTS.write_text(text)
        console.print(f"written to {RESULTS}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("part", nargs="?", choices=("all", "peers", "inside"), default="all")
    parser.add_argument("--write", action="store_true", help="keep it in benchmarks/RESULTS.md")
    parser.add_argument("--rounds", type=int, default=5)
    told = parser.parse_args()
    if told.part != "inside":
        beside_others(told.write, told.rounds)
    if told.part != "peers":
        synthetic_time()
        long_stream()
        every_model()


if __name__ == "__main__":
    main()
