"""Lags that an outlier cannot poison (D13): spikes, jumps, what is stored, what is promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import regimekit as rk
from regimekit.preprocessing.lag_buffer import CLEAN, RAW, LagBuffer, log_outlier

LAGS = rk.features.intercept() + rk.features.lags(1)
RAW_LAGS = {"D13": "paper"}


def autoregression(seed: int, n: int = 260, phi: float = 0.9) -> np.ndarray:
    rng = np.random.default_rng(seed)
    y = np.zeros(n)
    for t in range(1, n):
        y[t] = phi * y[t - 1] + rng.standard_normal()
    return y


def fitted(y: np.ndarray, name: str = "br_ihmm", **settings: Any) -> Any:
    model = rk.make(name, features=LAGS, particles=40, **settings)
    model.run(y)
    return model


def after(model: Any, value: float) -> Any:
    """A copy of the model that has seen one value more."""
    twin = model.copy()
    twin.update(value)
    return twin


# ---------------------------------------------------------------- what the issue is about


@pytest.mark.parametrize("name", ["br_ihmm", "student_t_ihmm"])
@pytest.mark.parametrize("spike", [30.0, 1000.0, -1e6, 1e155, 1e300])
def test_a_spike_is_no_covariate(name, spike):
    """The next forecast is within 3 sd of what it would have been, and so are all later ones."""
    y = autoregression(1)
    model = fitted(y[:200], name)
    clean, dirty = after(model, y[200]), after(model, y[200] + spike)
    for value in y[201:210]:
        usual, now = clean.predict(), dirty.predict()
        assert abs(now.median - usual.median) < 3 * usual.sd
        assert abs(now.mean - usual.mean) < 6 * usual.sd
        clean.update(value)
        dirty.update(value)
    assert abs(dirty.predict().mean - clean.predict().mean) < 0.1 * clean.predict().sd


def test_an_outlier_moves_forecasts_with_raw_lags():
    """The same spike with D13 off: the check above can fail."""
    y = autoregression(1)
    model = fitted(y[:200], rule=RAW_LAGS)
    assert after(model, y[200] + 1000.0).predict().mean > 500.0


@pytest.mark.parametrize(
    ("name", "told"), [("br_ihmm", {"noise": 1.0, "prior_var": 4.0}), ("student_t_ihmm", {})]
)
def test_a_real_jump_is_followed_within_two_observations(name, told):
    y = autoregression(2)
    y[200:] += 20.0 * 0.9 ** np.arange(60)  # an innovation of 20 sd
    model = fitted(y[:200], name, **told)
    model.update(y[200])
    model.update(y[201])
    assert abs(model.predict().median - 0.9 * y[201]) < 2.5


def test_a_stream_with_real_jumps_is_followed_at_once():
    """After a dozen real jumps the forecast follows the next one immediately."""
    rng = np.random.default_rng(3)
    steps = rng.standard_normal(400)
    steps[20::20] += rng.choice([-15.0, 15.0], 19)
    y = np.cumsum(steps)
    model = fitted(y[:380], "student_t_ihmm")
    jumped = y[379] + 15.0
    assert abs(after(model, jumped).predict().median - jumped) < 2.0
    assert abs(after(model, y[379] + 1e4).predict().median - y[379]) < 4.0  # but not any size


# ---------------------------------------------------------------- one way of learning


@pytest.mark.parametrize("settings", [{}, {"weight": "imq"}, {"units": "given", "noise": 1.0}])
def test_a_run_and_single_updates_agree(settings):
    y = autoregression(4)
    y[[60, 61, 120, 200]] += [25.0, 25.0, -1e4, 12.0]
    y[[121, 150]] = np.nan
    y[100:104] = np.nan
    y[104] += 12.0
    whole, single = (rk.br_ihmm(features=LAGS, particles=30, **settings) for _ in range(2))
    run = whole.run(y)
    means = []
    for value in y:
        means.append(single.predict().mean)
        single.update(value)
    np.testing.assert_allclose(run.mean, means, rtol=1e-9, atol=1e-9)
    assert whole.to_bytes() == single.to_bytes()


def test_a_forecast_in_doubt_mixes_both_pasts():
    y = autoregression(5)
    model = fitted(y[:200])
    model.update(y[199] + 12.0)
    assert model.past.pending and 0 < model.past.p_innovational < 1
    clean, raw = model.copy(), model.copy()
    clean.past.settle(CLEAN)
    raw.past.settle(RAW)
    share, mean = model.past.p_innovational, model.predict().mean
    expected = (1 - share) * clean.predict().median + share * raw.predict().mean
    assert mean == pytest.approx(expected, abs=0.2)
    assert model.forecast(1)[0].mean == mean
    assert clean.forecast(2)[1].mean < model.forecast(2)[1].mean < raw.forecast(2)[1].mean


def test_what_is_in_doubt_is_stored():
    y = autoregression(6)
    model = fitted(y[:200])
    model.update(y[199] + 15.0)
    loaded = rk.from_bytes(model.to_bytes())
    assert loaded.past.pending and loaded.past.p_innovational == model.past.p_innovational
    for value in y[200:230]:
        assert loaded.predict().mean == model.predict().mean
        model.update(value)
        loaded.update(value)
    assert loaded.to_bytes() == model.to_bytes()


def test_a_stream_that_begins_with_constants_does_not_run_away():
    """At first a unit is next to nothing, every value in doubt and every forecast wild."""
    rng = np.random.default_rng(0)
    y = np.concatenate([np.full(4, 0.0056), 0.9 * rng.standard_normal(60)])
    worst = {}
    for name, rule in (("cleaned", "default"), ("raw", RAW_LAGS)):
        model = rk.br_ihmm(features=LAGS, rule=rule)
        worst[name] = float(np.abs(model.run(y).mean).max())
    assert worst["cleaned"] < max(2 * worst["raw"], 10.0)


def test_a_missing_value_decides_nothing():
    y = autoregression(7)
    model = fitted(y[:200])
    model.update(y[199] + 15.0)
    chance = model.past.p_innovational
    model.update(np.nan)
    assert model.past.pending and model.past.p_innovational == chance
    model.update(y[200])
    assert not model.past.pending


# ---------------------------------------------------------------- the two pasts by themselves


def test_the_chance_of_a_jump_falls_with_its_size():
    chance = []
    for error in (6.0, 10.0, 30.0, 1e3, 1e300):
        past = LagBuffer(1, 1)
        past.doubt(np.zeros(1), np.ones(1), error, 0.02)
        chance.append(past.p_innovational)
    assert chance == sorted(chance, reverse=True)
    assert chance[1] == pytest.approx(0.5, abs=0.2) and chance[3] * 1e3 < 1.5


def test_what_was_real_is_remembered_by_its_size():
    past = LagBuffer(1, 1)
    for _ in range(12):
        past.doubt(np.zeros(1), np.full(1, 15.0), 15.0, 0.05)
        past.decide(-10.0, -1.0)
    past.doubt(np.zeros(1), np.full(1, 15.0), 15.0, 0.05)
    usual = past.p_innovational
    past.decide(-10.0, -1.0)
    past.doubt(np.zeros(1), np.full(1, 1e4), 1e4, 0.05)
    assert usual > 0.99 and past.p_innovational * 1e4 < 20


def test_the_broad_density_is_one():
    errors = np.linspace(-4000, 4000, 400_001)
    total = np.exp([log_outlier(e) for e in errors]).sum() * (errors[1] - errors[0])
    assert total == pytest.approx(1.0, abs=2e-4)  # 2 / 40 000 lie beyond


# ---------------------------------------------------------------- the bound


@pytest.mark.parametrize("weight", ["contamination", "imq"])
@pytest.mark.parametrize("phi", [0.8, -0.5])
@pytest.mark.parametrize("position", [1, 2])
def test_the_bound_holds_with_lags(weight, phi, position):
    """Values that are not on the bound's own grid, near and far."""
    y = autoregression(3, 64, phi)
    told = {"noise": 1.0, "prior_var": 4.0, "batch": 4, "weight": weight}
    model = fitted(y[:56], **told)
    worst = rk.influence.bound(model, clean=y[56:60], position=position)
    rng = np.random.default_rng(9)
    far = rng.choice([-1, 1], 30) * 10 ** rng.uniform(0, 12, 30)
    values = np.concatenate([y[56 + position] + 8 * rng.standard_normal(80), far])
    found = rk.influence.profile(model, values, clean=y[56:60], position=position)
    assert np.isfinite(worst).all()
    for name in ("state", "parameter", "joint"):
        assert getattr(found, name).max() <= getattr(worst, name)


def test_the_bound_names_missing_requirements():
    y = autoregression(8, 60)
    told = {"noise": 1.0, "prior_var": 4.0, "batch": 4}
    with pytest.raises(rk.RegimekitError, match="D13"):
        rk.influence.bound(fitted(y[:56], rule=RAW_LAGS, **told), clean=y[56:60])
    with pytest.raises(rk.RegimekitError, match="one contaminated position"):
        rk.influence.bound(fitted(y[:56], **told), clean=y[56:60], position="all")


def test_raw_lags_have_no_bound():
    """Why it is refused: the influence grows with the value."""
    y = autoregression(8, 60)
    model = fitted(y[:56], rule=RAW_LAGS, noise=1.0, prior_var=4.0, batch=4)
    small, large = rk.influence.joint_pif(model, [1e2, 1e5], clean=y[56:60], position=1)
    assert large > small + 5
