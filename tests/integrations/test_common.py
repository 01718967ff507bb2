"""An adapter without its library says what to install."""

from __future__ import annotations

import builtins
import importlib
import sys

import pytest

import regimekit as rk
from regimekit.integrations import _common

ADAPTERS = {
    "regimekit.integrations.river": ("river", "river"),
    "regimekit.integrations.sklearn": ("sklearn", "sklearn"),
    "regimekit.integrations.sktime": ("sktime", "sktime"),
    "regimekit.integrations.spark": ("pyspark", "spark"),
}


@pytest.mark.parametrize("module", ADAPTERS)
def test_without_the_library_comes_the_hint(module, monkeypatch):
    library, extra = ADAPTERS[module]
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    real = importlib.import_module

    def without(name, *rest):
        if name == library:
            raise ImportError(f"No module named {name!r}")
        return real(name, *rest)

    monkeypatch.setattr(_common.importlib, "import_module", without)
    with pytest.raises(
        _common.MissingLibraryError, match=rf"pip install 'regimekit\[{extra}\]'"
    ) as caught:
        builtins.__import__(module)
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, rk.RegimekitError)


def test_the_default_model_is_a_model():
    assert _common.DEFAULT_MODEL in rk.models()


def test_covariates_are_regressed_on_unless_features_are_given():
    taken = _common.make_model("br_ihmm", {}, covariates=True).settings()["features"]
    assert len(taken) == 2
    chosen = _common.make_model("br_ihmm", {"features": rk.features.lags(1)}, covariates=True)
    assert len(chosen.settings()["features"]) == 1
    assert _common.make_model("last_value", None, covariates=True).name == "last_value"
