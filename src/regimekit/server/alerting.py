"""Alerts of the service: engines in the workers, storage with the rows, the clock of stale streams.

An alert is stored in the transaction of the rows that opened or resolved it, together with the
state of the stream's engine and the messages to its receivers. So a crash neither loses nor
doubles an alert.
"""

from __future__ import annotations

import json
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Engine, select

from regimekit import Run
from regimekit.alerts import Alert, AlertEngine, Rule, Sample, samples
from regimekit.alerts.rules import STALE
from regimekit.server.storage import alerts, outbox, streams
from regimekit.server.storage.database import write_transaction
from regimekit.server.storage.schema import streams as stream_table

if TYPE_CHECKING:
    from regimekit.server.records import Observation

CLOCK_INTERVAL = 5.0  # seconds between two checks of stale streams
_log = logging.getLogger("regimekit.server.alerts")


class StreamAlerts:
    """The alert engine of one stream in a worker, after the stream's latest stored row."""

    def __init__(
        self, engine: AlertEngine, ids: dict[str, int], labels: streams.RegimeLabels
    ) -> None:
        self._engine, self._ids = engine, ids
        self._statuses = {regime: label.status for regime, label in labels.items()}
        self._latest: Sample | None = None

    @classmethod
    def load(
        cls,
        connection: Connection,
        stream: int,
        rules: list[alerts.StoredRule],
        labels: streams.RegimeLabels,
    ) -> StreamAlerts | None:
        """Return the engine of a stream, or None if no rule applies to it."""
        query = select(stream_table.c.key).where(stream_table.c.id == stream)
        key = connection.execute(query).scalar_one()
        own = [stored for stored in rules if stored.rule.applies(key)]
        own = [stored for stored in own if stored.rule.kind != STALE]
        if not own:
            return None
        ids = {stored.rule.name: stored.id for stored in own}
        stored = alerts.load_state(connection, stream)
        # A rule that was deleted and created again under the same name starts afresh.
        state = {
            name: entry["state"] for name, entry in stored.items() if entry["id"] == ids.get(name)
        }
        engine = AlertEngine(key, [entry.rule for entry in own], state)
        return cls(engine, ids, labels)

    def process(
        self, start: int, rows: list[Observation], received: float, run: Run
    ) -> list[Alert]:
        """Return the alerts that rows open or resolve.

        Args:
            start: number of the first row.
            rows: the observations.
            received: time of arrival in seconds since 1970.
            run: outputs of the model.
        """
        times = [received if row.at is None else row.at for row in rows]
        found: list[Alert] = []
        for sample in samples(run, start, times, self._statuses):
            self._latest = sample
            found += self._engine.update(sample)
        return found

    def process_forecast(self, model: Any) -> list[Alert]:
        """Return the alerts that the forecast after the latest processed row opens or resolves."""
        return [] if self._latest is None else self._engine.check_forecast(self._latest, model)

    def state(self) -> str:
        """Return the state to store, as JSON."""
        states = self._engine.state()
        entries = {name: {"id": self._ids[name], "state": state} for name, state in states.items()}
        return json.dumps(entries, separators=(",", ":"))


def record(connection: Connection, stream: int, changed: list[Alert]) -> None:
    """Store opened and resolved alerts and their messages."""
    if changed:
        alerts.store(connection, stream, changed)
        outbox.enqueue_alerts(connection, changed)


def _resolve_all(connection: Connection, rule: str, reason: str) -> None:
    """Resolve the open alerts of a rule."""
    for stream, alert in alerts.open_alerts(connection):
        if alert.rule == rule:
            now = time.time()
            done = replace(alert, resolved=alert.opened, resolved_time=now, resolution=reason)
            record(connection, stream, [done])


def remove_rule(connection: Connection, number: int, name: str) -> None:
    """Delete a rule and resolve its open alerts."""
    alerts.remove_rule(connection, number)
    _resolve_all(connection, name, "the rule was deleted")


def replace_rule(connection: Connection, before: alerts.StoredRule, rule: Rule) -> None:
    """Replace a rule; its open alerts stay open if name, kind and streams are unchanged."""
    names = ("name", "kind", "stream", "prefix")
    if any(getattr(before.rule, name) != getattr(rule, name) for name in names):
        remove_rule(connection, before.id, before.rule.name)
        alerts.add_rule(connection, rule, before.id)
    else:
        alerts.replace_rule(connection, before.id, rule)


def check_stale(engine: Engine, now: float, started: float) -> int:
    """Open and resolve the alerts of stale streams.

    Args:
        engine: the database.
        now: present time in seconds since 1970.
        started: start of the service; the time before it does not count as silence.

    Returns:
        The number of alerts that were opened or resolved.
    """
    with engine.connect() as connection:
        rules = [stored.rule for stored in alerts.list_rules(connection)]
        rules = [rule for rule in rules if rule.kind == STALE]
        if not rules:
            return 0
        changes = _stale_changes(connection, rules, now, started)
    if changes:
        with write_transaction(engine) as connection:
            for stream, changed in changes:
                record(connection, stream, changed)
    return sum(len(changed) for _, changed in changes)


def _stale_changes(
    connection: Connection, rules: list[Rule], now: float, started: float
) -> list[tuple[int, list[Alert]]]:
    open_alerts: dict[int, dict[str, Any]] = {}
    for stream, alert in alerts.open_alerts(connection, STALE):
        open_alerts.setdefault(stream, {})[alert.rule] = {"alert": alert.to_dict()}
    shortest = now - min(rule.seconds for rule in rules)
    table = stream_table.c
    query = select(table.id, table.key, table.n_rows, table.last_received).where(
        table.last_received.is_not(None)
    )
    found = []
    for row in connection.execute(query):
        last = row.last_received
        if max(last, started) >= shortest and row.id not in open_alerts:
            continue
        engine = AlertEngine(row.key, rules, open_alerts.get(row.id))
        changed = engine.update_clock(now, last, row.n_rows - 1, started)
        if changed:
            found.append((row.id, changed))
    return found
