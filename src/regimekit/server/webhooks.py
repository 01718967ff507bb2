"""Webhooks: signed messages about events, retried, and never sent into private networks.

The host name is resolved here, every address is checked, and the request goes to the checked
address, so a name that resolves differently a moment later has no effect. Redirects are not
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

from regimekit.server.monitoring import Metrics
from regimekit.server.storage import outbox
from regimekit.server.storage.database import write_transaction

_MAX_ATTEMPTS = 12  # over about a day and a half
_FIRST_DELAY = 2.0  # seconds before the second attempt
_MAX_DELAY = 6 * 3600.0  # seconds
_TIMEOUT = 10.0  # seconds to connect, and between reads
_POLL_INTERVAL = 1.0  # seconds between queries of an empty outbox
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_log = logging.getLogger("regimekit.server.webhooks")


class PrivateAddressError(ValueError):
    """A host has an address that is not public."""


def is_public(address: str) -> bool:
    """Return whether an address is public, also if an IPv6 address embeds an IPv4 address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


async def resolve(host: str, port: int, allow_private: bool) -> str:
    """Return an address of a host.

    Raises:
        PrivateAddressError: if any address is private and `allow_private` is false.
        OSError: if the host cannot be resolved.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(info[4][0]) for info in found]
    if not allow_private:
        for address in addresses:
            if not is_public(address):
                raise PrivateAddressError(
                    f"{host} resolves to {address}, which is not a public address."
                )
    return addresses[0]


def signature(secret: str, moment: int, body: bytes) -> str:
    """Return the value of the Regimekit-Signature header.

    Args:
        secret: secret of the webhook.
        moment: time of sending in seconds since 1970.
        body: body of the message.
    """
    content = f"{moment}.".encode() + body
    digest = hmac.new(secret.encode(), content, hashlib.sha256).hexdigest()
    return f"t={moment},v1={digest}"


class Dispatcher:
    """Deliver the messages in the outbox."""

    def __init__(self, engine: Engine, metrics: Metrics, allow_private: bool) -> None:
        self._engine, self._metrics, self._allow_private = engine, metrics, allow_private
        self._client = httpx.AsyncClient(
            timeout=_TIMEOUT, follow_redirects=False, trust_env=False, http2=False
        )

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        try:
            while True:
                try:
                    sent = await self._deliver_due()
                except Exception:
                    _log.exception("webhook delivery failed")
                    sent = 0
                if not sent:
                    await asyncio.sleep(_POLL_INTERVAL)
        finally:
            await self._client.aclose()

    async def _deliver_due(self) -> int:
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
        final = error is None or attempts >= _MAX_ATTEMPTS
        due = None if final else time.time() + _retry_delay(attempts)
        self._metrics.webhooks.labels("failed" if error else "delivered").inc()
        await asyncio.to_thread(self._record, message.id, attempts, due, error)

    def _record(self, delivery: int, attempts: int, due: float | None, error: str | None) -> None:
        with write_transaction(self._engine) as connection:
            outbox.record_attempt(connection, delivery, attempts, due, error)

    async def _send(self, message: Any) -> None:
        parts = urlsplit(message.url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname or ""
        address = await resolve(host, port, self._allow_private)
        body = message.body.encode()
        request = self._client.build_request(
            "POST",
            _url_with_address(parts, address, port),
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
            raise RuntimeError(f"the receiver answered with status {response.status_code}")


def _url_with_address(parts: SplitResult, address: str, port: int) -> str:
    """Replace the host of a URL by the address that was checked."""
    host = f"[{address}]" if ":" in address else address
    return parts._replace(netloc=f"{host}:{port}", path=parts.path or "/", fragment="").geturl()


def _retry_delay(attempts: int) -> float:
    """Return the seconds until the next attempt: exponential backoff with jitter."""
    return min(_MAX_DELAY, _FIRST_DELAY * 3.0 ** (attempts - 1)) * random.uniform(0.8, 1.2)
