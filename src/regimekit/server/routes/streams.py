"""Streams: make, list, look at, delete; names of regimes, events and who has seen them."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi import Path as InPath
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

import regimekit as rk
from regimekit.core.exceptions import unknown
from regimekit.server.config import default_model
from regimekit.server.routes.common import (
    PROBLEMS,
    Caller,
    Key,
    Readable,
    Serving,
    Writable,
    unwrapped,
)
from regimekit.server.schemas import (
    Acknowledgement,
    Events,
    Problem,
    RegimeName,
    StreamInfo,
    StreamPage,
    StreamSettings,
)
from regimekit.server.security import demand
from regimekit.server.service import Service
from regimekit.server.storage import history, streams
from regimekit.server.storage.streams import Stream

router = APIRouter(tags=["streams"], responses=PROBLEMS)
_LARGEST = {"particles": 5000, "max_regimes": 200, "batch": 10_000, "structure_sweeps": 100}
_STALE = 10.0  # times the usual interval
_SPARK = 60

Number = Annotated[int, InPath(ge=0, le=2**31 - 1)]


@router.get("/streams", summary="All streams at a glance")
async def list_streams(
    service: Serving,
    token: Caller,
    search: Annotated[str, Query(max_length=128, pattern=r"^[^\x00]*$")] = "",
    sort: Literal["key", "latest", "change", "rows"] = "key",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    offset: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
) -> StreamPage:
    """Streams the caller may read, with their latest values for a sparkline."""
    return await service.read(_page, search, sort, limit, offset, token.prefixes("read"))


def _page(
    connection: Connection, search: str, sort: str, limit: int, offset: int, prefixes: list[str]
) -> StreamPage:
    total, found = streams.listing(connection, search, sort, limit, offset, prefixes)
    tails = history.latest(connection, found, _SPARK)
    return StreamPage(total=total, streams=[_info(connection, one, tails[one.id]) for one in found])


def _info(connection: Connection, stream: Stream, tail: list[Any]) -> StreamInfo:
    last = streams.event_page(connection, stream.id, 0, "-outlier", 1, newest=True)
    names = streams.names(connection, stream.id)
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
        regime_name=names.get(stream.regime, (None, ""))[0] or None,
        change_probability=stream.change_probability,
        last_received=stream.last_received,
        last_time=stream.last_at,
        timed=stream.timed and stream.n_rows > 0,
        health=_health(stream, tail),
        spark=[row.y for row in tail],
        spark_regimes=[row.regime for row in tail],
        last_event=last[0] if last else None,
    )


def _health(stream: Stream, tail: list[Any]) -> str:
    """Stale: nothing came for ten times the usual interval, half a minute at least."""
    if stream.last_received is None or not tail:
        return "waiting"
    usual = (tail[-1].received - tail[0].received) / max(len(tail) - 1, 1)
    return "stale" if time.time() - stream.last_received > max(30.0, _STALE * usual) else "live"


def info(connection: Connection, stream: Stream) -> StreamInfo:
    """A stream with its latest values."""
    return _info(connection, stream, history.latest(connection, [stream], _SPARK)[stream.id])


@router.put(
    "/streams/{key}",
    summary="Make a stream",
    status_code=200,
    responses={
        201: {"model": StreamInfo, "description": "The stream is new."},
        409: {"model": Problem, "description": "It exists with other settings."},
    },
)
async def put_stream(
    key: Key, body: StreamSettings, service: Serving, token: Caller, response: Response
) -> StreamInfo:
    """`{}` makes a stream with the default model. The same again changes nothing."""
    demand(token, "write", key)
    settings = dict(body.model_extra or {})
    model = body.model or default_model()
    made = await service.read(streams.find, key)
    if made is None:
        _within_limits(model, settings)
        unwrapped(await service.pool.check(model, settings))
        made, new = await _create(service, key, model, settings)
        response.status_code = 201 if new else 200
    if (made.model, made.settings) != (model, settings) and (body.model or settings):
        raise HTTPException(
            409,
            f"The stream {key!r} exists with model {made.model!r} and settings "
            f"{made.settings}; delete it to begin anew.",
        )
    return await service.read(info, made)


def _within_limits(model: str, settings: dict[str, Any]) -> None:
    if model not in rk.models():
        raise HTTPException(422, str(unknown("model", model, rk.models())))
    for name, most in _LARGEST.items():
        value = settings.get(name, 0)
        if isinstance(value, (int, float)) and value > most:
            raise HTTPException(422, f"{name} may be at most {most} here, got {value}.")


async def _create(
    service: Service, key: str, model: str, settings: dict[str, Any]
) -> tuple[Stream, bool]:
    count, _ = await service.read(streams.totals)
    if count >= service.config.limits.streams:
        raise HTTPException(422, f"There are {count} streams already, which is the limit.")
    try:
        return await service.write(streams.create, key, model, settings), True
    except IntegrityError:  # somebody made it meanwhile
        made = await service.read(streams.find, key)
        if made is None:
            raise
        return made, False


@router.get("/streams/{key}", summary="One stream")
async def get_stream(stream: Readable, service: Serving) -> StreamInfo:
    """A stream as it stands."""
    return await service.read(info, stream)


@router.delete("/streams/{key}", summary="Delete a stream", status_code=204)
async def delete_stream(stream: Writable, service: Serving) -> None:
    """The stream, its observations, outputs, events and snapshot; there is no way back."""
    service.numbers.pop(stream.key, None)
    await service.write(streams.remove, stream.id)
    service.numbers.pop(stream.key, None)  # a request may have looked it up meanwhile
    await service.pool.ask(stream.id, "drop")
    service.hub.stored(stream.id)


@router.get("/streams/{key}/events", summary="Events")
async def get_events(
    stream: Readable,
    service: Serving,
    since: Annotated[
        int, Query(ge=0, le=2**53, description="Known at this observation or later.")
    ] = 0,
    kind: Annotated[
        str | None,
        Query(
            max_length=64,
            pattern=r"^[^\x00]*$",
            description="Only this kind; with a minus before it, all but this kind.",
        ),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=5000)] = 1000,
    newest: Annotated[bool, Query(description="The latest `limit` ones.")] = False,
) -> Events:
    """Appended when they become known, never rewritten."""
    found = await service.read(streams.event_page, stream.id, since, kind, limit, newest)
    return Events.model_validate({"events": found})


@router.post(
    "/streams/{key}/events/{number}/acknowledge",
    summary="Note that an event was seen",
    status_code=204,
)
async def acknowledge(
    stream: Writable, number: Number, body: Acknowledgement, service: Serving, token: Caller
) -> None:
    """Who has seen an event, and what they say of it."""
    known = await service.write(streams.acknowledge, stream.id, number, token.name, body.note)
    if not known:
        raise HTTPException(404, f"The stream {stream.key!r} has no event {number}.")


@router.put("/streams/{key}/regimes/{regime}", summary="Name a regime", status_code=204)
async def name_regime(stream: Writable, regime: Number, body: RegimeName, service: Serving) -> None:
    """The name is shown wherever the regime is, in events and webhooks too."""
    await service.write(streams.name_regime, stream.id, regime, body.name, body.note)
    service.hub.stored(stream.id)
