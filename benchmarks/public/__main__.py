"""`python -m benchmarks.public`: run what is missing or out of date, then show the tables.

Results are stored in docs/benchmarks, with the versions, the data and the source that made them.
Results of the same origin are not run again, in this checkout or another; an interrupted run is
resumed. --quick takes two short series per task, as a test.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.console import Console

from benchmarks.public import report, results
from benchmarks.public.corpus import Absent, loaded
from benchmarks.public.origin import Origin, origin, renewable, stale
from benchmarks.public.results import Result
from benchmarks.public.series import Series, scaled
from benchmarks.public.tasks import TASKS

RESULTS = Path(__file__).parents[2] / "docs" / "benchmarks"
QUICK = Path("out/public-quick")
QUICK_SERIES, QUICK_ROWS = 2, 120
QUICK_ANOMALIES = 500  # rows; the first anomalies are late in a series
console = Console()


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    for asked in _asked(options.quick):
        if asked.task in options.tasks and asked.peer in options.peers:
            _renew(asked, options.out)
    found, lacking = _collected(options)
    text = report.markdown(found)
    console.print(text, markup=False, soft_wrap=True)
    if options.page and lacking:
        sys.exit(f"{options.page} is as it was: {lacking} results are missing or out of date.")
    if options.page:
        options.page.write_text(text)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    peers = sorted({peer for task in TASKS.values() for peer in task.peers})
    parser = argparse.ArgumentParser(prog="python -m benchmarks.public", description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="two short series per task")
    parser.add_argument("--page", type=Path, default=None, help="write it, if all is there")
    _several(parser, "--tasks", list(TASKS))
    _several(parser, "--peers", peers)
    options = parser.parse_args(arguments)
    options.out = options.out or (QUICK if options.quick else RESULTS)
    return options


def _several(parser: argparse.ArgumentParser, name: str, known: list[str]) -> None:
    help_text = f"run only these of {', '.join(known)}"
    parser.add_argument(
        name, nargs="+", choices=known, default=known, metavar="NAME", help=help_text
    )


class Asked(NamedTuple):
    """A task, series and peer."""

    task: str
    series: str
    peer: str
    whole: Series | Absent

    def now(self) -> Origin:
        """Return the origin of an answer on this machine."""
        return origin(self.task, self.peer, self.whole)


def _asked(quick: bool) -> Iterator[Asked]:
    """Yield every task, series and peer."""
    for name, task in TASKS.items():
        for series, maker in list(task.series.items())[: QUICK_SERIES if quick else None]:
            whole = _shortened(loaded(maker)) if quick else loaded(maker)
            yield from (Asked(name, series, peer, whole) for peer in task.peers)


def _shortened(whole: Series | Absent) -> Series | Absent:
    if isinstance(whole, Absent):
        return whole
    return whole.first(QUICK_ANOMALIES if whole.anomalies else QUICK_ROWS)


def _renew(asked: Asked, folder: Path) -> None:
    """Run a peer unless its result is present, or cannot be computed on this machine."""
    before = results.read(folder, asked.task).get((asked.series, asked.peer))
    now = asked.now()
    if before is None or (stale(before, now) and renewable(now)):
        names = {"task": asked.task, "series": asked.series, "peer": asked.peer}
        numbers = _measured(asked)
        results.keep(folder, names | now | numbers)
        console.print(*names.values(), numbers.get("error", "done"), markup=False)


def _collected(options: argparse.Namespace) -> tuple[list[Result], int]:
    """Return the present results, and the number of missing or outdated ones."""
    stored = {task: results.read(options.out, task) for task in TASKS}
    found, lacking = [], 0
    for asked in sorted(_asked(options.quick), key=lambda one: one[:3]):
        result = stored[asked.task].get((asked.series, asked.peer))
        found += [result] if result else []
        lacking += result is None or stale(result, asked.now())
    return found, lacking


def _measured(asked: Asked) -> Result:
    """Return the result, or the reason of a failure, whatever the exception."""
    if isinstance(asked.whole, Absent):
        return {"error": f"series: {asked.whole}"}
    one = scaled(asked.whole)
    made: Result = {"taken": len(one.y), "length": len(asked.whole.y)}
    begun = time.process_time()  # independent of other load
    try:
        made |= TASKS[asked.task].measure(one, asked.peer)
    except Exception as error:
        made["error"] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    return made | {"seconds": round(time.process_time() - begun, 2)}


if __name__ == "__main__":
    main()
