"""Runs what the items need, keeps it, and writes each item as soon as its parts are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import holdfast
from holdfast.errors import HoldfastError
from paper import output
from paper.parts import Cache, Part, data_state, run_into
from paper.plan import Plan, seconds
from paper.probes import PROBES
from paper.streams import stream
from paper.tables import Item, Results

PARTS = ".parts"  # folder of outcomes, inside the folder of results


def reproduce(
    items: Sequence[Item], out: Path, plan: Plan, jobs: int = 1, progress: bool = False
) -> list[output.Written]:
    """Run the items' parts and write their tables and figures.

    A part whose outcome is kept in `out` is not run again, so an interrupted call resumes.

    Args:
        items: what to make.
        out: folder of the results.
        plan: how much to run.
        jobs: parts run side by side, each in a process.
        progress: show a progress bar with the time left.
    """
    cache = Cache(out / PARTS)
    wanted = {item.name: _distinct(item.parts(plan)) for item in items}
    absent: dict[str, str] = {}
    everything = [part for parts in wanted.values() for part in parts]
    written = []
    with _Bar(_due(everything, cache, absent), progress) as bar:
        for item in items:
            parts = wanted[item.name]
            results = _completed(item, parts, plan, cache, absent, jobs, bar)
            written.append(output.write(item, results, parts, out))
            output.write_index(out)
    return written


def _completed(
    item: Item, parts: list[Part], plan: Plan, cache: Cache, absent: dict[str, str], jobs: int,
    bar: _Bar,
) -> Results:  # fmt: skip
    """Run what an item needs, and what it turns out to need; `parts` is extended by that."""
    while True:
        due = _due(parts, cache, absent)
        for part, failure in _execute(list(due.values()), cache.folder, jobs):
            bar.advance(part, item.name)
            if failure:
                absent[part.key] = failure
        kept = {part.key: outcome for part in parts if (outcome := cache.get(part))}
        results = Results(plan, kept, absent)
        known = {part.key for part in parts}
        further = [part for part in _distinct(item.more(results)) if part.key not in known]
        if not further:
            return results
        parts.extend(further)


def estimate(items: Sequence[Item], out: Path, plan: Plan) -> list[tuple[str, int, float]]:
    """For each item: its name, the runs that are due, and about how many core minutes they take.

    What an item shares with one before it is counted there; what it will turn out to need is not.
    """
    cache, counted = Cache(out / PARTS), set[str]()
    rows = []
    for item in items:
        due = _due(item.parts(plan), cache, {})
        mine = [part for key, part in due.items() if key not in counted]
        counted |= set(due)
        rows.append((item.name, len(mine), sum(seconds(part) for part in mine) / 60))
    return rows


def _distinct(parts: Iterable[Part]) -> list[Part]:
    return list({part.key: part for part in parts}.values())


def _due(parts: Iterable[Part], cache: Cache, absent: dict[str, str]) -> dict[str, Part]:
    """What is neither kept nor impossible; why it is impossible is noted in `absent`."""
    due = {}
    for part in parts:
        if reason := _impossible(part):
            absent[part.key] = reason
        if part.key not in absent and not cache.has(part):
            due[part.key] = part
    return due


def _impossible(part: Part) -> str:
    """Why a part cannot be run: a model that is not here, data that cannot be had."""
    if part.stream in PROBES:
        return ""
    if part.model not in holdfast.models():
        return f"not run: this version has no model {part.model}"
    return "" if data_state(part) else _missing_data(part.stream)


def _missing_data(name: str) -> str:
    try:
        stream(name)
    except HoldfastError as error:
        return f"not run: {error}"
    return ""


def _execute(parts: list[Part], folder: Path, jobs: int) -> Iterator[tuple[Part, str]]:
    """Run parts, the longest first; each with why it failed, as they come in."""
    ordered = sorted(parts, key=seconds, reverse=True)
    if jobs == 1 or len(ordered) < 2:
        for part in ordered:
            yield run_into(part, folder)
        return
    joblib = _joblib()
    # One thread of linear algebra per process: more would fight over the same cores.
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        run = joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
        yield from run(joblib.delayed(run_into)(part, folder) for part in ordered)


def _joblib() -> Any:
    try:
        import joblib
    except ImportError:
        raise HoldfastError("jobs above 1 needs joblib: pip install 'holdfast[bench]'.") from None
    return joblib


class _Bar:
    """Progress in seconds of expected work, so that the time left means something."""

    def __init__(self, due: dict[str, Part], shown: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        self.progress = Progress(
            TextColumn("{task.description:<22}"), BarColumn(),
            TextColumn("{task.fields[done]}/{task.fields[parts]} runs"), TimeElapsedColumn(),
            TextColumn("left"), Remaining(), disable=not shown or not due,
        )  # fmt: skip
        total = sum(seconds(part) for part in due.values())
        self.task = self.progress.add_task("runs", total=total, done=0, parts=len(due))
        self.done = 0

    def advance(self, part: Part, name: str) -> None:
        self.done += 1
        self.progress.update(self.task, advance=seconds(part), description=name, done=self.done)

    def __enter__(self) -> _Bar:
        self.progress.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self.progress.stop()
