"""Levels that return with bursts of outliers: the opening figure and the two noises."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from paper import drawing
from paper.drawing import Track
from paper.settings import ONLINE
from paper.tables import Item, Line, Made, Results, comparison, parts_of

_SCORES = (
    "regimes", "switches", "rmse", "oracle_ratio", "adjusted_rand", "ppv", "tpr", "delay",
    "delay_online",
)  # fmt: skip


def _lines(stream: str, models: tuple[str, ...] = ONLINE) -> list[Line]:
    lines = []
    for model in models:
        found = "3" if model == "br_ihmm" else "more than 3"
        printed = {"regimes": f"{found} (text)"}
        lines += [Line(stream, model, score, printed.get(score, "")) for score in _SCORES]
    for score in ("true_regimes", "true_switches", "rmse_oracle"):
        label = "oracle" if score == "rmse_oracle" else "truth"
        lines.append(Line(stream, "br_ihmm", score, label=label, ruled=False))
    return lines


def _drawn(stream: str, models: tuple[str, ...]) -> list[Line]:
    return [Line(stream, model, "rmse") for model in models]


def _panel(ax: Any, run: Track) -> None:
    """Forecast with two standard deviations on either side, the regimes below."""
    drawing.observed(ax, run)
    mean, sd = run.outcome.columns["mean"], run.outcome.columns["sd"]
    ax.fill_between(np.arange(mean.size), mean - 2 * sd, mean + 2 * sd, color=run.colour,
                    alpha=0.2, lw=0)  # fmt: skip
    drawing.forecast(ax, run)
    drawing.strip(ax, run)


def _draw(results: Results, stream: str, models: tuple[str, ...]) -> Any:
    title = f"{stream}: forecast ± 2 standard deviations (run with seed 0; strip: regimes)"
    return drawing.stacked(results, _drawn(stream, models), _panel, title)


def _iid(results: Results, stream: str) -> Made:
    table = comparison(results, _lines(stream))
    return Made([table], lambda: _draw(results, stream, ONLINE))


def _eye_candy(results: Results) -> Made:
    pair = ("br_ihmm", "ihmm")
    lines = [Line("iid_t", model, score) for model in pair for score in ("rmse", "coverage")]
    return Made([comparison(results, lines)], lambda: _draw(results, "iid_t", pair))


_COMMON = (
    "The means of the three regimes are not stated; -2, 0, 2 are taken, and no fitted values are "
    "printed: tau_ESS 50, B 6, c² 2 stand for the paper's. Every run draws its own path; at a "
    "self-transition of 0.995 a stream has about six switches. "
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
        _COMMON + "The noise has variance 1.125 and the models are told 0.25, as the paper does "
        "on purpose. The oracle is told 1.125.",
        partial(_iid, stream="iid_t"),
        parts_of(_lines("iid_t")),
    ),
)
