"""Colours, axes and marks shared by all figures.

Regime colours are the Okabe-Ito palette, which is readable with colour vision deficiency and in
print. Vermilion is reserved for outliers. Colours repeat after seven regimes: regimes 7 to 13 are
striped one way, regimes 14 to 20 the other way. matplotlib is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.preprocessing.time_index import DATES, ROWS, TimeIndex

Array = NDArray[np.float64]
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
OUTLIER = PALETTE[5]
REGIMES = tuple(colour for colour in PALETTE if colour != OUTLIER)
STRIPES = ("", "/", "\\")
_MAX_MARKS = 400  # outliers marked, of each kind


class NoPictures(RegimekitError):
    """matplotlib is not installed."""


class RegimeStyle(NamedTuple):
    """Fill colour of a regime, and the direction of its stripes ("" for none)."""

    colour: str
    stripe: str


def regime_style(regime: int) -> RegimeStyle:
    """Return the style of a regime id, the same in every figure.

    Example:
        >>> regime_style(0), regime_style(7)
        (RegimeStyle(colour='#0072B2', stripe=''), RegimeStyle(colour='#0072B2', stripe='/'))
    """
    lap, place = divmod(regime, len(REGIMES))
    return RegimeStyle(REGIMES[place], STRIPES[lap % len(STRIPES)])


def pyplot() -> Any:
    """Return matplotlib.pyplot.

    Raises:
        NoPictures: if matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot as plt
    except ImportError:
        raise NoPictures(
            "Plotting needs matplotlib. Install it with pip install 'regimekit[plot]'."
        ) from None
    return plt


def new_axes(ax: Any, width: float = 9.0, height: float = 4.0) -> Any:
    """Return `ax`, or the axes of a new figure of this size in inches."""
    if ax is not None:
        return ax
    return pyplot().subplots(figsize=(width, height), layout="constrained")[1]


def save(figure: Any, path: Path) -> Path:
    """Write a figure to a file, close it, and return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot().close(figure)
    return path


def time_axis(axes: Any, times: TimeIndex) -> Array:
    """Format the time axis and return the (T,) positions of the observations on it."""
    if times.kind != DATES:
        axes.set_xlabel("observation" if times.kind == ROWS else "time")
        return times.values
    dates: Any = import_module("matplotlib.dates")
    locator = dates.AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(dates.ConciseDateFormatter(locator))
    return np.asarray(dates.date2num(np.round(times.values * 1e6).astype("M8[us]")))


def legend_above(axes: Any) -> None:
    """Put the legend above the axes, where it hides no data."""
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


def coordinate_of(values: Any, length: int, coordinate: int = 0) -> Array:
    """Return one coordinate of (T,) or (T, d) values as (T,)."""
    return np.asarray(values, dtype=float).reshape(length, -1)[:, coordinate]


def mark_outliers(axes: Any, x: Array, y: Array, flags: NDArray[np.bool_]) -> None:
    """Mark outliers by crosses; limit the view to the bulk and mark those beyond on its edge."""
    limits = _bulk(y, flags)
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


def _bulk(y: Array, flags: NDArray[np.bool_]) -> tuple[float, float] | None:
    """Range of 99.6 % of the observations that are not outliers, with a margin."""
    seen = y[np.isfinite(y)]
    if seen.size == 0:
        return None
    regular = y[np.isfinite(y) & ~flags]
    low, high = np.quantile(regular if regular.size else seen, [0.002, 0.998])
    margin = 0.35 * max(high - low, 1e-9 * abs(high), 1e-12)
    return float(low - margin), float(high + margin)


def thinned(rows: NDArray[np.int64], y: Array, most: int = _MAX_MARKS) -> NDArray[np.int64]:
    """Select at most `most` rows, spread evenly; of neighbours the most extreme is selected.

    Example:
        >>> thinned(np.arange(6), np.array([0.0, 9.0, 0.0, 0.0, 0.0, 5.0]), most=2)
        array([1, 5])
    """
    if rows.size <= most:
        return rows
    centre = np.median(y[rows])
    groups = np.array_split(rows, most)
    return np.array([group[np.argmax(np.abs(y[group] - centre))] for group in groups])
