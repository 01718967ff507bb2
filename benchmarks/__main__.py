"""`make bench`: what it costs beside others, what the engine filters, how time and memory grow.

    python -m benchmarks                  everything, on the terminal
    python -m benchmarks peers            beside others, and what is felt
    python -m benchmarks peers --write    the same, kept in benchmarks/RESULTS.md
    python -m benchmarks inside           rows filtered, a long stream, every model

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
from benchmarks.spy import spied_rows
from regimekit import datasets as data
from regimekit.core.exceptions import RegimekitError
from regimekit.datasets import standardise

console = Console()
RESULTS = Path(__file__).with_name("RESULTS.md")


def rows_filtered() -> None:
    """Distinct rows filtered against regimes owned by all particles together."""
    table = Table("stream", "n", "filtered", "distinct", "owned", "prototype", box=None)
    for name, make, prototype in _streams():
        try:
            y, X, model = make()
        except RegimekitError as error:
            table.add_row(name, "", "", "", "", f"skipped: {error}")
            continue
        filtered, distinct, owned = spied_rows(model, y, X)
        table.add_row(
            name, str(len(y)), f"{filtered:.0f}", f"{distinct:.0f}", f"{owned:.0f}", prototype
        )
    console.print("rows per observation, mean over the stream, 100 particles")
    console.print(table)


def _streams():
    linear = {"features": rk.features.columns(), "noise": 1.0, "batch": 4, "threshold": 8**0.5}

    def synthetic():
        stream = data.synthetic_regression(0)
        return stream.y, stream.X, rk.br_ihmm(**linear)

    def electricity():
        stream = standardise(data.load("electricity"))
        weather = ("temperature", "pressure", "humidity", "wind_speed")
        columns = [c for c in stream.columns if c.startswith(weather)]
        stream = stream.select(*columns)
        features = rk.features.intercept() + rk.features.powers(2)
        features = features + rk.features.season(24) + rk.features.season(24 * 182)
        model = rk.br_ihmm(features=features, noise=0.1, prior_var=10.0, batch=3, threshold=4.0)
        return stream.y[:8000], stream.X[:8000], model

    def well_log():
        stream = standardise(data.load("well_log"), train=1700)
        return stream.y, None, rk.br_ihmm(noise=0.03, batch=3, threshold=4.0)

    def iid():
        stream = data.iid_regimes(0, noise="t")
        return stream.y, None, rk.br_ihmm(noise=0.25, prior_var=4.0)

    yield "synthetic, m = 100", synthetic, "15 of 275"
    yield "electricity, first 8000", electricity, "46 of 554"
    yield "well-log", well_log, "65 of 1449"
    yield "iid, t noise", iid, "84 of 284"


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
        rows_filtered()
        synthetic_time()
        long_stream()
        every_model()


if __name__ == "__main__":
    main()
