"""CRPS of mixtures against closed forms, quadrature and simulation."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

from regimekit import metrics as evaluate
from regimekit.core.exceptions import RegimekitError
from regimekit.distributions.crps import mixture_crps
from regimekit.distributions.forecast import Forecast

NAN = float("nan")


def random_mixture(rng: np.random.Generator, dofs: list[float]) -> Forecast:
    k = int(rng.integers(1, 6))
    return Forecast.mixture(
        rng.dirichlet(np.ones(k)),
        5 * rng.normal(size=k),
        np.exp(2 * rng.normal(size=k)),
        rng.choice(dofs, k),
    )


def crps_by_definition(forecast: Forecast, y: float) -> float:
    """The two tails by scipy's adaptive rule, cut at y and at every centre."""
    centres = forecast.location[:, 0]
    low = [-math.inf, *sorted(c for c in centres if c < y), y]
    high = [y, *sorted(c for c in centres if c > y), math.inf]

    def part(function: Any, a: float, b: float) -> float:
        return float(integrate.quad(function, a, b, epsabs=1e-13, epsrel=1e-11, limit=500)[0])

    below = [part(lambda x: forecast.cdf(x) ** 2, a, b) for a, b in pairwise(low)]
    above = [part(lambda x: (1 - forecast.cdf(x)) ** 2, a, b) for a, b in pairwise(high)]
    return sum(below) + sum(above)


def typical_mixture(rng: np.random.Generator) -> Forecast:
    """Nine regimes and a broad component for what none of them expects."""
    dof = np.append(rng.uniform(8, 2000, 9), 2.0)
    dof[:3] = [8.0, 9.5, math.inf]
    return Forecast.mixture(
        np.append(0.98 * rng.dirichlet(np.ones(9)), 0.02),
        2 * rng.normal(size=10),
        np.append(np.exp(rng.normal(size=9)), 400.0),
        dof,
    )


def student_crps(z: float, nu: float) -> float:
    """Jordan, Krueger and Lerch (2019), table of closed forms; it holds for nu > 1/2."""
    f, cdf = stats.t.pdf(z, nu), stats.t.cdf(z, nu)
    return z * (2 * cdf - 1) + 2 / (nu - 1) * f * (nu + z**2) - half_mean_difference(nu)


def half_mean_difference(nu: float) -> float:
    """E|T - T'| / 2 of two standard t variables."""
    beta = special.beta(0.5, nu - 0.5) / special.beta(0.5, nu / 2) ** 2
    return float(2 / (nu - 1) * math.sqrt(nu) * beta)


def student(nu: float) -> Forecast:
    return Forecast.mixture(np.ones(1), np.zeros(1), np.ones(1), np.array([nu]))


class TestCrps:
    def test_gaussian_closed_form(self) -> None:
        y, mean, sd = 1.3, -0.4, 2.0
        z = (y - mean) / sd
        spread = 2 * stats.norm.pdf(z) - 1 / math.sqrt(math.pi)
        exact = sd * (z * (2 * stats.norm.cdf(z) - 1) + spread)
        assert evaluate.crps(Forecast.gaussian(mean, sd**2), y) == pytest.approx(exact, rel=1e-12)

    @pytest.mark.parametrize("nu", [0.51, 0.7, 1.2, 2.0, 3.5, 8.0, 29.5, 400.0])
    @pytest.mark.parametrize("z", [0.0, 0.7, -3.0, 50.0])
    def test_student_closed_form(self, nu: float, z: float) -> None:
        assert evaluate.crps(student(nu), z) == pytest.approx(student_crps(z, nu), rel=1e-10)

    def test_cauchy(self) -> None:
        assert evaluate.crps(student(1.0), 0.0) == pytest.approx(2 * math.log(2) / math.pi, 1e-11)

    def test_regimes_and_a_broad_component(self) -> None:
        rng = np.random.default_rng(11)
        forecasts = [typical_mixture(rng) for _ in range(12)]
        y = np.append(2 * rng.normal(size=9), [-15.0, 60.0, 1e4])
        exact = [crps_by_definition(f, v) for f, v in zip(forecasts, y, strict=True)]
        np.testing.assert_allclose(evaluate.crps_scores(forecasts, y)[:, 0], exact, rtol=1e-9)

    @pytest.mark.parametrize("dofs", [[math.inf], [1.2, 2.0, 3.0, 8.0, math.inf]])
    def test_mixtures_against_quadrature(self, dofs: list[float]) -> None:
        rng = np.random.default_rng(3)
        forecasts = [random_mixture(rng, dofs) for _ in range(25)]
        y = 4 * rng.normal(size=25)
        exact = [crps_by_definition(f, v) for f, v in zip(forecasts, y, strict=True)]
        np.testing.assert_allclose(evaluate.crps_scores(forecasts, y)[:, 0], exact, rtol=1e-8)

    def test_gaussian_mixtures_against_scoringrules(self) -> None:
        scoringrules = pytest.importorskip("scoringrules")
        rng = np.random.default_rng(4)
        share, location = rng.dirichlet(np.ones(7), 20), rng.normal(size=(20, 7))
        sd, y = np.exp(rng.normal(size=(20, 7))), rng.normal(size=20)
        forecasts = [Forecast.mixture(*row) for row in zip(share, location, sd**2, strict=True)]
        expected = scoringrules.crps_mixnorm(y, location, sd, share, backend="numpy")
        np.testing.assert_allclose(evaluate.crps_scores(forecasts, y)[:, 0], expected, rtol=1e-10)

    @pytest.mark.parametrize("dofs", [[math.inf], [5.0, 8.0, math.inf]])
    def test_mixtures_against_simulation(self, dofs: list[float]) -> None:
        # |estimate - exact| within 5 standard errors: false alarm below 1e-6 per mixture
        rng = np.random.default_rng(5)
        for _ in range(4):
            forecast, y = random_mixture(rng, dofs), 2.0
            a, b = forecast.sample(100_000, rng), forecast.sample(100_000, rng)
            terms = 0.5 * (np.abs(a - y) + np.abs(b - y)) - 0.5 * np.abs(a - b)
            error = 5 * terms.std() / math.sqrt(terms.size)
            assert abs(evaluate.crps(forecast, y) - terms.mean()) < error

    def test_many_degrees_of_freedom_are_gaussian(self) -> None:
        exact = evaluate.crps(Forecast.gaussian(0.0, 1.0), 0.3)
        for nu in (1e8, 1e12, 1e300):
            rel = max(1 / nu, 1e-12)
            assert evaluate.crps(student(nu), 0.3) == pytest.approx(exact, rel=rel)

    def test_widely_different_scales(self) -> None:
        forecast = Forecast.mixture(
            np.array([0.5, 0.5]),
            np.array([0.0, 100.0]),
            np.array([1e-8, 1e4]),
            np.array([3.0, math.inf]),
        )
        assert evaluate.crps(forecast, 1.0) == pytest.approx(
            crps_by_definition(forecast, 1.0), rel=1e-8
        )

    @pytest.mark.parametrize("nu", [0.8, 1.5, 2.0, 5.0])
    @pytest.mark.parametrize(("point", "y"), [(0.3, 0.3), (0.3, -2.0), (-1e3, 7.0), (5e5, 1.0)])
    def test_a_component_narrower_than_any_float_is_a_point(
        self, nu: float, point: float, y: float
    ) -> None:
        a, b, half = 0.7, 0.3, half_mean_difference(nu)
        to_y, to_point = student_crps(y, nu) + half, student_crps(point, nu) + half
        exact = a * abs(point - y) + b * to_y - a * b * to_point - b**2 * half
        forecast = Forecast.mixture(
            np.array([a, b]), np.array([point, 0.0]), np.array([1e-300, 1.0]), np.array([3.0, nu])
        )
        assert evaluate.crps(forecast, y) == pytest.approx(exact, rel=1e-9)

    @pytest.mark.parametrize("second", [0.3, np.nextafter(0.3, 1), np.nextafter(0.3, 0)])
    def test_points_next_to_each_other(self, second: float) -> None:
        share, dof = np.array([0.5, 0.2, 0.3]), np.array([2.5, 40.0, 2.0])
        spread = np.array([1e-220, 1e-300, 1.0])
        pair = Forecast.mixture(share, np.array([0.3, second, 0.0]), spread, dof)
        one = Forecast.mixture(share, np.array([0.3, 0.3, 0.0]), np.array([1e-30, 1e-30, 1.0]), dof)
        assert evaluate.crps(pair, -2.0) == pytest.approx(evaluate.crps(one, -2.0), rel=1e-13)

    def test_scales_with_the_units(self) -> None:
        rng = np.random.default_rng(6)
        f = random_mixture(rng, [3.0, math.inf])
        scaled = Forecast.mixture(f.share, 1e6 * f.location, 1e12 * f.spread, f.dof)
        assert evaluate.crps(scaled, 2e6) == pytest.approx(1e6 * evaluate.crps(f, 2.0), rel=1e-9)

    def test_ends_of_the_world(self) -> None:
        student = Forecast.mixture(np.ones(1), np.zeros(1), np.ones(1), np.array([3.0]))
        assert evaluate.crps(student, 1e300) == pytest.approx(1e300)
        assert evaluate.crps(Forecast.gaussian(0.0, 1.0), -1e300) == pytest.approx(1e300)
        wild = Forecast.mixture(np.ones(1), np.zeros(1), np.ones(1), np.array([0.4]))
        assert evaluate.crps(wild, 0.0) == math.inf

    @pytest.mark.parametrize("unit", [1e-150, 1e-20, 1e20, 1e150])
    def test_any_unit_is_as_good(self, unit: float) -> None:
        f = typical_mixture(np.random.default_rng(12))
        scaled = Forecast.mixture(f.share, unit * f.location, f.spread * unit * unit, f.dof)
        score = evaluate.crps(scaled, 0.4 * unit)
        assert score == pytest.approx(unit * evaluate.crps(f, 0.4), rel=1e-12)

    @pytest.mark.parametrize("unit", [1e-300, 1e300])
    def test_the_kernel_takes_scales_whose_squares_are_no_floats(self, unit: float) -> None:
        one = np.ones(1)
        score = mixture_crps(0.7 * unit, one, 0 * one, unit * one, 3.5 * one)
        assert score == pytest.approx(unit * student_crps(0.7, 3.5), rel=1e-11)

    @pytest.mark.parametrize("y", [1e300, -1e300, 1e8])
    def test_far_away_only_the_distance_counts(self, y: float) -> None:
        f = typical_mixture(np.random.default_rng(13))
        # the rest is E X and half of E|X - X'|, some 1e1
        assert evaluate.crps(f, y) == pytest.approx(abs(y), rel=1e-6)
        assert evaluate.crps(student(0.6), 1e300) == pytest.approx(1e300, rel=1e-9)

    def test_components_without_a_share_change_nothing(self) -> None:
        f = typical_mixture(np.random.default_rng(14))
        more = Forecast(
            np.append(f.share, [0.0, 0.0]),
            np.append(f.location, [[9.0], [-1e9]], axis=0),
            np.append(f.spread, [[[1e-9]], [[1e20]]], axis=0),
            np.append(f.dof, [0.3, 7.0]),
        )
        assert evaluate.crps(more, 0.5) == evaluate.crps(f, 0.5)
        assert evaluate.crps_scores([f, student(3.0)], [0.5, 0.5])[0, 0] == evaluate.crps(f, 0.5)

    def test_a_large_offset_costs_no_digits(self) -> None:
        f = typical_mixture(np.random.default_rng(15))
        location = np.round(f.location * 2**10) / 2**10  # so that the sums below are exact
        near, far = (
            Forecast.mixture(f.share, location + offset, f.spread, f.dof) for offset in (0, 2**40)
        )
        assert evaluate.crps(far, 2**40 + 0.5) == pytest.approx(evaluate.crps(near, 0.5), rel=1e-13)

    def test_missing_values_and_coordinates(self) -> None:
        pair = Forecast.gaussian([0.0, 5.0], np.diag([1.0, 4.0]))
        y = np.array([[0.5, NAN], [0.5, 3.0], [NAN, NAN]])
        rows = evaluate.crps_scores([pair] * 3, y)
        assert np.isnan(rows[[0, 2, 2], [1, 0, 1]]).all()
        first = evaluate.crps(Forecast.gaussian(0.0, 1.0), 0.5)
        second = evaluate.crps(Forecast.gaussian(5.0, 4.0), 3.0)
        assert evaluate.crps([pair] * 3, y) == pytest.approx((first + second) / 2)

    def test_lengths_must_agree(self) -> None:
        with pytest.raises(RegimekitError, match="y must have shape"):
            evaluate.crps([Forecast.gaussian(0.0, 1.0)], [1.0, 2.0])
