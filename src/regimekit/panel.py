"""Run one model per series of a long table.

The seed of a series depends only on the caller's seed and on the key of the series. Results
therefore do not depend on the number of jobs, on the order of the series, or on which other
series the table contains.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import Any, NamedTuple, cast

import numpy as np

from regimekit.core.exceptions import RegimekitError, unknown, whole
from regimekit.core.model import Model
from regimekit.core.registry import DEFAULT_MODEL, REGISTRY, from_bytes, make
from regimekit.io import cell_parsing as cells
from regimekit.io.columns import (
    FORECAST_COLUMNS,
    Columns,
    event_columns,
    forecast_columns,
    regime_columns,
    run_columns,
)
from regimekit.io.layout import Layout
from regimekit.io.observations import ObservationReader
from regimekit.io.reader import Row
from regimekit.metrics.prequential import RunningScores
from regimekit.preprocessing.frames import Table
from regimekit.preprocessing.time_column import TimeColumn
from regimekit.preprocessing.time_index import find_frequency, instant, seasons_of

_SAMPLE_TIMES = 1000  # times of a frame from which their format is detected


class PanelSettings(NamedTuple):
    """Settings that apply to every series.

    Attributes:
        model: name of the model.
        settings: settings of the model.
        seed: seed from which the seeds of the series are derived.
        level: probability of the intervals.
        horizon: steps to forecast after the last observation.
        season: season length of the seasonal last value in the scores, in steps.
        skip: first observations that are not scored.
    """

    model: str
    settings: Mapping[str, Any]
    seed: int = 0
    level: float = 0.9
    horizon: int = 0
    season: int | None = None
    skip: int = 0


class SeriesTask(NamedTuple):
    """One series to run.

    Attributes:
        key: name of the series.
        rows: its rows, with cells in the order of `layout.used`.
        layout: columns and their notation.
        future: covariates of the forecast steps.
    """

    key: Any
    rows: Sequence[Row]
    layout: Layout
    future: Table | None = None


@dataclass
class SeriesResult:
    """Result of one series; if `error` is set, the other fields are empty."""

    key: Any
    error: str = ""
    run: Columns = field(default_factory=dict)
    has_row: list[bool] = field(default_factory=list)
    events: Columns = field(default_factory=dict)
    forecasts: Columns = field(default_factory=dict)
    regimes: Columns = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    model: bytes = b""


@dataclass(frozen=True, eq=False)
class PanelRun:
    """Result of `run_many`: data frames of the caller's library.

    Attributes:
        frame: one row per input row, series by series in the order of time. Of rows with the same
            key and time, only the first is included.
        events: regime changes and outliers, with the time at which they were known.
        forecasts: the next `horizon` steps of every series; empty for horizon 0.
        scores: errors of every series, beside those of the last value.
        errors: message by key, for the series that failed.
        snapshots: models after the last observation, as bytes by key; see `model`.
        by: name of the key column.
        time: name of the time column, or None.
    """

    frame: Any
    events: Any
    forecasts: Any
    scores: Any
    errors: dict[Any, str]
    snapshots: dict[Any, bytes] = field(default_factory=dict)
    by: str = "unique_id"
    time: str | None = None
    native: Any = None

    def model(self, key: Any) -> Model:
        """Return the model of a series after its last observation.

        Raises:
            RegimekitError: if the series is not known or has failed.
        """
        if key not in self.snapshots:
            raise unknown("key", key, [str(known) for known in self.snapshots])
        return from_bytes(self.snapshots[key])

    def forecast(self, horizon: int, level: float = 0.9) -> Any:
        """Forecast the next steps of every series; the models do not change.

        Args:
            horizon: number of steps.
            level: probability of the interval `lower` .. `upper`.

        Returns:
            A frame like `forecasts`.

        Raises:
            RegimekitError: if the models need covariates; call `model(key).forecast(horizon, X)`.
        """
        parts = []
        for key in self.snapshots:
            columns = forecast_columns(self.model(key).forecast(horizon), level)
            parts.append((key, _rename_time(columns, self.time)))
        return _stack(parts, self.by, self.native)


def run_many(
    frame: Any,
    by: str = "unique_id",
    time: str | None = "ds",
    target: str = "y",
    model: str = DEFAULT_MODEL,
    *,
    columns: Sequence[str] = (),
    settings: Mapping[str, Any] | None = None,
    jobs: int = 1,
    seed: int = 0,
    level: float = 0.9,
    horizon: int = 0,
    future: Any = None,
    season: int | None = None,
    progress: bool = False,
) -> PanelRun:
    """Run one model per series of a long table.

    If a series fails, its message is in `.errors` and the other series are not affected. Gaps in
    the times of a series are missing observations.

    Args:
        frame: data frame of any library, one row per series and time.
        by: column with the key of the series.
        time: column with the times, or None if rows are in order.
        target: column to forecast; missing values are not observed.
        model: name of the model, see `regimekit.models()`.
        columns: covariates.
        settings: settings of the model, the same for all series.
        jobs: number of threads, each with one series at a time; -1 for one per core.
        seed: seed of everything random.
        level: probability of the interval `lower` .. `upper`.
        horizon: steps to forecast after the last observation of every series.
        future: data frame with the keys and covariates of these steps, if `columns` are given.
        season: season length in steps, for the seasonal last value in `.scores`.
        progress: whether to show a progress bar.

    Returns:
        Frames of the caller's library, and the errors by key.

    Raises:
        RegimekitError: if an argument cannot be used.

    Example:
        >>> import pandas
        >>> import regimekit as rk
        >>> table = pandas.DataFrame({"unique_id": ["a"] * 8 + ["b"] * 8, "y": range(16)})
        >>> done = rk.run_many(table, time=None, model="last_value", horizon=2)
        >>> done.frame["mean"].tolist()[1:4], len(done.forecasts), done.errors
        ([0.0, 1.0, 2.0], 4, {})
    """
    if model not in REGISTRY:
        raise unknown("model", model, REGISTRY)
    if not 0 < level < 1:
        raise RegimekitError(f"level must be between 0 and 1, got {level!r}. Pass 0.9 for 90 %.")
    # Settings are checked here, so that a mistake is not reported once per series.
    make(model, **(settings or {}))
    chosen = PanelSettings(
        model,
        dict(settings or {}),
        whole("seed", seed, 0),
        level,
        whole("horizon", horizon, 0),
        season,
    )
    native, layout, tasks = _tasks_of_frame(frame, by, time, target, tuple(columns))
    if horizon and layout.columns:
        tasks = _with_future(tasks, future, by, layout, horizon)
    results: Iterable[SeriesResult] = run_tasks(tasks, chosen, jobs)
    if progress:
        from rich.progress import track

        results = track(results, description="series", total=len(tasks))
    return _collect(list(results), by, time, native)


def run_tasks(
    tasks: Iterable[SeriesTask], settings: PanelSettings, jobs: int = 1
) -> Iterator[SeriesResult]:
    """Run series and yield their results in the order of the tasks.

    Kernels release the GIL, so threads use all cores. If the caller has chosen a backend of joblib
    other than its default, such as a cluster, that backend is used.

    Args:
        tasks: series; they are taken as they are needed, so that few are in memory.
        settings: settings of all series.
        jobs: number of threads, each with one series at a time; -1 for one per core.
    """
    function = partial(run_series, settings=settings)
    if jobs != -1:
        whole("jobs", jobs)
    joblib: Any = sys.modules.get("joblib")
    backend = joblib and joblib.parallel.get_active_backend()[0]
    if jobs == 1:
        yield from map(function, tasks)
    elif backend is None or type(backend).__name__ == "LokyBackend":
        yield from _in_threads(function, tasks, os.cpu_count() or 1 if jobs == -1 else jobs)
    else:
        # Ray's backend cannot return results one by one.
        streams = getattr(backend, "supports_return_generator", False)
        pool = joblib.Parallel(
            n_jobs=jobs, return_as="generator" if streams else "list", pre_dispatch="2*n_jobs"
        )
        yield from pool(joblib.delayed(function)(task) for task in tasks)


def _in_threads(
    function: Callable[[SeriesTask], SeriesResult], tasks: Iterable[SeriesTask], jobs: int
) -> Iterator[SeriesResult]:
    """Yield results in the order of the tasks; at most two tasks per thread are in memory."""
    pool = ThreadPoolExecutor(jobs)
    waiting: deque[Future[SeriesResult]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(function, task))
            if len(waiting) >= 2 * jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def run_series(task: SeriesTask, settings: PanelSettings) -> SeriesResult:
    """Run one series; an error is returned as part of the result."""
    try:
        return _run_series(task, settings)
    except (RegimekitError, ArithmeticError, np.linalg.LinAlgError) as error:
        return SeriesResult(task.key, error=str(error))


def _run_series(task: SeriesTask, settings: PanelSettings) -> SeriesResult:
    layout, frequency = task.layout, None
    if layout.time is not None:
        position = layout.used.index(layout.time)
        frequency = find_frequency(layout.times([row[position] for row in task.rows]))
    reader = ObservationReader(layout, TimeColumn(frequency))
    block = reader.read_all([task.rows])
    if block is None:
        raise RegimekitError("The series has no rows.")
    chosen = dict(settings.settings)
    if "seed" in make(settings.model, **chosen).settings():
        chosen.setdefault("seed", seed_of(task.key, settings.seed))
    model = make_for_calendar(settings.model, chosen, seasons_of(frequency))
    run = model.run(block.y, block.X, level=settings.level)
    scores = RunningScores(settings.season, settings.skip)
    if REGISTRY[settings.model].online:
        scores.add(run)
    # The model is saved with its clock, so that later forecasts have their times.
    model.set_calendar(reader.time_column.last, frequency)
    ahead: Columns = {name: [] for name in FORECAST_COLUMNS}
    if settings.horizon:
        ahead = forecast_columns(model.forecast(settings.horizon, task.future), settings.level)
    return SeriesResult(
        task.key,
        run=run_columns(block, run),
        has_row=block.has_row.tolist(),
        events=event_columns(run.events, block.times),
        forecasts=ahead,
        regimes=regime_columns(model, block.times),
        scores=scores.table(),
        model=model.to_bytes(),
    )


def seed_of(key: Any, seed: int) -> int:
    """Derive the seed of a series from its key; the same on every machine.

    Example:
        >>> seed_of("shop 7", 0) == seed_of("shop 7", 0) != seed_of("shop 8", 0)
        True
    """
    digest = hashlib.sha256(f"{seed}|{key}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def with_seasons(model: str, settings: Mapping[str, Any], seasons: Sequence[int]) -> dict[str, Any]:
    """Add candidate seasons to the settings if the model detects seasons and none are set.

    Args:
        model: name of the model.
        settings: settings of the model.
        seasons: season lengths that the calendar suggests, in steps.

    Returns:
        The settings, with `seasons` if the model takes them.
    """
    free = not settings.get("features") and settings.get("seasons") is None
    if not seasons or not free:
        return dict(settings)
    takes_seasons = "seasons" in make(model, **settings).settings()
    return dict(settings) | ({"seasons": list(seasons)} if takes_seasons else {})


def make_for_calendar(model: str, settings: Mapping[str, Any], seasons: Sequence[int]) -> Model:
    """Return a new model that tries the seasons of the calendar, unless its settings name some.

    It warns of named seasons that it does not use, but not of those of the calendar.

    Args:
        model: name of the model.
        settings: settings of the model.
        seasons: season lengths that the calendar suggests, in steps.
    """
    made = make(model, **with_seasons(model, settings, seasons))
    if settings.get("seasons") is None and hasattr(made, "named_seasons"):
        cast(Any, made).named_seasons = ()
    return made


def _tasks_of_frame(
    frame: Any, by: str, time: str | None, target: str, columns: tuple[str, ...]
) -> tuple[Any, Layout, list[SeriesTask]]:
    """Return the library of a frame, the layout of its columns, and one task per series."""
    import narwhals as nw

    table = nw.from_native(frame, eager_only=True)
    named = [("by", by), ("time", time), ("target", target), *(("columns", c) for c in columns)]
    for argument, name in named:
        if name is not None and name not in table.columns:
            raise unknown(argument, name, table.columns)
    time_format = cells.ISO
    if time is not None:
        sample = table[time].head(_SAMPLE_TIMES).to_list()
        time_format = cells.detect_time_format(sample) or cells.NUMBER
    layout = Layout(target, time, time_format, columns)
    rows = _rows_by_key(table, by, layout.used)
    tasks = [SeriesTask(key, _sorted(found, layout), layout) for key, found in rows.items()]
    return table.implementation, layout, tasks


def _rows_by_key(table: Any, by: str, names: Sequence[str]) -> dict[Any, list[Row]]:
    """Return the cells of some columns by key."""
    found: dict[Any, list[Row]] = {}
    for key, *row in zip(*(table[name].to_list() for name in (by, *names)), strict=True):
        found.setdefault(key, []).append(tuple(row))
    return found


def _sorted(rows: list[Row], layout: Layout) -> list[Row]:
    """Sort rows by time; rows with a missing time are left to `ObservationReader` to refuse."""
    if layout.time is None:
        return rows
    position = layout.used.index(layout.time)
    if any(cells.is_missing(row[position]) for row in rows):
        return rows
    parse = layout.parse_time()
    return sorted(rows, key=lambda row: instant(parse(row[position])))


def _with_future(
    tasks: list[SeriesTask], future: Any, by: str, layout: Layout, horizon: int
) -> list[SeriesTask]:
    """Add the covariates of the forecast steps to the tasks."""
    if future is None:
        raise RegimekitError(
            "horizon with columns needs future: a frame with the covariates of these steps."
        )
    import narwhals as nw

    table = nw.from_native(future, eager_only=True)
    for name in (by, *layout.columns):
        if name not in table.columns:
            raise unknown("future", name, table.columns)
    values = _rows_by_key(table, by, layout.columns)
    completed = []
    for task in tasks:
        rows = values.get(task.key, [])
        if len(rows) < horizon:
            raise RegimekitError(
                f"future needs {horizon} rows for each series, got {len(rows)} for {task.key!r}."
            )
        covariates = Table(np.array(rows[:horizon], dtype=float), layout.columns)
        completed.append(task._replace(future=covariates))
    return completed


def _collect(results: list[SeriesResult], by: str, time: str | None, native: Any) -> PanelRun:
    good = [one for one in results if not one.error]
    # Observations that were inserted into gaps are left out.
    rows = (
        {name: list(compress(column, one.has_row)) for name, column in one.run.items()}
        for one in good
    )

    def stack(column_sets: Iterable[Columns]) -> Any:
        return _stack([(o.key, c) for o, c in zip(good, column_sets, strict=True)], by, native)

    return PanelRun(
        frame=stack(_rename_time(columns, time) for columns in rows),
        events=stack(o.events for o in good),
        forecasts=stack(_rename_time(o.forecasts, time) for o in good),
        scores=stack({n: [v] for n, v in o.scores.items()} for o in good),
        errors={one.key: one.error for one in results if one.error},
        snapshots={one.key: one.model for one in good},
        by=by,
        time=time,
        native=native,
    )


def _rename_time(columns: Columns, time: str | None) -> Columns:
    """Give the time column the caller's name; drop it if the caller has none."""
    if time is None:
        return {name: values for name, values in columns.items() if name != "time"}
    return {time if name == "time" else name: values for name, values in columns.items()}


def _stack(parts: list[tuple[Any, Columns]], by: str, native: Any) -> Any:
    """Concatenate the columns of several series into one frame that starts with the key."""
    import narwhals as nw

    names = list(dict.fromkeys(name for _, columns in parts for name in columns))
    table: Columns = {by: []} | {name: [] for name in names}
    for key, columns in parts:
        length = len(next(iter(columns.values()), []))
        table[by] += [key] * length
        for name in names:
            table[name] += columns.get(name, [None] * length)
    return nw.from_dict(table, backend=native).to_native()
