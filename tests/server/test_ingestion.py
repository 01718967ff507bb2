"""Queues of streams: order, rejection, batches that are retried, commits that fail."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from regimekit.server.config import Limits
from regimekit.server.ingestion import BusyError, Ingestion, UnavailableError
from regimekit.server.monitoring import Metrics
from regimekit.server.records import (
    BatchResult,
    Observation,
    ObservationBatch,
    StreamChange,
    UpdateResult,
)
from regimekit.server.storage.unit_of_work import ConflictError
from regimekit.server.workers import WorkerLostError


class FakePool:
    """Answer like a worker, with a delay, and record the calls."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.spoil_after = 0
        self.lost = False

    async def call(self, stream: int, method: str, *arguments: Any) -> Any:
        # A number of turns of the event loop, not a time, so that the order is certain.
        for _ in range(20):
            await asyncio.sleep(0)
        self.asked.append((stream, method))
        if method != "update":
            return None
        if self.lost:
            raise WorkerLostError("gone")
        batches: list[ObservationBatch] = arguments[0]
        self.asked[-1] += ([row.y for batch in batches for row in batch.rows],)
        results = [BatchResult(len(batch.rows)) for batch in batches]
        if self.spoil_after:
            keep, self.spoil_after = self.spoil_after, 0
            results[keep:] = [BatchResult(retry=True) for _ in results[keep:]]
        return UpdateResult(results, StreamChange(stream, 0, 1, 0.0))


class FakeUnitOfWork:
    """Commit at once, or fail."""

    def __init__(self) -> None:
        self.generation: dict[int, int] = {}
        self.error: Exception | None = None

    async def submit(self, _: StreamChange) -> None:
        if self.error is not None:
            raise self.error


def built(limits: Limits | None = None) -> tuple[Ingestion, FakePool, FakeUnitOfWork]:
    pool, unit_of_work = FakePool(), FakeUnitOfWork()
    ingest = Ingestion(pool, unit_of_work, limits or Limits(), Metrics(), lambda _: None)
    return ingest, pool, unit_of_work


def rows(*values: float) -> list[Observation]:
    return [Observation(value) for value in values]


def test_waiting_requests_are_processed_together_in_order() -> None:
    async def scene() -> list[Any]:
        ingest, pool, _ = built()
        first = ingest.submit(1, rows(0))
        await asyncio.sleep(0)
        await asyncio.gather(first, *(ingest.submit(1, rows(i)) for i in range(1, 5)))
        assert ingest.pending == 0
        return [asked[2] for asked in pool.asked]

    assert asyncio.run(scene()) == [[0], [1, 2, 3, 4]]


def test_batches_after_an_invalid_one_are_retried_first() -> None:
    async def scene() -> list[Any]:
        ingest, pool, _ = built()
        first = ingest.submit(1, rows(0))
        await asyncio.sleep(0)
        later = [ingest.submit(1, rows(i)) for i in (1, 2, 3)]
        await first
        pool.spoil_after = 1
        await asyncio.gather(*later)
        return [asked[2] for asked in pool.asked]

    assert asyncio.run(scene()) == [[0], [1, 2, 3], [2, 3]]


def test_too_many_pending_rows_are_rejected() -> None:
    async def scene() -> None:
        ingest, _, _ = built(Limits(pending_rows=3, pending_total=5))
        under_way = [ingest.submit(1, rows(1, 2, 3)), ingest.submit(2, rows(1, 2))]
        await asyncio.sleep(0)
        for stream in (1, 3):
            with pytest.raises(BusyError) as caught:
                await ingest.submit(stream, rows(4))
            assert caught.value.retry_after >= 1
        await asyncio.gather(*under_way)
        assert (await ingest.submit(1, rows(4))).accepted == 1, "afterwards there is room"
        await ingest.close()
        with pytest.raises(BusyError):
            await ingest.submit(1, rows(5))

    asyncio.run(scene())


@pytest.mark.parametrize("error", [ConflictError("moved"), OSError("disk full")])
def test_a_failed_commit_drops_the_model(error: Exception) -> None:
    async def scene() -> None:
        ingest, pool, unit_of_work = built()
        unit_of_work.error = error
        with pytest.raises(UnavailableError):
            await ingest.submit(1, rows(1))
        assert pool.asked[-1] == (1, "drop")
        unit_of_work.error = None
        assert (await ingest.submit(1, rows(1))).accepted == 1

    asyncio.run(scene())


def test_a_lost_worker_makes_the_service_unavailable() -> None:
    async def scene() -> None:
        ingest, pool, _ = built()
        pool.lost = True
        with pytest.raises(UnavailableError):
            await ingest.submit(1, rows(1))
        assert ingest.pending == 0

    asyncio.run(scene())
