"""Size of the snapshot of a model, and time to load it.

    python -m benchmarks.snapshots                  print it
    python -m benchmarks.snapshots docs/spark.md    write it between the marks of that file

Each model runs over a stream of 3000 observations with recurring regimes, and is measured at its
end. `dense` is the size of its rows if each of its N particles stored K matrices of its own: N K (m
+ m^2) doubles, with the K regimes that a particle stores on average. Times are processor time, the
minimum of many repetitions, in a process that has loaded such a model before.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import regimekit as rk
from benchmarks.spark_plan import least
from regimekit.serialization import container

BEGIN, END = "<!-- snapshots: begin -->", "<!-- snapshots: end -->"
N, SEGMENT, REGIMES, WIDTH = 3000, 60, 10, 10
REPEATS = 60


class Sizes(NamedTuple):
    """Line of a model: words, regimes, bytes dense and packed, seconds to load, begin, dump."""

    words: str
    regimes: float
    dense: float
    packed: int
    load: float
    begin: float
    dump: float


def levels(rng: np.random.Generator) -> np.ndarray:
    """Return four levels that return, noise 0.5."""
    level = rng.choice([0.0, 5.0, -4.0, 9.0], N // 100)
    return np.asarray(np.repeat(level, 100) + 0.5 * rng.standard_normal(N))


def regressions(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return ten recurring regimes of ten coefficients, noise 0.5."""
    x = rng.standard_normal((N, WIDTH - 1))
    coefficients = 3 * rng.standard_normal((REGIMES, WIDTH))
    regime = np.arange(N) // SEGMENT % REGIMES
    mean = (np.column_stack([np.ones(N), x]) * coefficients[regime]).sum(axis=1)
    return mean + 0.5 * rng.standard_normal(N), x


def models() -> Iterator[tuple[str, Any]]:
    """Yield a description and a fitted model."""
    rng = np.random.default_rng(0)
    y, (target, x) = levels(rng), regressions(rng)
    variances = {"noise": 0.25, "prior_var": 25.0}
    every = rk.features.intercept() + rk.features.columns()
    for words, model, given in (
        ("`br_ihmm`, level, known noise", rk.br_ihmm(**variances), (y,)),
        ("`br_ihmm`, level, units estimated", rk.br_ihmm(), (y,)),
        ("`student_t_ihmm`, level, units learnt", rk.student_t_ihmm(), (y,)),
        (
            "`br_ihmm`, 10 coefficients, 10 regimes",
            rk.br_ihmm(**variances, features=every),
            (target, x),
        ),
        ("`bocd`, level", rk.bocd(**variances), (y,)),
        ("`auto`, default settings", rk.auto(), (y[:1000],)),
    ):
        model.run(*given)
        yield words, model


def dense(data: bytes) -> tuple[float, float]:
    """Return the regimes of a particle, and the bytes of matrices that are not shared."""
    _, arrays = container.read(data)
    if "particles.n_regimes" not in arrays:
        return float("nan"), float("nan")
    known, (_, _, m) = arrays["particles.n_regimes"], arrays["row.root"].shape
    return float(known.mean()), 8.0 * known.sum() * (m + m * m)


def measure(words: str, model: Any) -> Sizes:
    """Return bytes and times of one model."""
    data = model.to_bytes()
    x = np.zeros(WIDTH - 1) if "coefficients" in words else None
    first: Callable[[], Any] = lambda: rk.from_bytes(data).predict(x)  # noqa: E731
    first()
    load = least(lambda: rk.from_bytes(data), REPEATS)
    begin = least(first, REPEATS)
    dump = least(model.to_bytes, REPEATS // 4)
    return Sizes(words, *dense(data), len(data), load, begin, dump)


def table(lines: list[Sizes]) -> str:
    """Return all lines as a Markdown table."""
    head = ["| model | regimes | kB dense | kB | ms to load | and to forecast | ms to dump |"]
    rows = [
        f"| {s.words} | {s.regimes:.1f} | {s.dense / 1000:.1f} | {s.packed / 1000:.1f} | "
        f"{1e3 * s.load:.2f} | {1e3 * s.begin:.2f} | {1e3 * s.dump:.2f} |".replace("nan", "")
        for s in lines
    ]
    return "\n".join([*head, "| --- | --- | --- | --- | --- | --- | --- |", *rows])


def put(text: str, found: str) -> str:
    """Return `text` with the table between its marks."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n{found}\n{END}{rest.split(END)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.snapshots")
    parser.add_argument("file", nargs="?", type=Path)
    options = parser.parse_args()
    found = table([measure(words, model) for words, model in models()])
    if options.file is None:
        print(found)
    else:
        options.file.write_text(put(options.file.read_text(), found))


if __name__ == "__main__":
    main()
