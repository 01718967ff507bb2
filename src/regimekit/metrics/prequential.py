"""Prequential evaluation: each forecast is made before its observation, then scored.

for each t:   forecast y_t from y_1 .. y_{t-1};   score the forecast;   update with y_t

`prequential` scores one run in memory; `RunningScores` scores a stream of any length, block by
block. Both report reference forecasters (the last value, the running mean, the value one season
ago) on the same observations.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regimekit.core.exceptions import RegimekitError, numbers, whole
from regimekit.core.model import Model
from regimekit.core.recorder import Block
from regimekit.metrics import scores, segmentation
from regimekit.metrics.reliability import calibration
from regimekit.preprocessing.alignment import read_stream
from regimekit.preprocessing.frames import read_series
from regimekit.results import Run

Array = NDArray[np.float64]
_FORECASTERS = ("model", "last_value", "seasonal_last_value")


@dataclass(frozen=True, eq=False)
class Prequential:
    """A scored run.

    Attributes:
        run: output of the model, one row per observation.
        target: (T, d) values the forecasts are scored against.
        log_scores: (T,) log density of the target.
        crps: (T, d) continuous ranked probability scores, in the units of y.
        pit: (T, d) probability integral transforms.
        trivial: (T, d) forecasts of the reference forecasters, by name.
        seconds: time spent in the model, forecasts and updates of all observations.
        skip: number of observations at the start that are not scored.
    """

    run: Run
    target: Array
    log_scores: Array
    crps: Array
    pit: Array
    trivial: dict[str, Array]
    seconds: float
    skip: int

    def scores(self) -> dict[str, float]:
        """Return every score by name.

        Returns:
            `rmse`, `mae`, `log_score`, `crps`, `coverage`, `pit_distance` (Kolmogorov-Smirnov
            distance of the PIT from the uniform distribution), `n_regimes` and `switches` (of
            `run.path`), `seconds_per_observation`, and `rmse_<name>`, `mae_<name>` for each
            reference forecaster.
        """
        part = slice(self.skip, None)
        run, y = self.run, self.target[part]
        mean, lower, upper = (scores.as_rows(a)[part] for a in (run.mean, run.lower, run.upper))
        table = {
            "rmse": scores.rmse(y, mean),
            "mae": scores.mae(y, mean),
            "log_score": scores.nan_mean(self.log_scores[part]),
            "crps": scores.nan_mean(self.crps[part]),
            "coverage": scores.coverage(y, lower, upper),
            "pit_distance": scores.pit_distance(self.pit[part]),
            "n_regimes": float(segmentation.n_regimes(run.path[part])),
            "switches": float(segmentation.switches(run.path[part])),
            "seconds_per_observation": self.seconds / max(len(run), 1),
        }
        for name, forecast in self.trivial.items():
            table[f"rmse_{name}"] = scores.rmse(y, forecast[part])
            table[f"mae_{name}"] = scores.mae(y, forecast[part])
        return table

    def pit_histogram(self, bins: int = 10) -> Array:
        """Return the share of PIT values in each bin: 1 / bins if calibrated.

        Args:
            bins: number of equal bins.
        """
        return np.array(calibration(self.pit[self.skip :], bins).pit)


def prequential(
    model: Model,
    y: Any,
    X: Any = None,
    *,
    clean: Any = None,
    period: int | None = None,
    skip: int = 0,
    level: float = 0.9,
    progress: bool = False,
) -> Prequential:
    """Run a model over a stream and score each forecast made before its observation.

    The model is updated, as by `model.run`. The reference forecasters are scored on the same
    observations; where they have no forecast yet, that of the model is used. For an offline model,
    which makes no one-step forecasts, CRPS and PIT are NaN.

    Args:
        model: any model.
        y: observations (T,) or (T, d). NaN is missing and is not scored.
        X: covariates, one row per observation.
        clean: values to score against instead of y, e.g. the stream before contamination.
        period: length of a season in observations, for the seasonal last value.
        skip: number of observations at the start that update the model but are not scored.
        level: probability of the interval whose coverage is reported.
        progress: show a progress bar.

    Returns:
        The scored run.

    Raises:
        RegimekitError: if `clean` and `y` differ in shape, or `skip` leaves nothing to score.

    Example:
        >>> import regimekit as rk
        >>> from regimekit import data, evaluate
        >>> stream = data.regime_stream(seed=0, n=60)
        >>> result = evaluate.prequential(rk.make("ihmm", particles=5), stream.y)
        >>> sorted(result.trivial)
        ['last_value', 'running_mean']
    """
    stream = read_stream(y, X, model._warned)
    values = stream.series.values
    target = values
    if clean is not None:
        target, given = read_series(clean).values, read_series(y).values
        if target.shape != given.shape:
            raise RegimekitError(
                f"clean must have the shape of y {given.shape}, got {target.shape}."
            )
        target = stream.expand(target)
    if whole("skip", skip, 0) >= max(len(target), 1):
        raise RegimekitError(
            f"skip must be less than the number of observations {len(target)}, got {skip}."
        )
    scorer = _Scorer(target)
    begin = time.perf_counter()
    run = model._stream(stream, progress, level, [scorer])
    if not scorer.scored:
        # An offline fit: only the log score of y, which the model itself reports, is known.
        scorer.seconds = time.perf_counter() - begin
        scorer.log_scores = run.log_score if clean is None else scorer.log_scores
    trivial = trivial_forecasts(values, period, first=scores.as_rows(run.mean))
    return Prequential(
        run, target, scorer.log_scores, scorer.crps, scorer.pit, trivial, scorer.seconds, skip
    )


def run_with_pit(model: Model, y: Any, X: Any = None, level: float = 0.9) -> tuple[Run, Array]:
    """Run a model over a stream and compute the PIT of its forecasts.

    Args:
        model: any model.
        y: observations (T,) or (T, d).
        X: covariates, one row per observation.
        level: probability of the interval `lower` .. `upper` of the run.

    Returns:
        The run, and the (T, d) probability integral transforms; NaN where y is missing, and
        everywhere for a model that makes no one-step forecasts.

    Example:
        >>> import regimekit as rk
        >>> run, pit = run_with_pit(rk.make("running_mean"), [1.0, 2.0, 3.0])
        >>> len(run), pit.shape, float(pit[1, 0]) > 0.5
        (3, (3, 1), True)
    """
    stream = read_stream(y, X, model._warned)
    scorer = _Scorer(stream.series.values, pit_only=True)
    return model._stream(stream, False, level, [scorer]), scorer.pit


def last_value(y: ArrayLike, period: int = 1) -> Array:
    """Forecast each observation by the one `period` before it.

    A missing value is replaced by its forecast. Within the first period the forecast is the last
    value.

    Args:
        y: observations (T,) or (T, d).
        period: lag in observations.

    Returns:
        Forecasts with the shape of y; NaN where there is no earlier observation.

    Example:
        >>> from regimekit import evaluate
        >>> evaluate.last_value([1.0, 2.0, 3.0]).tolist()
        [nan, 1.0, 2.0]
    """
    values = numbers("y", y)
    lag = whole("period", period)
    filled, forecast = values.copy(), np.full(values.shape, np.nan)
    for t in range(1, len(values)):
        forecast[t] = filled[t - lag] if t >= lag else filled[t - 1]
        filled[t] = np.where(np.isnan(values[t]), forecast[t], values[t])
    return forecast


def running_mean(y: ArrayLike) -> Array:
    """Forecast each observation by the mean of all earlier ones.

    Args:
        y: observations (T,) or (T, d); NaN is skipped.

    Returns:
        Forecasts with the shape of y; NaN where there is no earlier observation.

    Example:
        >>> from regimekit import evaluate
        >>> evaluate.running_mean([1.0, 3.0, 5.0]).tolist()
        [nan, 1.0, 2.0]
    """
    values = numbers("y", y)
    seen = ~np.isnan(values)
    total, count = np.where(seen, values, 0.0).cumsum(axis=0), seen.cumsum(axis=0)
    forecast = np.full(values.shape, np.nan)
    if len(values) > 1:
        np.divide(total[:-1], count[:-1], out=forecast[1:], where=count[:-1] > 0)
    return forecast


def trivial_forecasts(y: Array, period: int | None, first: Array) -> dict[str, Array]:
    """Forecast (T, d) observations by the reference forecasters.

    Args:
        y: (T, d) observations.
        period: length of a season; None leaves out `seasonal_last_value`.
        first: (T, d) forecasts to use where a reference forecaster has none.

    Returns:
        (T, d) forecasts by name.
    """
    known = {"last_value": last_value(y), "running_mean": running_mean(y)}
    if period is not None:
        known["seasonal_last_value"] = last_value(y, period)
    return {name: np.where(np.isnan(f), first, f) for name, f in known.items()}


class RunningScores:
    """Scores of a stream of any length in constant memory, updated block by block.

    The model, the last value and the value one season ago are scored on the same observations,
    from the second observation on.

    Args:
        period: length of a season in observations; None leaves out the seasonal last value.
        skip: number of observations at the start that are not scored, at most half the stream.

    Example:
        >>> import regimekit as rk
        >>> scores = RunningScores()
        >>> scores.add(rk.make("running_mean").run([1.0, 2.0, 4.0]))
        >>> scores.table()["mae"], scores.table()["mae_last_value"]
        (1.75, 1.5)
    """

    def __init__(self, period: int | None = None, skip: int = 0) -> None:
        self.period = None if period is None else whole("period", period)
        self.skip = whole("skip", skip, 0)
        self.rows = 0
        self._past: deque[float] = deque(maxlen=self.period or 1)
        self._head = np.zeros((0, 9))
        self._sums = np.zeros(9)

    def add(self, run: Run, target: Array | None = None) -> None:
        """Score the forecasts of a run, the next part of the stream.

        Args:
            run: run over a scalar stream; missing observations are not scored.
            target: (T,) values to score against, if not y.
        """
        y = run.y
        last, seasonal = self._trivial(y)
        truth = y if target is None else target
        errors = [np.abs(forecast - truth) for forecast in (run.mean, last, seasonal)]
        inside = ((truth >= run.lower) & (truth <= run.upper)).astype(float)
        parts = [e**2 for e in errors] + errors + [inside, run.log_score, np.ones(len(y))]
        table = np.column_stack(parts)
        table[np.isnan(y) | np.isnan(last)] = 0.0
        self.rows += len(y)
        # The first rows are stored one by one: how many to skip depends on the final length.
        room = max(self.skip - len(self._head), 0)
        self._head = np.concatenate([self._head, table[:room]])
        self._sums += table[room:].sum(axis=0)

    def table(self) -> dict[str, float]:
        """Return scores by name; empty if fewer than two observations can be scored."""
        skipped = min(self.skip, self.rows // 2)
        sums = self._sums + self._head[skipped:].sum(axis=0)
        n = int(sums[-1])
        if n < 2:
            return {}
        found: dict[str, float] = {"n_scored": n, "n_skipped": skipped}
        for j, name in enumerate(_FORECASTERS[: 2 if self.period is None else 3]):
            label = "" if name == "model" else f"_{name}"
            found[f"rmse{label}"] = float(np.sqrt(sums[j] / n))
            found[f"mae{label}"] = float(sums[3 + j] / n)
        return found | {"coverage": float(sums[6] / n), "log_score": float(sums[7] / n)}

    def state(self) -> dict[str, Any]:
        """Return the state as JSON values."""
        return {
            "period": self.period,
            "skip": self.skip,
            "rows": self.rows,
            "past": list(self._past),
            "head": self._head.tolist(),
            "sums": self._sums.tolist(),
        }

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> RunningScores:
        """Return scores with the state of others.

        Args:
            state: output of `state`.
        """
        scores = cls(state["period"], state["skip"])
        scores.rows = state["rows"]
        scores._past.extend(state["past"])
        scores._head = np.array(state["head"], dtype=float).reshape(-1, 9)
        scores._sums = np.array(state["sums"], dtype=float)
        return scores

    def _trivial(self, y: Array) -> tuple[Array, Array]:
        """Last and seasonal values before each observation; missing values are filled in."""
        last, seasonal = np.full(len(y), np.nan), np.full(len(y), np.nan)
        for t, value in enumerate(y):
            if self._past:
                last[t] = self._past[-1]
                full_season = len(self._past) == self._past.maxlen
                seasonal[t] = self._past[0] if full_season else last[t]
            if not np.isnan(value):
                self._past.append(float(value))
            elif self._past:
                self._past.append(float(seasonal[t] if self.period else last[t]))
        return last, seasonal


class _Scorer:
    """Callback of a run that scores each block of forecasts before they are dropped."""

    def __init__(self, target: Array, pit_only: bool = False) -> None:
        self.target, self.pit_only = target, pit_only
        self.log_scores = np.full(len(target), np.nan)
        self.crps, self.pit = np.full(target.shape, np.nan), np.full(target.shape, np.nan)
        self.scored = len(target) == 0
        self.seconds, self._next = 0.0, 0

    def __call__(self, block: Block) -> None:
        self.seconds += block.seconds
        part = slice(self._next, self._next + len(block.forecasts))
        self._next, self.scored = part.stop, True
        y = self.target[part]
        self.pit[part] = scores.pit_values(block.forecasts, y)
        if not self.pit_only:
            self.log_scores[part] = scores.log_scores(block.forecasts, y)
            self.crps[part] = scores.crps_scores(block.forecasts, y)
