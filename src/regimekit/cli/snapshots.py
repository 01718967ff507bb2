"""Use the model of an earlier run: `inspect`, `label`, `forecast`, `report`."""

from __future__ import annotations

import os
from pathlib import Path

from regimekit.cli import output
from regimekit.cli.console import Console, format_number
from regimekit.cli.output import SavedRun, read_saved_run
from regimekit.cli.panel import write_panel_report
from regimekit.cli.pipeline import read_future
from regimekit.cli.stream_run import write_report
from regimekit.core.display import count
from regimekit.core.exceptions import RegimekitError, whole
from regimekit.core.registry import models
from regimekit.io.columns import forecast_columns, regime_columns
from regimekit.io.temporary import TemporaryFolder
from regimekit.preprocessing.frames import Table

_LISTED_COLUMNS = (
    *("regime", "name", "status", "typical", "low", "high", "share", "n_visits", "duration"),
    *("visits", "first_seen", "last_seen"),
)
_LISTED_TRANSITIONS = 3  # most probable next regimes that are printed for each regime


def inspect_snapshot(path: Path, console: Console) -> None:
    """Print the settings, regimes and transitions of a model."""
    saved = read_saved_run(path)
    model, record = saved.model, saved.record
    regimes, transitions = regime_columns(model), model.transitions()
    console.result(
        {
            "model": model.name,
            "settings": model.settings(),
            "regimes": regimes,
            "transitions": {"ids": transitions.ids, "matrix": transitions.matrix},
            "target": record.get("target"),
            "observations": record.get("observations"),
            "scores": record.get("scores"),
        }
    )
    console.info(f"{saved.path} contains the model {model.name}: {models()[model.name]}.")
    if record:
        console.info(
            f"It has processed {record['observations']} observations of {record['target']} from "
            f"{record['file']}."
        )
    console.info(model.explain())
    known = len(regimes.get("regime", []))
    if known:
        console.info(f"{count(known, 'regime')} (first and last observation count from 0):")
        listed = [name for name in _LISTED_COLUMNS if name in regimes]
        columns = zip(*(regimes[name] for name in listed), strict=True)
        console.table(listed, [[format_number(v) for v in row] for row in columns])
    for j, regime in enumerate(transitions.ids if known > 1 else []):
        likely = sorted(zip(transitions.matrix[j], transitions.ids, strict=True), reverse=True)
        shown = ", ".join(f"{p:.0%} to {other}" for p, other in likely[:_LISTED_TRANSITIONS])
        console.info(f"Transitions from regime {regime}, per batch: {shown}.")


def label_snapshot(
    path: Path, id: int, name: str | None, status: str | None, console: Console
) -> None:
    """Give a regime of a saved model a name or a status; the file is replaced atomically."""
    if name is None and status is None:
        raise RegimekitError("label needs --name, --status or both.")
    saved = read_saved_run(path)
    saved.model.label_regime(id, name, status)
    try:
        saved.model.save(saved.path)
    except OSError as error:
        raise RegimekitError(f"{saved.path} cannot be written: {error.strerror}.") from None
    (labelled,) = (regime for regime in saved.model.regimes() if regime.id == id)
    console.result(
        {"path": str(saved.path), "regime": id, "name": labelled.name, "status": labelled.status}
    )
    name_text = f"name {labelled.name!r}" if labelled.name else "no name"
    console.info(f"regime {id} of {saved.path}: {name_text}, status {labelled.status}")


def forecast_snapshot(
    path: Path, horizon: int, level: float, future: str | None, out: Path | None, console: Console
) -> None:
    """Forecast the next steps; the model is not updated."""
    saved = read_saved_run(path)
    whole("--horizon", horizon)
    ahead = saved.model.forecast(horizon, _future(saved, future, horizon))
    columns = forecast_columns(ahead, level)
    console.result({"model": saved.model.name, "level": level, "forecasts": columns})
    if out is None:
        rows = [
            [str(step), str(output.csv_cell(time)), *(format_number(v) for v in numbers)]
            for step, time, *numbers in zip(*columns.values(), strict=True)
        ]
        console.table(list(columns), rows)
        return
    output.check_not_input(out, (saved.path, future))
    output.check_writable(out)
    staging = TemporaryFolder(".regimekit-", out.parent)
    output.write_csv(staging.path / "table", columns)
    os.replace(staging.path / "table", out)
    staging.close()
    console.info(f"forecasts in {out}")


def _future(saved: SavedRun, file: str | None, horizon: int) -> Table | None:
    reader = saved.reader()
    if reader is None:
        return None
    if file is None and reader.layout.columns:
        names = ", ".join(reader.layout.columns)
        raise RegimekitError(
            f"The model needs --future: a table with one row per step and the columns {names}."
        )
    return read_future(file, reader.layout, horizon, reader.time_column)


def rewrite_report(folder: Path, out: Path | None, horizon: int, console: Console) -> None:
    """Write the report of an earlier run again."""
    record = output.read_panel_record(folder)
    if record is not None:
        if out is not None:
            raise RegimekitError("--out is for the report of one series; this run has several.")
        output.check_not_linked(folder)

        def path(name: str) -> Path:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            return folder / name

        write_panel_report(folder, record, path, horizon, console)
        console.info(f"report in {folder / output.REPORT}")
        return
    saved = read_saved_run(folder)
    saved.require_run()
    record, target = saved.record, out or saved.folder / output.REPORT
    output.check_not_input(target, (saved.path, saved.folder / output.RECORD))
    try:
        rows = output.read_rows(saved.folder, record["format"])
        write_report(target, saved.model, rows, record, horizon)
    except (KeyError, TypeError, AttributeError) as error:
        raise saved.invalid_record(error) from None
    except ModuleNotFoundError as error:
        raise RegimekitError(f"The report needs {error.name}, which is not installed.") from None
    console.info(f"report in {target}")
