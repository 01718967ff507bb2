"""Descriptions of a model: one line, a table for a notebook, and a text of a few lines.

Arguments of the functions:
    model: the model.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from regimekit.core import display
from regimekit.core.exceptions import RegimekitError
from regimekit.results import UNKNOWN, Regime

_MAX_LISTED = 6  # regimes, coefficients and outliers


def summary(model: Any) -> str:
    """Return one line on a model: name, non-default settings, number of observations.

    Example:
        >>> import regimekit as rk
        >>> rk.br_ihmm(batch=4)
        br_ihmm(batch=4) before its first observation
    """
    n = model.n_observations
    if not n:
        seen = "before its first observation"
    else:
        regimes = _regimes(model)
        known = f", {display.count(len(regimes), 'regime')}" if regimes else ""
        seen = f"after {display.count(n, 'observation')}{known}"
    return display.short(f"{model.name}({changed_settings(model)}) {seen}")


def as_html(model: Any) -> str:
    """Return an HTML table of a model: the summary line as caption, one row per regime."""
    header = ["regime", "status", "observations", "first seen", "last seen", "summary"]
    rows = [
        [str(r.id), r.status, str(r.visits), str(r.first_seen), str(r.last_seen), r.summary]
        for r in _latest(_regimes(model))
    ]
    return display.html(summary(model), header if rows else [], rows)


def explain(model: Any) -> str:
    """Return a few lines on units, features, regimes and latest outliers of a model.

    Example:
        >>> import regimekit as rk
        >>> print(rk.br_ihmm().explain())
        br_ihmm has seen no observations yet. Pass observations with update(y) or run(y).
    """
    if not model.n_observations:
        return (
            f"{model.name} has seen no observations yet. "
            "Pass observations with update(y) or run(y)."
        )
    lines = [
        f"{model.name} after {display.count(model.n_observations, 'observation')}.",
        f"Settings that differ from the default: {changed_settings(model) or 'none'}.",
    ]
    units: Any = getattr(model, "units", None)
    if hasattr(units, "scale"):
        scale, centre = display.vector(units.scale), display.vector(units.centre)
        lines.append(f"Units: noise scale {scale}, centre {centre}, estimated from differences.")
    features = getattr(model, "features", None)
    if features is not None:
        lines.append(f"Features: {features!r}.")
    regimes = _regimes(model)
    if regimes:
        known, now = len(regimes), max(regimes, key=lambda regime: regime.last_seen)
        lines.append(f"Regimes: {display.count(known, 'regime')} in memory; last seen: {now.id}.")
        lines += [describe_regime(regime) for regime in _latest(regimes)]
    else:
        lines.append("Regimes: none yet.")
    # A snapshot stores no outliers: these are the ones since the object was made or loaded.
    latest = ", ".join(map(str, model.outliers[-_MAX_LISTED:]))
    return "\n".join([*lines, *([f"Latest outliers: observations {latest}."] if latest else [])])


def changed_settings(model: Any) -> str:
    """Return the settings that differ from the default, as keyword arguments."""
    # By name: the registry imports every model, and every model imports this module.
    registry = import_module("regimekit.core.registry")
    registered = model.name in registry.REGISTRY
    settings = model.settings()
    usual = registry.make(model.name).settings() if registered else {}
    changed = {k: v for k, v in settings.items() if k not in usual or v != usual[k]}
    if registered and changed:
        # Settings that follow from the changed ones are not changes themselves.
        given = registry.given_settings(model.name, changed)
        follows = registry.make(model.name, **given).settings() if given else usual
        changed = {k: v for k, v in changed.items() if k in given or v != follows.get(k)}
    if "features" in changed and hasattr(model, "features"):
        changed["features"] = model.features
        # The default "no features given" resolves to an intercept: that is no change.
        if repr(model.features) == "intercept()":
            del changed["features"]
    return ", ".join(f"{name}={value!r}" for name, value in changed.items())


def coefficient_names(model: Any) -> list[str] | None:
    """Return the coefficient names in the order of `Regime.mean`; None if not known.

    Example:
        >>> import regimekit as rk
        >>> coefficient_names(rk.br_ihmm(features=rk.features.intercept() + rk.features.lags(1)))
        ['intercept', 'lag 1']
    """
    if callable(named := getattr(model, "coefficient_names", None)):
        return list(named())
    features = getattr(model, "features", None)
    if features is None or not hasattr(features, "names"):
        return None
    try:
        return list(features.names(getattr(model, "_like", None), model.dim or 1))
    except RegimekitError:
        return None


def coefficient_labels(model: Any, size: int, names: list[str] | None = None) -> list[str]:
    """Return a label for each coefficient.

    They are the names that are given or those of the model, if their number fits, or else numbers.

    Example:
        >>> import regimekit as rk
        >>> coefficient_labels(rk.br_ihmm(), 2)
        ['coefficient 0', 'coefficient 1']
    """
    for known in (names, coefficient_names(model)):
        if known and len(known) == size:
            return known
    return ["level"] if size == 1 else [f"coefficient {j}" for j in range(size)]


def _regimes(model: Any) -> list[Regime]:
    """Return the regimes of a model; [] if it would have to fit the whole stream to infer them."""
    entry = import_module("regimekit.core.registry").REGISTRY.get(model.name)
    online = entry is None or entry.online
    return model.regimes() if online and model.n_observations else []


def _latest(regimes: list[Regime]) -> list[Regime]:
    latest = sorted(regimes, key=lambda regime: -regime.last_seen)[:_MAX_LISTED]
    return sorted(latest, key=lambda regime: regime.id)


def describe_regime(regime: Regime) -> str:
    """Return one line on a regime: name, status, summary and visits."""
    label = f" {regime.name!r}" if regime.name else ""
    status = "" if regime.status == UNKNOWN else f", {regime.status}"
    if regime.n_visits == 0:
        return f"  regime {regime.id}{label}{status}: no observations with statistics."
    stays = f"{display.count(regime.n_visits, 'visit')}, median length {regime.duration:g}"
    share = f"{regime.share:.0%} of the observations"
    return f"  regime {regime.id}{label}{status}: {regime.summary}; {share}, {stays}."
