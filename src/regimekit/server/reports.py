"""The HTML report of a stream: what is stored of it, and its model as it stands."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, select

from regimekit import Event, RegimekitError, Run
from regimekit.report import render
from regimekit.server.config import LEVEL
from regimekit.server.storage import history, streams
from regimekit.server.storage.streams import Stream
from regimekit.server.storage.tables import observations as o

SHOWN = 20_000  # the latest observations; a worker does nothing else while it writes a report
_HORIZON = 24


def page(connection: Connection, stream: Stream, model: Any) -> str:
    """The report of the latest observations."""
    if stream.n_rows == 0:
        raise RegimekitError("There is nothing to report yet: send observations first.")
    start = max(0, stream.n_rows - SHOWN)
    window = (o.c.stream == stream.id) & (o.c.seq >= start) & (o.c.seq < stream.n_rows)
    stored = connection.execute(select(o).where(window).order_by(o.c.seq)).all()
    run = _run(connection, stream, start, stored)
    names = {regime: name for regime, (name, _) in streams.names(connection, stream.id).items()}
    return render(
        run=run,
        model=model,
        y=run.y,
        times=_times(stream, stored),
        title=stream.key,
        horizon=_HORIZON,
        regime_names={regime: name for regime, name in names.items() if name},
        warnings=[f"The report shows the latest {SHOWN} observations."] if start else [],
    )


def _run(connection: Connection, stream: Stream, start: int, stored: Any) -> Run:
    """The stored rows as the run they came from; what is not stored of it is NaN."""
    parts: dict[str, Any] = {
        "events": _events(connection, stream, start),
        "path": _path(connection, stream, start),
        "level": LEVEL,
        "first": start,
    }
    for entry in fields(Run):
        if entry.name in o.c:
            parts[entry.name] = _column(stored, entry.name)
        elif entry.name not in parts and entry.default is entry.default_factory is MISSING:
            parts[entry.name] = np.full(len(stored), np.nan)
    return Run(**parts)


def _column(stored: Any, name: str) -> NDArray[Any]:
    """One output of all rows; (T, d) where the observations have several coordinates."""
    kind = {"outlier": bool, "regime": int, "n_regimes": int}.get(name, float)
    if stored[-1].vector is not None and name in json.loads(stored[-1].vector):
        return _wide([json.loads(row.vector)[name] for row in stored])
    return np.array([getattr(row, name) for row in stored], dtype=kind)


def _wide(values: list[Any]) -> NDArray[np.float64]:
    width = max(len(value) for value in values if value is not None)
    blank = [None] * width
    return np.array([blank if value is None else value for value in values], dtype=float)


def _events(connection: Connection, stream: Stream, start: int) -> list[Event]:
    found = streams.event_page(connection, stream.id, start, None, stream.n_events + 1, False)
    return [Event(e["seq"], e["kind"], e["regime"], e["previous"], e["since"]) for e in found]


def _path(connection: Connection, stream: Stream, start: int) -> NDArray[np.int64]:
    path = np.full(stream.n_rows - start, -1, dtype=np.int64)
    for piece in history.ribbon(connection, stream, start, stream.n_rows):
        path[piece["start"] - start : piece["end"] - start] = piece["regime"]
    return path


def _times(stream: Stream, stored: Any) -> NDArray[Any] | None:
    """Times where every observation has one, in order."""
    if not stream.timed:
        return None
    return np.array([round(1e6 * row.at) for row in stored]).astype("datetime64[us]")
