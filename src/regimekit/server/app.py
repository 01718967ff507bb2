"""The ASGI application: routes, static files, error responses, request log; and its process."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import regimekit
from regimekit.core.exceptions import RegimekitError
from regimekit.server import (
    admin_routes,
    alert_routes,
    model_routes,
    observation_routes,
    stream_routes,
)
from regimekit.server.auth import SECURITY_HEADERS, Authenticator
from regimekit.server.config import Config, Limits, is_loopback
from regimekit.server.connections import limited_protocol
from regimekit.server.monitoring import configure_logging
from regimekit.server.records import RequestError
from regimekit.server.service import Service
from regimekit.server.storage import tokens
from regimekit.server.storage.database import database

_STATIC = Path(__file__).parent / "static"
_ASSETS = Path(regimekit.__file__).parent / "assets"
_HEADERS = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
# Routes that are only logged if they fail.
_QUIET_ROUTES = ("/static", "/healthz", "/readyz", "/metrics", "unmatched")
_CLOSE = {"Connection": "close"}  # the rest of a body is not read
_CLIENT_CLOSED = 499  # in the log, if a client leaves before its request is complete
_log = logging.getLogger("regimekit.server")
_request_log = logging.getLogger("regimekit.server.request")


def create_app(config: Config) -> FastAPI:
    """Create the ASGI application; its service starts with the application's lifespan."""
    service = Service(config)
    app = FastAPI(
        title="regimekit",
        version=regimekit.__version__,
        description="Streams with one model each: forecasts, regimes, events.",
        lifespan=_lifespan,
        # The documentation pages of FastAPI load scripts from other hosts; /docs is our own.
        docs_url=None,
        redoc_url=None,
    )
    app.state.service = service
    app.state.authenticator = Authenticator(service)
    # Routes are tried in this order; observations are the most frequent requests.
    for routes in (observation_routes, stream_routes, model_routes, alert_routes):
        app.include_router(routes.router)
    app.include_router(admin_routes.webhooks)
    app.include_router(admin_routes.probes)
    app.mount("/static/assets", StaticFiles(directory=_ASSETS), name="assets")
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    for path, name in (("/", "index.html"), ("/docs", "docs.html")):
        app.add_api_route(path, partial(_page, name), include_in_schema=False)
    app.add_middleware(RequestMiddleware, service=service)
    _add_error_handlers(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    await service.start()
    try:
        yield
    finally:
        await service.stop()


async def _page(name: str) -> FileResponse:
    return FileResponse(_STATIC / name, headers={"cache-control": "no-cache"})


def _problem(status: int, detail: str, retry_after: int | None = None, **more: Any) -> JSONResponse:
    headers = None if retry_after is None else {"Retry-After": str(retry_after)}
    return JSONResponse({"detail": detail, **more}, status, headers)


def _add_error_handlers(app: FastAPI) -> None:
    """Make the body of every error response `{"detail": sentence}`."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        found = [
            {"where": ".".join(str(part) for part in one["loc"]), "what": one["msg"]}
            for one in error.errors()
        ]
        return _problem(422, f"{found[0]['where']}: {found[0]['what']}.", errors=found)

    @app.exception_handler(404)
    async def not_found(request: Request, error: HTTPException) -> JSONResponse:
        if error.detail == "Not Found":
            return _problem(404, f"{request.url.path} does not exist.")
        return _problem(404, error.detail)

    @app.exception_handler(405)
    async def not_allowed(request: Request, _: Exception) -> JSONResponse:
        allowed = ", ".join(_allowed_methods(app, request.url.path))
        answer = _problem(405, f"Method {request.method} is not allowed. Allowed: {allowed}.")
        answer.headers["Allow"] = allowed
        return answer

    @app.exception_handler(RequestError)
    async def failed(_: Request, error: RequestError) -> JSONResponse:
        return _problem(error.status, str(error), error.retry_after)


def _allowed_methods(app: FastAPI, path: str) -> list[str]:
    """Return the methods of all routes that match a path."""
    found = {"GET"} if path in ("/", "/docs") else set()
    for template, operations in app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path):
            found |= {method.upper() for method in operations}
    return sorted(found)


class RequestMiddleware:
    """Add security headers and a request id, log and measure each request.

    Plain ASGI: responses are passed on as they are produced, so event streams are not buffered.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, responded = time.perf_counter(), 500, False
        request_id = uuid.uuid4().hex[:12]
        body = LimitedBody(scope, receive, self.service.config.limits)

        async def send_with_headers(message: Message) -> None:
            nonlocal status, responded
            if message["type"] == "http.response.start":
                status, responded = message["status"], True
                own = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(pair for pair in _HEADERS if pair[0] not in own),
                    (b"x-request-id", request_id.encode()),
                ]
            await send(message)

        try:
            if (problem := _invalid_headers(scope)) is not None:
                await problem(scope, receive, send_with_headers)
            elif body.too_large:
                await _too_large(body.limit)(scope, receive, send_with_headers)
            else:
                await self.app(scope, body.receive, send_with_headers)
        except ClientDisconnect:
            status = _CLIENT_CLOSED
        except Exception:
            _request_log.exception(
                "request failed", extra={"request": request_id, "path": scope["path"]}
            )
            if responded:
                raise
            answer = _problem(500, f"Internal error. The log has the reason, request {request_id}.")
            await answer(scope, receive, send_with_headers)
        finally:
            self._record(scope, status, time.perf_counter() - started, request_id)

    def _record(self, scope: Scope, status: int, seconds: float, request_id: str) -> None:
        route = getattr(scope.get("route"), "path", None) or "unmatched"
        # The duration of an event stream says nothing about the service.
        if not route.endswith("/live"):
            self.service.metrics.requests.labels(route, scope["method"], status).observe(seconds)
        if route.startswith(_QUIET_ROUTES) and status < 500:
            return
        _request_log.info(
            "request",
            extra={
                "request": request_id,
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round(1e3 * seconds, 2),
                "token": scope.get("state", {}).get("token"),
            },
        )


class LimitedBody:
    """The body of a request, limited in size and time before anybody reads it.

    Attributes:
        limit: largest number of bytes.
        too_large: whether the Content-Length header exceeds the limit.
    """

    def __init__(self, scope: Scope, receive: Receive, limits: Limits) -> None:
        has_observations = scope["path"].endswith("/observations")
        self.limit = limits.body_bytes if has_observations else limits.settings_bytes
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        self.too_large = not declared.isdigit() or int(declared[:20]) > self.limit
        self._receive, self._seconds = receive, limits.body_seconds
        self._size, self._more = 0, True

    async def receive(self) -> Message:
        """Receive the next part.

        Raises:
            HTTPException: 413 if the body is too large, 408 if it does not arrive in time.
        """
        # After the body this waits for the end of the connection, which may be an event stream.
        if not self._more:
            return await self._receive()
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "The body did not arrive in time.", _CLOSE) from None
        self._seconds -= time.monotonic() - started
        self._size += len(message.get("body", b""))
        self._more = message.get("more_body", False)
        if self._size > self.limit:
            raise HTTPException(413, _size_rule(self.limit), _CLOSE)
        return message


def _size_rule(limit: int) -> str:
    return f"A body must have at most {limit} bytes. Divide it into several requests."


def _too_large(limit: int) -> JSONResponse:
    answer = _problem(413, _size_rule(limit))
    answer.headers.update(_CLOSE)
    return answer


def _invalid_headers(scope: Scope) -> JSONResponse | None:
    """Return an error response if a request names more than one host."""
    hosts = sum(name == b"host" for name, _ in scope["headers"])
    return None if hosts <= 1 else _problem(400, f"Send one Host header, got {hosts}.")


class Server(uvicorn.Server):
    """A uvicorn server that ends event streams before it waits for open connections."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Accept no more requests and finish those in progress; a second SIGINT does not wait.

        Unlike uvicorn, do not raise the signal again afterwards: an orderly end is a success.
        """
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        asyncio.get_running_loop().call_soon(self._service.announce_stop)


def run(config: Config) -> None:
    """Serve until a signal ends the process.

    Raises:
        RegimekitError: if the TLS options are incomplete, the database cannot be opened or the
            address cannot be listened on.
    """
    configure_logging(config.log)
    if (config.certificate is None) != (config.private_key is None):
        raise RegimekitError("TLS needs both --certificate and --private-key.")
    _check_tokens(config)
    app = create_app(config)
    listener = _listen(config)
    settings = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="on",
        proxy_headers=False,
        timeout_keep_alive=15,
        timeout_graceful_shutdown=30,
        http=limited_protocol(config.limits),
        ws="none",
        h11_max_incomplete_event_size=config.limits.header_bytes,
        ssl_certfile=config.certificate,
        ssl_keyfile=config.private_key,
    )
    scheme = "http" if config.certificate is None else "https"
    host = f"[{config.host}]" if ":" in config.host else config.host
    url = f"{scheme}://{host}:{listener.getsockname()[1]}"
    _log.info("listening", extra={"url": url, "version": app.version})
    server = Server(settings, app.state.service)
    server.run(sockets=[listener])
    if not server.started:
        raise SystemExit(1)


def _check_tokens(config: Config) -> None:
    """Open the database once, so that its errors are reported early; warn if there is no token."""
    with database(config.db) as engine, engine.connect() as connection:
        active = [token for token in tokens.list_all(connection) if token.revoked is None]
    if not active and (config.require_token or not is_loopback(config.host)):
        _log.warning(
            "no token exists, so every API request is rejected; create one with "
            "`regimekit token add`"
        )


def _listen(config: Config) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise RegimekitError(
            f"Cannot listen on --host {config.host} --port {config.port}: {error}."
        ) from None
    listener.listen(1024)
    return listener
