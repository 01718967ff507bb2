"""Shared code of the adapters: choose a model, make it, convert its steps, import a library."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import regimekit as rk
from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.core.registry import DEFAULT_MODEL
from regimekit.panel import with_seasons
from regimekit.preprocessing.time_index import seasons_of_labels

NO_REGIME = -1
CHANGES = ("regime opened", "regime returned", "regime switched")


class MissingLibrary(RegimekitError, ImportError):
    """An adapter's library is not installed; the message says how to get it."""


class Packed:
    """A mixin whose fitted `model_` is pickled and copied through its own bytes."""

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


def need(extra: str, *modules: str) -> None:
    """Refuse, with the command that helps, if one of `modules` cannot be imported."""
    for module in modules:
        try:
            importlib.import_module(module)
        except ImportError as error:
            raise MissingLibrary(
                f"This part of regimekit needs {module} ({error}): pip install 'regimekit[{extra}]'."
            ) from None


def default_model() -> str:
    """The model an adapter uses when it is told none."""
    return DEFAULT_MODEL


def fresh(
    model: str | None,
    settings: Mapping[str, Any] | None,
    *,
    covariates: bool = False,
    times: Any = None,
) -> Model:
    """A new model by name; with `covariates` one that regresses on all of them.

    `features` among the settings is always kept as it is. A model that chooses its features
    itself keeps that choice, too; which seasons it may expect is read off the `times`.
    """
    name = model or default_model()
    chosen = with_seasons(name, settings or {}, seasons_of_labels(times))
    made = _silent(rk.make(name, **chosen))
    decided = "features" in chosen or "features" not in made.settings() or name == "auto"
    if decided or not covariates:
        return made
    columns = rk.features.intercept() + rk.features.columns()
    return _silent(rk.make(name, features=columns, **chosen))


def change_of(events: Iterable[rk.Event], before: int) -> rk.Event | None:
    """The change of regime among an observation's events; entering the first one is none."""
    if before == NO_REGIME:
        return None
    return next((event for event in events if event.kind in CHANGES), None)


def labels(run: rk.Run) -> NDArray[np.int64]:
    """Regime of each observation, with whole batches given the regime that their end decided."""
    path = np.asarray(getattr(run, "path", run.regime))
    known = path[path != NO_REGIME]
    first = known[0] if known.size else 0
    return np.where(path == NO_REGIME, first, path)


def changepoints(regimes: NDArray[np.int64]) -> list[int]:
    """First index of each segment after the first."""
    return [int(t) + 1 for t in np.flatnonzero(np.diff(regimes))]


def completed(x: Mapping[Any, Any], latest: Mapping[str, Any]) -> dict[str, Any]:
    """Covariates under the names of `latest`; one that is absent keeps its latest value."""
    if not latest:
        return {str(name): value for name, value in x.items()}
    offered = {str(name): value for name, value in x.items() if not _absent(value)}
    return {name: offered.get(name, value) for name, value in latest.items()}


def _absent(value: Any) -> bool:
    return value is None or value != value


def _silent(model: Model) -> Model:
    """A model that leaves advice to the library around it, whose users set other things."""
    model.advised = False
    return model
