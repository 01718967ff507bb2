"""scikit-learn's own checks, with those that a time series cannot pass listed with reasons."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import regimekit as rk

pytest.importorskip("sklearn", reason="scikit-learn is not installed")

from sklearn.base import clone
from sklearn.model_selection import TimeSeriesSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from regimekit.integrations.sklearn import RegimeRegressor, RegimeSegmenter

SMALL = {
    "model": "student_t_ihmm",
    "settings": {"particles": 10, "batch": 3, "max_regimes": 5, "units": "given"},
}
_ORDER = "rows are a time series: the result of a row depends on earlier rows"

EXPECTED_FAILURES = {
    "RegimeRegressor": {},
    "RegimeSegmenter": {
        "check_clustering": "it shuffles the clusters; rows of a batch in a row share a regime",
        "check_methods_sample_order_invariance": _ORDER,
        "check_methods_subset_invariance": _ORDER,
    },
}


def _expected(estimator):
    return EXPECTED_FAILURES[type(estimator).__name__]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@parametrize_with_checks(
    [RegimeRegressor(**SMALL), RegimeSegmenter(**SMALL)], expected_failed_checks=_expected
)
def test_checks_of_sklearn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    coefficients = np.repeat([[2.0, 0.0], [-2.0, 1.0]], 150, axis=0)
    return X, (X * coefficients).sum(axis=1) + 0.1 * rng.standard_normal(300)


def test_regressor_answers_with_the_present_regime(regression):
    X, y = regression
    model = RegimeRegressor(**SMALL).fit(X, y)
    mean, sd = model.predict(np.eye(2), return_std=True)
    assert mean == pytest.approx([-2.0, 1.0], abs=0.2)
    assert ((sd > 0.05) & (sd < 0.6)).all()
    assert (model.predict_quantile(np.eye(2), 0.9) > mean).all()


def test_partial_fit_in_pieces_is_fit(regression):
    X, y = regression
    whole, pieces = RegimeRegressor(**SMALL).fit(X, y), RegimeRegressor(**SMALL)
    for part in np.array_split(np.arange(300), 7):
        pieces.partial_fit(X[part], y[part])
    assert pieces.model_.to_bytes() == whole.model_.to_bytes()


def test_a_pickle_contains_bytes_and_continues(regression):
    X, y = regression
    model = RegimeRegressor(**SMALL).fit(X[:200], y[:200])
    twin = pickle.loads(pickle.dumps(model))
    for regressor in (model, twin):
        regressor.partial_fit(X[200:], y[200:])
    assert (twin.predict(X) == model.predict(X)).all()
    assert isinstance(model.__getstate__()["model_"], bytes)


def test_in_a_pipeline_with_time_series_split(regression):
    X, y = regression
    pipeline = make_pipeline(StandardScaler(), RegimeRegressor(**SMALL))
    scores = cross_val_score(pipeline, X[:150], y[:150], cv=TimeSeriesSplit(3))
    assert scores.min() > 0.8


def test_segmenter_knows_a_regime_that_returns():
    rng = np.random.default_rng(1)
    y = np.repeat([-3.0, 3.0, -3.0], 60) + 0.2 * rng.standard_normal(180)
    model = RegimeSegmenter(settings={"particles": 50}, model="student_t_ihmm").fit(y[:120, None])
    first, second = model.labels_[30], model.labels_[100]
    assert first != second
    ahead = model.predict(y[120:, None])
    assert (ahead[30:] == first).all()
    shares = model.transform(y[120:, None])
    assert shares.shape == (60, model.regimes_.size + 1)
    assert shares.sum(axis=1) == pytest.approx(np.ones(60))
    assert shares[40:, list(model.regimes_).index(first)].mean() > 0.8
    assert list(model.get_feature_names_out())[-1] == "regime_other"


def test_predicting_leaves_the_model_as_it_was():
    y = np.linspace(-1, 1, 40)[:, None]
    model = RegimeSegmenter(**SMALL).fit(y)
    before = model.model_.to_bytes()
    model.predict(y)
    model.transform(y)
    assert model.model_.to_bytes() == before
    assert not hasattr(clone(model), "model_")


def test_anomaly_scores_find_a_spike_and_a_labelled_fault():
    rng = np.random.default_rng(0)
    y = np.repeat([0.0, 8.0, 0.0], 60)[:, None] + 0.3 * rng.standard_normal((180, 1))
    segmenter = RegimeSegmenter("br_ihmm", {"particles": 20, "batch": 3}).fit(y)
    ahead = np.repeat([0.0, 8.0], 30)[:, None] + 0.3 * rng.standard_normal((60, 1))
    ahead[10] = 25.0
    scores = segmenter.anomaly_score(ahead)
    assert scores.shape == (60,) and scores[10] > 0.999 and np.median(scores[45:]) < 0.9
    fault = int(segmenter.labels_[90])
    segmenter.model_.label_regime(fault, status="fault")
    assert segmenter.anomaly_score(ahead)[45:].min() > 0.95


def test_settings_are_checked_by_the_model():
    with pytest.raises(rk.RegimekitError, match="batch"):
        RegimeRegressor("br_ihmm", {"batch": 0}).fit([[1.0], [2.0]], [1.0, 2.0])
