"""Selection of a regime model by evidence, and stable ids of the reported regimes."""

from __future__ import annotations

import numpy as np
import pytest

import regimekit as rk
from regimekit.ensemble.regime_selection import EARLY, HOLD, TRACE, WARM_UP, RegimeSelection
from regimekit.serialization.schema import pack_state, unpack_state
from regimekit.serialization.validation import Arrays, Values


def hear(
    selection: RegimeSelection, time: int, regimes: list[int], scores: list[float]
) -> list[str]:
    for i, regime in enumerate(regimes):
        selection.observe(i, regime)
    return [event.kind for event in selection.hear(time, np.array(scores))]


def reported(selection: RegimeSelection) -> list[int]:
    return selection.trace(selection.n_models).tolist()


def test_a_short_excursion_is_not_reported() -> None:
    selection = RegimeSelection(1)
    votes = [4] * 10 + [5] * (HOLD - 1) + [4] * 10 + [5] * (HOLD + 5) + [4] * (HOLD + 5)
    for t in range(EARLY):
        hear(selection, t, [4], [0.0])
    kinds = [hear(selection, EARLY + t, [vote], [0.0]) for t, vote in enumerate(votes)]
    assert [k for kind in kinds for k in kind] == ["regime opened", "regime returned"]
    assert set(reported(selection)) == {0, 1} and selection.regime == 0


def test_a_model_that_drifts_loses_and_one_that_jumps_does_not() -> None:
    drifting, jumping = RegimeSelection(2, start=0), RegimeSelection(2, start=1)
    for t in range(300):
        hear(drifting, t, [t // 10, 0], [-1.0, -0.8])
        hear(jumping, t, [0, 0], [-30.0 if t % 100 == 99 else -1.0, -1.01])
    assert drifting.chosen == 1 and jumping.chosen == 0


def test_ids_do_not_jump_when_the_model_changes() -> None:
    """Two models call the same two regimes by other names."""
    selection = RegimeSelection(2, start=1)
    truth = np.repeat([0, 1, 0, 1, 0, 1], 60)
    for t, regime in enumerate(truth.tolist()):
        late = t > WARM_UP + 160
        hear(selection, t, [7 + regime, 3 - regime], [-1.0, -1.5] if late else [-3.0, -1.0])
    assert selection.chosen == 0
    told = np.array(reported(selection))
    assert (told != truth[-told.size :]).mean() < 0.15
    assert set(reported(selection)) == {0, 1}


def test_names_are_remembered_when_a_model_is_believed_again() -> None:
    """Another one is believed for longer than the two are compared over; regime 0 comes back."""
    selection = RegimeSelection(2, start=0)
    spans = [(0, 0, 100), (1, 0, 100), (1, 1, 2 * TRACE), (1, 0, 300), (0, 0, 100)]
    t = 0
    for regime, believed, length in spans:
        for _ in range(length):
            hear(selection, t, [7 + regime, 3], [-2.0, -1.0] if believed else [-1.0, -2.0])
            t += 1
        assert selection.chosen == believed
    assert selection.regime == 0 and selection.n_regimes == 2


def test_a_new_model_may_have_to_earn_belief() -> None:
    for believed in (False, True):
        selection = RegimeSelection(1)
        for t in range(WARM_UP + 20):
            hear(selection, t, [0], [-1.0])
        selection.add_model(None, believed)
        hear(selection, t + 1, [0, 0], [-1.0, -1.0])
        assert selection.chosen == int(believed)
        for _ in range(20):
            t += 1
            hear(selection, t + 1, [0, 0], [-1.0, -3.0])  # the first one earns it back ..
        selection.add_model(1, believed)  # .. and another takes the second one's place
        hear(selection, t + 2, [0, 0], [-1.0, -1.0])
        assert selection.chosen == int(believed)


def test_snapshot() -> None:
    selection = RegimeSelection(2, start=1)
    for t in range(90):
        hear(selection, t, [t // 20, t // 40], [-1.0, -1.1])
    values, arrays = pack_state(selection)
    twin = RegimeSelection(2)
    unpack_state(twin, Values(values), Arrays(arrays))
    for t in range(90, 130):
        votes = [t // 20, t // 40]
        assert hear(selection, t, votes, [-1.0, -1.1]) == hear(twin, t, votes, [-1.0, -1.1])
    assert pack_state(selection)[0] == pack_state(twin)[0]


def test_a_change_is_dated_as_the_model_dates_it() -> None:
    """The model knows at 150 that regime 5 began at 143; it is reported HOLD observations on."""
    selection, told = RegimeSelection(1), []
    for t in range(200):
        selection.observe(0, 4 if t < 150 else 5, t == 150, t, 143)
        told += selection.hear(t, np.zeros(1))
    assert [(e.time, e.since) for e in told[1:]] == [(150 + HOLD - 1, 143)]
    assert selection.first_seen[1] == 143


def test_a_change_begins_after_the_one_before_it() -> None:
    selection, told = RegimeSelection(1), []
    for t in range(200):
        date = {150: 143, 170: 140}.get(t, 0)
        selection.observe(0, 4 if t < 150 else 15 if t < 170 else 17, date > 0, t, date)
        told += selection.hear(t, np.zeros(1))
    assert [e.since for e in told[1:]] == [143, 144]


@pytest.mark.parametrize("regimes", ["auto", "dynamics"])
@pytest.mark.parametrize("dim", [1, 2])
def test_events_transitions_and_probabilities_agree(regimes: str, dim: int) -> None:
    """Three levels that return, and two spikes."""
    rng = np.random.default_rng(1)
    level, path = 0, []
    while len(path) < 1500:
        path += [level] * int(rng.integers(60, 200))
        level = (level + int(rng.integers(1, 3))) % 3
    y = np.array([0.0, 6.0, -7.0])[path[:1500], None] * [1.0, 0.5][:dim]
    y = y + rng.standard_normal((1500, dim))
    y[[400, 1300], 0] += [15.0, -12.0]
    model = rk.make("auto", regimes=regimes)
    run = model.run(y)
    changes = [event for event in run.events if event.is_change]
    assert len(changes) == len(run.known_changepoints) == len(run.changepoints) > 8
    ids, matrix = model.transitions()
    assert ids == [regime.id for regime in model.regimes()]
    stays = np.array([regime.visits for regime in model.regimes()])
    assert stays.sum() == len(run)
    # Each row is the counts of its regime over one more than their sum.
    counts = matrix / (1.0 - matrix.sum(axis=1, keepdims=True))
    moves = np.zeros_like(counts)
    for event in changes:
        moves[event.previous, event.regime] += 1
    np.testing.assert_allclose(counts - np.diag(np.diag(counts)), moves, atol=1e-6)
    assert (run.regime_probability > 0.0).all() and (run.regime_probability <= 1.0).all()
    known = np.array(run.known_changepoints)
    assert (run.change_probability[known] > 0.7).all()
    # After the change the new regime is certain, and the next change improbable.
    for shift in (1, 2, 3):
        assert (run.regime_probability[known + shift] > 0.7).all()
        assert (run.change_probability[known + shift] < 0.3).all()
    assert (run.change_probability[[400, 401, 1300, 1301]] < 0.5).all()


def test_while_a_change_is_held_back_the_reported_regime_is_improbable() -> None:
    rng = np.random.default_rng(2)
    y = np.repeat([0.0, 8.0, 0.0, 8.0], 100) + rng.standard_normal(400)
    run = rk.make("auto", regimes="dynamics").run(y)
    for event in (e for e in run.events if e.is_change):
        before = slice(event.time - 2, event.time)
        assert (run.regime_probability[before] < 0.5).all()
        assert (run.change_probability[before] > 0.5).all()
