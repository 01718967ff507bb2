"""River's own checks, and what its users do: pipelines, progressive validation, pickles."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import regimekit as rk

pytest.importorskip("river", reason="river is not installed")

from river import checks, compose, datasets, evaluate, metrics, preprocessing

from regimekit.integrations.river import (
    RegimeAnomalyDetector,
    RegimeDriftDetector,
    RegimeForecaster,
    RegimeRegressor,
)

SMALL = {"model": "student_t_ihmm", "particles": 10, "batch": 2, "max_regimes": 5}
LEVELS = np.repeat([-3.0, 3.0, -3.0], 40) + 0.2 * np.random.default_rng(0).standard_normal(120)


class _Cards:
    """Stands in for river's credit cards, which are downloaded: two features, rare outliers."""

    def take(self, n: int):
        rng = np.random.default_rng(1)
        for i in range(min(n, 600)):
            fraud = int(i % 50 == 37)
            values = rng.standard_normal(2) + 12 * fraud
            yield {"V1": float(values[0]), "V2": float(values[1])}, fraud


@pytest.fixture(autouse=True)
def _no_download(monkeypatch):
    monkeypatch.setattr(datasets, "CreditCard", _Cards)


def _checks():
    for model in (
        RegimeForecaster(**SMALL),
        RegimeRegressor(**SMALL),
        RegimeAnomalyDetector(**SMALL),
    ):
        for check in checks.yield_checks(model):
            yield pytest.param(model, check.__name__, id=f"{model}-{check.__name__}")


@pytest.mark.parametrize("model, name", list(_checks()))
def test_checks_of_river(model, name):
    for check in checks.yield_checks(model):
        if check.__name__ == name:
            check(model.clone())


def test_the_order_of_features_has_no_effect():
    rows = [x for x, _ in _Cards().take(200)]
    for model in (RegimeAnomalyDetector(**SMALL), RegimeAnomalyDetector(target="V1", **SMALL)):
        other = model.clone()
        for x in rows:
            model.learn_one(x)
            other.learn_one(dict(reversed(x.items())))
        assert model.score_one(rows[0]) == other.score_one(rows[0])


def test_drift_detector_obeys_the_general_checks():
    detector = RegimeDriftDetector(**SMALL)
    for name in (
        "check_repr",
        "check_str",
        "check_clone_same_class",
        "check_clone_is_idempotent",
        "check_init_default_params_are_not_mutable",
        "check_doc",
        "check_get_params_matches_signature",
        "check_clone_changes_memory_addresses",
        "check_pickling_supports_roundtrip",
        "check_clone_with_new_params_applies",
        "check_mutate_can_be_idempotent",
    ):
        getattr(checks.common, name)(detector.clone())


def test_forecaster_equals_the_model():
    plain, ours = rk.make(**_named(SMALL)), RegimeForecaster(**SMALL)
    for y in LEVELS:
        plain.update(y)
        ours.learn_one(y)
    assert ours.forecast(3) == [forecast.mean for forecast in plain.forecast(3)]
    low, high = ours.forecast_distribution(1)[0].interval(0.9)
    assert low < -3 < high


def test_forecaster_in_rivers_evaluation():
    data = [({}, y) for y in LEVELS]
    score = evaluate.evaluate(data, RegimeForecaster(**SMALL), metrics.MAE(), horizon=2)
    assert all(metric.get() < 2 for metric in score.metrics)


def test_forecaster_uses_covariates():
    rng = np.random.default_rng(3)
    model = RegimeForecaster(**SMALL)
    for x in rng.standard_normal(200):
        model.learn_one(2 * x + 0.1 * rng.standard_normal(), {"x": x})
    high, low = model.forecast(2, xs=[{"x": 1.0}, {"x": -1.0}])
    assert high == pytest.approx(2, abs=0.3)
    assert low == pytest.approx(-2, abs=0.3)


def test_regressor_in_a_pipeline_and_progressive_validation():
    model = compose.Pipeline(preprocessing.StandardScaler(), RegimeRegressor(**SMALL))
    rng = np.random.default_rng(4)
    rows = [{"a": float(a)} for a in rng.normal(50, 10, 300)]
    data = [(row, (row["a"] - 50) / 10 + 0.05 * rng.standard_normal()) for row in rows]
    steps = list(evaluate.iter_progressive_val_score(data, model, metrics.MAE(), step=100))
    assert steps[-1]["MAE"].get() < 0.5
    assert model.clone().predict_one({"a": 50.0}) == 0.0


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_continues_exactly(copier):
    model = RegimeForecaster(**SMALL)
    for y in LEVELS[:50]:
        model.learn_one(y)
    twin = copier(model)
    for y in LEVELS[50:]:
        model.learn_one(y)
        twin.learn_one(y)
    assert model.forecast(2) == twin.forecast(2)
    assert model.inner.to_bytes() == twin.inner.to_bytes()


def test_drift_detector_sees_both_changes_and_no_spike():
    detector, found = RegimeDriftDetector(model="student_t_ihmm", particles=50), []
    stream = LEVELS.copy()
    stream[20] = 30.0
    for t, y in enumerate(stream):
        detector.update(y)
        if detector.drift_detected:
            found.append(t)
            assert detector.drift_since <= t
    assert len(found) == 2
    assert 40 <= found[0] < 60
    assert 80 <= found[1] < 100


def test_anomaly_detector_ranks_a_spike_first():
    detector, scores = RegimeAnomalyDetector(target="y", **SMALL), []
    stream = LEVELS[:40].copy()
    stream[30] = 8.0
    for y in stream:
        scores.append(detector.score_one({"y": y}))
        detector.learn_one({"y": y})
    assert int(np.argmax(scores)) == 30
    assert detector.score_one({}) == 0.0


def _named(settings):
    return {"name" if key == "model" else key: value for key, value in settings.items()}
