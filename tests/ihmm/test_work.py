"""Work per observation, counted: a change that makes the filter do more of it fails here.

A count does not depend on the machine, nor on what else it computes, as a time does.
"""

from __future__ import annotations

import math
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import pytest

import regimekit as rk
from regimekit.core.model import Model
from regimekit.ihmm import algorithm
from regimekit.ihmm.emissions.linear_gaussian import LinearGaussian
from regimekit.ihmm.hdp import Concentration
from regimekit.ihmm.model import RegimeModel
from regimekit.ihmm.state import RegimePool

COMPILED = not str(algorithm.__file__).endswith(".py")
compiled = pytest.mark.skipif(not COMPILED, reason="the kernels are not compiled")
uncompiled = pytest.mark.skipif(COMPILED, reason="compiled kernels hide their inner calls")


def noise(n: int) -> np.ndarray:
    return 0.5 * np.random.default_rng(0).standard_normal(n)


def levels(n: int) -> np.ndarray:
    return np.repeat([0.0, 6.0], 15)[np.arange(n) % 30] + noise(n)


def fitted(n: int = 500, **settings: object) -> RegimeModel:
    model = rk.br_ihmm(**{"noise": 0.25, "prior_var": 9.0} | settings)
    model.run(noise(n))
    return model


def python_calls(job: Callable[[], object]) -> Counter[str]:
    """Calls of Python functions that a job makes, by name."""
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    sys.setprofile(count)
    try:
        job()
    finally:
        sys.setprofile(None)
    return calls - Counter({job.__qualname__: 1})


@contextmanager
def kernel_calls(*methods: tuple[type, str]) -> Iterator[Counter[str]]:
    """Calls of some methods of uncompiled kernels, by name."""
    counts: Counter[str] = Counter()
    originals = {(owner, name): owner.__dict__[name] for owner, name in methods}

    def counted(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def method(*arguments: Any) -> Any:
            counts[name] += 1
            return original(*arguments)

        return method

    for (owner, name), original in originals.items():
        setattr(owner, name, counted(name, original))
    try:
        yield counts
    finally:
        for (owner, name), original in originals.items():
            setattr(owner, name, original)


def distinct_rows(model: RegimeModel) -> int:
    """Rows that the particles of each island store, regimes not opened yet included."""
    assert model.engine is not None
    return sum(model.engine.count_candidates())


STREAMING: dict[str, Callable[[], Model]] = {
    "noise known": lambda: rk.br_ihmm(noise=0.25, prior_var=9.0),
    "units estimated": rk.br_ihmm,
    "auto": rk.auto,
}


@compiled
@pytest.mark.parametrize(
    ("name", "update", "predict"),
    [("noise known", 15, 15), ("units estimated", 20, 15), ("auto", 40, 40)],
)
def test_one_observation_passes_few_python_functions(name: str, update: int, predict: int) -> None:
    """Every item of a generator counts as one call."""
    model, y = STREAMING[name](), noise(560).tolist()
    model.run(y[:500])
    updates, predictions = [], []
    for value in y[500:]:
        predictions.append(python_calls(model.predict))
        updates.append(python_calls(lambda value=value: model.update(value)))
    assert np.median([calls.total() for calls in predictions]) <= predict, predictions[-1]
    assert np.median([calls.total() for calls in updates]) <= update, updates[-1]


@compiled
@pytest.mark.parametrize("name", STREAMING)
def test_one_observation_allocates_little(name: str) -> None:
    """At most 16 kB at a time, and nothing that stays."""
    model, y = STREAMING[name](), noise(560).tolist()
    model.run(y[:500])
    peaks, kept = [], []
    tracemalloc.start()
    try:
        for value in y[500:]:
            before = tracemalloc.get_traced_memory()[0]
            tracemalloc.reset_peak()
            model.predict()
            model.update(value)
            now, peak = tracemalloc.get_traced_memory()
            peaks.append(peak - before)
            kept.append(now - before)
    finally:
        tracemalloc.stop()
    assert np.median(peaks) <= 16_000, sorted(peaks)
    assert np.median(kept) <= 100, sorted(kept)


@compiled
def test_a_run_goes_to_python_rarely() -> None:
    """Work in Python is per chunk of 512 observations: 65 calls are the present number."""
    y = noise(2548)[500:]
    totals = []
    for n in (1024, 2048):
        model = fitted()
        calls = python_calls(lambda model=model, n=n: model.run(y[:n]))
        assert calls["RegimeModel._learn"] == n // 512
        totals.append(calls.total())
    assert totals[1] - totals[0] <= 2 * 70, calls.most_common(20)


@uncompiled
@pytest.mark.parametrize("islands", [1, 3])
@pytest.mark.parametrize("before", [False, True])
def test_each_distinct_row_is_filtered_once(islands: int, before: bool) -> None:
    """However many particles share it, and whether or not a forecast was asked for before."""
    model = rk.br_ihmm(noise=0.25, prior_var=9.0, batch=3, particles=12, islands=islands)
    model.update(0.0)
    quiet = 0
    for y in levels(90):
        rows = distinct_rows(model)
        with kernel_calls((LinearGaussian, "predict"), (LinearGaussian, "update")) as calls:
            if before:
                model.predict()
            step = model.update(float(y))
        if step.events:  # a change is dated with the latest observations
            assert calls["predict"] <= rows + 4 * 3 * rows
        else:
            assert calls == {"predict": rows, "update": rows}
            quiet += 1
    assert 60 < quiet < 90


@uncompiled
def test_the_end_of_a_batch_touches_each_particle_once_and_each_chosen_row_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = rk.br_ihmm(noise=0.25, prior_var=9.0, batch=3, particles=12, islands=2)
    model.update(0.0)
    stride = round(48 / 3)
    rows_written = Counter[str]()
    original = algorithm.log_transition_row

    def counted(*arguments: Any) -> None:
        rows_written["log_transition_row"] += 1
        original(*arguments)

    monkeypatch.setattr(algorithm, "log_transition_row", counted)
    kernels = [(LinearGaussian, name) for name in ("finalize", "begin")]
    kernels += [(Concentration, "sweep"), (RegimePool, "count_owners")]
    for y in levels(90):
        engine = model.engine
        assert engine is not None
        clock = engine.clock
        ends = int((np.asarray(clock.position) + 1 == np.asarray(clock.size)).sum())
        rows_written.clear()
        with kernel_calls(*kernels) as calls:
            step = model.update(float(y))
        p = engine.particles
        chosen = len({int(p.slots[i, p.current[i]]) for i in range(12)})
        assert rows_written["log_transition_row"] == 6 * ends
        assert calls["sweep"] <= math.ceil(6 / stride) * ends
        assert calls["finalize"] <= chosen * (ends > 0)
        assert calls["count_owners"] <= 2 * ends
        dated = 2 * bool(step.events)  # a change is dated by candidates of its own
        most = int(np.asarray(clock.candidates).max())
        assert calls["begin"] <= most * ends + dated
