"""Tokens, permissions, rate limits; webhooks and the addresses they may reach."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner
from waiting import PATIENCE, wait

from regimekit import cli
from regimekit import datasets as data
from regimekit.core.exceptions import RegimekitError
from regimekit.server.config import is_loopback
from regimekit.server.storage import tokens
from regimekit.server.storage.database import database
from regimekit.server.webhooks import PrivateAddressError, is_public, resolve


def command(*arguments: str) -> str:
    result = CliRunner().invoke(cli.app, list(arguments))
    if result.exception is not None:
        raise result.exception
    return result.output.strip()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_tokens_give_rights_by_prefix(start: Callable[..., Any], tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path}/test.db"
    writer = command("token", "add", "press", "--write", "plant1.", "--rate", "0", "--db", db)
    reader = command("token", "add", "board", "--read", "", "--rate", "0", "--db", db)
    slow = command("token", "add", "slow", "--read", "", "--rate", "0.01", "--db", db)
    raw = b"".join(file.read_bytes() for file in tmp_path.glob("test.db*"))
    assert writer.encode() not in raw, "only the hash is kept"
    server = start("--require-token", db=db)
    client = server.client

    def ask(method: str, path: str, token: str, **more: Any) -> int:
        answer: int = client.request(method, path, headers=bearer(token), **more).status_code
        return answer

    assert client.get("/streams").status_code == 401
    assert client.get("/streams").headers["www-authenticate"] == "Bearer"
    assert ask("GET", "/streams", "hf_wrong") == 401
    assert client.get("/streams", headers={"authorization": "Basic x"}).status_code == 401
    assert client.get("/healthz").status_code == 200
    assert client.get("/").status_code == 200
    settings = {"model": "br_ihmm", "particles": 20}
    assert ask("PUT", "/streams/plant1.a", writer, json=settings) == 201
    assert ask("PUT", "/streams/plant2.a", writer, json=settings) == 403
    assert ask("PUT", "/streams/plant1.b", reader, json=settings) == 403
    assert ask("POST", "/streams/plant1.a/observations", reader, json={"y": 1}) == 403
    assert ask("POST", "/streams/plant1.a/observations", writer, json={"y": 1}) == 200
    assert ask("GET", "/streams/plant1.a/observations", reader) == 200
    assert ask("GET", "/metrics", reader) == 200 and ask("GET", "/metrics", writer) == 403
    seen = client.get("/streams", headers=bearer(writer)).json()
    assert [stream["key"] for stream in seen["streams"]] == ["plant1.a"]
    paced = [client.get("/streams", headers=bearer(slow)) for _ in range(4)]
    assert paced[-1].status_code == 429 and int(paced[-1].headers["retry-after"]) >= 1
    assert "press" in command("token", "list", "--db", db)
    assert writer not in command("token", "list", "--db", db)
    command("token", "revoke", "press", "--db", db)
    wait(lambda: ask("GET", "/streams/plant1.a", writer) == 401, "the revocation")


def test_a_public_service_requires_a_token(start: Callable[..., Any]) -> None:
    server = start("--host", "0.0.0.0")
    assert server.client.get("/healthz").status_code == 200
    assert server.client.get("/streams").status_code == 401
    assert server.client.put("/streams/a", json={}).status_code == 401
    assert "no token exists" in server.log.read_text()


def test_tls_by_flag(start: Callable[..., Any], tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed, which makes the certificate")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-out",
            certificate,
            "-keyout",
            key,
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=IP:127.0.0.1",
        ],
        check=True,
        capture_output=True,
    )
    server = start("--certificate", str(certificate), "--private-key", str(key), wait=False)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with httpx.Client(verify=trusting, trust_env=False, timeout=120) as client:
        url = server.url.replace("http:", "https:")
        answer = wait(
            lambda: client.get(f"{url}/healthz"), server.log.read_text, errors=httpx.ConnectError
        )
        assert answer.json() == {"status": "ok"}
        assert client.get(f"{url}/streams").json()["total"] == 0, "on this machine, no token"
    with pytest.raises(httpx.TransportError):
        server.client.get("/healthz")  # no plain HTTP


def test_token_commands_reject_invalid_arguments(tmp_path: Path) -> None:
    db = f"sqlite:///{tmp_path}/t.db"
    with pytest.raises(RegimekitError, match="--read and --write"):
        command("token", "add", "a", "--db", db)
    command("token", "add", "a", "--read", "", "--db", db)
    with pytest.raises(RegimekitError, match="another name"):
        command("token", "add", "a", "--read", "", "--db", db)
    with pytest.raises(RegimekitError, match="no active token"):
        command("token", "revoke", "b", "--db", db)


def test_tokens_are_long_and_different(tmp_path: Path) -> None:
    with database(f"sqlite:///{tmp_path}/t.db") as engine, engine.begin() as connection:
        made = {tokens.add(connection, str(i), [("read", "")], 0) for i in range(20)}
    assert len(made) == 20 and min(map(len, made)) >= 43


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("10.1.2.3", False),
        ("127.0.0.1", False),
        ("169.254.169.254", False),
        ("192.168.0.1", False),
        ("172.16.0.1", False),
        ("0.0.0.0", False),
        ("100.64.0.1", False),
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::a00:1", False),
        ("2002:7f00:1::", False),
        ("::", False),
        ("192.0.0.192", False),
        ("192.88.99.1", False),
        ("168.63.129.16", False),
        ("64:ff9b:1::808:808", False),
        ("fec0::1", False),
        ("4000::1", False),
        ("5f00::1", False),
        ("100:0:0:1::1", False),
        ("3fff::1", False),
        ("2001:470:1::5efe:7f00:1", False),
        ("2001:470:1::200:5efe:c0a8:101", False),
    ],
)
def test_private_addresses_also_when_embedded(address: str, public: bool) -> None:
    assert is_public(address) == public


def test_a_name_of_a_private_address_is_rejected() -> None:
    with (
        ThreadPoolExecutor(1) as apart,
        pytest.raises(PrivateAddressError, match="not a public address"),
    ):
        # In a thread of its own: a browser may keep this one's event loop running.
        apart.submit(lambda: asyncio.run(resolve("localhost", 80, allow_private=False))).result()
    assert is_loopback("localhost") and is_loopback("[::1]") and not is_loopback("0.0.0.0")


def test_slow_name_servers_delay_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def slow(*_: Any, **__: Any) -> list[Any]:
        assert answered.wait(PATIENCE)
        return [(0, 0, 0, "", ("8.8.8.8", 443))]

    async def other_work() -> int:
        waiting = [asyncio.create_task(resolve("slow.example", 443, False)) for _ in range(100)]
        await asyncio.sleep(0)
        try:
            return await asyncio.wait_for(asyncio.to_thread(lambda: 1), 30)
        finally:
            answered.set()
            await asyncio.gather(*waiting)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    with ThreadPoolExecutor(1) as apart:
        assert apart.submit(lambda: asyncio.run(other_work())).result() == 1


class Receiver(BaseHTTPRequestHandler):
    """Redirect the first message, which must not be followed, and accept the others."""

    def do_POST(self) -> None:
        assert self.path == "/hook?a=1"
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got.append((dict(self.headers), body))
        self.send_response(307 if len(self.server.got) == 1 else 204)
        self.send_header("location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Any]:
    server: Any = HTTPServer(("127.0.0.1", 0), Receiver)
    server.got = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


CALM = {"name": "calm", "note": "One press runs."}


def test_webhooks_are_signed_retried_and_named(start: Callable[..., Any], receiver: Any) -> None:
    server = start("--allow-private-webhooks")
    url = f"http://localhost:{receiver.server_port}/hook?a=1"
    made = server.client.post("/webhooks", json={"url": url, "prefix": "w."}).json()
    server.make("w.a")
    server.make("other")
    assert server.client.put("/streams/w.a/regimes/0", json=CALM).status_code == 204
    y = data.regime_stream(seed=1, n=12).y.tolist()
    for key in ("w.a", "other"):
        server.send(key, [{"y": v} for v in y])
    wait(lambda: len(receiver.got) >= 2, lambda: server.client.get("/webhooks").text)
    (first, one), (second, two) = receiver.got[:2]
    assert one == two and first["Regimekit-Delivery"] == second["Regimekit-Delivery"]
    message = json.loads(two)
    assert (message["stream"], message["kind"]) == ("w.a", "regime opened")
    assert (message["regime_name"], message["regime_note"]) == ("calm", "One press runs.")
    parts = dict(part.split("=", 1) for part in second["Regimekit-Signature"].split(","))
    content = f"{parts['t']}.".encode() + two
    wanted = hmac.new(made["secret"].encode(), content, hashlib.sha256).hexdigest()
    assert parts["v1"] == wanted and second["Host"] == f"localhost:{receiver.server_port}"
    wait(lambda: server.client.get("/webhooks").json()["webhooks"][0]["last_delivered"])
    assert "secret" not in server.client.get("/webhooks").text
    assert server.client.delete(f"/webhooks/{made['id']}").status_code == 204
    assert server.client.delete(f"/webhooks/{made['id']}").status_code == 404


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/x",
        "http://localhost:1/",
        "http://169.254.169.254/latest",
        "ftp://a/b",
        "http://[::1]/",
        "http://2130706433/",
        "http://user@example.org/",
        "http://no.such.invalid/",
    ],
)
def test_webhooks_do_not_reach_private_networks(server: Any, url: str) -> None:
    answer: httpx.Response = server.client.post("/webhooks", json={"url": url})
    assert answer.status_code == 422, answer.text
