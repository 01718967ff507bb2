"""Fixtures: services in processes of their own, on SQLite and Postgres databases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from postgres import execute, postgres_server
from server_helpers import Server

import regimekit as rk


@pytest.fixture(scope="session", autouse=True)
def kernels() -> None:
    """Use the model of most streams here once, so that no request waits for a first use."""
    for shape in ((30,), (30, 2)):
        model = rk.br_ihmm(particles=20, noise=0.16)  # as SMALL
        model.run(np.random.default_rng(0).standard_normal(shape))
        model.forecast(2)
        model.transitions()
        rk.from_bytes(model.to_bytes())


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
    with postgres_server("fsync=off") as admin:
        numbers = itertools.count(1)

        def make() -> str:
            name = f"test{next(numbers)}"
            execute(admin, f"CREATE DATABASE {name}")
            return admin.removesuffix("postgres") + name

        yield make


@pytest.fixture(params=["sqlite", "postgres"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of either kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/test.db"
    made: str = request.getfixturevalue("postgres")()
    return made
