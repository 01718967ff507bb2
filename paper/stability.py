"""Relation between influence and loss of accuracy, an open question of the paper.

The paper asks whether |R_c - R| <= C sqrt(PIF), with R the error of the forecasts and R_c the error
after one contaminated observation. Both sides are measured here on its iid levels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import regimekit as rk
from paper.tables import Item, Made, Results, Table, Value
from regimekit.ihmm.published import MODELS

Array = NDArray[np.float64]
SIZES = (1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)  # standard deviations of the noise
BATCH, LEARNT, AFTER, SEEDS = 6, 300, 24, 10
NOISE_SD = 0.5


def measure(name: str, size: float, seed: int) -> tuple[float, float]:
    """Return the joint PIF of one outlier and the change of the RMSE of the forecasts after it.

    Args:
        name: name of the model.
        size: size of the outlier in standard deviations of the noise.
        seed: seed of stream and model.

    Example:
        >>> pif, change = measure("br_ihmm", 1000.0, seed=0)
        >>> pif < 10 and change < 1
        True
    """
    y = rk.data.iid_regimes(seed).clean
    assert y is not None
    own: dict[str, Any] = {"batch": BATCH} if name == "br_ihmm" else {}
    settings = {"noise": NOISE_SD**2, "prior_var": 4.0, "particles": 50, "seed": seed}
    model = rk.make(name, **settings, **own)
    model.run(y[:LEARNT])
    batch = BATCH if name == "br_ihmm" else 1
    clean = y[LEARNT : LEARNT + batch]
    value = float(clean[0] + size * NOISE_SD)
    pif = float(rk.influence.joint_pif(model, value, clean=clean, position=0))
    errors = []
    for first in (clean[0], value):
        rest = y[LEARNT : LEARNT + batch + AFTER].copy()
        rest[0] = first
        run = model.copy().run(rest)
        errors.append(float(np.sqrt(np.mean((rest - run.mean)[batch:] ** 2))))
    return pif, abs(errors[1] - errors[0])


def _ranks(values: Array) -> Array:
    return np.argsort(np.argsort(values)).astype(np.float64)


def _made(results: Results) -> Made:
    seeds = 1 if results.plan.quick else SEEDS
    rows: list[list[Value]] = []
    summary: list[list[Value]] = []
    for name in MODELS:
        found = np.array([[measure(name, size, s) for s in range(seeds)] for size in SIZES])
        for size, one in zip(SIZES, found, strict=True):
            pif, change = one.T
            rows.append([name, size, float(pif.mean()), float(change.mean()), float(change.max())])
        pif, change = found.reshape(-1, 2).T
        rank = float(np.corrcoef(_ranks(pif), _ranks(change))[0, 1])
        ratio = change / np.sqrt(np.maximum(pif, 1e-12))
        summary.append([name, rank, float(np.median(ratio)), float(ratio.max())])
    columns = ["model", "outlier, noise sd", "joint PIF, nats", "mean change of RMSE", "largest"]
    caption = (
        f"One outlier after {LEARNT} observations of the iid levels, {seeds} seeds: its joint PIF, "
        f"and the change of the RMSE of the {AFTER} forecasts after its batch."
    )
    about = ["model", "rank correlation of PIF and change", "median change / √PIF", "largest C"]
    words = (
        "Over all outliers and seeds. *Largest C* is the smallest constant for which the bound "
        "|change| <= C √PIF holds in all of them."
    )
    return Made([Table(columns, rows, caption), Table(about, summary, words)])


ITEMS = (
    Item(
        "stability",
        "Influence and loss of accuracy",
        "our own (Limitations, 'Towards linking bounded PIFs to higher predictive accuracy')",
        "Default rule with known noise, 50 particles; B = 6 for br_ihmm. The two runs of a pair "
        "draw the same random numbers until their states differ, so a part of a small change is "
        "that of other draws, which the PIF, conditional on the particles, does not contain.",
        _made,
    ),
)
