"""Number of seeds of each run, estimated times, and the reduced sizes of `--quick`.

All models have the same seeds, so that differences are paired: the number in `SEEDS` for the
stream, twenty if a run takes less than a minute. Longer runs have five, and so has `auto` on a
given series, where its results hardly vary with the seed; still longer runs have two. A model
without random draws on a given series has one, and so has the offline sampler, as in the paper.
Sweeps and ablations use the first 1000 rows of the synthetic stream, and the first 4000 hours of
electricity after its training part. `runs` limits all numbers; a later call with a larger limit, or
with more seeds in `SEEDS`, adds the missing runs.
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
from regimekit.ihmm import published

MANY, FEW = 20, 5
SEEDS = {
    "synthetic": MANY,
    "electricity": FEW,
    "ofi": MANY,
    "well_log": MANY,
    "iid_gauss": MANY,
    "iid_t": MANY,
    "garch": MANY,
    "untuned": MANY,
    "auto": MANY,
    "bursts": 60,
    "stress": 12,
    "synthetic_small_signal": FEW,
    "protocol": 1,
    "objective": 1,
}
MINUTE, LONG = 60.0, 100.0  # seconds
PAIR = 2  # runs of the slowest models
SHORT_ROWS = {"synthetic": 1000, "electricity": 16_000}  # rows in a sweep
GIVEN = ("electricity", "ofi", "well_log")
DRAWS_NOTHING = ("bocd", "dsm_bocd", "least_squares", "last_value")
OFFLINE = "beam_ihmm"
ROWS = {
    "synthetic": 2500,
    "synthetic_small_signal": 2500,
    "electricity": 31_912,
    "ofi": 8333,
    "well_log": 4050,
    "iid_gauss": 1180,
    "iid_t": 1180,
    "garch": 1500,
}
COSTS = Path(__file__).parent / "costs.json"  # `python -m paper costs` measures them
_UNMEASURED = 2.0
_QUICK_ROWS = {
    "synthetic": 80,
    "synthetic_small_signal": 80,
    "electricity": 150,
    "ofi": 150,
    "well_log": 400,
    "iid_gauss": 200,
    "iid_t": 200,
    "garch": 120,
}
_QUICK = {
    **dict.fromkeys(settings.WITH_PARTICLES, ("particles", 12)),
    **dict.fromkeys(("bocd", "dsm_bocd"), ("max_run_lengths", 15)),
    "beam_ihmm": ("iterations", 20),
}
_SLOW_ROWS = {"auto": 40, "dsm_bocd": 60}  # rows of a quick run
_QUICK_ANSWERS = ("first_far_off", "4", "last_value")


@dataclass(frozen=True)
class Plan:
    """Number and size of the runs.

    Attributes:
        runs: largest number of seeds.
        quick: few rows, few particles, one seed: shows that everything runs, proves nothing.
    """

    runs: int = MANY
    quick: bool = False

    def parts(
        self,
        stream: str,
        model: str,
        variant: str,
        changes: dict[str, Any] | None = None,
        short: bool = False,
    ) -> list[Part]:
        """Return the runs of one variant, one per seed.

        Args:
            stream: name of the stream.
            model: name of the model.
            variant: one of `settings.TITLES`.
            changes: settings to change.
            short: whether it is one of many points, on fewer rows.

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
        """Return the answers to a question, one per seed; a quick plan has only fast questions."""
        if self.quick and question not in _QUICK_ANSWERS:
            return []
        seeds = 1 if self.quick else SEEDS[name]
        return [Part(name, question, seed=seed) for seed in range(seeds)]

    def count(self, part: Part) -> int:
        """Return the number of seeds of a variant."""
        if part.stream in GIVEN and part.model in (*DRAWS_NOTHING, OFFLINE):
            return 1
        if seconds(part) > LONG:
            return min(self.runs, PAIR)
        steady = part.stream in GIVEN and part.model == "auto"  # results hardly vary
        many = not steady and seconds(part) < MINUTE
        return min(self.runs, SEEDS[part.stream] if many else FEW)

    def grid(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """Return the values of a sweep; every third one in a quick plan."""
        return values[::3] if self.quick else values


def seconds(part: Part) -> float:
    """Return the estimated time of one run on one core."""
    if part.stream in PROBES:
        return costs().get(kind(part), _UNMEASURED)
    rows = ROWS[part.stream]
    share = float(part.settings.get("particles", published.PARTICLES)) / published.PARTICLES
    return row_seconds(part) * min(part.rows or rows, rows) * share


def row_seconds(part: Part) -> float:
    """Return the estimated time of a row with 100 particles."""
    return costs().get(kind(part), _UNMEASURED) / 1000


def kind(part: Part) -> str:
    """Return what determines the time of a row: stream, model, D9 on or off, edition."""
    rule = part.settings.get("rule", "default")
    drawn = rule == "paper" or (isinstance(rule, dict) and rule.get("D9") == "paper")
    words = [part.stream, part.model]
    if part.model in (*published.MODELS, "student_t_ihmm") and part.stream not in PROBES:
        weighted = part.settings.get("weight") or ("threshold" in part.settings and "imq")
        words.append("prior means drawn" if drawn else str(weighted or "own weight"))
    return " ".join(words)


@lru_cache
def costs() -> dict[str, float]:
    """Return measured seconds by kind: per 1000 rows of a run, or per answer of a probe."""
    found: dict[str, float] = json.loads(COSTS.read_text()) if COSTS.exists() else {}
    return found


def _shrunk(part: Part) -> Part:
    """Return the part at the size of a quick plan."""
    chosen = part.settings
    cut = _QUICK.get(part.model)
    less = {cut[0]: min(chosen.get(cut[0], cut[1]), cut[1])} if cut else {}
    rows = min(_QUICK_ROWS[part.stream], _SLOW_ROWS.get(part.model, 10_000))
    return replace(part, settings=chosen | less, rows=rows, pending=False)
