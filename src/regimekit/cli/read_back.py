"""A run read back from the folder it was written to."""

from __future__ import annotations

from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.cli.batch import SHOWN
from regimekit.core.recorder import in_hindsight
from regimekit.io.source import connect
from regimekit.results import NO_REGIME, Event, Run

Columns = dict[str, NDArray[Any]]


def read_run(folder: Path, form: str) -> tuple[Run, NDArray[np.float64], NDArray[Any] | None]:
    """The latest rows of a run: as a Run, the observations, and their times."""
    columns = _read(folder / f"run.{form}")
    events = _events(_read(folder / "events.csv"), columns["time"])
    columns["path"] = in_hindsight(columns["regime"], events)
    parts: dict[str, Any] = {"events": events}
    for entry in fields(Run):
        if entry.name in columns:
            parts[entry.name] = columns[entry.name]
        elif entry.name not in parts and entry.default is entry.default_factory is MISSING:
            parts[entry.name] = np.full(len(columns["y"]), np.nan)
    times = columns["time"] if columns["time"].dtype.kind in "Mf" else None
    return Run(**parts), columns["y"].astype(float), times


def _read(path: Path) -> Columns:
    text = "'" + str(path).replace("'", "''") + "'"
    if path.suffix == ".csv" and path.stat().st_size == 0:
        return {}
    relation = f"read_csv({text}, sample_size=-1)" if path.suffix == ".csv" else text
    with connect() as connection:
        total = connection.execute(f"SELECT count(*) FROM {relation}").fetchall()[0][0]
        query = f"SELECT * FROM {relation} OFFSET {max(total - SHOWN, 0)}"
        found = connection.execute(query).fetchnumpy()
    return {name: _filled(values) for name, values in found.items()}


def _filled(values: Any) -> NDArray[Any]:
    if not np.ma.isMaskedArray(values):
        return np.asarray(values)
    if values.dtype.kind == "f" or values.mask.any():
        return np.asarray(np.ma.filled(values.astype(float), np.nan))
    return np.asarray(values.data)


def _events(table: Columns, times: NDArray[Any]) -> list[Event]:
    """Events with the position of their rows; those of rows that are not shown are left out."""
    if not table:
        return []
    place = {time: j for j, time in enumerate(times.tolist())}
    found = []
    columns = (table[name].tolist() for name in ("time", "since", "kind", "regime", "previous"))
    for time, since, kind, regime, previous in zip(*columns, strict=True):
        if time in place:
            before = NO_REGIME if previous != previous else int(previous)
            found.append(Event(place[time], str(kind), int(regime), before, place.get(since, 0)))
    return found
