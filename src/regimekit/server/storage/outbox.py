"""Webhooks and their transactional outbox.

A message is inserted in the transaction of its event, so it exists if and only if the event does.
`webhooks.Dispatcher` delivers it afterwards, at least once.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from regimekit.server.storage.schema import EVENT_COLUMNS, deliveries, streams, webhooks
from regimekit.server.storage.streams import event_dict, regime_names


def add_webhook(connection: Connection, prefix: str, url: str, kinds: list[str]) -> tuple[int, str]:
    """Create a webhook; return its id and the secret that signs its messages."""
    secret = secrets.token_urlsafe(32)
    row = {"prefix": prefix, "url": url, "secret": secret, "kinds": json.dumps(kinds)}
    made = connection.execute(
        insert(webhooks).values(created=time.time(), **row).returning(webhooks.c.id)
    )
    return int(made.scalar_one()), secret


def list_webhooks(connection: Connection) -> list[dict[str, Any]]:
    """Return all webhooks without secrets, with the state of their latest delivery."""
    latest = select(func.max(deliveries.c.id)).group_by(deliveries.c.webhook)
    query = (
        select(
            *(webhooks.c[name] for name in ("id", "prefix", "url", "kinds", "created")),
            deliveries.c.delivered.label("last_delivered"),
            func.coalesce(deliveries.c.attempts, 0).label("last_attempts"),
            deliveries.c.error.label("last_error"),
        )
        .outerjoin(
            deliveries, (deliveries.c.webhook == webhooks.c.id) & deliveries.c.id.in_(latest)
        )
        .order_by(webhooks.c.id)
    )
    rows = [dict(row._mapping) for row in connection.execute(query)]
    return [row | {"kinds": json.loads(row["kinds"])} for row in rows]


def webhook_prefix(connection: Connection, webhook: int) -> str | None:
    """Return the key prefix of a webhook, or None if the webhook does not exist."""
    query = select(webhooks.c.prefix).where(webhooks.c.id == webhook)
    found: str | None = connection.execute(query).scalar()
    return found


def remove_webhook(connection: Connection, webhook: int) -> None:
    """Delete a webhook and its messages."""
    connection.execute(delete(deliveries).where(deliveries.c.webhook == webhook))
    connection.execute(delete(webhooks).where(webhooks.c.id == webhook))


def enqueue(connection: Connection, events: list[tuple[Any, ...]]) -> None:
    """Insert a message for each event and each webhook that subscribes to it.

    Args:
        connection: the transaction that inserts the events.
        events: rows with the columns `schema.EVENT_COLUMNS`.
    """
    hooks = connection.execute(select(webhooks)).all()
    if not hooks:
        return
    ids = {event[0] for event in events}
    query = select(streams.c.id, streams.c.key).where(streams.c.id.in_(ids))
    keys = {row.id: row.key for row in connection.execute(query)}
    messages, now = [], time.time()
    for event in events:
        fields = dict(zip(EVENT_COLUMNS, event, strict=True))
        key = keys[fields["stream"]]
        for hook in hooks:
            if key.startswith(hook.prefix) and _subscribes(json.loads(hook.kinds), fields["kind"]):
                names = regime_names(connection, fields["stream"])
                body = json.dumps({"stream": key} | event_dict(fields, names))
                messages.append({"webhook": hook.id, "body": body, "attempts": 0, "due": now})
    if messages:
        connection.execute(insert(deliveries), messages)


def _subscribes(kinds: list[str], kind: str) -> bool:
    """An empty list subscribes to every kind except single outliers."""
    return kind in kinds if kinds else kind != "outlier"


def due(connection: Connection, now: float, limit: int = 50) -> list[Row[Any]]:
    """Return the messages to send at time `now`, with `url` and `secret` of their webhook."""
    query = (
        select(deliveries, webhooks.c.url, webhooks.c.secret)
        .join(webhooks, webhooks.c.id == deliveries.c.webhook)
        .where(deliveries.c.due <= now)
        .order_by(deliveries.c.due, deliveries.c.id)
        .limit(limit)
    )
    return list(connection.execute(query).all())


def record_attempt(
    connection: Connection, delivery: int, attempts: int, due: float | None, error: str | None
) -> None:
    """Store the result of a delivery attempt.

    Args:
        connection: a write transaction.
        delivery: id of the message.
        attempts: number of attempts so far.
        due: time of the next attempt in seconds since 1970, or None for no further attempt.
        error: why the attempt failed, or None if the message was delivered.
    """
    delivered = None if error else time.time()
    values = {"attempts": attempts, "due": due, "error": error, "delivered": delivered}
    connection.execute(update(deliveries).where(deliveries.c.id == delivery).values(**values))
