"""No observation is lost or processed twice: restarts, kills, lost workers, a full cache."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from server_helpers import SMALL
from waiting import PATIENCE, wait

import regimekit as rk
from regimekit import datasets as data

KILLS = int(os.environ.get("REGIMEKIT_KILLS", "3"))
Y = data.regime_stream(seed=11, n=20_000 + 2000 * KILLS).y.tolist()  # more than is sent


def outputs(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "received"} for row in rows]


def everything(server: Any, key: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while found := server.rows(key, **{"from": len(rows)}):
        rows += found
    return rows


def expected(n: int) -> rk.Run:
    settings = dict(SMALL)
    return rk.make(str(settings.pop("model")), **settings).run(Y[:n])


class Retrying(threading.Thread):
    """A client that sends one stream in pieces and repeats whatever was not acknowledged."""

    def __init__(self, url: str, key: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.url, self.key, self.random = url, key, random.Random(seed)
        self.stop = threading.Event()
        self.acknowledged = 0

    def run(self) -> None:
        with httpx.Client(base_url=self.url, timeout=120, trust_env=False) as client:
            while not self.stop.is_set():
                n = self.random.choice((1, 1, 2, 7, 20))
                first = self.acknowledged
                rows = [{"id": str(i), "y": Y[i]} for i in range(first, first + n)]
                while not self.stop.is_set() and not self._sent(client, rows):
                    time.sleep(0.02)

    def _sent(self, client: httpx.Client, rows: list[dict[str, Any]]) -> bool:
        try:
            answer = client.post(f"/streams/{self.key}/observations", json=rows)
        except httpx.TransportError:
            return False
        if answer.status_code in (429, 503):
            return False
        assert answer.status_code == 200, answer.text
        self.acknowledged += len(rows)
        return True


def progress(clients: list[Retrying]) -> None:
    """Wait until every client got another response, so that each kill interrupts work."""
    before = [client.acknowledged for client in clients]
    wait(
        lambda: all(c.acknowledged > n for c, n in zip(clients, before, strict=True)),
        "an answer to every client",
    )


@pytest.mark.slow
def test_kill_under_load(start: Callable[..., Any], db: str) -> None:
    chance = random.Random(5)
    server = start("--snapshot-every", "60", db=db)
    keys = ["a", "b", "c"]
    for key in keys:
        server.make(key)
    clients = [Retrying(server.url, key, i) for i, key in enumerate(keys)]
    for client in clients:
        client.start()
    kills = KILLS if db.startswith("sqlite") or KILLS > 3 else 1
    for _ in range(kills):
        progress(clients)
        time.sleep(chance.uniform(0.0, 0.6))
        server.kill()
        server.start(wait=False)
        server.wait()
    progress(clients)
    for client in clients:
        client.stop.set()
    for client in clients:
        client.join()
        rows = everything(server, client.key)
        assert len(rows) >= client.acknowledged > 0, "lost"
        assert [row["id"] for row in rows] == [str(i) for i in range(len(rows))], "order or twice"
        run = expected(len(rows))
        for name in ("mean", "sd", "lower", "upper", "log_score", "regime"):
            assert [row[name] for row in rows] == getattr(run, name).tolist(), name
        events = server.client.get(f"/streams/{client.key}/events?limit=5000").json()["events"]
        told = [(e["seq"], e["kind"], e["regime"]) for e in events]
        wanted = [(e.time, e.kind, e.regime) for e in run.events]
        assert told == wanted
    assert server.metric("regimekit_replay_differences_total") == 0
    sent = [client.acknowledged for client in clients]
    print(f"{kills} kills, {sum(sent)} observations acknowledged, each stored once, as without")


def test_an_orderly_stop_loses_nothing_and_needs_no_replay(
    start: Callable[..., Any], db: str
) -> None:
    server = start(db=db)
    server.make("a")
    server.send("a", [{"id": str(i), "y": Y[i]} for i in range(77)])
    live = httpx.stream("GET", f"{server.url}/streams/a/live", trust_env=False, timeout=120)
    with live as answer:
        assert answer.status_code == 200
        assert server.stop() == 0
        # The service ended the stream; a connection that it had to cut off would be incomplete.
        for _ in answer.iter_bytes():
            pass
    server.start()
    server.send("a", [{"id": str(i), "y": Y[i]} for i in range(70, 130)])
    assert server.metric("regimekit_replayed_rows_total") == 0
    assert [row["mean"] for row in server.rows("a")] == expected(130).mean.tolist()


def test_a_stop_under_load_loses_nothing_and_needs_no_replay(start: Callable[..., Any]) -> None:
    server = start()
    clients = [Retrying(server.url, key, i) for i, key in enumerate("ab")]
    for client in clients:
        server.make(client.key)
        client.start()
    progress(clients)
    assert server.stop() == 0
    server.start()
    progress(clients)
    for client in clients:
        client.stop.set()
    for client in clients:
        client.join()
        rows = everything(server, client.key)
        assert len(rows) >= client.acknowledged
        assert [row["id"] for row in rows] == [str(i) for i in range(len(rows))]
        assert [row["mean"] for row in rows] == expected(len(rows)).mean.tolist()
    assert server.metric("regimekit_replayed_rows_total") == 0


def test_a_dead_worker_is_replaced(start: Callable[..., Any]) -> None:
    server = start("--snapshot-every", "10")
    server.make("a")
    server.send("a", [{"id": str(i), "y": Y[i]} for i in range(20)])
    server.send("a", [{"id": str(i), "y": Y[i]} for i in range(20, 25)])
    for child in psutil.Process(server.process.pid).children(recursive=True):
        if "spawn_main" in " ".join(child.cmdline()):
            child.send_signal(signal.SIGKILL)
    rows = [{"id": str(i), "y": Y[i]} for i in range(20, 40)]

    def accepted() -> bool:
        answer = server.client.post("/streams/a/observations", json=rows)
        assert answer.status_code == 200 or (
            answer.status_code == 503 and answer.headers["retry-after"]
        )
        return answer.status_code == 200

    wait(accepted, "the new worker")
    assert [row["mean"] for row in server.rows("a")] == expected(40).mean.tolist()
    assert server.metric("regimekit_replayed_rows_total") == 5


def test_more_streams_than_memory(start: Callable[..., Any]) -> None:
    server = start("--memory", "2", "--snapshot-every", "1000")
    keys = [f"s{i}" for i in range(6)]
    for key in keys:
        server.make(key)
    for first in range(0, 30, 3):
        for key in keys:
            server.send(key, [{"y": v} for v in Y[first : first + 3]])
    run = expected(30)
    for key in keys:
        assert [row["mean"] for row in server.rows(key)] == run.mean.tolist()
    assert server.metric("regimekit_replay_differences_total") == 0
    assert server.metric("regimekit_replayed_rows_total") < 100, (
        "evicted models are stored as snapshots"
    )


def test_one_service_per_database(start: Callable[..., Any], tmp_path: Path) -> None:
    start()
    second = start(wait=False)
    assert second.process.wait(PATIENCE) != 0
    assert "Another regimekit service" in second.log.read_text()
