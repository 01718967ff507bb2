"""Panels that the figures share: a curve per model above, its inferred regimes below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from paper.parts import Part
from paper.settings import FIRST, PRINTED, SECOND, TITLES, title
from paper.streams import Stream
from paper.tables import Line, Results
from regimekit.plotting import PALETTE, pyplot
from regimekit.results import NO_REGIME

Array = NDArray[np.float64]
DRAWN = (PRINTED, FIRST, SECOND)  # columns of a figure


class Track(NamedTuple):
    """One run in a figure."""

    label: str
    colour: str
    source: Stream
    columns: dict[str, Any]
    first_row: int  # the first row that no search has used


Panel = Callable[[Any, Track], None]


def track(results: Results, lines: Sequence[Line], index: int, variant: str) -> Track | None:
    """Return the first run of a line under a variant, or None if there is none."""
    line = lines[index]
    if line.only and variant == SECOND:
        variant = line.only
    if variant not in line.variants():
        return None
    part: Part = line.parts(results.plan, variant)[0]
    columns = results.columns(part)
    colour = PALETTE[index % len(PALETTE)]
    return Track(line.name, colour, part.load(), columns, part.load().held_out)


def by_variant(
    results: Results,
    lines: Sequence[Line],
    panels: Mapping[str, Panel],
    title: str,
    backdrop: Panel | None = None,
) -> Any:
    """Return a figure with a column per variant and a row per panel.

    Args:
        results: results of the item.
        lines: the models, in the order of the legend.
        panels: functions that draw a model, by label.
        title: title of the figure.
        backdrop: function that is called once per panel, before the models.
    """
    figure, axes = grid(len(panels), len(DRAWN), title)
    for column, variant in zip(axes.T, DRAWN, strict=True):
        found = [track(results, lines, index, variant) for index in range(len(lines))]
        runs = [run for run in found if run is not None]
        for ax, (label, panel) in zip(column, panels.items(), strict=True):
            if backdrop is not None:
                backdrop(ax, runs[0])
            for run in runs:
                panel(ax, run)
            ax.set_ylabel(label)
        column[0].set_title(TITLES[variant], loc="left", fontsize=9)
        column[0].legend(fontsize=7, frameon=False, ncols=2, loc="best")
        column[-1].set_xlabel("observation")
    return figure


def stacked(results: Results, lines: Sequence[Line], panel: Panel, heading: str) -> Any:
    """Return a figure with a column per variant and a row per model."""
    figure, axes = grid(len(lines), len(DRAWN), heading)
    for column, variant in zip(axes.T, DRAWN, strict=True):
        for index, ax in enumerate(column):
            run = track(results, lines, index, variant)
            if run is None:
                ax.axis("off")
                continue
            panel(ax, run)
            named = lines[index].only if lines[index].only and variant == SECOND else variant
            heading = title(lines[index].model, named)
            ax.set_title(f"{run.label}: {heading}", loc="left", fontsize=8)
        lowest = [ax for ax in column if ax.axison][-1]
        lowest.tick_params(labelbottom=True)
        lowest.set_xlabel("observation")
    return figure


def grid(
    n_rows: int,
    n_columns: int,
    title: str,
    width: float = 5.0,
    share: str = "row",
    across: bool = True,
) -> tuple[Any, Any]:
    """Return a figure and its axes (n_rows, n_columns)."""
    figure, axes = pyplot().subplots(
        n_rows,
        n_columns,
        figsize=(width * n_columns, 2.6 * n_rows + 0.6),
        sharey=share,
        sharex=True if across else "col",
        layout="constrained",
        squeeze=False,
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure, axes


def forecast(ax: Any, run: Track) -> None:
    """Draw the one-step forecasts of a run."""
    ax.plot(run.columns["mean"], lw=0.9, color=run.colour, label=run.label)


def regimes(ax: Any, run: Track) -> None:
    """Draw the regimes of a run as a row of colours; each further model gets a row below."""
    row = len(ax.collections)
    _colours(ax, run, -float(row), 60.0, ax.transData)
    ax.text(0.01, 0.35 - row, run.label, fontsize=7, transform=ax.get_yaxis_transform())
    ax.set_yticks([])
    ax.set_ylim(-row - 0.4, 0.8)


def training(ax: Any, run: Track) -> None:
    """Draw a dotted line at the end of the rows that a search has used."""
    if run.first_row:
        ax.axvline(run.first_row, color="0.5", lw=0.8, ls=":")


def _colours(ax: Any, run: Track, height: float, size: float, transform: Any) -> None:
    """Draw a tick in the colour of its regime, by order of appearance, for every observation."""
    numbers = by_appearance(run.columns["path"])
    seen = np.flatnonzero(~np.isnan(numbers))
    shades = [PALETTE[int(j) % len(PALETTE)] for j in numbers[seen]]
    at = np.full(seen.size, height)
    ax.scatter(seen, at, c=shades, marker="|", s=size, transform=transform)


def strip(ax: Any, run: Track) -> None:
    """Draw regimes as colours along the bottom and true changepoints as ticks at the top."""
    _colours(ax, run, 0.03, 30.0, ax.get_xaxis_transform())
    for t in run.source.data.changepoints:
        ax.axvline(t, ymin=0.94, color="black", lw=0.8)


def observed(ax: Any, run: Track) -> None:
    """Draw the observations, and the true outliers as crosses."""
    y = run.source.data.y
    ax.plot(y, ".", ms=2, color="0.7", zorder=0)
    if run.source.data.outliers is not None:
        where = np.flatnonzero(run.source.data.outliers)
        ax.plot(where, y[where], "x", ms=5, color=PALETTE[5], zorder=1)


def shade(ax: Any, source: Stream) -> None:
    """Draw true regimes except the first as shaded spans, true outliers as ticks at the bottom."""
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
    """Return regimes as 0, 1, 2, .. in the order of appearance; NaN before the first.

    Args:
        path: (T,) labels.
    """
    order = {
        r: float(j) for j, r in enumerate(r for r in dict.fromkeys(path.tolist()) if r != NO_REGIME)
    }
    return np.array([order.get(r, np.nan) for r in path.tolist()])
