"""Tables of the database and the numbered migrations that create them, for SQLite and Postgres.

`MIGRATIONS` is the source of truth for constraints. The SQLAlchemy tables only carry what queries
need (names, types, primary keys); a test compares the two.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Float,
    LargeBinary,
    MetaData,
    Table,
    Text,
    inspect,
)

from regimekit.core.exceptions import RegimekitError

metadata = MetaData()


def _table(
    name: str, key: str, integer: str = "", real: str = "", text: str = "", binary: str = ""
) -> Table:
    """Define a table by space-separated column names per type; `key` is the primary key."""
    types = (BigInteger, integer), (Float, real), (Text, text), (LargeBinary, binary)
    return Table(
        name,
        metadata,
        *(Column(column, BigInteger, primary_key=True) for column in key.split()),
        *(Column(column, kind) for kind, columns in types for column in columns.split()),
    )


# n_rows: number of stored observations, and so the sequence number of the next one.
# timed: 1 while every observation has a time and times do not decrease.
streams = _table(
    "streams",
    "id",
    integer="n_rows n_events n_outliers n_regimes regime timed",
    real="created change_probability last_received last_at",
    text="key model settings",
)

INTEGER_OUTPUTS = ("outlier", "regime", "n_regimes")
VECTOR_OUTPUTS = ("mean", "median", "sd", "lower", "upper")  # one value per coordinate of y
REAL_OUTPUTS = (
    *VECTOR_OUTPUTS,
    *("log_score", "weight", "regime_probability", "change_probability", "anomaly_score"),
)
OUTPUTS = (*REAL_OUTPUTS, *INTEGER_OUTPUTS)
OBSERVATION_COLUMNS = (
    *("stream", "seq", "id", "time", "at", "received", "y", "x", "vector"),
    *OUTPUTS,
)

# at: the time in seconds since 1970.
# vector: y and its outputs per coordinate as JSON, if y has several coordinates.
observations = _table(
    "observations",
    "stream seq",
    integer=" ".join(INTEGER_OUTPUTS),
    real=" ".join(("at", "received", "y", *REAL_OUTPUTS)),
    text="id time x vector",
)

EVENT_COLUMNS = ("stream", "number", "seq", "since", "kind", "regime", "previous", "received")

# seq: observation at which the event was detected. since: first observation it applies to.
events = _table(
    "events",
    "stream number",
    integer="seq since regime previous",
    real="received acknowledged",
    text="kind acknowledged_by note",
)
segments = _table("segments", "stream start", integer="regime")
# seq: number of observations the stored model has been updated with.
snapshots = _table("snapshots", "stream", integer="seq", real="made", binary="data")
# status: "unknown", "normal" or "fault".
regime_names = _table("regime_names", "stream regime", text="name note status")
tokens = _table("tokens", "id", real="rate created revoked", text="name hash scopes")
# format: one of `alerts.messages.FORMATS`. severity: lowest severity of the alerts to send.
webhooks = _table("webhooks", "id", real="created", text="prefix url secret kinds format severity")
# due: time of the next attempt; null after delivery or after the last attempt.
# alert: id of the alert that the message is about, or null.
deliveries = _table(
    "deliveries", "id", integer="webhook attempts", real="due delivered", text="body error alert"
)
# body: the settings of a rule or a mute window as JSON.
rules = _table("rules", "id", real="created", text="name body")
mutes = _table("mutes", "id", real="created", text="body")
# alert: id derived from stream, rule and start. Other fields as in `regimekit.alerts.Alert`.
alerts = _table(
    "alerts",
    "id",
    integer="stream start opened regime previous resolved",
    real="start_time opened_time resolved_time acknowledged muted_until",
    text="alert rule kind severity summary resolution acknowledged_by note",
)
# state: state of the stream's alert engine after its latest row, as JSON.
alert_states = _table("alert_states", "stream", text="state")


class Migration(NamedTuple):
    """One numbered schema change. A published migration is never edited."""

    number: int
    name: str
    statements: tuple[str, ...]


_DIALECT_WORDS = {
    "sqlite": {
        "serial": "INTEGER PRIMARY KEY AUTOINCREMENT",
        "real": "REAL",
        "bytes": "BLOB",
        "clustered": "WITHOUT ROWID",
    },
    "postgresql": {
        "serial": "BIGSERIAL PRIMARY KEY",
        "real": "DOUBLE PRECISION",
        "bytes": "BYTEA",
        "clustered": "",
    },
}

MIGRATIONS = (
    Migration(
        1,
        "streams, observations, events, snapshots",
        (
            """CREATE TABLE streams (
                id {serial}, key TEXT NOT NULL UNIQUE, model TEXT NOT NULL,
                settings TEXT NOT NULL, created {real} NOT NULL,
                n_rows BIGINT NOT NULL, n_events BIGINT NOT NULL, n_outliers BIGINT NOT NULL,
                n_regimes INTEGER NOT NULL, regime INTEGER NOT NULL, change_probability {real},
                last_received {real}, last_at {real}, timed INTEGER NOT NULL)""",
            """CREATE TABLE observations (
                stream BIGINT NOT NULL, seq BIGINT NOT NULL, id TEXT, time TEXT, at {real},
                received {real} NOT NULL, y {real}, x TEXT, vector TEXT,
                mean {real}, median {real}, sd {real}, lower {real}, upper {real},
                log_score {real}, weight {real}, outlier SMALLINT NOT NULL,
                regime INTEGER NOT NULL, regime_probability {real}, change_probability {real},
                n_regimes INTEGER NOT NULL, PRIMARY KEY (stream, seq)) {clustered}""",
            """CREATE UNIQUE INDEX observations_id ON observations (stream, id)
                WHERE id IS NOT NULL""",
            """CREATE TABLE events (
                stream BIGINT NOT NULL, number BIGINT NOT NULL, seq BIGINT NOT NULL,
                since BIGINT NOT NULL, kind TEXT NOT NULL, regime INTEGER NOT NULL,
                previous INTEGER NOT NULL, received {real} NOT NULL,
                PRIMARY KEY (stream, number)) {clustered}""",
            """CREATE TABLE segments (
                stream BIGINT NOT NULL, start BIGINT NOT NULL, regime INTEGER NOT NULL,
                PRIMARY KEY (stream, start)) {clustered}""",
            """CREATE TABLE snapshots (
                stream BIGINT PRIMARY KEY, seq BIGINT NOT NULL, data {bytes} NOT NULL,
                made {real} NOT NULL)""",
        ),
    ),
    Migration(
        2,
        "names of regimes, acknowledged events",
        (
            "ALTER TABLE events ADD COLUMN acknowledged {real}",
            "ALTER TABLE events ADD COLUMN acknowledged_by TEXT",
            "ALTER TABLE events ADD COLUMN note TEXT",
            """CREATE TABLE regime_names (
                stream BIGINT NOT NULL, regime INTEGER NOT NULL, name TEXT NOT NULL,
                note TEXT NOT NULL, PRIMARY KEY (stream, regime)) {clustered}""",
        ),
    ),
    Migration(
        3,
        "tokens",
        (
            """CREATE TABLE tokens (
                id {serial}, name TEXT NOT NULL UNIQUE, hash TEXT NOT NULL UNIQUE,
                scopes TEXT NOT NULL, rate {real} NOT NULL, created {real} NOT NULL,
                revoked {real})""",
        ),
    ),
    Migration(
        4,
        "webhooks and their deliveries",
        (
            """CREATE TABLE webhooks (
                id {serial}, prefix TEXT NOT NULL, url TEXT NOT NULL, secret TEXT NOT NULL,
                kinds TEXT NOT NULL, created {real} NOT NULL)""",
            """CREATE TABLE deliveries (
                id {serial}, webhook BIGINT NOT NULL, body TEXT NOT NULL,
                attempts INTEGER NOT NULL, due {real}, delivered {real}, error TEXT)""",
            "CREATE INDEX deliveries_due ON deliveries (due) WHERE due IS NOT NULL",
        ),
    ),
    Migration(
        5,
        "alert rules, alerts, mute windows",
        (
            "ALTER TABLE observations ADD COLUMN anomaly_score {real}",
            "ALTER TABLE regime_names ADD COLUMN status TEXT NOT NULL DEFAULT 'unknown'",
            "ALTER TABLE webhooks ADD COLUMN format TEXT NOT NULL DEFAULT 'json'",
            "ALTER TABLE webhooks ADD COLUMN severity TEXT NOT NULL DEFAULT 'info'",
            "ALTER TABLE deliveries ADD COLUMN alert TEXT",
            """CREATE TABLE rules (
                id {serial}, name TEXT NOT NULL UNIQUE, body TEXT NOT NULL,
                created {real} NOT NULL)""",
            "CREATE TABLE mutes (id {serial}, body TEXT NOT NULL, created {real} NOT NULL)",
            """CREATE TABLE alerts (
                id {serial}, alert TEXT NOT NULL, stream BIGINT NOT NULL, rule TEXT NOT NULL,
                kind TEXT NOT NULL, severity TEXT NOT NULL, start BIGINT NOT NULL,
                start_time {real}, opened BIGINT NOT NULL, opened_time {real},
                summary TEXT NOT NULL, regime INTEGER NOT NULL, previous INTEGER NOT NULL,
                resolved BIGINT, resolved_time {real}, resolution TEXT, acknowledged {real},
                acknowledged_by TEXT, note TEXT, muted_until {real})""",
            "CREATE UNIQUE INDEX alerts_alert ON alerts (alert)",
            "CREATE INDEX alerts_stream ON alerts (stream)",
            "CREATE INDEX alerts_open ON alerts (id) WHERE resolved IS NULL",
            "CREATE TABLE alert_states (stream BIGINT PRIMARY KEY, state TEXT NOT NULL)",
        ),
    ),
)
LATEST = MIGRATIONS[-1].number


def version(connection: Connection) -> int:
    """Return the number of the last migration applied, or 0 for an empty database."""
    if not inspect(connection).has_table("migrations"):
        return 0
    found = connection.exec_driver_sql("SELECT MAX(number) FROM migrations").scalar()
    return int(found or 0)


def migrate(engine: Engine, until: int = LATEST) -> int:
    """Apply missing migrations, each in its own transaction.

    Args:
        engine: the database.
        until: number of the last migration to apply.

    Returns:
        How many migrations were applied.

    Raises:
        RegimekitError: if the database has a newer schema than this version supports.
    """
    with engine.begin() as connection:
        present = version(connection)
        if present == 0:
            connection.exec_driver_sql(
                "CREATE TABLE IF NOT EXISTS migrations "
                "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied TEXT NOT NULL)"
            )
    if present > LATEST:
        raise RegimekitError(
            f"The database has schema {present}, but this version of regimekit supports schemas "
            f"up to {LATEST}. Update regimekit."
        )
    due = [migration for migration in MIGRATIONS if present < migration.number <= until]
    for migration in due:
        with engine.begin() as connection:
            _apply(connection, migration)
    return len(due)


def _apply(connection: Connection, migration: Migration) -> None:
    words = _DIALECT_WORDS[connection.dialect.name]
    for statement in migration.statements:
        connection.exec_driver_sql(statement.format(**words))
    applied = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    connection.exec_driver_sql(
        f"INSERT INTO migrations VALUES ({migration.number}, '{migration.name}', '{applied}')"
    )
