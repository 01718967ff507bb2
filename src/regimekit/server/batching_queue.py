"""A thread that processes queued items in batches.

While a batch is processed, the next items collect in the queue. So batches grow with the load, and
fixed costs per batch (a transaction, a message to a process) are shared.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class BatchingQueue(Generic[Item]):
    """Call `process` with lists of queued items, in the order of arrival."""

    def __init__(self, process: Callable[[list[Item]], None], max_items: int, name: str) -> None:
        """Start the thread.

        Args:
            process: called in the thread with 1 to `max_items` items; it must not raise.
            max_items: largest number of items per call.
            name: name of the thread.
        """
        self._process, self._max_items = process, max_items
        self._queue: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Add an item."""
        self._queue.put(item)

    def close(self) -> None:
        """Process all queued items, then end the thread."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        batch: list[Item | None] = []
        while None not in batch:
            batch = self._next_batch()
            if items := [item for item in batch if item is not None]:
                self._process(items)

    def _next_batch(self) -> list[Item | None]:
        batch = [self._queue.get()]
        while len(batch) < self._max_items and batch[-1] is not None:
            try:
                batch.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return batch
