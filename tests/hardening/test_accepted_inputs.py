"""No input that is accepted may leave a model that cannot go on."""

from __future__ import annotations

import math
from typing import Any

import crafted
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import holdfast as hf

MODELS = crafted.ONLINE
AVERAGES = {"running_mean", "least_squares"}  # they remember everything, and say so
HUGE = [1e300, -1e300, 1.7e308, -1.7e308, 1e160, 1e155, 1e100, 1e50, 1e12]
TINY = [1e-300, 5e-324, -1e-160, 0.0, -0.0]
extreme = st.one_of(st.sampled_from([*HUGE, *TINY, math.nan]), st.floats(-10, 10), st.floats())
F = hf.features


def ordinary(n: int, seed: int = 0) -> np.ndarray:
    return 0.5 + 0.3 * np.random.default_rng(seed).standard_normal(n)


def fed(model: Any, y: Any, x: Any = None) -> bool:
    """Give a model something; whether it was accepted. A refusal changes nothing."""
    before = model.to_bytes()
    try:
        model.predict(x)
        model.update(y, x)
    except hf.HoldfastError as error:
        assert str(error) and model.to_bytes() == before
        return False
    return True


def works(model: Any, x: Any = None) -> None:
    """Ordinary observations: all are learnt, all forecasts are finite, also after reloading."""
    model = hf.from_bytes(model.to_bytes())
    for value in ordinary(60):
        forecast = model.predict(x)
        assert np.isfinite(forecast.mean) and np.isfinite(forecast.sd) and forecast.sd > 0
        step = model.update(value, x)
        assert np.isfinite(step.log_score) and 0 < step.weight <= 1
    if model.name not in AVERAGES:
        assert abs(model.predict(x).mean - 0.5) < 1.5
    ahead = model.forecast(3, None if x is None else np.tile(x, (3, 1)))
    assert all(np.isfinite(forecast.mean) for forecast in ahead)
    assert all(np.isfinite(regime.mean).all() for regime in model.regimes())
    model.run(ordinary(5, 1), None if x is None else np.tile(x, (5, 1)))


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(values=st.lists(extreme, min_size=1, max_size=12))
@example(values=[0.1, 1e300, 0.2])
@example(values=[1e-300] * 12)
def test_any_values_then_ordinary_ones(name: str, values: list[float]) -> None:
    model = crafted.made(name)
    for value in values:
        fed(model, value)
    works(model)


@pytest.mark.parametrize("name", [name for name in MODELS if crafted.takes_covariates(name)])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(rows=st.lists(st.tuples(extreme, extreme, extreme), min_size=1, max_size=8))
@example(rows=[(0.1, 1.0, 1.0), (1e155, 1.0, 1.0), (0.1, 1e160, 1.0)])
def test_any_values_and_covariates_with_lags(name: str, rows: list[tuple[float, ...]]) -> None:
    model = crafted.made(name, F.intercept() + F.columns() + F.lags(1, 2))
    for y, *x in rows:
        fed(model, y, x)
    works(model, np.array([1.0, 0.5]))


SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("bocd", {"weight": "imq"}),
    ("bocd", {"weight": "huber", "weigh_regimes": False}),
    ("bocd", {"weight": "mahalanobis"}),
    ("bocd", {"weight": "imq", "threshold": 1e-12}),
    ("bocd", {"emission": "normal_inverse_gamma"}),
    ("bocd", {"emission": "normal_inverse_gamma", "weight": "imq"}),
    ("dsm_bocd", {"threshold": math.inf}),
    ("dsm_bocd", {"threshold": 1e-12}),
    ("dsm_bocd", {"variance": "known", "threshold": math.inf, "training": 4}),
    ("dsm_bocd", {"training": 4}),
    ("seasonal_last_value", {"period": 2}),
]


@pytest.mark.parametrize("value", [1e300, -1.7e308, 1e155, 1e-300, 5e-324])
@pytest.mark.parametrize(("name", "options"), SETTINGS)
def test_one_value_under_other_settings(name: str, options: dict[str, Any], value: float) -> None:
    model = hf.make(name, **options)
    for y in (0.4, 0.6, value, 0.5, -value, value, 0.5):
        assert fed(model, y)
    works(model)


def spoilt(kind: str, y: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A stream with something wrong in it."""
    y, x = y.copy(), x.copy()
    match kind:
        case "spike":
            y[20] = 1e9
        case "burst":
            y[20:24] = [1e6, -1e6, 1e6, -1e6]
        case "stuck":
            y[20:30] = 0.0
        case "gap":
            y[20:30] = np.nan
        case "wild covariate":
            x[20] = 1e12
        case "beyond all measure":
            y[20], x[22] = 1e300, 1e160
        case "vanishing":
            y[20:24], x[20:24] = 1e-300, 1e-300
    return y, x


KINDS = ["spike", "burst", "stuck", "gap", "wild covariate", "beyond all measure", "vanishing"]
MAPS = {
    "lags": F.intercept() + F.lags(1, 2),
    "covariates": F.intercept() + F.columns(),
    "both": F.intercept() + F.columns() + F.lags(1),
    "powers": F.intercept() + F.powers(2),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("features", list(MAPS))
@pytest.mark.parametrize("name", [name for name in MODELS if crafted.takes_covariates(name)])
def test_contaminations_with_lags_and_covariates(name: str, features: str, kind: str) -> None:
    """The stream goes on, and the model with it."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((40, 2))
    if features == "powers" and kind == "beyond all measure":
        x, kind = x / 10, "spike"  # the square of 1e160 is refused: see test_features
    y, x = spoilt(kind, 0.5 + 0.2 * x[:, 0] + 0.3 * rng.standard_normal(40), x)
    model = crafted.made(name, MAPS[features])
    run = model.run(y, x if model.features.needs_x else None)
    assert np.isfinite(run.mean).all() and np.isfinite(run.sd).all()
    seen = ~np.isnan(y)
    assert np.isfinite(run.log_score[seen]).all()
    works(model, np.zeros(2) if model.features.needs_x else None)


@pytest.mark.parametrize("value", [1e300, 1e-300, -1.7e308])
def test_the_offline_model_too(value: float) -> None:
    model = crafted.made("beam_ihmm", F.intercept() + F.lags(1) + F.columns())
    for y in (0.4, value, 0.5, -value, 0.6):
        assert fed(model, y, [1e160, value])
    forecast = hf.from_bytes(model.to_bytes()).predict([0.0, 1.0])
    assert np.isfinite(forecast.mean) and np.isfinite(forecast.sd)
    run = model.run(ordinary(10), np.zeros((10, 2)))
    assert np.isfinite(run.mean).all()


@pytest.mark.parametrize("name", ["bocd", "dsm_bocd", "beam_ihmm"])
@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_scales_beyond_all_use_are_refused(name: str, size: float) -> None:
    for setting in ("noise", "prior_var"):
        with pytest.raises(hf.HoldfastError, match=f"{setting}.*units"):
            hf.make(name, **{setting: size})
