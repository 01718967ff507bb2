"""The lag buffer against a plain computation, and its decisions about outliers."""

from __future__ import annotations

import numpy as np
import pytest

from regimekit.core.exceptions import SnapshotError
from regimekit.preprocessing.lag_buffer import LagBuffer, log_outlier, unmoved, weighted_median
from regimekit.serialization.schema import pack_state, unpack_state
from regimekit.serialization.validation import Arrays, Values

ADDITIVE, INNOVATIONAL = 0, 1


@pytest.mark.parametrize("depth", [1, 5, 80])
@pytest.mark.parametrize("dim", [1, 3])
def test_values_and_range_are_those_of_the_latest_values(
    rng: np.random.Generator, depth: int, dim: int
) -> None:
    """Over several moves of the window, with missing values and trends that lose their extremes."""
    buffer, kept = LagBuffer(depth, dim), [np.zeros(dim)] * depth
    for t in range(400):
        y = rng.standard_cauchy(dim) + 0.1 * t
        y[rng.random(dim) < 0.1] = np.nan
        buffer.push(y)
        kept.append(np.where(np.isnan(y), kept[-1], y))
        window = np.array(kept[-depth:])
        low, high = window.min(axis=0), window.max(axis=0)
        margin = 0.25 * (high - low) + 20.0
        far = np.stack([np.full(dim, -1e9), np.zeros(dim), np.full(dim, 1e9)])
        np.testing.assert_array_equal(
            buffer.within_reach(ADDITIVE, far), np.clip(far, low - margin, high + margin)
        )
        if t % 7 == 0:
            np.testing.assert_array_equal(buffer.values, np.stack([window, window]))
    assert buffer.count == depth


def test_a_buffer_of_depth_zero_stores_nothing() -> None:
    buffer = LagBuffer(0, 3)
    buffer.push(np.ones(3))
    assert buffer.clean.shape == (0, 3)


def test_values_are_clipped_and_copies_are_independent() -> None:
    buffer = LagBuffer(2, 1, largest=10.0)
    buffer.push(np.array([1e300]))
    twin = buffer.copy()
    buffer.push(np.array([-1e300]))
    assert buffer.values[ADDITIVE].ravel().tolist() == [10.0, -10.0]
    assert twin.values[ADDITIVE].ravel().tolist() == [0.0, 10.0]


def test_a_lag_before_the_first_value_has_no_difference() -> None:
    buffer = LagBuffer(6, 1)
    for value in (5.0, 7.0):
        buffer.push(np.array([value]))
    np.testing.assert_array_equal(buffer.design(ADDITIVE, [1, 2, 4]).ravel(), [7.0, -2.0, 0.0])


@pytest.mark.parametrize("error", [30.0, 100.0, 1e3, 1e9, 1e300])
def test_a_spike_cannot_pull_the_forecast_far(error: float) -> None:
    """The probability of a jump times its size is small for every error."""
    buffer = LagBuffer(4, 1, largest=1e6)
    buffer.doubt(np.zeros(1), np.array([error]), error, 0.02)
    assert buffer.p_innovational * min(error, 1e6) < 3.0
    assert sum(buffer.masses) == 1.0


def test_the_next_value_decides_and_experience_counts() -> None:
    buffer = LagBuffer(4, 1)
    first = 0.0
    for turn in range(20):
        buffer.doubt(np.zeros(1), np.array([20.0]), 20.0, 0.02)
        first = first or buffer.p_innovational
        assert buffer.decide(-12.0, -1.0) == INNOVATIONAL, turn
        assert buffer.values[ADDITIVE, -1, 0] == 20.0 and not buffer.pending
    buffer.doubt(np.zeros(1), np.array([20.0]), 20.0, 0.02)
    assert buffer.p_innovational > 3 * first  # large errors are jumps here
    assert buffer.decide(-1.0, -12.0) == ADDITIVE
    assert buffer.values[INNOVATIONAL, -1, 0] == 0.0


def test_a_jump_seen_one_value_late_is_taken_over_whole() -> None:
    """The first of two values far away was dropped; if the second is a jump, both are."""
    buffer = LagBuffer(3, 1)
    buffer.doubt(np.zeros(1), np.array([20.0]), 20.0, 0.02)
    assert buffer.decide(-5.0, -5.1) == ADDITIVE
    buffer.doubt(np.zeros(1), np.array([21.0]), 1e9, 0.02)
    assert buffer.values[INNOVATIONAL].ravel().tolist() == [0.0, 20.0, 21.0]
    assert buffer.decide(-12.0, -1.0) == INNOVATIONAL
    assert buffer.values[ADDITIVE].ravel().tolist() == [0.0, 20.0, 21.0]


def test_components_that_follow_a_spike_are_found() -> None:
    share, location = np.array([0.9, 0.06, 0.04, 1.0]), np.array([[0.0], [150.0], [-3.0], [1.0]])
    owner = np.array([0, 0, 0, 1])
    for size, expected in ((200.0, [True, False, True, True]), (1e300, [True] * 4)):
        buffer = LagBuffer(2, 1)
        buffer.doubt(np.zeros(1), np.array([size]), size, 0.02)
        assert unmoved(share, location, owner, buffer).tolist() == expected


def test_weighted_median(rng: np.random.Generator) -> None:
    location = np.array([[3.0, 0.0], [1.0, 5.0], [2.0, 9.0]])
    assert weighted_median(location, np.array([0.2, 0.2, 0.6])).tolist() == [2.0, 9.0]
    assert weighted_median(location, np.array([0.6, 0.2, 0.2])).tolist() == [3.0, 0.0]
    for n in (1, 2, 7, 40, 200):
        values, weight = rng.standard_normal(n), rng.random(n)
        order = np.argsort(values)
        middle = order[np.searchsorted(np.cumsum(weight[order]), 0.5 * weight.sum())]
        assert weighted_median(values[:, None], weight)[0] == values[middle]


def test_outliers_have_a_broad_density() -> None:
    grid = np.linspace(-1e5, 1e5, 2_000_001)
    total = np.exp([log_outlier(e) for e in grid[::50]]).sum() * (grid[50] - grid[0])
    assert total == pytest.approx(1.0, abs=0.01)


def test_snapshot(rng: np.random.Generator) -> None:
    buffer = LagBuffer(5, 2)
    for _ in range(9):
        buffer.push(rng.standard_normal(2))
    buffer.doubt(np.zeros(2), np.full(2, 30.0), 30.0, 0.02)
    values, arrays = pack_state(buffer)
    twin = LagBuffer(5, 2)
    unpack_state(twin, Values(values), Arrays(arrays))
    np.testing.assert_array_equal(twin.values, buffer.values)
    assert twin.decide(-3.0, -2.0) == buffer.decide(-3.0, -2.0)
    assert pack_state(twin)[0] == pack_state(buffer)[0]
    for name, wrong in {"p_innovational": 1.5, "count": 6, "pending": False}.items():
        with pytest.raises(SnapshotError, match=name if name != "pending" else "p_innovational"):
            unpack_state(LagBuffer(5, 2), Values(values | {name: wrong}), Arrays(arrays))
    for wrong_array in (np.zeros((2, 4, 2)), np.full((2, 5, 2), 1e301), np.zeros((2, 5, 2), int)):
        with pytest.raises(SnapshotError, match="values"):
            stored = Arrays(arrays | {"values": wrong_array})
            unpack_state(LagBuffer(5, 2), Values(values), stored)
