"""The only writer of observations: a thread that commits what has gathered, all at once.

Many streams share one commit, and so one wait for the disk. A commit moves a stream from `start`
to `end` rows and is refused when the stream is elsewhere, so a model that ran ahead of what was
stored cannot leave a gap. When a shared commit fails, its parts are tried one by one: one bad
stream harms no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from sqlalchemy import Connection, Engine, bindparam, case, delete, insert, select, update

from regimekit.server.batching_queue import Gathering
from regimekit.server.rows import Commit, Resting
from regimekit.server.storage import outbox
from regimekit.server.storage.database import writing
from regimekit.server.storage.tables import EVENT, ROW, segments, streams

Entry = tuple[Commit | Resting, Future[None]]
_TOGETHER = 256  # commits of a shared transaction
_SNAPSHOT = (
    "INSERT INTO snapshots (stream, seq, data, made) VALUES ({0}, {0}, {0}, {0}) "
    "ON CONFLICT (stream) DO UPDATE SET seq = excluded.seq, data = excluded.data, "
    "made = excluded.made WHERE excluded.seq >= snapshots.seq"
)
_MOVE = (
    update(streams)
    .where(streams.c.id == bindparam("stream"), streams.c.n_rows == bindparam("start"))
    .values(
        n_rows=bindparam("end"),
        n_events=streams.c.n_events + bindparam("more_events"),
        n_outliers=streams.c.n_outliers + bindparam("more_outliers"),
        n_regimes=bindparam("known"),
        regime=bindparam("now"),
        change_probability=bindparam("p"),
        last_received=bindparam("received"),
        last_at=bindparam("latest"),
        timed=case((bindparam("in_order") == 1, streams.c.timed), else_=0),
    )
)


class Moved(RuntimeError):
    """The stream is not where the commit starts: it was deleted, or a commit before failed."""


class Writer:
    """Commits in the order given; each answer comes after the transaction is durable."""

    def __init__(self, engine: Engine, observe: Callable[[float, int], None]) -> None:
        self._engine = engine
        self._observe = observe
        self.generation: dict[int, int] = {}  # of each stream, raised by every failed commit
        self._entries = Gathering(self._commit, _TOGETHER, "writer")

    def submit(self, item: Commit | Resting) -> Future[None]:
        """Hand over what must be stored; the future is done when it is."""
        future: Future[None] = Future()
        self._entries.put((item, future))
        return future

    def close(self) -> None:
        """Finish what was handed over, then stop."""
        self._entries.close()

    def _commit(self, batch: list[Entry]) -> None:
        started = time.perf_counter()
        try:
            with writing(self._engine) as connection:
                _write(connection, [item for item, _ in batch if self._current(item)])
        except Exception as error:
            if len(batch) > 1:
                for entry in batch:
                    self._commit([entry])
                return
            self._fail(batch[0], error)
            return
        self._observe(time.perf_counter() - started, len(batch))
        for _, future in batch:
            future.set_result(None)

    def _current(self, item: Commit | Resting) -> bool:
        """A resting model that learnt from a commit which failed is not worth keeping."""
        if isinstance(item, Resting):
            return item.generation == self.generation.get(item.stream, 0)
        return True

    def _fail(self, entry: Entry, error: Exception) -> None:
        item, future = entry
        if isinstance(item, Commit):
            self.generation[item.stream] = self.generation.get(item.stream, 0) + 1
        future.set_exception(error)


def _write(connection: Connection, items: list[Commit | Resting]) -> None:
    commits = [item for item in items if isinstance(item, Commit)]
    numbered: list[tuple[Any, ...]] = []
    for commit in commits:
        first = _move(connection, commit)
        numbered += [
            (commit.stream, first + i, *event[1:]) for i, event in enumerate(commit.events)
        ]
    _insert(connection, "observations", ROW, [row for c in commits for row in c.rows])
    _insert(connection, "events", EVENT, numbered)
    _colour(connection, [segment for c in commits for segment in c.segments])
    if numbered:
        outbox.enqueue(connection, numbered)
    _store_snapshots(connection, items)


def _move(connection: Connection, commit: Commit) -> int:
    """Advance the stream; the number of its next event."""
    last = dict(zip(ROW, commit.rows[-1], strict=True))
    before = connection.execute(
        select(streams.c.n_events, streams.c.last_at).where(streams.c.id == commit.stream)
    ).first()
    if before is None:
        raise Moved("The stream was deleted while the observations were on their way.")
    moved = connection.execute(
        _MOVE,
        {
            "stream": commit.stream,
            "start": commit.start,
            "end": commit.end,
            "more_events": len(commit.events),
            "more_outliers": commit.outliers,
            "known": last["n_regimes"],
            "now": last["regime"],
            "p": last["change_probability"],
            "received": commit.received,
            "latest": last["at"],
            "in_order": int(_in_order(before.last_at, commit)),
        },
    )
    if moved.rowcount != 1:
        raise Moved("The stream is not where these observations start; send them again.")
    return int(before.n_events)


def _in_order(last_at: float | None, commit: Commit) -> bool:
    """Whether every new row has a time and none goes back."""
    latest = -float("inf") if last_at is None else last_at
    place = ROW.index("at")
    for row in commit.rows:
        if row[place] is None or row[place] < latest:
            return False
        latest = row[place]
    return True


def _insert(
    connection: Connection, table: str, columns: tuple[str, ...], rows: list[tuple[Any, ...]]
) -> None:
    if not rows:
        return
    marks = ", ".join([_mark(connection)] * len(columns))
    connection.exec_driver_sql(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


def _colour(connection: Connection, found: list[tuple[int, int, int]]) -> None:
    """Begin segments; one that reaches back replaces what was thought of that time."""
    for stream, start, regime in found:
        connection.execute(
            delete(segments).where(segments.c.stream == stream, segments.c.start >= start)
        )
        connection.execute(insert(segments).values(stream=stream, start=start, regime=regime))


def _mark(connection: Connection) -> str:
    return "?" if connection.dialect.name == "sqlite" else "%s"


def _store_snapshots(connection: Connection, items: list[Commit | Resting]) -> None:
    made = time.time()
    rows = []
    for item in items:
        if isinstance(item, Resting):
            if _rows_of(connection, item.stream) >= item.seq:
                rows.append((item.stream, item.seq, item.data, made))
        elif item.snapshot is not None:
            rows.append((item.stream, item.end, item.snapshot, made))
    if rows:
        connection.exec_driver_sql(_SNAPSHOT.format(_mark(connection)), rows)


def _rows_of(connection: Connection, stream: int) -> int:
    found = connection.execute(select(streams.c.n_rows).where(streams.c.id == stream)).scalar()
    return -1 if found is None else int(found)
