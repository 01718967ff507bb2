"""A stream that feeds itself, so that the page has something to show."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from sqlalchemy import Connection

from regimekit import datasets as data
from regimekit.server.config import default_model
from regimekit.server.rows import Row
from regimekit.server.service import Service
from regimekit.server.storage import streams

KEY = "demo"
_PAUSE = 0.5
_PAST = 300  # observations the demonstration begins with
_TOGETHER = 10
_CHAPTER = 2000


async def feed(service: Service) -> asyncio.Task[None]:
    """Make the stream and start feeding; the task runs until it is cancelled."""
    stream = await service.write(_found)
    return asyncio.create_task(_feed(service, stream))


async def _feed(service: Service, stream: streams.Stream) -> None:
    while not service.ready:
        await asyncio.sleep(0.05)
    values = _values(stream.n_rows)
    past = _PAST if stream.n_rows == 0 else 0
    begun = time.time() - _PAUSE * (stream.n_rows + past)  # its clock ticks once per value
    while past > 0:
        some = min(past, _TOGETHER) if service.pool.compiled else 1  # slow at first: show each
        rows = [_row(n, y, begun + _PAUSE * n) for n, y in _some(values, some)]
        await service.ingest.submit(stream.id, rows)
        past -= some
    while True:
        rows = [_row(n, y, begun + _PAUSE * n) for n, y in _some(values, 1)]
        await service.ingest.submit(stream.id, rows)
        await asyncio.sleep(_PAUSE)


def _found(connection: Connection) -> streams.Stream:
    return streams.find(connection, KEY) or streams.create(connection, KEY, default_model(), {})


def _values(start: int) -> Iterator[tuple[int, float]]:
    """The n-th value of the demonstration is always the same, so a restart goes on."""
    number = start
    while True:
        chapter = data.regime_stream(seed=number // _CHAPTER, n=_CHAPTER, stay=0.985).y
        for y in chapter[number % _CHAPTER :]:
            yield number, float(y)
            number += 1


def _some(values: Iterator[tuple[int, float]], count: int) -> list[tuple[int, float]]:
    return [next(values) for _ in range(count)]


def _row(number: int, y: float, at: float) -> Row:
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return Row(y, None, f"demo-{number}", None, moment.replace("+00:00", "Z"), at)
