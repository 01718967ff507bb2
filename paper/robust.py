"""Measured robustness: the stress suite, bursts, and the table for choosing B."""

from __future__ import annotations

from typing import Any

from paper import stress
from paper.parts import Part
from paper.plan import Plan
from paper.probes import BATCH, STRESSED
from paper.tables import Item, Made, Results, Table, Value
from regimekit.robustness.sensitivity import choice_table, sensitivity

_FLAGS = ("opened", "n_bytes")
THRESHOLDS = (None, 2.0, 4.0)
BATCHES = (1, 2, 4, 6, 8, 12)


def _parts(plan: Plan) -> list[Part]:
    return [part for name in STRESSED for part in plan.probe("stress", name)]


def _trials(results: Results, name: str, kind: str) -> list[stress.Trial]:
    """Return the trials of a model under one contamination, from the stored answers."""
    parts = [p for p in results.plan.probe("stress", name) if not results.why_not(p)]
    trials = []
    for part in parts:
        stored = results.outcome(part).scores
        values: dict[str, Any] = {f: stored[f"{kind}.{f}"] for f in stress.Trial._fields[:-1]}
        values |= {flag: int(values[flag]) for flag in _FLAGS} | {"finite": bool(values["finite"])}
        failure = "raised" if values["rmse"] != values["rmse"] else ""
        trials.append(stress.Trial(**values, failure=failure))
    return trials


def _stress(results: Results) -> Made:
    return Made([_table(results, "excess"), _table(results, "during")])


def _table(results: Results, figure: str) -> Table:
    rows: list[list[Value]] = []
    for kind in stress.KINDS:
        row: list[Value] = [kind.replace("_", " ")]
        for name in STRESSED:
            trials = _trials(results, name, kind)
            cell = stress.cell_of(name, kind, trials) if trials else None
            row.append("not run" if cell is None else stress.format_cell(cell, figure))
        rows.append(row)
    captions = {
        "excess": "Rise of the forecast error *after* the contamination, from two batches after "
        "its end; behind the slash the regimes that it opened, per run.",
        "during": "Rise of the forecast error *while* it lasts and two batches after.",
    }
    return Table(["contamination", *STRESSED], rows, captions[figure])


def _sensitivity(results: Results) -> Made:
    sizes = results.plan.grid(BATCHES)
    head, _, *body = choice_table(sizes, THRESHOLDS).splitlines()
    columns, *rows = ([c.strip() for c in line.strip("|").split("|")] for line in (head, *body))
    caption = (
        "For B = 6, left: observations until a shift of the level is seen, over its size in "
        "standard deviations of the noise. Right: which bursts, by length and height, open a "
        "regime (light) and which are ignored (dark)."
    )
    table = (
        "For each batch size B and threshold c how soon a shift of the level is seen, in "
        "observations, and how long a burst may be without being taken for a regime."
    )
    return Made(
        [Table(columns, rows, table)], lambda: sensitivity({"batch": BATCH}).figure(), caption
    )


ITEMS = (
    Item(
        "stress",
        "The stress suite",
        "our own (docs/robustness.md)",
        "Three levels that return (-1, 1, 3; noise of standard deviation 0.5, 480 observations). "
        "The lie begins in the third level after 15 batches of it; bursts are half a batch long, "
        "spikes, bursts and drift 10 standard deviations high. Models know the noise, or have it "
        "as their first guess; B = 6, 50 particles, 12 seeds: each place of a change within a "
        "batch twice. Without a name of an edition the second one runs.",
        _stress,
        _parts,
    ),
    Item(
        "sensitivity",
        "What the batch size buys",
        "our own (docs/robustness.md)",
        "Computed, not simulated (`rk.sensitivity`); `none` under c is contamination. Columns "
        "*new* are the observations until a new regime is opened with probability 1/2 after a "
        "shift of so many standard deviations, *known* those until a known regime is recognised; "
        "then the longest bursts that are ignored, at any height, and at 6 standard deviations "
        "and more.",
        _sensitivity,
    ),
)
