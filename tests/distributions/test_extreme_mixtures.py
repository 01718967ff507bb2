"""Quantiles of every mixture that can exist: monotone, finite, and consistent with the CDF."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import regimekit as rk
from regimekit import Forecast

LEVELS = [1e-9, 1e-4, 0.01, 0.05, 0.25, 0.4999, 0.5, 0.5001, 0.75, 0.95, 0.99, 1 - 1e-4, 1 - 1e-9]

# (share, location, scale, degrees of freedom)
component = st.tuples(
    st.floats(1e-12, 1.0),
    st.builds(
        lambda sign, e: sign * 10.0**e, st.sampled_from([-1.0, 0.0, 1.0]), st.floats(-30, 155)
    ),
    st.builds(lambda e: 10.0**e, st.floats(-75, 75)),
    st.sampled_from([0.5, 1.0, 1.5, 2.0, 2.5, 5.0, 30.0, 1e4, np.inf]),
)


def forecast_of(components: list[tuple[float, float, float, float]]) -> Forecast:
    share, location, scale, dof = (np.array(column) for column in zip(*components, strict=True))
    spread = (scale**2)[:, None, None]
    return Forecast.mixture(share / share.sum(), location[:, None], spread, dof)


@given(st.lists(component, min_size=1, max_size=6))
@example([(0.7, 0.0, 1.0, np.inf), (0.3, 1e100, 1.0, np.inf)])
@example([(0.1, 0.0, 1.0, np.inf), (0.9, 1e100, 1.0, np.inf)])
@example([(0.5, -1e100, 1.0, 5.0), (0.5, 1e100, 1e50, 5.0), (1.0, 3.0, 1e-3, 1.0)])
@settings(max_examples=400, deadline=None)
def test_quantiles_are_monotone(components: list[tuple[float, float, float, float]]) -> None:
    forecast = forecast_of(components)
    quantiles = forecast._stacked().quantiles(LEVELS)[:, 0, 0]
    assert np.isfinite(quantiles).all()
    apart = np.array([forecast.quantile(q) for q in LEVELS])
    np.testing.assert_allclose(apart, quantiles, rtol=1e-12)
    assert (np.diff(quantiles) >= 0).all(), quantiles
    for q, x in zip(LEVELS, quantiles, strict=True):
        below = forecast.cdf(np.nextafter(x - 1e-9 * abs(x), -np.inf))
        above = forecast.cdf(np.nextafter(x + 1e-9 * abs(x), np.inf))
        assert below <= q + 1e-6 and above >= q - 1e-6, (q, x, below, above)


@pytest.mark.parametrize(
    "name", ["student_t_ihmm", "ihmm", "br_ihmm", "last_value", "running_mean", "least_squares"]
)
def test_intervals_stay_in_order_after_huge_values(name: str) -> None:
    rng = np.random.default_rng(5)
    y = rng.standard_normal(300)
    y[100:130] = rng.choice([-1.7e308, 1.7e308], 30)
    model = rk.make(name)
    for value in y:
        step = model.predict()
        lower, upper = step.interval(0.9)
        assert np.isfinite([lower, upper]).all() and lower <= step.quantile(0.5) <= upper
        model.update(value)
