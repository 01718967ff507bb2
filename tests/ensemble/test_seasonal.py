"""Seasons: found early if a calendar has them, averaged, removed before regimes are inferred."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

import regimekit as rk
from regimekit.ensemble.design import Lineup, Spec, make_filter
from regimekit.ensemble.members import (
    MEAN_SEASONS,
    SEASON_RATES,
    SEASONAL,
    RegimeMember,
    SeasonalProfile,
    SimpleMembers,
)
from regimekit.ensemble.seasonality import propose
from regimekit.preprocessing.lag_buffer import LagBuffer

SHAPE = np.array([4.0, -1.0, 0.0, -3.0])


def buffer_of(values: np.ndarray, depth: int = 64) -> LagBuffer:
    buffer = LagBuffer(depth, 1)
    for value in values:
        buffer.push(np.array([value]))
    return buffer


def line(n: int, slope: float = 0.0) -> np.ndarray:
    t = np.arange(n)
    return 50.0 + slope * t + SHAPE[t % 4]


@pytest.mark.parametrize("slope", [0.0, 0.7])
@pytest.mark.parametrize("h", [0, 1, 5])
def test_a_season_on_a_line_goes_on(slope: float, h: int) -> None:
    n = 30
    ahead = SeasonalProfile(4, 1).points(buffer_of(line(n, slope)), 0, h)[:, 0]
    truth = line(n + h + 1, slope)[-1]
    means = dict(zip(SEASONAL, ahead.tolist(), strict=True))
    for name in MEAN_SEASONS:
        assert means[name] == pytest.approx(truth)
    if slope == 0.0:
        assert means["season ago"] == pytest.approx(truth)


def test_before_two_seasons_the_value_one_season_ago_serves() -> None:
    profile, buffer = SeasonalProfile(4, 1), buffer_of(line(7))
    ahead = profile.points(buffer, 0, 0)[:, 0]
    assert ahead[2:].tolist() == [line(7)[3]] * len(SEASON_RATES)
    assert profile.known_season(buffer, 0) is None


def test_one_shift_of_the_level_does_not_bend_the_season() -> None:
    values = line(40)
    values[30:] += 100.0
    found = SeasonalProfile(4, 1).known_season(buffer_of(values), 0)
    assert found is not None
    np.testing.assert_allclose(found[:, 0], SHAPE[(40 + np.arange(4)) % 4], atol=1e-9)


def test_lags_less_their_season() -> None:
    spec = Spec("season", (1, 2, 7), forecasts=False, season=4)
    member = RegimeMember(spec, 1, make_filter(spec, 1, 0), 0)
    assert member.set_design(buffer_of(line(24)), 0, np.zeros(0))
    np.testing.assert_allclose(member.design, [[1.0, 50.0, 0.0, 0.0]], atol=1e-9)


def test_what_a_calendar_has_is_found_early(rng: np.random.Generator) -> None:
    t = np.arange(28)
    months = 10 * np.sin(2 * np.pi * t / 12) + rng.standard_normal(28)
    assert propose(months) == [12]
    tens = 10 * np.sin(2 * np.pi * t / 10) + rng.standard_normal(28)
    assert propose(tens) == []  # no calendar has it: three seasons must have been seen


def test_short_noise_has_no_season() -> None:
    """At most 5 of 100 streams of 60 values, noise or a walk, have any (0 when it was written)."""
    found = 0
    for seed in range(50):
        steps = np.random.default_rng(seed).standard_normal(60)
        found += bool(propose(steps)) + bool(propose(np.cumsum(steps)))
    assert found <= 5


def hours(rng: np.random.Generator, n: int, weekend: float) -> np.ndarray:
    """A day of its own shape on weekends, as far as `weekend` says, in correlated noise."""
    t, noise = np.arange(n), rng.standard_normal(n)
    for i in range(1, n):
        noise[i] += 0.8 * noise[i - 1]
    day = np.cumsum(rng.standard_normal(24))
    day = (day - day.mean()) / day.std()
    free = t // 24 % 7 >= 5
    return day[t % 24] + weekend * free * (np.roll(day, 4)[t % 24] - day[t % 24] - 1) + 0.4 * noise


def test_weeks_of_hours_are_found_and_seldom_by_chance() -> None:
    """Four weeks: found in 30 of 40 runs at least; without weeks in 4 of 40 at most."""
    found = dict.fromkeys((0.0, 0.6), 0)
    for weekend in found:
        for seed in range(40):
            periods = propose(hours(np.random.default_rng(seed), 700, weekend))
            found[weekend] += periods == [24, 168]
            assert weekend == 0.0 or periods in ([24, 168], [24])
    assert found[0.6] >= 30 and found[0.0] <= 4, found


def test_a_shift_of_a_season_is_one_change() -> None:
    """Daily cycle, correlated noise, one shift: one change, and no return when a day has passed."""
    rng, e, t = np.random.default_rng(1), 0.0, np.arange(600)
    y = 6 * np.sin(2 * np.pi * t / 24) + np.where(t > 400, 12.0, 0.0)
    for i in range(600):
        e = 0.6 * e + rng.standard_normal()
        y[i] += e
    run = rk.auto().run(y)
    changes = [event for event in run.events if event.kind != "outlier"]
    assert [event.kind for event in changes] == ["regime opened"] * 2
    assert abs(changes[1].since - 401) <= 2 and changes[1].time < 425


def test_months_are_forecast_nearly_as_well_as_with_a_given_season() -> None:
    """Ten years of months, default settings, beside the mean of the same month in earlier years."""
    rng, t = np.random.default_rng(2), np.arange(120)
    shape = 20 * rng.standard_normal(12)
    y = 300 + shape[t % 12] + 3 * rng.standard_normal(120)
    error = np.abs(rk.auto().run(y).mean - y)[60:].mean()
    told = [abs(y[i] - y[i % 12 : i : 12].mean()) for i in range(60, 120)]
    assert error < 1.25 * np.mean(told)


def test_a_season_is_taken_out_only_where_two_of_it_are_remembered() -> None:
    """Two weeks of half hours are; of a year of days only the lags can be used."""
    plan = Lineup(None, None)
    taken = {
        tuple(periods): [spec.season for spec in plan.season(periods, 0) if spec.season]
        for periods in ([48, 336], [365], [7, 365])
    }
    assert taken == {(48, 336): [336], (365,): [], (7, 365): [7]}
    names = [spec.name for spec in plan.season([365], 0) if not spec.logs]
    assert names == ["season lags", "season differences"]


def test_a_named_season_that_is_not_used_is_reported_with_the_reason() -> None:
    rng = np.random.default_rng(0)
    model = rk.auto(seasons=[7, 90, 365])
    with pytest.warns(rk.RegimekitWarning) as seen:
        model.run(rng.standard_normal(100))
    text = model.explain()
    assert [str(w.message).split(" observations")[0] for w in seen] == [
        f"The season of {period}" for period in (7, 90, 365)
    ]
    assert "Season of 7 observations: not used; changes one season apart" in text
    assert "Season of 90 observations: not used yet; needs 126 observations, got 100" in text
    assert "Season of 365 observations: not used yet; needs more than 365 observations" in text


def test_seasonal_differences_are_regressed_on_their_lags() -> None:
    """Least squares on differences one season apart finds the coefficients they were made with."""
    rng = np.random.default_rng(5)
    y = np.zeros(600)
    y[:12] = 10 * rng.normal(size=12)
    for t in range(24, 600):
        rest = 0.6 * (y[t - 1] - y[t - 13]) - 0.4 * (y[t - 12] - y[t - 24])
        y[t] = y[t - 12] + rest + 0.1 * rng.normal()
    spec = Spec("season differences", (1, 12), squares=True, regimes=False, difference=12)
    members, buffer = SimpleMembers([spec], 1), LagBuffer(26, 1)
    for value in y:
        if buffer.count >= 24:
            members.update(0, np.array([value]), buffer, 0, np.zeros(0), 0.0)
        buffer.push(np.array([value]))
    found = np.asarray(members.coefficient)[0, 0, 0]
    np.testing.assert_allclose(found, [0.0, 0.6, -0.4], atol=0.06)
    assert np.sqrt(members.square_variance[0, 0, 0]) == pytest.approx(0.1, rel=0.3)


def test_a_second_season_keeps_the_first_in_the_order_of_a_snapshot() -> None:
    """A model whose seasons changed from [24] to [24, 168] is saved, loaded and continued alike."""
    rng = np.random.default_rng(6)
    t = np.arange(700)
    day = np.tile(np.cumsum(rng.normal(size=24)), 30)[:700]
    y = 5 * day * np.where(t % 168 < 120, 1.0, 0.4) + rng.normal(size=700)
    model = rk.auto()
    model.run(y[:100])
    assert model.engine.seasons == [24]
    model.run(y[100:650])
    assert set(model.engine.seasons) == {24, 168}
    copy = rk.from_bytes(model.to_bytes())
    np.testing.assert_array_equal(model.run(y[650:]).mean, copy.run(y[650:]).mean)


def test_no_warning_for_seasons_in_use_or_implied_by_dates() -> None:
    rng = np.random.default_rng(0)
    t = np.arange(500)
    model = rk.auto(seasons=[24, 400])
    hours = np.arange("2024-01-01", "2024-01-05", dtype="datetime64[h]")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.run(5 * np.sin(2 * np.pi * t / 24) + rng.standard_normal(500))
        rk.auto().run(pd.Series(rng.standard_normal(96), index=hours))
