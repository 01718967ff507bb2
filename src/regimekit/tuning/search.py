"""Search loop: objectives, optimisers with `ask` and `tell`, and parallel trials.

`ask(n)` returns n settings to be tried in parallel; `tell` accepts any settings with their value,
including those of an earlier search. Lower is better.
"""

from __future__ import annotations

import hashlib
import importlib
import math
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit import metrics as evaluate
from regimekit.core.exceptions import RegimekitError, unknown
from regimekit.core.registry import make
from regimekit.metrics.scores import as_rows
from regimekit.preprocessing.frames import Table
from regimekit.tuning.result import COMPLETE, FAILED, Log, Trial
from regimekit.tuning.space import Choice, Int, Settings, Space, Spec, key

Objective = Callable[[evaluate.Prequential], float]
_N_RANDOM = 5  # random points before the Gaussian process is used


def _regimes(result: evaluate.Prequential) -> float:
    """Return -log score plus log T + log K for each switch between K regimes, per observation."""
    labels = np.asarray(result.run.regime)[result.skip :]
    n, known = max(labels.size, 2), max(evaluate.n_regimes(labels), 1)
    cost = evaluate.switches(labels) * (math.log(n) + math.log(known))
    return float(-result.scores()["log_score"] + cost / n)


def _lookahead(result: evaluate.Prequential) -> float:
    part = slice(result.skip, None)
    return evaluate.lookahead_mae(result.target[part], as_rows(result.run.mean)[part])


OBJECTIVES: dict[str, Objective] = {
    "rmse": lambda result: result.scores()["rmse"],
    "mae": lambda result: result.scores()["mae"],
    "lookahead_mae": _lookahead,
    "log_score": lambda result: -result.scores()["log_score"],
    "crps": lambda result: result.scores()["crps"],
    "regimes": _regimes,
}


@dataclass(frozen=True, eq=False)
class Task:
    """Model, training data and objective of a search.

    Attributes:
        model: name of the model.
        fixed: settings that are not searched.
        y: (T, d) observations of the training part.
        X: covariates of the training part.
        objective: name in `OBJECTIVES`, or a function of a `Prequential` result.
        skip: number of rows at the start that are not scored.
        model_seeds: seeds to average over; None if the model takes no seed.
        clean: (T, d) values to score against instead of y.
    """

    model: str
    fixed: Settings
    y: NDArray[np.float64]
    X: Table | None
    objective: str | Objective
    skip: int
    model_seeds: tuple[int | None, ...]
    clean: NDArray[np.float64] | None = None

    def evaluate(self, settings: Settings) -> Trial:
        """Return the trial of some settings, run once per seed; a failure is recorded, not raised.

        Args:
            settings: values by name.
        """
        begin = time.perf_counter()
        value: float | None = None
        try:
            value = float(np.mean([self._value(settings, seed) for seed in self.model_seeds]))
            reason = "" if math.isfinite(value) else f"the objective is {value}"
        except Exception as error:  # a failing trial must not end the search
            reason = f"{type(error).__name__}: {error}"
        return {
            "settings": settings,
            "value": None if reason else value,
            "seconds": time.perf_counter() - begin,
            "state": FAILED if reason else COMPLETE,
            "reason": reason,
        }

    def _value(self, settings: Settings, seed: int | None) -> float:
        seeded = {} if seed is None else {"seed": seed}
        model = make(self.model, **(self.fixed | settings | seeded))
        result = evaluate.prequential(model, self.y, self.X, clean=self.clean, skip=self.skip)
        objective = self.objective
        function = OBJECTIVES[objective] if isinstance(objective, str) else objective
        return float(function(result))

    def name(self) -> str:
        """Return the name of the objective."""
        if isinstance(self.objective, str):
            return self.objective
        return str(getattr(self.objective, "__qualname__", type(self.objective).__qualname__))

    def identity(self) -> dict[str, Any]:
        """Return everything a trial's value depends on except its settings, as JSON values."""
        digest = hashlib.sha256(self.y.tobytes())
        if self.X is not None:
            digest.update(repr(self.X.names).encode() + self.X.values.tobytes())
        if self.clean is not None:
            digest.update(b"clean" + self.clean.tobytes())
        return {
            "model": self.model,
            "settings": self.fixed,
            "objective": self.name(),
            "skip": self.skip,
            "model_seeds": list(self.model_seeds),
            "rows": len(self.y),
            "data": digest.hexdigest()[:32],
        }


class Search(ABC):
    """Optimiser over a space; the same seed, calls and values give the same settings."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.worst: float | None = None

    @abstractmethod
    def ask(self, n: int) -> list[Settings]:
        """Return the next settings to try."""

    def tell(self, settings: Settings, value: float | None) -> None:
        """Report the value of a trial.

        A failure counts as the worst value so far, because an optimiser without this information
        would propose the same settings again. Failures before the first value are not reported.

        Args:
            settings: settings of the trial.
            value: its value; None if it failed.
        """
        if value is not None:
            self.worst = value if self.worst is None else max(self.worst, value)
        if self.worst is not None:
            self._observe(settings, self.worst if value is None else value)

    @abstractmethod
    def _observe(self, settings: Settings, value: float) -> None: ...


class OptunaSearch(Search):
    """Tree-structured Parzen estimator of optuna."""

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(space)
        self.optuna = import_optional("optuna", "backend='optuna'")
        self.axes = {name: self._axis(spec) for name, spec in space.items()}
        self.asked: dict[str, list[Any]] = defaultdict(list)
        verbosity = self.optuna.logging.get_verbosity()
        self.optuna.logging.set_verbosity(self.optuna.logging.WARNING)
        try:
            sampler = self.optuna.samplers.TPESampler(seed=seed)
            self.study = self.optuna.create_study(sampler=sampler)
        finally:
            self.optuna.logging.set_verbosity(verbosity)

    def ask(self, n: int) -> list[Settings]:
        trials = [self.study.ask(self.axes) for _ in range(n)]
        points = [self._decode(trial.params) for trial in trials]
        for trial, settings in zip(trials, points, strict=True):
            self.asked[key(settings)].append(trial)
        return points

    def _observe(self, settings: Settings, value: float) -> None:
        waiting = self.asked[key(settings)]
        if waiting:
            self.study.tell(waiting.pop(0), value)
            return
        params = {name: self._encode(self.space[name], v) for name, v in settings.items()}
        known = self.optuna.trial.create_trial(params=params, distributions=self.axes, value=value)
        self.study.add_trial(known)

    def _axis(self, spec: Spec) -> Any:
        kinds = self.optuna.distributions
        if isinstance(spec, Choice):  # by index: optuna restricts the types of options
            return kinds.CategoricalDistribution(range(len(spec.options)))
        _, low, high, *log = spec.to_json()
        kind = kinds.IntDistribution if isinstance(spec, Int) else kinds.FloatDistribution
        return kind(low, high, log=bool(log))

    def _decode(self, params: dict[str, Any]) -> Settings:
        chosen = {}
        for name, spec in self.space.items():
            value = params[name]
            chosen[name] = spec.options[value] if isinstance(spec, Choice) else value
        return chosen

    @staticmethod
    def _encode(spec: Spec, value: Any) -> Any:
        return spec.index(value) if isinstance(spec, Choice) else value


class BayesSearch(Search):
    """Gaussian process with an upper confidence bound, by bayesian-optimization as in the paper.

    The process is defined on the unit cube. Integers and choices are rounded, and values are
    registered at the rounded point (Garrido-Merchan and Hernandez-Lobato 2020). Pending points of
    the same batch are assigned the mean of the known values.
    """

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(space)
        self.library = import_optional("bayes_opt", "backend='bayesopt'")
        self.threads = import_optional("threadpoolctl", "backend='bayesopt'")
        self.rng = np.random.RandomState(seed)  # the library accepts no Generator
        self.known: dict[str, tuple[Settings, float]] = {}

    def ask(self, n: int) -> list[Settings]:
        points: list[Settings] = []
        for _ in range(n):
            points.append(self._next(points))
        return points

    def _observe(self, settings: Settings, value: float) -> None:
        self.known[key(settings)] = (settings, value)

    def _next(self, pending: list[Settings]) -> Settings:
        if len(self.known) + len(pending) < _N_RANDOM or not self.known:
            return self._random()
        with self.threads.threadpool_limits(1):  # threads are slower on small matrices
            settings = self._rounded(self._process(pending).suggest())
        taken = key(settings) in self.known or settings in pending
        return self._random() if taken else settings

    def _process(self, pending: list[Settings]) -> Any:
        """The optimiser with all known values, and a guess for the pending points."""
        bounds = dict.fromkeys(self.space, (0.0, 1.0))
        process = self.library.BayesianOptimization(
            f=None, pbounds=bounds, random_state=self.rng, verbose=0
        )
        guess = float(np.mean([value for _, value in self.known.values()]))
        points = dict(self.known)
        for settings in pending:
            points.setdefault(key(settings), (settings, guess))
        for settings, value in points.values():
            process.register(self._places(settings), -value)  # the library maximises
        return process

    def _random(self) -> Settings:
        return self._rounded({name: self.rng.uniform() for name in self.space})

    def _rounded(self, places: dict[str, Any]) -> Settings:
        return {name: spec.at(float(places[name])) for name, spec in self.space.items()}

    def _places(self, settings: Settings) -> dict[str, float]:
        return {name: spec.place(settings[name]) for name, spec in self.space.items()}


BACKENDS: dict[str, type[OptunaSearch] | type[BayesSearch]] = {
    "optuna": OptunaSearch,
    "bayesopt": BayesSearch,
}


def open_search(backend: str, space: Space, seed: int) -> Search:
    """Return a new optimiser.

    Args:
        backend: a key of `BACKENDS`.
        space: the search space.
        seed: seed of its draws.
    """
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    return BACKENDS[backend](space, seed)


def import_optional(module: str, argument: str) -> Any:
    """Return an optional package; the error names the extra that installs it.

    Args:
        module: name of the package.
        argument: argument that needs it, for error messages.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise RegimekitError(
            f"{argument} needs the package {module}: pip install 'regimekit[tune]'."
        ) from None


def explore(
    task: Task, search: Search, log: Log, first: list[Settings], budget: int, jobs: int
) -> Iterator[Trial]:
    """Yield `budget` trials in the order they were requested, those of the log included.

    The search is replayed against the log: settings with a logged trial are not run again, so an
    interrupted search ends where an uninterrupted one would have. If the search requests new
    settings although logged trials are left (other `jobs`, another backend), these are reported to
    it first.

    Args:
        task: model, data and objective.
        search: optimiser.
        log: log of trials.
        first: settings to try first.
        budget: number of trials.
        jobs: number of trials run in parallel.
    """
    used: set[str] = set()
    done = 0
    while done < budget:
        room = min(jobs, budget - done)
        asked = [*first[:room], *search.ask(room - len(first[:room]))]
        first = []
        if any(key(settings) not in log.known for settings in asked):
            keys = used | {key(settings) for settings in asked}
            left = [trial for k, trial in log.known.items() if k not in keys]
            for trial in left[: budget - done]:
                search.tell(trial["settings"], trial["value"])
                used.add(key(trial["settings"]))
                done += 1
                yield trial
            asked = asked[: budget - done]
        batch = []
        for trial in _finished(task, asked, log, jobs):
            used.add(key(trial["settings"]))
            done += 1
            batch.append(trial)
            yield trial
        for trial in batch:
            search.tell(trial["settings"], trial["value"])


def _finished(task: Task, asked: list[Settings], log: Log, jobs: int) -> Iterator[Trial]:
    """A trial for each of the settings, in order; logged ones are not run."""
    new = {key(settings): settings for settings in asked if key(settings) not in log.known}
    results = _parallel(task, list(new.values()), jobs)
    for settings in asked:
        known = log.known.get(key(settings))
        yield known if known is not None else log.add(next(results))


def _parallel(task: Task, points: list[Settings], jobs: int) -> Iterator[Trial]:
    if jobs == 1 or len(points) < 2:
        return map(task.evaluate, points)
    joblib = import_optional("joblib", f"jobs={jobs}")
    pool = joblib.Parallel(n_jobs=jobs, return_as="generator")
    return iter(pool(joblib.delayed(task.evaluate)(settings) for settings in points))
