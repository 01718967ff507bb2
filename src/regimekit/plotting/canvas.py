"""matplotlib when it is needed, and what all pictures share: axes, times, outlier marks."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.plotting.palette import OUTLIER
from regimekit.preprocessing.time_index import DATES, ROWS, TimeIndex

Array = NDArray[np.float64]
_MARKS = 400  # outliers marked at most, of each kind


class NoPictures(RegimekitError):
    """matplotlib is not installed."""


def pyplot() -> Any:
    """matplotlib.pyplot, or an error that says how to get it."""
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise NoPictures("Pictures need matplotlib: pip install 'regimekit[plot]'.") from None
    return plt


def new_axes(ax: Any, width: float = 9.0, height: float = 4.0) -> Any:
    """`ax`, or the axes of a new figure."""
    if ax is not None:
        return ax
    return pyplot().subplots(figsize=(width, height), layout="constrained")[1]


def save(figure: Any, path: Path) -> Path:
    """Write a figure and release its memory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot().close(figure)
    return path


def places(axes: Any, times: TimeIndex) -> Array:
    """Where the observations stand on the time axis, which is labelled for its kind."""
    if times.kind != DATES:
        axes.set_xlabel("observation" if times.kind == ROWS else "time")
        return times.values
    dates: Any = import_module("matplotlib.dates")
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    return np.asarray(dates.date2num(np.round(times.values * 1e6).astype("M8[us]")))


def legend_above(axes: Any) -> None:
    """The legend over the axes, to the right: it hides nothing."""
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=5,
        frameon=False,
        fontsize=8,
        borderaxespad=0.3,
        columnspacing=1.2,
        handletextpad=0.5,
    )


def first_column(values: Any, length: int, coordinate: int = 0) -> Array:
    """One coordinate of a column of a run."""
    return np.asarray(values, dtype=float).reshape(length, -1)[:, coordinate]


def bulk(y: Array, flags: NDArray[np.bool_]) -> tuple[float, float] | None:
    """The range of nearly all observations that are no outliers, with a margin."""
    seen = y[np.isfinite(y)]
    if seen.size == 0:
        return None
    calm = y[np.isfinite(y) & ~flags]
    low, high = np.quantile(calm if calm.size else seen, [0.002, 0.998])
    margin = 0.35 * max(high - low, 1e-9 * abs(high), 1e-12)
    return float(low - margin), float(high + margin)


def mark_outliers(axes: Any, x: Array, y: Array, flags: NDArray[np.bool_]) -> None:
    """Crosses at outliers; the view keeps to the bulk, what lies beyond sits on its edge."""
    limits = bulk(y, flags)
    if limits is None:
        return
    low, high = limits
    inside = thinned(np.flatnonzero(flags & (y >= low) & (y <= high)), y)
    style = {"ls": "", "ms": 5, "color": OUTLIER, "zorder": 4, "clip_on": False}
    if inside.size:
        axes.plot(x[inside], y[inside], marker="x", label="outlier", **style)
    label = "outlier beyond the edge"
    for marker, beyond, edge in (("^", y > high, high), ("v", y < low, low)):
        chosen = thinned(np.flatnonzero(flags & beyond), y)
        if chosen.size:
            axes.plot(x[chosen], np.full(chosen.size, edge), marker=marker, label=label, **style)
            label = "_nolegend_"
    axes.set_ylim(low, high)


def thinned(rows: NDArray[np.int64], y: Array, most: int = _MARKS) -> NDArray[np.int64]:
    """At most so many rows, spread over all of them; of neighbours the furthest out is kept.

    Example:
        >>> thinned(np.arange(6), np.array([0.0, 9.0, 0.0, 0.0, 0.0, 5.0]), most=2)
        array([1, 5])
    """
    if rows.size <= most:
        return rows
    centre = np.median(y[rows])
    groups = np.array_split(rows, most)
    return np.array([group[np.argmax(np.abs(y[group] - centre))] for group in groups])
