"""Result folder of a run: files are written together at the end, and read back later.

Files are written to a hidden folder inside the result folder and renamed at the end. A run that
fails therefore leaves earlier results unchanged.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

import regimekit
from regimekit import plotting
from regimekit.cli.console import Console, to_json
from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.core.registry import load
from regimekit.io import ObservationReader
from regimekit.io.columns import Columns
from regimekit.io.reader import connect, quote_name, quote_path, quote_text
from regimekit.io.temporary import TemporaryFolder
from regimekit.preprocessing.time_column import format_time
from regimekit.preprocessing.time_index import time_array
from regimekit.results import NO_REGIME, RUN_COLUMNS, Event, Run, retrospective_path

RUN, EVENTS, REGIMES = "run.csv", "events.csv", "regimes.csv"
FORECASTS, SCORES, ERRORS = "forecasts.csv", "scores.csv", "errors.csv"
PARQUET, RECORD, MODEL, REPORT = "run.parquet", "run.json", "model.regimekit", "report.html"
MODELS = "models"  # folder with one snapshot per series
REPORTS = "reports"  # folder with one page per series
DEMO = ("demo.csv", "demo.png")
COMPARISON = ("comparison.csv", "comparison.png")
BACKTEST = ("backtest.csv", "backtest.png")
# Files of an earlier run with these names are deleted if the next run does not write them.
RUN_FILES = (RUN, PARQUET, EVENTS, REGIMES, FORECASTS, SCORES, ERRORS, MODEL, RECORD, REPORT)
_FORMULA_STARTS = ("=", "+", "-", "@")  # of cells that spreadsheets execute
REPORT_ROWS = 100_000  # latest observations that a report shows
RECORD_FORMAT = 3  # version of run.json
_CSV_NOTATION = "header=true, delim=',', quote='\"'"  # of our own files, for duckdb
_MODEL_FILE = re.compile(rf"{MODELS}/[\w.-]+\.regimekit")
# Entries of run.json that every command may read.
_RECORD_FIELDS = {"file": str, "target": str, "observations": int, "files": list}


class ResultKind(NamedTuple):
    """Files that a command writes to its result folder.

    Attributes:
        record: JSON file that lists the files that were written.
        names: names of all files that may be written.
        models: whether snapshots may be written to the folder `MODELS`.
    """

    record: str
    names: tuple[str, ...]
    models: bool = False


RUNS = ResultKind(RECORD, RUN_FILES)
PANELS = ResultKind(RECORD, RUN_FILES, models=True)
COMPARISONS = ResultKind("comparison.json", COMPARISON)
BACKTESTS = ResultKind("backtest.json", BACKTEST)
DEMOS = ResultKind("demo.json", DEMO)


class ResultFolder:
    """Folder of results. Use it as a context, and call `commit` after the last file.

    Before that, the files are in the folder `staging`. Only files that are listed in the record of
    an earlier command are replaced or deleted.

    Args:
        folder: the folder; it is created.
        kind: files that will be written.
        inputs: input files, which must not be overwritten.
        sql: SQL query, whose files must not be overwritten.

    Raises:
        RegimekitError: if the folder cannot be written, or contains a file of another origin or an
            input under the name of a result.
    """

    def __init__(
        self,
        folder: Path,
        kind: ResultKind = RUNS,
        inputs: Iterable[str | Path | None] = (),
        sql: str | None = None,
    ) -> None:
        if folder.is_file():
            raise RegimekitError(f"--out {folder} is a file. Name a folder.")
        self.folder, self._kind = folder, kind
        check_not_linked(folder)
        self._earlier = _listed_files(folder / kind.record)
        for target in (folder / name for name in (*kind.names, kind.record)):
            if target.exists():
                # A query may name the file by any path.
                check_not_input(target, inputs, target.name in (sql or ""))
        self._check_foreign()
        self._created = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._temporary = TemporaryFolder(".regimekit-", folder)
        except OSError as error:
            reason = error.strerror or error
            raise RegimekitError(f"--out {folder} cannot be written: {reason}.") from None
        self.staging = self._temporary.path

    def _check_foreign(self) -> None:
        """Raise if a file of another origin has the name of a result."""
        names = {Path(name) for name in (*self._kind.names, self._kind.record)}
        if self._kind.models:
            for folder in (MODELS, REPORTS):
                found = (self.folder / folder).glob("*")
                names |= {path.relative_to(self.folder) for path in found}
        for name in sorted(names - self._earlier):
            if (self.folder / name).exists():
                raise RegimekitError(
                    f"--out {self.folder} contains {name}, which was not written by an earlier run "
                    f"({self._kind.record} does not list it). Choose another folder, or move it."
                )

    def path(self, name: str) -> Path:
        """Return the path to which a file is written before `commit`."""
        target = self.staging / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def write_record(self, **content: Any) -> None:
        """Write run.json."""
        head = {"regimekit_run": RECORD_FORMAT, "version": regimekit.__version__}
        self.path(RECORD).write_text(to_json(head | content) + "\n")

    def convert_run_to_parquet(self) -> None:
        """Replace run.csv by run.parquet."""
        source = self.path(RUN)
        relation = f"read_csv({quote_path(source)}, {_CSV_NOTATION}, sample_size=-1)"
        _copy_table(relation, self.path(PARQUET), "parquet")
        source.unlink()

    def copy_rows(self, file_format: str) -> None:
        """Copy run.csv and events.csv of the earlier run, so that rows can be appended."""
        if file_format == "parquet":
            path = quote_path(self.folder / PARQUET)
            relation = f"read_parquet({path}, hive_partitioning=false)"
            _copy_table(relation, self.path(RUN), "csv, header true")
        else:
            shutil.copyfile(self.folder / RUN, self.path(RUN))
        shutil.copyfile(self.folder / EVENTS, self.path(EVENTS))

    def save_figure(self, name: str, draw: Callable[[], Any], console: Console) -> None:
        """Write the figure that `draw` returns; without matplotlib print a warning instead."""
        try:
            plotting.save(draw(), self.path(name))
        except plotting.NoPictures as error:
            console.warn(f"{name} was not written. {error}")

    def commit(self) -> list[str]:
        """Move all files to the result folder and return their names."""
        record = self.path(self._kind.record)
        content = json.loads(record.read_text()) if record.exists() else {}
        record.touch()
        written = self._temporary.files()
        record.write_text(to_json(content | {"files": [str(name) for name in written]}) + "\n")
        for name in written:
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.staging / name, target)
        for name in self._earlier.difference(written):
            (self.folder / name).unlink(missing_ok=True)
        for folder in (self.folder / MODELS, self.folder / REPORTS):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        return [str(name) for name in written]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._temporary.close()
        if self._created and not any(self.folder.iterdir()):
            self.folder.rmdir()


def _listed_files(record: Path) -> set[Path]:
    """Return the files that a record lists, and the record itself; empty if there is none.

    A record may come from anywhere, so other names than those of results are ignored.
    """
    try:
        listed = json.loads(record.read_text())["files"]
    except (OSError, ValueError, TypeError, KeyError):
        return set()
    if not isinstance(listed, list):
        return set()
    own = re.compile(
        "|".join(map(re.escape, (*RUN_FILES, *COMPARISON, *BACKTEST, *DEMO, record.name)))
    )
    page = re.compile(rf"{REPORTS}/[\w.-]+\.html")
    names = {name for name in listed if isinstance(name, str)}
    return {
        Path(name) for name in names if any(p.fullmatch(name) for p in (own, page, _MODEL_FILE))
    }


def check_not_linked(folder: Path) -> None:
    """Raise an error if a result would be written or deleted in another folder."""
    for name in (MODELS, REPORTS):
        if (folder / name).is_symlink():
            raise RegimekitError(
                f"--out {folder} contains {name}, a link to another folder. Choose another folder, "
                "or remove the link."
            )


def check_not_input(target: Path, inputs: Iterable[str | Path | None], named: bool = False) -> None:
    """Raise an error if a result would overwrite an input.

    Args:
        target: file to write.
        inputs: input files; empty ones are ignored.
        named: whether a query seems to read the target.
    """
    for file in inputs:
        if file and target.exists() and Path(file).exists():
            named = named or target.samefile(file)
    if named:
        raise RegimekitError(
            f"--out {target.parent} would overwrite the input {target}. Choose another folder."
        )


class CsvWriter:
    """CSV file that is written block by block; rows are appended to an existing file.

    Args:
        path: the file.
        escape: whether to mark texts that a spreadsheet would take for formulae with a quotation
            mark; not for a file that will be converted to Parquet.
    """

    def __init__(self, path: Path, escape: bool = True) -> None:
        self._cell = csv_cell if escape else _plain_cell
        self._needs_header = not path.exists() or path.stat().st_size == 0
        self._target = path.open("a", newline="")
        self._writer = csv.writer(self._target, lineterminator="\n")
        self.rows = 0

    def add(self, columns: Columns) -> None:
        """Append rows; the column names of the first block are the header."""
        if self._needs_header and columns:
            self._writer.writerow([self._cell(name) for name in columns])
            self._needs_header = False
        rows = [[self._cell(value) for value in row] for row in zip(*columns.values(), strict=True)]
        self._writer.writerows(rows)
        self.rows += len(rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._target.close()


def write_csv(path: Path, columns: Columns) -> None:
    """Write a CSV file."""
    with CsvWriter(path) as target:
        target.add(columns)


def csv_cell(value: Any) -> Any:
    """Return a value as a CSV cell: empty for None and NaN, no text that is a formula."""
    value = _plain_cell(value)
    if not isinstance(value, str):
        return value
    # The csv module does not quote a carriage return, which other programs take for a line end.
    value = value.replace("\r", " ")
    return f"'{value}" if value.lstrip().startswith(_FORMULA_STARTS) else value


def _plain_cell(value: Any) -> Any:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return format_time(value) if isinstance(value, datetime) else value


def check_writable(path: Path) -> None:
    """Raise an error if a file cannot be written; used before a long computation."""
    if path.is_dir():
        raise RegimekitError(f"--out {path} is a folder. Name a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise RegimekitError(f"--out {path} cannot be written: {error.strerror}.") from None


class SavedRun(NamedTuple):
    """Model snapshot, with the record and folder of the run that wrote it.

    Attributes:
        model: the model.
        record: content of run.json; empty for a snapshot without a run.
        folder: folder of the snapshot.
        path: the snapshot.
    """

    model: Model
    record: dict[str, Any]
    folder: Path
    path: Path

    def reader(self) -> ObservationReader | None:
        """Return the reader of the table after its last row; None without a run."""
        state = self.record.get("reader")
        try:
            return None if state is None else ObservationReader.from_json(state)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise self.invalid_record(error) from None

    def invalid_record(self, error: Exception) -> RegimekitError:
        """Return an error about the content of run.json."""
        return RegimekitError(f"{self.folder / RECORD} cannot be used: {error!r}. Repeat the run.")

    def require_run(self) -> None:
        """Raise an error unless the snapshot belongs to a run of one series."""
        if "reader" not in self.record:
            raise RegimekitError(f"{self.folder} is not the folder of a run of one series.")


def read_saved_run(path: Path) -> SavedRun:
    """Read a snapshot.

    Args:
        path: snapshot file, or folder of a run.

    Raises:
        RegimekitError: if there is no snapshot, or if it cannot be read.
    """
    if path.is_dir():
        if series := sorted(path.glob(f"{MODELS}/*.regimekit")):
            raise RegimekitError(
                f"{path} contains several series. Name one snapshot, such as {series[0]}."
            )
        path = path / MODEL
        if not path.is_file():
            raise RegimekitError(f"{path.parent} contains no {MODEL}; it is not a folder of a run.")
    elif not path.exists():
        raise RegimekitError(f"{path} does not exist.")
    elif not path.is_file():
        raise RegimekitError(f"{path} is a device or a pipe, not a file.")
    model = load(path)
    record = path.parent / RECORD
    has_record = path.name == MODEL and record.is_file()
    return SavedRun(model, _read_record(record) if has_record else {}, path.parent, path)


def read_panel_record(folder: Path) -> dict[str, Any] | None:
    """Return run.json of a run with several series; None if the folder has no such run."""
    path = folder / RECORD
    if not path.is_file():
        return None
    record = _read_record(path)
    snapshots = record.get("snapshots")
    if snapshots is None:
        return None
    if not isinstance(snapshots, dict) or not all(
        isinstance(name, str) and _MODEL_FILE.fullmatch(name) for name in snapshots.values()
    ):
        raise RegimekitError(f"{path} has no valid entry 'snapshots'. Repeat the run.")
    return record


def _read_record(path: Path) -> dict[str, Any]:
    """Return the content of run.json, which may come from anywhere."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise RegimekitError(f"{path} cannot be read: {error}.") from None
    if not isinstance(content, dict) or content.get("regimekit_run") != RECORD_FORMAT:
        raise RegimekitError(
            f"{path} was not written by this version of regimekit ({regimekit.__version__}). "
            "Repeat the run."
        )
    for name, kind in _RECORD_FIELDS.items():
        if not isinstance(content.get(name), kind):
            raise RegimekitError(f"{path} has no valid entry {name!r}. Repeat the run.")
    if content.get("format", "csv") not in ("csv", "parquet"):
        raise RegimekitError(f"{path} names a format that is not csv or parquet. Repeat the run.")
    return content


def read_rows(
    folder: Path, file_format: str, series: tuple[str, str] | None = None
) -> tuple[Run, NDArray[np.float64], NDArray[Any] | None]:
    """Read the latest rows of a run from its folder.

    Args:
        folder: folder of the run.
        file_format: "csv" or "parquet".
        series: column and name of the series, if the run has several.

    Returns:
        The run, the (T,) observations, and their times or None; T is at most `REPORT_ROWS`.
    """
    columns = _read_columns(folder / f"run.{file_format}", series)
    events = _events(_read_columns(folder / EVENTS, series), columns["time"])
    columns["path"] = retrospective_path(columns["regime"], events)
    known = {name: column for name, column in columns.items() if name in RUN_COLUMNS}
    run = Run.of_stored(len(columns["y"]), **known, events=events)
    return run, columns["y"].astype(float), time_array(_parse_times(columns["time"]))


def _parse_times(cells: NDArray[Any]) -> list[Any]:
    """Return the times of run.csv: datetimes with the offset that is written, numbers, or None."""
    if cells.dtype.kind == "f":
        return cells.tolist()
    if cells.dtype.kind == "M":
        return cells.astype("datetime64[us]").tolist()
    if cells.dtype.kind != "O":
        return [None] * len(cells)
    return [datetime.fromisoformat(cell) for cell in cells.tolist()]


def _read_columns(path: Path, series: tuple[str, str] | None = None) -> dict[str, NDArray[Any]]:
    if path.stat().st_size == 0:
        return {}
    is_csv = path.suffix == ".csv"
    relation = f"read_parquet({quote_path(path)}, hive_partitioning=false)"
    if is_csv:
        series = series and (csv_cell(series[0]), csv_cell(series[1]))
        # Times with an offset stay text: duckdb would convert them to UTC.
        with path.open(newline="") as lines:
            rows = csv.DictReader(lines)
            time, names = next(rows, {}).get("time") or "", rows.fieldnames or []
        texts = {"time", "since"} if len(time) > 19 and time[-6] in "+-" else set()
        texts |= {series[0]} if series else set()
        types = ", ".join(f"{quote_text(n)}: 'VARCHAR'" for n in names if n in texts)
        option = f", types={{{types}}}" if types else ""
        option = f", hive_partitioning=false, sample_size=-1, {_CSV_NOTATION}{option}"
        relation = f"read_csv({quote_path(path)}{option})"
    if series:
        name, key = quote_name(series[0]), quote_text(series[1])
        relation = f"(SELECT * FROM {relation} WHERE CAST({name} AS VARCHAR) = {key})"
    with connect() as connection:
        total = connection.execute(f"SELECT count(*) FROM {relation}").fetchall()[0][0]
        query = f"SELECT * FROM {relation} OFFSET {max(total - REPORT_ROWS, 0)}"
        found = connection.execute(query).fetchnumpy()
    return {name: _without_mask(values) for name, values in found.items()}


def _without_mask(values: Any) -> NDArray[Any]:
    if not np.ma.isMaskedArray(values):
        return np.asarray(values)
    if values.dtype.kind == "f" or values.mask.any():
        return np.asarray(np.ma.filled(values.astype(float), np.nan))
    return np.asarray(values.data)


def _events(table: dict[str, NDArray[Any]], times: NDArray[Any]) -> list[Event]:
    """Return the events of the rows that have been read, with their positions."""
    if not table:
        return []
    position = {time: j for j, time in enumerate(times.tolist())}
    found = []
    columns = (table[name].tolist() for name in ("time", "since", "kind", "regime", "previous"))
    for time, since, kind, regime, previous in zip(*columns, strict=True):
        if time in position:
            before = NO_REGIME if previous != previous else int(previous)
            first = position.get(since, 0)
            found.append(Event(position[time], str(kind), int(regime), before, first))
    return found


def _copy_table(relation: str, target: Path, file_format: str) -> None:
    with connect() as connection:
        copy = f"COPY (FROM {relation}) TO {quote_text(target)} (FORMAT {file_format})"
        connection.execute(copy)
