"""Monitoring: Prometheus metrics and log formats."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from regimekit.server.records import UpdateResult

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # seconds


# Metrics per stream: name, help text, field of a stream.
_PER_STREAM = (
    ("rows", "Observations of the stream.", "n_rows"),
    ("regime", "Id of the present regime; -1: none is known yet.", "regime"),
    ("regimes", "Number of regimes.", "n_regimes"),
    ("last_received_timestamp_seconds", "Arrival of the latest observation.", "last_received"),
    ("change_probability", "Probability that the regime has just changed.", "change_probability"),
)


class Metrics:
    """The metrics of one service, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"regimekit_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"regimekit_{name}", text, labels, registry=registry)

        def seconds(name: str, text: str, *labels: str) -> Histogram:
            name = f"regimekit_{name}_seconds"
            return Histogram(name, text, labels, buckets=_BUCKETS, registry=registry)

        self.rows = counter("rows", "Stored observations.")
        self.duplicates = counter("duplicates", "Observations received again.")
        self.out_of_order = counter("out_of_order_rows", "Observations whose times go back.")
        self.refused = counter("refused", "Requests rejected by a model.")
        self.outliers = counter("outliers", "Observations flagged as outliers.")
        self.events = counter("events", "Regime events.", "kind")
        self.alerts = counter("alerts", "Alerts opened.", "kind", "severity")
        self.replayed = counter("replayed_rows", "Observations replayed after loading a model.")
        self.differing = counter("replay_differences", "Replayed observations with other outputs.")
        self.webhooks = counter("webhooks", "Webhook delivery attempts.", "result")
        self.updates = seconds("learning", "Duration of a model update.")
        self.commits = seconds("commit", "Duration of a transaction.")
        self.requests = seconds("request", "Duration of a request.", "route", "method", "status")
        self.pending = gauge("pending_rows", "Observations accepted but not stored yet.")
        self.streams = gauge("streams", "Streams.")
        self.regimes = gauge("regimes", "Regimes over all streams.")
        self.open_alerts = gauge("open_alerts", "Open alerts.", "severity")
        self._open_per_stream = gauge("stream_open_alerts", "Open alerts.", "stream")
        self._per_stream = {
            field: gauge(f"stream_{name}", text, "stream") for name, text, field in _PER_STREAM
        }
        self.live = gauge("live_connections", "Open event streams.")

    def record_update(self, update: UpdateResult) -> None:
        """Count an update whose changes are stored."""
        self.updates.observe(update.seconds)
        self.replayed.inc(update.replayed)
        self.differing.inc(update.differing)
        for result in update.results:
            self.rows.inc(result.accepted)
            self.duplicates.inc(result.duplicates)
            self.out_of_order.inc(result.out_of_order)
            self.refused.inc(result.error is not None)
        if update.change is not None:
            self.outliers.inc(update.change.outliers)
            for _, _, kind, *_ in update.change.events:
                self.events.labels(kind).inc()
            for alert in update.change.alerts:
                if alert.is_open:
                    self.alerts.labels(alert.kind, alert.severity).inc()

    def exposition(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self._registry)

    def set_streams(self, found: list[tuple[Any, int]]) -> None:
        """Set the metrics per stream; streams that are not in the list disappear.

        Args:
            found: pairs of a row of the table `streams` and its number of open alerts.
        """
        for gauge in (self._open_per_stream, *self._per_stream.values()):
            gauge.clear()
        for stream, alerts in found:
            self._open_per_stream.labels(stream.key).set(alerts)
            for field, gauge in self._per_stream.items():
                if (value := getattr(stream, field)) is not None:
                    gauge.labels(stream.key).set(value)


_STANDARD_FIELDS = {
    *vars(logging.makeLogRecord({})),
    *("message", "asctime", "color_message", "taskName"),
}


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS}


class JsonFormatter(logging.Formatter):
    """Format a record as one line of JSON; fields given as `extra` are included."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra_fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """Format a record as a line of text followed by its extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(record.created))
        extra = "".join(f" {name}={value}" for name, value in _extra_fields(record).items())
        line = f"{clock} {record.levelname.lower():7} {record.getMessage()}{extra}"
        return line + ("\n" + self.formatException(record.exc_info) if record.exc_info else "")


def configure_logging(log_format: str) -> None:
    """Send the log of the service to standard error, as "json" or "text"."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    for name in ("regimekit.server", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    logging.getLogger("uvicorn.access").disabled = True
