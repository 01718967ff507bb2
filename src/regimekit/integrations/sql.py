"""Follow a growing table of Postgres, SQLite or DuckDB; results go to tables beside it.

For a table T there are then:

    T_forecasts   one row per row of T: forecast, anomaly score, regime
    T_events      changes of regime and outliers
    T_alerts      alerts, updated when they resolve
    T_regimes     name and status of each regime; edit them here
    T_models      states of the models
    T_monitored   view: T joined with T_forecasts, for dashboards

A batch of rows, its results and the states of its models are written in one transaction, and the
position in T is the largest key in T_forecasts. So every row is processed exactly once, also if
the process or the database is killed.
"""

from __future__ import annotations

import logging
import math
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from regimekit.alerts import Alert, Rule
from regimekit.alerts.rules import STALE
from regimekit.core.exceptions import RegimekitError
from regimekit.integrations._common import require
from regimekit.integrations.monitor import Monitor, Output

_BATCH = 1000  # rows per transaction
_LOCK_WAIT = 30.0  # seconds to wait for a DuckDB file that another process uses
_OUTPUTS = ("yhat", "yhat_lower", "yhat_upper", "anomaly_score", "regime_probability")
_log = logging.getLogger("regimekit.sql")


@dataclass(frozen=True)
class TableConfig:
    """What to follow.

    Attributes:
        db: `postgresql://...`, `sqlite:///FILE` or `duckdb:///FILE`.
        table: the table, optionally with its schema.
        key: column with a key that increases from row to row.
        target: column to forecast.
        time: column of times, or None.
        by: column that names the series, or None for one series.
        model: name of the model; None for the default.
        settings: settings of the model.
        rules: alert rules; the key of a stream is `TABLE` or `TABLE:SERIES`.
        poll: seconds between two queries without new rows.
        max_series: largest number of series.
    """

    db: str
    table: str
    key: str
    target: str
    time: str | None = None
    by: str | None = None
    model: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    poll: float = 1.0
    max_series: int = 10_000


class UnavailableError(RegimekitError):
    """The database cannot be opened now."""


def quote(name: str) -> str:
    """Return an identifier in quotes; a schema before a dot is quoted apart."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))


class Database:
    """One of the three databases, through its own driver."""

    def __init__(self, db: str) -> None:
        """Choose the driver.

        Raises:
            RegimekitError: if the URL is not one of a supported database.
            MissingLibraryError: if the driver is not installed.
        """
        self._url, self.kind = db, urlsplit(db).scheme
        self._file = db.partition(":///")[2]
        if self.kind == "postgres":
            self.kind = "postgresql"
        if self.kind not in ("postgresql", "sqlite", "duckdb"):
            raise RegimekitError(
                "--db must be postgresql://..., sqlite:///FILE or duckdb:///FILE, "
                f"got scheme {self.kind!r}."
            )
        if self.kind != "postgresql" and not Path(self._file).is_file():
            raise RegimekitError(f"--db: the file {self._file!r} does not exist.")
        if self.kind != "sqlite":
            require("sql", {"postgresql": "psycopg", "duckdb": "duckdb"}[self.kind])
        self.real = {"sqlite": "REAL", "duckdb": "DOUBLE"}.get(self.kind, "DOUBLE PRECISION")
        self.binary = "BYTEA" if self.kind == "postgresql" else "BLOB"

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        """Open a connection and a transaction, which is committed at the end of the block.

        Raises:
            UnavailableError: if the database cannot be opened.
        """
        connection = self._connect()
        try:
            connection.execute("BEGIN" if self.kind != "sqlite" else "BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        finally:
            connection.close()

    def _connect(self) -> Any:
        if self.kind == "sqlite":
            connection = sqlite3.connect(self._file, timeout=30, isolation_level=None)
            connection.execute("PRAGMA synchronous=FULL")
            return connection
        if self.kind == "duckdb":
            return self._connect_duckdb()
        import psycopg

        try:
            return psycopg.connect(self._url, autocommit=True)
        except psycopg.OperationalError as error:
            raise UnavailableError(f"--db cannot be opened: {error}.") from None

    def _connect_duckdb(self) -> Any:
        """Open the file; only one process can write to it, so wait for others."""
        import duckdb

        until = time.monotonic() + _LOCK_WAIT
        while True:
            try:
                return duckdb.connect(self._file)
            except duckdb.IOException as error:
                if time.monotonic() > until:
                    raise UnavailableError(f"--db cannot be opened: {error}.") from None
                time.sleep(0.05)

    def placeholders(self, count: int) -> str:
        """Return parameter marks."""
        return ", ".join(["%s" if self.kind == "postgresql" else "?"] * count)

    def insert(
        self,
        connection: Any,
        table: str,
        rows: Sequence[Sequence[Any]],
        columns: str = "",
        keys: int = 0,
    ) -> None:
        """Insert rows of all columns; with `columns`, update rows whose first `keys` exist."""
        if not rows:
            return
        names = [quote(column) for column in columns.split()]
        statement = f"INSERT INTO {quote(table)} "
        statement += f"({', '.join(names)}) " if names else ""
        statement += f"VALUES ({self.placeholders(len(rows[0]))})"
        if keys:
            changes = ", ".join(f"{name} = excluded.{name}" for name in names[keys:])
            statement += f" ON CONFLICT ({', '.join(names[:keys])}) DO UPDATE SET {changes}"
        cursor = connection.cursor() if self.kind != "duckdb" else connection
        cursor.executemany(statement, [tuple(row) for row in rows])


class TableFollower:
    """Process the new rows of a table."""

    def __init__(self, config: TableConfig) -> None:
        """Check the columns and create the tables of results.

        Raises:
            RegimekitError: if the database, the table or a column does not exist.
        """
        self.config, self.database = config, Database(config.db)
        self._monitors: dict[str, Monitor] = {}
        self._started = time.time()
        with self.database.transaction() as connection:
            self._check_columns(connection)
            self._create_tables(connection)

    def _name(self, suffix: str) -> str:
        return f"{self.config.table}_{suffix}"

    def _columns(self) -> list[str]:
        config = self.config
        chosen = [config.key, config.by, config.time, config.target]
        return [name for name in chosen if name is not None]

    def _check_columns(self, connection: Any) -> None:
        table = self.config.table
        try:
            cursor = connection.execute(f"SELECT * FROM {quote(table)} LIMIT 0")
            known = [column[0] for column in cursor.description]
        except Exception as error:
            reason = str(error).strip().splitlines()[0]
            raise RegimekitError(f"--table {table} cannot be read: {reason}") from None
        for column in self._columns():
            if column not in known:
                raise RegimekitError(
                    f"--table {table} has no column {column!r}. It has {', '.join(known)}."
                )

    def _create_tables(self, connection: Any) -> None:
        real, source = self.database.real, quote(self.config.table)
        key, forecasts = quote(self.config.key), quote(self._name("forecasts"))
        numbers = "".join(f", CAST(NULL AS {real}) AS {name}" for name in _OUTPUTS)
        # The key has the type of the original column.
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS {forecasts} AS SELECT {key} AS row_key, "
            f"CAST(NULL AS TEXT) AS series{numbers}, CAST(NULL AS INTEGER) AS regime, "
            "CAST(NULL AS TEXT) AS regime_name, CAST(NULL AS TEXT) AS regime_status "
            f"FROM {source} WHERE 1 = 0"
        )
        index = quote(self._name("forecasts_key").replace(".", "_"))
        connection.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {forecasts} (row_key)")
        for suffix, columns in (
            (
                "events",
                "series TEXT, row_number BIGINT, since_row_number BIGINT, kind TEXT, "
                "regime INTEGER, previous INTEGER",
            ),
            (
                "alerts",
                "id TEXT PRIMARY KEY, series TEXT, rule TEXT, kind TEXT, severity TEXT, "
                f"summary TEXT, start_row_number BIGINT, start_time {real}, "
                f"resolved_row_number BIGINT, resolved_time {real}, resolution TEXT",
            ),
            (
                "regimes",
                "series TEXT, regime INTEGER, name TEXT, status TEXT, PRIMARY KEY (series, regime)",
            ),
            ("models", f"series TEXT PRIMARY KEY, n_rows BIGINT, state {self.database.binary}"),
        ):
            table = quote(self._name(suffix))
            connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")
        view, create = quote(self._name("monitored")), "CREATE VIEW IF NOT EXISTS"
        if self.database.kind == "postgresql":
            if connection.execute("SELECT to_regclass(%s)", [view]).fetchone()[0] is not None:
                return
            create = "CREATE VIEW"
        results = ", ".join(f"f.{n}" for n in (*_OUTPUTS, "regime", "regime_name"))
        connection.execute(
            f"{create} {view} AS SELECT s.*, {results}, f.regime_status "
            f"FROM {source} s JOIN {forecasts} f ON f.row_key = s.{key}"
        )

    def process_batch(self) -> int:
        """Process the next rows in one transaction.

        Returns:
            The number of rows.
        """
        with self._transaction() as connection:
            rows = self._new_rows(connection)
            if rows:
                self._process(connection, rows)
        return len(rows)

    @contextmanager
    def _transaction(self) -> Iterator[Any]:
        try:
            with self.database.transaction() as connection:
                yield connection
        except BaseException:
            # The models in memory may be ahead of the database.
            self._monitors.clear()
            raise

    def _new_rows(self, connection: Any) -> list[Any]:
        config, key = self.config, quote(self.config.key)
        columns = ", ".join(quote(name) for name in self._columns())
        largest = f"SELECT MAX(row_key) FROM {quote(self._name('forecasts'))}"
        last = connection.execute(largest).fetchone()[0]
        condition, parameters = f"{key} IS NOT NULL", []
        if last is not None:
            condition, parameters = f"{key} > {self.database.placeholders(1)}", [last]
        if self.database.kind == "postgresql":
            # A transaction in progress may still add rows with smaller keys, so skip the rows of
            # transactions that began after the oldest one in progress. Ids wrap around; ages do
            # not, but they are negative for some very old rows.
            oldest = "xid(pg_snapshot_xmin(pg_current_snapshot()))"
            condition += f" AND age(xmin) NOT BETWEEN 0 AND age({oldest})"
        query = f"SELECT {columns} FROM {quote(config.table)} WHERE {condition} ORDER BY {key}"
        return list(connection.execute(f"{query} LIMIT {_BATCH}", parameters).fetchall())

    def _process(self, connection: Any, rows: list[Any]) -> None:
        config = self.config
        series: dict[str, list[Any]] = {}
        for row in rows:
            values = dict(zip(self._columns(), row, strict=True))
            name = "" if config.by is None else str(values[config.by])
            series.setdefault(name, []).append(values)
        labels = f"SELECT series, regime, name, status FROM {quote(self._name('regimes'))}"
        known = connection.execute(labels).fetchall()
        for name, own in series.items():
            monitor = self._monitor(connection, name)
            for owner, regime, title, status in known:
                if owner == name:
                    monitor.label(int(regime), title or "", status or "unknown")
            self._process_series(connection, name, monitor, own)

    def _process_series(
        self, connection: Any, name: str, monitor: Monitor, rows: list[dict[str, Any]]
    ) -> None:
        config, database = self.config, self.database
        values = [_number(row[config.target], config.target) for row in rows]
        times = [None if config.time is None else seconds(row[config.time]) for row in rows]
        outputs, alerts, events = monitor.process(values, times)
        monitor.arrived = time.time()
        forecasts = [
            (row[config.key], name, *_output_row(output))
            for row, output in zip(rows, outputs, strict=True)
        ]
        database.insert(connection, self._name("forecasts"), forecasts)
        occurred = [(name, e.time, e.since, e.kind, e.regime, e.previous) for e in events]
        database.insert(connection, self._name("events"), occurred)
        labels = f"SELECT regime FROM {quote(self._name('regimes'))} WHERE series = "
        labels += database.placeholders(1)
        listed = {int(row[0]) for row in connection.execute(labels, [name]).fetchall()}
        new = sorted({output.regime for output in outputs} - listed - {-1})
        database.insert(
            connection, self._name("regimes"), [(name, regime, "", "unknown") for regime in new]
        )
        self._store(connection, name, monitor, alerts)

    def _store(self, connection: Any, name: str, monitor: Monitor, alerts: list[Alert]) -> None:
        insert = self.database.insert
        # Of an alert that opened and resolved, the last state.
        rows = list({alert.id: _alert_row(name, alert) for alert in alerts}.values())
        columns = "id series rule kind severity summary start_row_number start_time"
        columns += " resolved_row_number resolved_time resolution"
        insert(connection, self._name("alerts"), rows, columns, keys=1)
        states = [(name, monitor.rows, monitor.to_bytes())]
        insert(connection, self._name("models"), states, "series n_rows state", keys=1)

    def check_clock(self) -> None:
        """Open and resolve the alerts of series without new rows."""
        if not any(rule.kind == STALE for rule in self.config.rules):
            return
        with self._transaction() as connection:
            query = f"SELECT series FROM {quote(self._name('models'))}"
            for (name,) in connection.execute(query).fetchall():
                monitor = self._monitor(connection, name)
                if alerts := monitor.check_clock(time.time(), self._started):
                    self._store(connection, name, monitor, alerts)

    def _monitor(self, connection: Any, name: str) -> Monitor:
        if name in self._monitors:
            return self._monitors[name]
        config = self.config
        if len(self._monitors) >= config.max_series:
            # The states are in the database; memory is only a cache.
            self._monitors.clear()
        query = f"SELECT state FROM {quote(self._name('models'))} WHERE series = "
        query += self.database.placeholders(1)
        stored = connection.execute(query, [name]).fetchone()
        if stored is not None:
            monitor = Monitor.from_bytes(bytes(stored[0]), config.rules)
        else:
            key = config.table + (f":{name}" if config.by is not None else "")
            monitor = Monitor(key, config.rules, config.model, config.settings)
        self._monitors[name] = monitor
        return monitor

    def run(self, stop: threading.Event) -> int:
        """Process new rows until `stop` is set; return their number."""
        total = 0
        while not stop.is_set():
            try:
                rows = self.process_batch()
            except UnavailableError as error:
                _log.warning("%s Trying again.", error)
                stop.wait(max(1.0, self.config.poll))
                continue
            total += rows
            if rows:
                _log.info("%d rows processed", total)
            else:
                self.check_clock()
                stop.wait(self.config.poll)
        return total

    def run_once(self) -> int:
        """Process all present rows; return their number."""
        total = 0
        while rows := self.process_batch():
            total += rows
        return total


def _alert_row(name: str, alert: Alert) -> tuple[Any, ...]:
    about = (alert.id, name, alert.rule, alert.kind, alert.severity, alert.summary)
    when = (alert.start, alert.start_time, alert.resolved, alert.resolved_time)
    return (*about, *when, alert.resolution)


def _output_row(output: Output) -> tuple[Any, ...]:
    numbers = (getattr(output, name) for name in _OUTPUTS)
    values = [None if math.isnan(value) else value for value in numbers]
    return (*values, output.regime, output.regime_name, output.regime_status)


def _number(value: Any, column: str) -> float:
    try:
        number = math.nan if value is None else float(value)
    except (TypeError, ValueError):
        raise RegimekitError(f"--target {column} must have numbers, got {value!r}.") from None
    return number if math.isfinite(number) else math.nan


def seconds(value: Any) -> float | None:
    """Convert a time of a database to seconds since 1970; None if it is not a time."""
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp()
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return seconds(datetime.fromisoformat(value))
        except ValueError:
            return None
    return None
