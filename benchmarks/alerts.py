"""Alert fatigue on the series of the Numenta Anomaly Benchmark: how many alerts, how many true.

    python -m benchmarks.alerts [--cache FOLDER] [--model auto]

Each series runs once through the model with default settings; its anomaly scores and regimes are
stored in the cache. The default rules of `regimekit.alerts` are applied row by row, as the service
does. The goal: at most one alert per true window plus 2 per 10 000 rows. docs/alerts.md says on
which series the default settings were chosen.

The folder REGIMEKIT_DATA/nab has the series and `combined_windows.json`.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import regimekit as rk
from regimekit.alerts import AlertEngine, Rule, Sample
from regimekit.alerts.engine import anomaly_scores
from regimekit.results import CHANGES

ALLOWED = 2 / 10_000  # alerts per row besides one per window
RULES = {
    "anomaly": [Rule("anomaly", "anomaly")],
    "regime change": [Rule("change", "regime change")],
    "both": [Rule("anomaly", "anomaly"), Rule("change", "regime change")],
    # For comparison: an alert for every anomalous row after ten calm ones.
    "each anomalous row": [Rule("row", "anomaly", count=1, window=1, quiet=10)],
}


def read_series(file: Path) -> tuple[np.ndarray, list[str]]:
    """Return the values and the times of a series."""
    with gzip.open(file, "rt", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return np.array([float(row["value"]) for row in rows]), [row["timestamp"] for row in rows]


def true_windows(times: list[str], given: list[list[str]]) -> list[tuple[int, int]]:
    """Return first and last row of each labelled window."""
    index = np.array([time[:19] for time in times])
    return [
        (int(np.searchsorted(index, begin[:19])), int(np.searchsorted(index, end[:19])))
        for begin, end in given
    ]


def scores(name: str, y: np.ndarray, model: str, cache: Path) -> dict[str, np.ndarray]:
    """Run the model, or read the stored result."""
    file = cache / f"{model}-{name.replace('/', '-')}.npz"
    if not file.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = rk.make(model).run(y)
        began = np.full(len(y), -1)
        for event in run.events:
            if event.kind in CHANGES:
                began[event.time] = event.since
        np.savez(file, score=anomaly_scores(run), regime=run.regime, began=began)
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path("build/alerts"))
    parser.add_argument("--model", default="auto")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    folder = Path(os.environ["REGIMEKIT_DATA"]) / "nab"
    labels = json.loads((folder / "combined_windows.json").read_text())
    table: dict[str, list[Any]] = {name: [] for name in RULES}
    for name in sorted(labels):
        file = folder / f"{name}.gz"
        if not file.exists():
            continue
        y, times = read_series(file)
        windows = true_windows(times, labels[name])
        found = scores(name, y, given.model, given.cache)
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


if __name__ == "__main__":
    main()
