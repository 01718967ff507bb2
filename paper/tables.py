"""Results of an experiment: cells with their number of runs, tables, items."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from paper.outcomes import ALL_ROWS, Outcome
from paper.parts import Part
from paper.plan import Plan
from paper.probes import PROBES
from paper.settings import COLUMNS, UNTUNED, VARIANTS, unsearched
from paper.store import made_by
from regimekit.core.exceptions import RegimekitError

NO_VALUE = "--"
NOT_PRINTED = "not printed"
LEGEND = (
    "A cell is the mean over n runs with different seeds ± their standard deviation. The columns "
    "on the right are variants of a model: under the paper's rule with the settings that it "
    "prints, under the same rule tuned, under the first and the second edition of our rule tuned, "
    "and with its own defaults; `--` where a model has no such variant. A model on which no rule "
    "bears stands under the second edition."
)
LEVEL = 0.95  # of the intervals of paired differences
MEASURES = {
    "rmse": "RMSE, uncontaminated y",
    "rmse_observed": "RMSE",
    "rmse_last_value": "RMSE, uncontaminated y",
    "rmse_observed_last_value": "RMSE",
    "rmse_oracle": "RMSE, uncontaminated y",
    "oracle_ratio": "RMSE over the oracle's",
    "mae": "MAE",
    "lookahead_mae": "look-ahead MAE",
    "coverage": "coverage of the 90 % interval",
    "regimes": "regimes",
    "switches": "switches",
    "true_regimes": "true regimes",
    "true_switches": "true switches",
    "adjusted_rand": "adjusted Rand index",
    "adjusted_rand_online": "adjusted Rand index, by what was known",
    "ppv": "PPV",
    "tpr": "TPR",
    "ppv_online": "PPV, by what was known",
    "tpr_online": "TPR, by what was known",
    "delay": "delay",
    "delay_online": "delay, by when it was known",
    "seconds": "seconds",
    "cpu_seconds": "seconds of CPU",
    "log_variance_error": "RMS error of the log variance",
}


def measure(score: str) -> str:
    """Return a score in words; for one over all rows it adds that a search used some of them."""
    if score.endswith(ALL_ROWS):
        return f"{MEASURES[score.removesuffix(ALL_ROWS)]}, all rows (a search saw the first)"
    return MEASURES[score]


class Cell(NamedTuple):
    """Mean and standard deviation of a score over runs, or why there are none."""

    mean: float | None
    sd: float | None
    runs: int
    absent: str = ""

    def __str__(self) -> str:
        if self.mean is None:
            return self.absent
        if self.sd is None:
            return f"{self.mean:.4g} (n {self.runs})"
        return f"{self.mean:.4g} ± {self.sd:.2g} (n {self.runs})"

    def to_json(self) -> dict[str, Any]:
        """Return the cell as JSON values."""
        if self.mean is None:
            return {"absent": self.absent}
        return {"mean": self.mean, "sd": self.sd, "runs": self.runs}


class Difference(NamedTuple):
    """Mean over seeds of the difference of one score between two variants, with an interval."""

    mean: float
    half: float  # of the interval; infinite for a single pair
    pairs: int

    def __str__(self) -> str:
        if not math.isfinite(self.half):
            return f"{self.mean:+.3g} (n {self.pairs}, no interval)"
        low, high = self.mean - self.half, self.mean + self.half
        return f"{self.mean:+.3g} [{low:+.3g}, {high:+.3g}] (n {self.pairs})"

    def verdict(self, lower_is_better: bool) -> str:
        """Return whether the first is better; undecided if the interval contains 0.

        Args:
            lower_is_better: direction of the score.
        """
        if abs(self.mean) <= self.half:
            return "undecided"
        return "ahead" if (self.mean < 0) == lower_is_better else "behind"


Value = Cell | Difference | str | float | int | None


@dataclass(frozen=True)
class Table:
    """Rows under column names."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    caption: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON values."""
        rows = [[_plain(value) for value in row] for row in self.rows]
        return {"caption": self.caption, "columns": list(self.columns), "rows": rows}

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [_row([_text(name) for name in self.columns]), _row(["---"] * len(self.columns))]
        lines += [_row([_text(value) for value in row]) for row in self.rows]
        caption = f"{self.caption}\n\n" if self.caption else ""
        return caption + "\n".join(lines)


class Results:
    """Outcomes of the parts that were run, and the reasons of the missing ones."""

    def __init__(
        self,
        plan: Plan,
        outcomes: Mapping[str, Outcome],
        absent: Mapping[str, str],
        again: Callable[[Part], Outcome | None] = lambda _: None,
    ):
        self.plan = plan
        self.drawn: set[str] = set()  # keys of the outcomes whose columns were requested
        self._outcomes = outcomes
        self._absent = absent
        self._again = again  # runs a part with scores and without columns

    def why_not(self, part: Part) -> str:
        """Return why a part has no outcome; "" if it has one."""
        if part.key in self._outcomes:
            return ""
        return self._absent.get(part.key, "not run")

    def outcome(self, part: Part) -> Outcome:
        """Return the outcome of a part; without one, raise a RegimekitError with the reason."""
        if part.key not in self._outcomes:
            raise RegimekitError(self.why_not(part))
        return self._outcomes[part.key]

    def columns(self, part: Part) -> dict[str, Any]:
        """Return the columns of a run for figures; a run with scores alone is repeated."""
        outcome = self.outcome(part)
        self.drawn.add(part.key)
        if not outcome.columns:
            outcome = self._again(part) or outcome
        return outcome.columns

    def sources(self, parts: Sequence[Part]) -> list[str]:
        """Return each model with the state of the source of its outcomes."""
        named = [(_source(part), self._outcomes.get(part.key)) for part in parts]
        return sorted({f"{name}:{outcome.source}" for name, outcome in named if outcome})

    def confirmed(self, parts: Sequence[Part]) -> list[str]:
        """Return each model with the state that made runs and the state that replays confirmed."""
        named = [(_source(part), self._outcomes.get(part.key)) for part in parts]
        return sorted(
            {
                f"{name}:{made_by(outcome)}:{outcome.source}"
                for name, outcome in named
                if outcome and made_by(outcome) != outcome.source
            }
        )

    def scores(self, parts: Sequence[Part], score: str) -> dict[int, float]:
        """Return a score by seed, where it was computed and is finite."""
        found = {}
        for part in parts:
            outcome = self._outcomes.get(part.key)
            value = math.nan if outcome is None else outcome.scores.get(score, math.nan)
            if math.isfinite(value):
                found[part.seed] = value
        return found

    def paired(self, ours: Sequence[Part], rival: Sequence[Part], score: str) -> Difference | None:
        """Return our score minus the rival's by seed; a rival without draws is the same for all."""
        mine, other = self.scores(ours, score), self.scores(rival, score)
        if len(rival) == 1 and other:
            other = dict.fromkeys(mine, next(iter(other.values())))
        values = np.array([mine[seed] - other[seed] for seed in mine if seed in other])
        if not values.size:
            return None
        half = math.inf
        if values.size > 1:
            spread = float(values.std(ddof=1)) / math.sqrt(values.size)
            half = float(stats.t.ppf((1 + LEVEL) / 2, values.size - 1)) * spread
        return Difference(float(values.mean()), half, int(values.size))

    def cell(self, parts: Sequence[Part], score: str) -> Cell:
        """Return a score over the runs of one variant."""
        done = [part for part in parts if part.key in self._outcomes]
        if not done:
            return Cell(None, None, 0, self.why_not(parts[0]) if parts else "not run")
        values = np.array(list(self.scores(done, score).values()))
        if not values.size:
            return Cell(None, None, 0, "not defined on these rows")
        sd = float(values.std(ddof=1)) if values.size > 1 else None
        return Cell(float(values.mean()), sd, int(values.size))


def _source(part: Part) -> str:
    return part.stream if part.stream in PROBES else part.model


class Line(NamedTuple):
    """A row of a comparison: one score of one model on one stream, and the printed number."""

    stream: str
    model: str
    score: str
    paper: str = ""
    label: str = ""  # in place of the model's name
    only: str = ""  # the only variant with a value; "" for those of the model

    def variants(self) -> tuple[str, ...]:
        """The variants of the model."""
        return (self.only,) if self.only else VARIANTS[self.model]

    def parts(self, plan: Plan, variant: str) -> list[Part]:
        """Return the runs of a variant."""
        return plan.parts(self.stream, self.model, variant)

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.label or self.model


def trivial(stream: str, score: str, label: str) -> Line:
    """Return the line of a score of the stream alone, stored with the scores of another model."""
    return Line(stream, "last_value", score, label=label, only=UNTUNED)


def comparison(results: Results, lines: Sequence[Line], caption: str = "") -> Table:
    """Return the table of the paper's numbers and ours, untuned and tuned in separate columns.

    Args:
        results: the results.
        lines: the rows.
        caption: caption of the table.
    """
    rows: list[list[Value]] = []
    for line in lines:
        cells = {v: results.cell(line.parts(results.plan, v), line.score) for v in line.variants()}
        row: list[Value] = [line.stream, line.name, measure(line.score), line.paper or NOT_PRINTED]
        column = line.only if line.only in COLUMNS else ""
        shown = cells if column or not line.only else {"second": cells[line.only]}
        rows.append([*row, *(shown.get(v, NO_VALUE) for v in COLUMNS)])
    columns = ["stream", "model", "measure", "paper prints", *COLUMNS.values()]
    sentences = (caption, LEGEND, _unsearched(lines))
    return Table(columns, rows, " ".join(filter(None, sentences)))


def _unsearched(lines: Sequence[Line]) -> str:
    return untuned([(line.stream, line.model, v) for line in lines for v in line.variants()])


def untuned(asked: Iterable[tuple[str, str, str]]) -> str:
    """Return a warning if a search for tuned settings is missing, or was done by another source.

    Args:
        asked: (stream, model, variant) of each.
    """
    from paper.tuning import outdated

    named = list(dict.fromkeys(asked))
    absent = [" ".join(one) for one in named if unsearched(*one)]
    older = [" ".join(one) for one in named if not unsearched(*one) and outdated(*one)]
    sentences = []
    if absent:
        sentences.append(f"**Not tuned yet: {', '.join(absent)}.**")
    if older:
        sentences.append(f"**Tuned by an older state of the source: {', '.join(older)}.**")
    return " ".join(sentences)


def parts_of(lines: Sequence[Line]) -> Callable[[Plan], list[Part]]:
    """Return a function of the plan that returns the runs of a comparison."""

    def needed(plan: Plan) -> list[Part]:
        return [part for line in lines for v in line.variants() for part in line.parts(plan, v)]

    return needed


class Made(NamedTuple):
    """Tables, a function that draws the figure (it may raise a RegimekitError), and its caption."""

    tables: Sequence[Table]
    draw: Callable[[], Any] | None = None
    caption: str = ""


def no_parts(_: Plan) -> list[Part]:
    """Return no runs, for items that run no model."""
    return []


def no_more(_: Results) -> list[Part]:
    """Return no further runs, for items that have all of them from the start."""
    return []


@dataclass(frozen=True)
class Item:
    """A table or figure of the paper, or one of our own.

    Attributes:
        name: on the command line, and of its files.
        title: in the index.
        source: where it is in the paper.
        note: why the paper's numbers and ours differ.
        make: tables and figure from the results.
        parts: the runs it needs.
        more: further runs given the results so far; called until there are none.
    """

    name: str
    title: str
    source: str
    note: str
    make: Callable[[Results], Made]
    parts: Callable[[Plan], list[Part]] = no_parts
    more: Callable[[Results], list[Part]] = no_more


def _plain(value: Value) -> Any:
    """Return a value as JSON values."""
    if isinstance(value, Cell):
        return value.to_json()
    return value._asdict() if isinstance(value, Difference) else value


def _row(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"


def _text(value: Value) -> str:
    if value is None:
        return NO_VALUE
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    return str(value).replace("|", "\\|").replace("\n", " ")
