"""Posterior influence under contamination: the filter itself, one observation, limit and bound.

The bound is tested with values up to 1e12, every position, whole batches, every direction, new
regimes and islands.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, target
from hypothesis import strategies as st

import regimekit as rk
from regimekit import robustness as influence
from regimekit.ihmm.weights import OUTLIER_SCALE, log_outlier_density, outlier_constants
from regimekit.robustness.posterior import BatchPosterior
from regimekit.robustness.score_bounds import DensityRatio, PredictiveRange, largest_odds

GRID = np.concatenate([-np.logspace(12, -1, 25), np.logspace(-1, 12, 25)])


def fitted(name: str = "br_ihmm", *, dim: int = 1, observations: int = 24, **given: Any) -> Any:
    """A model that has seen two levels 6 standard deviations apart."""
    usual = {"particles": 20, "batch": 4, "dim": dim, "seed": 0, "units": "given"}
    chosen: dict[str, Any] = usual | given
    model = rk.make(name, **chosen)
    rng = np.random.default_rng(chosen["seed"])
    scale = np.sqrt(np.diag(np.atleast_2d(np.asarray(given.get("noise", 0.25)))).mean())
    for t in range(observations):
        model.update(scale * (6.0 * (t // 8 % 2) + rng.standard_normal(dim)))
    return model


def ahead(model: Any, seed: int = 1) -> np.ndarray:
    """What the model expects next, with noise, for as long as an island's batch lasts."""
    clock = model.engine.clock
    n = int((np.asarray(clock.size) - np.asarray(clock.position)).max())
    noise = np.linalg.cholesky(model.engine.emission.noise_covariance())
    rng = np.random.default_rng(seed)
    return np.atleast_1d(model.predict().mean) + rng.standard_normal((n, model.dim)) @ noise.T


# ---------------------------------------------------------------- the filter itself


@pytest.mark.parametrize("name", ["br_ihmm", "student_t_ihmm", "garch_ihmm"])
@pytest.mark.parametrize("weight", ["contamination", "imq"])
def test_the_posterior_ahead_is_that_of_the_filter(name, weight):
    """Candidates after a value, a missing one and an outlier, as `update` itself leaves them."""
    more = {"noise_shape": 4.0} if name == "student_t_ihmm" else {}
    model = fitted(name, batch=6, observations=13, islands=1, weight=weight, **more)
    y = np.array([0.1, math.nan, 50.0])
    posterior = BatchPosterior(model)
    before = model.to_bytes()
    moment = posterior.follow(posterior.start, y[:, None], [None] * 3)
    assert model.to_bytes() == before
    for value in y:
        model.update(value)
    theirs = model.engine
    assert theirs.clock.position[0] > 0  # inside the same batch
    n = int(theirs.clock.candidates[0])
    np.testing.assert_allclose(moment.score, theirs.candidates.score[:n], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        np.exp(posterior.log_posterior(moment.score)), theirs.candidates.mass[:n], atol=1e-12
    )
    np.testing.assert_allclose(moment.outliers, theirs.clock.outliers, rtol=1e-12)
    if posterior.gaussian:
        for k in range(n):
            theirs.emission.finalize_row(theirs.candidates.row[k], 0, k)
            np.testing.assert_allclose(moment.mean[k], np.asarray(theirs.emission.mean)[0, 0])
            np.testing.assert_allclose(moment.root[k], np.asarray(theirs.emission.root)[0])


def test_new_regimes_have_the_masses_of_the_filter():
    """Each island has a share of its own."""
    model = fitted(islands=2)
    clean_new = influence.profile(model, [1.0], clean=[0.1]).clean_new_regime
    model.update(0.1)
    engine = model.engine
    assert (np.asarray(engine.clock.position) > 0).all()  # no batch has ended in between
    total = 0.0
    for g in range(2):
        places = engine.candidate_places(g)
        rows = np.asarray(engine.candidates.row)[places]
        new = np.asarray(engine.pool.label)[rows] == -1
        total += np.asarray(engine.candidates.mass)[places][new].sum() / 2
    assert clean_new == pytest.approx(total, rel=1e-9)


# ---------------------------------------------------------------- one observation


@pytest.mark.parametrize("variance", [0.01, 1.0, 30.0, 2000.0])
@pytest.mark.parametrize("distance", [0.0, 3.0, 200.0])
@pytest.mark.parametrize("rate", [0.001, 0.3])
def test_one_score_and_one_step_are_bounded(variance, distance, rate):
    """log p / (eps q) and r z^2 over a fine grid of y, the centre of q anywhere in reach."""
    root = np.full((1, 1, 1), math.sqrt(variance))
    box = PredictiveRange.of(np.zeros((1, 1)), root, np.ones((1, 1)), np.eye(1)[None], np.zeros(1))
    ratio = DensityRatio.of(box, (1 - rate) / rate)
    evidence, product = (float(a[0]) for a in ratio.bounds(np.array([distance])))
    spread = 1.0 + variance
    y = np.concatenate([np.linspace(-30, 30, 4001) * math.sqrt(spread), np.logspace(1, 12, 50)])
    best, farthest = 0.0, 0.0
    for centre in (-distance, 0.0, distance):
        log_q = np.array(
            [
                log_outlier_density(abs(v - centre) / OUTLIER_SCALE, math.log(OUTLIER_SCALE), 1)
                for v in y
            ]
        )
        log_f = -0.5 * (math.log(2 * math.pi * spread) + y**2 / spread)
        odds = math.log((1 - rate) / rate) + log_f - log_q
        best = max(best, float(np.logaddexp(0, odds).max()))
        farthest = max(farthest, float((np.exp(-np.logaddexp(0, -odds)) * y**2 / spread).max()))
    loose = 2.5 if distance < 20 else 4.5  # 1 + (a + b)^2 / 2 <= (1 + a^2)(1 + b^2)
    assert best * (1 - 1e-12) <= evidence <= best + loose
    assert farthest <= product <= max(2.5 * farthest + 6.0, 5.0)


def test_no_observations_lead_to_larger_odds_of_the_rate():
    model = fitted(islands=1)
    counts = np.array(model.engine.clock.outliers)
    odds = largest_odds(counts, np.asarray(model.engine.settings.outlier_prior), 4)
    for value in (3.0, 1e12, 0.0, -1e3):
        twin = model.copy()
        for b in range(4):
            rate = twin.engine.rate()
            assert (1 - rate) / rate <= odds[b] * (1 + 1e-12)
            twin.update(value)


@pytest.mark.parametrize("outliers", [1, 5])
def test_the_learnt_rate_has_bounded_influence(outliers):
    """An observation moves it by less than 1 / (observations it is worth); it stays below 0.3."""
    model = fitted(islands=1, outlier_rate=0.02)
    for _ in range(outliers):
        before, worth = model.engine.rate(), np.asarray(model.engine.clock.outliers).sum()
        model.update(1e12)
        assert before < model.engine.rate() < before + 1.0 / worth
    for _ in range(200):
        model.update(1e12 * (-1) ** _)
    assert model.engine.rate() <= outlier_constants()[1]


# ---------------------------------------------------------------- the limit


def test_an_extreme_value_is_as_good_as_not_seen():
    """Exactly so where it is the last; before that the rate of outliers has learnt of it.

    A rate of e' in place of e changes every later log p by something between log (1 - e') / (1 - e)
    and log e' / e, and so any difference of scores by at most their distance.
    """
    model = fitted(islands=1)
    clean = ahead(model)[:, 0]
    counts = np.asarray(model.engine.clock.outliers)
    before = counts[0] / counts.sum()
    after = (counts[0] + 1) / (counts.sum() + 1)
    each = math.log(after / before) - math.log((1 - after) / (1 - before))
    for position in range(4):
        given = {"clean": clean, "position": position}
        unseen = influence.profile(model, [math.nan], **given)
        far = influence.profile(model, [-1e12, 1e8, 1e12], **given)
        assert far.state[0] == pytest.approx(far.state[2], abs=1e-9)
        assert far.state[1] == pytest.approx(far.state[2], abs=1e-6)
        slack = (3 - position) * each * (1.0 + 1e-6) + 1e-9
        assert abs(far.state[2] - unseen.state[0]) <= slack
        if position == 3:
            assert far.state[2] == pytest.approx(unseen.state[0], abs=1e-9)
            assert far.parameter[2] == pytest.approx(unseen.parameter[0], rel=1e-9)


def test_units_do_not_matter():
    """y, mu0 by s, R and Sigma0 by s^2: the influence of regimes and coefficients is the same."""
    found = []
    for s in (1.0, 1e-3, 1e4):
        model = rk.br_ihmm(
            batch=4, particles=20, noise=0.25 * s**2, prior_var=4.0 * s**2, prior_mean=0.5 * s
        )
        rng = np.random.default_rng(0)
        for t in range(24):
            model.update(s * (3.0 * (t // 8 % 2) + 0.5 * rng.standard_normal()))
        clean = s * np.array([0.1, 0.3, -0.2])
        result = influence.profile(model, s * np.array([1.0, 9.0, 1e6]), clean=clean, position=1)
        found.append(np.concatenate([result.state, result.parameter, result.new_regime]))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-6, atol=1e-10)


# ---------------------------------------------------------------- the bound


@pytest.mark.parametrize("islands", [1, 2, None])
@pytest.mark.parametrize("position", [0, 1, 3, (0, 2), "all"])
def test_no_value_exceeds_the_bound(islands, position):
    model = fitted(islands=islands, particles=40)
    clean = ahead(model)[:, 0]
    assert len(clean) == 4
    worst = influence.bound(model, clean=clean, position=position)
    profile = influence.profile(model, GRID, clean=clean, position=position)
    assert 0 < profile.state.max() <= worst.state < 40.0
    assert profile.parameter.max() <= worst.parameter < math.inf
    assert worst.joint == worst.state + worst.parameter


def test_a_mixture_of_islands_is_bounded_by_the_worst():
    model = fitted(islands=2)
    clean = ahead(model)[:, 0]
    posterior = BatchPosterior(model)
    profile = influence.profile(model, GRID, clean=clean, position="all")
    start = posterior.follow(posterior.start, clean[:, None], [None] * 4)
    log_p = posterior.log_posterior(start.score)
    dirty = np.full((4, 1), GRID[-1])
    end = posterior.follow(posterior.start, dirty, [None] * 4)
    log_q = posterior.log_posterior(end.score)
    apart = []
    for g in range(2):
        ours = posterior.island == g
        assert np.exp(log_p[ours]).sum() == pytest.approx(0.5, abs=1e-12)
        apart.append(2 * float((np.exp(log_p[ours]) * (log_p - log_q)[ours]).sum()))
    assert profile.state[-1] == pytest.approx(np.mean(apart), rel=1e-9)
    assert profile.state[-1] <= max(apart)


def test_every_direction_is_bounded():
    noise = np.array([[1.0, 0.5, 0.0], [0.5, 2.0, 0.3], [0.0, 0.3, 0.5]])
    model = fitted(dim=3, batch=3, observations=18, noise=noise.tolist(), prior_var=9.0, islands=1)
    clean = ahead(model)
    rng = np.random.default_rng(0)
    lengths = np.logspace(-1, 12, 20)
    for position in (0, 2, "all"):
        worst = influence.bound(model, clean=clean, position=position)
        for direction in [*np.eye(3), *rng.normal(size=(3, 3))]:
            points = influence.along(direction, lengths, origin=clean[0])
            profile = influence.profile(model, points, clean=clean, position=position)
            assert profile.state.max() <= worst.state
            assert profile.parameter.max() <= worst.parameter
            assert abs(profile.state[-1] - profile.state[-2]) < 1e-6


@st.composite
def questions(draw: Any) -> tuple[Any, np.ndarray, np.ndarray, list[int]]:
    """A fitted model, a clean batch, a contaminated one and where they differ."""
    dim, batch, seed = draw(st.integers(1, 2)), draw(st.integers(1, 6)), draw(st.integers(0, 999))
    rng = np.random.default_rng(seed)
    scale = 10.0 ** draw(st.integers(-3, 3))
    square = rng.normal(size=(dim, dim))
    noise = scale**2 * (square @ square.T + 0.2 * np.eye(dim))
    model = fitted(
        dim=dim,
        batch=batch,
        observations=draw(st.integers(1, 20)),
        seed=seed,
        particles=12,
        noise=noise.tolist(),
        prior_var=float(scale**2 * 10.0 ** draw(st.integers(-1, 5))),
        outlier_rate=draw(st.sampled_from([0.001, 0.02, 0.3])),
        islands=draw(st.integers(1, 3)),
    )
    clean = ahead(model, seed)
    n = len(clean)
    first = draw(st.integers(0, n - 1))
    at = [first, *(k for k in range(first + 1, n) if draw(st.booleans()))]
    if draw(st.booleans()):
        at = list(range(n))  # a whole batch of outliers
    dirty, same = clean.copy(), rng.normal(size=dim)
    for k in at:
        direction = same if draw(st.booleans()) else rng.normal(size=dim)
        dirty[k] += scale * 10.0 ** draw(st.floats(-1.0, 12.0)) * direction
    return model, clean, dirty, at


@settings(max_examples=80, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(questions())
def test_no_contamination_exceeds_the_bound(question):
    model, clean, dirty, at = question
    values = dirty[None, at] if model.dim > 1 else dirty[None, at, 0]
    profile = influence.profile(model, values, clean=clean, position=at)
    worst = influence.bound(model, clean=clean, position=at)
    assert math.isfinite(worst.joint)
    target(float(profile.state[0] / (worst.state + 1e-9)))
    assert profile.state[0] <= worst.state * (1 + 1e-9) + 1e-9
    assert profile.parameter[0] <= worst.parameter * (1 + 1e-9) + 1e-9


def test_the_first_batch_of_all_is_bounded_too():
    """Before the first batch ends every hypothesis is a new regime."""
    model = rk.br_ihmm(batch=4, particles=10, islands=1, noise=0.25, prior_var=25.0)
    model.update(0.0)
    clean = np.zeros(3)
    worst = influence.bound(model, clean=clean)
    for position in (0, 1, 2, "all"):
        profile = influence.profile(model, GRID, clean=clean, position=position)
        assert profile.state.max() <= worst.state
        assert profile.parameter.max() <= worst.parameter < math.inf


def test_plain_evidence_for_regimes_has_no_bound():
    model = fitted(weigh_regimes=False)
    worst = influence.bound(model, clean=[0.0])
    assert worst.state == math.inf and math.isfinite(worst.parameter)
    far = influence.state_pif(model, [1e3, 1e6], clean=[0.0])
    assert far[1] > 1e4 * far[0] > 0


def test_what_the_theory_does_not_cover_is_refused():
    with pytest.raises(rk.RegimekitError, match="D4"):
        influence.bound(fitted(rule={"D4": "paper"}), clean=[0.0])
    with pytest.raises(rk.RegimekitError, match="weight must be"):
        influence.sandbox_pif([1.0], weight="contamination")
