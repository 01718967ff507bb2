"""Figure of the coefficients of each regime."""

from __future__ import annotations

from typing import Any

import numpy as np

from regimekit.core.exceptions import RegimekitError
from regimekit.core.explain import coefficient_labels
from regimekit.plotting.style import new_axes, regime_style


def plot_regimes(model: Any, ax: Any = None, *, names: list[str] | None = None) -> Any:
    """Plot the mean of each coefficient in each regime, with two standard deviations.

    Args:
        model: a model after a run.
        ax: axes to draw into; by default a new figure.
        names: names of the coefficients, if the model does not provide them.

    Returns:
        The axes.

    Raises:
        RegimekitError: if the model has no regimes.

    Example:
        >>> import regimekit as rk
        >>> model = rk.br_ihmm(batch=3, particles=10)
        >>> _ = model.run([0.0, 0.1, -0.1, 5.0, 5.1, 4.9] * 4)
        >>> [text.get_text() for text in plot_regimes(model).get_xticklabels()]
        ['intercept']
    """
    regimes = model.regimes()
    if not regimes:
        raise RegimekitError(f"{model.name} has no regimes yet. Run it over a stream first.")
    ax = new_axes(ax, 7.0, 4.0)
    size = max(np.ravel(regime.mean).size for regime in regimes)
    offsets = np.linspace(-0.3, 0.3, len(regimes)) if len(regimes) > 1 else [0.0]
    for offset, regime in zip(offsets, regimes, strict=True):
        colour, stripe = regime_style(regime.id)
        mean = np.ravel(regime.mean)
        ax.errorbar(
            np.arange(mean.size) + offset,
            mean,
            2 * np.ravel(regime.sd),
            fmt="s" if stripe else "o",
            ms=6,
            capsize=3,
            color=colour,
            mec="0.3",
            mew=0.6,
            label=f"regime {regime.id} ({regime.visits} observations)",
        )
    ax.axhline(0, color="0.8", lw=0.8, zorder=0)
    ax.set_xticks(
        range(size), coefficient_labels(model, size, names), rotation=0 if size < 6 else 40
    )
    ax.set_xlim(-0.5, size - 0.5)
    ax.set_ylabel("coefficient ± 2 sd")
    ax.legend(fontsize=8, frameon=False, loc="best")
    return ax
