"""A model used from several threads: its methods take turns."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import time
from collections.abc import Callable, Iterator

import crafted
import numpy as np
import pytest

import regimekit as rk
from regimekit.core.model import Model
from regimekit.core.registry import REGISTRY


@pytest.fixture(autouse=True)
def eager_switching() -> Iterator[None]:
    """Threads change places as often as they can, so that a race is run within a second."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(*actions: Callable[[], object]) -> list[BaseException]:
    """All actions at once; what they raised."""
    raised: list[BaseException] = []

    def guarded(action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


@pytest.mark.parametrize("name", crafted.ONLINE)
def test_updates_and_questions_from_many_threads(name: str) -> None:
    """Nothing raises, and every observation counts once."""
    model = crafted.made(name)
    model.update(0.0)
    y = np.random.default_rng(0).standard_normal(60)

    def learn() -> None:
        for value in y:
            model.update(float(value))

    def ask() -> None:
        for _ in range(30):
            assert np.isfinite(model.predict().mean)
            model.regimes(), model.transitions(), model.to_bytes()

    assert together(learn, learn, ask, ask) == []
    one_by_one = crafted.made(name)
    one_by_one.update(0.0)
    for value in (*y, *y):
        one_by_one.update(float(value))
    assert rk.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()
    assert _time(model) == _time(one_by_one)


def _time(model: Model) -> object:
    values = model._pack()[0]
    return values.get("time")


class Slow(Model):
    """A model that is caught in the middle of an update."""

    name = "slow"

    def __init__(self) -> None:
        self.inside = 0

    def settings(self) -> dict[str, object]:
        return {}

    @classmethod
    def _make(cls, settings: dict[str, object]) -> Slow:
        return cls()

    def _check(self, x: object) -> None:
        return None

    def _predict(self, x: object) -> rk.Forecast:
        assert self.inside == 0, "a forecast was made inside an update"
        return rk.Forecast.gaussian(0.0, 1.0)

    def _observe(self, y: np.ndarray, x: object) -> tuple[rk.Forecast, rk.Step]:
        assert self.inside == 0, "an update was made inside an update"
        self.inside = 1
        time.sleep(0.001)
        self.inside = 0
        return rk.Forecast.gaussian(0.0, 1.0), rk.Step()

    def regimes(self) -> list[rk.Regime]:
        assert self.inside == 0, "regimes were asked for inside an update"
        return []

    def _pack(self) -> tuple[dict[str, object], dict[str, np.ndarray]]:
        assert self.inside == 0, "a snapshot was taken inside an update"
        return {}, {}

    def _unpack(self, values: dict[str, object], arrays: dict[str, np.ndarray]) -> None:
        pass


@pytest.mark.parametrize("method", ["predict", "update", "regimes", "to_bytes", "copy", "run"])
def test_every_method_waits_for_the_lock(method: str) -> None:
    """Also a method that a subclass overrides."""
    model = Slow()
    arguments = {"update": (0.0,), "run": ([0.0, 0.0],)}.get(method, ())

    def call() -> None:
        for _ in range(20):
            getattr(model, method)(*arguments)

    assert together(lambda: model.run(np.zeros(30)), call) == []


@pytest.mark.parametrize("name", list(REGISTRY))
def test_copies_and_pickles_have_their_own_lock(name: str) -> None:
    model = rk.from_bytes(crafted.stored(name))
    for twin in (model.copy(), copy.deepcopy(model), pickled(model)):
        assert twin._lock is not model._lock and twin.to_bytes() == model.to_bytes()
    assert copy.copy(model)._lock is model._lock  # a shallow copy shares the state and the lock


def pickled(model: Model) -> Model:
    twin: Model = pickle.loads(pickle.dumps(model))
    return twin


def test_a_lock_costs_less_than_two_microseconds() -> None:
    """The best of many tries: what the machine does beside is not the point."""

    class Bare(Slow):
        def _predict(self, x: object) -> None:
            return None

    model = Bare()
    waiting, plain = model.predict, Bare.predict.__wrapped__
    cost = min(_seconds(waiting) - _seconds(lambda: plain(model)) for _ in range(50))
    assert cost / 1000 < 2e-6


def _seconds(call: Callable[[], object]) -> float:
    begun = time.thread_time()
    for _ in range(1000):
        call()
    return time.thread_time() - begun
