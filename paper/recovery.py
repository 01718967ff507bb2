"""How near the paper's rule comes to the printed numbers, and what it takes to get there.

`attempt` runs the paper's text with ever more freedom in what the paper leaves unstated.
`mended` starts from the text and mends its nine places: each alone, then greedily, each time the
one that closes most of the gap to the printed numbers, until there is none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from paper.parts import ALL_ROWS, Part
from paper.plan import FEW, Plan
from paper.settings import HINDSIGHT, PAPER, PAPER_R, PRINTED, TITLES, tuned_path
from paper.tables import Item, Made, Results, Table, Value, measure

MODEL = "br_ihmm"
NINE = tuple(f"D{k}" for k in range(1, 10))
_TRIED = (PRINTED, PAPER_R, PAPER, HINDSIGHT)
Mended = tuple[str, ...]


class Goal(NamedTuple):
    """A number that the paper prints for `br_ihmm`; it scores all rows, so do we here."""

    score: str
    value: float
    at_least: bool = False

    def gap(self, mean: float | None) -> float:
        """How far short of it, relative to it; 0 where it is reached, infinite without runs."""
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
NEAR = 0.02  # a gap of so little counts as closed: what is printed is rounded and one stream's


def gap(results: Results, stream: str, parts: list[Part]) -> float:
    """Sum over the printed numbers of how far short the runs are of them."""
    cells = [results.cell(parts, goal.score + ALL_ROWS) for goal in GOALS[stream]]
    return sum(goal.gap(cell.mean) for goal, cell in zip(GOALS[stream], cells, strict=True))


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
        rows.append([stream, "gap, summed", 0.0, *gaps])
    found = [
        p.stem for s in _SEARCHED for v in _TRIED[1:] if (p := tuned_path(s, MODEL, v)).exists()
    ]
    caption = f"Searches done: {', '.join(found) or 'none yet, starting values stand in'}."
    columns = ["stream", "measure", "paper prints", *(TITLES[variant] for variant in _TRIED)]
    return Made([Table(columns, rows, caption)])


def mended_parts(plan: Plan, stream: str, mended: Mended) -> list[Part]:
    """Five runs of the paper's rule with some of the nine mended, R as searched."""
    rule = {f"D{k}": "paper" for k in range(1, 13)} | dict.fromkeys(mended, "holdfast")
    changes: dict[str, Any] = {"rule": rule, "weight": "imq", "resampling": "multinomial"}
    variant = PRINTED if stream == "iid_gauss" else PAPER_R
    return plan.parts(stream, MODEL, variant, changes)[:FEW]


def path(results: Results, stream: str) -> list[Mended]:
    """The greedy course as far as the runs go; the last set is the one to try next from."""
    course: list[Mended] = [()]
    while _gap(results, stream, course[-1]) > NEAR:
        tries = [(_gap(results, stream, t), t) for t in _next(course[-1])]
        if not tries or any(results.why_not(p) == "not run" for _, t in tries
                            for p in mended_parts(results.plan, stream, t)):  # fmt: skip
            break
        course.append(min(tries)[1])  # the best of them even if it does not help alone
    return course


def _next(mended: Mended) -> list[Mended]:
    return [tuple(sorted((*mended, d))) for d in NINE if d not in mended]


def _gap(results: Results, stream: str, mended: Mended) -> float:
    return gap(results, stream, mended_parts(results.plan, stream, mended))


def _mended_first(plan: Plan) -> list[Part]:
    """The text, each of the nine mended alone, and all of them."""
    sets = [(), *_next(()), NINE]
    return [part for stream in GOALS for s in sets for part in mended_parts(plan, stream, s)]


def _mended_more(results: Results) -> list[Part]:
    """The next round of the greedy search; one is enough to see that it runs."""
    if results.plan.quick:
        return []
    parts: list[Part] = []
    for stream in GOALS:
        last = path(results, stream)[-1]
        if _gap(results, stream, last) > NEAR:
            parts += [p for t in _next(last) for p in mended_parts(results.plan, stream, t)]
    return parts


def _mended(results: Results) -> Made:
    alone: list[list[Value]] = []
    greedy: list[list[Value]] = []
    for stream, goals in GOALS.items():
        for mended in [(), *_next(()), NINE]:
            name = ", ".join(mended) if mended != NINE else "all nine"
            alone.append([stream, name or "the text", *_cells(results, stream, mended)])
        course = path(results, stream)
        for mended in course:
            greedy.append(
                [stream, ", ".join(mended) or "the text", *_cells(results, stream, mended)]
            )
        reached = _gap(results, stream, course[-1]) <= NEAR
        told = f"{len(course[-1])} mended" if reached else "not reached by this search"
        greedy.append([stream, told, *([None] * len(goals)), *([None] * (3 - len(goals))), None])
    columns = ["stream", "mended", "first number", "second", "third", "gap, summed"]
    which = "; ".join(f"{s}: {', '.join(_aim(g) for g in goals)}" for s, goals in GOALS.items())
    caption = f"The printed numbers, in the order of the columns: {which}."
    return Made([
        Table(columns, alone, f"Each mended alone. {caption}"),
        Table(columns, greedy, f"Greedily: the smallest set found that is within {NEAR:.0%}."),
    ])  # fmt: skip


def _aim(goal: Goal) -> str:
    return f"{measure(goal.score)} {'>=' if goal.at_least else '<='} {goal.value:g}"


def _cells(results: Results, stream: str, mended: Mended) -> list[Value]:
    parts = mended_parts(results.plan, stream, mended)
    cells: list[Value] = [results.cell(parts, g.score + ALL_ROWS) for g in GOALS[stream]]
    return [*cells, *([None] * (3 - len(cells))), gap(results, stream, parts)]


ITEMS = (
    Item(
        "attempt",
        "The fairest attempt to reach the printed numbers by the paper's rule",
        "our own (Tables `tab:cp_stats`, `tab:forecast_results`, `tab:welllog_regime`)",
        "All rows are scored, as in the paper. From left to right the rule is given more of what "
        "the paper leaves out: R guessed; R alone searched by the CRPS of the training part; all "
        "settings searched so; all settings searched in hindsight, on the stream that is scored, "
        "for the printed numbers themselves, which no honest user could do. The gap is the sum "
        "over the printed numbers of how far short it is of them, relative to them. What the "
        "last column does not reach, the text as we read it does not give on these streams; the "
        "synthetic stream is drawn anew here, and the paper's own one may be easier.",
        _attempt,
        _attempt_parts,
    ),
    Item(
        "mended",
        "The paper's rule with its nine places mended, one by one",
        "our own (docs/deviations.md, D1 to D9)",
        "The printed settings, with R as the search of `attempt` found it, five seeds each, all "
        "rows scored. The greedy search adds the mending that closes most of the gap; it need not "
        "find the smallest set of all. D8 touches forecasts beyond one step only. Resampling "
        "stays multinomial throughout.",
        _mended,
        _mended_first,
        _mended_more,
    ),
)
