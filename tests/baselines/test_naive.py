"""The trivial forecasters against their definitions, and their spread against batch formulas."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import stats

import regimekit as rk
from regimekit.baselines.naive import (
    Naive,
    RunningMean,
    last_value,
    least_squares,
    running_mean,
    seasonal_last_value,
)
from regimekit.serialization.validation import Arrays, Values

MAKERS: dict[str, Callable[..., Naive]] = {
    "last_value": last_value,
    "seasonal_last_value": lambda **s: seasonal_last_value(**({"period": 4} | s)),
    "running_mean": running_mean,
    "least_squares": least_squares,
}


@pytest.fixture(params=list(MAKERS))
def make(request: pytest.FixtureRequest) -> Callable[..., Naive]:
    return MAKERS[request.param]


def test_point_forecasts_of_the_naive_models() -> None:
    rng = np.random.default_rng(0)
    y = rng.standard_normal(40)
    run = last_value().run(y)
    np.testing.assert_array_equal(run.mean[1:], y[:-1])
    run = seasonal_last_value(period=7).run(y)
    np.testing.assert_array_equal(run.mean[7:], y[:-7])
    np.testing.assert_array_equal(run.mean[1:7], y[:6])  # no season yet: the latest value
    run = running_mean().run(y)
    np.testing.assert_allclose(run.mean[1:], [y[:t].mean() for t in range(1, 40)])
    assert run.mean[0] == 0.0


def test_missing_values_are_skipped() -> None:
    y = [1.0, math.nan, 3.0, math.nan, math.nan, 5.0]
    assert last_value().run(y).mean.tolist() == [0.0, 1.0, 1.0, 3.0, 3.0, 3.0]
    assert running_mean().run(y).mean.tolist() == [0.0, 1.0, 1.0, 2.0, 2.0, 2.0]
    seasonal = seasonal_last_value(period=2)
    assert seasonal.run(y).mean.tolist() == [0.0, 1.0, 1.0, 3.0, 3.0, 3.0]
    assert seasonal.predict().mean == 3.0  # phase 0: its latest value, though it was missing once
    np.testing.assert_array_equal(
        last_value().run(np.array([[1.0, 2.0], [math.nan, 3.0], [4.0, 5.0]])).mean,
        [[0.0, 0.0], [1.0, 2.0], [1.0, 3.0]],
    )


# The errors of `least_squares` have leverages: test_least_squares_is_ridge_regression.
@pytest.mark.parametrize("name", [name for name in MAKERS if name != "least_squares"])
def test_spread_is_that_of_the_errors_so_far(name: str) -> None:
    """The t distribution of the module's formula, computed at once from the run's own errors."""
    y = np.random.default_rng(1).standard_normal(60)
    y[[0, 5, 6]] = np.nan
    model = MAKERS[name](error_sd=0.5)
    run = model.run(y)
    errors = (y - run.mean)[~np.isnan(y)]
    forecast = model.predict()
    dof = 3 + errors.size
    variance = (3 * 0.25 + (errors**2).sum()) / dof
    for q in (0.1, 0.5, 0.9):
        exact = stats.t.ppf(q, dof, loc=forecast.mean, scale=math.sqrt(variance))
        assert forecast.quantile(q) == pytest.approx(exact)


def test_least_squares_is_ridge_regression() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((50, 2))
    y = 1.0 + x @ [2.0, -1.0] + 0.3 * rng.standard_normal(50)
    y[[3, 17]] = np.nan
    features = rk.features.intercept() + rk.features.columns()
    model = least_squares(features=features, ridge=0.2)
    model.run(y, x)
    seen = ~np.isnan(y)
    design = np.column_stack([np.ones(50), x])[seen]
    gram = design.T @ design + 0.2 * np.eye(3)
    coefficients = np.linalg.solve(gram, design.T @ y[seen])
    np.testing.assert_allclose(model.regimes()[0].mean, coefficients, rtol=1e-9)
    new = np.array([1.0, 0.5, -2.0])
    assert model.predict(new[1:]).mean == pytest.approx(new @ coefficients)


def test_least_squares_spread_is_that_of_bayesian_regression() -> None:
    """Normal-inverse-gamma in one go: the sum of squared innovations is a closed form."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((40, 1))
    y = 2.0 * x[:, 0] + 0.3 * rng.standard_normal(40)
    model = least_squares(features=rk.features.columns(), ridge=0.5, error_sd=0.7)
    model.run(y, x)
    gram = float(x[:, 0] @ x[:, 0]) + 0.5
    slope = float(x[:, 0] @ y) / gram
    squares = float(y @ y) - gram * slope**2
    dof = 3 + 40
    variance = (3 * 0.49 + squares) / dof * (1 + 1.5**2 / gram)
    forecast = model.predict([1.5])
    for q in (0.05, 0.7):
        exact = stats.t.ppf(q, dof, loc=1.5 * slope, scale=math.sqrt(variance))
        assert forecast.quantile(q) == pytest.approx(exact, rel=1e-9)


def test_least_squares_learns_an_autoregression() -> None:
    rng = np.random.default_rng(4)
    y = np.zeros(400)
    for t in range(1, 400):
        y[t] = 0.7 * y[t - 1] + rng.standard_normal()
    model = least_squares(features=rk.features.lags(1))
    model.run(y)
    assert model.regimes()[0].mean[0] == pytest.approx(0.7, abs=0.2)  # 5 sd of the estimate
    before = model.to_bytes()
    means = [forecast.mean for forecast in model.forecast(3)]
    slope = model.regimes()[0].mean[0]
    np.testing.assert_allclose(means, y[-1] * slope ** np.arange(1, 4), rtol=1e-9)
    assert model.to_bytes() == before


def test_several_coordinates_are_learnt_side_by_side() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((30, 1))
    y = np.column_stack([x[:, 0], -2 * x[:, 0]]) + 0.1 * rng.standard_normal((30, 2))
    y[4, 0] = y[9, 1] = np.nan
    features = rk.features.intercept() + rk.features.columns()
    both = least_squares(features=features)
    both.run(y, x)
    for j in range(2):
        alone = least_squares(features=features)
        alone.run(y[:, j], x)
        assert both.predict([1.0]).mean[j] == pytest.approx(alone.predict([1.0]).mean)
        assert both.predict([1.0]).spread[0, j, j] == pytest.approx(
            alone.predict([1.0]).spread[0, 0, 0]
        )


def test_horizons() -> None:
    """A random walk's spread grows with the steps, a season's with its cycles, a mean's not."""
    y = np.random.default_rng(6).standard_normal(50).cumsum()
    walk, season, mean = last_value(), seasonal_last_value(period=3), running_mean()
    for model in (walk, season, mean):
        model.run(y)
    sds = {m.name: [f.sd / m.predict().sd for f in m.forecast(7)] for m in (walk, season, mean)}
    np.testing.assert_allclose(sds["last_value"], np.sqrt(np.arange(1, 8)))
    np.testing.assert_allclose(sds["seasonal_last_value"], np.sqrt([1, 1, 1, 2, 2, 2, 3]))
    np.testing.assert_allclose(sds["running_mean"], np.ones(7))
    assert [f.mean for f in season.forecast(4)] == [y[-3], y[-2], y[-1], y[-3]]


def test_intervals_cover_on_the_models_own_data() -> None:
    """90 % intervals over 1500 values within 3.3 standard errors: 1 false alarm in 250 seeds for
    the four together."""
    rng = np.random.default_rng(7)
    noise = rng.standard_normal(1500)
    x = rng.standard_normal((1500, 1))
    season = np.tile(rng.standard_normal(5), 300)
    walks = noise.reshape(300, 5).cumsum(axis=0).reshape(-1)  # five random walks, in turn
    lines = least_squares(features=rk.features.columns())
    streams: list[tuple[Naive, np.ndarray, Any]] = [
        (last_value(), noise.cumsum(), None),
        (seasonal_last_value(period=5), season + walks, None),
        (running_mean(), noise, None),
        (lines, 2 * x[:, 0] + noise, x),
    ]
    for model, y, covariates in streams:
        run = model.run(y, covariates)
        inside = np.mean((run.lower <= y) & (y <= run.upper))
        assert abs(inside - 0.9) < 3.3 * math.sqrt(0.09 / 1500), model.name


def test_one_regime_for_ever(make: Callable[..., Naive]) -> None:
    model = make()
    run = model.run([math.nan, 0.5, 0.1, 30.0])
    assert (run.regime == 0).all() and run.changepoints == [] and (run.n_regimes == 1).all()
    assert [(e.time, e.kind, e.regime) for e in run.events] == [(0, "regime opened", 0)]
    (regime,) = model.regimes()
    assert (regime.id, regime.visits, regime.last_seen) == (0, 3, 3)
    assert model.transitions().ids == [0] and model.transitions().matrix.tolist() == [[1.0]]


@pytest.mark.parametrize("series", [[], [1.0], [math.nan] * 20, [3.0] * 300])
def test_degenerate_streams(make: Callable[..., Naive], series: list[float]) -> None:
    model = make()
    run = model.run(series)
    assert len(run) == len(series) and np.isfinite(run.mean).all()
    assert np.isfinite(run.sd).all() and (run.sd > 0).all()
    if len(series) == 300:
        assert model.predict().mean == pytest.approx(3.0, abs=1e-3)
        assert 0 < model.predict().sd < 0.5


@pytest.mark.parametrize("huge", [1e300, -1e300, 1e-300])
def test_absurd_values_do_not_overflow(make: Callable[..., Naive], huge: float) -> None:
    model = make()
    run = model.run([0.1, huge, -huge, 0.2, 0.3])
    assert np.isfinite(run.mean).all() and np.isfinite(run.log_score).all()
    assert np.isfinite(model.predict().mean)


@pytest.mark.parametrize("cut", [0, 1, 13])
def test_state_and_settings_survive(make: Callable[..., Naive], cut: int) -> None:
    y = np.random.default_rng(8).standard_normal(40)
    y[[2, 20]] = np.nan
    model = make(error_sd=0.5)
    model.run(y[:cut])
    chosen = json.loads(json.dumps(model.settings()))
    values, arrays = model._full_state()
    revived = type(model)._make(chosen)
    stored = Arrays({name: array.copy() for name, array in arrays.items()})
    revived.restore_state(Values(json.loads(json.dumps(values))), stored)
    twin = model.copy()
    assert revived.settings() == chosen
    assert twin.to_bytes() == revived.to_bytes() == model.to_bytes()
    expected = model.run(y[cut:])
    for other in (twin, revived):
        run = other.run(y[cut:])
        np.testing.assert_array_equal(run.log_score, expected.log_score)
        np.testing.assert_array_equal(run.upper, expected.upper)
        assert other.to_bytes() == model.to_bytes()


def test_predict_is_pure_and_hands_out_copies(make: Callable[..., Naive]) -> None:
    model = make()
    model.run([0.1, 0.4, -0.2])
    before = model.to_bytes()
    forecast, regime = model.predict(), model.regimes()[0]
    for array in (forecast.location, forecast.spread, forecast.dof, regime.mean, regime.sd):
        array[...] = 7
    assert model.to_bytes() == before


@pytest.mark.parametrize(
    ("maker", "settings", "named"),
    [
        (last_value, {"error_sd": 0}, "error_sd"),
        (last_value, {"error_sd": math.inf}, "error_sd"),
        (last_value, {"period": 3}, "period"),
        (seasonal_last_value, {"period": 0}, "period"),
        (seasonal_last_value, {"period": 2.0}, "period"),
        (running_mean, {"dim": -1}, "dim"),
        (least_squares, {"ridge": 0}, "ridge"),
        (least_squares, {"ridge": math.inf}, "ridge"),
        (least_squares, {"features": "all"}, "features"),
        (least_squares, {"rigde": 1.0}, "ridge"),
    ],
)
def test_bad_settings_are_named(maker: Any, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(rk.RegimekitError, match=named):
        maker(**settings)


def test_bad_observations_change_nothing(make: Callable[..., Naive]) -> None:
    model = make()
    model.run([0.1, 0.2])
    before = model.to_bytes()
    for y in (math.inf, [1.0, 2.0], "much"):
        with pytest.raises(rk.RegimekitError, match="y"):
            model.update(y)
    assert model.to_bytes() == before
    line = least_squares(features=rk.features.columns())
    line.update(1.0, [1.0])
    before = line.to_bytes()
    for x in (None, [1.0, 2.0], [math.nan]):
        with pytest.raises(rk.RegimekitError, match="x"):
            line.update(1.0, x)
    assert line.to_bytes() == before


def bad_start(kind: str, rng: np.random.Generator) -> np.ndarray:
    match kind:
        case "staircase":
            return np.repeat(1000.0 * np.arange(10), 5)
        case "ramp":
            return -300.0 * np.arange(60)
        case "burst":
            return 2.0 + 5000.0 * (np.arange(80) % 9 < 4) * rng.standard_normal(80)
        case "units":
            return 1000.0 * (2.0 + 0.3 * rng.standard_normal(70))
    return np.full(90, 1e5)


@pytest.mark.parametrize("kind", ["staircase", "ramp", "burst", "units", "constant"])
@pytest.mark.parametrize("before", [0, 31])  # observations before, for other cuts of the blocks
def test_recovery_from_a_bad_start(make: Callable[..., Naive], kind: str, before: int) -> None:
    rng = np.random.default_rng([7, before])
    ordinary = 2.0 + 0.3 * rng.standard_normal(before + 200)
    y = np.concatenate([ordinary[:before], bad_start(kind, rng), ordinary[before:]])
    run = make().run(y)
    late, width = slice(-100, None), 2 * 1.645 * 0.3
    assert np.mean((run.lower[late] <= y[late]) & (y[late] <= run.upper[late])) >= 0.8
    assert np.median((run.upper - run.lower)[late]) <= 5 * width
    assert np.median(np.abs(run.mean[late] - 2.0)) < 0.6


@pytest.mark.parametrize("name", ["last_value", "running_mean"])
def test_no_break_while_the_model_is_right(name: str) -> None:
    """Over 2000 observations the spread is still that of all errors, here with heavy tails."""
    y = np.random.default_rng(8).standard_t(5, 2000)
    model = MAKERS[name]()
    errors = y - model.run(y).mean
    assert model.spread is not None
    assert model.spread.count[0] == 2000
    assert model.spread.squares[0] == pytest.approx((errors**2).sum())


def test_the_mean_is_that_since_the_break() -> None:
    rng = np.random.default_rng(9)
    y = np.append(1e4 + rng.standard_normal(48), rng.standard_normal(60))
    model = running_mean().fit(y)
    assert isinstance(model, RunningMean)
    assert model.seen[0] == 60
    assert model.predict().mean == pytest.approx(y[48:].mean())
    assert model.regimes()[0].visits == 108


def test_a_break_is_stored(make: Callable[..., Naive]) -> None:
    """A model loaded in the middle of a block breaks at the same time, to the bit."""
    y = np.append(np.full(48, 1e4), np.random.default_rng(10).standard_normal(150))
    model = make().fit(y[:83])
    again = rk.from_bytes(model.to_bytes())
    np.testing.assert_array_equal(model.run(y[83:]).upper, again.run(y[83:]).upper)
    assert model.to_bytes() == again.to_bytes()


@pytest.mark.parametrize(("name", "wrong"), [("visits", 11), ("gain", 1e9), ("gain", None)])
def test_stored_values_of_the_second_fit_are_checked(name: str, wrong: object) -> None:
    model = last_value().fit(np.arange(10.0))
    values, arrays = model._pack()
    with pytest.raises(rk.SnapshotError, match=name):
        last_value()._unpack(values | {name: wrong}, arrays)
    arrays["second_squares"] = np.array([-1.0])
    with pytest.raises(rk.SnapshotError, match="second_squares"):
        last_value()._unpack(values, arrays)
