"""Commands over what a run left: `inspect`, `forecast`, `report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regimekit.cli import options

if TYPE_CHECKING:
    from regimekit.cli.console import Voice
    from regimekit.cli.record import Kept
    from regimekit.core.model import Model


def inspect(
    snapshot: options.Snapshot, json: options.Json = False, quiet: options.Quiet = False
) -> None:
    """Say in words what a snapshot knows: its settings, its regimes, where they lead."""
    from regimekit.cli.console import Voice
    from regimekit.cli.record import read_kept
    from regimekit.core.model import Model
    from regimekit.io.columns import regime_columns

    voice = Voice(json, quiet)
    kept = read_kept(snapshot)
    model = kept.model
    regimes = regime_columns(model)
    moves = model.transitions()
    voice.result(
        {
            "model": model.name,
            "settings": model.settings(),
            "regimes": regimes,
            "transitions": {"ids": moves.ids, "matrix": moves.matrix},
            "target": kept.record.get("target"),
            "observations": kept.record.get("observations"),
            "scores": kept.record.get("scores"),
        }
    )
    _tell_model(kept, voice)
    _tell_regimes(model, voice)
    if type(model).explain is not Model.explain:  # it has more to tell than its regimes
        voice.say(model.explain())


def forecast(
    snapshot: options.Snapshot,
    horizon: options.Horizon = 24,
    level: options.Level = 0.9,
    future: options.Future = None,
    out: Annotated[Path | None, typer.Option("--out", help="CSV file for the forecasts.")] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Forecast the next steps from a snapshot; nothing is learnt."""
    from regimekit.cli.console import Voice, number
    from regimekit.cli.destination import cell
    from regimekit.cli.record import read_kept
    from regimekit.core.exceptions import whole
    from regimekit.io.columns import forecast_columns

    voice = Voice(json, quiet)
    kept = read_kept(snapshot)
    whole("--horizon", horizon)
    ahead = kept.model.forecast(horizon, _future(kept, future, horizon))
    reading = kept.reading()
    clock = (reading.clock.last, reading.clock.frequency) if reading else (None, None)
    columns = forecast_columns(ahead, level, *clock)
    if out is not None:
        _write(out, columns)
        voice.say(f"forecasts in {out}")
    voice.result({"model": kept.model.name, "level": level, "forecasts": columns})
    if out is None:
        rows = [
            [str(step), str(cell(time)), *(number(v) for v in numbers)]
            for step, time, *numbers in zip(*columns.values(), strict=True)
        ]
        voice.table(list(columns), rows)


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="HTML file (report.html in the folder).")
    ] = None,
    horizon: options.Horizon = 24,
    quiet: options.Quiet = False,
) -> None:
    """Write the report of an earlier run anew."""
    import importlib

    from regimekit.cli.console import Voice
    from regimekit.cli.read_back import read_run
    from regimekit.cli.record import read_kept
    from regimekit.core.exceptions import RegimekitError
    from regimekit.metrics import RunningCalibration

    kept = read_kept(folder)
    if "reading" not in kept.record:
        raise RegimekitError(f"{folder} is not the folder of a run of one series.")
    try:
        write_report = importlib.import_module("regimekit.report").write_report
    except ModuleNotFoundError as error:
        raise RegimekitError(f"The report needs {error.name}, which is not installed.") from None
    run, y, times = read_run(kept.folder, kept.record["format"])
    target = out or kept.folder / "report.html"
    write_report(
        target,
        run=run,
        model=kept.model,
        y=y,
        times=times,
        title=f"{kept.record['target']}: {kept.model.name}",
        horizon=horizon,
        scores=kept.record["scores"],
        warnings=kept.record["warnings"],
        settings=kept.model.settings(),
        calibration=RunningCalibration.from_state(kept.record["calibration"]).table(),
    )
    Voice(quiet=quiet).say(f"report in {target}")


def _future(kept: Kept, future: str | None, horizon: int) -> Any:
    from regimekit.cli.job import read_future
    from regimekit.core.exceptions import RegimekitError

    reading = kept.reading()
    if future is None or reading is None:
        if reading is not None and reading.layout.columns:
            names = ", ".join(reading.layout.columns)
            raise RegimekitError(f"The model needs --future: a table with {names}, a row per step.")
        return None
    return read_future(future, reading.layout, horizon)


def _write(path: Path, columns: dict[str, list[Any]]) -> None:
    """Write a CSV file, all or nothing."""
    import os

    from regimekit.cli.destination import write_sheet
    from regimekit.core.exceptions import RegimekitError

    part = path.with_name(path.name + ".part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        write_sheet(part, columns)
        os.replace(part, path)
    except OSError as error:
        raise RegimekitError(f"--out {path} cannot be written: {error.strerror}.") from None


def _tell_model(kept: Kept, voice: Voice) -> None:
    from regimekit.core.explain import changed_settings
    from regimekit.core.registry import models

    voice.say(f"{kept.path} holds a {kept.model.name}: {models()[kept.model.name]}.")
    if kept.record:
        voice.say(
            f"It was run over {kept.record['observations']} observations of "
            f"{kept.record['target']} in {kept.record['file']}."
        )
    voice.say(f"Settings that differ from the default: {changed_settings(kept.model) or 'none'}.")


def _tell_regimes(model: Model, voice: Voice) -> None:
    from regimekit.cli.console import number
    from regimekit.core.display import count
    from regimekit.io.columns import regime_columns

    table = regime_columns(model)
    known = len(table.get("regime", []))
    if not known:
        voice.say("It knows no regimes yet.")
        return
    voice.say(f"It remembers {count(known, 'regime')} (times count observations from 0):")
    rows = [[number(v) for v in row] for row in zip(*table.values(), strict=True)]
    voice.table(list(table), rows)
    moves = model.transitions()
    for j, regime in enumerate(moves.ids if known > 1 else []):
        leads = sorted(zip(moves.matrix[j], moves.ids, strict=True), reverse=True)[:3]
        told = ", ".join(f"{share:.0%} to {other}" for share, other in leads)
        voice.say(f"From regime {regime} the next batch goes {told}.")
