"""Two known regimes and no learning: the influence, the preference, the heavy tails."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from holdfast import influence
from holdfast.plot import PALETTE, pyplot
from paper import drawing
from paper.tables import RULES, Item, Made, Results, Table, Value

_OFFSETS = np.linspace(-1.5, 1.5, 301)
_FAR = (1.5, 100.0, 1e6)
_C2 = (1.0, 4.0)
_BATCHES = (2, 6, 12)
_SPREADS = (0.5, 1.0, 2.0, 5.0)
_PATHS = {
    "B 1: regime 1": [1],
    "B 6, free: 1 for the outlier alone": [1, 0, 0, 0, 0, 0],
    "B 6, one regime: all in 1": [1] * 6,
}
_NEW, _OLD = 5, 1000  # degrees of freedom of a new and of an old regime


def _curves() -> list[tuple[str, dict[str, Any]]]:
    """The settings of each curve of the influence figure."""
    curves: list[tuple[str, dict[str, Any]]] = []
    for c2 in _C2:
        plain = {"batch": 1, "threshold": c2**0.5, "weigh_regimes": False}
        curves.append((f"unbatched, c² {c2:g}", plain))
        for batch in _BATCHES:
            curves.append((f"B {batch}, c² {c2:g}", {"batch": batch, "threshold": c2**0.5}))
    return curves


def _pif(_: Results) -> Made:
    rows: list[list[Value]] = []
    for label, chosen in _curves():
        row: list[Value] = [label]
        for rule in RULES:
            row += [float(v) for v in influence.sandbox_pif(_FAR, rule=rule, **chosen)]
        rows.append(row)
    names = [f"at {offset:g}, {rule} rule" for rule in RULES for offset in _FAR]
    return Made([Table(["", *names], rows)], _draw_pif)


def _draw_pif() -> Any:
    figure, axes = drawing.grid(1, 2, "State PIF of one observation moved away from regime 0")
    for ax, rule in zip(axes[0], RULES, strict=True):
        for index, (label, chosen) in enumerate(_curves()):
            curve = influence.sandbox_pif(_OFFSETS, rule=rule, **chosen)
            style = "-" if index < len(_BATCHES) + 1 else "--"
            colour = PALETTE[index % (len(_BATCHES) + 1)]
            ax.plot(_OFFSETS, curve, style, lw=1, color=colour, label=label)
        ax.set_title(f"{rule} rule", loc="left", fontsize=9)
        ax.set_xlabel("offset")
    axes[0, 0].set_ylabel("state PIF")
    axes[0, 0].legend(fontsize=7, frameon=False, ncols=2)
    return figure


def _moved(y: Any, path: list[int], sd: float, rule: str) -> Any:
    """Log score of a path for a batch at 0 whose first one is y, minus that of staying at 0."""
    batches = np.zeros((np.size(y), len(path)))
    batches[:, 0] = y
    return influence.preference(batches, path, [0] * len(path), sds=(sd, sd), rule=rule)


def _preference(_: Results) -> Made:
    at = np.array([0.0, 2.5, 5.0, 20.0])
    rows: list[list[Value]] = []
    for name, path in _PATHS.items():
        for rule in RULES:
            for sd in _SPREADS:
                rows.append([name, rule, sd, *(float(v) for v in _moved(at, path, sd, rule))])
    columns = ["path against staying in 0", "rule", "sd", *(f"y = {y:g}" for y in at)]
    return Made([Table(columns, rows, "Below 0 prefers regime 0.")], _draw_preference)


def _draw_preference() -> Any:
    y = np.linspace(-10.0, 15.0, 401)
    figure, axes = drawing.grid(
        2, 3, "Preference of regimes: below 0 prefers regime 0", 4.5, "none"
    )
    for row, rule in zip(axes, RULES, strict=True):
        for ax, (name, path) in zip(row, _PATHS.items(), strict=True):
            for colour, sd in zip(PALETTE, _SPREADS, strict=False):
                ax.plot(y, _moved(y, path, sd, rule), lw=1, color=colour, label=f"sd {sd:g}")
            ax.axhline(0.0, color="0.6", lw=0.6)
            ax.set_title(name, loc="left", fontsize=9)
            ax.set_xlabel("first observation")
        row[0].set_ylabel(f"difference, {rule} rule")
    axes[0, 0].legend(fontsize=7, frameon=False)
    return figure


def t_difference(y: Any) -> Any:
    """Log density of a new regime, t(5), minus that of an old one, t(1000).

    Example:
        >>> bool(t_difference(50.0) > t_difference(5.0) > 0 > t_difference(0.0))
        True
    """
    return stats.t.logpdf(y, _NEW) - stats.t.logpdf(y, _OLD)


def _t_difference(_: Results) -> Made:
    at = (0.0, 1.0, 3.0, 10.0, 100.0, 1e4)
    slope = (t_difference(1e12) - t_difference(1e11)) / np.log(10.0)
    rows: list[list[Value]] = [[f"{y:g}", float(t_difference(y))] for y in at]
    rows.append([f"growth per log|y| (theory: {_OLD - _NEW})", float(slope)])

    def draw() -> Any:
        y = np.linspace(-10.0, 10.0, 401)
        figure, ax = pyplot().subplots(figsize=(6, 3.6), layout="constrained")
        ax.plot(y, t_difference(y), color=PALETTE[0])
        ax.set_xlabel("observation")
        ax.set_ylabel(f"log t({_NEW}) - log t({_OLD})")
        return figure

    return Made([Table(["|y|", "difference of log densities"], rows)], draw)


ITEMS = (
    Item(
        "pif",
        "State-space PIF",
        "Figure `fig:pif_states`",
        "Means and standard deviations of the sandbox and the values of B and c² are not "
        "stated; 0 and 1, 0.5 each, are taken. The paper's batch size of zero is the unbatched "
        "model. Over offsets up to 1.5 an unbounded curve looks as tame as a bounded one, so the "
        "table goes to a million.",
        _pif,
    ),
    Item(
        "preference",
        "Preference of regimes",
        "Figure `fig:switch_states`",
        "The standard deviations are not stated; four are drawn. The paper's curves are those of "
        "its own score; the second row is the unit-free one (D1). Where a path may switch inside "
        "the batch, only the outlier tells the two paths apart, so its curve is that of a batch "
        "of one: the paper's reason for one regime per batch, whose curve is the third.",
        _preference,
    ),
    Item(
        "t_difference",
        "Heavy tails prefer the newer regime",
        "Figure `fig:compare_t_dist`",
        "A closed form, and the same here as in the paper: both t laws have scale 1.",
        _t_difference,
    ),
)
