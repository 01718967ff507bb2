"""The way of observations: one lane per stream, from the request to the acknowledgement.

A lane has one job under way at a time (learn, then store); requests that arrive meanwhile wait
and go together in the next. When too much waits, a request is turned away with the time after
which to come again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from regimekit.server.config import Limits
from regimekit.server.metrics import Metrics
from regimekit.server.pool import Pool, WorkerLost
from regimekit.server.rows import Learnt, Outcome, Part, Row
from regimekit.server.storage.writer import Moved, Writer
from regimekit.server.worker import Refused

_JOB_ROWS = 2000  # learnt before the first of them is stored
_log = logging.getLogger("regimekit.server.ingest")


class Busy(Exception):
    """Too much is waiting; come again after `seconds`."""

    def __init__(self, reason: str, seconds: int) -> None:
        super().__init__(reason)
        self.seconds = seconds


class Unavailable(Exception):
    """Nothing was stored, through no fault of the request; it may be sent again."""


class Missing(Exception):
    """The stream does not exist (any more)."""


@dataclass
class Lane:
    """The requests of one stream that are not stored yet."""

    waiting: deque[tuple[Part, asyncio.Future[Outcome]]] = field(default_factory=deque)
    rows: int = 0
    task: asyncio.Task[None] | None = None


class Ingest:
    """All lanes."""

    def __init__(
        self,
        pool: Pool,
        writer: Writer,
        limits: Limits,
        metrics: Metrics,
        stored: Callable[[int], None],
    ) -> None:
        self._pool, self._writer, self._limits = pool, writer, limits
        self._metrics, self._stored = metrics, stored
        self._lanes: dict[int, Lane] = {}
        self.pending = 0
        self.closed = False
        self._pace = 500.0  # rows per second lately, for Retry-After

    async def submit(self, stream: int, rows: list[Row]) -> Outcome:
        """Learn and store the rows of a request; returns when they are durable."""
        lane = self._lanes.setdefault(stream, Lane())
        self._admit(lane, len(rows))
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        lane.waiting.append((Part(rows, time.time()), future))
        self._count(lane, len(rows))
        if lane.task is None:
            lane.task = asyncio.create_task(self._drain(stream, lane))
        return await asyncio.shield(future)

    async def close(self) -> None:
        """Take nothing more and finish what was taken."""
        self.closed = True
        while tasks := [lane.task for lane in self._lanes.values() if lane.task is not None]:
            await asyncio.gather(*tasks)

    def _admit(self, lane: Lane, rows: int) -> None:
        if self.closed:
            raise Busy("The service is stopping.", 5)
        if lane.rows and lane.rows + rows > self._limits.pending_rows:
            raise Busy("Too many observations of this stream are waiting.", self._wait(lane.rows))
        if self.pending and self.pending + rows > self._limits.pending_total:
            raise Busy("Too many observations are waiting.", self._wait(self.pending))

    def _wait(self, rows: int) -> int:
        return max(1, min(60, round(rows / self._pace)))

    def _count(self, lane: Lane, rows: int) -> None:
        lane.rows += rows
        self.pending += rows
        self._metrics.pending.set(self.pending)

    async def _drain(self, stream: int, lane: Lane) -> None:
        while lane.waiting:
            job = self._next_job(lane)
            started = time.perf_counter()
            await self._work(stream, lane, job)
            rows = sum(len(part.rows) for part, _ in job)
            self._pace += 0.05 * (rows / (time.perf_counter() - started) - self._pace)
        lane.task = None
        self._lanes.pop(stream, None)

    def _next_job(self, lane: Lane) -> list[tuple[Part, asyncio.Future[Outcome]]]:
        job = [lane.waiting.popleft()]
        rows = len(job[0][0].rows)
        while lane.waiting and rows + len(lane.waiting[0][0].rows) <= _JOB_ROWS:
            job.append(lane.waiting.popleft())
            rows += len(job[-1][0].rows)
        return job

    async def _work(
        self, stream: int, lane: Lane, job: list[tuple[Part, asyncio.Future[Outcome]]]
    ) -> None:
        try:
            outcomes = await self._learn_and_store(stream, [part for part, _ in job])
        except Exception as error:
            for part, future in job:
                self._count(lane, -len(part.rows))
                _refuse(future, error)
            return
        again = []
        for (part, future), outcome in zip(job, outcomes, strict=True):
            if outcome.again:
                again.append((part, future))
                continue
            self._count(lane, -len(part.rows))
            if not future.done():
                future.set_result(outcome)
        lane.waiting.extendleft(reversed(again))

    async def _learn_and_store(self, stream: int, parts: list[Part]) -> list[Outcome]:
        generation = self._writer.generation.get(stream, 0)
        try:
            answer = await self._pool.ask(stream, "learn", parts, generation)
        except WorkerLost as error:
            raise Unavailable(str(error)) from None
        if isinstance(answer, Refused):
            if answer.kind == "missing":
                raise Missing(answer.reason)
            _log.error("learning failed", extra={"stream": stream, "reason": answer.reason})
            raise Unavailable("The model could not be run; see the log of the service.")
        await self._store(stream, answer)
        self._metrics.learnt(answer)
        return list(answer.outcomes)

    async def _store(self, stream: int, learnt: Learnt) -> None:
        if learnt.commit is None:
            return
        try:
            await asyncio.wrap_future(self._writer.submit(learnt.commit))
        except Exception as error:
            await self._pool.ask(stream, "drop")
            if isinstance(error, Moved):
                raise Unavailable(str(error)) from None
            _log.exception("storing failed", extra={"stream": stream})
            raise Unavailable("The observations could not be stored; send them again.") from None
        self._stored(stream)


def _refuse(future: asyncio.Future[Outcome], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)
    future.exception()  # looked at: the client may have gone
