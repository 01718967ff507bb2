"""Figures of calibration and of the influence of one outlier."""

from __future__ import annotations

from typing import Any

import numpy as np

from regimekit import robustness as influence
from regimekit.core.exceptions import RegimekitError, numbers
from regimekit.metrics.reliability import Calibration, calibration
from regimekit.plotting.style import PALETTE, legend_above, new_axes, pyplot


def plot_calibration(result: Any, ax: Any = None) -> Any:
    """Plot the histogram of probability integral transforms, and coverage by level.

    Args:
        result: output of `evaluate.prequential` or `evaluate.calibration`, or PIT values.
        ax: a pair of axes to draw into; by default a new figure.

    Returns:
        The pair of axes.

    Example:
        >>> left, right = plot_calibration([0.05, 0.3, 0.5, 0.7, 0.95])
        >>> right.get_xlabel()
        'level of the central band'
    """
    found = result
    if not isinstance(result, Calibration):
        pit = getattr(result, "pit", result)
        found = calibration(pit[getattr(result, "skip", 0) :])
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
            label="95 % range if calibrated",
        )
    axes.set_xlim(0, 1)
    axes.set_xlabel("probability integral transform")
    axes.set_ylabel("share of observations")
    legend_above(axes)


def plot_backtest(result: Any, ax: Any = None) -> Any:
    """Plot the mean absolute error by steps ahead, beside the reference forecasters.

    Args:
        result: output of `metrics.backtest`.
        ax: axes to draw into; by default a new figure.

    Returns:
        The axes.

    Example:
        >>> import regimekit as rk
        >>> done = rk.metrics.backtest(rk.make("last_value"), range(60), horizon=3, step=10)
        >>> [line.get_label() for line in plot_backtest(done).lines]
        ['model', 'last value']
    """
    ax = new_axes(ax, 7.0, 4.0)
    steps = np.unique(result.step)
    forecasters = {"model": result.mean} | result.references
    for j, (name, forecast) in enumerate(forecasters.items()):
        errors = np.abs(forecast - result.y)
        values = [np.nanmean(errors[result.step == step]) for step in steps]
        style = {"lw": 1.8} if name == "model" else {"lw": 1.2, "ls": "--"}
        ax.plot(steps, values, color=PALETTE[j], label=name.replace("_", " "), **style)
    ax.set_xlabel("steps ahead")
    ax.set_ylabel("mean absolute error")
    ax.set_ylim(bottom=0)
    legend_above(ax)
    return ax


def plot_influence(
    model: Any, contamination: Any, ax: Any = None, *, clean: Any, x: Any = None, position: Any = 0
) -> Any:
    """Plot the influence of a contaminated observation on regimes, coefficients and both.

    Args:
        model: a fitted model of the infinite HMM family; it is not changed.
        contamination: (G,) grid of contaminated values.
        ax: axes to draw into; by default a new figure.
        clean: the next observations without contamination, as for `influence.profile`.
        x: their covariates, if the features need any.
        position: index or indices of the contaminated observations.

    Returns:
        The axes.

    Raises:
        RegimekitError: if `contamination` is not a vector.

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
        raise RegimekitError(f"contamination must be a vector, got shape {grid.shape}.")
    batch = {"clean": clean, "x": x, "position": position}
    curves = {"regimes": influence.state_pif(model, grid, **batch)}
    try:
        found = influence.profile(model, grid, **batch)
    except RegimekitError:
        pass  # there is no closed form for coefficients that are not Gaussian
    else:
        curves = {"both": found.joint, **curves, "coefficients": found.parameter}
    ax = new_axes(ax, 7.0, 4.0)
    # Curves may coincide: the first is wide, the others are thinner and dashed, so all are visible.
    styles = ((4.0, "-", 0.35), (1.8, "--", 1.0), (1.4, ":", 1.0))
    for (name, values), colour, (width, dash, alpha) in zip(
        curves.items(), (PALETTE[0], PALETTE[5], "0.1"), styles, strict=False
    ):
        ax.plot(grid, values, lw=width, ls=dash, alpha=alpha, color=colour, label=name)
    ax.set_xlabel("contaminated value")
    ax.set_ylabel("influence (KL divergence)")
    ax.set_ylim(bottom=0)
    ax.legend(fontsize=8, frameon=False)
    return ax
