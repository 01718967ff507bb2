"""`check_model` accepts the models of the registry and reports each kind of defect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import regimekit as rk
from regimekit.baselines.naive import RunningMean
from regimekit.core.exceptions import RegimekitError
from regimekit.core.registry import REGISTRY
from regimekit.distributions.forecast import Forecast


@pytest.mark.parametrize("name", ["last_value", "bocd", "br_ihmm", "auto"])
def test_models_of_the_registry_pass(name: str) -> None:
    settings = {"particles": 10} if name == "br_ihmm" else {}
    rk.check_model(lambda: rk.make(name, **settings))


class ImpurePredict(RunningMean):
    def _predict(self, x: Any) -> Forecast:
        forecast = super()._predict(x)
        self.time += 1
        return forecast


class OtherForecastInRun(RunningMean):
    def _predict(self, x: Any) -> Forecast:
        forecast = super()._predict(x)
        return Forecast(forecast.share, forecast.location + 1.0, forecast.spread, forecast.dof)


class ForgetfulCopy(RunningMean):
    def _unpack(self, values: dict[str, Any], arrays: dict[str, Any]) -> None:
        super()._unpack(values, arrays)
        self.mean[:] = 0.0


class NotJson(RunningMean):
    def settings(self) -> dict[str, Any]:
        return {"error_sd": (self.error_sd,)}


class AcceptsInfinity(RunningMean):
    def update(self, y: Any, x: Any = None) -> Any:
        return super().update(0.0 if not np.isscalar(y) or y in (np.inf, "text") else y, x)


@pytest.mark.parametrize(
    ("defective", "message"),
    [
        (ImpurePredict, "predict must not change the state"),
        (OtherForecastInRun, "predict and run must give the same forecast"),
        (ForgetfulCopy, "a copy must continue"),
        (NotJson, "settings must return JSON"),
        (AcceptsInfinity, "must raise RegimekitError"),
    ],
)
def test_defects_are_reported(defective: Callable[[], Any], message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        rk.check_model(defective)


def test_a_registered_model_is_made_saved_and_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REGISTRY, "mean_of_all", None)
    monkeypatch.delitem(REGISTRY, "mean_of_all")
    rk.register("mean_of_all", __name__, "mean of all observations")
    model = rk.make("mean_of_all")
    model.run([1.0, 2.0, 6.0])
    assert rk.from_bytes(model.to_bytes()).predict().mean == 3.0
    assert rk.models()["mean_of_all"] == "mean of all observations"
    with pytest.raises(RegimekitError, match="is registered by"):
        rk.register("auto", __name__, "another model")
    with pytest.raises(RegimekitError, match="identifier"):
        rk.register("mean of all", __name__, "no name")


class MeanOfAll(RunningMean):
    name = "mean_of_all"


def mean_of_all(error_sd: float = 1.0, dim: int | None = None) -> MeanOfAll:
    return MeanOfAll(error_sd, dim)
