"""Worker processes and the threads that talk to them.

A stream belongs to one worker, chosen by its number, so its messages keep their order. A thread
per worker sends what has gathered as one list and waits for the reply. A worker that dies or
hangs is replaced; its models come back from snapshots.

On a machine where the kernels are not compiled yet, workers begin without the compiler (slower,
but at once) and hand over to compiled ones as soon as these are ready.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from regimekit.server.batching_queue import Gathering
from regimekit.server.config import Config
from regimekit.server.rows import Resting
from regimekit.server.worker import Message, Refused, Reply, compiled_before, main

_TOGETHER = 16  # messages of a list
_HUNG = 300.0  # seconds without a reply
_COMPILING = 3600.0  # the same, while nobody waits for it
_STARTING = threading.Lock()  # a process begins with the variables of its maker


class WorkerLost(RuntimeError):
    """The process with the model ended in the middle of the work."""


class Body:
    """A process and the pipe to it."""

    def __init__(self, config: Config, compiled: bool) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        capacity = max(1, config.models_in_memory // config.workers)
        self.process = context.Process(
            target=main, args=(theirs, config.db, capacity, config.snapshot_every), daemon=True
        )
        with _environment({} if compiled else {"NUMBA_DISABLE_JIT": "1"}):
            self.process.start()
        theirs.close()

    def exchange(self, messages: list[Message], patience: float = _HUNG) -> Reply:
        """The reply to messages; EOFError when there is none."""
        self.pipe.send(messages)
        if not self.pipe.poll(patience):
            raise EOFError
        reply: Reply = self.pipe.recv()
        return reply

    def end(self, at_once: bool = False) -> None:
        """Let it see the end of the pipe, or kill it."""
        if at_once:
            self.process.kill()
        self.pipe.close()
        self.process.join(10)


@contextmanager
def _environment(more: dict[str, str]) -> Iterator[None]:
    """Variables a child begins with; the compiler reads its own when it is imported."""
    with _STARTING:
        os.environ.update(more)
        try:
            yield
        finally:
            for name in more:
                del os.environ[name]


class Hand:
    """One worker process with its thread."""

    def __init__(self, config: Config, rested: Callable[[Resting], None]) -> None:
        self._config = config
        self._rested = rested
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._body = Body(config, compiled_before())
        self._successor: Body | None = None
        self._work = Gathering(self._exchange, _TOGETHER, "worker")

    async def ask(self, verb: str, *arguments: Any) -> Any:
        """The worker's answer; a `Refused` comes back as a value, a lost process is raised."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._work.put((Message(verb, arguments), future))
        return await future

    async def close(self, at_once: bool) -> None:
        """End the worker, after what it does or in the middle of it."""
        self._closing = True
        if at_once:
            self._body.process.kill()
        await asyncio.to_thread(self._work.close)
        await asyncio.to_thread(self._body.end)

    async def renew(self) -> None:
        """Prepare a compiled process and let it take over."""
        body = await asyncio.to_thread(Body, self._config, True)
        try:
            await asyncio.to_thread(body.exchange, [Message("warm_up", ())], _COMPILING)
        except (asyncio.CancelledError, EOFError, OSError):
            body.end(at_once=True)
            raise
        self._successor = body

    def _exchange(self, work: list[tuple[Message, asyncio.Future[Any]]]) -> None:
        try:
            self._hand_over()
            reply = self._body.exchange([message for message, _ in work])
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

    def _hand_over(self) -> None:
        if self._successor is None:
            return
        reply = self._body.exchange([Message("rest_all", ())])
        for resting in reply.resting:
            self._tell(self._rested, resting)
        self._body.end()
        self._body, self._successor = self._successor, None

    def _replace(self) -> None:
        self._body.end(at_once=True)
        if not self._closing:
            self._body = Body(self._config, compiled_before())

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

    def __init__(self, config: Config, store: Callable[[Resting], asyncio.Task[None]]) -> None:
        self.compiled = compiled_before()
        self.hands = [Hand(config, self._rest) for _ in range(config.workers)]
        self._store = store
        self._storing: dict[int, asyncio.Task[None]] = {}  # models on their way to the database
        self._next = 0

    def of(self, stream: int) -> Hand:
        """The worker that has a stream."""
        return self.hands[stream % len(self.hands)]

    async def ask(self, stream: int, verb: str, *arguments: Any) -> Any:
        """Ask the worker that has the stream, once a model of it that left memory is stored.

        Fetched before, it would come back by an older snapshot and a longer replay.
        """
        if stream in self._storing:
            await asyncio.wait([self._storing[stream]])
        return await self.of(stream).ask(verb, stream, *arguments)

    def _rest(self, resting: Resting) -> None:
        task = self._storing[resting.stream] = self._store(resting)
        task.add_done_callback(lambda done: self._stored(resting.stream, done))

    def _stored(self, stream: int, done: asyncio.Task[None]) -> None:
        if self._storing.get(stream) is done:
            del self._storing[stream]

    async def check(self, model: str, settings: dict[str, Any]) -> Refused | None:
        """Let some worker try settings."""
        self._next += 1
        answer: Refused | None = await self.of(self._next).ask("check", model, settings)
        return answer

    async def everyone(self, verb: str) -> None:
        """Ask all workers the same."""
        await asyncio.gather(*(hand.ask(verb) for hand in self.hands))

    async def warm_up(self) -> None:
        """Wait until every worker can learn, with the compiler or without."""
        await self.everyone("warm_up" if self.compiled else "rest_all")

    async def compile(self) -> None:
        """Compiled processes for all, one after the other: the first compiles for the rest."""
        for hand in self.hands:
            await hand.renew()
            await hand.ask("warm_up")  # the next message is what makes a hand change over
        self.compiled = True

    async def close(self, at_once: bool = False) -> None:
        """End the workers, when they are done or in the middle of what they do."""
        await asyncio.gather(*(hand.close(at_once) for hand in self.hands))
