"""Emissions and weights written outside the package (docs/extending.md)."""

from __future__ import annotations

import os
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
