"""`python -m benchmarks.real [--only NAME ..] [--out FILE]`: default `auto` on real series.

Forecasts are made one step ahead and nothing is tuned. All rows except the first are scored,
because before it not even the order of magnitude is known. Errors are in standard deviations of the
series, as in the paper: electricity over all rows that are used, well-log over its first 1700 rows.
The series are those of `regimekit.datasets`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import regimekit as rk
from benchmarks.untuned import Array, Goal, Question, ask_all

HOURS = 8000
LAGS = rk.features.intercept() + rk.features.lags(1, 2, 3, 24, 25, 168, 169)
TRAINING = 1700  # rows of well-log whose spread is the unit
OUTLIERS = 0.01  # of the loads, 10 sd off


def load(hours: int | None = HOURS) -> Array:
    return np.asarray(rk.data.load("electricity").y, float).ravel()[:hours]


def error(y: Array, mean: Array, keep: NDArray[np.bool_] | None = None) -> float:
    """Return the RMSE in standard deviations of the series, of the rows to keep."""
    scored = np.arange(len(y)) > 0
    if keep is not None:
        scored &= keep
    return rk.evaluate.rmse(y[scored], mean[scored]) / float(np.std(y))


def covered(run: rk.results.Run, y: Array) -> float:
    return rk.evaluate.coverage(y, run.lower, run.upper)


def lags_given(seed: int) -> dict[str, float]:
    y = load()
    run = rk.auto(features=LAGS, seed=seed).run(y)
    return {"RMSE": error(y, run.mean), "coverage of 90 %": covered(run, y)}


def lags_found(seed: int) -> dict[str, float]:
    y = load()
    run = rk.auto(seed=seed).run(y)
    return {"RMSE": error(y, run.mean), "coverage of 90 %": covered(run, y)}


def spoilt(seed: int) -> dict[str, float]:
    """Return scores with 1 % of the loads 10 sd off; errors on the other hours."""
    y, rng = load(), np.random.default_rng(9)
    hit = rng.random(y.size) < OUTLIERS
    seen = y + np.where(hit, 10 * np.std(y) * rng.choice([-1, 1], y.size), 0.0)
    own = error(y, rk.auto(features=LAGS, seed=seed).run(seen).mean, ~hit)
    clean = error(y, rk.auto(features=LAGS, seed=seed).run(y).mean, ~hit)
    centre, scale = float(np.median(y)), float(np.std(y))
    squares = rk.make("least_squares", features=LAGS).run((seen - centre) / scale).mean
    return {
        "RMSE on clean hours over least squares'": own / error(y, centre + scale * squares, ~hit),
        "RMSE on clean hours over the clean run's": own / clean,
    }


def weather(seed: int) -> dict[str, float]:
    """Return scores with the paper's four weather covariates, and the time of day and year."""
    loaded = rk.data.load("electricity")
    chosen = loaded.select(*loaded.columns[:4])
    y, f = load(None), rk.features
    features = f.intercept() + f.powers(2) + f.season(24) + f.season(4380)
    run = rk.auto(features=features, seed=seed).run(y, chosen.X)
    return {"RMSE": error(y, run.mean), "coverage of 90 %": covered(run, y)}


def well_log(seed: int) -> dict[str, float]:
    y = np.asarray(rk.data.load("well_log").y, float).ravel()
    run = rk.auto(seed=seed).run(y)
    scale = float(np.std(y[:TRAINING]))
    return {
        "MAE in sd": float(np.mean(np.abs(y - run.mean)[1:])) / scale,
        "MAE of the median in sd": float(np.mean(np.abs(y - run.median)[1:])) / scale,
        "coverage of 90 %": covered(run, y),
    }


def order_flow(seed: int) -> dict[str, float]:
    y = np.asarray(rk.data.load("ofi_es", bucket=60).y, float).ravel()
    run = rk.auto(seed=seed).run(y)
    return {"RMSE": error(y, run.mean), "coverage of 90 %": covered(run, y)}


def regression(seed: int) -> dict[str, float]:
    stream = rk.data.synthetic_regression(seed, signal_sd=10.0)
    run = rk.auto(seed=seed).run(stream.y, stream.X)
    clean = stream.y if stream.clean is None else stream.clean
    oracle = rk.evaluate.rmse(clean, rk.evaluate.oracle(stream, 1.0, 1.0).mean)
    model = rk.br_ihmm(features=rk.features.columns(), noise=1.0, prior_var=1.0, batch=2, seed=seed)
    beside = model.run(stream.y, stream.X)
    return {
        "RMSE over the oracle's": rk.evaluate.rmse(clean, run.mean) / oracle,
        "the same of br_ihmm with known noise and prior, B 2": rk.evaluate.rmse(clean, beside.mean)
        / oracle,
    }


QUESTIONS = {
    "well_log": Question("well-log", well_log, (Goal("MAE in sd", 0.235),), 1),
    "order_flow": Question("order flow, 60 ticks", order_flow, (Goal("RMSE", 0.87),), 1),
    "lags_given": Question(
        "electricity, 8000 hours, lags given", lags_given, (Goal("RMSE", 0.050),), 1
    ),
    "lags_found": Question(
        "electricity, 8000 hours, default settings", lags_found, (Goal("RMSE", 0.055),), 1
    ),
    "spoilt": Question(
        "the same, 1 % of loads 10 sd off, lags given",
        spoilt,
        (
            Goal("RMSE on clean hours over least squares'", 0.5),
            Goal("RMSE on clean hours over the clean run's", 1.1),
        ),
        1,
    ),
    "weather": Question(
        "electricity, all hours, the paper's features", weather, (Goal("RMSE", 0.22),), 1
    ),
    "regression": Question(
        "paper's regression m = 100, default settings",
        regression,
        (Goal("RMSE over the oracle's", 1.10),),
        4,
    ),
}


if __name__ == "__main__":
    ask_all(QUESTIONS, "benchmarks.real", "`auto` on real series, default settings", 1)
