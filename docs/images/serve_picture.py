"""Takes docs/images/serve.png anew: a real service, a stream sent to it, its page in Chromium.

python docs/images/serve_picture.py [--dark] [--phone] [--overview] [--out FILE]
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import sync_playwright

import regimekit as rk

NAMES = ["day shift", "night shift", "cleaning"]
ROWS, LIVE = 600, 12


@contextmanager
def service(folder: str) -> Iterator[httpx.Client]:
    """`regimekit serve` on a new database, once it is ready and compiled."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    db = f"sqlite:///{folder}/picture.db"
    process = subprocess.Popen(
        [sys.executable, "-m", "regimekit.cli", "serve", "--port", str(port), "--db", db]
    )
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False) as client:
        try:
            while not ready(client):
                time.sleep(0.5)
            yield client
        finally:
            process.terminate()
            process.wait()


def ready(client: httpx.Client) -> bool:
    """Whether the service runs at full speed."""
    try:
        answer = client.get("/readyz")
    except httpx.TransportError:
        return False
    return answer.status_code == 200 and bool(answer.json()["compiled"])


def send(client: httpx.Client, key: str, y: list[float], first: int, last: int) -> None:
    """Rows by the minute, the last of them about now."""
    begun = time.time() - 60 * (ROWS + LIVE)
    for start in range(first, last, 20):
        some = range(start, min(start + 20, last))
        rows = [{"id": str(i), "y": y[i], "time": begun + 60 * i} for i in some]
        client.post(f"/streams/{key}/observations", json=rows).raise_for_status()


def fill(client: httpx.Client) -> list[float]:
    """Streams to look at: one by the default model with names, three others for the overview."""
    y: list[float] = rk.data.regime_stream(seed=6, n=ROWS + LIVE, stay=0.985).y.tolist()
    client.put("/streams/plant1.press3.load", json={}).raise_for_status()
    send(client, "plant1.press3.load", y, 0, ROWS)
    library = client.get("/streams/plant1.press3.load/regimes").json()["regimes"]
    for name, regime in zip(NAMES, [r for r in library if r["times"]], strict=False):
        path = f"/streams/plant1.press3.load/regimes/{regime['id']}"
        client.put(path, json={"name": name}).raise_for_status()
    for seed, key in enumerate(("plant1.press4.load", "plant1.oven.gas", "plant2.pump.flow")):
        other = rk.data.regime_stream(seed=seed, n=240, stay=0.98).y.tolist()
        client.put(f"/streams/{key}", json={"model": "br_ihmm", "noise": 0.16}).raise_for_status()
        send(client, key, other, 0, 240)
    return y


def photograph(client: httpx.Client, y: list[float], given: Any) -> None:
    """Watch the last values arrive, then take the picture."""
    size = {"width": 390, "height": 844} if given.phone else {"width": 1200, "height": 1000}
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--headless", "--no-sandbox", "--disable-gpu"],
        )
        theme = "dark" if given.dark else "light"
        context = chromium.new_context(viewport=size, color_scheme=theme, timezone_id="UTC")
        page = context.new_page()
        page.goto(f"{client.base_url}#/{'' if given.overview else 's/plant1.press3.load'}")
        page.wait_for_selector("a.card" if given.overview else ".regime-name")
        send(client, "plant1.press3.load", y, ROWS, ROWS + LIVE)
        page.wait_for_timeout(6000)
        page.screenshot(path=given.out, full_page=given.phone)
        chromium.close()


def main() -> None:
    """One picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("dark", "phone", "overview"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("serve.png"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, service(folder) as client:
        photograph(client, fill(client), given)


if __name__ == "__main__":
    main()
