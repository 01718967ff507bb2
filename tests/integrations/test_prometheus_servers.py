"""The bridge with real servers of Debian: Prometheus, VictoriaMetrics, Alertmanager."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("prometheus_client", reason="the extra `prometheus` is not installed")
import httpx
import waiting
import yaml
from waiting import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
HISTORY = 200  # rows before the servers start


def needs(program: str, package: str) -> str:
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"{program} is not installed (Debian: {package})")
    return found


def wait(found: Callable[[], Any], what: str) -> Any:
    return waiting.wait(found, what, errors=(httpx.HTTPError, KeyError, IndexError))


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start programs that end with the test."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(*command: str) -> subprocess.Popen[bytes]:
        with (tmp_path / f"{Path(command[0]).name}-{len(begun)}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
        begun.append(process)
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.wait()


class Exporter(BaseHTTPRequestHandler):
    """A machine with a temperature and a counter of requests."""

    def do_GET(self) -> None:
        state = self.server.state
        noise = float(state["rng"].normal(0.0, 0.5))
        text = f'temp{{sensor="a"}} {state["level"] + noise}\n'
        self.send_response(200)
        self.send_header("content-type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def exporter() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    server.state = {"level": 40.0, "rng": np.random.default_rng(0)}
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def history(now: float) -> str:
    """`HISTORY` rows, one per second, in the text format of OpenMetrics."""
    y = np.random.default_rng(1).normal(40.0, 0.5, HISTORY)
    lines = [f"{y[i]} {now - HISTORY + i:.3f}" for i in range(HISTORY)]
    labels = '{sensor="a",instance="machine",job="machine"}'
    return "\n".join(["# TYPE temp gauge", *(f"temp{labels} {line}" for line in lines), "# EOF\n"])


def bridge_config(folder: Path, source: str, **more: Any) -> Path:
    file = folder / "bridge.yml"
    settings = {"particles": 20, "noise": 0.25, "prior_mean": 40.0, "prior_var": 1.0}
    content = {
        "source": source,
        "step": "1s",
        "delay": "1s",
        "backfill": "150s",
        "stale": "10s",
        "save_every": "2s",
        "state": str(folder / "state"),
        "queries": {"temp": {"expr": "temp", "model": "br_ihmm", "settings": settings}},
    }
    file.write_text(yaml.safe_dump(content | more))
    return file


def bridge(config: Path) -> tuple[str, ...]:
    return sys.executable, "-m", "regimekit.cli", "prometheus", "--config", str(config)


def shipped_rules(folder: Path) -> Path:
    """The shipped rules with seconds in place of minutes."""
    text = (DEPLOY / "prometheus" / "regimekit.rules.yml").read_text()
    for minutes, seconds in (("[5m:1m]", "[5s:1s]"), ("for: 3m", "for: 1s"), ("10m", "10s")):
        text = text.replace(minutes, seconds)
    file = folder / "regimekit.rules.yml"
    file.write_text(text)
    return file


@pytest.mark.slow
def test_a_fault_reaches_alertmanager_and_resolves(
    tmp_path: Path, launch: Callable[..., Any], exporter: Any
) -> None:
    prometheus = needs("prometheus", "prometheus")
    promtool = needs("promtool", "prometheus")
    alertmanager = needs("prometheus-alertmanager", "prometheus-alertmanager")
    ports = {name: free_port() for name in ("prometheus", "alertmanager", "cluster", "bridge")}
    source = f"http://127.0.0.1:{ports['prometheus']}"
    alerts = f"http://127.0.0.1:{ports['alertmanager']}"
    (tmp_path / "history.txt").write_text(history(time.time()))
    create = ("tsdb", "create-blocks-from", "openmetrics", "history.txt", "data")
    subprocess.run([promtool, *create], cwd=tmp_path, check=True, capture_output=True)
    scrape = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    machine = {"targets": [f"127.0.0.1:{exporter.server_port}"], "labels": {"instance": "machine"}}
    bridge_target = {"targets": [f"127.0.0.1:{ports['bridge']}"]}
    prometheus_config = {
        "global": {"evaluation_interval": "1s"},
        "rule_files": [str(shipped_rules(tmp_path))],
        "alerting": {
            "alertmanagers": [
                {"static_configs": [{"targets": [f"127.0.0.1:{ports['alertmanager']}"]}]}
            ]
        },
        "scrape_configs": [
            {"job_name": "machine", **scrape, "static_configs": [machine]},
            {
                "job_name": "bridge",
                "honor_labels": True,
                **scrape,
                "static_configs": [bridge_target],
            },
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(prometheus_config))
    (tmp_path / "am.yml").write_text("route: {receiver: none}\nreceivers: [{name: none}]\n")
    launch(
        alertmanager,
        "--config.file=am.yml",
        "--storage.path=am",
        f"--web.listen-address=127.0.0.1:{ports['alertmanager']}",
        "--cluster.listen-address=",
    )
    launch(
        prometheus,
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=data",
        f"--web.listen-address=127.0.0.1:{ports['prometheus']}",
    )
    wait(lambda: httpx.get(f"{source}/-/ready", trust_env=False).is_success, "Prometheus")
    wait(lambda: httpx.get(f"{alerts}/-/ready", trust_env=False).is_success, "Alertmanager")
    rule = {"name": "odd values", "kind": "anomaly", "quiet": 5, "warmup": 50, "threshold": 0.999}
    config = bridge_config(
        tmp_path,
        source,
        alertmanager=alerts,
        listen=f"127.0.0.1:{ports['bridge']}",
        rules=[rule],
        threshold=0.999,
    )
    launch(*bridge(config))

    def query(expr: str) -> Any:
        answer = httpx.get(f"{source}/api/v1/query", params={"query": expr}, trust_env=False)
        return answer.json()["data"]["result"]

    def firing() -> set[str]:
        answer = httpx.get(f"{alerts}/api/v2/alerts", trust_env=False)
        return {entry["labels"]["alertname"] for entry in answer.json()}

    (found,) = wait(lambda: query('yhat{for="temp"}'), "the forecast in Prometheus")
    assert found["metric"]["sensor"] == "a" and found["metric"]["instance"] == "machine"
    assert abs(float(found["value"][1]) - 40.0) < 2.0
    assert firing() == set()
    exporter.state["level"] = 70.0
    wait(lambda: "odd values" in firing(), "the alert of the bridge")
    wait(lambda: "RegimekitAnomaly" in firing(), "the alert of the shipped rules")
    exporter.state["level"] = 40.0
    wait(lambda: not firing(), "the resolution")


@pytest.mark.slow
def test_victoria_metrics_gets_every_sample_once_across_kill(
    tmp_path: Path, launch: Callable[..., Any]
) -> None:
    victoria = needs("victoria-metrics", "victoria-metrics")
    port = free_port()
    source = f"http://127.0.0.1:{port}"
    # By default, values of the latest 30 s are hidden; the default delay of the bridge is as long.
    # Equal samples are merged only if an interval of deduplication is set.
    merge = "-dedup.minScrapeInterval=1ms"
    options = ("-storageDataPath=vm", "-search.latencyOffset=0s", merge)
    launch(victoria, f"-httpListenAddr=127.0.0.1:{port}", *options)
    wait(lambda: httpx.get(f"{source}/health", trust_env=False).is_success, "VictoriaMetrics")
    now = int(time.time())
    y = np.random.default_rng(1).normal(40.0, 0.5, 1200)

    def send(first: int, last: int) -> None:
        points = range(first, last)
        body = {
            "metric": {"__name__": "temp", "sensor": "a"},
            "values": [float(y[i]) for i in points],
            "timestamps": [1000 * (now - 300 + i) for i in points],
        }
        answer = httpx.post(f"{source}/api/v1/import", content=json.dumps(body), trust_env=False)
        assert answer.is_success, answer.text

    def exported(name: str = "yhat") -> list[int]:
        query = {"match[]": name, "end": now + 1200}  # by default it ends now
        answer = httpx.get(f"{source}/api/v1/export", params=query, trust_env=False)
        return [t for line in answer.text.splitlines() for t in json.loads(line)["timestamps"]]

    # The last 900 rows are in the future: they are read when their time comes.
    send(0, 1200)
    # VictoriaMetrics answers queries with imported rows only after a flush. A bridge that starts
    # before it would rightly take the missing rows for a stream that begins late.
    wait(lambda: len(exported("temp")) == 1200, "the imported rows")
    config = bridge_config(
        tmp_path, source, remote_write=f"{source}/api/v1/write", listen=None, backfill="250s"
    )
    for _ in range(2):
        process = launch(*bridge(config))
        before = len(exported())
        wait(lambda before=before: len(exported()) > before, "samples")
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    # As if it had been killed between a write and its record, so that it writes again.
    (tmp_path / "state" / "temp" / "written.json").unlink()
    subprocess.run([*bridge(config), "--once"], check=True, capture_output=True)
    wait(lambda: len(exported()) >= 250, "all samples")
    times = exported()
    assert len(times) == len(set(times)), "a sample was written twice"
    assert sorted(times) == list(range(min(times), max(times) + 1, 1000)), "a sample is missing"


def test_the_shipped_rules_and_the_dashboard_are_valid() -> None:
    names = {"yhat", "yhat_lower", "yhat_upper", "anomaly_score", "regime", "regime_status"}
    dashboard = json.loads((DEPLOY / "grafana" / "regimekit.json").read_text())
    used = json.dumps([panel["targets"] for panel in dashboard["panels"]])
    assert all(name + "{" in used for name in names)
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    promtool = needs("promtool", "prometheus")
    rules = DEPLOY / "prometheus" / "regimekit.rules.yml"
    subprocess.run([promtool, "check", "rules", rules], check=True, capture_output=True)
