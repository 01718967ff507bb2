"""What routes share: the service, the caller's token, a stream by its key, answers of workers."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Path, Request

from regimekit.server.schemas import KEY, Problem
from regimekit.server.security import demand
from regimekit.server.service import Service
from regimekit.server.storage import streams
from regimekit.server.storage.access import Token
from regimekit.server.storage.streams import Stream
from regimekit.server.worker import Refused

PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": text}
    for status, text in {
        400: "The request cannot be read.",
        401: "A token is needed.",
        403: "The token does not give this right.",
        404: "There is no such stream.",
        422: "The request cannot be used; the detail says why.",
        429: "Too much is asked; come again after Retry-After seconds.",
        503: "Not now; come again after Retry-After seconds.",
    }.items()
}


def of_app(request: Request) -> Service:
    """The service behind the application."""
    service: Service = request.app.state.service
    return service


Serving = Annotated[Service, Depends(of_app)]


async def identify(request: Request, service: Serving) -> Token:
    """Who asks."""
    token = await service.guard.identify(request)
    request.state.token = token.name
    return token


Caller = Annotated[Token, Depends(identify)]
Key = Annotated[
    str,
    Path(pattern=KEY, description="Name of a stream.", examples=["plant1.press3.load"]),
]


async def readable(key: Key, token: Caller, service: Serving) -> Stream:
    """The stream, for a caller who may read it."""
    demand(token, "read", key)
    return await _existing(service, key)


async def writable(key: Key, token: Caller, service: Serving) -> Stream:
    """The stream, for a caller who may write it."""
    demand(token, "write", key)
    return await _existing(service, key)


Readable = Annotated[Stream, Depends(readable)]
Writable = Annotated[Stream, Depends(writable)]


async def stream_number(service: Service, key: str) -> int:
    """The number of a stream, remembered: only this service makes and deletes streams."""
    if key not in service.numbers:
        service.numbers[key] = (await _existing(service, key)).id
    return service.numbers[key]


async def _existing(service: Service, key: str) -> Stream:
    stream = await service.read(streams.find, key)
    if stream is None:
        raise HTTPException(404, f"There is no stream {key!r}; make it with PUT /streams/{key}.")
    return stream


async def ask(service: Service, stream: Stream, verb: str, *arguments: Any) -> Any:
    """A worker's answer about a stream, in time."""
    try:
        answer = await asyncio.wait_for(
            service.pool.ask(stream.id, verb, *arguments), service.config.limits.answer_seconds
        )
    except TimeoutError:
        raise HTTPException(503, "The model is busy; ask again.", {"Retry-After": "2"}) from None
    return unwrapped(answer)


def unwrapped(answer: Any) -> Any:
    """The answer, or the error it stands for."""
    if not isinstance(answer, Refused):
        return answer
    status = {"refused": 422, "missing": 404}.get(answer.kind, 500)
    raise HTTPException(status, answer.reason)
