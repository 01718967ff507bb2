"""Pictures of a run: the data, the forecast with its interval, the regimes, the outliers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.errors import HoldfastError
from holdfast.results import NO_REGIME, Run

# Okabe and Ito's palette: distinguishable for colour-blind readers, and in print.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")


class NoPictures(HoldfastError):
    """matplotlib is not installed."""


def pyplot() -> Any:
    """matplotlib.pyplot drawing to files, or an error that says how to get it."""
    try:
        import matplotlib
    except ImportError:
        raise NoPictures("Pictures need matplotlib: pip install 'holdfast[plot]'.") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt


def run_figure(run: Run, y: ArrayLike, title: str = "", truth: ArrayLike | None = None) -> Any:
    """Figure of a run over its stream.

    Args:
        run: what `model.run(y)` gave.
        y: the stream; the first coordinate is drawn for d > 1.
        title: above the figure.
        truth: true regimes, drawn as a second strip if given.

    Example:
        >>> import holdfast as hf
        >>> y = [0.0, 0.1, -0.1, 5.0, 5.1, 4.9] * 4
        >>> figure = run_figure(hf.br_ihmm(batch=3, particles=10).run(y), y)
        >>> len(figure.axes)
        2
    """
    plt = pyplot()
    values = np.asarray(y, dtype=float).reshape(len(run), -1)[:, 0]
    mean, lower, upper = (
        np.asarray(a).reshape(len(run), -1)[:, 0] for a in (run.mean, run.lower, run.upper)
    )
    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(11, 5), sharex=True, height_ratios=(5, 1), layout="constrained"
    )
    time = np.arange(len(run))
    top.plot(time, values, ".", ms=2.5, color="0.55", label="observed", zorder=1)
    top.fill_between(time, lower, upper, color=PALETTE[0], alpha=0.2, lw=0, label="interval")
    top.plot(time, mean, lw=1.2, color=PALETTE[0], label="forecast", zorder=3)
    _mark_outliers(top, time, values, run.outlier)
    strips = [("found", run.path)]
    if truth is not None:
        strips.append(("true", np.asarray(truth)))
    _draw_strips(bottom, strips)
    top.set_ylabel("y")
    top.set_title(title, loc="left")
    top.legend(loc="upper right", ncols=4, frameon=False, fontsize=8)
    bottom.set_xlabel("observation")
    return figure


def save(figure: Any, path: Path) -> Path:
    """Write a figure and release its memory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot().close(figure)
    return path


def _mark_outliers(axes: Any, time: Any, y: Any, flags: NDArray[np.bool_]) -> None:
    """Keep the view on the bulk of the data; outliers beyond it sit on its edge as arrows."""
    seen = y[np.isfinite(y)]
    if seen.size == 0:
        return
    calm = y[np.isfinite(y) & ~flags]
    low, high = np.quantile(calm if calm.size else seen, [0.002, 0.998])
    margin = 0.35 * max(high - low, 1e-12)
    low, high = low - margin, high + margin
    inside = flags & (y >= low) & (y <= high)
    axes.plot(time[inside], y[inside], "x", ms=5, color=PALETTE[5], label="outlier", zorder=4)
    for marker, beyond, edge in (("^", flags & (y > high), high), ("v", flags & (y < low), low)):
        axes.plot(time[beyond], np.full(beyond.sum(), edge), marker, ms=5, color=PALETTE[5])
    axes.set_ylim(low, high)


def _draw_strips(axes: Any, strips: list[tuple[str, NDArray[Any]]]) -> None:
    """One coloured strip of regimes per entry, the first on top."""
    for level, (_, regimes) in enumerate(reversed(strips)):
        order = {r: j for j, r in enumerate(dict.fromkeys(regimes.tolist())) if r != NO_REGIME}
        edges = np.flatnonzero(np.diff(regimes)) + 1
        for a, b in zip(np.r_[0, edges], np.r_[edges, regimes.size], strict=True):
            if b > a and regimes[a] != NO_REGIME:
                colour = PALETTE[order[int(regimes[a])] % len(PALETTE)]
                axes.axvspan(a, b, level / len(strips), (level + 0.9) / len(strips), color=colour)
    axes.set_ylim(0, 1)
    axes.set_yticks([(j + 0.45) / len(strips) for j in range(len(strips))])
    axes.set_yticklabels([name for name, _ in reversed(strips)])
    axes.spines[["top", "right", "left"]].set_visible(False)
