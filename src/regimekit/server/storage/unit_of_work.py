"""Unit of work: the only writer of observations.

A thread collects the changes of many streams into one transaction, so they share one flush to
disk. A change moves a stream from `start` to `end` rows and is rejected if the stream has another
number of rows, so a model that is ahead of the database cannot leave a gap. If a shared
transaction fails, its changes are retried one by one, so a failing stream does not affect others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, case, delete, insert, select, update

from regimekit.server import alerting
from regimekit.server.batching_queue import BatchingQueue
from regimekit.server.records import StoredModel, StreamChange
from regimekit.server.storage import alerts, outbox
from regimekit.server.storage.database import write_transaction
from regimekit.server.storage.schema import EVENT_COLUMNS, OBSERVATION_COLUMNS, segments, streams

Change = StreamChange | StoredModel
Entry = tuple[Change, Future[None]]
_MAX_CHANGES = 256  # changes per transaction
# A snapshot never replaces one that is further ahead.
_UPSERT_SNAPSHOT = (
    "INSERT INTO snapshots (stream, seq, data, made) VALUES ({0}, {0}, {0}, {0}) "
    "ON CONFLICT (stream) DO UPDATE SET seq = excluded.seq, data = excluded.data, "
    "made = excluded.made WHERE excluded.seq >= snapshots.seq"
)
_ADVANCE = (
    update(streams)
    .where(streams.c.id == bindparam("stream"), streams.c.n_rows == bindparam("start"))
    .values(
        n_rows=bindparam("end"),
        n_events=streams.c.n_events + bindparam("new_events"),
        n_outliers=streams.c.n_outliers + bindparam("new_outliers"),
        n_regimes=bindparam("regimes"),
        regime=bindparam("current"),
        change_probability=bindparam("probability"),
        last_received=bindparam("received"),
        last_at=bindparam("latest"),
        timed=case((bindparam("ordered") == 1, streams.c.timed), else_=0),
    )
)


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
        self._entries = BatchingQueue(self._commit, _MAX_CHANGES, "unit of work")

    def submit(self, change: Change) -> Future[None]:
        """Queue a change; the future completes when the change is durable.

        The future raises ConflictError or a database error if nothing was stored.
        """
        future: Future[None] = Future()
        self._entries.put((change, future))
        return future

    def close(self) -> None:
        """Commit everything submitted and end the thread."""
        self._entries.close()

    def _commit(self, entries: list[Entry]) -> None:
        started = time.perf_counter()
        try:
            with write_transaction(self._engine) as connection:
                _write(connection, [change for change, _ in entries if self._is_current(change)])
        except Exception as error:
            if len(entries) > 1:
                for entry in entries:
                    self._commit([entry])
                return
            change, future = entries[0]
            if isinstance(change, StreamChange):
                self.generation[change.stream] = self.generation.get(change.stream, 0) + 1
            future.set_exception(error)
            return
        self._observe_seconds(time.perf_counter() - started)
        for _, future in entries:
            future.set_result(None)

    def _is_current(self, change: Change) -> bool:
        if isinstance(change, StoredModel):
            return change.generation == self.generation.get(change.stream, 0)
        return True


def _write(connection: Connection, changes: list[Change]) -> None:
    moves = [change for change in changes if isinstance(change, StreamChange)]
    events: list[tuple[Any, ...]] = []
    for change in moves:
        number = _advance(connection, change)
        events += [(change.stream, number + i, *event) for i, event in enumerate(change.events)]
    rows = [row for change in moves for row in change.rows]
    _insert(connection, "observations", OBSERVATION_COLUMNS, rows)
    _insert(connection, "events", EVENT_COLUMNS, events)
    for change in moves:
        _replace_segments(connection, change)
    if events:
        outbox.enqueue(connection, events)
    for change in moves:
        alerting.record(connection, change.stream, change.alerts)
    states = {c.stream: c.alert_state for c in moves if c.alert_state is not None}
    alerts.store_states(connection, list(states.items()))
    _store_snapshots(connection, changes)


def _advance(connection: Connection, change: StreamChange) -> int:
    """Update the row of the stream; return the number of its next event."""
    query = select(streams.c.n_events, streams.c.last_at).where(streams.c.id == change.stream)
    before = connection.execute(query).first()
    if before is None:
        raise ConflictError("The stream was deleted before the observations were stored.")
    last = dict(zip(OBSERVATION_COLUMNS, change.rows[-1], strict=True))
    moved = connection.execute(
        _ADVANCE,
        {
            "stream": change.stream,
            "start": change.start,
            "end": change.end,
            "new_events": len(change.events),
            "new_outliers": change.outliers,
            "regimes": last["n_regimes"],
            "current": last["regime"],
            "probability": last["change_probability"],
            "received": change.received,
            "latest": last["at"],
            "ordered": int(_has_ordered_times(before.last_at, change)),
        },
    )
    if moved.rowcount != 1:
        raise ConflictError("The stream has other rows than expected. Send the request again.")
    return int(before.n_events)


def _has_ordered_times(last_at: float | None, change: StreamChange) -> bool:
    column = OBSERVATION_COLUMNS.index("at")
    latest = -float("inf") if last_at is None else last_at
    for row in change.rows:
        if row[column] is None or row[column] < latest:
            return False
        latest = row[column]
    return True


def _insert(
    connection: Connection, table: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    # Driver-level SQL: building a statement per row costs more than the insert itself.
    if rows:
        marks = ", ".join([_placeholder(connection)] * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        connection.exec_driver_sql(statement, rows)


def _placeholder(connection: Connection) -> str:
    return "?" if connection.dialect.name == "sqlite" else "%s"


def _replace_segments(connection: Connection, change: StreamChange) -> None:
    """Insert segments; one that starts in the past replaces the later ones."""
    for start, regime in change.segments:
        later = (segments.c.stream == change.stream) & (segments.c.start >= start)
        connection.execute(delete(segments).where(later))
        row = {"stream": change.stream, "start": start, "regime": regime}
        connection.execute(insert(segments).values(**row))


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
    if rows:
        statement = _UPSERT_SNAPSHOT.format(_placeholder(connection))
        connection.exec_driver_sql(statement, rows)
