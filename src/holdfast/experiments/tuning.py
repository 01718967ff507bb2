"""Our settings found on the training parts: `python -m holdfast.experiments.tuning STREAM ...`.

Writes `tuned/<stream>-br_ihmm.json`, which `settings.ours` reads. Only the training rows of a real
series are seen; a generated stream is tuned on a seed that no experiment uses. The iid streams are
not tuned: their noise is stated. Forecasts are judged by the CRPS, which an outlier cannot run away
with and which asks for honest intervals; well-log, whose table is of regimes, by `regime_loss`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from holdfast import evaluate
from holdfast.experiments.settings import CHOSEN, TUNED, ours
from holdfast.experiments.streams import Stream, names, stream
from holdfast.tune import tune
from holdfast.tune.trials import Objective

TRAINING_SEED = 10_000
PARTICLES = 50  # enough to rank settings; experiments run with more
MODEL_SEEDS = {"well_log": 2}  # regimes differ more from seed to seed than forecasts do
ROWS = {"electricity": 6_000}  # the last so many of the training part, for time

SPACE: dict[str, Any] = {
    "batch": ("int", 1, 16, "log"),
    "threshold": ("float", 1.5, 8.0, "log"),
    "noise": ("float", 0.005, 2.0, "log"),
    "prior_var": ("float", 0.3, 30.0, "log"),
    "sticky": ("float", 0.1, 300.0, "log"),
}


def regime_loss(truth: Sequence[int]) -> Objective:
    """What segmenting a run costs, for `tune`: 0 if every segment is right and known in time.

    1 - covering of the true segments, which unlike the paper's matching has no threshold and
    punishes switching to and fro, plus the mean delay as a share of a segment's mean length.
    """

    def loss(result: evaluate.Prequential) -> float:
        run = result.run
        covered = evaluate.covering(truth, evaluate.changepoints(run.path), len(run))
        delay = evaluate.detection_delay(run.regime, truth)
        return 1 - covered + delay * (len(truth) + 1) / len(run)

    return loss


def _objective(source: Stream, rows: slice) -> str | Objective:
    if source.name != "well_log":
        return "crps"
    return regime_loss([t - rows.start for t in source.data.changepoints if t < rows.stop])


def tune_stream(name: str, budget: int, jobs: int) -> None:
    """Search for `br_ihmm` settings on the training part of a stream and keep the best."""
    source = stream(name, TRAINING_SEED, CHOSEN[name].degree)
    stop = len(source.data) if source.generated else source.train
    rows = slice(max(0, stop - ROWS.get(name, stop)), stop)
    space = dict(SPACE)
    if CHOSEN[name].rho is not None:  # its priors belong together
        space = {key: SPACE[key] for key in ("batch", "threshold", "sticky")}
    fixed = {key: value for key, value in ours(name, "br_ihmm").items() if key not in space}
    X = source.data.X
    found = tune(
        "br_ihmm",
        source.data.y[rows],
        None if X is None else X[rows],
        space,
        _objective(source, rows),
        budget,
        settings=fixed | {"features": source.features, "particles": PARTICLES},
        skip=min(100, (rows.stop - rows.start) // 4),
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
