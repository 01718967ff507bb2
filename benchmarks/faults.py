"""`python -m benchmarks.faults [--seeds 6] [--out FILE]`: what is left in `auto` after a fault.

For twelve observations a sensor lies: as far off as the row says, or a thousand times too large.
That is as long as two batches, so it may be taken for a regime, and remembered. What counts comes
after: errors of mean and median over those of the same model on the clean stream, from twelve
observations after the fault to the end, and how wide the intervals are beside the clean ones.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import regimekit as rk
from benchmarks.untuned import Array, Question, ask_all

ROWS, START, LENGTH = 700, 300, 12
LATE = slice(START + 2 * LENGTH, None)
FAULTS: dict[str, Callable[[Array], Array]] = {
    "50 off": lambda y: y + 50.0,
    "1000 off": lambda y: y + 1000.0,
    "times 1000": lambda y: 1000.0 * y,
    "1e300": lambda y: np.full_like(y, 1e300),
}


def levels(rng: np.random.Generator) -> Array:
    path = np.resize([-1.0, 1.0, 3.0], ROWS // 100)
    return np.repeat(path, 100) + 0.5 * rng.standard_normal(ROWS)


def autoregression(rng: np.random.Generator) -> Array:
    y = np.zeros(ROWS)
    for t in range(1, ROWS):
        y[t] = 0.7 * y[t - 1] + rng.standard_normal()
    return y


STREAMS = {"three levels, noise .5": levels, "AR(1) .7, noise 1": autoregression}


def after(make: Callable[[np.random.Generator], Array], fault: str, seed: int) -> dict[str, float]:
    y = make(np.random.default_rng(seed))
    seen = y.copy()
    during = slice(START, START + LENGTH)
    seen[during] = FAULTS[fault](y[during])
    hurt, well = (rk.auto(seed=seed).run(stream) for stream in (seen, y))
    error = {
        name: rk.evaluate.rmse(y[LATE], getattr(hurt, name)[LATE])
        / rk.evaluate.rmse(y[LATE], getattr(well, name)[LATE])
        for name in ("mean", "median")
    }
    width = [float(np.mean((run.upper - run.lower)[LATE])) for run in (hurt, well)]
    return {
        "RMSE of the mean over the clean run's": error["mean"],
        "RMSE of the median over the clean run's": error["median"],
        "width of 90 % over the clean run's": width[0] / width[1],
    }


QUESTIONS = {
    f"{stream}, {fault}": Question(f"{stream}; {fault}", partial(after, make, fault), ())
    for stream, make in STREAMS.items()
    for fault in FAULTS
}


if __name__ == "__main__":
    ask_all(QUESTIONS, "benchmarks.faults", "`auto` after a fault of its sensor", 6)
