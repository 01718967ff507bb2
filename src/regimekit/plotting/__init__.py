"""Pictures with matplotlib: a run, its regimes, its calibration, its robustness, what comes next.

    plot_run(run, y)              observations, forecast band, outliers, ribbon of regimes
    plot_regimes(model)           the coefficients of each regime
    plot_forecast(model, y)       the next steps
    plot_calibration(result)      probability integral transforms and coverage by level
    plot_influence(model, grid)   what one contaminated observation does to the posterior
    run_figure(run, y)            a whole figure, with the true regimes where they are known

The `plot_` functions draw into `ax` if it is given, make a figure if not, and return the axes.
matplotlib is imported by the first of them that is called; its backend and its settings are left
as they are. A regime's colour stays with its id.
"""

from __future__ import annotations

from regimekit.plotting.canvas import NoPictures, pyplot, save
from regimekit.plotting.forecast import plot_forecast
from regimekit.plotting.palette import PALETTE
from regimekit.plotting.quality import plot_calibration, plot_influence
from regimekit.plotting.regimes import plot_regimes
from regimekit.plotting.runs import plot_run, run_figure

__all__ = [
    "PALETTE",
    "NoPictures",
    "plot_calibration",
    "plot_forecast",
    "plot_influence",
    "plot_regimes",
    "plot_run",
    "pyplot",
    "run_figure",
    "save",
]
