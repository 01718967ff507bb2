"""What to try next: two optimisers behind `ask` and `tell`.

`ask(n)` gives n settings at once, to be run side by side; `tell` takes any settings back with
their value, also such as were never asked for (an earlier search's). Lower is better.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections import defaultdict
from typing import Any

import numpy as np

from regimekit.core.exceptions import RegimekitError, unknown
from regimekit.tuning.space import Choice, Int, Settings, Space, Spec, key

_RANDOM_FIRST = 5  # points before the Gaussian process is asked, as the library has it


class Search(ABC):
    """Chooses settings from a space; the same seed, calls and values give the same choices."""

    def __init__(self, space: Space) -> None:
        self.space = space
        self.worst: float | None = None

    @abstractmethod
    def ask(self, n: int) -> list[Settings]:
        """The next `n` settings to try."""

    def tell(self, settings: Settings, value: float | None) -> None:
        """What the settings gave; None if they failed.

        A failure counts as the worst value so far: an optimiser that never hears of it keeps
        asking for the same. Before the first value there is no price to give.
        """
        if value is not None:
            self.worst = value if self.worst is None else max(self.worst, value)
        if self.worst is not None:
            self._learn(settings, self.worst if value is None else value)

    @abstractmethod
    def _learn(self, settings: Settings, value: float) -> None: ...


class OptunaSearch(Search):
    """Tree-structured Parzen estimator of optuna."""

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(space)
        self.optuna = needed("optuna", "backend='optuna'")
        self.axes = {name: self._axis(spec) for name, spec in space.items()}
        self.asked: dict[str, list[Any]] = defaultdict(list)
        loud = self.optuna.logging.get_verbosity()
        self.optuna.logging.set_verbosity(self.optuna.logging.WARNING)
        try:
            sampler = self.optuna.samplers.TPESampler(seed=seed)
            self.study = self.optuna.create_study(sampler=sampler)
        finally:
            self.optuna.logging.set_verbosity(loud)

    def ask(self, n: int) -> list[Settings]:
        trials = [self.study.ask(self.axes) for _ in range(n)]
        points = [self._decode(trial.params) for trial in trials]
        for trial, settings in zip(trials, points, strict=True):
            self.asked[key(settings)].append(trial)
        return points

    def _learn(self, settings: Settings, value: float) -> None:
        waiting = self.asked[key(settings)]
        if waiting:
            self.study.tell(waiting.pop(0), value)
            return
        params = {name: self._encode(self.space[name], v) for name, v in settings.items()}
        known = self.optuna.trial.create_trial(params=params, distributions=self.axes, value=value)
        self.study.add_trial(known)

    def _axis(self, spec: Spec) -> Any:
        kinds = self.optuna.distributions
        if isinstance(spec, Choice):  # by position: an option may be of any kind
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

    The process lives on the unit cube. Whole numbers and choices are rounded, and what is
    learnt stands at the rounded point, not where the optimiser wanted it (Garrido-Merchan and
    Hernandez-Lobato 2020). A point asked for in the same batch is pretended to have given the mean.
    """

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(space)
        self.library = needed("bayes_opt", "backend='bayesopt'")
        self.threads = needed("threadpoolctl", "backend='bayesopt'")
        self.rng = np.random.RandomState(seed)  # the one kind that the library takes
        self.learnt: dict[str, tuple[Settings, float]] = {}

    def ask(self, n: int) -> list[Settings]:
        points: list[Settings] = []
        for _ in range(n):
            points.append(self._next(points))
        return points

    def _learn(self, settings: Settings, value: float) -> None:
        self.learnt[key(settings)] = (settings, value)

    def _next(self, pending: list[Settings]) -> Settings:
        if len(self.learnt) + len(pending) < _RANDOM_FIRST or not self.learnt:
            return self._random()
        with self.threads.threadpool_limits(1):  # small matrices: threads triple the time
            settings = self._rounded(self._process(pending).suggest())
        taken = key(settings) in self.learnt or settings in pending
        return self._random() if taken else settings

    def _process(self, pending: list[Settings]) -> Any:
        """The optimiser told all that is known, and a guess of what is pending."""
        bounds = dict.fromkeys(self.space, (0.0, 1.0))
        process = self.library.BayesianOptimization(
            f=None, pbounds=bounds, random_state=self.rng, verbose=0
        )
        guess = float(np.mean([value for _, value in self.learnt.values()]))
        points = dict(self.learnt)
        for settings in pending:
            points.setdefault(key(settings), (settings, guess))
        for settings, value in points.values():
            process.register(self._places(settings), -value)  # it maximises
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
    """The optimiser of that name."""
    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)
    return BACKENDS[backend](space, seed)


def needed(module: str, argument: str) -> Any:
    """An optional package, or an error that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise RegimekitError(
            f"{argument} needs the package {module}: pip install 'regimekit[tune]'."
        ) from None
