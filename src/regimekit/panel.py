"""Many series in one long table: each gets a model of its own, side by side in processes.

The seed of a series is drawn from the caller's seed and the series' key alone, so the result does
not depend on the number of workers, on the order of the series or on which of them are there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from regimekit.core.exceptions import RegimekitError, unknown, whole
from regimekit.core.registry import REGISTRY, make
from regimekit.io import cells
from regimekit.io.clock import Clock
from regimekit.io.columns import (
    Columns,
    event_columns,
    forecast_columns,
    regime_columns,
    run_columns,
)
from regimekit.io.layout import Layout
from regimekit.io.reading import Observation, Reading, as_block
from regimekit.io.source import Row
from regimekit.metrics.prequential import RunningScores
from regimekit.preprocessing.frames import Table
from regimekit.preprocessing.time_index import Frequency, find_frequency, seasons_of


class Recipe(NamedTuple):
    """What is done with every series."""

    model: str
    settings: Mapping[str, Any]
    seed: int = 0
    level: float = 0.9
    horizon: int = 0
    season: int | None = None
    skip: int = 0


class Task(NamedTuple):
    """One series: its key, its rows in the order of `layout.used`, covariates of the future."""

    key: Any
    rows: Sequence[Row]
    layout: Layout
    future: Table | None = None


@dataclass
class SeriesRun:
    """What came of one series; `error` says why there is nothing else."""

    key: Any
    error: str = ""
    run: Columns = field(default_factory=dict)
    has_row: list[bool] = field(default_factory=list)
    events: Columns = field(default_factory=dict)
    forecasts: Columns = field(default_factory=dict)
    regimes: Columns = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    model: bytes = b""


@dataclass(frozen=True, eq=False)
class Many:
    """What `run_many` gives: frames of the caller's library, and the series that failed.

    Attributes:
        frame: one row per row of the input, series by series and in the order of time; of rows
            with the same key and time, the first.
        events: what became known, and when.
        forecasts: the next `horizon` steps of every series; empty for horizon 0.
        scores: errors of every series beside the last value's.
        errors: why, by key, for the series that could not be run.
    """

    frame: Any
    events: Any
    forecasts: Any
    scores: Any
    errors: dict[Any, str]


def default_model() -> str:
    """The model that needs no settings."""
    return "auto" if "auto" in REGISTRY else "student_t_ihmm"


def seed_of(key: Any, seed: int) -> int:
    """A seed that depends on the key and on `seed`, the same on every machine.

    Example:
        >>> seed_of("shop 7", 0) == seed_of("shop 7", 0) != seed_of("shop 8", 0)
        True
    """
    digest = hashlib.sha256(f"{seed}|{key}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def run_many(
    frame: Any,
    by: str = "unique_id",
    time: str | None = "ds",
    target: str = "y",
    model: str = "auto",
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
) -> Many:
    """Run a model along every series of a long table.

    A series that cannot be run is left out and its reason is in `.errors`; the others are not
    disturbed. Gaps in the times of a series are learnt as missing observations.

    Args:
        frame: a data frame of any library, one row per series and time.
        by: column with the key of the series.
        time: column with the times, or None for rows in order.
        target: column to forecast; missing values are not observed.
        model: by name, see `regimekit.core.models()`.
        columns: covariates.
        settings: of the model, the same for all series.
        jobs: series run side by side, each in a process; -1 for one per core.
        seed: of everything random.
        level: probability that `lower` .. `upper` should hold.
        horizon: steps to forecast after the end of every series.
        future: frame with the keys and the covariates of those steps, where `columns` are given.
        season: steps in a season, for the seasonal last value in `.scores`.
        progress: show a progress bar.

    Example:
        >>> import pandas
        >>> import regimekit as rk
        >>> table = pandas.DataFrame({"unique_id": ["a"] * 8 + ["b"] * 8, "y": range(16)})
        >>> done = rk.run_many(table, time=None, model="last_value", horizon=2)
        >>> done.frame["mean"].tolist()[1:4], len(done.forecasts), done.errors
        ([0.0, 1.0, 2.0], 4, {})
    """
    recipe = _recipe(model, settings, seed, level, horizon, season)
    native, layout, tasks = _tasks(frame, by, time, target, tuple(columns))
    if horizon and layout.columns:
        tasks = _with_future(tasks, future, by, layout, horizon)
    results = run_all(tasks, recipe, jobs)
    done = list(_shown(results, len(tasks)) if progress else results)
    return _collect(done, by, time, native)


def run_all(tasks: Iterable[Task], recipe: Recipe, jobs: int = 1) -> Iterator[SeriesRun]:
    """Run tasks as they come, in their order; only a few are held at a time."""
    if jobs == 1:
        yield from (run_series(task, recipe) for task in tasks)
        return
    import joblib

    if jobs != -1:
        whole("jobs", jobs)
    backend = joblib.parallel.get_active_backend()[0]  # the caller may have chosen a cluster
    streams = getattr(backend, "supports_return_generator", False)  # Ray's does not
    returns = "generator" if streams else "list"
    pool = joblib.Parallel(n_jobs=jobs, return_as=returns, pre_dispatch="2*n_jobs")
    yield from pool(joblib.delayed(run_series)(task, recipe) for task in tasks)


def run_series(task: Task, recipe: Recipe) -> SeriesRun:
    """Run one series; whatever goes wrong is said in the result."""
    try:
        return _run_series(task, recipe)
    except (RegimekitError, ArithmeticError, np.linalg.LinAlgError) as error:
        return SeriesRun(task.key, error=str(error))


def _run_series(task: Task, recipe: Recipe) -> SeriesRun:
    frequency = _frequency(task)
    reading = Reading(task.layout, Clock(frequency))
    observations: list[Observation] = []
    for row in task.rows:
        observations += reading.take(row)
    if not observations:
        raise RegimekitError("The series has no rows.")
    block = as_block(observations)
    settings = with_seed(recipe.model, recipe.settings, seed_of(task.key, recipe.seed))
    model = make(recipe.model, **with_seasons(recipe.model, settings, seasons_of(frequency)))
    run = model.run(block.y, with_names(block.X, task.layout), level=recipe.level)
    scores = RunningScores(recipe.season, recipe.skip)
    if REGISTRY[recipe.model].online:
        scores.add(block.y, run.mean, run.lower, run.upper, run.log_score)
    ahead = model.forecast(recipe.horizon, task.future) if recipe.horizon else []
    clock = reading.clock
    return SeriesRun(
        task.key,
        run=run_columns(block, run),
        has_row=block.has_row.tolist(),
        events=event_columns(run.events, block.times),
        forecasts=forecast_columns(ahead, recipe.level, clock.last, clock.frequency),
        regimes=regime_columns(model, block.times),
        scores=scores.table(),
        notes=reading.words(),
        model=model.to_bytes(),
    )


def with_seed(model: str, settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """The settings with a seed, where the model has one and none is set."""
    takes = "seed" in make(model, **settings).settings()
    return ({"seed": seed} if takes else {}) | dict(settings)


def with_seasons(model: str, settings: Mapping[str, Any], seasons: Sequence[int]) -> dict[str, Any]:
    """The settings with the seasons that times suggest, where the model would look for some."""
    free = not settings.get("features") and settings.get("seasons") is None
    if not seasons or not free:
        return dict(settings)
    takes = "seasons" in make(model, **settings).settings()
    return dict(settings) | ({"seasons": list(seasons)} if takes else {})


def with_names(X: Any, layout: Layout) -> Table | None:
    """Covariates with the names of their columns."""
    return None if X is None else Table(X, layout.columns)


def _frequency(task: Task) -> Frequency | None:
    if task.layout.time is None:
        return None
    place = task.layout.used.index(task.layout.time)
    return find_frequency(task.layout.times([row[place] for row in task.rows]))


def _recipe(
    model: str,
    settings: Mapping[str, Any] | None,
    seed: int,
    level: float,
    horizon: int,
    season: int | None,
) -> Recipe:
    name = default_model() if model == "auto" else model
    if name not in REGISTRY:
        raise unknown("model", name, REGISTRY)
    if not 0 < level < 1:
        raise RegimekitError(f"level must lie strictly between 0 and 1, got {level!r}.")
    make(name, **(settings or {}))  # a bad setting is the caller's, not a series'
    whole("seed", seed, 0)
    return Recipe(name, dict(settings or {}), seed, level, whole("horizon", horizon, 0), season)


def _tasks(
    frame: Any, by: str, time: str | None, target: str, columns: tuple[str, ...]
) -> tuple[Any, Layout, list[Task]]:
    """The frame's module, the layout of its columns, and one task per series."""
    import narwhals as nw

    table = nw.from_native(frame, eager_only=True)
    for argument, name in [("by", by), ("time", time), ("target", target)] + [
        ("columns", name) for name in columns
    ]:
        if name is not None and name not in table.columns:
            raise unknown(argument, name, table.columns)
    form = _time_form(table[time].to_list()) if time else cells.ISO
    layout = Layout(target, time, form, columns)
    keys = table[by].to_list()
    rows: dict[Any, list[Row]] = {key: [] for key in keys}
    for key, *row in zip(keys, *(table[name].to_list() for name in layout.used), strict=True):
        rows[key].append(tuple(row))
    tasks = [Task(key, _in_order(found, layout), layout) for key, found in rows.items()]
    return table.implementation, layout, tasks


def _in_order(rows: list[Row], layout: Layout) -> list[Row]:
    """Rows sorted by time; as they are where a time is missing, which `Reading` will refuse."""
    if layout.time is None:
        return rows
    place = layout.used.index(layout.time)
    if any(cells.missing(row[place]) for row in rows):
        return rows
    read = cells.time_reader(layout.time_form)
    return sorted(rows, key=lambda row: read(row[place]))


def _time_form(values: list[Any]) -> str:
    return cells.find_time_form(values[:1000]) or cells.NUMBER


def _with_future(
    tasks: list[Task], future: Any, by: str, layout: Layout, horizon: int
) -> list[Task]:
    """The tasks with the covariates of the steps ahead."""
    if future is None:
        raise RegimekitError("horizon with columns needs future: the covariates of those steps.")
    import narwhals as nw

    table = nw.from_native(future, eager_only=True)
    for name in (by, *layout.columns):
        if name not in table.columns:
            raise unknown("future", name, table.columns)
    values: dict[Any, list[Any]] = {}
    for key, *row in zip(*(table[name].to_list() for name in (by, *layout.columns)), strict=True):
        values.setdefault(key, []).append(row)
    return [_ahead(task, values.get(task.key, []), horizon) for task in tasks]


def _ahead(task: Task, rows: list[Any], horizon: int) -> Task:
    if len(rows) < horizon:
        raise RegimekitError(f"future has {len(rows)} rows for {task.key!r}, fewer than {horizon}.")
    values = np.array(rows[:horizon], dtype=float)
    return task._replace(future=Table(values, task.layout.columns))


def _shown(results: Iterator[SeriesRun], total: int) -> Iterable[SeriesRun]:
    from rich.progress import track

    return track(results, description="series", total=total)


def _collect(done: list[SeriesRun], by: str, time: str | None, native: Any) -> Many:
    good = [one for one in done if not one.error]
    runs = [(one.key, _own_rows(one, time)) for one in good]
    scores = [(o.key, {n: [v] for n, v in o.scores.items()}) for o in good if o.scores]
    return Many(
        frame=_stack(runs, by, native),
        events=_stack([(o.key, o.events) for o in good], by, native),
        forecasts=_stack([(o.key, _named(o.forecasts, time)) for o in good], by, native),
        scores=_stack(scores, by, native),
        errors={one.key: one.error for one in done if one.error},
    )


def _own_rows(one: SeriesRun, time: str | None) -> Columns:
    """The run without what was put into gaps: one row for every row of the input."""
    kept = {
        name: [value for value, own in zip(column, one.has_row, strict=True) if own]
        for name, column in one.run.items()
    }
    return _named(kept, time)


def _named(columns: Columns, time: str | None) -> Columns:
    """With the caller's name for the time, or without it."""
    renamed = {time or name if name == "time" else name: v for name, v in columns.items()}
    return renamed if time else {name: v for name, v in renamed.items() if name != "time"}


def _stack(parts: list[tuple[Any, Columns]], by: str, native: Any) -> Any:
    """Columns of several series as one frame, with their keys in front."""
    import narwhals as nw

    names = list(dict.fromkeys(name for _, columns in parts for name in columns))
    table: Columns = {by: []} | {name: [] for name in names}
    for key, columns in parts:
        length = len(next(iter(columns.values()), []))
        table[by] += [key] * length
        for name in names:
            table[name] += columns.get(name, [None] * length)
    return nw.from_dict(table, backend=native).to_native()
