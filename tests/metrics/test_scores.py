"""Scores against definitions, quadrature and simulation; prequential runs and oracles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy import stats

import regimekit as rk
from regimekit import datasets as data
from regimekit import metrics as evaluate
from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.distributions.forecast import Forecast
from regimekit.results import Run, Step

Array = NDArray[np.float64]
NAN = float("nan")


def random_mixture(rng: np.random.Generator, dofs: list[float]) -> Forecast:
    k = int(rng.integers(1, 6))
    return Forecast.mixture(
        rng.dirichlet(np.ones(k)),
        5 * rng.normal(size=k),
        np.exp(2 * rng.normal(size=k)),
        rng.choice(dofs, k),
    )


class TestPointErrors:
    def test_by_hand(self) -> None:
        assert evaluate.rmse([0.0, 0.0], [3.0, 4.0]) == math.sqrt(12.5)
        assert evaluate.mae([0.0, 0.0], [3.0, -4.0]) == 3.5

    def test_missing_values_are_skipped(self) -> None:
        assert evaluate.rmse([0.0, NAN, 0.0], [3.0, 1e9, 4.0]) == math.sqrt(12.5)
        assert math.isnan(evaluate.rmse([NAN], [1.0]))
        assert math.isnan(evaluate.mae([], []))

    def test_coordinates_are_averaged(self) -> None:
        y = np.zeros((2, 2))
        mean = np.array([[3.0, 1.0], [3.0, 1.0]])
        assert evaluate.rmse(y, mean) == 2.0
        assert evaluate.mae(y, mean) == 2.0

    def test_shapes_must_agree(self) -> None:
        with pytest.raises(RegimekitError, match="mean"):
            evaluate.rmse([1.0, 2.0], [1.0])
        with pytest.raises(RegimekitError, match="upper"):
            evaluate.coverage([1.0], [0.0], [1.0, 2.0])

    @pytest.mark.parametrize("window", [1, 3, 50])
    def test_rolling_is_the_rmse_of_each_window(self, window: int) -> None:
        rng = np.random.default_rng(0)
        y, mean = rng.normal(size=(40, 2)), rng.normal(size=(40, 2))
        y[rng.random(y.shape) < 0.2] = NAN
        y[5:9] = NAN
        slow = [
            evaluate.rmse(y[max(t - window + 1, 0) : t + 1], mean[max(t - window + 1, 0) : t + 1])
            for t in range(40)
        ]
        np.testing.assert_allclose(evaluate.rolling_rmse(y, mean, window), slow, rtol=1e-12)

    def test_rolling_forgets_an_extreme_error_completely(self) -> None:
        errors = np.ones(20)
        errors[3] = 1e140
        assert evaluate.rolling_rmse(errors, window=4)[7:].tolist() == [1.0] * 13

    def test_cumulative_ends_at_the_rmse(self) -> None:
        rng = np.random.default_rng(1)
        y, mean = rng.normal(size=30), rng.normal(size=30)
        y[4] = NAN
        curve = evaluate.cumulative_rmse(y, mean)
        assert curve[-1] == pytest.approx(evaluate.rmse(y, mean), rel=1e-12)
        assert curve[9] == pytest.approx(evaluate.rmse(y[:10], mean[:10]), rel=1e-12)

    def test_coverage_counts_observed_values(self) -> None:
        y = [0.0, 2.0, NAN, 1.0]
        assert evaluate.coverage(y, [-1.0] * 4, [1.0] * 4) == pytest.approx(2 / 3)


class TestLookahead:
    def test_horizon_one_is_the_mae(self) -> None:
        rng = np.random.default_rng(2)
        y, mean = rng.normal(size=25), rng.normal(size=25)
        assert evaluate.lookahead_mae(y, mean, 1) == pytest.approx(evaluate.mae(y, mean))

    def test_by_hand_with_a_short_end_and_a_gap(self) -> None:
        y = [1.0, NAN, 3.0]
        # windows of two: (1), (3), (3)
        assert evaluate.lookahead_mae(y, [0.0, 0.0, 0.0], 2) == pytest.approx((1 + 3 + 3) / 3)

    def test_following_a_spike_costs_more_than_ignoring_it(self) -> None:
        y = np.zeros(50)
        y[20] = 10.0
        followed = np.zeros(50)
        followed[21:31] = 10.0
        ignored = evaluate.lookahead_mae(y, np.zeros(50))
        assert ignored == pytest.approx(10 * 1.0 / 50)  # ten windows hold it, each a tenth
        assert evaluate.lookahead_mae(y, followed) > 9 * ignored


class TestDistribution:
    def test_pit_is_uniform_on_well_specified_data(self) -> None:
        # Kolmogorov-Smirnov at level 1e-4: false alarm 1e-4
        rng = np.random.default_rng(7)
        forecasts = [random_mixture(rng, [2.5, 5.0, math.inf]) for _ in range(1500)]
        y = np.array([float(f.sample(1, rng)[0]) for f in forecasts])
        y[::10] = NAN
        values = evaluate.pit(forecasts, y)
        assert values.size == 1350
        reference = stats.kstest(values, "uniform")
        assert reference.pvalue > 1e-4
        assert evaluate.pit_distance(values) == pytest.approx(reference.statistic)
        narrow = [Forecast.mixture(f.share, f.location, f.spread / 9, f.dof) for f in forecasts]
        assert evaluate.pit_distance(evaluate.pit(narrow, y)) > 2 * evaluate.pit_distance(values)

    def test_intervals_cover_what_they_say(self) -> None:
        # 4 standard errors of a binomial share: false alarm below 1e-4
        rng = np.random.default_rng(8)
        forecasts = [random_mixture(rng, [3.0, math.inf]) for _ in range(1000)]
        y = np.array([float(f.sample(1, rng)[0]) for f in forecasts])
        lower, upper = np.array([f.interval(0.8) for f in forecasts]).T
        assert abs(evaluate.coverage(y, lower, upper) - 0.8) < 4 * math.sqrt(0.8 * 0.2 / 1000)

    def test_log_score_is_the_mean_log_density(self) -> None:
        forecasts = [Forecast.gaussian(0.0, 1.0), Forecast.gaussian(1.0, 4.0)]
        expected = (stats.norm.logpdf(0.5) + stats.norm.logpdf(3.0, 1.0, 2.0)) / 2
        assert evaluate.log_score(forecasts, [0.5, 3.0]) == pytest.approx(expected)
        assert evaluate.log_score(forecasts, [0.5, NAN]) == pytest.approx(stats.norm.logpdf(0.5))

    def test_ess(self) -> None:
        assert evaluate.ess(np.full(8, -1e5)) == pytest.approx(8.0)
        assert evaluate.ess([0.0, -math.inf, -math.inf]) == pytest.approx(1.0)
        weights = np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])
        with np.errstate(divide="ignore"):
            sizes = evaluate.ess(np.log(weights))
        np.testing.assert_allclose(sizes, [1 / 0.375, 1.0])


class Level(Model):
    """Running mean with a Gaussian forecast: a model small enough to check by eye."""

    name = "level"

    def __init__(self) -> None:
        self.total = np.zeros(1)
        self.count = 0

    def settings(self) -> dict[str, Any]:
        return {}

    @classmethod
    def _make(cls, settings: dict[str, Any]) -> Level:
        return cls(**settings)

    def _check(self, x: Any) -> Any:
        return x

    def _predict(self, x: Any) -> Forecast:
        mean = self.total / max(self.count, 1)
        return Forecast.gaussian(mean, np.eye(mean.size) * 2.0)

    def _observe(self, y: Array, x: Any) -> tuple[Forecast, Step]:
        self.total = np.broadcast_to(self.total, y.shape).copy()
        self.dim = y.size
        forecast = self._predict(x)
        point = y[0] if y.size == 1 else y
        score = forecast.log_density(point)
        if not np.isnan(y).any():
            self.total += y
            self.count += 1
        return forecast, Step(regime=int(self.count > 10), log_score=score)

    def _pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        return {"count": self.count}, {"total": self.total}

    def _unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.count, self.total = values["count"], arrays["total"]


class OwnRun(Level):
    """A model that overrides `run`, as `auto` did to read dates."""

    name = "own_run"

    def run(self, y: Any, X: Any = None, progress: bool = False, level: float = 0.9) -> Run:
        return super().run(y, X, progress, level)


class WithoutForecasts(Level):
    """A model that calls no callbacks, as an offline fit does."""

    name = "without_forecasts"

    def _run(self, series: Any, table: Any, recorder: Any, progress: bool, callbacks: Any) -> Run:
        return super()._run(series, table, recorder, progress, ())


class TestPrequential:
    def stream(self) -> Array:
        y = np.random.default_rng(9).normal(3.0, 1.0, 300)
        y[[20, 21, 150]] = NAN
        return y

    def test_is_the_run_of_the_model(self) -> None:
        y = self.stream()
        result, run = evaluate.prequential(Level(), y), Level().run(y)
        for name in ("mean", "sd", "lower", "upper", "log_score", "path"):
            np.testing.assert_array_equal(getattr(result.run, name), getattr(run, name))
        np.testing.assert_allclose(result.log_scores, run.log_score)

    def test_scores_by_definition(self) -> None:
        y = self.stream()
        result = evaluate.prequential(Level(), y, period=7)
        table, run = result.scores(), result.run
        forecasts = [Forecast.gaussian(m, 2.0) for m in run.mean]
        assert table["rmse"] == evaluate.rmse(y, run.mean)
        assert table["mae"] == evaluate.mae(y, run.mean)
        assert table["crps"] == pytest.approx(evaluate.crps(forecasts, y))
        assert table["log_score"] == pytest.approx(evaluate.log_score(forecasts, y))
        assert table["coverage"] == evaluate.coverage(y, run.lower, run.upper)
        expected = evaluate.pit_distance(evaluate.pit(forecasts, y))
        assert table["pit_distance"] == pytest.approx(expected)
        assert (table["n_regimes"], table["switches"]) == (2, 1)
        assert table["seconds_per_observation"] > 0
        assert result.pit_histogram(8).sum() == pytest.approx(1.0)

    def test_trivial_forecasts_stand_beside(self) -> None:
        y = self.stream()
        result = evaluate.prequential(Level(), y, period=7)
        # the model is the running mean, so the two must agree everywhere
        np.testing.assert_allclose(result.trivial["running_mean"][:, 0], result.run.mean)
        last = result.trivial["last_value"][:, 0]
        assert last[0] == result.run.mean[0]
        assert last[22] == y[19]
        assert last[100] == y[99]
        seasonal = result.trivial["seasonal_last_value"][:, 0]
        assert seasonal[100] == y[93]
        assert seasonal[27] == y[13]  # y[20] is missing: the value one period before it
        assert seasonal[3] == y[2]
        table = result.scores()
        assert table["rmse_last_value"] == pytest.approx(evaluate.rmse(y, last))
        assert table["mae_seasonal_last_value"] == pytest.approx(evaluate.mae(y, seasonal))

    def test_clean_is_what_is_scored(self) -> None:
        clean = self.stream()
        y, _ = data.contaminate(clean, "isolated", 0, size=50.0)
        result = evaluate.prequential(Level(), y, clean=clean)
        table, run = result.scores(), Level().run(y)
        assert table["rmse"] == evaluate.rmse(clean, run.mean)
        forecasts = [Forecast.gaussian(m, 2.0) for m in run.mean]
        assert table["log_score"] == pytest.approx(evaluate.log_score(forecasts, clean))
        # the trivial forecasters see the contaminated stream as well
        last = evaluate.last_value(y)
        last[0] = run.mean[0]
        assert table["rmse_last_value"] == pytest.approx(evaluate.rmse(clean, last))

    def test_skip_leaves_the_start_unscored(self) -> None:
        y = self.stream()
        result = evaluate.prequential(Level(), y, skip=100)
        assert len(result.run) == 300
        assert result.scores()["rmse"] == evaluate.rmse(y[100:], result.run.mean[100:])
        assert result.scores()["switches"] == 0

    def test_several_coordinates(self) -> None:
        y = np.random.default_rng(10).normal(size=(80, 3))
        y[5, 1] = NAN
        result = evaluate.prequential(Level(), y)
        assert result.crps.shape == result.pit.shape == (80, 3)
        assert result.scores()["rmse"] == evaluate.rmse(y, result.run.mean)

    def test_an_empty_stream_has_no_scores(self) -> None:
        table = evaluate.prequential(Level(), []).scores()
        assert math.isnan(table["rmse"])
        assert math.isnan(table["crps"])
        assert table["switches"] == 0

    def test_a_model_that_overrides_run_is_scored_in_full(self) -> None:
        y = self.stream()
        found, expected = (evaluate.prequential(m, y).scores() for m in (OwnRun(), Level()))
        for name in ("rmse", "log_score", "crps", "coverage", "pit_distance"):
            assert found[name] == expected[name]

    def test_auto_is_scored_in_full(self, stream: Array) -> None:
        y = stream[:60]
        result, model = evaluate.prequential(rk.auto(), y), rk.auto()
        crps, pit = [], []
        for value in y:
            forecast = model.predict()
            crps.append(evaluate.crps([forecast], [value]))
            pit.append(forecast.cdf(value))
            model.update(value)
        seen = ~np.isnan(y)
        np.testing.assert_allclose(result.crps[seen, 0], np.array(crps)[seen], rtol=1e-6)
        np.testing.assert_allclose(result.pit[seen, 0], np.array(pit)[seen], rtol=1e-6)
        assert evaluate.calibration(evaluate.run_with_pit(rk.auto(), y)[1]).n == seen.sum()

    def test_auto_reads_dates_in_a_prequential_run(self, stream: Array) -> None:
        hours = pd.date_range("2024-01-01", periods=60, freq="h")
        model = rk.auto()
        evaluate.prequential(model, pd.Series(stream[:60], hours))
        assert model.lineup.seasons == (24, 168)

    def test_without_forecasts_only_the_run_is_scored(self) -> None:
        y = self.stream()
        table = evaluate.prequential(WithoutForecasts(), y).scores()
        assert table["rmse"] == evaluate.rmse(y, Level().run(y).mean)
        expected = evaluate.prequential(Level(), y).scores()["log_score"]
        assert table["log_score"] == pytest.approx(expected)
        assert math.isnan(table["crps"])
        assert math.isnan(table["pit_distance"])

    def test_errors_name_the_argument_and_change_nothing(self) -> None:
        model, y = Level(), self.stream()
        for settings, match in (
            ({"skip": 300}, "skip"),
            ({"clean": y[:5]}, "clean"),
            ({"level": 1.0}, "level"),
            ({"X": np.ones((3, 1))}, "X has"),
        ):
            with pytest.raises(RegimekitError, match=match):
                evaluate.prequential(model, y, **settings)
        with pytest.raises(RegimekitError, match="infinite"):
            evaluate.prequential(model, [1.0, math.inf])
        assert model.count == 0
        with pytest.raises(RegimekitError, match="period"):
            evaluate.last_value(y, period=0)


class TestOracle:
    def test_is_bayesian_regression_per_regime(self) -> None:
        stream = data.synthetic_regression(seed=0, n=200, dim=4, stay=0.95)
        reference = evaluate.oracle(stream, noise=0.7, prior_var=2.0)
        t = 180
        mine = (stream.regimes[:t] == stream.regimes[t]) & ~stream.outliers[:t]
        X, y = stream.X[:t][mine], stream.y[:t][mine]
        precision = X.T @ X / 0.7 + np.eye(4) / 2.0
        mean = np.linalg.solve(precision, X.T @ y / 0.7)
        x = stream.X[t]
        assert reference.mean[t] == pytest.approx(x @ mean, rel=1e-9)
        assert reference.sd[t] ** 2 == pytest.approx(
            0.7 + x @ np.linalg.solve(precision, x), rel=1e-9
        )

    def test_an_intercept_alone_learns_the_levels(self) -> None:
        stream = data.iid_regimes(seed=1)
        reference = evaluate.oracle(stream, noise=0.25, prior_var=4.0)
        # noise sd 0.5; 4 standard errors of a sample sd plus the cost of learning three levels
        error = evaluate.rmse(stream.clean, reference.mean)
        assert abs(error - 0.5) < 4 * 0.5 / math.sqrt(2 * 1180) + 0.02
        assert evaluate.crps(reference.forecasts(), stream.clean) < error

    def test_learning_a_hundred_coefficients_is_most_of_the_error(self) -> None:
        # sum over n < 100 of (100 - n) for each of three regimes, noise and its echo on top:
        # between 2.2 (the learning alone) and 3.5
        stream = data.synthetic_regression(seed=0, signal_sd=10.0)
        error = evaluate.rmse(stream.clean, evaluate.oracle(stream, noise=1.0).mean)
        assert 2.2 < error < 3.5

    def test_several_coordinates_and_gaps(self) -> None:
        one = data.iid_regimes(seed=2, n=100)
        y = np.column_stack([one.y, one.y])
        y[7, 0] = NAN
        both = data.Dataset(y=y, regimes=one.regimes, outliers=one.outliers)
        reference = evaluate.oracle(both, noise=0.25)
        np.testing.assert_allclose(reference.mean[:, 0], reference.mean[:, 1])
        assert reference.mean[8, 0] != pytest.approx(one.y[7])
        assert reference.forecasts()[0].dim == 2

    def test_needs_the_truth(self) -> None:
        with pytest.raises(RegimekitError, match="true regimes"):
            evaluate.oracle(data.Dataset(y=np.zeros(3)), noise=1.0)
