"""Repository of streams, their events and the names of their regimes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    delete,
    false,
    func,
    insert,
    or_,
    select,
    update,
)

from regimekit.results import UNKNOWN
from regimekit.server.storage import schema
from regimekit.server.storage.schema import events, observations, streams

_PLACES = {"seq": "time", "since": "since_time"}  # fields of an event: position -> its time
_MAX_PARAMETERS = 400  # below the limit of SQLite

_SORT_KEYS = {
    "key": streams.c.key,
    "latest": streams.c.last_received.desc(),
    "change": func.coalesce(streams.c.change_probability, -1).desc(),
    "rows": streams.c.n_rows.desc(),
}


class RegimeLabel(NamedTuple):
    """Name, note and status ("unknown", "normal" or "fault") that a user gave to a regime."""

    name: str = ""
    note: str = ""
    status: str = UNKNOWN


NO_LABEL = RegimeLabel()
RegimeLabels = dict[int, RegimeLabel]  # by regime id


class Stream(NamedTuple):
    """One row of the table `streams`."""

    id: int
    key: str
    model: str
    settings: dict[str, Any]
    created: float
    n_rows: int
    n_events: int
    n_outliers: int
    n_regimes: int
    regime: int
    change_probability: float | None
    last_received: float | None
    last_at: float | None
    timed: bool


def _stream(row: Row[Any]) -> Stream:
    fields = dict(row._mapping)
    fields |= {"settings": json.loads(fields["settings"]), "timed": bool(fields["timed"])}
    return Stream(**fields)


def find(connection: Connection, key: str) -> Stream | None:
    """Return the stream with a key, or None."""
    row = connection.execute(select(streams).where(streams.c.key == key)).first()
    return None if row is None else _stream(row)


def create(connection: Connection, key: str, model: str, settings: dict[str, Any]) -> Stream:
    """Insert a stream without observations.

    Raises:
        sqlalchemy.exc.IntegrityError: if the key exists.
    """
    counts = dict.fromkeys(("n_rows", "n_events", "n_outliers", "n_regimes"), 0)
    row = {"key": key, "model": model, "settings": json.dumps(settings, sort_keys=True)}
    connection.execute(
        insert(streams).values(created=time.time(), regime=-1, timed=1, **row, **counts)
    )
    made = find(connection, key)
    assert made is not None
    return made


def remove(connection: Connection, stream: int) -> None:
    """Delete a stream and everything stored for it."""
    owned = (schema.observations, events, schema.segments, schema.snapshots, schema.regime_names)
    for table in (*owned, schema.alerts, schema.alert_states):
        connection.execute(delete(table).where(table.c.stream == stream))
    connection.execute(delete(streams).where(streams.c.id == stream))


def has_prefix(prefixes: list[str]) -> ColumnElement[bool]:
    """Return the condition that the key of a stream begins with one of the prefixes."""
    # Not LIKE, which ignores case in SQLite.
    found = [func.substr(streams.c.key, 1, len(prefix)) == prefix for prefix in prefixes]
    return or_(false(), *found)


def list_page(
    connection: Connection, search: str, sort: str, limit: int, offset: int, prefixes: list[str]
) -> tuple[int, list[Stream]]:
    """Return one page of the streams that match.

    Args:
        connection: a transaction.
        search: part of the key; empty matches all.
        sort: "key", "latest", "change" or "rows".
        limit: largest number of streams to return.
        offset: number of matching streams to skip.
        prefixes: prefixes of the keys that the caller may read.

    Returns:
        The number of matching streams, and the page.
    """
    query = select(streams).where(has_prefix(prefixes))
    if search:
        query = query.where(streams.c.key.contains(search, autoescape=True))
    total = connection.execute(select(func.count()).select_from(query.subquery())).scalar()
    page = query.order_by(_SORT_KEYS[sort], streams.c.key).limit(limit).offset(offset)
    return int(total or 0), [_stream(row) for row in connection.execute(page)]


def oldest(connection: Connection, limit: int) -> list[Stream]:
    """Return the streams that were created first."""
    found = connection.execute(select(streams).order_by(streams.c.id).limit(limit))
    return [_stream(row) for row in found]


def totals(connection: Connection) -> tuple[int, int]:
    """Return the number of streams, and the sum of their numbers of regimes."""
    row = connection.execute(select(func.count(), func.sum(streams.c.n_regimes))).one()
    return int(row[0]), int(row[1] or 0)


def regime_labels(connection: Connection, stream: int) -> RegimeLabels:
    """Return the labels of the regimes that have one."""
    table = schema.regime_names
    found = connection.execute(select(table).where(table.c.stream == stream))
    return {row.regime: RegimeLabel(row.name, row.note, row.status) for row in found}


def label_regime(connection: Connection, stream: int, regime: int, label: RegimeLabel) -> None:
    """Label a regime; the empty label removes it."""
    table = schema.regime_names
    row = {"stream": stream, "regime": regime}
    connection.execute(delete(table).filter_by(**row))
    if label != NO_LABEL:
        connection.execute(insert(table).values(**row, **label._asdict()))


def list_events(
    connection: Connection, stream: int, since: int, kind: str | None, limit: int, newest: bool
) -> list[dict[str, Any]]:
    """Return events in the order of detection.

    Args:
        connection: a transaction.
        stream: id of the stream.
        since: sequence number of the first observation at which they were detected.
        kind: only this kind; with a leading minus, every other kind; None for all.
        limit: largest number of events to return.
        newest: return the latest `limit` events instead of the first ones.
    """
    query = select(events).where(events.c.stream == stream, events.c.seq >= since)
    if kind is not None:
        excluded = kind.startswith("-")
        query = query.where(events.c.kind != kind[1:] if excluded else events.c.kind == kind)
    order = events.c.number.desc() if newest else events.c.number
    found = connection.execute(query.order_by(order).limit(limit)).all()
    labels = regime_labels(connection, stream)
    times = event_times(connection, stream, [row._mapping for row in found])
    shown = [event_dict(row._mapping, labels, times) for row in found]
    return shown[::-1] if newest else shown


def event_times(
    connection: Connection, stream: int, found: Iterable[Mapping[Any, Any]]
) -> dict[int, str | None]:
    """Return the times of the observations that events refer to, by sequence number."""
    o, wanted = observations.c, sorted({event[name] for event in found for name in _PLACES})
    times: dict[int, str | None] = {}
    for i in range(0, len(wanted), _MAX_PARAMETERS):
        part = wanted[i : i + _MAX_PARAMETERS]
        query = select(o.seq, o.time).where(o.stream == stream, o.seq.in_(part))
        times.update((row.seq, row.time) for row in connection.execute(query))
    return times


def event_dict(
    row: Mapping[Any, Any], labels: RegimeLabels, times: Mapping[int, str | None]
) -> dict[str, Any]:
    """Return an event as the API shows it, with times and the names of its regimes."""
    shown = {name: row[name] for name in row if name != "stream"}
    shown |= {field: times.get(row[place]) for place, field in _PLACES.items()}
    for field in ("regime", "previous"):
        label = labels.get(shown[field], NO_LABEL)
        shown |= {f"{field}_name": label.name or None, f"{field}_note": label.note or None}
    return shown


def acknowledge(connection: Connection, stream: int, number: int, by: str, note: str) -> bool:
    """Mark an event as acknowledged; return whether the event exists."""
    done = connection.execute(
        update(events)
        .where(events.c.stream == stream, events.c.number == number)
        .values(acknowledged=time.time(), acknowledged_by=by, note=note)
    )
    return done.rowcount == 1
