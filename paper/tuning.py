"""The same search for every model and rule: `python -m paper tune [--streams ..] [--models ..]`.

Everybody gets the same ranges, objective, number of trials, training rows, particles and optimiser;
models differ only in which of the settings they have. Of a real series only the training part is
seen, of a generated one other seeds than any table uses. No label is used: judged is the CRPS of
one-step forecasts of the observed values, which one outlier cannot run away with and which asks
for honest intervals. The one exception says what it is: *hindsight* searches for the printed
numbers of the paper on the very stream that is scored (`recovery`).

A search that was done from the same source is not done again; `--again` does it all the same, and
`--estimate` only says how long the rest takes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast import evaluate
from holdfast._numba import cache_folder
from holdfast.models.registry import REGISTRY
from holdfast.tuning import tune
from holdfast.tuning.trials import Objective
from paper import settings
from paper.parts import RUN_THRESHOLD
from paper.plan import row_seconds
from paper.recovery import GOALS, Goal
from paper.settings import (
    FIRST,
    HINDSIGHT,
    ONLINE,
    PAPER,
    PAPER_R,
    PLAIN,
    SECOND,
    STARTS,
    STATED_NOISE,
    WITH_PARTICLES,
    start,
    tuned,
    tuned_path,
)
from paper.streams import Stream, stream

BUDGET = 40
PARTICLES = 50  # enough to rank settings; experiments run with more
SKIP = 100  # first rows that are learnt and not scored
TRAINING_SEEDS = {"synthetic": (10_000,)}  # of generated streams, joined ..
_USUAL_SEEDS = (10_000, 10_001, 10_002)  # .. where nothing else is said
ROWS = {"electricity": 6_000}  # the last so many of the training part, for time
DEGREES = (1, 2)  # of the electricity covariates
RANGES: dict[str, tuple[Any, ...]] = {
    "batch": ("int", 1, 24, "log"),
    "threshold": ("float", 1.0, 8.0, "log"),
    "outlier_rate": ("float", 0.005, 0.2, "log"),
    "noise": ("float", 0.003, 3.0, "log"),
    "noise_scale": ("float", 0.015, 15.0, "log"),
    "prior_var": ("float", 0.03, 100.0, "log"),
    "ess_threshold": ("float", 0.05, 0.95),
    "sticky": ("float", 0.1, 300.0, "log"),
    "hazard": ("float", 1e-4, 0.2, "log"),
    "scale": ("float", 0.3, 3.0, "log"),
    "ridge": ("float", 1e-6, 100.0, "log"),
}
TERMS = (
    f"{BUDGET} trials of optuna's tree-structured Parzen estimator each, {PARTICLES} particles, "
    "one seed, by the CRPS of one-step forecasts of the training part (its last 6000 hours of "
    "electricity; three other streams for the iid levels, one for the synthetic regression), the "
    "first 100 rows learnt and not scored. On electricity the power p of the covariates, 1 or 2, "
    "is searched too."
)
_FAMILY = ("prior_var", "ess_threshold")
_PAPER_R_STREAMS = ("synthetic", "electricity", "well_log")


class Search(NamedTuple):
    """Whose settings are searched, on what."""

    stream: str
    model: str
    variant: str

    def space(self) -> tuple[str, ...]:
        """The settings that are searched."""
        if self.variant == PAPER_R:
            return ("noise",)
        own = {"bocd": ("hazard", "noise", "prior_var"), "least_squares": ("ridge",)}
        own["dsm_bocd"] = ("hazard", "noise", "prior_var", "scale")
        names = own.get(self.model) or (*self._weight(), self._noise(), *_FAMILY, *self._sticky())
        stated = self.stream in STATED_NOISE
        return tuple(n for n in names if not (stated and n in ("noise", "noise_scale")))

    def _weight(self) -> tuple[str, ...]:
        if self.model == "ihmm" or self.variant == PLAIN:
            return ()
        if self.model == "wolf_ihmm":
            return ("threshold",)
        return ("batch", "outlier_rate" if self.variant == SECOND else "threshold")

    def _noise(self) -> str:
        return "noise_scale" if self.model == "student_t_ihmm" else "noise"

    def _sticky(self) -> tuple[str, ...]:
        return () if self.variant in (PAPER, HINDSIGHT) else ("sticky",)

    @property
    def state(self) -> str:
        """The source that a trial's value depends on."""
        return cache_folder(REGISTRY[self.model].module).name

    def minutes(self, budget: int) -> float:
        """About how long it takes on one core, from a run that was measured."""
        seen = training_part(stream(self.stream), self.variant == HINDSIGHT)
        trial = settings.part(*self)
        share = PARTICLES / settings.PARTICLES if self.model in WITH_PARTICLES else 1.0
        return budget * row_seconds(trial) * len(seen.y) * share / 60

    def done(self) -> bool:
        """Whether it was done from this source."""
        return bool(tuned(*self).get("state") == self.state)


def searches() -> list[Search]:
    """All of them, those that most hangs on first."""
    ours = [("br_ihmm", SECOND), ("br_ihmm", PAPER), ("br_ihmm", FIRST)]
    rivals = [(model, variant) for model in ONLINE[1:] for variant in (PAPER, SECOND)]
    rivals += [("student_t_ihmm", SECOND), ("student_t_ihmm", FIRST)]
    found = [Search(name, *pair) for pair in [*ours, *rivals] for name in STARTS]
    for variant in (PAPER_R, HINDSIGHT):
        found += [Search(name, "br_ihmm", variant) for name in _PAPER_R_STREAMS]
    others = ("synthetic", "electricity", "ofi")
    found += [Search(name, model, SECOND) for model in ("bocd", "least_squares") for name in others]
    found.append(Search("well_log", "student_t_ihmm", PLAIN))
    return [*found, Search("well_log", "dsm_bocd", SECOND)]


class Training(NamedTuple):
    """What a search may see."""

    y: Any
    X: Any


def training_part(source: Stream, hindsight: bool = False) -> Training:
    """The rows that a search may see; in hindsight those that are scored."""
    if hindsight:
        return Training(source.data.y, source.data.X)
    if not source.generated:
        rows = slice(max(0, source.train - ROWS.get(source.name, source.train)), source.train)
        return Training(source.data.y[rows], None if source.data.X is None else source.data.X[rows])
    seeds = TRAINING_SEEDS.get(source.name, _USUAL_SEEDS)
    seen = [stream(source.name, seed).data for seed in seeds]
    X = None if seen[0].X is None else np.concatenate([np.asarray(one.X) for one in seen])
    return Training(np.concatenate([one.y for one in seen]), X)


def printed_gap(goals: Sequence[Goal], truth: Sequence[int]) -> Objective:
    """How far a run is from the printed numbers, for `tune`; 0 if it reaches all of them."""

    def gap(result: evaluate.Prequential) -> float:
        found = {"rmse_observed": result.scores()["rmse"]}
        if truth:
            match = evaluate.match_regimes(result.run.path, truth, RUN_THRESHOLD)
            delay = evaluate.detection_delay(result.run.path, truth)
            found |= {"ppv": match.ppv, "tpr": match.tpr, "delay": delay}
        return sum(goal.gap(found[goal.score]) for goal in goals)

    gap.__qualname__ = printed_gap.__name__  # as which the result names its objective
    return gap


def run(search: Search, budget: int = BUDGET, jobs: int = 1, progress: bool = True) -> Path:
    """Search, and keep what was found."""
    hindsight = search.variant == HINDSIGHT
    source = stream(search.stream)
    seen = training_part(source, hindsight)
    space: dict[str, Any] = {name: RANGES[name] for name in search.space()}
    fixed = {k: v for k, v in start(*search).items() if k not in space}
    if search.model in WITH_PARTICLES:
        fixed["particles"] = PARTICLES
    if search.model != "dsm_bocd":
        fixed["features"] = source.features
    designs = [stream(search.stream, degree=p).features.to_json() for p in DEGREES]
    if search.stream == "electricity" and search.variant != PAPER_R:
        del fixed["features"]
        space["features"] = ("choice", designs)
    aim: str | Objective = "crps"
    if hindsight:
        aim = printed_gap(GOALS[search.stream], source.data.changepoints)
    found = tune(
        search.model, seen.y, seen.X, space, aim, budget, settings=fixed,
        skip=0 if hindsight else SKIP, jobs=jobs, progress=progress,
    )  # fmt: skip
    best = {name: found.best[name] for name in search.space()}
    kept = {"best": best, "value": found.value, "objective": found.objective}
    if "features" in space:
        kept["degree"] = DEGREES[designs.index(found.best["features"])]
    kept |= {"trials": len(found.trials), "failed": len(found.failures), "state": search.state}
    kept |= {"rows": len(seen.y), "seconds": sum(trial["seconds"] for trial in found.trials)}
    path = tuned_path(*search)
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(kept, indent=1) + "\n")
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """Search what is asked for and not there."""
    parser = argparse.ArgumentParser(prog="python -m paper tune", description=__doc__)
    everything = searches()
    known = {name: sorted({str(getattr(s, name)) for s in everything}) for name in Search._fields}
    for name, values in known.items():
        parser.add_argument(f"--{name}s", nargs="+", choices=values, default=values)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--estimate", action="store_true")
    given = parser.parse_args(arguments)
    total = 0.0
    for search in everything:
        wanted = all(getattr(search, n) in getattr(given, f"{n}s") for n in Search._fields)
        if not wanted or (search.done() and not given.again):
            continue
        minutes = search.minutes(given.budget)
        total += minutes
        if not given.estimate:
            run(search, given.budget, given.jobs)
        print(f"{' '.join(search)}: about {minutes:.1f} core minutes", flush=True)
    print(f"all of it: about {total:.0f} core minutes")
