"""Every item by name: the most important first, then in the order of the paper, then our own."""

from __future__ import annotations

from collections.abc import Sequence

from paper import (
    ablation,
    ahead,
    electricity,
    forecasting,
    hyperparameters,
    iid,
    objectives,
    order_flow,
    protocol,
    recovery,
    robust,
    stability,
    sweeps,
    synthetic,
    targets,
    toys,
    volatility,
    well_log,
)
from paper.tables import Item
from regimekit.core.exceptions import unknown

_GROUPS = (
    targets,
    hyperparameters,
    objectives,
    iid,
    well_log,
    order_flow,
    electricity,
    synthetic,
    forecasting,
    protocol,
    ahead,
    recovery,
    ablation,
    robust,
    stability,
    volatility,
    toys,
    sweeps,
)
_FIRST = ("targets", "regimes", "forecast", "welllog_regimes", "iid_gauss", "iid_t", "ahead")
_FOUND = {item.name: item for group in _GROUPS for item in group.ITEMS}
ITEMS: dict[str, Item] = {name: _FOUND[name] for name in (*_FIRST, *_FOUND)}
ALL = "all"


def choose(names: Sequence[str]) -> list[Item]:
    """Return the items with these names.

    Example:
        >>> [item.name for item in choose(["pif", "iid_t"])]
        ['pif', 'iid_t']
    """
    if ALL in names:
        return list(ITEMS.values())
    for name in names:
        if name not in ITEMS:
            raise unknown("ITEMS", name, [ALL, *ITEMS])
    return [ITEMS[name] for name in dict.fromkeys(names)]
