"""The GARCH emission: the cloud of a row against brute force, its weight and its recursion."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from regimekit.ihmm.emissions.base import Shape
from regimekit.ihmm.emissions.garch import Garch, GarchSettings, correction
from regimekit.ihmm.emissions.particle_cloud import KernelSmoother, quasi_normal
from regimekit.ihmm.weights import WEIGHTS, Scoring, log_weight2, update_weight2

LOW, HIGH = (0.02, 0.05, 0.80), (0.40, 0.15, 0.75)  # long-run variances 0.13 and 4


def scoring(weight: str = "none", threshold: float = 4.0) -> Scoring:
    return Scoring(WEIGHTS[weight], threshold, True, True, True, True, True)


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


def build(weight: str = "none", threshold: float = 4.0, **settings: object) -> Garch:
    """An emission with one row, the prior."""
    emission = GarchSettings(**settings).build(Shape(1, 1), scoring(weight, threshold), 100)
    emission.resize_rows(1)
    emission.resize_candidates(1, 1)
    emission.write_prior(0)
    return emission


def one_batch(emission: Garch, y: np.ndarray, chosen: bool = True) -> float:
    """Filter one batch from row 0 and return its score; if not chosen, only time changes it."""
    scores = emission.filter_rows([0], y[:, None], np.ones((len(y), 1, 1)), False)[0]
    emission.time_update_row(0)
    if chosen:
        emission.finalize_row(0, 0)
    return float(scores.sum())


class Alone:
    """One row that learns every batch: the cloud without a filter around it."""

    def __init__(self, weight: str = "none", threshold: float = 4.0, **settings: object) -> None:
        self.emission = build(weight, threshold, **settings)
        self.log_evidence = 0.0

    def learn(self, y: np.ndarray, batch: int = 5) -> Alone:
        for start in range(0, len(y), batch):
            self.log_evidence += one_batch(self.emission, y[start : start + batch])
        return self

    @property
    def share(self) -> np.ndarray:
        return np.exp(np.asarray(self.emission.log_weight)[0])

    @property
    def variance(self) -> np.ndarray:
        return np.asarray(self.emission.variance)[0]

    def coordinates(self) -> np.ndarray:
        return coordinates(np.asarray(self.emission.parameters)[0])

    def sd(self) -> float:
        return math.sqrt(self.share @ self.variance)


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
    centre, spread = GarchSettings().coordinates()
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
    centre, spread = GarchSettings().coordinates()
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
        prior_sd = row.emission.coefficients(0)[1]
        row.learn(one_regime((0.1, 0.12, 0.80), 4000, seed))
        mean, sd = row.emission.coefficients(0)
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
        after = KernelSmoother(400, 4, bandwidth).resample(points, log_weight, 7)
        scale = np.sqrt(np.diag(covariance))
        assert np.abs((after.mean(axis=0) - mean) / scale).max() < 0.1
        assert np.abs((np.cov(after.T) - covariance) / np.outer(scale, scale)).max() < 0.2


def test_quasi_normals_are_normal() -> None:
    xi = np.empty((4096, 4))
    for j in range(len(xi)):
        quasi_normal(1000 * 128 + j, xi[j])
    assert np.abs(xi.mean(axis=0)).max() < 0.02
    assert np.abs(np.cov(xi.T) - np.eye(4)).max() < 0.03
    for column in xi.T:
        assert stats.kstest(column, "norm").statistic < 0.02


@pytest.mark.parametrize("spread", [0.0, 1.0, 1e5, 1e300])
def test_a_redraw_never_collapses(spread: float) -> None:
    smoother = KernelSmoother(128, 1, 0.5)
    smoother.resample(np.zeros((128, 1)), -spread * np.arange(128.0) / 128, 0)
    share = np.asarray(smoother.share)
    assert share.sum() == pytest.approx(1)
    assert 1 / (share**2).sum() >= 128 / 8 * (1 - 1e-4)


# ---------------------------------------------------------------------- the weight


@pytest.mark.parametrize("weight", ["imq", "huber", "mahalanobis"])
@pytest.mark.parametrize("threshold", [1.5, 4.0])
def test_weighted_score_has_its_mean_at_the_true_variance(weight: str, threshold: float) -> None:
    kind = WEIGHTS[weight]
    kappa, driver = correction(scoring(weight, threshold))

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
    assert correction(scoring("none")) == pytest.approx((1.0, 1.0), abs=1e-12)
    assert correction(scoring("imq", math.inf)) == pytest.approx((1.0, 1.0), abs=1e-12)


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


def test_without_observations_the_variance_tends_to_its_long_run() -> None:
    row = Alone().learn(one_regime(LOW, 400, 0))
    row.learn(np.array([2.0]), batch=1)
    before = row.variance.copy()
    omega, a, b = np.asarray(row.emission.parameters)[0].T
    one_batch(row.emission, np.full(1, np.nan), chosen=False)
    assert row.variance == pytest.approx(omega + (a + b) * before)
    one_batch(row.emission, np.full(3000, np.nan), chosen=False)
    assert row.variance == pytest.approx(omega / (1 - a - b))


def test_a_regime_that_was_not_chosen_follows_the_series() -> None:
    """Its variances move with y, its points and weights do not; B batches are one recursion."""
    row = Alone()
    omega, a, b = np.asarray(row.emission.parameters)[0].T
    variance = row.variance.copy()
    kept = bytes(row.emission.parameters), bytes(row.emission.log_weight)
    y = one_regime(HIGH, 12, 0)
    for start in range(0, 12, 4):
        one_batch(row.emission, y[start : start + 4], chosen=False)
    for value in y:
        variance = omega + a * value**2 + b * variance
    assert row.variance == pytest.approx(variance, rel=1e-9)
    assert kept == (bytes(row.emission.parameters), bytes(row.emission.log_weight))


def test_predictive_has_variance_and_kurtosis_of_the_cloud() -> None:
    row = Alone().learn(one_regime(LOW, 30, 0))
    share, s = row.share, row.variance.copy()
    found = row.emission.filter_rows([0], np.zeros((1, 1)), np.ones((1, 1, 1)), False, True)
    spread, dof = found[3][0, 0, 0, 0], found[4][0, 0]
    t = stats.t(dof, scale=math.sqrt(spread))
    assert t.var() == pytest.approx(share @ s)
    assert t.stats("k") + 3 == pytest.approx(3 * (share @ s**2) / (share @ s) ** 2)


@pytest.mark.parametrize("weight", [name for name in WEIGHTS if name != "contamination"])
def test_equal_rows_with_equal_batches_stay_equal(weight: str) -> None:
    """The successor of a row is a function of the row and the batch: particles may share rows."""
    y = one_regime(LOW, 60, 5)
    twins = [Alone(weight, cloud=32).learn(y).emission for _ in range(2)]
    for name in twins[0].row_arrays:
        assert bytes(getattr(twins[0], name)) == bytes(getattr(twins[1], name))
