"""Server-sent events of a stream, resumable: the id of a message is the observation's number.

A connection reads what is stored after the last number it has sent and then waits to be woken.
So nothing is kept per connection, and a client that comes back with its Last-Event-ID misses
nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

_HEARTBEAT = 10.0
CHUNK = 500  # observations read at a time

Fetch = Callable[[int], Awaitable[tuple[list[dict[str, Any]], list[dict[str, Any]]] | None]]


class Hub:
    """Wakes those who wait for a stream."""

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._waiting: defaultdict[int, set[asyncio.Event]] = defaultdict(set)
        self.connections = 0

    def stored(self, stream: int) -> None:
        """There are new observations, or the stream is gone."""
        for event in self._waiting.get(stream, ()):
            event.set()

    def stop(self) -> None:
        """Wake everyone: the service is stopping."""
        for stream in list(self._waiting):
            self.stored(stream)

    async def follow(self, stream: int, start: int, fetch: Fetch) -> AsyncIterator[str]:
        """Messages from observation `start` on, until the service stops or the stream is gone."""
        wake = asyncio.Event()
        self._waiting[stream].add(wake)
        self.connections += 1
        try:
            yield "retry: 1000\n\n"
            while not self._stopping.is_set():
                wake.clear()
                found = await fetch(start)
                if found is None:
                    yield "event: gone\ndata: {}\n\n"
                    return
                for message in _messages(*found):
                    yield message
                start += len(found[0])
                if len(found[0]) < CHUNK and not await _woken(wake):
                    yield ": still here\n\n"
        finally:
            self.connections -= 1
            self._waiting[stream].discard(wake)
            if not self._waiting[stream]:
                del self._waiting[stream]


async def _woken(wake: asyncio.Event) -> bool:
    try:
        await asyncio.wait_for(wake.wait(), _HEARTBEAT)
    except TimeoutError:
        return False
    return True


def _messages(rows: list[dict[str, Any]], events: list[dict[str, Any]]) -> list[str]:
    """Events before the observation that made them known: its id then covers both."""
    of: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        of[event["seq"]].append(event)
    messages = []
    for row in rows:
        messages += [f"event: event\ndata: {_dump(event)}\n\n" for event in of[row["seq"]]]
        messages.append(f"id: {row['seq']}\nevent: observation\ndata: {_dump(row)}\n\n")
    return messages


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
