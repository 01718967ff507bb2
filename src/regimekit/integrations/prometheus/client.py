"""Requests to Prometheus, VictoriaMetrics and Alertmanager."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import httpx

from regimekit.core.exceptions import RegimekitError

Labels = dict[str, str]
_MAX_LITERAL = 1 << 16  # bytes per literal of a snappy block


class Series(NamedTuple):
    """One series of a range query: labels, and pairs (time in seconds, value)."""

    labels: Labels
    points: list[tuple[float, float]]


class Written(NamedTuple):
    """One sample to write: labels including `__name__`, time in seconds, value."""

    labels: Labels
    at: float
    value: float


class SourceError(RegimekitError):
    """A request failed; it can be repeated later."""


class DuplicateError(SourceError):
    """The receiver has stored samples of these times before."""


class Client:
    """Requests with a common timeout and common headers."""

    def __init__(self, timeout: float, headers: Mapping[str, str]) -> None:
        self._http = httpx.Client(timeout=timeout, headers=dict(headers), trust_env=False)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def query_range(
        self, source: str, expr: str, start: float, end: float, step: float
    ) -> list[Series]:
        """Evaluate an expression at `start`, `start + step`, .. `end`.

        Raises:
            SourceError: if the source does not answer or rejects the query.
        """
        # nocache: VictoriaMetrics would otherwise align start and end to its cache.
        form = {"query": expr, "start": repr(start), "end": repr(end), "step": repr(step)}
        address = f"{source.rstrip('/')}/api/v1/query_range"
        answer = self._send("POST", address, data=form | {"nocache": "1"})
        try:
            content = answer.json()
            if content["status"] != "success":
                raise SourceError(f"The query {expr!r} failed: {content.get('error')}.")
            found = content["data"]["result"]
            return [
                Series(entry["metric"], [(float(t), float(v)) for t, v in entry["values"]])
                for entry in found
            ]
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(f"{address} answered with invalid content: {error!r}.") from None

    def remote_write(self, address: str, samples: Iterable[Written]) -> None:
        """Write samples by Prometheus remote write 1.0.

        Raises:
            DuplicateError: if the receiver has samples of these times or later ones.
            SourceError: if the receiver does not answer or rejects the samples.
        """
        headers = {
            "Content-Encoding": "snappy",
            "Content-Type": "application/x-protobuf",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
        }
        body = snappy_block(write_request(samples))
        self._send("POST", address, content=body, headers=headers)

    def post_alerts(self, address: str, alerts: list[dict[str, Any]]) -> None:
        """Send alerts to Alertmanager.

        Raises:
            SourceError: if Alertmanager does not answer or rejects the alerts.
        """
        headers = {"Content-Type": "application/json"}
        body = json.dumps(alerts).encode()
        self._send("POST", f"{address.rstrip('/')}/api/v2/alerts", content=body, headers=headers)

    def _send(self, method: str, address: str, **content: Any) -> httpx.Response:
        try:
            answer = self._http.request(method, address, **content)
        except httpx.HTTPError as error:
            raise SourceError(f"{address} does not answer: {error}.") from None
        if answer.is_success:
            return answer
        reason = " ".join(answer.text[:300].split())
        old = ("out of order", "duplicate sample", "too old", "out of bounds")
        kind = DuplicateError if any(words in reason for words in old) else SourceError
        raise kind(f"{address} answered with status {answer.status_code}: {reason}")


def write_request(samples: Iterable[Written]) -> bytes:
    """Encode samples as the protocol buffer `prometheus.WriteRequest`.

    Samples of the same labels form one series, in the order of time.
    """
    series: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    for sample in samples:
        labels = tuple(sorted(sample.labels.items()))
        series.setdefault(labels, []).append((sample.at, sample.value))
    content = b""
    for labels, points in series.items():
        # TimeSeries: 1 = repeated Label(1 = name, 2 = value), 2 = repeated Sample.
        entry = b"".join(
            _field(1, _field(1, name.encode()) + _field(2, value.encode()))
            for name, value in labels
        )
        for at, value in sorted(points):
            # Sample: 1 = double value, 2 = int64 timestamp in milliseconds.
            entry += _field(2, b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(_ms(at)))
        content += _field(1, entry)
    return content


def _ms(at: float) -> int:
    return round(1000 * at)


def _field(number: int, content: bytes) -> bytes:
    """Encode a length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    number &= (1 << 64) - 1  # negative numbers as two's complement
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def snappy_block(content: bytes) -> bytes:
    """Return a snappy block of literals: valid for every decoder, but not compressed."""
    parts = [_varint(len(content))]
    for start in range(0, len(content), _MAX_LITERAL):
        literal = content[start : start + _MAX_LITERAL]
        # Tag 61: the length minus 1 follows in two bytes.
        parts += [bytes([61 << 2]), struct.pack("<H", len(literal) - 1), literal]
    return b"".join(parts)


def series_key(query: str, labels: Labels) -> str:
    """Return the key of a series: the name of the query and the labels in order."""
    name = labels.get("__name__", "")
    inner = ",".join(
        f"{label}={json.dumps(value)}"
        for label, value in sorted(labels.items())
        if label != "__name__"
    )
    return f"{query}:{name}{{{inner}}}"


def grid_end(now: float, delay: float, step: float) -> float:
    """Return the latest multiple of `step` that is at least `delay` ago."""
    return math.floor((now - delay) / step) * step
