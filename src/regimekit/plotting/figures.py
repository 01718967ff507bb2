"""Figures of runs, of forecasts of several steps, and of the coefficients of regimes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.core.explain import coefficient_labels
from regimekit.distributions.forecast import Forecast, Forecasts
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
from regimekit.preprocessing.time_index import ROWS, TimeIndex, read_times
from regimekit.results import NO_REGIME, Run, segments

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
    x = time_axis(ax, read_times(times, len(run)))
    _draw_series(ax, x, run, y, level, coordinate)
    name = str(getattr(y, "name", None) or run.name or "y")
    ax.set_ylabel(name if label is None else label)
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
        # Like the ids of a model, true regimes are numbered in order of appearance.
        true = np.asarray(truth).tolist()
        order = {regime: j for j, regime in enumerate(dict.fromkeys(true))}
        ribbons["true"] = np.array([order[regime] for regime in true], dtype=np.int64)
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
    blocks: dict[int, list[tuple[float, float]]] = {}
    across = axes.get_xaxis_transform()
    for regime, a, b in segments(regimes):
        if regime == NO_REGIME:
            continue
        start, width = edges[a], edges[b] - edges[a]
        blocks.setdefault(regime, []).append((start, width))
        if width >= _MIN_LABELLED_WIDTH * (edges[-1] - edges[0]):
            axes.text(
                start + width / 2,
                bottom + height / 2,
                str(regime),
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
    share = run.level if level is None else level
    given = run.y if y is None else np.asarray(y)
    if len(given) != n:
        raise RegimekitError(f"y must have the {n} rows of the run, got {len(given)}.")
    values = coordinate_of(given, n, coordinate)
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
    axes.plot(x, values, ".", ms=2.5, color="0.55", label="observed", zorder=1)
    mark_outliers(axes, x, values, run.outlier)


def _edges(x: Array) -> Array:
    """Left edge of each observation's block, and the right edge of the last one."""
    usual = float(np.median(np.diff(x))) if x.size > 1 else 1.0
    return np.append(x, x[-1] + usual) if x.size else np.zeros(1)


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
    # Regimes of `auto` may have different coefficients.
    labels = [coefficient_labels(model, np.size(regime.mean), names) for regime in regimes]
    places = {label: j for j, label in enumerate(dict.fromkeys(chain(*labels)))}
    offsets = np.linspace(-0.3, 0.3, len(regimes)) if len(regimes) > 1 else [0.0]
    for offset, regime, own in zip(offsets, regimes, labels, strict=True):
        colour, stripe = regime_style(regime.id)
        ax.errorbar(
            np.array([places[label] for label in own]) + offset,
            np.ravel(regime.mean),
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
    ax.set_xticks(range(len(places)), list(places), rotation=0 if len(places) < 6 else 40)
    ax.set_xlim(-0.5, len(places) - 0.5)
    ax.set_ylabel("coefficient ± 2 sd")
    ax.legend(fontsize=8, frameon=False, loc="best")
    return ax


def plot_components(
    run: Run,
    y: ArrayLike | None = None,
    times: Any = None,
    *,
    season: int | None = None,
    X: Any = None,
    label: str | None = None,
) -> Any:
    """Plot what a series consists of: levels of its regimes, covariates, a season, the remainder.

    The parts add up to the series. They describe a run in hindsight and are no forecasts: the
    level is the median of each stay in a regime; the covariates are fitted by least squares to
    what remains; the season is the median of what then remains at each phase. Outliers are left
    out of all estimates.

    Args:
        run: output of `model.run(y)`.
        y: (T,) observations, by default those stored in the run.
        times: time stamps: dates, texts that are dates, or numbers.
        season: length of the season in observations, if there is one.
        X: (T, number of covariates) covariates, if there are any.
        label: name of the series, by default that of its column.

    Returns:
        The axes of the panels, a mapping by name: `"y"`, `"level"`, `"covariates"`, `"season"`,
        `"remainder"`.

    Raises:
        RegimekitError: if an observation has several coordinates, or X has other rows than y.

    Example:
        >>> import regimekit as rk
        >>> run = rk.br_ihmm(batch=3, particles=10).run([0.0, 0.1, -0.1, 5.0, 5.1, 4.9] * 4)
        >>> list(plot_components(run, season=2))
        ['y', 'level', 'season', 'remainder']
    """
    values = np.asarray(run.y if y is None else y, dtype=float)
    parts = _components(run, values, season, X)
    _, axes = pyplot().subplots(
        len(parts) + 1, 1, figsize=(9, 1.5 * (len(parts) + 1)), sharex=True, layout="constrained"
    )
    shown = {label or run.name or "y": values, **parts}
    for ax, (name, part) in zip(axes, shown.items(), strict=True):
        x = time_axis(ax, read_times(times, len(run)))
        if name == "level":
            for regime, start, end in segments(run.path):
                colour = regime_style(max(regime, 0)).colour
                ax.plot(x[start:end], part[start:end], color=colour, lw=2)
        else:
            ax.plot(x, part, color="0.35" if ax is axes[0] else PALETTE[0], lw=0.9)
        ax.set_ylabel(name)
        ax.margins(x=0.01)
        if ax is not axes[-1]:
            ax.set_xlabel("")
    return dict(zip(["y", *parts], axes, strict=True))


def _components(run: Run, y: Array, season: int | None, X: Any) -> dict[str, Array]:
    """Return the parts of a series by name, (T,) each, which add up to it."""
    if y.ndim > 1:
        raise RegimekitError("plot_components needs one coordinate. Pass a run over one of them.")
    usual = ~np.asarray(run.outlier, bool) & np.isfinite(y)
    parts = {"level": np.full(len(y), np.nan)}
    for _, start, end in segments(run.path):
        chosen = y[start:end][usual[start:end]]
        parts["level"][start:end] = np.median(chosen) if chosen.size else np.nan
    rest = y - parts["level"]
    if X is not None:
        table = np.asarray(X, dtype=float).reshape(len(X), -1)
        if len(table) != len(y):
            raise RegimekitError(f"X must have the {len(y)} rows of y, got {len(table)}.")
        centred = table - np.nanmedian(table, axis=0)
        rows = usual & np.isfinite(rest) & np.isfinite(centred).all(axis=1)
        parts["covariates"] = centred @ np.linalg.lstsq(centred[rows], rest[rows], rcond=None)[0]
        rest = rest - parts["covariates"]
    if season is not None:
        phase = np.arange(len(y)) % season
        profile = np.array([np.nanmedian(rest[usual & (phase == j)]) for j in range(season)])
        parts["season"] = (profile - profile.mean())[phase]
        rest = rest - parts["season"]
    return parts | {"remainder": rest}
