"""Who may ask for what.

Without a token only a service that listens on this machine alone answers, and only to requests
that come from here, were not passed on by a proxy, name this machine as their host, and were not
made by a page of another site: a website open in a browser must not reach in.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from fastapi import HTTPException, Request
from sqlalchemy import Engine

from regimekit.server.config import Config, is_loopback
from regimekit.server.storage import access
from regimekit.server.storage.access import ANYONE, Token

_REMEMBERED = 2.0  # seconds; a revoked token works no longer than that
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "x-forwarded-host")

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass
class Bucket:
    """Requests a token may still make: filled at its rate, two seconds' worth at most."""

    left: float
    at: float


@dataclass
class Guard:
    """Finds out who asks, and turns away what is not allowed."""

    config: Config
    engine: Engine
    _known: dict[str, tuple[float, Token | None]] = field(default_factory=dict)
    _buckets: dict[int, Bucket] = field(default_factory=dict)

    async def identify(self, request: Request) -> Token:
        """The token of a request; 401 where one is needed."""
        header = request.headers.get("authorization", "")
        scheme, _, secret = header.partition(" ")
        if not header:
            if self._from_here(request):
                return ANYONE
            raise _unauthorised("This needs a token: send Authorization: Bearer TOKEN.")
        if scheme.lower() != "bearer":
            raise _unauthorised("Send the token as: Authorization: Bearer TOKEN.")
        token = await self._find(secret.strip())
        if token is None:
            raise _unauthorised("This token is not known, or it was revoked.")
        self._pace(token)
        return token

    def _from_here(self, request: Request) -> bool:
        client = request.client.host if request.client else ""
        if self.config.require_token or not self.config.on_loopback or not is_loopback(client):
            return False
        if any(name in request.headers for name in _FORWARDED):
            return False
        host = request.headers.get("host", "")
        if not is_loopback(urlsplit(f"//{host}").hostname or ""):
            return False
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site", "none")
        return site in ("none", "same-origin") and origin in (
            None,
            f"http://{host}",
            f"https://{host}",
        )

    async def _find(self, secret: str) -> Token | None:
        key = access.digest(secret)
        until, token = self._known.get(key, (0.0, None))
        if time.monotonic() < until:
            return token
        token = await asyncio.to_thread(self._look_up, secret)
        if len(self._known) > 10_000:
            self._known.clear()
        self._known[key] = (time.monotonic() + _REMEMBERED, token)
        return token

    def _look_up(self, secret: str) -> Token | None:
        with self.engine.connect() as connection:
            return access.find_token(connection, secret)

    def _pace(self, token: Token) -> None:
        if token.rate <= 0:
            return
        now, most = time.monotonic(), max(1.0, 2 * token.rate)
        bucket = self._buckets.setdefault(token.id, Bucket(most, now))
        bucket.left = min(most, bucket.left + (now - bucket.at) * token.rate)
        bucket.at = now
        if bucket.left < 1:
            wait = max(1, round((1 - bucket.left) / token.rate))
            raise HTTPException(
                429,
                f"This token may make {token.rate:g} requests per second.",
                {"Retry-After": str(wait)},
            )
        bucket.left -= 1


def _unauthorised(reason: str) -> HTTPException:
    return HTTPException(401, reason, {"WWW-Authenticate": "Bearer"})


def demand(token: Token, right: str, key: str) -> None:
    """403 unless the token gives the right to the stream."""
    if not token.may(right, key):
        raise HTTPException(403, f"The token {token.name!r} gives no right to {right} {key!r}.")
