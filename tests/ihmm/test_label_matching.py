"""Ids of regimes that particles opened at different moments."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import regimekit as rk
from regimekit import datasets as data
from regimekit import metrics as evaluate
from regimekit.ihmm import batch_update as commit
from regimekit.ihmm.emissions.base import apart
from regimekit.ihmm.engine import Engine
from regimekit.ihmm.label_matching import APART, reconcile, vote
from regimekit.ihmm.merge import join_duplicates


def crowd(*held: list[int], births: list[int], rule: str = "default", islands: int = 1) -> Engine:
    """Particles that hold these rows, each in the last of them, with equal weights.

    Row k of the ledger has birth `births[k]`; all rows agree in their coefficients.
    """
    known = {"noise": 0.25, "prior_var": 1.0}
    model = rk.br_ihmm(particles=len(held), rule=rule, weight="imq", islands=islands, **known)
    model.update(0.0)
    engine = model.engine
    p, ledger = engine.state.particles, engine.state.ledger
    for i, rows in enumerate(held):
        p.slots[i, : len(rows)] = rows
        p.n_regimes[i], p.current[i] = len(rows), len(rows) - 1
    ledger.identity[: len(births)] = births
    engine.rows.mean[:] = 0.0
    engine.rows.root[:] = np.eye(1)
    commit.recount(engine.state)
    return engine


def reconciled(engine: Engine, n: int) -> list[int]:
    reconcile(engine.rows, engine.state, engine.plan)
    return [int(one) for one in engine.state.ledger.identity[:n]]


def test_births_that_nobody_holds_together_are_one() -> None:
    engine = crowd([1, 2], [1, 3], [1, 4], births=[-1, 0, 5, 7, 9])
    assert reconciled(engine, 5) == [-1, 0, 5, 5, 5]


def test_births_that_one_particle_holds_together_stay_two() -> None:
    engine = crowd([1, 2], [1, 3], [1, 2, 3], births=[-1, 0, 5, 7])
    assert reconciled(engine, 4) == [-1, 0, 5, 7]


def test_strays_of_a_few_particles_stay_apart() -> None:
    """Two particles in five have each opened a regime of their own; the rest stayed."""
    engine = crowd([1, 2], [1, 3], [1], [1], [1], births=[-1, 0, 5, 7])
    assert reconciled(engine, 4) == [-1, 0, 5, 7]


def test_a_third_birth_joins_the_one_it_was_never_seen_with() -> None:
    """5 and 7 are held together, 9 only ever with 5."""
    engine = crowd([1, 2, 3], [1, 2, 4], [1, 2, 3], [1, 2], births=[-1, 0, 5, 7, 9])
    assert reconciled(engine, 5) == [-1, 0, 5, 7, 7]


def test_a_regime_left_long_ago_is_no_twin_of_a_present_one() -> None:
    """Row 2 is nobody's present regime: that no particle holds 2 and 3 says nothing."""
    engine = crowd([1, 2], [3], births=[-1, 0, 5, 7])
    engine.state.particles.current[0] = 0
    assert reconciled(engine, 4) == [-1, 0, 5, 0]


@pytest.mark.parametrize(("rule", "births"), [("default", [5, 7]), ("paper", [5, 5])])
def test_births_with_other_coefficients_are_two(rule: str, births: list[int]) -> None:
    """D12: 4.3 apart is more than three times sqrt(1 + 1)."""
    for gap, two in ((4.3, True), (4.2, False)):
        engine = crowd([1, 2], [1, 3], births=[-1, 0, 5, 7], rule=rule)
        engine.rows.mean[3] = gap
        assert reconciled(engine, 4)[2:] == (births if two else [5, 5])


def test_the_vote_is_over_all_islands() -> None:
    """Two islands of two particles: within one weights add up to one, each counts half."""
    engine = crowd([1], [2], [2], [2], births=[-1, 3, 4], islands=2)
    weight = engine.state.particles.log_weight
    weight[:] = np.log([0.9, 0.1, 0.5, 0.5])
    vote(engine.state)
    assert engine.state.clock.vote[0] == 4  # 0.05 + 0.5 against 0.45
    assert engine.state.ledger.told[:3].tolist() == [0, 0, 1]
    weight[:] = np.log([0.5, 0.5, 0.5, 0.5])
    engine.state.particles.slots[2, 0] = 1
    vote(engine.state)
    assert engine.state.clock.vote[0] == 3  # of equals the oldest


@pytest.mark.parametrize("agree", ["default", "paper"])
def test_a_particle_holds_an_id_twice_only_if_it_opened_a_regime_twice(agree: str) -> None:
    """Without D12 never; with it, established regimes that agree may be one."""
    stream = data.iid_regimes(3, noise="t")
    model = rk.br_ihmm(noise=0.25, prior_var=4.0, batch=3, particles=30, rule={"D12": agree})
    for start in range(0, len(stream.y), 50):
        model.run(stream.y[start : start + 50])
        state, rows = model.engine.state, model.engine.rows
        p, identity = state.particles, state.ledger.identity
        for i in range(p.alpha.size):
            held = p.slots[i, : p.n_regimes[i]].tolist()
            ids = identity[held].tolist()
            assert -1 not in ids
            twice = [
                (a, b) for a, b in itertools.combinations(held, 2) if identity[a] == identity[b]
            ]
            assert not twice or agree == "default"
            assert all(apart(rows, a, b) < 2 * APART for a, b in twice)


def test_a_new_regime_has_one_name_however_soon_particles_see_it() -> None:
    """With 100 coefficients it is opened over several batches, in islands of their own."""
    stream = data.synthetic_regression(5, n=600)
    model = rk.br_ihmm(noise=0.33, prior_var=0.4, features=rk.features.columns(), seed=5)
    run = model.run(stream.y, stream.X)
    births = int(model.engine.state.clock.next_id[0])
    names = evaluate.n_regimes(run.path)
    assert names <= 1.5 * len(set(stream.regimes)) < births


def doubled(told: list[int]) -> Engine:
    """Particles that have opened one level twice: rows 1 and 2, each seen for two batches."""
    model = rk.br_ihmm(particles=2, islands=1, batch=4, noise=0.25, prior_var=100.0)
    model.update(0.0)
    engine = model.engine
    p, ledger = engine.state.particles, engine.state.ledger
    p.n_regimes[:], p.current[:] = 2, 1
    p.slots[:, :3] = [1, 2, 0]
    p.counts[:, :2, :2] = [[3, 1], [0, 2]]
    p.start[:, :2] = [1, 0]
    p.log_beta[:, :3] = np.log([0.5, 0.3, 0.2])
    ledger.identity[1:3], ledger.told[1:3] = [4, 9], told
    ledger.visits[1:3], ledger.batches[1:3] = [8, 8], [2, 2]
    ledger.first_seen[1:3], ledger.last_seen[1:3] = [0, 16], [15, 23]
    engine.rows.mean[1:3, 0, 0] = [5.0, 5.1]
    engine.rows.root[1:3, 0, 0] = np.sqrt(0.25 / 8)
    engine.state.clock.position[:] = 0
    commit.recount(engine.state)
    return engine


@pytest.mark.parametrize(("told", "name"), [([1, 1], 4), ([0, 0], 4), ([0, 1], 9), ([1, 0], 4)])
def test_a_level_that_was_opened_twice_becomes_one_regime(told: list[int], name: int) -> None:
    """D11: counts, shares and what was seen add up; the name is one that was reported."""
    engine = doubled(told)
    assert join_duplicates(engine)
    p, ledger = engine.state.particles, engine.state.ledger
    assert p.n_regimes.tolist() == [1, 1] and p.current.tolist() == [0, 0]
    assert p.counts[:, 0, 0].tolist() == [6, 6] and p.start[:, 0].tolist() == [1, 1]
    np.testing.assert_allclose(np.exp(p.log_beta[:, :2]), [[0.8, 0.2]] * 2)
    row = int(p.slots[0, 0])
    assert p.slots[:, :2].tolist() == [[row, 0]] * 2  # one row for both, and the prior
    assert (ledger.identity[row], ledger.told[row]) == (name, max(told))
    assert (ledger.visits[row], ledger.batches[row]) == (16, 4)
    assert (ledger.first_seen[row], ledger.last_seen[row]) == (0, 23)
    assert engine.rows.mean[row, 0, 0] == pytest.approx(5.05, abs=1e-3)
    assert engine.rows.root[row, 0, 0] ** 2 == pytest.approx(0.25 / 16, rel=1e-3)
    assert ledger.owners[[0, 1, 2, row]].tolist() == [2, 0, 0, 2]
    assert engine.state.candidates.row[0, : engine.state.clock.candidates[0]].max() == row


def test_two_levels_stay_two() -> None:
    engine = doubled([1, 1])
    engine.rows.mean[2, 0, 0] = 7.0
    assert not join_duplicates(engine)
    assert engine.state.particles.n_regimes.tolist() == [2, 2]


def test_what_nobody_remembers_is_no_longer_among_the_told() -> None:
    """Ever-new levels, three regimes at most: reports are forgotten, and so is that they were."""
    rng = np.random.default_rng(3)
    y = np.repeat(8.0 * np.arange(10), 24) + 0.5 * rng.standard_normal(240)
    settings: dict[str, Any] = {"max_regimes": 3, "prune_pool": 2, "particles": 20, "batch": 3}
    model: Any = rk.br_ihmm(noise=0.25, prior_var=1e4, islands=1, **settings)
    reported = set()
    for value in y:
        reported.add(model.update(value).regime)
        assert model.engine.told <= model.engine.remembered()
    assert len(reported) > 5 > len(model.engine.told)
