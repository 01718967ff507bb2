"""Reports of a run with several series: an overview, and one page per series."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from regimekit.cli import output
from regimekit.cli.console import Console, format_number
from regimekit.core.registry import from_bytes
from regimekit.preprocessing.time_index import read_times
from regimekit.results import NO_REGIME

MAX_PAGES = 200  # series that have a page of their own


def write_panel_report(
    folder: Path, record: dict[str, Any], path: Callable[[str], Path], horizon: int
) -> None:
    """Write report.html, an overview of all series, and a page per series in `reports`.

    Args:
        folder: folder with run.csv (or run.parquet), events.csv and the snapshots.
        record: content of run.json.
        path: returns the path to which a file of the report is written.
        horizon: steps to forecast.

    Raises:
        ModuleNotFoundError: if a library that the report needs is not installed.
    """
    report = importlib.import_module("regimekit.report")
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


def try_panel_report(
    folder: Path,
    record: dict[str, Any],
    path: Callable[[str], Path],
    horizon: int,
    console: Console,
) -> None:
    """Write the report; without jinja2, print a warning instead."""
    try:
        write_panel_report(folder, record, path, horizon)
    except ModuleNotFoundError as error:
        console.warn(f"report.html was not written: {error.name} is not installed.")
