"""Goals that other commands measure, read from their pages: speed, size, real series."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from paper.tables import Cell, Value

ROOT = Path(__file__).parents[1]
SPEED, SIZE, REAL = "benchmarks/RESULTS.md", "docs/spark.md", "docs/measured/auto.md"
_ENGINE, _STATE, _AUTO = "the engine (`make bench`)", "snapshots (`benchmarks.snapshots`)", "auto"
_NUMBER = re.compile(r"-?[0-9.]+(?:e[-+]?\d+)?")
_JAX = "dense JAX, 30 slots"


class Goal(NamedTuple):
    """A number in a table of a page that should be at most, or at least, a value."""

    about: str
    page: str
    row: str
    column: str
    words: str
    value: float
    at_least: bool = False
    table: int = 0  # index among the tables with this row

    def met(self, found: float) -> bool:
        return found >= self.value if self.at_least else found <= self.value


GOALS = (
    *(
        Goal(_ENGINE, SPEED, _JAX, setting, f"{_JAX}, over regimekit, {setting}", ratio, True, 1)
        for setting, ratio in (
            ("m = 1, B = 1", 20.0),
            ("m = 1, B = 6", 40.0),
            ("m = 13, B = 6", 35.0),
            ("m = 100, B = 2", 30.0),
        )
    ),
    *(
        Goal(
            _ENGINE, SPEED, row, "reached", f"{row}, {unit}".replace("`", ""), goal, unit == "times"
        )
        for row, unit, goal in (
            ("`br_ihmm.run`, m = 1, B = 1", "ms", 0.04),
            ("`br_ihmm.run`, m = 1, B = 6", "ms", 0.03),
            ("`br_ihmm.run`, m = 13, B = 6", "ms", 0.06),
            ("`br_ihmm.run`, m = 100, B = 2", "ms", 0.25),
            ("`auto().run`, levels with spikes", "ms", 0.15),
            ("`auto().run`, hourly with a daily season", "ms", 0.4),
            ("`auto().run`, 8 coordinates, per row", "ms", 2.0),
            ("`auto()`: `predict` + `update`", "ms", 0.2),
            ("`br_ihmm(noise=..)`: `predict` + `update`", "ms", 0.02),
            ("`br_ihmm()`, units estimated: `predict` + `update`", "ms", 0.03),
            ("the same, two threads over one", "times", 1.8),
            ("`regimekit run`, 8000 hourly rows, `--horizon 48`, with report", "s", 5.0),
            ("first forecast of `auto` in a fresh process", "s", 1.0),
            ("snapshot of `auto` after 8000 hourly rows", "kB", 150.0),
            ("load time of that snapshot", "ms", 5.0),
            ("installed size with narwhals, numpy, no extras", "MB", 150.0),
            ("time with 1000 particles over that with 100", "ratio", 6.0),
            ("exact CRPS of a mixture of 20 Student-t", "ms", 0.2),
        )
    ),
    *(
        Goal(_STATE, SIZE, model, column, f"{column}: {model.replace('`', '')}", most)
        for model in ("`br_ihmm`, level, known noise", "`br_ihmm`, level, units estimated")
        for column, most in (("kB", 8.0), ("ms to load", 0.3))
    ),
)


def rows() -> list[list[Value]]:
    """Return all goals as rows of the table of targets; a page that does not exist has none."""
    return [row for goal in GOALS if (row := _row(goal))] + _rows_of_page(REAL)


def _row(goal: Goal) -> list[Value] | None:
    found = look_up(goal.page, goal.row, goal.column, goal.table)
    if found is None:
        return None
    wanted = f"{'>=' if goal.at_least else '<='} {goal.value:g}"
    met = "yes" if goal.met(found) else "no"
    return [goal.about, "", goal.words, wanted, Cell(found, None, 1), met]


def _rows_of_page(page: str) -> list[list[Value]]:
    """Return the rows of a page with a table of goals: stream, measure, wanted, mean, runs, met."""
    lines = [cells for table in tables(page) for cells in table[1:] if len(cells) == 6 and cells[2]]
    return [
        [_AUTO, stream, measure, wanted, Cell(float(mean), None, int(runs)), met]
        for stream, measure, wanted, mean, runs, met in lines
    ]


def look_up(page: str, row: str, column: str, table: int = 0) -> float | None:
    """Return a number from a table of a page, or None.

    Args:
        page: path of the page.
        row: name of the row.
        column: name of the column; the last column if it is empty.
        table: index among the tables with this row.
    """
    found = [one for one in tables(page) if any(cells[0] == row for cells in one[1:])]
    if len(found) <= table:
        return None
    head, *lines = found[table]
    at = head.index(column) if column else -1
    cells = next(cells for cells in lines if cells[0] == row)
    number = _NUMBER.match(cells[at])
    return float(number.group()) if number else None


def tables(page: str) -> list[list[list[str]]]:
    """Return the Markdown tables of a page as lines of cells, headers first."""
    path = ROOT / page
    text = path.read_text("utf-8") if path.exists() else ""
    blocks = re.findall(r"(?:^\|.*\|$\n?)+", text, re.MULTILINE)
    split = [[_cells(line) for line in block.strip().splitlines()] for block in blocks]
    return [[head, *lines[1:]] for head, *lines in split]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]
