"""Authentication and authorization of requests, and the dependencies that routes use.

Without a token, only a service that listens on the loopback interface answers, and only to
requests that come from this machine, were not forwarded by a proxy, name this machine as their
host and do not come from a page of another site. So a website that is open in a browser on this
machine cannot use the API.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, HTTPException, Path, Request

from regimekit.server.config import is_loopback
from regimekit.server.schemas import KEY_PATTERN
from regimekit.server.service import Service
from regimekit.server.storage import streams, tokens
from regimekit.server.storage.streams import Stream
from regimekit.server.storage.tokens import LOCAL, Token

_CACHE_SECONDS = 2.0  # a revoked token is accepted no longer than that
_CACHE_SIZE = 10_000  # secrets
_BURST_SECONDS = 2.0  # a token may save up this much of its rate
# Headers by which a proxy tells that it has forwarded a request, beside x-forwarded-*.
_FORWARDING_HEADERS = {
    *("forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip"),
    *("x-original-forwarded-for", "x-original-host", "x-original-url", "x-envoy-external-address"),
    *("client-ip", "true-client-ip", "cf-connecting-ip", "cf-ray", "cdn-loop", "fastly-client-ip"),
    *("x-amzn-trace-id", "x-appengine-user-ip", "x-url-scheme", "front-end-https"),
}
_HOST = re.compile(r"(?P<name>[\w.-]+|\[[0-9A-Fa-f:.]+\])(:\d{1,5})?", re.ASCII)

SECURITY_HEADERS = {
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
class TokenBucket:
    """Rate limit of one token: filled at its rate, up to two seconds' worth."""

    left: float
    at: float


@dataclass
class Authenticator:
    """Identify callers and enforce their rate limits."""

    service: Service
    _cache: dict[str, tuple[float, Token | None]] = field(default_factory=dict)
    _buckets: dict[int, TokenBucket] = field(default_factory=dict)

    async def identify(self, request: Request) -> Token:
        """Return the token of a request.

        Raises:
            HTTPException: 401 without a valid token where one is needed, 429 beyond the rate.
        """
        header = request.headers.get("authorization", "")
        scheme, _, secret = header.partition(" ")
        if not header:
            if self._is_local(request):
                return LOCAL
            raise _unauthorized("A token is required. Send Authorization: Bearer TOKEN.")
        if scheme.lower() != "bearer":
            raise _unauthorized("Send the token as Authorization: Bearer TOKEN.")
        token = await self._find(secret.strip())
        if token is None:
            raise _unauthorized("The token is unknown or revoked.")
        self._limit_rate(token)
        return token

    def _is_local(self, request: Request) -> bool:
        config = self.service.config
        client = request.client.host if request.client else ""
        if config.require_token or not is_loopback(config.host) or not is_loopback(client):
            return False
        names = request.headers.keys()
        if not _FORWARDING_HEADERS.isdisjoint(names):
            return False
        if any(name.startswith("x-forwarded") for name in names):
            return False
        host = request.headers.get("host", "")
        named = _HOST.fullmatch(host)
        if named is None or not is_loopback(named["name"]):
            return False
        origin = request.headers.get("origin")
        site = request.headers.get("sec-fetch-site", "none")
        same_origin = (None, f"http://{host}", f"https://{host}")
        return site in ("none", "same-origin") and origin in same_origin

    async def _find(self, secret: str) -> Token | None:
        key = tokens.hash_secret(secret)
        until, token = self._cache.get(key, (0.0, None))
        if time.monotonic() < until:
            return token
        token = await self.service.read(tokens.find, secret)
        if len(self._cache) > _CACHE_SIZE:
            self._cache.clear()
        self._cache[key] = (time.monotonic() + _CACHE_SECONDS, token)
        return token

    def _limit_rate(self, token: Token) -> None:
        if token.rate <= 0:
            return
        now, capacity = time.monotonic(), max(1.0, _BURST_SECONDS * token.rate)
        bucket = self._buckets.setdefault(token.id, TokenBucket(capacity, now))
        bucket.left = min(capacity, bucket.left + (now - bucket.at) * token.rate)
        bucket.at = now
        if bucket.left < 1:
            seconds = max(1, round((1 - bucket.left) / token.rate))
            raise HTTPException(
                429,
                f"The token {token.name!r} is limited to {token.rate:g} requests per second.",
                {"Retry-After": str(seconds)},
            )
        bucket.left -= 1


def _unauthorized(reason: str) -> HTTPException:
    return HTTPException(401, reason, {"WWW-Authenticate": "Bearer"})


def require(token: Token, permission: str, key: str) -> None:
    """Raise 403 unless the token permits "read" or "write" on the stream `key`."""
    if not token.allows(permission, key):
        raise HTTPException(403, f"The token {token.name!r} has no {permission} access to {key!r}.")


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


RunningService = Annotated[Service, Depends(_service)]


async def caller(request: Request) -> Token:
    """Return the token of a request; see `Authenticator.identify`."""
    authenticator: Authenticator = request.app.state.authenticator
    token = await authenticator.identify(request)
    # For the request log.
    request.state.token = token.name
    return token


Caller = Annotated[Token, Depends(caller)]
StreamKey = Annotated[
    str, Path(pattern=KEY_PATTERN, description="Key of a stream.", examples=["plant1.press3.load"])
]


async def find_stream(service: Service, key: str) -> Stream:
    """Return a stream by its key; raise 404 if it does not exist."""
    stream = await service.read(streams.find, key)
    if stream is None:
        raise HTTPException(
            404, f"The stream {key!r} does not exist. Create it with PUT /streams/{key}."
        )
    return stream


async def _readable(key: StreamKey, token: Caller, service: RunningService) -> Stream:
    require(token, "read", key)
    return await find_stream(service, key)


async def _writable(key: StreamKey, token: Caller, service: RunningService) -> Stream:
    require(token, "write", key)
    return await find_stream(service, key)


# Parameters of these types are streams that the caller may read or write.
ReadableStream = Annotated[Stream, Depends(_readable)]
WritableStream = Annotated[Stream, Depends(_writable)]
