"""Whether stale runs give the same results today: `python -m paper replay [--only ..]`.

Any change of the code that determines an outcome makes its runs stale, even if no number changes. A
replay runs the first `--seeds` of every group of stale runs (runs that differ only in the seed)
with the present source, and compares all that the ledger stores of them, except times, to the last
stored digit. If nothing differs, the rest of the group is carried over: it counts for the present
state, and its lines record the state that made them. If anything differs, the new runs replace the
old ones, and the rest stays stale: `regimekit reproduce` runs it again. Tuned settings are carried
over if the chosen ones have the same score, to the bit, on the rows of their search.

Equality for one seed over thousands of rows is strong evidence that the arithmetic is the same, but
no proof: other seeds may take other branches, and the ledger has seven digits of a score, so
smaller differences that do not grow are not detected. Times are not compared.

Run a replay before `reproduce`, which removes the stale runs of a stream when it adds to it. A
replay can be interrupted: runs are stored when they finish, and the same command continues.
`--estimate` only prints how long it takes.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paper.outcomes import ALL_ROWS, Outcome
from paper.parts import Part, code_state, data_state
from paper.plan import SEEDS, seconds
from paper.runner import execute, impossible
from paper.settings import tuned, tuned_path
from paper.store import PARTS, RUNS, Cache, Ledger, Line, side_by_side, variant, write
from paper.tuning import Search, once_more, once_more_path, searches
from regimekit.core.exceptions import RegimekitError

TIMES = ("seconds", "cpu_seconds")  # different in every run
CONFIRMED, CHANGED, LEFT = "confirmed", "changed", "left as it is"
_EVERY = tuple(SEEDS)  # streams and probes
Tell = Callable[[str], None]


class Verdict(NamedTuple):
    """Result of a replay of a group of runs, or of a search."""

    name: str
    kind: str  # CONFIRMED, CHANGED or LEFT
    carried: int = 0  # runs that were not run again
    why: str = ""


class Group(NamedTuple):
    """Runs that differ only in the seed, by seed; some of them are stale."""

    lines: tuple[Line, ...]

    @property
    def part(self) -> Part:
        """The first run."""
        return self.lines[0].part

    @property
    def name(self) -> str:
        """Stream, model and settings in one line."""
        rows = "" if self.part.rows is None else f", {self.part.rows} rows"
        settings = json.dumps(self.part.settings, sort_keys=True)
        return f"{self.part.stream} {self.part.model} {settings}{rows}"

    def not_replayed(self) -> str:
        """Return why a replay cannot represent the whole group; "" if it can.

        Runs of several states come from an earlier replay that found the group changed, so the
        results of the older ones are refuted, whichever of their seeds agree.
        """
        if len({line.outcome.source for line in self.lines}) > 1:
            return "changed before: its runs come from several states of the source"
        if reason := impossible(self.part):
            return reason
        if any(data_state(line.part) != line.data for line in self.lines):
            return "its data are not those that it was run on"
        return ""


def stale_groups(ledger: Ledger, streams: Iterable[str] = _EVERY) -> dict[str, list[Group]]:
    """Return the groups with stale runs, by stream."""
    found: dict[str, dict[tuple[Any, ...], list[Line]]] = {}
    for line in ledger.lines():
        if line.part.stream in streams:
            group = found.setdefault(line.part.stream, {}).setdefault(variant(line.part), [])
            group.append(line)
    stale = {
        stream: [
            Group(tuple(sorted(lines, key=lambda line: line.part.seed)))
            for lines in groups.values()
            if any(line.stale() for line in lines)
        ]
        for stream, groups in found.items()
    }
    return {stream: groups for stream, groups in stale.items() if groups}


def replay(
    out: Path, streams: Iterable[str] = _EVERY, seeds: int = 1, jobs: int = 1, tell: Tell = print
) -> list[Verdict]:
    """Replay the stale runs of a folder of results, and write the verdicts to its ledger.

    The ledger is written once per stream, after all its replays. Until then runs are stored in the
    cache of `reproduce`.

    Args:
        out: folder of the results.
        streams: names of streams and probes.
        seeds: number of runs of each group that are run again.
        jobs: number of processes.
        tell: function that is called with a line per replay.
    """
    ledger, cache = Ledger(out / RUNS), Cache(out / PARTS)
    chosen = stale_groups(ledger, set(streams))
    left = sum(len(due(groups, cache, seeds)) for groups in chosen.values())
    verdicts: list[Verdict] = []
    for stream, groups in chosen.items():
        failures: dict[str, str] = {}
        for part, failure in execute(due(groups, cache, seeds), cache.folder, jobs):
            left -= 1
            failures |= {part.key: failure} if failure else {}
            tell(f"{stream} {part.model}, seed {part.seed}: replayed; {left} replays to go")
        verdicts += _settle(stream, groups, ledger, cache, failures, seeds)
    return verdicts


def due(groups: Iterable[Group], cache: Cache, seeds: int) -> list[Part]:
    """Return the runs that a replay of these groups still has to make.

    Args:
        groups: the groups.
        cache: cache of outcomes.
        seeds: number of runs per group.
    """
    asked = [group.lines[:seeds] for group in groups if not group.not_replayed()]
    return [line.part for lines in asked for line in lines if not cache.has(line.part)]


def _settle(
    stream: str,
    groups: Iterable[Group],
    ledger: Ledger,
    cache: Cache,
    failures: dict[str, str],
    seeds: int,
) -> list[Verdict]:
    """Compare the groups of a stream, and write new or confirmed runs to the ledger."""
    verdicts: list[Verdict] = []
    exchanged: dict[str, Line] = {}
    for group in groups:
        if reason := group.not_replayed():
            verdicts.append(Verdict(group.name, LEFT, why=reason))
            continue
        first, rest = group.lines[:seeds], group.lines[seeds:]
        made = {line.key: _anew(line, cache.get(line.part)) for line in first}
        exchanged |= {key: line for key, line in made.items() if line is not None}
        if why := _apart(first, made, failures):
            verdicts.append(Verdict(group.name, CHANGED, why=why))
            continue
        exchanged |= {line.key: line.carried(code_state(line.part)) for line in rest}
        verdicts.append(Verdict(group.name, CONFIRMED, len(rest)))
    if exchanged:
        ledger.exchange(stream, exchanged)
    return verdicts


def _anew(line: Line, outcome: Outcome | None) -> Line | None:
    """Return the line of a replayed run, with columns if the ledger had them."""
    if outcome is None:
        return None
    columns = outcome.columns if line.outcome.columns else {}
    return line._replace(outcome=Outcome(outcome.scores, columns, outcome.source))


def _apart(lines: Iterable[Line], made: dict[str, Line | None], failures: dict[str, str]) -> str:
    """Return how the replays of a group differ from its lines; "" if they do not."""
    gaps: list[float] = []
    for line in lines:
        now = made[line.key]
        if now is None:
            return f"it failed: {failures.get(line.part.key, 'its file is damaged')}"
        gaps += differences(line.outcome, now.outcome).values()
    return f"largest relative difference {max(gaps):.2g}" if gaps else ""


def differences(old: Outcome, new: Outcome) -> dict[str, float]:
    """Return the stored numbers that differ, by name, with their relative difference.

    Args:
        old, new: outcomes.

    Example:
        >>> old = Outcome({"rmse": 0.5, "mae": 0.25, "seconds": 3.0}, {})
        >>> differences(old, Outcome({"rmse": 0.5, "mae": 0.125, "seconds": 1.0}, {}))
        {'mae': 0.5}
    """
    before, after = _numbers(old), _numbers(new)
    # A ledger stores equal scores once and returns them for all rows too.
    doubled = {name for name in before if name.removesuffix(ALL_ROWS) in after} - set(after)
    found = {}
    for name in sorted((set(before) | set(after)) - doubled):
        if name not in before or name not in after:
            found[name] = math.inf
        elif not _same(before[name], after[name]):
            found[name] = _gap(before[name], after[name])
    return found


def _numbers(outcome: Outcome) -> dict[str, Any]:
    """Return all stored values of an outcome except its times."""
    scores = {
        name: np.float64(value)
        for name, value in outcome.scores.items()
        if name.removesuffix(ALL_ROWS) not in TIMES
    }
    return scores | {f"column {name}": column for name, column in outcome.columns.items()}


def _same(old: Any, new: Any) -> bool:
    alike = old.dtype == new.dtype and old.shape == new.shape
    return alike and bool(old.tobytes() == new.tobytes())


def _gap(old: Any, new: Any) -> float:
    """Return the largest relative difference of two numbers or arrays; infinite if undefined."""
    if old.shape != new.shape:
        return math.inf
    a, b = np.float64(old), np.float64(new)
    apart = ~((a == b) | (np.isnan(a) & np.isnan(b)))
    if not apart.any():
        return 0.0
    larger = np.maximum(np.abs(a), np.abs(b))
    gap = float(np.max(np.abs(a - b)[apart] / larger[apart]))
    return gap if math.isfinite(gap) else math.inf


def stale_searches(streams: Iterable[str] = _EVERY) -> list[Search]:
    """Return the searches whose settings come from another state of the source."""
    asked = [search for search in searches() if search.stream in set(streams) and tuned(*search)]
    return [search for search in asked if search.state not in ("", tuned(*search)["state"])]


def replay_search(search: Search) -> Verdict:
    """Score the result of a search again; if the score is the same, it is carried over."""
    kept, name = tuned(*search), f"settings of {' '.join(search)}"
    if reason := not_comparable(search):
        return Verdict(name, LEFT, why=reason)
    try:
        value = once_more(search)
    except RegimekitError as error:
        return Verdict(name, CHANGED, why=f"it failed: {error}")
    if not _same(np.float64(kept["value"]), np.float64(value)):
        gap = _gap(np.float64(kept["value"]), np.float64(value))
        return Verdict(name, CHANGED, why=f"relative difference {gap:.2g}")
    kept |= {"made": kept.get("made", kept["state"]), "state": search.state}
    trial = once_more_path(search)
    write(tuned_path(*search), (json.dumps(kept, indent=1) + "\n").encode())
    trial.unlink(missing_ok=True)
    return Verdict(name, CONFIRMED)


def not_comparable(search: Search) -> str:
    """Return why one trial cannot represent a search; "" if it can."""
    kept = tuned(*search)
    if kept.get("terms") != search.terms:
        return "it was searched on other data or on other terms"
    if kept["value"] == 0:
        return "a gap of 0 means that all goals are reached, so there is no value to compare"
    return ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Replay the requested stale runs, and print the verdicts."""
    given = _given(arguments)
    if given.estimate:
        _tell_estimate(given.out, given.only, given.seeds)
        return
    try:
        verdicts = _searched(stale_searches(given.only), given.jobs)
        verdicts += replay(given.out, given.only, given.seeds, given.jobs, _say)
    except KeyboardInterrupt:
        sys.exit("interrupted: the same command goes on from here")
    for line in summary(verdicts):
        _say(line)


def _searched(chosen: Sequence[Search], jobs: int) -> list[Verdict]:
    verdicts = []
    work = side_by_side(jobs, replay_search, [(one,) for one in chosen]) if jobs > 1 else None
    for verdict in work or map(replay_search, chosen):
        verdicts.append(verdict)
        _say(f"{verdict.name}: {verdict.kind}; {len(chosen) - len(verdicts)} settings to go")
    return verdicts


def summary(verdicts: Sequence[Verdict]) -> list[str]:
    """Return lines with the number of confirmed groups, and each of the others."""
    confirmed = [verdict for verdict in verdicts if verdict.kind == CONFIRMED]
    carried = sum(verdict.carried for verdict in confirmed)
    asked = f"{len(confirmed)} of {len(verdicts)} groups and tuned settings"
    lines = [f"{CONFIRMED}: {asked}, {carried} runs carried over"]
    for kind in (CHANGED, LEFT):
        found = [verdict for verdict in verdicts if verdict.kind == kind]
        lines.append(f"{kind}: {len(found)}")
        lines += [f"  {verdict.name}: {verdict.why}" for verdict in found]
    return lines


def _tell_estimate(out: Path, streams: Sequence[str], seeds: int) -> None:
    cache, total = Cache(out / PARTS), 0.0
    for stream, groups in stale_groups(Ledger(out / RUNS), streams).items():
        parts = due(groups, cache, seeds)
        minutes = sum(seconds(part) for part in parts) / 60
        total += minutes
        stale = sum(line.stale() for group in groups for line in group.lines)
        asked = f"{len(groups)} groups, {stale} stale runs, {len(parts)} replays to do"
        _say(f"{stream}: {asked}, about {minutes:.1f} core minutes")
    chosen = [search for search in stale_searches(streams) if not not_comparable(search)]
    minutes = sum(search.minutes(1) for search in chosen)
    _say(f"tuned settings: {len(chosen)} replays to do, about {minutes:.1f} core minutes")
    _say(f"all of it: about {total + minutes:.0f} core minutes")


def _given(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m paper replay", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder of the results")
    parser.add_argument("--only", nargs="+", choices=_EVERY, default=_EVERY, help="of these")
    parser.add_argument("--seeds", type=_positive, default=1, help="of each group to run again")
    parser.add_argument("--jobs", type=_positive, default=1, help="replays side by side")
    parser.add_argument("--estimate", action="store_true", help="only print the estimated time")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return number


def _say(line: str) -> None:
    print(line, flush=True)
