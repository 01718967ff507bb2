"""Cache of the models of one worker process.

Recently used models are in memory, the others in snapshots. A model is loaded from its snapshot
and updated with the stored observations after it (replay). The outputs of the replay must equal
the stored ones; differences (possible after an update of the library) are counted.
"""

from __future__ import annotations

import json
import math
import time
import tracemalloc
from collections import OrderedDict
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from sqlalchemy import Engine, select

import regimekit as rk
from regimekit import RegimekitError
from regimekit.server import records
from regimekit.server.alerting import StreamAlerts
from regimekit.server.records import (
    BatchResult,
    Observation,
    ObservationBatch,
    StoredModel,
    StreamChange,
    UpdateResult,
)
from regimekit.server.storage import alerts
from regimekit.server.storage.alerts import StoredRule
from regimekit.server.storage.observations import select_rows, stored_ids
from regimekit.server.storage.schema import snapshots, streams
from regimekit.server.storage.streams import regime_labels

_REPLAY_ROWS = 500  # observations per step of a replay
_PART_ROWS = 200  # observations of a batch between two looks at the clock


@dataclass
class CachedModel:
    """A model in memory.

    Attributes:
        model: the model.
        seq: number of observations it was updated with.
        snapshot: number of observations in its latest snapshot.
        regime: regime after the last observation, -1 if unknown.
        generation: number of failed commits of the stream when the model was loaded.
        alerts: the stream's alert engine, or None if no rule applies.
        policy: version of the rules and labels that `alerts` was made from.
        latest: largest time of an observation in seconds since 1970.
        kind: name and settings of the model.
        size: estimate of its bytes in memory; 0 before its first observation.
    """

    model: Any
    seq: int
    snapshot: int
    regime: int
    generation: int = 0
    alerts: StreamAlerts | None = None
    policy: int = 0
    latest: float = -math.inf
    kind: str = ""
    size: int = 0


class ModelCache:
    """Least-recently-used cache of models by stream id.

    Attributes:
        evicted: snapshots of models that left memory and must be stored.
        replayed: number of replayed observations.
        differing: number of replayed observations with other outputs than stored.
    """

    def __init__(
        self,
        engine: Engine,
        capacity: int,
        snapshot_every: int,
        capacity_bytes: int = 2**30,
        batch_seconds: float = math.inf,
    ) -> None:
        """Create an empty cache.

        Args:
            engine: the database, only read here.
            capacity: largest number of models in memory.
            snapshot_every: observations between two snapshots of a model.
            capacity_bytes: largest number of bytes of them together.
            batch_seconds: largest CPU time of one batch; a batch that takes longer is rejected.
        """
        self._engine = engine
        self._capacity, self._capacity_bytes = capacity, capacity_bytes
        self._batch_seconds = batch_seconds
        self._snapshot_every = snapshot_every
        self._models: OrderedDict[int, CachedModel] = OrderedDict()
        self._bytes = 0  # sum of the sizes of the models
        self._buffers: dict[str, int] = {}  # bytes besides the state, by kind of model
        self.evicted: list[StoredModel] = []
        self.replayed = 0
        self.differing = 0
        self._rules: list[StoredRule] = []
        self._policy = 0

    def get(self, stream: int, generation: int = 0) -> CachedModel:
        """Return the model of a stream after all its stored observations.

        Raises:
            LookupError: if the stream does not exist.
        """
        if stream not in self._models:
            self._models[stream] = self._load(stream, generation)
            self._count_bytes(self._models[stream])
        self._models.move_to_end(stream)
        # The model that is in use stays, however large it is.
        while len(self._models) > 1 and (
            len(self._models) > self._capacity or self._bytes > self._capacity_bytes
        ):
            self._evict()
        return self._models[stream]

    def drop(self, stream: int) -> None:
        """Discard the model in memory; the next `get` loads it again."""
        if (cached := self._models.pop(stream, None)) is not None:
            self._bytes -= cached.size

    def evict_all(self) -> None:
        """Remove all models from memory, with a snapshot of each that changed."""
        while self._models:
            self._evict()

    def _evict(self) -> None:
        stream, cached = self._models.popitem(last=False)
        self._bytes -= cached.size
        if cached.seq > cached.snapshot:
            data = cached.model.to_bytes()
            self.evicted.append(StoredModel(stream, cached.seq, data, cached.generation))

    def _load(self, stream: int, generation: int) -> CachedModel:
        with self._engine.connect() as connection:
            row = connection.execute(select(streams).where(streams.c.id == stream)).first()
            if row is None:
                raise LookupError("The stream does not exist.")
            query = select(snapshots).where(snapshots.c.stream == stream)
            cached = _from_snapshot(row, connection.execute(query).first())
        cached.generation = generation
        cached.latest = -math.inf if row.last_at is None else row.last_at
        while cached.seq < row.n_rows:
            self._replay(stream, cached)
        # The advice of a run addresses people who read its output.
        cached.model.advised = False
        cached.kind = f"{row.model} {row.settings}"
        return cached

    def _count_bytes(self, cached: CachedModel) -> None:
        """Update the size of a model.

        A model needs several times the bytes of its state. The difference hardly depends on the
        stream, so it is measured once per kind.
        """
        if cached.seq == 0:
            # Buffers are allocated with the first observation.
            return
        if cached.kind not in self._buffers:
            self._buffers[cached.kind] = _buffer_bytes(cached.model)
        size = cached.model.state_bytes() + self._buffers[cached.kind]
        self._bytes += size - cached.size
        cached.size = size

    def _replay(self, stream: int, cached: CachedModel) -> None:
        with self._engine.connect() as connection:
            stored = select_rows(connection, stream, cached.seq, cached.seq + _REPLAY_ROWS)
        # `model.run` takes rows that all have covariates or all have none.
        for _, group in groupby(stored, key=lambda row: row.x is None):
            rows = list(group)
            run = records.run_model(cached.model, [records.stored_observation(r) for r in rows])
            outputs = records.output_rows(run)
            self.differing += sum(
                not records.has_outputs(row, found)
                for row, found in zip(rows, outputs, strict=True)
            )
            cached.regime = int(run.regime[-1])
        cached.seq += len(stored)
        self.replayed += len(stored)

    def update(
        self, stream: int, batches: list[ObservationBatch], generation: int, policy: int = 0
    ) -> UpdateResult:
        """Update the model of a stream with batches in order.

        Each batch is accepted or rejected as a whole. If a rejected batch may have changed the
        model, the model is dropped and the remaining batches are returned with `retry` set.

        Args:
            stream: id of the stream.
            batches: one batch per request.
            generation: number of failed commits of the stream.
            policy: version of the rules and the labels of regimes; 0 for none.

        Raises:
            LookupError: if the stream does not exist.
        """
        started = time.perf_counter()
        replayed, differing = self.replayed, self.differing
        cached = self.get(stream, generation)
        self._load_alerts(stream, cached, policy)
        ids = [row.id for batch in batches for row in batch.rows if row.id is not None]
        stored = stored_ids(self._engine, stream, ids)
        update = _Update(cached, stream, stored, self._batch_seconds)
        results = [update.process(batch) for batch in batches]
        change = update.change
        if change is not None and cached.alerts is not None:
            if not update.invalid:
                change.alerts += cached.alerts.process_forecast(cached.model)
            change.alert_state = cached.alerts.state()
        if update.invalid:
            self.drop(stream)
        elif change is not None and cached.seq - cached.snapshot >= self._snapshot_every:
            change.snapshot = cached.model.to_bytes()
            cached.snapshot = cached.seq
            self._count_bytes(cached)
        elif cached.size == 0:
            self._count_bytes(cached)
        return UpdateResult(
            results,
            change,
            time.perf_counter() - started,
            self.replayed - replayed,
            self.differing - differing,
        )

    def _load_alerts(self, stream: int, cached: CachedModel, policy: int) -> None:
        """Load the stream's alert engine if the rules or labels have changed."""
        if cached.policy == policy:
            return
        with self._engine.connect() as connection:
            if self._policy != policy:
                self._rules, self._policy = alerts.list_rules(connection), policy
            labels = regime_labels(connection, stream)
            cached.alerts = StreamAlerts.load(connection, stream, self._rules, labels)
        cached.model.set_regime_labels({i: (own.name, own.status) for i, own in labels.items()})
        cached.policy = policy


def _from_snapshot(stream: Any, snapshot: Any) -> CachedModel:
    """Load the model of a snapshot, or create a new one if there is none that can be read."""
    if snapshot is not None:
        try:
            model = rk.from_bytes(bytes(snapshot.data))
        except rk.SnapshotError:
            pass
        else:
            # If observations follow the snapshot, the replay sets the regime.
            regime = int(stream.regime) if snapshot.seq == stream.n_rows else -1
            return CachedModel(model, snapshot.seq, snapshot.seq, regime)
    return CachedModel(rk.make(stream.model, **json.loads(stream.settings)), 0, 0, -1)


def _buffer_bytes(model: Any) -> int:
    """Return the bytes that a model needs besides its state."""
    data = model.to_bytes()
    tracemalloc.start()
    copy = rk.from_bytes(data)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return max(0, size - int(copy.state_bytes()))


class _SequenceGapError(ValueError):
    """A sequence number is larger than the next one."""


class _Update:
    """One update of a model with several batches."""

    def __init__(
        self, cached: CachedModel, stream: int, stored_ids: set[str], batch_seconds: float
    ) -> None:
        self.cached, self.stream, self.stored_ids = cached, stream, stored_ids
        self.batch_seconds = batch_seconds
        self.change: StreamChange | None = None
        self.invalid = False  # the model may contain observations of a rejected batch

    def process(self, batch: ObservationBatch) -> BatchResult:
        if self.invalid:
            return BatchResult(retry=True)
        try:
            new = self._new_rows(batch.rows)
        except _SequenceGapError as error:
            return BatchResult(error=str(error), conflict=True)
        parts: list[tuple[list[Observation], rk.Run]] = []
        started = time.process_time()
        for i in range(0, len(new), _PART_ROWS):
            part = new[i : i + _PART_ROWS]
            spent = time.process_time() - started
            if i and spent > self.batch_seconds:
                self.invalid = True
                return BatchResult(
                    error=f"The model needs {1e3 * spent / i:.3g} ms per observation, so a request "
                    f"must have at most {int(self.batch_seconds / spent * i)} of them."
                )
            try:
                parts.append((part, records.run_model(self.cached.model, part)))
            except RegimekitError as error:
                # A rejected first row leaves the model unchanged; a later one does not.
                self.invalid = len(new) > 1
                return BatchResult(error=str(error))
            except Exception as error:
                self.invalid = True
                return BatchResult(error=f"The model failed on these rows: {error!r}.")
        for part, run in parts:
            self._add(batch, part, run)
        late = self._count_late(new)
        return BatchResult(len(new), len(batch.rows) - len(new), self.cached.seq, late)

    def _count_late(self, rows: list[Observation]) -> int:
        """Count the rows whose time is before that of an earlier row."""
        late = 0
        for row in rows:
            if row.at is not None:
                late += row.at < self.cached.latest
                self.cached.latest = max(self.cached.latest, row.at)
        return late

    def _new_rows(self, rows: list[Observation]) -> list[Observation]:
        """Return the rows that are not stored yet, by id and by sequence number."""
        new: list[Observation] = []
        ids: set[str] = set()
        for row in rows:
            following = self.cached.seq + len(new)
            if row.id is not None and (row.id in self.stored_ids or row.id in ids):
                continue
            if row.seq is not None and row.seq < following:
                continue
            if row.seq is not None and row.seq > following:
                raise _SequenceGapError(
                    f"seq {row.seq} leaves a gap: the next observation is {following}."
                )
            new.append(row)
            if row.id is not None:
                ids.add(row.id)
        return new

    def _add(self, batch: ObservationBatch, new: list[Observation], run: rk.Run) -> None:
        cached = self.cached
        change = records.stream_change(
            self.stream, cached.seq, new, batch.received, run, cached.regime
        )
        if cached.alerts is not None:
            change.alerts = cached.alerts.process(cached.seq, new, batch.received, run)
        cached.seq += len(new)
        cached.regime = int(run.regime[-1])
        self.stored_ids |= {row.id for row in new if row.id is not None}
        if self.change is None:
            self.change = change
        else:
            self.change.extend(change)
