"""Several models along one stream, each forecast made before its observation."""

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
_WARM_UP = 32  # rows on which kernels are compiled before the clock starts
OFFLINE = "offline fit, no forecast"


@dataclass(frozen=True, eq=False)
class Rival:
    """One model of a comparison.

    Attributes:
        model: by name.
        scores: of its forecasts; empty for an offline fit and for one that failed.
        error: absolute error of each forecast, NaN where it is not scored.
        regimes: how many it remembers at the end.
        seconds: per observation, without compilation.
        remark: why there are no scores.
    """

    model: str
    scores: dict[str, float]
    error: Array
    regimes: int = 0
    seconds: float = 0.0
    remark: str = ""

    def row(self) -> dict[str, Any]:
        """As a row of the table."""
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
    told: Callable[[str], None] = lambda line: None,
) -> list[Rival]:
    """Run models, given as their settings by name; best RMSE first, those without scores last.

    Example:
        >>> import numpy as np
        >>> found = compare({"running_mean": {}, "last_value": {}}, np.arange(30.0))
        >>> [rival.model for rival in found]
        ['last_value', 'running_mean']
    """
    rivals = []
    for name, settings in models.items():
        told(f"running {name}")
        rivals.append(_run(name, settings, y, X, season, skip, level))
    return sorted(rivals, key=lambda rival: rival.scores.get("rmse", np.inf))


def figure(rivals: list[Rival], target: str) -> Any:
    """Mean absolute error so far, one line per model."""
    from regimekit.plotting import PALETTE, pyplot

    plt = pyplot()
    drawn, axes = plt.subplots(figsize=(9, 4.5), layout="constrained")
    for j, rival in enumerate(rival for rival in rivals if rival.scores):
        style = ("-", "--", ":")[j // len(PALETTE) % 3]
        axes.plot(
            mean_so_far(rival.error), style, color=PALETTE[j % len(PALETTE)], label=rival.model
        )
    axes.set_xlabel("observation")
    axes.set_ylim(bottom=0)
    axes.set_ylabel(f"mean absolute error so far, in units of {target}")
    axes.legend(frameon=False, fontsize=8)
    return drawn


def mean_so_far(error: Array) -> Array:
    """The mean of what came until then and is no NaN; NaN before the first."""
    seen = ~np.isnan(error)
    count = seen.cumsum()
    total = np.where(seen, error, 0.0).cumsum()
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _run(
    name: str,
    settings: Mapping[str, Any],
    y: Array,
    X: Any,
    season: int | None,
    skip: int,
    level: float,
) -> Rival:
    unknown = np.full(len(y), np.nan)
    try:
        if REGISTRY[name].online:
            few = None if X is None else X._replace(values=X.values[:_WARM_UP])
            make(name, **settings).run(y[:_WARM_UP], few)
        model = make(name, **settings)
        model.advised = False  # the table says it, beside the others and over the same rows
        begin = time.perf_counter()
        run = model.run(y, X, level=level)
        seconds = (time.perf_counter() - begin) / len(y)
    except RegimekitError as error:
        return Rival(name, {}, unknown, remark=str(error))
    if not REGISTRY[name].online:
        return Rival(name, {}, unknown, len(model.regimes()), seconds, OFFLINE)
    scores = RunningScores(season, skip)
    scores.add(y, run.mean, run.lower, run.upper, run.log_score)
    own = {key: value for key, value in scores.table().items() if "last_value" not in key}
    missed = np.abs(y - run.mean)
    skipped = int(own.get("n_skipped", 0))
    missed[: max(skipped, 1)] = np.nan  # the first has no last value to stand beside
    return Rival(name, own, missed, len(model.regimes()), seconds)
