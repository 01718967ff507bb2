"""Hyperparameter search by the forecasts of a training part.

    best = argmin_s  mean over model seeds of objective(run of model(s) along y_1 .. y_train)

Each forecast is made before its observation, and rows after the training part are not used. The
search is sequential in batches of `jobs` points; it is reproducible for the same seed, jobs and
library versions.

Settings are searched in the units of y. The first trial uses the model's default settings for a
known noise variance (`units="given"`), if the space contains them. The default with estimated units
is not a point of the space: for a named objective its value is `default` in the result, and that of
the last value is `last_value`. The objectives "crps" and "mae" are robust to outliers.

Example:
    >>> from regimekit import data
    >>> from regimekit.tuning import tune
    >>> stream = data.regime_stream(seed=0, n=120)
    >>> found = tune("br_ihmm", stream.y, space={"batch": ("int", 1, 8, "log")}, budget=3,
    ...              train=100, settings={"particles": 10, "noise": 0.16})
    >>> len(found.trials), sorted(found.best), found.model().settings()["noise"]
    (3, ['batch', 'noise', 'particles'], 0.16)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import regimekit
from regimekit.core.exceptions import RegimekitError, unknown, whole
from regimekit.core.registry import REGISTRY, make
from regimekit.preprocessing.frames import read_series, read_table
from regimekit.tuning.result import Log, Trial, TuneResult, best_of
from regimekit.tuning.search import OBJECTIVES, Objective, Task, explore, open_search
from regimekit.tuning.space import (
    Choice,
    Float,
    Int,
    Settings,
    Space,
    default_space,
    plain,
    read_space,
)


def tune(
    model_name: str,
    y: Any,
    X: Any = None,
    space: Mapping[str, Any] | None = None,
    objective: str | Objective = "crps",
    budget: int = 50,
    *,
    backend: str = "optuna",
    train: int | None = None,
    skip: int = 0,
    clean: Any = None,
    seeds: int = 1,
    jobs: int = 1,
    settings: Mapping[str, Any] | None = None,
    seed: int = 0,
    storage: str | Path | None = None,
    progress: bool = False,
) -> TuneResult:
    """Search for the settings with the best forecasts of the training part.

    The module docstring describes the first trial and the reference values. A trial that fails is
    stored with its reason. Ctrl-C ends the search and returns the finished trials.

    Args:
        model_name: one of `regimekit.models()`.
        y: observations (T,) or (T, d).
        X: covariates, one row per observation.
        space: by setting ("float", low, high[, "log"]), ("int", low, high[, "log"]) or
            ("choice", [..]); by default that of `tuning.space.default_space`.
        objective: a key of `OBJECTIVES`, or a function of a `Prequential`; lower is better.
        budget: number of trials, including those in `storage`.
        backend: "optuna" (tree-structured Parzen estimator) or "bayesopt" (Gaussian process).
        train: number of rows of the training part; all by default.
        skip: number of rows at the start that update the model but are not scored.
        clean: values to score against instead of y, e.g. the stream before contamination.
        seeds: number of model seeds over which each trial is averaged.
        jobs: number of trials run in parallel, each in a process.
        settings: fixed settings.
        seed: seed of the search.
        storage: file of finished trials; a later call resumes the search.
        progress: show a progress bar.

    Returns:
        The best settings and all trials.

    Raises:
        RegimekitError: if an argument is invalid or no trial succeeds.
    """
    fixed: Settings = {name: plain(value) for name, value in (settings or {}).items()}
    known = _known(model_name, fixed)
    task = _task(model_name, fixed, (y, X, clean), objective, (train, skip), _seeds(known, seeds))
    specs = read_space(_usual_space(task, known) if space is None else space, known, fixed)
    how: dict[str, Any] = {"backend": backend, "seed": seed}
    how |= {"jobs": whole("jobs", jobs), "budget": whole("budget", budget)}
    search = open_search(backend, specs, whole("seed", seed, 0))
    ranges = {name: spec.to_json() for name, spec in specs.items()}
    identity = task.identity() | {"space": ranges, "version": regimekit.__version__}
    log = Log(identity, None if storage is None else Path(storage))
    course = explore(task, search, log, _default_point(specs, known), how["budget"], how["jobs"])
    trials, interrupted = _collect(course, how["budget"], progress)
    best = best_of(trials)
    no_reference = interrupted or callable(objective)
    return TuneResult(
        model_name,
        fixed | best["settings"],
        best["value"],
        trials,
        task.name(),
        identity | how,
        interrupted,
        *((None, None) if no_reference else _reference_values(task)),
    )


def _usual_space(task: Task, known: Settings) -> dict[str, Any]:
    """Default space without the fixed settings."""
    usual = default_space(task.model, known, task.y)
    free = {name: spec for name, spec in usual.items() if name not in task.fixed}
    if not free:
        raise RegimekitError(f"{task.model} has no default search space. Pass space.")
    return free


def _reference_values(task: Task) -> tuple[float | None, float | None]:
    """Objective of the default with estimated units, and of the last value."""
    simple = replace(task, model="last_value", fixed={}, X=None, model_seeds=(None,))
    return task.evaluate({})["value"], simple.evaluate({})["value"]


def _known(model_name: str, fixed: Settings) -> Settings:
    """All settings of the model with `fixed`, in the units of y like those searched."""
    known = make(model_name, **fixed).settings()
    if known.get("units") == "auto" and "units" not in fixed:
        known = make(model_name, **fixed, units="given").settings()
    if not REGISTRY[model_name].online:
        raise RegimekitError(
            f"model_name must be an online model, got {model_name!r}, which fits the whole stream "
            "and makes no forecasts."
        )
    return known


def _task(
    model_name: str,
    fixed: Settings,
    stream: tuple[Any, Any, Any],
    objective: str | Objective,
    part: tuple[int | None, int],
    model_seeds: tuple[int | None, ...],
) -> Task:
    """Validate the arguments and select the training part."""
    if isinstance(objective, str) and objective not in OBJECTIVES:
        raise unknown("objective", objective, OBJECTIVES)
    if not isinstance(objective, str) and not callable(objective):
        raise RegimekitError(f"objective must be a name or a function, got {objective!r}.")
    y = read_series(stream[0]).values
    table = read_table(stream[1], length=len(y))
    clean = None if stream[2] is None else read_series(stream[2]).values
    if clean is not None and clean.shape != y.shape:
        raise RegimekitError(f"clean must have the shape of y {y.shape}, got {clean.shape}.")
    rows = len(y) if part[0] is None else whole("train", part[0])
    if rows > len(y):
        raise RegimekitError(f"train must be at most the length of y {len(y)}, got {rows}.")
    skip = whole("skip", part[1], 0)
    if skip >= rows:
        raise RegimekitError(f"skip must be less than the {rows} training rows, got {skip}.")
    X = None if table is None else table._replace(values=table.values[:rows])
    target = None if clean is None else clean[:rows]
    return Task(model_name, fixed, y[:rows], X, objective, skip, model_seeds, target)


def _seeds(known: Settings, seeds: int) -> tuple[int | None, ...]:
    """Consecutive model seeds from its default; a deterministic model runs once."""
    count = whole("seeds", seeds)
    if "seed" not in known:
        return (None,)
    return tuple(int(known["seed"]) + i for i in range(count))


def _default_point(specs: Space, known: Settings) -> list[Settings]:
    """Settings of the model as the first point, if the space contains them."""
    point = {name: plain(known[name]) for name in specs}
    return [point] if all(spec.contains(point[name]) for name, spec in specs.items()) else []


def _collect(course: Iterator[Trial], total: int, progress: bool) -> tuple[list[Trial], bool]:
    """Finished trials, and whether Ctrl-C ended the search."""
    from rich.progress import Progress

    trials: list[Trial] = []
    with Progress(disable=not progress) as bar:
        task = bar.add_task("trials", total=total)
        try:
            for trial in course:
                trials.append(trial)
                bar.update(task, advance=1, description=_headline(trials))
        except KeyboardInterrupt:
            if not trials:
                raise
            return trials, True
    return trials, False


def _headline(trials: list[Trial]) -> str:
    values = [trial["value"] for trial in trials if trial["value"] is not None]
    return f"best {min(values):.4g}" if values else f"{len(trials)} failed"


__all__ = ["Choice", "Float", "Int", "TuneResult", "tune"]
