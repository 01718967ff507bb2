"""HTTP connections with limits that apply before a request is authenticated.

uvicorn limits neither the number of connections nor the size of headers, and waits without end for
headers and for clients that do not read an answer. Bodies are limited by `RequestMiddleware`.
"""

from __future__ import annotations

import asyncio
import resource
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from regimekit.server.config import Limits

_FILES_BESIDE_CONNECTIONS = 200  # database, workers, webhooks


class _RefusedError(Exception):
    """The request is not parsed any further."""


class LimitedProtocol(HttpToolsProtocol):
    """A connection with limits of header size and time; use `limited_protocol`."""

    limits: Limits

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        # `pause_writing` is called as soon as the client does not receive what is sent.
        transport.set_write_buffer_limits(high=1, low=0)
        self._stalled: asyncio.TimerHandle | None = None
        self._unparsed = 0  # bytes received since the parser reported something
        self._header_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._refusal: tuple[int, str] | None = None
        if len(self.connections) > self.limits.connections:
            self._refuse(503, "Too many connections.")
            return
        self._wait_for_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._headers_arrived()
        self._received()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(self.limits.send_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        self._received()
        super().resume_writing()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._unparsed += len(data)
        super().data_received(data)
        # Neither headers, trailers nor the extensions of a chunk may be endless.
        if self._unparsed > self.limits.header_bytes:
            self._refuse(431, f"Headers must have at most {self.limits.header_bytes} bytes.")

    def on_message_begin(self) -> None:
        self._header_bytes = 0
        if self._timer is None:
            self._wait_for_headers()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unparsed = 0
        self._headers_arrived()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        status, text = self._refusal or (400, msg)
        self._refuse(status, text)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > self.limits.header_bytes:
            text = f"Headers must have at most {self.limits.header_bytes} bytes."
            self._refusal = (431, text)
            # The parser stops, and uvicorn calls `send_400_response`.
            raise _RefusedError

    def _wait_for_headers(self) -> None:
        self._timer = self.loop.call_later(self.limits.header_seconds, self._time_out)

    def _headers_arrived(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        self._refuse(408, f"Headers must arrive within {self.limits.header_seconds:g} s.")

    def _received(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _refuse(self, status: int, text: str) -> None:
        """Answer without the application, and close the connection."""
        if self.transport.is_closing():
            return
        self._headers_arrived()
        body = text.encode()
        head = (
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
            "content-type: text/plain; charset=utf-8\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()


def limited_protocol(limits: Limits) -> type[LimitedProtocol]:
    """Return the protocol class with these limits, and allow as many open files as it needs."""
    needed = limits.connections + _FILES_BESIDE_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < needed:
        highest = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
    return type("LimitedProtocol", (LimitedProtocol,), {"limits": limits})
