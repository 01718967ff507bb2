"""Forecasts of several steps by `auto`."""

from __future__ import annotations

import numpy as np
import pytest

import regimekit as rk
from regimekit.distributions.forecast import Forecast
from regimekit.ensemble.multistep import Pooled, distributions


def _growth(n: int = 400, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.exp(np.arange(n) / 60.0) * (1.0 + 0.05 * rng.normal(size=n))


def _sine(n: int = 400, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 5 * np.sin(2 * np.pi * np.arange(n) / 60.0) + 0.02 * rng.normal(size=n)


@pytest.mark.parametrize("stream", [_growth, _sine])
def test_intervals_stay_near_the_range_of_the_past(stream):
    """No 90 % interval up to 48 steps ahead is wider than 2.5 times the range of the past."""
    y = stream()
    model = rk.auto()
    model.run(y[:100])
    for start in range(100, 400, 100):
        model.run(y[start : start + 100])
        past = y[: start + 100]
        widths = [np.diff(forecast.interval(0.9))[0] for forecast in model.forecast(48)]
        assert max(widths) < 2.5 * np.ptp(past)


def test_a_loaded_model_forecasts_the_same():
    """Weights and spread of all horizons are functions of the stored past."""
    model = rk.auto()
    model.run(_sine(150))
    copy = rk.from_bytes(model.to_bytes())
    for one, other in zip(model.forecast(12), copy.forecast(12), strict=True):
        np.testing.assert_array_equal(one.location, other.location)
        np.testing.assert_array_equal(one.spread, other.spread)


def test_a_forecast_changes_nothing():
    """Forecasts in between have no effect on later ones."""
    y = _sine(120)
    asked, silent = rk.auto(), rk.auto()
    for value in y:
        asked.update(value)
        asked.forecast(6)
        silent.update(value)
    assert asked.forecast(6)[5].interval(0.9) == silent.forecast(6)[5].interval(0.9)


def test_the_season_is_continued():
    """A clear season is forecast two periods ahead at its phase."""
    rng = np.random.default_rng(3)
    t = np.arange(400)
    wave = 5 * np.sin(2 * np.pi * t / 24)
    model = rk.auto()
    model.run(wave[:350] + 0.3 * rng.normal(size=350))
    ahead = np.array([forecast.median for forecast in model.forecast(48)])
    assert np.abs(ahead - wave[350:398]).mean() < 0.4


def test_a_yearly_season_of_days_is_used_from_its_second_year_on():
    """500 days of a named yearly season are forecast half a year ahead."""
    rng = np.random.default_rng(4)
    t = np.arange(760)
    y = 10 + 8 * np.sin(2 * np.pi * t / 365.25) + 1.5 * rng.normal(size=760)
    model = rk.auto(seasons=[7, 365])
    model.run(y[:580])
    ahead = np.array([forecast.median for forecast in model.forecast(180)])
    assert np.abs(ahead - y[580:]).mean() < 2.5  # the last value has about 9


@pytest.mark.parametrize("seed", [0, 1])
def test_a_named_year_of_days_beats_the_value_of_last_year(seed):
    """Three years of daily maximum temperature: used, and ahead of the value one year before."""
    rng = np.random.default_rng(seed)
    n, year = 4 * 365, np.arange(4 * 365) / 365.25
    weather = np.zeros(n)
    for t in range(1, n):
        weather[t] = 0.75 * weather[t - 1] + 2.6 * rng.normal()
    y = 16 - 11 * np.cos(2 * np.pi * (year - 0.05)) + 1.5 * np.sin(4 * np.pi * year) + weather
    model = rk.auto(seasons=365)
    model.run(y[: 3 * 365])
    assert model.found_seasons == [365]
    assert "Season of 365 observations: used for forecasts" in model.explain()
    ahead = model.forecast(365)
    mae = np.abs(ahead.median - y[3 * 365 :]).mean()
    assert mae < np.abs(y[3 * 365 :] - y[2 * 365 : 3 * 365]).mean()
    lower, upper = ahead.interval(0.9)
    assert lower.min() > y[: 3 * 365].min() - 5 and upper.max() < y[: 3 * 365].max() + 5


def test_few_independent_errors_have_heavier_tails():
    """Gaussian errors: with 1000 independent ones a Gaussian, with 10 about a t with 7 degrees."""
    rng = np.random.default_rng(0)
    error, ones = rng.standard_normal((4000, 1)), np.ones(4001)
    widths = []
    for independent in (1000.0, 10.0):
        count, reach = np.full(1, independent), np.full(1, 9.0)
        pooled = Pooled(np.zeros(1), error, ones[1:], ones, count, reach)
        share, mean, variance = (array[0] for array in distributions(pooled))
        law = Forecast(share, mean[:, None], variance[:, None, None], np.full(share.size, 8.0))
        widths.append([float(np.diff(law.interval(level))[0]) / 2 for level in (0.5, 0.95)])
    # Bands and their kernels widen the tails a little.
    np.testing.assert_allclose(widths[0], [0.674, 1.96], rtol=0.06)
    # The uncertainty of the mean error adds sqrt(1 + 1 / 12).
    wider = 1.041 * np.array([0.711 / 0.674, 2.365 / 1.96])
    np.testing.assert_allclose(np.divide(*widths[::-1]), wider, rtol=0.05)


def test_short_random_walks_are_covered_far_ahead():
    """Two independent errors at the horizon are too few for their quantiles to be the law's."""
    rng = np.random.default_rng(5)
    horizon, inside = 24, []
    for _ in range(120):
        y = np.cumsum(rng.normal(size=84))
        model = rk.auto()
        model.run(y[:60])
        lower, upper = model.forecast(horizon)[-1].interval(0.9)
        inside.append(lower <= y[-1] <= upper)
    # Probability of fewer if 90 % are covered and forecasts are independent: .004.
    assert np.mean(inside) >= 0.825


def test_stationary_errors_are_not_widened_far_ahead():
    rng = np.random.default_rng(6)
    model, y = rk.auto(), rng.normal(size=100)
    model.run(y)
    widths = [float(np.diff(law.interval(0.9))[0]) for law in model.forecast(48)]
    assert widths[-1] < 1.5 * widths[1]
