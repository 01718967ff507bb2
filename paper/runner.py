"""Runs what the items need, keeps it, and writes each item as soon as its parts are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import regimekit
from paper import output, settings
from paper.catalogue import ITEMS
from paper.outcomes import Outcome
from paper.parts import Part, data_state
from paper.plan import Plan, seconds
from paper.probes import PROBES
from paper.store import PARTS, RUNS, Cache, Ledger, run_into, side_by_side
from paper.streams import stream
from paper.tables import Item, Results
from regimekit.core.exceptions import RegimekitError


def reproduce(
    items: Sequence[Item], out: Path, plan: Plan, jobs: int = 1, progress: bool = False
) -> list[output.Written]:
    """Run the items' parts and write their tables and figures.

    A part whose outcome is kept in `out` is not run again, so an interrupted call resumes. An
    item is written as soon as its parts are there, with the settings as they are at that time.

    Args:
        items: what to make.
        out: folder of the results.
        plan: how much to run.
        jobs: parts run side by side, each in a process.
        progress: show a progress bar with the time left.
    """
    cache = _cache(out, plan)
    absent: dict[str, str] = {}
    everything = [part for item in items for part in item.parts(plan)]
    written: list[output.Written] = []
    needed: list[Part] = []
    with _Bar(_due(everything, cache, absent), progress) as bar:
        for item in items:
            with settings.cached_files():
                parts = _distinct(item.parts(plan))
                results = _completed(item, parts, plan, cache, absent, jobs, bar)
                written.append(output.write(item, results, parts, out))
            _enter(cache, parts, results)
            needed += parts
            output.write_index(out)
    if cache.ledger is not None and {item.name for item in items} >= set(ITEMS):
        cache.ledger.prune(needed)
    return written


def _cache(out: Path, plan: Plan) -> Cache:
    """What is kept in a folder of results; a quick run proves nothing and enters no ledger."""
    return Cache(out / PARTS, None if plan.quick else Ledger(out / RUNS))


def _enter(cache: Cache, parts: Sequence[Part], results: Results) -> None:
    """Enter what an item rests on into the ledger."""
    if cache.ledger is not None:
        done = [(part, found) for part in parts if (found := cache.get(part))]
        cache.ledger.keep(done, results.drawn)


def _completed(
    item: Item,
    parts: list[Part],
    plan: Plan,
    cache: Cache,
    absent: dict[str, str],
    jobs: int,
    bar: _Bar,
) -> Results:
    """Run what an item needs, and what it turns out to need; `parts` is extended by that."""

    def again(part: Part) -> Outcome | None:
        run_into(part, cache.folder)
        return cache.get(part)

    while True:
        due = _due(parts, cache, absent)
        for part, failure in execute(list(due.values()), cache.folder, jobs):
            bar.advance(part, item.name)
            if failure:
                absent[part.key] = failure
        kept = {part.key: outcome for part in parts if (outcome := cache.get(part))}
        results = Results(plan, kept, absent, again)
        known = {part.key for part in parts}
        further = [part for part in _distinct(item.more(results)) if part.key not in known]
        if not further:
            return results
        parts.extend(further)


def estimate(items: Sequence[Item], out: Path, plan: Plan) -> list[tuple[str, int, float]]:
    """For each item: its name, the runs that are due, and about how many core minutes they take.

    What an item shares with one before it is counted there; what it will turn out to need is not.
    """
    cache, counted = _cache(out, plan), set[str]()
    rows = []
    for item in items:
        asked = [replace(part, pending=False) for part in item.parts(plan)]  # it will be searched
        due = _due(asked, cache, {})
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
        if reason := impossible(part):
            absent[part.key] = reason
        if part.key not in absent and not cache.has(part):
            due[part.key] = part
    return due


def impossible(part: Part) -> str:
    """Why a part cannot be run: a model that is not here, data that cannot be had."""
    if part.stream in PROBES:
        return ""
    if part.pending:
        return "not run: its settings are not searched yet (python -m paper tune)"
    if part.model not in regimekit.models():
        return f"not run: this version has no model {part.model}"
    return "" if data_state(part) else _missing_data(part.stream)


def _missing_data(name: str) -> str:
    try:
        stream(name)
    except RegimekitError as error:
        return f"not run: {error}"
    return ""


def execute(parts: list[Part], folder: Path, jobs: int) -> Iterator[tuple[Part, str]]:
    """Run parts, the longest first; each with why it failed, as they come in."""
    ordered = sorted(parts, key=seconds, reverse=True)
    if jobs == 1 or len(ordered) < 2:
        for part in ordered:
            yield run_into(part, folder)
        return
    yield from side_by_side(jobs, run_into, [(part, folder) for part in ordered])


class _Bar:
    """Progress in seconds of expected work, so that the time left means something."""

    def __init__(self, due: dict[str, Part], shown: bool) -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.progress import TimeRemainingColumn as Remaining

        self.progress = Progress(
            TextColumn("{task.description:<22}"),
            BarColumn(),
            TextColumn("{task.fields[done]}/{task.fields[parts]} runs"),
            TimeElapsedColumn(),
            TextColumn("left"),
            Remaining(),
            disable=not shown or not due,
        )
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
