"""GARCH regimes: the cloud against brute force, regimes against truth, rows that may be shared."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from regimekit import RegimekitError
from regimekit.ihmm import batch_update as commit
from regimekit.ihmm.emissions import particle_cloud as clouds
from regimekit.ihmm.emissions.base import Sample, Shape, begin, carry, close, learn, look, rest
from regimekit.ihmm.emissions.eager import Eager
from regimekit.ihmm.emissions.garch import Garch, GarchRows, GarchSpec
from regimekit.ihmm.emissions.volatility import correction
from regimekit.ihmm.engine import Engine
from regimekit.ihmm.garch import garch_ihmm
from regimekit.ihmm.model import RegimeModel
from regimekit.ihmm.state import blank_view
from regimekit.ihmm.weights import (
    COLLAPSED,
    WEIGHTS,
    Scoring,
    log_weight2,
    no_outliers,
    update_weight2,
)
from regimekit.preprocessing import features
from regimekit.serialization import snapshot

LOW, HIGH = (0.02, 0.05, 0.80), (0.40, 0.15, 0.75)  # long-run variances 0.13 and 4
PERSISTENT = 0.99


def caution(weight: str = "none", threshold: float = 4.0, **changes: bool) -> Scoring:
    return Scoring(WEIGHTS[weight], threshold, True, True, True, True, True)._replace(**changes)


def simulate(coefficients: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """y and sigma of the paper's model: one variance, whose recursion the regime steers."""
    omega, a, b = coefficients[0]
    variance = omega / (1 - a - b)
    y, sigma = np.empty(len(coefficients)), np.empty(len(coefficients))
    for t, (omega, a, b) in enumerate(coefficients):
        if t:
            variance = omega + a * y[t - 1] ** 2 + b * variance
        sigma[t] = math.sqrt(variance)
        y[t] = sigma[t] * rng.standard_normal()
    return y, sigma


def one_regime(coefficients: tuple[float, float, float], n: int, seed: int) -> np.ndarray:
    return simulate(np.tile(coefficients, (n, 1)), np.random.default_rng(seed))[0]


def two_regimes(seed: int, n: int = 1500) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    regimes = np.cumsum(rng.random(n) > PERSISTENT) % 2
    return *simulate(np.array([LOW, HIGH])[regimes], rng), regimes


def one_batch(
    emission: Garch, rows: GarchRows, row: int, y: np.ndarray, chosen: bool = True
) -> float:
    """Give a row one batch, in place, and tell its score; not chosen, time alone moves it."""
    work, view, facts = emission.work(1, 1, len(y)), blank_view(1, 1, 1), emission.facts
    begin(rows, work, 0, 0, row)
    score = 0.0
    for value in y:
        sample = Sample(np.array([value]), np.zeros(1, np.int64), np.ones((1, 1)), np.ones((1, 1)))
        look(rows, work, facts, 0, 0, row, sample, view)
        score += learn(
            rows,
            work,
            facts,
            0,
            0,
            row,
            sample,
            view,
            emission.scoring,
            no_outliers(),
            False,
            COLLAPSED,
        )[0]
    carry(rows, work, facts, 0, 0, row)
    if chosen:
        close(rows, work, facts, 0, 0, row, row)
    return float(score)


class Alone:
    """One row that is given every batch: the cloud without an engine around it."""

    def __init__(self, weight: str = "none", threshold: float = 4.0, **settings: object) -> None:
        self.emission: Garch = GarchSpec(**settings).build(Shape(1, 1), caution(weight, threshold))
        self.rows = self.emission.blank(1)
        self.emission.write_prior(self.rows, 0)
        self.log_evidence = 0.0

    def learn(self, y: np.ndarray, batch: int = 5) -> Alone:
        for start in range(0, len(y), batch):
            self.log_evidence += one_batch(self.emission, self.rows, 0, y[start : start + batch])
        return self

    @property
    def share(self) -> np.ndarray:
        return np.exp(self.rows.log_weight[0])

    def coordinates(self) -> np.ndarray:
        return coordinates(self.rows.coefficients[0])

    def sd(self) -> float:
        return math.sqrt(self.share @ self.rows.variance[0])


def coordinates(coefficients: np.ndarray) -> np.ndarray:
    omega, a, b = coefficients.T
    lost = 1 - a - b
    return np.column_stack([np.log(omega / lost), np.log((a + b) / lost), np.log(a / b)])


def natural(x: np.ndarray) -> np.ndarray:
    persistence, reaction = 1 / (1 + np.exp(-x[:, 1])), 1 / (1 + np.exp(-x[:, 2]))
    omega = np.exp(x[:, 0]) * (1 - persistence)
    return np.column_stack([omega, persistence * reaction, persistence * (1 - reaction)])


# ---------------------------------------------------------------------- the cloud


def brute_force(y: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior mean, sd of x and log evidence by weighing `n` draws from the prior."""
    centre, spread = GarchSpec().coordinates()
    x = centre + spread * np.random.default_rng(99).standard_normal((n, 3))
    omega, a, b = natural(x).T
    variance, log_likelihood = np.exp(x[:, 0]), np.zeros(n)
    for value in y:
        log_likelihood -= 0.5 * (np.log(2 * np.pi * variance) + value**2 / variance)
        variance = omega + a * value**2 + b * variance
    w = np.exp(log_likelihood - log_likelihood.max())
    log_evidence = math.log(w.mean()) + log_likelihood.max()
    w /= w.sum()
    mean = w @ x
    return mean, np.sqrt(w @ (x - mean) ** 2), log_evidence


def test_cloud_agrees_with_brute_force() -> None:
    # A redraw keeps at least an eighth of the points: an error of at most a fifth of a posterior
    # sd each, halved by every doubling of the data after it. Over six streams the root mean
    # square error of the means should stay below 0.35 sd, of the log evidence below 0.5.
    errors, ratios, evidence = [], [], []
    for seed in range(6):
        y = one_regime((0.1, 0.12, 0.78), 250, seed)
        mean, sd, log_evidence = brute_force(y, 20_000)
        row = Alone().learn(y)
        x, share = row.coordinates(), row.share
        errors.append((share @ x - mean) / sd)
        ratios.append(np.sqrt(share @ (x - share @ x) ** 2) / sd)
        evidence.append(row.log_evidence - log_evidence)
    assert np.sqrt(np.mean(np.square(errors))) < 0.35
    assert np.abs(np.log(np.mean(ratios, axis=0))).max() < math.log(1.25)
    assert np.sqrt(np.mean(np.square(evidence))) < 0.5


@pytest.mark.slow
def test_posterior_is_calibrated_when_the_truth_comes_from_the_prior() -> None:
    # The rank of the truth in its posterior is uniform: three Kolmogorov tests at 0.001 each.
    rng = np.random.default_rng(5)
    centre, spread = GarchSpec().coordinates()
    truths = centre + spread * rng.standard_normal((80, 3))
    ranks = []
    for x, coefficients in zip(truths, natural(truths), strict=True):
        y, _ = simulate(np.tile(coefficients, (300, 1)), rng)
        row = Alone().learn(y)
        ranks.append(row.share @ (row.coordinates() < x))
    for coordinate in np.transpose(ranks):
        assert stats.kstest(coordinate, "uniform").pvalue > 0.001


@pytest.mark.slow
@pytest.mark.parametrize("weight", ["none", "huber", "imq"])
def test_one_regime_recovers_its_coefficients(weight: str) -> None:
    # Twelve intervals of four posterior sds: a false alarm in less than one of a thousand sets.
    for seed in range(4):
        row = Alone(weight)
        prior_sd = row.emission.coefficients(row.rows, 0)[1]
        row.learn(one_regime((0.1, 0.12, 0.80), 4000, seed))
        mean, sd = row.emission.coefficients(row.rows, 0)
        assert (np.abs(mean - (0.1, 0.12, 0.80)) < 4 * sd).all()
        assert (sd < (0.1, 0.5, 0.7) * prior_sd).all()  # wide intervals would be no recovery


def test_a_prior_far_from_the_data_is_left_behind() -> None:
    """Variance 1e-4 under a prior around 1: tempered redraws let the cloud wander there."""
    row = Alone().learn(0.01 * one_regime((0.1, 0.12, 0.78), 600, 1))
    level = np.exp(row.share @ row.coordinates()[:, 0])
    assert 0.3e-4 < level < 3e-4


def test_redraw_keeps_mean_and_covariance() -> None:
    rng = np.random.default_rng(3)
    points = rng.standard_normal((400, 4)) @ rng.standard_normal((4, 4))
    log_weight = -0.5 * (points[:, 0] - 1) ** 2
    share = np.exp(log_weight) / np.exp(log_weight).sum()
    mean = share @ points
    covariance = (points - mean).T @ ((points - mean) * share[:, None])
    for bandwidth in (0.1, 0.5, 0.9):
        after = np.empty_like(points)
        clouds.redraw(points, log_weight, 7, bandwidth, after)
        scale = np.sqrt(np.diag(covariance))
        assert np.abs((after.mean(axis=0) - mean) / scale).max() < 0.1
        assert np.abs((np.cov(after.T) - covariance) / np.outer(scale, scale)).max() < 0.2


def test_even_normals_are_normal() -> None:
    xi = np.empty((4096, 4))
    for j in range(len(xi)):
        clouds.even_normal(1000 * 128 + j, xi[j])
    assert np.abs(xi.mean(axis=0)).max() < 0.02
    assert np.abs(np.cov(xi.T) - np.eye(4)).max() < 0.03
    for column in xi.T:
        assert stats.kstest(column, "norm").statistic < 0.02


@pytest.mark.parametrize("spread", [0.0, 1.0, 1e5, 1e300])
def test_a_redraw_never_collapses(spread: float) -> None:
    share = np.empty(128)
    clouds.temper(-spread * np.arange(128.0) / 128, share)
    assert share.sum() == pytest.approx(1)
    assert 1 / (share**2).sum() >= clouds.THINNEST * 128 * (1 - 1e-4)


# ---------------------------------------------------------------------- the weight


@pytest.mark.parametrize("weight", ["imq", "huber", "mahalanobis"])
@pytest.mark.parametrize("threshold", [1.5, 4.0])
def test_weighted_score_has_its_mean_at_the_true_variance(weight: str, threshold: float) -> None:
    kind = WEIGHTS[weight]
    kappa, driver = correction(caution(weight, threshold))

    def loss(log_s: float) -> float:
        def at(y: float) -> float:
            log_w2 = log_weight2(kind, abs(y) / math.exp(log_s / 2), threshold)
            v = kappa * math.exp(log_s - log_w2)
            return (math.log(v) + y * y / v) * stats.norm.pdf(y)

        edges = [0.0, threshold * math.exp(log_s / 2), 12.0]
        return sum(integrate.quad(at, *ends)[0] for ends in itertools.pairwise(edges))

    best = optimize.minimize_scalar(loss, bounds=(-1.0, 1.0), method="bounded")
    assert best.x == pytest.approx(0.0, abs=2e-3)

    def drive(y: float) -> float:
        w2 = update_weight2(kind, y, threshold)
        return (driver * w2 * y * y if w2 > 0 else 1.0) * 2 * stats.norm.pdf(y)

    assert integrate.quad(drive, 0, 12, points=[threshold])[0] == pytest.approx(1, abs=1e-3)


def test_no_weight_means_no_correction() -> None:
    assert correction(caution("none")) == pytest.approx((1.0, 1.0), abs=1e-12)
    assert correction(caution("imq", math.inf)) == pytest.approx((1.0, 1.0), abs=1e-12)


@pytest.mark.parametrize("weight", ["imq", "huber", "mahalanobis"])
def test_an_extreme_value_says_nothing(weight: str) -> None:
    """Not about the points of a cloud, not about regimes, and little about the variance."""
    calm, wild = (Alone(weight).learn(one_regime(c, 400, 2)) for c in (LOW, HIGH))
    evidence = [calm.log_evidence, wild.log_evidence]
    share, sd = calm.share, calm.sd()
    calm.learn(np.array([1e9]), batch=1)
    wild.learn(np.array([1e9]), batch=1)
    evidence = [calm.log_evidence - evidence[0], wild.log_evidence - evidence[1]]
    assert evidence[0] == pytest.approx(evidence[1], abs=1e-6)
    assert calm.share == pytest.approx(share, abs=1e-6)
    assert calm.sd() < 2 * sd


def test_without_a_weight_it_says_everything() -> None:
    calm = Alone("none").learn(one_regime(LOW, 400, 2))
    assert calm.learn(np.array([1e9]), batch=1).sd() > 1e7


# ---------------------------------------------------------------------- time


def test_nothing_observed_moves_the_variance_to_its_long_run() -> None:
    row = Alone().learn(one_regime(LOW, 400, 0))
    row.learn(np.array([2.0]), batch=1)
    before = row.rows.variance[0].copy()
    omega, a, b = row.rows.coefficients[0].T
    work = row.emission.work(1, 1, 1)
    begin(row.rows, work, 0, 0, 0)
    rest(row.rows, work, 0, 0)
    assert work.variance[0, 0] == pytest.approx(omega + (a + b) * before)
    for _ in range(3000):
        rest(row.rows, work, 0, 0)
    assert work.variance[0, 0] == pytest.approx(omega / (1 - a - b))


def test_a_regime_that_was_not_chosen_follows_the_series() -> None:
    """Its variances move with y, its points and weights do not; B batches are one recursion."""
    emission = Garch(Shape(1, 1), GarchSpec(), caution())
    pool = emission.blank(4)
    emission.write_prior(pool, 3)
    omega, a, b = pool.coefficients[3].T
    variance = pool.variance[3].copy()
    kept = pool.coefficients[3].tobytes(), pool.log_weight[3].tobytes()
    y = one_regime(HIGH, 12, 0)
    for start in range(0, 12, 4):
        one_batch(emission, pool, 3, y[start : start + 4], chosen=False)
    for value in y:
        variance = omega + a * value**2 + b * variance
    assert pool.variance[3] == pytest.approx(variance, rel=1e-9)
    assert kept == (pool.coefficients[3].tobytes(), pool.log_weight[3].tobytes())


def test_predictive_has_the_clouds_variance_and_kurtosis() -> None:
    row = Alone().learn(one_regime(LOW, 30, 0))
    parts = Eager(row.emission).predictive(row.rows, np.zeros(1, np.int64), np.ones((1, 1)))
    share, s = row.share, row.rows.variance[0]
    t = stats.t(parts.dof[0], scale=math.sqrt(parts.spread[0, 0, 0]))
    assert t.var() == pytest.approx(share @ s)
    assert t.stats("k") + 3 == pytest.approx(3 * (share @ s**2) / (share @ s) ** 2)


# ---------------------------------------------------------------------- two regimes


def oracle(y: np.ndarray) -> np.ndarray:
    """P(high) by the exact filter that knows both regimes and the persistence."""
    omega, a, b = np.array([LOW, HIGH]).T
    stay = np.array([[PERSISTENT, 1 - PERSISTENT], [1 - PERSISTENT, PERSISTENT]])
    variance, belief, high = omega / (1 - a - b), np.array([0.5, 0.5]), np.empty(len(y))
    for t, value in enumerate(y):
        belief = (belief @ stay) * stats.norm.pdf(value, scale=np.sqrt(variance))
        belief /= belief.sum()
        high[t] = belief[1]
        variance = omega + a * value**2 + b * variance
    return high


def agreement(path: np.ndarray, truth: np.ndarray) -> float:
    """Share of observations whose regime, named after the truth it overlaps most, is right."""
    right = [np.bincount(truth[path == regime]).max() for regime in np.unique(path)]
    return float(sum(right)) / len(truth)


@pytest.mark.slow
def test_both_regimes_are_found_and_volatility_beats_one_regime() -> None:
    """Against the truth, the filter that knows it, and one GARCH fitted to the whole sample.

    A single run now and then misses the second regime for a while, or splits one in two (one
    of 18 looked at for each, model seeds 0 to 5 on the three streams), so a stream is judged by
    two of three runs: at that rate other draws would fail somewhere with probability 0.06.
    """
    arch = pytest.importorskip("arch")
    excess, ours, one = [], [], []
    for seed in (20, 21, 22):
        y, sigma, truth = two_regimes(seed)
        known = agreement((oracle(y) > 0.5).astype(int), truth)
        fit = arch.arch_model(y, mean="Zero", rescale=False).fit(disp="off")
        late = slice(100, None)
        one.append(np.sqrt(np.mean((fit.conditional_volatility - sigma)[late] ** 2)))
        lost, found = [], []
        for model_seed in range(3):
            model = garch_ihmm(particles=50, seed=model_seed)
            sd, path = watch(model, y)
            lost.append(known - agreement(path, truth))
            ours.append(np.sqrt(np.mean((sd - sigma)[late] ** 2)))
            found.append(both_found(model))
        excess.append(np.median(lost))
        assert sum(found) >= 2
    # Twice what the oracle loses between streams (0.02).
    assert max(excess) < 0.04
    assert np.mean(ours) < np.mean(one)


def watch(model: RegimeModel, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Forecast volatility and settled regimes, without the intervals that `run` adds."""
    sd, path = [], []
    for value in y:
        sd.append(model.predict().sd)
        step = model.update(value)
        path.append(step.regime)
        if step.settled:
            path[-step.settled :] = [step.regime] * step.settled
    return np.array(sd), np.array(path)


def both_found(model: RegimeModel) -> bool:
    """Whether each true long-run variance has a regime, and few are beside them."""
    regimes = [regime for regime in model.regimes() if regime.visits >= 150]
    levels = [omega / (1 - a - b) for omega, a, b in (regime.mean for regime in regimes)]
    near = [
        any(abs(math.log(level * (1 - a - b) / omega)) < math.log(2) for level in levels)
        for omega, a, b in (LOW, HIGH)
    ]
    return 2 <= len(regimes) <= 4 and all(near)


@pytest.mark.slow
def test_spikes_change_little() -> None:
    """One observation in a hundred is moved by 10 to 40: the volatility hardly notices."""
    y, sigma, truth = two_regimes(24, 500)
    rng = np.random.default_rng(0)
    spikes = rng.choice(500, 5, replace=False)
    hit = y.copy()
    hit[spikes] += rng.uniform(10, 40, 5) * rng.choice([-1, 1], 5)
    robust, plain = garch_ihmm(particles=20), garch_ihmm(particles=20, weight="none")
    sd, path = watch(robust, hit)
    error = np.sqrt(np.mean((sd - sigma)[100:] ** 2))
    assert agreement(path, truth) > 0.85
    assert error < 0.5 * np.sqrt(np.mean((watch(plain, hit)[0] - sigma)[100:] ** 2))


def test_a_spike_is_an_outlier_and_no_regime() -> None:
    y = one_regime(LOW, 120, 1)
    y[90] = 50.0
    run = garch_ihmm(particles=20).run(y)
    assert run.outlier[90]
    assert run.path[89] == run.path[91] == run.path[100]


# ---------------------------------------------------------------------- sharing and state


def unshare(engine: Engine) -> None:
    """Give every particle that is in a row together with others a row of its own."""
    p, ledger = engine.state.particles, engine.state.ledger
    engine.ensure_rows(4 * p.alpha.size + int((ledger.owners > 0).sum()))
    ledger, taken = engine.state.ledger, set()
    free = iter(np.flatnonzero(ledger.owners[1:] == 0) + 1)
    for i in range(p.alpha.size):
        row = int(p.slots[i, p.current[i]])
        if row in taken:
            own = next(free)
            for array in (*engine.rows, *ledger):
                array[own] = array[row]
            p.slots[i, p.current[i]] = own
        taken.add(row)
    commit.recount(engine.state)
    engine.ensure_candidates(int((ledger.owners > 0).sum()) + 8)
    commit.start_batch(engine.rows, engine.work, engine.state, engine.plan, 0)


def test_sharing_rows_changes_nothing() -> None:
    """Rows of their own hold the same bits; only masses are summed in another order."""
    models = [garch_ihmm(particles=12, cloud=32, batch=4, islands=1, seed=3) for _ in range(2)]
    y = two_regimes(7, 160)[0] * np.repeat([1.0, 3.0], 80)
    for start in range(0, 160, 4):
        for model in models:
            model.run(y[start : start + 4])
        unshare(models[1].engine)
    shared, alone = (model.engine.state for model in models)
    assert shared.clock.candidates[0] < alone.clock.candidates[0]
    np.testing.assert_allclose(
        shared.particles.log_weight, alone.particles.log_weight, rtol=1e-9, atol=1e-9
    )
    assert (shared.particles.n_regimes == alone.particles.n_regimes).all()
    assert shared.particles.n_regimes.max() > 1
    for i, n in enumerate(shared.particles.n_regimes):
        for slot in range(n + 1):
            ours, theirs = shared.particles.slots[i, slot], alone.particles.slots[i, slot]
            for a, b in zip(models[0].engine.rows, models[1].engine.rows, strict=True):
                np.testing.assert_allclose(a[ours], b[theirs], rtol=1e-9, atol=1e-12)


def test_snapshot_inside_a_batch_is_exact() -> None:
    y = two_regimes(8, 120)[0]
    model = garch_ihmm(particles=12, cloud=32)
    model.run(y[:63])
    content = snapshot.read(model.to_bytes())
    twin = garch_ihmm(**content.settings)
    twin._unpack(content.values, content.arrays)
    for value in y[63:]:
        assert model.update(value) == twin.update(value)
    assert model.to_bytes() == twin.to_bytes()
    assert model.copy().to_bytes() == model.to_bytes()


def test_chunks_make_no_difference() -> None:
    y = two_regimes(9, 90)[0]
    whole, parts = garch_ihmm(particles=12, cloud=32), garch_ihmm(particles=12, cloud=32)
    at_once = whole.run(y)
    pieces = [parts.run(y[:7]), parts.run(y[7:40]), parts.run(y[40:])]
    assert at_once.sd.tobytes() == np.concatenate([p.sd for p in pieces]).tobytes()
    assert whole.to_bytes() == parts.to_bytes()


def test_predict_changes_nothing() -> None:
    model = garch_ihmm(particles=12, cloud=32)
    model.run(two_regimes(9, 33)[0])
    before = model.to_bytes()
    model.predict()
    model.forecast(5)
    assert model.to_bytes() == before


def test_rescaling_changes_no_regime() -> None:
    y = two_regimes(10, 200)[0]
    ours = garch_ihmm(particles=20, cloud=32).run(y)
    scaled = garch_ihmm(particles=20, cloud=32, variance_prior=(1e6, 1.5)).run(1000 * y)
    assert (scaled.path == ours.path).all()
    assert scaled.sd == pytest.approx(1000 * ours.sd, rel=1e-6)


# ---------------------------------------------------------------------- odd streams


def test_empty_and_single() -> None:
    model = garch_ihmm(particles=8, cloud=16)
    assert len(model.run([])) == 0
    prior = model.predict()
    assert 0.3 < prior.sd < 10
    assert prior.mean == 0
    step = model.update(0.5)
    assert math.isfinite(step.log_score)


@pytest.mark.parametrize("weight", ["none", "huber", "imq", "mahalanobis"])
@pytest.mark.parametrize("stream", ["zero", "constant", "missing", "gaps", "spike", "huge", "tiny"])
def test_odd_streams_give_finite_forecasts(weight: str, stream: str) -> None:
    y = one_regime(LOW, 48, 0)
    y = {
        "zero": 0 * y,
        "constant": 0 * y + 3,
        "missing": 0 * y + np.nan,
        "gaps": np.where(np.arange(48) % 5 < 2, np.nan, y),
        "spike": np.where(np.arange(48) == 20, 1e6, y),
        "huge": np.where(np.arange(48) == 20, -1e300, y),
        "tiny": 1e-300 * y,
    }[stream]
    run = garch_ihmm(particles=8, cloud=32, weight=weight).run(y)
    assert np.isfinite(run.sd).all()
    assert (run.sd > 0).all()
    assert np.isfinite(run.log_score[~np.isnan(y)]).all()
    assert ((run.weight > 0) & (run.weight <= 1)).all()


@pytest.mark.parametrize("rule", ["paper", {"D1": "paper"}, {"D3": "paper"}, {"D4": "paper"}])
def test_the_papers_rules_work_too(rule: object) -> None:
    y = two_regimes(11, 60)[0]
    run = garch_ihmm(particles=8, cloud=16, rule=rule).run(y)
    assert np.isfinite(run.sd).all()
    plain = garch_ihmm(particles=8, cloud=16, weigh_regimes=False).run(y)
    assert np.isfinite(plain.log_score).all()


def test_without_the_compiler() -> None:
    code = (
        "from regimekit.ihmm.garch import garch_ihmm\n"
        "model = garch_ihmm(particles=4, cloud=16, batch=3)\n"
        "print(model.run([0.1, -0.5, 1.2, 0.3, -2.0, 0.1, 0.4]).sd[-1])\n"
    )
    answers = []
    for disabled in ("0", "1"):
        env = os.environ | {"NUMBA_DISABLE_JIT": disabled}
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code], env=env, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        answers.append(float(done.stdout))
    assert answers[0] == pytest.approx(answers[1], rel=1e-9)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"cloud": 4}, "cloud"),
        ({"bandwidth": 1.5}, "bandwidth"),
        ({"variance_prior": (0.0, 1.0)}, "variance_prior"),
        ({"variance_prior": 1.0}, "variance_prior"),
        ({"persistence_prior": (1.2, 1.0)}, "persistence_prior"),
        ({"reaction_prior": (0.1, -1.0)}, "reaction_prior"),
        ({"dim": 2}, "dim"),
        ({"features": features.lags(1)}, "features"),
        ({"noise": 0.25}, "noise"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, object], named: str) -> None:
    with pytest.raises(RegimekitError, match=named):
        garch_ihmm(**settings)


def test_two_coordinates_are_refused_and_nothing_is_lost() -> None:
    model = garch_ihmm(particles=4, cloud=16)
    before = model.to_bytes()
    with pytest.raises(RegimekitError, match="one series"):
        model.update([1.0, 2.0])
    assert model.to_bytes() == before
    model.update(1.0)
