"""Observations: send them, read them back with their outputs, follow them live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection

from regimekit.server import request_parsing as bodies
from regimekit.server.event_stream import CHUNK
from regimekit.server.routes.common import PROBLEMS, Caller, Key, Readable, Serving, stream_number
from regimekit.server.schemas import Observation, Observations, Problem, Receipt, Segment
from regimekit.server.security import demand
from regimekit.server.service import Service
from regimekit.server.storage import history, streams
from regimekit.server.storage.streams import Stream

router = APIRouter(tags=["observations"], responses=PROBLEMS)
_THREAD = 64 * 1024  # bytes; larger bodies are read beside the loop
_WINDOW = 10_000  # rows given as they are

_OBSERVATION = Observation.model_json_schema()
_EXAMPLE = _OBSERVATION.pop("example")
_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "oneOf": [
                        _OBSERVATION,
                        {"type": "array", "items": _OBSERVATION, "minItems": 1},
                    ]
                },
                "example": _EXAMPLE,
            },
            "application/x-ndjson": {
                "schema": {"type": "string"},
                "example": '{"id": "7", "y": 1.5}\n{"id": "8", "y": null}\n',
            },
            "text/csv": {
                "schema": {"type": "string"},
                "example": "id,time,y,temperature\n7,2026-03-01T12:00:00Z,1.5,3.0\n",
            },
        },
    }
}


@router.post(
    "/streams/{key}/observations",
    summary="Send observations",
    openapi_extra=_BODY,
    responses={
        408: {"model": Problem, "description": "The body did not arrive in time."},
        409: {"model": Problem, "description": "A sequence number leaves a gap."},
        413: {"model": Problem, "description": "The body or its number of rows is too large."},
        415: {"model": Problem, "description": "The content type is not known."},
    },
)
async def post_observations(key: Key, request: Request, service: Serving, token: Caller) -> Receipt:
    """One observation, an array, JSON lines or CSV; all of a request is stored, or nothing.

    The answer comes when the observations and their outputs are durable. An `id` (or `seq`) that
    was stored before has no second effect, so a request without an answer may be sent again.
    """
    demand(token, "write", key)
    number = await stream_number(service, key)
    content = await _body(request, service)
    kind = request.headers.get("content-type", "")
    if len(content) > _THREAD:
        rows = await asyncio.to_thread(bodies.read, content, kind, service.config.limits)
    else:
        rows = bodies.read(content, kind, service.config.limits)
    try:
        outcome = await asyncio.wait_for(
            service.ingest.submit(number, rows), service.config.limits.answer_seconds
        )
    except TimeoutError:
        raise HTTPException(
            503, "This takes long; send it again with the same ids.", {"Retry-After": "2"}
        ) from None
    if outcome.error is not None:
        raise HTTPException(409 if outcome.conflict else 422, outcome.error)
    return Receipt(accepted=outcome.accepted, duplicates=outcome.duplicates, rows=outcome.rows)


async def _body(request: Request, service: Service) -> bytes:
    limits = service.config.limits
    too_large = HTTPException(413, f"A body may have {limits.body_bytes} bytes; send it in parts.")
    if int(request.headers.get("content-length") or 0) > limits.body_bytes:
        raise too_large
    content = bytearray()
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                content += chunk
                if len(content) > limits.body_bytes:
                    raise too_large
    except TimeoutError:
        raise HTTPException(408, "The body did not arrive in time.") from None
    return bytes(content)


Bound = Annotated[
    str | None,
    Query(max_length=64, description="A sequence number, or an ISO 8601 time."),
]


@router.get("/streams/{key}/observations", summary="Observations with their outputs")
async def get_observations(
    stream: Readable,
    service: Serving,
    start: Annotated[Bound, Query(alias="from")] = None,
    end: Annotated[Bound, Query(alias="to")] = None,
    points: Annotated[
        int | None, Query(ge=1, le=5000, description="Gather into at most so many buckets.")
    ] = None,
) -> Observations:
    """[from, to) in sequence numbers or times; without `points` at most 10 000 rows."""
    return await service.read(_window, stream, start, end, points)


def _window(
    connection: Connection, stream: Stream, start: str | None, end: str | None, points: int | None
) -> Observations:
    first = _bound(connection, stream, "from", start, 0)
    last = _bound(connection, stream, "to", end, stream.n_rows)
    first, last = min(first, stream.n_rows), min(last, stream.n_rows)
    aggregated = points is not None and last - first > points
    if not aggregated:
        last = min(last, first + _WINDOW)
    content: dict[str, Any] = {"observations": [], "buckets": []}
    if aggregated:
        assert points is not None
        content["buckets"] = history.buckets(connection, stream.id, first, last, points)
    else:
        content["observations"] = history.rows(connection, stream.id, first, last)
    return Observations(
        start=first,
        end=max(first, last),
        rows=stream.n_rows,
        aggregated=aggregated,
        segments=[Segment(**one) for one in history.ribbon(connection, stream, first, last)],
        **content,
    )


def _bound(
    connection: Connection, stream: Stream, name: str, given: str | None, default: int
) -> int:
    if given is None:
        return default
    try:
        return max(0, min(int(given), stream.n_rows))
    except ValueError:
        pass
    try:
        at = bodies.seconds(given)
    except (ValueError, OverflowError):
        raise HTTPException(
            422, f"{name} must be a sequence number or an ISO 8601 time, got {given!r}."
        ) from None
    if not stream.timed:
        raise HTTPException(
            422, f"{name}: the observations of {stream.key!r} have no times in order."
        )
    return history.position(connection, stream, at)


@router.get(
    "/streams/{key}/live",
    summary="Follow a stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def live(
    stream: Readable,
    request: Request,
    service: Serving,
    start: Annotated[
        int | None, Query(alias="from", ge=0, le=2**53, description="First sequence number.")
    ] = None,
) -> StreamingResponse:
    """Server-sent events `observation` and `event`; Last-Event-ID resumes where it broke off."""
    if service.hub.connections >= service.config.limits.live:
        raise HTTPException(429, "Too many live connections are open.", {"Retry-After": "10"})
    last = request.headers.get("last-event-id", "")
    first = stream.n_rows if start is None else start
    if last.isdecimal():  # one that was never reached is of other times: a backup, another stream
        first = min(int(last[:20]) + 1, stream.n_rows)
    followed = service.hub.follow(stream.id, first, _fetcher(service, stream.key, stream.id))
    return StreamingResponse(
        _counted(service, followed),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _counted(service: Service, messages: AsyncIterator[str]) -> AsyncIterator[str]:
    with service.metrics.live.track_inprogress():
        async for message in messages:
            yield message


def _fetcher(service: Service, key: str, number: int) -> Any:
    async def fetch(start: int) -> Any:
        return await service.read(_news, key, number, start)

    return fetch


def _news(connection: Connection, key: str, number: int, start: int) -> Any:
    stream = streams.find(connection, key)
    if stream is None or stream.id != number:
        return None
    end = min(stream.n_rows, start + CHUNK)
    rows = history.rows(connection, number, start, end) if end > start else []
    found = streams.event_page(connection, number, start, None, 5000, False) if rows else []
    return rows, [event for event in found if event["seq"] < end]
