"""The application: routes, static files, errors as sentences, start and stop."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles

import regimekit
from regimekit.server.config import Config
from regimekit.server.demo import feed
from regimekit.server.ingest import Busy, Missing, Unavailable
from regimekit.server.middleware import Surround
from regimekit.server.pool import WorkerLost
from regimekit.server.request_parsing import BadBody
from regimekit.server.routes import models, observations, operations, streams, webhooks
from regimekit.server.service import Service

_STATIC = Path(__file__).parent / "static"
_UPLOT = Path(regimekit.__file__).parent / "assets" / "uplot"


def create_app(config: Config) -> FastAPI:
    """The service as an ASGI application."""
    service = Service(config)
    app = FastAPI(
        title="regimekit",
        version=regimekit.__version__,
        description=__doc__ and "Streams with a model each: forecasts, regimes, events.",
        lifespan=_lifespan,
        docs_url=None,  # its scripts come from elsewhere; the page and openapi.json stay here
        redoc_url=None,
    )
    app.state.service = service
    for part in (streams, observations, models, webhooks, operations):
        app.include_router(part.router)
    app.mount("/static/uplot", StaticFiles(directory=_UPLOT), name="uplot")
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.add_api_route("/", _page, include_in_schema=False)
    app.add_middleware(Surround, service=service)
    _speak(app)
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    service: Service = app.state.service
    await service.start()
    feeding = await feed(service) if service.config.demo else None
    try:
        yield
    finally:
        if feeding is not None:
            feeding.cancel()
        await service.stop()


async def _page() -> FileResponse:
    return FileResponse(_STATIC / "index.html", headers={"cache-control": "no-cache"})


def _speak(app: FastAPI) -> None:
    """Every error is {"detail": sentence}."""

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        found = [
            {"where": ".".join(str(part) for part in one["loc"]), "what": one["msg"]}
            for one in error.errors()
        ]
        return _problem(422, f"{found[0]['where']}: {found[0]['what']}.", errors=found)

    @app.exception_handler(404)
    async def nowhere(request: Request, error: HTTPException) -> JSONResponse:
        if error.detail == "Not Found":
            return _problem(404, f"There is no {request.url.path} here.")
        return _problem(404, error.detail)

    @app.exception_handler(405)
    async def not_so(request: Request, _: Exception) -> JSONResponse:
        allowed = ", ".join(_methods(app, request.url.path))
        answer = _problem(405, f"{request.method} is not possible here; {allowed} is.")
        answer.headers["Allow"] = allowed
        return answer

    @app.exception_handler(BadBody)
    async def bad(_: Request, error: BadBody) -> JSONResponse:
        return _problem(error.status, str(error))

    @app.exception_handler(Busy)
    async def busy(_: Request, error: Busy) -> JSONResponse:
        return _problem(429, str(error), error.seconds)

    @app.exception_handler(Missing)
    async def missing(_: Request, error: Missing) -> JSONResponse:
        return _problem(404, str(error))

    @app.exception_handler(Unavailable)
    async def unavailable(_: Request, error: Unavailable) -> JSONResponse:
        return _problem(503, str(error), 1)

    @app.exception_handler(WorkerLost)
    async def lost(_: Request, error: WorkerLost) -> JSONResponse:
        return _problem(503, str(error), 1)


def _methods(app: FastAPI, path: str) -> list[str]:
    """What can be done at a path, over all routes that share it."""
    found = {"GET"} if path == "/" else set()
    for template, possible in app.openapi()["paths"].items():
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), path):
            found |= {method.upper() for method in possible}
    return sorted(found)


def _problem(status: int, detail: str, wait: int | None = None, **more: Any) -> JSONResponse:
    headers = None if wait is None else {"Retry-After": str(wait)}
    return JSONResponse({"detail": detail, **more}, status, headers)
