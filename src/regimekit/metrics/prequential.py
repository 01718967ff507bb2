"""The honest run: every forecast is made before its observation, and stands beside trivial ones.

for each t:   forecast y_t from y_1 .. y_{t-1};   score it;   learn y_t
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regimekit.core.exceptions import RegimekitError, numbers, whole
from regimekit.core.model import Model
from regimekit.core.recorder import Recorder
from regimekit.distributions.forecast import Forecast
from regimekit.metrics import scores, segmentation
from regimekit.preprocessing.frames import Series, Table, read_series, read_table
from regimekit.results import Run

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Prequential:
    """A scored run.

    Attributes:
        run: what the model said and did, one row per observation.
        target: (T, d) values the forecasts are scored against.
        log_scores: (T,) log density of the target.
        crps: (T, d) continuous ranked probability scores.
        pit: (T, d) probability integral transforms.
        trivial: forecasts (T, d) of the trivial forecasters, by name.
        seconds: time the model took for all observations, forecasts and learning.
        skip: observations at the start that are not scored.
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
        """Every score by name; `rmse_last_value` is the RMSE of the forecaster `last_value`.

        `pit_distance` is the Kolmogorov-Smirnov distance of the PIT from the uniform law;
        `n_regimes` and `switches` are of the run's `path`.
        """
        part = slice(self.skip, None)
        run, y = self.run, self.target[part]
        mean, lower, upper = (scores.as_rows(a)[part] for a in (run.mean, run.lower, run.upper))
        table = {
            "rmse": scores.rmse(y, mean),
            "mae": scores.mae(y, mean),
            "log_score": _mean(self.log_scores[part]),
            "crps": _mean(self.crps[part]),
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
        """Share of the PIT values in each of `bins` equal bins; 1 / bins each if calibrated."""
        values = self.pit[self.skip :]
        values = values[~np.isnan(values)]
        counts = np.histogram(values, bins=whole("bins", bins), range=(0.0, 1.0))[0]
        return np.asarray(counts / max(values.size, 1))


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
    """Run `model` along a stream and score each forecast made before its observation.

    The model learns, as in `model.run`. Beside it stand the last value, the running mean
    and, with `period`, the value one period ago, computed from the same stream and scored on the
    same observations; before they have seen anything they borrow the model's forecast.

    Args:
        model: any online model.
        y: observations (T,) or (T, d); NaN is not observed and not scored.
        X: covariates, one row per observation.
        clean: values to score against instead of y: the stream before contamination.
        period: length of a season, for the seasonal last value.
        skip: observations at the start that are learnt but not scored.
        level: probability of the interval whose coverage is reported.
        progress: show a progress bar.

    Example:
        >>> import regimekit as rk
        >>> from regimekit import data, evaluate
        >>> stream = data.regime_stream(seed=0, n=60)
        >>> result = evaluate.prequential(rk.make("ihmm", particles=5), stream.y)
        >>> sorted(result.trivial)
        ['last_value', 'running_mean']
    """
    series = read_series(y)
    table = read_table(X, length=len(series.values))
    target = _target(series.values, clean)
    if whole("skip", skip, 0) >= max(len(target), 1):
        raise RegimekitError(f"skip={skip} leaves nothing of {len(target)} observations to score.")
    record = _Record(target)
    if type(model).run is Model.run:
        run = _stream(model, series, table, record, level, progress)
    else:  # a model with a loop of its own shows its Run only
        begin = time.perf_counter()
        run = model.run(y, X, progress=progress, level=level)
        record.seconds = time.perf_counter() - begin
        record.unseen(run, scored_on_y=clean is None)
    trivial = trivial_forecasts(series.values, period, first=scores.as_rows(run.mean))
    return Prequential(run, target, *record.columns(), trivial, record.seconds, skip)


def run_with_pit(model: Model, y: Any, X: Any = None, level: float = 0.9) -> tuple[Run, Array]:
    """`model.run`, with the (T, d) probability integral transforms of its forecasts.

    They are NaN for a model with a loop of its own, which shows no forecasts.

    Example:
        >>> import regimekit as rk
        >>> run, pit = run_with_pit(rk.make("running_mean"), [1.0, 2.0, 3.0])
        >>> len(run), pit.shape, float(pit[1, 0]) > 0.5
        (3, (3, 1), True)
    """
    series = read_series(y)
    if type(model).run is not Model.run:
        return model.run(y, X, level=level), np.full(series.values.shape, np.nan)
    record = _Transforms(series.values)
    run = _stream(model, series, read_table(X, length=len(series.values)), record, level, False)
    return run, record.pit


def last_value(y: ArrayLike, period: int = 1) -> Array:
    """Forecast each observation by the one `period` before it (NaN where there is none).

    A value that was not observed is replaced by the forecast made for it; within the first
    period the forecast is the last value.

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
    """Forecast each observation by the mean of all before it (NaN where there is none).

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
    """The trivial forecasts of (T, d) observations; `first` fills in where they have none."""
    known = {"last_value": last_value(y), "running_mean": running_mean(y)}
    if period is not None:
        known["seasonal_last_value"] = last_value(y, period)
    return {name: np.where(np.isnan(f), first, f) for name, f in known.items()}


@dataclass
class _Record:
    """Scores of forecasts, taken in chunks so that no forecast is kept for long."""

    target: Array
    seconds: float = 0.0
    blocks: list[tuple[Array, Array, Array]] = field(default_factory=list)
    done: int = 0

    def add(self, forecasts: Sequence[Forecast]) -> None:
        y = self.target[self.done : self.done + len(forecasts)]
        self.done += len(forecasts)
        log_scores = scores.log_scores(forecasts, y)
        crps, pit = scores.crps_scores(forecasts, y), scores.pit_values(forecasts, y)
        self.blocks.append((log_scores, crps, pit))

    def unseen(self, run: Run, scored_on_y: bool) -> None:
        """Scores when only the Run is known: the log score at y, and no more."""
        empty = np.full(self.target.shape, np.nan)
        log_scores = run.log_score if scored_on_y else np.full(len(self.target), np.nan)
        self.blocks = [(log_scores, empty, empty.copy())]

    def columns(self) -> tuple[Array, Array, Array]:
        if not self.blocks:
            return np.zeros(0), np.zeros(self.target.shape), np.zeros(self.target.shape)
        log_scores, crps, pit = zip(*self.blocks, strict=True)
        return np.concatenate(log_scores), np.concatenate(crps), np.concatenate(pit)


class _Transforms:
    """The probability integral transforms alone."""

    def __init__(self, target: Array) -> None:
        self.target, self.pit = target, np.full(target.shape, np.nan)
        self.seconds, self.done = 0.0, 0

    def add(self, forecasts: Sequence[Forecast]) -> None:
        part = slice(self.done, self.done + len(forecasts))
        self.pit[part] = scores.pit_values(forecasts, self.target[part])
        self.done += len(forecasts)


def _stream(
    model: Model,
    series: Series,
    table: Table | None,
    record: _Record | _Transforms,
    level: float,
    progress: bool,
) -> Run:
    """`model.run`, with each forecast shown to `record` and only the model's work timed."""
    if not 0 < level < 1:
        raise RegimekitError(f"level must lie strictly between 0 and 1, got {level!r}.")
    rows = model._check_stream(series.values, table)
    recorder = Recorder(level)
    begin = time.perf_counter()
    for block in model._blocks(series.values, rows, progress):
        record.seconds += time.perf_counter() - begin
        record.add(block.forecasts)
        recorder.add(block)
        begin = time.perf_counter()
    run = recorder.run(series)
    model._note(run)
    return run


def _target(y: Array, clean: Any) -> Array:
    """What is scored against: y, or `clean` with y's shape."""
    if clean is None:
        return y
    target = read_series(clean).values
    if target.shape != y.shape:
        raise RegimekitError(f"clean has shape {target.shape} but y has {y.shape}.")
    return target


def _mean(values: Array) -> float:
    seen = values[~np.isnan(values)]
    return float(seen.mean()) if seen.size else float("nan")
