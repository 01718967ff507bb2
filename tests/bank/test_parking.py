"""Members that do not matter rest; resting changes little, and ends when they are needed."""

from __future__ import annotations

import numpy as np
import pytest

import regimekit as rk
from regimekit.core.exceptions import SnapshotError
from regimekit.ensemble import sleeping_experts as parking
from regimekit.ensemble.aggregation import Mixer
from regimekit.ensemble.members import Spec
from regimekit.ensemble.sleeping_experts import Parking
from regimekit.serialization.validation import Arrays

SPECS = [Spec("level", reads=True), Spec("lags 1 to 3", (1, 2, 3)), Spec("season lags", (1, 24))]
PARKED = "regimes, lags 1 to 3"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parking, "TRIAL", 200)
    monkeypatch.setattr(parking, "REST", 300)


def seasonal(n: int, seed: int = 0) -> np.ndarray:
    """A strong season of 12; lags 1 to 3 alone are no match for who knows it."""
    pattern = np.array([0, 9, -7, 5, -3, 8, -9, 2, 6, -5, 4, -8.0])
    return np.tile(pattern, n // 12 + 1)[:n] + 0.5 * np.random.default_rng(seed).standard_normal(n)


def test_who_is_not_heard_for_a_whole_trial_rests_and_wakes(short: None) -> None:
    own = Parking(SPECS)
    seen = []
    for t in range(1000):
        weight = np.array([0.0, 0.03 if t == 150 else 0.01, 0.5])
        own.watch(weight * own.awake)
        seen.append(own.awake.copy())
    asleep = np.flatnonzero(~np.array(seen)[:, 1])
    assert np.array(seen)[:, [0, 2]].all()  # who reads regimes, and who is heard, never rests
    assert asleep[0] == 399 and asleep.size == 300 + 101  # 399 .. 698, and from 899 on


def test_time_stands_still_for_who_rests() -> None:
    mixer, full = Mixer(np.ones(3, bool)), Mixer(np.ones(3, bool))
    for _ in range(40):
        for one in (mixer, full):
            one.learn(np.array([0.1, 0.3, 0.2]))
            one.count(np.array([1.0, 2.0, 3.0]), 1.0)
    before = mixer.weight.copy()
    mixer.attend(np.array([True, False, True]))
    assert mixer.weight[1] == 0.0 and mixer.weight.sum() == pytest.approx(1.0)
    for _ in range(40):
        mixer.learn(np.array([0.1, 77.0, 0.1]))
        mixer.count(np.array([1.0, 77.0, 1.0]), 1.0)
    for name in ("regret", "square", "largest"):
        assert getattr(mixer, name)[1] == getattr(full, name)[1]
    assert mixer.tally[:, 1].tolist() == full.tally[:, 1].tolist()
    mixer.attend(np.ones(3, bool))
    assert 0.0 < mixer.weight[1] <= before[1] * 1.5


def test_a_season_lets_short_lags_rest_and_costs_nothing(
    short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = seasonal(900)
    model = rk.auto()
    resting = model.run(y)
    watched, rested = rk.auto(), []
    for part in np.split(y, 36):
        watched.run(part)
        rested.append(not watched.stream.ensemble.parking.awake[2])
    assert any(rested) and not rested[0]
    assert model.weights[PARKED] < parking.HEARD
    assert model.regret[PARKED] < 0.5  # it would have been far worse, where it was asked
    monkeypatch.setattr(parking, "HEARD", 0.0)
    always = rk.auto().run(y)
    ours, theirs = (np.abs(one.mean - y)[400:].mean() for one in (resting, always))
    assert ours == pytest.approx(theirs, rel=0.01)
    assert resting.regime.tolist() == always.regime.tolist()


def test_a_resting_member_is_saved_as_it_is(short: None) -> None:
    y = seasonal(700)
    model = rk.auto()
    for t, value in enumerate(y):
        model.update(value)
        if t > 300 and not model.stream.ensemble.parking.awake.all():
            break
    else:
        pytest.fail("nobody went to rest")
    assert model.weights[PARKED] == 0.0 and "At rest" in model.explain()
    twin = rk.from_bytes(model.to_bytes())
    for value in y[t + 1 : t + 350]:  # until after it has been woken
        ours, theirs = model.update(value), twin.update(value)
        assert ours.log_score == theirs.log_score
    assert model.stream.ensemble.parking.elapsed[2] == twin.stream.ensemble.parking.elapsed[2]


def test_a_snapshot_cannot_let_a_reader_rest(short: None) -> None:
    own = Parking(SPECS)
    own.awake[0] = False
    with pytest.raises(SnapshotError, match="always needed"):
        Parking(SPECS).unpack(Arrays.of(own.pack()))


def test_it_is_heard_again_when_the_season_ends(short: None) -> None:
    """The stream turns into an AR(3) that has no season."""
    rng = np.random.default_rng(1)
    tail = [0.0, 0.0, 0.0]
    for _ in range(900):
        tail.append(0.2 * tail[-1] + 0.1 * tail[-2] + 0.65 * tail[-3] + 0.5 * rng.standard_normal())
    model = rk.auto()
    model.run(seasonal(600))
    model.run(np.array(tail[3:]))
    parked = model.stream.ensemble.parking
    assert parked.awake[2] and model.weights[PARKED] > parking.HEARD
