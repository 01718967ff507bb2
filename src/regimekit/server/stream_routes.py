"""Routes of streams: create, list, delete; events and the names of regimes."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Path, Query, Response
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

import regimekit as rk
from regimekit.alerts.rules import DEFAULT_WARMUP
from regimekit.core.exceptions import unknown
from regimekit.core.registry import DEFAULT_MODEL
from regimekit.server import schemas
from regimekit.server.auth import (
    Caller,
    ReadableStream,
    RunningService,
    StreamKey,
    WritableStream,
    require,
)
from regimekit.server.schemas import Problem, StreamInfo
from regimekit.server.service import Service
from regimekit.server.storage import alerts, observations, streams
from regimekit.server.storage.streams import Stream
from regimekit.server.workers import Failure

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "The request is malformed.",
        401: "A token is required.",
        403: "The token does not permit this.",
        404: "The stream does not exist.",
        422: "The request is invalid; `detail` has the reason.",
        429: "Too many requests. Retry after the seconds in Retry-After.",
        503: "Temporarily unavailable. Retry after the seconds in Retry-After.",
    }.items()
}
router = APIRouter(tags=["streams"], responses=PROBLEMS)

# Largest settings of a stream's model, so that one stream cannot exhaust a worker.
_MAX_SETTINGS = {
    "particles": 5000,
    "max_regimes": 200,
    "batch": 1000,
    "structure_sweeps": 100,
    "cloud": 2000,
    "islands": 50,
}
_STALE_INTERVALS = 10.0  # usual intervals without an observation
_STALE_SECONDS = 30.0  # at least
_SPARKLINE_ROWS = 60

Number = Annotated[int, Path(ge=0, le=2**31 - 1)]


def unwrap(answer: Any) -> Any:
    """Return the answer of a worker; raise HTTPException if it is a `Failure`."""
    if not isinstance(answer, Failure):
        return answer
    status = {"invalid": 422, "missing": 404}.get(answer.kind, 500)
    raise HTTPException(status, answer.reason)


@router.get("/streams", summary="List streams")
async def list_streams(
    service: RunningService,
    token: Caller,
    search: Annotated[str, Query(max_length=128, pattern=r"^[^\x00]*$")] = "",
    sort: Literal["key", "latest", "change", "rows"] = "key",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    offset: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
) -> schemas.StreamPage:
    """Streams that the caller may read, with their latest values for a sparkline."""
    return await service.read(_page, search, sort, limit, offset, token.prefixes("read"))


def _page(connection: Connection, *arguments: Any) -> schemas.StreamPage:
    total, found = streams.list_page(connection, *arguments)
    return schemas.StreamPage(total=total, streams=stream_infos(connection, found))


def stream_info(connection: Connection, stream: Stream) -> StreamInfo:
    """Return the state of a stream with its latest values and its latest event."""
    return stream_infos(connection, [stream])[0]


def stream_infos(connection: Connection, found: list[Stream]) -> list[StreamInfo]:
    """Return the states of streams."""
    rules = [stored.rule for stored in alerts.list_rules(connection)]
    active = alerts.count_open(connection, [stream.id for stream in found])
    infos = []
    for stream in found:
        count, severity = active.get(stream.id, (0, None))
        warmup = max(
            [rule.warmup for rule in rules if rule.applies(stream.key)] or [DEFAULT_WARMUP]
        )
        more = {"open_alerts": count, "severity": severity, "warmup": warmup}
        infos.append(_stream_info(connection, stream, more))
    return infos


def _stream_info(connection: Connection, stream: Stream, more: dict[str, Any]) -> StreamInfo:
    rows = observations.latest(connection, stream, _SPARKLINE_ROWS)
    last = streams.list_events(connection, stream.id, 0, "-outlier", 1, newest=True)
    labels = streams.regime_labels(connection, stream.id)
    return StreamInfo(
        key=stream.key,
        model=stream.model,
        settings=stream.settings,
        created=stream.created,
        rows=stream.n_rows,
        events=stream.n_events,
        outliers=stream.n_outliers,
        regimes=stream.n_regimes,
        regime=stream.regime,
        regime_name=labels.get(stream.regime, streams.NO_LABEL).name or None,
        change_probability=stream.change_probability,
        last_received=stream.last_received,
        last_time=stream.last_at,
        timed=stream.timed and stream.n_rows > 0,
        health=_health(stream, rows),
        spark=[row.y for row in rows],
        spark_regimes=[row.regime for row in rows],
        last_event=last[0] if last else None,
        **more,
    )


def _health(stream: Stream, rows: list[Any]) -> str:
    if stream.last_received is None or not rows:
        return "waiting"
    interval = (rows[-1].received - rows[0].received) / max(len(rows) - 1, 1)
    silence = time.time() - stream.last_received
    return "stale" if silence > max(_STALE_SECONDS, _STALE_INTERVALS * interval) else "live"


@router.put(
    "/streams/{key}",
    summary="Create a stream",
    status_code=200,
    responses={
        201: {"model": StreamInfo, "description": "The stream was created."},
        409: {"model": Problem, "description": "The stream exists with other settings."},
    },
)
async def put_stream(
    key: StreamKey,
    body: schemas.StreamSettings,
    service: RunningService,
    token: Caller,
    response: Response,
) -> StreamInfo:
    """`{}` selects the default model. Repeating the request has no effect."""
    require(token, "write", key)
    settings = dict(body.model_extra or {})
    model = body.model or DEFAULT_MODEL
    stream = await service.read(streams.find, key)
    if stream is None:
        _check_limits(model, settings)
        unwrap(await service.pool.check_settings(model, settings))
        stream, created = await _create(service, key, model, settings)
        response.status_code = 201 if created else 200
    if (stream.model, stream.settings) != (model, settings) and (body.model or settings):
        raise HTTPException(
            409,
            f"The stream {key!r} exists with model {stream.model!r} and settings "
            f"{stream.settings}. Delete it first to change them.",
        )
    return await service.read(stream_info, stream)


def _check_limits(model: str, settings: dict[str, Any]) -> None:
    if model not in rk.models():
        raise HTTPException(422, str(unknown("model", model, rk.models())))
    for name, most in _MAX_SETTINGS.items():
        value = settings.get(name, 0)
        if isinstance(value, (int, float)) and value > most:
            raise HTTPException(422, f"{name} must be at most {most}, got {value}.")


async def _create(
    service: Service, key: str, model: str, settings: dict[str, Any]
) -> tuple[Stream, bool]:
    """Create a stream; return it and whether it is new."""
    count, _ = await service.read(streams.totals)
    if count >= service.config.limits.streams:
        raise HTTPException(422, f"The number of streams is limited to {count}. Delete a stream.")
    try:
        return await service.write(streams.create, key, model, settings), True
    except IntegrityError:
        # Another request created it in the meantime.
        stream = await service.read(streams.find, key)
        if stream is None:
            raise
        return stream, False


@router.get("/streams/{key}", summary="Show a stream")
async def get_stream(stream: ReadableStream, service: RunningService) -> StreamInfo:
    """State of a stream, with its latest values and its latest event."""
    return await service.read(stream_info, stream)


@router.delete("/streams/{key}", summary="Delete a stream", status_code=204)
async def delete_stream(stream: WritableStream, service: RunningService) -> None:
    """Delete a stream with its observations, events and model. This cannot be undone."""
    service.stream_ids.pop(stream.key, None)
    await service.write(streams.remove, stream.id)
    # Again: a concurrent request may have cached the id before the deletion.
    service.stream_ids.pop(stream.key, None)
    await service.pool.call(stream.id, "drop")
    service.broker.notify(stream.id)


@router.get("/streams/{key}/events", summary="List events")
async def get_events(
    stream: ReadableStream,
    service: RunningService,
    since: Annotated[
        int, Query(ge=0, le=2**53, description="Detected at this observation or later.")
    ] = 0,
    kind: Annotated[
        str | None,
        Query(
            max_length=64,
            pattern=r"^[^\x00]*$",
            description="Only this kind; with a leading minus, every other kind.",
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 1000,
    newest: Annotated[bool, Query(description="Return the latest `limit` events.")] = False,
) -> schemas.Events:
    """Events in the order of detection. Stored events are never changed, only acknowledged."""
    found = await service.read(streams.list_events, stream.id, since, kind, limit, newest)
    return schemas.Events.model_validate({"events": found})


@router.post(
    "/streams/{key}/events/{number}/acknowledge", summary="Acknowledge an event", status_code=204
)
async def acknowledge(
    stream: WritableStream,
    number: Number,
    body: schemas.Acknowledgement,
    service: RunningService,
    token: Caller,
) -> None:
    """Store the name of the token and a note with the event."""
    known = await service.write(streams.acknowledge, stream.id, number, token.name, body.note)
    if not known:
        raise HTTPException(404, f"The stream {stream.key!r} has no event {number}.")


@router.put("/streams/{key}/regimes/{regime}", summary="Label a regime", status_code=204)
async def name_regime(
    stream: WritableStream, regime: Number, body: schemas.RegimeName, service: RunningService
) -> None:
    """The name appears wherever the regime does, also in events and webhooks.

    A rule of kind "fault" alerts while the stream is in a regime with status "fault".
    """
    label = streams.RegimeLabel(body.name, body.note, body.status)
    await service.write(streams.label_regime, stream.id, regime, label)
    service.policy_changed()
    service.broker.notify(stream.id)
