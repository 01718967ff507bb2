"""`python -m benchmarks.lags [--seeds 20] [--out FILE]`: single models with cleaned and raw lags.

An AR(1) with coefficient .9 gets a spike of 1000 standard deviations, which must not be a covariate
of the next observation, or an innovation of 20, which must. On streams whose large errors are
spikes, jumps or neither, it compares the CRPS with D13 to that with raw lags.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import regimekit as rk
from benchmarks.untuned import Array, Goal, Question, ask_all

ROWS, TRAINED = 1200, 200
LAGS = rk.features.intercept() + rk.features.lags(1)
RAW = {"D13": "paper"}
MODELS: dict[str, dict[str, Any]] = {
    "br_ihmm, known noise": {"model": "br_ihmm", "noise": 1.0, "prior_var": 4.0},
    "student_t_ihmm": {"model": "student_t_ihmm"},
}


def make(settings: dict[str, Any], **more: Any) -> Any:
    chosen = {name: value for name, value in settings.items() if name != "model"}
    return rk.make(settings["model"], features=LAGS, **chosen, **more)


def recursion(steps: Array, phi: float) -> Array:
    y = np.zeros(steps.size)
    for t in range(1, y.size):
        y[t] = phi * y[t - 1] + steps[t]
    return y


def shocks(settings: dict[str, Any], seed: int) -> dict[str, float]:
    """Return how far a spike moves the next forecast, and whether a jump is followed."""
    y = recursion(np.random.default_rng(seed).standard_normal(TRAINED + 10), 0.9)
    found = {}
    for name, rule in (("", {}), (", raw lags", RAW)):
        trained = make(settings, rule=rule)
        trained.run(y[:TRAINED])
        clean, spoilt = trained.copy(), trained.copy()
        clean.update(y[TRAINED])
        spoilt.update(y[TRAINED] + 1000.0)
        usual = clean.predict()
        moved = abs(spoilt.predict().mean - usual.mean) / usual.sd
        found[f"sd that a spike of 1000 moves the next mean by{name}"] = moved
        jumped = y[TRAINED:] + 20.0 * 0.9 ** np.arange(10)
        for value in jumped[:2]:
            trained.update(value)
        near = abs(trained.predict().median - 0.9 * jumped[1]) < 3.5
        found[f"a jump of 20 sd is followed within two observations{name}"] = float(near)
    return found


def streams(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(1000 + seed)
    steps, rare = rng.standard_normal(ROWS), rng.random(ROWS)
    spikes = np.where(rare < 0.03, 15.0 * rng.standard_normal(ROWS), 0.0)
    jumps = np.where(rare < 0.02, 20.0 * rng.standard_normal(ROWS), 0.0)
    return {
        "AR(1) .8": recursion(steps, 0.8),
        "AR(1) .8 with spikes": recursion(steps, 0.8) + spikes,
        "walk with jumps": recursion(steps + jumps, 1.0),
        "heavy walk": recursion(rng.standard_t(3, ROWS), 1.0),
    }


def beside_raw(stream: str, seed: int) -> dict[str, float]:
    y = streams(seed)[stream]
    found = {}
    for name, settings in MODELS.items():
        crps = []
        for rule in ({}, RAW):
            model = make(settings, rule=rule)
            forecasts = []
            for value in y:
                forecasts.append(model.predict())
                model.update(value)
            crps.append(rk.evaluate.crps(forecasts[100:], y[100:]))
        found[f"CRPS of {name} over that with raw lags"] = crps[0] / crps[1]
    return found


GOALS = (
    Goal("sd that a spike of 1000 moves the next mean by", 3.0),
    Goal("a jump of 20 sd is followed within two observations", 0.95, at_least=True),
)
QUESTIONS = {
    name: Question(f"AR(1) .9, {name}", partial(shocks, settings), GOALS)
    for name, settings in MODELS.items()
} | {stream: Question(stream, partial(beside_raw, stream), (), runs=5) for stream in streams(0)}


if __name__ == "__main__":
    ask_all(QUESTIONS, "benchmarks.lags", "Lags of single models, cleaned and raw", 20)
