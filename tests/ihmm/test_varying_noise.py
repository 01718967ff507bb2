"""A known observation variance that changes with time, against the same model scaled by hand."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import regimekit as rk

N = 120
RNG = np.random.default_rng(5)
V = RNG.uniform(0.1, 10.0, N)
A = RNG.normal(size=N)
LEVEL = np.where(np.arange(N) // 40 % 2 == 0, 0.0, 8.0)
Y = LEVEL + A + np.sqrt(V) * RNG.normal(size=N)
Y[70] = np.nan
X = {"a": A, "v": V}
SETTINGS: dict[str, Any] = {"prior_var": 100.0, "particles": 30}
INTERCEPT = rk.features.intercept()


def make(name: str, **settings: Any) -> Any:
    noise = {} if name == "student_t_ihmm" else {"noise": 1.0}
    return rk.make(name, **SETTINGS | noise | settings)


@pytest.mark.parametrize("rule", ["default", "paper"])
@pytest.mark.parametrize("name", ["br_ihmm", "wolf_ihmm", "ihmm", "student_t_ihmm"])
def test_it_is_the_model_divided_by_the_standard_deviation(name: str, rule: str) -> None:
    root = np.sqrt(V)
    run = make(name, noise_column="v", rule=rule).run(Y, X)
    by_hand = make(name, features=rk.features.columns(), rule=rule)
    scaled = by_hand.run(Y / root, np.column_stack([1.0 / root, A / root]))
    for column, factor in (("mean", root), ("sd", root), ("weight", 1.0), ("regime", 1.0)):
        ours, theirs = getattr(run, column), getattr(scaled, column) * factor
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9, err_msg=column)
    np.testing.assert_allclose(run.log_score, scaled.log_score - np.log(root), rtol=1e-9, atol=1e-9)


def test_a_run_is_its_updates_and_a_forecast_comes_before() -> None:
    run, model = make("br_ihmm", noise_column="v").run(Y, X), make("br_ihmm", noise_column="v")
    for t in range(N):
        x = {"v": V[t], "a": A[t]}  # the order of a mapping does not matter
        forecast = model.predict(x)
        assert forecast.mean == pytest.approx(run.mean[t], rel=1e-12)
        assert model.forecast(1, {k: [v] for k, v in x.items()})[0].sd == pytest.approx(forecast.sd)
        step = model.update(Y[t], x)
        assert step.regime == run.regime[t]
        assert step.log_score == pytest.approx(run.log_score[t], rel=1e-12, nan_ok=True)
    assert model.predict({"a": 0.0, "v": 100.0}).sd > 9.0 > model.predict({"a": 0.0, "v": 1.0}).sd


def test_it_is_better_than_a_constant_variance() -> None:
    ours = make("br_ihmm", noise_column="v").run(Y, X).log_score
    constant = rk.br_ihmm(noise=float(V.mean()), **SETTINGS).run(Y, {"a": A}).log_score
    assert np.nanmean(ours) > np.nanmean(constant)


def test_snapshot_copy_and_pickle_continue_alike() -> None:
    model = make("br_ihmm", noise_column="v", features=INTERCEPT)
    model.run(Y[:65], {"v": V[:65]})
    twins = [model.copy(), pickle.loads(pickle.dumps(model)), rk.from_bytes(model.to_bytes())]
    rest = [one.run(Y[65:], {"v": V[65:]}).mean for one in (model, *twins)]
    assert all((mean == rest[0]).all() for mean in rest)
    assert rk.make("br_ihmm", **model.settings()).settings() == model.settings()


def test_columns_without_names_go_by_position() -> None:
    by_name = make("br_ihmm", noise_column="v").run(Y, X).mean
    by_position = make("br_ihmm", noise_column=1).run(Y, np.column_stack([A, V])).mean
    assert (by_name == by_position).all()


def test_before_the_first_observation_the_prior_is_forecast() -> None:
    model = make("br_ihmm", noise_column="v", weight="imq")
    assert model.predict({"v": 44.0}).sd == pytest.approx(12.0)
    assert model.forecast(2, {"v": [44.0, 21.0]})[1].sd == pytest.approx(11.0)


@pytest.mark.parametrize(
    ("settings", "x", "words"),
    [
        ({"noise_column": "w"}, X, "Row 0 of X: x has no column 'w'"),
        ({"noise_column": 5}, {"v": V}, "x has no column 5; it has 1 columns"),
        ({"noise_column": "v"}, None, "x is missing; noise_column='v' needs it"),
        ({"noise_column": "v"}, {"v": -V}, "Column 'v' of x must be positive, got -"),
        ({"noise_column": True}, X, "noise_column must be the name or the position"),
        ({"noise_column": "v", "features": rk.features.lags(1)}, X, "cannot be used with lags"),
        ({"noise_column": "v", "units": "auto"}, X, "units must be 'given' with noise_column"),
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any], x: Any, words: str) -> None:
    with pytest.raises(rk.RegimekitError, match=words):
        rk.br_ihmm(**settings).run(Y, x)


def test_it_is_refused_where_it_is_not_covered() -> None:
    with pytest.raises(rk.RegimekitError, match="noise_column must not be given"):
        rk.garch_ihmm(noise_column="v")
    model = make("br_ihmm", noise_column="v", features=INTERCEPT)
    model.run(Y[:60], {"v": V[:60]})
    with pytest.raises(rk.RegimekitError, match="noise_column is not covered"):
        rk.influence.joint_pif(model, 10.0, clean=[0.0])
