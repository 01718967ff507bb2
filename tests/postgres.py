"""A temporary Postgres server, for the tests of several packages."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from waiting import PATIENCE, free_port, wait


def execute(url: str, statement: str) -> None:
    """Execute a statement in a connection of its own."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


@contextmanager
def postgres_server(*settings: str, epoch: int = 0) -> Iterator[str]:
    """Start a server; yield the URL of its database `postgres`.

    Args:
        settings: settings of the server, as NAME=VALUE.
        epoch: number of times that the transaction ids have wrapped around.
    """
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        pytest.skip("Postgres is not installed (Debian: postgresql)")
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    tools, port = found[-1].parent, free_port()
    folder = Path(tempfile.mkdtemp(prefix="regimekit-pg-"))
    # The server refuses to run as root.
    owner = "postgres" if os.getuid() == 0 else None
    if owner:
        shutil.chown(folder, owner)
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    quiet |= {"user": owner, "cwd": "/"}
    data = folder / "data"
    initdb = [tools / "initdb", "-D", data, "-A", "trust", "-U", "regimekit", "-E", "UTF8"]
    subprocess.run(initdb, check=True, **quiet)
    if epoch:
        subprocess.run([tools / "pg_resetwal", "-e", str(epoch), "-D", data], check=True, **quiet)
    command = [tools / "postgres", "-D", data, "-p", str(port), "-k", folder]
    for setting in ("listen_addresses=127.0.0.1", *settings):
        command += ["-c", setting]
    process = subprocess.Popen(command, **quiet)
    url = f"postgresql://regimekit@127.0.0.1:{port}/postgres"

    def connected() -> bool:
        psycopg.connect(url).close()
        return True

    try:
        wait(connected, "Postgres", errors=psycopg.OperationalError)
        yield url
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)
