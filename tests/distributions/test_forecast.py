"""The forecast mixture against scipy's distributions, against sampling and against itself."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import regimekit as rk
from regimekit import Forecast, RegimekitError
from regimekit.distributions.forecast import Forecasts
from regimekit.distributions.mixture import Mixture

GAUSS = Forecast.mixture(
    np.array([0.5, 0.3, 0.2]), np.array([-1.0, 0.5, 4.0]), np.array([0.3, 2.0, 0.05])
)
HEAVY = Forecast.mixture(
    np.array([2.0, 1.0, 1.0]),
    np.array([0.0, 3.0, -2.0]),
    np.array([1.0, 0.5, 2.0]),
    np.array([5.0, np.inf, 3.0]),
)
SPREAD = np.array([[[1.0, 0.4], [0.4, 0.5]], [[0.3, -0.1], [-0.1, 2.0]]])
PLANE = Forecast.mixture(
    np.array([0.6, 0.4]), np.array([[0.0, 1.0], [2.0, -1.0]]), SPREAD, np.array([np.inf, 6.0])
)


def components(forecast: Forecast) -> list[tuple[float, Any]]:
    """(share, frozen scipy distribution) of a forecast of one coordinate."""
    return [
        (share, stats.norm(m, s**0.5) if math.isinf(nu) else stats.t(nu, m, s**0.5))
        for share, (m,), ((s,),), nu in zip(
            forecast.share, forecast.location, forecast.spread, forecast.dof, strict=True
        )
    ]


@pytest.mark.parametrize("forecast", [GAUSS, HEAVY])
def test_cdf_and_density_are_scipys(forecast: Forecast) -> None:
    points = np.linspace(-15, 15, 61)
    cdf = sum(share * part.cdf(points) for share, part in components(forecast))
    pdf = sum(share * part.pdf(points) for share, part in components(forecast))
    np.testing.assert_allclose(forecast.cdf(points), cdf, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(forecast.log_density(points), np.log(pdf), rtol=1e-11)


def test_density_of_a_vector_is_scipys() -> None:
    rng = np.random.default_rng(0)
    for y in rng.standard_normal((20, 2)) * 3:
        gauss = stats.multivariate_normal.pdf(y, [0.0, 1.0], SPREAD[0])
        student = stats.multivariate_t.pdf(y, [2.0, -1.0], SPREAD[1], df=6)
        exact = math.log(0.6 * gauss + 0.4 * student)
        assert PLANE.log_density(y) == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize("forecast", [GAUSS, HEAVY])
def test_density_integrates_to_the_cdf(forecast: Forecast) -> None:
    area, _ = integrate.quad(lambda y: math.exp(forecast.log_density(y)), -2.5, 3.7, limit=200)
    assert area == pytest.approx(forecast.cdf(3.7) - forecast.cdf(-2.5), abs=1e-8)


@pytest.mark.parametrize("forecast", [GAUSS, HEAVY])
@given(q=st.floats(1e-9, 1 - 1e-9))
@settings(deadline=None, derandomize=True, max_examples=60)
def test_quantile_inverts_the_cdf(forecast: Forecast, q: float) -> None:
    """To the last float: the cdf reaches q there and not one float before."""
    y = forecast.quantile(q)
    assert forecast.cdf(y) >= q - 4e-16
    assert forecast.cdf(np.nextafter(y, -np.inf)) <= q + 4e-16


def test_quantiles_of_a_vector_are_its_marginals() -> None:
    for q in (0.05, 0.5, 0.9):
        for j, y in enumerate(np.atleast_1d(PLANE.quantile(q))):
            marginal = Forecast.mixture(
                PLANE.share, PLANE.location[:, j], PLANE.spread[:, j, j], PLANE.dof
            )
            assert y == pytest.approx(marginal.quantile(q), rel=1e-13)
            assert PLANE.cdf(np.full(2, y))[j] == pytest.approx(q, abs=1e-14)


def test_quantiles_of_many_are_each_ones_own() -> None:
    together = Forecasts.stack([GAUSS, HEAVY]).quantiles([0.8])
    np.testing.assert_allclose(together[0, :, 0], [GAUSS.quantile(0.8), HEAVY.quantile(0.8)])


def test_interval_is_central_and_monotone() -> None:
    low, high = HEAVY.interval(0.9)
    assert HEAVY.cdf(low) == pytest.approx(0.05, abs=1e-14)
    assert HEAVY.cdf(high) == pytest.approx(0.95, abs=1e-14)
    wider = HEAVY.interval(0.99)
    assert wider[0] < low < high < wider[1]


def test_moments_by_hand() -> None:
    """mean = sum p m; variance = sum p (v nu / (nu - 2) + (m - mean)^2)."""
    share, location = np.array([0.5, 0.25, 0.25]), np.array([0.0, 3.0, -2.0])
    variance = np.array([1.0 * 5 / 3, 0.5, 2.0 * 3])
    mean = share @ location
    assert HEAVY.mean == pytest.approx(mean, rel=1e-14)
    exact = share @ (variance + (location - mean) ** 2)
    assert HEAVY.variance == pytest.approx(exact, rel=1e-14)
    assert HEAVY.sd == pytest.approx(exact**0.5, rel=1e-14)


def test_variance_is_infinite_below_two_degrees_of_freedom() -> None:
    heavy = Forecast.mixture(np.ones(1), np.zeros(1), np.ones(1), np.array([2.0]))
    assert math.isinf(heavy.variance) and heavy.mean == 0.0
    assert math.isfinite(heavy.quantile(0.9))


@pytest.mark.parametrize("forecast", [GAUSS, HEAVY])
def test_samples_follow_the_cdf(forecast: Forecast) -> None:
    """Kolmogorov-Smirnov at 1e-5 for each of two mixtures."""
    draws = forecast.sample(20_000, np.random.default_rng(1))
    assert draws.shape == (20_000,)
    assert stats.kstest(draws, forecast.cdf).pvalue > 1e-5


def test_samples_have_the_moments() -> None:
    """Means and covariance within 5 standard errors each: six in a million for all ten."""
    draws = PLANE.sample(40_000, np.random.default_rng(2))
    assert draws.shape == (40_000, 2)
    error = 5 * draws.std(axis=0) / 200
    assert (np.abs(draws.mean(axis=0) - PLANE.mean) < error).all()
    squared = (draws - PLANE.mean) ** 2
    assert (np.abs(squared.mean(axis=0) - PLANE.variance) < 5 * squared.std(axis=0) / 200).all()
    for j in range(2):
        marginal = Forecast.mixture(
            PLANE.share, PLANE.location[:, j], PLANE.spread[:, j, j], PLANE.dof
        )
        assert stats.kstest(draws[:, j], marginal.cdf).pvalue > 1e-6


def test_missing_coordinate_is_integrated_out() -> None:
    marginal = Forecast.mixture(PLANE.share, PLANE.location[:, 1], PLANE.spread[:, 1, 1], PLANE.dof)
    assert PLANE.log_density([np.nan, 0.7]) == pytest.approx(marginal.log_density(0.7), rel=1e-13)

    def joint(x: float) -> float:
        return math.exp(PLANE.log_density([x, 0.7]))

    numeric, _ = integrate.quad(joint, -60, 60, limit=400, points=[0.0, 2.0])
    assert math.log(numeric) == pytest.approx(marginal.log_density(0.7), abs=1e-6)
    assert math.isnan(PLANE.log_density([np.nan, np.nan]))
    assert math.isnan(GAUSS.log_density(np.nan))


@pytest.mark.parametrize("far", [1e3, 1e12, 1e200, -1e300])
def test_log_density_far_out_is_finite(far: float) -> None:
    for forecast in (GAUSS, HEAVY):
        assert math.isfinite(forecast.log_density(far))
        assert forecast.cdf(far) == pytest.approx(float(far > 0), abs=1e-8)
    gauss_plane = Forecast.mixture(PLANE.share, PLANE.location, PLANE.spread)
    for forecast in (PLANE, gauss_plane):
        for y in ([far, 0.0], [far, -far], [far, np.nan]):
            assert math.isfinite(forecast.log_density(y))


def test_far_out_the_heaviest_tail_decides() -> None:
    """The density of a t with nu = 3 falls like |y|^-4."""
    fall = HEAVY.log_density(1e9) - HEAVY.log_density(1e8)
    assert fall == pytest.approx(-4 * math.log(10), rel=1e-6)


def test_shares_are_normalised_and_empty_components_dropped() -> None:
    forecast = Forecast.mixture(np.array([3.0, 0.0, 1.0]), np.arange(3.0), np.ones(3))
    np.testing.assert_allclose(forecast.share, [0.75, 0.25])
    np.testing.assert_allclose(forecast.location[:, 0], [0.0, 2.0])


def test_scalars_for_one_coordinate_and_arrays_for_more() -> None:
    assert all(isinstance(v, float) for v in (GAUSS.mean, GAUSS.sd, GAUSS.quantile(0.3)))
    assert isinstance(GAUSS.cdf(0.1), float) and isinstance(GAUSS.log_density(0.1), float)
    assert GAUSS.cdf(np.zeros((2, 3))).shape == (2, 3)
    assert PLANE.dim == 2
    assert all(np.shape(v) == (2,) for v in (PLANE.mean, PLANE.sd, PLANE.quantile(0.3)))
    assert isinstance(PLANE.log_density([0.0, 0.0]), float)


@pytest.mark.parametrize(
    ("word", "call"),
    [
        ("q", lambda: GAUSS.quantile(0.0)),
        ("q", lambda: GAUSS.quantile(1.0)),
        ("q", lambda: GAUSS.quantile(math.nan)),
        ("level", lambda: GAUSS.interval(1.0)),
        ("level", lambda: GAUSS.interval(-0.1)),
        ("y", lambda: PLANE.log_density([0.0, 1.0, 2.0])),
        ("y", lambda: PLANE.cdf([0.0, 1.0, 2.0])),
        ("share", lambda: Forecast.mixture(np.zeros(2), np.zeros(2), np.ones(2))),
    ],
)
def test_invalid_arguments_raise_an_error(word: str, call: Callable[[], object]) -> None:
    with pytest.raises(RegimekitError, match=rf"^{word} "):
        call()


def test_paths_ahead_feed_on_themselves() -> None:
    """An autoregression above its mean: each step ahead decays from the one before it."""
    rng = np.random.default_rng(4)
    y = [0.0]
    for _ in range(120):
        y.append(0.8 * y[-1] + 0.1 * rng.standard_normal())
    lagged = rk.features.intercept() + rk.features.lags(1)
    model = rk.br_ihmm(features=lagged, noise=0.01, prior_var=1.0, weight="none", batch=1)
    model.run([*y, 0.3])
    ahead = model.forecast(4)
    means = [forecast.mean for forecast in ahead]
    assert 0.3 > means[0] > 1.1 * means[1] > 1.2 * means[2] > 1.3 * means[3] > 0


@pytest.mark.parametrize("forecasts", [[GAUSS, HEAVY], [PLANE, PLANE.rescaled(1.0, 2.0)]])
def test_a_stack_gives_the_values_of_each_forecast(forecasts: list[Forecast]) -> None:
    stack = Forecasts.stack(forecasts)
    y = np.linspace(-1.0, 2.0, 2 * stack.location.shape[1]).reshape(2, -1)
    y[1, -1] = np.nan
    mean, sd = stack.moments()
    for t, f in enumerate(stack):
        point = y[t] if f.dim > 1 else y[t, 0]
        np.testing.assert_array_equal(mean[t], f.mean)
        np.testing.assert_array_equal(sd[t], f.sd)
        np.testing.assert_array_equal(stack.cdf(y)[t], f.cdf(point))
        np.testing.assert_array_equal(stack.log_density(y)[t], f.log_density(point))
    assert Forecasts.stack([]).log_density(np.zeros((0, 1))).shape == (0,)


def test_the_outlier_component_counts_in_quantiles_but_not_in_moments() -> None:
    f = Forecast.mixture(
        np.array([0.45, 0.45, 0.1]), np.array([-1.0, 1.0, 50.0]), np.ones(3), outlier=0.1
    )
    assert f.mean == pytest.approx(0.0, abs=1e-15)
    assert f.variance == pytest.approx(f.ordinary.variance, rel=1e-14) == pytest.approx(2.0)
    assert f.quantile(0.95) > 40 > f.ordinary.quantile(0.95)


def test_a_forecast_survives_a_pickle() -> None:
    again = pickle.loads(pickle.dumps(HEAVY))
    assert again.quantile(0.3) == HEAVY.quantile(0.3)
    with pytest.raises(AttributeError):
        again.share = np.ones(1)


def test_a_mixture_of_the_core_becomes_a_forecast() -> None:
    mixture = Mixture(1, 2)
    mixture.size = 2
    mixture.share[0], mixture.share[1] = 3.0, 1e-20
    mixture.location[0, 0], mixture.spread[0, 0, 0], mixture.dof[0] = 2.0, 4.0, math.inf
    forecast = Forecast.from_mixture(mixture)
    mixture.location[0, 0] = 7.0
    assert (forecast.mean, forecast.sd, forecast.share.tolist()) == (2.0, 2.0, [1.0])
