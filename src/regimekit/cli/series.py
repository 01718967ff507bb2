"""`regimekit run --by COLUMN`: many series of one table, side by side, one failing alone."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regimekit.cli.console import Voice, number
from regimekit.cli.destination import MODELS, Destination, Sheet, to_parquet
from regimekit.cli.interruption import Interruption
from regimekit.cli.job import Job, Prepared, prepare
from regimekit.cli.record import RECORD, record
from regimekit.core.exceptions import RegimekitError
from regimekit.io.columns import Columns
from regimekit.io.source import Row
from regimekit.panel import Recipe, SeriesRun, Task, run_all

_SHEETS = {"run": "run.csv", "events": "events.csv", "regimes": "regimes.csv"}


def run_by(job: Job, out: Path, jobs: int, seed: int, form: str, voice: Voice) -> None:
    """Run every series and write long tables that begin with the series' name."""
    if job.horizon and job.wishes.columns:
        raise RegimekitError("--by with --columns cannot look ahead; leave --horizon out.")
    job.check()
    with Destination(out) as destination:
        prepared = prepare(job, voice)
        recipe = Recipe(
            prepared.model_name,
            job.model_settings(),
            seed,
            job.level,
            job.horizon,
            prepared.season,
            job.burn_in,
        )
        summary = _write_all(prepared, recipe, jobs, destination, voice)
        if form == "parquet":
            to_parquet(destination.path("run.csv"), destination.path("run.parquet"))
            destination.path("run.csv").unlink()
        destination.write_json(RECORD, record(**summary))
        summary["files"] = destination.commit()
    summary["out"] = str(out)
    _tell(summary, voice)
    if not summary["series"]:
        raise RegimekitError("None of the series could be run; errors.csv says why.")


def _write_all(
    prepared: Prepared, recipe: Recipe, jobs: int, destination: Destination, voice: Voice
) -> dict[str, Any]:
    names = [*_SHEETS.values(), *(["forecasts.csv"] if recipe.horizon else []), "scores.csv"]
    sheets = {name: Sheet(destination.path(name)) for name in names}
    by = str(prepared.layout.by)
    scores: dict[str, dict[str, float]] = {}
    errors: dict[str, str] = {}
    taken: set[str] = set()  # names of snapshots
    interrupted = False
    with Interruption() as stop, voice.progress("series") as show:
        for one in run_all(_tasks(prepared), recipe, jobs):
            key = str(one.key)
            if one.error:
                errors[key] = one.error
                voice.warn(f"series {key}: {one.error}")
            else:
                scores[key] = one.scores
                _write(one, key, by, sheets, destination, taken)
            show(len(scores) + len(errors))
            if stop.heard:
                interrupted = True
                break
    if errors:
        sheets["errors.csv"] = Sheet(destination.path("errors.csv"))
        sheets["errors.csv"].add({by: list(errors), "error": list(errors.values())})
    for sheet in sheets.values():
        sheet.close()
    return {
        "file": prepared.job.request.file,
        "target": prepared.layout.target,
        "by": by,
        "model": recipe.model,
        "series": len(scores),
        "observations": sheets["run.csv"].rows,
        "scores": scores,
        "errors": errors,
        "interrupted": interrupted,
    }


def _write(
    one: SeriesRun,
    key: str,
    by: str,
    sheets: dict[str, Sheet],
    destination: Destination,
    taken: set[str],
) -> None:
    parts = {"run.csv": one.run, "events.csv": one.events, "regimes.csv": one.regimes}
    parts |= {"forecasts.csv": one.forecasts, "scores.csv": {n: [v] for n, v in one.scores.items()}}
    for name, columns in parts.items():
        if name in sheets:
            sheets[name].add(_with_key(columns, by, key))
    destination.path(f"{MODELS}/{_file_name(key, taken)}.regimekit").write_bytes(one.model)


def _with_key(columns: Columns, by: str, key: str) -> Columns:
    length = len(next(iter(columns.values()), []))
    return {by: [key] * length} | columns if columns else {}


def _file_name(key: str, taken: set[str]) -> str:
    """A key as the name of a file, on any system, other than those taken."""
    name = re.sub(r"[^\w.-]+", "_", key).strip(".")[:100] or "_"
    if name.lower() in taken:  # also where only the case differs: some systems see no difference
        name = f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    taken.add(name.lower())
    return name


def _tasks(prepared: Prepared) -> Iterator[Task]:
    """The series one after the other; the table comes sorted by their names."""
    layout = prepared.layout
    place = layout.used.index(str(layout.by))
    key: Any = None
    rows: list[Row] = []
    for chunk in prepared.chunks():
        for row in chunk:
            if rows and row[place] != key:
                yield Task(key, rows, layout)
                rows = []
            key = row[place]
            rows.append(row)
    if rows:
        yield Task(key, rows, layout)


def _tell(summary: dict[str, Any], voice: Voice) -> None:
    voice.result(summary)
    voice.say()
    rows = []
    for key, scores in list(summary["scores"].items())[:20]:
        shown = [number(scores[n]) if scores else "" for n in ("mae", "mae_last_value")]
        rows.append([key, *shown, f"{scores['coverage']:.1%}" if scores else ""])
    voice.table([summary["by"], "MAE", "MAE of the last value", "held"], rows)
    if len(summary["scores"]) > 20:
        voice.say(f"  .. and {len(summary['scores']) - 20} more, in scores.csv")
    voice.say(
        f"{summary['series']} series, {len(summary['errors'])} failed, "
        f"{summary['observations']} observations"
    )
    voice.say(f"results in {summary['out']}: {', '.join(summary['files'][:8])}")
