"""The time of a run of each kind, from a measured one: `python -m paper costs`.

Writes `costs.json`: seconds of one core per 1000 rows with 100 particles, or per answer of a probe.
The plan derives the number of seeds from it, and `regimekit reproduce all --estimate` the time of
the remaining runs. Kinds in the file are not measured again; delete the file to start again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace

from paper.catalogue import ITEMS
from paper.outcomes import run_part
from paper.parts import Part
from paper.plan import COSTS, ROWS, Plan, costs, kind
from paper.probes import PROBES
from paper.settings import BEAM_ITERATIONS
from regimekit.ihmm.published import PARTICLES

_FEW_ROWS = {"synthetic": 400, "garch": 150}
_USUAL_ROWS = 1000
_SLOW_ROWS = {"auto": 150, "dsm_bocd": 200}
_ITERATIONS = 20


def kinds() -> dict[str, Part]:
    """Return one run of each kind that any item needs, by kind."""
    found: dict[str, Part] = {}
    for item in ITEMS.values():
        for part in item.parts(Plan(runs=1)):
            found.setdefault(kind(part), part)
    return found


def measure(part: Part) -> float:
    """Return seconds per 1000 rows with 100 particles, from the first rows, or per answer."""
    if part.stream in PROBES:
        begin = time.process_time()
        run_part(part)
        return time.process_time() - begin
    rows = min(
        ROWS[part.stream], _SLOW_ROWS.get(part.model, _FEW_ROWS.get(part.stream, _USUAL_ROWS))
    )
    brief = replace(part, rows=rows)
    if part.model == "beam_ihmm":
        brief = replace(brief, settings=part.settings | {"iterations": _ITERATIONS})
    spent = run_part(brief).scores["cpu_seconds"] * 1000 / rows
    if part.model == "beam_ihmm":
        spent *= BEAM_ITERATIONS / _ITERATIONS
    return spent * PARTICLES / float(part.settings.get("particles", PARTICLES))


def main(arguments: Sequence[str] = ()) -> None:
    """Measure and store every kind without a time; with `--list`, print these kinds."""
    found = dict(costs())
    if "--list" in arguments:
        print(*(name for name in kinds() if name not in found), sep="\n")
        return
    for name, part in kinds().items():
        if name not in found:
            found[name] = round(measure(part), 3)
            print(f"{name}: {found[name]} s", flush=True)
            COSTS.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
