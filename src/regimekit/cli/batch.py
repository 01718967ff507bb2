"""A whole table through a model, block by block, in memory that does not grow with the table."""

from __future__ import annotations

import importlib
import shutil
import time
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from regimekit.cli.console import Voice
from regimekit.cli.destination import Destination, Sheet, to_csv, to_parquet, write_sheet
from regimekit.cli.interruption import Interruption
from regimekit.cli.job import Prepared
from regimekit.cli.record import MODEL, RECORD, record
from regimekit.core.advice import Cures, remarks
from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.core.registry import REGISTRY, make
from regimekit.core.warnings import RegimekitWarning
from regimekit.io import Block, Reading, blocks
from regimekit.io.columns import (
    event_columns,
    forecast_columns,
    regime_columns,
    run_columns,
)
from regimekit.io.reading import as_block, time_array
from regimekit.metrics import RunningCalibration, RunningScores, run_with_pit
from regimekit.panel import with_names
from regimekit.preprocessing.time_index import Time
from regimekit.results import Run

SHOWN = 100_000  # latest observations that the report shows; more would not fit a page
CURES = Cures(
    "Leave out --set noise and --set prior_var, so that they are learnt",
    "Say --set noise and --set prior_var in the units of the target",
    "Say --lags 1",
    "say --model auto",
)
_WARM_UP = 32  # rows on which the kernels are compiled before the clock starts
_SMALL = 512  # rows per block: Ctrl-C waits for one


@dataclass
class Recent:
    """The latest observations and what was said of them, for the report."""

    runs: deque[Run] = field(default_factory=deque)
    blocks: deque[Block] = field(default_factory=deque)
    held: int = 0

    def add(self, block: Block, run: Run) -> None:
        self.runs.append(run)
        self.blocks.append(block)
        self.held += len(run)
        while self.held - len(self.runs[0]) >= SHOWN:
            self.held -= len(self.runs.popleft())
            self.blocks.popleft()

    def times(self) -> list[Time | None]:
        """Their times."""
        return [time for block in self.blocks for time in block.times]

    def y(self) -> np.ndarray:
        """Their values."""
        return np.concatenate([block.y for block in self.blocks])

    def run(self) -> Run:
        """Their runs as one."""
        return joined(list(self.runs))


@dataclass
class Batch:
    """A model on its way through a table."""

    prepared: Prepared
    model: Model
    reading: Reading
    scores: RunningScores
    calibration: RunningCalibration
    done: int = 0  # observations learnt, those missing in gaps included
    outliers: int = 0
    seconds: float = 0.0
    timed: int = 0
    interrupted: bool = False
    told: list[str] = field(default_factory=list)  # what the model warned of
    recent: Recent = field(default_factory=Recent)

    @property
    def online(self) -> bool:
        """Whether each forecast was made before its observation was known."""
        return REGISTRY[self.model.name].online

    def go(self, destination: Destination, chunks: Any, voice: Voice) -> None:
        """Learn all rows and write what is said of them."""
        run_sheet, event_sheet = (
            _sheet(destination, name, fresh=self.done == 0) for name in ("run.csv", "events.csv")
        )
        try:
            with Interruption() as stop, voice.progress("observations") as show:
                for block in self._blocks(chunks):
                    self._block(block, run_sheet, event_sheet)
                    show(self.done)
                    if stop.heard:
                        self.interrupted = True
                        break
        finally:
            run_sheet.close()
            event_sheet.close()

    def _blocks(self, chunks: Any) -> Iterator[Block]:
        """Small blocks, or one of everything for a model that must see the whole stream."""
        if self.online:
            return blocks(self.reading, chunks, _SMALL)
        observations = [o for chunk in chunks for row in chunk for o in self.reading.take(row)]
        return iter([as_block(observations)] if observations else [])

    def _block(self, block: Block, run_sheet: Sheet, event_sheet: Sheet) -> None:
        X = with_names(block.X, self.prepared.layout)
        if self.done == 0 and self.online:
            warm_up(self.model, block, X)
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always", RegimekitWarning)
            run, pit = run_with_pit(self.model, block.y, X, self.prepared.job.level)
        self._note(said)
        self.seconds += time.perf_counter() - begin
        self.timed += len(run)
        self.recent.add(block, run)
        times = self.recent.times() if run.events else []
        start = self.done + len(run) - self.recent.held
        columns = run_columns(block, run)
        if block.times[0] is None:
            columns["time"] = list(range(self.done, self.done + len(run)))
        run_sheet.add(columns)
        event_sheet.add(event_columns(run.events, times, start))
        if self.online:
            self.scores.add(block.y, run.mean, run.lower, run.upper, run.log_score)
            self.calibration.add(pit)
        self.outliers += int(run.outlier.sum())
        self.done += len(run)

    def _note(self, said: list[warnings.WarningMessage]) -> None:
        """Keep what the model says of the stream for the end; other warnings are passed on."""
        for warning in said:
            if issubclass(warning.category, RegimekitWarning):
                self.told.append(str(warning.message))
            else:
                warnings.warn_explicit(
                    warning.message, warning.category, warning.filename, warning.lineno
                )


def warm_up(model: Model, block: Block, X: Any) -> None:
    """Compile, or load, the kernels on a few rows, so that the time told is the run's own."""
    few = None if X is None else X._replace(values=X.values[:_WARM_UP])
    make(model.name, **model.settings()).run(block.y[:_WARM_UP], few)


def finish(batch: Batch, destination: Destination, form: str, voice: Voice) -> dict[str, Any]:
    """Write what is known at the end, put it all into place, and sum it up."""
    notes = batch.reading.words() + _remarks(batch)
    regimes = regime_columns(batch.model, batch.recent.times(), batch.done - batch.recent.held)
    write_sheet(destination.path("regimes.csv"), regimes)
    try:
        if ahead := _ahead(batch):
            write_sheet(destination.path("forecasts.csv"), ahead)
    except RegimekitError as error:  # hours of work are not thrown away for it
        notes.append(f"No forecasts of the steps ahead: {error}")
    batch.model.save(destination.path(MODEL))
    destination.write_json(RECORD, _record(batch, form, notes))
    if batch.done:
        write_html(destination, batch, notes, voice)
    if form == "parquet":
        to_parquet(destination.path("run.csv"), destination.path("run.parquet"))
        destination.path("run.csv").unlink()
    files = destination.commit()
    return _summary(batch, notes) | {"out": str(destination.folder), "files": files}


def _record(batch: Batch, form: str, notes: list[str]) -> dict[str, Any]:
    """The content of run.json: what `resume`, `report` and `forecast` need."""
    prepared = batch.prepared
    return record(
        **prepared.job.request._asdict(),
        model=batch.model.name,
        target=prepared.layout.target,
        season=prepared.season,
        level=prepared.job.level,
        horizon=prepared.job.horizon,
        observations=batch.done,
        outliers=batch.outliers,
        format=form,
        warnings=notes,
        reading=batch.reading.state(),
        scoring=batch.scores.state(),
        scores=batch.scores.table(),
        calibration=batch.calibration.state(),
    )


def _summary(batch: Batch, notes: list[str]) -> dict[str, Any]:
    """What is told of a run."""
    prepared, frequency = batch.prepared, batch.prepared.frequency
    return {
        "file": prepared.job.request.file,
        "target": prepared.layout.target,
        "time": prepared.layout.time,
        "frequency": str(frequency) if frequency else None,
        "model": batch.model.name,
        "offline": not batch.online,
        "rows": batch.reading.rows,
        "observations": batch.done,
        "outliers": batch.outliers,
        "level": prepared.job.level,
        "regimes": len(batch.model.regimes()),
        "scores": batch.scores.table(),
        "warnings": notes,
        "interrupted": batch.interrupted,
        "ms_per_observation": 1e3 * batch.seconds / max(batch.timed, 1),
    }


def write_html(destination: Destination, batch: Batch, notes: list[str], voice: Voice) -> None:
    """Write report.html, or say what it needs."""
    try:
        write_report = importlib.import_module("regimekit.report").write_report
    except ModuleNotFoundError as error:
        voice.warn(f"report.html is not written: {error.name} is not installed.")
        return
    prepared, recent = batch.prepared, batch.recent
    if batch.done > recent.held:
        notes = [*notes, f"The report shows the latest {recent.held} observations."]
    write_report(
        destination.path("report.html"),
        run=recent.run(),
        model=batch.model,
        y=recent.y(),
        times=time_array(recent.times()),
        title=f"{prepared.layout.target}: {batch.model.name}",
        horizon=prepared.job.horizon or 24,
        scores=batch.scores.table(),
        warnings=notes,
        settings=batch.model.settings(),
        calibration=batch.calibration.table(),
    )


def joined(runs: list[Run]) -> Run:
    """Runs of one stream, end to end, as one."""
    parts: dict[str, Any] = {}
    for entry in fields(Run):
        values = [getattr(run, entry.name) for run in runs]
        if isinstance(values[0], np.ndarray):
            parts[entry.name] = np.concatenate(values)
        elif entry.name == "events":
            parts[entry.name] = [event for events in values for event in events]
        else:
            parts[entry.name] = values[0]
    return Run(**parts)


def carry_over(folder: Path, destination: Destination, form: str) -> None:
    """Put an earlier run's rows where the next ones will be appended."""
    if form == "parquet":
        to_csv(folder / "run.parquet", destination.path("run.csv"))
    else:
        shutil.copyfile(folder / "run.csv", destination.path("run.csv"))
    shutil.copyfile(folder / "events.csv", destination.path("events.csv"))


def _sheet(destination: Destination, name: str, fresh: bool) -> Sheet:
    path = destination.path(name)
    return Sheet(path, header=fresh or not path.exists() or path.stat().st_size == 0)


def _ahead(batch: Batch) -> dict[str, list[Any]]:
    job, clock = batch.prepared.job, batch.reading.clock
    if not job.horizon or not batch.done:
        return {}
    ahead = batch.model.forecast(job.horizon, batch.prepared.future())
    return forecast_columns(ahead, job.level, clock.last, clock.frequency)


def _remarks(batch: Batch) -> list[str]:
    found = []
    if not batch.online:
        found.append(
            f"{batch.model.name} is an offline fit: it saw the whole stream before it said "
            "anything, so its numbers are no forecasts and are not scored."
        )
    elif batch.model.advised and batch.done:
        model = batch.model
        found += remarks(batch.recent.run(), model.name, model.settings(), CURES).values()
    found += batch.told if batch.online else []
    if batch.online and batch.done and not batch.scores.table():
        found.append("Too few rows to say how good the forecasts are.")
    if batch.interrupted:
        found.append(f"Interrupted after {batch.reading.rows} rows; what there was is written.")
    return found
