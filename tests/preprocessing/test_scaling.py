"""Scaling of a stream: the noise is about 1, from the first observations, in any unit."""

from __future__ import annotations

import numpy as np
import pytest

import regimekit as rk
from regimekit.preprocessing.scaling import Standardizer, measure
from regimekit.serialization.schema import pack_state, unpack_state
from regimekit.serialization.validation import Arrays, Values


def learnt(values: np.ndarray) -> Standardizer:
    units = Standardizer(1)
    for value in values:
        units.update(np.array([value]))
    return units


@pytest.mark.parametrize("unit", [1e-12, 1.0, 3e7])
def test_noise_is_about_one_in_any_unit(rng: np.random.Generator, unit: float) -> None:
    levels = np.repeat([0.0, 40.0, 5.0, 80.0], 30)
    units = learnt(unit * (1000.0 + levels + rng.standard_normal(120)))
    assert 0.6 < units.scale[0] / unit < 1.6


def test_a_change_of_unit_changes_nothing_inside(rng: np.random.Generator) -> None:
    y = 7 + rng.standard_normal(50)
    a, b = learnt(y), learnt(1024.0 * y)
    np.testing.assert_allclose(a.to_units(y[:1]), b.to_units(1024.0 * y[:1]), rtol=1e-12)


def test_rebuilds_stop_when_the_units_are_frozen(rng: np.random.Generator) -> None:
    units = Standardizer(1)
    asked = [units.update(np.array([v])) for v in rng.standard_normal(400)]
    assert any(asked[:5]) and not any(asked[81:])


@pytest.mark.parametrize("level", [0.0, 7.0, -3e9])
def test_a_constant_start_has_a_unit_and_comes_alive(
    rng: np.random.Generator, level: float
) -> None:
    units = learnt(np.full(100, level))
    assert units.scale[0] > 0 and not units.alive[0]
    for value in level + 50.0 * rng.standard_normal(30):
        units.update(np.array([value]))
    assert 15 < units.scale[0] < 150


def test_a_change_of_units_is_accepted_after_some_observations(rng: np.random.Generator) -> None:
    units = learnt(rng.standard_normal(200))
    before = units.scale[0]
    for _ in range(5):
        units.update(1000.0 * rng.standard_normal(1))
    assert units.scale[0] == before
    for _ in range(75):
        units.update(1000.0 * rng.standard_normal(1))
    assert 500 < units.scale[0] < 2000
    assert len(units.buffer) <= 80  # what came before the change is not replayed


def test_rounded_and_rarely_moving_streams(rng: np.random.Generator) -> None:
    rounded = np.round(0.4 * rng.standard_normal(300))
    assert 0.1 < learnt(rounded).scale[0] < 1.0
    rare = np.where(np.arange(300) % 50 == 49, 1.0, 0.0)
    assert 0.0 < learnt(rare).scale[0] < 1.0


def test_missing_values_and_extremes() -> None:
    units = learnt(np.array([np.nan, np.nan, 1e300, np.nan, -1e300, 2.0, 3.0]))
    assert np.isfinite(units.scale).all() and (np.asarray(units.scale) > 0).all()
    assert np.isfinite(units.to_units(np.array([1e308]))).all()
    assert learnt(np.full(5, np.nan)).scale[0] == 1.0


def test_each_coordinate_has_its_own_unit(rng: np.random.Generator) -> None:
    y = rng.standard_normal((60, 2)) * [1.0, 1e5]
    centre, scale, alive = measure(y)
    assert 0.5 < scale[0] < 2 and 0.5e5 < scale[1] < 2e5 and alive.all() and centre.shape == (2,)


def test_snapshot_of_units(rng: np.random.Generator) -> None:
    units = learnt(rng.standard_normal(33))
    values, arrays = pack_state(units)
    twin = Standardizer(units.dim, units.window)
    unpack_state(twin, Values(values), Arrays(arrays))
    more = rng.standard_normal(60)
    for value in more:
        assert units.update(np.array([value])) == twin.update(np.array([value]))
    assert units.scale[0] == twin.scale[0] and units.centre[0] == twin.centre[0]


def test_rescaled_forecast() -> None:
    inside = rk.Forecast.mixture(np.array([1.0, 1.0]), np.array([0.0, 2.0]), np.array([1.0, 4.0]))
    out = inside.rescaled(np.array([10.0]), np.array([3.0]))
    assert out.mean == pytest.approx(10 + 3 * inside.mean)
    assert out.quantile(0.9) == pytest.approx(10 + 3 * inside.quantile(0.9))


def test_a_later_check_agrees_with_the_full_estimate(rng: np.random.Generator) -> None:
    """Scales that change by a factor near the limit of 30: found if and only if beyond it."""
    for factor in (0.5, 25.0, 29.0, 31.0, 40.0, 1e4):
        units = learnt(rng.standard_normal(200))
        before, changed = units.scale[0], False
        for value in factor * rng.standard_normal(100):
            ratio = measure(np.append(units.buffer[-39:], [[value]], axis=0))[1][0] / units.scale[0]
            due = (units.count + 1) % 20 == 0 and abs(np.log(ratio)) > np.log(30.0)
            assert units.update(np.array([value])) == due
            changed |= due
            if changed:  # the count begins again, and with it the refinements
                break
        assert changed == (units.scale[0] != before)


@pytest.mark.parametrize("jitter", [0.0, 0.0005])
def test_a_stuck_sensor_has_no_other_units(rng: np.random.Generator, jitter: float) -> None:
    """24 nearly equal values are no reason to divide the unit by a thousand."""
    units = learnt(35.0 + np.cumsum(0.9 * rng.standard_normal(216)))
    before = units.scale[0]
    stuck = units.buffer[-1, 0]
    for _ in range(24):
        units.update(stuck + jitter * rng.standard_normal(1))
    assert units.scale[0] == before


@pytest.mark.parametrize("length", [60, 150])
def test_small_steps_within_the_usual_range_are_confirmed_for_longer(
    rng: np.random.Generator, length: int
) -> None:
    """A sensor that drifts by a millionth for some windows keeps its unit."""
    units = learnt(35.0 + rng.standard_normal(300))
    before = units.scale[0]
    for i in range(length):
        units.update(np.array([35.2 + 1e-6 * i]))
    assert units.scale[0] == before


def test_a_smaller_unit_that_lasts_is_adopted(rng: np.random.Generator) -> None:
    """Within the usual range after some hundred observations, beyond it after two windows."""
    for level, most in ((35.0, 260), (0.035, 60)):
        units = learnt(35.0 + rng.standard_normal(300))
        for _ in range(most):
            units.update(level + 0.001 * rng.standard_normal(1))
        assert units.scale[0] == pytest.approx(0.001, rel=0.5)


@pytest.mark.parametrize("length", [41, 60, 75, 100])
def test_units_of_an_untypical_start_are_left(rng: np.random.Generator, length: int) -> None:
    """A smaller scale within the usual range is confirmed for half as long as the start lasted."""
    ramp = 50.0 * np.arange(length)
    for start in (ramp, 300.0 * rng.standard_normal(length)):
        units = learnt(np.append(start, 2.0 + 0.3 * rng.standard_normal(100)))
        assert 0.15 < units.scale[0] < 0.6


@pytest.mark.parametrize("length", [22, 39, 40, 45])
@pytest.mark.parametrize("factor", [1e-3, 1e3])
def test_units_that_change_among_the_first_observations(
    rng: np.random.Generator, length: int, factor: float
) -> None:
    """The refinement at 80 observations may not mix two units."""
    start = factor * (2.0 + 0.3 * rng.standard_normal(length))
    units = learnt(np.append(start, 2.0 + 0.3 * rng.standard_normal(100)))
    assert 0.15 < units.scale[0] < 0.6


def test_a_constant_that_moves_late_keeps_only_what_moved(rng: np.random.Generator) -> None:
    units = learnt(np.append(np.ones(98), 2.0 + 0.3 * rng.standard_normal(2)))
    assert units.alive[0] and len(units.buffer) == 3


@pytest.mark.parametrize("start", [77, 78, 79])
def test_a_constant_that_moves_at_a_refinement_is_measured_where_it_moves(
    rng: np.random.Generator, start: int
) -> None:
    """Moves that reach their number with observation 80, when units are refined anyway."""
    y = np.append(np.full(start, -7e5), 2 + 0.3 * rng.standard_normal(80))
    units = learnt(y)
    assert abs(units.centre[0] - 2) < 1
    assert 0.15 < units.scale[0] < 0.6


def test_levels_beyond_a_million_units_are_other_units(rng: np.random.Generator) -> None:
    units = learnt(rng.standard_normal(200))
    for value in 5e6 + rng.standard_normal(19):
        assert not units.update(np.array([value]))
    for value in 5e6 + rng.standard_normal(41):
        units.update(np.array([value]))
    assert abs(units.centre[0] - 5e6) < 3
    assert 0.5 < units.scale[0] < 2


def test_a_stuck_sensor_far_away_keeps_its_scale(rng: np.random.Generator) -> None:
    units = learnt(rng.standard_normal(200))
    scale = units.scale[0]
    stuck = np.full(60, 5e6)
    stuck[::7] += 1e-3
    for value in stuck:
        units.update(np.array([value]))
    assert units.scale[0] == scale
    for value in rng.standard_normal(60):
        units.update(np.array([value]))
    assert abs(units.centre[0]) < 3
