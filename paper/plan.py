"""How much to run: how many seeds of what, how long it takes, and what `--quick` cuts off.

All models have the same seeds, so that differences are paired: as many as `SEEDS` says of the
stream, twenty where a run takes under a minute. Five has what takes longer, and `auto` on a given
series, where little changes with its seed; two has what takes longer still. What draws nothing on a
given series has one, and so has the sampler that has seen all of it, as in the paper. Sweeps and
ablations take the first 1000 rows of the synthetic stream, and of electricity the first 4000 hours
after its training part. `runs` caps all of it; a later call with a higher cap, or with more in
`SEEDS`, adds what is missing.
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
PAIR = 2  # runs of what takes long
SHORT_ROWS = {"synthetic": 1000, "electricity": 16_000}  # in a sweep
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
        self,
        stream: str,
        model: str,
        variant: str,
        changes: dict[str, Any] | None = None,
        short: bool = False,
    ) -> list[Part]:
        """The runs of one variant, one per seed.

        Args:
            stream: by name.
            model: by name.
            variant: one of `settings.TITLES`.
            changes: settings to change.
            short: one of many points, on fewer rows.

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
        seeds = 1 if self.quick else SEEDS[name]
        return [Part(name, question, seed=seed) for seed in range(seeds)]

    def count(self, part: Part) -> int:
        """How many seeds a variant is run with."""
        if part.stream in GIVEN and part.model in (*DRAWS_NOTHING, OFFLINE):
            return 1
        if seconds(part) > LONG:
            return min(self.runs, PAIR)
        steady = part.stream in GIVEN and part.model == "auto"  # little changes with its seed
        many = not steady and seconds(part) < MINUTE
        return min(self.runs, SEEDS[part.stream] if many else FEW)

    def grid(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """The values of a sweep; every third one when quick."""
        return values[::3] if self.quick else values


def seconds(part: Part) -> float:
    """About how long one run takes on one core, from one that was measured."""
    if part.stream in PROBES:
        return costs().get(kind(part), _UNMEASURED)
    rows = ROWS[part.stream]
    share = float(part.settings.get("particles", published.PARTICLES)) / published.PARTICLES
    return row_seconds(part) * min(part.rows or rows, rows) * share


def row_seconds(part: Part) -> float:
    """About how long a row takes with 100 particles."""
    return costs().get(kind(part), _UNMEASURED) / 1000


def kind(part: Part) -> str:
    """What decides how long a row takes: stream, model, whether D9 is corrected, which edition."""
    rule = part.settings.get("rule", "default")
    drawn = rule == "paper" or (isinstance(rule, dict) and rule.get("D9") == "paper")
    words = [part.stream, part.model]
    if part.model in (*published.MODELS, "student_t_ihmm") and part.stream not in PROBES:
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
    return replace(part, settings=chosen | less, rows=rows, pending=False)
