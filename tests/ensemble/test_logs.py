"""Least squares of logarithms: for positive streams only, with a skewed law."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import regimekit as rk
from regimekit.ensemble.design import Spec
from regimekit.ensemble.members import Components, SimpleMembers
from regimekit.preprocessing.lag_buffer import LagBuffer

LOGS = "least squares, logs, lags 1 to 3"


@pytest.fixture(scope="module")
def volume() -> np.ndarray:
    """Positive values whose logarithms are an AR(1) with coefficient .8 and innovations of .3."""
    rng, x = np.random.default_rng(8), np.zeros(500)
    for t in range(1, 500):
        x[t] = 0.8 * x[t - 1] + 0.3 * rng.standard_normal()
    return np.exp(x)


@pytest.mark.parametrize("scale", [0.01, 0.3])
def test_the_law_is_that_of_a_t_in_logarithms(scale: float) -> None:
    """A level of logarithms with a known scale: the distribution function differs by .01."""
    offset = 2.0
    spec = Spec("logs, level", (), squares=True, regimes=False, logs=True)
    members, parts = SimpleMembers([spec], 1), Components(1, 64)
    members.set_logs(offset, 0.1, True)
    np.asarray(members.coefficient)[0, 0, 0, 0] = 0.5
    np.asarray(members.covariance)[:] = 0.0
    np.asarray(members.square_variance)[:] = (scale * offset) ** 2
    members.predict(0, LagBuffer(4, 1), 0, np.zeros(0), parts, 3)
    own = np.flatnonzero(np.asarray(parts.owner)[: parts.size] == 3)
    assert own.size == (1 if scale < 0.03 else 5)
    assert np.asarray(parts.share)[own].sum() == pytest.approx(1.0)
    for p in (0.05, 0.25, 0.5, 0.75, 0.95):
        z = offset * (np.exp(0.5 / offset + scale * stats.t.ppf(p, 8)) - 1.0)
        below = sum(
            parts.share[k]
            * stats.t.cdf((z - parts.location[k, 0]) / np.sqrt(parts.spread[k, 0, 0]), 8)
            for k in own
        )
        assert below == pytest.approx(p, abs=0.01)


def test_skewed_values_are_forecast_nearly_as_well_as_by_the_truth(volume: np.ndarray) -> None:
    model = rk.auto()
    own = rk.metrics.prequential(model, volume).crps[100:, 0].mean()
    draws = np.exp(
        0.8 * np.log(volume[99:-1, None])
        + 0.3 * np.random.default_rng(0).standard_normal((400, 400))
    )
    error = np.abs(draws - volume[100:, None]).mean(axis=1)
    spread = np.abs(draws[:, ::2] - draws[:, 1::2]).mean(axis=1)
    truth = (error - spread / 2).mean()
    assert own < 1.03 * truth
    assert model.weights[LOGS] > 0.3


def test_after_a_value_that_is_not_positive_logarithms_have_no_weight(volume: np.ndarray) -> None:
    model = rk.auto()
    model.run(volume[:200])
    assert model.weights[LOGS] > 0.1
    model.update(-0.1)
    assert model.weights[LOGS] == 0.0
    assert np.isfinite(model.run(volume[200:220]).mean).all()
    assert model.weights[LOGS] == 0.0


def test_logarithms_have_no_weight_if_values_hardly_differ(volume: np.ndarray) -> None:
    """Far from zero they are proportional to the values: a shift changes nothing."""
    runs = [rk.auto().run(shift + volume[:150]) for shift in (1000.0, 1e5)]
    np.testing.assert_allclose(runs[0].mean[1:] + 99000.0, runs[1].mean[1:], rtol=1e-9)


@pytest.mark.parametrize("last", [1.0, -1.0])
def test_a_loaded_model_continues_alike(volume: np.ndarray, last: float) -> None:
    model = rk.auto()
    model.run(np.append(volume[:250], last))
    copy = rk.from_bytes(model.to_bytes())
    assert model.weights == copy.weights
    np.testing.assert_array_equal(model.run(volume[250:300]).mean, copy.run(volume[250:300]).mean)
