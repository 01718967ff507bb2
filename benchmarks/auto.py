"""`auto` with default settings beside simple forecasters, on generated and real series.

    python -m benchmarks.auto [--rows 700] [--seed 77] [--real] [--only "walk with jumps,arma"]

For each stream: CRPS over that of the best of five simple forecasters chosen in hindsight, the same
over the best member in hindsight, coverage of 50, 80, 90 and 95 % intervals, regimes and changes
reported. Of real series the rows after the first 40 % are scored; settings were chosen on the
others.
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

import regimekit as rk
from regimekit import datasets as data
from regimekit import metrics as evaluate

LEVELS = (0.5, 0.8, 0.9, 0.95)
SIMPLE: dict[str, dict[str, Any]] = {
    "last_value": {},
    "running_mean": {},
    "least_squares": {"features": rk.features.intercept() + rk.features.lags(1, 2, 3)},
}
Stream = tuple[np.ndarray, int]  # values, first row that is scored


def arma(e: np.ndarray, phi: tuple[float, ...], theta: float = 0.0) -> np.ndarray:
    y = np.zeros(e.size)
    for t in range(len(phi), e.size):
        past = sum(p * y[t - 1 - k] for k, p in enumerate(phi))
        y[t] = past + e[t] + theta * e[t - 1]
    return y


def path(rng: np.random.Generator, n: int, k: int, stay: float) -> np.ndarray:
    s = np.zeros(n, int)
    for t in range(1, n):
        s[t] = s[t - 1] if rng.random() < stay else (s[t - 1] + 1 + rng.integers(k - 1)) % k
    return s


def generated(n: int, seed: int) -> dict[str, Stream]:
    rng = np.random.default_rng(seed)
    t, e = np.arange(n), rng.standard_normal(n)
    drift = np.cumsum(0.15 * rng.standard_normal(n))
    spikes = np.where(rng.random(n) < 0.03, rng.choice([-1, 1], n) * rng.uniform(8, 40, n), 0.0)
    jumps = np.where(rng.random(n) < 0.02, rng.normal(0, 15, n), 0.0)
    week = np.array([0, 1, 2, 3, 2, 8, 9.0])[t % 7]
    levels = 10.0 * path(rng, n, 3, 0.993)
    streams = {
        "local level": 50 + drift + e,
        "arma": 1e4 + 300 * arma(e, (0.7,), -0.4),
        "cycle": arma(e, (1.5, -0.8)),
        "walk with jumps": np.cumsum(0.3 * e + jumps),
        "heavy walk": np.cumsum(rng.standard_t(2.2, n)),
        "season 12, growing": 100 * np.exp(0.002 * t + 0.3 * np.sin(np.pi * t / 6) + 0.05 * e),
        "week on a walk": 5 * week + np.cumsum(0.3 * rng.standard_normal(n)) + 2 * e,
        "rare counts": rng.poisson(0.4, n).astype(float),
        "local level and spikes": 2 * drift + e + spikes,
        "ar, shifts and spikes": arma(rng.standard_normal(n), (0.6,)) + levels + spikes,
        "lognormal": np.exp(e),
        "slow wave": 20 * np.sin(t / 60) + e,
    }
    return {name: (y, min(100, n // 5)) for name, y in streams.items()}


def real(rows: int) -> dict[str, Stream]:
    streams = {}
    for name in data.names():
        y = np.asarray(data.load(name).y, float)
        if y.ndim == 1 or y.shape[1] == 1:
            first = int(0.4 * len(y))
            begin = max(0, first - 300)
            streams[name] = (y.ravel()[begin : begin + 300 + rows], first - begin)
    return streams


def scored(model: Any, y: np.ndarray, first: int) -> tuple[float, list[float], np.ndarray]:
    """Return CRPS, coverage at each level, and regimes."""
    forecasts, regimes = [], []
    for value in y:
        forecasts.append(model.predict())
        regimes.append(model.update(value).regime)
    late = [t for t in range(first, len(y)) if not np.isnan(y[t])]
    crps = evaluate.crps([forecasts[t] for t in late], y[late])
    away = np.array([abs(2 * forecasts[t].cdf(y[t]) - 1) for t in late])
    return crps, [float(np.mean(away <= level)) for level in LEVELS], np.array(regimes)


def best_simple(y: np.ndarray, first: int) -> tuple[float, str]:
    """Return CRPS and name of the best simple forecaster in hindsight; the scale is given."""
    sd = float(np.nanstd(np.diff(y))) or 1.0
    offset = float(np.nanmedian(y))
    found = []
    for name, settings in SIMPLE.items():
        model = rk.make(name, **settings)
        found.append((sd * scored(model, (y - offset) / sd, first)[0], name))
    return min(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=700)
    parser.add_argument("--seed", type=int, default=77)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--only", default="")
    a = parser.parse_args()
    streams = real(a.rows) if a.real else generated(a.rows, a.seed)
    print("stream | ratio | best simple | over best member | cover 50 80 90 95 | regimes, changes")
    print("---|---|---|---|---|---")
    ratios = []
    for name, (y, first) in streams.items():
        if a.only and name not in a.only.split(","):
            continue
        best, peer = best_simple(y, first)
        model = rk.auto(seed=1)
        crps, cover, regimes = scored(model, y, first)
        ratios.append(crps / best)
        worst = next(iter(model.regret.items()))
        covered = " ".join(f"{c:.2f}" for c in cover)
        changes = int((np.diff(regimes[first:]) != 0).sum())
        found = f"{len(set(regimes.tolist()))}, {changes}"
        cells = (name, f"{ratios[-1]:.2f}", peer, f"{worst[1]:.3f} ({worst[0]})", covered, found)
        print(" | ".join(cells), flush=True)
    print(f"geometric mean | {math.exp(np.mean(np.log(ratios))):.3f} | | | |")


if __name__ == "__main__":
    main()
