"""Forecasts of many series in the long format of Nixtla: `unique_id, ds, y, covariates`.

`forecast` continues every series. `cross_validation` passes over every series once and forecasts
at each cutoff, so no model is refitted. `anomaly_scores` scores every value. Frames of
any library supported by narwhals are accepted, and results have the same type.

Example:
    >>> import pandas as pd
    >>> from regimekit.integrations import nixtla
    >>> frame = pd.DataFrame({"unique_id": "a", "ds": range(30), "y": [0.0, 0.1, -0.1] * 10})
    >>> ahead = nixtla.forecast(frame, h=2, model="br_ihmm", level=[90])
    >>> list(ahead.columns), ahead["ds"].tolist()
    (['unique_id', 'ds', 'regimekit', 'regimekit-lo-90', 'regimekit-hi-90'], [30, 31])
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

import regimekit as rk
from regimekit.core.exceptions import RegimekitError, whole
from regimekit.core.model import Model
from regimekit.integrations._common import make_model
from regimekit.preprocessing.time_index import find_frequency

Frame = nw.DataFrame[Any]
_KEY_COLUMNS = ("unique_id", "ds", "y")
_MODEL_COLUMN = "regimekit"


class _Task(NamedTuple):
    """Arguments that apply to every series."""

    h: int
    model: str | None
    settings: Mapping[str, Any] | None
    level: Sequence[float]
    columns: list[str]

    def make_model(self, part: Frame) -> Model:
        times = part["ds"].to_list()
        return make_model(self.model, self.settings, covariates=bool(self.columns), times=times)

    def covariates(self, part: Frame) -> Any:
        return part.select(self.columns).to_numpy() if self.columns else None


def forecast(
    df: Any,
    h: int,
    *,
    X_df: Any = None,
    model: str | None = None,
    settings: Mapping[str, Any] | None = None,
    level: Sequence[float] = (),
) -> Any:
    """Forecast the next `h` values of every series.

    Args:
        df: one row per series and time; columns other than `unique_id, ds, y` are covariates.
        h: number of steps ahead.
        X_df: `unique_id, ds` and the covariates of the `h` steps; required if `df` has
            covariates. Without it, `ds` continues at its frequency (hours, business days, ...).
        model: name of a regimekit model; None selects the default model.
        settings: settings of the model.
        level: nominal coverage of central intervals in percent, for example `[80, 95]`.

    Returns:
        A frame with `unique_id`, `ds`, `regimekit` (the mean) and, per level, `regimekit-lo-80`,
        `regimekit-hi-80`; `h` rows per series.

    Raises:
        RegimekitError: if a column, `X_df` or a row of `X_df` is missing.
    """
    frame = _from_native(df, _KEY_COLUMNS)
    task = _Task(whole("h", h), model, settings, level, _covariates(frame))
    future = None if X_df is None else _from_native(X_df, _KEY_COLUMNS[:2])
    if task.columns and future is None:
        raise RegimekitError(
            f"X_df is required, because df has covariates: {', '.join(task.columns)}."
        )
    parts = []
    for (key,), part in frame.group_by("unique_id"):
        fitted = task.make_model(part)
        fitted.run(part["y"].to_numpy(), task.covariates(part))
        rows = None if future is None else future.filter(nw.col("unique_id") == key)
        if rows is not None and len(rows) != h:
            raise RegimekitError(f"X_df must have h={h} rows of series {key!r}, got {len(rows)}.")
        stamps = _next_times(part["ds"].to_numpy(), h) if rows is None else rows["ds"].to_numpy()
        ahead = fitted.forecast(h, X=None if rows is None else task.covariates(rows))
        parts.append({"unique_id": [key] * h, "ds": stamps, **_columns(ahead, level)})
    return _concatenate(parts, frame)


def cross_validation(
    df: Any,
    h: int,
    *,
    n_windows: int = 1,
    step_size: int = 1,
    model: str | None = None,
    settings: Mapping[str, Any] | None = None,
    level: Sequence[float] = (),
) -> Any:
    """Forecast the last windows of every series in one pass.

    Args:
        df: as in `forecast`.
        h: number of steps per window.
        n_windows: number of windows; the last one ends with the series.
        step_size: observations between the cutoffs of two windows.
        model: as in `forecast`.
        settings: as in `forecast`.
        level: as in `forecast`.

    Returns:
        A frame with `unique_id`, `ds`, `cutoff`, `y` and the columns of `forecast`.

    Raises:
        RegimekitError: if a series is too short for the windows.
    """
    frame = _from_native(df, _KEY_COLUMNS)
    task = _Task(whole("h", h), model, settings, level, _covariates(frame))
    span = h + whole("step_size", step_size) * (whole("n_windows", n_windows) - 1)
    parts: list[dict[str, Any]] = []
    for (key,), part in frame.group_by("unique_id"):
        if len(part) <= span:
            raise RegimekitError(
                f"Series {key!r} must have at least {span + 1} rows, got {len(part)}."
            )
        cutoffs = range(len(part) - span, len(part) - h + 1, step_size)
        parts += [{"unique_id": [key] * h, **window} for window in _windows(part, task, cutoffs)]
    return _concatenate(parts, frame)


def anomaly_scores(
    df: Any, *, model: str | None = None, settings: Mapping[str, Any] | None = None
) -> Any:
    """Score every value under the forecast made before it, one pass per series.

    Args:
        df: as in `forecast`.
        model: as in `forecast`.
        settings: as in `forecast`.

    Returns:
        A frame with `unique_id`, `ds`, `y`, `anomaly_score` in [0, 1] (see `Step`; NaN for a
        missing value) and `regime`, the regime as it was known then; one row per row of `df`.

    Raises:
        RegimekitError: if a column is missing.
    """
    frame = _from_native(df, _KEY_COLUMNS)
    task = _Task(1, model, settings, (), _covariates(frame))
    parts = []
    for (key,), part in frame.group_by("unique_id"):
        run = task.make_model(part).run(part["y"].to_numpy(), task.covariates(part))
        columns = {name: part[name].to_numpy() for name in _KEY_COLUMNS[1:]}
        columns |= {"anomaly_score": run.anomaly_score, "regime": run.regime}
        parts.append({"unique_id": [key] * len(part), **columns})
    return _concatenate(parts, frame)


def _windows(part: Frame, task: _Task, cutoffs: range) -> Iterator[dict[str, Any]]:
    """Update one model up to each cutoff and forecast from there."""
    model, done = task.make_model(part), 0
    y, stamps, X = part["y"].to_numpy(), part["ds"].to_numpy(), task.covariates(part)
    for cutoff in cutoffs:
        model.run(y[done:cutoff], None if X is None else X[done:cutoff])
        done, window = cutoff, slice(cutoff, cutoff + task.h)
        ahead = model.forecast(task.h, X=None if X is None else X[window])
        known = {"ds": stamps[window], "cutoff": np.repeat(stamps[cutoff - 1 : cutoff], task.h)}
        yield known | {"y": y[window]} | _columns(ahead, task.level)


def _covariates(frame: Frame) -> list[str]:
    return [name for name in frame.columns if name not in _KEY_COLUMNS]


def _from_native(df: Any, needed: Sequence[str]) -> Frame:
    frame: Frame = nw.from_native(df, eager_only=True)
    if absent := [name for name in needed if name not in frame.columns]:
        raise RegimekitError(f"The frame must have a column {absent[0]!r}, got {frame.columns}.")
    return frame.sort("unique_id", "ds")


def _next_times(stamps: np.ndarray, h: int) -> np.ndarray:
    """Return the `h` times after the last, at the frequency of the series or its last step."""
    if len(stamps) < 2:
        raise RegimekitError(
            "A series must have at least 2 rows to determine its frequency, got 1."
        )
    if np.issubdtype(stamps.dtype, np.datetime64):
        dates = stamps.astype("datetime64[us]").tolist()
        if (frequency := find_frequency(dates)) is not None:
            ahead = [frequency.after(dates[-1], step) for step in range(1, h + 1)]
            return np.array(ahead, dtype="datetime64[us]").astype(stamps.dtype)
    return np.asarray(stamps[-1] + (stamps[-1] - stamps[-2]) * np.arange(1, h + 1))


def _columns(ahead: Sequence[rk.Forecast], level: Sequence[float]) -> dict[str, Any]:
    columns = {_MODEL_COLUMN: np.array([step.mean for step in ahead])}
    for percent in level:
        ends = np.array([step.interval(percent / 100) for step in ahead])
        columns[f"{_MODEL_COLUMN}-lo-{percent}"], columns[f"{_MODEL_COLUMN}-hi-{percent}"] = ends.T
    return columns


def _concatenate(parts: list[dict[str, Any]], frame: Frame) -> Any:
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = [name for name in ("unique_id", "cutoff", "ds") if name in columns]
    return nw.from_dict(columns, backend=frame.implementation).sort(*order).to_native()
