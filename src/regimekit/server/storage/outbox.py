"""Webhook messages, written in the transaction of the events they tell of.

So a message exists exactly when its event does; the dispatcher sends it later, at least once.
"""

from __future__ import annotations

import json
import time
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from regimekit.server.storage.streams import event_shape, names
from regimekit.server.storage.tables import EVENT, deliveries, streams, webhooks


def enqueue(connection: Connection, numbered: list[tuple[Any, ...]]) -> None:
    """A message for every webhook that asked for one of these events."""
    hooks = connection.execute(select(webhooks)).all()
    if not hooks:
        return
    keys = _keys(connection, {event[0] for event in numbered})
    messages = []
    for event in numbered:
        fields = dict(zip(EVENT, event, strict=True))
        key = keys[fields["stream"]]
        for hook in hooks:
            if key.startswith(hook.prefix) and _wanted(fields["kind"], json.loads(hook.kinds)):
                messages.append((hook.id, _body(connection, key, fields)))
    if messages:
        due = time.time()
        connection.execute(
            insert(deliveries),
            [{"webhook": hook, "body": body, "attempts": 0, "due": due} for hook, body in messages],
        )


def _wanted(kind: str, kinds: list[str]) -> bool:
    """Without a choice: everything but single outliers."""
    return kind in kinds if kinds else kind != "outlier"


def _keys(connection: Connection, ids: set[int]) -> dict[int, str]:
    found = connection.execute(select(streams.c.id, streams.c.key).where(streams.c.id.in_(ids)))
    return {row.id: row.key for row in found}


def _body(connection: Connection, key: str, event: dict[str, Any]) -> str:
    return json.dumps({"stream": key} | event_shape(event, names(connection, event["stream"])))


def due(connection: Connection, now: float, limit: int = 50) -> list[Row[Any]]:
    """Messages to be sent now, with where to and the secret they are signed with."""
    query = (
        select(deliveries, webhooks.c.url, webhooks.c.secret)
        .join(webhooks, webhooks.c.id == deliveries.c.webhook)
        .where(deliveries.c.due <= now)
        .order_by(deliveries.c.due, deliveries.c.id)
        .limit(limit)
    )
    return list(connection.execute(query).all())


def note(
    connection: Connection, delivery: int, attempts: int, again: float | None, error: str | None
) -> None:
    """What became of an attempt: delivered when there is no error, tried again at `again`."""
    connection.execute(
        update(deliveries)
        .where(deliveries.c.id == delivery)
        .values(
            attempts=attempts,
            due=again,
            error=error,
            delivered=None if error else time.time(),
        )
    )
