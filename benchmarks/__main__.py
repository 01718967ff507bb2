"""`make bench`: goals, costs beside other packages, growth of time and memory.

    python -m benchmarks                  everything, on the terminal
    python -m benchmarks goals            the table of goals without the other packages
    python -m benchmarks peers            goals, and costs beside other packages
    python -m benchmarks peers --write    the same, written to benchmarks/RESULTS.md
    python -m benchmarks inside           a long stream, every model

Times are processor times on one core. Ratios within a run are comparable, times of different runs
are not. `--build` also measures the compile time of the kernels.
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
from benchmarks import goals, results, same_law, speed
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
        begin = time.perf_counter()
        rk.make(name).run(y)
        seconds = (time.perf_counter() - begin) / n
        base = base or seconds
        table.add_row(name, f"{1e3 * seconds:.3f}", f"{seconds / base:.2f}")
    console.print(f"\nevery model, {n} observations of the iid stream")
    console.print(table)


def _progress(measured: object) -> None:
    console.print(str(measured), markup=False)


def table_of_goals(rounds: int, build: bool) -> list[goals.Measurement]:
    """Measure the rows of the table of goals, except `br_ihmm.run`."""
    found = goals.measure(rounds, _progress)
    return [*found, goals.build_time()] if build else found


def beside_others(write: bool, rounds: int, build: bool) -> None:
    """Print goals and the comparison with other packages.

    Args:
        write: whether to write them to benchmarks/RESULTS.md.
        rounds: repetitions of each measurement.
        build: whether to measure the compile time.
    """
    costs = speed.compare(rounds, _progress)
    rows = [*speed.run_goals(costs), *table_of_goals(rounds, build), *speed.other(rounds)]
    try:
        law: Sequence[same_law.Agreement] | str = same_law.check()
    except ImportError as error:
        law = str(error)
    text = results.page(rows, costs, law)
    console.print(Markdown(text))
    if write:
        RESULTS.write_text(text)
        console.print(f"written to {RESULTS}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parts = ("all", "goals", "peers", "inside")
    parser.add_argument("part", nargs="?", choices=parts, default="all")
    parser.add_argument("--write", action="store_true", help="write benchmarks/RESULTS.md")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", action="store_true", help="measure the build time as well")
    options = parser.parse_args()
    if options.part == "goals":
        table_of_goals(options.rounds, options.build)
    if options.part in ("all", "peers"):
        beside_others(options.write, options.rounds, options.build)
    if options.part in ("all", "inside"):
        synthetic_time()
        long_stream()
        every_model()


if __name__ == "__main__":
    main()
