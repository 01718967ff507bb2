"""Server-sent events of a stream, resumable by the sequence number of the last observation.

A connection reads what is stored after the last observation it sent and then waits for a
notification. So no state is kept per connection, and a client that reconnects with its
Last-Event-ID misses nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

MAX_ROWS = 500  # observations per query
_HEARTBEAT = 10.0  # seconds between comments on an idle connection

Rows = list[dict[str, Any]]
Fetch = Callable[[int], Awaitable[tuple[Rows, Rows] | None]]


class EventBroker:
    """Notify connections of new observations.

    Attributes:
        connections: number of open event streams.
    """

    def __init__(self, stopping: asyncio.Event) -> None:
        """Create a broker; its event streams end when `stopping` is set."""
        self._stopping = stopping
        self._waiting: defaultdict[int, set[asyncio.Event]] = defaultdict(set)
        self.connections = 0

    def notify(self, stream: int) -> None:
        """Wake the connections of a stream that changed or was deleted."""
        for event in self._waiting.get(stream, ()):
            event.set()

    def notify_all(self) -> None:
        """Wake all connections, because the service is stopping."""
        for stream in list(self._waiting):
            self.notify(stream)

    async def subscribe(self, stream: int, start: int, fetch: Fetch) -> AsyncIterator[str]:
        """Yield messages until the service stops or the stream is deleted.

        Args:
            stream: id of the stream.
            start: sequence number of the first observation.
            fetch: returns observations from a sequence number on and their events, or None if
                the stream does not exist.
        """
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
                if len(found[0]) < MAX_ROWS:
                    try:
                        await asyncio.wait_for(wake.wait(), _HEARTBEAT)
                    except TimeoutError:
                        yield ": heartbeat\n\n"
        finally:
            self.connections -= 1
            self._waiting[stream].discard(wake)
            if not self._waiting[stream]:
                del self._waiting[stream]


def _messages(rows: Rows, events: Rows) -> list[str]:
    """Format observations, each after the events it caused: its id then covers both."""
    by_seq: defaultdict[int, Rows] = defaultdict(list)
    for event in events:
        by_seq[event["seq"]].append(event)
    messages = []
    for row in rows:
        messages += [f"event: event\ndata: {_dump(event)}\n\n" for event in by_seq[row["seq"]]]
        messages.append(f"id: {row['seq']}\nevent: observation\ndata: {_dump(row)}\n\n")
    return messages


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
