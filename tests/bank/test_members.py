"""Simple members, the two pasts, seasons, mixing: each against what it should be by hand."""

from __future__ import annotations

import numpy as np
import pytest

from regimekit.distributions.forecast import Forecast
from regimekit.ensemble import crps_grid as scores
from regimekit.ensemble import smoothing as simple
from regimekit.ensemble.aggregation import Mixer
from regimekit.ensemble.design import GENEROUS, Scaler
from regimekit.ensemble.ensemble import PULL, Ensemble
from regimekit.ensemble.members import PRIOR, Parts, SimpleMembers, Spec
from regimekit.ensemble.seasonality import propose
from regimekit.ensemble.shared_lags import SharedPast
from regimekit.metrics import crps
from regimekit.preprocessing.lag_buffer import CLEAN, RAW, unmoved, weighted_median

NAMES = list(simple.SMOOTHERS)


def test_running_mean_and_line_begin_as_least_squares(rng: np.random.Generator) -> None:
    """In full trust the gains are those of the mean and of the line through n points."""
    y = 3.0 + 0.5 * np.arange(12) + rng.standard_normal(12)
    state = simple.smoothers()
    for value in y:
        simple.learn(state, float(value), trust=1.0)
    assert state.level[NAMES.index("running mean")] == pytest.approx(y.mean())
    slope, level = np.polyfit(np.arange(12), y, 1)
    j = NAMES.index("slow trend")
    assert state.slope[j] == pytest.approx(slope)
    assert state.level[j] + state.slope[j] == pytest.approx(level + 12 * slope)
    assert state.level[NAMES.index("last value")] == y[-1]


def test_least_squares_finds_the_coefficients(rng: np.random.Generator) -> None:
    state = simple.squares(3)
    for _ in range(400):
        x = np.r_[1.0, rng.standard_normal(2)]
        y = float(x @ [2.0, -1.0, 0.5] + 0.1 * rng.standard_normal())
        simple.regress(state, x, y, 0.0, simple.FORGET)
    np.testing.assert_allclose(state.theta, [2.0, -1.0, 0.5], atol=0.03)
    assert np.sqrt(state.variance[0]) == pytest.approx(0.1, rel=0.3)


@pytest.mark.parametrize("extreme", [1e3, 1e100, 1e300])
def test_an_extreme_value_moves_no_robust_member(extreme: float) -> None:
    state = simple.smoothers()
    for value in np.tile([-1.0, 1.0], 50):
        simple.learn(state, value)
    level, variance = state.level.copy(), state.variance.copy()
    simple.learn(state, extreme)
    robust = [j for j, name in enumerate(NAMES) if name != "last value"]
    assert np.abs(state.level - level)[robust].max() < 1.0
    assert np.isfinite(state.variance).all()
    assert (state.variance / variance)[robust].max() < 1.2


def test_designs_of_regimes_and_least_squares_agree() -> None:
    past = SharedPast(6, 1)
    for value in (5.0, 7.0, 4.0):
        past.push(np.array([value]), np.array([value]))
    lags = past.design(CLEAN, np.array([1, 2, 3])).ravel()
    np.testing.assert_array_equal(lags, [4.0, 3.0, 1.0])
    members = SimpleMembers([Spec("x", (1, 2, 3), (0, 1))], dim=1)
    np.testing.assert_array_equal(
        members._rows(past, CLEAN, np.array([9.0])), [[[1.0, *lags, 9.0]]]
    )


def test_a_lag_from_before_the_first_value_says_nothing() -> None:
    past = SharedPast(6, 1)
    for value in (5.0, 7.0):
        past.push(np.array([value]), np.array([value]))
    lags = past.design(CLEAN, np.array([1, 2, 4])).ravel()
    np.testing.assert_array_equal(lags, [7.0, -2.0, 0.0])


def test_a_faint_member_far_away_pulls_the_mean_by_little() -> None:
    ensemble = Ensemble([Spec("level")], 1, 0)
    n = len(ensemble.names)  # the regime model first
    parts = Parts(
        np.ones(n + 1),
        np.array([[0.0], [0.0], *[[1000.0]] * (n - 1)]),
        np.ones((n + 1, 1, 1)),
        np.full(n + 1, 8.0),
        np.array([0, 0, *range(1, n)]),
    )
    weight = np.full(n + 1, 0.01)
    weight[0], weight[1] = 0.5, 1.0 - 0.5 - 0.01 * (n - 1)
    held = ensemble._held_back(parts, weight, np.ones(1))
    assert held.sum() == pytest.approx(1.0)
    assert (held[2:] * 1000.0).max() < 1.01 * PULL / (1.0 - 0.01 * n)
    parts.owner[2] = 0  # the same, of a regime: its return may be likely
    assert ensemble._held_back(parts, weight, np.ones(1))[2] > 0.009
    parts.location[2:] = 3.0  # near: as it was
    np.testing.assert_allclose(ensemble._held_back(parts, weight, np.ones(1)), weight)


def test_weighted_median() -> None:
    location = np.array([[3.0, 0.0], [1.0, 5.0], [2.0, 9.0]])
    assert weighted_median(location, np.array([0.2, 0.2, 0.6])).tolist() == [2.0, 9.0]
    assert weighted_median(location, np.array([0.6, 0.2, 0.2])).tolist() == [3.0, 0.0]


@pytest.mark.parametrize("error", [30.0, 100.0, 1e3, 1e9, 1e300])
def test_a_spike_cannot_pull_the_forecast_far(error: float) -> None:
    """P(real) times the error is small for every error."""
    past = SharedPast(4, 1)
    past.doubt(np.zeros(1), np.array([error]), error, rate=0.02)
    assert past.p_raw * min(error, 1e6) < 3.0


def test_the_next_value_decides_and_experience_counts() -> None:
    past = SharedPast(4, 1)
    first = 0.0
    for turn in range(20):
        past.doubt(np.zeros(1), np.array([20.0]), 20.0, rate=0.02)
        first = first or past.p_raw
        assert past.decide(log_clean=-12.0, log_raw=-1.0) == RAW, turn
        assert past.values[CLEAN, -1, 0] == 20.0 and not past.pending
    past.doubt(np.zeros(1), np.array([20.0]), 20.0, rate=0.02)
    assert past.p_raw > 3 * first  # here large errors stay
    assert past.decide(log_clean=-1.0, log_raw=-12.0) == CLEAN
    assert past.values[RAW, -1, 0] == 0.0


def test_losses_are_the_ranked_probability_score() -> None:
    f = Forecast.mixture(np.array([0.3, 0.7]), np.array([-1.0, 0.5]), np.array([1.0, 0.25]))
    nodes = scores.grid(0.0, 1.0)
    out = np.zeros((1, nodes.size))
    scale = np.sqrt(f.spread[:, 0, 0])
    owner = np.zeros(2, np.int64)
    scores.distribution_functions(nodes, f.share, f.location[:, 0].copy(), scale, f.dof, owner, out)
    loss, gradient = np.zeros(1), np.zeros(1)
    for y in (-2.0, 0.1, 1.7):
        total = scores.ranked_losses(nodes, out, y, np.ones(1), loss, gradient)
        assert loss[0] == pytest.approx(crps([f], [y]), rel=0.03) == total


@pytest.mark.parametrize("dof", [2.0, 3.5, 8.0, 30.0, np.inf])
def test_distribution_function_of_t(dof: float) -> None:
    z = np.linspace(-6, 6, 25)
    truth = Forecast(np.ones(1), np.zeros((1, 1)), np.ones((1, 1, 1)), np.array([dof])).cdf(z)
    np.testing.assert_allclose([scores.t_cdf(v, dof) for v in z], truth, atol=4e-3)


def test_mixing_finds_the_best_combination(rng: np.random.Generator) -> None:
    """Two members biased to either side: the mixture learns to hold both, not one."""
    mixer = Mixer(np.ones(3, bool))
    nodes = scores.grid(0.0, 1.0)
    f = np.zeros((3, nodes.size))
    location, scale = np.array([-1.0, 1.0, 6.0]), np.full(3, 0.5)
    args = (np.ones(3), location, scale, np.full(3, np.inf), np.arange(3), f)
    scores.distribution_functions(nodes, *args)
    loss, gradient = np.zeros(3), np.zeros(3)
    for y in rng.choice([-1.0, 1.0], 600) + 0.5 * rng.standard_normal(600):
        scores.ranked_losses(nodes, f, float(y), mixer.weight, loss, gradient)
        mixer.learn(gradient)
    assert abs(mixer.weight[0] - 0.5) < 0.15 and mixer.weight[2] < 0.05


def test_mixing_follows_change_and_newcomers_get_a_chance() -> None:
    mixer = Mixer(np.ones(2, bool))
    for t in range(1200):
        mixer.learn(np.array([0.1, 0.3]) if t < 600 else np.array([0.3, 0.1]))
    assert mixer.weight[1] > 0.9
    mixer.regroup(["a", "b"], ["a", "b", "c"], np.ones(3, bool), np.ones(3))
    assert mixer.weight[2] > 0.01
    for _ in range(100):
        mixer.learn(np.array([0.3, 0.1, 0.0]))
    assert mixer.weight[2] > 0.8


def test_what_is_known_beforehand_counts_at_first_and_is_forgotten() -> None:
    mixer = Mixer(np.ones(2, bool), np.array([6.0, 1.0]))
    assert mixer.weight[0] == pytest.approx(6 / 7)
    for _ in range(600):
        mixer.learn(np.full(2, 0.2))
        mixer.count(np.full(2, 0.2), 0.2)
    assert mixer.weight[0] == pytest.approx(0.5, abs=0.01)


def test_nothing_follows_a_spike() -> None:
    """A regime that believed it is faint but far away, and must not drag the mean along."""
    share, location = np.array([0.9, 0.06, 0.04, 1.0]), np.array([[0.0], [150.0], [-3.0], [1.0]])
    owner = np.array([0, 0, 0, 1])
    assert unmoved(share, location, owner, np.array([200.0])).tolist() == [True, False, True, True]
    assert unmoved(share, location, owner, np.array([1e300])).all()


def test_members_that_only_watch_have_no_weight() -> None:
    mixer = Mixer(np.array([True, False, True]))
    mixer.learn(np.array([0.3, 0.0, 0.3]))
    assert mixer.weight[1] == 0.0 and mixer.weight.sum() == pytest.approx(1.0)


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
    scaler = Scaler(width)
    raw = 1e6 * rng.standard_normal((20_000, width)) - 3e7
    scaler.learn(raw, spread_of_y=7.0)
    believed = PRIOR * np.sum(scaler.scaled(raw) ** 2, axis=1).mean()
    assert believed == pytest.approx(GENEROUS * 7.0**2, rel=0.05)
