"""A thread that processes queued items in batches, and hands the results to an event loop.

While a batch is processed, the next items collect in the queue. So batches grow with the load, and
fixed costs per batch (a transaction, a message to a process, waking the event loop) are shared.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class BatchingQueue(Generic[Item]):
    """Call `process` with lists of queued items, in the order of arrival."""

    def __init__(
        self, process: Callable[[list[Item]], list[Any]], max_items: int, name: str
    ) -> None:
        """Start the thread.

        Args:
            process: called in the thread with 1 to `max_items` items. It returns their results,
                where an exception fails the item, and must not raise.
            max_items: largest number of items per call.
            name: name of the thread.
        """
        self._process, self._max_items = process, max_items
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[Item, asyncio.Future[Any]] | None]
        self._queue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item) -> asyncio.Future[Any]:
        """Add an item; return the future of its result."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put((item, future))
        return future

    def close(self) -> None:
        """Process all queued items, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        more = True
        while more:
            batch, more = self._next_batch()
            if batch:
                results = self._process([item for item, _ in batch])
                futures = [future for _, future in batch]
                pairs = list(zip(futures, results, strict=True))
                self._loop.call_soon_threadsafe(_complete, pairs)

    def _next_batch(self) -> tuple[list[tuple[Item, asyncio.Future[Any]]], bool]:
        """Return the next items, and whether the queue is still open."""
        batch = []
        entry = self._queue.get()
        while entry is not None:
            batch.append(entry)
            if len(batch) == self._max_items or self._queue.empty():
                return batch, True
            entry = self._queue.get()
        return batch, False


def _complete(pairs: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
    for future, result in pairs:
        if future.done():
            continue
        if isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)
