"""Migrations, schema, backup and restore; SQLite and Postgres alike."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, text
from typer.testing import CliRunner

from regimekit import cli
from regimekit import datasets as data
from regimekit.alerts import Alert
from regimekit.core.exceptions import RegimekitError
from regimekit.server.config import Config
from regimekit.server.records import Observation
from regimekit.server.service import Service
from regimekit.server.storage import alerts, observations, streams, tokens
from regimekit.server.storage.database import (
    backup,
    connect,
    database,
    open_database,
    parse_url,
    restore,
    write_transaction,
)
from regimekit.server.storage.schema import LATEST, MIGRATIONS, metadata, migrate, version


def test_numbers_are_in_order() -> None:
    assert [step.number for step in MIGRATIONS] == list(range(1, LATEST + 1))


def test_tables_match_the_migrations(db: str) -> None:
    engine = open_database(db)
    found = inspect(engine)
    for table in metadata.sorted_tables:
        columns = {column["name"] for column in found.get_columns(table.name)}
        assert columns == set(table.columns.keys()), table.name
    assert set(found.get_table_names()) == {*metadata.tables, "migrations"}
    assert migrate(engine) == 0, "a second time there is nothing to do"
    engine.dispose()


@pytest.mark.parametrize("begin", range(1, LATEST))
def test_an_older_database_keeps_its_rows(db: str, begin: int) -> None:
    engine = connect(db)
    assert migrate(engine, until=begin) == begin
    with write_transaction(engine) as connection:
        streams.create(connection, "old", "br_ihmm", {"batch": 3})
        connection.execute(
            text(
                "INSERT INTO events (stream, number, seq, since, kind, regime, previous, received)"
                " VALUES (1, 0, 5, 3, 'regime opened', 0, -1, 1.5)"
            )
        )
    assert migrate(engine) == LATEST - begin
    with engine.connect() as connection:
        kept = streams.find(connection, "old")
        assert kept is not None and kept.settings == {"batch": 3}
        event = streams.list_events(connection, 1, 0, None, 10, False)[0]
        assert (event["since"], event["acknowledged"]) == (3, None)
    engine.dispose()


def test_prefixes_of_alerts_distinguish_case(db: str) -> None:
    """A token for `plant1.` must not read the alerts of `PLANT1.`."""
    engine = open_database(db)
    with write_transaction(engine) as connection:
        for i, key in enumerate(("plant1.a", "PLANT1.a")):
            stream = streams.create(connection, key, "br_ihmm", {})
            about = ("odd", "anomaly", "warning", 1, None, 2, None, "Two rows are anomalous.")
            alerts.store(connection, stream.id, [Alert(f"{i:016x}", key, *about)])
        total, page = alerts.list_page(connection, ["plant1."], "all", None, 10, 0)
    assert (total, [alert["stream"] for alert in page]) == (1, ["plant1.a"])
    engine.dispose()


def test_a_newer_database_is_rejected(db: str) -> None:
    engine = open_database(db)
    with write_transaction(engine) as connection:
        connection.execute(text("INSERT INTO migrations VALUES (999, 'later', 'then')"))
    with pytest.raises(RegimekitError, match="schema 999"):
        migrate(engine)
    with engine.connect() as connection:
        assert version(connection) == 999
    engine.dispose()


@pytest.mark.parametrize(
    "bad", ["mysql://x", "regimekit.db", "sqlite://", "sqlite:///:memory:", ""]
)
def test_a_bad_url_says_what_to_write(bad: str) -> None:
    with pytest.raises(RegimekitError, match="sqlite:///FILE"):
        parse_url(bad)


def test_an_unreachable_database_is_one_line() -> None:
    with pytest.raises(RegimekitError, match="cannot be opened"):
        open_database("postgresql://nobody:secret@127.0.0.1:9/none")
    with pytest.raises(RegimekitError) as caught:
        open_database("postgresql://nobody:secret@127.0.0.1:9/none")
    assert "secret" not in str(caught.value)


def filled(db: str) -> list[dict[str, Any]]:
    """Fill a database with one stream by a service in this process."""

    async def fill() -> list[dict[str, Any]]:
        service = Service(Config(db=db, workers=1))
        await service.start()
        stream = await service.write(
            streams.create, "a", "br_ihmm", {"particles": 20, "noise": 0.16}
        )
        rows = [Observation(float(i % 7), None, str(i)) for i in range(120)]
        assert (await service.ingestion.submit(stream.id, rows)).accepted == 120
        found = await service.read(observations.window, stream.id, 0, 120)
        await service.stop()
        return found

    return asyncio.run(fill())


def test_backup_and_restore_across_databases(
    db: str, tmp_path: Path, postgres: Callable[[], str]
) -> None:
    rows = filled(db)
    with database(db) as engine, write_transaction(engine) as connection:
        secret = tokens.add(connection, "t", [("read", "")], 5)
    file = tmp_path / "regimekit.backup"
    counts = backup(db, file)
    assert counts["observations"] == 120 and counts["snapshots"] == 1
    assert file.stat().st_mode & 0o077 == 0, "it holds secrets"
    assert [f.name for f in tmp_path.glob("regimekit.backup*")] == ["regimekit.backup"]
    for target in (f"sqlite:///{tmp_path}/new.db", postgres()):
        assert restore(target, file) == counts
        with database(target) as engine, engine.connect() as connection:
            stream = streams.find(connection, "a")
            assert stream is not None and stream.n_rows == 120
            assert observations.window(connection, stream.id, 0, 200) == rows
            assert tokens.find(connection, secret) is not None
        with database(target) as engine, write_transaction(engine) as connection:
            assert streams.create(connection, "b", "br_ihmm", {}).id > stream.id
        with pytest.raises(RegimekitError, match="not empty"):
            restore(target, file)
    with pytest.raises(RegimekitError, match="does not overwrite"):
        backup(db, file)


def test_a_backup_of_a_running_service_continues_elsewhere(
    start: Callable[..., Any], tmp_path: Path
) -> None:
    y = data.regime_stream(seed=6, n=90).y.tolist()
    server = start()
    server.make("a")
    server.send("a", [{"y": v} for v in y[:60]])
    file, new = str(tmp_path / "b.backup"), f"sqlite:///{tmp_path}/new.db"
    assert (
        "60 observations" in CliRunner().invoke(cli.app, ["backup", file, "--db", server.db]).output
    )
    server.send("a", [{"y": v} for v in y[60:]])
    assert "60 observations" in CliRunner().invoke(cli.app, ["restore", file, "--db", new]).output
    other = start(db=new)
    other.send("a", [{"y": v} for v in y[60:]])
    ours, theirs = ([r | {"received": 0} for r in one.rows("a")] for one in (server, other))
    assert ours == theirs and len(ours) == 90


def test_restore_rejects_other_files(tmp_path: Path) -> None:
    with pytest.raises(RegimekitError, match="does not exist"):
        restore(f"sqlite:///{tmp_path}/a.db", tmp_path / "none")
    open_database(f"sqlite:///{tmp_path}/empty.db").dispose()
    plain = sqlite3.connect(tmp_path / "plain.db")
    plain.execute("CREATE TABLE t (a INTEGER)")
    plain.close()
    (tmp_path / "text.db").write_text("not a database" * 100)
    for name in ("plain.db", "text.db"):
        with pytest.raises(RegimekitError, match="not a backup"):
            restore(f"sqlite:///{tmp_path}/a.db", tmp_path / name)
