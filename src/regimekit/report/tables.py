"""The report's tables: scores beside the simple forecasters, changes, the next steps, settings."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit import metrics as evaluate
from regimekit.distributions.forecast import Forecast
from regimekit.metrics.prequential import trivial_forecasts
from regimekit.plotting.palette import look
from regimekit.preprocessing.time_index import TimeIndex
from regimekit.report.words import number, percent
from regimekit.results import NO_REGIME, OPENED, OUTLIER, RETURNED, Run

Array = NDArray[np.float64]
# By name: how it is headed, and whether less is better (None: neither).
METRICS: dict[str, tuple[str, bool | None]] = {
    "rmse": ("RMSE", True),
    "mae": ("MAE", True),
    "crps": ("CRPS", True),
    "log_score": ("log score", False),
    "coverage": ("coverage", None),
    "pit_distance": ("distance of the PIT from uniform", None),
}
_SECONDS = "seconds_per_observation"
_CHANGES = 60  # listed, the latest first
_PACKAGES = ("regimekit", "numpy", "scipy", "numba")


def plain_scores(run: Run, y: Array) -> tuple[dict[str, float], int]:
    """Scores from the run alone, and how many first observations they leave out."""
    skip = min(50, len(run) // 5)
    mean, lower, upper = (np.reshape(a, y.shape) for a in (run.mean, run.lower, run.upper))
    simple = trivial_forecasts(y, None, first=mean)
    if np.isnan(y[skip:]).all():
        return {}, skip
    seen = run.log_score[skip:]
    seen = seen[~np.isnan(seen)]
    found = {
        "rmse": evaluate.rmse(y[skip:], mean[skip:]),
        "mae": evaluate.mae(y[skip:], mean[skip:]),
        "log_score": float(seen.mean()) if seen.size else float("nan"),
        "coverage": evaluate.coverage(y[skip:], lower[skip:], upper[skip:]),
    }
    for name, forecast in simple.items():
        found[f"rmse_{name}"] = evaluate.rmse(y[skip:], forecast[skip:])
        found[f"mae_{name}"] = evaluate.mae(y[skip:], forecast[skip:])
    return found, skip


def score_table(scores: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Forecasters by metrics, the best of each column marked; and the pace."""
    grid = _grid(scores, model)
    used = [metric for metric in METRICS if any(metric in row for row in grid.values())]
    best = {metric: _best(metric, grid) for metric in used}
    rows = [
        {"name": name, "cells": [_cell(row.get(metric), metric, best) for metric in used]}
        for name, row in grid.items()
    ]
    pace = number(1000 * float(scores[_SECONDS])) if _SECONDS in scores else ""
    return {"heads": [METRICS[metric][0] for metric in used], "rows": rows, "pace": pace}


def beaten_by(scores: Mapping[str, Any], model: str) -> str:
    """A sentence if a simple forecaster has a smaller error than the model, else ""."""
    grid = _grid(scores, model)
    ours = grid.pop(model, {})
    for metric in ("rmse", "mae"):
        rivals = {name: row[metric] for name, row in grid.items() if metric in row}
        best = min(rivals, key=lambda name: rivals[name], default="")
        if best and metric in ours and rivals[best] < ours[metric]:
            return (
                f'The forecaster "{best}" has a smaller {METRICS[metric][0]} than {model}: '
                f"{number(rivals[best])} against {number(ours[metric])}."
            )
    return ""


def _grid(scores: Mapping[str, Any], model: str) -> dict[str, dict[str, float]]:
    """Scores by forecaster and metric, from `rmse_last_value` or from a table of tables."""
    if scores and all(isinstance(part, Mapping) for part in scores.values()):
        return {str(n).replace("_", " "): dict(part) for n, part in scores.items()}
    grid: dict[str, dict[str, float]] = {model: {}}
    for key, value in scores.items():
        metric = next((m for m in METRICS if key == m or key.startswith(m + "_")), None)
        if metric is not None and value is not None:
            who = key[len(metric) + 1 :].replace("_", " ") or model
            grid.setdefault(who, {})[metric] = float(value)
    return grid


def _best(metric: str, grid: dict[str, dict[str, float]]) -> float | None:
    less = METRICS[metric][1]
    values = [row[metric] for row in grid.values() if metric in row and np.isfinite(row[metric])]
    if less is None or len(values) < 2:
        return None
    return min(values) if less else max(values)


def _cell(value: float | None, metric: str, best: dict[str, float | None]) -> dict[str, Any]:
    if value is None:
        return {"text": "", "best": False}
    text = percent(value) if metric == "coverage" else number(value)
    return {"text": text, "best": value == best[metric]}


def changes(run: Run, words: list[str]) -> dict[str, Any]:
    """The changes of regime that were reported, the latest first."""
    told = [e for e in run.events if e.kind in (OPENED, RETURNED) and e.previous != NO_REGIME]
    first = _offset(run, len(words))
    rows = []
    for event in told[::-1][:_CHANGES]:
        known, since = event.time - first, getattr(event, "since", event.time) - first
        if 0 <= since < len(words) and 0 <= known < len(words):
            rows.append(
                {
                    "since": since,
                    "from": words[since],
                    "known": words[known],
                    "delay": known - since,
                    "kind": event.kind.removeprefix("regime "),
                    "id": event.regime,
                    "look": look(event.regime)._asdict(),
                }
            )
    return {"rows": rows, "n": len(told), "left_out": len(told) - len(rows)}


def _offset(run: Run, length: int) -> int:
    """Events count from the model's first observation; a resumed run starts later than that."""
    flagged = np.flatnonzero(run.outlier)
    times = [event.time for event in run.events if event.kind == OUTLIER]
    if flagged.size and times:
        return times[0] - int(flagged[0])
    return max(max((event.time for event in run.events), default=0) - length + 1, 0)


def steps_ahead(
    forecasts: list[Forecast], times: TimeIndex, level: float, coordinate: int
) -> dict[str, Any]:
    """The next steps of one coordinate: numbers for the chart and for the table."""
    found: dict[str, list[float]] = {k: [] for k in ("median", "lower", "upper", "low", "high")}
    for forecast in forecasts:
        pairs = zip(found, _quantiles(forecast, level), strict=True)
        for name, value in pairs:
            found[name].append(float(f"{np.ravel(value)[coordinate]:.7g}"))
    after = times.ahead(len(forecasts))
    return {"x": after.values.tolist(), "words": after.labels(times), **found}


def _quantiles(forecast: Forecast, level: float) -> tuple[Any, ...]:
    wide, half = forecast.interval(level), forecast.interval(0.5)
    return forecast.quantile(0.5), wide[0], wide[1], half[0], half[1]


def settings_table(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings by name, as short JSON."""
    return [(str(key), _short_json(value)) for key, value in settings.items()]


def _short_json(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= 300 else text[:297] + "..."


def versions() -> list[tuple[str, str]]:
    """What this was made with."""
    found = [("Python", platform.python_version())]
    for package in _PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return found
