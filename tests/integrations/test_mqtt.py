"""The MQTT bridge: payloads, and a real broker (mosquitto) with TLS, users and interruptions."""

from __future__ import annotations

import json
import math
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("paho.mqtt.client", reason="the extra `mqtt` is not installed")
import paho.mqtt.client as paho
from waiting import PATIENCE, free_port, wait

from regimekit import RegimekitError
from regimekit.alerts import Rule
from regimekit.integrations.monitor import Monitor
from regimekit.integrations.mqtt import MqttBridge, MqttConfig, parse_payload

SMALL = {"particles": 20, "noise": 0.16}


@pytest.mark.parametrize(
    ("payload", "value", "at"),
    [
        (b"1.5", 1.5, None),
        (b" -2e3 ", -2000.0, None),
        (b'{"value": 3, "time": 12.5}', 3.0, 12.5),
        (b'{"value": "3.5", "ts": 1772366400000}', 3.5, 1772366400.0),
        (b'{"value": 1, "time": "2026-03-01T12:00:00Z"}', 1.0, 1772366400.0),
        (b'{"value": null}', math.nan, None),
        (b"unavailable", math.nan, None),
        (b"1e999", math.nan, None),
    ],
)
def test_payloads(payload: bytes, value: float, at: float | None) -> None:
    found = parse_payload(payload, "value")
    assert found.value == pytest.approx(value, nan_ok=True)
    assert found.at == at


@pytest.mark.parametrize("payload", [b"on", b"{}", b'{"value": true}', b"[1]", b'{"value": {}}'])
def test_payloads_without_a_number_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):
        parse_payload(payload, "value")


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"1" + b"0" * 400, id="beyond the largest float"),
        pytest.param(b"9" * 5000, id="too many digits"),
        pytest.param(b"[" * 100_000, id="too deep"),
        pytest.param(b'{"value": 1, "time": 1' + b"0" * 400 + b"}", id="time"),
        pytest.param(b'{"value": 1, "time": NaN}', id="no time"),
        pytest.param(b'{"value": 1, "time": 1e999}', id="infinite time"),
    ],
)
def test_extreme_payloads_are_acknowledged(tmp_path: Path, payload: bytes) -> None:
    """Otherwise they would be delivered again and again to a bridge that fails on them."""
    bridge = MqttBridge(MqttConfig("mqtt://localhost", ("#",), tmp_path))
    sent = [paho.MQTTMessage(i, topic) for i, topic in enumerate((b"a", b"regimekit/label/a"))]
    for message in sent:
        message.payload = payload
        bridge._handle(message)
    assert bridge._unacknowledged == sent
    assert not bridge.monitors


def test_a_topic_without_readings_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("regimekit.integrations.mqtt.time.time", lambda: now[0])
    rules = (Rule("silent", "stale", seconds=60.0),)
    given = MqttConfig(
        "mqtt://localhost", ("#",), tmp_path, rules=rules, settings=SMALL, model="br_ihmm"
    )
    published: list[Any] = []

    def bridge() -> MqttBridge:
        made = MqttBridge(given)
        made._client.publish = lambda topic, body, **_: published.append((topic, json.loads(body)))
        return made

    def read(made: MqttBridge) -> None:
        message = paho.MQTTMessage(1, b"a")
        message.payload = b"1.5"
        made._handle(message)
        made.check_clock()

    def alerts() -> list[Any]:
        kinds = [body["kind"] for topic, body in published if topic == "regimekit/a/alert"]
        states = [body["alerts"] for topic, body in published if topic == "regimekit/a/state"]
        return [*kinds, states[-1]]

    first = bridge()
    read(first)
    now[0] = 1050.0
    first.check_clock()
    assert alerts() == [0]
    now[0] = 1061.0
    first.check_clock()
    assert alerts() == ["alert opened", 1]
    first.save()
    now[0] = 1070.0
    second = bridge()
    second.check_clock()
    assert alerts() == ["alert opened", 1]
    read(second)
    assert alerts() == ["alert opened", "alert resolved", 0]


def test_a_nested_field() -> None:
    assert parse_payload(b'{"a": {"b": 2}}', "a.b").value == 2.0


def test_invalid_settings(tmp_path: Path) -> None:
    with pytest.raises(RegimekitError, match="broker"):
        MqttConfig("localhost", ("a",), tmp_path)
    with pytest.raises(RegimekitError, match="topics"):
        MqttConfig("mqtt://localhost", (), tmp_path)


class Broker:
    """mosquitto with TLS, a user and a password."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self._certificates()
        (folder / "passwords").touch()
        subprocess.run(
            ["mosquitto_passwd", "-b", "passwords", "ops", "s3cret:/"], cwd=folder, check=True
        )
        (folder / "mosquitto.conf").write_text(
            f"listener {self.port} 127.0.0.1\nallow_anonymous false\nuser root\n"
            f"password_file {folder}/passwords\npersistence true\n"
            f"persistence_location {folder}/\n"
            f"certfile {folder}/server.crt\nkeyfile {folder}/server.key\n"
        )

    def _certificates(self) -> None:
        def openssl(*arguments: str) -> None:
            subprocess.run(
                ["openssl", *arguments], cwd=self.folder, check=True, capture_output=True
            )

        new = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2")
        name = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1")
        openssl(*new, "-keyout", "server.key", "-out", "server.crt", *name)

    def start(self) -> None:
        program = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
        self.process = subprocess.Popen(
            [program, "-c", str(self.folder / "mosquitto.conf")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        address = ("127.0.0.1", self.port)
        wait(lambda: socket.create_connection(address), "the broker", errors=OSError).close()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


class Listener:
    """Another client: sends readings and collects results."""

    def __init__(self, broker: Broker) -> None:
        self.got: list[tuple[str, Any]] = []
        self.ready = threading.Event()
        client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        client.username_pw_set("ops", "s3cret:/")
        client.tls_set(str(broker.folder / "server.crt"))
        client.on_connect = self._subscribe
        client.on_message = self._note
        client.reconnect_delay_set(1, 1)
        client.connect("localhost", broker.port)
        client.loop_start()
        self.client = client
        assert self.ready.wait(PATIENCE)

    def _subscribe(self, client: Any, *_: Any) -> None:
        client.subscribe([("regimekit/#", 1), ("homeassistant/#", 1)])
        self.ready.set()

    def _note(self, _: Any, __: Any, message: Any) -> None:
        text = message.payload.decode()
        self.got.append((message.topic, json.loads(text) if text[:1] in "{[" else text))

    def states(self) -> list[dict[str, Any]]:
        return [body for topic, body in self.got if topic == "regimekit/plant/temp/state"]

    def send(self, number: int, value: float) -> None:
        body = json.dumps({"value": value, "time": 1000 + number})
        self.client.publish("plant/temp", body, qos=1).wait_for_publish(PATIENCE)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    if not (shutil.which("mosquitto") or Path("/usr/sbin/mosquitto").exists()):
        pytest.skip("mosquitto is not installed (Debian: mosquitto)")
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    made = Broker(tmp_path)
    made.start()
    yield made
    made.stop()


@pytest.mark.slow
def test_every_reading_counts_once_across_kills_of_bridge_and_broker(
    tmp_path: Path, broker: Broker
) -> None:
    y = np.concatenate(
        [np.random.default_rng(0).normal(0, 0.4, 100), np.random.default_rng(1).normal(6, 0.4, 20)]
    )
    rule = {"name": "odd", "kind": "anomaly", "warmup": 30, "threshold": 0.999}
    (tmp_path / "rules.json").write_text(json.dumps([rule]))
    command = [sys.executable, "-m", "regimekit.cli", "mqtt", "--topics", "plant/#"]
    command += ["--broker", f"mqtts://ops:s3cret%3A%2F@localhost:{broker.port}"]
    command += ["--ca", str(tmp_path / "server.crt"), "--state", str(tmp_path / "state")]
    command += ["--rules", str(tmp_path / "rules.json")]
    command += ["--model", "br_ihmm", "--set", json.dumps(SMALL)]
    listener = Listener(broker)
    bridge = subprocess.Popen(command)
    try:
        wait(lambda: ("regimekit/status", "online") in listener.got, "the bridge")
        for i in range(40):
            listener.send(i, float(y[i]))
        wait(lambda: len(listener.states()) >= 40, "results")
        bridge.kill()
        bridge.wait()
        wait(lambda: ("regimekit/status", "offline") in listener.got, "the last will")
        # The broker keeps what arrives meanwhile.
        for i in range(40, 50):
            listener.send(i, float(y[i]))
        bridge = subprocess.Popen(command)
        wait(lambda: listener.states()[-1]["seq"] == 49, "the readings of the interruption")
        broker.stop()
        broker.start()
        wait(listener.client.is_connected, "the listener")
        for i in range(50, 120):
            listener.send(i, float(y[i]))
        last = wait(lambda: [s for s in listener.states() if s["seq"] == 119], "the last result")[0]
        monitor = Monitor("plant/temp", (), "br_ihmm", SMALL)
        outputs, _, _ = monitor.process(y.tolist(), [1000.0 + i for i in range(120)])
        for name in ("yhat", "yhat_lower", "yhat_upper", "anomaly_score", "regime"):
            assert last[name] == pytest.approx(getattr(outputs[-1], name), rel=1e-9, nan_ok=True)
        alerts = [body for topic, body in listener.got if topic.endswith("/alert")]
        assert [(a["kind"], a["rule"]) for a in alerts] == [("alert opened", "odd")]
        configs = {t: c for t, c in listener.got if t.startswith("homeassistant/sensor/")}
        names = {topic.split("/")[-2] for topic in configs}
        assert names == {"yhat", "anomaly_score", "regime", "regime_status"}
        for content in configs.values():
            assert content["state_topic"] == "regimekit/plant/temp/state"
            assert content["unique_id"] and content["device"]["identifiers"]
        bridge.terminate()
        assert bridge.wait(PATIENCE) == 0
    finally:
        if bridge.poll() is None:
            bridge.kill()
            bridge.wait()
        listener.client.loop_stop()
