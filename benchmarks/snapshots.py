"""How many bytes a model's snapshot takes, and how long it takes to load.

    python -m benchmarks.snapshots                  print it
    python -m benchmarks.snapshots docs/spark.md    put it between the marks of that file

Each model is run over a stream of 3000 observations with regimes that return, and looked at at its
end. `before` is the same state in the format before (a zip of .npy files). Times are processor
time, the least of many repeats, in a process that has loaded such a model already.
"""

from __future__ import annotations

import argparse
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import holdfast as hf
from benchmarks.spark_plan import least
from holdfast.containers import compact

BEGIN, END = "<!-- snapshots: begin -->", "<!-- snapshots: end -->"
N, SEGMENT, REGIMES, WIDTH = 3000, 60, 10, 10
REPEATS = 60
_FIXED = (1980, 1, 1, 0, 0, 0)


class Sizes(NamedTuple):
    """A model's line: its words, bytes before and now, and seconds to load, begin and dump."""

    words: str
    before: int
    now: int
    load: float
    begin: float
    dump: float


def levels(rng: np.random.Generator) -> np.ndarray:
    """Four levels that return, noise 0.5."""
    level = rng.choice([0.0, 5.0, -4.0, 9.0], N // 100)
    return np.asarray(np.repeat(level, 100) + 0.5 * rng.standard_normal(N))


def regressions(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Ten regimes of ten coefficients that return in turn, noise 0.5."""
    x = rng.standard_normal((N, WIDTH - 1))
    coefficients = 3 * rng.standard_normal((REGIMES, WIDTH))
    regime = np.arange(N) // SEGMENT % REGIMES
    mean = (np.column_stack([np.ones(N), x]) * coefficients[regime]).sum(axis=1)
    return mean + 0.5 * rng.standard_normal(N), x


def models() -> Iterator[tuple[str, Any]]:
    """Words and a model that has learnt."""
    rng = np.random.default_rng(0)
    y, (target, x) = levels(rng), regressions(rng)
    told = {"noise": 0.25, "prior_var": 25.0}
    every = hf.features.intercept() + hf.features.columns()
    for words, model, given in (
        ("`br_ihmm`, level, noise told", hf.br_ihmm(**told), (y,)),
        ("`br_ihmm`, level, units learnt", hf.br_ihmm(), (y,)),
        ("`student_t_ihmm`, level, units learnt", hf.student_t_ihmm(), (y,)),
        ("`br_ihmm`, 10 coefficients, 10 regimes", hf.br_ihmm(**told, features=every), (target, x)),
        ("`bocd`, level", hf.bocd(**told), (y,)),
        ("`auto`, nothing told", hf.auto(), (y[:1000],)),
    ):
        model.run(*given)
        yield words, model


def zipped(data: bytes) -> int:
    """Bytes of the same state in the format before."""
    header, arrays = compact.read(data)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(zipfile.ZipInfo("header.json", _FIXED), json.dumps(header))
        for name in arrays.names():
            member = zipfile.ZipInfo(f"{name}.npy", _FIXED)
            member.compress_type = zipfile.ZIP_DEFLATED
            content = io.BytesIO()
            np.save(content, arrays[name])
            archive.writestr(member, content.getvalue())
    return len(target.getvalue())


def measure(words: str, model: Any) -> Sizes:
    """Bytes and times of one model."""
    data = model.to_bytes()
    x = np.zeros(WIDTH - 1) if "coefficients" in words else None
    first: Callable[[], Any] = lambda: hf.from_bytes(data).predict(x)  # noqa: E731
    first()
    load = least(lambda: hf.from_bytes(data), REPEATS)
    begin = least(first, REPEATS)
    return Sizes(words, zipped(data), len(data), load, begin, least(model.to_bytes, REPEATS // 4))


def table(lines: list[Sizes]) -> str:
    """All of it in Markdown."""
    head = ["| model | kB before | kB | ms to load | and to forecast | ms to dump |"]
    rows = [
        f"| {s.words} | {s.before / 1000:.1f} | {s.now / 1000:.1f} | {1e3 * s.load:.2f} | "
        f"{1e3 * s.begin:.2f} | {1e3 * s.dump:.2f} |"
        for s in lines
    ]
    return "\n".join([*head, "| --- | --- | --- | --- | --- | --- |", *rows])


def put(text: str, found: str) -> str:
    """`text` with the table between its marks."""
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
