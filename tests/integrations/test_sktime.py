"""sktime's own checks, updating without refitting, and detectors that know a regime again."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import regimekit as rk

pytest.importorskip("sktime", reason="sktime is not installed")
pytest.importorskip("skpro", reason="skpro is not installed")

from sktime.utils.estimator_checks import check_estimator

from regimekit.integrations.sktime import RegimeChangePoints, RegimeForecaster, RegimeSegments

CHOICE = {"model": "student_t_ihmm", "settings": {"particles": 20, "batch": 3}}


@pytest.fixture
def y():
    rng = np.random.default_rng(0)
    index = pd.period_range("2026-01", periods=60, freq="M")
    return pd.Series(1 + 0.1 * rng.standard_normal(60), index=index, name="level")


@pytest.fixture
def levels():
    rng = np.random.default_rng(1)
    return pd.DataFrame({"y": np.repeat([-3.0, 3.0, -3.0], 30) + 0.1 * rng.standard_normal(90)})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # sktime's checks warn about their own settings
@pytest.mark.parametrize("estimator", [RegimeForecaster, RegimeChangePoints, RegimeSegments])
def test_checks_of_sktime(estimator):
    results = check_estimator(estimator, raise_exceptions=False, verbose=False)
    assert {name: result for name, result in results.items() if result != "PASSED"} == {}
    assert len(results) > 50


def test_update_equals_a_fit_to_all_rows(y):
    fitted = RegimeForecaster(**CHOICE).fit(y[:50])
    fitted.update(y[50:])
    assert fitted.predict(fh=[1, 3]).equals(RegimeForecaster(**CHOICE).fit(y).predict(fh=[1, 3]))
    before = fitted.model_.to_bytes()
    fitted.update(y[55:])  # rows it knows already
    assert fitted.model_.to_bytes() == before


def test_intervals_and_distributions_are_the_models(y):
    fitted = RegimeForecaster(**CHOICE).fit(y, fh=[1, 2])
    step = fitted.model_.forecast(2)[1]
    interval = fitted.predict_interval(coverage=0.9).iloc[1].tolist()
    assert interval == pytest.approx(list(step.interval(0.9)))
    quantiles = fitted.predict_quantiles(alpha=[0.1, 0.5])
    assert quantiles[("level", 0.1)].iloc[1] == step.quantile(0.1)
    cdf = fitted.predict_proba().cdf(pd.DataFrame({"level": [1.0, 1.1]}, index=quantiles.index))
    assert cdf.iloc[1, 0] == pytest.approx(step.cdf(1.1), abs=0.01)


def test_values_passed_over_count_as_not_observed(y):
    fitted, plain = (
        RegimeForecaster(**CHOICE).fit(y[:50]),
        rk.make("student_t_ihmm", particles=20, batch=3),
    )
    fitted.update(y[50:], update_params=False)
    plain.run(np.concatenate([y[:50], np.full(10, np.nan)]))
    assert fitted.predict(fh=[1]).tolist() == pytest.approx([plain.predict().mean], rel=1e-12)


def test_change_points(levels):
    found = RegimeChangePoints(**CHOICE).fit_predict(levels)["ilocs"].tolist()
    assert found == [30, 60]


def test_segments_know_a_regime_again_also_after_the_fit(levels):
    segments = RegimeSegments(**CHOICE).fit_predict(levels)
    assert segments["labels"].iloc[0] == segments["labels"].iloc[2] != segments["labels"].iloc[1]
    fitted = RegimeSegments(**CHOICE).fit(levels[:60])
    later = fitted.update_predict(levels[60:])
    assert later["labels"].iloc[-1] == segments["labels"].iloc[0]
    assert fitted.predict_points(levels)["ilocs"].tolist() == [0, 30, 60]
