"""Single models that are default settings learn the units of the stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import regimekit as rk

MAKERS = [rk.br_ihmm, rk.student_t_ihmm]


def loads(seed: int = 0, scale: float = 700.0, centre: float = 30_000.0) -> tuple[Any, Any]:
    """Three levels that return, in units far from one, with a spike."""
    rng = np.random.default_rng(seed)
    level = np.repeat([0, 2, 1, 0, 2, 1], 60)
    y = centre + scale * (3.0 * level + 0.5 * rng.standard_normal(360))
    y[200] += 1e4 * scale
    return y, level


@pytest.mark.parametrize("maker", MAKERS)
def test_a_stream_in_its_own_units_needs_nothing(maker: Any) -> None:
    y, level = loads()
    model = maker(particles=50)
    run = model.run(y)
    assert model.settings()["units"] == "auto"
    assert rk.evaluate.adjusted_rand(run.path, level) > 0.97
    inside = (run.lower <= y) & (y <= run.upper)
    assert inside[20:].mean() > 0.75
    assert np.median(np.abs(run.mean - y)) < 500  # 0.67 noise scales of 350 is 236
    assert run.outlier[200] and run.outlier.sum() < 0.1 * len(y)
    assert not run.outlier[:3].any()  # nothing is an outlier before there are units
    found = sorted(float(regime.mean[0]) for regime in model.regimes())
    np.testing.assert_allclose(found, [30_000, 32_100, 34_200], atol=150)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_other_units_change_nothing_but_the_units(scale: float) -> None:
    y, _ = loads(scale=1.0, centre=0.0)
    plain, scaled = rk.br_ihmm(particles=20).run(y), rk.br_ihmm(particles=20).run(scale * y + scale)
    np.testing.assert_array_equal(plain.regime, scaled.regime)
    np.testing.assert_allclose(scaled.mean[5:], scale * plain.mean[5:] + scale, rtol=1e-6)
    np.testing.assert_allclose(scaled.log_score[5:], plain.log_score[5:] - np.log(scale), atol=1e-6)


def test_steps_runs_and_snapshots_agree() -> None:
    y, _ = loads()
    run = rk.br_ihmm(particles=20).run(y)
    model = rk.br_ihmm(particles=20)
    for t, value in enumerate(y):
        forecast, step = model.predict(), model.update(value)
        assert (step.regime, step.log_score) == (run.regime[t], run.log_score[t])
        assert forecast.ordinary.mean == pytest.approx(run.mean[t])
        if t in (2, 30, 90):  # while units are learnt, and after
            data = model.to_bytes()
            model = rk.from_bytes(data)
            assert model.to_bytes() == data
    assert [f.mean for f in model.forecast(2)] == [f.mean for f in model.copy().forecast(2)]


def test_given_settings_stay_in_the_units_of_y() -> None:
    for settings in ({"noise": 4.0}, {"prior_var": 9.0}, {"units": "given"}):
        model = rk.br_ihmm(**settings)
        assert model.settings()["units"] == "given"
    assert rk.br_ihmm(units="auto", noise=2.0).settings()["noise"] == 2.0
    with pytest.raises(rk.RegimekitError, match="units"):
        rk.br_ihmm(units="metric")
    with pytest.raises(rk.RegimekitError, match="units"):
        rk.garch_ihmm(units="auto")


def test_covariates_without_features_are_used() -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((200, 2))
    y = 1e4 + 50 * (x @ [3.0, -2.0] + 0.3 * rng.standard_normal(200))
    model = rk.br_ihmm(particles=20)
    before = model.to_bytes()
    assert np.isfinite(model.predict(x[0]).mean) and model.to_bytes() == before
    run = model.run(y, x)
    assert np.median(np.abs(run.mean[50:] - y[50:])) < 20
    np.testing.assert_allclose(model.regimes()[0].mean, [1e4, 150, -100], atol=10)
    assert rk.from_bytes(model.to_bytes()).predict(x[0]).mean == model.predict(x[0]).mean


def test_a_change_of_units_is_accepted_after_some_observations() -> None:
    rng = np.random.default_rng(2)
    y = 20.0 + rng.standard_normal(300)
    y[150:] *= 1000.0
    run = rk.br_ihmm(particles=20).run(y)
    assert abs(run.mean[152] - 20.0) < 3.0
    assert np.abs(run.mean[-50:] - 20_000.0).max() < 3000.0
    inside = (run.lower <= y) & (y <= run.upper)
    assert inside[-60:].mean() > 0.7


def test_influence_asks_for_known_units() -> None:
    model = rk.br_ihmm(particles=5)
    model.run(np.random.default_rng(0).standard_normal(30))
    with pytest.raises(rk.RegimekitError, match="units"):
        rk.influence.state_pif(model, 1.0, clean=[0.0])


@pytest.mark.parametrize("seed", range(20, 27))
def test_no_id_is_left_out_when_the_units_change(seed: int) -> None:
    """A model in new units may know regimes that no event has opened: they have no id yet."""
    rng = np.random.default_rng(seed)
    y = np.repeat([-1.0, 1.0, 3.0, -1.0, 1.0], 32) + 0.25 * rng.standard_normal(160)
    y[::23] = np.nan
    model = rk.br_ihmm(particles=12, max_regimes=6, batch=4, seed=seed)
    run = model.run(y)
    opened = [event.regime for event in run.events if event.kind == "regime opened"]
    assert opened == list(range(len(opened)))
    assert len(model.regimes()) == run.n_regimes[-1]
