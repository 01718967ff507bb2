"""Tables of the report (scores, changes, forecasts, settings) and number formats."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit import metrics as evaluate
from regimekit.core import regime_description
from regimekit.distributions.forecast import Forecast
from regimekit.io.columns import standing_events
from regimekit.metrics.prequential import trivial_forecasts
from regimekit.preprocessing.time_index import TimeIndex
from regimekit.results import OUTLIER, Run

Array = NDArray[np.float64]
# Heading by name, and whether lower is better (None: neither).
METRICS: dict[str, tuple[str, bool | None]] = {
    "rmse": ("RMSE", True),
    "mae": ("MAE", True),
    "crps": ("CRPS", True),
    "log_score": ("log score", False),
    "coverage": ("coverage", None),
    "pit_distance": ("distance of the PIT from uniform", None),
}
_SECONDS = "seconds_per_observation"
_MAX_CHANGES = 60
_MAX_OUTLIERS = 10
_MISSING = "\N{EN DASH}"
_THOUSANDS = "\N{NARROW NO-BREAK SPACE}"
_PACKAGES = ("regimekit", "numpy", "narwhals")


def plain_scores(run: Run, y: Array) -> tuple[dict[str, float], int]:
    """Compute scores from a run.

    Args:
        run: output of `model.run(y)`.
        y: (T, d) observations.

    Returns:
        Scores by name, and the number of observations at the start that are not scored.
    """
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
    """Arrange scores as a table of forecasters by metrics, with the best of each column marked."""
    grid = score_grid(scores, model)
    used = [metric for metric in METRICS if any(metric in row for row in grid.values())]
    best = {metric: _best(metric, grid) for metric in used}
    rows = [
        {"name": name, "cells": [_cell(row.get(metric), metric, best) for metric in used]}
        for name, row in grid.items()
    ]
    time = number(1000 * float(scores[_SECONDS])) if _SECONDS in scores else ""
    return {"heads": [METRICS[metric][0] for metric in used], "rows": rows, "milliseconds": time}


def better_reference(scores: Mapping[str, Any], model: str) -> str:
    """Return a sentence if a reference forecaster has a lower error than the model, else ""."""
    grid = score_grid(scores, model)
    ours = grid.pop(model, {})
    for metric in ("rmse", "mae"):
        rivals = {name: row[metric] for name, row in grid.items() if metric in row}
        best = min(rivals, key=lambda name: rivals[name], default="")
        if best and metric in ours and rivals[best] < ours[metric]:
            return (
                f'The forecaster "{best}" has a lower {METRICS[metric][0]} than {model}: '
                f"{number(rivals[best])} and {number(ours[metric])}."
            )
    return ""


def score_grid(scores: Mapping[str, Any], model: str) -> dict[str, dict[str, float]]:
    """Return scores by forecaster and metric, from names such as `rmse_last_value` or nested."""
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


def changes(run: Run, labels: list[str]) -> dict[str, Any]:
    """List the changes of regime that no later event has revoked, the latest first."""
    reported = [event for event in standing_events(run.events) if event.is_change]
    # A resumed run does not start at the first observation of the model.
    flagged = np.flatnonzero(run.outlier)
    times = [event.time for event in run.events if event.kind == OUTLIER]
    if flagged.size and times:
        first = times[0] - int(flagged[0])
    else:
        first = max(max((event.time for event in run.events), default=0) - len(labels) + 1, 0)
    rows = []
    for event in reported[::-1][:_MAX_CHANGES]:
        detected, since = event.time - first, event.since - first
        if 0 <= since < len(labels) and 0 <= detected < len(labels):
            rows.append(
                {
                    "since": since,
                    "from": labels[since],
                    "detected": labels[detected],
                    "kind": event.kind.removeprefix("regime "),
                    "id": event.regime,
                }
            )
    n = len(reported)
    kept = len(run.changepoints)
    return {"rows": rows, "n": n, "kept": kept, "left_out": n - len(rows)}


def largest_outliers(run: Run, labels: list[str]) -> list[dict[str, Any]]:
    """List the observations of the first coordinate that are furthest from their forecast.

    Only observations flagged as outliers are listed, at most 10, in the order of time.
    """
    rows = np.flatnonzero(run.outlier)
    first = [np.reshape(a, (len(run), -1))[:, 0] for a in (run.y, run.mean, run.lower, run.upper)]
    y, mean, lower, upper = first
    width = np.maximum(upper - lower, 1e-300)
    distance = np.nan_to_num(np.abs(y - mean) / width)
    chosen = sorted(rows[np.argsort(-distance[rows])][:_MAX_OUTLIERS].tolist())
    return [
        {
            "row": t,
            "at": labels[t],
            "observed": rounded(float(y[t]), float(width[t])),
            "expected": f"{rounded(float(lower[t]), float(width[t]))} to "
            f"{rounded(float(upper[t]), float(width[t]))}",
        }
        for t in chosen
    ]


def steps_ahead(
    forecasts: list[Forecast], times: TimeIndex, level: float, coordinate: int
) -> dict[str, Any]:
    """Quantiles of the next steps of one coordinate, for the chart and the table."""
    found: dict[str, list[float]] = {k: [] for k in ("median", "lower", "upper", "low", "high")}
    for forecast in forecasts:
        limits = (*forecast.interval(level), *forecast.interval(0.5))
        for name, value in zip(found, (forecast.quantile(0.5), *limits), strict=True):
            found[name].append(float(f"{np.ravel(value)[coordinate]:.7g}"))
    after = times.ahead(len(forecasts))
    return {"x": after.values.tolist(), "labels": after.labels(times), **found}


def sparkline(values: Array, width: int = 160, height: int = 28) -> list[str]:
    """Return the points of the lines of a small chart; a missing value ends a line.

    Args:
        values: (T,) observations; at most `width` of them are drawn.
        width: width of the chart.
        height: height of the chart.

    Example:
        >>> sparkline(np.array([0.0, 1.0, np.nan, 1.0]), 6, 2)
        ['0.0,2.0 2.0,0.0', '6.0,0.0']
    """
    rows = np.unique(np.linspace(0, len(values) - 1, min(len(values), width)).astype(int))
    shown = values[rows]
    seen = shown[np.isfinite(shown)]
    if seen.size == 0:
        return []
    # Outliers must not flatten the rest.
    low, high = np.quantile(seen, [0.01, 0.99]) if seen.size > 50 else (seen.min(), seen.max())
    scaled = np.clip((shown - low) / max(high - low, 1e-300), 0.0, 1.0)
    lines: list[list[str]] = [[]]
    for j, value in enumerate(scaled):
        if np.isnan(value):
            lines.append([])
        else:
            x = width * rows[j] / max(len(values) - 1, 1)
            lines[-1].append(f"{x:.1f},{height * (1 - value):.1f}")
    return [" ".join(line) for line in lines if line]


def settings_table(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings by name, as JSON of at most 300 characters."""
    rows = []
    for name, value in settings.items():
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        rows.append((str(name), text if len(text) <= 300 else f"{text[:297]}..."))
    return rows


def versions() -> list[tuple[str, str]]:
    """Versions of Python and of the main packages."""
    found = [("Python", platform.python_version())]
    for package in _PACKAGES:
        try:
            found.append((package, version(package)))
        except PackageNotFoundError:
            continue
    return found


def number(value: float) -> str:
    """Format a number with four significant digits; NaN is a dash.

    Example:
        >>> number(-0.51234), number(0.000123456), number(3.0), number(float("nan"))
        ('-0.5123', '0.0001235', '3', '–')
    """
    if math.isnan(value):
        return _MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if size and not 1e-5 <= size < 1e7:
        return f"{value:.4g}"
    if size >= 1000:
        return _short(f"{value:,.0f}")
    digits = 3 - math.floor(math.log10(size)) if size else 0
    return _short(f"{value:,.{min(max(digits, 0), 9)}f}")


def rounded(value: float, spread: float) -> str:
    """Format a number to a fiftieth of a spread, as summaries of regimes do.

    Example:
        >>> rounded(-0.003119, 1.2), ascii(rounded(5012.3456, 20.0))
        ('0.00', "'5\\\\u202f012.3'")
    """
    return regime_description.rounded(value, spread).replace(" ", _THOUSANDS)


def percent(share: float) -> str:
    """Format a share as percent, with one decimal near 0 and 100.

    Example:
        >>> [percent(share).split() for share in (0.25, 0.0123, 0.0)]
        [['25', '%'], ['1.2', '%'], ['0', '%']]
    """
    if math.isnan(share):
        return _MISSING
    value = 100 * share
    small = 0 < value < 9.95 or 99 < value < 100
    return f"{_short(f'{value:.1f}') if small else f'{value:.0f}'}\N{NO-BREAK SPACE}%"


def count(n: int) -> str:
    """Format a count with narrow spaces between thousands.

    Example:
        >>> ascii(count(100000))
        "'100\\\\u202f000'"
    """
    return f"{n:,}".replace(",", _THOUSANDS)


def _short(text: str) -> str:
    """Drop zeros at the end; group thousands."""
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text.replace(",", _THOUSANDS)
