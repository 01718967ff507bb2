"""Recurring levels with bursts of outliers: the first figure, and the two noise distributions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from paper import drawing
from paper.drawing import Track
from paper.tables import Item, Line, Made, Results, comparison, parts_of, trivial
from regimekit.ihmm.published import MODELS as ONLINE

_SCORES = (
    "regimes",
    "switches",
    "rmse",
    "oracle_ratio",
    "adjusted_rand",
    "ppv",
    "tpr",
    "delay",
    "delay_online",
    "coverage",
)


def _lines(stream: str, models: tuple[str, ...] = (*ONLINE, "student_t_ihmm")) -> list[Line]:
    lines = []
    for model in models:
        found = {"br_ihmm": "3 (text)", "student_t_ihmm": ""}.get(model, "more than 3 (text)")
        printed = {"regimes": found}
        lines += [Line(stream, model, score, printed.get(score, "")) for score in _SCORES]
    lines += [trivial(stream, score, "truth") for score in ("true_regimes", "true_switches")]
    return [*lines, trivial(stream, "rmse_oracle", "oracle")]


def _drawn(stream: str, models: tuple[str, ...]) -> list[Line]:
    return [Line(stream, model, "rmse") for model in models]


def _panel(ax: Any, run: Track) -> None:
    """Draw forecasts with two standard deviations on either side, and the regimes below."""
    drawing.observed(ax, run)
    mean, sd = run.columns["mean"], run.columns["sd"]
    ax.fill_between(
        np.arange(mean.size), mean - 2 * sd, mean + 2 * sd, color=run.colour, alpha=0.2, lw=0
    )
    drawing.forecast(ax, run)
    drawing.strip(ax, run)


_CAPTION = (
    "Dots are the observations, crosses the true outliers; the line is the forecast of the next "
    "observation and the band two standard deviations on either side (one run each, seed 0). The "
    "strip at the bottom has a colour for each regime that the model found, the ticks at the top "
    "are the true changes: three colours that change at the ticks and return are right."
)


_TABLE = (
    "Results on three recurring levels, with the truth in the last rows: regimes and switches "
    "between them, the error of forecasts of the values without outliers and its ratio to that of "
    "an oracle with known regimes and outliers, the agreement of found and true regimes (adjusted "
    "Rand index, 1 is perfect), PPV and TPR (1 without false alarms, without misses), the delay of "
    "changes in observations, and the coverage of the 90 % interval."
)


def _draw(results: Results, stream: str, models: tuple[str, ...]) -> Any:
    title = f"{stream}: forecast ± 2 standard deviations"
    return drawing.stacked(results, _drawn(stream, models), _panel, title)


def _iid(results: Results, stream: str) -> Made:
    table = comparison(results, _lines(stream), _TABLE)
    return Made([table], lambda: _draw(results, stream, ONLINE), _CAPTION)


def _eye_candy(results: Results) -> Made:
    pair = ("br_ihmm", "ihmm")
    lines = [Line("iid_t", model, score) for model in pair for score in ("rmse", "coverage")]
    table = comparison(results, lines, "Forecast error and coverage on the stream of the figure.")
    return Made([table], lambda: _draw(results, "iid_t", pair), _CAPTION)


_COMMON = (
    "The means of the three regimes are not stated; -2, 0, 2 are taken, and no fitted values are "
    "printed: tau_ESS 50, B 6, c² 2 stand for the paper's. All tuned models use R = 0.25 as "
    "the paper's are. Every run draws its own path; at a self-transition of 0.995 a stream has "
    "about six switches. "
)

ITEMS = (
    Item(
        "eye_candy",
        "The opening figure",
        "Figure `fig:eye_candy`",
        _COMMON + "It shows Student-t noise, with R underestimated as 0.25 on purpose.",
        _eye_candy,
        parts_of(_drawn("iid_t", ("br_ihmm", "ihmm"))),
    ),
    Item(
        "iid_gauss",
        "Levels with Gaussian noise",
        "Figure `fig:compare_gauss`",
        _COMMON + "The paper's score weights a log density (D1): the worse a regime fits, the "
        "nearer to 0 it scores, so regimes multiply under its rule.",
        partial(_iid, stream="iid_gauss"),
        parts_of(_lines("iid_gauss")),
    ),
    Item(
        "iid_t",
        "Levels with Student-t noise",
        "Figure `fig:compare_t`",
        _COMMON + "The noise has variance 1.125 and the models use 0.25, as the paper does "
        "on purpose. The oracle uses 1.125.",
        partial(_iid, stream="iid_t"),
        parts_of(_lines("iid_t")),
    ),
)
