"""Routes of observations: send them, read them with their outputs, follow them live."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from fastapi.routing import APIRoute
from sqlalchemy import Connection

from regimekit.server.auth import (
    ReadableStream,
    RunningService,
    StreamKey,
    caller,
    find_stream,
    require,
)
from regimekit.server.event_stream import MAX_ROWS
from regimekit.server.request_parsing import parse_body, timestamp
from regimekit.server.schemas import (
    KEY_PATTERN,
    ObservationBody,
    Observations,
    Problem,
    Receipt,
    Segment,
)
from regimekit.server.service import Service
from regimekit.server.storage import observations, streams
from regimekit.server.storage.streams import Stream
from regimekit.server.stream_routes import PROBLEMS


class _DirectRoute(APIRoute):
    """Pass path and request to the endpoint, without the dependencies and checks of FastAPI.

    They would double the cost of the most frequent request; the endpoint makes its own checks.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def handle(request: Request) -> Response:
            answer: Response = await self.endpoint(request.path_params["key"], request)
            return answer

        return handle


router = APIRouter(tags=["observations"], responses=PROBLEMS)
_direct = APIRouter(route_class=_DirectRoute)
_THREAD_BYTES = 64 * 1024  # larger bodies are parsed in a thread
_MAX_WINDOW = 10_000  # observations returned without aggregation

_SCHEMA = ObservationBody.model_json_schema()
_EXAMPLE = _SCHEMA.pop("example")
_REQUEST_BODY = {
    "required": True,
    "content": {
        "application/json": {
            "schema": {"oneOf": [_SCHEMA, {"type": "array", "items": _SCHEMA, "minItems": 1}]},
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


@_direct.post(
    "/streams/{key}/observations",
    summary="Send observations",
    openapi_extra={"requestBody": _REQUEST_BODY},
    response_model=Receipt,
    responses={
        408: {"model": Problem, "description": "The body did not arrive in time."},
        409: {"model": Problem, "description": "A sequence number leaves a gap."},
        413: {"model": Problem, "description": "The body has too many bytes or rows."},
        415: {"model": Problem, "description": "The content type is not supported."},
    },
)
async def post_observations(key: StreamKey, request: Request) -> JSONResponse:
    """One observation, an array, JSON lines or CSV; a request is stored as a whole or not at all.

    The response is sent when the observations and their outputs are durable. An `id` (or `seq`)
    that was stored before has no effect, so a request without a response can be sent again.
    Observations are processed in the order of arrival; `out_of_order` counts those whose times
    go back.
    """
    service: Service = request.app.state.service
    token = await caller(request)
    limits = service.config.limits
    if key not in service.stream_ids and not re.fullmatch(KEY_PATTERN, key):
        raise HTTPException(422, f"The key of a stream must match {KEY_PATTERN}, got {key!r}.")
    require(token, "write", key)
    if key not in service.stream_ids:
        service.stream_ids[key] = (await find_stream(service, key)).id
    stream = service.stream_ids[key]
    content = await request.body()
    kind = request.headers.get("content-type", "")
    if len(content) > _THREAD_BYTES:
        rows = await asyncio.to_thread(parse_body, content, kind, limits)
    else:
        rows = parse_body(content, kind, limits)
    future = service.ingestion.submit(stream, rows)
    # `wait_for` would cancel the future, but the rows are stored even if the client has left.
    await asyncio.wait([future], timeout=limits.answer_seconds)
    if not future.done():
        raise HTTPException(
            503,
            f"The observations were not stored within {limits.answer_seconds:g} s. Send them "
            "again with the same ids.",
            {"Retry-After": "2"},
        )
    result = future.result()
    if result.error is not None:
        raise HTTPException(409 if result.conflict else 422, result.error)
    return JSONResponse({name: getattr(result, name) for name in Receipt.model_fields})


router.include_router(_direct)

Bound = Annotated[
    str | None, Query(max_length=64, description="A sequence number or an ISO 8601 time.")
]


@router.get("/streams/{key}/observations", summary="Read observations with their outputs")
async def get_observations(
    stream: ReadableStream,
    service: RunningService,
    start: Annotated[Bound, Query(alias="from")] = None,
    end: Annotated[Bound, Query(alias="to")] = None,
    points: Annotated[
        int | None, Query(ge=1, le=5000, description="Aggregate into at most so many buckets.")
    ] = None,
) -> Observations:
    """The window [from, to), given by sequence numbers or times.

    Without `points` at most 10 000 observations are returned.
    """
    return await service.read(_window, stream, start, end, points)


def _window(
    connection: Connection, stream: Stream, start: str | None, end: str | None, points: int | None
) -> Observations:
    first = _position(connection, stream, "from", start, 0)
    last = _position(connection, stream, "to", end, stream.n_rows)
    content: dict[str, Any] = {"observations": [], "buckets": []}
    if points is not None and last - first > points:
        content["buckets"] = observations.buckets(connection, stream.id, first, last, points)
    else:
        last = min(last, first + _MAX_WINDOW)
        content["observations"] = observations.window(connection, stream.id, first, last)
    segments = observations.regime_segments(connection, stream, first, last)
    return Observations(
        start=first,
        end=max(first, last),
        rows=stream.n_rows,
        aggregated=bool(content["buckets"]),
        segments=[Segment(**segment) for segment in segments],
        **content,
    )


def _position(
    connection: Connection, stream: Stream, name: str, given: str | None, default: int
) -> int:
    """Convert `from` or `to` to a sequence number in [0, rows]."""
    if given is None:
        return default
    try:
        return max(0, min(int(given), stream.n_rows))
    except ValueError:
        pass
    try:
        at = timestamp(given)
    except (ValueError, OverflowError):
        raise HTTPException(
            422, f"{name} must be a sequence number or an ISO 8601 time, got {given!r}."
        ) from None
    if not stream.timed:
        raise HTTPException(
            422,
            f"{name} must be a sequence number: not all observations of {stream.key!r} have "
            "times in order.",
        )
    return observations.position_of_time(connection, stream, at)


@router.get(
    "/streams/{key}/live",
    summary="Follow a stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def live(
    stream: ReadableStream,
    request: Request,
    service: RunningService,
    start: Annotated[
        int | None, Query(alias="from", ge=0, le=2**53, description="First sequence number.")
    ] = None,
) -> StreamingResponse:
    """Server-sent events `observation` and `event`. Last-Event-ID resumes after a disconnection."""
    limit = service.config.limits.live
    if service.broker.connections >= limit:
        raise HTTPException(
            429, f"At most {limit} event streams can be open.", {"Retry-After": "10"}
        )
    last = request.headers.get("last-event-id", "")
    first = stream.n_rows if start is None else start
    if last.isdecimal():
        # An id beyond the end belongs to an earlier stream or to the time before a restore.
        first = min(int(last[:20]) + 1, stream.n_rows)

    async def fetch(start: int) -> Any:
        return await service.read(_new_rows, stream, start)

    async def messages() -> AsyncIterator[str]:
        with service.metrics.live.track_inprogress():
            async for message in service.broker.subscribe(stream.id, first, fetch):
                yield message

    return StreamingResponse(
        messages(),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


def _new_rows(connection: Connection, stream: Stream, start: int) -> Any:
    """Return the next observations and their events; None if the stream was deleted."""
    current = streams.find(connection, stream.key)
    if current is None or current.id != stream.id:
        return None
    end = min(current.n_rows, start + MAX_ROWS)
    if end <= start:
        return [], []
    rows = observations.window(connection, stream.id, start, end)
    events = streams.list_events(connection, stream.id, start, None, 5000, False)
    return rows, [event for event in events if event["seq"] < end]
