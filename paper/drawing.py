"""Panels that the figures share: a curve per model above, the regimes it found below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import HoldfastError
from holdfast.plot import PALETTE, pyplot
from holdfast.results import NO_REGIME
from paper.parts import Outcome, Part
from paper.streams import Stream
from paper.tables import HOLDFAST, PAPER, RULES, Line, Results

Array = NDArray[np.float64]
TITLES = {PAPER: "paper's rule and settings", HOLDFAST: "holdfast rule, our settings"}


class Track(NamedTuple):
    """One run in a figure."""

    label: str
    colour: str
    source: Stream
    outcome: Outcome
    rule: str  # "" where no rule applies

    @property
    def title(self) -> str:
        """Which model under which rule."""
        return f"{self.label}, {TITLES[self.rule]}" if self.rule else f"{self.label} (has no rule)"


Panel = Callable[[Any, Track], None]


def tracks(results: Results, lines: Sequence[Line], rule: str) -> list[Track]:
    """The first run of each line under a rule, as far as there is one."""
    found, reasons = [], []
    for index, line in enumerate(lines):
        asked = rule if line.ruled else HOLDFAST
        part: Part = line.parts(results.plan, asked)[0]
        if reason := results.why_not(part):
            reasons.append(reason)
            continue
        label = line.label or line.model
        colour = PALETTE[index % len(PALETTE)]
        named = asked if line.ruled else ""
        found.append(Track(label, colour, part.load(), results.outcome(part), named))
    if not found:
        raise HoldfastError("; ".join(dict.fromkeys(reasons)) or "nothing was run")
    return found


def both_rules(
    results: Results, lines: Sequence[Line], panels: Mapping[str, Panel], title: str,
    backdrop: Panel | None = None,
) -> Any:  # fmt: skip
    """A figure with a column per rule and a row per panel; the y label is the panel's name.

    Args:
        results: of the item.
        lines: the models, in the order of the legend.
        panels: what to draw for each model, by label.
        title: above the figure.
        backdrop: drawn once in every panel, behind the models.
    """
    figure, axes = grid(len(panels), 2, title)
    for column, rule in zip(axes.T, RULES, strict=True):
        runs = tracks(results, lines, rule)
        for ax, (label, panel) in zip(column, panels.items(), strict=True):
            if backdrop is not None:
                backdrop(ax, runs[0])
            for run in runs:
                panel(ax, run)
            ax.set_ylabel(label)
        column[0].set_title(TITLES[rule], loc="left", fontsize=9)
        column[0].legend(
            fontsize=7, frameon=False, ncols=5, loc="lower right", bbox_to_anchor=(1.0, 0.98)
        )
        column[-1].set_xlabel("observation")
    return figure


def stacked(results: Results, lines: Sequence[Line], panel: Panel, title: str) -> Any:
    """A figure with a column per rule and a row per model."""
    figure, axes = grid(len(lines), 2, title)
    for column, rule in zip(axes.T, RULES, strict=True):
        for ax, run in zip(column, tracks(results, lines, rule), strict=False):
            panel(ax, run)
            ax.set_title(run.title, loc="left", fontsize=8)
        column[-1].set_xlabel("observation")
    return figure


def grid(
    n_rows: int, n_columns: int, title: str, width: float = 6.5, share: str = "row"
) -> tuple[Any, Any]:
    """A figure and its axes (n_rows, n_columns); x is shared, y as `share` says."""
    figure, axes = pyplot().subplots(
        n_rows, n_columns, figsize=(width * n_columns, 2.6 * n_rows + 0.6), sharex=True,
        sharey=share, layout="constrained", squeeze=False,
    )  # fmt: skip
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, axes


def forecast(ax: Any, run: Track) -> None:
    """One-step forecasts."""
    ax.plot(run.outcome.columns["mean"], lw=0.9, color=run.colour, label=run.label)


def regimes(ax: Any, run: Track) -> None:
    """The regimes of a run as a row of colours; each further model gets a row below."""
    row = len(ax.collections)
    _colours(ax, run, -float(row), 60.0, ax.transData)
    ax.text(0.01, 0.35 - row, run.label, fontsize=7, transform=ax.get_yaxis_transform())
    ax.set_yticks([])
    ax.set_ylim(-row - 0.4, 0.8)


def _colours(ax: Any, run: Track, height: float, size: float, transform: Any) -> None:
    """A tick in its regime's colour for every observation, regimes counted by appearance."""
    numbers = by_appearance(run.outcome.columns["path"])
    seen = np.flatnonzero(~np.isnan(numbers))
    shades = [PALETTE[int(j) % len(PALETTE)] for j in numbers[seen]]
    at = np.full(seen.size, height)
    ax.scatter(seen, at, c=shades, marker="|", s=size, transform=transform)


def strip(ax: Any, run: Track) -> None:
    """Regimes as a strip of colours along the bottom, true changepoints as ticks at the top."""
    _colours(ax, run, 0.03, 30.0, ax.get_xaxis_transform())
    for t in run.source.data.changepoints:
        ax.axvline(t, ymin=0.94, color="black", lw=0.8)


def observed(ax: Any, run: Track) -> None:
    """The data themselves; the true outliers as crosses."""
    y = run.source.data.y
    ax.plot(y, ".", ms=2, color="0.7", zorder=0)
    if run.source.data.outliers is not None:
        where = np.flatnonzero(run.source.data.outliers)
        ax.plot(where, y[where], "x", ms=5, color=PALETTE[5], zorder=1)


def shade(ax: Any, source: Stream) -> None:
    """True regimes but the first as shaded stretches, true outliers as ticks at the bottom."""
    data = source.data
    if data.regimes is not None:
        edges = np.r_[0, np.flatnonzero(np.diff(data.regimes)) + 1, len(data)]
        for a, b in pairwise(edges.tolist()):
            if data.regimes[a]:
                colour = PALETTE[int(data.regimes[a]) % len(PALETTE)]
                ax.axvspan(a, b, color=colour, alpha=0.12, lw=0)
    if data.outliers is not None:
        for t in np.flatnonzero(data.outliers):
            ax.axvline(t, ymax=0.04, color=PALETTE[5], lw=0.8)


def by_appearance(path: NDArray[Any]) -> Array:
    """Regimes as 0, 1, 2, .. in the order in which they appear; NaN before the first."""
    order = {r: float(j) for j, r in enumerate(r for r in dict.fromkeys(path.tolist())
                                               if r != NO_REGIME)}  # fmt: skip
    return np.array([order.get(r, np.nan) for r in path.tolist()])
