"""Figures with matplotlib: runs, regimes, forecasts, calibration and influence.

    plot_run(run, y)              observations, forecast band, outliers, ribbon of regimes
    plot_regimes(model)           coefficients of each regime
    plot_components(run)          level, covariates, season and remainder of a series
    plot_forecast(model, y)       forecasts of the next steps
    plot_backtest(result)         error by steps ahead
    plot_calibration(result)      PIT histogram and coverage by level
    plot_influence(model, grid)   influence of one contaminated observation on the posterior
    run_figure(run, y)            a figure of a run, with the true regimes if they are known

The `plot_` functions draw into `ax` if it is given, otherwise into a new figure, and return the
axes. matplotlib is imported on first use; its backend and settings are not changed. A regime has
the same colour in every figure. The public name of this package is `regimekit.plot`.
"""

from __future__ import annotations

from regimekit.plotting.figures import (
    plot_components,
    plot_forecast,
    plot_regimes,
    plot_run,
    run_figure,
)
from regimekit.plotting.quality import plot_backtest, plot_calibration, plot_influence
from regimekit.plotting.style import PALETTE, NoPictures, pyplot, save

__all__ = [
    "PALETTE",
    "NoPictures",
    "plot_backtest",
    "plot_calibration",
    "plot_components",
    "plot_forecast",
    "plot_influence",
    "plot_regimes",
    "plot_run",
    "pyplot",
    "run_figure",
    "save",
]
