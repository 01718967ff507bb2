"""`python -m benchmarks.unopened`: is the point forecast better without the regime not opened yet?

The forecast is a mixture that must admit a regime nobody has seen. Its mean can leave that
component out. RMSE on clean values, default rule, 50 particles, means over seeds 0 .. 4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from regimekit.engine.pool import UNBORN
from rich.console import Console
from rich.table import Table

import regimekit as rk

STREAMS: dict[str, dict[str, Any]] = {
    "iid, Gaussian noise": {"noise": 0.25, "prior_var": 4.0},
    "iid, t noise": {"noise": 0.25, "prior_var": 4.0},
    "synthetic": {"noise": 1.0, "batch": 3, "threshold": 8**0.5},
}


def load(name: str, seed: int) -> rk.data.Dataset:
    """The stream of a row."""
    if name == "synthetic":
        return rk.data.synthetic_regression(seed, n=1500)
    return rk.data.iid_regimes(seed, noise="t" if "t noise" in name else "gauss")


def both_means(model: Any, x: Any) -> tuple[float, float]:
    """Means of the next forecast with and without the unopened regime."""
    engine = model.engine
    outlook = engine.outlook()
    parts = engine.components(outlook, 0, model._design(engine, model.past, model._check(x)))
    mass = outlook.mass[0].copy()
    whole = float(mass @ parts.location[:, 0] / mass.sum())
    mass[engine.pool.ledger.identity[engine.batch.live] == UNBORN] = 0.0
    return whole, float(mass @ parts.location[:, 0] / mass.sum()) if mass.sum() > 0 else whole


def errors(name: str, seed: int) -> np.ndarray:
    """(RMSE with, RMSE without) over one stream, the first batch apart."""
    stream, settings = load(name, seed), STREAMS[name]
    features = rk.features.intercept() if stream.X is None else rk.features.columns()
    model = rk.br_ihmm(features=features, seed=seed, particles=50, **settings)
    squared = []
    for t, y in enumerate(stream.y):
        x = None if stream.X is None else stream.X[t]
        if model.regimes():
            squared.append((np.array(both_means(model, x)) - stream.clean[t]) ** 2)
        model.update(y, x)
    return np.sqrt(np.mean(squared, axis=0))


if __name__ == "__main__":
    table = Table("stream", "RMSE with", "RMSE without", box=None)
    for name in STREAMS:
        table.add_row(name, *(f"{v:.4f}" for v in np.mean([errors(name, s) for s in range(5)], 0)))
    Console().print(table)
