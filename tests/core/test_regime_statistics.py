"""Statistics, labels and summaries of regimes, and anomaly scores of all models."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest

import regimekit as rk
from regimekit.core.regime_statistics import MAX_REGIMES, PENDING, RegimeStatistics

REGIME_MODELS = ("auto", "br_ihmm", "student_t_ihmm", "bocd")


def two_levels(seed: int = 0) -> np.ndarray:
    """Levels 0 and 8 in four visits, one missing value and one spike."""
    rng = np.random.default_rng(seed)
    stays = ((0.0, 1.0, 300), (8.0, 0.5, 200), (0.0, 1.0, 300), (8.0, 0.5, 100))
    y = np.concatenate([rng.normal(level, sd, n) for level, sd, n in stays])
    y[50], y[120] = np.nan, 15.0
    return y


def visits(path: np.ndarray, regime: int) -> list[int]:
    return [len(list(stay)) for own, stay in groupby(path.tolist()) if own == regime]


@pytest.mark.parametrize("name", ["auto", "br_ihmm", "student_t_ihmm"])
def test_statistics_are_those_of_the_path(name: str) -> None:
    y, model = two_levels(), rk.make(name)
    run = model.run(y)
    regimes = model.regimes()
    assert len(regimes) == 2
    for regime in regimes:
        own = y[run.path == regime.id]
        stays = visits(run.path, regime.id)
        # Samples are of at least 64 rows; the quantiles are those of a part of the rows.
        spread = np.nanquantile(own, 0.95) - np.nanquantile(own, 0.05)
        assert abs(regime.typical - np.nanmedian(own)) < 0.15 * spread
        assert abs(regime.low - np.nanquantile(own, 0.05)) < 0.2 * spread
        assert abs(regime.high - np.nanquantile(own, 0.95)) < 0.2 * spread
        assert regime.share == np.mean(run.path == regime.id)
        assert regime.n_visits == len(stays) and regime.duration == np.median(stays)
        assert regime.status == "unknown" and regime.name == ""
    assert sum(regime.n_visits for regime in regimes) == len(run.changepoints) + 1
    assert "twice the spread of regime 1" in regimes[0].summary


@pytest.mark.parametrize("name", REGIME_MODELS)
@pytest.mark.parametrize("dim", [1, 2])
def test_run_and_update_give_the_same_statistics_and_scores(name: str, dim: int) -> None:
    y = two_levels()[:420]
    if dim == 2:
        y = np.column_stack([y, np.random.default_rng(1).normal(size=len(y)) + 0.3 * y])
    whole, steps, halves = rk.make(name), rk.make(name), rk.make(name)
    run = whole.run(y)
    scores = np.array([steps.update(value).anomaly_score for value in y])
    np.testing.assert_array_equal(scores, run.anomaly_score)
    halves.run(y[:205])
    halves = rk.from_bytes(halves.to_bytes())
    halves.run(y[205:])
    for a, b, c in zip(whole.regimes(), steps.regimes(), halves.regimes(), strict=True):
        for other in (b, c):
            assert a.summary == other.summary and a.share == other.share
            np.testing.assert_array_equal(a.typical, other.typical)
            assert (a.duration, a.n_visits) == (other.duration, other.n_visits)
    assert steps.to_bytes() == whole.to_bytes()


def test_sizes_are_bounded() -> None:
    rng = np.random.default_rng(0)
    statistics = RegimeStatistics(2)
    regime = np.repeat(np.arange(300), 30)
    statistics.extend(rng.normal(size=(len(regime), 2)), regime)
    assert statistics.n_regimes == MAX_REGIMES
    assert set(np.asarray(statistics.id)[:MAX_REGIMES]) <= set(range(200, 300))
    statistics = RegimeStatistics(1)
    y = np.linspace(0.0, 1.0, 100_000)
    statistics.extend(y[:, None], np.tile(np.repeat([0, 1], 10), 5000))
    values, _, rows = statistics.rows_of(1)
    assert 64 <= len(values) <= 128 + PENDING
    np.testing.assert_allclose(np.quantile(values, [0.05, 0.5, 0.95]), [0.05, 0.5, 0.95], atol=0.03)
    assert ((rows // 10) % 2 == 1).all()
    assert statistics.visits_of(1) == (50_000, 5000, 10.0)


def test_reassigned_rows_belong_to_the_new_regime() -> None:
    statistics = RegimeStatistics(1)
    statistics.extend(np.r_[np.zeros(100), np.ones(20)][:, None], np.zeros(120, np.int64))
    statistics.reassign(100, 120, 1)
    statistics.extend(np.ones((300, 1)), np.ones(300, np.int64))
    assert (statistics.rows_of(0)[0] == 0.0).all() and (statistics.rows_of(1)[0] == 1.0).all()
    assert statistics.visits_of(0) == (100, 1, 100.0)
    assert statistics.visits_of(1) == (320, 1, 320.0)


def test_the_summary_names_hours_and_weekdays() -> None:
    times = pd.date_range("2024-01-01", periods=24 * 42, freq="h")
    night = (times.hour >= 21) | (times.hour < 6) | (times.weekday >= 5)
    rng = np.random.default_rng(0)
    y = np.where(night, 10.0, 30.0) + rng.normal(size=len(times))
    model = rk.br_ihmm(noise=1.0, prior_mean=20.0, prior_var=200.0, batch=3)
    model.run(pd.Series(y, times))
    found = {round(regime.typical / 10): regime.summary for regime in model.regimes()}
    assert found[1].startswith("nights and weekends, typically "), found
    assert found[3].startswith("daytimes on weekdays, typically"), found
    assert rk.from_bytes(model.to_bytes()).regimes()[0].summary == model.regimes()[0].summary


def test_labels_are_stored_and_checked() -> None:
    model: Any = rk.br_ihmm()
    model.run(two_levels())
    model.label_regime(1, name="valve open", status="fault")
    for twin in (model.copy(), rk.from_bytes(model.to_bytes())):
        assert [(r.name, r.status) for r in twin.regimes()] == [
            ("", "unknown"),
            ("valve open", "fault"),
        ]
        assert twin.regime_status(1) == "fault"
    model.label_regime(1, status="normal")
    assert (model.regimes()[1].name, model.regimes()[1].status) == ("valve open", "normal")
    model.label_regime(1, name="", status="unknown")
    assert model.to_bytes() == rk.from_bytes(model.to_bytes()).to_bytes()
    with pytest.raises(rk.RegimekitError, match=r"must be that of a regime in memory \[0, 1\]"):
        model.label_regime(7, name="none")
    with pytest.raises(rk.RegimekitError, match="status"):
        model.label_regime(1, status="broken")


@pytest.mark.parametrize("name", ["auto", "br_ihmm"])
def test_a_fault_stays_anomalous(name: str) -> None:
    y = two_levels()
    model = rk.make(name)
    model.run(y[:600])
    usual = model.copy()
    model.label_regime(1, status="fault")
    updated = model.copy()
    run = model.run(y[600:])
    fault = run.regime == 1
    assert fault.sum() > 80
    assert run.anomaly_score[fault].min() > 0.95
    np.testing.assert_array_equal(
        run.anomaly_score[~fault], usual.run(y[600:]).anomaly_score[~fault]
    )
    scores = [updated.update(value).anomaly_score for value in y[600:]]
    np.testing.assert_array_equal(scores, run.anomaly_score)


def test_anomaly_scores_are_uniform_under_the_model() -> None:
    rng = np.random.default_rng(0)
    roots = np.linalg.cholesky([[2.0, 0.9, 0.1], [0.9, 1.0, -0.3], [0.1, -0.3, 3.0]])
    spread = np.array([roots @ roots.T, 2.0 * np.eye(3)])
    dof = np.array([5.0, np.inf])
    location = np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    joint = rk.Forecast.mixture(np.array([0.3, 0.7]), location, spread, dof)
    one = rk.Forecast.mixture(np.array([0.3, 0.7]), location[:, 1], spread[:, 0, 0], dof)
    y = one.sample(4000, rng)
    np.testing.assert_allclose(one.anomaly_score(y), np.abs(2 * one.cdf(y) - 1), atol=1e-14)
    draws = joint.sample(4000, rng)
    partly = draws.copy()
    partly[:, 1] = np.nan
    scores = [
        one.anomaly_score(y),
        [joint.anomaly_score(row) for row in draws],
        [joint.anomaly_score(row) for row in partly],
        rk.br_ihmm(noise=1.0).run(rng.normal(size=4000)).anomaly_score,
        rk.auto().run(rng.normal(size=4000)).anomaly_score[200:],
    ]
    for found in scores:
        # The levels of a calibrated forecast are estimated, hence not the 5 % level of the test.
        assert kstest(found, "uniform").statistic < 0.03
    assert np.isnan(joint.anomaly_score(np.full(3, np.nan)))
    assert rk.Forecast.gaussian(0.0, 1.0).anomaly_score(8.0) > 1 - 1e-14


@pytest.mark.parametrize("name", ["auto", "br_ihmm", "student_t_ihmm"])
def test_a_change_is_not_a_hundred_anomalies(name: str) -> None:
    rng = np.random.default_rng(3)
    y = np.r_[rng.normal(0.0, 1.0, 400), rng.normal(12.0, 1.0, 400)]
    score = rk.make(name).run(y).anomaly_score
    assert (score[400:403] > 0.99).any()
    assert (score[400:500] > 0.999).sum() <= 3 and (score[403:] > 0.99).mean() < 0.03
