"""How far forecasts and posteriors can be trusted: calibration, and influence of one outlier."""

from __future__ import annotations

from typing import Any

import numpy as np

from regimekit import robustness as influence
from regimekit.core.exceptions import RegimekitError, numbers
from regimekit.metrics.reliability import Calibration, calibration
from regimekit.plotting.canvas import legend_above, new_axes, pyplot
from regimekit.plotting.palette import PALETTE


def plot_calibration(result: Any, ax: Any = None) -> Any:
    """Histogram of the probability integral transforms, and coverage by level.

    Args:
        result: what `evaluate.prequential` or `evaluate.calibration` gave, or the transforms.
        ax: a pair of axes to draw into; a new figure if not given.

    Example:
        >>> left, right = plot_calibration([0.05, 0.3, 0.5, 0.7, 0.95])
        >>> right.get_xlabel()
        'level of the central band'
    """
    found = _calibration(result)
    if ax is None:
        ax = pyplot().subplots(1, 2, figsize=(9, 3.6), layout="constrained")[1]
    left, right = ax
    _draw_pit(left, found)
    levels = sorted(found.coverage)
    right.plot([0, 1], [0, 1], "--", color="0.5", lw=1, label="calibrated")
    right.plot(
        levels, [found.coverage[p] for p in levels], "o-", ms=4, color=PALETTE[0], label="forecasts"
    )
    right.set_xlabel("level of the central band")
    right.set_ylabel("share of observations inside")
    right.set(xlim=(0, 1), ylim=(0, 1.02))
    legend_above(right)
    return ax


def _calibration(result: Any) -> Calibration:
    if isinstance(result, Calibration):
        return result
    pit = getattr(result, "pit", result)
    return calibration(pit[getattr(result, "skip", 0) :])


def _draw_pit(axes: Any, found: Calibration) -> None:
    bins = len(found.pit)
    flat = 1 / bins
    axes.bar((np.arange(bins) + 0.5) / bins, found.pit, width=0.94 / bins, color=PALETTE[4])
    axes.axhline(flat, ls="--", color="0.3", lw=1, label="calibrated")
    if found.n:
        noise = 1.96 * (flat * (1 - flat) / found.n) ** 0.5
        axes.axhspan(
            max(flat - noise, 0),
            flat + noise,
            color="0.5",
            alpha=0.25,
            lw=0,
            label="95 % of the bars, if calibrated",
        )
    axes.set_xlim(0, 1)
    axes.set_xlabel("probability integral transform")
    axes.set_ylabel("share of observations")
    legend_above(axes)


def plot_influence(
    model: Any,
    contamination: Any,
    ax: Any = None,
    *,
    clean: Any,
    x: Any = None,
    position: Any = 0,
) -> Any:
    """Influence of a contaminated observation on regimes, coefficients and both together.

    Args:
        model: a fitted model of the infinite HMM family; it is not changed.
        contamination: grid of values observed instead, (G,).
        ax: axes to draw into; a new figure if not given.
        clean: the observations expected next, as for `influence.profile`.
        x: their covariates, if the features need any.
        position: which of them are contaminated.

    Example:
        >>> import regimekit as rk
        >>> model = rk.br_ihmm(noise=0.25, batch=2, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> ax = plot_influence(model, [-4.0, 0.0, 4.0], clean=[0.0, 0.1])
        >>> len(ax.lines)
        3
    """
    grid = numbers("contamination", contamination)
    if grid.ndim != 1:
        raise RegimekitError(f"contamination must be a grid of numbers, got shape {grid.shape}.")
    curves = _influences(model, grid, {"clean": clean, "x": x, "position": position})
    ax = new_axes(ax, 7.0, 4.0)
    # Curves may coincide: the first is wide, the next are thinner and broken, so all show.
    styles = ((4.0, "-", 0.35), (1.8, "--", 1.0), (1.4, ":", 1.0))
    for (name, values), colour, (width, dash, alpha) in zip(
        curves.items(), (PALETTE[0], PALETTE[5], "0.1"), styles, strict=False
    ):
        ax.plot(grid, values, lw=width, ls=dash, alpha=alpha, color=colour, label=name)
    ax.set_xlabel("value observed instead")
    ax.set_ylabel("influence (KL divergence)")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=8, frameon=False)
    return ax


def _influences(model: Any, grid: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Every influence this model has: on the regimes, and on Gaussian coefficients."""
    state = influence.state_pif(model, grid, **batch)
    try:
        found = influence.profile(model, grid, **batch)
    except RegimekitError:  # coefficients that are not Gaussian have no closed form
        return {"regimes": state}
    return {"both": found.joint, "regimes": state, "coefficients": found.parameter}
