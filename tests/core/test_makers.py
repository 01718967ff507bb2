"""Signatures of the makers agree with their settings."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import regimekit as rk
from docs import signatures
from regimekit.baselines import naive
from regimekit.baselines.beam import BeamSettings
from regimekit.baselines.bocd import BocdSettings
from regimekit.baselines.dsm_bocd import DsmSettings
from regimekit.core.maker import ByUnits
from regimekit.core.registry import REGISTRY
from regimekit.ensemble.model import Auto
from regimekit.ihmm.emissions.garch import GarchSettings
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings as GaussianSpec
from regimekit.ihmm.emissions.student_t import StudentTSettings as StudentSpec
from regimekit.ihmm.settings import RegimeSettings

# Where each maker's settings live, and where its own defaults differ on purpose.
HOMES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "auto": ((Auto,), {}),
    "br_ihmm": ((RegimeSettings, GaussianSpec), {}),
    "wolf_ihmm": (
        (RegimeSettings, GaussianSpec),
        {"batch": 1, "weigh_regimes": False, "weight": "imq", "threshold": 2.0},
    ),
    "ihmm": ((RegimeSettings, GaussianSpec), {"batch": 1, "weight": "none"}),
    "student_t_ihmm": ((RegimeSettings, StudentSpec), {}),
    "garch_ihmm": (
        (RegimeSettings, GarchSettings),
        {"weight": "huber", "threshold": 4.0, "sticky": 10.0, "particles": 50},
    ),
    "beam_ihmm": ((BeamSettings,), {}),
    "bocd": ((BocdSettings, GaussianSpec, StudentSpec), {}),
    "dsm_bocd": ((DsmSettings,), {}),
    "last_value": ((naive.LastValue,), {}),
    "seasonal_last_value": ((naive.SeasonalLastValue,), {}),
    "running_mean": ((naive.RunningMean,), {}),
    "least_squares": ((naive.LeastSquares,), {}),
}
# None in the signature: the default depends on other settings or on the emission.
OPEN = {
    **{name: {"units"} for name in HOMES if name.endswith("ihmm") and name != "beam_ihmm"},
    "bocd": {"noise", "noise_shape", "noise_scale", "consistent"},
}
LEARNT = {"noise": 1.0, "prior_mean": 0.0, "prior_var": 100.0}
LEARNT_T = {"prior_mean": 0.0, "prior_var": 100.0, "noise_shape": 5.0, "noise_scale": 5.0}


def maker_of(name: str) -> Any:
    return getattr(importlib.import_module(REGISTRY[name].module), name)


def declared(home: Any) -> dict[str, Any]:
    """Names and defaults of a settings record, or of a class that takes them."""
    if hasattr(home, "__dataclass_fields__"):
        return {field.name: field.default for field in fields(home)}
    return {name: p.default for name, p in inspect.signature(home).parameters.items()}


def in_units_of_y(default: Any) -> Any:
    return default.given if isinstance(default, ByUnits) else default


def test_every_model_is_looked_at() -> None:
    assert set(HOMES) == set(rk.models())


@pytest.mark.parametrize("name", HOMES)
def test_a_signature_lists_every_setting_with_its_default(name: str) -> None:
    homes, own = HOMES[name]
    expected: dict[str, Any] = {}
    for home in homes:
        expected |= declared(home)
    expected |= own | dict.fromkeys(OPEN.get(name, ()))
    parameters = inspect.signature(maker_of(name)).parameters
    assert {key: in_units_of_y(p.default) for key, p in parameters.items()} == expected
    assert all(p.annotation not in (inspect.Parameter.empty, "Any") for p in parameters.values())
    assert all(p.kind is not p.VAR_KEYWORD for p in parameters.values())


@pytest.mark.parametrize("name", HOMES)
def test_every_setting_is_documented(name: str) -> None:
    text = inspect.getdoc(maker_of(name)) or ""
    if "as `br_ihmm`" in text or "as for `br_ihmm`" in text:
        text += inspect.getdoc(rk.br_ihmm) or ""
    if "as for `student_t_ihmm`" in text:
        text += inspect.getdoc(rk.student_t_ihmm) or ""
    for setting in inspect.signature(maker_of(name)).parameters:
        assert setting in text, f"{name} does not say what {setting} is"


@pytest.mark.parametrize("name", HOMES)
def test_a_misspelt_setting_is_named_with_the_nearest(name: str) -> None:
    setting = next(iter(inspect.signature(maker_of(name)).parameters))
    wrong = {setting[:-1] + "q": 1}
    for make in (maker_of(name), lambda **settings: rk.make(name, **settings)):
        with pytest.raises(rk.RegimekitError, match=f"Did you mean '{setting}'"):
            make(**wrong)


@pytest.mark.parametrize("name", ["br_ihmm", "wolf_ihmm", "ihmm", "student_t_ihmm"])
def test_default_scales_follow_the_units(name: str) -> None:
    learnt = LEARNT_T if name == "student_t_ihmm" else LEARNT
    model = rk.make(name)
    assert {key: model.settings()[key] for key in learnt} == learnt
    assert model.settings()["units"] == "auto"
    assert rk.make(name, prior_var=2.0).settings()["units"] == "given"
    given = rk.make(name, units="given").settings()
    assert {key: given[key] for key in learnt} == {
        key: p.default.given
        for key, p in inspect.signature(maker_of(name)).parameters.items()
        if key in learnt
    }


def test_a_bocd_refuses_the_settings_of_the_other_emission() -> None:
    with pytest.raises(rk.RegimekitError, match="setting='noise_shape'"):
        rk.bocd(noise_shape=3.0)
    with pytest.raises(rk.RegimekitError, match="setting='noise'"):
        rk.bocd(emission="normal_inverse_gamma", noise=0.25)


USE = """\
import regimekit as rk
rk.br_ihmm(noise=0.25, batch=4, features=rk.features.intercept())
rk.br_ihmm(nois=0.25)
rk.br_ihmm(batch="six")
rk.student_t_ihmm(noise=0.25)
rk.auto(seed="x")
"""


def test_the_type_stub_of_the_makers_is_up_to_date() -> None:
    assert signatures.STUB.read_text() == signatures.stub(), "run python -m docs.signatures"


@pytest.mark.slow
def test_a_type_checker_knows_the_settings(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    script = tmp_path / "use.py"
    script.write_text(USE)
    command = [sys.executable, "-m", "mypy", "--no-error-summary", str(script)]
    printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    wrong = {int(line.split(":")[1]) for line in printed.splitlines() if ": error:" in line}
    assert wrong == {3, 4, 5, 6}, printed
