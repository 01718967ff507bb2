"""The linear-Gaussian emission against closed forms: regression, one WoLF step, sub-models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import LONGEST, Follower, scoring
from scipy import stats

import regimekit as rk
from regimekit.ihmm.emissions.base import Shape
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings, LinearGaussian
from regimekit.ihmm.weights import (
    WEIGHTS,
    Scoring,
    log_outlier_density,
    log_weight2,
    update_weight2,
)

ROBUST = ["imq", "huber", "mahalanobis"]
KINDS = [*ROBUST, "none"]  # those that are functions of a residual's length
FULL_NOISE = np.array([[0.5, 0.2, -0.1], [0.2, 0.4, 0.05], [-0.1, 0.05, 0.3]])


def spread(rng: np.random.Generator, size: int) -> np.ndarray:
    """A well-conditioned covariance matrix."""
    a = rng.standard_normal((size, size + 2))
    return a @ a.T / size + 0.1 * np.eye(size)


class Row(Follower):
    """A linear-Gaussian regime."""

    emission: LinearGaussian

    def __init__(self, shape: Shape, rule: Scoring, fresh: bool = True, **settings: Any) -> None:
        emission = LinearGaussian(shape, GaussianSettings(**settings), rule, LONGEST)
        super().__init__(emission, fresh)

    @property
    def mean(self) -> np.ndarray:
        return self.closed()["mean"][0]

    @property
    def root(self) -> np.ndarray:
        return self.closed()["root"]

    @property
    def covariance(self) -> np.ndarray:
        return self.root @ self.root.T


def regression(
    y: np.ndarray, design: np.ndarray, noise: np.ndarray, mean: np.ndarray, covariance: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Posterior and log evidence of y ~ N(F theta, R) from all the data at once.

    y is (T, d), design (T, d, m).
    """
    precision = np.linalg.inv(noise)
    information = np.linalg.inv(covariance) + np.einsum("tda,de,teb->ab", design, precision, design)
    shift = np.linalg.solve(covariance, mean) + np.einsum("tda,de,te->a", design, precision, y)
    posterior = np.linalg.inv(information)
    tall = design.reshape(-1, mean.size)
    total = tall @ covariance @ tall.T + np.kron(np.eye(len(y)), noise)
    evidence = stats.multivariate_normal.logpdf(y.reshape(-1), tall @ mean, total)
    return posterior @ shift, posterior, float(evidence)


def wolf_step(
    row: Row, y: np.ndarray, design: np.ndarray, weight: str, c: float, predictive: bool
) -> tuple[np.ndarray, np.ndarray, float, float]:
    """One step by the formulas, in covariance form: mean, Sigma, w^2, score with D1."""
    mean, sigma, noise = row.mean, row.covariance, np.asarray(row.emission.noise)
    r = y - design @ mean
    s = design @ sigma @ design.T + noise
    z2 = float(r @ np.linalg.solve(s if predictive else noise, r))
    w2 = {
        "none": 1.0,
        "imq": 1 / (1 + z2 / c**2),
        "huber": min(1.0, c**2 / z2),
        "mahalanobis": float(z2 <= c**2),
    }[weight]
    scored = min(1.0, c**2 / z2) if weight == "mahalanobis" else w2
    score = float(stats.multivariate_normal.logpdf(r, np.zeros(r.size), s / scored))
    if w2 == 0:
        return mean, sigma, w2, score
    heavy = design @ sigma @ design.T + noise / w2
    gain = sigma @ design.T @ np.linalg.inv(heavy)
    return mean + gain @ r, sigma - gain @ heavy @ gain.T, w2, score


@pytest.mark.parametrize("c", [2.0, np.inf])
def test_unweighted_scalar_row_is_batch_regression(rng: np.random.Generator, c: float) -> None:
    m, n = 4, 60
    mean, covariance = rng.standard_normal(m), spread(rng, m)
    design = rng.standard_normal((n, 1, m))
    y = rng.standard_normal((n, 1)) * 2
    row = Row(
        Shape(1, m),
        scoring("none" if c == 2 else "imq", c),
        noise=0.3,
        prior_mean=mean,
        prior_var=covariance,
    )
    for y_t, f in zip(y, design, strict=True):
        row.learn(y_t, f)
    exact = regression(y, design, np.array([[0.3]]), mean, covariance)
    np.testing.assert_allclose(row.mean, exact[0], rtol=1e-10)
    np.testing.assert_allclose(row.covariance, exact[1], rtol=1e-9, atol=1e-14)
    assert row.score == pytest.approx(exact[2], rel=1e-11)


@pytest.mark.parametrize("shared", [True, False])
def test_unweighted_vector_row_is_batch_regression(rng: np.random.Generator, shared: bool) -> None:
    n, width = 40, 2 if shared else 5
    shape = Shape(3, width, shared)
    m = shape.coefficients
    mean, covariance = rng.standard_normal(m), spread(rng, m)
    row = Row(shape, scoring(), noise=FULL_NOISE, prior_mean=mean, prior_var=covariance)
    features = rng.standard_normal((n, width) if shared else (n, 3, width))
    design = np.stack([row.emission.design(f) for f in features])
    y = rng.standard_normal((n, 3))
    for y_t, f in zip(y, design, strict=True):
        row.learn(y_t, f)
    exact = regression(y, design, FULL_NOISE, mean, covariance)
    np.testing.assert_allclose(row.mean, exact[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(row.covariance, exact[1], rtol=1e-9, atol=1e-13)
    assert row.score == pytest.approx(exact[2], rel=1e-11)


@pytest.mark.parametrize("dim", [1, 3])
def test_model_with_one_regime_is_batch_regression(rng: np.random.Generator, dim: int) -> None:
    """The whole model: with alpha and gamma next to 0 no second regime is ever opened."""
    n = 48
    noise = 0.4 if dim == 1 else FULL_NOISE
    x = rng.standard_normal((n, 2))
    y = x @ rng.standard_normal((2, dim)) + 0.5 * rng.standard_normal((n, dim))
    model = rk.br_ihmm(
        features=rk.features.columns(),
        noise=noise,
        prior_var=2.0,
        weight="none",
        batch=4,
        particles=3,
        alpha_prior=(1.0, 1e15),
        gamma_prior=(1.0, 1e15),
    )
    model.run(y, x)
    (regime,) = model.regimes()
    design = np.stack([np.kron(np.eye(dim), f) for f in x])
    r = np.atleast_2d(noise)
    mean, covariance, _ = regression(y, design, r, np.zeros(2 * dim), 2.0 * np.eye(2 * dim))
    np.testing.assert_allclose(regime.mean, mean, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(regime.sd, np.sqrt(np.diag(covariance)), rtol=1e-9)
    f = np.kron(np.eye(dim), [0.7, -1.1])
    forecast = model.predict([0.7, -1.1])
    np.testing.assert_allclose(np.atleast_1d(forecast.mean), f @ mean, rtol=1e-9)
    total = f @ covariance @ f.T + r
    np.testing.assert_allclose(np.atleast_1d(forecast.sd), np.sqrt(np.diag(total)), rtol=1e-9)


@pytest.mark.parametrize("weight", KINDS)
@pytest.mark.parametrize("predictive", [True, False])
@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("offset", [0.1, 4.0, 80.0])
def test_one_step_is_the_wolf_formula(
    rng: np.random.Generator, weight: str, predictive: bool, dim: int, offset: float
) -> None:
    m, c = 3, 1.7
    noise = 0.4 if dim == 1 else FULL_NOISE
    row = Row(
        Shape(dim, m, False),
        scoring(weight, c, predictive=predictive),
        noise=noise,
        prior_mean=rng.standard_normal(m),
        prior_var=spread(rng, m),
    )
    design = rng.standard_normal((dim, m))
    y = design @ row.mean + offset * rng.standard_normal(dim)
    mean, sigma, w2, score = wolf_step(row, y, design, weight, c, predictive)
    row.learn(y, design)
    np.testing.assert_allclose(row.mean, mean, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(row.covariance, sigma, rtol=1e-10, atol=1e-13)
    assert row.weight == pytest.approx(w2, rel=1e-12)
    assert row.score == pytest.approx(score, rel=1e-12)


def test_paper_score_is_the_weighted_plain_likelihood(rng: np.random.Generator) -> None:
    """D1 switched back: w^2 log N(y; yhat, S)."""
    for y, dim in ((np.array([2.5]), 1), (np.array([2.5, -1.0, 0.3]), 3)):
        design = rng.standard_normal((dim, 2))
        row = Row(Shape(dim, 2, False), scoring("imq", 1.5, unit_free=False), noise=0.5)
        s = design @ design.T + 0.5 * np.eye(dim)
        w2 = 1 / (1 + y @ np.linalg.solve(s, y) / 1.5**2)
        row.learn(y, design)
        plain = stats.multivariate_normal.logpdf(y, np.zeros(dim), s)
        assert row.score == pytest.approx(w2 * plain, rel=1e-12)


@pytest.mark.parametrize("dim", [1, 3])
def test_paper_scores_a_batch_with_the_row_as_it_began(rng: np.random.Generator, dim: int) -> None:
    """D4 switched back: every score and weight from the statistics before the batch."""
    m, c = 2, 1.5
    row = Row(Shape(dim, m, False), scoring("imq", c, sequential=False), noise=0.5)
    scores, weights = [], []
    for _ in range(5):
        design, y = rng.standard_normal((dim, m)), 3 * rng.standard_normal(dim)
        s = design @ design.T + 0.5 * np.eye(dim)
        w2 = 1 / (1 + y @ np.linalg.solve(s, y) / c**2)
        scores.append(stats.multivariate_normal.logpdf(y, np.zeros(dim), s / w2))
        row.learn(y, design)
        weights.append((row.weight, w2))
    assert row.score == pytest.approx(sum(scores), rel=1e-12)
    np.testing.assert_allclose(*zip(*weights, strict=True), rtol=1e-12)


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("fresh", [True, False])
def test_paper_leaves_a_birth_unweighted(dim: int, fresh: bool) -> None:
    """D3 switched back: a row that has seen nothing learns without a weight; others with one."""
    y, design = np.full(dim, 40.0), np.eye(dim)
    row = Row(Shape(dim, dim, False), scoring("imq", weigh_births=False), fresh, noise=0.5)
    plain = regression(y[None], design[None], 0.5 * np.eye(dim), np.zeros(dim), np.eye(dim))[0]
    row.learn(y, design)
    assert np.allclose(row.mean, plain, rtol=1e-12) == fresh


@pytest.mark.parametrize("weight", ROBUST)
@pytest.mark.parametrize("c", [0.5, 2.0, 30.0])
def test_weights_are_admissible(weight: str, c: float) -> None:
    """w^2 <= 1 and w^2 z^2 <= c^2 for every z, in updates and in scores."""
    kind = WEIGHTS[weight]
    for z in np.concatenate([[0.0], np.logspace(-150, 150, 601)]):
        w2, log_w2 = update_weight2(kind, z, c), log_weight2(kind, z, c)
        assert 0.0 <= w2 <= 1.0 and np.isfinite(log_w2) and log_w2 <= 0.0
        assert w2 * z * z <= c**2 * (1 + 1e-12)
        if z > 0:
            assert log_w2 + 2 * np.log(z) <= 2 * np.log(c) + 1e-12 * abs(np.log(z)) + 1e-12


@pytest.mark.parametrize("weight", KINDS)
def test_infinite_threshold_is_no_weight(weight: str) -> None:
    for z in (0.0, 1.0, 1e150):
        assert update_weight2(WEIGHTS[weight], z, np.inf) == 1.0
        assert log_weight2(WEIGHTS[weight], z, np.inf) == 0.0


def test_no_weight_is_one_everywhere() -> None:
    assert all(update_weight2(WEIGHTS["none"], z, 2.0) == 1.0 for z in (0.0, 3.0, 1e150))


@pytest.mark.parametrize("dim", [1, 3])
def test_mahalanobis_skips_what_lies_beyond(dim: int) -> None:
    """Beyond c the row stays bit for bit; within c it learns in full. Scores are Huber's."""
    design = np.eye(dim)
    skipped = Row(Shape(dim, dim, False), scoring("mahalanobis", 3.0))
    huber = Row(Shape(dim, dim, False), scoring("huber", 3.0))
    before = skipped.mean, skipped.root
    for row in (skipped, huber):
        row.learn(np.full(dim, 50.0), design)
    assert (before[0] == skipped.mean).all() and (before[1] == skipped.root).all()
    assert skipped.weight == 0.0
    assert skipped.score == pytest.approx(huber.score, rel=1e-13)
    plain = Row(Shape(dim, dim, False), scoring("none"))
    for row in (skipped, plain):
        row.learn(np.full(dim, 0.5), design)
    assert (skipped.mean == plain.mean).all() and skipped.weight == 1.0


def test_missing_coordinate_is_the_sub_model(rng: np.random.Generator) -> None:
    """Two of three coordinates seen: the same as a model of those two alone."""
    m, seen = 4, [0, 2]
    mean, covariance = rng.standard_normal(m), spread(rng, m)
    settings: dict[str, Any] = {"prior_mean": mean, "prior_var": covariance}
    for weight in KINDS:
        whole = Row(Shape(3, m, False), scoring(weight), noise=FULL_NOISE, **settings)
        part = Row(
            Shape(2, m, False), scoring(weight), noise=FULL_NOISE[np.ix_(seen, seen)], **settings
        )
        for _ in range(6):
            design, y = rng.standard_normal((3, m)), 3 * rng.standard_normal(3)
            part.learn(y[seen], design[seen])
            y[1] = np.nan
            whole.learn(y, design)
        np.testing.assert_allclose(whole.mean, part.mean, rtol=1e-11)
        np.testing.assert_allclose(whole.covariance, part.covariance, rtol=1e-10, atol=1e-14)
        assert whole.score == pytest.approx(part.score, rel=1e-12)


@pytest.mark.parametrize("weight", KINDS)
@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("noise", [1.0, 1e-20])
@pytest.mark.parametrize("c", [2.0, np.inf])
def test_extreme_values_neither_overflow_nor_poison(
    weight: str, dim: int, noise: float, c: float
) -> None:
    design = np.ones((dim, 2)) * [[1.0, 0.3]]
    for sequence in ([1e300], [-1e300, 1e300], [1e-300, -1e-300], [1e300, 1e-300, 1.0]):
        row = Row(Shape(dim, 2, False), scoring(weight, c), noise=noise)
        for y in sequence:
            row.learn(np.full(dim, y) * np.arange(1, dim + 1), design)
        assert np.isfinite(row.mean).all() and np.isfinite(row.covariance).all()
        assert np.isfinite(row.score)
        assert np.linalg.matrix_rank(row.root) >= 1
        assert (np.diag(row.covariance) > 0).all()


@pytest.mark.parametrize("noise", [1e-6, 1e-12])
def test_small_noise_in_a_direction_the_features_do_not_reach(noise: float) -> None:
    """S = R I + f f' has d - 1 directions of size R beside one of size 1.

    log det S = (d - 1) log R + log(R + f'f), and a residual r orthogonal to f has z^2 = r'r / R.
    Forming S costs eps / R; the square root must cost no more than sqrt of that.
    """
    f, r = np.ones((3, 1)), np.sqrt(noise) * np.array([1.0, -1.0, 0.0])
    row = Row(Shape(3, 1, False), scoring(), noise=noise)
    row.learn(r, f)
    log_det = 2 * np.log(noise) + np.log(noise + 3.0)
    exact = -0.5 * (3 * np.log(2 * np.pi) + log_det + 2.0)
    assert row.score == pytest.approx(exact, rel=10 * np.finfo(float).eps / np.sqrt(noise))


@pytest.mark.parametrize("weight", ROBUST)
@pytest.mark.parametrize("dim", [1, 3])
def test_a_value_beyond_all_measure_is_not_learnt(weight: str, dim: int) -> None:
    """The step is at most v S c^2 / (R |y|) here: at 1e300 nothing moves beyond rounding."""
    row = Row(Shape(dim, dim, False), scoring(weight))
    row.learn(np.full(dim, 1e300), np.eye(dim))
    assert np.abs(row.mean).max() < 1e-90
    np.testing.assert_allclose(row.covariance, np.eye(dim), atol=1e-12)


def test_predictive_adds_the_noise_once(rng: np.random.Generator) -> None:
    m = 4
    mean, covariance = rng.standard_normal(m), spread(rng, m)
    row = Row(
        Shape(3, m, False), scoring(), noise=FULL_NOISE, prior_mean=mean, prior_var=covariance
    )
    design = rng.standard_normal((3, m))
    location, width, dof = row.look(design)
    np.testing.assert_allclose(location, design @ mean, rtol=1e-12)
    expected = design @ covariance @ design.T + FULL_NOISE
    np.testing.assert_allclose(width, expected, rtol=1e-11)
    assert np.isinf(dof)


@pytest.mark.parametrize("dim", [1, 3])
def test_a_batch_is_what_its_observations_are_one_by_one(
    rng: np.random.Generator, dim: int
) -> None:
    """The list of steps, and the matrix written after every observation, agree."""
    m = 4
    settings: dict[str, Any] = {"noise": 0.3, "prior_var": spread(rng, m)}
    whole, single = (Row(Shape(dim, m, False), scoring("imq"), **settings) for _ in range(2))
    for t in range(12):
        design, y = rng.standard_normal((dim, m)), 3 * rng.standard_normal(dim)
        if dim > 1 and t % 3 == 0:
            y[t % dim] = np.nan
        for row in (whole, single):
            row.learn(y, design)
        single.end_batch()
        np.testing.assert_allclose(whole.look(design)[1], single.look(design)[1], rtol=1e-10)
    np.testing.assert_allclose(whole.mean, single.mean, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(whole.covariance, single.covariance, rtol=1e-9, atol=1e-13)
    assert whole.score == pytest.approx(single.score, rel=1e-12)


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("offset", [0.1, 3.0, 60.0])
def test_contamination_is_a_mixture_of_two_densities(
    rng: np.random.Generator, dim: int, offset: float
) -> None:
    """Score log ((1 - eps) f + eps q), and a learning weight of the first one's share."""
    eps, m = 0.05, 3
    noise = np.array([[0.4]]) if dim == 1 else FULL_NOISE
    design, centre = rng.standard_normal((dim, m)), rng.standard_normal(dim)
    prior = spread(rng, m)
    y = offset * rng.standard_normal(dim)
    s = design @ prior @ design.T + noise
    f = (1 - eps) * stats.multivariate_normal.pdf(y, np.zeros(dim), s)
    q = eps * stats.multivariate_t.pdf(y, centre, 400 * noise, df=2)
    z = np.sqrt((y - centre) @ np.linalg.solve(400 * noise, y - centre))
    log_q = log_outlier_density(float(z), 0.5 * float(np.linalg.slogdet(400 * noise)[1]), dim)
    rule = scoring("contamination")
    rule.log_rate, rule.log_regular, rule.log_density = np.log(eps), np.log1p(-eps), log_q
    row = Row(Shape(dim, m, False), rule, noise=noise, prior_var=prior)
    row.learn(y, design)
    r = f / (f + q)
    assert row.score == pytest.approx(np.log(f + q), rel=1e-10)
    assert row.weight == pytest.approx(r, rel=1e-10, abs=1e-270)
    heavy = design @ prior @ design.T + noise / max(r, 1e-290)
    gain = prior @ design.T @ np.linalg.inv(heavy)
    np.testing.assert_allclose(row.mean, gain @ y, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(row.covariance, prior - gain @ heavy @ gain.T, rtol=1e-8, atol=1e-12)


def test_the_density_of_outliers_is_a_density() -> None:
    """q integrates to one, and falls off as a t with two degrees of freedom does."""
    z = np.linspace(-2000, 2000, 400_001)
    q = np.exp([log_outlier_density(abs(one), 0.0, 1) for one in z[::40]])
    assert q.sum() * (z[40] - z[0]) == pytest.approx(1.0, abs=1e-5)
    for far in (1e7, 1e9, 1e150):  # either side of where the logarithm is taken apart
        expected = stats.t.logpdf(far, 2) if far < 1e100 else -3 * np.log(far)
        assert log_outlier_density(far, 0.0, 1) == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1.0, 1e-12])
def test_a_million_updates_stay_exact(noise: float) -> None:
    """Against the information form summed in extended precision.

    Each update rounds a handful of times per entry, so after n updates the relative error is at
    most about m n eps = 1e-9, and of a covariance that shrinks like 1 / n it stays that.
    """
    m, n = 4, 1_000_000
    rng = np.random.default_rng(11)
    theta = rng.standard_normal(m)
    row = Row(Shape(1, m), scoring(), noise=noise)
    wide = np.longdouble
    information, shift = np.eye(m, dtype=wide), np.zeros(m, dtype=wide)
    for _ in range(n // 10_000):
        f = rng.standard_normal((10_000, m))
        y = f @ theta + np.sqrt(noise) * rng.standard_normal(10_000)
        for y_t, f_t in zip(y[:, None], f[:, None], strict=True):
            row.learn(y_t, f_t)
        exact_f = f.astype(wide)
        information += exact_f.T @ exact_f / wide(noise)
        shift += exact_f.T @ y.astype(wide) / wide(noise)
    exact = solve_wide(information, np.column_stack([shift, np.eye(m)]))
    tolerance = m * n * np.finfo(float).eps
    sd = np.sqrt(np.diag(exact[:, 1:]).astype(float))
    np.testing.assert_allclose(
        row.covariance / np.outer(sd, sd),
        (exact[:, 1:] / np.outer(sd, sd)).astype(float),
        rtol=0,
        atol=tolerance,
    )
    np.testing.assert_allclose(row.mean, exact[:, 0].astype(float), rtol=0, atol=tolerance)
    assert np.linalg.eigvalsh(row.covariance).min() > 0


def solve_wide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Gauss-Jordan in extended precision, which LAPACK does not offer (a is positive definite)."""
    a, b = a.copy(), b.copy()
    for k in range(len(a)):
        b[k] /= a[k, k]
        a[k] = a[k] / a[k, k]
        for j in range(len(a)):
            if j != k:
                b[j] -= a[j, k] * b[k]
                a[j] = a[j] - a[j, k] * a[k]
    return b
