"""`python -m benchmarks.covering [--seeds 5] [--out FILE]`: coverage of the intervals of `auto`.

The coverage of intervals of 50, 80, 90 and 95 % is measured on the streams of `benchmarks.auto` and
on real series, with default settings. The largest error of the four counts.
"""

from __future__ import annotations

from functools import partial

import numpy as np

import regimekit as rk
from benchmarks import auto
from benchmarks.real import load
from benchmarks.untuned import Array, Goal, Question, ask_all
from regimekit import datasets as data

ROWS, FIRST = 1200, 100
LARGEST = "largest error of the four, in points"
CODES = ("rare counts",)  # a series of a few distinct codes has no interval of 50 %
SERIES = {
    "well-log": lambda: data.load("well_log").y,
    "order flow, 60 ticks": lambda: data.load("ofi_es", bucket=60).y,
    "electricity, 8000 hours": load,
}


def errors(y: Array, seed: int) -> dict[str, float]:
    """Error of the coverage at each level, in percentage points."""
    _, covered, _ = auto.scored(rk.auto(seed=seed), y, FIRST)
    off = {
        f"error at {100 * level:.0f} %, in points": 100 * (found - level)
        for level, found in zip(auto.LEVELS, covered, strict=True)
    }
    return off | {LARGEST: max(map(abs, off.values()))}


def generated(name: str, seed: int) -> dict[str, float]:
    return errors(auto.generated(ROWS, 2000 + seed)[name][0], seed)


def real(name: str, seed: int) -> dict[str, float]:
    return errors(np.asarray(SERIES[name](), float).ravel(), seed)


QUESTIONS = {
    name: Question(name, partial(generated, name), () if name in CODES else (Goal(LARGEST, 2.0),))
    for name in auto.generated(ROWS, 0)
} | {name: Question(name, partial(real, name), (Goal(LARGEST, 2.0),), 1) for name in SERIES}


if __name__ == "__main__":
    ask_all(QUESTIONS, "benchmarks.covering", "Coverage of the intervals of `auto`", 5)
