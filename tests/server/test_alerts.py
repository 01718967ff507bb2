"""Alerts of the service: rules, messages to receivers, mute windows, acknowledgement, restarts."""

from __future__ import annotations

import itertools
import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, get_args

import numpy as np
import pytest
from waiting import wait

from regimekit.alerts import ALERT_KINDS, SEVERITIES
from regimekit.alerts.messages import FORMATS
from regimekit.server import schemas
from regimekit.server.storage.outbox import KINDS

RNG = np.random.default_rng(0)
CALM = RNG.normal(0.0, 0.4, 120)
SHIFTED = RNG.normal(2.5, 0.4, 40)
CHANGE = {"name": "change", "kind": "regime change", "dwell": 3, "warmup": 60, "quiet": 1000}


def post(server: Any, path: str, body: Any, status: int = 201) -> Any:
    answer = server.client.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.content else None


def alerts(server: Any, state: str = "all", **query: Any) -> list[dict[str, Any]]:
    answer = server.client.get("/alerts", params={"state": state} | query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["alerts"]
    return found


def send(server: Any, key: str, values: Any, first: int) -> None:
    rows = [{"id": str(first + i), "y": float(y)} for i, y in enumerate(values)]
    server.send(key, rows)


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.got.append((self.path, dict(self.headers), body))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class MailReceiver(socketserver.StreamRequestHandler):
    """The part of SMTP that a sender without authentication needs."""

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        while line := self.rfile.readline():
            word = line[:4].upper().strip()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                content = b""
                while (part := self.rfile.readline()) != b".\r\n":
                    content += part
                self.server.got.append(content.decode())
            if word == b"QUIT":
                self.wfile.write(b"221 bye\r\n")
                return
            self.wfile.write(b"250 ok\r\n")


def _serve(kind: Any, handler: Any) -> Iterator[Any]:
    server = kind(("127.0.0.1", 0), handler)
    server.got = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Any]:
    yield from _serve(ThreadingHTTPServer, Receiver)


@pytest.fixture(scope="module")
def mailbox() -> Iterator[Any]:
    yield from _serve(socketserver.ThreadingTCPServer, MailReceiver)


@pytest.fixture(scope="module")
def notifying(
    service: Any, tmp_path_factory: pytest.TempPathFactory, receiver: Any, mailbox: Any
) -> Iterator[Any]:
    """A service that may send messages to this machine."""
    folder = tmp_path_factory.mktemp("alerts")
    smtp = f"smtp://127.0.0.1:{mailbox.server_address[1]}"
    options = ("--smtp", smtp, "--public-url", "https://monitor.example.org")
    server = service(
        f"sqlite:///{folder}/alerts.db",
        "--allow-private-webhooks",
        *options,
        log=folder / "serve.log",
    ).start()
    yield server
    server.client.close()
    assert server.stop() == 0


def test_the_names_in_the_api_are_those_of_the_engine() -> None:
    assert get_args(schemas.RuleKind) == ALERT_KINDS
    assert get_args(schemas.Severity) == SEVERITIES
    assert get_args(schemas.MessageFormat) == FORMATS
    assert get_args(schemas.MessageKind) == KINDS


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/rules", {"name": "a", "kind": "surprise"}),
        ("/rules", {"name": "a", "kind": "fault", "threshold": 0.9}),
        ("/rules", {"name": "a", "kind": "forecast limit"}),
        ("/rules", {"name": "a", "kind": "anomaly", "count": 9, "window": 3}),
        ("/webhooks", {"url": "https://example.org/", "kinds": ["regime openend"]}),
        ("/webhooks", {"url": "https://example.org/", "format": "pager"}),
        ("/webhooks", {"url": "https://example.org/", "format": "slack", "kinds": ["outlier"]}),
        ("/webhooks", {"url": "https://example.org/", "format": "email"}),
        ("/webhooks", {"url": "mailto:a@example.org", "format": "email"}),  # without --smtp
        ("/mutes", {"start": 2.0, "end": 1.0}),
        ("/mutes", {"daily": "8-9"}),
    ],
)
def test_invalid_bodies_are_refused(server: Any, path: str, body: dict[str, Any]) -> None:
    answer = server.client.post(path, json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"]


def test_a_rule_can_be_read_replaced_and_deleted(server: Any) -> None:
    body = {"name": "r1", "kind": "anomaly", "prefix": "r1."}
    number = post(server, "/rules", body)["id"]
    answer = server.client.post("/rules", json=body)
    assert answer.status_code == 409
    assert server.client.put(f"/rules/{number}", json=body | {"count": 3}).status_code == 204
    shown = {r["id"]: r["rule"] for r in server.client.get("/rules").json()["rules"]}
    assert (shown[number]["count"], shown[number]["window"]) == (3, 10)
    assert server.client.delete(f"/rules/{number}").status_code == 204
    assert server.client.delete(f"/rules/{number}").status_code == 404


def test_one_alert_per_change_exactly_once_across_kill(start: Callable[..., Any]) -> None:
    server = start()
    post(server, "/rules", CHANGE)
    key = "plant.a"
    server.make(key)
    send(server, key, CALM, 0)
    assert alerts(server) == [], "the first regime is not an alert"
    info = server.client.get(f"/streams/{key}").json()
    assert (info["warmup"], info["rows"], info["open_alerts"]) == (60, 120, 0)
    send(server, key, SHIFTED[:20], 120)
    (opened,) = alerts(server, "open")
    assert opened["resolved"] is None and opened["severity"] == "warning"
    assert opened["summary"].startswith("The regime changed from 0 to 1 at row 120;")
    server.kill()
    server.start()
    # The client sends again what may not have been stored, and goes on.
    send(server, key, SHIFTED[:20], 120)
    send(server, key, SHIFTED[20:], 140)
    (again,) = alerts(server)
    assert again == opened
    send(server, key, CALM, 160)
    (resolved,) = alerts(server)
    assert resolved["id"] == opened["id"]
    assert resolved["resolved"] is not None and "returned" in resolved["resolution"]
    assert server.client.get(f"/alerts/{opened['id']}").json() == resolved


def test_a_fault_regime_alarms_until_it_is_left(server: Any) -> None:
    post(server, "/rules", {"name": "f", "kind": "fault", "stream": "f.a", "severity": "critical"})
    server.make("f.a")
    send(server, "f.a", CALM, 0)
    send(server, "f.a", SHIFTED, 200)
    regime = server.client.get("/streams/f.a").json()["regime"]
    label = {"name": "overheated", "status": "fault"}
    assert server.client.put(f"/streams/f.a/regimes/{regime}", json=label).status_code == 204
    shown = {r["id"]: r for r in server.client.get("/streams/f.a/regimes").json()["regimes"]}
    assert shown[regime]["status"] == "fault"
    send(server, "f.a", SHIFTED, 300)
    send(server, "f.a", SHIFTED, 400)
    (opened,) = alerts(server, stream="f.a")
    assert (opened["severity"], opened["regime"]) == ("critical", regime)
    info = server.client.get("/streams/f.a").json()
    assert (info["open_alerts"], info["severity"]) == (1, "critical")
    post(server, f"/alerts/{opened['id']}/acknowledge", {"note": "on it"}, 204)
    send(server, "f.a", CALM, 500)
    (resolved,) = alerts(server, stream="f.a")
    assert resolved["resolved"] is not None
    assert (resolved["acknowledged_by"], resolved["note"]) == ("local", "on it")


def test_the_forecast_crosses_a_limit(server: Any) -> None:
    rule = {"name": "limit", "kind": "forecast limit", "stream": "l.a", "above": 1.5, "quiet": 5}
    post(server, "/rules", rule | {"horizon": 3})
    server.make("l.a")
    send(server, "l.a", CALM, 0)
    assert alerts(server, stream="l.a") == []
    send(server, "l.a", SHIFTED, 200)
    (opened,) = alerts(server, stream="l.a")
    assert "above 1.5" in opened["summary"]


def test_deleting_a_rule_resolves_its_alerts(server: Any) -> None:
    number = post(server, "/rules", CHANGE | {"name": "gone", "prefix": "d."})["id"]
    server.make("d.a")
    send(server, "d.a", [*CALM, *SHIFTED], 0)
    assert len(alerts(server, "open", stream="d.a")) == 1
    assert server.client.delete(f"/rules/{number}").status_code == 204
    (resolved,) = alerts(server, stream="d.a")
    assert resolved["resolution"] == "the rule was deleted"
    # A rule of the same name starts afresh: the change happened before it existed.
    number = post(server, "/rules", CHANGE | {"name": "gone", "prefix": "d."})["id"]
    send(server, "d.a", SHIFTED, 1000)
    assert alerts(server, "open", stream="d.a") == []
    assert server.client.delete(f"/rules/{number}").status_code == 204


def test_receivers_of_all_formats(notifying: Any, receiver: Any, mailbox: Any) -> None:
    server = notifying
    base = f"http://127.0.0.1:{receiver.server_port}"
    post(server, "/rules", CHANGE | {"prefix": "r."})
    for body in (
        {"url": f"{base}/hook", "kinds": ["alert opened", "alert resolved"]},
        {"url": f"{base}/slack", "format": "slack"},
        {"url": base, "format": "alertmanager"},
        {"url": "mailto:ops@example.org", "format": "email"},
        {"url": f"{base}/severe", "kinds": ["alert opened"], "severity": "critical"},
    ):
        post(server, "/webhooks", body | {"prefix": "r."})
    server.make("r.a")
    send(server, "r.a", [*CALM, *SHIFTED, *CALM], 0)
    wait(lambda: len(receiver.got) >= 6 and len(mailbox.got) >= 2)
    got: dict[str, list[Any]] = {}
    for path, headers, body in receiver.got:
        got.setdefault(path, []).append((headers, body))
    assert set(got) == {"/hook", "/slack", "/api/v2/alerts"}
    (headers, opened), (_, resolved) = got["/hook"]
    assert "Regimekit-Signature" in headers
    assert (opened["kind"], resolved["kind"]) == ("alert opened", "alert resolved")
    assert opened["id"] == resolved["id"] == alerts(server, stream="r.a")[0]["id"]
    slack = [body["text"] for _, body in got["/slack"]]
    assert slack == ["Warning: change on r.a", "Resolved: change on r.a"]
    assert "https://monitor.example.org/#/s/r.a" in json.dumps(got["/slack"][0][1])
    (first, second) = (body[0] for _, body in got["/api/v2/alerts"][:2])
    assert first["labels"] == second["labels"]
    assert first["endsAt"] > second["endsAt"]
    assert "Subject: Warning: change on r.a" in mailbox.got[0]
    assert "Subject: Resolved: change on r.a" in mailbox.got[1]


def test_mute_windows_delay_messages_and_drop_what_has_resolved(
    notifying: Any, receiver: Any
) -> None:
    server = notifying
    url = f"http://127.0.0.1:{receiver.server_port}/muted"
    kinds = ["alert opened", "alert resolved"]
    post(server, "/rules", CHANGE | {"name": "muted", "prefix": "m."})
    post(server, "/webhooks", {"url": url, "kinds": kinds, "prefix": "m."})
    keys = ("m.long.a", "m.short.a", "m.short.b", "m.free.a")
    for key in keys:
        server.make(key)
        send(server, key, CALM, 0)
    started = time.time()
    server.make("m.other")
    send(server, "m.other", CALM, 0)
    # Long enough for the requests that follow, also on a busy machine.
    end = time.time() + 6 + 10 * (time.time() - started)
    post(server, "/mutes", {"prefix": "m.long.", "start": started, "end": started + 36_000})
    post(server, "/mutes", {"prefix": "m.short.", "start": started, "end": end})
    for key in keys:
        send(server, key, SHIFTED, 120)
    send(server, "m.short.b", CALM, 500)
    assert time.time() < end, "the requests took longer than the mute window"

    def told() -> list[str]:
        return [body["stream"] for path, _, body in receiver.got if path == "/muted"]

    wait(told)
    assert told()[0] == "m.free.a"
    muted = {a["stream"]: a["muted_until"] is None for a in alerts(server) if "m." in a["stream"]}
    assert muted == {"m.long.a": False, "m.short.a": False, "m.short.b": False, "m.free.a": True}
    wait(lambda: len(told()) == 2)
    assert time.time() >= end
    time.sleep(1.5)
    # short.b opened and resolved within its window.
    assert told() == ["m.free.a", "m.short.a"]


def test_a_stale_stream(notifying: Any) -> None:
    server = notifying
    post(server, "/rules", {"name": "silent", "kind": "stale", "seconds": 4.0, "prefix": "s."})
    server.make("s.a")
    send(server, "s.a", CALM[:10], 0)
    (opened,) = wait(lambda: alerts(server, "open", stream="s.a"))
    assert opened["kind"] == "stale"
    # Rows arrive faster than the rule's limit until the next check.
    count = itertools.count(100)

    def resolved_by_a_row() -> list[Any]:
        send(server, "s.a", [0.0], next(count))
        return alerts(server, "resolved", stream="s.a")

    (resolved,) = wait(resolved_by_a_row, "the resolution")
    assert resolved["id"] == opened["id"]


def test_metrics_per_stream_are_bounded_and_late_times_are_counted(
    service: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("metrics")
    options = ("--stream-metrics", "2")
    server = service(f"sqlite:///{folder}/m.db", *options, log=folder / "serve.log").start()
    try:
        for key in ("m.a", "m.b", "m.c"):
            server.make(key)
        times = [10.0, 12.0, 11.0, 13.0, 9.0]
        receipt = server.send("m.a", [{"y": 0.0, "time": t + 1e9} for t in times])
        assert receipt["out_of_order"] == 2
        assert server.send("m.a", [{"y": 0.0, "time": 1e9}])["out_of_order"] == 1
        assert server.send("m.b", [{"y": 0.0}] * 3)["out_of_order"] == 0
        text = server.client.get("/metrics").text
        assert 'regimekit_stream_rows{stream="m.a"} 6.0' in text
        assert 'regimekit_stream_rows{stream="m.b"} 3.0' in text
        assert "m.c" not in text
        assert server.metric("regimekit_out_of_order_rows_total") == 3
        assert 'regimekit_open_alerts{severity="critical"} 0.0' in text
    finally:
        server.client.close()
        server.kill()
