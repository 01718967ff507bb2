"""Registry of models: `make`, `models`, `register`, and loading from snapshots."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any, NamedTuple

from regimekit.core.exceptions import RegimekitError, SnapshotError, unknown
from regimekit.core.limits import MAX_SNAPSHOT_BYTES
from regimekit.core.maker import maker
from regimekit.core.model import CALENDAR, Model
from regimekit.preprocessing.calendar import Calendar
from regimekit.serialization import snapshot


class Entry(NamedTuple):
    """A registered model.

    Attributes:
        name: name of the model and of its maker.
        module: module that contains the maker.
        summary: description in a few words.
        reference: publication.
        online: whether it forecasts each observation before it is known.
    """

    name: str
    module: str
    summary: str
    reference: str
    online: bool = True


_ENTRIES = (
    Entry(
        "auto",
        "regimekit.ensemble",
        "ensemble of regime models and simple forecasters, combined online; needs no settings",
        "Wintenberger 2017; Berrisch and Ziel 2021",
    ),
    Entry(
        "br_ihmm",
        "regimekit.ihmm.makers",
        "doubly robust online infinite HMM: weighted updates, one regime per batch",
        "Yiu et al. 2026",
    ),
    Entry(
        "wolf_ihmm",
        "regimekit.ihmm.makers",
        "online infinite HMM with robust parameters, plain likelihood for regimes",
        "Yiu et al. 2026; Duran-Martin et al. 2024",
    ),
    Entry(
        "ihmm",
        "regimekit.ihmm.makers",
        "online infinite HMM by particle learning, not robust",
        "Rodriguez 2011",
    ),
    Entry(
        "student_t_ihmm",
        "regimekit.ihmm.makers",
        "infinite HMM with unknown noise per regime: doubly robust, needs no noise level",
        "Yiu et al. 2026",
    ),
    Entry(
        "garch_ihmm",
        "regimekit.ihmm.makers",
        "infinite HMM of GARCH(1, 1) volatilities, estimated by particle clouds",
        "Haas, Mittnik and Paolella 2004; Liu and West 2001",
    ),
    Entry(
        "beam_ihmm",
        "regimekit.baselines.beam",
        "offline infinite HMM by beam sampling; needs the whole stream",
        "Van Gael et al. 2008",
        online=False,
    ),
    Entry(
        "bocd",
        "regimekit.baselines.bocd",
        "Bayesian online changepoint detection on the same emissions; regimes never return",
        "Adams and MacKay 2007",
    ),
    Entry(
        "dsm_bocd",
        "regimekit.baselines.dsm_bocd",
        "changepoint detection with a robust score-matching posterior",
        "Altamirano, Briol and Knoblauch 2023",
    ),
    Entry("last_value", "regimekit.baselines.naive", "latest observation", "trivial"),
    Entry(
        "seasonal_last_value", "regimekit.baselines.naive", "observation one season ago", "trivial"
    ),
    Entry("running_mean", "regimekit.baselines.naive", "mean of the observations", "trivial"),
    Entry(
        "least_squares",
        "regimekit.baselines.naive",
        "online least squares on the same features, without regimes",
        "trivial",
    ),
)

_MAX_TEMPLATES = 32
_TEMPLATES: dict[str, Model] = {}  # models without observations, by name and settings

REGISTRY = {entry.name: entry for entry in _ENTRIES}
DEFAULT_MODEL = "auto"  # used if no model is given


def register(
    name: str, module: str, summary: str, reference: str = "", *, online: bool = True
) -> None:
    """Register a model of another package.

    `make`, snapshots, the command line and the service then find it by name. The module is
    imported on first use.

    Args:
        name: name of the model and of the function in `module` that makes it.
        module: name of the module.
        summary: description in a few words.
        reference: publication.
        online: whether it forecasts each observation before it is known.

    Raises:
        RegimekitError: if the name is not an identifier, or another module registered it.

    Example:
        >>> import regimekit as rk
        >>> rk.register("window_median", "my_package.models", "median of the latest values")
        >>> rk.models()["window_median"]
        'median of the latest values'
        >>> del REGISTRY["window_median"]
    """
    entry = Entry(name, module, summary, reference, online)
    if not str(name).isidentifier():
        raise RegimekitError(f"name must be a Python identifier, got {name!r}.")
    if name in REGISTRY and REGISTRY[name].module != module:
        raise RegimekitError(
            f"name={name!r} is registered by {REGISTRY[name].module}. Choose another name."
        )
    REGISTRY[name] = entry


def given_settings(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings whose default does not depend on other settings."""
    maker_of_model = getattr(importlib.import_module(REGISTRY[name].module), name)
    parameters = inspect.signature(maker_of_model).parameters
    return {k: v for k, v in settings.items() if parameters[k].default is not None}


def models() -> dict[str, str]:
    """Return summary and reference of every model by name.

    Example:
        >>> import regimekit as rk
        >>> print(rk.models()["ihmm"])
        online infinite HMM by particle learning, not robust (Rodriguez 2011)
    """
    return {
        entry.name: f"{entry.summary} ({entry.reference})" if entry.reference else entry.summary
        for entry in REGISTRY.values()
    }


def make(name: str, **settings: Any) -> Model:
    """Make a model by name; `make("br_ihmm", batch=4)` is `br_ihmm(batch=4)`.

    Args:
        name: one of `models()`.
        **settings: settings of the model.

    Returns:
        A model without observations.

    Raises:
        RegimekitError: if the name or a setting is not known, or a value is invalid.

    Example:
        >>> import regimekit as rk
        >>> rk.make("br_ihmm", batch=4).settings()["batch"]
        4
    """
    if name not in REGISTRY:
        raise unknown("name", name, REGISTRY)
    found = getattr(importlib.import_module(REGISTRY[name].module), name)
    model: Model = maker(found)(**settings)
    return model


def from_bytes(data: bytes) -> Model:
    """Return the model of a snapshot.

    Args:
        data: output of `Model.to_bytes`.

    Returns:
        The model.

    Raises:
        SnapshotError: if the snapshot is invalid, or its model is not registered.
    """
    content = snapshot.read(data)
    if content.model not in REGISTRY:
        raise SnapshotError(f"The model {content.model!r} of the snapshot is not registered.")
    try:
        model = _blank(content.model, content.settings)
        content.check_state(model.state_version)
        if CALENDAR in content.values:
            model._calendar = Calendar.from_json(content.values[CALENDAR])
        model.restore_state(content.values, content.arrays)
        content.refuse_unread()
    except SnapshotError:
        raise
    except Exception as error:  # a crafted file may raise anything
        raise SnapshotError(f"The snapshot is incomplete or corrupt: {error}") from None
    return model


def _blank(name: str, settings: dict[str, Any]) -> Model:
    """Return a new model; equal settings of many models are read once."""
    key = f"{name} {json.dumps(settings)}"
    if key not in _TEMPLATES:
        made = make(name, **settings)
        if not hasattr(made, "blank"):
            return made
        while len(_TEMPLATES) >= _MAX_TEMPLATES:
            _TEMPLATES.pop(next(iter(_TEMPLATES), key), None)
        _TEMPLATES[key] = made
    template: Any = _TEMPLATES[key]
    fresh: Model = template.blank()
    return fresh


def load(path: str | Path) -> Model:
    """Load the model that `Model.save` wrote.

    Args:
        path: the file.

    Returns:
        The model.

    Raises:
        SnapshotError: if the file is not a valid snapshot.
        RegimekitError: if the file cannot be read.
    """
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_SNAPSHOT_BYTES + 1)
    except OSError as error:
        raise RegimekitError(f"path cannot be read: {error}.") from None
    if len(data) > MAX_SNAPSHOT_BYTES:
        raise SnapshotError(f"{path} has more than {MAX_SNAPSHOT_BYTES} bytes; it is no snapshot.")
    return from_bytes(data)
