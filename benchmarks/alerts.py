"""Alert fatigue on the Numenta Anomaly Benchmark: number of alerts, and of true ones.

    python -m benchmarks.alerts [--cache FOLDER] [--model auto] [--generated] [--only NAME]

Each series runs once through the model with default settings; its anomaly scores and regimes are
stored in the cache. The default rules of `regimekit.alerts` are applied row by row, as in the
service. The goal: at most one alert per true window plus 2 per 10 000 rows. docs/alerts.md lists
the series on which the default settings were chosen. With `--generated` the series are 48 generated
ones of 5000 rows: backgrounds of six kinds with two events each, and two kinds with frequent bursts
or switches without any event that requires an alert.

The score of the benchmark itself (standard profile, windows found with one threshold for all
series) is computed from the anomaly score of each row and printed with the published figures.

The folder REGIMEKIT_DATA/nab has the series and `combined_windows.json`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import regimekit as rk
from benchmarks.public import nab
from regimekit.alerts import AlertEngine, Rule, Sample
from regimekit.results import CHANGES

PUBLISHED = "ARTime 74.9, HTM 70.5, random cut forest 51.7, windowed Gaussian 39.6, random 11.0"
# Tail probabilities of 1e-1 to 1e-13, and a threshold that no score reaches.
THRESHOLDS = (*(1 - 10.0 ** (-k / 4) for k in range(4, 53)), 1.1)
ALLOWED = 2 / 10_000  # alerts per row besides one per window
RULES = {
    "anomaly": [Rule("anomaly", "anomaly")],
    "regime change": [Rule("change", "regime change")],
    "both": [Rule("anomaly", "anomaly"), Rule("change", "regime change")],
    # For comparison: alerts need the same evidence, however many there were before.
    "both, no budget": [
        Rule("anomaly", "anomaly", budget=0),
        Rule("change", "regime change", budget=0),
    ],
    # For comparison: an alert for every anomalous row after ten calm ones.
    "each anomalous row": [Rule("row", "anomaly", count=1, window=1, quiet=10, budget=0)],
}
Window = tuple[int, int]
BACKGROUNDS = ("white", "ar", "season", "heavy tails", "regimes", "drift")
ROWS = 5000


def read_series(file: Path) -> tuple[np.ndarray, list[str]]:
    """Return the values and the times of a series."""
    with gzip.open(file, "rt", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return np.array([float(row["value"]) for row in rows]), [row["timestamp"] for row in rows]


def true_windows(times: list[str], given: list[list[str]]) -> list[Window]:
    """Return first and last row of each labelled window."""
    index = np.array([time[:19] for time in times])
    return [
        (int(np.searchsorted(index, begin[:19])), int(np.searchsorted(index, end[:19])))
        for begin, end in given
    ]


def background(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Return a series without events; its noise has a standard deviation of about 1."""
    noise, t = rng.standard_normal(ROWS), 0
    y = np.zeros(ROWS)
    if kind == "ar":
        for t in range(1, ROWS):
            y[t] = 0.8 * y[t - 1] + 0.6 * noise[t]
        return y
    if kind == "heavy tails":
        return rng.standard_t(3, ROWS)
    if kind == "season":
        return 3 * np.sin(2 * np.pi * np.arange(ROWS) / 48) + 0.7 * noise
    if kind == "drift":
        return noise + 0.03 * np.cumsum(rng.standard_normal(ROWS))
    while t < ROWS and kind in ("regimes", "switching"):
        length = int(rng.integers(150, 400) if kind == "regimes" else rng.exponential(250) + 60)
        y[t : t + length] = rng.choice((0, 4, -4)) if kind == "regimes" else rng.normal(0, 6)
        t += length
    while kind == "bursts" and (t := t + int(rng.exponential(400))) < ROWS - 30:
        rows = t + rng.choice(20, int(rng.integers(3, 7)), replace=False)
        y[rows] += rng.uniform(6, 14) * rng.choice((-1, 1))
    return y + noise


def add_events(y: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, list[Window]]:
    """Add a shift, a burst of noise, a stuck value or spikes at two places; return the windows."""
    y, windows = y.copy(), []
    for start in (int(rng.integers(1500, 2200)), int(rng.integers(3000, 4200))):
        length, what = int(rng.integers(60, 200)), int(rng.integers(4))
        rows = slice(start, start + length)
        if what == 0:
            y[rows] += 8 * rng.choice((-1, 1))
        elif what == 1:
            y[rows] += 4 * rng.standard_normal(length)
        elif what == 2:
            y[rows] = y[start]
        else:
            length = 20
            y[start + rng.choice(20, 6, replace=False)] += 12 * rng.choice((-1, 1), 6)
        windows.append((start, start + length + 100))
    return y, windows


def generated() -> Iterator[tuple[str, np.ndarray, list[Window]]]:
    """Yield name, values and true windows of the generated series."""
    for seed in range(36):
        rng, kind = np.random.default_rng([seed, 29]), BACKGROUNDS[seed % 6]
        yield f"{kind}-{seed}", *add_events(background(kind, rng), rng)
    for seed in range(12):
        kind = ("bursts", "switching")[seed % 2]
        yield f"{kind}-{seed}", background(kind, np.random.default_rng([seed, 30])), []


def numenta() -> Iterator[tuple[str, np.ndarray, list[Window]]]:
    """Yield name, values and true windows of the series of the benchmark."""
    folder = Path(os.environ["REGIMEKIT_DATA"]) / "nab"
    labels = json.loads((folder / "combined_windows.json").read_text())
    for name in sorted(labels):
        if (file := folder / f"{name}.gz").exists():
            y, times = read_series(file)
            yield name, y, true_windows(times, labels[name])


def scores(name: str, y: np.ndarray, model: str, cache: Path) -> dict[str, np.ndarray]:
    """Return the outputs of the model, from the cache if they are stored."""
    file = cache / f"{model}-{name.replace('/', '-')}.npz"
    if not file.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = rk.make(model).run(y)
        began = np.full(len(y), -1)
        for event in run.events:
            if event.kind in CHANGES:
                began[event.time] = event.since
        np.savez(file, score=run.anomaly_score, regime=run.regime, began=began)
    with np.load(file) as stored:
        return dict(stored)


def opened(rules: list[Rule], y: np.ndarray, found: dict[str, np.ndarray]) -> list[int]:
    """Return the rows at which alerts open."""
    engine = AlertEngine("nab", rules)
    columns = (y, found["score"], found["regime"], found["began"])
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        alert.opened
        for seq, (value, score, regime, began) in enumerate(rows)
        for alert in engine.update(
            Sample(seq, None, value, score, regime, since=None if began < 0 else began)
        )
        if alert.is_open
    ]


def nab_scores(found: list[tuple[np.ndarray, list[Window]]]) -> tuple[float, float, int]:
    """Return the best score over the thresholds, its threshold, and the number of windows.

    Args:
        found: anomaly scores and true windows of each series.
    """
    raw, n_windows = np.zeros(len(THRESHOLDS)), 0
    for score, windows in found:
        rows = [np.flatnonzero(score >= q).tolist() for q in THRESHOLDS]
        raw += [nab.raw_score(fired, windows, len(score)) for fired in rows]
        n_windows += sum(last >= nab.probation(len(score)) for _, last in windows)
    best = int(np.argmax(raw))
    return nab.normalised(float(raw[best]), n_windows), THRESHOLDS[best], n_windows


def print_nab(found: list[tuple[np.ndarray, list[Window]]], model: str) -> None:
    """Print the scores of the benchmark."""
    always = [(np.full(len(score), 1.0), windows) for score, windows in found]
    never = [(np.full(len(score), -1.0), windows) for score, windows in found]
    print("\n| anomaly score | series | windows | NAB, standard profile | threshold |")
    print("|---|---|---|---|---|")
    for name, own in ((model, found), ("never fires", never)):
        score, threshold, n = nab_scores(own)
        print(f"| {name} | {len(own)} | {n} | {score:.1f} | {threshold:.8g} |")
    raw = sum(nab.raw_score(range(len(score)), windows, len(score)) for score, windows in always)
    print(f"| always fires | {len(found)} | {n} | {nab.normalised(raw, n):.1f} | 0 |")
    print(f"\nPublished, all 58 series: {PUBLISHED}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path("build/alerts"))
    parser.add_argument("--model", default="auto")
    parser.add_argument("--only", default="", help="part of the name of the series")
    parser.add_argument("--generated", action="store_true", help="generated series instead")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    table: dict[str, list[Any]] = {name: [] for name in RULES}
    scored: list[tuple[np.ndarray, list[Window]]] = []
    for name, y, windows in generated() if given.generated else numenta():
        if given.only not in name:
            continue
        found = scores(name, y, given.model, given.cache)
        scored.append((np.nan_to_num(found["score"]), windows))
        for kind, rules in RULES.items():
            at = opened(rules, y, found)
            hit = sum(any(a <= t <= b for t in at) for a, b in windows)
            allowed = len(windows) + ALLOWED * len(y)
            table[kind].append((len(y), len(windows), len(at), hit, len(at) <= allowed))
        print(f"{name}: {len(y)} rows, {len(windows)} windows, {table['both'][-1]}", flush=True)
    print("\n| rule | series | rows | windows | found | alerts | allowed | series within |")
    print("|---|---|---|---|---|---|---|---|")
    for kind, entries in table.items():
        rows, windows, alerts, hit, within = (sum(column) for column in zip(*entries, strict=True))
        allowed = windows + ALLOWED * rows
        print(
            f"| {kind} | {len(entries)} | {rows} | {windows} | {hit} | {alerts} | {allowed:.0f} "
            f"| {within} |"
        )
    if not given.generated:
        print_nab(scored, given.model)


if __name__ == "__main__":
    main()
