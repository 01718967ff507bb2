"""Files that appear all at once, or not at all.

Everything is written into a hidden folder inside the destination, which also shows before the run
that it can be written to; at the end each file is renamed into place.
"""

from __future__ import annotations

import csv
import math
import os
import shutil
import tempfile
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from regimekit.cli.console import as_json
from regimekit.core.exceptions import RegimekitError
from regimekit.io.clock import show
from regimekit.io.columns import Columns
from regimekit.io.source import connect

# What a run may leave behind; an earlier run's files of these names do not outlive the next run.
OURS = (
    "run.csv",
    "run.parquet",
    "events.csv",
    "regimes.csv",
    "forecasts.csv",
    "scores.csv",
    "errors.csv",
    "model.regimekit",
    "run.json",
    "report.html",
)
MODELS = "models"  # folder of the snapshots of many series


class Destination:
    """A folder of results; use it as a context, and `commit` when all is written."""

    def __init__(self, folder: Path) -> None:
        if folder.is_file():
            raise RegimekitError(f"--out {folder} is a file; name a folder.")
        self.folder = folder
        self._made = not folder.exists()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.staging = Path(tempfile.mkdtemp(prefix=".regimekit-", dir=folder))
        except OSError as error:
            raise RegimekitError(
                f"--out {folder} cannot be written to: {error.strerror or error}."
            ) from None

    def path(self, name: str) -> Path:
        """Where a file is written before it is put into place."""
        target = self.staging / name
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        """Write a JSON file."""
        self.path(name).write_text(as_json(content) + "\n")

    def commit(self) -> list[str]:
        """Put all files into place; their names."""
        staged = (path for path in self.staging.rglob("*") if path.is_file())
        written = sorted(path.relative_to(self.staging) for path in staged)
        for name in written:
            target = self.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(self.staging / name, target)
        if Path("run.json") in written:  # a comparison beside a run leaves the run alone
            self._remove_stale(set(written))
        return [str(name) for name in written]

    def _remove_stale(self, written: set[Path]) -> None:
        """What an earlier run left and this one did not write anew."""
        models = self.folder / MODELS
        stale = {Path(name) for name in OURS}
        stale |= {path.relative_to(self.folder) for path in models.glob("*.regimekit")}
        for name in stale - written:
            (self.folder / name).unlink(missing_ok=True)
        if models.is_dir() and not any(models.iterdir()):
            models.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)
        if self._made and not any(self.folder.iterdir()):
            self.folder.rmdir()


class Sheet:
    """A CSV file that is written block by block."""

    def __init__(self, path: Path, header: bool = True) -> None:
        self.path = path
        self._target = path.open("a", newline="")
        self._writer = csv.writer(self._target, lineterminator="\n")
        self._header = header
        self.rows = 0

    def add(self, columns: Columns) -> None:
        """Append rows; the first block's names are the header."""
        if self._header and columns:
            self._writer.writerow(columns)
            self._header = False
        rows = [[cell(value) for value in row] for row in zip(*columns.values(), strict=True)]
        self._writer.writerows(rows)
        self.rows += len(rows)

    def close(self) -> None:
        self._target.close()


def write_sheet(path: Path, columns: Columns) -> None:
    """Write a whole CSV file."""
    sheet = Sheet(path)
    sheet.add(columns)
    sheet.close()


def cell(value: Any) -> Any:
    """A value as a CSV file holds it: nothing where there is nothing."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return show(value) if isinstance(value, datetime) else value


def to_parquet(source: Path, target: Path) -> None:
    """Turn a CSV file into a Parquet file, in chunks."""
    _copy(f"read_csv({_text(source)}, header=true, delim=',', sample_size=-1)", target, "parquet")


def to_csv(source: Path, target: Path) -> None:
    """Turn a Parquet file into a CSV file, in chunks."""
    _copy(f"read_parquet({_text(source)})", target, "csv, header true")


def _copy(relation: str, target: Path, form: str) -> None:
    with connect() as connection:
        connection.execute(f"COPY (FROM {relation}) TO {_text(target)} (FORMAT {form})")


def _text(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
