"""Members without weight sleep; that changes little, and ends when they are needed."""

from __future__ import annotations

import numpy as np
import pytest

import regimekit as rk
from regimekit.core.exceptions import SnapshotError
from regimekit.ensemble import aggregation
from regimekit.ensemble.aggregation import Aggregation, SleepingExperts
from regimekit.serialization.schema import pack_state, unpack_state
from regimekit.serialization.validation import Arrays, Values

MAY_SLEEP = [False, True, True]  # a member that infers regimes, and two that only forecast
SLEEPING = "regimes, lags 1 to 3"


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation, "TRIAL", 200)
    monkeypatch.setattr(aggregation, "SLEEP", 300)


def seasonal(n: int, seed: int = 0) -> np.ndarray:
    """A strong season of 12; lags 1 to 3 alone are no match for who knows it."""
    pattern = np.array([0, 9, -7, 5, -3, 8, -9, 2, 6, -5, 4, -8.0])
    return np.tile(pattern, n // 12 + 1)[:n] + 0.5 * np.random.default_rng(seed).standard_normal(n)


def test_who_is_not_heard_for_a_whole_trial_rests_and_wakes(short: None) -> None:
    own = SleepingExperts(MAY_SLEEP)
    seen = []
    for t in range(1000):
        weight = np.array([0.0, 0.03 if t == 150 else 0.01, 0.5])
        own.watch(weight * np.asarray(own.active))
        seen.append(np.array(own.active, bool))
    asleep = np.flatnonzero(~np.array(seen)[:, 1])
    assert np.array(seen)[:, [0, 2]].all()  # who reads regimes, and who is heard, never rests
    assert asleep[0] == 399 and asleep.size == 300 + 101  # 399 .. 698, and from 899 on


def test_time_stands_still_for_who_rests() -> None:
    weights, full = Aggregation(np.ones(3, bool)), Aggregation(np.ones(3, bool))
    for _ in range(40):
        for one in (weights, full):
            one.update(np.array([0.1, 0.3, 0.2]))
    before = np.array(weights.weight)
    weights.set_present(np.array([True, False, True]))
    assert weights.weight[1] == 0.0 and np.sum(weights.weight) == pytest.approx(1.0)
    for _ in range(40):
        weights.update(np.array([0.1, 77.0, 0.1]))
    for name in ("regret", "square", "largest"):
        assert getattr(weights, name)[1] == getattr(full, name)[1]
    assert np.asarray(weights.tally)[:, 1].tolist() == np.asarray(full.tally)[:, 1].tolist()
    weights.set_present(np.ones(3, bool))
    assert 0.0 < weights.weight[1] <= before[1] * 1.5


def test_a_season_lets_short_lags_rest_and_costs_nothing(
    short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    y = seasonal(900)
    model = rk.auto()
    resting = model.run(y)
    watched, rested = rk.auto(), []
    for part in np.split(y, 36):
        watched.run(part)
        assert watched.engine is not None
        rested.append(not watched.engine.ensemble.sleeping.active[2])
    assert any(rested) and not rested[0]
    assert model.weights[SLEEPING] < aggregation.MIN_WEIGHT
    assert model.regret[SLEEPING] < 0.5  # it would have been far worse, where it was asked
    monkeypatch.setattr(aggregation, "MIN_WEIGHT", 0.0)
    always = rk.auto().run(y)
    ours, theirs = (np.abs(one.mean - y)[400:].mean() for one in (resting, always))
    assert ours == pytest.approx(theirs, rel=0.01)
    assert resting.regime.tolist() == always.regime.tolist()


def test_a_resting_member_is_saved_as_it_is(short: None) -> None:
    y = seasonal(700)
    model = rk.auto()
    for t, value in enumerate(y):
        model.update(value)
        if t > 300 and not np.all(model.engine.ensemble.sleeping.active):
            break
    else:
        pytest.fail("no member sleeps")
    assert model.weights[SLEEPING] == 0.0 and "Inactive members" in model.explain()
    twin = rk.from_bytes(model.to_bytes())
    for value in y[t + 1 : t + 350]:  # until after it has been woken
        ours, theirs = model.update(value), twin.update(value)
        assert ours.log_score == theirs.log_score
    assert model.engine.ensemble.sleeping.elapsed[2] == twin.engine.ensemble.sleeping.elapsed[2]


def test_a_snapshot_cannot_let_a_reader_rest(short: None) -> None:
    own = SleepingExperts(MAY_SLEEP)
    own.active[0] = 0
    values, arrays = pack_state(own)
    with pytest.raises(SnapshotError, match="must be active"):
        unpack_state(SleepingExperts(MAY_SLEEP), Values(values), Arrays(arrays))


def test_it_is_heard_again_when_the_season_ends(
    short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream turns into an AR(3): the member is woken, and sleep has cost nothing."""
    rng = np.random.default_rng(1)
    tail = [0.0, 0.0, 0.0]
    for _ in range(900):
        tail.append(0.2 * tail[-1] + 0.1 * tail[-2] + 0.65 * tail[-3] + 0.5 * rng.standard_normal())
    model, after = rk.auto(), np.array(tail[3:])
    model.run(seasonal(600))
    active, weight, mean = [], [], []
    for part in np.split(after, 36):
        mean.append(model.run(part).mean)
        assert model.engine is not None
        active.append(bool(model.engine.ensemble.sleeping.active[2]))
        weight.append(model.weights[SLEEPING])
    woken = [i for i in range(1, 36) if active[i] and not active[i - 1]]
    assert woken and weight[woken[-1]] > 0.0
    monkeypatch.setattr(aggregation, "MIN_WEIGHT", 0.0)
    always = rk.auto()
    always.run(seasonal(600))
    ours, theirs = (
        np.abs(m - after).mean() for m in (np.concatenate(mean), always.run(after).mean)
    )
    assert ours == pytest.approx(theirs, rel=0.01)
