"""What an experiment hands back: cells that know how many runs they rest on, tables, items."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from holdfast.errors import HoldfastError
from paper.parts import Outcome, Part
from paper.plan import Plan

PAPER, HOLDFAST = "paper", "holdfast"
RULES = (PAPER, HOLDFAST)
NO_VALUE = "--"
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
    "ppv": "PPV",
    "tpr": "TPR",
    "delay": "delay",
    "delay_online": "delay, by when it was known",
    "seconds": "seconds",
    "cpu_seconds": "seconds of CPU",
}


class Cell(NamedTuple):
    """Mean and standard deviation of a score over runs, or why there is none."""

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
        """As JSON values."""
        if self.mean is None:
            return {"absent": self.absent}
        return {"mean": self.mean, "sd": self.sd, "runs": self.runs}


Value = Cell | str | float | int | None


@dataclass(frozen=True)
class Table:
    """Rows under column names."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Value]]
    caption: str = ""

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        rows = [[v.to_json() if isinstance(v, Cell) else v for v in row] for row in self.rows]
        return {"caption": self.caption, "columns": list(self.columns), "rows": rows}

    def markdown(self) -> str:
        """As a Markdown table."""
        lines = [_row([_text(name) for name in self.columns]), _row(["---"] * len(self.columns))]
        lines += [_row([_text(value) for value in row]) for row in self.rows]
        caption = f"{self.caption}\n\n" if self.caption else ""
        return caption + "\n".join(lines)


class Results:
    """Outcomes of the parts that were run, and why the others were not."""

    def __init__(self, plan: Plan, outcomes: Mapping[str, Outcome], absent: Mapping[str, str]):
        self.plan = plan
        self._outcomes = outcomes
        self._absent = absent

    def why_not(self, part: Part) -> str:
        """Why a part has no outcome; "" if it has one."""
        if part.key in self._outcomes:
            return ""
        return self._absent.get(part.key, "not run")

    def outcome(self, part: Part) -> Outcome:
        """What a part gave, or a HoldfastError that says why it has not been run."""
        if part.key not in self._outcomes:
            raise HoldfastError(self.why_not(part))
        return self._outcomes[part.key]

    def sources(self, parts: Sequence[Part]) -> list[str]:
        """The states of the source code that the outcomes of these parts come from."""
        done = (self._outcomes.get(part.key) for part in parts)
        return sorted({outcome.source for outcome in done if outcome is not None})

    def cell(self, parts: Sequence[Part], score: str) -> Cell:
        """A score over the runs of one variant."""
        done = [self._outcomes[part.key].scores for part in parts if part.key in self._outcomes]
        values = np.array([scores[score] for scores in done if score in scores])
        values = values[np.isfinite(values)]
        if not done:
            return Cell(None, None, 0, self.why_not(parts[0]))
        if not values.size:
            return Cell(None, None, 0, "not defined on these rows")
        sd = float(values.std(ddof=1)) if values.size > 1 else None
        return Cell(float(values.mean()), sd, int(values.size))


class Line(NamedTuple):
    """A row of a comparison: one score of one model on one stream, and what the paper prints."""

    stream: str
    model: str
    score: str
    paper: str = ""
    label: str = ""  # in place of the model's name
    changes: dict[str, Any] | None = None
    ruled: bool = True  # False for a model, or a score, on which the rule has no bearing

    def parts(self, plan: Plan, rule: str) -> list[Part]:
        """The runs under a rule."""
        return plan.parts(self.stream, self.model, rule, self.changes)

    def rules(self) -> tuple[str, ...]:
        """The rules it is run under."""
        return RULES if self.ruled else (HOLDFAST,)


def comparison(results: Results, lines: Sequence[Line], caption: str = "") -> Table:
    """The paper's numbers beside ours under both rules."""
    columns = ("stream", "model", "measure", "paper", "ours, paper's rule", "ours, holdfast rule")
    rows: list[list[Value]] = []
    for line in lines:
        cells = {r: results.cell(line.parts(results.plan, r), line.score) for r in line.rules()}
        name = line.label or line.model
        row: list[Value] = [line.stream, name, MEASURES[line.score], line.paper or "not printed"]
        rows.append([*row, cells.get(PAPER, "no rule applies"), cells[HOLDFAST]])
    return Table(columns, rows, caption)


def parts_of(lines: Sequence[Line]) -> Callable[[Plan], list[Part]]:
    """What a comparison needs to have run."""

    def needed(plan: Plan) -> list[Part]:
        return [part for line in lines for rule in line.rules() for part in line.parts(plan, rule)]

    return needed


class Made(NamedTuple):
    """Tables, and a function that draws the figure (it may raise a HoldfastError)."""

    tables: Sequence[Table]
    draw: Callable[[], Any] | None = None


def no_parts(_: Plan) -> list[Part]:
    """For items that run no model."""
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
    """

    name: str
    title: str
    source: str
    note: str
    make: Callable[[Results], Made]
    parts: Callable[[Plan], list[Part]] = no_parts


def _row(values: Sequence[str]) -> str:
    return "| " + " | ".join(values) + " |"


def _text(value: Value) -> str:
    if value is None:
        return NO_VALUE
    if isinstance(value, float):
        return f"{value:.4g}" if math.isfinite(value) else str(value)
    return str(value).replace("|", "\\|").replace("\n", " ")
