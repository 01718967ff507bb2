"""Hourly electricity demand: the rolling error, the raw series and the forecasts, in detail."""

from __future__ import annotations

from typing import Any

from paper import drawing
from paper.drawing import Track
from paper.outcomes import SHOWN, WINDOW
from paper.streams import stream
from paper.tables import Item, Line, Made, Results, comparison, parts_of
from regimekit import metrics as evaluate
from regimekit.ihmm.published import MODELS as ONLINE
from regimekit.plotting import PALETTE

_LOCKDOWN = 1085 * 24  # hours from 2017-03-18, the first row, to 2020-03-07, where load falls
_DAY, _WEEK = 24, 7 * 24
_MONTHS = SHOWN["electricity"]  # 60 days before and after the change
_FORTNIGHT = (_LOCKDOWN - _WEEK, _LOCKDOWN + _WEEK)
_WEEKS = {  # first hour of a week that begins on a Saturday, as the series does
    "January 2018": 42 * _WEEK,
    "July 2019": 120 * _WEEK,
    "March 2020": _LOCKDOWN,
}


def _lines(*scores: str) -> list[Line]:
    return [Line("electricity", model, score) for score in scores for model in ONLINE]


def _zoomed(figure: Any, results: Results, span: tuple[int, int]) -> Any:
    """Return the figure restricted to these hours; a quick run may end before them."""
    if not results.plan.quick:
        for ax in figure.axes:
            ax.set_xlim(*span)
    return figure


def _error_curve(ax: Any, run: Track) -> None:
    errors = evaluate.rolling_rmse(run.source.target, run.columns["mean"], WINDOW)
    ax.semilogy(errors, lw=0.9, color=run.colour, label=run.label)


def _mark(ax: Any, run: Track) -> None:
    if len(run.source.data) > _LOCKDOWN:
        ax.axvline(_LOCKDOWN, color="0.5", lw=0.8, ls="--")


def _rolling(results: Results) -> Made:
    def draw() -> Any:
        panels = {f"RMSE over {WINDOW}": _error_curve, "regime": drawing.regimes}
        title = "Electricity, 60 days before and after 7 March 2020 (dashed)"
        figure = drawing.by_variant(results, _lines("rmse"), panels, title, _mark)
        return _zoomed(figure, results, _MONTHS)

    caption = (
        "Top: the error of the last 100 one-hour forecasts, on a log scale, lower is better (one "
        "run each, seed 0). Bottom: a row of colours for each model, one colour for each regime "
        "it found. Load fell in March 2020; a model that adapts has its error back within days."
    )
    table = (
        "The error of one-hour forecasts of the standardised load after the first 12 000 hours, "
        "how much of it the 90 % interval covers, and how many regimes and switches between them "
        "the model found."
    )
    lines = _lines("rmse_observed", "coverage", "regimes", "switches")
    return Made([comparison(results, lines, table)], draw, caption)


def _raw(_: Results) -> Made:
    def draw() -> Any:
        source = stream("electricity").data
        assert source.X is not None
        series = dict(zip(("load", *source.columns), (source.y, *source.X.T), strict=True))
        title = "Electricity, standardised: three single weeks"
        figure, axes = drawing.grid(len(series), len(_WEEKS), title, 4.0, across=False)
        for column, (week, first) in zip(axes.T, _WEEKS.items(), strict=True):
            for ax, (name, values) in zip(column, series.items(), strict=True):
                ax.plot(values[first : first + _WEEK], lw=1, color=PALETTE[0])
                ax.set_ylabel(name)
            column[0].set_title(week, loc="left", fontsize=9)
            column[-1].set_xlabel("hour of the week")
        return figure

    caption = (
        "The load and the four covariates that the models regress it on, in standard deviations "
        "of the whole series: a week in winter, one in summer, and the one in which load fell. "
        "Load has a daily and a weekly shape that the weather alone does not explain."
    )
    return Made([], draw, caption)


def _forecasts(results: Results) -> Made:
    title = "Electricity: load (grey) and forecast, a week before and after 7 March 2020"

    def draw() -> Any:
        figure = drawing.stacked(results, _lines("rmse"), _panel, title)
        return _zoomed(figure, results, _FORTNIGHT)

    caption = (
        "Grey is the load, the line the forecast of the next hour, the band its 90 % interval "
        "(one run each, seed 0); the strip at the bottom has a colour for each regime. The models "
        "know the weather and the time of day, not the last hour's load."
    )
    table = (
        "The mean absolute error of one-hour forecasts of the standardised load after the first "
        "12 000 hours, and how much of it the 90 % interval covers."
    )
    return Made([comparison(results, _lines("mae", "coverage"), table)], draw, caption)


def _panel(ax: Any, run: Track) -> None:
    y, outputs = run.source.data.y, run.columns
    hours = range(y.size)
    ax.plot(y, lw=1, color="0.6")
    ax.fill_between(hours, outputs["lower"], outputs["upper"], color=run.colour, alpha=0.2, lw=0)
    ax.plot(outputs["mean"], lw=0.9, color=run.colour)
    ax.set_ylim(y.min() - 1.0, y.max() + 0.5)  # distant forecasts are cut off
    drawing.strip(ax, run)


ITEMS = (
    Item(
        "electricity_rolling",
        "Rolling error on electricity demand",
        "Figure `fig:electricity`",
        "The paper's ihmm stays in one regime and its br_ihmm switches from March 2020 on. How "
        "many regimes are opened depends on R, which is not stated; 0.02 is taken for the printed "
        "settings, and it is searched where settings are tuned. Scores are of the hours after the "
        "first 12 000.",
        _rolling,
        parts_of(_lines("rmse")),
    ),
    Item(
        "electricity_raw",
        "The electricity data",
        "Figure `fig:raw_electricity`",
        "The same file: 31 912 hours, each column standardised over all rows as in the paper.",
        _raw,
    ),
    Item(
        "electricity_forecasts",
        "Electricity forecasts with regimes",
        "Figure `fig:pred_electricity`",
        "As for the rolling error: R decides how many regimes are opened.",
        _forecasts,
        parts_of(_lines("rmse")),
    ),
)
