"""Many series in one long frame, as Nixtla's libraries hold them: `unique_id, ds, y, covariates`.

`forecast` continues every series; `cross_validation` follows every series once and forecasts at
each cutoff on the way: no model is fitted twice. Frames of any library go in and come back.

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
from regimekit.integrations.making import fresh
from regimekit.preprocessing.time_index import find_frequency

Frame = nw.DataFrame[Any]
KEYS = ("unique_id", "ds", "y")
NAME = "regimekit"


class _Task(NamedTuple):  # what is asked of every series
    h: int
    model: str | None
    settings: Mapping[str, Any] | None
    level: Sequence[float]
    columns: list[str]

    def start(self, part: Frame) -> Model:
        times = part["ds"].to_list()
        return fresh(self.model, self.settings, covariates=bool(self.columns), times=times)

    def table(self, part: Frame) -> Any:
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
    """The next `h` values of every series.

    Args:
        df: one row per series and time; other columns than `unique_id, ds, y` are covariates.
        h: how many steps ahead.
        X_df: `unique_id, ds` and the covariates of those steps, if `df` has covariates. Without
            it `ds` goes on in its usual step: hours, days without weekends, months, ..
        model, settings: a regimekit model by name, the default one if not given.
        level: percentages of central intervals, as in `[80, 95]`.
    """
    frame = _read(df, KEYS)
    task = _Task(whole("h", h), model, settings, level, _covariates(frame))
    future = None if X_df is None else _read(X_df, KEYS[:2])
    if task.columns and future is None:
        raise RegimekitError(f"X_df is missing; df has the covariates {', '.join(task.columns)}.")
    parts = []
    for (key,), part in frame.group_by("unique_id"):
        fitted = task.start(part)
        fitted.run(part["y"].to_numpy(), task.table(part))
        rows = None if future is None else future.filter(nw.col("unique_id") == key)
        if rows is not None and len(rows) != h:
            raise RegimekitError(f"X_df has {len(rows)} rows of series {key!r}; h={h} are needed.")
        stamps = _next(part["ds"].to_numpy(), h) if rows is None else rows["ds"].to_numpy()
        ahead = fitted.forecast(h, X=None if rows is None else task.table(rows))
        parts.append({"unique_id": [key] * h, "ds": stamps, **_columns(ahead, level)})
    return _joined(parts, frame)


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
    """Forecasts of every series' last windows beside what came, in one pass; else as `forecast`."""
    frame = _read(df, KEYS)
    task = _Task(whole("h", h), model, settings, level, _covariates(frame))
    span = h + whole("step_size", step_size) * (whole("n_windows", n_windows) - 1)
    parts: list[dict[str, Any]] = []
    for (key,), part in frame.group_by("unique_id"):
        if len(part) <= span:
            raise RegimekitError(f"Series {key!r} has {len(part)} rows; {span + 1} are needed.")
        cutoffs = range(len(part) - span, len(part) - h + 1, step_size)
        parts += [{"unique_id": [key] * h, **window} for window in _windows(part, task, cutoffs)]
    return _joined(parts, frame)


def _windows(part: Frame, task: _Task, cutoffs: range) -> Iterator[dict[str, Any]]:
    """Follow a series to each cutoff in turn and forecast from there."""
    running, done = task.start(part), 0
    y, stamps, X = part["y"].to_numpy(), part["ds"].to_numpy(), task.table(part)
    for cutoff in cutoffs:
        running.run(y[done:cutoff], None if X is None else X[done:cutoff])
        done, window = cutoff, slice(cutoff, cutoff + task.h)
        ahead = running.forecast(task.h, X=None if X is None else X[window])
        known = {"ds": stamps[window], "cutoff": np.repeat(stamps[cutoff - 1 : cutoff], task.h)}
        yield known | {"y": y[window]} | _columns(ahead, task.level)


def _covariates(frame: Frame) -> list[str]:
    return [name for name in frame.columns if name not in KEYS]


def _read(df: Any, needed: Sequence[str]) -> Frame:
    frame: Frame = nw.from_native(df, eager_only=True)
    if absent := [name for name in needed if name not in frame.columns]:
        raise RegimekitError(f"The frame has no column {absent[0]!r}; it has {frame.columns}.")
    return frame.sort("unique_id", "ds")


def _next(stamps: np.ndarray, h: int) -> np.ndarray:
    """The `h` stamps after the last: at the usual step if dates have one, else at the latest."""
    if len(stamps) < 2:
        raise RegimekitError("A series of one row does not say how far its steps are apart.")
    if np.issubdtype(stamps.dtype, np.datetime64):
        dates = stamps.astype("datetime64[us]").tolist()
        if (frequency := find_frequency(dates)) is not None:
            ahead = [frequency.after(dates[-1], step) for step in range(1, h + 1)]
            return np.array(ahead, dtype="datetime64[us]").astype(stamps.dtype)
    return np.asarray(stamps[-1] + (stamps[-1] - stamps[-2]) * np.arange(1, h + 1))


def _columns(ahead: Sequence[rk.Forecast], level: Sequence[float]) -> dict[str, Any]:
    columns = {NAME: np.array([step.mean for step in ahead])}
    for percent in level:
        ends = np.array([step.interval(percent / 100) for step in ahead])
        columns[f"{NAME}-lo-{percent}"], columns[f"{NAME}-hi-{percent}"] = ends.T
    return columns


def _joined(parts: list[dict[str, Any]], like: Frame) -> Any:
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = [name for name in ("unique_id", "cutoff", "ds") if name in columns]
    return nw.from_dict(columns, backend=like.implementation).sort(*order).to_native()
