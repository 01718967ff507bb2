"""Forecasts of several steps by `auto`."""

from __future__ import annotations

import numpy as np
import pytest

import regimekit as rk


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
