"""The offline sampler against enumeration, closed forms and Geweke's joint test."""

from __future__ import annotations

import bisect
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from regimekit.baselines.beam import BeamIhmm, BeamSettings, beam_ihmm
from regimekit.baselines.beam_fit import Data, Sampling, begin
from regimekit.baselines.beam_regression import Regression
from regimekit.core.exceptions import RegimekitError, SnapshotError
from regimekit.preprocessing import features
from regimekit.results import OPENED, RETURNED
from regimekit.serialization import snapshot

NAN = math.nan


def make_chain(data, prior, seed=0, regimes=2, room=400):
    plan = Sampling(1, 0, 1, 1, regimes, room)
    return begin(data, prior, plan, np.random.default_rng(seed))


def state(chain, *names):
    """Arrays of a chain by name; they share its memory."""
    return [np.asarray(getattr(chain, name)) for name in names]


def level_data(y):
    y = np.asarray(y, dtype=float)
    return Data(y, np.ones((len(y), 1)))


# Geweke (2004): two ways to draw from the joint law of parameters and data must agree.


def pick(odds, rng):
    """A key drawn with these odds."""
    keys, ends = list(odds), list(itertools.accumulate(odds.values()))
    return keys[bisect.bisect(ends[:-1], rng.random() * ends[-1])]


def urn_path(length, alpha, gamma, rng):
    """A path of the infinite HMM by its hierarchical urn: no sticks, no rows, no truncation."""
    counts: dict[int, dict[int, int]] = {}
    tables: list[float] = []
    path, source = [], -1
    for _ in range(length):
        row = counts.setdefault(source, {})
        n = sum(row.values())
        if rng.random() * (n + alpha) < n:
            regime = pick(row, rng)
        else:
            regime = pick(dict(enumerate([*tables, gamma])), rng)
            if regime == len(tables):
                tables.append(0)
            tables[regime] += 1
        row[regime] = row.get(regime, 0) + 1
        path.append(regime)
        source = regime
    return np.array(path)


def statistics(path, alpha, gamma, mean, noise, y):
    same = path[1:] == path[:-1]
    first, last = path[0], path[-1]
    regimes = path.max() + 1
    return (
        regimes,
        regimes**2,
        alpha,
        gamma,
        math.log(alpha),
        math.log(gamma),
        same.sum(),
        first == last,
        mean[first],
        mean[last] ** 2,
        math.log1p(noise[last]),
        math.atan(y[0]),
        math.log1p(y[-1] ** 2),
        math.atan(mean[first] * y[0]),
        regimes * alpha,
    )


def forward(length, prior, n, rng):
    rows = []
    for _ in range(n):
        alpha, gamma = rng.gamma(1.0), rng.gamma(1.0)
        path = urn_path(length, alpha, gamma, rng)
        size = path.max() + 1
        noise = np.full(size, prior.noise)
        if not prior.known:
            noise = prior.scale / rng.gamma(prior.shape, size=size)
        mean = prior.mean[0] + np.sqrt(noise) * prior.root[0, 0] * rng.standard_normal(size)
        y = mean[path] + np.sqrt(noise[path]) * rng.standard_normal(length)
        rows.append(statistics(path, alpha, gamma, mean, noise, y))
    return np.array(rows, dtype=float)


def successive(length, prior, n, rng):
    data = level_data(np.zeros(length))
    chain = make_chain(data, prior)
    rows = []
    for i in range(n + n // 20):
        path, coefficients, noise = state(chain, "path", "coefficients", "noise")
        mean = coefficients[:, 0]
        data.y[:] = mean[path] + np.sqrt(noise[path]) * rng.standard_normal(length)
        if i >= n // 20:
            rows.append(statistics(path, *chain.concentration, mean, noise, data.y))
        _, cut = chain.sweep()
        assert not cut
    return np.array(rows, dtype=float)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [1.0, "unknown"])
def test_geweke_joint_distribution(noise):
    # 15 statistics, batch means over 40 batches: P(|t_39| > 4.2) = 1.5e-4, so the chance of a
    # false alarm is below 15 * 1.5e-4 = 0.3 % for each of the two models.
    prior = BeamSettings(noise=noise, prior_mean=0.5, prior_var=1.5, noise_prior=(3.0, 2.0)).prior(
        1
    )
    rng = np.random.default_rng(20)
    exact = forward(8, prior, 10_000, rng)
    chain = successive(8, prior, 40_000, rng)
    batches = chain.reshape(40, -1, chain.shape[1]).mean(axis=1)
    error = np.sqrt(exact.var(axis=0) / len(exact) + batches.var(axis=0, ddof=1) / 40)
    moving = exact.std(axis=0) > 1e-9  # a known noise does not move
    z = (exact.mean(axis=0) - batches.mean(axis=0))[moving] / error[moving]
    assert np.abs(z).max() < 4.2, np.round(z, 2)


# The path given everything else, against all K^T paths.


def sliced_case(seed=3):
    rng = np.random.default_rng(seed)
    data = level_data([0.3, -1.0, NAN, 2.0, 1.4])
    prior = BeamSettings(noise=0.5, prior_var=2.0).prior(1)
    chain = make_chain(data, prior, regimes=3)
    np.asarray(chain.log_rows)[:4, :4] = np.log(rng.dirichlet(np.ones(4), 4))
    chain.draw_slices()
    return chain, data, np.asarray(chain.log_slices)


def all_paths(chain, data, log_slices):
    """{path: weight} of every path that the slices allow."""
    rows, coefficients, noise = state(chain, "log_rows", "coefficients", "noise")
    weights = {}
    for path in itertools.product(range(3), repeat=len(data.y)):
        sources = [0, *(k + 1 for k in path[:-1])]
        steps = zip(sources, path, log_slices, strict=True)
        if all(rows[j, k] >= least for j, k, least in steps):
            seen = ~np.isnan(data.y)
            mean = coefficients[list(path), 0]
            logs = stats.norm.logpdf(data.y, mean, np.sqrt(noise[list(path)]))
            weights[path] = math.exp(logs[seen].sum())
    return weights


def test_filter_equals_enumeration():
    chain, data, log_slices = sliced_case()
    chain.filter_forward()
    log_filter = np.asarray(chain.log_filter)
    for t in range(len(data.y)):
        part = Data(data.y[: t + 1], data.design[: t + 1])
        weights = all_paths(chain, part, log_slices[: t + 1])
        exact = np.zeros(3)
        for path, weight in weights.items():
            exact[path[-1]] += weight
        share = np.exp(log_filter[t])
        np.testing.assert_allclose(share / share.sum(), exact / exact.sum(), rtol=1e-12, atol=1e-15)


def test_backward_sampling_equals_enumeration():
    # Pearson's test at 1e-4: a false alarm in one of 10 000 seeds.
    chain, data, log_slices = sliced_case()
    weights = all_paths(chain, data, log_slices)
    assert len(weights) > 5
    chain.filter_forward()
    counts = dict.fromkeys(weights, 0)
    n = 4000
    for _ in range(n):
        chain.sample_backward()
        counts[tuple(chain.path)] += 1
    expected = np.array(list(weights.values()))
    expected *= n / expected.sum()
    common = expected > 5
    observed = np.array(list(counts.values()))
    pooled = [np.append(a[common], a[~common].sum()) for a in (observed, expected)]
    keep = pooled[1] > 0
    assert stats.chisquare(pooled[0][keep], pooled[1][keep]).pvalue > 1e-4


def test_extension_keeps_shares_and_hides_less_than_the_least_slice():
    data = level_data([0.0, 1.0, 2.0])
    prior = BeamSettings().prior(1)
    chain = make_chain(data, prior)
    assert not chain.extend(-9.0)
    log_rows, log_beta = state(chain, "log_rows", "log_beta")
    n = chain.size
    assert n > 2
    assert (log_rows[: n + 1, n] < -9.0).all()
    np.testing.assert_allclose(np.exp(log_rows[: n + 1, : n + 1]).sum(axis=1), 1, rtol=1e-12)
    assert np.exp(log_beta[: n + 1]).sum() == pytest.approx(1, rel=1e-12)


def test_extension_reports_that_room_ran_out():
    data = level_data([0.0, 1.0, 2.0])
    prior = BeamSettings().prior(1)
    chain = make_chain(data, prior, room=3)
    assert chain.extend(-1e6)
    assert chain.size == 3


# Closed forms.


@pytest.mark.parametrize("noise", [0.3, "unknown"])
def test_evidence_and_posterior_equal_closed_forms(noise):
    rng = np.random.default_rng(5)
    design = rng.standard_normal((7, 2))
    y = rng.standard_normal(7)
    y[3] = NAN
    settings = BeamSettings(
        noise=noise, prior_mean=[0.5, -1.0], prior_var=[[2.0, 0.3], [0.3, 1.0]], noise_prior=(3, 2)
    )
    prior = settings.prior(2)
    known = Regression(Data(y, design), prior)
    known.learn(np.zeros(7, np.int64), 1)
    seen = ~np.isnan(y)
    f, target = design[seen], y[seen]
    covariance = np.asarray(settings.prior_var)
    scale = prior.noise * np.eye(6) + f @ covariance @ f.T  # of a t where the noise is unknown
    centre = f @ prior.mean
    if prior.known:
        exact = stats.multivariate_normal.logpdf(target, centre, scale)
    else:
        exact = stats.multivariate_t.logpdf(target, centre, scale, df=2 * 3)
    assert known.log_evidence() == pytest.approx(exact, rel=1e-10)
    gain = covariance @ f.T @ np.linalg.inv(scale)
    np.testing.assert_allclose(known.mean[0], prior.mean + gain @ (target - centre), rtol=1e-10)
    root = np.tril(np.asarray(known.root)[0])
    left = covariance - gain @ f @ covariance
    np.testing.assert_allclose(prior.noise * np.linalg.inv(root @ root.T), left, rtol=1e-10)


def test_log_path_equals_the_urn():
    data = level_data(np.zeros(6))
    chain = make_chain(data, BeamSettings().prior(1), regimes=3)
    path, log_beta = state(chain, "path", "log_beta")
    path[:] = [0, 1, 1, 0, 1, 2]
    alpha, beta = chain.concentration[0], np.exp(log_beta)
    counts = np.zeros((4, 3))
    exact, source = 0.0, 0
    for regime in path:
        n = counts[source]
        exact += math.log((n[regime] + alpha * beta[regime]) / (n.sum() + alpha))
        n[regime] += 1
        source = regime + 1
    chain.count_transitions()
    assert chain.log_path() == pytest.approx(exact, rel=1e-10)


def exact_log_marginal(path, alpha, gamma):
    """log p(path | alpha, gamma): the urn, summed over who opened a table."""

    def remaining(t, source, counts, tables):
        if t == len(path):
            return 1.0
        k = path[t]
        row = counts.get(source, {})
        n = sum(row.values())
        old = row.get(k, 0) / (n + alpha)
        weight = tables.get(k, 0) or gamma
        new = alpha / (n + alpha) * weight / (sum(tables.values()) + gamma)
        counts = counts | {source: row | {k: row.get(k, 0) + 1}}
        total = new * remaining(t + 1, k, counts, tables | {k: tables.get(k, 0) + 1})
        return total + (old * remaining(t + 1, k, counts, tables) if old else 0.0)

    return math.log(remaining(0, -1, {}, {}))


def test_marginal_path_probability_is_unbiased():
    # A z-score above 4 has probability 6e-5.
    prior = BeamSettings().prior(1)
    chain = make_chain(level_data(np.zeros(8)), prior, seed=6, regimes=3)
    path, concentration, log_beta = state(chain, "path", "concentration", "log_beta")
    path[:] = [0, 1, 1, 0, 1, 2, 2, 2]
    concentration[:] = 0.7, 1.3
    log_beta[:4] = np.log([0.3, 0.3, 0.2, 0.2])
    chain.count_transitions()
    before = concentration.copy(), log_beta.copy()
    ratios = []
    log_prior = -0.7 - 1.3  # Gamma(1, 1) both
    exact = exact_log_marginal(path.tolist(), 0.7, 1.3)
    for _ in range(4000):
        concentration[:], log_beta[:] = before
        found = chain.sample_structure()
        ratios.append(math.exp(found - log_prior - exact))
    assert abs(np.mean(ratios) - 1) < 4 * np.std(ratios) / math.sqrt(len(ratios))
    assert np.std(ratios) < 1


def test_relabel_numbers_by_first_appearance_and_keeps_the_mass():
    chain = make_chain(level_data(np.zeros(4)), BeamSettings().prior(1), regimes=4)
    path, log_beta = state(chain, "path", "log_beta")
    beta = np.exp(log_beta[:5])
    path[:] = [3, 1, 3, 1]
    chain.relabel()
    assert path.tolist() == [0, 1, 0, 1]
    found = np.exp(log_beta[:3])
    np.testing.assert_allclose(found, [beta[3], beta[1], beta[0] + beta[2] + beta[4]], rtol=1e-12)


def test_prior_predictive_of_an_empty_stream():
    known = beam_ihmm(noise=0.25, prior_mean=2.0, prior_var=4.0).predict()
    assert known.mean == pytest.approx(2.0)
    assert known.sd == pytest.approx(math.sqrt(4.25))
    free = beam_ihmm(noise="unknown", prior_var=4.0, noise_prior=(3.0, 1.5)).predict()
    assert free.dof.tolist() == [6.0]
    assert free.spread[0, 0, 0] == pytest.approx(4.0 + 0.5)


def test_one_opened_regime_forecast_by_hand():
    model = beam_ihmm(iterations=40)
    model.sample_posterior([0.1, 0.0, NAN, 0.2])
    draws = model.sample_posterior().draws
    centre = 0.0
    for draw in draws:
        row = draw.rows[draw.path[-1] + 1]
        ahead = row @ np.vstack([draw.rows[1:], draw.shares])
        centre += ahead[:-1] @ draw.coefficients[:, 0] / len(draws)
    forecasts = model.forecast(2)
    assert forecasts[1].mean == pytest.approx(centre, rel=1e-9)
    assert forecasts[0].mean == model.predict().mean


# The model as a user meets it.


def three_regimes(seed=1, length=80):
    rng = np.random.default_rng(seed)
    truth = np.repeat([0, 1, 2, 0, 2, 1], length)
    return truth, np.array([-3.0, 0.0, 3.0])[truth] + 0.5 * rng.standard_normal(truth.size)


def agreement(path, truth):
    """Share of observations whose regime is the one most common for their true regime."""
    table = np.zeros((path.max() + 1, truth.max() + 1))
    np.add.at(table, (path, truth), 1)
    return table.max(axis=1).sum() / len(path), table.max(axis=0).sum() / len(path)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.25, "unknown"])
def test_three_regimes_are_found(noise):
    truth, y = three_regimes()
    fit = beam_ihmm(noise=noise, prior_var=9.0, iterations=3000).sample_posterior(y)
    assert fit.path.max() + 1 == max(fit.n_regimes, key=lambda n: fit.n_regimes[n]) == 3
    assert min(agreement(fit.path, truth)) > 0.99
    level = np.array([-3.0, 0.0, 3.0])[truth]
    for fitted in (fit.fitted, fit.fitted_best):
        assert np.sqrt(np.mean((fitted - level) ** 2)) < 0.25
    assert sum(fit.n_regimes.values()) == pytest.approx(1)
    assert fit.trace.log_joint.shape == fit.trace.alpha.shape == (1, 3000)
    assert not fit.trace.cut.any()


@pytest.mark.slow
def test_regression_regimes_are_found():
    rng = np.random.default_rng(8)
    truth = np.repeat([0, 1, 0, 1], 60)
    x = rng.standard_normal((truth.size, 1))
    slope, shift = np.array([2.0, -2.0])[truth], np.array([1.0, 0.0])[truth]
    y = shift + slope * x[:, 0] + 0.3 * rng.standard_normal(truth.size)
    f = features.intercept() + features.columns()
    model = beam_ihmm(features=f, noise=0.09, prior_var=4.0, iterations=400)
    run = model.run(y, x)
    pure, whole = agreement(run.regime, truth)
    assert pure > 0.95 and whole > 0.95
    found = sorted(model.regimes(), key=lambda regime: -regime.visits)[:2]
    found.sort(key=lambda regime: -regime.mean[1])
    for regime, exact in zip(found, ([1.0, 2.0], [0.0, -2.0]), strict=True):
        # five posterior standard deviations: a false alarm in about one of a million seeds
        assert (np.abs(regime.mean - exact) < 5 * regime.sd + 0.05).all()
    assert model.predict([1.0]).mean == pytest.approx(-2.0, abs=0.5)


def test_run_is_the_in_sample_summary():
    _, y = three_regimes(length=12)
    model = beam_ihmm(prior_var=9.0, iterations=80)
    run = model.run(y, level=0.8)
    fit = model.sample_posterior()
    np.testing.assert_allclose(run.mean, fit.fitted, rtol=1e-9)
    assert (run.lower < run.mean).all() and (run.mean < run.upper).all()
    assert (run.weight == 1).all() and np.isfinite(run.log_score).all()
    assert run.regime.tolist() == run.path.tolist() == fit.path.tolist()
    firsts = [int(np.flatnonzero(fit.path == k)[0]) for k in range(fit.path.max() + 1)]
    assert firsts == sorted(firsts)
    opened = [event.regime for event in run.events if event.kind == OPENED]
    assert opened == list(range(fit.path.max() + 1))
    returned = [event.time for event in run.events if event.kind == RETURNED]
    assert set(returned) <= set(run.changepoints)
    forecast = fit.smoothed(5, 6)[0]
    ends = [forecast.cdf(run.lower[5]), forecast.cdf(run.upper[5])]
    np.testing.assert_allclose(ends, [0.1, 0.9], atol=1e-6)


def test_transitions_and_regimes_belong_together():
    _, y = three_regimes(length=12)
    model = beam_ihmm(prior_var=9.0, iterations=80)
    model.run(y)
    ids, matrix = model.transitions()
    regimes = model.regimes()
    assert ids == [regime.id for regime in regimes]
    assert (matrix.sum(axis=1) <= 1 + 1e-12).all() and (matrix >= 0).all()
    assert sum(regime.visits for regime in regimes) == len(y)


@pytest.mark.parametrize("noise", [0.25, "unknown"])
@pytest.mark.parametrize("size", [1e6, 1e300, 1e-300])
def test_an_extreme_observation_poisons_nothing(noise, size):
    y = 0.5 * np.random.default_rng(2).standard_normal(40)
    y[20] = size
    model = beam_ihmm(noise=noise, iterations=40)
    run = model.run(y)
    for name in ("mean", "sd", "lower", "upper", "log_score"):
        assert np.isfinite(getattr(run, name)).all(), name
    trace = model.sample_posterior().trace
    assert np.isfinite(trace.log_joint).all()
    assert (trace.alpha > 0).all() and (trace.gamma > 0).all()
    assert np.isfinite(model.predict().mean)


@pytest.mark.parametrize("noise", [0.25, "unknown"])
@pytest.mark.parametrize("y", [[2.0], [2.0] * 30, [NAN] * 6, [NAN, 1.0, NAN]])
def test_small_and_empty_of_news(noise, y):
    model = beam_ihmm(noise=noise, iterations=30, chains=2)
    run = model.run(y)
    assert len(run) == len(y)
    assert np.isfinite(run.mean).all() and np.isfinite(run.upper).all()
    assert (np.isnan(run.log_score) == np.isnan(y)).all()
    assert math.isfinite(model.predict().log_density(1.0))
    assert sum(regime.visits for regime in model.regimes()) == np.sum(~np.isnan(y))


def test_nothing_at_all():
    model = beam_ihmm(iterations=10)
    assert len(model.run([])) == 0
    assert model.regimes() == [] and model.transitions().ids == []
    fit = model.sample_posterior()
    assert len(fit) == len(fit.fitted) == len(fit.one_step) == len(fit.path) == 0
    assert fit.n_regimes == {}


def test_constant_series_is_one_regime():
    fit = beam_ihmm(noise=0.01, prior_var=4.0, iterations=100).sample_posterior([2.0] * 40)
    assert set(fit.path.tolist()) == {0}
    np.testing.assert_allclose(fit.fitted_best, 2.0, atol=0.01)


def test_seed_and_chains():
    _, y = three_regimes(length=6)
    settings = {"iterations": 20, "thin": 3, "burn_in": 5, "chains": 2}
    one, same = (beam_ihmm(seed=4, **settings).sample_posterior(y) for _ in range(2))
    other = beam_ihmm(seed=5, **settings).sample_posterior(y)
    np.testing.assert_array_equal(one.trace.log_joint, same.trace.log_joint)
    assert (one.trace.log_joint != other.trace.log_joint).any()
    assert (one.trace.log_joint[0] != one.trace.log_joint[1]).any()
    assert len(one.draws) == 2 * 5
    highest = one.trace.log_joint[:, 5:].max()
    at = np.argwhere(one.trace.log_joint == highest)[0]
    assert one.best is not None and one.best.n_regimes == one.trace.n_regimes[tuple(at)]


def test_asking_changes_nothing():
    _, y = three_regimes(length=5)
    asked, silent = (beam_ihmm(iterations=15) for _ in range(2))
    for value in y[:6]:
        before = asked.to_bytes()
        assert asked.predict().mean == asked.predict().mean
        asked.forecast(2)
        asked.regimes()
        assert asked.to_bytes() == before
        asked.update(value)
        silent.update(value)
    assert asked.predict().mean == silent.predict().mean
    assert asked.to_bytes() == silent.to_bytes()


def test_chunks_make_no_difference():
    _, y = three_regimes(length=5)
    whole, parts = (beam_ihmm(iterations=20) for _ in range(2))
    together = whole.run(y)
    for value in y[:3]:
        parts.update(value)
    parts.run(y[3:20])
    last = parts.run(y[20:])
    np.testing.assert_array_equal(last.mean, together.mean[20:])
    np.testing.assert_array_equal(last.regime, together.regime[20:])
    assert whole.predict().mean == parts.predict().mean


def test_fit_replaces_and_run_appends():
    model = beam_ihmm(iterations=10)
    model.update(1.0)
    assert len(model.sample_posterior([1.0, 2.0])) == 2
    model.run([3.0])
    assert len(model.sample_posterior()) == 3
    with pytest.raises(RegimekitError, match="X is given without y"):
        model.sample_posterior(X=[1.0])


def test_lags_see_the_past_only():
    model = beam_ihmm(features=features.intercept() + features.lags(1), iterations=20)
    model.update(3.0)
    model.run([5.0, NAN, 7.0])
    assert model.sample_posterior().data.design.tolist() == [[1, 0], [1, 3], [1, 5], [1, 5]]
    assert len(model.forecast(4)) == 4


def test_snapshot():
    x = np.arange(12.0)[:, None]
    y = 0.5 * x[:, 0]
    f = features.columns() + features.lags(2)
    model = beam_ihmm(features=f, noise="unknown", iterations=20, prior_mean=[0, 1])
    model.run(y, x)
    content = snapshot.read(model.to_bytes())
    twin = beam_ihmm(**content.settings)
    twin._unpack(content.values, content.arrays)
    assert twin.settings() == model.settings()
    for other in (twin, model.copy()):
        assert other.predict([12.0]).mean == model.predict([12.0]).mean
    twin.update(6.0, [12.0])
    model.update(6.0, [12.0])
    assert twin.to_bytes() == model.to_bytes()
    content.arrays["y"] = content.arrays["y"][1:]
    with pytest.raises(SnapshotError, match="design"):
        twin._unpack(content.values, content.arrays)


def test_a_bad_stream_changes_nothing():
    model = beam_ihmm(features=features.columns(), iterations=10)
    model.update(1.0, [2.0])
    before = model.to_bytes()
    for y, x in (([1.0, 2.0], [[1.0], [NAN]]), ([1.0, math.inf], [[1.0], [1.0]]), ([1.0], None)):
        for call in (model.run, model.fit):
            with pytest.raises(RegimekitError):
                call(y, x)
            assert model.to_bytes() == before
    with pytest.raises(RegimekitError):
        model.update(1.0, [1.0, 2.0])
    assert model.to_bytes() == before


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"noise": 0}, "noise"),
        ({"noise": math.inf}, "noise"),
        ({"noise": [[1.0, 0.0], [0.0, 1.0]]}, "noise"),
        ({"noise": "unknwon"}, "unknown"),
        ({"noise_prior": (1.0,)}, "noise_prior"),
        ({"alpha_prior": (0.0, 1.0)}, "alpha_prior"),
        ({"gamma_prior": (1.0, math.inf)}, "gamma_prior"),
        ({"iterations": 0}, "iterations"),
        ({"iterations": 10, "burn_in": 10}, "burn_in"),
        ({"thin": 0}, "thin"),
        ({"chains": 0}, "chains"),
        ({"initial_regimes": 20, "max_regimes": 10}, "initial_regimes"),
        ({"seed": -1}, "seed"),
        ({"iteration": 10}, "iterations"),
    ],
)
def test_bad_settings_are_named(settings, word):
    with pytest.raises(RegimekitError, match=word):
        beam_ihmm(**settings)


def test_bad_prior_is_named_when_its_length_is_known():
    model = beam_ihmm(prior_mean=[0.0, 1.0], iterations=5)
    with pytest.raises(RegimekitError, match="prior_mean"):
        model.update(1.0)
    with pytest.raises(RegimekitError, match="prior_mean"):
        model.predict()


def test_one_coordinate_only():
    model = beam_ihmm()
    with pytest.raises(RegimekitError, match="one coordinate"):
        model.update([1.0, 2.0])
    with pytest.raises(RegimekitError, match="one coordinate"):
        model.run(np.zeros((4, 2)))
    assert isinstance(model, BeamIhmm)


def test_lags_beyond_now_are_the_forecasts_themselves() -> None:
    """An autoregression above its mean: each step ahead follows from the one before it."""
    rng = np.random.default_rng(4)
    y = [0.0]
    for _ in range(80):
        y.append(0.8 * y[-1] + 0.1 * rng.standard_normal())
    lagged = features.intercept() + features.lags(1)
    model = beam_ihmm(features=lagged, noise=0.01, prior_var=1.0, iterations=60)
    model.run([*y, 0.3])
    ahead = np.array([forecast.mean for forecast in model.forecast(4)])
    constant, slope = model.regimes()[0].mean
    np.testing.assert_allclose(ahead[1:], constant + slope * ahead[:-1], atol=0.02)
