"""Run one model per series of a table, `regimekit run --by COLUMN`, and report on all of them."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from regimekit.cli import output
from regimekit.cli.console import Console, Interrupt, format_number
from regimekit.cli.output import CsvWriter, ResultFolder
from regimekit.cli.pipeline import Pipeline, PipelineOptions, open_pipeline
from regimekit.cli.stream_run import REPORT_HORIZON
from regimekit.core.display import count
from regimekit.core.exceptions import RegimekitError
from regimekit.core.registry import from_bytes
from regimekit.io.columns import Columns
from regimekit.io.reader import Row
from regimekit.panel import PanelSettings, SeriesResult, SeriesTask, run_tasks
from regimekit.preprocessing.time_index import read_times
from regimekit.results import NO_REGIME

MAX_PAGES = 200  # series that have a report of their own
_PRINTED_SERIES = 20
_MAX_NAME = 100  # characters of a snapshot's file name


def run_panel(
    options: PipelineOptions, out: Path, jobs: int, seed: int, file_format: str, console: Console
) -> None:
    """Run every series and write tables that start with the name of the series.

    Raises:
        RegimekitError: if no series could be run.
    """
    if options.horizon and options.choice.columns:
        raise RegimekitError("--by with --columns cannot forecast ahead. Leave out --horizon.")
    options.check()
    with ResultFolder(out, output.PANELS, options.inputs, options.request.sql) as folder:
        pipeline = open_pipeline(options, console)
        settings = PanelSettings(
            options.model_name,
            options.model_settings(pipeline.layout.covariates),
            seed,
            options.level,
            options.horizon,
            pipeline.season,
            options.burn_in,
        )
        summary = _run_all(pipeline, settings, jobs, folder, console, file_format == "csv")
        if file_format == "parquet":
            folder.convert_run_to_parquet()
        own = {"format": file_format, "level": options.level, "horizon": options.horizon}
        record = summary | own
        folder.write_record(**record)
        if summary["series"]:
            horizon = options.horizon or REPORT_HORIZON
            write_panel_report(folder.staging, record, folder.path, horizon, console)
        summary |= {"files": folder.commit(), "out": str(out)}
    _print_summary(summary, console)
    if not summary["series"]:
        raise RegimekitError("No series could be run; errors.csv contains the reasons.")


def _run_all(
    pipeline: Pipeline,
    settings: PanelSettings,
    jobs: int,
    folder: ResultFolder,
    console: Console,
    escape: bool,
) -> dict[str, Any]:
    by = str(pipeline.layout.by)
    names = [output.RUN, output.EVENTS, output.REGIMES, output.SCORES]
    names += [output.FORECASTS] if settings.horizon else []
    scores: dict[str, dict[str, float]] = {}
    errors: dict[str, str] = {}
    used_names: set[str] = set()
    snapshots: dict[str, str] = {}
    with ExitStack() as stack:
        files = {
            n: stack.enter_context(CsvWriter(folder.path(n), escape or n != output.RUN))
            for n in names
        }
        interrupt = stack.enter_context(Interrupt())
        update = stack.enter_context(console.progress("series", pipeline.count))
        for one in run_tasks(_tasks(pipeline), settings, jobs):
            key = str(one.key)
            if one.error:
                errors[key] = one.error
                console.warn(f"series {key}: {one.error}")
            else:
                scores[key] = one.scores
                for name, columns in _tables(one).items():
                    if name in files and columns:
                        length = len(next(iter(columns.values())))
                        files[name].add({by: [key] * length} | columns)
                snapshot = f"{output.MODELS}/{_file_name(key, used_names)}.regimekit"
                folder.path(snapshot).write_bytes(one.model)
                snapshots[key] = snapshot
            update(len(scores) + len(errors))
            if interrupt.requested:
                break
    if errors:
        columns = {by: list(errors), "error": list(errors.values())}
        output.write_csv(folder.path(output.ERRORS), columns)
    return {
        "file": pipeline.options.request.name,
        "target": pipeline.layout.target,
        "by": by,
        "model": settings.model,
        "series": len(scores),
        "observations": files[output.RUN].rows,
        "scores": scores,
        "errors": errors,
        "snapshots": snapshots,
        "interrupted": interrupt.requested,
    }


def _tables(one: SeriesResult) -> dict[str, Columns]:
    return {
        output.RUN: one.run,
        output.EVENTS: one.events,
        output.REGIMES: one.regimes,
        output.FORECASTS: one.forecasts,
        output.SCORES: {name: [value] for name, value in one.scores.items()},
    }


def _file_name(key: str, used: set[str]) -> str:
    """Return a unique file name for a series.

    File systems that ignore case are common, so names must differ by more than case.
    """
    name = re.sub(r"[^\w.-]+", "_", key).strip(".")[:_MAX_NAME] or "_"
    if name.lower() in used:
        name = f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    used.add(name.lower())
    return name


def _tasks(pipeline: Pipeline) -> Iterator[SeriesTask]:
    """Yield the series one after the other; the rows come sorted by series."""
    layout = pipeline.layout
    position = layout.used.index(str(layout.by))
    key: Any = None
    rows: list[Row] = []
    for chunk in pipeline.chunks():
        for row in chunk:
            if rows and row[position] != key:
                yield SeriesTask(key, rows, layout)
                rows = []
            key = row[position]
            rows.append(row)
    if rows:
        yield SeriesTask(key, rows, layout)


def _print_summary(summary: dict[str, Any], console: Console) -> None:
    console.result(summary)
    console.info()
    rows = []
    for key, scores in list(summary["scores"].items())[:_PRINTED_SERIES]:
        errors = [format_number(scores.get(name)) for name in ("mae", "mae_last_value")]
        rows.append([key, *errors, f"{scores['coverage']:.1%}" if scores else ""])
    console.table([summary["by"], "MAE", "MAE of the last value", "coverage"], rows)
    if len(summary["scores"]) > _PRINTED_SERIES:
        console.info(f"  .. and {len(summary['scores']) - _PRINTED_SERIES} more, in scores.csv")
    console.info(
        f"{summary['series']} series, {len(summary['errors'])} failed, "
        f"{summary['observations']} observations"
    )
    flat = [name for name in summary["files"] if "/" not in name]
    folders = Counter(name.split("/")[0] for name in summary["files"] if "/" in name)
    parts = [*flat, *(f"{name}/ ({count(n, 'file')})" for name, n in folders.items())]
    console.info(f"results in {summary['out']}: {', '.join(parts)}")


def write_panel_report(
    folder: Path,
    record: dict[str, Any],
    path: Callable[[str], Path],
    horizon: int,
    console: Console,
) -> None:
    """Write report.html, an overview of all series, and a page per series in `reports`.

    Without jinja2 a warning is printed instead.

    Args:
        folder: folder with run.csv (or run.parquet), events.csv and the snapshots.
        record: content of run.json.
        path: returns the path to which a file of the report is written.
        horizon: steps to forecast.
        console: output.
    """
    try:
        report = importlib.import_module("regimekit.report")
    except ModuleNotFoundError as error:
        console.warn(f"report.html was not written: {error.name} is not installed.")
        return
    entries = []
    for key, snapshot in list(record["snapshots"].items())[:MAX_PAGES]:
        model = from_bytes((folder / snapshot).read_bytes())
        run, y, times = output.read_rows(folder, record["format"], (record["by"], key))
        page = f"{output.REPORTS}/{Path(snapshot).stem}.html"
        scores = record["scores"].get(key, {})
        report.write_report(
            path(page),
            run=run,
            model=model,
            y=y,
            times=times,
            title=f"{key}: {record['target']}",
            horizon=horizon,
            scores=scores or None,
            settings=model.settings(),
            back="../report.html",
        )
        entries.append(_entry(key, page, run, y, times, scores))
    title = f"{record['target']} by {record['by']}"
    content = report.render_overview(
        title=title,
        entries=entries,
        left_out=len(record["snapshots"]) - len(entries),
        errors=record["errors"],
        model=record["model"],
    )
    path(output.REPORT).write_text(content)


def _entry(
    key: str, page: str, run: Any, y: Any, times: Any, scores: dict[str, float]
) -> dict[str, Any]:
    visited = run.path[run.path != NO_REGIME]
    labels = read_times(times, len(y)).labels()
    changes = run.changepoints
    error, last = scores.get("mae"), scores.get("mae_last_value")
    return {
        "key": key,
        "page": page,
        "values": y,
        "observations": len(y),
        "missing": int(np.isnan(y).sum()),
        "regimes": len(np.unique(visited)),
        "regime": int(visited[-1]) if visited.size else None,
        "changes": len(changes),
        "last_change": labels[changes[-1]] if changes else "",
        "outliers": int(run.outlier.sum()),
        "mae": format_number(error),
        "ratio": f"{error / last:.2f}" if error is not None and last else "",
        "coverage": f"{scores['coverage']:.0%}" if "coverage" in scores else "",
    }
