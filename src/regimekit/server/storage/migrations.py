"""Numbered steps from an empty database to the tables of today, for SQLite and Postgres.

A step is a list of statements with three words that differ: {serial}, {real} and {bytes}. Steps
are applied in order, each in a transaction that also notes its number; a published step is never
edited, a change is a new step.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from sqlalchemy import Connection, Engine, inspect

from regimekit.core.exceptions import RegimekitError


class Migration(NamedTuple):
    """One numbered step."""

    number: int
    name: str
    statements: tuple[str, ...]


_WORDS = {
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
)
LATEST = MIGRATIONS[-1].number


def version(connection: Connection) -> int:
    """The number of the last step applied; 0 for an empty database."""
    if not inspect(connection).has_table("migrations"):
        return 0
    found = connection.exec_driver_sql("SELECT MAX(number) FROM migrations").scalar()
    return int(found or 0)


def migrate(engine: Engine, until: int = LATEST) -> int:
    """Apply the steps that are missing; how many that were."""
    with engine.begin() as connection:
        present = version(connection)
        if present == 0:
            connection.exec_driver_sql(
                "CREATE TABLE IF NOT EXISTS migrations "
                "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, applied TEXT NOT NULL)"
            )
    if present > LATEST:
        raise RegimekitError(
            f"The database has schema {present}; this regimekit knows up to {LATEST}. "
            "Update regimekit to use it."
        )
    due = [step for step in MIGRATIONS if present < step.number <= until]
    for step in due:
        with engine.begin() as connection:
            _apply(connection, step)
    return len(due)


def _apply(connection: Connection, step: Migration) -> None:
    words = _WORDS[connection.dialect.name]
    for statement in step.statements:
        connection.exec_driver_sql(statement.format(**words))
    applied = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    connection.exec_driver_sql(
        f"INSERT INTO migrations VALUES ({step.number}, '{step.name}', '{applied}')"
    )
