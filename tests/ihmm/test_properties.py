"""Properties that hold for every stream: units, order of particles, definiteness, bounded sway."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows import LONGEST, Follower, scoring

import regimekit as rk
from regimekit.ihmm.emissions.base import Shape
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings, LinearGaussian

PARTICLE_ARRAYS = (
    "log_weight",
    "current",
    "n_regimes",
    "alpha",
    "gamma",
    "slots",
    "counts",
    "start",
    "log_beta",
    "log_row",
)

SEEDS = st.integers(0, 10_000)
WEIGHT = st.sampled_from(["contamination", "imq", "huber", "mahalanobis", "none"])


def property_test(examples: int) -> Any:
    return settings(deadline=None, derandomize=True, max_examples=examples)


def regimes_with_spikes(seed: int, length: int = 48, dim: int = 1) -> np.ndarray:
    """Levels that change now and then, a few spikes and a gap."""
    rng = np.random.default_rng(seed)
    levels = np.repeat(rng.standard_normal((length // 12, dim)) * 2, 12, axis=0)
    y = levels + 0.5 * rng.standard_normal((length, dim))
    y[rng.integers(length, size=2)] += 30 * rng.standard_normal((2, 1))
    y[rng.integers(length)] = np.nan
    return y[:, 0] if dim == 1 else y


@given(
    seed=SEEDS,
    exponent=st.floats(-6, 6),
    batch=st.integers(1, 5),
    weight=WEIGHT,
    dim=st.sampled_from([1, 2]),
)
@property_test(25)
def test_units_do_not_matter(seed: int, exponent: float, batch: int, weight: str, dim: int) -> None:
    """(y, mu0, sqrt R, sqrt Sigma0) times any factor: the same regimes, weights and changes."""
    y, factor = regimes_with_spikes(seed, dim=dim), 10.0**exponent
    shared: dict[str, Any] = {"particles": 15, "batch": batch, "weight": weight, "seed": seed}
    noise = 0.25 * np.eye(dim)
    ours = rk.br_ihmm(noise=noise, prior_mean=0.3, prior_var=4.0, **shared).run(y)
    model = rk.br_ihmm(
        noise=noise * factor**2, prior_mean=0.3 * factor, prior_var=4.0 * factor**2, **shared
    )
    theirs = model.run(y * factor)
    np.testing.assert_array_equal(ours.regime, theirs.regime)
    np.testing.assert_array_equal(ours.n_regimes, theirs.n_regimes)
    for name in ("weight", "regime_probability", "change_probability", "ess"):
        np.testing.assert_allclose(
            getattr(ours, name), getattr(theirs, name), rtol=1e-6, atol=1e-9, err_msg=name
        )
    np.testing.assert_allclose(ours.mean * factor, theirs.mean, rtol=1e-6, atol=1e-7 * factor)
    seen = ~np.isnan(y.reshape(len(y), -1)).all(axis=1)
    shifted = theirs.log_score[seen] + dim * math.log(factor)
    np.testing.assert_allclose(ours.log_score[seen], shifted, rtol=1e-6, atol=1e-6)


def test_units_matter_under_the_papers_score() -> None:
    """D1 switched back: measured in thousandths, the same series has other regime probabilities."""
    y = regimes_with_spikes(3)
    runs = []
    for factor in (1.0, 1e-3):
        model = rk.br_ihmm(
            noise=0.25 * factor**2,
            prior_var=4.0 * factor**2,
            batch=3,
            particles=50,
            rule={"D1": "paper"},
        )
        runs.append(model.run(y * factor))
    assert np.abs(runs[0].change_probability - runs[1].change_probability).max() > 0.1


@given(seed=SEEDS, stop=st.integers(1, 48), dim=st.sampled_from([1, 2]), islands=st.integers(1, 3))
@property_test(25)
def test_particles_of_an_island_have_no_order(seed: int, stop: int, dim: int, islands: int) -> None:
    model = rk.br_ihmm(
        noise=0.25 * np.eye(dim), prior_var=4.0, batch=4, particles=12, islands=islands, seed=seed
    )
    model.run(regimes_with_spikes(seed, dim=dim)[:stop])
    engine = model.engine
    forecast, ahead = model.predict(), model.forecast(6)[-1]
    votes, held, change = summary(engine)
    rng = np.random.default_rng(seed)
    first = np.asarray(engine.clock.first)
    order = np.concatenate(
        [rng.permutation(np.arange(*part)) for part in itertools.pairwise(first)]
    )
    for name in PARTICLE_ARRAYS:
        array = np.asarray(getattr(engine.particles, name))
        array[:] = array[order]
    again = summary(engine)
    for before, after in ((forecast, model.predict()), (ahead, model.forecast(6)[-1])):
        np.testing.assert_allclose(before.mean, after.mean, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(before.sd, after.sd, rtol=1e-12)
    assert again[0] == pytest.approx(votes, rel=1e-12)
    np.testing.assert_allclose(again[1], held, rtol=1e-12)
    np.testing.assert_allclose(again[2], change, atol=1e-12)


def summary(engine: Any) -> tuple[dict[int, float], np.ndarray, list[float]]:
    """Weight of each present label, of each row, and every island's probability of a change."""
    change = [engine.refresh_masses(g) for g in range(engine.islands)]
    return engine.matcher.present_shares(), engine.row_mass(), change


@given(
    values=st.lists(st.floats(-1e300, 1e300, allow_subnormal=True), min_size=1, max_size=25),
    noise=st.floats(-12, 3).map(lambda e: 10.0**e),
    weight=st.sampled_from(["imq", "huber", "mahalanobis", "none"]),
    dim=st.sampled_from([1, 3]),
)
@property_test(60)
def test_covariances_stay_positive_definite(
    values: list[float], noise: float, weight: str, dim: int
) -> None:
    """Whatever is observed: a finite mean, and Sigma that has lost no direction."""
    rng = np.random.default_rng(len(values))
    row = one_row(dim, 3, noise, 1.0, weight, 2.0)
    for y in values:
        row.learn(np.full(dim, y), rng.standard_normal((dim, 3)))
        mean, root = row.closed().values()
        sigma = root @ root.T
        assert np.isfinite(mean).all() and np.isfinite(row.score)
        assert np.linalg.slogdet(root)[0] != 0
        assert (np.diag(sigma) > 0).all() and np.linalg.eigvalsh(sigma).max() <= 1 + 1e-9


def one_row(dim: int, m: int, noise: float, prior_var: float, weight: str, c: float) -> Follower:
    settings = GaussianSettings(noise, 0.0, prior_var)
    return Follower(LinearGaussian(Shape(dim, m, False), settings, scoring(weight, c), LONGEST))


def sway_bound(weight: str, v: float, noise: float, c: float) -> float:
    """The most that one observation, however far, can move f'mu (d = 1).

    With r the residual, v = f' Sigma f, S = v + R, the step is v r / (v + R / w^2).
    IMQ:   v r / (S + R r^2 / (S c^2)), largest at r = S c / sqrt R:          v c / (2 sqrt R)
    Huber: r up to c sqrt S learns in full; beyond, v r / (v + R r^2 / (S c^2)) is largest at
           r = c sqrt(v S / R), if that lies beyond:        max(v c / sqrt S, c sqrt(v S / R) / 2)
    Mahalanobis: nothing beyond c sqrt S:                                      v c / sqrt S
    """
    s = v + noise
    if weight == "imq":
        return v * c / (2 * math.sqrt(noise))
    full = v * c / math.sqrt(s)
    if weight == "huber" and v > noise:
        return max(full, c * math.sqrt(v * s / noise) / 2)
    return full


@given(
    weight=st.sampled_from(["imq", "huber", "mahalanobis"]),
    v=st.floats(-6, 6).map(lambda e: 10.0**e),
    noise=st.floats(-6, 6).map(lambda e: 10.0**e),
    c=st.floats(0.1, 20),
    y=st.one_of(st.just(1e12), st.floats(-1e300, 1e300), st.floats(-10, 10)),
)
@property_test(150)
def test_one_observation_moves_a_mean_no_further_than_the_bound(
    weight: str, v: float, noise: float, c: float, y: float
) -> None:
    row = one_row(1, 1, noise, v, weight, c)
    row.learn(y, np.ones((1, 1)))
    mean, root = row.closed().values()
    assert abs(mean[0, 0]) <= sway_bound(weight, v, noise, c) * (1 + 1e-9)
    assert 0 < root[0, 0] ** 2 <= v * (1 + 1e-12)


@pytest.mark.parametrize(("v", "noise", "c"), [(1.0, 0.25, 2.0), (5.0, 0.01, 0.7)])
def test_the_bound_is_reached(v: float, noise: float, c: float) -> None:
    """At r = S c / sqrt R for IMQ: the bound cannot be sharpened."""
    row = one_row(1, 1, noise, v, "imq", c)
    row.learn((v + noise) * c / math.sqrt(noise), np.ones((1, 1)))
    assert row.closed()["mean"][0, 0] == pytest.approx(sway_bound("imq", v, noise, c), rel=1e-12)


@given(
    seed=SEEDS,
    stop=st.integers(6, 47),
    weight=st.sampled_from(["contamination", "imq", "huber", "mahalanobis"]),
    spike=st.one_of(st.just(1e12), st.just(-1e12), st.floats(1e9, 1e300)),
)
@property_test(30)
def test_one_far_observation_is_as_good_as_unseen(
    seed: int, stop: int, weight: str, spike: float
) -> None:
    """The regime's odds, the forecast and every mean stay as they were, to a stated bound.

    d = 1, regimekit rule. A spike of size Y leaves w^2 = O(1 / Y^2). Regime k scores
    -log(Y - mu_k) + const + O(1 / Y^2), so the log odds of two regimes move by at most
    2 |mu_j - mu_k| / Y, and each mean by at most v S c^2 / (R Y). Here |mu| < 100, v < 5,
    S < 6, c = 2, R = 1/4: below 1000 / Y for both. (The odds multiply means below 100.)
    """
    y = np.clip(regimes_with_spikes(seed), -90, 90)
    model = rk.br_ihmm(
        noise=0.25,
        prior_var=4.0,
        batch=4,
        particles=15,
        seed=seed,
        weight=weight,
        threshold=2.0,
        islands=1,
    )
    model.run(y[:stop])
    engine = model.engine
    if engine.clock.position[0] == 3:  # the batch's last would commit
        model.update(y[stop])
    places = engine.candidate_places(0)
    forecast, mass = model.predict(), np.asarray(engine.candidates.mass)[places]
    means = np.asarray(engine.emission.predictive.location)[places]
    last = model.update(spike)
    bound = 1000 / abs(spike) + 1e-9
    after, told = model.predict(), mass > 1e-300
    masses = np.asarray(engine.candidates.mass)[places]
    assert np.abs(np.log(masses / mass)[told]).max() < bound
    assert np.abs(np.asarray(engine.emission.predictive.location)[places] - means).max() < bound
    assert abs(after.mean - forecast.mean) < 100 * bound
    assert last.outlier and last.weight < 1e-10


@given(seed=SEEDS, position=st.integers(0, 3), sign=st.sampled_from([-1.0, 1.0]))
@property_test(20)
def test_a_spike_anywhere_in_a_batch_opens_no_regime(seed: int, position: int, sign: float) -> None:
    """A steady level, one observation of 1e12: the same regime, no new one, the same forecast.

    One batch of four holds the spike; the other three keep the regime (they score alike with
    or without it), and its mean moves by less than what one missing value would: 3 sd / sqrt n.
    """
    rng = np.random.default_rng(seed)
    y = 0.5 * rng.standard_normal(60)
    model = rk.br_ihmm(noise=0.25, prior_var=4.0, batch=4, particles=25, seed=seed)
    before = model.run(y[:40])
    spiked = y[40:].copy()
    spiked[position] = sign * 1e12
    known = model.regimes()
    after = model.run(spiked)
    if len(known) == 1:  # else the noise itself looked like two levels
        assert set(after.regime.tolist()) == {int(before.regime[-1])}
        assert (after.n_regimes == 1).all()
        assert abs(after.mean[position + 1] - after.mean[position]) < 3 * 0.5 / math.sqrt(40)
    assert after.outlier[position] and after.weight[position] < 1e-20


@pytest.mark.parametrize("rule", ["paper", {"D6": "paper", "D9": "paper"}])
def test_the_papers_start_has_room_for_every_particle(rule: Any) -> None:
    """Prospects and first regimes of 100 particles fill more rows than there are at first."""
    y = np.random.default_rng(3).normal(size=40)
    run = rk.br_ihmm(noise=1.0, prior_var=4.0, rule=rule, weight="imq", particles=100).run(y)
    assert np.isfinite(run.mean).all()
