"""Worker processes and the threads that talk to them.

A stream belongs to one worker, chosen by its number, so its messages keep their order. A thread
per worker sends what has gathered as one list and waits for the reply. A worker that dies or
hangs is replaced; its models come back from snapshots.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
import threading
from collections.abc import Callable
from typing import Any

from holdfast.serve.config import Config
from holdfast.serve.rows import Resting
from holdfast.serve.worker import Message, Refused, main

_TOGETHER = 16  # messages of a list
_HUNG = 300.0  # seconds without a reply; compiling kernels takes less


class WorkerLost(RuntimeError):
    """The process with the model ended in the middle of the work."""


class Hand:
    """One worker process with its thread."""

    def __init__(self, config: Config, rested: Callable[[Resting], None]) -> None:
        self._config = config
        self._rested = rested
        self._queue: queue.SimpleQueue[tuple[Message, asyncio.Future[Any]] | None]
        self._queue = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self.restarts = -1
        self._closing = False
        self._start()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    async def ask(self, verb: str, *arguments: Any) -> Any:
        """The worker's answer; a `Refused` comes back as a value, a lost process is raised."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._queue.put((Message(verb, arguments), future))
        return await future

    async def close(self, at_once: bool) -> None:
        """End the worker, after what it does or in the middle of it."""
        self._closing = True
        self._queue.put(None)
        if at_once:
            self._process.kill()
        await asyncio.to_thread(self._thread.join)

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        capacity = max(1, self._config.models_in_memory // self._config.workers)
        self._process = context.Process(
            target=main,
            args=(theirs, self._config.db, capacity, self._config.snapshot_every),
            daemon=True,
        )
        self._process.start()
        theirs.close()
        self.restarts += 1

    def _work(self) -> None:
        while True:
            taken = self._take()
            work = [entry for entry in taken if entry is not None]
            if work:
                self._exchange(work)
            if None in taken:
                self._pipe.close()
                self._process.join(10)
                return

    def _take(self) -> list[tuple[Message, asyncio.Future[Any]] | None]:
        taken = [self._queue.get()]
        while len(taken) < _TOGETHER and taken[-1] is not None:
            try:
                taken.append(self._queue.get_nowait())
            except queue.Empty:
                break
        return taken

    def _exchange(self, work: list[tuple[Message, asyncio.Future[Any]]]) -> None:
        try:
            self._pipe.send([message for message, _ in work])
            if not self._pipe.poll(_HUNG):
                raise EOFError
            reply = self._pipe.recv()
        except (EOFError, OSError):
            self._replace()
            lost = WorkerLost("The process with this stream's model ended; send it again.")
            for _, future in work:
                self._tell(_fail, future, lost)
            return
        for (_, future), answer in zip(work, reply.answers, strict=True):
            self._tell(_settle, future, answer)
        for resting in reply.resting:
            self._tell(self._rested, resting)

    def _replace(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()
        if not self._closing:
            self._start()

    def _tell(self, function: Callable[..., None], *arguments: Any) -> None:
        self._loop.call_soon_threadsafe(function, *arguments)


def _settle(future: asyncio.Future[Any], answer: Any) -> None:
    if not future.done():
        future.set_result(answer)


def _fail(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


class Pool:
    """All workers; streams are dealt to them by number."""

    def __init__(self, config: Config, rested: Callable[[Resting], None]) -> None:
        self.hands = [Hand(config, rested) for _ in range(config.workers)]
        self._next = 0

    def of(self, stream: int) -> Hand:
        """The worker that has a stream."""
        return self.hands[stream % len(self.hands)]

    async def ask(self, stream: int, verb: str, *arguments: Any) -> Any:
        """Ask the worker that has the stream."""
        return await self.of(stream).ask(verb, stream, *arguments)

    async def check(self, model: str, settings: dict[str, Any]) -> Refused | None:
        """Let some worker try settings."""
        self._next += 1
        answer: Refused | None = await self.of(self._next).ask("check", model, settings)
        return answer

    async def everyone(self, verb: str) -> None:
        """Ask all workers the same."""
        await asyncio.gather(*(hand.ask(verb) for hand in self.hands))

    async def close(self, at_once: bool = False) -> None:
        """End the workers, when they are done or in the middle of what they do."""
        await asyncio.gather(*(hand.close(at_once) for hand in self.hands))
