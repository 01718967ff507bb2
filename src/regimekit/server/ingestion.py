"""Ingestion: one queue per stream between the requests and the workers.

A stream has one job in progress at a time (update the model, then store). Requests that arrive
meanwhile are processed together in the next job. If too many observations are pending, a request
is rejected with the time after which to retry.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from regimekit.server.config import Limits
from regimekit.server.monitoring import Metrics
from regimekit.server.records import (
    BatchResult,
    Observation,
    ObservationBatch,
    RequestError,
    UpdateResult,
)
from regimekit.server.storage.unit_of_work import ConflictError, UnitOfWork
from regimekit.server.workers import Failure, WorkerLostError, WorkerPool

_MAX_JOB_ROWS = 2000  # observations per job, unless one request has more
_SMOOTHING = 0.05  # weight of the latest job in the moving average of the throughput
_log = logging.getLogger("regimekit.server.ingestion")

Job = list[tuple[ObservationBatch, "asyncio.Future[BatchResult]"]]


class BusyError(RequestError):
    """Too many observations are pending."""

    status = 429


class UnavailableError(RequestError):
    """Nothing was stored, but the request is valid and can be sent again."""

    status = 503
    retry_after = 1


class MissingStreamError(RequestError):
    """The stream does not exist."""

    status = 404


@dataclass
class _StreamQueue:
    waiting: deque[tuple[ObservationBatch, asyncio.Future[BatchResult]]] = field(
        default_factory=deque
    )
    rows: int = 0  # pending, including those in progress
    task: asyncio.Task[None] | None = None


class Ingestion:
    """The queues of all streams.

    Attributes:
        pending: accepted observations that are not stored yet.
        policy: version of alert rules and labels of regimes; increased with each change.
    """

    def __init__(
        self,
        pool: WorkerPool,
        unit_of_work: UnitOfWork,
        limits: Limits,
        metrics: Metrics,
        on_stored: Callable[[int], None],
    ) -> None:
        """Create the queues.

        Args:
            pool: runs the models.
            unit_of_work: stores the results.
            limits: limits of pending observations.
            metrics: counters to update.
            on_stored: called with the id of a stream after each commit.
        """
        self._pool, self._unit_of_work, self._limits = pool, unit_of_work, limits
        self._metrics, self._on_stored = metrics, on_stored
        self._queues: dict[int, _StreamQueue] = {}
        self.pending = 0
        self.policy = 1
        self._closed = False
        self._throughput = 500.0  # observations per second, moving average

    def submit(self, stream: int, rows: list[Observation]) -> asyncio.Future[BatchResult]:
        """Update the model and store the observations of one request.

        Returns:
            The future result, once the observations are durable. It raises UnavailableError if
            nothing could be stored, and MissingStreamError if the stream does not exist.

        Raises:
            BusyError: if too many observations are pending or the service is stopping.
        """
        queue = self._queues.setdefault(stream, _StreamQueue())
        self._check_capacity(queue, len(rows))
        future: asyncio.Future[BatchResult] = asyncio.get_running_loop().create_future()
        queue.waiting.append((ObservationBatch(rows, time.time()), future))
        self._add_pending(queue, len(rows))
        if queue.task is None:
            queue.task = asyncio.create_task(self._drain(stream, queue))
        return future

    async def close(self) -> None:
        """Reject new requests and finish the pending ones."""
        self._closed = True
        while tasks := [queue.task for queue in self._queues.values() if queue.task is not None]:
            await asyncio.gather(*tasks)

    def _check_capacity(self, queue: _StreamQueue, rows: int) -> None:
        if self._closed:
            raise BusyError("The service is stopping.", retry_after=5)
        if queue.rows and queue.rows + rows > self._limits.pending_rows:
            raise BusyError(
                f"{queue.rows} observations of this stream are pending; at most "
                f"{self._limits.pending_rows} are allowed.",
                retry_after=self._retry_seconds(queue.rows),
            )
        if self.pending and self.pending + rows > self._limits.pending_total:
            raise BusyError(
                f"{self.pending} observations are pending; at most "
                f"{self._limits.pending_total} are allowed.",
                retry_after=self._retry_seconds(self.pending),
            )

    def _retry_seconds(self, rows: int) -> int:
        return max(1, min(60, round(rows / self._throughput)))

    def _add_pending(self, queue: _StreamQueue, rows: int) -> None:
        queue.rows += rows
        self.pending += rows
        self._metrics.pending.set(self.pending)

    async def _drain(self, stream: int, queue: _StreamQueue) -> None:
        while queue.waiting:
            job = _next_job(queue)
            started = time.perf_counter()
            await self._process(stream, queue, job)
            rows = sum(len(batch.rows) for batch, _ in job)
            latest = rows / (time.perf_counter() - started)
            self._throughput += _SMOOTHING * (latest - self._throughput)
        queue.task = None
        self._queues.pop(stream, None)

    async def _process(self, stream: int, queue: _StreamQueue, job: Job) -> None:
        try:
            results = await self._update_and_store(stream, [batch for batch, _ in job])
        except Exception as error:
            for batch, future in job:
                self._add_pending(queue, -len(batch.rows))
                if not future.done():
                    future.set_exception(error)
                # Mark the exception as retrieved: the client may have disconnected.
                future.exception()
            return
        retry = []
        for (batch, future), result in zip(job, results, strict=True):
            if result.retry:
                retry.append((batch, future))
                continue
            self._add_pending(queue, -len(batch.rows))
            if not future.done():
                future.set_result(result)
        queue.waiting.extendleft(reversed(retry))

    async def _update_and_store(
        self, stream: int, batches: list[ObservationBatch]
    ) -> list[BatchResult]:
        generation = self._unit_of_work.generation.get(stream, 0)
        try:
            answer = await self._pool.call(stream, "update", batches, generation, self.policy)
        except WorkerLostError as error:
            raise UnavailableError(str(error)) from None
        if isinstance(answer, Failure):
            if answer.kind == "missing":
                raise MissingStreamError(answer.reason)
            _log.error("update failed", extra={"stream": stream, "reason": answer.reason})
            raise UnavailableError("The model failed. The log of the service has the reason.")
        await self._store(stream, answer)
        self._metrics.record_update(answer)
        return list(answer.results)

    async def _store(self, stream: int, answer: UpdateResult) -> None:
        if answer.change is None:
            return
        try:
            await self._unit_of_work.submit(answer.change)
        except Exception as error:
            # The model in memory is ahead of the database: load it again for the next job.
            await self._pool.call(stream, "drop")
            if isinstance(error, ConflictError):
                raise UnavailableError(str(error)) from None
            _log.exception("storing failed", extra={"stream": stream})
            raise UnavailableError(
                "The observations could not be stored. Send the request again."
            ) from None
        self._on_stored(stream)


def _next_job(queue: _StreamQueue) -> Job:
    job = [queue.waiting.popleft()]
    rows = len(job[0][0].rows)
    while queue.waiting and rows + len(queue.waiting[0][0].rows) <= _MAX_JOB_ROWS:
        job.append(queue.waiting.popleft())
        rows += len(job[-1][0].rows)
    return job
