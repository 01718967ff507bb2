"""Forecasts several steps ahead with covariates."""

import numpy as np
import pytest

import regimekit as rk
from regimekit.ensemble.covariate_effect import fit
from regimekit.metrics.scores import crps_scores


def _errors(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    e = np.zeros(n)
    for t in range(1, n):
        e[t] = phi * e[t - 1] + rng.normal()
    return e


def _scores(y: np.ndarray, x: np.ndarray, origins: tuple[int, ...]) -> tuple[float, float]:
    """Mean score of 24 steps with covariates, and without them."""
    found = []
    for given in (True, False):
        model, known, total = rk.auto(), 0, []
        for n in origins:
            model.run(y[known:n], X=x[known:n] if given else None)
            known = n
            ahead = model.forecast(24, X=x[n : n + 24]) if given else model.forecast(24)
            total.append(crps_scores(list(ahead), y[n : n + 24]).mean())
        found.append(float(np.mean(total)))
    return found[0], found[1]


def test_coefficients_are_found_beside_autocorrelated_errors():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(424, 2))
    x[:, 1] = _errors(rng, 424, 0.95)
    y = x[:400] @ [2.0, 1.0] + _errors(rng, 400, 0.8)
    effect = fit(y, x, (1, 2, 3))
    assert effect is not None
    np.testing.assert_allclose(effect.direct, x @ [2.0, 1.0], atol=0.6)
    assert effect.lags[1] == pytest.approx(0.8, abs=0.15)


def test_columns_without_effect_are_shrunk():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(424, 100))
    y = _errors(rng, 400, 0.5)
    effect = fit(y, x, (1, 2, 3))
    assert effect is not None
    # Least squares has sqrt(100 / 400) = .5.
    assert np.std(effect.direct) < 0.25


def test_the_equation_is_iterated():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(210, 1))
    y = np.zeros(200)
    for t in range(2, 200):
        y[t] = 3.0 + 0.5 * y[t - 1] + 0.2 * y[t - 2] + 2.0 * x[t, 0] + 1e-3 * rng.normal()
    effect = fit(y, x, (1, 2))
    assert effect is not None
    free = np.full((1, 10), np.inf)
    found = effect.iterate(y, np.array([199]), -free, free)[0] + effect.direct[200:]
    path = list(y)
    for t in range(200, 210):
        path.append(3.0 + 0.5 * path[-1] + 0.2 * path[-2] + 2.0 * x[t, 0])
    np.testing.assert_allclose(found, path[200:], atol=0.02)


@pytest.mark.parametrize("size", [1e-120, 1.0, 1e120])
def test_units_do_not_matter(size):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(112, 3))
    y = x[:100, 0] + rng.normal(size=100)
    one, other = fit(y, x, (1,)), fit(size * y, x, (1,))
    assert one is not None and other is not None
    np.testing.assert_allclose(other.direct, size * one.direct, rtol=1e-6)


def test_trends_and_seasons_beside_covariates_continue():
    rng = np.random.default_rng(4)
    n, t = 500, np.arange(500)
    x = rng.normal(size=(n, 3))
    effect = x @ [2.0, 1.0, 0.0]
    with_x, without = _scores(effect + 0.1 * t + rng.normal(size=n), x, (300, 390, 476))
    assert with_x < 0.7 * without
    wave = 4.0 * np.sin(2 * np.pi * t / 24)
    with_x, without = _scores(effect + wave + rng.normal(size=n), x, (300, 390, 476))
    assert with_x < 0.7 * without


def test_effects_inherited_through_lags_continue():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(500, 1))
    y = np.zeros(500)
    for t in range(1, 500):
        y[t] = 0.8 * y[t - 1] + 3.0 * x[t, 0] + rng.normal()
    with_x, without = _scores(y, x, (300, 390, 476))
    assert with_x < 0.5 * without


def test_regimes_of_the_effect_are_followed():
    rng = np.random.default_rng(6)
    regime = np.arange(500) // 60 % 2
    x = rng.normal(size=(500, 1))
    y = np.where(regime, 3.0, -3.0) * x[:, 0] + 0.5 * rng.normal(size=500)
    with_x, without = _scores(y, x, (310, 370, 430))
    assert with_x < 0.5 * without


@pytest.mark.parametrize("dim", [1, 2])
def test_a_loaded_model_forecasts_the_same(dim, tmp_path):
    rng = np.random.default_rng(7)
    x = rng.normal(size=(324, 2))
    y = x[:300] @ rng.normal(size=(2, dim)) + rng.normal(size=(300, dim)).cumsum(0)
    model = rk.auto()
    model.run(y, X=x[:300])
    model.save(tmp_path / "model.rk")
    other = rk.load(tmp_path / "model.rk")
    for one, two in zip(model.forecast(24, X=x[300:]), other.forecast(24, X=x[300:]), strict=True):
        np.testing.assert_array_equal(one.location, two.location)
        np.testing.assert_array_equal(one.share, two.share)
