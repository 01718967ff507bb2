"""All targets in one table: goal, result, and number of runs."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from paper import elsewhere
from paper.parts import Part
from paper.plan import Plan
from paper.settings import SECOND, UNTUNED
from paper.tables import Cell, Item, Made, Results, Table, Value, measure, untuned

PER_TRUE = "switches per true switch"
RULE, AUTO, TUNED_RULE = "the rule, nothing tuned", "auto, default settings", "the rule, tuned"
_COVERED = (0.86, 0.94)  # coverage of the 90 % interval in every row
_AUTO_STREAMS = (
    "local level",
    "arma",
    "cycle",
    "walk with jumps",
    "heavy walk",
    "season 12, growing",
    "week on a walk",
    "rare counts",
    "local level and spikes",
    "ar, shifts and spikes",
    "lognormal",
    "slow wave",
)


class Target(NamedTuple):
    """A score of a model on a stream that should be at most, or at least, a value."""

    about: str
    stream: str
    score: str
    value: float
    at_least: bool = False
    model: str = "br_ihmm"

    def met(self, cell: Cell) -> str:
        """Return whether the mean over runs meets the goal; "" without runs."""
        if cell.mean is None:
            return ""
        reached = cell.mean >= self.value if self.at_least else cell.mean <= self.value
        return "yes" if reached else "no"

    def parts(self, plan: Plan) -> list[Part]:
        """Return its runs."""
        return plan.parts(self.stream, self.model, self.variant)

    @property
    def variant(self) -> str:
        """Variant of the model, in words."""
        return UNTUNED if self.about == AUTO else SECOND

    @property
    def wanted(self) -> str:
        """The goal in signs."""
        return f"{'>=' if self.at_least else '<='} {self.value:g}"


TARGETS = (
    Target(TUNED_RULE, "synthetic", "oracle_ratio", 1.25),
    Target(TUNED_RULE, "synthetic", "ppv", 0.97, at_least=True),
    Target(TUNED_RULE, "synthetic", "tpr", 0.99, at_least=True),
    Target(TUNED_RULE, "synthetic", "delay_online", 3.4),
    Target(TUNED_RULE, "well_log", "ppv_online", 0.70, at_least=True),
    Target(TUNED_RULE, "well_log", "tpr_online", 0.90, at_least=True),
    Target(TUNED_RULE, "well_log", "delay_online", 15.0),
    Target(TUNED_RULE, "electricity", "rmse_observed", 0.35),
    Target(TUNED_RULE, "iid_gauss", "regimes", 3.2),
    Target(TUNED_RULE, "iid_gauss", PER_TRUE, 1.5),
    Target(TUNED_RULE, "iid_t", "regimes", 3.2),
    Target(TUNED_RULE, "iid_t", PER_TRUE, 1.5),
    Target(AUTO, "electricity", "rmse_observed", 0.22, model="auto"),
    Target(AUTO, "well_log", "mae", 0.235, model="auto"),
    Target(AUTO, "ofi", "rmse_observed", 0.87, model="auto"),
    Target(AUTO, "synthetic", "oracle_ratio", 1.10, model="auto"),
)


def _questions() -> list[str]:
    from benchmarks.untuned import QUESTIONS

    return list(QUESTIONS)


def _parts(plan: Plan) -> list[Part]:
    parts = [part for target in TARGETS for part in target.parts(plan)]
    probes = [("untuned", name) for name in _questions()]
    probes += [("bursts", batch) for batch in ("4", "6", "8")]
    probes += [("auto", name) for name in _AUTO_STREAMS]
    return parts + [part for probe in probes for part in plan.probe(*probe)]


def _targets(results: Results) -> Made:
    rows = [*_untuned(results), *_bursts(results), *_auto(results)]
    for target in TARGETS:
        cell = _measured(results, target)
        name = target.score if target.score == PER_TRUE else measure(target.score)
        row: list[Value] = [target.about, f"{target.stream}, {target.model}", name]
        rows.append([*row, target.wanted, cell, target.met(cell)])
    rows += elsewhere.rows()
    columns = ["what", "stream", "measure", "wanted", "came out", "met"]
    tuned = [(one.stream, one.model, one.variant) for one in TARGETS]
    return Made([Table(columns, rows, f"{_tally(rows)} {untuned(tuned)}".strip())])


def _tally(rows: list[list[Value]]) -> str:
    met, missed = ([row for row in rows if row[-1] == answer] for answer in ("yes", "no"))
    left = len(rows) - len(met) - len(missed)
    return (
        "What we set out to reach, with what came out: the mean over n runs ± their standard "
        f"deviation. {len(met)} goals are met, {len(missed)} are missed, {left} are not run yet."
    )


def _untuned(results: Results) -> list[list[Value]]:
    """Return the rows of `benchmarks.untuned`, with its goals."""
    from benchmarks.untuned import QUESTIONS

    rows: list[list[Value]] = []
    for name, question in QUESTIONS.items():
        parts = results.plan.probe("untuned", name)
        for goal in question.goals:
            cell = results.cell(parts, goal.measure)
            if cell.mean is not None and goal.measure.startswith("|"):
                cell = cell._replace(mean=abs(cell.mean))  # the bias of the mean
            met = "" if cell.mean is None else "yes" if goal.met(cell.mean) else "no"
            rows.append([RULE, question.stream, goal.measure, goal.words(), cell, met])
    return rows


def _bursts(results: Results) -> list[list[Value]]:
    """Return the rows of bursts of half a batch, which are ignored at a risk of 5 %."""
    rows: list[list[Value]] = []
    for batch in ("4", "6", "8"):
        cell = results.cell(results.plan.probe("bursts", batch), "opened")
        target = Target(RULE, "", "", 0.05)
        name = "share of bursts of B / 2 at 6 sd and more that open a regime"
        rows.append(
            [RULE, f"settled level, B = {batch}", name, target.wanted, cell, target.met(cell)]
        )
    return rows


def _auto(results: Results) -> list[list[Value]]:
    rows: list[list[Value]] = []
    logs: list[float] = []
    ratio = Target(AUTO, "", "ratio", 1.03)
    for name in _AUTO_STREAMS:
        parts = results.plan.probe("auto", name)
        cell = results.cell(parts, "ratio")
        logs += results.scores(parts, "log_ratio").values()
        measure = "CRPS over the best simple forecaster in hindsight"
        rows.append([AUTO, name, measure, ratio.wanted, cell, ratio.met(cell)])
        cover = results.cell(parts, "coverage 90%")
        inside = cover.mean is not None and _COVERED[0] <= cover.mean <= _COVERED[1]
        met = "" if cover.mean is None else "yes" if inside else "no"
        wanted = f"{_COVERED[0]} .. {_COVERED[1]}"
        rows.append([AUTO, name, "coverage of the 90 % interval", wanted, cover, met])
    mean = (
        Cell(math.exp(np.mean(logs)), None, len(logs)) if logs else Cell(None, None, 0, "not run")
    )
    goal = Target(AUTO, "", "", 0.92)
    measure = "CRPS over the best simple forecaster, geometric mean"
    return [[AUTO, "all twelve", measure, goal.wanted, mean, goal.met(mean)], *rows]


def _measured(results: Results, target: Target) -> Cell:
    parts = target.parts(results.plan)
    if target.score != PER_TRUE:
        return results.cell(parts, target.score)
    found, true = results.cell(parts, "switches"), results.cell(parts, "true_switches")
    if found.mean is None or not true.mean:
        return found
    # Over all runs together: a single run may have no true switch.
    return Cell(found.mean / true.mean, None, found.runs)


ITEMS = (
    Item(
        "targets",
        "Targets",
        "our own: means over the runs, met or not",
        "*The rule, nothing tuned*: models that know at most their units (`benchmarks."
        "untuned`), and bursts at every place in the batch (`benchmarks.bursts`). *auto*: twelve "
        "generated streams (`benchmarks.auto`; the best of the simple forecasters is chosen in "
        "hindsight, for each stream) and the paper's streams with its features. *The rule, "
        "tuned*: `br_ihmm`, settings found on training parts (`hyperparameters`), scored on the "
        "rest; on well-log by what was known at the time. The last rows are read off the pages of "
        "other commands, which say how they were measured: the engine's speed, the size of "
        "snapshots, and real series with features of our own. The public series are in "
        "`make bench-public`.",
        _targets,
        _parts,
    ),
)
