"""The correction of intervals: nominal coverage, bounded influence of outliers."""

from __future__ import annotations

import numpy as np
import pytest

from regimekit.distributions.forecast import Forecast
from regimekit.distributions.mixture import Mixture
from regimekit.ensemble.calibration import Calibration
from regimekit.serialization.schema import pack_state


def law_of(share: np.ndarray, location: np.ndarray, spread: np.ndarray, dof: np.ndarray) -> Mixture:
    law = Mixture(location.shape[1], share.size)
    law.size = share.size
    for name, value in {"share": share, "location": location, "spread": spread, "dof": dof}.items():
        np.asarray(getattr(law, name))[:] = value
    return law


def parts_of(law: Mixture) -> tuple[np.ndarray, ...]:
    return tuple(
        np.array(getattr(law, name))[: law.size] for name in ("share", "location", "spread", "dof")
    )


def normal_law(sd: float) -> Mixture:
    return law_of(np.ones(1), np.zeros((1, 1)), np.full((1, 1, 1), sd**2), np.full(1, np.inf))


def coverage(
    calibration: Calibration, components: Mixture, y: np.ndarray | float, level: float
) -> float:
    low, high = Forecast.mixture(*parts_of(calibration.corrected(components))).interval(level)
    return float(np.mean((low <= y) & (y <= high)))


@pytest.mark.parametrize("sd", [0.5, 1.0, 2.0])
def test_wrong_scales_are_put_right(rng: np.random.Generator, sd: float) -> None:
    calibration, components = Calibration(1), normal_law(sd)
    for y in rng.standard_normal(2000):
        calibration.learn(calibration.corrected(components), np.array([y]))
    fresh = rng.standard_normal(20_000)
    for level in (0.5, 0.8, 0.9, 0.95):
        assert coverage(calibration, components, fresh, level) == pytest.approx(level, abs=0.04)


def test_short_intervals_are_half_corrected_after_fifty_observations() -> None:
    """The mean over 20 streams, whose standard error is below .01; uncorrected 59 % are held."""
    held = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        calibration, components = Calibration(1), normal_law(0.5)
        for y in rng.standard_normal(50):
            calibration.learn(calibration.corrected(components), np.array([y]))
        held.append(coverage(calibration, components, rng.standard_normal(2000), 0.9))
    assert np.mean(held) > (0.59 + 0.9) / 2


def test_heavy_tails_are_learnt(rng: np.random.Generator) -> None:
    calibration, components = Calibration(1), normal_law(1.2)
    for y in rng.standard_t(3, 3000):
        calibration.learn(calibration.corrected(components), np.array([y]))
    fresh = rng.standard_t(3, 50_000)
    for level in (0.5, 0.8, 0.9, 0.95):
        assert coverage(calibration, components, fresh, level) == pytest.approx(level, abs=0.04)


def test_a_forecast_too_sharp_in_the_middle_is_made_flatter(rng: np.random.Generator) -> None:
    """Uncorrected, 90 % intervals hold about 90 % and 50 % intervals 42 %."""
    calibration, sharp = Calibration(1), Calibration(1)
    sharp.peak = 0.35
    components = sharp.corrected(normal_law(0.86))
    for y in rng.standard_normal(3000):
        calibration.learn(calibration.corrected(components), np.array([y]))
    fresh = rng.standard_normal(50_000)
    assert coverage(Calibration(1), components, fresh, 0.9) == pytest.approx(0.9, abs=0.02)
    assert coverage(Calibration(1), components, fresh, 0.5) == pytest.approx(0.42, abs=0.02)
    for level in (0.5, 0.8, 0.9, 0.95):
        assert coverage(calibration, components, fresh, level) == pytest.approx(level, abs=0.04)


def test_where_nothing_is_wrong_chance_moves_coverage_by_two_points_at_most() -> None:
    """Eight streams of 1000 values; without a correction the standard error at 50 % is .016."""
    components, levels = normal_law(1.0), np.array([0.5, 0.8, 0.9, 0.95])
    errors = []
    for seed in range(8):
        calibration, inside = Calibration(1), []
        for y in np.random.default_rng(seed).standard_normal(1000):
            inside.append([coverage(calibration, components, y, level) for level in levels])
            calibration.learn(calibration.corrected(components), np.array([y]))
        errors.append(np.mean(inside, axis=0) - levels)
    assert np.abs(np.mean(errors, axis=0)).max() < 0.005
    assert np.abs(errors).max() < 0.02


def test_outliers_count_as_any_value_outside(rng: np.random.Generator) -> None:
    far, near = Calibration(1), Calibration(1)
    components = normal_law(1.0)
    for t, y in enumerate(rng.standard_normal(500)):
        far.learn(far.corrected(components), np.array([1e300 if t % 50 == 7 else y]))
        near.learn(near.corrected(components), np.array([4.0 if t % 50 == 7 else y]))
    assert pack_state(far) == pack_state(near)
    assert far.n_inside / far.n_checked == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize("size", [-0.7, 0.7])
def test_a_faint_component_far_away_moves_no_other(size: float) -> None:
    share, location = np.array([0.999, 0.001]), np.array([[0.5], [1e6]])
    spread, dof = np.full((2, 1, 1), 0.01), np.full(2, np.inf)
    calibration = Calibration(1)
    calibration.size = size
    corrected = calibration.corrected(law_of(share, location, spread, dof))
    assert Forecast.mixture(*parts_of(corrected)).median == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_flatter_is_as_wide_and_tilted_as_before(rng: np.random.Generator, dim: int) -> None:
    root = np.tril(rng.uniform(0.5, 1.0, (dim, dim)))
    law = law_of(np.ones(1), np.zeros((1, dim)), (root @ root.T)[None], np.full(1, np.inf))
    calibration = Calibration(dim)
    calibration.peak = -0.7
    share, location, spread, _ = parts_of(calibration.corrected(law))
    moments = np.einsum("k,ki,kj->ij", share, location, location)
    assert share.sum() == pytest.approx(1.0)
    assert share @ location == pytest.approx(np.zeros(dim), abs=1e-12)
    within = np.einsum("k,kij->ij", share, spread)
    assert moments + within == pytest.approx(root @ root.T)
