"""How much to run: how many seeds of what, and what `--quick` cuts off.

Every variant gets about the same time: `runs` asks for that many runs of a cheap one, and
for as many of a dear one as take about as long, but for no fewer than three. Where an item varies
something over many points, each gets a share of that (no fewer than two of a dear one, one of the
dearest), and electricity is cut to its training part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from holdfast.models.registry import REGISTRY
from paper import settings
from paper.parts import Part

CHEAP = 3.0  # seconds of a run that is done as often as asked for
LEAST = 3  # runs of a dear variant, if as many are asked for ..
LEAST_SHARED = 2  # .. and where it is one of many
DEAREST = 30.0  # seconds of a run that is then done only once
SHARED_ROWS = {"electricity": 12_000}
DETERMINISTIC = ("bocd", "dsm_bocd", "least_squares")  # they draw nothing

# Seconds of one run with 100 particles on one core, roughly: they set run counts and the time left.
_SECONDS = {
    "synthetic": 5.0, "electricity": 90.0, "ofi": 16.0, "well_log": 6.0,
    "iid_gauss": 1.5, "iid_t": 1.5, "garch": 20.0,
}  # fmt: skip
_ROWS = {
    "synthetic": 2500, "electricity": 31_912, "ofi": 8333, "well_log": 4050,
    "iid_gauss": 1180, "iid_t": 1180, "garch": 1500,
}  # fmt: skip
_UNSHARED = 14.0  # with 100 features, particles that share no regime (D9) cost this much more
_QUICK_ROWS = {
    "synthetic": 150, "electricity": 250, "ofi": 250, "well_log": 500,
    "iid_gauss": 250, "iid_t": 250, "garch": 200,
}  # fmt: skip
_QUICK = {"particles": 15, "iterations": 30, "max_run_lengths": 25}


@dataclass(frozen=True)
class Plan:
    """How much to run.

    Attributes:
        runs: seeds of a cheap variant.
        quick: few rows, few particles, one seed: shows that everything runs, proves nothing.
    """

    runs: int = 100
    quick: bool = False

    def parts(
        self, stream: str, model: str, rule: str, changes: dict[str, Any] | None = None,
        share: float = 1.0,
    ) -> list[Part]:  # fmt: skip
        """The runs of one variant, one per seed.

        Args:
            stream: by name.
            model: by name.
            rule: "paper" for the paper's settings under its rule, "holdfast" for ours.
            changes: settings to change.
            share: of the runs that the plan would give it.

        Example:
            >>> [p.seed for p in Plan(runs=2).parts("iid_t", "br_ihmm", "holdfast")]
            [0, 1]
        """
        first = settings.part(stream, model, rule, changes)
        if self.quick:
            return [_shrunk(first)]
        if share < 1:
            first = replace(first, rows=SHARED_ROWS.get(stream))
        return [replace(first, seed=seed) for seed in range(self.count(first, share))]

    def count(self, part: Part, share: float = 1.0) -> int:
        """How many seeds a variant is run with."""
        fixed = part.stream in ("electricity", "ofi", "well_log")
        if part.model == "beam_ihmm" or (fixed and part.model in DETERMINISTIC):
            return 1
        asked = max(1, math.ceil(self.runs * share))
        fair = math.ceil(asked * CHEAP / seconds(part))
        least = LEAST
        if share < 1:
            least = LEAST_SHARED if seconds(part) < DEAREST else 1
        return min(asked, max(fair, least))

    def grid(self, values: tuple[int, ...]) -> tuple[int, ...]:
        """The values of a sweep; every third one when quick."""
        return values[::3] if self.quick else values


def seconds(part: Part) -> float:
    """About how long one run takes on one core."""
    rows = _ROWS[part.stream]
    spent = _SECONDS[part.stream] * min(part.rows or rows, rows) / rows
    if part.stream == "synthetic" and _unshared(part.settings.get("rule")):
        spent *= _UNSHARED
    particles = part.settings.get("particles")
    if particles is not None:
        return max(0.1, spent * float(particles) / settings.PARTICLES)
    online = part.model in REGISTRY and REGISTRY[part.model].online
    return max(0.1, spent * (0.5 if online else 10.0))


def _unshared(rule: Any) -> bool:
    """Whether every particle draws new regimes of its own."""
    return rule == "paper" or (isinstance(rule, dict) and rule.get("D9") == "paper")


def _shrunk(part: Part) -> Part:
    """The part with what `--quick` cuts off."""
    chosen = part.settings
    less = {name: min(chosen[name], n) for name, n in _QUICK.items() if name in chosen}
    if part.model in DETERMINISTIC:
        less["max_run_lengths"] = _QUICK["max_run_lengths"]
    return replace(part, settings=chosen | less, rows=_QUICK_ROWS[part.stream])
