"""Figure of multi-step forecasts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from regimekit.core.exceptions import RegimekitError
from regimekit.distributions.forecast import Forecast, Forecasts
from regimekit.plotting.style import (
    PALETTE,
    Array,
    coordinate_of,
    legend_above,
    new_axes,
    time_axis,
)
from regimekit.preprocessing.time_index import ROWS, TimeIndex, read_times


def plot_forecast(
    source: Any,
    y: ArrayLike | None = None,
    times: Any = None,
    ax: Any = None,
    *,
    horizon: int = 24,
    X: Any = None,
    level: float = 0.9,
    history: int | None = None,
    label: str | None = None,
    coordinate: int = 0,
) -> Any:
    """Plot the median of the next steps with a 50 % band and a band of `level`.

    Args:
        source: a model, or the output of `model.forecast`.
        y: observations so far; the latest are drawn before the forecast.
        times: time stamps of y.
        ax: axes to draw into; by default a new figure.
        horizon: number of steps, if `source` is a model.
        X: covariates of these steps, if the model needs any.
        level: probability of the wide band.
        history: number of observations drawn, by default three times the horizon.
        label: label of the vertical axis, by default the name of the series `y`.
        coordinate: coordinate to draw, for d > 1.

    Returns:
        The axes.

    Example:
        >>> import regimekit as rk
        >>> model = rk.br_ihmm(batch=3, particles=10)
        >>> y = [0.0, 0.1, -0.1, 0.2] * 5
        >>> _ = model.run(y)
        >>> ax = plot_forecast(model, y, horizon=5)
        >>> [text.get_text() for text in ax.get_legend().get_texts()]
        ['observed', '90 % band', '50 % band', 'median forecast']
    """
    forecasts = _forecasts(source, horizon, X)
    ax = new_axes(ax)
    past = np.zeros(0) if y is None else coordinate_of(y, len(np.asarray(y)), coordinate)
    labels = getattr(y, "index", None) if times is None else times
    # The index of a list is a method.
    index = _time_index(forecasts, None if callable(labels) else labels, past.size)
    x = time_axis(ax, index)
    shown = min(past.size, history or 3 * len(forecasts))
    if shown:
        ax.plot(
            x[past.size - shown : past.size],
            past[-shown:],
            ".-",
            ms=4,
            lw=0.8,
            color="0.45",
            label="observed",
        )
    _draw_bands(ax, x[past.size :], forecasts, level, coordinate)
    ax.set_ylabel(label if label is not None else str(getattr(y, "name", None) or "y"))
    legend_above(ax)
    return ax


def _forecasts(source: Any, horizon: int, X: Any) -> Forecasts:
    if isinstance(source, Forecasts):
        return source
    if isinstance(source, Sequence) and all(isinstance(part, Forecast) for part in source):
        return Forecasts.stack(source, normalized=True)
    made: Forecasts = source.forecast(horizon, X)
    return made


def _time_index(forecasts: Forecasts, times: Any, n: int) -> TimeIndex:
    """Return the times of n observations and of the forecasts, dates if the model knows them."""
    try:
        before = read_times(times, n) if n else read_times(None, 0)
    except RegimekitError:  # labels of y that are no times
        before = read_times(None, n)
    if forecasts.times is None or (n and before.kind == ROWS):
        after = before.ahead(len(forecasts))
    else:
        after = read_times(list(forecasts.times), len(forecasts))
    kind = before.kind if n else after.kind
    return TimeIndex(np.concatenate([before.values, after.values]), kind)


def _draw_bands(axes: Any, x: Array, forecasts: Forecasts, level: float, coordinate: int) -> None:
    for share, alpha in ((level, 0.18), (0.5, 0.3)):
        limits = [f.interval(share) for f in forecasts]
        low, high = (
            np.array([float(np.ravel(pair[side])[coordinate]) for pair in limits])
            for side in (0, 1)
        )
        axes.fill_between(
            x, low, high, color=PALETTE[0], alpha=alpha, lw=0, label=f"{100 * share:g} % band"
        )
    median = [float(np.ravel(f.quantile(0.5))[coordinate]) for f in forecasts]
    axes.plot(x, median, lw=1.8, color=PALETTE[0], label="median forecast")
