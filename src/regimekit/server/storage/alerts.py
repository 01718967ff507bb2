"""Repository of alert rules, mute windows, alerts, and the states of the alert engines."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, delete, func, insert, select, update

from regimekit.alerts import Alert, Mute, Rule
from regimekit.server.storage.database import placeholder
from regimekit.server.storage.schema import alert_states, alerts, mutes, rules, streams
from regimekit.server.storage.streams import has_prefix

_FIELDS = tuple(Alert.__dataclass_fields__)
# Columns of the table `alerts` with the value of the field of the same name.
_STORED = tuple(name for name in _FIELDS if name not in ("id", "stream"))
_UPSERT_STATE = (
    "INSERT INTO alert_states (stream, state) VALUES ({0}, {0}) "
    "ON CONFLICT (stream) DO UPDATE SET state = excluded.state"
)


class StoredRule(NamedTuple):
    """A rule and its primary key."""

    id: int
    rule: Rule


def list_rules(connection: Connection) -> list[StoredRule]:
    """Return all rules, oldest first."""
    found = connection.execute(select(rules).order_by(rules.c.id))
    return [StoredRule(row.id, Rule.from_dict(json.loads(row.body))) for row in found]


def add_rule(connection: Connection, rule: Rule, number: int | None = None) -> int:
    """Insert a rule, with the id `number` if it is given, and return its id.

    Raises:
        sqlalchemy.exc.IntegrityError: if a rule has the same name.
    """
    row: dict[str, Any] = {"name": rule.name, "body": json.dumps(rule.to_dict())}
    row["created"] = time.time()
    row |= {} if number is None else {"id": number}
    return int(connection.execute(insert(rules).values(row).returning(rules.c.id)).scalar_one())


def replace_rule(connection: Connection, number: int, rule: Rule) -> None:
    """Replace the settings of a rule."""
    row = {"name": rule.name, "body": json.dumps(rule.to_dict())}
    connection.execute(update(rules).where(rules.c.id == number).values(row))


def remove_rule(connection: Connection, number: int) -> None:
    """Delete a rule."""
    connection.execute(delete(rules).where(rules.c.id == number))


def list_mutes(connection: Connection) -> list[tuple[int, Mute]]:
    """Return all mute windows with their ids."""
    found = connection.execute(select(mutes).order_by(mutes.c.id))
    return [(row.id, Mute.from_dict(json.loads(row.body))) for row in found]


def add_mute(connection: Connection, body: dict[str, Any]) -> int:
    """Insert a mute window given by its JSON values; return its id."""
    row = {"body": json.dumps(body), "created": time.time()}
    return int(connection.execute(insert(mutes).values(row).returning(mutes.c.id)).scalar_one())


def remove_mute(connection: Connection, number: int) -> None:
    """Delete a mute window. Messages that wait for its end keep their time."""
    connection.execute(delete(mutes).where(mutes.c.id == number))


def store(connection: Connection, stream: int, changed: Iterable[Alert]) -> None:
    """Insert opened alerts and update resolved ones."""
    for alert in changed:
        values = {name: getattr(alert, name) for name in _STORED}
        known = update(alerts).where(alerts.c.alert == alert.id)
        done = {name: values[name] for name in ("resolved", "resolved_time", "resolution")}
        # An alert that exists (after a restore of rows, or a rule that was deleted) is not doubled.
        if connection.execute(known.values(done)).rowcount == 0:
            connection.execute(insert(alerts).values(alert=alert.id, stream=stream, **values))


def store_states(connection: Connection, states: list[tuple[int, str]]) -> None:
    """Insert or replace the states of the alert engines of streams."""
    if states:
        connection.exec_driver_sql(_UPSERT_STATE.format(placeholder(connection)), states)


def load_state(connection: Connection, stream: int) -> dict[str, Any]:
    """Return the state of the alert engine of a stream; empty if there is none."""
    query = select(alert_states.c.state).where(alert_states.c.stream == stream)
    found = connection.execute(query).scalar()
    return {} if found is None else dict(json.loads(found))


def mute_until(connection: Connection, alert: str, until: float) -> None:
    """Store the time until which notifications of an alert are muted."""
    connection.execute(update(alerts).where(alerts.c.alert == alert).values(muted_until=until))


def _query() -> Select[Any]:
    return select(alerts, streams.c.key).join(streams, streams.c.id == alerts.c.stream)


def list_page(
    connection: Connection,
    prefixes: list[str],
    state: str,
    stream: str | None,
    limit: int,
    offset: int,
) -> tuple[int, list[dict[str, Any]]]:
    """Return one page of the alerts of readable streams, newest first.

    Args:
        connection: a transaction.
        prefixes: prefixes of the keys that the caller may read.
        state: "open", "resolved" or "all".
        stream: key of the only stream, or None.
        limit: largest number of alerts to return.
        offset: number of matching alerts to skip.

    Returns:
        The number of matching alerts, and the page.
    """
    query = _query().where(has_prefix(prefixes))
    if state != "all":
        unresolved = alerts.c.resolved.is_(None)
        query = query.where(unresolved if state == "open" else ~unresolved)
    if stream is not None:
        query = query.where(streams.c.key == stream)
    total = connection.execute(select(func.count()).select_from(query.subquery())).scalar()
    page = query.order_by(alerts.c.id.desc()).limit(limit).offset(offset)
    return int(total or 0), [alert_dict(row) for row in connection.execute(page)]


def find(connection: Connection, alert: str) -> dict[str, Any] | None:
    """Return an alert by its id, or None."""
    row = connection.execute(_query().where(alerts.c.alert == alert)).first()
    return None if row is None else alert_dict(row)


def alert_dict(row: Row[Any]) -> dict[str, Any]:
    """Return an alert as the API shows it."""
    shown = dict(row._mapping)
    return shown | {"id": shown.pop("alert"), "stream": shown.pop("key")}


def open_alerts(connection: Connection, kind: str | None = None) -> list[tuple[int, Alert]]:
    """Return the open alerts with the ids of their streams, optionally of one kind only."""
    query = _query().where(alerts.c.resolved.is_(None))
    if kind is not None:
        query = query.where(alerts.c.kind == kind)
    return [
        (row.stream, Alert(**{name: shown[name] for name in _FIELDS}))
        for row in connection.execute(query)
        for shown in (alert_dict(row),)
    ]


def notifiable(connection: Connection, now: float) -> list[Alert]:
    """Return the open alerts that are not muted at time `now`."""
    query = select(alerts.c.alert).where(alerts.c.muted_until > now)
    muted = set(connection.execute(query).scalars())
    return [alert for _, alert in open_alerts(connection) if alert.id not in muted]


def count_open(connection: Connection, ids: list[int]) -> dict[int, tuple[int, str]]:
    """Return the number of open alerts and their highest severity, per stream that has any."""
    query = (
        select(alerts.c.stream, alerts.c.severity, func.count())
        .where(alerts.c.resolved.is_(None), alerts.c.stream.in_(ids))
        .group_by(alerts.c.stream, alerts.c.severity)
    )
    rank = {"info": 0, "warning": 1, "critical": 2}
    found: dict[int, tuple[int, str]] = {}
    for stream, severity, count in connection.execute(query):
        number, worst = found.get(stream, (0, "info"))
        found[stream] = (number + count, max(worst, severity, key=lambda name: rank[name]))
    return found


def count_by_severity(connection: Connection) -> dict[str, int]:
    """Return the number of open alerts per severity."""
    query = select(alerts.c.severity, func.count()).where(alerts.c.resolved.is_(None))
    return {row[0]: row[1] for row in connection.execute(query.group_by(alerts.c.severity))}


def acknowledge(connection: Connection, alert: str, by: str, note: str) -> None:
    """Mark an alert as acknowledged."""
    values = {"acknowledged": time.time(), "acknowledged_by": by, "note": note}
    connection.execute(update(alerts).where(alerts.c.alert == alert).values(values))
