"""Receivers of events and alerts (webhooks), and their transactional outbox.

A message is inserted in the transaction of its event or alert, so it exists if and only if they
do. `webhooks.Dispatcher` delivers it afterwards, at least once. Messages about one alert are
delivered in order. A message that is muted becomes due at the end of the mute window.
"""

from __future__ import annotations

import json
import secrets
import time
from typing import Any

from sqlalchemy import Connection, Row, delete, exists, func, insert, select, update

from regimekit.alerts import SEVERITIES, Alert, mute_end
from regimekit.alerts.messages import MESSAGE_KINDS, json_payload, message_kind
from regimekit.results import OPENED, OUTLIER, PRUNED, RETURNED
from regimekit.server.storage import alerts
from regimekit.server.storage.schema import EVENT_COLUMNS, deliveries, streams, webhooks
from regimekit.server.storage.streams import event_dict, event_times, regime_labels

EVENT_KINDS = (OPENED, RETURNED, PRUNED, OUTLIER)
KINDS = (*EVENT_KINDS, *MESSAGE_KINDS)  # what a webhook can subscribe to
_COLUMNS = ("id", "prefix", "url", "kinds", "format", "severity", "created")


def add_webhook(
    connection: Connection,
    prefix: str,
    url: str,
    kinds: list[str],
    message_format: str = "json",
    severity: str = "info",
) -> tuple[int, str]:
    """Create a webhook; return its id and the secret that signs its messages.

    Args:
        connection: a write transaction.
        prefix: beginning of the keys of the streams to report.
        url: address of the receiver.
        kinds: kinds of events and alert messages to send; empty for the usual ones.
        message_format: one of `alerts.messages.FORMATS`.
        severity: lowest severity of the alerts to send.
    """
    secret = secrets.token_urlsafe(32)
    row = {"prefix": prefix, "url": url, "secret": secret, "kinds": json.dumps(kinds)}
    row |= {"format": message_format, "severity": severity}
    made = connection.execute(
        insert(webhooks).values(created=time.time(), **row).returning(webhooks.c.id)
    )
    return int(made.scalar_one()), secret


def list_webhooks(connection: Connection) -> list[dict[str, Any]]:
    """Return all webhooks without secrets, with the state of their latest delivery."""
    latest = select(func.max(deliveries.c.id)).group_by(deliveries.c.webhook)
    query = (
        select(
            *(webhooks.c[name] for name in _COLUMNS),
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
            if key.startswith(hook.prefix) and _subscribes(hook, fields["kind"]):
                labels = regime_labels(connection, fields["stream"])
                times = event_times(connection, fields["stream"], [fields])
                body = json.dumps({"stream": key} | event_dict(fields, labels, times))
                messages.append({"webhook": hook.id, "body": body, "attempts": 0, "due": now})
    if messages:
        connection.execute(insert(deliveries), messages)


def _subscribes(hook: Row[Any], kind: str) -> bool:
    """Without kinds: alerts and, in the JSON format, all events but outliers."""
    kinds = json.loads(hook.kinds)
    if kinds:
        return kind in kinds
    return kind in MESSAGE_KINDS or (hook.format == "json" and kind != OUTLIER)


def enqueue_alerts(connection: Connection, changed: list[Alert]) -> None:
    """Insert a message for each opened or resolved alert and each webhook that subscribes to it."""
    hooks = connection.execute(select(webhooks)).all()
    mutes = [mute for _, mute in alerts.list_mutes(connection)] if hooks else []
    now = time.time()
    for alert in changed:
        until = mute_end(mutes, alert.stream, now)
        if alert.is_open and until is not None:
            alerts.mute_until(connection, alert.id, until)
        for hook in hooks:
            if reports(hook, alert):
                _enqueue_alert(connection, hook.id, alert, until or now)


def reports(hook: Row[Any], alert: Alert) -> bool:
    """Return whether a webhook subscribes to an alert by stream, message kind and severity."""
    rank = SEVERITIES.index
    return (
        alert.stream.startswith(hook.prefix)
        and _subscribes(hook, message_kind(alert))
        and rank(alert.severity) >= rank(hook.severity)
    )


def _enqueue_alert(connection: Connection, webhook: int, alert: Alert, due: float) -> None:
    about = (deliveries.c.webhook == webhook, deliveries.c.alert == alert.id)
    if not alert.is_open:
        # Nobody heard of an alert that opened and resolved within a mute window.
        unsent = (deliveries.c.attempts == 0, deliveries.c.due > time.time())
        if connection.execute(delete(deliveries).where(*about, *unsent)).rowcount:
            return
    body = json.dumps(json_payload(alert))
    row = {"webhook": webhook, "body": body, "attempts": 0, "due": due, "alert": alert.id}
    connection.execute(insert(deliveries).values(row))


def cancel(connection: Connection, alert: str) -> None:
    """Delete the undelivered messages about an alert, because somebody has acknowledged it."""
    waiting = (deliveries.c.alert == alert, deliveries.c.due.is_not(None))
    connection.execute(delete(deliveries).where(*waiting))


def alertmanagers(connection: Connection) -> list[Row[Any]]:
    """Return the webhooks in the format of Alertmanager."""
    return list(connection.execute(select(webhooks).where(webhooks.c.format == "alertmanager")))


def due(connection: Connection, now: float, limit: int = 50) -> list[Row[Any]]:
    """Return the messages to send at time `now`, with `url`, `secret` and `format`."""
    earlier = deliveries.alias()
    waiting = exists().where(
        earlier.c.webhook == deliveries.c.webhook,
        earlier.c.alert == deliveries.c.alert,
        earlier.c.id < deliveries.c.id,
        earlier.c.due.is_not(None),
    )
    query = (
        select(deliveries, webhooks.c.url, webhooks.c.secret, webhooks.c.format)
        .join(webhooks, webhooks.c.id == deliveries.c.webhook)
        .where(deliveries.c.due <= now, ~waiting)
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
