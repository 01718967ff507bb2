"""Delivery of messages about events and alerts, retried, and never into private networks.

The host name is resolved here, every address is checked, and the request goes to the checked
address, so a name that resolves differently a moment later has no effect. Redirects are not
followed. A message in the JSON format is signed with HMAC-SHA256 over "TIME.BODY". Open alerts are
sent to Alertmanager again and again, because it resolves an alert that it does not hear of.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import json
import logging
import random
import smtplib
import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from email.message import EmailMessage
from functools import partial
from typing import Any
from urllib.parse import SplitResult, quote, unquote, urlsplit

import httpx
from sqlalchemy import Engine

from regimekit.alerts import Alert, messages
from regimekit.server.config import Config
from regimekit.server.monitoring import Metrics
from regimekit.server.storage import alerts, outbox
from regimekit.server.storage.database import write_transaction

_MAX_ATTEMPTS = 12  # over about a day and a half
_FIRST_DELAY = 2.0  # seconds before the second attempt
_MAX_DELAY = 6 * 3600.0  # seconds
_TIMEOUT = 10.0  # seconds to connect, and between reads
_POLL_INTERVAL = 1.0  # seconds between queries of an empty outbox
_REFRESH_INTERVAL = (
    messages.ALERT_LIFETIME / 5
)  # seconds between two messages about an open alert to Alertmanager
# IPv6 networks whose addresses embed an IPv4 address in their last 32 bits: compatible, translated
# and NAT64 addresses.
_EMBEDDING = [ipaddress.ip_network(n) for n in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")]
# IPv6 addresses outside of it are not public, whatever `is_global` says.
_UNICAST = ipaddress.ip_network("2000::/3")
# Reserved, though `is_global` says otherwise in some versions of Python: protocol assignments (with
# the metadata service of Oracle), 6to4 relays, the host in Azure, documentation.
_INTERNAL = [
    ipaddress.ip_network(n)
    for n in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20")
]
_ISATAP = (0x00005EFE, 0x02005EFE)  # before an IPv4 address in the last 32 bits
# Threads of their own: name servers that do not answer must not delay anything else.
_RESOLVERS = ThreadPoolExecutor(8, thread_name_prefix="resolve")
_log = logging.getLogger("regimekit.server.webhooks")


class PrivateAddressError(ValueError):
    """A host has an address that is not public."""


def is_public(address: str) -> bool:
    """Return whether an address is public, also if an IPv6 address embeds an IPv4 address."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        translated = any(ip in network for network in _EMBEDDING)
        if translated or (int(ip) >> 32) & 0xFFFFFFFF in _ISATAP:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if ip not in _UNICAST:
            return False
    return ip.is_global and not ip.is_multicast and not any(ip in net for net in _INTERNAL)


async def resolve(host: str, port: int, allow_private: bool) -> str:
    """Return an address of a host.

    Raises:
        PrivateAddressError: if any address is private and `allow_private` is false.
        OSError: if the host cannot be resolved.
    """
    loop = asyncio.get_running_loop()
    query = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await loop.run_in_executor(_RESOLVERS, query)
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

    def __init__(self, engine: Engine, metrics: Metrics, config: Config) -> None:
        self._engine, self._metrics, self._config = engine, metrics, config
        self._client = httpx.AsyncClient(
            timeout=_TIMEOUT, follow_redirects=False, trust_env=False, http2=False
        )
        self._refreshed = 0.0

    async def run(self) -> None:
        """Deliver messages until cancelled."""
        try:
            while True:
                sent = 0
                try:
                    sent = await self._deliver_due()
                    if time.monotonic() - self._refreshed > _REFRESH_INTERVAL:
                        self._refreshed = time.monotonic()
                        await self._refresh_alertmanagers()
                except Exception:
                    _log.exception("delivery failed")
                if not sent:
                    await asyncio.sleep(_POLL_INTERVAL)
        finally:
            await self._client.aclose()

    async def _refresh_alertmanagers(self) -> None:
        hooks, active = await asyncio.to_thread(self._active_alerts)
        for hook in hooks:
            own = [alert for alert in active if outbox.reports(hook, alert)]
            try:
                if own:
                    await self._post(hook.url, *_alertmanager_request(own))
            except Exception as problem:
                _log.warning("Alertmanager was not reached", extra={"reason": str(problem)})

    def _active_alerts(self) -> tuple[list[Any], list[Alert]]:
        with self._engine.connect() as connection:
            hooks = outbox.alertmanagers(connection)
            return hooks, alerts.notifiable(connection, time.time()) if hooks else []

    async def _deliver_due(self) -> int:
        waiting = await asyncio.to_thread(self._due)
        await asyncio.gather(*(self._deliver(message) for message in waiting))
        return len(waiting)

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
        headers = {"Regimekit-Delivery": str(message.id)}
        if message.format == "json":
            body = message.body.encode()
            headers["Regimekit-Signature"] = signature(message.secret, int(time.time()), body)
            await self._post(message.url, "", body, headers)
            return
        alert = messages.from_payload(json.loads(message.body))
        link = self._link(alert.stream)
        if message.format == "slack":
            body = json.dumps(messages.slack_payload(alert, link)).encode()
            await self._post(message.url, "", body, headers)
        elif message.format == "alertmanager":
            await self._post(message.url, *_alertmanager_request([alert], link), headers)
        else:
            recipient = message.url.removeprefix("mailto:")
            mail = messages.email_message(alert, self._config.mail_from, recipient, link)
            await asyncio.to_thread(send_mail, self._config.smtp, mail)

    def _link(self, stream: str) -> str | None:
        base = self._config.public_url
        return None if base is None else f"{base.rstrip('/')}/#/s/{quote(stream, safe='')}"

    async def _post(
        self, url: str, path: str, body: bytes, headers: dict[str, str] | None = None
    ) -> None:
        parts = urlsplit(url)
        parts = parts._replace(path=parts.path.rstrip("/") + path if path else parts.path)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = parts.hostname or ""
        address = await resolve(host, port, self._config.allow_private_webhooks)
        request = self._client.build_request(
            "POST",
            _url_with_address(parts, address, port),
            content=body,
            headers={
                "Host": host if parts.port is None else f"{host}:{parts.port}",
                "Content-Type": "application/json",
                "User-Agent": "regimekit",
                **(headers or {}),
            },
            extensions={"sni_hostname": host},
        )
        response = await self._client.send(request, stream=True)
        await response.aclose()
        if not response.is_success:
            raise RuntimeError(f"the receiver answered with status {response.status_code}")


def _alertmanager_request(active: list[Alert], link: str | None = None) -> tuple[str, bytes]:
    """Return path and body of a request to Alertmanager."""
    entries = [messages.alertmanager_payload(alert, {}, time.time(), link) for alert in active]
    return "/api/v2/alerts", json.dumps(entries).encode()


def send_mail(server: str | None, mail: EmailMessage) -> None:
    """Send an e-mail.

    Args:
        server: `smtp://USER:PASSWORD@HOST:PORT` or `smtps://...`.
        mail: the message.

    Raises:
        RuntimeError: if there is no server.
        OSError, smtplib.SMTPException: if the message cannot be sent.
    """
    if server is None:
        raise RuntimeError("no SMTP server is configured; start the service with --smtp")
    parts = urlsplit(server)
    context = ssl.create_default_context()
    host, port = parts.hostname or "localhost", parts.port
    if parts.scheme == "smtps":
        connection: smtplib.SMTP = smtplib.SMTP_SSL(
            host, port or 465, timeout=_TIMEOUT, context=context
        )
    else:
        connection = smtplib.SMTP(host, port or 25, timeout=_TIMEOUT)
    with connection:
        connection.ehlo()
        if parts.scheme == "smtp" and connection.has_extn("starttls"):
            connection.starttls(context=context)
            connection.ehlo()
        if parts.username:
            connection.login(unquote(parts.username), unquote(parts.password or ""))
        connection.send_message(mail)


def _url_with_address(parts: SplitResult, address: str, port: int) -> str:
    """Replace the host of a URL by the address that was checked."""
    host = f"[{address}]" if ":" in address else address
    return parts._replace(netloc=f"{host}:{port}", path=parts.path or "/", fragment="").geturl()


def _retry_delay(attempts: int) -> float:
    """Return the seconds until the next attempt: exponential backoff with jitter."""
    return min(_MAX_DELAY, _FIRST_DELAY * 3.0 ** (attempts - 1)) * random.uniform(0.8, 1.2)
