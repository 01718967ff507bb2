"""Regimes of level, spread and shape: what is a change, what is none, and what returns."""

from __future__ import annotations

import numpy as np
import pytest

import regimekit as rk
from regimekit.ensemble.regime_views import LevelView
from regimekit.ensemble.shape_view import CAPACITY, ShapeView

N = 600
SEEDS = (0, 1, 2)


def ar(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    y = np.zeros(n)
    for t in range(1, n):
        y[t] = phi * y[t - 1] + rng.standard_normal()
    return y


def changes(y: np.ndarray) -> list[int]:
    """Dates of the changes that the level view finds."""
    rows = np.asarray(y, float).reshape(len(y), -1)
    view = LevelView(rows.shape[1])
    return [int(view.view.since) for t, row in enumerate(rows) if view.observe(row, t)]


def uneventful(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Streams without a change of regime."""
    t = np.arange(N)
    day = 6 * np.sin(2 * np.pi * t / 24) * np.where((t // 24) % 7 < 5, 1, 0.5)
    return {
        "noise": rng.standard_normal(N),
        "heavy tails": rng.standard_t(3, N),
        "skewed": np.exp(rng.standard_normal(N)),
        "counts": rng.poisson(1.5, N),
        "autocorrelated": ar(rng, N, 0.9),
        "random walk": np.cumsum(rng.standard_normal(N)),
        "trend": 3.0 * t + 10 * rng.standard_normal(N),
        "slow wave": 3 * np.sin(2 * np.pi * t / 700) + rng.standard_normal(N),
        "season": 6 * np.sin(2 * np.pi * t / 12) + ar(rng, N, 0.6),
        "day and week": day + (1 + 0.7 * np.sin(2 * np.pi * t / 24)) * rng.standard_t(4, N),
        "two scales": rng.standard_normal((N, 2)) * [1.0, 1000.0],
        "constant": np.full(N, 7.0),
    }


@pytest.mark.parametrize("name", list(uneventful(np.random.default_rng(0))))
def test_no_change(name: str) -> None:
    """At most two false changes in three streams of 600 rows."""
    found = [changes(uneventful(np.random.default_rng(seed))[name]) for seed in SEEDS]
    assert sum(map(len, found)) <= 2


def test_no_change_of_any_kind_is_the_rule() -> None:
    """At most five false changes in 36 streams of 600 rows."""
    streams = [y for seed in SEEDS for y in uneventful(np.random.default_rng(seed)).values()]
    assert sum(len(changes(y)) for y in streams) <= 5


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("phi", [0.0, 0.5, 0.8])
def test_a_shift_of_level_under_autocorrelated_noise(seed: int, phi: float) -> None:
    y = ar(np.random.default_rng(seed), N, phi)
    y[300:] += 6.0 * np.std(y)
    (date,) = changes(y)
    assert abs(date - 300) <= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_of_spread(seed: int) -> None:
    y = np.random.default_rng(seed).standard_normal(N)
    y[300:] *= 4.0
    (date,) = changes(y)
    assert abs(date - 300) <= 20


@pytest.mark.parametrize("seed", SEEDS)
def test_one_coordinate_suffices_and_a_spike_does_not(seed: int) -> None:
    y = np.random.default_rng(seed).standard_normal((N, 3)) * [1.0, 100.0, 1e-3]
    y[200, 1] += 1e5
    assert changes(y) == []
    y[400:, 2] += 5e-3
    (date,) = changes(y)
    assert abs(date - 400) <= 1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_change_of_correlation(seed: int) -> None:
    y = np.random.default_rng(seed).standard_normal((N, 2))
    rho = np.where(np.arange(N) < 300, -0.5, 0.9)
    y[:, 1] = rho * y[:, 0] + np.sqrt(1 - rho**2) * y[:, 1]
    found = changes(y)
    assert len(found) <= 2 and min(abs(date - 300) for date in found) <= 20


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_sensors_that_move_together_do_not_change(phi: float) -> None:
    """At most two false changes in five streams; evidence that simply adds up finds 3 and 61."""
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        common = ar(rng, N, phi)
        found += changes(np.stack([0.9 * common + 0.4 * ar(rng, N, phi) for _ in range(8)], 1))
    assert len(found) <= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_small_step_of_all_sensors_is_known_sooner_than_one_of_one(seed: int) -> None:
    y = np.random.default_rng(seed).standard_normal((N, 8))
    y[300:] += 0.8
    delays = []
    for rows in (y, y[:, :1]):
        view = LevelView(rows.shape[1])
        delays.append(next((t for t, row in enumerate(rows) if view.observe(row, t)), N))
    assert 300 < delays[0] < delays[1]


def coarse(rng: np.random.Generator, n: int, noise: float) -> np.ndarray:
    """Values of a sensor of step 1 that follows a slow wave; they are means, so not quite whole."""
    level = rng.random() + 0.3 * np.sin(2 * np.pi * np.arange(n) / n)
    y = np.round(level + noise * rng.standard_normal(n))
    return y + np.where(np.diff(y, prepend=y[0]) != 0, 0.03, 0.0)


@pytest.mark.parametrize("noise", [0.15, 0.3, 0.6])
def test_a_coarse_sensor_that_flickers_does_not_change(noise: float) -> None:
    """At most two false changes in five streams of 1200 rows, each with seven other sensors."""
    found = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        y = rng.standard_normal((2 * N, 8))
        y[:, 7] = coarse(rng, 2 * N, noise)
        found += changes(y)
    assert len(found) <= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_a_step_of_a_coarse_sensor_is_a_change(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = rng.standard_normal((N, 8))
    y[:, 7] = coarse(rng, N, 0.3) + np.where(np.arange(N) < 300, 0.0, 3.0)
    (date,) = changes(y)
    assert abs(date - 300) <= 1


def test_bursts_of_three_are_outliers(rng: np.random.Generator) -> None:
    y = rng.standard_normal(N)
    for start in (100, 250, 400):
        y[start : start + 3] += 20.0
    assert changes(y) == []


def test_an_early_step_is_known_soon() -> None:
    for seed in range(10):
        y = np.random.default_rng(seed).standard_normal(40)
        y[19:] += 8.0
        run = rk.auto().run(y)
        (event,) = [e for e in run.events if e.kind == "regime opened" and e.regime == 1]
        assert abs(event.since - 19) <= 1 and event.time <= 30


def test_a_level_that_returns_keeps_its_id(rng: np.random.Generator) -> None:
    truth = np.repeat([0, 1, 2, 0, 2, 1], 80)
    y = 50 + 8.0 * truth + rng.standard_normal(480)
    model = rk.auto()
    run = model.run(y)
    assert np.mean(run.path == truth) > 0.98
    np.testing.assert_allclose([r.mean[0] for r in model.regimes()], [50, 58, 66], atol=0.5)
    np.testing.assert_allclose([r.sd[0] for r in model.regimes()], 1.0, atol=0.3)


def test_scale_and_origin_do_not_matter(rng: np.random.Generator) -> None:
    y = rng.standard_normal(N) + np.where(np.arange(N) < 300, 0, 6)
    assert changes(y) == changes(1e6 + 1e-3 * y) == changes(1e100 * y) == changes(-y) != []


def test_missing_values_are_skipped(rng: np.random.Generator) -> None:
    y = rng.standard_normal(N) + np.where(np.arange(N) < 300, 0, 8)
    y[rng.random(N) < 0.2] = np.nan
    (date,) = changes(y)
    assert abs(date - 300) <= 3


def test_what_regimes_are_inferred_from() -> None:
    with pytest.raises(rk.RegimekitError, match="regimes must be one of"):
        rk.auto(regimes="phase")
    with pytest.raises(rk.RegimekitError, match="regime_features are given"):
        rk.auto(regimes="level", regime_features=rk.features.lags(1))
    rng = np.random.default_rng(5)
    y = ar(rng, 300, 0.9)
    y[150:] = rng.standard_normal(150) * np.std(y)
    for regimes in ("level", "shape", "dynamics"):
        model = rk.auto(regimes=regimes)
        run = model.run(y)
        assert model.settings()["regimes"] == regimes
        assert np.array_equal(run.mean, rk.auto().run(y).mean)
    assert "lag 1" in model.explain()


@pytest.mark.parametrize("cut", [3, 12, 149, 152, 156, 160, 290])
def test_a_copy_continues_identically(cut: int) -> None:
    rng = np.random.default_rng(1)
    y = rng.standard_normal((320, 2)) + np.where(np.arange(320) < 150, 0, 6)[:, None]
    model = rk.auto()
    model.run(y[:cut])
    twin = rk.from_bytes(model.to_bytes())
    ours, theirs = model.run(y[cut:]), twin.run(y[cut:])
    assert ours.events == theirs.events
    assert np.array_equal(ours.change_probability, theirs.change_probability)
    assert model.to_bytes() == twin.to_bytes()


def waves(rng: np.random.Generator, n: int, *teeth: bool, period: int = 20) -> np.ndarray:
    """Segments of n rows: sines, or saw teeth of the same mean, variance and period."""
    phase = np.arange(n * len(teeth)) / period % 1.0
    saw = np.repeat(teeth, n)
    y = np.where(saw, np.sqrt(12) * (phase - 0.5), np.sqrt(2) * np.sin(2 * np.pi * phase))
    return y + 0.1 * rng.standard_normal(y.size)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("n", [300, 600])
def test_a_shape_that_changes_and_returns(seed: int, n: int) -> None:
    y = 5e6 + 1e4 * waves(np.random.default_rng(seed), n, False, True, False)
    assert len(changes(y)) > 10  # each jump of a saw tooth is a change of level
    model = rk.auto()
    run = model.run(y)
    assert len(run.changepoints) == 2
    np.testing.assert_allclose(run.changepoints, [n, 2 * n], atol=40)
    assert run.path[0] == run.path[-1] == 0
    known = [regime for regime in model.regimes() if regime.id in run.path]
    assert len(known) == 2
    np.testing.assert_allclose([r.mean[0] for r in known], 5e6, atol=2e3)
    np.testing.assert_allclose([r.sd[0] for r in known], 1e4, rtol=0.2)
    assert "shape of windows of 80" in model.explain()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_periodic_stream_that_keeps_its_shape(seed: int) -> None:
    rng = np.random.default_rng(seed)
    for y in (waves(rng, 1000, True), waves(rng, 1500, False, period=90)):
        run = rk.auto().run(y)
        assert run.changepoints == [] and set(run.path) == {0}


@pytest.mark.parametrize("seed", SEEDS)
def test_a_long_season_with_autocorrelated_noise_is_periodic(seed: int) -> None:
    """Noise makes peaks of the autocorrelation at lags far below the period."""
    rng = np.random.default_rng(seed)
    y = 3 * np.sin(2 * np.pi * np.arange(2600) / 288) + ar(rng, 2600, 0.5)
    view = ShapeView(1)
    for t, value in enumerate(y):
        view.observe(value, t)
    assert abs(view.period - 288) <= 15 and view.view.n_changes == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_levels_of_a_season_are_shapes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = 6 * np.sin(2 * np.pi * np.arange(1200) / 24) + ar(rng, 1200, 0.6)
    y += 12.0 * (np.arange(1200) >= 600)
    (date,) = rk.auto().run(y).changepoints
    assert abs(date - 600) <= 24
    (date,) = rk.auto(regimes="shape").run(y).changepoints
    assert abs(date - 600) <= 24


def test_shapes_before_the_period_was_known_are_found(rng: np.random.Generator) -> None:
    """The level view takes long pulses for changes, until they are known to be periodic."""
    pulse = np.repeat([0.0, 1.0, 0.0], [40, 30, 30])
    y = np.tile(pulse, 24) + 0.02 * rng.standard_normal(2400)
    y[:1000] += 0.3 * np.sin(2 * np.pi * np.arange(1000) / 10)
    assert len(changes(y)) > 20
    run = rk.auto().run(y)
    (date,) = run.changepoints
    assert abs(date - 1000) <= 100 and len(run.known_changepoints) > 2


@pytest.mark.parametrize("seed", SEEDS)
def test_the_shape_view_is_silent_without_a_period(seed: int) -> None:
    y = ar(np.random.default_rng(seed), 2500, 0.9)
    model = rk.auto(regimes="shape")
    assert model.run(y).changepoints == [] and "none so far" in model.explain()


def test_the_shape_of_one_coordinate_suffices(rng: np.random.Generator) -> None:
    y = rng.standard_normal((1200, 2)) * [1.0, 1e-3]
    y[:, 1] += waves(rng, 600, False, True)
    y[rng.random(1200) < 0.02] = np.nan
    (date,) = rk.auto(regimes="shape").run(y).changepoints
    assert abs(date - 600) <= 40


@pytest.mark.parametrize("cut", [100, 127, 128, 129, 150, 595, 605, 700])
def test_a_copy_of_a_shape_view_continues_identically(cut: int) -> None:
    y = waves(np.random.default_rng(1), 400, False, True, False)
    model = rk.auto()
    model.run(y[:cut])
    twin = rk.from_bytes(model.to_bytes())
    ours, theirs = model.run(y[cut:]), twin.run(y[cut:])
    assert ours.events == theirs.events and len(ours.events) >= 1
    assert np.array_equal(ours.change_probability, theirs.change_probability)
    assert model.to_bytes() == twin.to_bytes()


def test_the_spectrum_is_that_of_numpy(rng: np.random.Generator) -> None:
    """The state is bounded, and the latest window is described by what numpy computes."""
    y = 3.0 + waves(rng, 5300, True)
    view = ShapeView(1)
    for t, value in enumerate(y):
        view.observe(value, t)
    n, (centre, scale) = 4 * view.period, np.asarray(view.units)[:, 0]
    last = len(y) - view.waiting
    z = (y[last - n : last] - centre) / scale
    power = np.abs(np.fft.rfft(np.hanning(n) * (z - z.mean()), 128)) ** 2 / 128
    cycles = np.arange(1, 65) * n / 128
    band = np.searchsorted([2.5, 5.5, 11.5, 23.5], cycles)
    expected = np.log(np.bincount(band, power[1:], 5) + 1e-6)
    row = view.view.segmentation.rows[-1]
    np.testing.assert_allclose(row[1:6], expected, rtol=1e-9)
    np.testing.assert_allclose(row[0], z[n // 2 - 10 : n // 2 + 10].mean(), atol=1e-12)
    harmonics = np.fft.fft(np.hanning(n) * (z - z.mean()))
    coupled = []
    for a, b in ((4, 4), (4, 8), (8, 8)):
        near = [(i, j) for i in range(a - 1, a + 2) for j in range(b - 1, b + 2)]
        each = [harmonics[i] * harmonics[j] * harmonics[i + j].conj() for i, j in near]
        coupled.append(sum(each) / np.abs(each).sum())
    np.testing.assert_allclose(row[6:12], np.array(coupled).view(float), atol=1e-9)
    steps = z[1:] - z[:-1]
    for number, d in zip(row[12:], (z - z.mean(), steps), strict=True):
        np.testing.assert_allclose(number, (d * np.abs(d)).mean() / (d * d).mean(), atol=1e-5)
    assert view.period == 20 and len(view.recent) == 80 and view.size == CAPACITY


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("other", ["reversed", "mirrored"])
def test_shapes_with_the_same_spectrum(other: str, seed: int) -> None:
    """A saw tooth and its reverse, or peaks and troughs: the phases differ, the power does not."""
    rng = np.random.default_rng(seed)
    u = np.arange(25) / 25
    shape = np.where(u < 0.7, u / 0.7, (1 - u) / 0.3) - 0.5 if other == "reversed" else 4 * u**4
    shape = shape - shape.mean()
    after = shape[::-1] if other == "reversed" else -shape
    y = np.concatenate([np.tile(shape, 40), np.tile(after, 40)]) + 0.2 * rng.standard_normal(2000)
    run = rk.auto().run(y)
    assert len(run.changepoints) == 1 and abs(run.changepoints[0] - 1000) <= 25


@pytest.mark.parametrize("n_spikes", [1, 2, 3])
def test_a_spike_has_no_shape(n_spikes: int) -> None:
    rng = np.random.default_rng(n_spikes)
    y = 10 * np.sin(2 * np.pi * np.arange(2400) / 24) + rng.standard_normal(2400)
    y[1200 : 1200 + n_spikes] += 300
    for regimes in ("auto", "shape"):
        run = rk.auto(regimes=regimes).run(y)
        assert run.changepoints == []
        assert run.outlier[1200]
