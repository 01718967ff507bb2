"""Routes of webhooks, and of probes and metrics."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from fastapi import APIRouter, HTTPException, Response

from regimekit.alerts.messages import MESSAGE_KINDS
from regimekit.server.auth import Caller, RunningService, require
from regimekit.server.schemas import (
    Problem,
    Readiness,
    Status,
    WebhookInfo,
    WebhookMade,
    WebhookRequest,
    Webhooks,
)
from regimekit.server.service import Service
from regimekit.server.storage import outbox
from regimekit.server.stream_routes import PROBLEMS, Number
from regimekit.server.webhooks import PrivateAddressError, resolve

webhooks = APIRouter(tags=["webhooks"], responses=PROBLEMS)
probes = APIRouter(tags=["operations"])


@webhooks.post("/webhooks", summary="Create a webhook", status_code=201)
async def add_webhook(body: WebhookRequest, service: RunningService, token: Caller) -> WebhookMade:
    """Needs write access to the prefix. The secret is not shown again."""
    require(token, "write", body.prefix)
    _check_format(body, service)
    if body.format != "email":
        await _check_url(body.url, service.config.allow_private_webhooks)
    webhook, secret = await service.write(
        outbox.add_webhook, body.prefix, body.url, list(body.kinds), body.format, body.severity
    )
    return WebhookMade(id=webhook, secret=secret)


def _check_format(body: WebhookRequest, service: Service) -> None:
    if (body.format == "email") != body.url.startswith("mailto:"):
        raise HTTPException(
            422, "url must be mailto:ADDRESS for the format 'email', and http(s) for the others."
        )
    if body.format == "email":
        if not re.fullmatch(r"mailto:[^@,;?&<>\s]+@[^@,;?&<>\s]+", body.url):
            raise HTTPException(422, f"url must have one e-mail address, got {body.url!r}.")
        if service.config.smtp is None:
            raise HTTPException(422, "E-mail needs a server: start the service with --smtp.")
    events = [kind for kind in body.kinds if kind not in MESSAGE_KINDS]
    if body.format != "json" and events:
        raise HTTPException(
            422,
            f"The format {body.format!r} can send {', '.join(MESSAGE_KINDS)}, got {events[0]!r}.",
        )


async def _check_url(url: str, allow_private: bool) -> None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 443
    except ValueError:
        raise HTTPException(422, f"url must be a valid URL, got {url!r}.") from None
    if not host or parts.username is not None:
        raise HTTPException(422, "url must have a host and no user name.")
    try:
        await resolve(host, port, allow_private)
    except PrivateAddressError as error:
        raise HTTPException(422, f"url: {error}") from None
    except (OSError, UnicodeError):
        raise HTTPException(422, f"url: the host {host!r} cannot be resolved.") from None


@webhooks.get("/webhooks", summary="List webhooks")
async def list_webhooks(service: RunningService, token: Caller) -> Webhooks:
    """Webhooks of prefixes with write access, and the state of their latest message.

    Read access is not enough: a URL may contain a secret of its receiver.
    """
    found = await service.read(outbox.list_webhooks)
    allowed = [hook for hook in found if token.allows("write", hook["prefix"])]
    return Webhooks(webhooks=[WebhookInfo(**hook) for hook in allowed])


@webhooks.delete("/webhooks/{number}", summary="Delete a webhook", status_code=204)
async def remove_webhook(number: Number, service: RunningService, token: Caller) -> None:
    """Delete a webhook and its undelivered messages."""
    prefix = await service.read(outbox.webhook_prefix, number)
    if prefix is None:
        raise HTTPException(404, f"The webhook {number} does not exist.")
    require(token, "write", prefix)
    await service.write(outbox.remove_webhook, number)


@probes.get("/healthz", summary="Liveness probe")
async def healthz() -> Status:
    """Succeeds if the process answers."""
    return Status(status="ok")


@probes.get("/readyz", summary="Readiness probe", responses={503: {"model": Problem}})
async def readyz(service: RunningService) -> Readiness:
    """Succeeds if the database can be written and the workers have started."""
    if not service.ready:
        raise HTTPException(503, "The workers are starting.", {"Retry-After": "2"})
    if not await service.can_write():
        raise HTTPException(503, "The database cannot be written.", {"Retry-After": "5"})
    return Readiness(status="ready", compiled=service.compiled)


@probes.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **PROBLEMS},
)
async def metrics(service: RunningService, token: Caller) -> Response:
    """Needs read access to all streams."""
    require(token, "read", "")
    return Response(await service.exposition(), media_type="text/plain; version=0.0.4")
