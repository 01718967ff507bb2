"""Distance of the paper's rule from the printed numbers, and the corrections that close it.

`attempt` runs the paper's text with increasing freedom in what the paper leaves unstated.
`corrections` corrects the nine places of the text: each alone, then all of them. Then it removes
one correction after the other, each time the least important, as long as the gap to the printed
numbers stays closed. The result is a minimal set: none of it can be omitted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from paper.outcomes import ALL_ROWS
from paper.parts import Part
from paper.plan import Plan
from paper.settings import BASELINE_R, HINDSIGHT, PAPER, PAPER_R, PRINTED, TITLES
from paper.tables import Item, Made, Results, Table, Value, measure, untuned

MODEL = "br_ihmm"
NINE = tuple(f"D{k}" for k in range(1, 10))
_OWN_STEPS = ("D12", "D14", "D15")  # as in the text in all runs
_TRIED = (PRINTED, BASELINE_R, PAPER_R, PAPER, HINDSIGHT)
Corrected = tuple[str, ...]


class Goal(NamedTuple):
    """A number that the paper prints for `br_ihmm`, a score over all rows."""

    score: str
    value: float
    at_least: bool = False

    def distance(self, mean: float | None) -> float:
        """Return the relative distance from it on either side; infinite without runs.

        Args:
            mean: mean over runs.
        """
        return float("inf") if mean is None else abs(mean - self.value) / self.value

    def gap(self, mean: float | None) -> float:
        """Return the relative shortfall; 0 if the mean is as good or better.

        Args:
            mean: mean over runs.
        """
        if mean is None:
            return float("inf")
        short = self.value - mean if self.at_least else mean - self.value
        return max(0.0, short / self.value)


GOALS: dict[str, tuple[Goal, ...]] = {
    "synthetic": (Goal("ppv", 0.963, True), Goal("tpr", 0.996, True), Goal("delay", 3.4)),
    "electricity": (Goal("rmse_observed", 0.47),),
    "well_log": (Goal("ppv", 0.4739, True), Goal("tpr", 0.5797, True), Goal("delay", 78.06)),
    "iid_gauss": (Goal("regimes", 3.0),),
}
_SEARCHED = ("synthetic", "electricity", "well_log")  # R is stated for the iid streams
NEAR = 0.02  # a smaller gap counts as closed: printed numbers are rounded
SEEDS = 3  # per set
_ALONE: tuple[Corrected, ...] = ((), *((d,) for d in NINE), NINE)


def gap(results: Results, stream: str, parts: list[Part]) -> float:
    """Return the sum of the shortfalls from the printed numbers."""
    cells = [results.cell(parts, goal.score + ALL_ROWS) for goal in GOALS[stream]]
    return sum(goal.gap(cell.mean) for goal, cell in zip(GOALS[stream], cells, strict=True))


def _distance(results: Results, stream: str, variant: str) -> float:
    """Return the sum of the distances from the printed numbers, better or worse."""
    parts = results.plan.parts(stream, MODEL, variant)
    means = [(goal, results.cell(parts, goal.score + ALL_ROWS).mean) for goal in GOALS[stream]]
    return sum(goal.distance(mean) for goal, mean in means)


def _attempt_parts(plan: Plan) -> list[Part]:
    tried = [(stream, variant) for stream in _SEARCHED for variant in _TRIED]
    return [part for stream, variant in tried for part in plan.parts(stream, MODEL, variant)]


def _attempt(results: Results) -> Made:
    rows: list[list[Value]] = []
    for stream in _SEARCHED:
        for goal in GOALS[stream]:
            name = goal.score + ALL_ROWS
            runs = [results.plan.parts(stream, MODEL, variant) for variant in _TRIED]
            cells = [results.cell(parts, name) for parts in runs]
            rows.append([stream, measure(goal.score), goal.value, *cells])
        gaps = [gap(results, stream, results.plan.parts(stream, MODEL, v)) for v in _TRIED]
        rows.append([stream, "short of print, summed", 0.0, *gaps])
        both = [_distance(results, stream, v) for v in _TRIED]
        rows.append([stream, "distance from print, summed", 0.0, *both])
    columns = ["stream", "measure", "paper prints", *(TITLES[variant] for variant in _TRIED)]
    searched = [(stream, MODEL, variant) for stream in _SEARCHED for variant in _TRIED]
    caption = (
        "What `br_ihmm` under the paper's rule comes to beside what the paper prints, from left to "
        "right with more freedom in what the paper leaves open. *Short of print* is 0 if all "
        "numbers of a stream are as good or better; *distance from print* counts better ones too, "
        "so a number is reproduced only if both are small."
    )
    return Made([Table(columns, rows, f"{caption} {untuned(searched)}".strip())])


class Baseline(NamedTuple):
    """Numbers that the paper prints for `ihmm` and `wolf_ihmm` on a stream, and values of R."""

    scores: tuple[str, ...]
    printed: dict[str, tuple[float, ...]]
    noise: tuple[float, ...]


BASELINES = {
    "electricity": Baseline(
        ("rmse_observed",), {"ihmm": (0.57,), "wolf_ihmm": (0.63,)}, (0.02, 0.3, 1.0, 3.0)
    ),
    "well_log": Baseline(
        ("ppv", "tpr"), {"ihmm": (0.4086, 0.4970), "wolf_ihmm": (0.3384, 0.3384)}, (0.03, 0.1, 0.3)
    ),
}


def _baseline_runs(plan: Plan, stream: str, model: str, noise: float) -> list[Part]:
    return plan.parts(stream, model, PRINTED, {"noise": noise})[:1]


def _baseline_parts(plan: Plan) -> list[Part]:
    return [
        part
        for stream, given in BASELINES.items()
        for model in given.printed
        for noise in given.noise
        for part in _baseline_runs(plan, stream, model, noise)
    ]


def _baseline(results: Results) -> Made:
    rows: list[list[Value]] = []
    for stream, given in BASELINES.items():
        for noise in given.noise:
            distance = 0.0
            for model, printed in given.printed.items():
                parts = _baseline_runs(results.plan, stream, model, noise)
                regimes = results.cell(parts, "regimes" + ALL_ROWS)
                for score, value in zip(given.scores, printed, strict=True):
                    cell = results.cell(parts, score + ALL_ROWS)
                    rows.append([stream, noise, model, measure(score), value, cell, regimes])
                    distance += Goal(score, value).distance(cell.mean)
            rows.append([stream, noise, "both", "distance, summed", 0.0, distance, None])
    columns = ["stream", "R", "model", "measure", "paper prints", "ours", "regimes"]
    caption = (
        "`ihmm` and `wolf_ihmm` under the paper's rule with the printed settings, by R, which the "
        "paper does not print; one run each, all rows scored."
    )
    return Made([Table(columns, rows, caption)])


def corrected_parts(plan: Plan, stream: str, corrected: Corrected) -> list[Part]:
    """Return a few runs of the paper's rule with some of the nine corrected, R as searched."""
    rule = dict.fromkeys((*NINE, *_OWN_STEPS), "paper") | dict.fromkeys(corrected, "default")
    changes: dict[str, Any] = {"rule": rule, "weight": "imq", "resampling": "multinomial"}
    variant = PRINTED if stream == "iid_gauss" else PAPER_R
    return plan.parts(stream, MODEL, variant, changes, short=True)[:SEEDS]


def path(results: Results, stream: str) -> list[Corrected]:
    """Return the sets of corrections from all nine down, as far as there are runs."""
    course: list[Corrected] = [NINE]
    if _unknown(results, stream, NINE):
        return course
    most = max(NEAR, _gap(results, stream, NINE) + NEAR)
    while tries := _without_one(course[-1]):
        if any(_unknown(results, stream, one) for one in tries):
            break
        best = min(tries, key=lambda one: _gap(results, stream, one))
        if _gap(results, stream, best) > most:
            break
        course.append(best)
    return course


def _without_one(corrected: Corrected) -> list[Corrected]:
    return [tuple(d for d in corrected if d != gone) for gone in corrected]


def _unknown(results: Results, stream: str, corrected: Corrected) -> bool:
    parts = corrected_parts(results.plan, stream, corrected)
    return any(results.why_not(part) for part in parts)


def _gap(results: Results, stream: str, corrected: Corrected) -> float:
    return gap(results, stream, corrected_parts(results.plan, stream, corrected))


def _corrections_first(plan: Plan) -> list[Part]:
    """Return the runs of the text, of each of the nine corrected alone, and of all of them."""
    return [part for stream in GOALS for s in _ALONE for part in corrected_parts(plan, stream, s)]


def _corrections_more(results: Results) -> list[Part]:
    """Return the runs of the next removal; none in a quick plan."""
    if results.plan.quick:
        return []
    tries = [(s, one) for s in GOALS for one in _without_one(path(results, s)[-1])]
    return [part for s, one in tries for part in corrected_parts(results.plan, s, one)]


def _corrections(results: Results) -> Made:
    alone = [_row(results, stream, corrected) for stream in GOALS for corrected in _ALONE]
    down = [
        _row(results, stream, corrected) for stream in GOALS for corrected in path(results, stream)
    ]
    columns = ["stream", "corrected", "first number", "second", "third", "gap, summed"]
    which = "; ".join(f"{s}: {', '.join(_aim(g) for g in goals)}" for s, goals in GOALS.items())
    return Made(
        [
            Table(
                columns,
                alone,
                f"Each corrected alone. The printed numbers, in the order of the columns: {which}.",
            ),
            Table(
                columns,
                down,
                "From all nine down, each time without the one that is missed least. "
                "The last row of a stream is the smallest set found: without any one of it the gap "
                f"is wider than with all nine by more than {NEAR:.0%} of the printed numbers.",
            ),
        ]
    )


def _row(results: Results, stream: str, corrected: Corrected) -> list[Value]:
    name = "all nine" if corrected == NINE else ", ".join(corrected) or "nothing: the text"
    return [stream, name, *_cells(results, stream, corrected)]


def _aim(goal: Goal) -> str:
    return f"{measure(goal.score)} {'>=' if goal.at_least else '<='} {goal.value:g}"


def _cells(results: Results, stream: str, corrected: Corrected) -> list[Value]:
    parts = corrected_parts(results.plan, stream, corrected)
    cells: list[Value] = [results.cell(parts, g.score + ALL_ROWS) for g in GOALS[stream]]
    return [*cells, *([None] * (3 - len(cells))), gap(results, stream, parts)]


ITEMS = (
    Item(
        "attempt",
        "The fairest attempt to reach the printed numbers by the paper's rule",
        "our own (Tables `tab:cp_stats`, `tab:forecast_results`, `tab:welllog_regime`)",
        "All rows are scored, as in the paper. From left to right the rule is given more of what "
        "the paper leaves out: R guessed; R from the baselines (`ihmm` and `wolf_ihmm`, whose "
        "text is unambiguous); R alone searched by the CRPS of the training part; all "
        "settings searched as the paper does; all settings searched in hindsight, on rows that "
        "are scored (the "
        "first 1000 of the synthetic stream with seed 0, the first 16 000 hours of electricity), "
        "for the printed numbers themselves, which no user could do. The gap is the sum "
        "over the printed numbers of how far short it is of them, relative to them. What the "
        "last column does not reach, the text as we read it does not give on these streams; the "
        "synthetic stream is drawn again here, and the paper's own one may be easier.",
        _attempt,
        _attempt_parts,
    ),
    Item(
        "baseline_noise",
        "The observation variance that the printed baselines imply",
        "our own (Tables `tab:forecast_results`, `tab:welllog_regime`)",
        "Of the two baselines the text is unambiguous: batches of one observation, the likelihood "
        "as it is. R is chosen by them alone, and `attempt` then runs `br_ihmm` with it.",
        _baseline,
        _baseline_parts,
    ),
    Item(
        "corrections",
        "The paper's rule with its nine places corrected, one by one",
        "our own (docs/deviations.md, D1 to D9)",
        "The printed settings, with R as the search of `attempt` found it; three seeds each, all "
        "rows scored, of the synthetic stream the first 1000 and of electricity the first 16 000. "
        "Removal is greedy, so there may be other sets of the same size. If all nine leave a gap, "
        "the smallest set with the same gap is searched. D8 changes only forecasts of several "
        "steps. Resampling stays multinomial throughout.",
        _corrections,
        _corrections_first,
        _corrections_more,
    ),
)
