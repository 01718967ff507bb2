"""Our settings found on the training parts: `python -m paper.tuning STREAM ...`.

Writes `tuned/<stream>-br_ihmm.json`, which `settings.ours` reads. Only the training rows of a real
series are seen; a generated stream is tuned on seeds that no experiment uses. The iid streams are
not tuned: their noise is stated. Judged are the RMSE on the uncontaminated values where they are
known, otherwise the CRPS, which an outlier cannot run away with and which asks for honest
intervals; well-log, whose table is of regimes, by `regime_loss`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from holdfast import evaluate
from holdfast.tuning import tune
from holdfast.tuning.trials import Objective
from paper.parts import RUN_THRESHOLD
from paper.settings import CHOSEN, TUNED, ours
from paper.streams import Stream, names, stream

TRAINING_SEEDS = (10_000, 10_001, 10_002)  # of generated streams, joined
PARTICLES = 50  # enough to rank settings; experiments run with more
MODEL_SEEDS = {"well_log": 3}  # regimes differ more from seed to seed than forecasts do
ROWS = {"electricity": 6_000}  # the last so many of the training part, for time


def _space(**ranges: tuple[float, float]) -> dict[str, Any]:
    """Ranges searched in logs."""
    kinds = {name: "int" if name == "batch" else "float" for name in ranges}
    return {name: (kinds[name], low, high, "log") for name, (low, high) in ranges.items()}


SPACE = _space(
    batch=(1, 16), threshold=(1.5, 8.0), noise=(0.005, 2.0), prior_var=(0.3, 30.0),
    sticky=(0.1, 300.0),
)  # fmt: skip
# Levels that differ by less than the noise: most of the wide space is of no use.
WELL_LOG_SPACE = _space(
    batch=(2, 12), threshold=(1.5, 5.0), noise=(0.01, 0.15), prior_var=(0.3, 4.0),
    sticky=(1.0, 300.0),
)  # fmt: skip


def regime_loss(truth: Sequence[int]) -> Objective:
    """What segmenting a run costs, for `tune`: 0 if every label is right and known in time.

    1 - F1 of the paper's matching, which punishes segments that were missed, plus 1 - covering,
    which punishes switching to and fro, plus the mean delay as a share of a segment's mean length.
    """

    def loss(result: evaluate.Prequential) -> float:
        run = result.run
        match = evaluate.match_regimes(run.path, truth, RUN_THRESHOLD)
        f1 = 2 * match.tp / (2 * match.tp + match.fp + match.fn)
        covered = evaluate.covering(truth, evaluate.changepoints(run.path), len(run))
        delay = evaluate.detection_delay(run.regime, truth)
        return (1 - f1) + (1 - covered) + delay * (len(truth) + 1) / len(run)

    loss.__qualname__ = regime_loss.__name__  # as which the result names its objective
    return loss


class Training(NamedTuple):
    """What a search may see; `clean` stands for y in the scores where it is known."""

    y: Any
    X: Any
    clean: Any


def _training_part(source: Stream) -> Training:
    if not source.generated:
        rows = slice(max(0, source.train - ROWS.get(source.name, source.train)), source.train)
        return Training(*(None if a is None else a[rows] for a in _series(source)))
    columns = zip(*(_series(stream(source.name, seed)) for seed in TRAINING_SEEDS), strict=True)
    return Training(*(None if c[0] is None else np.concatenate(c) for c in columns))


def _series(source: Stream) -> tuple[Any, Any, Any]:
    return source.data.y, source.data.X, source.data.clean


def _objective(source: Stream) -> str | Objective:
    if source.generated:
        return "rmse"
    if source.name != "well_log":
        return "crps"
    return regime_loss([t for t in source.data.changepoints if t < source.train])


def tune_stream(name: str, budget: int, jobs: int) -> None:
    """Search for `br_ihmm` settings on the training part of a stream and keep the best."""
    source = stream(name, degree=CHOSEN[name].degree)
    seen = _training_part(source)
    space = WELL_LOG_SPACE if name == "well_log" else SPACE
    if CHOSEN[name].rho is not None:  # its priors belong together
        space = {key: SPACE[key] for key in ("batch", "threshold", "sticky")}
    fixed = {key: value for key, value in ours(name, "br_ihmm").items() if key not in space}
    found = tune(
        "br_ihmm",
        seen.y,
        seen.X,
        space,
        _objective(source),
        budget,
        settings=fixed | {"features": source.features, "particles": PARTICLES},
        skip=100,
        clean=seen.clean,
        seeds=MODEL_SEEDS.get(name, 1),
        jobs=jobs,
        progress=True,
    )
    TUNED.mkdir(exist_ok=True)
    found.save(TUNED / f"{name}-br_ihmm.json")


def main() -> None:
    """Tune the streams named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("streams", nargs="+", choices=names())
    parser.add_argument("--budget", type=int, default=40)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    for name in given.streams:
        tune_stream(name, given.budget, given.jobs)


if __name__ == "__main__":
    main()
