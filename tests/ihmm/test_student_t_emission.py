"""Unknown noise: closed forms, Student-t densities, the consistency of the weighted variance."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from rows import LONGEST, Follower, scoring
from scipy import integrate, optimize, special, stats

import regimekit as rk
from regimekit.ihmm.emissions.base import Shape
from regimekit.ihmm.emissions.student_t import StudentT, StudentTSettings, consistency, digamma
from regimekit.ihmm.makers import student_t_ihmm
from regimekit.ihmm.weights import WEIGHTS, Scoring

C = 2.0  # threshold of the robust cases
IMQ, HUBER, MAHALANOBIS = (WEIGHTS[name] for name in ("imq", "huber", "mahalanobis"))


def plain() -> Scoring:
    return scoring("none", math.inf, weigh_regimes=False)


def robust(**switches: bool) -> Scoring:
    return scoring("imq", C, **switches)


class Predicted(NamedTuple):
    """Parameters of a Student-t distribution: (d,), (d, d) and a number."""

    location: np.ndarray
    spread: np.ndarray
    dof: float


class Row(Follower):
    """One regime that learns everything: the emission without the filter."""

    emission: StudentT

    def see(self, y: Any, f: Any) -> tuple[float, float]:
        """Learn one observation; return its score and weight."""
        before = self.score
        self.learn(y, f)
        return self.score - before, self.weight

    @property
    def mean(self) -> np.ndarray:
        return self.closed()["mean"]

    @property
    def root(self) -> np.ndarray:
        return self.closed()["root"]

    @property
    def factor(self) -> np.ndarray:
        return self.closed()["factor"]

    @property
    def dof(self) -> float:
        return float(self.closed()["dof"])

    @property
    def variance(self) -> np.ndarray:
        """Psi / nu, the plug-in noise."""
        return self.factor @ self.factor.T / self.dof

    def become(self, arrays: dict[str, np.ndarray]) -> None:
        """Begin a batch from the arrays of a row."""
        for name, array in arrays.items():
            np.asarray(getattr(self.emission, name))[0] = array

    def predictive(self, f: Any) -> Predicted:
        return Predicted(*self.look(f))


def make(dim: int = 1, width: int = 1, rule: Scoring | None = None, **settings: Any) -> Row:
    shape = Shape(dim, width)
    return Row(StudentTSettings(**settings).build(shape, rule or plain(), LONGEST))


def steps(model: Any, ys: Any) -> list[Any]:
    return [model.update(y) for y in ys]


def test_regression_equals_the_closed_form_batch_posterior() -> None:
    rng = np.random.default_rng(1)
    F, m0 = rng.standard_normal((40, 3)), np.array([0.5, -1.0, 2.0])
    y = F @ [1.0, 2.0, -1.0] + 0.7 * rng.standard_normal(40)
    a0, b0, spread = 1.5, 0.6, np.array([[2.0, 0.3, 0.0], [0.3, 1.0, 0.1], [0.0, 0.1, 4.0]])
    row = make(width=3, prior_mean=m0, prior_var=spread, noise_shape=a0, noise_scale=b0)
    evidence = sum(row.see(y[t], F[t])[0] for t in range(40))

    P0 = np.linalg.inv(spread * a0 / b0)
    P = P0 + F.T @ F
    mean = np.linalg.solve(P, P0 @ m0 + F.T @ y)
    a, b = a0 + 20, b0 + 0.5 * (y @ y + m0 @ P0 @ m0 - mean @ P @ mean)
    root = row.root
    np.testing.assert_allclose(row.mean[0], mean, rtol=1e-10)
    np.testing.assert_allclose(root @ root.T, np.linalg.inv(P), rtol=1e-9)
    np.testing.assert_allclose(row.dof, 2 * a)
    np.testing.assert_allclose(row.factor[0, 0] ** 2, 2 * b, rtol=1e-10)
    closed = a0 * math.log(b0) - a * math.log(b) + math.lgamma(a) - math.lgamma(a0)
    closed += 0.5 * (np.linalg.slogdet(P0)[1] - np.linalg.slogdet(P)[1]) - 20 * math.log(2 * np.pi)
    assert evidence == pytest.approx(closed, rel=1e-10)


def test_vectors_equal_the_closed_form_matrix_normal_inverse_wishart() -> None:
    rng = np.random.default_rng(2)
    n, d, m, a0 = 30, 3, 2, 2.5
    F = rng.standard_normal((n, m))
    b0 = np.array([[0.5, 0.1, 0.0], [0.1, 0.8, -0.2], [0.0, -0.2, 0.4]])
    M0 = rng.standard_normal((d, m))
    Y = F @ rng.standard_normal((m, d)) + rng.standard_normal((n, d)) @ np.linalg.cholesky(b0).T
    row = make(d, m, prior_mean=M0.ravel(), prior_var=1.7, noise_shape=a0, noise_scale=b0)
    evidence = sum(row.see(Y[t], F[t])[0] for t in range(n))

    P0 = np.eye(m) * np.linalg.det(b0 / a0) ** (1 / d) / 1.7
    P = P0 + F.T @ F
    M = np.linalg.solve(P, P0 @ M0.T + F.T @ Y)  # (m, d)
    psi = 2 * b0 + Y.T @ Y + M0 @ P0 @ M0.T - M.T @ P @ M
    dof0 = 2 * a0 + d - 1
    np.testing.assert_allclose(row.mean, M.T, rtol=1e-9)
    np.testing.assert_allclose(row.variance * row.dof, psi, rtol=1e-9)
    assert row.dof + d - 1 == pytest.approx(dof0 + n)
    log_det = [np.linalg.slogdet(x)[1] for x in (P0, P, 2 * b0, psi)]
    closed = 0.5 * d * (log_det[0] - log_det[1]) + 0.5 * dof0 * log_det[2]
    closed -= 0.5 * (dof0 + n) * log_det[3] + 0.5 * n * d * math.log(np.pi)
    closed += special.multigammaln((dof0 + n) / 2, d) - special.multigammaln(dof0 / 2, d)
    assert evidence == pytest.approx(closed, rel=1e-10)


def test_predictive_is_student_t() -> None:
    rng = np.random.default_rng(3)
    row = make(width=2, noise_shape=1.2, noise_scale=0.3)
    for _ in range(5):
        row.learn(rng.normal(), rng.normal(size=2))
    f = np.array([1.0, -0.4])
    parts = row.predictive(f)
    scoring = stats.t(parts.dof, parts.location[0], math.sqrt(parts.spread[0, 0]))
    for y in (-3.0, 0.2, 40.0):
        twin = make(width=2)
        twin.become(row.closed())
        assert twin.see(y, f)[0] == pytest.approx(scoring.logpdf(y), rel=1e-11)


def weighted_moment(w2: Any, dim: int, power: int) -> float:
    """E[w^2 z^power] for z ~ chi_dim."""
    scoring = stats.chi(dim)

    def term(z: float) -> float:
        return float(w2(z) * z**power * scoring.pdf(z))

    return sum(integrate.quad(term, low, high)[0] for low, high in ((0, C), (C, 30)))


def test_digamma_and_the_consistency_factor_agree_with_quadrature() -> None:
    for x in (0.05, 0.5, 1.0, 2.0, 7.9, 8.1, 1e3, 1e8):
        assert digamma(x) == pytest.approx(special.digamma(x), rel=1e-11, abs=1e-12)
    weights = {
        IMQ: lambda z: 1 / (1 + z * z / C**2),
        HUBER: lambda z: min(1.0, C**2 / (z * z)),
        MAHALANOBIS: lambda z: float(z <= C),
    }
    for kind, w2 in weights.items():
        for dim in (1, 3):
            moments = [weighted_moment(w2, dim, power) for power in (2, 0)]
            expected = moments[0] / (dim * moments[1])
            assert consistency(kind, C, dim) == pytest.approx(expected, rel=1e-6)
    assert consistency(HUBER, 20.0, 1) == pytest.approx(1.0, abs=1e-9)


def two_rows(rule: Scoring) -> Any:
    """The paper's toy: an old row with 1000 degrees of freedom, a new one with 5, centred at 0."""

    def difference(y: float) -> float:
        scores = []
        for dof in (1000.0, 5.0):
            row = Row(StudentTSettings().build(Shape(1, 1), rule, LONGEST), fresh=False)
            unit_noise = np.full((1, 1), math.sqrt(dof))
            row.become({"root": np.full((1, 1), 1e-3), "dof": dof, "factor": unit_noise})
            scores.append(row.see(y, np.ones(1))[0])
        return scores[1] - scores[0]

    return difference


def test_plain_student_prefers_the_new_regime_for_an_outlier_without_bound() -> None:
    difference = two_rows(plain())
    slope = (difference(1e9) - difference(1e7)) / math.log(100)
    assert slope == pytest.approx(1000 - 5, rel=1e-6)  # (nu_old - nu_new) log|y|


def test_robust_scores_of_an_outlier_tend_to_the_same_value() -> None:
    difference = two_rows(robust())
    log_noise = [math.log(dof / 2) - special.digamma(dof / 2) for dof in (1000, 5)]
    bound = 0.5 * abs(log_noise[0] - log_noise[1]) + C**2 / 2
    grid = [difference(y) for y in np.logspace(-3, 14, 60)]
    assert max(np.abs(grid)) <= bound
    assert abs(difference(1e9)) < 1e-9
    assert abs(difference(1e300)) < 1e-9
    assert difference(0.0) == pytest.approx(0.5 * (log_noise[0] - log_noise[1]), abs=1e-6)


@pytest.mark.parametrize("size", [20.0, 1e3, 1e12])
def test_only_the_plain_model_opens_a_regime_for_an_outlier(size: float) -> None:
    y = 0.3 * np.random.default_rng(0).standard_normal(160)
    y[120] = size
    plain = student_t_ihmm(weight="none", batch=1, particles=50)
    robust = student_t_ihmm(particles=50)
    known = rk.br_ihmm(particles=50)
    opened = {}
    for name, model in (("plain", plain), ("robust", robust), ("known", known)):
        seen = steps(model, y)
        opened[name] = seen[-1].n_regimes - seen[119].n_regimes
    assert opened["plain"] >= 1
    assert opened["robust"] == opened["known"] == 0
    assert abs(robust.predict().mean) < 0.3
    assert robust.predict().sd < 0.5


def test_an_outlier_moves_a_row_by_a_bounded_amount() -> None:
    kappa = consistency(IMQ, C, 1)
    for n in (0, 50):
        row = make(rule=robust())
        for y in 0.3 * np.random.default_rng(4).standard_normal(n):
            row.learn(y, [1.0])
        before = float(row.factor[0, 0] ** 2)
        noise = before / 2 * math.exp(-special.digamma(row.dof / 2))
        dof, mean = row.dof, row.mean[0, 0]
        row.see(1e9, [1.0])
        gained = row.factor[0, 0] ** 2 - before
        assert gained <= noise * C**2 / kappa * (1 + 1e-9)  # 2 b grows by at most c^2 G / kappa
        assert row.dof - dof < 1e-12
        assert abs(row.mean[0, 0] - mean) < 1e-6


def fitted_log_variance(seed: int, n: int, share: float = 0.0, **spec: Any) -> float:
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(n)
    y[rng.random(n) < share] = 1e3
    row = make(rule=robust(), noise_scale=2.0, **spec)
    for value in y:
        row.learn(value, [1.0])
    return math.log(row.variance[0, 0])


def solved_log_variance(kappa: float, share: float = 0.0) -> float:
    """The scale at which E[w^2 (z^2 - kappa)] = 0 for N(0, 1) data with outliers at infinity."""

    def drift(log_variance: float) -> float:
        def term(y: float) -> float:
            z2 = y * y * math.exp(-log_variance)
            return (z2 - kappa) / (1 + z2 / C**2) * stats.norm.pdf(y)

        return (1 - share) * integrate.quad(term, -12, 12, limit=200)[0] + share * C**2

    return float(optimize.brentq(drift, -5, 5))


@pytest.mark.parametrize("consistent", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.05])
def test_variance_goes_where_the_estimating_equation_says(consistent: bool, share: float) -> None:
    kappa = consistency(IMQ, C, 1) if consistent else 1.0
    found = [fitted_log_variance(s, 1000, share, consistent=consistent) for s in range(12)]
    expected = solved_log_variance(kappa, share)
    # 5 standard errors with 11 degrees of freedom: false alarm 4e-4 for each of the four cases.
    assert abs(np.mean(found) - expected) < 5 * np.std(found, ddof=1) / math.sqrt(12)
    if consistent and not share:
        assert expected == pytest.approx(0.0, abs=1e-6)  # the true variance


def test_without_the_correction_the_scale_is_that_of_a_student_t() -> None:
    y = np.linspace(-12, 12, 4001)
    mass = stats.norm.pdf(y) * (y[1] - y[0])

    def loss(log_variance: float) -> float:
        return -float(mass @ stats.t.logpdf(y, C**2, 0.0, math.exp(log_variance / 2)))

    best = optimize.minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-8})
    assert solved_log_variance(1.0) == pytest.approx(best.x, abs=1e-4)
    assert best.x < 0  # too small for Gaussian noise


def test_vector_variance_is_consistent() -> None:
    truth = np.array([[1.0, 0.6], [0.6, 2.0]])
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        row = make(2, 1, robust())
        for y in rng.standard_normal((1000, 2)) @ np.linalg.cholesky(truth).T:
            row.learn(y, [1.0])
        found.append(row.variance)
    error = np.std(found, axis=0, ddof=1) / math.sqrt(8)
    # 6 standard errors with 7 degrees of freedom, 3 distinct entries: false alarm 2e-3.
    assert (np.abs(np.mean(found, axis=0) - truth) < 6 * error).all()


def hdp_stream(rng: np.random.Generator, n: int, spec: StudentTSettings) -> np.ndarray:
    """A stream from the model's own prior (40 sticks: the mass left out is negligible)."""
    alpha, gamma = rng.gamma(1.0), rng.gamma(1.0)
    v = rng.beta(1.0, gamma, 40)
    beta = v * np.cumprod(np.concatenate([[1.0], 1 - v[:-1]]))
    beta /= beta.sum()
    variance = spec.noise_scale / rng.gamma(spec.noise_shape, size=40)
    relative = spec.prior_var * spec.noise_shape / spec.noise_scale
    mean = np.sqrt(variance * relative) * rng.standard_normal(40)
    rows: dict[int, np.ndarray] = {}
    y, regime = np.empty(n), int(rng.choice(40, p=beta))
    for t in range(n):
        y[t] = mean[regime] + math.sqrt(variance[regime]) * rng.standard_normal()
        weights = rows.setdefault(regime, rng.gamma(np.maximum(alpha * beta, 1e-12)))
        regime = int(rng.choice(40, p=(weights + 1e-300) / (weights + 1e-300).sum()))
    return y


@pytest.mark.slow
def test_calibrated_on_streams_from_its_own_prior() -> None:
    spec = StudentTSettings(noise_shape=2.0, noise_scale=0.2)
    pit = []
    for seed in range(100):
        y = hdp_stream(np.random.default_rng(seed), 30, spec)
        model = student_t_ihmm(
            weight="none", batch=1, particles=50, noise_shape=2.0, noise_scale=0.2, seed=seed
        )
        for value in y:
            pit.append(model.predict().cdf(value))
            model.update(value)
    pits = np.array(pit)
    # Under the right model the PITs are independent and uniform: 3000 of them, so the interval
    # below is 3.7 standard errors wide on each side (false alarm 2e-4); KS at level 1e-4.
    assert 0.88 < np.mean(np.abs(pits - 0.5) < 0.45) < 0.92
    assert stats.kstest(pits, "uniform").pvalue > 1e-4


def test_robust_row_covers_clean_gaussian_data() -> None:
    covered = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        variance = 0.2 / rng.gamma(2.0)
        level = math.sqrt(10.0) * rng.standard_normal()  # V0 = prior_var / (b0 / a0)
        y = math.sqrt(variance) * (level + rng.standard_normal(60))
        row = make(rule=robust(), noise_shape=2.0, noise_scale=0.2)
        for value in y:
            parts = row.predictive([1.0])
            z = (value - parts.location[0]) / math.sqrt(parts.spread[0, 0])
            covered.append(abs(z) < special.stdtrit(parts.dof, 0.95))
            row.learn(value, [1.0])
    assert 0.88 < np.mean(covered) < 0.92


@pytest.mark.parametrize("weight", ["imq", "none"])
def test_rescaling_leaves_the_regimes_unchanged(weight: str) -> None:
    rng = np.random.default_rng(5)
    y = np.concatenate([rng.normal(m, s, 40) for m, s in ((0, 0.3), (2, 0.5), (0, 0.3))])
    y[60] = 30.0
    base = steps(student_t_ihmm(weight=weight, particles=30, prior_mean=0.5), y)
    for factor in (1e-6, 2.0**20):
        scaled = student_t_ihmm(
            weight=weight,
            particles=30,
            prior_mean=0.5 * factor,
            prior_var=factor**2,
            noise_scale=StudentTSettings.noise_scale * factor**2,
        )
        seen = steps(scaled, y * factor)
        assert [s.regime for s in seen] == [s.regime for s in base]
        np.testing.assert_allclose([s.weight for s in seen], [s.weight for s in base], rtol=1e-6)


@pytest.mark.parametrize("weight", ["imq", "huber", "mahalanobis", "none"])
@pytest.mark.parametrize("dim", [1, 2])
def test_extreme_values_leave_everything_finite(weight: str, dim: int) -> None:
    model = student_t_ihmm(weight=weight, particles=10, batch=2)
    values = [0.1, 1e300, -1e300, 1e-300, 0.0, 1e300, 5e-324, np.nan, 0.2, 0.1]
    for y in values:
        step = model.update(y if dim == 1 else [y, 0.3])
        assert 0 < step.weight <= 1 and math.isfinite(step.ess)
    forecast = model.predict()
    assert np.isfinite(forecast.mean).all() and np.isfinite(forecast.quantile(0.9)).all()


def test_a_constant_series_keeps_a_positive_noise() -> None:
    row = make(rule=robust())
    for _ in range(20_000):
        row.learn(3.0, [1.0])
    assert 0 < row.variance[0, 0] < 1e-3
    assert row.mean[0, 0] == pytest.approx(3.0, abs=1e-3)


def test_infinite_threshold_is_no_weight() -> None:
    y = np.random.default_rng(6).standard_normal(30)
    plain = steps(student_t_ihmm(weight="none", particles=20), y)
    never = steps(student_t_ihmm(weight="imq", threshold=math.inf, particles=20), y)
    assert plain == never


def test_deviations_switch_one_by_one() -> None:
    y, f = 2.5, [1.0]
    row = make(rule=robust())
    parts = row.predictive(f)
    exact = stats.t(parts.dof, 0.0, math.sqrt(parts.spread[0, 0])).logpdf(y)
    _, w2 = row.see(y, f)
    assert 0 < w2 < 1
    weighted = make(rule=robust(unit_free=False)).see(y, f)[0]  # D1
    assert weighted == pytest.approx(w2 * exact)
    assert make(rule=robust(weigh_regimes=False)).see(y, f)[0] == pytest.approx(exact)
    noise_only = make(rule=robust(predictive=False)).see(y, f)[1]  # D2
    spread = 1 + float(row.emission.prior_root[0, 0]) ** 2
    assert noise_only == pytest.approx(1 / (1 + (1 / w2 - 1) * spread))
    unweighted, unweighted_by_kind = make(rule=robust(weigh_births=False)), make()  # D3
    unweighted.see(y, f)
    unweighted_by_kind.see(y, f)
    for name, array in unweighted.closed().items():
        np.testing.assert_array_equal(array, unweighted_by_kind.closed()[name])
    at_start = make(rule=robust(sequential=False))  # D4
    scores = [at_start.see(y, f)[0] for _ in range(2)]
    assert scores[0] == scores[1]


def test_a_missing_coordinate_is_scored_by_the_others_and_learnt_through_them() -> None:
    b0 = np.array([[0.5, 0.3], [0.3, 0.4]])
    row = make(2, 1, noise_shape=3.0, noise_scale=b0)
    parts = row.predictive([1.0])
    score, _ = row.see([1.4, math.nan], [1.0])
    marginal = stats.t(parts.dof, 0.0, math.sqrt(parts.spread[0, 0]))
    assert score == pytest.approx(marginal.logpdf(1.4), rel=1e-11)
    mean = row.mean[:, 0]
    assert mean[1] == pytest.approx(mean[0] * 0.3 / 0.5)  # the regression of one on the other
    assert row.dof == pytest.approx(6.5)  # half a vector was seen
    apart = make(2, 1, noise_shape=3.0, noise_scale=0.5)
    apart.see([1.4, math.nan], [1.0])
    assert apart.mean[1, 0] == 0.0


def test_missing_coordinates_do_not_bias_the_noise() -> None:
    truth = np.array([[1.0, 0.6], [0.6, 2.0]])
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        Y = rng.standard_normal((1000, 2)) @ np.linalg.cholesky(truth).T
        Y[rng.random(Y.shape) < 0.2] = math.nan
        row = make(2, 1, robust())
        for y in Y[~np.isnan(Y).all(axis=1)]:
            row.learn(y, [1.0])
        found.append(row.variance)
    error = np.std(found, axis=0, ddof=1) / math.sqrt(8)
    # 6 standard errors with 7 degrees of freedom, 3 distinct entries: false alarm 2e-3.
    assert (np.abs(np.mean(found, axis=0) - truth) < 6 * error).all()


def test_vectors_find_a_regime_and_ignore_an_outlier() -> None:
    rng = np.random.default_rng(8)
    y = 0.3 * rng.standard_normal((160, 2))
    y[80:] += [2.0, -1.0]
    y[40] = [1e6, 0.0]
    y[50, 1] = math.nan
    model = student_t_ihmm(particles=50)
    seen = steps(model, y)
    assert seen[70].n_regimes == 1 and seen[40].outlier
    assert seen[159].regime != seen[70].regime
    np.testing.assert_allclose(model.predict().mean, [2.0, -1.0], atol=0.3)
    assert model.regimes()[0].mean.shape == (2,)


def test_the_factor_stays_positive_over_a_long_stream() -> None:
    rng = np.random.default_rng(9)
    row = make(3, 2, robust(), noise_scale=1e-12)
    Y = rng.standard_normal((5000, 3))
    Y[:, :2][rng.random((5000, 2)) < 0.1] = np.nan
    for y, f in zip(Y, rng.standard_normal((5000, 2)), strict=True):
        row.learn(y, f)
    assert np.linalg.eigvalsh(row.variance).min() > 0.5
    assert np.linalg.eigvalsh(row.root @ row.root.T).min() > 0


def test_a_copy_goes_on_as_the_model_would() -> None:
    y = np.random.default_rng(10).standard_normal(40)
    model = student_t_ihmm(particles=20, batch=4)
    steps(model, y[:22])  # in the middle of a batch
    twin = model.copy()
    assert steps(model, y[22:]) == steps(twin, y[22:])


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("noise_shape", 0.0),
        ("noise_shape", math.inf),
        ("noise_scale", -1.0),
        ("noise_scale", [1.0, 2.0]),
        ("prior_var", 0.0),
        ("prior_mean", math.nan),
    ],
)
def test_bad_settings_are_refused_by_name(argument: str, value: Any) -> None:
    with pytest.raises(rk.RegimekitError, match=argument):
        student_t_ihmm(**{argument: value})


def test_shared_coefficients_are_refused_for_vectors() -> None:
    with pytest.raises(rk.RegimekitError, match="Features"):
        StudentTSettings().build(Shape(2, 3, shared=False), robust(), LONGEST)
