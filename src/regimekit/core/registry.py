"""The models by name: `make`, `models`, and reading them back from snapshots."""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any, NamedTuple

from regimekit.core.exceptions import RegimekitError, SnapshotError, unknown
from regimekit.core.maker import maker
from regimekit.core.model import Model
from regimekit.serialization import snapshot


class Entry(NamedTuple):
    """A model by name: where its maker lives, what it is, where it comes from."""

    name: str
    module: str
    summary: str
    reference: str
    online: bool = True


_ENTRIES = (
    Entry(
        "auto",
        "regimekit.ensemble",
        "a bank of regime models and simple forecasters, mixed online; nothing to set",
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
        "infinite HMM of GARCH(1, 1) volatilities, learnt by particle clouds",
        "Haas, Mittnik and Paolella 2004; Liu and West 2001",
    ),
    Entry(
        "beam_ihmm",
        "regimekit.baselines.beam",
        "offline infinite HMM by beam sampling; reads the whole stream",
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
    Entry("last_value", "regimekit.baselines.naive", "the latest observation again", "trivial"),
    Entry(
        "seasonal_last_value",
        "regimekit.baselines.naive",
        "the observation one season ago again",
        "trivial",
    ),
    Entry("running_mean", "regimekit.baselines.naive", "the mean of all observations", "trivial"),
    Entry(
        "least_squares",
        "regimekit.baselines.least_squares",
        "online least squares on the same features, without regimes",
        "trivial",
    ),
)

_MOST_PATTERNS = 32
_PATTERNS: dict[str, Model] = {}  # models that have seen nothing, by name and settings

REGISTRY = {entry.name: entry for entry in _ENTRIES}
DEFAULT_MODEL = "auto"  # used wherever the caller names no model


def given_settings(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return those of some settings whose default does not depend on other settings."""
    maker_of_model = getattr(importlib.import_module(REGISTRY[name].module), name)
    parameters = inspect.signature(maker_of_model).parameters
    return {k: v for k, v in settings.items() if parameters[k].default is not None}


def models() -> dict[str, str]:
    """Every model's name with a line that says what it is and where it comes from.

    Example:
        >>> import regimekit as rk
        >>> print(rk.models()["ihmm"])
        online infinite HMM by particle learning, not robust (Rodriguez 2011)
    """
    return {entry.name: f"{entry.summary} ({entry.reference})" for entry in _ENTRIES}


def make(name: str, **settings: Any) -> Model:
    """Make a model by name; `make("br_ihmm", batch=4)` is `br_ihmm(batch=4)`.

    Example:
        >>> import regimekit as rk
        >>> rk.make("br_ihmm", batch=4).settings()["batch"]
        4
    """
    if name not in REGISTRY:
        raise unknown("name", name, REGISTRY)
    found = getattr(importlib.import_module(REGISTRY[name].module), name)
    model: Model = maker(found)(**settings)  # also where it is not marked as one
    return model


def from_bytes(data: bytes) -> Model:
    """The model that `to_bytes` packed, exactly as it was."""
    content = snapshot.read(data)
    if content.model not in REGISTRY:
        raise SnapshotError(f"The snapshot holds the model {content.model!r}, unknown here.")
    try:
        model = _blank(content.model, content.settings)
        content.check_state(model.state_version)
        model._unpack(content.values, content.arrays)
        content.refuse_unread()
    except SnapshotError:
        raise
    except Exception as error:  # whatever a crafted file provokes is the file's fault
        raise SnapshotError(f"The snapshot lacks or garbles something: {error}") from None
    return model


def _blank(name: str, settings: dict[str, Any]) -> Model:
    """A model as `make` makes it; where many have the same settings, these are read once."""
    key = f"{name} {json.dumps(settings)}"
    if key not in _PATTERNS:
        made = make(name, **settings)
        if not hasattr(made, "blank"):
            return made
        while len(_PATTERNS) >= _MOST_PATTERNS:
            _PATTERNS.pop(next(iter(_PATTERNS), key), None)
        _PATTERNS[key] = made
    pattern: Any = _PATTERNS[key]
    fresh: Model = pattern.blank()
    return fresh


def load(path: str | Path) -> Model:
    """The model that `save` wrote to `path`."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RegimekitError(f"path cannot be read: {error}.") from None
    return from_bytes(data)
