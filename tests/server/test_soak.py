"""A supervised soak: writers and readers while the service is killed and its disk is full.

60 s for each database by default, about 2 minutes in all. By hand:

    REGIMEKIT_SOAK_SECONDS=600 python -m pytest tests/server/test_soak.py -s

(3600 for one hour). Whatever happens, every acknowledged observation is stored once, in order, and
the stored outputs are those of an uninterrupted run.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from server_helpers import SMALL, Server
from waiting import PATIENCE, free_port

import regimekit as rk

SECONDS = float(os.environ.get("REGIMEKIT_SOAK_SECONDS", "60"))
WRITERS = 3
BATCH = 5
# Moves the clock of the service back by an hour, as a correction of the system clock would.
CLOCK = """
import os, time
_back = float(os.environ.get("REGIMEKIT_TEST_CLOCK", "0"))
_now = time.time
time.time = lambda: _now() - _back
"""


@dataclass
class Soak:
    """What happened, and what was acknowledged."""

    server: Any
    address: str
    verify: Any = True
    stopped: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[str, int] = field(default_factory=dict)
    retries: int = 0
    reads: int = 0
    failed_reads: int = 0
    kills: int = 0
    full_disks: int = 0
    errors: list[str] = field(default_factory=list)

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=120, trust_env=False, verify=self.verify)

    def write(self, key: str) -> None:
        """Send observations in order; send again whatever was not acknowledged."""
        y, sent = values(key), 0
        with self.client() as client:
            while not self.stopped.is_set():
                rows = [{"y": y[i], "id": str(i)} for i in range(sent, sent + BATCH)]
                try:
                    answer = client.post(f"/streams/{key}/observations", json=rows)
                except httpx.TransportError:
                    self.retries += 1
                    time.sleep(0.1)
                    continue
                if answer.status_code == 200:
                    sent += BATCH
                    self.acknowledged[key] = sent
                elif answer.status_code in (500, 502, 503, 504):
                    self.retries += 1
                    time.sleep(0.1)
                else:
                    self.errors.append(f"{answer.status_code} {answer.text[:200]}")
                    return

    def read(self, keys: list[str]) -> None:
        with self.client() as client:
            while not self.stopped.is_set():
                key = random.choice(keys)
                path = random.choice(["", "/observations", "/forecast", "/events", "/regimes"])
                try:
                    answer = client.get(f"/streams/{key}{path}")
                    self.reads += 1
                    if answer.status_code >= 500:
                        self.failed_reads += 1
                    elif answer.status_code >= 400 and answer.status_code != 422:
                        self.errors.append(f"GET {path}: {answer.status_code} {answer.text[:200]}")
                except httpx.TransportError:
                    self.failed_reads += 1
                time.sleep(0.05)

    def kill(self) -> None:
        """Kill the service; it continues with a clock that is an hour back, or right again."""
        self.server.kill()
        self.kills += 1
        os.environ["REGIMEKIT_TEST_CLOCK"] = "3600" if self.kills % 2 else "0"
        self.server.start()

    def fill(self, disk: Path) -> None:
        ballast = disk / "ballast"
        with suppress(OSError), ballast.open("wb") as target:
            while True:
                target.write(bytes(2**16))
        time.sleep(2)
        ballast.unlink()
        self.full_disks += 1


def values(key: str) -> np.ndarray:
    rng = np.random.default_rng(sum(key.encode()))
    return np.round(np.repeat(rng.normal(0, 5, 4000), 50) + rng.standard_normal(200_000), 3)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path | None]:
    """A small disk that can be filled; None without the right to mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=256m", "tmpfs", str(folder)]
    mounted = os.getuid() == 0 and not subprocess.run(words, capture_output=True).returncode
    yield folder if mounted else None
    if mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Callable[[int], tuple[str, Any]]]:
    """Start nginx with TLS in front of a port; without nginx, return the service's address."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(port: int) -> tuple[str, Any]:
        nginx, openssl = shutil.which("nginx"), shutil.which("openssl")
        if nginx is None or openssl is None:
            return f"http://127.0.0.1:{port}", True
        words = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        words += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        words += ["-keyout", "key.pem", "-out", "cert.pem"]
        subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
        front = free_port()
        (tmp_path / "nginx.conf").write_text(
            f"daemon off; pid {tmp_path}/nginx.pid; error_log {tmp_path}/nginx.log;\n"
            "events {}\nhttp { access_log off; client_max_body_size 8m;\n"
            f"client_body_temp_path {tmp_path}/body; proxy_temp_path {tmp_path}/proxy;\n"
            f"fastcgi_temp_path {tmp_path}/a; uwsgi_temp_path {tmp_path}/b;\n"
            f"scgi_temp_path {tmp_path}/c;\n"
            f"server {{ listen 127.0.0.1:{front} ssl; ssl_certificate {tmp_path}/cert.pem;\n"
            f"ssl_certificate_key {tmp_path}/key.pem;\n"
            f"location / {{ proxy_pass http://127.0.0.1:{port}; proxy_http_version 1.1;\n"
            "proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr;\n"
            "proxy_set_header X-Forwarded-Proto https; proxy_buffering off; } } }\n"
        )
        processes.append(subprocess.Popen([nginx, "-c", tmp_path / "nginx.conf", "-p", tmp_path]))
        import ssl

        return f"https://localhost:{front}", ssl.create_default_context(
            cafile=str(tmp_path / "cert.pem")
        )

    yield start
    for process in processes:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_soak(
    kind: str,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    disk: Path | None,
    proxy: Callable[[int], tuple[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(CLOCK)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("REGIMEKIT_TEST_CLOCK", "0")
    folder = disk or tmp_path
    db = (
        f"sqlite:///{folder}/soak.db" if kind == "sqlite" else request.getfixturevalue("postgres")()
    )
    server = Server(db, "--snapshot-every", "40", "--memory", "2", log=tmp_path / "soak.log")
    server.start()
    keys = [f"soak{i}" for i in range(WRITERS)]
    for key in keys:
        server.make(key)
    # Behind a proxy every request needs a token.
    address, verify = proxy(server.port)
    soak = Soak(server, address, verify)
    if address.startswith("https"):
        from test_auth import bearer, command

        token = command("token", "add", "soak", "--write", "", "--rate", "0", "--db", db)
        plain = soak.client

        def with_token() -> httpx.Client:
            client = plain()
            client.headers.update(bearer(token))
            return client

        soak.client = with_token  # type: ignore[method-assign]
    threads = [threading.Thread(target=soak.write, args=(key,)) for key in keys]
    threads += [threading.Thread(target=soak.read, args=(keys,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        _disturb(soak, disk if kind == "sqlite" else None)
    finally:
        soak.stopped.set()
        for thread in threads:
            thread.join()
    assert not soak.errors, soak.errors[:3]
    _compare(soak, keys)
    server.kill()
    server.client.close()
    print(
        f"\nsoak {kind}, {'nginx with TLS' if address.startswith('https') else 'no proxy'}: "
        f"{SECONDS:.0f} s, {sum(soak.acknowledged.values())} observations acknowledged, 0 lost, "
        f"0 doubled, outputs identical; {soak.retries} retries, {soak.reads} reads "
        f"({soak.failed_reads} failed), {soak.kills} kills with the clock moved, "
        f"{soak.full_disks} full disks"
    )


def _disturb(soak: Soak, disk: Path | None) -> None:
    """Fill the disk and kill the service in turn until the time is over."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        time.sleep(min(8.0, SECONDS / 6))
        if disk is not None:
            soak.fill(disk)
        time.sleep(min(4.0, SECONDS / 12))
        soak.kill()


def _compare(soak: Soak, keys: list[str]) -> None:
    """Compare what is stored with an uninterrupted run of the same model."""
    settings = {name: value for name, value in SMALL.items() if name != "model"}
    for key in keys:
        sent = soak.acknowledged.get(key, 0)
        assert sent > 0, f"nothing was acknowledged for {key}"
        total = soak.server.client.get(f"/streams/{key}").json()["rows"]
        # The last request may have been stored without an answer.
        assert sent <= total <= sent + BATCH
        stored: list[dict[str, Any]] = []
        while len(stored) < total:
            stored += soak.server.rows(key, **{"from": len(stored), "to": len(stored) + 2000})
        assert [row["id"] for row in stored] == [str(i) for i in range(total)]
        run = rk.make(str(SMALL["model"]), **settings).run(values(key)[:total])
        for name in ("mean", "lower", "upper"):
            found = np.array([row[name] for row in stored], dtype=float)
            np.testing.assert_array_equal(found, getattr(run, name))
        assert [row["regime"] for row in stored] == run.regime.tolist()
