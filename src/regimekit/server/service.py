"""The service: its parts, started and stopped in order, and the demonstration stream."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine

from regimekit import datasets
from regimekit.alerts import SEVERITIES
from regimekit.core.registry import DEFAULT_MODEL
from regimekit.server import alerting
from regimekit.server.config import Config
from regimekit.server.event_stream import EventBroker
from regimekit.server.ingestion import Ingestion
from regimekit.server.monitoring import Metrics
from regimekit.server.records import Observation, StoredModel
from regimekit.server.storage import alerts, database, streams
from regimekit.server.storage.unit_of_work import UnitOfWork
from regimekit.server.webhooks import Dispatcher
from regimekit.server.workers import WorkerLostError, WorkerPool, kernels_compiled

_log = logging.getLogger("regimekit.server")
# Seconds by which storing an evicted model is delayed, so that the change of its stream, which
# comes in the same reply of the worker, is committed first.
_EVICTION_DELAY = 0.02
_PROBE_SECONDS = 2.0  # between two probes of the database
Result = TypeVar("Result")


class Service:
    """Everything behind the HTTP routes.

    Attributes:
        ready: whether the workers have started.
        stream_ids: cache of stream ids by key; only this service creates and deletes streams.
        stopping: set when the service begins to stop.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.compiled = kernels_compiled()
        self.metrics = Metrics()
        self.ready = False
        self.stream_ids: dict[str, int] = {}
        self.stopping = asyncio.Event()
        self._probed_at, self._can_write = -math.inf, False
        self._resources = ExitStack()
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="query")

    async def start(self) -> None:
        """Open the database and start all parts; `ready` is set when the workers answer.

        Raises:
            RegimekitError: if the database cannot be opened or another service uses it.
        """
        self.engine = await asyncio.to_thread(self._open)
        self.broker = EventBroker(self.stopping)
        self.unit_of_work = UnitOfWork(self.engine, self.metrics.commits.observe)
        self.pool = WorkerPool(self.config, self._store_evicted)
        self.ingestion = Ingestion(
            self.pool, self.unit_of_work, self.config.limits, self.metrics, self.broker.notify
        )
        dispatcher = Dispatcher(self.engine, self.metrics, self.config)
        self._tasks = [
            asyncio.create_task(self._warm_up()),
            asyncio.create_task(dispatcher.run()),
            asyncio.create_task(self._watch_clock()),
        ]
        if self.config.demo:
            stream = await self.write(_demo_stream)
            self._tasks.append(asyncio.create_task(_feed_demo(self, stream)))
        db = database.without_password(self.config.db)
        _log.info("started", extra={"db": db, "workers": self.config.workers})

    def _open(self) -> Engine:
        engine = database.open_database(self.config.db)
        self._resources.callback(engine.dispose)
        self._resources.enter_context(database.single_writer(self.config.db, engine))
        return engine

    async def _warm_up(self) -> None:
        while not self.ready:
            try:
                await self.pool.call_all("warm_up")
                self.ready = True
            except WorkerLostError:
                _log.warning("a worker ended during its start; starting another one")
        _log.info("ready", extra={"compiled": self.compiled})

    async def _watch_clock(self) -> None:
        """Check for stale streams until cancelled."""
        started = time.time()
        while True:
            try:
                await asyncio.to_thread(alerting.check_stale, self.engine, time.time(), started)
            except Exception:
                _log.exception("the check of stale streams failed")
            await asyncio.sleep(alerting.CLOCK_INTERVAL)

    def policy_changed(self) -> None:
        """Make the workers load rules and labels of regimes again with the next update."""
        self.ingestion.policy += 1

    async def _store_evicted(self, model: StoredModel) -> None:
        await asyncio.sleep(_EVICTION_DELAY)
        try:
            await self.unit_of_work.submit(model)
        except Exception:
            _log.exception("a snapshot was not stored; its stream will be replayed")

    async def stop(self) -> None:
        """Finish accepted requests, store every model and close the database."""
        was_ready, self.ready = self.ready, False
        self.announce_stop()
        await self.ingestion.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        # Workers that are still starting have no models to store.
        if was_ready:
            with suppress(WorkerLostError):
                await self.pool.call_all("evict_all")
        await self.pool.close(kill=not was_ready)
        await asyncio.to_thread(self.unit_of_work.close)
        self._threads.shutdown()
        self._resources.close()
        _log.info("stopped")

    def announce_stop(self) -> None:
        """End the event streams, which would otherwise keep their connections open."""
        self.stopping.set()
        self.broker.notify_all()

    async def read(self, query: Callable[..., Result], *arguments: Any) -> Result:
        """Call `query(connection, *arguments)` in a thread."""
        return await self._in_thread(self.engine.connect, query, *arguments)

    async def write(self, change: Callable[..., Result], *arguments: Any) -> Result:
        """Call `change(connection, *arguments)` in a thread, in a write transaction."""
        transaction = partial(database.write_transaction, self.engine)
        return await self._in_thread(transaction, change, *arguments)

    async def _in_thread(
        self,
        connect: Callable[[], AbstractContextManager[Connection]],
        function: Callable[..., Result],
        *arguments: Any,
    ) -> Result:
        def call() -> Result:
            with connect() as connection:
                return function(connection, *arguments)

        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    async def exposition(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        count, regimes = await self.read(streams.totals)
        self.metrics.streams.set(count)
        self.metrics.regimes.set(regimes)
        by_severity, found = await self.read(_monitored, self.config.stream_metrics)
        for severity in SEVERITIES:
            self.metrics.open_alerts.labels(severity).set(by_severity.get(severity, 0))
        self.metrics.set_streams(found)
        return self.metrics.exposition()

    async def can_write(self) -> bool:
        """Return whether the database can be read and written within 5 seconds.

        The answer is at most 2 seconds old, so that probes cause few writes.
        """
        if time.monotonic() - self._probed_at > _PROBE_SECONDS:
            try:
                await asyncio.wait_for(self.write(database.probe), 5)
                self._can_write = True
            except Exception as error:
                _log.warning("the database cannot be written", extra={"reason": str(error)[:200]})
                self._can_write = False
            self._probed_at = time.monotonic()
        return self._can_write


def _monitored(connection: Connection, limit: int) -> tuple[dict[str, int], list[Any]]:
    """Return the open alerts per severity, and the oldest streams with their open alerts.

    The oldest ones are always the same, so the number of time series stays bounded.
    """
    found = streams.oldest(connection, limit)
    active = alerts.count_open(connection, [stream.id for stream in found])
    counted = [(stream, active.get(stream.id, (0, ""))[0]) for stream in found]
    return alerts.count_by_severity(connection), counted


_DEMO_KEY = "demo"
_DEMO_INTERVAL = 0.5  # seconds between observations
_DEMO_HISTORY = 300  # observations the stream starts with
_DEMO_BATCH = 10  # observations per request of the history
_DEMO_PERIOD = 2000  # observations per random seed


async def _feed_demo(service: Service, stream: streams.Stream) -> None:
    """Send observations to the demonstration stream until cancelled."""
    while not service.ready:
        await asyncio.sleep(0.05)
    history = _DEMO_HISTORY if stream.n_rows == 0 else 0
    # The clock of the stream advances by one interval per observation and reaches the present
    # after the history.
    start = time.time() - _DEMO_INTERVAL * (stream.n_rows + history)
    rows = _demo_rows(stream.n_rows, start)
    for _ in range(0, history, _DEMO_BATCH):
        await service.ingestion.submit(stream.id, list(islice(rows, _DEMO_BATCH)))
    while True:
        await service.ingestion.submit(stream.id, list(islice(rows, 1)))
        await asyncio.sleep(_DEMO_INTERVAL)


def _demo_stream(connection: Connection) -> streams.Stream:
    found = streams.find(connection, _DEMO_KEY)
    return found or streams.create(connection, _DEMO_KEY, DEFAULT_MODEL, {})


def _demo_rows(number: int, start: float) -> Iterator[Observation]:
    """Yield observations; the n-th value is always the same, so a restart continues them."""
    while True:
        seed, first = divmod(number, _DEMO_PERIOD)
        values = datasets.regime_stream(seed=seed, n=_DEMO_PERIOD, stay=0.985).y
        for y in values[first:]:
            at = start + _DEMO_INTERVAL * number
            moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
            moment = moment.replace("+00:00", "Z")
            yield Observation(float(y), None, f"demo-{number}", None, moment, at)
            number += 1
