"""`python -m benchmarks.dated [--seeds 20] [--out FILE]`: gain from a given season.

Months of five years, with and without a season of twelve, by an `auto` with this season (from the
dates of a series) and by one without it. CRPS of the one-step forecasts after the first year: below
1 the one with the season is better.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

import regimekit as rk
from benchmarks.untuned import Array, Question, ask_all
from regimekit.ensemble.model import Auto

YEAR, MONTHS = 12, 60
Made = Callable[[Array, Array, Array], Array]  # from months, a season and noise

STREAMS: dict[str, Made] = {
    "noise": lambda t, season, noise: noise,
    "random walk": lambda t, season, noise: np.cumsum(noise),
    "line and noise": lambda t, season, noise: 0.3 * t + noise,
    "strong season": lambda t, season, noise: 50 + 3 * season + 0.5 * noise,
    "strong season on a walk": lambda t, season, noise: 2 * season + 0.4 * np.cumsum(noise),
    "growing season": lambda t, season, noise: (
        (20 + 0.3 * t) * (1 + 0.15 * season) * np.exp(0.03 * noise)
    ),
    "weak season": lambda t, season, noise: season + noise,
    "weak season on a walk": lambda t, season, noise: 0.7 * season + 0.5 * np.cumsum(noise),
}


def months(made: Made, seed: int) -> Array:
    """Return one stream."""
    rng, t = np.random.default_rng(seed), np.arange(MONTHS)
    noise, profile = rng.standard_normal(MONTHS), rng.standard_normal(YEAR)
    return made(t.astype(float), (profile - profile.mean())[t % YEAR], noise)


def follow(model: Auto, y: Array) -> float:
    """Return the CRPS after the first year."""
    forecasts = []
    for value in y:
        forecasts.append(model.predict())
        model.update(value)
    return float(rk.evaluate.crps(forecasts[YEAR:], y[YEAR:]))


def compare(made: Made, seed: int) -> dict[str, float]:
    y = months(made, seed)
    given, plain = rk.auto(seasons=YEAR, seed=seed), rk.auto(seed=seed)
    ratio = follow(given, y) / follow(plain, y)
    models = {"season given": given, "season not given": plain}
    found = {
        f"share of runs with the season in use, {name}": float(YEAR in model.engine.seasons)
        for name, model in models.items()
    }
    return {"CRPS, season given over not given": ratio} | found


QUESTIONS = {name: Question(name, partial(compare, made), ()) for name, made in STREAMS.items()}


if __name__ == "__main__":
    ask_all(QUESTIONS, "benchmarks.dated", "`auto` on months, season given or not", 20)
