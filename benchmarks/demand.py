"""Regimes and anomalous days of seasonal demand: generated half hours, and hourly load.

    python -m benchmarks.demand [--seeds 2] [--threshold 0.9999]

The half hours stand in for New York taxi demand (10 320 rows): profiles of working days and
weekends, AR(1) errors with Student-t innovations (4 degrees of freedom) whose spread depends on the
hour, a random level of each day. Five days, at least a week apart or nearly so, are anomalous: an
hour counted twice, a holiday, half the demand, a night with much more, a storm. A day is flagged
if the anomaly score reaches the threshold within it or 12 hours around it.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

import regimekit as rk

DAYS = 215
HALF_HOURS = 48
MARGIN = 24  # rows before and after an anomalous day


def bump(hour: np.ndarray, middle: float, width: float) -> np.ndarray:
    return np.exp(-(((hour - middle) / width) ** 2))


def demand(seed: int) -> tuple[np.ndarray, list[int]]:
    """Return the demand and the first rows of the anomalous days."""
    rng, n = np.random.default_rng(seed), HALF_HOURS * DAYS
    hour, day = np.arange(n) % HALF_HOURS / 2, np.arange(n) // HALF_HOURS
    work = 9 + 8 * bump(hour, 8.5, 2) + 9 * bump(hour, 19, 3) - 7 * bump(hour, 4.5, 2)
    rest = 9 + 6 * bump(hour, 23.5, 3) + 7 * bump(hour, 0.5, 2.5) - 5 * bump(hour, 6, 2.5)
    y = np.where(day % 7 >= 5, rest + 5 * bump(hour, 17, 5), work + 2 * bump(hour, 13, 3))
    spread = 0.25 * (1 + 3 * bump(hour, 8, 2) + 2 * bump(hour, 22, 2.5))
    error = np.zeros(n)
    for t, shock in enumerate(rng.standard_t(4, n) / np.sqrt(2)):
        error[t] = 0.8 * error[t - 1] + 0.6 * shock
    y += spread * error + np.repeat(0.4 * rng.standard_normal(DAYS), HALF_HOURS)
    chosen = np.sort(rng.choice(np.arange(60, DAYS - 5, 6), 5, replace=False)) * HALF_HOURS
    for first, kind in zip(chosen, rng.permutation(5), strict=True):
        rows = slice(first, first + HALF_HOURS)
        u = hour[rows]
        if kind == 0:
            y[rows] += np.where((u >= 1) & (u < 2), 10, 0)
        elif kind == 3:
            y[rows] += 10 * bump(u, 1, 1.2)
        else:
            storm = np.clip(1 - (u - 6) / 8, 0.05, 1)
            y[rows] *= {1: np.where(u >= 6, 0.6, 1.0), 2: 0.5, 4: storm}[kind]
    return np.round(1000 * np.maximum(y, 0.1)), chosen.tolist()


def report(name: str, y: np.ndarray, days: list[int], threshold: float) -> str:
    """Run `auto` and return a row of the table."""
    run = rk.auto().run(y)
    above = run.anomaly_score >= threshold
    near = [above[max(t - MARGIN, 0) : t + HALF_HOURS + MARGIN].any() for t in days]
    regimes, changes = len(np.unique(run.path)), len(run.changepoints)
    return (
        f"{name:12}{len(y):8}{regimes:9}{changes:9}{len(run.known_changepoints):9}"
        f"{f'{sum(near)} / {len(near)}':>9}{int(above.sum()):9}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--threshold", type=float, default=0.9999)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    print(
        f"{'stream':12}{'rows':>8}{'regimes':>9}{'changes':>9}{'known':>9}{'days':>9}{'above':>9}"
    )
    for seed in range(options.seeds):
        print(report(f"demand {seed}", *demand(seed), options.threshold), flush=True)
    load = np.asarray(rk.data.load("electricity").y, float).ravel()[:8000]
    print(report("load", load, [], options.threshold))
    print("\nknown: changes of the regime as reported at the time; days: anomalous ones flagged")


if __name__ == "__main__":
    main()
