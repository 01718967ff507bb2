"""Bad input gets an error that names the argument, and changes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import regimekit as rk

INF, NAN = math.inf, math.nan
NOT_SYMMETRIC, NOT_POSITIVE = [[1.0, 0.5], [0.1, 1.0]], [[1.0, 2.0], [2.0, 1.0]]

# (a word of the message, settings)
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("setting='nois'", {"nois": 1.0}),
    ("noise", {"noise": -1.0}),
    ("noise", {"noise": 0.0}),
    ("noise", {"noise": NAN}),
    ("noise", {"noise": INF}),
    ("noise", {"noise": "loud"}),
    ("noise", {"noise": None}),
    ("noise", {"noise": [1.0, 2.0]}),
    ("noise", {"noise": [[1.0, 2.0]]}),
    ("noise", {"noise": NOT_SYMMETRIC}),
    ("noise", {"noise": NOT_POSITIVE}),
    ("noise", {"noise": np.ones((2, 2, 2))}),
    ("prior_mean", {"prior_mean": NAN}),
    ("prior_mean", {"prior_mean": [[0.0]]}),
    ("prior_mean", {"prior_mean": "x"}),
    ("prior_var", {"prior_var": 0.0}),
    ("prior_var", {"prior_var": -1.0}),
    ("prior_var", {"prior_var": NOT_POSITIVE}),
    ("prior_var", {"prior_var": [[1.0, 0.0]]}),
    ("batch", {"batch": 0}),
    ("batch", {"batch": -3}),
    ("batch", {"batch": 2.5}),
    ("batch", {"batch": True}),
    ("batch", {"batch": None}),
    ("adaptive", {"batch": "adaptiv"}),
    ("batch", {"batch": {"sizes": 3}}),
    ("largest", {"batch": {"largest": 0}}),
    ("tolerance", {"batch": {"tolerance": 2.0}}),
    ("threshold", {"threshold": 0.0}),
    ("threshold", {"threshold": -1.0}),
    ("threshold", {"threshold": NAN}),
    ("threshold", {"threshold": "far"}),
    ("imq", {"weight": "imk"}),
    ("weight", {"weight": 3}),
    ("weight", {"weight": ["imq"]}),
    ("default", {"rule": "defualt"}),
    ("rule", {"rule": 3}),
    ("D99", {"rule": {"D99": "paper"}}),
    ("rule['D1']", {"rule": {"D1": "ours"}}),
    ("rule['D1']", {"rule": {"D1": ["paper"]}}),
    ("particles", {"particles": 0}),
    ("particles", {"particles": 10.0}),
    ("ess_threshold", {"ess_threshold": 1.5}),
    ("ess_threshold", {"ess_threshold": "half"}),
    ("max_regimes", {"max_regimes": 1}),
    ("prune_pool", {"prune_pool": 0}),
    ("systematic", {"resampling": "systematik"}),
    ("structure_sweeps", {"structure_sweeps": 0}),
    ("sticky", {"sticky": -1.0}),
    ("sticky", {"sticky": INF}),
    ("sticky", {"sticky": NAN}),
    ("alpha_prior", {"alpha_prior": (1.0,)}),
    ("alpha_prior", {"alpha_prior": (0.0, 1.0)}),
    ("alpha_prior", {"alpha_prior": 3.0}),
    ("alpha_prior", {"alpha_prior": (1.0, INF)}),
    ("gamma_prior", {"gamma_prior": (1.0, -1.0)}),
    ("gamma_prior", {"gamma_prior": "ab"}),
    ("outlier_weight", {"outlier_weight": 2.0}),
    ("dim", {"dim": 0}),
    ("seed", {"seed": -1}),
    ("seed", {"seed": 1.5}),
    ("features", {"features": 3}),
    ("features", {"features": [{"term": "magic"}]}),
]


@pytest.mark.parametrize(("word", "settings"), SETTINGS, ids=[str(s) for _, s in SETTINGS])
def test_settings_that_cannot_be_used(word: str, settings: dict[str, Any]) -> None:
    with pytest.raises(rk.RegimekitError) as caught:
        rk.br_ihmm(**settings)
    assert word in str(caught.value)


def test_names_that_are_not_known() -> None:
    with pytest.raises(rk.RegimekitError, match=r"name='br_ihm' .* Did you mean 'br_ihmm'"):
        rk.make("br_ihm")
    with pytest.raises(rk.RegimekitError, match="name"):
        rk.make(3)  # type: ignore[arg-type]  # what a caller without types may do


def scalar() -> Any:
    model = rk.br_ihmm(particles=4, batch=3)
    model.run([0.1, -0.3, 0.2, 0.5])
    return model


def vector() -> Any:
    model = rk.br_ihmm(particles=4, batch=3)
    model.run(np.ones((4, 2)))
    return model


def named() -> Any:
    model = rk.br_ihmm(particles=4, batch=3, features=rk.features.columns("wind"))
    model.update(0.3, {"wind": 1.0})
    return model


def unnamed() -> Any:
    model = rk.br_ihmm(particles=4, batch=3, features=rk.features.columns())
    model.update(0.3, [1.0, 2.0])
    return model


def fresh() -> Any:
    return rk.br_ihmm(particles=4)


def misfit() -> Any:
    """Settings that no single one of them shows to be wrong: two coefficients, one feature."""
    return rk.br_ihmm(particles=4, prior_mean=[0.0, 1.0])


def frame(**columns: Any) -> Any:
    return pytest.importorskip("pandas").DataFrame(columns)


Y9 = np.zeros(9)
HOLE = np.where(np.arange(9) == 5, NAN, 1.0)
SPIKE = np.where(np.arange(9) == 7, INF, 0.0)

# (a word of the message, a model, what is done with it)
CALLS: list[tuple[str, Callable[[], Any], Callable[[Any], Any]]] = [
    ("y", scalar, lambda m: m.update([1.0, 2.0])),
    ("y", scalar, lambda m: m.update([[1.0]])),
    ("y", scalar, lambda m: m.update([])),
    ("y is infinite", scalar, lambda m: m.update(INF)),
    ("y is infinite", scalar, lambda m: m.update(-INF)),
    ("y", scalar, lambda m: m.update("warm")),
    ("y", scalar, lambda m: m.update({})),
    ("y", vector, lambda m: m.update(1.0)),
    ("y", vector, lambda m: m.update([1.0, 2.0, 3.0])),
    ("y is infinite", vector, lambda m: m.update([1.0, INF])),
    ("y", vector, lambda m: m.run(Y9)),
    ("y", vector, lambda m: m.run(np.append(NAN, Y9))),
    ("y", scalar, lambda m: m.run(np.zeros((4, 2)))),
    ("y", scalar, lambda m: m.run(np.zeros((4, 1, 1)))),
    ("y", scalar, lambda m: m.run(3.0)),
    ("y", scalar, lambda m: m.run(["a", "b"])),
    ("y is infinite at row 7", scalar, lambda m: m.run(SPIKE)),
    ("level", scalar, lambda m: m.run(Y9, level=1.0)),
    ("horizon", scalar, lambda m: m.forecast(0)),
    ("horizon", scalar, lambda m: m.forecast(2.5)),
    ("x is missing", named, lambda m: m.update(1.0)),
    ("x is missing", named, lambda m: m.predict()),
    ("x is missing", named, lambda m: m.run(Y9)),
    ("x is missing", named, lambda m: m.forecast(2)),
    ("'wind'", named, lambda m: m.update(1.0, {"rain": 1.0})),
    ("'wind'", named, lambda m: m.predict({"rain": 1.0})),
    ("'wind'", named, lambda m: m.update(1.0, [1.0])),
    ("'wind'", named, lambda m: m.run(Y9, frame(rain=Y9))),
    ("NaN", named, lambda m: m.update(1.0, {"wind": NAN})),
    ("NaN", named, lambda m: m.update(1.0, {"wind": None})),
    ("infinite", named, lambda m: m.update(1.0, {"wind": INF})),
    ("'wind'", named, lambda m: m.update(1.0, {"wind": "strong"})),
    ("5 of X", named, lambda m: m.run(Y9, frame(wind=HOLE))),
    ("5 of X", unnamed, lambda m: m.run(Y9, np.column_stack([Y9, HOLE]))),
    ("'wind'", named, lambda m: m.run(Y9, frame(wind=["calm"] * 9))),
    ("X has 8 rows", unnamed, lambda m: m.run(Y9, np.zeros((8, 2)))),
    ("X has 3 rows", unnamed, lambda m: m.forecast(2, np.zeros((3, 2)))),
    ("x", unnamed, lambda m: m.update(1.0, [1.0, 2.0, 3.0])),
    ("x", unnamed, lambda m: m.predict([1.0])),
    ("x", unnamed, lambda m: m.run(Y9, np.zeros((9, 3)))),
    ("x", unnamed, lambda m: m.forecast(2, np.zeros((2, 3)))),
    ("x", unnamed, lambda m: m.update(1.0, [[1.0, 2.0], [3.0, 4.0]])),
    ("x", unnamed, lambda m: m.update(1.0, [])),
    ("y is infinite", fresh, lambda m: m.update(INF)),
    ("y is infinite at row 7", fresh, lambda m: m.run(SPIKE)),
    ("prior_mean", misfit, lambda m: m.update(1.0)),
    ("prior_mean", misfit, lambda m: m.predict()),
    ("prior_mean", misfit, lambda m: m.run(Y9)),
]


@pytest.mark.parametrize("index", range(len(CALLS)))
def test_calls_that_cannot_be_answered(index: int) -> None:
    """The message names the argument; the model is bit for bit what it was, and goes on."""
    word, make, call = CALLS[index]
    model = make()
    before = model.to_bytes()
    with pytest.raises(rk.RegimekitError) as caught:
        call(model)
    assert word in str(caught.value)
    assert model.to_bytes() == before


def test_errors_are_value_errors() -> None:
    assert issubclass(rk.RegimekitError, ValueError) and issubclass(
        rk.SnapshotError, rk.RegimekitError
    )


def test_a_model_goes_on_after_an_error() -> None:
    shaken, calm = scalar(), scalar()
    for bad in (INF, "warm", [1.0, 2.0], []):
        with pytest.raises(rk.RegimekitError):
            shaken.update(bad)
    for y in (0.4, 0.1, NAN, -0.2):
        np.testing.assert_equal(shaken.update(y), calm.update(y))
    assert shaken.to_bytes() == calm.to_bytes()


@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0])
def test_vague_priors_of_alpha_are_survived(scale: float) -> None:
    """Gamma(0.001, .) puts half its mass below every float; the model must live with that."""
    model = rk.br_ihmm(
        particles=20, batch=2, alpha_prior=(1e-3, scale), gamma_prior=(1e-3, scale), seed=3
    )
    run = model.run(np.repeat([0.0, 3.0, 0.0, 3.0], 10))
    assert np.isfinite(run.mean).all() and np.isfinite(run.log_score).all()
