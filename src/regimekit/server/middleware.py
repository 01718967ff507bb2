"""Around every request: headers that protect the page, a log line, a measurement."""

from __future__ import annotations

import logging
import time
import uuid
from typing import Any

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regimekit.server.security import HEADERS
from regimekit.server.service import Service

_log = logging.getLogger("regimekit.server.request")
_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_QUIET = ("/static", "/healthz", "/readyz", "/metrics", "unmatched")


class Surround:
    """Adds headers, measures and logs; streams pass through untouched."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, begun = time.perf_counter(), 500, False
        number = uuid.uuid4().hex[:12]

        async def dressed(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                begun = True
                status = message["status"]
                own = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(pair for pair in _HEADERS if pair[0] not in own),
                    (b"x-request-id", number.encode()),
                ]
            await send(message)

        try:
            await self.app(scope, receive, dressed)
        except Exception:
            _log.exception("failed", extra={"request": number, "path": scope["path"]})
            if begun:
                raise
            await _apologise(number)(scope, receive, dressed)
        finally:
            self._note(scope, status, time.perf_counter() - started, number)

    def _note(self, scope: Scope, status: int, seconds: float, number: str) -> None:
        route = _route(scope)
        if not route.endswith("/live"):
            self.service.metrics.requests.labels(route, scope["method"], status).observe(seconds)
        if route.startswith(_QUIET) and status < 500:
            return
        _log.info(
            "request",
            extra={
                "request": number,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(1e3 * seconds, 2),
                "token": scope.get("state", {}).get("token"),
            },
        )


def _apologise(number: str) -> JSONResponse:
    reason = f"The service failed at this; its log has the reason under request {number}."
    return JSONResponse({"detail": reason}, 500)


def _route(scope: dict[str, Any] | Scope) -> str:
    route = scope.get("route")
    return getattr(route, "path", None) or "unmatched"
