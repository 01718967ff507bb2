"""What a model knows, in plain words and in one line."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from regimekit.core import display
from regimekit.core.coefficients import labels
from regimekit.results import Regime

_LISTED = 6  # regimes and coefficients named at most


def summary(model: Any) -> str:
    """A model in one line: its name, the settings that differ from the default, what it has seen.

    Example:
        >>> import regimekit as rk
        >>> rk.br_ihmm(batch=4)
        br_ihmm(batch=4) before its first observation
    """
    return display.short(f"{model.name}({changed_settings(model)}) {_seen(model)}")


def as_html(model: Any) -> str:
    """The same for a notebook, above its regimes."""
    header = ["regime", "observations", "first seen", "last seen", "coefficients"]
    rows = [
        [str(r.id), str(r.visits), str(r.first_seen), str(r.last_seen), _coefficients(model, r)]
        for r in _latest(_known(model))
    ]
    return display.html(summary(model), header if rows else [], rows)


def explain(model: Any) -> str:
    """Units, features and regimes, a line or a few each.

    Example:
        >>> import regimekit as rk
        >>> print(rk.br_ihmm().explain())
        br_ihmm has seen nothing yet. Give it observations with update(y) or run(y).
    """
    if not model.n_observations:
        return f"{model.name} has seen nothing yet. Give it observations with update(y) or run(y)."
    head = f"{model.name} after {display.count(model.n_observations, 'observation')}."
    settings = f"Settings that differ from the default: {changed_settings(model) or 'none'}."
    lines = [head, settings, *_units(model), *_features(model), *_regimes(model)]
    return "\n".join([*lines, *_outliers(model)])


def changed_settings(model: Any) -> str:
    """The settings that differ from the default, as one would type them."""
    registry = import_module("regimekit.core.registry")
    known = model.name in registry.REGISTRY  # a model of somebody's own is not
    usual = registry.make(model.name).settings() if known else {}
    chosen = {k: v for k, v in model.settings().items() if k not in usual or v != usual[k]}
    if "features" in chosen and hasattr(model, "features"):
        chosen["features"] = model.features
        if repr(model.features) == "intercept()":  # what it came to by itself
            del chosen["features"]
    return ", ".join(f"{name}={value!r}" for name, value in chosen.items())


def _seen(model: Any) -> str:
    n = model.n_observations
    if not n:
        return "before its first observation"
    known = _known(model)
    regimes = f", {display.count(len(known), 'regime')}" if known else ""
    return f"after {display.count(n, 'observation')}{regimes}"


def _known(model: Any) -> list[Regime]:
    """Its regimes; none of a model that would have to fit the whole stream to say."""
    entry = import_module("regimekit.core.registry").REGISTRY.get(model.name)
    online = entry is None or entry.online
    return model.regimes() if online and model.n_observations else []


def _latest(regimes: list[Regime]) -> list[Regime]:
    latest = sorted(regimes, key=lambda regime: -regime.last_seen)[:_LISTED]
    return sorted(latest, key=lambda regime: regime.id)


def _units(model: Any) -> list[str]:
    units: Any = getattr(model, "units", None)
    if not hasattr(units, "scale"):
        return []
    scale, centre = display.vector(units.scale), display.vector(units.centre)
    return [f"Units: noise of about {scale} around {centre}, learnt from differences."]


def _features(model: Any) -> list[str]:
    features = getattr(model, "features", None)
    return [] if features is None else [f"Features: {features!r}."]


def _regimes(model: Any) -> list[str]:
    known = _known(model)
    if not known:
        return ["Regimes: none to tell of yet."]
    now = max(known, key=lambda regime: regime.last_seen)
    head = f"Regimes: {display.count(len(known), 'regime')} remembered; latest seen: {now.id}."
    return [head, *(_regime(model, regime) for regime in _latest(known))]


def _regime(model: Any, regime: Regime) -> str:
    seen = f"{display.count(regime.visits, 'observation')}, "
    seen += f"{regime.first_seen} to {regime.last_seen}"
    return f"  regime {regime.id}: {_coefficients(model, regime)}; {seen}."


def _coefficients(model: Any, regime: Regime) -> str:
    names = labels(model, regime.mean.size)
    told = [
        f"{name} {display.number(mean)} (sd {display.number(sd)})"
        for name, mean, sd in zip(names, regime.mean.ravel(), regime.sd.ravel(), strict=True)
    ]
    more = "" if len(told) <= _LISTED else f", and {len(told) - _LISTED} more"
    return ", ".join(told[:_LISTED]) + more


def _outliers(model: Any) -> list[str]:
    """The latest, as far as this object has seen them: a snapshot holds none."""
    latest = ", ".join(map(str, model.outliers[-_LISTED:]))
    return [f"Outliers: the latest at observation {latest}."] if latest else []
