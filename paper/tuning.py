"""The same search for every model and rule: `python -m paper tune [--streams ..] [--models ..]`.

All searches have the same ranges, objective, number of trials, training rows, particles and
optimiser; models differ only in which of the settings they have. Of a real series only the training
part is used, of a generated one other seeds than in the tables. No label is used. The objective is
the CRPS of one-step forecasts of the observed values; on streams whose tables score regimes alone
(`REGIME_STREAMS`) it is the log score plus a cost of every switch, because settings tuned by CRPS
switch too often. There are two exceptions. *paper* tunes as the paper does: by
`bayesian-optimization`, for the look-ahead MAE on well-log and the RMSE elsewhere (`AIMS`).
*hindsight* searches for the printed numbers of the paper on the stream that is scored (`recovery`).

A search that was done by the same source on the same terms is not repeated, except with `--again`;
`--estimate` only prints the remaining time. Trials are stored when they finish, so an interrupted
search resumes. `--jobs` searches run in parallel; their number does not change the results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paper import settings
from paper.outcomes import RUN_THRESHOLD
from paper.parts import JUDGES
from paper.plan import SHORT_ROWS, row_seconds
from paper.recovery import GOALS, Goal
from paper.settings import (
    FIRST,
    HINDSIGHT,
    PAPER,
    PAPER_R,
    PLAIN,
    SECOND,
    STARTS,
    WITH_PARTICLES,
    start,
    tuned,
    tuned_path,
)
from paper.state import state
from paper.store import PARTS, side_by_side, write
from paper.streams import Stream, stream
from regimekit import metrics as evaluate
from regimekit.core.exceptions import RegimekitError
from regimekit.core.registry import REGISTRY
from regimekit.ihmm import published
from regimekit.ihmm.published import MODELS as ONLINE
from regimekit.ihmm.published import STATED_NOISE
from regimekit.tuning import TuneResult, tune
from regimekit.tuning.search import OBJECTIVES, Objective

BUDGET = 40
PARTICLES = 50  # enough to rank settings; experiments run with more
SKIP = 100  # first rows that update the model and are not scored
TRAINING_SEEDS = {"synthetic": (10_000,)}  # of generated streams, joined
_USUAL_SEEDS = (10_000, 10_001, 10_002)  # of the other generated streams
ROWS = {"electricity": 6_000, "synthetic": 1_000}  # last rows of the training part, to save time
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
    "electricity; three other streams of the iid levels; the last 1000 rows of another stream of "
    "the synthetic regression), the first 100 rows learnt and not scored. On the iid levels and "
    "on well-log the objective is the log score plus a cost of every switch of regimes. On "
    "electricity the power p of the covariates, 1 or 2, is searched too. The paper's rule is tuned "
    "as the paper does: by bayesian-optimization, for the look-ahead MAE on well-log and the RMSE "
    "elsewhere."
)
# Objectives of the paper: the look-ahead MAE on well-log, else PAPER_AIM.
AIMS = {"well_log": "lookahead_mae"}
PAPER_AIM = "rmse"
REGIME_STREAMS = ("iid_gauss", "iid_t", "well_log")
_FAMILY = ("prior_var", "ess_threshold")
_PAPER_R_STREAMS = ("synthetic", "electricity", "well_log")


class Search(NamedTuple):
    """A search: stream, model and variant."""

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
        """Hash of source, data and terms that determine the result; "" without data."""
        try:
            seen = _seen(self.stream, self.variant == HINDSIGHT)
        except RegimekitError:
            return ""
        made = (REGISTRY[self.model].module,)  # a search makes no other model
        code = state((*made, "regimekit.tuning", *JUDGES), made=made)
        return _named([seen, code, *self._terms()])

    @property
    def terms(self) -> str:
        """Hash of data and terms alone, which a replay of one trial cannot confirm."""
        try:
            return _named([_seen(self.stream, self.variant == HINDSIGHT), *self._terms()])
        except RegimekitError:
            return ""

    def _terms(self) -> list[Any]:
        space = {name: RANGES[name] for name in self.space()}
        terms = [space, start(*self), PARTICLES, SKIP, DEGREES]
        if self.variant == PAPER:
            return [*terms, self.aim, self.backend]
        return terms if self.aim == "crps" else [*terms, self.aim]

    @property
    def aim(self) -> str:
        """The objective of a search by forecasts."""
        if self.variant == PAPER:
            return AIMS.get(self.stream, PAPER_AIM)
        regimes = self.stream in REGIME_STREAMS and self.variant != PAPER_R
        return "regimes" if regimes else "crps"

    @property
    def backend(self) -> str:
        """The optimiser."""
        return "bayesopt" if self.variant == PAPER else "optuna"

    def minutes(self, budget: int) -> float:
        """Return the estimated time on one core."""
        seen = training_part(stream(self.stream), self.variant == HINDSIGHT)
        trial = settings.part(*self)
        share = PARTICLES / published.PARTICLES if self.model in WITH_PARTICLES else 1.0
        return budget * row_seconds(trial) * len(seen.y) * share / 60

    def done(self, budget: int = BUDGET) -> bool:
        """Return whether it was done by this source, on these terms, with as many trials."""
        kept = tuned(*self)
        return kept.get("state") == self.state and kept.get("trials", 0) >= budget


def searches() -> list[Search]:
    """Return all searches, the most important first."""
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


def outdated(stream: str, model: str, variant: str) -> bool:
    """Return whether the settings found for a variant come from another state of the source."""
    search = Search(stream, model, variant)
    return search in _listed() and search.state not in ("", tuned(*search).get("state"))


@lru_cache
def _listed() -> frozenset[Search]:
    return frozenset(searches())


class Training(NamedTuple):
    """The data of a search."""

    y: Any
    X: Any


def training_part(source: Stream, hindsight: bool = False) -> Training:
    """Return the rows that a search may use; in hindsight the first of the scored ones.

    Args:
        source: the stream.
        hindsight: whether the search is in hindsight.
    """
    if hindsight:
        scored = source.head(SHORT_ROWS.get(source.name)).data
        return Training(scored.y, scored.X)
    if not source.generated:
        rows = slice(max(0, source.train - ROWS.get(source.name, source.train)), source.train)
        return Training(source.data.y[rows], None if source.data.X is None else source.data.X[rows])
    seeds = TRAINING_SEEDS.get(source.name, _USUAL_SEEDS)
    seen = [stream(source.name, seed).data for seed in seeds]
    X = None if seen[0].X is None else np.concatenate([np.asarray(one.X) for one in seen])
    y = np.concatenate([one.y for one in seen])
    rows = slice(-ROWS.get(source.name, y.size), None)
    return Training(y[rows], None if X is None else X[rows])


@lru_cache
def _seen(name: str, hindsight: bool) -> str:
    """Return a hash of the data of a search."""
    seen = training_part(stream(name), hindsight)
    digest = hashlib.sha256(np.ascontiguousarray(seen.y).tobytes())
    if seen.X is not None:
        digest.update(np.ascontiguousarray(seen.X).tobytes())
    return digest.hexdigest()[:12]


def _named(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def printed_gap(goals: Sequence[Goal], truth: Sequence[int]) -> Objective:
    """Return an objective for `tune`: the distance from printed numbers, 0 if all are reached."""

    def gap(result: evaluate.Prequential) -> float:
        found = {"rmse_observed": result.scores()["rmse"]}
        if truth:
            match = evaluate.match_regimes(result.run.path, truth, RUN_THRESHOLD)
            delay = evaluate.detection_delay(result.run.path, truth)
            found |= {"ppv": match.ppv, "tpr": match.tpr, "delay": delay}
        return sum(goal.gap(found[goal.score]) for goal in goals)

    gap.__qualname__ = printed_gap.__name__  # the name of the objective in the result
    return gap


def run(search: Search, budget: int = BUDGET, progress: bool = True) -> Path:
    """Search, and store the result; finished trials count.

    Args:
        search: the search.
        budget: number of trials.
        progress: show a progress bar.

    Returns:
        The file of the result.
    """
    source = stream(search.stream)
    space: dict[str, Any] = {name: RANGES[name] for name in search.space()}
    fixed = _fixed(search, source, space)
    designs = _designs(search)
    if search.stream == "electricity" and search.variant != PAPER_R:
        del fixed["features"]
        space["features"] = ("choice", designs)
    path = tuned_path(*search)
    trials = path.parent / PARTS / f"{path.stem}-{search.state}.jsonl"
    found = _tried(search, space, fixed, _aim(search, source), budget, trials, progress)
    kept: dict[str, Any] = {"best": {name: found.best[name] for name in search.space()}}
    kept |= {"value": found.value, "objective": found.objective}
    if "features" in space:
        kept["degree"] = DEGREES[designs.index(found.best["features"])]
    kept |= {"trials": len(found.trials), "failed": len(found.failures), "state": search.state}
    kept |= {"terms": search.terms, "rows": found.info["rows"]}
    kept |= {"seconds": sum(trial["seconds"] for trial in found.trials)}
    write(path, (json.dumps(kept, indent=1) + "\n").encode())
    trials.unlink(missing_ok=True)
    return path


def once_more(search: Search) -> float:
    """Return and store the present score of the settings that a search chose, on the same rows.

    It is a search of one trial among one choice, so the value is computed by the same code.
    """
    kept, source = tuned(*search), stream(search.stream)
    space = {name: ("choice", [value]) for name, value in kept["best"].items()}
    fixed = _fixed(search, source, space)
    if "degree" in kept:
        fixed["features"] = _designs(search)[DEGREES.index(kept["degree"])]
    aim = _aim(search, source)
    judge = OBJECTIVES[aim] if isinstance(aim, str) else aim  # a function has no reference values
    return _tried(search, space, fixed, judge, 1, once_more_path(search), False).value


def once_more_path(search: Search) -> Path:
    """Return the file in which `once_more` stores its trial."""
    path = tuned_path(*search)
    return path.parent / PARTS / f"{path.stem}-{search.state}-once-more.jsonl"


def _tried(
    search: Search,
    space: Mapping[str, Any],
    fixed: Mapping[str, Any],
    aim: str | Objective,
    budget: int,
    storage: Path,
    progress: bool,
) -> TuneResult:
    """Return the trials of a search over a space; an interruption is raised."""
    seen = training_part(stream(search.stream), search.variant == HINDSIGHT)
    found = tune(
        search.model,
        seen.y,
        seen.X,
        space,
        aim,
        budget,
        settings=fixed,
        skip=0 if search.variant == HINDSIGHT else SKIP,
        backend=search.backend,
        storage=storage,
        progress=progress,
    )
    if found.interrupted:
        raise KeyboardInterrupt
    return found


def _designs(search: Search) -> list[Any]:
    """Return the features for each of `DEGREES`."""
    return [stream(search.stream, degree=p).features.to_json() for p in DEGREES]


def _fixed(search: Search, source: Stream, space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that are not searched."""
    fixed = {name: value for name, value in start(*search).items() if name not in space}
    if search.model in WITH_PARTICLES:
        fixed["particles"] = PARTICLES
    if search.model != "dsm_bocd":
        fixed["features"] = source.features
    return fixed


def _aim(search: Search, source: Stream) -> str | Objective:
    """Return the objective of a search: forecasts, or in hindsight the printed numbers."""
    if search.variant != HINDSIGHT:
        return search.aim
    scored = source.head(SHORT_ROWS.get(source.name)).data
    return printed_gap(GOALS[search.stream], scored.changepoints)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the requested searches that are not done."""
    given = _given(arguments)
    if given.out is not None:
        settings.TUNED = given.out
    chosen = [
        search
        for search in searches()
        if all(getattr(search, n) in getattr(given, f"{n}s") for n in Search._fields)
        and (given.again or not search.done(given.budget))
    ]
    minutes = {search: search.minutes(given.budget) for search in chosen}
    for search in chosen if given.estimate else _done(chosen, given.budget, given.jobs):
        print(f"{' '.join(search)}: about {minutes[search]:.1f} core minutes", flush=True)
    print(f"all of it: about {sum(minutes.values()):.0f} core minutes")


def _given(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m paper tune", description=__doc__)
    for name in Search._fields:
        values = sorted({str(getattr(search, name)) for search in searches()})
        parser.add_argument(f"--{name}s", nargs="+", choices=values, default=values)
    parser.add_argument("--budget", type=int, default=BUDGET, help="trials of each search")
    parser.add_argument("--jobs", type=int, default=1, help="searches side by side")
    parser.add_argument("--again", action="store_true", help="repeat searches that are done")
    parser.add_argument("--estimate", action="store_true", help="only print the estimated time")
    parser.add_argument("--out", type=Path, help="folder of the settings found, for a trial run")
    return parser.parse_args(arguments)


def _done(chosen: Sequence[Search], budget: int, jobs: int) -> Iterator[Search]:
    """Yield the searches when they are done, in order if there is one job."""
    if jobs == 1:
        for search in chosen:
            run(search, budget)
            yield search
        return
    yield from side_by_side(jobs, _quietly, [(search, budget) for search in chosen])


def _quietly(search: Search, budget: int) -> Search:
    run(search, budget, progress=False)
    return search
