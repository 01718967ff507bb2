"""Rolling-origin evaluation: forecast several steps ahead, move on, forecast again.

for each origin:   update with y_1 .. y_origin;   forecast the next `horizon` observations;   score

The model is updated along the stream and never refitted, so a backtest costs one run plus one
forecast per origin. The last value and the value one season before are scored on the same
observations.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from regimekit.core import display
from regimekit.core.exceptions import RegimekitError, whole
from regimekit.core.model import Model
from regimekit.core.recorder import Recorder
from regimekit.distributions.forecast import Forecast, Forecasts
from regimekit.metrics.scores import as_rows, nan_mean
from regimekit.preprocessing.alignment import read_stream
from regimekit.preprocessing.frames import Series, Table, take
from regimekit.preprocessing.time_index import dates_of_labels, find_frequency
from regimekit.results import labelled

Array = NDArray[np.float64]
Rows = TypeVar("Rows", Series, Table)
_FORECAST_COLUMNS = ("mean", "median", "lower", "upper", "sd", "crps", "pit")
_SAMPLE_LABELS = 200  # labels from which the season of the reference forecaster is inferred


@dataclass(frozen=True, eq=False)
class Backtest:
    """Forecasts of a backtest beside what was observed: N = origins x horizon rows.

    Values are in the units of y, with shape (N,) for d = 1 and (N, d) otherwise. A missing
    observation has NaN as `y` and is not scored.

    Attributes:
        origin: (N,) number of observations that were known when the forecast was made.
        step: (N,) steps ahead, from 1 to `horizon`.
        time: (N,) labels of the forecast observations, or None if the stream has none.
        y: what was observed.
        mean: mean of the forecast.
        median: median of the forecast.
        lower: lower limit of the interval.
        upper: upper limit of the interval.
        sd: standard deviation of the forecast.
        crps: continuous ranked probability score.
        pit: probability of values below y.
        log_score: (N,) log density of y.
        references: forecasts of the reference forecasters, by name.
        level: probability of the interval `lower` .. `upper`.
        seconds: time spent in the model.
        native: data-frame library of the caller, or None.
    """

    origin: NDArray[np.int64]
    step: NDArray[np.int64]
    time: Any
    y: Array
    mean: Array
    median: Array
    lower: Array
    upper: Array
    sd: Array
    crps: Array
    pit: Array
    log_score: Array
    references: dict[str, Array]
    level: float
    seconds: float
    native: Any = None

    def __len__(self) -> int:
        return len(self.step)

    def __getitem__(self, column: str) -> NDArray[Any]:
        """Return a column of `columns()` by name."""
        return self.columns()[column]

    @property
    def origins(self) -> list[int]:
        """The origins, in order."""
        return [int(origin) for origin in np.unique(self.origin)]

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the rows as named columns of length N (`mean_0`, `mean_1`, .. for d > 1)."""
        table: dict[str, NDArray[Any]] = {"origin": self.origin, "step": self.step}
        if self.time is not None:
            table["time"] = self.time
        wide = {"y": self.y} | {name: getattr(self, name) for name in _FORECAST_COLUMNS}
        for name, values in (wide | self.references).items():
            if values.ndim == 1:
                table[name] = values
            else:
                table |= {f"{name}_{j}": values[:, j] for j in range(values.shape[1])}
        return table | {"log_score": self.log_score}

    def frame(self) -> Any:
        """Return the rows as a frame of the caller's library (pandas for arrays)."""
        return labelled(self.columns(), self.native, None)

    def scores(self, by: str | None = None) -> Any:
        """Return the scores, averaged over all observed rows or per group.

        Args:
            by: None for all rows, "step" for each number of steps ahead, or "origin".

        Returns:
            A dict with `n`, `rmse`, `mae` (of the mean), `crps`, `log_score`, `coverage`, `width`
            (mean width of the interval), and `rmse_<name>`, `mae_<name>` of each reference
            forecaster. With `by`, a data frame of these, one row per group.

        Raises:
            RegimekitError: if `by` is not known.
        """
        if by is None:
            return self.scores_of(np.ones(len(self), dtype=bool))
        if by not in ("step", "origin"):
            raise RegimekitError(f'by must be "step", "origin" or None, got {by!r}.')
        group = self.step if by == "step" else self.origin
        rows = [{by: int(key)} | self.scores_of(group == key) for key in np.unique(group)]
        columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        return labelled(columns, self.native, None)

    def plot(self, ax: Any = None) -> Any:
        """Draw the mean absolute error by steps ahead. Needs matplotlib.

        Args:
            ax: axes to draw into; a new figure if not given.

        Returns:
            The axes.
        """
        from importlib import import_module

        return import_module("regimekit.plotting").plot_backtest(self, ax=ax)

    def __repr__(self) -> str:
        found = self.scores()
        origins = display.count(len(self.origins), "origin")
        steps = display.count(int(self.step.max()), "step")
        against = ", ".join(
            f"{name.replace('_', ' ')} {display.number(found[f'mae_{name}'])}"
            for name in self.references
        )
        return (
            f"Backtest({origins}, {steps} ahead: MAE {display.number(found['mae'])} ({against}), "
            f"CRPS {display.number(found['crps'])}, {self.level:.0%} intervals covered "
            f"{found['coverage']:.0%})"
        )

    def scores_of(self, rows: NDArray[np.bool_]) -> dict[str, float]:
        """Return the scores of some rows, by name as in `scores`.

        Args:
            rows: (N,) which rows.
        """
        y = self.y[rows]
        inside = (y >= self.lower[rows]) & (y <= self.upper[rows])
        table = {
            "n": float((~np.isnan(y)).sum()),
            "rmse": _root_mean_square(self.mean[rows] - y),
            "mae": nan_mean(np.abs(self.mean[rows] - y)),
            "crps": nan_mean(self.crps[rows]),
            "log_score": nan_mean(self.log_score[rows]),
            "coverage": nan_mean(np.where(np.isnan(y), np.nan, inside)),
            "width": nan_mean(self.upper[rows] - self.lower[rows]),
        }
        for name, forecast in self.references.items():
            table[f"rmse_{name}"] = _root_mean_square(forecast[rows] - y)
            table[f"mae_{name}"] = nan_mean(np.abs(forecast[rows] - y))
        return table


def backtest(
    model: Model,
    y: Any,
    X: Any = None,
    *,
    horizon: int = 24,
    step: int = 24,
    start: int | None = None,
    level: float = 0.9,
    period: int | None = None,
    progress: bool = False,
) -> Backtest:
    """Forecast `horizon` steps ahead from every `step`-th observation, and score the forecasts.

    A copy of the model is used; the model itself is unchanged. Covariates of the forecast steps
    are taken from X: they count as known in advance.

    Args:
        model: any model with `forecast`.
        y: observations (T,) or (T, d): array, list, series or frame. NaN is not scored.
        X: covariates, one row per observation.
        horizon: steps to forecast from each origin.
        step: observations between two origins.
        start: observations before the first origin; half of the stream by default.
        level: probability of the interval `lower` .. `upper`.
        period: season length in observations of the seasonal last value. By default that of the
            dates of y; without dates there is no seasonal last value.
        progress: show a progress bar.

    Returns:
        One row per origin and step, with `.scores()` and `.frame()`.

    Raises:
        RegimekitError: if the stream is too short for one origin, or the model makes no forecasts
            of several steps.

    Example:
        >>> import regimekit as rk
        >>> done = rk.metrics.backtest(rk.make("last_value"), range(60), horizon=2, step=10)
        >>> len(done), done.origins, done.scores()["mae"]
        (6, [30, 40, 50], 1.5)
    """
    twin = model.copy()
    series, table, _ = read_stream(y, X, twin._warned)
    origins = _origins(len(series.values), whole("horizon", horizon), whole("step", step), start)
    if period is None:
        labels = [] if series.index is None else series.index[:_SAMPLE_LABELS]
        frequency = find_frequency(dates_of_labels(labels))
        period = frequency.season if frequency else None
    begin = time.perf_counter()
    stages = _stages(twin, series, table, origins, horizon)
    if progress:
        from rich.progress import track

        stages = iter(track(stages, description="origins", total=len(origins)))
    forecasts = [forecast for stage in stages for forecast in stage]
    seconds = time.perf_counter() - begin
    return _collect(forecasts, series, origins, horizon, level, period, seconds)


def _origins(n: int, horizon: int, step: int, start: int | None) -> list[int]:
    first = n // 2 if start is None else whole("start", start)
    found = list(range(max(first, 1), n - horizon + 1, step))
    if not found:
        raise RegimekitError(
            f"A backtest with start={first} and horizon={horizon} needs at least "
            f"{first + horizon} observations, got {n}. Choose a smaller start or horizon."
        )
    return found


def _stages(
    model: Model, series: Series, table: Table | None, origins: list[int], horizon: int
) -> Iterator[list[Forecast]]:
    """Update the model up to each origin and yield its forecasts."""
    known = 0
    for origin in origins:
        part = slice(known, origin)
        covariates = None if table is None else _rows(table, part)
        model._run(_rows(series, part), covariates, Recorder(0.9), False, ())
        ahead = slice(origin, origin + horizon)
        yield list(model.forecast(horizon, None if table is None else _rows(table, ahead)))
        known = origin


def _collect(
    forecasts: list[Forecast],
    series: Series,
    origins: list[int],
    horizon: int,
    level: float,
    period: int | None,
    seconds: float,
) -> Backtest:
    if not 0 < level < 1:
        raise RegimekitError(f"level must lie strictly between 0 and 1, got {level!r}.")
    origin = np.repeat(np.array(origins), horizon)
    step = np.tile(np.arange(1, horizon + 1), len(origins))
    target = origin + step - 1
    y, dim = series.values[target], series.values.shape[1]
    stack = Forecasts.stack(forecasts)
    ends = ((1 - level) / 2, 0.5, (1 + level) / 2)
    mean, sd = stack.moments()
    lower, median, upper = stack.quantiles(ends)
    references = _references(series.values, origin, step, period)
    wide = {
        "y": y,
        "mean": mean,
        "median": median,
        "lower": lower,
        "upper": upper,
        "sd": sd,
        "crps": stack.crps(y),
        "pit": stack.cdf(y),
    }

    def squeeze(values: Array) -> Array:
        return values[:, 0] if dim == 1 else values

    return Backtest(
        origin=origin,
        step=step,
        time=None if series.index is None else take(series.index, target),
        **{name: squeeze(values) for name, values in wide.items()},
        log_score=stack.log_density(y),
        references={name: squeeze(values) for name, values in references.items()},
        level=level,
        seconds=seconds,
        native=series.backend,
    )


def _references(
    y: Array, origin: NDArray[np.int64], step: NDArray[np.int64], period: int | None
) -> dict[str, Array]:
    """Return (N, d) forecasts of the last value and of the value one season before."""
    known = _carried_forward(as_rows(y))
    found = {"last_value": known[origin - 1]}
    if period is not None:
        before = origin - whole("period", period) + (step - 1) % period
        # Before a whole season is known, the last value is used.
        found["seasonal_last_value"] = known[np.where(before >= 0, before, origin - 1)]
    return found


def _carried_forward(y: Array) -> Array:
    """Replace missing values by the value before."""
    known = np.where(np.isnan(y), 0, np.arange(len(y))[:, None])
    return np.take_along_axis(y, np.maximum.accumulate(known, axis=0), axis=0)


def _rows(table: Rows, part: slice) -> Rows:
    index = None if table.index is None else table.index[part]
    return table._replace(values=table.values[part], index=index)


def _root_mean_square(errors: Array) -> float:
    return float(np.sqrt(nan_mean(errors**2)))
