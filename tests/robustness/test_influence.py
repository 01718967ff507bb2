"""Posterior influence: a direct computation, the theorems of the paper, and the bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

import regimekit as rk
from regimekit import robustness as influence
from regimekit.robustness.score_bounds import push, stretch

GRID = np.concatenate([-np.logspace(12, -2, 60), np.logspace(-2, 12, 60)])


def fitted(name: str, *, dim: int = 1, batches: int = 8, seed: int = 0, **given: Any) -> Any:
    """A model that has seen two levels, at the start of a batch."""
    rng = np.random.default_rng(seed)
    usual = {"particles": 20, "seed": seed, "dim": dim, "units": "given"}
    if name == "br_ihmm":
        usual |= {"weight": "imq", "islands": 1}
    model = rk.make(name, **usual | given)
    size = model.chosen.batch
    scale = np.sqrt(np.diag(np.atleast_2d(np.asarray(given.get("noise", 0.25)))).mean())
    for b in range(batches):
        for _ in range(size):
            model.update(scale * (6.0 * (b % 2) + rng.standard_normal(dim)))
    return model


def clean_batch(model: Any, seed: int = 1) -> np.ndarray:
    """What the model expects next, with noise."""
    rng = np.random.default_rng(seed)
    dim, noise = model.dim, model.engine.emission.noise_covariance()
    center = np.atleast_1d(model.predict().mean)
    return center + rng.standard_normal((model.chosen.batch, dim)) @ np.linalg.cholesky(noise).T


# ---------------------------------------------------------------- against the equations


def naive_weight2(z2: float, c: float) -> float:
    return 1.0 / (1.0 + z2 / c**2)


def naive_filter(mean, cov, noise, batch, c, fresh, paper):
    """Score and posterior of one regime, from the equations; designs are the identity."""
    start_mean, start_cov = mean, cov
    score = 0.0
    for b, y in enumerate(batch):
        center, wide = (start_mean, start_cov) if paper else (mean, cov)
        spread = wide + (1 + b if paper else 1) * noise  # Eq. (25)
        r = y - center
        z2 = r @ np.linalg.solve(spread, r)
        w2 = naive_weight2(r @ np.linalg.solve(noise, r) if paper else z2, c)
        log_normal = -0.5 * (y.size * math.log(2 * math.pi) + np.linalg.slogdet(spread)[1] + z2)
        if paper:
            score += w2 * log_normal
        else:
            score += log_normal + 0.5 * (y.size * math.log(w2) + (1 - w2) * z2)
        gain_noise = noise if paper and fresh else noise / w2
        gain = cov @ np.linalg.inv(cov + gain_noise)
        mean, cov = mean + gain @ (y - mean), cov - gain @ cov
    return score, mean, cov


def labels(model: Any) -> list[tuple[float, int]]:
    """(omega_i P(l | s_i), pool row) of every particle and regime, the new one included."""
    p = model.engine.particles
    found = []
    for i in range(p.alpha.shape[0]):
        n, s = p.n_regimes[i], p.current[i]
        share = np.exp(np.asarray(p.log_beta)[i, : n + 1])
        counts = np.append(np.asarray(p.counts)[i, s, :n], 0.0) + p.alpha[i] * share
        for l in range(n + 1):
            found.append((math.exp(p.log_weight[i]) * counts[l] / counts.sum(), p.slots[i, l]))
    return found


def normal_log_density(x, mean, cov):
    r = x - mean
    log_det = np.linalg.slogdet(cov)[1]
    return -0.5 * (x.size * math.log(2 * math.pi) + log_det + r @ np.linalg.solve(cov, r))


def expected_log_ratio(mean, cov, mean_c, cov_c):
    """E of a quadratic under N(mean, cov): exact from 2 m points at distance sqrt(m)."""
    root = np.linalg.cholesky(cov) * math.sqrt(mean.size)
    points = [mean + s * root[:, j] for j in range(mean.size) for s in (-1, 1)]
    gaps = [normal_log_density(x, mean, cov) - normal_log_density(x, mean_c, cov_c) for x in points]
    return float(np.mean(gaps))


def direct_joint(model: Any, clean: np.ndarray, dirty: np.ndarray, paper: bool) -> float:
    """KL of the joint of (particle, regime, coefficients), label by label."""
    engine = model.engine
    emission = engine.emission
    noise, c = emission.noise_covariance(), emission.scoring.threshold
    found = labels(model)
    ends = {}
    for row in {row for _, row in found}:
        mean, root = np.array(emission.mean)[row, 0], np.array(emission.root)[row]
        fresh = engine.pool.visits[row] == 0
        ends[row] = [
            naive_filter(mean, root @ root.T, noise, batch, c, fresh, paper)
            for batch in (clean, dirty)
        ]
    mass = np.array([[p * math.exp(ends[row][side][0]) for side in (0, 1)] for p, row in found])
    mass /= mass.sum(axis=0)
    total = 0.0
    for (p, q), (_, row) in zip(mass, found, strict=True):
        if p == 0.0:  # the paper's rule can leave a regime no share at all (D6)
            continue
        total += p * (math.log(p / q) + expected_log_ratio(*ends[row][0][1:], *ends[row][1][1:]))
    return total


@pytest.mark.parametrize("rule", ["default", "paper"])
@pytest.mark.parametrize("dim", [1, 2])
def test_joint_is_the_divergence_of_the_joint(rule, dim):
    noise = 0.25 if dim == 1 else [[0.3, 0.1], [0.1, 0.2]]
    model = fitted("br_ihmm", dim=dim, batch=3, rule=rule, noise=noise)
    clean = clean_batch(model)
    before = model.to_bytes()
    for position, value in ((0, 2.0), (2, -15.0), ((0, 2), 4.0), ("all", 40.0)):
        at = range(3) if position == "all" else np.atleast_1d(position)
        dirty = clean.copy()
        dirty[list(at)] = value
        given = {"clean": clean, "position": position}
        point = value if dim == 1 else np.full(dim, value)
        joint = influence.joint_pif(model, point, **given)
        parts = influence.state_pif(model, point, **given)
        parts += influence.parameter_pif(model, point, **given)
        assert joint == pytest.approx(parts, abs=1e-9)
        assert joint == pytest.approx(direct_joint(model, clean, dirty, rule == "paper"), abs=1e-9)
    assert model.to_bytes() == before


def test_the_middle_of_a_batch_is_the_same_question():
    model = fitted("br_ihmm", batch=4)
    clean = clean_batch(model)[:, 0]
    whole = influence.profile(model, GRID, clean=clean, position=2)
    model.update(clean[0])
    model.update(clean[1])
    rest = influence.profile(model, GRID, clean=clean[2:], position=0)
    for ours, theirs in zip(whole, rest, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_one_grid_point_is_a_number_and_equals_the_grid():
    model = fitted("br_ihmm", batch=3)
    clean = clean_batch(model)[:, 0]
    grid = influence.joint_pif(model, [1.0, 5.0], clean=clean, position=1)
    alone = influence.joint_pif(model, 5.0, clean=clean, position=1)
    # NumPy's exponential may round differently at another place of a vector.
    assert isinstance(alone, float) and alone == pytest.approx(grid[1], rel=1e-11)
    per_position = influence.joint_pif(model, [[1.0, 5.0]], clean=clean, position=(0, -1))
    assert per_position.shape == (1,)
    assert influence.joint_pif(model, clean, clean=clean[:1])[0] == pytest.approx(0.0, abs=1e-12)


def test_a_raw_lag_carries_the_contamination_into_the_design():
    rng = np.random.default_rng(0)
    chosen = {"features": rk.features.intercept() + rk.features.lags(1), "rule": {"D13": "paper"}}
    model = rk.br_ihmm(**chosen, batch=3, particles=20, weight="imq", noise=0.25)
    model.run(rng.normal(size=30))
    clean = rng.normal(size=3)
    parameter = influence.parameter_pif(model, [1e3, 1e6], clean=clean, position=0)
    assert parameter[1] > 1e4 * parameter[0] > 0  # leverage: no weight restrains a covariate
    last = influence.parameter_pif(model, [1e3, 1e6], clean=clean, position=2)
    assert (last < 1.0).all()
    with pytest.raises(rk.RegimekitError, match="lag"):
        influence.bound(model, clean=clean)


# ---------------------------------------------------------------- the paper's theorems


def slope(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


@pytest.mark.parametrize("rule", ["default", "paper"])
def test_ihmm_has_unbounded_influence(rule):
    model = fitted("ihmm", batches=40, rule=rule)
    far = np.logspace(4, 12, 30)
    for sign in (-1, 1):
        parameter = influence.parameter_pif(model, sign * far, clean=[3.0], regime=0)
        assert slope(far, parameter) == pytest.approx(2.0, abs=1e-3)
        state = influence.state_pif(model, sign * far, clean=[3.0])
        assert (np.diff(state) > 0).all()
        assert slope(far, state) == pytest.approx(2.0, abs=1e-2)


def test_wolf_ihmm_is_robust_in_parameters_and_not_in_regimes():
    model = fitted("wolf_ihmm", batches=40)
    far = np.logspace(4, 12, 30)
    for regime in [r.id for r in model.regimes()]:
        near = influence.parameter_pif(model, GRID, clean=[3.0], regime=regime)
        assert near.max() < 1.0
    profile = influence.profile(model, far, clean=[3.0])
    assert slope(far, profile.state) == pytest.approx(2.0, abs=1e-2)
    assert influence.bound(model, clean=[3.0]).state == math.inf


@pytest.mark.parametrize("name", ["ihmm", "wolf_ihmm"])
def test_a_plain_likelihood_degenerates_on_the_new_regime(name):
    model = fitted(name, batches=40)
    profile = influence.profile(model, [1e3, 1e6, 1e12, -1e12], clean=[3.0])
    assert profile.clean_new_regime < 0.5
    np.testing.assert_allclose(profile.new_regime, 1.0, atol=1e-9)


def newborn_bound(model: Any, clean: Any) -> float:
    """Bound of the newborn's coefficients alone, from the theorem, for a level under IMQ.

    One observation: V0 = prior_var, h = V0 / R, C = c^2; a clean y moves m by its own step.
    """
    noise, prior = float(model.engine.emission.noise_covariance()[0, 0]), model.spec.prior_var
    c, h, (y,) = model.engine.emission.scoring.threshold, prior / noise, clean
    z2 = y**2 / (noise + prior)
    w2 = 1 / (1 + z2 / c**2)
    var = 1 / (1 / prior + w2 / noise)
    mean, tau = var * w2 * y / noise, c * math.sqrt((h + 1) / 4)
    ratios = var / prior, var * (1 / prior + 1 / noise)
    shape = max(x - 1 - math.log(x) for x in ratios)
    return 0.5 * (shape + (1 + h) * (mean / math.sqrt(prior) + tau) ** 2)


def test_an_unweighted_birth_is_unbounded():
    far = np.logspace(4, 12, 30)
    model = fitted("wolf_ihmm", batches=40, rule={"D3": "paper"})
    newborn = influence.parameter_pif(model, far, clean=[3.0], regime="new")
    assert slope(far, newborn) == pytest.approx(2.0, abs=1e-2)
    assert influence.bound(model, clean=[3.0]).parameter == math.inf
    weighted = fitted("wolf_ihmm", batches=40)
    newborn = influence.parameter_pif(weighted, far, clean=[3.0], regime="new")
    assert newborn.max() < newborn_bound(weighted, [3.0])
    assert newborn[-1] == pytest.approx(newborn[-2], rel=1e-3)


@pytest.mark.parametrize("position", [0, 3, (1, 2), "all"])
def test_br_ihmm_under_the_papers_rule_is_bounded_for_open_regimes(position):
    model = fitted("br_ihmm", batch=4, rule="paper")
    clean = clean_batch(model)[:, 0]
    worst = influence.bound(model, clean=clean, position=position)
    state = influence.state_pif(model, GRID, clean=clean, position=position)
    assert state.max() <= worst.state < math.inf
    assert abs(state[-1] - state[-2]) < 1e-6  # it has a limit
    pool, names = model.engine.pool, model.reporter.names
    live = np.asarray(pool.owners) > 0
    ids = np.array([names.get(label, -1) for label in np.asarray(pool.label).tolist()])
    visits = np.asarray(pool.visits)
    learnt = [r.id for r in model.regimes() if visits[live & (ids == r.id)].all()]
    assert learnt  # the paper's regime 1 may exist before it has seen anything (D6)
    for regime in learnt:
        open_one = influence.parameter_pif(
            model, GRID, clean=clean, position=position, regime=regime
        )
        assert open_one.max() < 50 and abs(open_one[-1] - open_one[-2]) < 1e-3
    assert worst.parameter == math.inf  # its newborns are not weighted (D3)


@pytest.mark.parametrize("weight", ["imq", "huber", "mahalanobis"])
@pytest.mark.parametrize("batch", [1, 4])
def test_an_extreme_outlier_is_as_good_as_not_seen(weight, batch):
    model = fitted("br_ihmm", batch=batch, weight=weight)
    clean = clean_batch(model)[:, 0]
    for position in range(batch):
        given = {"clean": clean, "position": position}
        unseen = influence.profile(model, [math.nan], **given)
        for sign in (-1, 1):
            seen = influence.profile(model, sign * np.array([1e4, 1e8, 1e12]), **given)
            gap = np.abs(seen.state - unseen.state)
            assert gap[-1] < 1e-9 and gap[-1] <= gap[0]
            assert seen.parameter[-1] == pytest.approx(unseen.parameter[0], rel=1e-6)


def test_in_several_dimensions_every_direction_is_bounded():
    noise = np.array([[1.0, 0.5, 0.0], [0.5, 2.0, 0.3], [0.0, 0.3, 0.5]])
    model = fitted("br_ihmm", dim=3, batch=3, noise=noise, prior_var=9.0)
    clean = clean_batch(model)
    worst = influence.bound(model, clean=clean)
    rng = np.random.default_rng(0)
    lengths = np.logspace(-1, 12, 40)
    for direction in [*np.eye(3), *rng.normal(size=(5, 3))]:
        for position in (0, 2, "all"):
            points = influence.along(direction, lengths, origin=clean[0])
            profile = influence.profile(model, points, clean=clean, position=position)
            assert profile.state.max() <= worst.state
            assert profile.parameter.max() <= worst.parameter
            assert abs(profile.state[-1] - profile.state[-2]) < 1e-6


# ---------------------------------------------------------------- the bound


PAPER_SCORE = ("D1", "D2", "D4", "D8")  # the score as the text has it


@st.composite
def questions(draw: Any) -> tuple[Any, np.ndarray, np.ndarray, list[int]]:
    """A fitted model, a clean batch, a contaminated one and where they differ."""
    dim, batch = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    seed = draw(st.integers(0, 10_000))
    rng = np.random.default_rng(seed)
    scale = 10.0 ** draw(st.integers(-3, 3))
    square = rng.normal(size=(dim, dim))
    noise = scale**2 * (square @ square.T + 0.2 * np.eye(dim))
    switched = [(), ("D1",), ("D2",), ("D4",), ("D1", "D2", "D4"), ("D4", "D8"), PAPER_SCORE]
    switched_back = draw(st.sampled_from(switched))
    model = fitted(
        "br_ihmm",
        dim=dim,
        batch=batch,
        batches=draw(st.integers(1, 6)),
        seed=seed,
        noise=noise.tolist(),
        prior_var=float(scale**2 * 10.0 ** draw(st.integers(-1, 3))),
        threshold=draw(st.floats(0.3, 8.0)),
        particles=10,
        weight=draw(st.sampled_from(["imq", "huber", "mahalanobis"])),
        rule=dict.fromkeys(switched_back, "paper"),
    )
    clean = clean_batch(model, seed)
    first = draw(st.integers(0, batch - 1))
    at = [first, *(k for k in range(first + 1, batch) if draw(st.booleans()))]
    if draw(st.booleans()):
        at = list(range(batch))  # a whole batch of outliers
    size = st.floats(-1.0, 12.0)
    dirty = clean.copy()
    same = rng.normal(size=dim)
    for k in at:
        direction = same if draw(st.booleans()) else rng.normal(size=dim)
        dirty[k] += scale * 10.0 ** draw(size) * direction
    return model, clean, dirty, at


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(questions())
def test_no_contamination_exceeds_the_bound(question):
    model, clean, dirty, at = question
    values = dirty[None, at] if model.dim > 1 else dirty[None, at, 0]
    profile = influence.profile(model, values, clean=clean, position=at)
    worst = influence.bound(model, clean=clean, position=at)
    assert math.isfinite(worst.joint)
    target(float(profile.joint[0] / worst.joint))
    slack = 1 + 1e-9
    assert profile.state[0] <= worst.state * slack + 1e-9
    assert profile.parameter[0] <= worst.parameter * slack + 1e-9
    newborn = influence.parameter_pif(model, values, clean=clean, position=at, regime="new")
    assert np.isfinite(newborn).all()


def test_the_bound_of_a_birth_covers_the_first_batch_of_all():
    """Before anything is open every regime is newborn (D3)."""
    model = rk.br_ihmm(batch=4, particles=10, noise=0.25, weight="imq")
    model.update(0.0)  # one observation settles the shape; the first batch is under way
    clean = np.zeros(3)
    worst = influence.bound(model, clean=clean)
    profile = influence.profile(model, GRID, clean=clean, position="all")
    assert profile.parameter.max() <= worst.parameter < math.inf
    assert profile.clean_new_regime == pytest.approx(1.0)


def test_without_a_weight_there_is_no_bound():
    model = fitted("ihmm")
    assert influence.bound(model, clean=[0.0]) == (math.inf, math.inf, math.inf)
    endless = fitted("br_ihmm", batch=2, threshold=math.inf)
    assert influence.bound(endless, clean=[0.0, 0.0]).joint == math.inf


def test_the_constants_are_suprema():
    u = np.concatenate([[0.0], np.logspace(-6, 6, 20001)])
    for ratio in (0.01, 0.5, 1.0, 7.0):
        for gap in (0.0, 0.3, 5.0):
            quotient = (1 + (math.sqrt(ratio) * u + gap) ** 2) / (1 + u**2)
            best = float(stretch(np.array(ratio), np.array(gap)))
            assert quotient.max() <= best * (1 + 1e-12)
            assert quotient.max() == pytest.approx(best, rel=1e-4)
    v = np.linspace(0, 1, 20001)
    for h in (0.01, 0.9, 1.0, 3.0, 100.0):
        moved = v * h * (h + 1) / (1 + h * v) ** 2
        assert moved.max() == pytest.approx(float(push(np.array(h), True)), rel=1e-3)
        moved = v * h / (1 + h * v) ** 2
        assert moved.max() == pytest.approx(float(push(np.array(h), False)), rel=1e-3)


# ---------------------------------------------------------------- the paper's toys


def test_sandbox_is_bounded_with_batches_and_not_without():
    offsets = np.logspace(0, 6, 40)
    for threshold in (1.0, 2.0, 4.0):
        for rule in ("paper", "default"):
            curve = influence.sandbox_pif(offsets, batch=6, threshold=threshold, rule=rule)
            assert curve.max() < 6 * (threshold**2 + 4) and abs(curve[-1] - curve[-2]) < 1e-3
        plain = influence.sandbox_pif(offsets, batch=1, threshold=threshold, weigh_regimes=False)
        assert (np.diff(plain) > 0).all() and plain[-1] > 1e5
    unweighted = influence.sandbox_pif(offsets, batch=1, weight="none")
    np.testing.assert_allclose(plain, unweighted)


def test_sandbox_agrees_with_the_formula():
    offset, c, sds = 1.3, 1.5, (0.5, 0.8)
    post = []
    for y in (0.0, offset):
        scores = []
        for mean, sd in zip((0.0, 1.0), sds, strict=True):
            total = 0.0
            for value in (y, 0.0, 0.0):
                z2 = ((value - mean) / sd) ** 2
                log_normal = -0.5 * (math.log(2 * math.pi * sd**2) + z2)
                total += log_normal / (1 + z2 / c**2)
            scores.append(math.exp(total))
        post.append(np.array(scores) / sum(scores))
    kl = float((post[0] * np.log(post[0] / post[1])).sum())
    ours = influence.sandbox_pif([offset], batch=3, threshold=c, sds=sds)
    assert ours[0] == pytest.approx(kl, abs=1e-12)


def test_preference_shows_why_a_batch_has_one_regime():
    outlier = np.linspace(0, 5, 11)
    batches = np.zeros((11, 6))
    batches[:, 0] = outlier
    switch = influence.preference(batches, [1, 0, 0, 0, 0, 0], [0] * 6)
    assert switch[0] < 0 < switch[-1]  # an outlier at the other regime's mean buys a switch
    whole = influence.preference(batches, [1] * 6, [0] * 6)
    assert (whole < 0).all()  # a whole batch is not for sale
    vague = influence.preference(outlier, [1], [0], sds=(50.0, 50.0), weight="none")
    sharp = influence.preference(outlier, [1], [0], sds=(1.0, 1.0), weight="none")
    assert np.abs(vague).max() < 0.1 < np.abs(sharp).min(initial=9, where=outlier != 2.5)


# ---------------------------------------------------------------- bad input


def test_errors_name_the_argument():
    model = fitted("br_ihmm", batch=3)
    clean = [0.0, 0.0, 0.0]
    cases = [
        ({"clean": [0.0] * 4}, "clean must have 1 to 3"),
        ({"clean": [[0.0, 1.0]]}, "clean must be"),
        ({"clean": [math.inf]}, "clean must be finite"),
        ({"clean": clean, "position": 3}, "position"),
        ({"clean": clean, "position": "some"}, "position"),
        ({"clean": clean, "position": 0.5}, "position"),
        ({"clean": clean, "x": [[1.0]]}, "x must have 3"),
    ]
    for given_arguments, message in cases:
        with pytest.raises(rk.RegimekitError, match=message):
            influence.state_pif(model, 1.0, **given_arguments)
    for bad in (math.inf, [[1.0, 2.0, 3.0]], "much"):
        with pytest.raises(rk.RegimekitError, match="contamination"):
            influence.state_pif(model, bad, clean=clean)
    with pytest.raises(rk.RegimekitError, match="regime=99"):
        influence.parameter_pif(model, 1.0, clean=clean, regime=99)
    with pytest.raises(rk.RegimekitError, match="must be fitted"):
        influence.state_pif(rk.br_ihmm(), 1.0, clean=clean)
    with pytest.raises(rk.RegimekitError, match="model must be"):
        influence.state_pif("br_ihmm", 1.0, clean=clean)
    with pytest.raises(rk.RegimekitError, match="direction"):
        influence.along([0.0, 0.0], [1.0])
