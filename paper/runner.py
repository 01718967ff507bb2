"""Runs what the items need, keeps it, and writes each item as soon as its parts are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import holdfast
from holdfast.errors import HoldfastError
from paper import output
from paper.parts import Cache, Part, run_into
from paper.plan import Plan, seconds
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
    absent = _absent(part for parts in wanted.values() for part in parts)
    due = _due(wanted.values(), cache, absent)
    written = []
    with _Bar(due, progress) as bar:
        for item in items:
            parts = wanted[item.name]
            mine = [part for part in parts if part.key in due and not cache.has(part)]
            for part, failure in _execute(mine, cache.folder, jobs):
                bar.advance(part, item.name)
                if failure:
                    absent[part.key] = failure
            kept = {part.key: outcome for part in parts if (outcome := cache.get(part))}
            written.append(output.write(item, Results(plan, kept, absent), parts, out))
    output.write_index(out)
    return written


def _distinct(parts: Iterable[Part]) -> list[Part]:
    return list({part.key: part for part in parts}.values())


def _due(groups: Iterable[list[Part]], cache: Cache, absent: dict[str, str]) -> dict[str, Part]:
    """What is neither kept nor impossible."""
    return {
        part.key: part for parts in groups for part in parts
        if part.key not in absent and not cache.has(part)
    }  # fmt: skip


def _absent(parts: Iterable[Part]) -> dict[str, str]:
    """Why parts cannot be run, by key: a model that is not here, data that cannot be had."""
    reasons: dict[str, str] = {}
    known: dict[str, str] = {}
    for part in parts:
        if part.stream not in known:
            known[part.stream] = _missing_data(part.stream)
        if part.model not in holdfast.models():
            reasons[part.key] = f"not run: this version has no model {part.model}"
        elif known[part.stream]:
            reasons[part.key] = known[part.stream]
    return reasons


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
