"""A bridge from MQTT: one model per topic, results as topics, Home Assistant discovery.

Messages are acknowledged to the broker after the models that they updated are stored, and the
session of the bridge is persistent, so messages that arrive while the bridge is down are delivered
later. A message that is delivered twice is recognised by its time, if its payload has one.

Topics, for a subscribed topic T and the prefix `regimekit`:

    regimekit/T/state    JSON of the latest row, retained
    regimekit/T/alert    JSON of an alert when it is opened or resolved
    regimekit/label/T    to send: {"regime": 1, "name": "stuck", "status": "fault"}
    regimekit/status     "online" or "offline", retained
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import math
import queue
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from regimekit.integrations._common import require

require("mqtt", "paho.mqtt.client")

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from regimekit.alerts import Alert, Rule
from regimekit.alerts.messages import json_payload
from regimekit.core.exceptions import RegimekitError
from regimekit.integrations.monitor import Monitor
from regimekit.serialization.snapshot import write_file

_MISSING = {"", "nan", "null", "none", "unavailable", "unknown"}
_TIME_FIELDS = ("time", "timestamp", "ts")
_KEEPALIVE = 30  # seconds
# Brokers send only so many messages ahead of acknowledgements (mosquitto: 20).
_MAX_UNACKNOWLEDGED = 10
_MAX_TIME = 1e14  # milliseconds since 1970: about the year 5000
# A payload that raised another error would be delivered again and again.
_INVALID = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
_log = logging.getLogger("regimekit.mqtt")


@dataclass(frozen=True)
class MqttConfig:
    """Settings of the bridge.

    Attributes:
        broker: `mqtt://USER:PASSWORD@HOST:PORT`, or `mqtts://` for TLS.
        topics: topics to subscribe to; wildcards are allowed.
        state: folder of the states of the models.
        field: name of the value in JSON objects; dots separate levels.
        prefix: beginning of the topics of results.
        discovery: topic prefix of Home Assistant; None switches discovery off.
        client_id: identifies the session of the bridge at the broker.
        ca: file of the certificate authority; None for that of the system.
        certificate, private_key: files of a client certificate, or None.
        save_every: seconds between two snapshots of the models.
        rules: alert rules; the key of a stream is its topic.
        model: name of the model; None for the default.
        settings: settings of the model.
        max_topics: largest number of topics.
    """

    broker: str
    topics: tuple[str, ...]
    state: Path
    field: str = "value"
    prefix: str = "regimekit"
    discovery: str | None = "homeassistant"
    client_id: str = "regimekit"
    ca: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    save_every: float = 1.0
    rules: tuple[Rule, ...] = ()
    model: str | None = None
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    max_topics: int = 1000

    def __post_init__(self) -> None:
        if urlsplit(self.broker).scheme not in ("mqtt", "mqtts"):
            raise RegimekitError(
                f"--broker must be mqtt://HOST:PORT or mqtts://..., got {self.broker!r}."
            )
        if not self.topics:
            raise RegimekitError("--topics needs at least one topic.")


class Reading(NamedTuple):
    """A value and its time in seconds since 1970, or None if the payload has no time."""

    value: float
    at: float | None


def parse_payload(payload: bytes | bytearray, field_name: str) -> Reading:
    """Parse a number, a JSON number or a JSON object.

    Args:
        payload: the content of a message.
        field_name: name of the value in a JSON object; dots separate levels.

    Raises:
        ValueError, OverflowError, RecursionError: if the payload has no number.
    """
    text = payload.decode("utf-8", "replace").strip()
    if text.lower() in _MISSING:
        return Reading(math.nan, None)
    content = json.loads(text)
    at = None
    if isinstance(content, dict):
        given = next((content[name] for name in _TIME_FIELDS if name in content), None)
        at = _parse_time(given)
        for part in field_name.split("."):
            if not isinstance(content, dict) or part not in content:
                raise ValueError(f"the payload has no field {field_name!r}")
            content = content[part]
    if content is None or (isinstance(content, str) and content.lower() in _MISSING):
        return Reading(math.nan, at)
    if isinstance(content, bool) or not isinstance(content, (int, float, str)):
        raise ValueError(f"{field_name!r} is not a number")
    value = float(content)
    return Reading(value if math.isfinite(value) else math.nan, at)


def _parse_time(given: Any) -> float | None:
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        if not abs(given) < _MAX_TIME:
            raise ValueError("the time is not plausible")
        # Milliseconds since 1970 are larger than any plausible number of seconds.
        return float(given) / 1000 if given > 1e11 else float(given)
    if isinstance(given, str):
        moment = datetime.fromisoformat(given)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return None


class MqttBridge:
    """Subscribe, update models, publish results."""

    def __init__(self, config: MqttConfig) -> None:
        """Load the states of all topics.

        Raises:
            RegimekitError: if a TLS file cannot be read.
        """
        self.config = config
        config.state.mkdir(parents=True, exist_ok=True)
        self.monitors: dict[str, Monitor] = {}
        self._started = time.time()
        self._announced: set[str] = set()
        self._changed: set[str] = set()
        self._unacknowledged: list[paho.MQTTMessage] = []
        self._messages: queue.SimpleQueue[paho.MQTTMessage] = queue.SimpleQueue()
        self.connected = threading.Event()
        for file in sorted(config.state.glob("*.topic")):
            try:
                monitor = Monitor.from_bytes(file.read_bytes(), config.rules)
            except RegimekitError as error:
                _log.error("%s is ignored: %s", file, error)
                continue
            self.monitors[monitor.key] = monitor
        self._client = self._make_client()

    def _make_client(self) -> paho.Client:
        config = self.config
        client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=config.client_id,
            clean_session=False,
            manual_ack=True,
        )
        parts = urlsplit(config.broker)
        if parts.username:
            client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        if parts.scheme == "mqtts":
            try:
                client.tls_set(
                    config.ca,
                    config.certificate,
                    config.private_key,
                    tls_version=ssl.PROTOCOL_TLS_CLIENT,
                )
            except (OSError, ValueError) as error:
                raise RegimekitError(f"The TLS files cannot be used: {error}.") from None
        client.will_set(f"{config.prefix}/status", "offline", qos=1, retain=True)
        client.reconnect_delay_set(1, 60)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_message = lambda _client, _data, message: self._messages.put(message)
        return client

    def _on_connect(self, client: paho.Client, _: Any, __: Any, code: Any, ___: Any) -> None:
        if code.is_failure:
            _log.error("the broker refuses the connection: %s", code)
            return
        topics = [*self.config.topics, f"{self.config.prefix}/label/#"]
        client.subscribe([(topic, 1) for topic in topics])
        client.publish(f"{self.config.prefix}/status", "online", qos=1, retain=True)
        # Home Assistant may have lost its entities with the broker's retained messages.
        self._announced.clear()
        self.connected.set()
        _log.info("connected to %s", urlsplit(self.config.broker).hostname)

    def _on_disconnect(self, _: Any, __: Any, ___: Any, code: Any, ____: Any) -> None:
        self.connected.clear()
        _log.info("disconnected: %s", code)

    def run(self, stop: threading.Event) -> None:
        """Process messages until `stop` is set, then store the states."""
        parts = urlsplit(self.config.broker)
        port = parts.port or (8883 if parts.scheme == "mqtts" else 1883)
        # Connects in the background and reconnects after a failure.
        self._client.connect_async(parts.hostname or "localhost", port, _KEEPALIVE)
        self._client.loop_start()
        saved = time.monotonic()
        try:
            while not stop.is_set():
                with suppress(queue.Empty):
                    self._handle(self._messages.get(timeout=0.1))
                due = time.monotonic() - saved >= self.config.save_every
                if due or len(self._unacknowledged) >= _MAX_UNACKNOWLEDGED:
                    self.check_clock()
                    self.save()
                    saved = time.monotonic()
        finally:
            self.save()
            if self.connected.is_set():
                offline = self._client.publish(
                    f"{self.config.prefix}/status", "offline", qos=1, retain=True
                )
                offline.wait_for_publish(5)
            self._client.disconnect()
            self._client.loop_stop()

    def save(self) -> None:
        """Store the models that have changed, then acknowledge their messages."""
        for topic in sorted(self._changed):
            name = hashlib.sha256(topic.encode()).hexdigest()[:24]
            write_file(self.config.state / f"{name}.topic", self.monitors[topic].to_bytes())
        self._changed.clear()
        for message in self._unacknowledged:
            self._client.ack(message.mid, message.qos)
        self._unacknowledged.clear()

    def _handle(self, message: paho.MQTTMessage) -> None:
        self._unacknowledged.append(message)
        topic, own = message.topic, f"{self.config.prefix}/"
        if topic.startswith(f"{own}label/"):
            self._label(topic.removeprefix(f"{own}label/"), message.payload)
        # A wildcard may include the results.
        if topic.startswith((own, f"{self.config.discovery}/")):
            return
        # Retained messages are old: they were processed when they were new.
        if message.retain and topic in self.monitors:
            return
        try:
            reading = parse_payload(message.payload, self.config.field)
        except _INVALID as error:
            _log.warning("%s: %s", topic, error)
            return
        self._update(topic, reading)

    def _update(self, topic: str, reading: Reading) -> None:
        config = self.config
        if topic not in self.monitors:
            if len(self.monitors) >= config.max_topics:
                _log.error("max_topics is reached; %s is ignored", topic)
                return
            self.monitors[topic] = Monitor(topic, config.rules, config.model, config.settings)
        monitor = self.monitors[topic]
        if reading.at is not None:
            if monitor.position is not None and reading.at <= monitor.position:
                _log.info("%s: the time is not after the latest one; ignored", topic)
                return
            monitor.position = reading.at
        at = time.time() if reading.at is None else reading.at
        _, alerts, _ = monitor.process([reading.value], [at])
        monitor.arrived = time.time()
        self._changed.add(topic)
        self._publish(topic, monitor, alerts)

    def check_clock(self) -> None:
        """Open and resolve the alerts of topics without readings."""
        for topic, monitor in self.monitors.items():
            if alerts := monitor.check_clock(time.time(), self._started):
                self._changed.add(topic)
                self._publish(topic, monitor, alerts)

    def _label(self, topic: str, payload: bytes | bytearray) -> None:
        try:
            given = json.loads(payload)
            self.monitors[topic].label(
                int(given["regime"]), str(given.get("name", "")), given.get("status", "unknown")
            )
        except _INVALID as error:
            _log.warning("%s: invalid label: %r", topic, error)
            return
        self._changed.add(topic)

    def _publish(self, topic: str, monitor: Monitor, alerts: list[Alert]) -> None:
        assert monitor.latest is not None
        base = f"{self.config.prefix}/{topic}"
        if self.config.discovery is not None and topic not in self._announced:
            self._announce(topic, base)
        state = {
            name: None if isinstance(value, float) and math.isnan(value) else value
            for name, value in monitor.latest._asdict().items()
        }
        state["alerts"] = len(monitor.engine.open)
        self._client.publish(f"{base}/state", json.dumps(state), qos=1, retain=True)
        for alert in alerts:
            self._client.publish(f"{base}/alert", json.dumps(json_payload(alert)), qos=1)

    def _announce(self, topic: str, base: str) -> None:
        for config_topic, content in discovery_messages(self.config, topic, base):
            self._client.publish(config_topic, json.dumps(content), qos=1, retain=True)
        self._announced.add(topic)


_ENTITIES: tuple[tuple[str, str, str, dict[str, str]], ...] = (
    ("sensor", "yhat", "Forecast", {"state_class": "measurement"}),
    ("sensor", "anomaly_score", "Anomaly score", {"state_class": "measurement"}),
    ("sensor", "regime", "Regime", {}),
    ("sensor", "regime_status", "Regime status", {}),
    ("binary_sensor", "alerts", "Problem", {"device_class": "problem"}),
)


def discovery_messages(
    config: MqttConfig, topic: str, base: str
) -> list[tuple[str, dict[str, Any]]]:
    """Return the topics and payloads that make Home Assistant show the results of a topic."""
    node = "regimekit_" + hashlib.sha256(topic.encode()).hexdigest()[:12]
    messages = []
    for component, name, title, more in _ENTITIES:
        template = f"{{{{ value_json.{name} }}}}"
        if component == "binary_sensor":
            template = f"{{{{ 'ON' if value_json.{name} else 'OFF' }}}}"
        content = {
            "name": title,
            "unique_id": f"{node}_{name}",
            "object_id": f"{node}_{name}",
            "state_topic": f"{base}/state",
            "value_template": template,
            "availability_topic": f"{config.prefix}/status",
            "device": {
                "identifiers": [node],
                "name": f"regimekit {topic}",
                "manufacturer": "regimekit",
            },
            **more,
        }
        if name == "yhat":
            content["json_attributes_topic"] = f"{base}/state"
        messages.append((f"{config.discovery}/{component}/{node}/{name}/config", content))
    return messages
