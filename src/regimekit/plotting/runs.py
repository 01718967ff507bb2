"""Figures of a run: observations, forecasts with their band, outliers, regimes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.plotting.style import (
    PALETTE,
    Array,
    coordinate_of,
    legend_above,
    mark_outliers,
    new_axes,
    pyplot,
    regime_style,
    time_axis,
)
from regimekit.preprocessing.time_index import read_times
from regimekit.results import NO_REGIME, Run

_RIBBON_HEIGHT = 0.06  # share of the height of the axes
_MIN_LABELLED_WIDTH = 0.03  # share of the width of the axes


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
    """Plot a run with a ribbon of regimes at the bottom.

    Args:
        run: output of `model.run(y)`.
        y: observations, by default those stored in the run.
        times: time stamps: dates, texts that are dates, or numbers.
        ax: axes to draw into; by default a new figure.
        level: probability of the band, for the legend, by default that of the run.
        label: label of the vertical axis, by default the name of the column.
        title: title of the axes.
        coordinate: coordinate to draw, for d > 1.
        ribbon: whether to draw the regimes.

    Returns:
        The axes.

    Example:
        >>> import regimekit as rk
        >>> y = [0.0, 0.1, -0.1, 5.0, 5.1, 4.9] * 4
        >>> ax = plot_run(rk.br_ihmm(batch=3, particles=10).run(y), y, label="level")
        >>> ax.get_ylabel()
        'level'
    """
    ax = new_axes(ax)
    times = getattr(run, "times", None) if times is None else times
    x = time_axis(ax, read_times(times, len(run)))
    _draw_series(ax, x, run, y, level, coordinate)
    ax.set_ylabel(_name(run, y, label))
    ax.set_title(title, loc="left", pad=20)  # above the legend
    ax.margins(x=0.01)
    if ribbon:
        low, high = ax.get_ylim()
        ax.set_ylim(low - 1.6 * _RIBBON_HEIGHT * (high - low), high)
        _draw_ribbon(ax, _edges(x), run.path, 0.0, _RIBBON_HEIGHT)
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
    """Make a figure of a run, with the regimes in a separate panel.

    Args:
        run: output of `model.run(y)`.
        y: observations; for d > 1 the first coordinate is drawn.
        title: title of the figure.
        truth: (T,) true regimes, drawn as a second ribbon.
        times: time stamps: dates, texts that are dates, or numbers.
        level: probability of the band, for the legend, by default that of the run.
        label: label of the vertical axis, by default the name of the column.

    Returns:
        The figure.

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
    edges = _edges(time_axis(bottom, read_times(times, len(run))))
    ribbons = {"found": run.path}
    if truth is not None:
        ribbons["true"] = _by_appearance(np.asarray(truth))
    height = 1 / len(ribbons)
    for j, regimes in enumerate(reversed(ribbons.values())):
        _draw_ribbon(bottom, edges, regimes, j * height, 0.9 * height)
    bottom.set_ylim(0, 1)
    bottom.set_yticks([(j + 0.45) * height for j in range(len(ribbons))])
    bottom.set_yticklabels(list(reversed(ribbons)))
    bottom.spines[["top", "right", "left"]].set_visible(False)
    return figure


def _draw_ribbon(
    axes: Any, edges: Array, regimes: NDArray[np.int64], bottom: float, height: float
) -> None:
    """Draw a ribbon of regimes at a share of the height of the axes; label wide segments."""
    turns = [0, *(np.flatnonzero(np.diff(regimes)) + 1).tolist(), regimes.size]
    blocks: dict[int, list[tuple[float, float]]] = {}
    across = axes.get_xaxis_transform()
    for a, b in pairwise(turns):
        if b == a or regimes[a] == NO_REGIME:
            continue
        start, width = edges[a], edges[b] - edges[a]
        blocks.setdefault(int(regimes[a]), []).append((start, width))
        if width >= _MIN_LABELLED_WIDTH * (edges[-1] - edges[0]):
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
        colour, stripe = regime_style(regime)
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
    mean, lower, upper = (coordinate_of(c, n, coordinate) for c in (run.mean, run.lower, run.upper))
    share = getattr(run, "level", 0.9) if level is None else level
    values = _observed(run, y, coordinate)
    # Before the first observation a forecast is the prior, whose width would set the scale.
    known = np.flatnonzero(~np.isnan(coordinate_of(run.y, n, coordinate)))
    if run.first == 0:
        prior = slice(0, int(known[0]) + 1 if known.size else n)
        mean, lower, upper = mean.copy(), lower.copy(), upper.copy()
        mean[prior] = lower[prior] = upper[prior] = np.nan
    axes.fill_between(
        x, lower, upper, color=PALETTE[0], alpha=0.2, lw=0, label=f"{100 * share:g} % band"
    )
    axes.plot(x, mean, lw=1.2, color=PALETTE[0], label="forecast", zorder=3)
    if values is not None:
        axes.plot(x, values, ".", ms=2.5, color="0.55", label="observed", zorder=1)
        mark_outliers(axes, x, values, run.outlier)


def _observed(run: Run, y: ArrayLike | None, coordinate: int) -> Array | None:
    given = getattr(run, "y", None) if y is None else y
    if given is None:
        return None
    if len(np.asarray(given)) != len(run):
        raise RegimekitError(
            f"y must have the {len(run)} rows of the run, got {len(np.asarray(given))}."
        )
    return coordinate_of(given, len(run), coordinate)


def _name(run: Run, y: Any, label: str | None) -> str:
    return label if label is not None else str(getattr(y, "name", None) or run.name or "y")


def _edges(x: Array) -> Array:
    """Left edge of each observation's block, and the right edge of the last one."""
    usual = float(np.median(np.diff(x))) if x.size > 1 else 1.0
    return np.append(x, x[-1] + usual) if x.size else np.zeros(1)


def _by_appearance(regimes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Relabel regimes in order of appearance, like the ids of a model."""
    order = {r: j for j, r in enumerate(dict.fromkeys(regimes.tolist()))}
    return np.array([order[r] for r in regimes.tolist()], dtype=np.int64)
