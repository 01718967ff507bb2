"""The plan for a million keys on Spark, computed from the measured cost of one key.

    python -m benchmarks.spark_plan                  print it
    python -m benchmarks.spark_plan docs/spark.md    write it between the marks of that file

A visit of a key with k new rows reads its bytes, learns the rows and writes its bytes:

    visit = load + k row + dump           cores = keys visit / (60 k seconds / rows a minute) / use
    written a minute = keys bytes / k     (every key is visited once in k minutes)

Times are processor time, the minimum of several repetitions, because other load only adds to it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import regimekit as rk
from regimekit.integrations.spark import GroupJob

BEGIN, END = "<!-- plan: begin -->", "<!-- plan: end -->"
KEYS = 1_000_000
USE = 0.6  # of a core, the rest for Spark and for peaks
CORE_HOUR, GB_MONTH = 0.05, 0.02  # prices in any currency
KEPT = 2  # stored checkpoints of the state
ROWS = (1, 5, 15, 60)
WARM_UP, REPEATS = 600, 40


class Costs(NamedTuple):
    """One key: its least and most bytes, the seconds to load and dump them and to learn a row.

    `start` is the time of a new Python process up to its first model, in seconds.
    """

    model: str
    least_size: int
    size: int
    load: float
    dump: float
    row: dict[int, float]
    start: float


def least(action: Callable[[], Any], repeats: int = REPEATS) -> float:
    times = []
    for _ in range(repeats):
        begun = time.thread_time()
        action()
        times.append(time.thread_time() - begun)
    return min(times)


def snapshots(name: str) -> list[bytes]:
    """Return the bytes of a key along three streams: recurring levels, heavy tails, noise alone."""
    noise = np.random.default_rng(0).standard_normal(WARM_UP)
    streams = (
        rk.data.regime_stream(seed=0, n=WARM_UP).y,
        rk.data.iid_regimes(seed=0, noise="t", n=WARM_UP).y,
        noise,
    )
    found = []
    for y in streams:
        model = rk.make(name)
        for part in np.split(y, WARM_UP // 50):
            model.run(part)
            found.append(model.to_bytes())
    return found


def start_seconds(name: str, repeats: int = 3) -> float:
    """Return the processor time of a Spark worker before its first key, without that of Python."""

    def seconds(code: str) -> float:
        before = os.times()
        subprocess.run([sys.executable, "-c", code], check=True)
        after = os.times()
        return after.children_user + after.children_system - before[2] - before[3]

    code = (
        f"import regimekit as rk, regimekit.integrations.spark; rk.make({name!r}).run([0.0, 1.0])"
    )
    return min(seconds(code) for _ in range(repeats)) - min(seconds("") for _ in range(repeats))


def measure(name: str) -> Costs:
    """Return the costs of a key; the largest of several sizes is timed."""
    found = snapshots(name)
    packed = max(found, key=len)
    model, plan = rk.from_bytes(packed), GroupJob(("k",), "t", "v", (), name, {}, 0.9)
    load = least(lambda: rk.from_bytes(packed))
    row = {}
    for k in ROWS:
        y = np.random.default_rng(k).standard_normal(k)
        rows = pd.DataFrame({"k": "a", "t": np.arange(k), "v": y})
        both = least(lambda rows=rows: plan.run(rk.from_bytes(packed), rows))
        row[k] = max(both - load, 0.0) / k
    dump, sizes = least(model.to_bytes), [len(data) for data in found]
    return Costs(name, min(sizes), len(packed), load, dump, row, start_seconds(name))


def plan_table(costs: Costs, keys: int = KEYS) -> str:
    """Return the measured figures and the plan, in Markdown."""
    lines = [
        f"One key of `{costs.model}`, looked at every 50 rows along three streams of {WARM_UP}: "
        f"{costs.least_size / 1000:.1f} to {costs.size / 1000:.1f} kB of state. The largest, which "
        f"all that follows is computed from, takes {1e3 * costs.load:.2f} ms to load and "
        f"{1e3 * costs.dump:.2f} ms to dump. A worker process needs {costs.start:.1f} s once, for "
        f"imports and its first model. One core processes {1 / costs.row[ROWS[-1]]:,.0f} rows a "
        f"second if {ROWS[-1]} rows of a key arrive together, and "
        f"{1 / (costs.load + costs.row[1] + costs.dump):,.0f} if they arrive one by one. "
        f"For {keys:,} keys at one row a minute, micro-batches "
        "of so many minutes need:",
        "",
        "| minutes a batch | ms a row | ms a visit | cores | state written, GB an hour | "
        "cores, cost a month |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for k in ROWS:
        visit = costs.load + k * costs.row[k] + costs.dump
        cores = keys * visit / (60 * k) / USE
        written = keys * costs.size * 60 / k / 1e9
        price = cores * CORE_HOUR * 24 * 30
        lines.append(
            f"| {k} | {1e3 * costs.row[k]:.2f} | {1e3 * visit:.2f} | {cores:,.0f} | "
            f"{written:,.0f} | {price:,.0f} |"
        )
    state = keys * costs.size / 1e9
    lines += [
        "",
        f"The state of all keys is {state:,.0f} GB; {KEPT} kept checkpoints are "
        f"{KEPT * state:,.0f} GB, which cost {KEPT * state * GB_MONTH:,.1f} a month. Assumed: "
        f"cores {100 * USE:.0f} % in use, {CORE_HOUR} a core hour, {GB_MONTH} a GB and month. "
        "Spark's own work is not in these figures, nor are the bytes that its change log adds.",
    ]
    return "\n".join(lines)


def put(text: str, table: str) -> str:
    """Return `text` with `table` between its marks."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.split(END)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_plan")
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--model", default="student_t_ihmm", help="auto keeps several of these")
    options = parser.parse_args()
    table = plan_table(measure(options.model))
    if options.file is None:
        print(table)
    else:
        options.file.write_text(put(options.file.read_text(), table))


if __name__ == "__main__":
    main()
