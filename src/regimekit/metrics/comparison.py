"""Compare models on one stream, each forecast made before its observation."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.core.registry import REGISTRY, make
from regimekit.metrics.prequential import RunningScores

Array = NDArray[np.float64]
OFFLINE = "offline fit, no forecast"


@dataclass(frozen=True, eq=False)
class ComparedModel:
    """Scores of one model in a comparison.

    Attributes:
        model: name of the model.
        scores: scores of its forecasts; empty for an offline fit and after an error.
        error: (T,) absolute error of each forecast, NaN where it is not scored.
        regimes: number of regimes after the last observation.
        seconds: run time per observation.
        remark: why there are no scores.
    """

    model: str
    scores: dict[str, float]
    error: Array
    regimes: int = 0
    seconds: float = 0.0
    remark: str = ""

    def row(self) -> dict[str, Any]:
        """Return the scores as a row of the comparison table."""
        facts = {"regimes": self.regimes, "ms_per_observation": 1e3 * self.seconds}
        return {"model": self.model, **self.scores, **facts, "remark": self.remark}


def compare(
    models: Mapping[str, Mapping[str, Any]],
    y: Array,
    X: Any = None,
    *,
    season: int | None = None,
    skip: int = 0,
    level: float = 0.9,
    on_start: Callable[[str], None] = lambda name: None,
) -> list[ComparedModel]:
    """Run several models on one stream.

    Args:
        models: settings by model name.
        y: (T,) observations; NaN is not observed.
        X: (T, k) covariates.
        season: season length in steps, for the seasonal last value.
        skip: first observations that are not scored, at most half of them.
        level: probability of the intervals.
        on_start: called with the name of each model before it runs.

    Returns:
        The models by increasing RMSE; those without scores last.

    Example:
        >>> import numpy as np
        >>> found = compare({"running_mean": {}, "last_value": {}}, np.arange(30.0))
        >>> [one.model for one in found]
        ['last_value', 'running_mean']
    """
    compared = []
    for name, settings in models.items():
        on_start(name)
        scores = RunningScores(season, skip)
        compared.append(_run(name, settings, y, X, scores, level))
    return sorted(compared, key=lambda one: one.scores.get("rmse", np.inf))


def figure(compared: list[ComparedModel], target: str) -> Any:
    """Plot the cumulative mean absolute error, one line per model.

    Args:
        compared: result of `compare`.
        target: name of the forecast column, for the axis label.

    Returns:
        A matplotlib figure.
    """
    from regimekit.plotting import PALETTE, pyplot

    plt = pyplot()
    drawn, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    for j, one in enumerate(one for one in compared if one.scores):
        style = ("-", "--", ":")[j // len(PALETTE) % 3]
        color = PALETTE[j % len(PALETTE)]
        axes.plot(cumulative_mean(one.error), style, color=color, label=one.model)
    axes.set_xlabel("observation")
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"cumulative mean absolute error, in units of {target}")
    axes.legend(frameon=False, fontsize=8)
    return drawn


def cumulative_mean(values: Array) -> Array:
    """Return the (T,) mean of all values up to each one; NaN values are ignored.

    Args:
        values: (T,).
    """
    valid = ~np.isnan(values)
    count = valid.cumsum()
    total = np.where(valid, values, 0.0).cumsum()
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _run(
    name: str, settings: Mapping[str, Any], y: Array, X: Any, scores: RunningScores, level: float
) -> ComparedModel:
    nothing = np.full(len(y), np.nan)
    try:
        model = make(name, **settings)
        # The comparison table replaces the model's own warnings.
        model.advised = False
        begin = time.perf_counter()
        run = model.run(y, X, level=level)
        seconds = (time.perf_counter() - begin) / len(y)
    except RegimekitError as error:
        return ComparedModel(name, {}, nothing, remark=str(error))
    if not REGISTRY[name].online:
        return ComparedModel(name, {}, nothing, len(model.regimes()), seconds, OFFLINE)
    scores.add(run)
    own = {key: value for key, value in scores.table().items() if "last_value" not in key}
    errors = np.abs(y - run.mean)
    # The first observation has no last value to compare with, so no model is scored on it.
    errors[: max(int(own.get("n_skipped", 0)), 1)] = np.nan
    return ComparedModel(name, own, errors, len(model.regimes()), seconds)
