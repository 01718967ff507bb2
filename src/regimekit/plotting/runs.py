"""A run over its stream: observations, forecasts with their band, outliers, regimes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.plotting.canvas import (
    Array,
    first_column,
    legend_above,
    mark_outliers,
    new_axes,
    places,
    pyplot,
)
from regimekit.plotting.palette import PALETTE, look
from regimekit.preprocessing.time_index import read_times
from regimekit.results import NO_REGIME, Run

_STRIP = 0.06  # height of the ribbon inside the axes, as a share
_NAMED = 0.03  # stays at least this wide, as a share of the axis, are labelled


class Strip(NamedTuple):
    """A ribbon of regimes and its name."""

    name: str
    regimes: NDArray[np.int64]


def plot_run(
    run: Run,
    y: ArrayLike | None = None,
    times: Any = None,
    ax: Any = None,
    *,
    level: float | None = None,
    label: str | None = None,
    title: str = "",
    coordinate: int = 0,
    ribbon: bool = True,
) -> Any:
    """Draw a run into one axes; the ribbon of regimes lies along its bottom.

    Args:
        run: what `model.run(y)` gave.
        y: the stream, if the run does not keep it.
        times: one per observation: dates, texts that are dates, or numbers.
        ax: axes to draw into; a new figure if not given.
        level: probability of the run's limits, for the legend (the run's own, else 0.9).
        label: what the vertical axis shows; by default the name of the column.
        title: above the axes.
        coordinate: which coordinate is drawn, for d > 1.
        ribbon: whether the regimes are drawn.

    Example:
        >>> import regimekit as rk
        >>> y = [0.0, 0.1, -0.1, 5.0, 5.1, 4.9] * 4
        >>> ax = plot_run(rk.br_ihmm(batch=3, particles=10).run(y), y, label="level")
        >>> ax.get_ylabel()
        'level'
    """
    ax = new_axes(ax)
    times = getattr(run, "times", None) if times is None else times
    x = places(ax, read_times(times, len(run)))
    _draw_series(ax, x, run, y, level, coordinate)
    ax.set_ylabel(_name(run, y, label))
    ax.set_title(title, loc="left", pad=20)  # above the legend
    ax.margins(x=0.01)
    if ribbon:
        low, high = ax.get_ylim()
        ax.set_ylim(low - 1.6 * _STRIP * (high - low), high)  # room for the ribbon
        draw_strip(ax, _edges(x), run.path, 0.0, _STRIP)
    legend_above(ax)
    return ax


def run_figure(
    run: Run,
    y: ArrayLike,
    title: str = "",
    truth: ArrayLike | None = None,
    *,
    times: Any = None,
    level: float | None = None,
    label: str | None = None,
) -> Any:
    """Figure of a run over its stream, the regimes in a panel of their own.

    Args:
        run: what `model.run(y)` gave.
        y: the stream; the first coordinate is drawn for d > 1.
        title: above the figure.
        truth: true regimes, drawn as a second strip if given.
        times: one per observation: dates, texts that are dates, or numbers.
        level: probability of the run's limits, for the legend (the run's own, else 0.9).
        label: what the vertical axis shows; by default the name of the column.

    Example:
        >>> import regimekit as rk
        >>> y = [0.0, 0.1, -0.1, 5.0, 5.1, 4.9] * 4
        >>> figure = run_figure(rk.br_ihmm(batch=3, particles=10).run(y), y)
        >>> len(figure.axes)
        2
    """
    figure, (top, bottom) = pyplot().subplots(
        2, 1, figsize=(11, 5), sharex=True, height_ratios=(5, 1), layout="constrained"
    )
    plot_run(run, y, times, top, level=level, label=label, title=title, ribbon=False)
    top.set_xlabel("")
    edges = _edges(places(bottom, read_times(times, len(run))))
    strips = [Strip("found", run.path)]
    if truth is not None:
        strips.append(Strip("true", _by_appearance(np.asarray(truth))))
    _draw_strips(bottom, edges, strips)
    return figure


def draw_strip(
    axes: Any, edges: Array, regimes: NDArray[np.int64], bottom: float, height: float
) -> None:
    """A ribbon between shares of the axes' height; wide stays carry their id."""
    turns = [0, *(np.flatnonzero(np.diff(regimes)) + 1).tolist(), regimes.size]
    blocks: dict[int, list[tuple[float, float]]] = {}
    across = axes.get_xaxis_transform()
    for a, b in pairwise(turns):
        if b == a or regimes[a] == NO_REGIME:
            continue
        start, width = edges[a], edges[b] - edges[a]
        blocks.setdefault(int(regimes[a]), []).append((start, width))
        if width >= _NAMED * (edges[-1] - edges[0]):
            axes.text(
                start + width / 2,
                bottom + height / 2,
                str(int(regimes[a])),
                transform=across,
                ha="center",
                va="center",
                fontsize=7,
                zorder=6,
                bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8},
            )
    for regime, spans in blocks.items():
        colour, stripe = look(regime)
        axes.broken_barh(
            spans,
            (bottom, height),
            transform=across,
            facecolor=colour,
            hatch=3 * stripe,
            edgecolor="black" if stripe else "none",
            linewidth=0,
            zorder=5,
        )


def _draw_series(
    axes: Any, x: Array, run: Run, y: ArrayLike | None, level: float | None, coordinate: int
) -> None:
    n = len(run)
    mean, lower, upper = (first_column(c, n, coordinate) for c in (run.mean, run.lower, run.upper))
    share = getattr(run, "level", 0.9) if level is None else level
    axes.fill_between(
        x, lower, upper, color=PALETTE[0], alpha=0.2, lw=0, label=f"{100 * share:g} % band"
    )
    axes.plot(x, mean, lw=1.2, color=PALETTE[0], label="forecast", zorder=3)
    values = _observed(run, y, coordinate)
    if values is not None:
        axes.plot(x, values, ".", ms=2.5, color="0.55", label="observed", zorder=1)
        mark_outliers(axes, x, values, run.outlier)


def _observed(run: Run, y: ArrayLike | None, coordinate: int) -> Array | None:
    given = getattr(run, "y", None) if y is None else y
    if given is None:
        return None
    if len(np.asarray(given)) != len(run):
        raise RegimekitError(f"y has {len(np.asarray(given))} rows but the run has {len(run)}.")
    return first_column(given, len(run), coordinate)


def _name(run: Run, y: Any, label: str | None) -> str:
    return label if label is not None else str(getattr(y, "name", None) or run.name or "y")


def _edges(x: Array) -> Array:
    """Where each observation's block begins, and where the last one ends."""
    usual = float(np.median(np.diff(x))) if x.size > 1 else 1.0
    return np.append(x, x[-1] + usual) if x.size else np.zeros(1)


def _by_appearance(regimes: NDArray[np.int64]) -> NDArray[np.int64]:
    """True labels counted in the order they appear, as ids are."""
    order = {r: j for j, r in enumerate(dict.fromkeys(regimes.tolist()))}
    return np.array([order[r] for r in regimes.tolist()], dtype=np.int64)


def _draw_strips(axes: Any, edges: Array, strips: Sequence[Strip]) -> None:
    """One coloured strip of regimes per entry, the first on top."""
    height = 1 / len(strips)
    for level, strip in enumerate(reversed(strips)):
        draw_strip(axes, edges, strip.regimes, level * height, 0.9 * height)
    axes.set_ylim(0, 1)
    axes.set_yticks([(j + 0.45) * height for j in range(len(strips))])
    axes.set_yticklabels([strip.name for strip in reversed(strips)])
    axes.spines[["top", "right", "left"]].set_visible(False)
