"""Webhooks: where events are sent."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, HTTPException, Path

from regimekit.server.routes.common import PROBLEMS, Caller, Serving
from regimekit.server.schemas import WebhookInfo, WebhookMade, WebhookRequest, Webhooks
from regimekit.server.security import demand
from regimekit.server.storage import access
from regimekit.server.webhooks import Forbidden, resolve

router = APIRouter(tags=["webhooks"], responses=PROBLEMS)


@router.post("/webhooks", summary="Send events somewhere", status_code=201)
async def add(body: WebhookRequest, service: Serving, token: Caller) -> WebhookMade:
    """Needs the right to write the prefix. The secret is shown this once."""
    demand(token, "write", body.prefix)
    await _reachable(body.url, service.config.allow_private_webhooks)
    number, secret = await service.write(
        access.add_webhook, body.prefix, body.url, list(body.kinds)
    )
    return WebhookMade(id=number, secret=secret)


async def _reachable(url: str, allow_private: bool) -> None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 443
    except ValueError:
        raise HTTPException(422, f"url {url!r} cannot be read.") from None
    if not host or parts.username is not None:
        raise HTTPException(422, "url needs a host and takes no user name.")
    try:
        await resolve(host, port, allow_private)
    except Forbidden as error:
        raise HTTPException(422, f"url: {error}") from None
    except (OSError, UnicodeError):
        raise HTTPException(422, f"url: the host {host!r} cannot be found.") from None


@router.get("/webhooks", summary="Webhooks")
async def listing(service: Serving, token: Caller) -> Webhooks:
    """Webhooks whose prefix the caller may read, with the fate of their latest message."""
    found = await service.read(access.list_webhooks)
    return Webhooks(
        webhooks=[WebhookInfo(**one) for one in found if token.may("read", one["prefix"])]
    )


@router.delete("/webhooks/{number}", summary="Stop sending", status_code=204)
async def remove(
    number: Annotated[int, Path(ge=0, le=2**31 - 1)], service: Serving, token: Caller
) -> None:
    """The webhook and what it had still to send."""
    prefix = await service.read(access.webhook_prefix, number)
    if prefix is None:
        raise HTTPException(404, f"There is no webhook {number}.")
    demand(token, "write", prefix)
    await service.write(access.remove_webhook, number)
