"""A thread that takes what has gathered and works on it together.

While it works, the next things gather: the busier it is, the more each round carries.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Gathering(Generic[Item]):
    """Hands lists of at most `most` items, in the order they came, to `work`."""

    def __init__(self, work: Callable[[list[Item]], None], most: int, name: str) -> None:
        self._work, self._most = work, most
        self._queue: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """One more thing to do."""
        self._queue.put(item)

    def close(self) -> None:
        """Wait until everything that was put is done; the thread ends."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        taken: list[Item | None] = []
        while None not in taken:
            taken = self._take()
            items = [item for item in taken if item is not None]
            if items:
                self._work(items)

    def _take(self) -> list[Item | None]:
        taken = [self._queue.get()]
        while len(taken) < self._most and taken[-1] is not None:
            try:
                taken.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return taken
