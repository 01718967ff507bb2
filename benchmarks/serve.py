"""Throughput of the service: rows per second and waiting times, and their limits.

    python -m benchmarks.serve [--streams 1000] [--warm 1] [--seconds 20] [--model NAME] [--db URL]
        [--rate 800] [--serve "--memory 10000 --memory-mb 1800"]

Streams are created, then clients send at the rate of the responses, one observation per request,
then more. The waiting time is from sending to the acknowledgement, which comes after the
observation and its outputs are durable. With `--rate`, requests are due at this rate, whether or
not earlier ones are answered, and the waiting time begins when a request is due.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

import httpx
import numpy as np
import psutil

from regimekit import datasets as data

MODELS: dict[str, dict[str, Any]] = {
    "small": {"model": "br_ihmm", "particles": 20, "noise": 0.16},
    "default": {},
}
Y = data.regime_stream(seed=1, n=2000).y


def start(db: str, options: str = "") -> tuple[subprocess.Popen[bytes], str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "regimekit.cli",
            "serve",
            "--port",
            str(port),
            "--db",
            db,
            "--log",
            "json",
            *options.split(),
        ],
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    while True:
        try:
            answer = httpx.get(f"{url}/readyz", trust_env=False)
            if answer.status_code == 200 and answer.json()["compiled"]:
                return process, url
        except httpx.TransportError:
            pass
        time.sleep(0.2)


class Client:
    """One connection that sends JSON: httpx would use more of the two cores than the service."""

    def __init__(self, url: str) -> None:
        self.host = url.removeprefix("http://")

    async def __aenter__(self) -> Client:
        host, _, port = self.host.partition(":")
        self.reader, self.writer = await asyncio.open_connection(host, int(port))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def send(self, method: str, path: str, content: bytes) -> None:
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\nContent-Type: application/json\r\n"
        )
        self.writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", answer)
        body = await self.reader.readexactly(int(length[1]) if length else 0)
        if not answer.startswith(b"HTTP/1.1 20"):
            raise RuntimeError(f"{answer.splitlines()[0]!r}: {body!r}")


async def create(url: str, keys: list[str], settings: dict[str, Any], clients: int) -> None:
    """Create the streams."""
    content = json.dumps(settings).encode()

    async def client(mine: list[str]) -> None:
        async with Client(url) as http:
            for key in mine:
                await http.send("PUT", f"/streams/{key}", content)

    await asyncio.gather(*(client(keys[i::clients]) for i in range(clients)))


async def load(
    url: str,
    keys: list[str],
    mark: str,
    rows: int,
    clients: int,
    seconds: float,
    silent: bool = False,
    rate: float = 0.0,
) -> int:
    """Each client sends to its streams in turn; how many rows that were.

    Closed loop, or with `rate` an open one. `silent` is the first round: every stream once, so
    that its model is made.
    """
    waits: list[float] = []
    sent = dict.fromkeys(keys, 0)
    until = time.perf_counter() + seconds
    start = time.perf_counter()
    due = (start + i / rate for i in itertools.count()) if rate else None

    async def client(mine: list[str]) -> None:
        async with Client(url) as http:
            while True:
                for key in mine:
                    numbers = range(sent[key], sent[key] + rows)
                    body = [{"id": f"{mark}{i}", "y": Y[i % len(Y)]} for i in numbers]
                    content = json.dumps(body).encode()
                    began = time.perf_counter()
                    if due is not None and (began := next(due)) > time.perf_counter():
                        await asyncio.sleep(began - time.perf_counter())
                    await http.send("POST", f"/streams/{key}/observations", content)
                    waits.append(time.perf_counter() - began)
                    sent[key] += rows
                    if time.perf_counter() > until and (not silent or key == mine[-1]):
                        return

    began = time.perf_counter()
    await asyncio.gather(*(client(keys[i::clients]) for i in range(clients)))
    took = time.perf_counter() - began
    done = sum(sent.values())
    p50, p99 = 1e3 * np.quantile(waits, [0.5, 0.99])
    if not silent:
        print(
            f"  {rows:3d} rows per request, {clients} clients: {done / took:.0f} rows/s, "
            f"p50 {p50:.0f} ms, p99 {p99:.0f} ms"
        )
    return done


def cpu_seconds(process: psutil.Process) -> tuple[float, float]:
    """Return the CPU time of the front and of the workers so far."""
    front = process.cpu_times()
    workers = [child.cpu_times() for child in process.children(recursive=True)]
    return front.user + front.system, sum(times.user + times.system for times in workers)


def megabytes(process: psutil.Process) -> float:
    """Return the memory of the front and the workers; shared pages count once."""
    own = [process, *process.children(recursive=True)]
    return sum(one.memory_full_info().pss for one in own) / 2**20


def service_metrics(url: str) -> np.ndarray:
    """Seconds in transactions, requests with observations within 25 ms, and all of them."""
    text = httpx.get(f"{url}/metrics", trust_env=False).text

    def total(name: str, *marks: str) -> float:
        lines = (x for x in text.splitlines() if x.startswith(f"regimekit_{name}"))
        return sum(float(x.split()[-1]) for x in lines if all(mark in x for mark in marks))

    posts = ('method="POST"', "/observations")
    within = total("request_seconds_bucket", 'le="0.025"', *posts)
    return np.array([total("commit_seconds_sum"), within, total("request_seconds_count", *posts)])


def measured(process: Any, url: str, keys: list[str], rows: int, given: Any) -> None:
    """Measure one load, with its cost on either side."""
    server = psutil.Process(process.pid)
    before, known = cpu_seconds(server), service_metrics(url)
    done = asyncio.run(
        load(url, keys, f"{rows}-", rows, given.clients, given.seconds, rate=given.rate)
    )
    committed, within, requests = service_metrics(url) - known
    front, workers = (b - a for a, b in zip(before, cpu_seconds(server), strict=True))
    print(
        f"      computing per row: {1e3 * front / done:.2f} ms in front, "
        f"{1e3 * workers / done:.2f} ms in workers; "
        f"{1e3 * committed / done:.2f} ms in transactions; by the service's clock "
        f"{100 * within / requests:.1f} % of the requests within 25 ms; "
        f"{megabytes(server):.0f} MB; load {os.getloadavg()[0]:.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--warm", type=int, default=1, help="rows each stream learns first")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--model", choices=MODELS, help="only this one")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 20, 200], help="per request")
    parser.add_argument("--rate", type=float, default=0.0, help="requests per second")
    parser.add_argument("--serve", default="", help="further options of the service")
    parser.add_argument("--db", default="")
    given = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    chosen = {given.model: MODELS[given.model]} if given.model else MODELS
    for name, settings in chosen.items():
        with tempfile.TemporaryDirectory() as folder:
            process, url = start(given.db or f"sqlite:///{folder}/bench.db", given.serve)
            try:
                keys = [f"{name}.{i}" for i in range(given.streams)]
                asyncio.run(create(url, keys, settings, given.clients))
                print(f"{given.streams} streams, {name} model {settings}")
                asyncio.run(load(url, keys, "warm-", given.warm, given.clients, 0, silent=True))
                for rows in given.rows:
                    measured(process, url, keys, rows, given)
            finally:
                process.terminate()
                process.wait()


if __name__ == "__main__":
    main()
