"""Ids of regimes that particles opened at different moments."""

from __future__ import annotations

import numpy as np
import pytest

import holdfast as hf
from holdfast import data, evaluate
from holdfast.engine import engine
from holdfast.engine import particles as particle_arrays
from holdfast.engine.identity import reconcile
from holdfast.hdp import Concentration, Particles


def crowd(*held: list[int]) -> Particles:
    """Particles that hold these pool rows, each in the last of them."""
    rng = np.random.default_rng(0)
    p = particle_arrays.initial(len(held), Concentration(), False, rng)
    for i, rows in enumerate(held):
        p.slots[i, : len(rows)] = rows
        p.n_regimes[i], p.current[i] = len(rows), len(rows) - 1
    return p


def test_births_that_nobody_holds_together_are_one() -> None:
    identity = np.array([-1, 0, 5, 7, 9])
    reconcile(crowd([1, 2], [1, 3], [1, 4]), identity)
    assert identity.tolist() == [-1, 0, 5, 5, 5]


def test_births_that_one_particle_holds_together_stay_two() -> None:
    identity = np.array([-1, 0, 5, 7])
    reconcile(crowd([1, 2], [1, 3], [1, 2, 3]), identity)
    assert identity.tolist() == [-1, 0, 5, 7]


def test_strays_of_a_few_particles_stay_apart() -> None:
    """Two particles in five have each opened a regime of their own; the rest stayed."""
    identity = np.array([-1, 0, 5, 7])
    reconcile(crowd([1, 2], [1, 3], [1], [1], [1]), identity)
    assert identity.tolist() == [-1, 0, 5, 7]


def test_a_third_birth_joins_the_one_it_was_never_seen_with() -> None:
    """5 and 7 are held together, 9 only ever with 5."""
    identity = np.array([-1, 0, 5, 7, 9])
    reconcile(crowd([1, 2, 3], [1, 2, 4], [1, 2, 3], [1, 2]), identity)
    assert identity.tolist() == [-1, 0, 5, 7, 7]


def test_a_regime_left_long_ago_is_no_twin_of_a_present_one() -> None:
    """Row 2 is nobody's present regime: that no particle holds 2 and 3 says nothing."""
    identity = np.array([-1, 0, 5, 7])
    p = crowd([1, 2], [3])
    p.current[0] = 0
    reconcile(p, identity)
    assert identity.tolist() == [-1, 0, 5, 0]


@pytest.mark.parametrize("rule", ["holdfast", "paper"])
def test_no_particle_holds_an_id_twice(rule: str) -> None:
    stream = data.iid_regimes(3, noise="t")
    model = hf.br_ihmm(noise=0.25, prior_var=4.0, batch=3, particles=30, rule=rule)
    for t, y in enumerate(stream.y):
        model.update(y)
        if t % 50 == 0:
            p, identity = model.engine.particles, model.engine.pool.ledger.identity
            for i in range(p.alpha.size):
                ids = identity[p.slots[i, : p.n_regimes[i]]].tolist()
                assert len(set(ids)) == len(ids) and -1 not in ids


def test_a_regime_that_some_particles_see_sooner_has_fewer_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 100 coefficients a new regime is opened over several batches."""
    stream = data.synthetic_regression(5, n=600)

    def names() -> int:
        model = hf.br_ihmm(
            noise=0.33, prior_var=0.4, batch=2, threshold=3.0, sticky=20.0,
            features=hf.features.columns(), seed=5,
        )  # fmt: skip
        return evaluate.n_regimes(model.run(stream.y, stream.X).path)

    together = names()
    monkeypatch.setattr(engine, "reconcile", lambda *_: None)
    assert together < names()
