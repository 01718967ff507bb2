"""Objectives of a search: forecasts alone, or forecasts and regimes.

`br_ihmm` under the default rule is tuned on the training part by three objectives; the settings
found are scored on rows that no search has used. No search uses labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import regimekit as rk
from paper.parts import Part
from paper.plan import Plan
from paper.settings import SECOND, start
from paper.streams import stream
from paper.tables import Item, Made, Results, Table, Value
from regimekit import metrics as evaluate
from regimekit.tuning import tune

PROBE = "objective"
STREAMS = ("iid_gauss", "iid_t", "well_log")
OBJECTIVES = ("crps", "regimes", "lookahead_mae")
DEFAULTS = "default settings"
TRIALS, PARTICLES, SKIP, TESTS = 25, 50, 100, 5
QUESTIONS = [f"{name}, {aim}" for name in STREAMS for aim in (*OBJECTIVES, DEFAULTS)]
Answer = dict[str, float]


def ask(question: str, seed: int) -> Answer:
    """Search by an objective with this seed, and return the scores of the result over test runs.

    Args:
        question: stream and objective.
        seed: seed of the search.
    """
    name, aim = question.split(", ")
    settings = {} if aim == DEFAULTS else _found(name, aim, seed)
    found = [_score(name, settings, test) for test in range(TESTS)]
    return {key: float(np.mean([one[key] for one in found])) for key in found[0]}


def _found(name: str, aim: str, seed: int) -> dict[str, Any]:
    from paper.tuning import RANGES, Search, training_part

    search = Search(name, "br_ihmm", SECOND)
    space = {key: RANGES[key] for key in search.space()}
    source = stream(name)
    seen = training_part(source)
    fixed = {key: value for key, value in start(*search).items() if key not in space}
    fixed |= {"features": source.features, "particles": PARTICLES}
    return tune(
        "br_ihmm", seen.y, seen.X, space, aim, TRIALS, settings=fixed, skip=SKIP, seed=seed
    ).best | {key: value for key, value in fixed.items() if key != "particles"}


def _score(name: str, settings: dict[str, Any], test: int) -> Answer:
    """Return scores of the rows that no search has used, by what was known at the time."""
    source = stream(name, test)
    given = {"features": source.features} | settings
    run = rk.make("br_ihmm", seed=test, **given).run(source.data.y, source.data.X)
    part = slice(source.held_out, None)
    unseen = source.rows(source.held_out)
    match = evaluate.match_regimes(run.regime[part], unseen.data.changepoints, 2)
    return {
        "mae": evaluate.mae(unseen.target, run.mean[part]),
        "regimes": float(evaluate.n_regimes(run.path[part])),
        "switches": float(evaluate.switches(run.regime[part])),
        "ppv": match.ppv,
        "tpr": match.tpr,
    }


def _parts(plan: Plan) -> list[Part]:
    return [] if plan.quick else [Part(PROBE, question) for question in QUESTIONS]


def _made(results: Results) -> Made:
    measures = {"mae": "MAE", "regimes": "regimes", "switches": "switches", "ppv": "PPV"}
    measures |= {"tpr": "TPR"}
    rows: list[list[Value]] = []
    for question in QUESTIONS if not results.plan.quick else ():
        cells = [results.cell([Part(PROBE, question)], score) for score in measures]
        rows.append([*question.split(", "), *cells])
    caption = (
        f"`br_ihmm`, default rule, {TRIALS} trials with {PARTICLES} particles by each objective, "
        f"one search each; means over {TESTS} test runs (other seeds of the generated streams, "
        "rows after the training part of well-log). Switches, PPV and TPR by what was known in "
        "time. The iid levels have 3 regimes."
    )
    return Made([Table(["stream", "tuned by", *measures.values()], rows, caption)])


ITEMS = (
    Item(
        "objective",
        "Tuning by forecasts, or by forecasts and regimes",
        "our own",
        "`crps` values one-step forecasts alone. `regimes` is the negative log score per "
        "observation plus a cost of log T + log K for every switch between K regimes in T "
        "observations. `lookahead_mae` is what the paper tunes well-log by.",
        _made,
        _parts,
    ),
)
