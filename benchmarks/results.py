"""Goals and comparison as a page of Markdown: benchmarks/RESULTS.md, by `make bench WRITE=1`."""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import os
import platform
from collections.abc import Sequence

import regimekit as rk
from benchmarks.goals import Measurement
from benchmarks.same_law import Agreement
from benchmarks.speed import OURS, Cost

LARGEST = (
    "At m = 100 the dense version holds 240 MB of covariances. Its time there is far above that of "
    "one pass over them, and why is not known: take its ratios in that column as upper bounds."
)
PACKAGES = ("numpy", "jax", "particles", "river", "statsforecast")


def page(rows: Sequence[Measurement], costs: Sequence[Cost], law: Sequence[Agreement] | str) -> str:
    """Return the whole page.

    Args:
        rows: what was measured, with goals where there are any.
        costs: times per observation of all packages.
        law: agreement of the dense version, or why it was not compared.
    """
    parts = ["# Speed and size", _made(), _goals(rows), _table(costs), _ratios(costs), _law(law)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _made() -> str:
    versions = [f"regimekit {rk.__version__}", f"Python {platform.python_version()}"]
    for name in PACKAGES:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {name}")
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    return (
        f"Written by `make bench WRITE=1` on {today}: {', '.join(versions)}. Load averages over "
        f"the last 1, 5 and 15 minutes: {load} on {os.cpu_count()} cores.\n\n"
        "Times are processor times on one core, the least of several rounds; packages take turns. "
        "Ratios within the run are comparable, times of different runs are not. Particles: 100 for "
        "`br_ihmm`, 30 for each regime model of `auto`. m is the number of features, B the batch "
        "size. `benchmarks/goals.py` and `benchmarks/peers.py` define each row."
    )


def _cases(costs: Sequence[Cost]) -> list[tuple[int, int]]:
    return list(dict.fromkeys((cost.width, cost.batch) for cost in costs))


def _rows(costs: Sequence[Cost], relative: bool) -> str:
    cases = _cases(costs)
    known = {(c.peer, c.width, c.batch): c for c in costs}
    head = ["", *(f"m = {m}, B = {b}" for m, b in cases)]
    lines = [head, ["---", *["--:"] * len(cases)]]
    for peer in dict.fromkeys(cost.peer for cost in costs):
        cells = [peer]
        for m, b in cases:
            cost, ours = known[peer, m, b], known[OURS, m, b]
            value = cost.milliseconds / ours.milliseconds if relative else cost.milliseconds
            cells.append(cost.skipped or f"{value:.3g}")
        lines.append(cells)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _table(costs: Sequence[Cost]) -> str:
    return "## Milliseconds per observation\n\n" + _rows(costs, relative=False) if costs else ""


def _ratios(costs: Sequence[Cost]) -> str:
    title = "## Times over those of `br_ihmm` (above 1: slower)\n\n"
    return title + _rows(costs, relative=True) + "\n\n" + LARGEST if costs else ""


def _goals(rows: Sequence[Measurement]) -> str:
    head = ["## Goals", "", "| | goal | reached | |", "|---|--:|--:|---|"]
    lines = []
    for row in rows:
        goal, mark = "", ""
        if row.goal is not None:
            goal, mark = f"{row.goal:g} {row.unit}", "yes" if row.reached else "no"
        lines.append(f"| {row.what} | {goal} | {row.value:.3g} {row.unit} | {mark} |")
    return "\n".join([*head, *lines])


def _law(law: Sequence[Agreement] | str) -> str:
    title = "## The dense version computes the same\n\n"
    if isinstance(law, str):
        return title + f"Not compared here: {law}."
    lines = [
        f"| {a.quantity} | {a.width} | {a.batch} | {a.largest:.1f} | {a.typical:.2f} |"
        for a in law
        if math.isfinite(a.largest)
    ]
    said = (
        'Forecasts of the dense version and of the engine under `rule="paper"`, means over many '
        "seeds, their differences in standard errors at each observation of a small stream "
        "(`python -m benchmarks.same_law`; chance alone gives a root mean square of 1).\n"
    )
    head = ["| of the forecast | m | B | largest | root mean square |", "|---|--:|--:|--:|--:|"]
    return title + "\n".join([said, *head, *lines])
