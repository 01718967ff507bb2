"""The bridge: query, update the models, publish the results, store the states.

Rows lie on a grid of multiples of `step`. The state of a series has the time of its latest row; the
file `cursor.json` of a query has the time up to which all series are stored and is written last.
Every query reads a little more than what is new, so that late values are not lost, and rows that a
series has seen are skipped; after a restart, this makes up for what was not stored.
Models are deterministic, so the results are those of an uninterrupted bridge.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer, make_wsgi_app

from regimekit.alerts import Alert
from regimekit.alerts.messages import ALERT_LIFETIME, alertmanager_payload
from regimekit.core.exceptions import RegimekitError
from regimekit.integrations.monitor import STATUS_CODES, Monitor, Output, scaled_score
from regimekit.integrations.prometheus.client import (
    Client,
    DuplicateError,
    Series,
    SourceError,
    Written,
    grid_end,
    series_key,
)
from regimekit.integrations.prometheus.config import BridgeConfig, Query
from regimekit.serialization.snapshot import write_file

_MAX_POINTS = 5000  # per series and request; Prometheus allows 11 000
_WRITE_SAMPLES = 5000  # per request
_NO_OUTPUT = {"__name__"}
_HELP = {
    "yhat": "Median of the forecast of the latest row.",
    "yhat_lower": "Lower end of the 90 % forecast interval.",
    "yhat_upper": "Upper end of the 90 % forecast interval.",
    "anomaly_score": "log(tail probability) / log(tail probability of the threshold); above 1: "
    "anomalous.",
    "regime": "Id of the regime; -1: none is known yet.",
    "regime_status": "0 unknown, 1 normal, 2 fault.",
}
_log = logging.getLogger("regimekit.prometheus")
Labelled = tuple[Alert, dict[str, str]]  # an alert and the labels of its series


class QueryState:
    """The monitors of the series of one query.

    Attributes:
        cursor: time of the latest row read, or None before the first.
        monitors: by key of the series.
        unwritten: samples that the receiver of remote write has not accepted yet.
        written: time of the latest sample that it has accepted, per exported series.
    """

    def __init__(self, query: Query, config: BridgeConfig) -> None:
        self.query, self._config = query, config
        self._folder = config.state / query.name
        self._folder.mkdir(parents=True, exist_ok=True)
        self.cursor: float | None = None
        self.monitors: dict[str, Monitor] = {}
        self.unwritten: list[Written] = []
        self._marker = self._folder / "written.json"
        self.written: dict[str, float] = {}
        if self._marker.exists():
            self.written = json.loads(self._marker.read_text())
        self._changed: set[str] = set()
        self._load()

    def _load(self) -> None:
        for file in sorted(self._folder.glob("*.series")):
            try:
                monitor = Monitor.from_bytes(file.read_bytes(), self._config.rules)
            except RegimekitError as error:
                _log.error("%s is ignored: %s", file, error)
                continue
            self._label(monitor)
            self.monitors[monitor.key] = monitor
        cursor = self._folder / "cursor.json"
        if cursor.exists():
            content = json.loads(cursor.read_text())
            # Rows of another step are another stream.
            if content["step"] == self._config.step:
                self.cursor = content["cursor"]
            else:
                self.monitors = {}

    def save(self) -> None:
        """Store the series that have changed, then the cursor.

        While samples are not written, nothing is stored: a restart computes them again.
        """
        if self.unwritten:
            return
        for key in sorted(self._changed):
            write_file(self._file(key), self.monitors[key].to_bytes())
        self._changed.clear()
        content = {"cursor": self.cursor, "step": self._config.step}
        write_file(self._folder / "cursor.json", json.dumps(content).encode())

    def note_written(self) -> None:
        """Store which samples are written."""
        write_file(self._marker, json.dumps(self.written).encode())

    def _file(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.series"

    def _label(self, monitor: Monitor) -> None:
        own = monitor.extra["labels"].items()
        for entry in self._config.regimes:
            if entry.query == self.query.name and entry.labels.items() <= own:
                monitor.label(entry.regime, entry.name, entry.status)

    def update(self, found: list[Series], end: float) -> tuple[list[Written], list[Labelled], int]:
        """Process the series of a range query that ends at `end`.

        Returns:
            The samples to write, the alerts opened or resolved, and the number of rows.
        """
        samples: list[Written] = []
        alerts: list[Labelled] = []
        rows = 0
        for series in found:
            monitor = self._monitor(series)
            if monitor is None:
                continue
            values, times = self._rows(monitor, series)
            outputs, changed, _ = monitor.process(values, times)
            alerts += self._labelled(monitor, changed)
            rows += len(outputs)
            for output in outputs:
                samples += self.samples(monitor, output)
            if outputs:
                self._changed.add(monitor.key)
        self._forget(end)
        self.cursor = end
        return samples, alerts, rows

    def check_clock(self, now: float) -> list[Labelled]:
        """Return the alerts of stale series that open or resolve at time `now`."""
        found: list[Labelled] = []
        for monitor in self.monitors.values():
            # Rows are read in bulk: they have arrived at their times.
            monitor.arrived = monitor.position
            found += self._labelled(monitor, monitor.check_clock(now))
        self._changed |= {alert.stream for alert, _ in found}
        return found

    def open_alerts(self) -> list[Labelled]:
        """Return the open alerts."""
        monitors = self.monitors.values()
        return [pair for m in monitors for pair in self._labelled(m, m.engine.open)]

    def _labelled(self, monitor: Monitor, alerts: list[Alert]) -> list[Labelled]:
        labels = exported_labels(self.query.name, monitor)
        return [(alert, labels) for alert in alerts]

    def _monitor(self, series: Series) -> Monitor | None:
        key = series_key(self.query.name, series.labels)
        if key not in self.monitors:
            if len(self.monitors) >= self._config.max_series:
                _log.error("max_series is reached; the series %s is ignored", key)
                return None
            query = self.query
            monitor = Monitor(key, self._config.rules, query.model, query.settings)
            monitor.extra["labels"] = series.labels
            self._label(monitor)
            self.monitors[key] = monitor
        return self.monitors[key]

    def _rows(self, monitor: Monitor, series: Series) -> tuple[list[float], list[float]]:
        """Return the new rows of a series, with NaN in gaps."""
        values: list[float] = []
        times: list[float] = []
        step = self._config.step
        for at, value in series.points:
            last = monitor.position
            if (last is not None and at <= last) or not math.isfinite(value):
                continue
            gap = 0 if last is None else round((at - last) / step) - 1
            missing = min(gap, self._config.max_gap)
            times += [at - (missing - i) * step for i in range(missing)]
            values += [math.nan] * missing
            if self.query.counter:
                value = _increase(monitor, value) / ((gap + 1) * step)
            monitor.position = at
            # The first value of a counter has no increase.
            if not (self.query.counter and last is None):
                values.append(value)
                times.append(at)
        return values, times

    def _forget(self, end: float) -> None:
        for key, monitor in list(self.monitors.items()):
            if monitor.position is not None and end - monitor.position > self._config.forget:
                del self.monitors[key]
                self._changed.discard(key)
                self._file(key).unlink(missing_ok=True)

    def active(self, now: float) -> Iterator[Monitor]:
        """Yield the monitors whose series are not stale."""
        for monitor in list(self.monitors.values()):
            if monitor.latest is not None and monitor.latest.at is not None:
                if now - monitor.latest.at <= self._config.stale + self._config.delay:
                    yield monitor

    def samples(self, monitor: Monitor, output: Output) -> list[Written]:
        """Return the metrics of one row."""
        labels = exported_labels(self.query.name, monitor)
        prefix = self._config.metric_prefix
        values = metric_values(output, self._config.threshold)
        return [
            Written(labels | {"__name__": prefix + name}, output.at or 0.0, value)
            for name, value in values.items()
            if not math.isnan(value)
        ]


def _series_hash(sample: Written) -> str:
    """Return a short name of the series of a sample, without the name of the metric."""
    labels = {name: value for name, value in sample.labels.items() if name != "__name__"}
    return hashlib.sha256(json.dumps(labels, sort_keys=True).encode()).hexdigest()[:16]


def _increase(monitor: Monitor, value: float) -> float:
    """Return the increase of a counter; a value below the last one follows a restart from 0."""
    last = monitor.extra.get("counter", value)
    monitor.extra["counter"] = value
    return value if value < last else value - last


def exported_labels(query: str, monitor: Monitor) -> dict[str, str]:
    """Return the labels of the results: those of the series, and the query's name as `for`."""
    labels = monitor.extra["labels"]
    return {name: v for name, v in labels.items() if name not in _NO_OUTPUT} | {"for": query}


def metric_values(output: Output, threshold: float) -> dict[str, float]:
    """Return the exported metrics of a row."""
    return {
        "yhat": output.yhat,
        "yhat_lower": output.yhat_lower,
        "yhat_upper": output.yhat_upper,
        "anomaly_score": scaled_score(output.anomaly_score, threshold),
        "regime": float(output.regime),
        "regime_status": float(STATUS_CODES[output.regime_status]),
    }


class Bridge:
    """Run the queries of a configuration on a schedule."""

    def __init__(self, config: BridgeConfig, clock: Callable[[], float] = time.time) -> None:
        """Load the states of all series.

        Args:
            config: the configuration.
            clock: returns the present time in seconds since 1970.
        """
        self.config, self._clock = config, clock
        self.queries = [QueryState(query, config) for query in config.queries]
        self._client = Client(config.timeout, config.headers)
        self._lock = threading.Lock()
        self._resolved: list[Labelled] = []
        self._alerts_sent = -math.inf
        self._saved = clock()
        self.registry = CollectorRegistry()
        self.registry.register(self)

        def metric(kind: Any, name: str, text: str) -> Any:
            return kind(f"regimekit_bridge_{name}", text, ("for",), registry=self.registry)

        self._rows = metric(Counter, "rows", "Rows processed.")
        self._errors = metric(Counter, "errors", "Polls that failed.")
        self._polled = metric(
            Gauge, "last_poll_timestamp_seconds", "Time of the last successful poll."
        )
        self._series = metric(Gauge, "series", "Series that are not stale.")

    def describe(self) -> list[Metric]:
        """Return no metrics: the names are known only when they are collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the latest row of each series that is not stale."""
        now = self._clock()
        with self._lock:
            found = [
                (exported_labels(state.query.name, monitor), monitor.latest)
                for state in self.queries
                for monitor in state.active(now)
            ]
        for name, text in _HELP.items():
            names = sorted({label for labels, _ in found for label in labels})
            family = GaugeMetricFamily(self.config.metric_prefix + name, text, labels=names)
            for labels, output in found:
                assert output is not None
                value = metric_values(output, self.config.threshold)[name]
                # A label without a value is the same as no label.
                family.add_metric([labels.get(label, "") for label in names], value)
            yield family

    def poll(self) -> None:
        """Run every query up to the present, publish the results and store the states if due."""
        for state in self.queries:
            name = state.query.name
            try:
                rows = self._poll(state)
            except SourceError as error:
                self._errors.labels(name).inc()
                _log.error("query %s: %s", name, error)
                continue
            self._rows.labels(name).inc(rows)
            self._polled.labels(name).set(self._clock())
            self._series.labels(name).set(sum(1 for _ in state.active(self._clock())))
        self._send_alerts()
        if self._clock() - self._saved >= self.config.save_every:
            self.save()

    def _poll(self, state: QueryState) -> int:
        config, rows = self.config, 0
        self._write(state)
        end = grid_end(self._clock(), config.delay, config.step)
        first = end - math.floor(config.backfill / config.step) * config.step
        if state.cursor is not None:
            if state.cursor >= end:
                return 0
            # Read again what may have arrived late; rows that a series has seen are skipped.
            overlap = math.ceil(config.stale / config.step) * config.step
            first = max(first, state.cursor + config.step - overlap)
        while first <= end:
            last = min(end, first + (_MAX_POINTS - 1) * config.step)
            query = state.query.expr
            found = self._client.query_range(config.source, query, first, last, config.step)
            with self._lock:
                samples, alerts, count = state.update(found, last)
            rows += count
            self._note_alerts(alerts)
            state.unwritten += samples if config.remote_write is not None else []
            self._write(state)
            first = last + config.step
        with self._lock:
            alerts = state.check_clock(self._clock())
        self._note_alerts(alerts)
        return rows

    def _write(self, state: QueryState) -> None:
        """Write samples that were not written before a restart, and note that they are written."""
        address = self.config.remote_write
        if address is None or not state.unwritten:
            return
        new = [s for s in state.unwritten if s.at > state.written.get(_series_hash(s), -math.inf)]
        for start in range(0, len(new), _WRITE_SAMPLES):
            self._write_chunk(address, new[start : start + _WRITE_SAMPLES])
        state.unwritten = []
        for sample in new:
            state.written[_series_hash(sample)] = sample.at
        state.note_written()

    def _write_chunk(self, address: str, samples: list[Written]) -> None:
        try:
            self._client.remote_write(address, samples)
        except DuplicateError:
            # The bridge was killed between writing and noting it: write time by time, and skip
            # the times that the receiver has.
            for at in sorted({sample.at for sample in samples}):
                try:
                    own = [sample for sample in samples if sample.at == at]
                    self._client.remote_write(address, own)
                except DuplicateError:
                    continue

    def _note_alerts(self, alerts: list[Labelled]) -> None:
        for alert, labels in alerts:
            _log.warning("%s: %s", "opened" if alert.is_open else "resolved", alert.summary)
            if not alert.is_open:
                self._resolved.append((alert, labels))
            self._alerts_sent = -math.inf

    def _send_alerts(self) -> None:
        """Send open alerts at intervals, and resolved ones until Alertmanager has them."""
        address, now = self.config.alertmanager, self._clock()
        if address is None or now - self._alerts_sent < ALERT_LIFETIME / 5:
            return
        active = [pair for state in self.queries for pair in state.open_alerts()]
        resolved = self._resolved
        entries = [
            alertmanager_payload(alert, labels, now) for alert, labels in [*active, *resolved]
        ]
        try:
            if entries:
                self._client.post_alerts(address, entries)
        except SourceError as error:
            _log.error("%s", error)
            return
        self._resolved = self._resolved[len(resolved) :]
        self._alerts_sent = now

    def save(self) -> None:
        """Store the states of all series that have changed."""
        for state in self.queries:
            state.save()
        self._saved = self._clock()

    def run(self, stop: threading.Event) -> None:
        """Poll at every step until `stop` is set, then store the states."""
        server = None if self.config.listen is None else serve(self.config.listen, self.registry)
        try:
            while not stop.is_set():
                self.poll()
                config, now = self.config, self._clock()
                following = grid_end(now, config.delay, config.step) + config.step + config.delay
                stop.wait(max(0.05, following - now))
        finally:
            self.save()
            self._client.close()
            if server is not None:
                server.shutdown()
                server.server_close()


class _QuietHandler(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        """Write nothing: the endpoint is read every few seconds."""


def serve(listen: str, registry: CollectorRegistry) -> ThreadingWSGIServer:
    """Serve /metrics in a thread; return the server.

    Raises:
        RegimekitError: if the address cannot be listened on.
    """
    host, _, port = listen.rpartition(":")
    try:
        server = make_server(
            host.strip("[]"), int(port), make_wsgi_app(registry), ThreadingWSGIServer, _QuietHandler
        )
    except (OSError, ValueError, OverflowError) as error:
        raise RegimekitError(f"listen must be HOST:PORT, got {listen!r}: {error}.") from None
    threading.Thread(target=server.serve_forever, daemon=True).start()
    assert isinstance(server, ThreadingWSGIServer)
    return server
