"""Limits that hold before a request is authenticated, and limits of one stream."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from server_helpers import SMALL
from waiting import PATIENCE, free_port, wait

import regimekit as rk
from regimekit.server.config import Config, Limits
from regimekit.server.model_cache import ModelCache
from regimekit.server.records import Observation, ObservationBatch
from regimekit.server.request_parsing import BodyError, parse_body
from regimekit.server.storage import streams
from regimekit.server.storage.database import database, write_transaction
from regimekit.server.workers import Worker


def send_raw(server: Any, data: bytes, seconds: float = 30.0) -> bytes:
    """Send bytes and return the answer until the service closes the connection or is silent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as connection:
        answer = b""
        with suppress(ConnectionError):
            connection.sendall(data)
        with suppress(TimeoutError, ConnectionError):
            while piece := connection.recv(65536):
                answer += piece
        return answer


def memory(server: Any) -> int:
    """Return the resident bytes of the process that answers requests."""
    status = Path(f"/proc/{server.process.pid}/status")
    if not status.exists():
        pytest.skip("the memory of a process is read from /proc")
    return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status.read_text())[1])  # type: ignore[index]


HEAD = b"Host: 127.0.0.1\r\nAuthorization: Bearer wrong\r\n"


@pytest.mark.parametrize("path", ["/streams/x", "/webhooks", "/streams/x/regimes/1", "/nothing"])
@pytest.mark.parametrize("chunked", [False, True])
def test_bodies_are_limited_before_authentication(server: Any, path: str, chunked: bool) -> None:
    before = memory(server)
    size = 20 * 2**20
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        length = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
        method = b"POST" if path == "/webhooks" else b"PUT"
        head = b"%s %s HTTP/1.1\r\n%s%s\r\n\r\n" % (method, path.encode(), HEAD, length)
        connection.sendall(head)
        piece = b"a" * 65536
        piece = b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece
        try:
            for _ in range(size // 65536):
                connection.sendall(piece)
            answer = connection.recv(4096)
        except ConnectionError:
            answer = b""
    assert b" 200 " not in answer[:20] and b" 500 " not in answer[:20]
    if not chunked:
        assert answer == b"" or b" 413 " in answer[:20]
    assert memory(server) - before < 8 * 2**20


@pytest.mark.parametrize(
    "head",
    [
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * 200_000,
        b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-Many: a\r\n" * 20_000,
        b"GET /" + b"a" * 200_000,
        b"POST /webhooks HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1;"
        + b"a" * 200_000,
        b"POST /webhooks HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n" + b"X-Trailer: a\r\n" * 20_000,
    ],
)
def test_headers_are_limited(server: Any, head: bytes) -> None:
    answer = send_raw(server, head)
    assert answer == b"" or b" 431 " in answer or b" 4" in answer[:20]
    assert server.client.get("/healthz").status_code == 200


def test_two_hosts_are_refused(server: Any) -> None:
    head = b"GET /streams HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: evil.example\r\n"
    assert b" 400 " in send_raw(server, head + b"Connection: close\r\n\r\n")[:20]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 200) for name in ("localhost", "LOCALHOST:80", "127.0.0.1:8000", "[::1]:80")),
        *((name, 401) for name in ("", "[", "[::1", "a b", "127.0.0.1.evil", "localhost, evil")),
        *((name, 401) for name in ("evil@localhost", "localhost/x", "127.0.0.1#", "localhost:x")),
    ],
)
def test_only_a_plain_local_host_is_local(server: Any, host: str, status: int) -> None:
    head = f"GET /streams HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    assert b" %d " % status in send_raw(server, head.encode())[:20]


@pytest.mark.parametrize(
    "name", ["Via", "X-Forwarded-Proto", "X-Forwarded-For", "X-Forwarded-Ssl", "CF-Ray"]
)
def test_forwarded_requests_need_a_token(server: Any, name: str) -> None:
    assert server.client.get("/streams").status_code == 200
    assert server.client.get("/streams", headers={name: "1.1 proxy"}).status_code == 401


def test_a_client_that_leaves_is_no_error(server: Any) -> None:
    server.make("leaver")
    log = len(server.log.read_text())
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        head = b"POST /streams/leaver/observations HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        connection.sendall(head + b'Content-Length: 1000\r\n\r\n{"y"')

    def statuses() -> list[int]:
        lines = server.log.read_text()[log:].splitlines(keepends=True)
        return [json.loads(line).get("status", 0) for line in lines if line.endswith("\n")]

    wait(lambda: 499 in statuses(), "the request in the log")
    assert max(statuses()) < 500 and "Traceback" not in server.log.read_text()[log:]


@pytest.mark.parametrize(
    ("kind", "body", "reason"),
    [
        ("application/json", b"[" + b"0," * 20_000 + b"0]", "at most 10000 rows"),
        ("application/json", b"[" + b"0," * 4_000_000 + b"0]", "at most 1000000 values"),
        ("application/json", b"[" + b"{}," * 20_000 + b"{}]", "at most 10000 rows"),
        ("application/json", (b"[" * 150 + b"]" * 150 + b",") * 20_000, "at most 1000000 values"),
        ("application/json", b'{"y":[' + b"0," * 100_000 + b"0]}", "at most 64 entries"),
        ("application/json", b'{"y":0,"x":{%s}}', "at most 64 entries"),
        ("application/json", b'[{"y":0,%s}]', "at most 64 entries"),
        ("application/x-ndjson", b'{"y":0,"x":{%s}}', "at most 64 entries"),
        ("text/csv", b"y\n" + b"1\n" * 20_000, "at most 10000 rows, got more than 10000"),
        ("text/csv", b"a," * 100_000, "unique column names"),
    ],
)
def test_bodies_with_many_values_cost_little(kind: str, body: bytes, reason: str) -> None:
    """Limits of number apply before values are validated, since every error needs memory."""
    if b"%s" in body:
        body %= b",".join(b'"%d":""' % i for i in range(10_000))
    with pytest.raises(BodyError, match=reason) as error:
        parse_body(body, kind, Limits())
    assert len(str(error.value)) < 500


@contextmanager
def limited_service(folder: Path, limits: str) -> Iterator[Callable[[], socket.socket]]:
    """Start a service with these limits; give a function that connects to it."""
    code = (
        "import sys, regimekit.server.app as app\n"
        "from regimekit.server.config import Config, Limits\n"
        f"limits = Limits({limits})\n"
        f"app.run(Config(db='sqlite:///{folder}/x.db', port=int(sys.argv[1]), workers=1, "
        "limits=limits))\n"
    )
    port = free_port()
    script = folder / "serve.py"
    script.write_text("if __name__ == '__main__':\n" + textwrap.indent(code, "    "))
    process = subprocess.Popen([sys.executable, script, str(port)], stderr=subprocess.DEVNULL)
    held: list[socket.socket] = []

    def connect() -> socket.socket:
        assert process.poll() is None
        held.append(socket.create_connection(("127.0.0.1", port), timeout=120))
        return held[-1]

    try:
        wait(connect, "the service", errors=OSError)
        yield connect
    finally:
        for one in held:
            one.close()
        process.terminate()
        process.wait(PATIENCE)


def test_half_open_connections_end(tmp_path: Path) -> None:
    """Of many silent connections few are accepted, and those end."""
    with limited_service(tmp_path, "connections=20, header_seconds=6.0") as connect:
        answers = [one.recv(200)[:12] for one in [connect() for _ in range(40)]]
    assert answers.count(b"HTTP/1.1 503") >= 20 and b"HTTP/1.1 408" in answers
    assert set(answers) == {b"HTTP/1.1 503", b"HTTP/1.1 408"}


def test_connections_of_clients_that_do_not_read_end(tmp_path: Path) -> None:
    request = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with limited_service(tmp_path, "send_seconds=1.0") as connect:
        connection = connect()
        connection.settimeout(5.0)

        def ended() -> bool:
            try:
                connection.sendall(request * 100)
            except TimeoutError:
                return False
            except ConnectionError:
                return True
            return False

        wait(ended, "the end of the connection", seconds=60.0)


# One stream must not stop others.


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "br_ihmm", "features": [{"term": "season", "period": 4000, "harmonics": 1999}]},
        {"model": "br_ihmm", "dim": 1000},
        {"model": "br_ihmm", "batch": 6000},
        {"model": "garch_ihmm", "cloud": 100_000},
        {"model": "br_ihmm", "particles": 100_000},
    ],
    ids=lambda settings: str(list(settings.items())[-1])[:40],
)
def test_costly_models_are_refused_while_others_work(server: Any, settings: dict[str, Any]) -> None:
    if "quick" not in getattr(server, "made", set()):
        server.make("quick")
        server.made = {"quick"}
    statuses: list[int] = []
    done = threading.Event()

    def use() -> None:
        with httpx.Client(base_url=server.url, timeout=120, trust_env=False) as client:
            while not done.is_set():
                answer = client.post("/streams/quick/observations", json={"y": 1.0})
                statuses.append(answer.status_code)

    other = threading.Thread(target=use)
    other.start()
    try:
        wait(lambda: statuses, "the first answer")
        before, began = len(statuses), time.perf_counter()
        answer = server.client.put("/streams/costly", json=settings)
        seconds, during = time.perf_counter() - began, len(statuses) - before
    finally:
        done.set()
        other.join()
    assert answer.status_code == 422, answer.text
    assert set(statuses) == {200}
    # A trial may take 20 s. If the other stream had to wait for it, there would be one answer.
    assert during >= 3 or seconds < 5.0


def observations(count: int) -> list[Observation]:
    return [Observation(float(i % 7)) for i in range(count)]


def test_a_batch_that_takes_too_long_is_rejected(tmp_path: Path) -> None:
    config = Config(db=f"sqlite:///{tmp_path}/x.db", limits=Limits(batch_seconds=0.0))
    with database(config.db) as engine:
        with write_transaction(engine) as connection:
            stream = streams.create(connection, "x", "last_value", {})
        worker = Worker(config)
        result = worker.update(stream.id, [ObservationBatch(observations(1000), 0.0)], 0, 0)
        assert "per observation" in str(result.results[0].error) and result.change is None
        result = worker.update(stream.id, [ObservationBatch(observations(100), 0.0)], 0, 0)
        assert result.results[0].accepted == 100
        worker._engine.dispose()


def test_the_cache_counts_bytes(tmp_path: Path) -> None:
    with database(f"sqlite:///{tmp_path}/x.db") as engine:
        with write_transaction(engine) as connection:
            made = [
                streams.create(connection, f"s{i}", "br_ihmm", {"noise": 1.0}) for i in range(6)
            ]
        large = ModelCache(engine, 100, 500)
        for stream in made:
            large.update(stream.id, [ObservationBatch(observations(20), 0.0)], 0)
        assert len(large._models) == 6
        copies = [cached.model.to_bytes() for cached in large._models.values()]
        tracemalloc.start()
        loaded = [rk.from_bytes(data) for data in copies]
        needed, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(loaded) == 6 and 0.7 * needed < large._bytes < 1.4 * needed
        small = ModelCache(engine, 100, 1, capacity_bytes=needed // 2)
        for stream in made:
            small.update(stream.id, [ObservationBatch(observations(20), 0.0)], 0)
        assert 2 <= len(small._models) <= 4
        for stream in made:
            small.drop(stream.id)
        assert small._bytes == 0


# Rights and secrets


def test_prefixes_match_exactly(db: str) -> None:
    with database(db) as engine:
        with write_transaction(engine) as connection:
            for key in ("good.a", "GOOD.b", "g_od.c", "goXd.d"):
                streams.create(connection, key, "last_value", {})
        with engine.connect() as connection:

            def keys(*prefixes: str) -> list[str]:
                total, page = streams.list_page(connection, "", "key", 10, 0, list(prefixes))
                assert total == len(page)
                return sorted(stream.key for stream in page)

            assert keys("GOOD.") == ["GOOD.b"]
            assert keys("good.") == ["good.a"]
            assert keys("g_od") == ["g_od.c"]
            assert keys("%") == [] and keys() == []
            assert len(keys("")) == 4


def test_read_tokens_see_no_webhook_urls(start: Callable[..., Any], tmp_path: Path) -> None:
    from test_auth import bearer, command

    db = f"sqlite:///{tmp_path}/test.db"
    reader = command("token", "add", "r", "--read", "", "--rate", "0", "--db", db)
    writer = command("token", "add", "w", "--write", "", "--rate", "0", "--db", db)
    server = start("--require-token", "--allow-private-webhooks", db=db)
    hook = {"url": "http://127.0.0.1:9/secret-path", "prefix": ""}
    assert server.client.post("/webhooks", json=hook, headers=bearer(writer)).status_code == 201
    assert "secret-path" in server.client.get("/webhooks", headers=bearer(writer)).text
    assert "secret-path" not in server.client.get("/webhooks", headers=bearer(reader)).text
    modes = {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("test.db*")}
    assert modes == {0o600}


# Readiness


def test_not_ready_if_the_database_is_damaged(start: Callable[..., Any], tmp_path: Path) -> None:
    server = start()
    assert server.client.get("/readyz").status_code == 200
    file = tmp_path / "test.db"
    size = file.stat().st_size
    with file.open("r+b") as content, (tmp_path / "test.db-wal").open("r+b") as journal:
        content.write(os.urandom(size))
        journal.truncate(0)
    wait(lambda: server.client.get("/readyz").status_code != 200, "the probe of the database")
    assert server.client.get("/healthz").status_code == 200


@pytest.mark.skipif(
    os.getuid() != 0 or shutil.which("mount") is None, reason="needs root, to mount a small disk"
)
def test_not_ready_on_a_full_disk(start: Callable[..., Any], tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(disk)]
    if subprocess.run(words, capture_output=True).returncode:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        server = start(db=f"sqlite:///{disk}/x.db")
        server.make("s")
        sent = server.send("s", [{"y": float(i)} for i in range(50)])["rows"]
        (disk / "ballast").write_bytes(b"0" * 2**20 * 31)
        wait(lambda: server.client.get("/readyz").status_code == 503, "the probe of the disk")
        (disk / "ballast").unlink()
        wait(lambda: server.client.get("/readyz").status_code == 200, "the next probe")
        assert len(server.rows("s")) == sent
        server.kill()
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_the_settings_of_the_test_stream_are_accepted(server: Any) -> None:
    answer = server.client.put("/streams/small", json=SMALL)
    assert answer.status_code in (200, 201), json.dumps(answer.json())
