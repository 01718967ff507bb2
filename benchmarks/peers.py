"""Other packages on the same streams: cost per observation, or why it is not measured.

    regimekit         br_ihmm with default settings (contamination, islands), through `run`
    auto              regimekit's `auto().run`, on levels
    paper's rule      br_ihmm with the paper's rule, which the dense version computes too
    dense JAX         `dense_jax`, 30 slots padded, as the paper's algorithm is usually written
    dense, trimmed    the same with the number of slots that this stream needs, given in advance
    reference         tests/ihmm/reference.py, the paper's rule in plain Python
    particles         a bootstrap filter of that package with known levels, noise and transitions
    river             Holt-Winters and SNARIMAX: point forecasts, no regimes
    statsforecast     AutoETS, fitted once to the whole series (not a forecast), or again before
                      each of the last observations

A peer is a function of the case that returns the function to time. Its preparation (imports,
compilation) is not timed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import regimekit as rk

NOISE = 0.01  # variance: with larger ones the paper's score opens ever more regimes
PARTICLES = 100
PAPER = "paper"
Job = Callable[[], Any]


class Case(NamedTuple):
    """A stream y (n,) with features X (n, m), and the batch of the models on it."""

    width: int
    batch: int
    y: np.ndarray
    X: np.ndarray


def make_case(width: int, batch: int, n: int) -> Case:
    """Return three linear regimes that alternate every 100 values, with 2 % of outliers."""
    rng = np.random.default_rng(width)
    regime = (np.arange(n) // 100) % 3
    X = np.column_stack([np.ones(n), rng.standard_normal((n, width - 1))])
    theta = rng.standard_normal((3, width)) + np.arange(3)[:, None]
    y = (X * theta[regime]).sum(axis=1) + NOISE**0.5 * rng.standard_normal(n)
    far = rng.random(n) < 0.02
    return Case(width, batch, np.where(far, y + 10 * rng.standard_normal(n), y), X)


def model(case: Case, **settings: Any) -> Any:
    return rk.br_ihmm(
        features=rk.features.columns(),
        noise=NOISE,
        prior_var=4.0,
        batch=case.batch,
        particles=PARTICLES,
        **settings,
    )


def regimekit(case: Case) -> Job:
    model(case).run(case.y[:50], case.X[:50])
    return lambda: model(case).run(case.y, case.X)


def auto(case: Case) -> Job:
    if case.width != 1:
        raise ImportError("levels only")
    return lambda: rk.auto().run(case.y)


def paper_rule(case: Case) -> Job:
    model(case, rule=PAPER).run(case.y[:50], case.X[:50])
    return lambda: model(case, rule=PAPER).run(case.y, case.X)


def dense(case: Case) -> Job:
    return _dense(case, 30)


def trimmed(case: Case) -> Job:
    from benchmarks import dense_jax

    told = dense_jax.run(case.y, case.X, _dense_settings(case, 30))
    return _dense(case, min(30, int(told.most.max()) + 2))  # one not opened, one in reserve


def _dense_settings(case: Case, slots: int) -> Any:
    from benchmarks import dense_jax

    return dense_jax.Settings(case.batch, PARTICLES, slots, NOISE, prior_var=4.0)


def _dense(case: Case, slots: int) -> Job:
    from benchmarks import dense_jax

    settings = _dense_settings(case, slots)
    dense_jax.run(case.y, case.X, settings)  # compiles
    return lambda: dense_jax.run(case.y, case.X, settings)


def reference(case: Case) -> Job:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "ihmm"))
    from reference import Reference
    from reference_parts import Settings

    def run() -> None:
        settings = Settings(
            noise=np.array([[NOISE]]),
            prior_mean=np.zeros(case.width),
            prior_var=4.0 * np.eye(case.width),
            batch=case.batch,
            particles=PARTICLES,
            max_regimes=30,
            prune_pool=5,
            resampling="multinomial",
            paper=frozenset(f"D{k}" for k in (*range(1, 10), 12)),
        )
        model = Reference(settings)
        for y, x in zip(case.y, case.X, strict=True):
            model.predict(x[1:])  # the reference adds the intercept itself
            model.observe(np.array([y]), x[1:])

    return run


def particles(case: Case) -> Job:
    """Return two regimes of known level in a bootstrap filter: the easiest problem with regimes."""
    if case.width != 1:
        raise ImportError("levels only")
    import particles
    from particles import distributions, state_space_models

    class Levels(state_space_models.StateSpaceModel):
        levels = np.array([0.0, 1.0])

        def PX0(self) -> Any:
            return distributions.Categorical(p=np.array([0.5, 0.5]))

        def PX(self, t: int, xp: Any) -> Any:
            stay = np.array([[0.99, 0.01], [0.01, 0.99]])
            return distributions.Categorical(p=stay[np.asarray(xp, int)])

        def PY(self, t: int, xp: Any, x: Any) -> Any:
            return distributions.Normal(loc=self.levels[np.asarray(x, int)], scale=NOISE**0.5)

    def run() -> None:
        filtering = state_space_models.Bootstrap(ssm=Levels(), data=case.y)
        particles.SMC(fk=filtering, N=PARTICLES, resampling="systematic", ESSrmin=0.5).run()

    run()
    return run


def _river(case: Case, make: Callable[[], Any]) -> Job:
    if case.width != 1:
        raise ImportError("levels only")

    def run() -> None:
        model = make()
        for t, y in enumerate(case.y.tolist()):
            if t > 2:
                model.forecast(horizon=1)
            model.learn_one(y)

    run()
    return run


def holt_winters(case: Case) -> Job:
    from river import time_series

    return _river(case, lambda: time_series.HoltWinters(alpha=0.3, beta=0.1))


def snarimax(case: Case) -> Job:
    from river import time_series

    return _river(case, lambda: time_series.SNARIMAX(p=1, d=0, q=0))


def ets_once(case: Case) -> Job:
    if case.width != 1:
        raise ImportError("levels only")
    from statsforecast.models import AutoETS

    def run() -> None:
        AutoETS(season_length=1).forecast(y=case.y, h=1, level=[90], fitted=True)

    run()
    return run


def ets_refitted(case: Case) -> Job:
    if case.width != 1:
        raise ImportError("levels only")
    from statsforecast.models import AutoETS

    y = make_case(1, case.batch, len(case.y) + 500).y

    def run() -> None:
        for t in range(500, len(y)):
            AutoETS(season_length=1).forecast(y=y[:t], h=1, level=[90])

    return run


# Name, function that prepares it, divisor of the number of observations.
PEERS: tuple[tuple[str, Callable[[Case], Job], int], ...] = (
    ("regimekit", regimekit, 1),
    ("regimekit auto", auto, 1),
    ("regimekit, the paper's rule", paper_rule, 1),
    ("dense JAX, 30 slots", dense, 1),
    ("dense JAX, trimmed", trimmed, 1),
    ("plain-Python reference", reference, 20),
    ("particles, two known levels", particles, 1),
    ("river Holt-Winters", holt_winters, 1),
    ("river SNARIMAX(1, 0, 0)", snarimax, 1),
    ("statsforecast AutoETS, one fit", ets_once, 1),
    ("statsforecast AutoETS, refitted", ets_refitted, 20),
)
