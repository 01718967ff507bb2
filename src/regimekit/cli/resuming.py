"""An earlier run taken up again: its model, its reader and its sums, and the rows that are new."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from regimekit.cli.batch import Batch
from regimekit.cli.job import Job, Prepared
from regimekit.cli.record import read_kept
from regimekit.core.exceptions import RegimekitError, unknown
from regimekit.core.registry import REGISTRY
from regimekit.io import Reading, Request, Wishes, open_source
from regimekit.io import cells as cell_forms
from regimekit.io.source import Row
from regimekit.metrics import RunningCalibration, RunningScores


def resumed(folder: Path, file: str | None) -> tuple[Batch, Iterable[list[Row]], str]:
    """The batch as it stopped, the rows that are new to it, and the format of its rows."""
    kept = read_kept(folder)
    if not kept.record or "reading" not in kept.record:
        raise RegimekitError(f"{folder} is not the folder of a run of one series.")
    if not REGISTRY[kept.model.name].online:
        raise RegimekitError(f"{kept.model.name} is an offline fit and cannot learn more rows.")
    state, reading = kept.record, Reading.from_state(kept.record["reading"])
    request = Request(file or state["file"], *([] if file else [state["table"], state["query"]]))
    source = open_source(request)
    for name in reading.layout.used:
        if name not in source.names:
            raise unknown("column", name, source.names)
    job = Job(request, Wishes(), kept.model.name, level=state["level"], horizon=state["horizon"])
    prepared = Prepared(job, source, reading.layout, reading.clock.frequency, state["season"])
    scores = RunningScores.from_state(state["scoring"])
    counted = RunningCalibration.from_state(state["calibration"])
    batch = Batch(
        prepared, kept.model, reading, scores, counted, state["observations"], state["outliers"]
    )
    return batch, _new(source.rows(reading.layout.used), reading, file is not None), state["format"]


def _new(chunks: Iterator[list[Row]], reading: Reading, other_file: bool) -> Iterator[list[Row]]:
    """The rows that come after those the reading has taken."""
    known, last = reading.rows, reading.clock.last
    if reading.layout.time is None:
        yield from chunks if other_file else _without(chunks, known)
        return
    place = reading.layout.used.index(reading.layout.time)
    read = cell_forms.time_reader(reading.layout.time_form)

    def is_new(row: Row) -> bool:
        cell: Any = row[place]
        if last is None or cell_forms.missing(cell):
            return True
        moment: Any = read(cell)  # of the same kind as `last`: one reader reads a column
        return bool(moment > last)

    for chunk in chunks:
        yield [row for row in chunk if is_new(row)]


def _without(chunks: Iterator[list[Row]], count: int) -> Iterator[list[Row]]:
    for chunk in chunks:
        yield chunk[count:]
        count = max(count - len(chunk), 0)
