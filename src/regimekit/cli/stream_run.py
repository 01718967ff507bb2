"""Run a model over a table, block by block, with constant memory: `run` and `resume`."""

from __future__ import annotations

import importlib
import shlex
import time
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.cli import output
from regimekit.cli.console import Console, Interrupt, format_number, format_speed
from regimekit.cli.output import CsvWriter, ResultFolder
from regimekit.cli.pipeline import Pipeline, PipelineOptions, open_pipeline, read_future
from regimekit.core.advice import Cures, remarks
from regimekit.core.display import count
from regimekit.core.exceptions import RegimekitError, unknown, whole
from regimekit.core.model import Model
from regimekit.core.registry import REGISTRY
from regimekit.core.warnings import RegimekitWarning
from regimekit.io import (
    ColumnChoice,
    ObservationBlock,
    ObservationReader,
    TableRequest,
    open_source,
)
from regimekit.io import cell_parsing as cells
from regimekit.io.columns import (
    event_columns,
    forecast_columns,
    regime_columns,
    run_columns,
    standing_events,
)
from regimekit.io.reader import Row
from regimekit.metrics import RunningCalibration, RunningScores, run_with_pit
from regimekit.preprocessing.time_index import Time, instant, time_array
from regimekit.results import Event, Run, retrospective_path

REMEDIES = Cures(
    "Leave out --set noise and --set prior_var, so that they are estimated",
    "Pass --set noise and --set prior_var in the units of the target",
    "Pass --lags 1",
    "pass --model auto",
)
REPORT_HORIZON = 24  # steps that a report forecasts if --horizon is not given
_MIN_CODES = 2  # equal observations after which their value may be a code
BLOCK_ROWS = 512  # observations per block; Ctrl-C waits for the end of a block


@dataclass
class RecentRows:
    """Runs over the latest observations and their times: at least `output.REPORT_ROWS`."""

    runs: deque[Run] = field(default_factory=deque)
    times: deque[Time | None] = field(default_factory=deque)

    def add(self, block: ObservationBlock, run: Run) -> None:
        """Append a block and drop old ones."""
        self.runs.append(run)
        self.times.extend(block.times)
        while len(self.times) - len(self.runs[0]) >= output.REPORT_ROWS:
            for _ in range(len(self.runs.popleft())):
                self.times.popleft()

    def run(self) -> Run:
        """Return the runs as one."""
        parts: dict[str, Any] = {}
        for entry in fields(Run):
            values = [getattr(run, entry.name) for run in self.runs]
            if isinstance(values[0], np.ndarray):
                parts[entry.name] = np.concatenate(values)
            elif entry.name == "events":
                parts[entry.name] = [event for events in values for event in events]
            else:
                parts[entry.name] = values[0]
        if len(self.runs) > 1:
            # A change that is known in one block may have started in the block before.
            parts["path"] = retrospective_path(parts["regime"], parts["events"], parts["first"])
        return Run(**parts)


@dataclass
class StreamRun:
    """Model, reader and scores of a run that is under way.

    Attributes:
        pipeline: the table.
        model: the model.
        reader: converts rows into observations.
        scores: scores of the forecasts.
        calibration: calibration of the forecasts.
        observations: observations processed, including those inserted into gaps.
        outliers: observations flagged as outliers.
        changes: changes of regime that stand.
        standing: events of these; of a resumed run, those since it was resumed.
        seconds: run time of the model.
        processed: observations to which `seconds` applies.
        interrupted: whether Ctrl-C ended the run.
        warnings: warnings of the model.
        recent: latest rows, for the report.
    """

    pipeline: Pipeline
    model: Model
    reader: ObservationReader
    scores: RunningScores
    calibration: RunningCalibration
    observations: int = 0
    outliers: int = 0
    changes: int = 0
    seconds: float = 0.0
    processed: int = 0
    interrupted: bool = False
    warnings: list[str] = field(default_factory=list)
    recent: RecentRows = field(default_factory=RecentRows)
    standing: list[Event] = field(default_factory=list)

    @property
    def online(self) -> bool:
        """Whether each forecast was made before its observation was known."""
        return REGISTRY[self.model.name].online

    def process(
        self,
        folder: ResultFolder,
        chunks: Iterable[list[Row]],
        console: Console,
        same_table: bool = True,
    ) -> None:
        """Process rows and write run.csv and events.csv.

        Args:
            folder: result folder.
            chunks: rows that have not been processed.
            console: output.
            same_table: whether rows processed earlier come from this table. If not, some rows of
                this table may be known already, so the progress bar shows no total.
        """
        begin, rows_before = time.perf_counter(), self.reader.rows

        def count_new() -> int | None:
            total = self.pipeline.count() if same_table else None
            return None if total is None else total - rows_before

        with (
            CsvWriter(folder.path(output.RUN)) as run_file,
            CsvWriter(folder.path(output.EVENTS)) as event_file,
            Interrupt() as interrupt,
            console.progress("rows", count_new) as update,
        ):
            for block in self._blocks(chunks):
                self._process_block(block, run_file, event_file)
                update(self.reader.rows - rows_before)
                if interrupt.requested:
                    self.interrupted = True
                    break
        seconds = time.perf_counter() - begin
        console.info(format_speed(self.reader.rows - rows_before, seconds))

    def finish(self, folder: ResultFolder, file_format: str, console: Console) -> dict[str, Any]:
        """Write the remaining files, move all files to the result folder, return a summary."""
        notes = self.reader.notes() + self._remarks()
        pipeline, recent, clock = self.pipeline, self.recent, self.reader.time_column
        options = pipeline.options
        start = self.observations - len(recent.times)
        regimes = regime_columns(self.model, recent.times, start)
        output.write_csv(folder.path(output.REGIMES), regimes)
        self.model.set_calendar(clock.last, clock.frequency)
        if options.horizon and self.observations:
            try:
                future = read_future(options.future, pipeline.layout, options.horizon, clock)
                columns = forecast_columns(
                    self.model.forecast(options.horizon, future), options.level
                )
                output.write_csv(folder.path(output.FORECASTS), columns)
            except RegimekitError as error:
                # The run may have taken hours, so its results are kept.
                notes.append(f"forecasts.csv was not written: {error}")
        self.model.save(folder.path(output.MODEL))
        summary = self._summary(notes)
        record = summary | {
            **options.request._asdict(),
            "season": pipeline.season,
            "horizon": options.horizon,
            "format": file_format,
            "reader": self.reader.to_json(),
            "scores_state": self.scores.state(),
            "calibration": self.calibration.state(),
        }
        folder.write_record(**record)
        if self.observations:
            self._write_report(folder, record, console)
        if file_format == "parquet":
            folder.convert_run_to_parquet()
        return summary | {
            "ms_per_observation": 1e3 * self.seconds / max(self.processed, 1),
            "out": str(folder.folder),
            "files": folder.commit(),
        }

    def _blocks(self, chunks: Iterable[list[Row]]) -> Iterator[ObservationBlock]:
        """Yield small blocks, or one block for a model that needs the whole stream."""
        if self.online:
            return self.reader.blocks(chunks, BLOCK_ROWS)
        block = self.reader.read_all(chunks)
        return iter([] if block is None else [block])

    def _process_block(
        self, block: ObservationBlock, run_file: CsvWriter, event_file: CsvWriter
    ) -> None:
        begin = time.perf_counter()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RegimekitWarning)
            run, pit = run_with_pit(self.model, block.y, block.X, self.pipeline.options.level)
        self.seconds += time.perf_counter() - begin
        for warning in caught:
            if issubclass(warning.category, RegimekitWarning):
                self.warnings.append(str(warning.message))
            else:
                place = (warning.filename, warning.lineno)
                warnings.warn_explicit(warning.message, warning.category, *place)
        self.recent.add(block, run)
        run_file.add(run_columns(block, run, self.observations))
        self.processed += len(run)
        self.observations += len(run)
        start = self.observations - len(self.recent.times)
        event_file.add(event_columns(run.events, self.recent.times, start))
        if self.online:
            self.scores.add(run)
            self.calibration.add(pit)
        self.outliers += int(run.outlier.sum())
        earlier = self.changes - sum(event.is_change for event in self.standing)
        self.standing = standing_events([*self.standing, *run.events])
        self.changes = earlier + sum(event.is_change for event in self.standing)

    def _remarks(self) -> list[str]:
        """Return sentences about the quality of the forecasts."""
        found: list[str] = []
        if not self.online:
            found.append(
                f"{self.model.name} is an offline fit: it used the whole stream, so its values are "
                "not forecasts and are not scored."
            )
        elif self.observations:
            if self.model.advised:
                settings = self.model.settings()
                run = self.recent.run()
                found += remarks(run, self.model.name, settings, REMEDIES).values()
            found += self.warnings
            if not self.scores.table():
                found.append("Too few rows to score the forecasts.")
        found += self._missing_codes()
        if self.interrupted:
            found.append(f"Interrupted after {self.reader.rows} rows; their results are written.")
        return found

    def _missing_codes(self) -> list[str]:
        """Return a sentence for each value that looks like a code for "not measured"."""
        if not self.observations:
            return []
        y = self.recent.run().y
        values, counts = np.unique(y[np.isfinite(y)], return_counts=True)
        nines = np.array([set(f"{abs(value):g}") == {"9"} for value in values], dtype=bool)
        others = values[~nines]
        if not others.size:
            return []
        low, high = 2 * others[0] - others[-1], 2 * others[-1] - others[0]
        return [
            f"{n} observations are equal to {value:g}, far from all others. If this means that "
            f"nothing was measured, pass --missing {value:g}."
            for value, n in zip(values[nines], counts[nines], strict=True)
            if n >= _MIN_CODES and not low <= value <= high
        ]

    def _summary(self, notes: list[str]) -> dict[str, Any]:
        pipeline, frequency = self.pipeline, self.pipeline.frequency
        return {
            "file": pipeline.options.request.name,
            "target": pipeline.layout.target,
            "time": pipeline.layout.time,
            "frequency": str(frequency) if frequency else None,
            "model": self.model.name,
            "offline": not self.online,
            "rows": self.reader.rows,
            "observations": self.observations,
            "outliers": self.outliers,
            "changes": self.changes,
            "level": pipeline.options.level,
            "regimes": len(self.model.regimes()),
            "scores": self.scores.table(),
            "warnings": notes,
            "interrupted": self.interrupted,
        }

    def _write_report(self, folder: ResultFolder, record: dict[str, Any], console: Console) -> None:
        recent, notes = self.recent, record["warnings"]
        if len(recent.times) < min(self.observations, output.REPORT_ROWS):
            # A resumed run has the earlier rows in its table only.
            rows = output.read_rows(folder.staging, "csv")
        else:
            run = recent.run()
            rows = run, run.y, time_array(list(recent.times))
        if self.observations > len(rows[0]):
            notes = [*notes, f"The report shows the latest {len(rows[0])} observations."]
        path, content = folder.path(output.REPORT), record | {"warnings": notes}
        try:
            write_report(path, self.model, rows, content, record["horizon"] or REPORT_HORIZON)
        except ModuleNotFoundError as error:
            console.warn(f"report.html was not written: {error.name} is not installed.")


def write_report(
    path: Path,
    model: Model,
    rows: tuple[Run, NDArray[np.float64], NDArray[Any] | None],
    record: dict[str, Any],
    horizon: int,
) -> None:
    """Write report.html.

    Args:
        path: file to write.
        model: model after the run.
        rows: run, (T,) observations, and their times.
        record: content of run.json.
        horizon: steps to forecast.

    Raises:
        ModuleNotFoundError: if a library that the report needs is not installed.
    """
    run, y, times = rows
    importlib.import_module("regimekit.report").write_report(
        path,
        run=run,
        model=model,
        y=y,
        times=times,
        title=record["target"],
        horizon=horizon,
        scores=record["scores"],
        warnings=record["warnings"],
        settings=model.settings(),
        calibration=RunningCalibration.from_state(record["calibration"]).table(),
    )


def run_file(
    options: PipelineOptions, out: Path, file_format: str, console: Console
) -> tuple[StreamRun, dict[str, Any]]:
    """Run one series from the first row of its table to the last.

    Returns:
        The run and its summary.
    """
    options.check()
    with ResultFolder(out, output.RUNS, options.inputs, options.request.sql) as folder:
        pipeline = open_pipeline(options, console)
        scores = RunningScores(pipeline.season, options.burn_in)
        calibration = RunningCalibration(options.burn_in)
        run = StreamRun(pipeline, pipeline.model(), pipeline.reader(), scores, calibration)
        run.process(folder, pipeline.chunks(), console)
        summary = run.finish(folder, file_format, console)
    return run, summary


def resume_run(out: Path, file: str | None, sql: str | None, console: Console) -> None:
    """Continue an earlier run with the rows that it has not processed."""
    run, chunks, file_format = _restore(out, file, sql)
    before = run.observations
    options = run.pipeline.options
    with ResultFolder(out, output.RUNS, options.inputs, options.request.sql) as folder:
        folder.copy_rows(file_format)
        run.process(folder, chunks, console, same_table=file is None)
        if run.observations == before:
            console.result({"observations": before, "new": 0, "out": str(out)})
            console.info(f"no new rows; {out} is unchanged, with {before} observations")
            return
        summary = run.finish(folder, file_format, console)
    console.info(f"{run.observations - before} new observations, {run.observations} in total")
    print_summary(summary, console)


def _restore(
    out: Path, file: str | None, sql: str | None
) -> tuple[StreamRun, Iterable[list[Row]], str]:
    """Return an earlier run, the rows that are new to it, and the format of its rows."""
    saved = output.read_saved_run(out)
    saved.require_run()
    model, record = saved.model, saved.record
    if not REGISTRY[model.name].online:
        raise RegimekitError(f"{model.name} is an offline fit and cannot process more rows.")
    request = _request(record, file, sql)
    source = open_source(request)
    # A record may come from anywhere.
    try:
        reader = saved.reader()
        assert reader is not None
        scores = RunningScores.from_state(record["scores_state"])
        calibration = RunningCalibration.from_state(record["calibration"])
        level, horizon = record["level"], record["horizon"]
        options = PipelineOptions(request, ColumnChoice(), model.name, level=level, horizon=horizon)
        options.check()
        observations = whole("observations", record["observations"], 0)
        outliers = whole("outliers", record["outliers"], 0)
        changes = whole("changes", record["changes"], 0)
        season = None if record["season"] is None else whole("season", record["season"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise saved.invalid_record(error) from None
    for name in reader.layout.used:
        if name not in source.names:
            raise unknown("column", name, source.names)
    pipeline = Pipeline(options, source, reader.layout, reader.time_column.frequency, season)
    run = StreamRun(pipeline, model, reader, scores, calibration, observations, outliers, changes)
    chunks = _new_rows(source.rows(reader.layout.used), reader, file is not None)
    return run, chunks, record["format"]


def _request(record: dict[str, Any], file: str | None, sql: str | None) -> TableRequest:
    """Return the table that a run continues with; SQL comes from the caller only."""
    stored = record.get("sql")
    if sql is None and file is None and stored is not None:
        raise RegimekitError(
            "The run read a SQL query, and queries in run.json are not executed. If you trust it, "
            f"pass it again: --sql {shlex.quote(str(stored))}"
        )
    if file is not None:
        return TableRequest(file, sql=sql)
    given, table = record.get("file"), record.get("table")
    if not isinstance(given, str) or not isinstance(table, str | None):
        raise RegimekitError("run.json does not name the table. Name it after the folder.")
    return TableRequest(given, None if sql is not None else table, sql)


def _new_rows(
    chunks: Iterator[list[Row]], reader: ObservationReader, other_file: bool
) -> Iterator[list[Row]]:
    """Yield the rows after the last time; without times, those after the last row."""
    layout, last = reader.layout, reader.time_column.last
    skip = 0 if other_file or layout.time is not None else reader.rows
    position = None if layout.time is None else layout.used.index(layout.time)
    parse = layout.parse_time()

    def is_new(row: Row) -> bool:
        if position is None or last is None or cells.is_missing(row[position]):
            return True
        moment: Any = instant(parse(row[position]))
        before: Any = instant(last)
        return bool(moment > before)

    for chunk in chunks:
        yield [row for row in chunk[skip:] if is_new(row)]
        skip = max(skip - len(chunk), 0)


def print_summary(summary: dict[str, Any], console: Console) -> None:
    """Print the summary of a run, as text or as JSON."""
    console.result(summary)
    console.info()
    for warning in summary["warnings"]:
        console.info(f"note: {warning}")
    print_scores(summary["scores"], summary["target"], summary["level"], console)
    counts = ", ".join(
        count(summary[f"{what}s"], what) for what in ("observation", "regime", "change", "outlier")
    )
    cost = format_number(float(f"{summary['ms_per_observation']:.2g}"))
    console.info(f"{counts}, {cost} ms per observation")
    console.info(f"results in {summary['out']}: {', '.join(summary['files'])}")


def print_scores(scores: dict[str, float], target: str, level: float, console: Console) -> None:
    """Print the errors of the model beside those of the last value."""
    if not scores:
        return
    console.info(
        f"one-step forecast errors, in units of {target} "
        f"({scores['n_scored']:.0f} observations, without the first {scores['n_skipped']:.0f})"
    )
    names = {"model": "", "last value": "_last_value", "seasonal last": "_seasonal_last_value"}
    rows = [
        [label, format_number(scores[f"rmse{end}"]), format_number(scores[f"mae{end}"])]
        for label, end in names.items()
        if f"rmse{end}" in scores
    ]
    console.table(["", "RMSE", "MAE"], rows)
    console.info(f"coverage of the {level:.0%} intervals: {scores['coverage']:.1%}")
