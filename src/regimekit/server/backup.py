"""Backup and restore: the whole database as one SQLite file, whichever database it came from.

A backup is read in one transaction, so it shows one moment, also while the service runs. It is
written beside its place and moved there when it is whole. Restoring fills an empty database only.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, Table, func, insert, select, text
from sqlalchemy.exc import DatabaseError

from regimekit.core.exceptions import RegimekitError
from regimekit.server.storage.database import connect, opened, sole_writer, writing
from regimekit.server.storage.migrations import LATEST, version
from regimekit.server.storage.tables import metadata, streams, tokens

_CHUNK = 2000


def backup(db: str, file: Path) -> dict[str, int]:
    """Write everything to `file`; how many rows each table has."""
    if file.exists():
        raise RegimekitError(f"FILE {file} exists; a backup does not overwrite.")
    part = file.with_name(file.name + ".part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_WRONLY, 0o600))  # it holds webhook secrets
    with (
        opened(db) as source,
        opened(f"sqlite:///{part.absolute()}") as target,
        _one_moment(source) as reader,
        reader.begin(),
        writing(target) as writer,
    ):
        counts = _copy(reader, writer)
    _settle(part, file)
    return counts


def _one_moment(engine: Engine) -> Connection:
    """A connection whose transactions see the database as it was when they began."""
    connection = engine.connect()
    if engine.dialect.name == "postgresql":
        connection = connection.execution_options(isolation_level="REPEATABLE READ")
    return connection


def _settle(part: Path, file: Path) -> None:
    """One file without a journal beside it, durable under its name, or not there at all."""
    plain = sqlite3.connect(part)
    plain.execute("PRAGMA journal_mode=DELETE")
    plain.close()
    with part.open("rb") as handle:
        os.fsync(handle.fileno())
    part.rename(file)
    folder = os.open(file.absolute().parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def restore(db: str, file: Path) -> dict[str, int]:
    """Fill the empty database `db` from a backup; how many rows each table has."""
    if not file.exists():
        raise RegimekitError(f"FILE {file} does not exist.")
    _check(file)
    with (
        opened(f"sqlite:///{file.absolute()}") as source,
        opened(db) as target,
        sole_writer(db, target),
        source.connect() as reader,
        writing(target) as writer,
    ):
        _demand_empty(writer)
        counts = _copy(reader, writer)
        _advance_numbers(writer)
    return counts


def _check(file: Path) -> None:
    engine = connect(f"sqlite:///{file.absolute()}")
    try:
        with engine.connect() as reader:
            known = 0 < version(reader) <= LATEST
    except DatabaseError:
        known = False
    finally:
        engine.dispose()
    if not known:
        raise RegimekitError(f"FILE {file} is not a backup this regimekit can read.")


def _demand_empty(writer: Connection) -> None:
    for table in (streams, tokens):
        if writer.execute(select(func.count()).select_from(table)).scalar():
            raise RegimekitError("--db is not empty; restore into a new database.")


def _copy(reader: Connection, writer: Connection) -> dict[str, int]:
    counts = {}
    for table in metadata.sorted_tables:
        counts[table.name] = 0
        for rows in _chunks(reader, table):
            writer.execute(insert(table), rows)
            counts[table.name] += len(rows)
    return counts


def _chunks(reader: Connection, table: Table) -> Iterator[list[dict[str, Any]]]:
    order = list(table.primary_key)
    found = reader.execution_options(yield_per=_CHUNK).execute(select(table).order_by(*order))
    for rows in found.partitions(_CHUNK):
        yield [dict(row._mapping) for row in rows]


def _advance_numbers(writer: Connection) -> None:
    """Postgres: numbers given from now on come after the restored ones."""
    if writer.dialect.name != "postgresql":
        return
    for table in ("streams", "tokens", "webhooks", "deliveries"):
        writer.execute(
            text(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), "
                f"COALESCE((SELECT MAX(id) FROM {table}), 0) + 1, false)"
            )
        )
