"""The parts of the service put together, started and stopped in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from regimekit.server.config import Config
from regimekit.server.event_stream import Hub
from regimekit.server.ingest import Ingest
from regimekit.server.metrics import Metrics
from regimekit.server.pool import Pool, WorkerLost
from regimekit.server.rows import Resting
from regimekit.server.security import Guard
from regimekit.server.storage import streams
from regimekit.server.storage.database import prepare, shown, sole_writer, writing
from regimekit.server.storage.writer import Writer
from regimekit.server.webhooks import Dispatcher
from regimekit.server.worker import note_compiled

_log = logging.getLogger("regimekit.server")
_COMMIT_FIRST = 0.02  # seconds by which a resting model lets its stream's commit go ahead
Result = TypeVar("Result")


class Service:
    """Everything behind the routes."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.metrics = Metrics()
        self.ready = False
        self.numbers: dict[str, int] = {}  # of streams that were sent something
        self.stopping = asyncio.Event()
        self._resting: set[asyncio.Task[None]] = set()
        self._stack = ExitStack()
        self._readers = ThreadPoolExecutor(8, thread_name_prefix="reader")

    async def start(self) -> None:
        """Open the database, start the workers, become ready when they are."""
        self.engine = await asyncio.to_thread(self._open)
        self.guard = Guard(self.config, self.engine)
        self.hub = Hub(self.stopping)
        self.writer = Writer(self.engine, lambda seconds, _: self.metrics.commits.observe(seconds))
        self.pool = Pool(self.config, self._rest)
        self.ingest = Ingest(
            self.pool, self.writer, self.config.limits, self.metrics, self.hub.stored
        )
        self.dispatcher = Dispatcher(self.engine, self.metrics, self.config.allow_private_webhooks)
        self._tasks = [
            asyncio.create_task(self._warm_up()),
            asyncio.create_task(self.dispatcher.work()),
        ]
        _log.info("started", extra={"db": shown(self.config.db), "workers": self.config.workers})

    def _open(self) -> Engine:
        engine = prepare(self.config.db)
        self._stack.callback(engine.dispose)
        self._stack.enter_context(sole_writer(self.config.db, engine))
        return engine

    async def _warm_up(self) -> None:
        while not self.ready:
            try:
                await self.pool.warm_up()
                self.ready = True
            except WorkerLost:
                _log.warning("a worker ended while it started; another one is tried")
        _log.info("ready", extra={"compiled": self.pool.compiled})
        if not self.pool.compiled:
            await self._compile()

    async def _compile(self) -> None:
        try:
            await self.pool.compile()
        except (EOFError, OSError, WorkerLost):
            _log.exception("compiling failed; models go on without the compiler, slowly")
            return
        await asyncio.gather(*self._resting)
        note_compiled()
        _log.info("compiled")

    def _rest(self, resting: Resting) -> asyncio.Task[None]:
        task = asyncio.create_task(self._store_resting(resting))
        self._resting.add(task)
        task.add_done_callback(self._resting.discard)
        return task

    async def _store_resting(self, resting: Resting) -> None:
        await asyncio.sleep(_COMMIT_FIRST)
        try:
            await asyncio.wrap_future(self.writer.submit(resting))
        except Exception:
            _log.exception("a snapshot was not stored; its stream will be replayed")

    async def stop(self) -> None:
        """Finish what was accepted, put every model to rest, close."""
        was_ready, self.ready = self.ready, False
        self.stopping.set()
        self.hub.stop()
        await self.ingest.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if was_ready:  # otherwise the workers are busy compiling and have nothing to keep
            with suppress(WorkerLost):
                await self.pool.everyone("rest_all")
        await self.pool.close(at_once=not was_ready)
        await asyncio.gather(*self._resting)
        await asyncio.to_thread(self.writer.close)
        self._readers.shutdown()
        self._stack.close()
        _log.info("stopped")

    async def read(self, query: Callable[..., Result], *arguments: Any) -> Result:
        """Run a query in a thread, with a connection as its first argument."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._read, query, *arguments)

    def _read(self, query: Callable[..., Result], *arguments: Any) -> Result:
        with self.engine.connect() as connection:
            return query(connection, *arguments)

    async def write(self, change: Callable[..., Result], *arguments: Any) -> Result:
        """Run a change in a thread, in a transaction of its own."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._write, change, *arguments)

    def _write(self, change: Callable[..., Result], *arguments: Any) -> Result:
        with writing(self.engine) as connection:
            return change(connection, *arguments)

    async def exposition(self) -> bytes:
        """The metrics, with what only the database knows."""
        count, regimes = await self.read(streams.totals)
        self.metrics.streams.set(count)
        self.metrics.regimes.set(regimes)
        return self.metrics.text()

    async def healthy(self) -> bool:
        """Whether the database answers."""
        try:
            await asyncio.wait_for(self.read(_ping), 5)
        except Exception:
            return False
        return True


def _ping(connection: Connection) -> None:
    connection.exec_driver_sql("SELECT 1")
