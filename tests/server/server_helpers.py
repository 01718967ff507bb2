"""What several tests of the service use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from waiting import PATIENCE, free_port, wait

CHROMIUM = Path("/usr/bin/chromium")
SMALL = {"model": "br_ihmm", "particles": 20, "noise": 0.16}


class Server:
    """`regimekit serve` as a user starts it."""

    def __init__(self, db: str, *options: str, log: Path) -> None:
        self.db, self.options, self.log = db, options, log
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.client = httpx.Client(base_url=self.url, timeout=PATIENCE, trust_env=False)

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
