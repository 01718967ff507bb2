"""What the coefficients of a model's regimes are called."""

from __future__ import annotations

from typing import Any

from regimekit.core.exceptions import RegimekitError


def coefficient_names(model: Any) -> list[str] | None:
    """Names in the order of `Regime.mean`, or None where the model cannot say.

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


def labels(model: Any, size: int, names: list[str] | None = None) -> list[str]:
    """A label for each of `size` coefficients: the names if they fit, else numbers.

    Example:
        >>> import regimekit as rk
        >>> labels(rk.br_ihmm(), 2)
        ['coefficient 0', 'coefficient 1']
    """
    known = names or coefficient_names(model)
    if known and len(known) == size:
        return known
    return ["level"] if size == 1 else [f"coefficient {j}" for j in range(size)]
