"""Run the parts that items need, store outcomes, and write each item when it is complete."""

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
    """Run the parts of items and write their tables and figures.

    A part with an outcome in `out` is not run again, so an interrupted call resumes. An item is
    written when its parts are complete, with the settings of that time.

    Args:
        items: the items.
        out: folder of the results.
        plan: number and size of the runs.
        jobs: number of processes.
        progress: show a progress bar with the remaining time.
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
    """Return the cache of a folder of results; quick runs are not written to the ledger."""
    return Cache(out / PARTS, None if plan.quick else Ledger(out / RUNS))


def _enter(cache: Cache, parts: Sequence[Part], results: Results) -> None:
    """Write the runs of an item to the ledger."""
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
    """Run the parts of an item, and those found to be needed, which are added to `parts`."""

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
    """Return the name of each item, the number of runs that are due, and their core minutes.

    Runs that an item shares with an earlier one are counted there; runs that are found to be needed
    later are not counted.
    """
    cache, counted = _cache(out, plan), set[str]()
    rows = []
    for item in items:
        asked = [replace(part, pending=False) for part in item.parts(plan)]  # after its search
        due = _due(asked, cache, {})
        mine = [part for key, part in due.items() if key not in counted]
        counted |= set(due)
        rows.append((item.name, len(mine), sum(seconds(part) for part in mine) / 60))
    return rows


def _distinct(parts: Iterable[Part]) -> list[Part]:
    return list({part.key: part for part in parts}.values())


def _due(parts: Iterable[Part], cache: Cache, absent: dict[str, str]) -> dict[str, Part]:
    """Return the parts without an outcome that can be run; reasons for others go to `absent`."""
    due = {}
    for part in parts:
        if reason := impossible(part):
            absent[part.key] = reason
        if part.key not in absent and not cache.has(part):
            due[part.key] = part
    return due


def impossible(part: Part) -> str:
    """Return why a part cannot be run (model or data not available); "" if it can."""
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
    """Run parts, the longest first; yield each with the reason of its failure, or ""."""
    ordered = sorted(parts, key=seconds, reverse=True)
    if jobs == 1 or len(ordered) < 2:
        for part in ordered:
            yield run_into(part, folder)
        return
    yield from side_by_side(jobs, run_into, [(part, folder) for part in ordered])


class _Bar:
    """Progress in seconds of expected work, so that the remaining time is meaningful."""

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
