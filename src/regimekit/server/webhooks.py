"""Events sent to where people asked: signed, retried, and never into private networks.

The host is resolved here, every address it has is checked, and the request goes to the address
that was checked; a name that changes its mind in between gains nothing. Redirects are not
followed. A message is signed with HMAC-SHA256 over "TIME.BODY".
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import random
import socket
import time
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx
from sqlalchemy import Engine

from regimekit.server.metrics import Metrics
from regimekit.server.storage import outbox
from regimekit.server.storage.database import writing

ATTEMPTS = 12  # over about a day and a half
_FIRST_WAIT = 2.0
_LONGEST_WAIT = 6 * 3600.0
_TIMEOUT = 10.0
_IDLE = 1.0
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_log = logging.getLogger("regimekit.server.webhooks")


class Forbidden(ValueError):
    """An address that webhooks may not reach."""


def is_public(address: str) -> bool:
    """Whether an address belongs to the public internet, also behind its IPv6 disguises."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


async def resolve(host: str, port: int, allow_private: bool) -> str:
    """An address of the host; Forbidden when any of its addresses is private."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(info[4][0]) for info in found]
    if not allow_private:
        for address in addresses:
            if not is_public(address):
                raise Forbidden(f"{host} is {address}, which is not a public address.")
    return addresses[0]


def signature(secret: str, moment: int, body: bytes) -> str:
    """The value of the Regimekit-Signature header."""
    content = f"{moment}.".encode() + body
    digest = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


class Dispatcher:
    """Sends what lies in the outbox."""

    def __init__(self, engine: Engine, metrics: Metrics, allow_private: bool) -> None:
        self._engine, self._metrics, self._allow_private = engine, metrics, allow_private
        self._client = httpx.AsyncClient(
            timeout=_TIMEOUT, follow_redirects=False, trust_env=False, http2=False
        )

    async def work(self) -> None:
        """Until cancelled."""
        try:
            while True:
                try:
                    sent = await self._round()
                except Exception:
                    _log.exception("webhooks")
                    sent = 0
                if not sent:
                    await asyncio.sleep(_IDLE)
        finally:
            await self._client.aclose()

    async def _round(self) -> int:
        messages = await asyncio.to_thread(self._due)
        await asyncio.gather(*(self._deliver(message) for message in messages))
        return len(messages)

    def _due(self) -> list[Any]:
        with self._engine.connect() as connection:
            return outbox.due(connection, time.time())

    async def _deliver(self, message: Any) -> None:
        error: str | None = None
        try:
            await asyncio.wait_for(self._send(message), 2 * _TIMEOUT)
        except Exception as problem:
            error = f"{type(problem).__name__}: {problem}"[:500]
        attempts = message.attempts + 1
        again = None if error is None or attempts >= ATTEMPTS else time.time() + _wait(attempts)
        self._metrics.webhooks.labels("failed" if error else "delivered").inc()
        await asyncio.to_thread(self._note, message.id, attempts, again, error)

    def _note(self, number: int, attempts: int, again: float | None, error: str | None) -> None:
        with writing(self._engine) as connection:
            outbox.note(connection, number, attempts, again, error)

    async def _send(self, message: Any) -> None:
        parts = urlsplit(message.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname or ""
        address = await resolve(host, port, self._allow_private)
        body = message.body.encode()
        request = self._client.build_request(
            "POST",
            _pinned(parts, address, port),
            content=body,
            headers={
                "Host": host if parts.port is None else f"{host}:{parts.port}",
                "Content-Type": "application/json",
                "User-Agent": "regimekit",
                "Regimekit-Delivery": str(message.id),
                "Regimekit-Signature": signature(message.secret, int(time.time()), body),
            },
            extensions={"sni_hostname": host},
        )
        response = await self._client.send(request, stream=True)
        await response.aclose()
        if not response.is_success:
            raise RuntimeError(f"the receiver answered {response.status_code}")


def _pinned(parts: SplitResult, address: str, port: int) -> str:
    where = f"[{address}]" if ":" in address else address
    query = f"?{parts.query}" if parts.query else ""
    return f"{parts.scheme}://{where}:{port}{parts.path or '/'}{query}"


def _wait(attempts: int) -> float:
    """Seconds until the next attempt: doubled each time and more, with some chance in it."""
    wait = min(_LONGEST_WAIT, _FIRST_WAIT * 3.0 ** (attempts - 1))
    return wait * random.uniform(0.8, 1.2)
