"""`python -m benchmarks.public`: run what is not there yet, then write the tables.

--quick takes two short series per task, to see that everything runs. Results that are there are
kept; --renew measures holdfast's own models again where their source has changed since.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import time
from functools import cache
from pathlib import Path
from typing import Any

from rich.console import Console

import holdfast
from benchmarks.public import report
from benchmarks.public.series import Absent, Series, scaled
from benchmarks.public.tasks import OURS, TASKS, Task

PACKAGES = ("numpy", "river", "statsforecast", "ruptures", "sktime", "statsmodels")
QUICK_SERIES, QUICK_ROWS = 2, 120
QUICK_ANOMALIES = 500  # rows; the first anomalies come late
console = Console()


def main(arguments: list[str] | None = None) -> None:
    options = _options(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.tasks:
        _run(name, TASKS[name], options)
    results = [json.loads(path.read_text()) for path in sorted(options.out.rglob("*.json"))]
    text = report.markdown(results, _versions())
    for path in filter(None, (options.out / "report.md", options.page)):
        path.write_text(text)
    console.print(text)


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.public", description=__doc__)
    parser.add_argument("--out", type=Path, default=None, help="folder of the results")
    parser.add_argument("--quick", action="store_true", help="two short series per task")
    parser.add_argument("--renew", action="store_true", help="measure changed models again")
    parser.add_argument("--page", type=Path, default=None, help="a copy of the report")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    options = parser.parse_args(arguments)
    options.out = options.out or Path("out/public-quick" if options.quick else "out/public")
    return options


def _run(name: str, task: Task, options: argparse.Namespace) -> None:
    for key in list(task.series)[: QUICK_SERIES if options.quick else None]:
        for peer in task.peers:
            path = options.out / name / key.replace("/", "-") / f"{peer}.json"
            if not path.is_file() or (options.renew and _outdated(path)):
                result = {"task": name, "series": key, "peer": peer}
                _write(path, result | _measured(task, key, peer, options.quick))


def _outdated(path: Path) -> bool:
    """Whether a result is of one of holdfast's own models, made from another source."""
    result = json.loads(path.read_text())
    return result["peer"] in OURS and result.get("source") != source()


@cache
def source() -> str:
    """Which holdfast this is: a digest of all its modules."""
    folder = Path(holdfast.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:12]


def _measured(task: Task, key: str, peer: str, quick: bool) -> dict[str, Any]:
    """The numbers, or why there are none: a peer may fail in any way it likes."""
    begun, made = time.perf_counter(), {"versions": _versions(), "source": source()}
    try:
        whole = task.series[key]()
        one = scaled(whole)
        made |= {"taken": len(one.y), "length": len(whole.y)}
        made |= task.measure(one.first(_quick_rows(one)) if quick else one, peer)
    except Absent as error:
        made["error"] = f"series: {error}"
    except Exception as error:
        made["error"] = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
    return made | {"seconds": round(time.perf_counter() - begun, 2)}


def _quick_rows(one: Series) -> int:
    return QUICK_ANOMALIES if one.anomalies else QUICK_ROWS


def _write(path: Path, result: dict[str, Any]) -> None:
    """Whole or not at all: a stopped run leaves no half file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(result, indent=1))
    partial.replace(path)
    console.print(
        f"{result['task']} {result['series']} {result['peer']}: {result.get('error', 'done')}"
    )


def _versions() -> dict[str, str]:
    found = {"holdfast": holdfast.__version__}  # of the source, which an install may be behind
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


if __name__ == "__main__":
    main()
