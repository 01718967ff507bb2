"""Database access: engines, transactions, the single-writer lock, backup and restore.

The database is SQLite in WAL mode, or Postgres through psycopg. Only one service may write to a
database at a time: SQLite uses a lock file next to the database, Postgres an advisory lock on a
dedicated connection. Both are released when the process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import Connection, Engine, event, func, insert, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, OperationalError

from regimekit.core.exceptions import RegimekitError
from regimekit.server.storage import schema

# Fixed key of the Postgres advisory lock; it must not change between versions.
_ADVISORY_LOCK_KEY = 0x686F6C64
_LOCK_TIMEOUT = 10.0  # seconds; a previous service may still be shutting down
_COPY_ROWS = 2000  # rows per chunk of a backup
_MIN_FREE_BYTES = 2**24  # on the disk of a SQLite database; a commit needs about that much
_log = logging.getLogger("regimekit.server")


def parse_url(db: str) -> URL:
    """Parse a database URL.

    Raises:
        RegimekitError: if it is neither `sqlite:///FILE` nor `postgresql://...`.
    """
    try:
        url = make_url(db)
        backend = url.get_backend_name()
    except ArgumentError:
        backend = ""
    if backend in ("postgres", "postgresql"):
        return url.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return url
    raise RegimekitError(f"--db must be sqlite:///FILE or postgresql://..., got {db!r}.")


def without_password(db: str) -> str:
    """Return the URL with its password masked, for logs and messages."""
    return parse_url(db).render_as_string(hide_password=True)


def connect(db: str, pool: int = 8) -> Engine:
    """Create an engine with a pool of connections, without touching the schema."""
    url = parse_url(db)
    if url.get_backend_name() != "sqlite":
        return sqlalchemy.create_engine(url, pool_size=pool, max_overflow=4, pool_pre_ping=True)
    _create_private(Path(url.database or "").absolute())
    engine = sqlalchemy.create_engine(
        url, pool_size=pool, max_overflow=4, connect_args={"timeout": 30}
    )
    event.listen(engine, "connect", _configure_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _create_private(file: Path) -> None:
    """Create a database file that only its owner may read; SQLite's other files inherit that."""
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.close(os.open(file, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError:
        # SQLite reports what is wrong.
        return
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        _log.warning("other users may read the database; run chmod 600", extra={"file": str(file)})


def probe(connection: Connection) -> None:
    """Read the tables and write one row; raise an error if the database cannot be used."""
    queries = [select(*table.primary_key).limit(1) for table in schema.metadata.sorted_tables]
    for query in queries:
        connection.execute(query).all()
    if connection.dialect.name == "sqlite":
        file = Path(connection.engine.url.database or "").absolute()
        free = shutil.disk_usage(file.parent).free
        if free < _MIN_FREE_BYTES:
            raise OSError(f"{free} bytes are free on the disk of the database")
        # A new connection: the others have pages in memory.
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as fresh:
            for query in queries:
                fresh.execute(str(query.compile(compile_kwargs={"literal_binds": True}))).fetchall()
    connection.exec_driver_sql("UPDATE migrations SET number = number")


def _configure_sqlite(connection: Any, _: Any) -> None:
    # Disable the driver's implicit transactions: `_begin_sqlite` starts them.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    # FULL: a commit survives a power failure.
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute("PRAGMA busy_timeout=30000")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


@contextmanager
def write_transaction(engine: Engine) -> Iterator[Connection]:
    """Open a transaction that writes.

    SQLite takes the write lock at its start, so the transaction cannot fail later because
    another connection wrote in between.
    """
    options = {"begin": "BEGIN IMMEDIATE"}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection


def placeholder(connection: Connection | Engine) -> str:
    """Return the mark of a parameter in SQL that is passed to the driver as it is."""
    return "?" if connection.dialect.name == "sqlite" else "%s"


def open_database(db: str) -> Engine:
    """Create an engine and migrate the database to the latest schema.

    Raises:
        RegimekitError: if the database cannot be opened or its schema is too new.
    """
    engine = connect(db)
    try:
        schema.migrate(engine)
    except RegimekitError:
        engine.dispose()
        raise
    except OperationalError as error:
        engine.dispose()
        reason = str(error.orig).strip().splitlines()[0]
        raise RegimekitError(f"--db {without_password(db)} cannot be opened: {reason}") from None
    return engine


@contextmanager
def database(db: str) -> Iterator[Engine]:
    """Open a database as in `open_database` and close it at the end of the block."""
    engine = open_database(db)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def single_writer(db: str, engine: Engine) -> Iterator[None]:
    """Hold the lock of the database's only writing service for the duration of the block.

    Raises:
        RegimekitError: if another service still holds the lock after 10 seconds.
    """
    if engine.dialect.name == "sqlite":
        handle = os.open(f"{parse_url(db).database}.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            _acquire(lambda: _lock_file(handle))
            yield
        finally:
            os.close(handle)
        return
    with engine.connect() as connection:
        _acquire(lambda: _lock_advisory(connection))
        yield


def check_unused(db: str) -> None:
    """Raise an error at once if a service of this machine uses a SQLite database.

    Raises:
        RegimekitError: if the lock of the database is held.
    """
    url = parse_url(db)
    if url.get_backend_name() != "sqlite" or not url.database:
        return
    lock = Path(f"{url.database}.lock")
    if not lock.exists():
        return
    handle = os.open(lock, os.O_RDWR)
    try:
        if not _lock_file(handle):
            raise RegimekitError(
                f"Another regimekit service uses the database {url.database}. Stop it, or choose "
                "another database with --db."
            )
    finally:
        os.close(handle)


def _lock_file(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lock_advisory(connection: Connection) -> bool:
    query = text("SELECT pg_try_advisory_lock(:key)")
    acquired = connection.execute(query, {"key": _ADVISORY_LOCK_KEY}).scalar()
    connection.commit()
    return bool(acquired)


def _acquire(attempt: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while not attempt():
        if time.monotonic() > deadline:
            raise RegimekitError("Another regimekit service uses this database. Stop it first.")
        time.sleep(0.1)


def backup(db: str, file: Path) -> dict[str, int]:
    """Copy a database to one SQLite file, also while a service writes to the database.

    The copy is read in one transaction, so it is consistent. It is written to a temporary file
    that is renamed when it is complete.

    Returns:
        Number of rows per table.

    Raises:
        RegimekitError: if `file` exists.
    """
    if file.exists():
        raise RegimekitError(f"FILE {file} exists; backup does not overwrite files.")
    part = file.with_name(file.name + ".part")
    part.unlink(missing_ok=True)
    # Readable by the owner only: the file contains webhook secrets.
    os.close(os.open(part, os.O_CREAT | os.O_WRONLY, 0o600))
    with (
        database(db) as source,
        database(f"sqlite:///{part.absolute()}") as target,
        _repeatable_read(source) as reader,
        reader.begin(),
        write_transaction(target) as writer,
    ):
        counts = _copy_tables(reader, writer)
    _publish(part, file)
    return counts


def _repeatable_read(engine: Engine) -> Connection:
    connection = engine.connect()
    if engine.dialect.name == "postgresql":
        connection = connection.execution_options(isolation_level="REPEATABLE READ")
    return connection


def _publish(part: Path, file: Path) -> None:
    """Fold the journal into the file, flush it to disk and give it its final name."""
    connection = sqlite3.connect(part)
    connection.execute("PRAGMA journal_mode=DELETE")
    connection.close()
    with part.open("rb") as handle:
        os.fsync(handle.fileno())
    part.rename(file)
    folder = os.open(file.absolute().parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def restore(db: str, file: Path) -> dict[str, int]:
    """Copy a backup into the empty database `db`.

    Returns:
        Number of rows per table.

    Raises:
        RegimekitError: if `file` is not a backup, or `db` has streams or tokens.
    """
    if not file.exists():
        raise RegimekitError(f"FILE {file} does not exist.")
    if not _is_backup(file):
        raise RegimekitError(f"FILE {file} is not a backup that this version can read.")
    with (
        database(f"sqlite:///{file.absolute()}") as source,
        database(db) as target,
        single_writer(db, target),
        source.connect() as reader,
        write_transaction(target) as writer,
    ):
        for table in (schema.streams, schema.tokens):
            if writer.execute(select(func.count()).select_from(table)).scalar():
                raise RegimekitError("--db is not empty; restore into a new database.")
        counts = _copy_tables(reader, writer)
        _advance_sequences(writer)
    return counts


def _is_backup(file: Path) -> bool:
    engine = connect(f"sqlite:///{file.absolute()}")
    try:
        with engine.connect() as reader:
            return 0 < schema.version(reader) <= schema.LATEST
    except DatabaseError:
        return False
    finally:
        engine.dispose()


def _copy_tables(reader: Connection, writer: Connection) -> dict[str, int]:
    counts = {}
    for table in schema.metadata.sorted_tables:
        counts[table.name] = 0
        query = select(table).order_by(*table.primary_key)
        found = reader.execution_options(yield_per=_COPY_ROWS).execute(query)
        for rows in found.partitions(_COPY_ROWS):
            writer.execute(insert(table), [dict(row._mapping) for row in rows])
            counts[table.name] += len(rows)
    return counts


def _advance_sequences(writer: Connection) -> None:
    """Postgres: make generated ids continue after the restored ones."""
    if writer.dialect.name != "postgresql":
        return
    for table in ("streams", "tokens", "webhooks", "deliveries", "rules", "mutes", "alerts"):
        writer.execute(
            text(
                f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), "
                f"COALESCE((SELECT MAX(id) FROM {table}), 0) + 1, false)"
            )
        )
