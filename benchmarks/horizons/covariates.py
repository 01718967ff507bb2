"""Forecasts of 24 steps with covariates, over those without them.

    python -m benchmarks.horizons.covariates

Streams of 500 rows with three covariates, of which one is autocorrelated and one has no effect;
six origins from row 250 on. Covariates of the horizon are known.
"""

from __future__ import annotations

import time

import numpy as np

import regimekit as rk
from regimekit.metrics.scores import crps_scores

SEEDS = range(6200, 6204)
ROWS, HORIZON = 500, 24
ORIGINS = (250, 300, 350, 400, 440, 476)
_EFFECT = np.array([2.0, 1.0, 0.0])


def _errors(rng: np.random.Generator, phi: float) -> np.ndarray:
    e = np.zeros(ROWS)
    for t in range(1, ROWS):
        e[t] = phi * e[t - 1] + rng.normal()
    return e


def streams(seed: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the covariates, and the streams by name."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(ROWS, 3))
    x[:, 1] = _errors(rng, 0.95)
    effect = x @ _EFFECT
    day = 2.0 * np.tile(np.cumsum(rng.normal(size=24)), ROWS // 24 + 1)[:ROWS]
    inherited = np.zeros(ROWS)
    regime = np.zeros(ROWS, int)
    for t in range(1, ROWS):
        inherited[t] = 0.8 * inherited[t - 1] + effect[t] + rng.normal()
        regime[t] = regime[t - 1] if rng.random() < 0.98 else 1 - regime[t - 1]
    return x, {
        "errors of an AR(1)": effect + _errors(rng, 0.8),
        "effect inherited through lag 1": inherited,
        "a day of 24": effect + day + _errors(rng, 0.6),
        "trend": effect + 0.1 * np.arange(ROWS) + 2.0 * rng.normal(size=ROWS),
        "two effects in regimes": np.where(regime, effect, 5.0 - effect)
        + 0.7 * rng.normal(size=ROWS),
        "walk without effect": np.cumsum(rng.normal(size=ROWS)),
        "day without effect": day + _errors(rng, 0.6),
    }


def main() -> None:
    """Print the table."""
    names = list(streams(0)[1])
    score: dict[str, list[np.ndarray]] = {name: [] for name in names}
    inside: dict[str, list[np.ndarray]] = {name: [] for name in names}
    spent = []
    for seed in SEEDS:
        x, made = streams(seed)
        for name, y in made.items():
            both = (rk.auto(), rk.auto())
            known = 0
            for n in ORIGINS:
                both[0].run(y[known:n], X=x[known:n])
                both[1].run(y[known:n])
                known, truth = n, y[n : n + HORIZON]
                begun = time.process_time()
                ahead = list(both[0].forecast(HORIZON, X=x[n : n + HORIZON]))
                spent.append(time.process_time() - begun)
                pair = (ahead, list(both[1].forecast(HORIZON)))
                score[name].append(np.array([crps_scores(each, truth)[:, 0] for each in pair]))
                pit = np.array([f.cdf(value) for f, value in zip(ahead, truth, strict=True)])
                inside[name].append(np.abs(2 * pit - 1))
    print(
        "| stream | 1 .. 6 | 1 .. 24 | coverage of 80 % | coverage of 90 % |\n|---|---|---|---|---|"
    )
    for name in names:
        total = np.mean(score[name], axis=0)
        ratios = [total[0, :h].mean() / total[1, :h].mean() for h in (6, HORIZON)]
        covered = [np.mean(np.array(inside[name]) <= level) for level in (0.8, 0.9)]
        print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in (*ratios, *covered)) + " |")
    print(f"\nProcessor time of one forecast, median: {1e3 * np.median(spent):.1f} ms.")


if __name__ == "__main__":
    main()
