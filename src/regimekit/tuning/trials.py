"""Trying settings out: one trial, many side by side, and the log that outlives an interruption.

A trial is a dict: `settings`, `value` (None if it failed), `seconds`, `state` ("complete" or
"failed") and `reason`. Its value depends on the settings, the model, the data, the objective and
the seeds alone, so that a trial in the log need never be run again.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit import metrics as evaluate
from regimekit.core.exceptions import RegimekitError
from regimekit.core.registry import make
from regimekit.metrics.scores import as_rows
from regimekit.preprocessing.frames import Table
from regimekit.tuning.search import Search, needed
from regimekit.tuning.space import Settings, key

Trial = dict[str, Any]
Objective = Callable[[evaluate.Prequential], float]
COMPLETE, FAILED = "complete", "failed"


def _lookahead(result: evaluate.Prequential) -> float:
    part = slice(result.skip, None)
    return evaluate.lookahead_mae(result.target[part], as_rows(result.run.mean)[part])


OBJECTIVES: dict[str, Objective] = {
    "rmse": lambda result: result.scores()["rmse"],
    "mae": lambda result: result.scores()["mae"],
    "lookahead_mae": _lookahead,
    "log_score": lambda result: -result.scores()["log_score"],
    "crps": lambda result: result.scores()["crps"],
}


@dataclass(frozen=True, eq=False)
class Task:
    """What is tuned, on what, and how it is judged; all rows are of the training part alone."""

    model: str
    fixed: Settings
    y: NDArray[np.float64]
    X: Table | None
    objective: str | Objective
    skip: int
    model_seeds: tuple[int | None, ...]  # None: the model takes no seed
    clean: NDArray[np.float64] | None = None  # scored against in place of y

    def try_out(self, settings: Settings) -> Trial:
        """Run the model with these settings, once per seed; a failure is recorded, not raised."""
        begin = time.perf_counter()
        value: float | None = None
        try:
            value = float(np.mean([self._value(settings, seed) for seed in self.model_seeds]))
            reason = "" if math.isfinite(value) else f"the objective is {value}"
        except Exception as error:  # whatever a setting does to a model, the search goes on
            reason = f"{type(error).__name__}: {error}"
        return {
            "settings": settings,
            "value": None if reason else value,
            "seconds": time.perf_counter() - begin,
            "state": FAILED if reason else COMPLETE,
            "reason": reason,
        }

    def _value(self, settings: Settings, seed: int | None) -> float:
        seeded = {} if seed is None else {"seed": seed}
        model = make(self.model, **(self.fixed | settings | seeded))
        result = evaluate.prequential(model, self.y, self.X, clean=self.clean, skip=self.skip)
        judge = OBJECTIVES[self.objective] if isinstance(self.objective, str) else self.objective
        return float(judge(result))

    def name(self) -> str:
        """The objective by name."""
        if isinstance(self.objective, str):
            return self.objective
        return str(getattr(self.objective, "__qualname__", type(self.objective).__qualname__))

    def identity(self) -> dict[str, Any]:
        """All that a trial's value depends on besides its settings, as JSON values."""
        digest = hashlib.sha256(self.y.tobytes())
        if self.X is not None:
            digest.update(repr(self.X.names).encode() + self.X.values.tobytes())
        if self.clean is not None:
            digest.update(b"clean" + self.clean.tobytes())
        return {
            "model": self.model,
            "settings": self.fixed,
            "objective": self.name(),
            "skip": self.skip,
            "model_seeds": list(self.model_seeds),
            "rows": len(self.y),
            "data": digest.hexdigest()[:32],
        }


@dataclass
class Log:
    """Finished trials by their settings; with a path, also as JSON lines on disk.

    The first line says what the trials are of, each other line is a trial. A line cut short by
    a crash is dropped.
    """

    identity: dict[str, Any]
    path: Path | None = None
    known: dict[str, Trial] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is None:
            return
        text = self.path.read_text() if self.path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if not whole:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(json.dumps(self.identity) + "\n")
            return
        self._take(whole.splitlines())
        if whole != text:
            self.path.write_text(whole)

    def add(self, trial: Trial) -> Trial:
        """Keep a finished trial."""
        self.known[key(trial["settings"])] = trial
        if self.path is not None:
            with self.path.open("a") as lines:
                lines.write(json.dumps(trial) + "\n")
        return trial

    def _take(self, lines: list[str]) -> None:
        try:
            first, *trials = [json.loads(line) for line in lines]
            self.known = {key(trial["settings"]): trial for trial in trials}
            differ = [name for name in self.identity if first[name] != self._plain()[name]]
        except (ValueError, KeyError, TypeError):
            raise RegimekitError(f"storage {self.path} is not a log of trials.") from None
        if differ:
            raise RegimekitError(
                f"storage {self.path} is of another search: {', '.join(differ)} differ(s). "
                "Name another file, or remove this one."
            )

    def _plain(self) -> dict[str, Any]:
        plain: dict[str, Any] = json.loads(json.dumps(self.identity))
        return plain


def explore(
    task: Task, search: Search, log: Log, first: list[Settings], budget: int, jobs: int
) -> Iterator[Trial]:
    """Trials in the order they were asked for, `budget` in all, those of the log included.

    The search is replayed against the log: whatever it asks for that is known is not run. So
    an interrupted search ends where an uninterrupted one would have. When it asks for something
    new although known trials are left (other `jobs`, another backend), those are told to it first.
    """
    used: set[str] = set()
    done = 0
    while done < budget:
        room = min(jobs, budget - done)
        asked = [*first[:room], *search.ask(room - len(first[:room]))]
        first = []
        if any(key(settings) not in log.known for settings in asked):
            keys = used | {key(settings) for settings in asked}
            left = [trial for k, trial in log.known.items() if k not in keys]
            for trial in left[: budget - done]:
                search.tell(trial["settings"], trial["value"])
                used.add(key(trial["settings"]))
                done += 1
                yield trial
            asked = asked[: budget - done]
        batch = []
        for trial in _finished(task, asked, log, jobs):
            used.add(key(trial["settings"]))
            done += 1
            batch.append(trial)
            yield trial
        for trial in batch:
            search.tell(trial["settings"], trial["value"])


def _finished(task: Task, asked: list[Settings], log: Log, jobs: int) -> Iterator[Trial]:
    """A trial for each of the settings, in order; known ones are taken from the log."""
    new = {key(settings): settings for settings in asked if key(settings) not in log.known}
    results = _side_by_side(task, list(new.values()), jobs)
    for settings in asked:
        known = log.known.get(key(settings))
        yield known if known is not None else log.add(next(results))


def _side_by_side(task: Task, points: list[Settings], jobs: int) -> Iterator[Trial]:
    if jobs == 1 or len(points) < 2:
        return map(task.try_out, points)
    joblib = needed("joblib", f"jobs={jobs}")
    pool = joblib.Parallel(n_jobs=jobs, return_as="generator")
    return iter(pool(joblib.delayed(task.try_out)(settings) for settings in points))
