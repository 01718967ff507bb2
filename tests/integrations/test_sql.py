"""`follow-table`: every row exactly once, on SQLite, DuckDB and Postgres, also across kill -9."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from postgres import postgres_server
from waiting import wait

from regimekit import RegimekitError
from regimekit.alerts import Rule
from regimekit.integrations.monitor import Monitor
from regimekit.integrations.sql import Database, TableConfig, TableFollower

SMALL = {"particles": 20, "noise": 0.16}
Y = np.concatenate(
    [np.random.default_rng(0).normal(0, 0.4, 150), np.random.default_rng(1).normal(6, 0.4, 50)]
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    # Compared with ids of the first epoch, those of a later one would all count as old.
    with postgres_server(epoch=1) as url:
        yield url


@pytest.fixture(params=["sqlite", "duckdb", "postgresql"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        sqlite3.connect(tmp_path / "data.db").close()
        return f"sqlite:///{tmp_path}/data.db"
    if request.param == "duckdb":
        duckdb = pytest.importorskip("duckdb")
        duckdb.connect(str(tmp_path / "data.duckdb")).close()
        return f"duckdb:///{tmp_path}/data.duckdb"
    url: str = request.getfixturevalue("postgres")
    return url


def create(db: str, table: str) -> None:
    with Database(db).transaction() as connection:
        connection.execute(
            f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, measured TIMESTAMP, sensor TEXT, "
            "load DOUBLE PRECISION)"
        )


def add(db: str, table: str, first: int, values: Any, sensor: str = "a", step: int = 1) -> None:
    database = Database(db)
    rows = [
        (
            first + step * i,
            f"2026-03-01 {i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}",
            sensor,
            None if np.isnan(v) else float(v),
        )
        for i, v in enumerate(values)
    ]
    with database.transaction() as connection:
        database.insert(connection, table, rows)


def query(db: str, statement: str) -> list[Any]:
    with Database(db).transaction() as connection:
        return list(connection.execute(statement).fetchall())


def config(db: str, table: str, **more: Any) -> TableConfig:
    given: dict[str, Any] = {"time": "measured", "model": "br_ihmm", "settings": SMALL}
    return TableConfig(db, table, "id", "load", **(given | more))


def expected(values: Any) -> list[float]:
    outputs, _, _ = Monitor("x", (), "br_ihmm", SMALL).process(values, [None] * len(values))
    return [output.yhat for output in outputs]


def test_results_are_those_of_the_model_and_the_view_has_both(db: str) -> None:
    create(db, "load1")
    y = Y.copy()
    y[7] = np.nan
    add(db, "load1", 10, y[:100])
    rule = Rule("odd", "anomaly", warmup=30, threshold=0.999)
    follower = TableFollower(config(db, "load1", rules=(rule,)))
    assert follower.run_once() == 100
    assert follower.run_once() == 0
    add(db, "load1", 200, y[100:])
    assert TableFollower(config(db, "load1", rules=(rule,))).run_once() == 100
    rows = query(
        db, "SELECT id, load, yhat, yhat_lower, yhat_upper FROM load1_monitored ORDER BY id"
    )
    assert [row[2] for row in rows] == pytest.approx(expected(y), rel=1e-9)
    assert all(low <= middle <= high for _, _, middle, low, high in rows)
    assert query(db, "SELECT rule, severity FROM load1_alerts") == [("odd", "warning")]
    assert query(db, "SELECT COUNT(*) FROM load1_events WHERE kind = 'regime opened'")[0][0] >= 1


def test_series_and_labels(db: str) -> None:
    create(db, "load2")
    add(db, "load2", 0, Y[:60], "a", step=2)
    add(db, "load2", 1, -Y[:60], "b", step=2)
    chosen = config(db, "load2", by="sensor")
    assert TableFollower(chosen).run_once() == 120
    for sensor, sign in (("a", 1), ("b", -1)):
        found = query(
            db, f"SELECT yhat FROM load2_forecasts WHERE series = '{sensor}' ORDER BY row_key"
        )
        assert [row[0] for row in found] == pytest.approx(expected(sign * Y[:60]), rel=1e-9)
    with Database(db).transaction() as connection:
        connection.execute(
            "UPDATE load2_regimes SET name = 'calm', status = 'normal' WHERE series = 'a'"
        )
    add(db, "load2", 1000, Y[60:61], "a")
    TableFollower(chosen).run_once()
    statement = "SELECT regime_name, regime_status FROM load2_forecasts WHERE row_key = 1000"
    assert query(db, statement) == [("calm", "normal")]


def test_every_row_exactly_once_across_kill(db: str) -> None:
    create(db, "load3")
    add(db, "load3", 0, Y[:50])
    command = [sys.executable, "-m", "regimekit.cli", "follow-table", "--db", db]
    command += ["--table", "load3", "--key", "id", "--target", "load", "--poll", "0.05"]
    command += ["--model", "br_ihmm", "--set", json.dumps(SMALL)]

    def done() -> int:
        try:
            return int(query(db, "SELECT COUNT(*) FROM load3_forecasts")[0][0])
        except Exception:
            return 0

    for k in range(2):
        process = subprocess.Popen(command)
        before = done()
        for i in range(50 + 70 * k, 50 + 70 * k + 70, 10):
            add(db, "load3", i, Y[i : i + 10])
        wait(lambda before=before: done() > before, "processed rows")
        process.kill()
        process.wait()
    assert TableFollower(config(db, "load3", time=None)).run_once() >= 0
    found = query(db, "SELECT row_key, yhat FROM load3_forecasts ORDER BY row_key")
    assert [row[0] for row in found] == list(range(190))
    assert [row[1] for row in found] == pytest.approx(expected(Y[:190]), rel=1e-9)


def test_a_failed_transaction_leaves_nothing(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create(db, "load4")
    add(db, "load4", 0, Y[:40])
    follower = TableFollower(config(db, "load4"))
    original: Callable[..., None] = Database.insert

    def failing(self: Database, connection: Any, table: str, *rest: Any, **more: Any) -> None:
        if table.endswith("_models"):
            raise RuntimeError("disk full")
        original(self, connection, table, *rest, **more)

    monkeypatch.setattr(Database, "insert", failing)
    with pytest.raises(RuntimeError, match="disk full"):
        follower.run_once()
    monkeypatch.undo()
    assert query(db, "SELECT COUNT(*) FROM load4_forecasts")[0][0] == 0
    assert follower.run_once() == 40
    found = query(db, "SELECT yhat FROM load4_forecasts ORDER BY row_key")
    assert [row[0] for row in found] == pytest.approx(expected(Y[:40]), rel=1e-9)


def test_a_restart_of_the_database_is_waited_for(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    create(postgres, "load7")
    add(postgres, "load7", 0, Y[:20])
    follower = TableFollower(config(postgres, "load7", poll=0.01))
    connect, stop, failures = psycopg.connect, threading.Event(), iter(range(2))

    def failing(*given: Any, **more: Any) -> Any:
        if next(failures, None) is not None:
            raise psycopg.OperationalError("the database system is shutting down")
        if follower._monitors:
            stop.set()
        return connect(*given, **more)

    monkeypatch.setattr(psycopg, "connect", failing)
    assert follower.run(stop) == 20


def test_an_existing_view_is_kept(db: str) -> None:
    """It may have been extended, or others may depend on it."""
    create(db, "load8")
    TableFollower(config(db, "load8"))
    with Database(db).transaction() as connection:
        connection.execute("DROP VIEW load8_monitored")
        connection.execute("CREATE VIEW load8_monitored AS SELECT 7 AS own")
    TableFollower(config(db, "load8"))
    assert query(db, "SELECT own FROM load8_monitored") == [(7,)]


def test_rows_of_a_transaction_in_progress_are_not_skipped(postgres: str) -> None:
    import psycopg

    create(postgres, "load5")
    follower = TableFollower(config(postgres, "load5"))
    with psycopg.connect(postgres) as slow:
        slow.execute("INSERT INTO load5 VALUES (1, NULL, 'a', 0.5)")
        add(postgres, "load5", 2, Y[:1])
        assert follower.run_once() == 0
        slow.commit()
    assert follower.run_once() == 2


def test_a_series_without_new_rows_is_stale(db: str, monkeypatch: pytest.MonkeyPatch) -> None:
    create(db, "load6")
    add(db, "load6", 0, Y[:20], "a", step=2)
    add(db, "load6", 1, Y[:20], "b", step=2)
    now = [1000.0]
    monkeypatch.setattr("regimekit.integrations.sql.time.time", lambda: now[0])
    chosen = config(db, "load6", by="sensor", rules=(Rule("silent", "stale", seconds=60.0),))
    follower = TableFollower(chosen)
    follower.run_once()
    now[0] = 1050.0
    add(db, "load6", 100, Y[20:21], "b")
    follower.run_once()
    follower.check_clock()
    statement = "SELECT series, rule, resolution FROM load6_alerts"
    assert query(db, statement) == []
    now[0] = 1061.0
    follower.check_clock()
    assert query(db, statement) == [("a", "silent", None)]
    # Another process does not take its start for a row.
    now[0] = 1070.0
    again = TableFollower(chosen)
    again.check_clock()
    assert query(db, statement) == [("a", "silent", None)]
    add(db, "load6", 102, Y[20:22], "a", step=2)
    again.run_once()
    again.check_clock()
    assert query(db, statement) == [("a", "silent", "rows arrive again")]


@pytest.mark.parametrize(
    ("db_url", "message"), [("mysql://x", "--db"), ("sqlite:////no/such.db", "exist")]
)
def test_invalid_databases(db_url: str, message: str) -> None:
    with pytest.raises(RegimekitError, match=message):
        Database(db_url)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/data.db"
    sqlite3.connect(tmp_path / "data.db").close()
    create(url, "load")
    with pytest.raises(RegimekitError, match="no column 'laod'"):
        TableFollower(TableConfig(url, "load", "id", "laod"))
    with pytest.raises(RegimekitError, match="--table nothing"):
        TableFollower(TableConfig(url, "nothing", "id", "load"))
