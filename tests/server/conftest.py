"""Fixtures: services in processes of their own, on SQLite and Postgres databases."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from server_helpers import SMALL
from waiting import PATIENCE, free_port, wait

import regimekit as rk

_POSTGRES = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    """Use the model of most streams here once, so that no request waits for a first use."""
    for shape in ((30,), (30, 2)):
        model = rk.br_ihmm(particles=20, noise=0.16)  # as SMALL
        model.run(np.random.default_rng(0).standard_normal(shape))
        model.forecast(2)
        model.transitions()
        rk.from_bytes(model.to_bytes())


class Server:
    """`regimekit serve` as a user starts it."""

    def __init__(self, db: str, *options: str, log: Path) -> None:
        self.db, self.options, self.log = db, options, log
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=60, trust_env=False)

    def start(self, wait: bool = True) -> Server:
        command = [
            sys.executable,
            "-m",
            "regimekit.cli",
            "serve",
            "--port",
            str(self.port),
            "--db",
            self.db,
            "--workers",
            "1",
            "--log",
            "json",
            *self.options,
        ]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(command, stderr=log, stdout=log, start_new_session=True)
        if wait:
            self.wait()
        return self

    def wait(self) -> None:
        """Wait until the service is ready."""

        def ready() -> bool:
            ended = self.process.poll() is not None
            return ended or self.client.get("/readyz").status_code == 200

        def log() -> str:
            return f"the start of the service:\n{self.log.read_text()[-3000:]}"

        wait(ready, log, errors=httpx.TransportError, seconds=3 * PATIENCE)
        assert self.process.poll() is None, log()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(PATIENCE)

    def kill(self) -> None:
        """Kill the service and its workers."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def make(self, key: str, **settings: Any) -> str:
        answer = self.client.put(f"/streams/{key}", json=settings or SMALL)
        assert answer.status_code == 201, answer.text
        return f"/streams/{key}"

    def send(self, key: str, rows: Any) -> dict[str, Any]:
        answer = self.client.post(f"/streams/{key}/observations", json=rows)
        assert answer.status_code == 200, answer.text
        receipt: dict[str, Any] = answer.json()
        return receipt

    def rows(self, key: str, **query: Any) -> list[dict[str, Any]]:
        answer = self.client.get(f"/streams/{key}/observations", params=query)
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["observations"]
        return found

    def metric(self, name: str) -> float:
        for line in self.client.get("/metrics").text.splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise AssertionError(f"no metric {name}")


@pytest.fixture(scope="session")
def service() -> type[Server]:
    """The class of services, for fixtures of test modules."""
    return Server


Starter = Callable[..., Server]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Start services that end with the test."""
    begun: list[Server] = []

    def starter(*options: str, db: str | None = None, wait: bool = True) -> Server:
        where = db or f"sqlite:///{tmp_path}/test.db"
        server = Server(where, *options, log=tmp_path / "serve.log")
        begun.append(server)
        return server.start(wait)

    yield starter
    for server in begun:
        server.client.close()
        if server.process.poll() is None:
            server.kill()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One service for tests that need no settings of their own."""
    folder = tmp_path_factory.mktemp("serve")
    server = Server(
        f"sqlite:///{folder}/shared.db", "--snapshot-every", "50", log=folder / "serve.log"
    ).start()
    yield server
    server.client.close()
    assert server.stop() == 0, "the service must end with status 0"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Create empty Postgres databases on a temporary server."""
    if not _POSTGRES:
        pytest.skip("Postgres is not installed (Debian: postgresql)")
    owner = "postgres" if os.getuid() == 0 else None
    folder, port = Path(tempfile.mkdtemp(prefix="regimekit-pg-")), free_port()
    if owner:
        shutil.chown(folder, owner)
    tools = _POSTGRES[-1].parent
    quiet: dict[str, Any] = {
        "user": owner,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
        "cwd": "/",
    }
    subprocess.run(
        [tools / "initdb", "-D", folder / "data", "-A", "trust", "-U", "regimekit", "-E", "UTF8"],
        check=True,
        **quiet,
    )
    process = subprocess.Popen(
        [
            tools / "postgres",
            "-D",
            folder / "data",
            "-p",
            str(port),
            "-k",
            folder,
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "fsync=off",
        ],
        **quiet,
    )
    admin = f"postgresql://regimekit@127.0.0.1:{port}/postgres"
    try:
        _wait_for(admin)
        yield _maker(admin)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(admin: str) -> None:
    import psycopg

    def connected() -> bool:
        psycopg.connect(admin).close()
        return True

    wait(connected, "Postgres", errors=psycopg.OperationalError)


def _maker(admin: str) -> Callable[[], str]:
    import psycopg

    count = 0

    def make() -> str:
        nonlocal count
        count += 1
        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE test{count}")
        return admin.removesuffix("postgres") + f"test{count}"

    return make


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    made: str = request.getfixturevalue("postgres")()
    return made
