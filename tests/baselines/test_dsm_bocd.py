"""dsm_bocd against the definition of the loss, grids, quadrature, and plain Bayes in the limit."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, special

import regimekit as rk
from regimekit.baselines.bocd import bocd
from regimekit.baselines.dsm_bocd import DsmSettings, dsm_bocd
from regimekit.baselines.score_matching import ScoreMatching, Setup, best_omega, divergence
from regimekit.serialization.validation import Arrays, Values

SETTINGS: dict[str, Any] = {
    "noise": 0.4,
    "noise_doubt": 0.6,
    "prior_mean": 0.3,
    "prior_var": 1.5,
    "center": 0.2,
    "scale": 1.3,
    "omega": 0.15,
    "max_variance": 40.0,
}


def squared_weight(x: Any, settings: dict[str, Any]) -> Any:
    return 1 / (1 + ((x - settings["center"]) / settings["scale"]) ** 2)


def loss(x: float, eta_1: Any, eta_2: Any, settings: dict[str, Any]) -> Any:
    """Diffusion score matching from its definition; the derivative by a complex step."""

    def flow(z: Any) -> Any:
        return squared_weight(z, settings) * (eta_1 - eta_2 * z)

    score = eta_1 - eta_2 * x
    return squared_weight(x, settings) * score**2 + 2 * np.imag(flow(x + 1e-30j)) / 1e-30


def prior_log_density(eta_1: Any, eta_2: Any, s: dict[str, Any]) -> Any:
    """Level and precision independent a priori, as normals of matching moments in eta."""
    d2, precision = s["noise_doubt"] ** 2, 1 / s["noise"]
    mean = np.array([s["prior_mean"], 1.0]) * precision
    covariance = d2 * np.outer(mean, mean)
    covariance[0, 0] += (1 + d2) * s["prior_var"] * precision**2
    inverse = np.linalg.inv(covariance)
    a, b = eta_1 - mean[0], eta_2 - mean[1]
    squared = inverse[0, 0] * a**2 + 2 * inverse[0, 1] * a * b + inverse[1, 1] * b**2
    return -0.5 * squared


def grid(x: np.ndarray, s: dict[str, Any], size: int = 500) -> tuple[Any, Any, Any, Any]:
    """The generalised posterior of (eta_1, eta_2) on a grid, from the definition: mass and cell.

    Even in sqrt(eta_2), since 1 / eta_2 is steep near the cut.
    """
    belief, _, _ = row_of(x, s).quadrature(0)
    sd_2 = 1 / math.sqrt(belief.precision)
    low, high = 1 / s["max_variance"], max(belief.mean, 0.0) + 9 * sd_2
    root = np.linspace(math.sqrt(max(low, belief.mean - 9 * sd_2)), math.sqrt(high), size)
    eta_2 = root**2
    # eta_1 about the user's zero: the kernels count from the center
    ridge = (belief.h1 - belief.p12 * eta_2) / belief.p11 + s["center"] * eta_2
    half = 9 / math.sqrt(belief.p11)
    eta_1 = np.linspace(ridge.min() - half, ridge.max() + half, 4 * size)
    e1, e2 = np.meshgrid(eta_1, eta_2, indexing="ij")
    total = sum((loss(float(value), e1, e2, s) for value in x), np.zeros_like(e1))
    log_density = prior_log_density(e1, e2, s) - s["omega"] * total
    cell = np.outer(trapezoid(eta_1), 2 * root * trapezoid(root))
    mass = np.exp(log_density - log_density.max()) * cell
    return e1, e2, mass / mass.sum(), cell


def trapezoid(points: np.ndarray) -> np.ndarray:
    """Weights of the trapezium rule."""
    weights = np.full(points.size, points[1] - points[0])
    weights[[0, -1]] /= 2
    return weights


def row_of(x: np.ndarray, s: dict[str, Any]) -> ScoreMatching:
    rows = ScoreMatching(DsmSettings(**s).setup())
    rows.resize(1)
    for value in x:
        rows.learn(0, float(value))
    return rows


def sums_of(x: np.ndarray, s: dict[str, Any]) -> np.ndarray:
    return np.array(row_of(x, s).sums)[0]


VALUES = np.array([0.9, -0.4, 0.1, 2.2, 0.5, -0.9, 14.0])


@pytest.mark.parametrize("n", [0, 1, 3, 7])
def test_posterior_moments_against_a_grid(n: int) -> None:
    e1, e2, mass, _ = grid(VALUES[:n], SETTINGS)
    belief, eta, share = row_of(VALUES[:n], SETTINGS).quadrature(0)
    # moments of eta_1 about the user's zero, given eta_2
    centre = (belief.h1 - belief.p12 * eta) / belief.p11 + SETTINGS["center"] * eta
    got = [
        share @ eta,
        share @ eta**2,
        share @ centre,
        share @ (centre**2 + 1 / belief.p11),
        share @ (centre * eta),
    ]
    wanted = [(mass * f).sum() for f in (e2, e2**2, e1, e1**2, e1 * e2)]
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


def exact_predictive(y: float, sums: np.ndarray, setup: Setup) -> float:
    """p(y | row) by adaptive integration over eta_2 of a truncated normal."""
    rate = 2 * setup.omega
    p = np.array([[setup.p11 + rate * sums[0], setup.p12 - rate * sums[1]], [0, 0]])
    p[1] = p[0, 1], setup.p22 + rate * sums[2]
    h = np.array([setup.h1 - rate * sums[3], setup.h2 + rate * (sums[4] + sums[0])])
    sigma = np.linalg.inv(p)
    mean, sd = (sigma @ h)[1], math.sqrt(sigma[1, 1])

    def density(eta: float) -> float:
        spread = 1 / eta + 1 / (p[0, 0] * eta**2)
        location = (h[0] - p[0, 1] * eta) / (p[0, 0] * eta) + setup.center
        z = (eta - mean) / sd
        exponent = -0.5 * (z**2 + (y - location) ** 2 / spread)
        return math.exp(exponent) / (2 * math.pi * sd * math.sqrt(spread))

    low, high = max(setup.floor, mean - 12 * sd), max(mean, setup.floor) + 12 * sd
    steps = np.linspace(low, high, 25)
    total = sum(integrate.quad(density, a, b)[0] for a, b in itertools.pairwise(steps))
    return float(total / special.ndtr((mean - setup.floor) / sd))


@pytest.mark.slow
@pytest.mark.parametrize("n", [0, 1, 4, 7])
def test_forecast_against_quadrature(n: int) -> None:
    """One run length: the mixture of nodes is the integral over eta_2, near and far."""
    model = dsm_bocd(**SETTINGS, hazard=1e-12)
    model.run(VALUES[:n])
    assert model.lengths is not None or n == 0
    sums = sums_of(VALUES[:n], SETTINGS)
    forecast = model.predict()
    for y in np.linspace(-4, 4, 9):
        exact = exact_predictive(float(y), sums, DsmSettings(**SETTINGS).setup())
        assert forecast.log_density(y) == pytest.approx(math.log(exact), abs=1e-5)
    for y in (-15.0, 15.0):
        exact = exact_predictive(y, sums, DsmSettings(**SETTINGS).setup())
        assert forecast.log_density(y) == pytest.approx(math.log(exact), abs=1e-3)
    wide = np.linspace(-400, 400, 400_001)
    total = np.trapezoid(np.exp(forecast.log_density(wide)), wide)
    assert total == pytest.approx(1.0, abs=1e-5)  # what lies beyond 400 is counted as an error


@pytest.mark.parametrize("variance", ["unknown", "known"])
def test_equals_the_direct_recursion(variance: str) -> None:
    """Every start kept and each row learnt afresh from its own values, evidence by quadrature."""
    s = SETTINGS | {"variance": variance, "hazard": 0.1, "threshold": math.inf}
    rng = np.random.default_rng(1)
    y = np.concatenate([rng.normal(0.5, 0.4, 6), rng.normal(-2, 0.8, 6)])
    setup = DsmSettings(**s).setup()
    mass = np.zeros(0)
    model = dsm_bocd(**s)
    for t, value in enumerate(y):
        prior = np.append(0.9 * mass, 0.1 if t else 1.0)
        rows = [sums_of(y[start:t], s) for start in range(t + 1)]
        density = [predictive_of(float(value), sums, setup) for sums in rows]
        joint = prior * density
        mass = joint / joint.sum()
        step = model.update(value)
        assert step.log_score == pytest.approx(math.log(joint.sum()), abs=2e-5)
    np.testing.assert_allclose(list(model.run_lengths().values()), mass, atol=2e-5)


def predictive_of(y: float, sums: np.ndarray, setup: Setup) -> float:
    if not setup.pinned:
        return exact_predictive(y, sums, setup)
    # The closed form for a level with known variance R, written without natural parameters:
    # precision 1/V0 + 2 w sum m^2 / R^2, pull m0/V0 + 2 w (sum m^2 x / R^2 - sum (m^2)' / R)
    noise, rate = SETTINGS["noise"], 2 * setup.omega
    precision = 1 / SETTINGS["prior_var"] + rate * sums[0] / noise**2
    pull = (SETTINGS["prior_mean"] - setup.center) / SETTINGS["prior_var"]
    pull += rate * (sums[1] / noise**2 - sums[3] / noise)
    variance = noise + 1 / precision
    residual = y - setup.center - pull / precision
    return math.exp(-0.5 * residual**2 / variance) / math.sqrt(2 * math.pi * variance)


def test_known_variance_against_a_grid() -> None:
    """The generalised posterior of the level, from the definition of the loss."""
    s = SETTINGS | {"variance": "known"}
    theta = np.linspace(-12, 12, 48_001)
    total = sum((loss(float(x), theta / s["noise"], 1 / s["noise"], s) for x in VALUES), 0.0)
    log_density = -0.5 * (theta - s["prior_mean"]) ** 2 / s["prior_var"] - s["omega"] * total
    mass = np.exp(log_density - log_density.max())
    mass /= mass.sum()
    mean = mass @ theta
    sd = math.sqrt(mass @ (theta - mean) ** 2)
    model = dsm_bocd(**s, hazard=1e-12)
    model.run(VALUES)
    forecast, regime = model.predict(), model.regimes()[0]
    assert regime.mean[0] == pytest.approx(mean, abs=1e-9)
    assert regime.sd[0] == pytest.approx(sd, abs=1e-9)
    assert forecast.mean == pytest.approx(mean, abs=1e-9)
    assert forecast.variance == pytest.approx(sd**2 + s["noise"], abs=1e-9)


def test_full_weight_is_plain_bayes() -> None:
    """With m = 1 and omega = noise / 2 the loss is the log likelihood: bocd, number by number."""
    rng = np.random.default_rng(2)
    y = np.repeat([0.0, 3.0, -1.0], 40) + 0.5 * rng.standard_normal(120)
    y[[7, 50]] = np.nan
    dsm = dsm_bocd(
        variance="known", noise=0.25, prior_var=4.0, scale=1e9, omega=0.125, threshold=math.inf
    )
    plain = bocd(noise=0.25, prior_var=4.0, max_run_lengths=50)
    a, b = dsm.run(y), plain.run(y)
    np.testing.assert_allclose(a.log_score, b.log_score, rtol=1e-9)
    np.testing.assert_allclose(a.mean, b.mean, atol=1e-9)
    np.testing.assert_allclose(a.change_probability, b.change_probability, atol=1e-9)
    np.testing.assert_array_equal(a.regime, b.regime)
    assert dsm.segmentation() == plain.segmentation() == [40, 80]
    assert dsm.dropped_mass == pytest.approx(plain.dropped_mass)


def grid_divergence(omega: float, x: np.ndarray, s: dict[str, Any]) -> float:
    """KL(generalised || Bayes) on a grid, with both normalised there."""
    e1, e2, mass, cell = grid(x, s | {"omega": omega}, size=700)  # its error is O(size^-2)
    log_bayes = prior_log_density(e1, e2, s)
    for value in x:
        log_bayes = log_bayes + 0.5 * np.log(e2) - 0.5 * e2 * (value - e1 / e2) ** 2
    keep = mass > 0
    return float((mass[keep] * (np.log(mass[keep] / cell[keep]) - log_bayes[keep])).sum())


@pytest.mark.slow
def test_divergence_against_a_grid() -> None:
    """Up to its constant, which the first rate of learning takes away."""
    x = np.random.default_rng(3).normal(0.4, 0.7, 12)
    setup = DsmSettings(**SETTINGS).setup()
    rates = [0.05, 0.15, 0.6]
    ours = np.array([divergence(rate, x, setup) for rate in rates])
    wanted = np.array([grid_divergence(rate, x, SETTINGS) for rate in rates])
    np.testing.assert_allclose(ours - ours[0], wanted - wanted[0], atol=1e-4)


def test_divergence_of_known_variance_is_that_of_two_normals() -> None:
    s = SETTINGS | {"variance": "known"}
    x = np.random.default_rng(4).normal(0.4, 0.7, 30)
    setup = DsmSettings(**s).setup()
    precision = 1 / s["prior_var"] + x.size / s["noise"]
    mean = (s["prior_mean"] / s["prior_var"] + x.sum() / s["noise"]) / precision

    def exact(omega: float) -> float:
        sums, rate = sums_of(x, s), 2 * omega
        ours = 1 / s["prior_var"] + rate * sums[0] / s["noise"] ** 2
        pull = (s["prior_mean"] - s["center"]) / s["prior_var"]
        pull += rate * (sums[1] / s["noise"] ** 2 - sums[3] / s["noise"])
        gap = s["center"] + pull / ours - mean
        return 0.5 * (precision / ours + precision * gap**2 - 1 + math.log(ours / precision))

    rates = np.array([0.01, 0.1, 0.2, 0.7])
    ours = np.array([divergence(rate, x, setup) for rate in rates])
    wanted = np.array([exact(rate) for rate in rates])
    np.testing.assert_allclose(ours - ours[0], wanted - wanted[0], atol=1e-9)
    best = optimize.minimize_scalar(lambda u: exact(math.exp(u)), bounds=(-8, 3), method="bounded")
    assert best_omega(x, setup) == pytest.approx(math.exp(best.x), rel=1e-3)


@pytest.mark.slow
def test_best_omega_is_the_minimum() -> None:
    x = np.random.default_rng(5).normal(0.0, 0.7, 60)
    setup = DsmSettings(**SETTINGS).setup()
    omega = best_omega(x, setup)
    least = divergence(omega, x, setup)
    assert all(
        least <= divergence(omega * factor, x, setup) + 1e-9 for factor in (0.5, 0.9, 1.1, 2)
    )
    full = DsmSettings(**SETTINGS | {"variance": "known", "scale": 1e9}).setup()
    assert best_omega(x, full) == pytest.approx(SETTINGS["noise"] / 2, rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("variance", ["unknown", "known"])
@pytest.mark.parametrize("spike", [1e6, -1e6, 30.0])
def test_a_spike_does_not_reset_the_run_length(variance: str, spike: float) -> None:
    rng = np.random.default_rng(6)
    clean = 0.5 * rng.standard_normal(120)
    dirty = clean.copy()
    dirty[70] = spike
    model, twin = (dsm_bocd(variance=variance, training=50) for _ in range(2))
    run, without = model.run(dirty), twin.run(np.where(np.arange(120) == 70, np.nan, clean))
    assert run.outlier[70] and run.events[-1].time != 70
    np.testing.assert_array_equal(run.regime, without.regime)
    assert np.abs(run.change_probability - without.change_probability)[70:].max() < 0.05
    assert model.predict().mean == pytest.approx(twin.predict().mean, abs=0.02)
    plain = bocd(noise=0.25)
    assert np.diff(plain.run(dirty[:71]).regime)[-1] == 1
    assert plain.run_lengths()[70] > 0.999


def test_what_an_outlier_does_to_a_row_is_bounded() -> None:
    """Each sum moves by a bounded amount, however far the value: so do the parameters."""
    setup = DsmSettings(scale=1.3, center=0.2).setup()
    for x in np.concatenate([10.0 ** np.arange(0, 301, 20), -(10.0 ** np.arange(0, 301, 20))]):
        rows = ScoreMatching(setup)
        rows.resize(1)
        weight = rows.learn(0, float(x))
        sums = np.array(rows.sums)[0]
        assert 0 <= weight <= 1 and np.isfinite(sums).all()
        assert abs(sums[1]) <= 1.3 / 2 + 1e-12 and sums[2] <= 1.3**2 + 1e-12
        assert abs(sums[3]) <= 2 / 1.3 and abs(sums[4]) <= 2


def test_the_published_evidence_does_not_bound_the_run_length() -> None:
    """Why there is a threshold: under the plain predictive a far point belongs to the prior row."""
    y = 0.5 * np.random.default_rng(7).standard_normal(60)
    y[40] = 1e6
    published = dsm_bocd(variance="known", threshold=math.inf, omega=0.125)
    published.run(y)
    assert sum(mass for start, mass in published.run_lengths().items() if start >= 40) > 0.999


@pytest.mark.slow
def test_real_changes_are_still_found() -> None:
    rng = np.random.default_rng(8)
    y = np.repeat([-1.0, 1.0, -0.5], 60) + 0.3 * rng.standard_normal(180)
    y[[30, 90, 150]] = 50.0
    model = dsm_bocd(noise=0.09, training=40)
    run = model.run(y)
    assert len(model.segmentation()) == 2
    for true, found in zip((60, 120), model.segmentation(), strict=True):
        assert abs(true - found) <= 2
    assert run.outlier[[30, 90, 150]].all() and (np.diff(run.regime) >= 0).all()


@pytest.mark.slow
def test_variance_is_learnt() -> None:
    """A segment ten times quieter than the prior expects: the interval shrinks."""
    y = 0.05 * np.random.default_rng(9).standard_normal(300)
    model = dsm_bocd(noise=0.25, hazard=1e-3, training=0)
    first = model.predict().sd
    model.run(y)
    low, high = model.predict().interval(0.9)
    assert high - low < 0.5 * 2 * 1.645 * first


def test_training_sets_omega_at_its_end() -> None:
    y = np.random.default_rng(10).normal(0, 0.6, 80)
    gappy = np.insert(y, [3, 20], np.nan)
    model, by_hand = dsm_bocd(training=40), dsm_bocd(training=0)
    model.run(gappy[:41])
    assert model.omega == 0.125 and len(model.seen) == 39
    model.run(gappy[41:])
    assert by_hand.fit_learning_rate(y[:40]) == model.omega == by_hand.omega != 0.125
    assert model.seen == []
    fixed = dsm_bocd(omega=0.3, training=40)
    fixed.run(y)
    assert fixed.omega == 0.3


def test_shifting_everything_shifts_the_forecast() -> None:
    y = np.random.default_rng(11).normal(0, 0.6, 60)
    a, b = dsm_bocd(training=30), dsm_bocd(training=30, center=1000.0, prior_mean=1000.0)
    run_a, run_b = a.run(y), b.run(y + 1000.0)
    np.testing.assert_allclose(run_b.mean - 1000.0, run_a.mean, atol=1e-8)
    np.testing.assert_allclose(run_b.log_score, run_a.log_score, atol=1e-7)


def test_natural_prior_can_be_given() -> None:
    """The same prior in two forms: moments and natural parameters, with a center other than 0."""
    words = dsm_bocd(**SETTINGS)
    d2, precision = SETTINGS["noise_doubt"] ** 2, 1 / SETTINGS["noise"]
    mean = np.array([SETTINGS["prior_mean"], 1.0]) * precision
    covariance = d2 * np.outer(mean, mean)
    covariance[0, 0] += (1 + d2) * SETTINGS["prior_var"] * precision**2
    natural = dsm_bocd(**SETTINGS, natural_mean=mean, natural_var=covariance)
    a, b = words.run(VALUES), natural.run(VALUES)
    np.testing.assert_allclose(a.log_score, b.log_score, atol=1e-9)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"hazard": 1.0}, "hazard"),
        ({"max_run_lengths": 1}, "max_run_lengths"),
        ({"variance": "guess"}, "variance"),
        ({"noise": 0.0}, "noise"),
        ({"noise": math.inf}, "noise"),
        ({"noise_doubt": -1}, "noise_doubt"),
        ({"prior_var": 0}, "prior_var"),
        ({"prior_mean": math.nan}, "prior_mean"),
        ({"scale": 0}, "scale"),
        ({"center": math.inf}, "center"),
        ({"omega": -0.1}, "omega"),
        ({"training": -1}, "training"),
        ({"threshold": 0}, "threshold"),
        ({"max_variance": 0.1}, "max_variance"),
        ({"natural_mean": [1.0, 2.0, 3.0]}, "natural_mean"),
        ({"natural_var": [[1.0, 2.0], [2.0, 1.0]]}, "natural_var"),
        ({"omegas": 1}, "omega"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(rk.RegimekitError, match=named):
        dsm_bocd(**settings)


def test_only_one_series() -> None:
    model = dsm_bocd()
    before = model.to_bytes()
    with pytest.raises(rk.RegimekitError, match="d = 1"):
        model.update([1.0, 2.0])
    with pytest.raises(rk.RegimekitError, match="y"):
        model.run(np.zeros((4, 2)))
    with pytest.raises(rk.RegimekitError, match="two observed"):
        model.fit_learning_rate([1.0, math.nan])
    with pytest.raises(rk.RegimekitError, match="one series"):
        model.fit_learning_rate(np.zeros((4, 2)))
    assert model.to_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("cut", [0, 1, 25, 60])
def test_state_and_settings_survive(cut: int) -> None:
    """Also in the middle of the training part."""
    y = np.random.default_rng(12).normal(0, 0.6, 90)
    model = dsm_bocd(training=40, max_run_lengths=12)
    model.run(y[:cut])
    chosen = json.loads(json.dumps(model.settings()))
    assert dsm_bocd(**chosen).settings() == chosen
    values, arrays = model._full_state()
    revived = dsm_bocd(**chosen)
    revived.restore_state(Values(json.loads(json.dumps(values))), Arrays(arrays))
    twin = model.copy()
    assert twin.to_bytes() == revived.to_bytes() == model.to_bytes()
    expected = model.run(y[cut:])
    for other in (twin, revived):
        run = other.run(y[cut:])
        np.testing.assert_array_equal(run.log_score, expected.log_score)
        np.testing.assert_array_equal(run.mean, expected.mean)
        assert other.to_bytes() == model.to_bytes()


@pytest.mark.parametrize("variance", ["known", "unknown"])
@pytest.mark.parametrize(
    "series", [[], [0.5], [math.nan] * 30, [0.7] * 150, [0.1, 1e300, 0.2, -1e300, 0.1]]
)
def test_degenerate_streams(series: list[float], variance: str) -> None:
    model = dsm_bocd(variance=variance, training=20)
    run = model.run(series)
    assert len(run) == len(series) and np.isfinite(run.mean).all() and (run.sd > 0).all()
    assert abs(model.predict().mean) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize("variance", ["known", "unknown"])
def test_a_constant_is_one_segment(variance: str) -> None:
    """Its level is the minimum of the loss: x - noise (m^2)' / m^2 if the variance is known.

    The estimate is unbiased for Gaussian values of that variance, which a constant is not.
    """
    model = dsm_bocd(variance=variance, omega=0.125, hazard=0.001)
    run = model.run([0.7] * 400)
    level = 0.7 + (2 * 0.25 * 0.7 / (1 + 0.7**2) if variance == "known" else 0.0)
    assert run.regime[-1] == 0
    assert model.regimes()[0].mean[0] == pytest.approx(level, abs=0.02)


@pytest.mark.slow
def test_memory_is_that_of_the_kept_rows() -> None:
    model = dsm_bocd(max_run_lengths=9, training=20)
    model.run(np.random.default_rng(13).normal(0, 0.6, 300))
    _, arrays = model._pack()
    assert arrays["rows_0"].shape == (9, 5) and arrays["seen"].size == 0
