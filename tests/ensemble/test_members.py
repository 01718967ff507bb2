"""Simple members, scores, aggregation and seasons, each against a computation by hand."""

from __future__ import annotations

import numpy as np
import pytest

from regimekit.distributions.forecast import Forecast
from regimekit.distributions.student_t import t_cdf
from regimekit.ensemble.aggregation import Aggregation
from regimekit.ensemble.design import PRIOR_VARIANCE, Spec, make_filter, prior_weights
from regimekit.ensemble.ensemble import Ensemble
from regimekit.ensemble.members import SMOOTHERS, Components, SimpleMembers
from regimekit.ensemble.seasonality import propose
from regimekit.metrics import crps
from regimekit.preprocessing.lag_buffer import LagBuffer
from regimekit.preprocessing.scaling import COVARIATE_VARIANCE, CovariateScaler

NAMES = list(SMOOTHERS)
NOTHING = np.zeros(0)
PULL = 0.25  # noise scales that a member with little weight may move the mean by


def buffer_of(*values: float, depth: int = 6) -> LagBuffer:
    buffer = LagBuffer(depth, 1)
    for value in values:
        buffer.push(np.array([value]))
    return buffer


def learn(members: SimpleMembers, y: float, trust: float = 0.0, x: np.ndarray = NOTHING) -> None:
    members.update(0, np.array([y]), LagBuffer(8, 1), 0, x, trust)


def components(location: list[float], scale: float, owner: list[int]) -> Components:
    parts = Components(1, len(owner))
    parts.size = len(owner)
    np.asarray(parts.share)[:] = 1.0
    np.asarray(parts.location)[:, 0] = location
    np.asarray(parts.scale)[:, 0] = scale
    np.asarray(parts.dof)[:] = np.inf
    np.asarray(parts.owner)[:] = owner
    return parts


def test_running_mean_and_line_begin_as_least_squares(rng: np.random.Generator) -> None:
    """In full trust the gains are those of the mean and of the line through n points."""
    y = 3.0 + 0.5 * np.arange(12) + rng.standard_normal(12)
    members = SimpleMembers([], 1)
    for value in y:
        learn(members, float(value), trust=1.0)
    level, line = np.asarray(members.level)[0, 0], np.asarray(members.slope)[0, 0]
    assert level[NAMES.index("running mean")] == pytest.approx(y.mean())
    slope, start = np.polyfit(np.arange(12), y, 1)
    j = NAMES.index("slow trend")
    assert line[j] == pytest.approx(slope)
    assert level[j] + line[j] == pytest.approx(start + 12 * slope)
    assert level[NAMES.index("last value")] == y[-1]


def test_least_squares_finds_the_coefficients(rng: np.random.Generator) -> None:
    members = SimpleMembers([Spec("x", columns=(0, 2))], 1)
    for _ in range(400):
        x = rng.standard_normal(2)
        learn(members, 2.0 + x @ [-1.0, 0.5] + 0.1 * rng.standard_normal(), x=x)
    np.testing.assert_allclose(
        np.asarray(members.coefficient)[0, 0, 0], [2.0, -1.0, 0.5], atol=0.03
    )
    assert np.sqrt(members.square_variance[0, 0, 0]) == pytest.approx(0.1, rel=0.3)


@pytest.mark.parametrize("extreme", [1e3, 1e100, 1e300])
def test_an_extreme_value_moves_no_robust_member(extreme: float) -> None:
    members = SimpleMembers([], 1)
    for value in np.tile([-1.0, 1.0], 50):
        learn(members, value)
    level, variance = np.array(members.level)[0, 0], np.array(members.variance)[0, 0]
    learn(members, extreme)
    robust = [j for j, name in enumerate(NAMES) if name != "last value"]
    assert np.abs(np.asarray(members.level)[0, 0] - level)[robust].max() < 1.0
    assert np.isfinite(members.variance).all()
    assert (np.asarray(members.variance)[0, 0] / variance)[robust].max() < 1.2


def test_the_second_state_is_independent(rng: np.random.Generator) -> None:
    """The state under the raw past does not touch that under the cleaned past."""
    members = SimpleMembers([Spec("lag", (1,))], 1)
    for value in rng.standard_normal(20):
        learn(members, value)
    kept = np.array(members.level)[0].copy(), np.array(members.covariance)[0].copy()
    members.copy_state(0, 1)
    members.update(1, np.array([50.0]), buffer_of(1.0), 0, NOTHING, 1.0)
    np.testing.assert_array_equal(np.asarray(members.level)[0], kept[0])
    np.testing.assert_array_equal(np.asarray(members.covariance)[0], kept[1])
    assert np.asarray(members.level)[1, 0, NAMES.index("last value")] == 50.0


def test_designs_of_regimes_and_least_squares_agree() -> None:
    buffer = buffer_of(5.0, 7.0, 4.0)
    lags = buffer.design(0, [1, 2, 3]).ravel()
    np.testing.assert_array_equal(lags, [4.0, 3.0, 1.0])
    spec = Spec("x", (1, 2, 3), (0, 1), squares=True)
    members = SimpleMembers([spec], dim=1)
    assert members.set_row(0, 0, buffer, 0, np.array([9.0])) == 5
    np.testing.assert_array_equal(members.x, [1.0, *lags, 9.0])
    ensemble = Ensemble([spec], [make_filter(spec, 1, 0)], 1, prior_weights)
    ensemble.members[0].set_design(buffer, 0, np.array([9.0]))
    np.testing.assert_array_equal(ensemble.members[0].design, [[1.0, *lags, 9.0]])


def test_a_member_far_away_with_little_weight_pulls_the_mean_by_little() -> None:
    spec = Spec("level")
    ensemble = Ensemble([spec], [make_filter(spec, 1, 0)], 1, prior_weights)
    n = len(ensemble.names)  # the regime model first
    ensemble.parts = components([0.0, 0.0, *[1000.0] * (n - 1)], 1.0, [0, 0, *range(1, n)])
    weight = np.full(n + 1, 0.01)
    weight[0], weight[1] = 0.5, 1.0 - 0.5 - 0.01 * (n - 1)

    def limited() -> np.ndarray:
        np.asarray(ensemble.weight)[: n + 1] = weight
        np.asarray(ensemble.noise)[:] = 1.0
        ensemble.limit_weights()
        return np.array(ensemble.weight)[: n + 1]

    held = limited()
    assert held.sum() == pytest.approx(1.0)
    assert (held[2:] * 1000.0).max() < 1.01 * PULL / (1.0 - 0.01 * n)
    np.asarray(ensemble.parts.owner)[2] = 0  # the same, of a regime: its return may be likely
    assert limited()[2] > 0.009
    np.asarray(ensemble.parts.location)[2:] = 3.0  # near: as it was
    np.testing.assert_allclose(limited(), weight)


def test_losses_are_the_ranked_probability_score() -> None:
    f = Forecast.mixture(np.array([0.3, 0.7]), np.array([-1.0, 0.5]), np.array([1.0, 0.25]))
    parts = components([-1.0, 0.5], 1.0, [0, 0])
    np.asarray(parts.share)[:] = [0.3, 0.7]
    np.asarray(parts.scale)[:, 0] = [1.0, 0.5]
    for y in (-2.0, 0.1, 1.7):
        weights = Aggregation(np.ones(1, bool))
        weights.begin()
        weights.score(parts, 0, y, 0.0, 1.0)
        weights.finish()
        loss, mixed, count = np.asarray(weights.tally)[:, 0]
        assert loss == pytest.approx(crps([f], [y]), rel=0.03)
        assert loss == pytest.approx(mixed, rel=1e-12) and count == 1.0


@pytest.mark.parametrize("dof", [2.0, 3.5, 8.0, 30.0, np.inf])
def test_distribution_function_of_t(dof: float) -> None:
    z = np.linspace(-6, 6, 25)
    truth = Forecast(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)), np.array([dof])).cdf(z)
    tolerance = 1e-14 if np.isinf(dof) or dof == 2.0 else 4e-3
    np.testing.assert_allclose([t_cdf(v, dof) for v in z], truth, atol=tolerance)


def test_aggregation_finds_the_best_combination(rng: np.random.Generator) -> None:
    """Two members biased to either side: the mixture learns to use both, not one."""
    weights = Aggregation(np.ones(3, bool))
    parts = components([-1.0, 1.0, 6.0], 0.5, [0, 1, 2])
    for y in rng.choice([-1.0, 1.0], 600) + 0.5 * rng.standard_normal(600):
        weights.begin()
        weights.score(parts, 0, float(y), 0.0, 1.0)
        weights.finish()
    assert abs(weights.weight[0] - 0.5) < 0.15 and weights.weight[2] < 0.05


def test_aggregation_follows_change_and_newcomers_get_a_chance() -> None:
    weights = Aggregation(np.ones(2, bool))
    for t in range(1200):
        weights.update(np.array([0.1, 0.3]) if t < 600 else np.array([0.3, 0.1]))
    assert weights.weight[1] > 0.9
    weights.regroup(["a", "b"], ["a", "b", "c"], np.ones(3, bool), np.ones(3))
    assert weights.weight[2] > 0.01
    for _ in range(100):
        weights.update(np.array([0.3, 0.1, 0.0]))
    assert weights.weight[2] > 0.8


def test_prior_weights_count_at_first_and_are_forgotten() -> None:
    weights = Aggregation(np.ones(2, bool), np.array([6.0, 1.0]))
    assert weights.weight[0] == pytest.approx(6 / 7)
    for _ in range(600):
        weights.update(np.full(2, 0.2))
    assert weights.weight[0] == pytest.approx(0.5, abs=0.01)


def test_members_that_do_not_forecast_have_no_weight() -> None:
    weights = Aggregation(np.array([True, False, True]))
    weights.update(np.array([0.3, 0.0, 0.3]))
    assert weights.weight[1] == 0.0 and np.sum(weights.weight) == pytest.approx(1.0)


def test_seasons_are_found_and_not_invented(rng: np.random.Generator) -> None:
    t = np.arange(600)
    day = 6 * np.sin(2 * np.pi * t / 24) + rng.standard_normal(600)
    assert propose(day) == [24]
    week = np.array([0, 1, 2, 3, 2, 8, 9.0])[t % 7] * 5 + np.cumsum(0.3 * rng.standard_normal(600))
    assert propose(week)[0] == 7
    day[rng.random(600) < 0.02] += 1e6
    assert propose(day) == [24]
    for quiet in (rng.standard_normal(600), np.cumsum(rng.standard_normal(600)), np.full(600, 7.0)):
        assert propose(quiet) == []
    assert propose(np.full(600, np.nan)) == []


@pytest.mark.parametrize("width", [1, 50])
def test_covariates_together_may_move_y_as_far_as_it_goes(
    width: int, rng: np.random.Generator
) -> None:
    scaler = CovariateScaler(width)
    raw = 1e6 * rng.standard_normal((20_000, width)) - 3e7
    scaler.fit(raw, 7.0, PRIOR_VARIANCE)
    expected = PRIOR_VARIANCE * np.sum(scaler.scaled(raw) ** 2, axis=1).mean()
    assert expected == pytest.approx(COVARIATE_VARIANCE * 7.0**2, rel=0.05)
