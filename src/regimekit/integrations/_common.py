"""Functions shared by the adapters: create a model, read its runs, check for a library."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import regimekit as rk
from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.core.registry import DEFAULT_MODEL
from regimekit.panel import make_for_calendar, with_seasons
from regimekit.preprocessing.time_index import seasons_of_labels
from regimekit.results import NO_REGIME


class MissingLibraryError(RegimekitError, ImportError):
    """The library of an adapter is not installed."""


class PickledAsBytes:
    """Mixin that pickles and copies the fitted `model_` through `to_bytes`."""

    model_: Model

    def __getstate__(self) -> dict[str, Any]:
        above: Any = super()
        state = dict(above.__getstate__() or {})
        return state | {"model_": state["model_"].to_bytes()} if "model_" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        above: Any = super()
        getattr(above, "__setstate__", self.__dict__.update)(state)
        if "model_" in state:
            self.model_ = rk.from_bytes(state["model_"])


def require(extra: str, *modules: str) -> None:
    """Check that modules can be imported.

    Args:
        extra: extra of regimekit that installs them.
        modules: names of modules.

    Raises:
        MissingLibraryError: if one cannot be imported; the message has the install command.
    """
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise MissingLibraryError(
                f"This adapter requires {module} ({error}). Run pip install 'regimekit[{extra}]'."
            ) from None


def make_model(
    model: str | None,
    settings: Mapping[str, Any] | None,
    *,
    covariates: bool = False,
    times: Any = None,
) -> Model:
    """Create a model.

    Args:
        model: name of a model; None selects the default model.
        settings: settings of the model.
        covariates: regress on all covariates, unless `settings` has `features` or the model
            selects its features itself.
        times: time index of the data, from which the model's seasons are derived.
    """
    name, seasons = model or DEFAULT_MODEL, seasons_of_labels(times)
    chosen = with_seasons(name, settings or {}, seasons)
    made = make_for_calendar(name, settings or {}, seasons)
    selects_features = name == "auto" or "features" not in made.settings()
    if covariates and "features" not in chosen and not selects_features:
        made = rk.make(name, features=rk.features.intercept() + rk.features.columns(), **chosen)
    # Warnings about settings would address the adapter, not its user.
    made.advised = False
    return made


def regime_labels(run: rk.Run) -> NDArray[np.int64]:
    """Return the regime of each observation, shape (T,).

    Observations are labelled in hindsight: those of a batch get the regime decided at its end,
    and those before the first regime get the first regime.
    """
    known = run.path[run.path != NO_REGIME]
    return np.where(run.path == NO_REGIME, known[0] if known.size else 0, run.path)


def fill_covariates(x: Mapping[Any, Any], latest: Mapping[str, Any]) -> dict[str, Any]:
    """Return covariates under the names of `latest`; missing ones keep their latest value.

    If `latest` is empty, all covariates of `x` are returned, sorted by name: the order of a
    dictionary must not determine the order of the columns.
    """
    if not latest:
        return {str(name): x[name] for name in sorted(x, key=str)}
    # A value that differs from itself is NaN.
    given = {str(name): v for name, v in x.items() if v is not None and v == v}
    return {name: given.get(name, value) for name, value in latest.items()}
