"""Streams of few distinct values: `auto` rounds its forecasts to the values seen before."""

from __future__ import annotations

import numpy as np
import pytest

import regimekit as rk
from regimekit.core.exceptions import SnapshotError
from regimekit.distributions.forecast import Forecast
from regimekit.distributions.mixture import Mixture
from regimekit.ensemble.known_values import KnownValues


def _law(location: float, scale: float) -> Mixture:
    law = Mixture(1, 4)
    law.share[0], law.location[0, 0], law.spread[0, 0, 0] = 1.0, location, scale**2
    law.dof[0], law.size = np.inf, 1
    return law


def _after(values: np.ndarray) -> KnownValues:
    known = KnownValues()
    for value in values:
        known.update(value)
    return known


def _near(law: Forecast, value: float, margin: float = 0.1) -> float:
    return float(law.cdf(value + margin) - law.cdf(value - margin))


def test_atoms_have_the_probability_of_their_surroundings():
    rng = np.random.default_rng(0)
    known, plain, rounded = _after(rng.poisson(3.0, 400)), _law(3.3, 1.5), _law(3.3, 1.5)
    known.round(rounded)
    before, after = Forecast.from_mixture(plain), Forecast.from_mixture(rounded)
    smooth = max(known.new_share, 0.01)
    for value in range(1, 7):
        whole = float(before.cdf(value + 0.5) - before.cdf(value - 0.5))
        expected = (1 - smooth) * whole + smooth * _near(before, value)
        assert _near(after, value) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("location", [-1e6, -1.0, 4.0, 1e6, 1e120])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_probabilities_sum_to_one(location, scale):
    known, law = _after(np.tile([0.0, 1.0, 5.0, 20.0], 50)), _law(location, scale)
    known.round(law)
    assert np.asarray(law.share)[: law.size].sum() == pytest.approx(1.0, abs=1e-9)


def test_exact_forecasts_stay_exact():
    known, law = _after(np.tile([20.0, 80.0], 100)), _law(80.0, 1e-6)
    known.round(law)
    assert _near(Forecast.from_mixture(law), 80.0, 1e-5) > 0.999


def test_streams_of_new_values_are_not_rounded():
    known, law = _after(np.random.default_rng(0).normal(size=300)), _law(0.0, 1.0)
    known.round(law)
    assert law.size == 1 and known.new_share > 0.99


def test_rounding_ends_when_a_stream_comes_alive():
    values = np.r_[np.tile([7.0, 8.0], 100), np.random.default_rng(0).normal(size=3)]
    known, law = _after(values), _law(0.0, 1.0)
    known.round(law)
    assert law.size == 1


def test_the_value_not_seen_for_longest_makes_room():
    known = _after(np.r_[5.0, np.arange(100.0, 163.0), np.nan, 5.0, 200.0])
    assert len(known.seen) == 64
    assert 5.0 in known.seen[:, 0] and 100.0 not in known.seen[:, 0]


def test_counts_are_forecast_better_than_by_smooth_forecasts():
    """The same stream with noise far below the unit is not rounded."""
    rng = np.random.default_rng(3)
    counts = rng.poisson(1.5, 600).astype(float)
    noisy = counts + 1e-6 * rng.normal(size=600)
    scores = [rk.metrics.prequential(rk.auto(), y).crps[100:].mean() for y in (counts, noisy)]
    assert scores[0] < 0.98 * scores[1]


def test_forecasts_of_several_steps_are_rounded():
    model = rk.auto()
    model.run(np.random.default_rng(4).poisson(1.5, 300).astype(float))
    for law in model.forecast(12):
        assert sum(_near(law, value) for value in range(6)) > 0.9


def test_a_loaded_model_rounds_the_same():
    y = np.random.default_rng(1).poisson(2.0, 300).astype(float)
    model = rk.auto()
    model.run(y[:200])
    again = rk.from_bytes(model.to_bytes())
    for value in y[200:]:
        own, other = model.predict(), again.predict()
        assert own.quantile(0.9) == other.quantile(0.9) and own.mean == other.mean
        model.update(value)
        again.update(value)
    assert model.to_bytes() == again.to_bytes()


def test_impossible_values_are_refused():
    known = KnownValues()
    for given in (np.array([[2.0, 1.0], [1.0, 2.0]]), np.column_stack([np.arange(65.0)] * 2)):
        with pytest.raises(SnapshotError):
            known.seen = given
