"""bocd against the direct recursion over all segments, enumeration of all paths, and its bounds."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import regimekit as rk
from regimekit.baselines.bocd import Bocd, bocd
from regimekit.baselines.run_length import MAX_TRAIL, Trail
from regimekit.serialization.validation import Arrays, Values

HAZARD = 0.07


# Evidence of a segment, from the definition: the joint density of its values.


def gaussian_segment(y: np.ndarray, phi: np.ndarray, noise: np.ndarray, prior_var: float) -> float:
    """log p(y_s..y_t) of a linear-Gaussian segment, as one joint normal of what was observed."""
    n, d = y.shape
    flat = y.reshape(-1)
    seen = ~np.isnan(flat)
    if not seen.any():
        return 0.0
    design = np.vstack([np.kron(np.eye(d), phi[t]) for t in range(n)])
    covariance = prior_var * design @ design.T + np.kron(np.eye(n), noise)
    root = np.linalg.cholesky(covariance[np.ix_(seen, seen)])
    white = np.linalg.solve(root, flat[seen])
    log_det = np.log(np.diag(root)).sum()
    return float(-0.5 * (white @ white + seen.sum() * math.log(2 * math.pi)) - log_det)


def student_segment(
    y: np.ndarray, phi: np.ndarray, shape: float, scale: float, var: float
) -> float:
    """The same with unknown noise: one joint Student-t."""
    flat = y[:, 0]
    seen = ~np.isnan(flat)
    if not seen.any():
        return 0.0
    rows = phi[seen]
    spread = scale / shape * np.eye(len(rows)) + var * rows @ rows.T
    return float(stats.multivariate_t.logpdf(flat[seen], shape=spread, df=2 * shape))


def direct(y: np.ndarray, segment: Any, hazard: float) -> tuple[list[np.ndarray], list[float]]:
    """Every start kept, every segment scored afresh: posteriors over starts, log predictives."""
    posteriors: list[np.ndarray] = []
    predictives: list[float] = []
    for t in range(len(y)):
        before = posteriors[-1] if posteriors else np.zeros(0)
        prior = np.append((1 - hazard) * before, hazard if t else 1.0)
        ratio = [segment(s, t + 1) - segment(s, t) for s in range(t + 1)]
        log_joint = np.log(prior) + ratio
        evidence = special.logsumexp(log_joint)
        predictives.append(float(evidence))
        posteriors.append(np.exp(log_joint - evidence))
    return posteriors, predictives


def at_observed(posterior: np.ndarray, seen: np.ndarray) -> dict[int, float]:
    """Starts inside a gap counted as a start at its end; those after the last value left out."""
    merged: dict[int, float] = {}
    for start, mass in enumerate(posterior):
        later = np.flatnonzero(seen[start : len(posterior)])
        if later.size:
            merged[start + int(later[0])] = merged.get(start + int(later[0]), 0.0) + float(mass)
    total = sum(merged.values())
    return {start: mass / total for start, mass in merged.items()}


def shifts(rng: np.random.Generator, n: int, d: int = 1) -> np.ndarray:
    """Levels that change about every eighth observation."""
    level = np.zeros((n, d))
    for t in range(n):
        level[t] = rng.normal(0, 2, d) if t == 0 or rng.random() < 1 / 8 else level[t - 1]
    return level + 0.5 * rng.standard_normal((n, d))


@pytest.mark.parametrize("dim", [1, 2])
@pytest.mark.parametrize("gaps", [False, True])
def test_equals_the_direct_recursion(dim: int, gaps: bool) -> None:
    rng = np.random.default_rng(3)
    y = shifts(rng, 28, dim)
    x = rng.standard_normal((28, 1))
    if gaps:
        y[[0, 1, 9, 10, 11, 20]] = np.nan
        y[5, 0] = y[15, -1] = np.nan
    phi = np.column_stack([np.ones(28), x])
    noise = np.array([[0.3]]) if dim == 1 else np.array([[0.3, 0.1], [0.1, 0.2]])
    posteriors, predictives = direct(
        y, lambda s, t: gaussian_segment(y[s:t], phi[s:t], noise, 2.0), HAZARD
    )
    features = rk.features.intercept() + rk.features.columns()
    model = bocd(
        features=features, noise=noise, prior_var=2.0, hazard=HAZARD, max_run_lengths=40, dim=dim
    )
    seen = ~np.isnan(y).all(axis=1)
    for t in range(28):
        step = model.update(y[t], x[t])
        if seen[t]:
            assert step.log_score == pytest.approx(predictives[t], abs=1e-10)
        if seen[: t + 1].any():
            expected = at_observed(posteriors[t], seen)
            got = model.run_lengths()
            assert set(got) == set(expected)
            for start in got:
                assert got[start] == pytest.approx(expected[start], abs=1e-10)
    assert model.dropped_mass == 0.0


def test_equals_the_direct_recursion_with_unknown_noise() -> None:
    rng = np.random.default_rng(4)
    y = shifts(rng, 26)
    y[[4, 5]] = np.nan
    x = rng.standard_normal((26, 1))
    phi = np.column_stack([np.ones(26), x])
    _, predictives = direct(
        y, lambda s, t: student_segment(y[s:t], phi[s:t], 1.5, 0.6, 2.0), HAZARD
    )
    model = bocd(
        emission="normal_inverse_gamma",
        noise_shape=1.5,
        noise_scale=0.6,
        prior_var=2.0,
        features=rk.features.intercept() + rk.features.columns(),
        hazard=HAZARD,
    )
    run = model.run(y[:, 0], x)
    seen = ~np.isnan(y[:, 0])
    np.testing.assert_allclose(run.log_score[seen], np.array(predictives)[seen], atol=1e-10)


def test_forecast_is_the_mixture_over_run_lengths() -> None:
    """Its density is that of the next value, whatever it will be: ratios of joint evidences."""
    rng = np.random.default_rng(5)
    y = shifts(rng, 15)
    model = bocd(noise=0.3, prior_var=2.0, hazard=HAZARD)
    model.run(y)
    grid = np.linspace(-8, 8, 41)
    ones, noise = np.ones((16, 1)), np.array([[0.3]])
    forecast = model.predict()
    for value in grid:
        extended = np.vstack([y, [[value]]])
        log_predictive = direct(
            extended,
            lambda s, t, e=extended: gaussian_segment(e[s:t], ones[s:t], noise, 2.0),
            HAZARD,
        )[1][-1]
        assert forecast.log_density(value) == pytest.approx(log_predictive, abs=1e-10)
    assert forecast.share.sum() == pytest.approx(1.0)


def test_forecast_ahead_equals_a_forecast_after_missing_values() -> None:
    """With no lags, looking h steps ahead is waiting h - 1 steps in the dark."""
    model = bocd(noise=0.3, prior_var=2.0, hazard=HAZARD)
    model.run(shifts(np.random.default_rng(6), 30))
    ahead = model.forecast(5)
    for forecast in ahead:
        waited = model.predict()
        for q in (0.05, 0.5, 0.95):
            assert forecast.quantile(q) == pytest.approx(waited.quantile(q), abs=1e-9)
        model.update(math.nan)


def paths(n: int) -> list[list[int]]:
    """Every way to cut n observations into segments, as the start of each observation's one."""
    every = []
    for cuts in itertools.product([False, True], repeat=n - 1):
        starts, now = [0], 0
        for t, cut in enumerate(cuts, start=1):
            now = t if cut else now
            starts.append(now)
        every.append(starts)
    return every


def path_log_weights(every: list[list[int]], y: np.ndarray) -> np.ndarray:
    """log p(path, y) of each path, noise 0.25 and prior variance 3."""
    log_evidence = {
        (s, t): gaussian_segment(y[s:t], np.ones((t - s, 1)), np.array([[0.25]]), 3.0)
        for t in range(1, len(y) + 1)
        for s in range(t)
    }
    logs = []
    for path in every:
        starts = sorted(set(path))
        ends = [*starts[1:], len(path)]
        stays = len(path) - len(starts)
        prior = (len(starts) - 1) * math.log(HAZARD) + stays * math.log1p(-HAZARD)
        logs.append(prior + sum(log_evidence[pair] for pair in zip(starts, ends, strict=True)))
    return np.array(logs)


def test_segmentation_is_the_most_probable_path() -> None:
    for seed in range(8):
        y = shifts(np.random.default_rng(seed), 9)
        every = paths(9)
        best = every[int(np.argmax(path_log_weights(every, y)))]
        model = bocd(noise=0.25, prior_var=3.0, hazard=HAZARD)
        model.run(y)
        assert model.segmentation() == sorted(set(best))[1:]


@pytest.mark.parametrize("kept", [2, 3, 5])
def test_dropping_conditions_on_paths_never_dropped(kept: int) -> None:
    """What is kept is exactly the posterior of the paths that only used kept starts."""
    y = shifts(np.random.default_rng(11), 10)
    model = bocd(noise=0.25, prior_var=3.0, hazard=HAZARD, max_run_lengths=kept)
    alive = paths(10)
    for t in range(10):
        model.update(y[t])
        stored = model.run_lengths()
        alive = [path for path in alive if path[t] in stored]
        assert len(stored) == min(t + 1, kept)
    logs = path_log_weights(alive, y)
    share = np.exp(logs - special.logsumexp(logs))
    for start, mass in stored.items():
        expected = sum(w for path, w in zip(alive, share, strict=True) if path[-1] == start)
        assert mass == pytest.approx(expected, abs=1e-10)
    assert 0 < model.latest_dropped_mass <= model.dropped_mass


@pytest.mark.slow
def test_dropped_mass_bounds_the_error_on_average() -> None:
    """Mean over streams from the model of (lost path probability - stated bound) is not above 0.

    One-sided at 4 standard errors: false alarms below 1 in 10 000.
    """
    rng = np.random.default_rng(12)
    every = paths(8)
    gaps = []
    for _ in range(60):
        level = rng.normal(0, math.sqrt(3.0))
        y = np.empty((8, 1))
        for t in range(8):
            if t and rng.random() < HAZARD:
                level = rng.normal(0, math.sqrt(3.0))
            y[t] = level + 0.5 * rng.standard_normal()
        model = bocd(noise=0.25, prior_var=3.0, hazard=HAZARD, max_run_lengths=2)
        used = np.ones(len(every), bool)
        for t in range(8):
            model.update(y[t])
            stored = model.run_lengths()
            used &= np.array([path[t] in stored for path in every])
        logs = path_log_weights(every, y)
        share = np.exp(logs - special.logsumexp(logs))
        gaps.append(share[~used].sum() - model.dropped_mass)
    error = np.std(gaps) / math.sqrt(len(gaps))
    assert np.mean(gaps) <= 4 * error


@pytest.mark.slow
def test_a_long_trail_equals_one_that_forgets_nothing() -> None:
    rng = np.random.default_rng(13)
    y = shifts(rng, 600)[:, 0]
    model = bocd(noise=0.25, prior_var=4.0, hazard=0.1, max_run_lengths=20)
    everything: dict[int, int] = {}
    for value in y:
        model.update(value)
        assert model.lengths is not None
        everything |= model.lengths.trail.before
    found = model.segmentation()
    chain, start = [], found[-1]
    while start >= 0:
        chain.append(start)
        start = everything[start]
    assert found == chain[::-1][1:]
    assert len(model.lengths.trail.before) < 300


def test_trail_is_bounded() -> None:
    trail = Trail()
    for t in range(5000):
        trail.push(t, t - 1)
        trail.prune(np.array([t]))
    assert len(trail.before) <= 2 * (MAX_TRAIL + 1) + 1
    assert trail.path(4999)[-1000:] == list(range(4000, 5000))


def test_regimes_are_segments_that_never_return() -> None:
    rng = np.random.default_rng(14)
    y = np.repeat([0.0, 4.0, 0.0, 4.0], 30) + 0.5 * rng.standard_normal(120)
    model = bocd(noise=0.25, prior_var=8.0)
    run = model.run(y)
    assert (np.diff(run.regime) >= 0).all() and run.regime[0] == 0
    assert run.regime[-1] >= 3  # the second 4.0 is no return
    for true in (30, 60, 90):
        assert any(true <= change <= true + 3 for change in run.changepoints)
        assert run.change_probability[true : true + 4].max() > 0.5
    assert model.segmentation() == [30, 60, 90]
    assert {e.kind for e in run.events} == {"regime opened"}  # one event per change
    assert [e.since for e in run.events] == [0, *run.changepoints]
    assert [e.time for e in run.events] == [0, *run.known_changepoints]
    assert [(e.previous, e.regime) for e in run.events] == [(-1, 0), (0, 1), (1, 2), (2, 3)]


def test_probabilities_match_their_definitions() -> None:
    """Recomputed from the posterior over starts and the times at which ids were given."""
    rng = np.random.default_rng(15)
    y = np.repeat([0.0, 3.0, 0.0], 25) + 0.5 * rng.standard_normal(75)
    y[[12, 13, 40]] = np.nan
    model = bocd(noise=0.25, prior_var=4.0, hazard=0.05)
    given, given_before, gap = -1, -1, 0
    for t, value in enumerate(y):
        step = model.update(value)
        starts = model.run_lengths()
        gap = gap + 1 if np.isnan(value) else 0
        still = 0.95**gap
        if t:
            later = sum(mass for start, mass in starts.items() if start > given)
            assert step.change_probability == pytest.approx(1 - (1 - later) * still, abs=1e-12)
        else:
            assert step.change_probability == 0.0
        if step.events:
            given_before, given = given, t
        ours = sum(mass for start, mass in starts.items() if given_before < start <= given)
        assert step.regime_probability == pytest.approx(ours * still, abs=1e-12)


def test_missing_values_advance_the_hazard_only() -> None:
    model = bocd(hazard=0.1)
    model.run([0.3, -0.2, 0.1])
    before, regime = model.run_lengths(), model.regimes()[0]
    for gap in range(1, 6):
        step = model.update(None)
        assert model.run_lengths() == before and step.weight == 1.0 and math.isnan(step.log_score)
        assert model.predict().share[-1] == pytest.approx(1 - 0.9 ** (gap + 1))
    after = model.regimes()[0]
    assert after.mean == regime.mean and after.last_seen == regime.last_seen == 2


def test_a_gap_without_end_is_a_new_segment() -> None:
    model = bocd(hazard=0.5)
    model.run([0.3, -0.2] + [math.nan] * 2000)
    assert model.predict().mean == pytest.approx(0.0)
    step = model.update(0.4)
    assert step.change_probability == pytest.approx(1.0) and step.regime == 1


def test_a_spike_resets_the_run_length_but_not_with_a_weight() -> None:
    rng = np.random.default_rng(16)
    y = 0.5 * rng.standard_normal(80)
    y[50] = 1e6
    plain, careful = bocd(noise=0.25), bocd(noise=0.25, weight="imq", threshold=3.0)
    assert plain.run(y).regime[50] > 0
    assert sum(mass for start, mass in plain.run_lengths().items() if start < 50) < 1e-12
    run = careful.run(y)
    assert set(run.regime[50:]) == {run.regime[49]} and run.outlier[50]
    assert max(careful.run_lengths(), key=careful.run_lengths().__getitem__) < 50
    assert [e.time for e in run.events if e.kind == "outlier"].count(50) == 1


@pytest.mark.parametrize("huge", [1e300, -1e300, 1e-300])
def test_absurd_values_neither_overflow_nor_poison(huge: float) -> None:
    model = bocd(weight="imq", threshold=3.0)
    model.run([0.1, -0.1, 0.2, huge, 0.1, 0.0, -0.2, 0.1])
    assert abs(model.predict().mean) < 1.0
    assert np.isfinite(list(model.run_lengths().values())).all()
    plain = bocd()
    run = plain.run([0.1, huge, 0.1, 0.0, -0.2, 0.1])
    assert np.isfinite(run.mean).all() and np.isfinite(run.log_score).all()


def test_rescaling_changes_no_run_length() -> None:
    y = shifts(np.random.default_rng(17), 60)[:, 0]
    a = bocd(noise=0.25, prior_var=2.0)
    b = bocd(noise=0.25e12, prior_var=2e12)
    a.run(y)
    b.run(1e6 * y)
    for start, mass in a.run_lengths().items():
        assert b.run_lengths()[start] == pytest.approx(mass, abs=1e-9)


@pytest.mark.slow
def test_calibrated_on_its_own_model() -> None:
    """PIT uniform (Kolmogorov-Smirnov at 0.1 %) and 90 % intervals that cover so many, within
    3.3 standard errors (0.1 %): together a false alarm in 500 seeds."""
    rng = np.random.default_rng(18)
    level, y = rng.normal(0, 1), np.empty(1500)
    for t in range(1500):
        level = rng.normal(0, 1) if rng.random() < 0.02 else level
        y[t] = level + 0.5 * rng.standard_normal()
    model = bocd(noise=0.25, prior_var=1.0, hazard=0.02)
    pit = []
    for value in y:
        forecast = model.predict()
        pit.append(forecast.cdf(value))
        model.update(value)
    inside = np.mean((np.array(pit) > 0.05) & (np.array(pit) < 0.95))
    assert stats.kstest(pit, "uniform").pvalue > 1e-3
    assert abs(inside - 0.9) < 3.3 * math.sqrt(0.09 / 1500)


def test_lags_and_horizon() -> None:
    """An autoregression: forecasts ahead feed on themselves and keep the state as it was."""
    rng = np.random.default_rng(19)
    y = np.zeros(200)
    for t in range(1, 200):
        y[t] = 0.8 * y[t - 1] + 0.3 * rng.standard_normal()
    model = bocd(features=rk.features.lags(1), noise=0.09, hazard=1e-4)
    model.run(y)
    before = model.to_bytes()
    means = [forecast.mean for forecast in model.forecast(20)]
    assert model.to_bytes() == before
    assert abs(means[-1]) < 0.3 * abs(means[0]) + 0.05
    assert abs(model.regimes()[0].mean[0] - 0.8) < 0.15  # 5 sd of the estimate over 200 values


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"hazard": 0.0}, "hazard"),
        ({"hazard": 1}, "hazard"),
        ({"hazard": math.nan}, "hazard"),
        ({"hazard": "often"}, "hazard"),
        ({"max_run_lengths": 1}, "max_run_lengths"),
        ({"max_run_lengths": 2.5}, "max_run_lengths"),
        ({"emission": "gaussian"}, "emission"),
        ({"noise": -1.0}, "noise"),
        ({"prior_var": 0.0}, "prior_var"),
        ({"weight": "imqq"}, "weight"),
        ({"threshold": 0.0}, "threshold"),
        ({"outlier_weight": 2.0}, "outlier_weight"),
        ({"hazzard": 0.1}, "hazard"),
        ({"dim": 0}, "dim"),
        ({"features": 3}, "features"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(rk.RegimekitError, match=named):
        bocd(**settings)


def test_bad_observations_change_nothing() -> None:
    model = bocd(features=rk.features.intercept() + rk.features.columns())
    model.run([0.1, 0.2], [[1.0], [2.0]])
    before = model.to_bytes()
    bad_x: list[Any] = [None, [1.0, 2.0], [math.nan]]
    for y, x in [(math.inf, [1.0]), ([1.0, 2.0], [1.0]), *((0.1, x) for x in bad_x)]:
        with pytest.raises(rk.RegimekitError):
            model.update(y, x)
    with pytest.raises(rk.RegimekitError):
        model.run([0.1, math.inf], [[1.0], [2.0]])
    assert model.to_bytes() == before


@pytest.mark.parametrize(
    "settings",
    [{}, {"emission": "normal_inverse_gamma"}, {"weight": "huber", "max_run_lengths": 7}],
    ids=["gaussian", "student", "weighted"],
)
def test_state_and_settings_survive(settings: dict[str, Any]) -> None:
    y = shifts(np.random.default_rng(20), 90)[:, 0]
    y[30:33] = np.nan
    model = bocd(**settings)
    chosen = json.loads(json.dumps(model.settings()))
    assert bocd(**chosen).settings() == chosen
    model.run(y[:50])
    twin, revived = model.copy(), bocd(**chosen)
    revived.restore_state(*json_and_arrays(model))
    assert twin.to_bytes() == revived.to_bytes() == model.to_bytes()
    expected = model.run(y[50:])
    for other in (twin, revived):
        run = other.run(y[50:])
        np.testing.assert_array_equal(run.mean, expected.mean)
        np.testing.assert_array_equal(run.change_probability, expected.change_probability)
        assert run.events == expected.events and other.segmentation() == model.segmentation()
    assert twin.to_bytes() == model.to_bytes()


def json_and_arrays(model: Bocd) -> tuple[Values, Arrays]:
    values, arrays = model._full_state()
    copies = {name: array.copy() for name, array in arrays.items()}
    return Values(json.loads(json.dumps(values))), Arrays(copies)


def test_a_snapshot_with_more_starts_than_kept_is_refused() -> None:
    model = bocd(max_run_lengths=10)
    model.run(np.zeros(20))
    with pytest.raises(rk.RegimekitError, match="max_run_lengths"):
        bocd(max_run_lengths=3).restore_state(*json_and_arrays(model))


@pytest.mark.parametrize("series", [[], [1.0], [math.nan] * 30, [2.0] * 200])
def test_degenerate_streams(series: list[float]) -> None:
    model = bocd()
    run = model.run(series)
    assert len(run) == len(series) and np.isfinite(run.mean).all() and (run.sd > 0).all()
    if len(series) == 200:
        assert run.regime[-1] == 0 and model.predict().mean == pytest.approx(2.0, abs=0.05)
    if len(series) == 30:
        assert (run.regime == rk.results.NO_REGIME).all() and model.segmentation() == []
