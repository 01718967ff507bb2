"""Hourly electricity demand: the rolling error, the raw series, the forecasts."""

from __future__ import annotations

from typing import Any

from holdfast import evaluate
from holdfast.plot import PALETTE
from paper import drawing
from paper.drawing import Track
from paper.settings import ONLINE
from paper.streams import stream
from paper.tables import (
    Item,
    Line,
    Made,
    Results,
    Table,
    comparison,
    parts_of,
)

_LOCKDOWN = 1085 * 24  # hours from 2017-03-18, the first row, to 2020-03-07, where load falls
_WINDOW = 100


def _lines(score: str = "rmse") -> list[Line]:
    return [Line("electricity", model, score) for model in ONLINE]


def _error_curve(ax: Any, run: Track) -> None:
    errors = evaluate.rolling_rmse(run.source.target, run.outcome.columns["mean"], _WINDOW)
    ax.semilogy(errors, lw=0.7, color=run.colour, label=run.label)


def _mark(ax: Any, run: Track) -> None:
    if len(run.source.data) > _LOCKDOWN:
        ax.axvline(_LOCKDOWN, color="0.5", lw=0.8, ls="--")


def _rolling(results: Results) -> Made:
    def draw() -> Any:
        panels = {f"RMSE over {_WINDOW}": _error_curve, "regime": drawing.regimes}
        title = "Electricity (run with seed 0); dashed: 2020-03-07"
        return drawing.both_rules(results, _lines(), panels, title, _mark)

    scores = ("rmse", "regimes", "switches")
    table = comparison(results, [line for score in scores for line in _lines(score)])
    return Made([table], draw)


def _raw(_: Results) -> Made:
    def draw() -> Any:
        source = stream("electricity").data
        assert source.X is not None
        names = ("load", *source.columns)
        columns = (source.y, *source.X.T)
        figure, axes = drawing.grid(len(names), 1, "Electricity, standardised", width=11)
        for ax, name, values in zip(axes[:, 0], names, columns, strict=True):
            ax.plot(values, lw=0.3, color=PALETTE[0])
            ax.set_ylabel(name)
        axes[-1, 0].set_xlabel("hour")
        return figure

    return Made([], draw)


def _forecasts(results: Results) -> Made:
    title = "Electricity: load (grey) and forecast (run with seed 0; strip: regimes)"
    lines = _lines()
    return Made([_count(results)], lambda: drawing.stacked(results, lines, _panel, title))


def _panel(ax: Any, run: Track) -> None:
    y = run.source.data.y
    ax.plot(y, lw=0.3, color="0.6")
    ax.plot(run.outcome.columns["mean"], lw=0.3, color=run.colour, alpha=0.7)
    ax.set_ylim(y.min() - 1.0, y.max() + 0.5)  # a forecast far off the data leaves the picture
    drawing.strip(ax, run)


def _count(results: Results) -> Table:
    lines = [line for score in ("mae", "coverage") for line in _lines(score)]
    return comparison(results, lines)


ITEMS = (
    Item(
        "electricity_rolling",
        "Rolling error on electricity demand",
        "Figure `fig:electricity`",
        "The paper's ihmm stays in one regime and its br_ihmm switches from March 2020 on. How "
        "many regimes are opened depends on R, which is not stated; 0.02 is taken.",
        _rolling,
        parts_of(_lines()),
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
        parts_of(_lines()),
    ),
)
