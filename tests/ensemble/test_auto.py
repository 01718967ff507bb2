"""`auto` with default settings."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import regimekit as rk
from benchmarks.faults import recovers
from regimekit.ensemble import Auto


def autoregression(rng: np.random.Generator, n: int, phi: float, sd: float = 1.0) -> np.ndarray:
    y = np.zeros(n)
    for t in range(1, n):
        y[t] = phi * y[t - 1] + sd * rng.standard_normal()
    return y


@pytest.fixture(scope="module")
def persistent() -> Auto:
    """A model that has seen 400 values of an AR(1) with coefficient .95 and noise .5."""
    model = rk.auto()
    model.run(autoregression(np.random.default_rng(4), 400, 0.95, 0.5))
    return model


def test_it_is_the_first_model() -> None:
    assert next(iter(rk.models())) == "auto"


def test_other_units_change_nothing(stream: np.ndarray) -> None:
    a, b = rk.auto().run(stream[:80]), rk.auto().run(5e6 + 4096.0 * stream[:80])
    np.testing.assert_array_equal(a.regime, b.regime)
    np.testing.assert_allclose(a.sd[3:] * 4096, b.sd[3:], rtol=1e-4)
    np.testing.assert_allclose(5e6 + 4096 * a.mean[3:], b.mean[3:], rtol=1e-6)


@pytest.mark.parametrize("size", [1e3, 1e9, 1e300])
def test_a_spike_does_not_become_a_lag(persistent: Auto, size: float) -> None:
    model, calm = persistent.copy(), persistent.copy()
    spread = model.predict().sd
    model.update(size)
    calm.update(None)
    assert abs(model.predict().mean - calm.predict().mean) < 3 * spread
    model.update(0.1), calm.update(0.1)
    assert abs(model.predict().mean - calm.predict().mean) < 3 * spread


def test_a_real_jump_is_followed_within_two_observations(persistent: Auto) -> None:
    model = persistent.copy()
    level = model.predict().mean + 20 * 0.5
    for y in (level, level - 0.3):
        model.update(y)
    assert abs(model.predict().mean - level) < 4 * 0.5


def test_spread_grows_with_the_horizon_as_it_should() -> None:
    """The truth is .5, 1.01, 1.28, 1.56; six streams of 400 values know it about this well."""
    logs = []
    for seed in range(6):
        model = rk.auto()
        model.run(autoregression(np.random.default_rng(seed), 400, 0.95, 0.5))
        ahead = model.forecast(30)
        logs.append([np.log(ahead[h - 1].sd) for h in (1, 5, 10, 30)])
    mean = np.exp(np.mean(logs, axis=0))
    np.testing.assert_allclose(mean, [0.5, 1.01, 1.28, 1.56], rtol=0.25)
    assert list(mean) == sorted(mean)


def test_forecasts_of_several_steps_make_a_table(persistent: Auto) -> None:
    ahead = persistent.forecast(30)
    frame = ahead.frame(level=0.8)
    assert list(frame.columns) == ["step", "mean", "median", "lower", "upper", "sd"]
    assert (frame["lower"] < frame["median"]).all() and (frame["median"] < frame["upper"]).all()
    again = persistent.forecast(30)
    assert [f.mean for f in again] == [f.mean for f in ahead]


def test_columns_of_x_are_features(rng: np.random.Generator) -> None:
    x = rng.standard_normal((150, 2)) * [1.0, 1e4] + [0.0, 5e5]
    y = 3.0 * x[:, 0] - 2e-4 * x[:, 1] + 0.2 * rng.standard_normal(150)
    run = rk.auto().run(y, x)
    error = (y - run.mean)[80:]
    assert np.sqrt(np.mean(error**2)) < 0.35
    model = rk.auto()
    model.update(1.0, x[0])
    with pytest.raises(rk.RegimekitError, match="x is missing"):
        model.update(1.0)
    with pytest.raises(rk.RegimekitError, match="came without"):
        plain = rk.auto()
        plain.update(1.0)
        plain.update(2.0, x[0])


def test_regimes_of_many_columns_are_read(rng: np.random.Generator) -> None:
    """What columns explain is no noise, and many of them do not make a new regime unlikely."""
    x = rng.standard_normal((360, 12)) * 50.0
    truth = np.repeat([0, 1, 0], 120)
    slopes = rng.standard_normal((2, 12))
    clean = 900.0 + np.sum(x * slopes[truth], axis=1)
    y = clean + 10.0 * rng.standard_normal(360)
    y[rng.choice(360, 4, replace=False)] += 5e4
    model = rk.auto()
    run = model.run(y, x)
    assert np.median(np.abs(clean - run.mean)[260:]) < 10.0
    assert len(set(run.regime.tolist())) == 2
    assert np.mean(run.regime == truth) > 0.9
    assert model.regimes()[1].mean[1:13] == pytest.approx(slopes[1], abs=0.2)


def test_explicit_features_take_the_place_of_proposals(rng: np.random.Generator) -> None:
    y = np.tile(rng.standard_normal(8), 15) + 0.1 * rng.standard_normal(120)
    model = rk.auto(features=rk.features.intercept() + rk.features.lags(8))
    run = model.run(y)
    assert "regimes, your features" in model.weights
    assert not any("lags 1 to 3" in name or "season" in name for name in model.weights)
    assert np.sqrt(np.mean((y - run.mean)[60:] ** 2)) < 0.3
    with pytest.raises(rk.RegimekitError, match="matrix"):
        rk.auto(features=rk.features.matrix(3))


def test_a_season_is_found_and_explained(rng: np.random.Generator) -> None:
    t = np.arange(220)
    model = rk.auto()
    run = model.run(20 + 6 * np.sin(2 * np.pi * t / 12) + 0.3 * rng.standard_normal(220))
    text = model.explain()
    assert "season of 12" in text and "lags 1, 2, 3, 12, 13" in text
    assert np.sqrt(np.mean((run.mean - 20 - 6 * np.sin(2 * np.pi * t / 12))[150:] ** 2)) < 0.4
    assert set(run.regime.tolist()) == {0}
    assert sum(model.weights.values()) == pytest.approx(1.0)
    assert model.weights["regimes, season lags"] > model.weights["regimes, season"] == 0.0
    assert "Regimes, inferred from the level and spread of the observations: 1" in text
    twin = rk.from_bytes(model.to_bytes())
    assert twin.run([20.0, 25.0]).mean.tolist() == model.run([20.0, 25.0]).mean.tolist()


@pytest.mark.parametrize("size", [50.0, 1000.0])
def test_a_fault_that_lasted_does_not_drag_what_follows(
    rng: np.random.Generator, size: float
) -> None:
    """Twelve values far off are a regime by any evidence; it is remembered and harms nothing."""
    y = np.repeat([-1.0, 1.0, -1.0], 60) + 0.5 * rng.standard_normal(180)
    faulty = y.copy()
    faulty[90:102] += size
    late = slice(126, None)  # two batches after the fault, and later
    errors = [
        float(np.sqrt(np.mean((y - rk.auto().run(seen).mean)[late] ** 2))) for seen in (faulty, y)
    ]
    assert errors[0] < 3.0 * errors[1]


def test_dates_name_the_season(rng: np.random.Generator) -> None:
    """Months are believed to have a season of 12 before two of them have passed."""
    pandas = pytest.importorskip("pandas")
    t = np.arange(36)
    y = 100 + t + 8 * np.sin(2 * np.pi * t / 12) + 0.5 * rng.standard_normal(36)
    dated = rk.auto()
    dated.run(pandas.Series(y, pandas.date_range("2020-01", periods=36, freq="MS"))[:20])
    assert dated.engine is not None and dated.engine.seasons == [12]
    assert dated.settings()["seasons"] == [12]
    again = rk.from_bytes(dated.to_bytes())
    assert again.settings()["seasons"] == [12]
    assert again.predict().mean == dated.predict().mean
    ahead = dated.forecast(3).frame()["time"]
    assert [str(time)[:10] for time in ahead] == ["2021-09-01", "2021-10-01", "2021-11-01"]
    undated = rk.auto()
    undated.run(y[:20])
    assert undated.engine is not None and undated.engine.seasons == []
    assert undated.settings()["seasons"] is None


def test_a_season_that_is_named_and_not_there_is_not_used() -> None:
    """Of 20 streams of noise at most 8 take it; chance takes 3 (false alarms below 1 in 50)."""
    taken = 0
    for seed in range(20):
        model = rk.auto(seasons=12)
        model.run(np.random.default_rng(seed).standard_normal(40))
        assert model.engine is not None
        taken += bool(model.engine.seasons)
    assert taken <= 8


def test_seasons_are_whole_numbers_and_stand_alone() -> None:
    with pytest.raises(rk.RegimekitError, match="seasons must be a whole number"):
        rk.auto(seasons=[7.5])
    with pytest.raises(rk.RegimekitError, match="seasons must be at least 2"):
        rk.auto(seasons=1)
    with pytest.raises(rk.RegimekitError, match="features are given"):
        rk.auto(seasons=12, features=rk.features.lags(1))
    assert rk.auto(seasons=[168, 24]).settings()["seasons"] == [24, 168]


def test_levels_are_read_as_regimes(rng: np.random.Generator) -> None:
    truth = np.repeat([0, 1, 0, 1], 70)
    y = 1e4 + 300 * (8.0 * truth + rng.standard_normal(280))
    model = rk.auto()
    run = model.run(y)
    assert [e.kind for e in run.events if e.kind != "outlier"] == [
        "regime opened",
        "regime opened",
        "regime returned",
        "regime returned",
    ]
    assert np.mean(run.regime == truth) > 0.8
    means = [regime.mean[0] for regime in model.regimes()]
    np.testing.assert_allclose(means, [1e4, 1e4 + 2400], atol=150)
    assert "inferred from the level and spread" in model.explain()


def test_a_regime_feature_of_ones_own(rng: np.random.Generator) -> None:
    x = rng.standard_normal((160, 1))
    slope = np.repeat([2.0, -2.0], 80)
    y = slope * x[:, 0] + 0.1 * rng.standard_normal(160)
    run = rk.auto(regime_features=rk.features.columns()).run(y, x)
    assert run.regime[-1] == 1 and run.regime[70] == 0


def test_vectors(rng: np.random.Generator) -> None:
    y = np.column_stack([rng.standard_normal(70), 1e4 * rng.standard_normal(70) - 3e5])
    model = rk.auto()
    run = model.run(y)
    assert run.mean.shape == (70, 2)
    inside = ((run.lower < y) & (y < run.upper))[20:].mean()
    assert 0.8 < inside < 1.0
    ahead = model.forecast(4)
    assert ahead[3].mean.shape == (2,) and "mean_1" in ahead.frame().columns
    assert "Units" in model.explain()


def test_each_warning_is_emitted_once() -> None:
    stamps = 1_700_000_000.0 + 60.0 * np.arange(30)
    with pytest.warns(UserWarning, match="time stamp"):
        model = rk.auto()
        model.run(stamps[:25])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.run(stamps[25:])
    assert rk.auto().explain().startswith("auto has no observations")


def test_the_second_forecast_has_a_wide_interval() -> None:
    held = 0
    for seed in range(10):
        first, second = np.random.default_rng(seed).normal(500.0, 8.0, 2)
        model = rk.auto(seed=seed)
        model.update(first)
        low, high = model.predict().interval(0.9)
        held += low <= second <= high
    assert held == 10  # a band as wide as a tenth of the level: 6 sd and more


def test_a_huge_value_in_one_of_two_coordinates_kills_nothing() -> None:
    """The chance that it was real is 0 in floats; what the raw past says is asked all the same."""
    rng = np.random.default_rng(0)
    model = rk.auto(features=rk.features.lags(1, 2))
    for t in range(60):
        y = rng.standard_normal(2)
        y[t % 2] = {15: -1.7e308, 30: 1e300, 31: -1e300, 45: 1e155}.get(t, y[t % 2])
        model.update(y)
    assert np.abs(model.predict().median).max() < 4


def same(one: rk.Step, other: rk.Step) -> bool:
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("dim", [1, 2])
def test_run_and_update_give_identical_results(rng: np.random.Generator, dim: int) -> None:
    """A season, spikes and missing values; also after the state went through bytes."""
    t = np.arange(140)
    y = 5.0 * np.sin(2 * np.pi * t / 12)[:, None] + rng.standard_normal((140, dim))
    y[[40, 90]] += 30.0
    y[60:63] = np.nan
    whole, single = rk.auto(), rk.auto()
    run = whole.run(y if dim > 1 else y[:, 0])
    steps = []
    for row in y:
        forecast = single.predict()
        steps.append((forecast, single.update(row if dim > 1 else row[0])))
    assert [step.regime for _, step in steps] == run.regime.tolist()
    np.testing.assert_array_equal([step.log_score for _, step in steps], run.log_score)
    np.testing.assert_array_equal([step.weight for _, step in steps], run.weight)
    later = [forecast.mean for forecast, _ in steps[1:]]  # before the first the dimension is open
    np.testing.assert_allclose(later, run.mean[1:], rtol=1e-13)
    assert [event for _, step in steps for event in step.events] == run.events
    again = rk.from_bytes(whole.to_bytes())
    for row in y[:30]:
        value = row if dim > 1 else row[0]
        assert same(again.update(value), whole.update(value))


def test_predict_changes_nothing_and_forecasts_do_not_either(rng: np.random.Generator) -> None:
    x = rng.standard_normal((60, 2))
    y = x[:, 0] + 0.1 * rng.standard_normal(60)
    asked, plain = rk.auto(), rk.auto()
    for t in range(60):
        asked.predict(x[t - 1])
        if t % 20 == 19:
            asked.forecast(4, x[:4])
        assert same(asked.update(y[t], x[t]), plain.update(y[t], x[t]))


@pytest.mark.parametrize("kind", ["equal", "jitter", "half", "lattice", "drift"])
@pytest.mark.parametrize("length", [24, 60])
def test_a_stuck_sensor_makes_no_interval_explode(kind: str, length: int) -> None:
    """No interval is wider than the range of the past; afterwards most values are covered again."""
    rng = np.random.default_rng(0)
    first, n = 216, 216 + length + 100
    y = 35 + 5 * np.sin(2 * np.pi * np.arange(n) / 24) + 0.9 * rng.normal(size=n)
    stuck, usual = y[first - 1], y[first : first + length]
    y[first : first + length] = {
        "equal": np.full(length, stuck),
        "jitter": stuck + 0.0005 * rng.normal(size=length),
        "half": np.where(rng.random(length) < 0.5, stuck, usual),
        "lattice": np.round(stuck) + 0.001 * rng.integers(-1, 2, length),
        "drift": stuck + 1e-6 * np.arange(length),
    }[kind]
    model = rk.auto()
    run = model.run(y)
    assert (run.upper - run.lower)[40:].max() < 1.2 * np.ptp(y)
    inside = (run.lower <= y) & (y <= run.upper)
    assert inside[first + length + 20 :].mean() > 0.7
    assert model.engine.scaling.scale[0] > 0.3


@pytest.mark.parametrize("seed", [5, 7, 28])
def test_the_mean_recovers_from_a_staircase(seed: int) -> None:
    """A level member whose regimes are all far away does not pull the mean."""
    assert recovers("auto", "staircase", seed) == (True, True)


def test_no_interval_is_much_wider_than_the_range_of_the_past() -> None:
    """Steps of a millionth for 400 observations, then noise again: units change twice."""
    rng = np.random.default_rng(1)
    y = 35 + 5 * np.sin(2 * np.pi * np.arange(716) / 24) + 0.9 * rng.normal(size=716)
    y[216:616] = y[215] + 1e-6 * np.arange(400)
    run = rk.auto().run(y)
    assert (run.upper - run.lower)[100:].max() < 3 * np.ptp(y)
