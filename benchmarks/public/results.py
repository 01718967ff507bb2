"""Results on disk, to be committed: a file per task with a line of JSON per series and peer.

Lines are sorted, so that a renewed result is one changed line. The whole file is replaced after
every result, so an interrupted run can be resumed. A deleted line is computed again.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Result = dict[str, Any]
Key = tuple[str, str]  # series and peer


def read(folder: Path, task: str) -> dict[Key, Result]:
    """Return all results of a task, in order."""
    path = _path(folder, task)
    lines = path.read_text().splitlines() if path.is_file() else []
    results = [{"task": task, **json.loads(line)} for line in lines]
    return {(one["series"], one["peer"]): one for one in results}


def keep(folder: Path, result: Result) -> None:
    """Write a result, in place of an older one; results of other processes are kept."""
    found = read(folder, result["task"])
    found[result["series"], result["peer"]] = result
    lines = [json.dumps(_without_task(one)) + "\n" for _, one in sorted(found.items())]
    path = _path(folder, result["task"])
    folder.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_text("".join(lines))
    partial.replace(path)


def _without_task(result: Result) -> Result:
    """Return a result without its task, which is the name of the file."""
    return {name: value for name, value in result.items() if name != "task"}


def _path(folder: Path, task: str) -> Path:
    return folder / f"{task}.jsonl"
