"""Emissions and weights written outside the package (docs/extending.md)."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regimekit as rk
from regimekit.core.registry import REGISTRY
from regimekit.ihmm import weights
from regimekit.ihmm.emissions.base import Emission, PythonEmission, Shape
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings, LinearGaussian
from regimekit.ihmm.model import RegimeModel
from regimekit.ihmm.settings import RegimeSettings
from regimekit.ihmm.weights import PythonScoring
from regimekit.robustness.score_bounds import weight_bounds

EXAMPLE = Path(__file__).parents[2] / "examples" / "poisson_emission"
COMPILED = not str(weights.__file__).endswith(".py")
TRUE_CHANGES = [60, 120]


def counts() -> np.ndarray:
    """Counts with rates 3, 20 and 3, one outlier and one missing value."""
    rate = np.repeat([3.0, 20.0, 3.0], 60)
    y = np.random.default_rng(0).poisson(rate).astype(float)
    y[100], y[30] = 500.0, np.nan
    return y


@pytest.fixture
def poisson_ihmm(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from poisson_emission import poisson_ihmm

    yield poisson_ihmm
    REGISTRY.pop("poisson_ihmm", None)
    for name in [n for n in sys.modules if n.partition(".")[0] == "poisson_emission"]:
        del sys.modules[name]


def test_a_python_emission_finds_regimes_of_counts(poisson_ihmm: Any) -> None:
    model = poisson_ihmm(rate=5.0, prior_size=0.5, batch=4, particles=30)
    run = model.run(counts())
    assert run.changepoints == TRUE_CHANGES
    first, second = model.regimes()
    assert abs(first.mean[0] - 3.0) < 0.6 and abs(second.mean[0] - 20.0) < 1.5
    assert run.outlier[100] and not run.outlier[101:].any()
    assert run.path[[10, 90, 150]].tolist() == [0, 1, 0]


def test_a_python_emission_predicts_before_it_updates(poisson_ihmm: Any) -> None:
    y = counts()[:50]
    whole, stepwise = poisson_ihmm(particles=20), poisson_ihmm(particles=20)
    run = whole.run(y)
    for t, value in enumerate(y):
        assert stepwise.predict().mean == pytest.approx(run.mean[t], rel=1e-12)
        stepwise.update(value)


def test_a_model_with_a_python_emission_is_saved_and_copied(poisson_ihmm: Any) -> None:
    model = poisson_ihmm(rate=5.0, particles=20)
    model.run(counts()[:70])
    for twin in (rk.from_bytes(model.to_bytes()), model.copy()):
        assert twin.predict().mean == model.predict().mean
        later = counts()[70:]
        assert twin.run(later).mean.tolist() == model.copy().run(later).mean.tolist()


def test_an_error_of_a_python_emission_reaches_the_caller(poisson_ihmm: Any) -> None:
    from poisson_emission.emission import Poisson

    model = poisson_ihmm(particles=10)
    model.update(3.0)

    def broken(self: Any, *arguments: Any) -> None:
        raise ZeroDivisionError("no rate")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Poisson, "update", broken)
        with pytest.raises(ZeroDivisionError, match="no rate"):
            model.update(4.0)


@pytest.mark.skipif(not COMPILED, reason="uncompiled, the base class has every method")
def test_a_python_emission_without_a_required_method_is_refused() -> None:
    class Incomplete(Emission):
        pass

    scoring = RegimeSettings().scoring()
    with pytest.raises(TypeError, match="must have the method begin"):
        PythonEmission(Incomplete(Shape(1, 1), scoring, (1, 1)))


@dataclass(frozen=True)
class WelschSettings(GaussianSettings):
    """A linear-Gaussian emission with a weight of our own."""

    def build(self, shape: Any, scoring: Any, longest: int) -> Any:
        return LinearGaussian(shape, self, PythonScoring(scoring, imq_in_python), longest)


def imq_in_python(u: float) -> float:
    return -float(np.log1p(u * u))


def test_a_python_weight_does_what_the_built_in_one_does() -> None:
    y = rk.data.regime_stream(seed=1, n=120).y
    settings = {"threshold": 2.0, "particles": 30, "batch": 4}
    own = RegimeModel("br_ihmm", RegimeSettings(**settings), WelschSettings(noise=0.16))
    built_in = rk.br_ihmm(noise=0.16, **settings)
    ours, theirs = own.run(y), built_in.run(y)
    np.testing.assert_allclose(ours.weight, theirs.weight, rtol=1e-9)
    np.testing.assert_allclose(ours.mean, theirs.mean, rtol=1e-9, atol=1e-12)


def own_imq(u: float) -> float:
    return float((1.0 + u * u) ** -0.5)


@pytest.mark.parametrize("name", ["br_ihmm", "wolf_ihmm"])
@pytest.mark.parametrize("rule", ["default", "paper"])
def test_a_weight_function_does_what_the_named_weight_does(name: str, rule: str) -> None:
    y = rk.data.regime_stream(seed=1, n=120).y
    y[60] = 1e6
    given = {"noise": 0.16, "particles": 30, "rule": rule}
    ours = rk.make(name, weight=own_imq, **given)
    theirs = rk.make(name, weight="imq", **given)
    assert ours.settings()["threshold"] == theirs.settings()["threshold"] == 2.0
    runs = [model.run(y) for model in (ours, theirs)]
    np.testing.assert_allclose(runs[0].weight, runs[1].weight, rtol=1e-9)
    np.testing.assert_allclose(runs[0].mean, runs[1].mean, rtol=1e-9, atol=1e-12)
    assert (runs[0].regime == runs[1].regime).all()
    for twin in (ours.copy(), pickle.loads(pickle.dumps(ours))):
        assert twin.predict().mean == ours.predict().mean
    assert rk.make(name, **ours.settings()).settings() == ours.settings()


def test_a_weight_function_is_refused_where_it_cannot_be_used() -> None:
    model = rk.br_ihmm(noise=1.0, weight=own_imq)
    with pytest.raises(rk.RegimekitError, match="cannot be saved: a snapshot contains no code"):
        model.to_bytes()
    with pytest.raises(rk.RegimekitError, match="weight must be a name for student_t_ihmm"):
        rk.student_t_ihmm(weight=own_imq)
    with pytest.raises(rk.RegimekitError, match="Bounds are known for named weights"):
        weight_bounds(RegimeSettings(weight=own_imq).scoring())
    for wrong in (2.0, -0.1, float("nan")):
        with pytest.raises(rk.RegimekitError, match="weight must return a number from 0 to 1"):
            rk.br_ihmm(noise=1.0, weight=lambda u, w=wrong: w).run([0.0, 1.0, 2.0])


@pytest.mark.slow
@pytest.mark.skipif(not COMPILED, reason="regimekit is not compiled here")
def test_the_example_package_compiles_against_our_pxd_files(
    poisson_ihmm: Any, tmp_path: Path
) -> None:
    pytest.importorskip("Cython")
    pytest.importorskip("setuptools")
    folder = tmp_path / "poisson"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("*.so", "*.c", "build"))
    source = Path(rk.__file__).parents[1]
    environment = os.environ | {"PYTHONPATH": str(source)}
    subprocess.run(
        [sys.executable, "setup.py", "build_ext", "--inplace"],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
    )
    program = (
        "import numpy as np, poisson_emission.emission as e\n"
        "assert not e.__file__.endswith('.py'), e.__file__\n"
        "model = e.poisson_ihmm(rate=5.0, prior_size=0.5, batch=4, particles=30)\n"
        "run = model.run(np.load('y.npy'))\n"
        "print(run.changepoints, *[r.mean[0] for r in model.regimes()], sep=';')\n"
    )
    np.save(folder / "y.npy", counts())
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    changes, *rates = done.stdout.strip().split(";")
    plain = poisson_ihmm(rate=5.0, prior_size=0.5, batch=4, particles=30)
    assert changes == str(plain.run(counts()).changepoints)
    # lgamma of C and of Python differ in the last bit, so a particle may draw another regime.
    np.testing.assert_allclose(
        [float(rate) for rate in rates], [r.mean[0] for r in plain.regimes()], rtol=0.01
    )
