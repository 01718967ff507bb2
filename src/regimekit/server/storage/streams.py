"""Streams, their regimes' names and their events: what is read and changed besides the rows."""

from __future__ import annotations

import json
import time
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, delete, false, func, insert, or_, select, update

from regimekit.server.storage.tables import (
    events,
    observations,
    regime_names,
    segments,
    snapshots,
    streams,
)

_SORTS = {
    "key": streams.c.key,
    "latest": streams.c.last_received.desc(),
    "change": func.coalesce(streams.c.change_probability, -1).desc(),
    "rows": streams.c.n_rows.desc(),
}
SORTS = tuple(_SORTS)


class Stream(NamedTuple):
    """A stream as its row says."""

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
    return Stream(
        **fields | {"settings": json.loads(fields["settings"]), "timed": bool(fields["timed"])}
    )


def find(connection: Connection, key: str) -> Stream | None:
    """The stream of a key."""
    row = connection.execute(select(streams).where(streams.c.key == key)).first()
    return None if row is None else _stream(row)


def create(connection: Connection, key: str, model: str, settings: dict[str, Any]) -> Stream:
    """A new stream without observations."""
    connection.execute(
        insert(streams).values(
            key=key,
            model=model,
            settings=json.dumps(settings, sort_keys=True),
            created=time.time(),
            n_rows=0,
            n_events=0,
            n_outliers=0,
            n_regimes=0,
            regime=-1,
            timed=1,
        )
    )
    made = find(connection, key)
    assert made is not None
    return made


def remove(connection: Connection, stream: int) -> None:
    """Everything of a stream."""
    for table in (observations, events, segments, snapshots, regime_names):
        connection.execute(delete(table).where(table.c.stream == stream))
    connection.execute(delete(streams).where(streams.c.id == stream))


def _matching(search: str, prefixes: list[str] | None) -> Select[Any]:
    query = select(streams)
    if search:
        query = query.where(streams.c.key.contains(search, autoescape=True))
    if prefixes is not None:
        allowed = [streams.c.key.startswith(prefix, autoescape=True) for prefix in prefixes]
        query = query.where(or_(false(), *allowed))
    return query


def listing(
    connection: Connection,
    search: str,
    sort: str,
    limit: int,
    offset: int,
    prefixes: list[str] | None,
) -> tuple[int, list[Stream]]:
    """How many streams match, and one page of them."""
    query = _matching(search, prefixes)
    total = connection.execute(select(func.count()).select_from(query.subquery())).scalar()
    page = query.order_by(_SORTS[sort], streams.c.key).limit(limit).offset(offset)
    return int(total or 0), [_stream(row) for row in connection.execute(page)]


def totals(connection: Connection) -> tuple[int, int]:
    """Streams, and regimes known over all of them."""
    row = connection.execute(select(func.count(), func.sum(streams.c.n_regimes))).one()
    return int(row[0]), int(row[1] or 0)


def names(connection: Connection, stream: int) -> dict[int, tuple[str, str]]:
    """Name and note of each regime that has them."""
    found = connection.execute(select(regime_names).where(regime_names.c.stream == stream))
    return {row.regime: (row.name, row.note) for row in found}


def name_regime(connection: Connection, stream: int, regime: int, name: str, note: str) -> None:
    """Give a regime a name and a note; two empty ones take them away."""
    here = (regime_names.c.stream == stream) & (regime_names.c.regime == regime)
    connection.execute(delete(regime_names).where(here))
    if name or note:
        connection.execute(
            insert(regime_names).values(stream=stream, regime=regime, name=name, note=note)
        )


def event_page(
    connection: Connection, stream: int, since: int, kind: str | None, limit: int, newest: bool
) -> list[dict[str, Any]]:
    """Events known at observation `since` or later, in order; the newest ones if asked for.

    A kind with a minus before it is left out.
    """
    query = select(events).where(events.c.stream == stream, events.c.seq >= since)
    if kind is not None:
        same = not kind.startswith("-")
        query = query.where(events.c.kind == kind if same else events.c.kind != kind[1:])
    order = events.c.number.desc() if newest else events.c.number
    found = connection.execute(query.order_by(order).limit(limit)).all()
    known = names(connection, stream)
    shaped = [event_shape(row._mapping, known) for row in found]
    return shaped[::-1] if newest else shaped


def event_shape(row: Any, known: dict[int, tuple[str, str]]) -> dict[str, Any]:
    """An event as the API shows it."""
    shape = {name: row[name] for name in row if name != "stream"}
    for which in ("regime", "previous"):
        name, note = known.get(shape[which], ("", ""))
        shape |= {f"{which}_name": name or None, f"{which}_note": note or None}
    return shape


def acknowledge(connection: Connection, stream: int, number: int, by: str, note: str) -> bool:
    """Note that somebody has seen an event; whether there is such an event."""
    done = connection.execute(
        update(events)
        .where(events.c.stream == stream, events.c.number == number)
        .values(acknowledged=time.time(), acknowledged_by=by, note=note)
    )
    return done.rowcount == 1
