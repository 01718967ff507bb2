"""Unit of work: the only writer of observations.

A thread collects the changes of many streams into one transaction, so they share one flush to
disk. A change moves a stream from `start` to `end` rows and is rejected if the stream has another
number of rows, so a model that is ahead of the database cannot leave a gap. If a shared
transaction fails, its changes are retried one by one, so a failing stream does not affect others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Engine, select

from regimekit.server import alerting
from regimekit.server.batching_queue import BatchingQueue
from regimekit.server.records import StoredModel, StreamChange
from regimekit.server.storage import alerts, outbox
from regimekit.server.storage.database import placeholder, write_transaction
from regimekit.server.storage.schema import EVENT_COLUMNS, OBSERVATION_COLUMNS, streams

Change = StreamChange | StoredModel
_MAX_CHANGES = 256  # changes per transaction
# A snapshot never replaces one that is further ahead.
_UPSERT_SNAPSHOT = (
    "INSERT INTO snapshots (stream, seq, data, made) VALUES ({0}, {0}, {0}, {0}) "
    "ON CONFLICT (stream) DO UPDATE SET seq = excluded.seq, data = excluded.data, "
    "made = excluded.made WHERE excluded.seq >= snapshots.seq"
)
# Only the row that a change starts from is advanced.
_ADVANCE = (
    "UPDATE streams SET n_rows = {0}, n_events = n_events + {0}, n_outliers = n_outliers + {0}, "
    "n_regimes = {0}, regime = {0}, change_probability = {0}, last_received = {0}, last_at = {0}, "
    "timed = CASE WHEN {0} = 1 THEN timed ELSE 0 END WHERE id = {0} AND n_rows = {0}"
)
_DELETE_SEGMENTS = "DELETE FROM segments WHERE stream = {0} AND start >= {0}"
_COLUMN = {name: i for i, name in enumerate(OBSERVATION_COLUMNS)}


class ConflictError(RuntimeError):
    """A change does not continue its stream, which was deleted or missed an earlier change."""


class UnitOfWork:
    """Commit changes in the order of submission.

    Attributes:
        generation: number of failed changes per stream. A model that was updated before a
            failure belongs to an older generation, and its snapshot is discarded.
    """

    def __init__(self, engine: Engine, observe_seconds: Callable[[float], None]) -> None:
        """Start the writer thread.

        Args:
            engine: the database.
            observe_seconds: called with the duration of each transaction.
        """
        self._engine = engine
        self._observe_seconds = observe_seconds
        self.generation: dict[int, int] = {}
        self._queue = BatchingQueue(self._commit, _MAX_CHANGES, "unit of work")

    def submit(self, change: Change) -> asyncio.Future[None]:
        """Queue a change; the future completes when the change is durable.

        The future raises ConflictError or a database error if nothing was stored.
        """
        return self._queue.put(change)

    def close(self) -> None:
        """Commit everything submitted and end the thread."""
        self._queue.close()

    def _commit(self, changes: list[Change]) -> list[Exception | None]:
        started = time.perf_counter()
        try:
            with write_transaction(self._engine) as connection:
                _write(connection, [change for change in changes if self._is_current(change)])
        except Exception as error:
            if len(changes) > 1:
                return [result for change in changes for result in self._commit([change])]
            if isinstance(changes[0], StreamChange):
                stream = changes[0].stream
                self.generation[stream] = self.generation.get(stream, 0) + 1
            return [error]
        self._observe_seconds(time.perf_counter() - started)
        return [None] * len(changes)

    def _is_current(self, change: Change) -> bool:
        if isinstance(change, StoredModel):
            return change.generation == self.generation.get(change.stream, 0)
        return True


def _write(connection: Connection, changes: list[Change]) -> None:
    moves = [change for change in changes if isinstance(change, StreamChange)]
    events = _advance(connection, moves)
    rows = [row for change in moves for row in change.rows]
    _insert(connection, "observations", OBSERVATION_COLUMNS, rows)
    _insert(connection, "events", EVENT_COLUMNS, events)
    _replace_segments(connection, moves)
    if events:
        outbox.enqueue(connection, events)
    for change in moves:
        alerting.record(connection, change.stream, change.alerts)
    states = {c.stream: c.alert_state for c in moves if c.alert_state is not None}
    alerts.store_states(connection, list(states.items()))
    _store_snapshots(connection, changes)


def _advance(connection: Connection, moves: list[StreamChange]) -> list[tuple[Any, ...]]:
    """Update the rows of the streams; return the events with their streams and numbers."""
    ids = {change.stream for change in moves}
    if not ids:
        return []
    # Integers, so they need no parameters.
    query = f"SELECT id, n_events, last_at FROM streams WHERE id IN ({', '.join(map(str, ids))})"
    found = connection.exec_driver_sql(query)
    before = {stream: (n_events, last_at) for stream, n_events, last_at in found}
    if len(before) < len(ids):
        raise ConflictError("The stream was deleted before the observations were stored.")
    events: list[tuple[Any, ...]] = []
    updates = []
    for change in moves:
        number, last_at = before[change.stream]
        last = change.rows[-1]
        outputs = (last[_COLUMN[name]] for name in ("n_regimes", "regime", "change_probability"))
        at, ordered = last[_COLUMN["at"]], int(_has_ordered_times(last_at, change))
        counts = (change.end, len(change.events), change.outliers)
        key = (change.stream, change.start)
        updates.append((*counts, *outputs, change.received, at, ordered, *key))
        events += [(change.stream, number + i, *event) for i, event in enumerate(change.events)]
        before[change.stream] = (number + len(change.events), at)
    if _execute(connection, _ADVANCE, updates) != len(updates):
        raise ConflictError("The stream has other rows than expected. Send the request again.")
    return events


def _has_ordered_times(last_at: float | None, change: StreamChange) -> bool:
    column = _COLUMN["at"]
    latest = -float("inf") if last_at is None else last_at
    for row in change.rows:
        if row[column] is None or row[column] < latest:
            return False
        latest = row[column]
    return True


def _execute(connection: Connection, statement: str, rows: list[tuple[Any, ...]]) -> int:
    """Execute a statement with {0} for its parameters once per row; return the affected rows."""
    # Driver-level SQL: building a statement per row costs more than executing it.
    if not rows:
        return 0
    statement = statement.format(placeholder(connection))
    return int(connection.exec_driver_sql(statement, rows).rowcount)


def _insert(
    connection: Connection, table: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    values = ", ".join(["{0}"] * len(columns))
    _execute(connection, f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})", rows)


def _replace_segments(connection: Connection, moves: list[StreamChange]) -> None:
    """Insert segments; one that starts in the past replaces the later ones."""
    deletes, inserts = [], []
    for change in moves:
        kept: list[tuple[int, int]] = []
        for start, regime in change.segments:
            kept = [segment for segment in kept if segment[0] < start] + [(start, regime)]
        if kept:
            deletes.append((change.stream, min(start for start, _ in change.segments)))
        inserts += [(change.stream, *segment) for segment in kept]
    _execute(connection, _DELETE_SEGMENTS, deletes)
    _insert(connection, "segments", ("stream", "start", "regime"), inserts)


def _store_snapshots(connection: Connection, changes: list[Change]) -> None:
    made, rows = time.time(), []
    for change in changes:
        if isinstance(change, StreamChange):
            if change.snapshot is not None:
                rows.append((change.stream, change.end, change.snapshot, made))
            continue
        query = select(streams.c.n_rows).where(streams.c.id == change.stream)
        stored = connection.execute(query).scalar()
        if stored is not None and stored >= change.seq:
            rows.append((change.stream, change.seq, change.data, made))
    _execute(connection, _UPSERT_SNAPSHOT, rows)
