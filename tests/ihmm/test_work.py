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
from rows import scoring
from test_label_matching import crowd

import regimekit as rk
from regimekit.core.model import Model
from regimekit.ihmm import algorithm, within_batch
from regimekit.ihmm.emissions import linear
from regimekit.ihmm.emissions.base import Shape
from regimekit.ihmm.emissions.linear import LinearEmission, Steps, write_covariance
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings, LinearGaussian
from regimekit.ihmm.hdp import Concentration
from regimekit.ihmm.label_matching import LabelMatcher
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
    """Work in Python is per chunk of 512 observations: 79 calls are the present number."""
    y = noise(2548)[500:]
    totals = []
    for n in (1024, 2048):
        model = fitted()
        calls = python_calls(lambda model=model, n=n: model.run(y[:n]))
        assert calls["RegimeModel._learn"] == n // 512
        totals.append(calls.total())
    assert totals[1] - totals[0] <= 2 * 84, calls.most_common(20)


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
def test_a_constant_design_passes_through_each_step_once() -> None:
    """The work of an observation does not grow with its place in the batch."""
    model = rk.br_ihmm(noise=0.25, prior_var=9.0, batch=6, particles=12, islands=1)
    model.update(0.0)
    most = 0
    for y in noise(30):
        rows = distinct_rows(model)
        with kernel_calls((Steps, "project"), (Steps, "dot_ahead")) as calls:
            model.predict()
        assert calls["dot_ahead"] <= rows
        assert calls["project"] in (0, rows)
        most = max(most, calls["dot_ahead"])
        model.update(float(y))
    assert most > 0


@uncompiled
def test_the_end_of_a_batch_touches_each_particle_once_and_each_chosen_row_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = rk.br_ihmm(noise=0.25, prior_var=9.0, batch=3, particles=12, islands=2)
    model.update(0.0)
    stride = round(48 / 3)
    rows_written = Counter[str]()
    original = within_batch.log_transition_row

    def counted(*arguments: Any) -> None:
        rows_written["log_transition_row"] += 1
        original(*arguments)

    monkeypatch.setattr(within_batch, "log_transition_row", counted)
    kernels = [(LinearEmission, name) for name in ("finalize", "begin")]
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


@uncompiled
def test_labels_are_compared_only_if_their_group_can_have_most_of_the_weight() -> None:
    """Label 0 has 3/5 of the weight, so 5 and 7 are compared with it and not with each other."""
    engine = crowd([1], [1], [1], [1, 2], [1, 3], births=[-1, 0, 5, 7])
    with kernel_calls((LabelMatcher, "joins")) as calls:
        engine.matcher.reconcile_labels()
    assert calls["joins"] == 2


@uncompiled
def test_the_covariance_of_a_row_is_computed_once_until_it_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(0)
    emission = LinearGaussian(Shape(1, 3), GaussianSettings(), scoring("none"), 1)
    emission.resize_rows(40)
    mean, root = np.asarray(emission.mean), np.asarray(emission.root)
    mean[:], root[:] = rng.standard_normal(mean.shape), rng.standard_normal(root.shape)
    written = Counter[str]()

    def counted(*arguments: Any) -> None:
        written["rows"] += 1
        write_covariance(*arguments)

    def exact(a: int, b: int) -> float:
        gap = mean[a, 0] - mean[b, 0]
        squared = gap @ np.linalg.solve(root[a] @ root[a].T + root[b] @ root[b].T, gap)
        return max(0.0, math.sqrt(squared) - math.sqrt(2.0))

    monkeypatch.setattr(linear, "write_covariance", counted)
    few = [(a, b) for a in range(10) for b in range(10) if a != b]
    many = [tuple(rng.choice(40, 2, replace=False)) for _ in range(200)]
    for n, pairs in ((10, few), (410, many)):
        for a, b in pairs:
            assert emission.joint_distance(a, b) == pytest.approx(exact(a, b), rel=1e-9)
        assert 10 <= written["rows"] <= n
    mean[3], root[3] = 5.0, np.eye(3)
    emission.covariances.forget(3)
    assert emission.joint_distance(3, 4) == pytest.approx(exact(3, 4), rel=1e-9)
