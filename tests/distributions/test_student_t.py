"""Tails, densities and quantiles of mixtures against exact values and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import optimize, special, stats

from regimekit.distributions import student_t as kernels
from regimekit.distributions.forecast import Forecast, Forecasts

Array = NDArray[np.float64]
Parts = tuple[Array, Array, Array, Array]

# P(T > z) of a t with so many degrees of freedom, to the last digit (fifty were computed)
EXACT = [
    (0.3, 4.0, 0.23022092953935985),
    (0.51, 1e20, 2.0180477132048307e-11),
    (1.5, 0.01, 0.49659274483146),
    (2.5, 1000000.0, 7.193397190814239e-16),
    (3.7, 0.5, 0.32266781665996597),
    (8.0, 1.5, 0.08600164597595564),
    (8.0, 60.0, 3.307557923957414e-12),
    (29.9, 3.0, 0.0027002557674690934),
    (30.0, 1.0, 0.16265430771301495),
    (30.5, 12.0, 2.1994854075764789e-13),
    (47.0, 0.001, 0.4996031740276678),
    (120.0, 6.0, 1.0741519096530204e-08),
    (120.0, 30.0, 6.637195159444927e-58),
    (333.0, 2.5, 0.006449916382341324),
    (2000.0, 0.7, 0.24200435847065618),
    (2000.0, 9.0, 2.5582865857697066e-19),
    (1000000.0, 4.0, 3.167351700502405e-05),
    (1000000000000.0, 1.5, 0.06680720126901592),
]


def tail(z: float, dof: float) -> tuple[float, float]:
    return kernels.student_tail(z, dof, kernels.log_peak(dof))


def mixture_cdf_pdf(x: float, *parts: Array) -> tuple[float, float]:
    return kernels.mixture_cdf_pdf(x, np.array(parts), parts[0].size)


def mixture_quantile(q: float, *parts: Array) -> float:
    part = np.array([*parts, np.empty(parts[0].size)])
    kernels.fill_log_peaks(part, parts[0].size)
    return kernels.mixture_quantile(q, part, parts[0].size)


def one(dof: float, scale: float = 1.0) -> Parts:
    return np.ones(1), np.zeros(1), np.full(1, scale), np.full(1, dof)


def random_parts(rng: np.random.Generator) -> Parts:
    k = int(rng.integers(1, 12))
    dof = rng.choice([0.6, 1.0, 2.0, 3.3, 8.0, 29.0, 31.0, 250.0, 1999.0, math.inf], k)
    return rng.dirichlet(np.ones(k)), 5 * rng.normal(size=k), np.exp(2 * rng.normal(size=k)), dof


class TestStudent:
    @pytest.mark.parametrize(("dof", "z", "exact"), EXACT)
    def test_tails_keep_their_digits(self, dof: float, z: float, exact: float) -> None:
        assert tail(z, dof)[0] == pytest.approx(exact, rel=2e-13, abs=0.0)

    @pytest.mark.parametrize("dof", [0.2, 1.0, 2.0, 5.0, 29.99, 30.0, 77.0, 1e4, 1e9, math.inf])
    def test_against_scipy_everywhere(self, dof: float) -> None:
        z = np.concatenate([np.zeros(1), np.geomspace(1e-3, 30, 200)])  # nearer, scipy is rough
        tails, heights = np.array([tail(v, dof) for v in z]).T
        if math.isinf(dof):
            expected, density = special.ndtr(-z), stats.norm.pdf(z)
        else:
            expected, density = special.stdtr(dof, -z), stats.t.pdf(z, dof)
        np.testing.assert_allclose(tails, expected, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(heights, density, rtol=1e-8, atol=1e-15)

    def test_closed_forms(self) -> None:
        for z in (0.1, 1.0, 7.0, 1e5):
            assert tail(z, 1.0)[0] == pytest.approx(math.atan(1 / z) / math.pi, rel=1e-13)
            root = math.sqrt(2 + z * z)
            assert tail(z, 2.0) == pytest.approx((1 / (root * (root + z)), root**-3), rel=1e-13)

    @pytest.mark.parametrize("dof", [0.5, 2.0, 3.0])
    def test_the_farthest_floats(self, dof: float) -> None:
        # S(z) = f(z) z / dof for a pure power
        probability, density = tail(1e100, dof)
        assert probability == pytest.approx(density * 1e100 / dof, rel=1e-12)
        assert tail(1e300, dof)[0] < 1e-149
        assert tail(1e300, math.inf) == (0.0, 0.0)

    def test_tails_fall_across_the_seams(self) -> None:
        # from sum to Gaussian integral at 30 dof, and where the sum ends by itself
        for z in (0.5, 3.0, 6.7, 6.8, 20.0):
            near = [tail(z, dof)[0] for dof in (29.999999, 30.0, 30.000001)]
            assert near[0] >= near[1] >= near[2] > near[0] * (1 - 1e-4)
        z = np.linspace(30**0.5, 45**0.5 * 1.1, 4001)
        tails = np.array([tail(v, 30.0)[0] for v in z])
        assert (np.diff(tails) < 0).all()


class TestMixture:
    def test_is_the_cdf_and_density_of_scipy(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(40):
            share, location, scale, dof = random_parts(rng)
            forecast = Forecast.mixture(share, location, scale**2, dof)
            x = float(10 * rng.normal())
            z = (x - location) / scale
            gaussian = np.isinf(dof)
            degrees = np.where(gaussian, 1.0, dof)
            each = np.where(gaussian, special.ndtr(z), special.stdtr(degrees, z))
            cdf, density = mixture_cdf_pdf(x, share, location, scale, dof)
            assert cdf == pytest.approx(share @ each, abs=1e-14)
            assert cdf == pytest.approx(forecast.cdf(x), abs=1e-14)
            assert math.log(density) == pytest.approx(forecast.log_density(x), abs=1e-11)

    def test_components_without_a_share_may_be_anything(self) -> None:
        share, location, scale, dof = one(3.0)
        more = np.append(share, 0.0), np.append(location, 7.0), np.append(scale, 0.0)
        both = (*more, np.append(dof, math.nan))
        assert mixture_cdf_pdf(0.4, *both) == mixture_cdf_pdf(0.4, share, location, scale, dof)
        assert mixture_quantile(0.9, *both) == mixture_quantile(0.9, share, location, scale, dof)


class TestQuantile:
    @pytest.mark.parametrize(("q", "place"), [(0.5, 0.0), (0.7, 0.0), (0.71, 1e12), (0.9, 1e12)])
    def test_no_quantile_is_between_components_far_apart(self, q: float, place: float) -> None:
        parts = (np.array([0.7, 0.3]), np.array([0.0, 1e12]), np.ones(2), np.full(2, np.inf))
        x = mixture_quantile(q, *parts)
        if q == 0.7:  # anything between the two will do
            assert 0.0 < x < 1e12
        else:
            assert abs(x - place) < 10.0

    @pytest.mark.parametrize("q", [1e-9, 0.01, 0.3, 0.5, 0.75, 0.95, 1 - 1e-6])
    def test_agrees_with_a_root_of_the_forecasts_cdf(self, q: float) -> None:
        rng = np.random.default_rng(1)
        for _ in range(30):
            parts = random_parts(rng)
            share, location, scale, dof = parts
            forecast = Forecast.mixture(share, location, scale**2, dof)
            x = mixture_quantile(q, *parts)
            cdf, density = mixture_cdf_pdf(x, *parts)
            assert cdf == pytest.approx(q, abs=1e-15 + np.spacing(abs(x)) * density, rel=1e-14)
            allowed = 1e-11 * abs(x) + 1e-15 / density  # the other one looks at P(X <= x) alone
            width = 1e-6 * max(abs(x), 1e-6 / density)
            root = optimize.brentq(
                lambda at, f=forecast: f.cdf(at) - q, x - width, x + width, xtol=1e-300, rtol=1e-15
            )
            assert x == pytest.approx(root, abs=allowed)

    def test_quantiles_of_a_run_are_those_of_each_mixture(self) -> None:
        rng = np.random.default_rng(2)
        rows = [random_parts(rng) for _ in range(20)]
        each = [[mixture_quantile(q, *row) for row in rows] for q in (0.1, 0.8)]
        stack = Forecasts.stack(
            [Forecast(p, m[:, None], (s**2)[:, None, None], n) for p, m, s, n in rows]
        )
        np.testing.assert_allclose(stack.quantiles([0.1, 0.8])[..., 0], each, rtol=1e-13)

    @pytest.mark.parametrize("dof", [0.5, 2.0, 40.0, math.inf])
    @pytest.mark.parametrize("scale", [1e-300, 1.0, 1e250])
    def test_any_scale_and_either_end(self, dof: float, scale: float) -> None:
        for q in (1e-12, 0.2, 0.5, 0.9):
            x = mixture_quantile(q, *one(dof, scale))
            assert x / scale == pytest.approx(mixture_quantile(q, *one(dof)), rel=1e-12, abs=1e-15)
            probability = tail(abs(x / scale), dof)[0]
            assert probability == pytest.approx(min(q, 1 - q), rel=1e-13)

    def test_between_two_distant_points(self) -> None:
        share, scale, dof = np.array([0.3, 0.7]), np.full(2, 1e-3), np.full(2, 5.0)
        parts = share, np.array([-1e6, 1e6]), scale, dof
        for q, side in ((0.29999, -1e6), (0.30001, 1e6)):
            assert mixture_quantile(q, *parts) == pytest.approx(side, rel=1e-6)
            assert mixture_cdf_pdf(mixture_quantile(q, *parts), *parts)[0] == pytest.approx(
                q, abs=1e-6
            )

    def test_a_thin_heavy_component_carries_the_tail(self) -> None:
        parts = np.array([0.98, 0.02]), np.zeros(2), np.array([1.0, 20.0]), np.array([50.0, 2.0])
        x = mixture_quantile(1 - 1e-4, *parts)
        assert 0.02 * tail(x / 20, 2.0)[0] == pytest.approx(1e-4, rel=1e-8)
