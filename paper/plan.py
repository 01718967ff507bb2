"""How much to run: how many seeds of what, how long it takes, and what `--quick` cuts off.

Twenty seeds of what takes less than a minute on one core, five of the rest, one of what draws
nothing on a stream that is given. `runs` caps all of it; a later call with a higher cap adds what
is missing. Sweeps and ablations cut electricity to its training part.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from paper import settings
from paper.parts import Part
from paper.probes import PROBES

MANY, FEW = 20, 5
MINUTE = 60.0
SHORT_ROWS = {"electricity": 12_000}  # in a sweep
DRAWS_NOTHING = ("bocd", "dsm_bocd", "least_squares", "last_value")
ROWS = {
    "synthetic": 2500, "electricity": 31_912, "ofi": 8333, "well_log": 4050,
    "iid_gauss": 1180, "iid_t": 1180, "garch": 1500,
}  # fmt: skip
COSTS = Path(__file__).parent / "costs.json"  # `python -m paper costs` measures them
_UNMEASURED = 2.0
_QUICK_ROWS = {
    "synthetic": 80, "electricity": 150, "ofi": 150, "well_log": 400,
    "iid_gauss": 200, "iid_t": 200, "garch": 120,
}  # fmt: skip
_QUICK = {
    **dict.fromkeys(settings.WITH_PARTICLES, ("particles", 12)),
    **dict.fromkeys(("bocd", "dsm_bocd"), ("max_run_lengths", 15)),
    "beam_ihmm": ("iterations", 20),
}
_SLOW_ROWS = {"auto": 40, "dsm_bocd": 60}  # of a quick run
_QUICK_ANSWERS = ("first_far_off", "4", "last_value")


@dataclass(frozen=True)
class Plan:
    """How much to run.

    Attributes:
        runs: at most so many seeds of anything.
        quick: few rows, few particles, one seed: shows that everything runs, proves nothing.
    """

    runs: int = MANY
    quick: bool = False

    def parts(
        self, stream: str, model: str, variant: str, changes: dict[str, Any] | None = None,
        short: bool = False,
    ) -> list[Part]:  # fmt: skip
        """The runs of one variant, one per seed.

        Args:
            stream: by name.
            model: by name.
            variant: one of `settings.TITLES`.
            changes: settings to change.
            short: cut electricity, for one of many points.

        Example:
            >>> [p.seed for p in Plan(runs=2).parts("iid_t", "br_ihmm", "second")]
            [0, 1]
        """
        first = settings.part(stream, model, variant, changes)
        if short:
            first = replace(first, rows=SHORT_ROWS.get(stream))
        if self.quick:
            return [_shrunk(first)]
        return [replace(first, seed=seed) for seed in range(self.count(first))]

    def probe(self, name: str, question: str) -> list[Part]:
        """The answers to a question, one per seed; when quick only to the quickest."""
        if self.quick and question not in _QUICK_ANSWERS:
            return []
        seeds = 1 if self.quick else PROBES[name].seeds
        return [Part(name, question, seed=seed) for seed in range(seeds)]

    def count(self, part: Part) -> int:
        """How many seeds a variant is run with."""
        given = part.stream in ("electricity", "ofi", "well_log")
        if given and part.model in DRAWS_NOTHING:
            return 1
        return min(self.runs, MANY if seconds(part) < MINUTE else FEW)

    def grid(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """The values of a sweep; every third one when quick."""
        return values[::3] if self.quick else values


def seconds(part: Part) -> float:
    """About how long one run takes on one core, from one that was measured."""
    if part.stream in PROBES:
        return costs().get(kind(part), PROBES[part.stream].seconds)
    rows = ROWS[part.stream]
    share = float(part.settings.get("particles", settings.PARTICLES)) / settings.PARTICLES
    return row_seconds(part) * min(part.rows or rows, rows) * share


def row_seconds(part: Part) -> float:
    """About how long a row takes with 100 particles."""
    return costs().get(kind(part), _UNMEASURED) / 1000


def kind(part: Part) -> str:
    """What decides how long a row takes: stream, model, whether D9 is mended, which edition."""
    rule = part.settings.get("rule", "holdfast")
    drawn = rule == "paper" or (isinstance(rule, dict) and rule.get("D9") == "paper")
    words = [part.stream, part.model]
    if part.model in (*settings.ONLINE, "student_t_ihmm") and part.stream not in PROBES:
        weighted = part.settings.get("weight") or ("threshold" in part.settings and "imq")
        words.append("prior means drawn" if drawn else str(weighted or "own weight"))
    return " ".join(words)


@lru_cache
def costs() -> dict[str, float]:
    """Seconds by kind, as measured: per 1000 rows of a run, of one answer of a probe."""
    found: dict[str, float] = json.loads(COSTS.read_text()) if COSTS.exists() else {}
    return found


def _shrunk(part: Part) -> Part:
    """The part with what `--quick` cuts off."""
    chosen = part.settings
    cut = _QUICK.get(part.model)
    less = {cut[0]: min(chosen.get(cut[0], cut[1]), cut[1])} if cut else {}
    rows = min(_QUICK_ROWS[part.stream], _SLOW_ROWS.get(part.model, 10_000))
    return replace(part, settings=chosen | less, rows=rows)
