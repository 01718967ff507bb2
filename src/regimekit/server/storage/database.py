"""One database by URL: SQLite in WAL mode, or Postgres through psycopg.

Only one service may write a database at a time. SQLite: a locked file beside it; Postgres: an
advisory lock held by a connection of its own. Both vanish with the process that holds them.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, event, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError

from regimekit.core.exceptions import RegimekitError
from regimekit.server.storage.migrations import migrate

_LOCK_NUMBER = 0x686F6C64  # "hold"
_LOCK_PATIENCE = 10.0  # seconds; a predecessor may be on its way out


def read_url(db: str) -> URL:
    """The URL as SQLAlchemy wants it, or an error that says what to write."""
    try:
        url = make_url(db)
    except ArgumentError:
        raise _bad_url(db) from None
    backend = url.get_backend_name()
    if backend == "postgres":
        url, backend = url.set(drivername="postgresql"), "postgresql"
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return url
    raise _bad_url(db)


def _bad_url(db: str) -> RegimekitError:
    return RegimekitError(f"--db must be sqlite:///FILE or postgresql://..., got {db!r}.")


def connect(db: str, pool: int = 8) -> Engine:
    """An engine for the database; nothing is read or made yet."""
    url = read_url(db)
    if url.get_backend_name() == "sqlite":
        Path(url.database or "").absolute().parent.mkdir(parents=True, exist_ok=True)
        engine = sqlalchemy.create_engine(
            url, pool_size=pool, max_overflow=4, connect_args={"timeout": 30}
        )
        event.listen(engine, "connect", _tune_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    return sqlalchemy.create_engine(url, pool_size=pool, max_overflow=4, pool_pre_ping=True)


def _tune_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None  # transactions begin where we say so
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")  # a commit survives the loss of power
    cursor.execute("PRAGMA busy_timeout=30000")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get("writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that will write; SQLite then takes its lock first and cannot be refused."""
    with engine.connect().execution_options(writes=True) as connection, connection.begin():
        yield connection


def prepare(db: str) -> Engine:
    """The database, brought to the schema of today."""
    engine = connect(db)
    try:
        migrate(engine)
    except RegimekitError:
        engine.dispose()
        raise
    except OperationalError as error:
        engine.dispose()
        reason = str(error.orig).strip().splitlines()[0]
        raise RegimekitError(f"--db {shown(db)} cannot be opened: {reason}") from None
    return engine


@contextmanager
def opened(db: str) -> Iterator[Engine]:
    """The database for a while, closed afterwards."""
    engine = prepare(db)
    try:
        yield engine
    finally:
        engine.dispose()


def shown(db: str) -> str:
    """The URL without its password."""
    return read_url(db).render_as_string(hide_password=True)


@contextmanager
def sole_writer(db: str, engine: Engine) -> Iterator[None]:
    """Hold the database for one service; an error when another one keeps it."""
    if engine.dialect.name == "sqlite":
        with _file_lock(Path(f"{read_url(db).database}.lock")):
            yield
        return
    with engine.connect() as connection:
        _patiently(lambda: _advisory(connection))
        yield


def _advisory(connection: Connection) -> bool:
    held = connection.execute(text("SELECT pg_try_advisory_lock(:n)"), {"n": _LOCK_NUMBER}).scalar()
    connection.commit()
    return bool(held)


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        _patiently(lambda: _flock(handle))
        yield
    finally:
        os.close(handle)


def _flock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _patiently(attempt: Any) -> None:
    until = time.monotonic() + _LOCK_PATIENCE
    while not attempt():
        if time.monotonic() > until:
            raise RegimekitError("Another regimekit service uses this database; stop it first.")
        time.sleep(0.1)
