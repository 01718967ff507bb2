"""The models of a worker: those used lately in memory, the others in snapshots.

A model is fetched by its snapshot and the stored observations after it. Its outputs over those
must be the stored ones; where they are not (another version of the library), that is counted.
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, select

import regimekit as rk
from regimekit import RegimekitError
from regimekit.server import learning
from regimekit.server.rows import Commit, Learnt, Outcome, Part, Resting, Row
from regimekit.server.storage.tables import observations, snapshots, streams

_REPLAY = 500  # rows learnt at a time while a stream is replayed
_IDS = 400  # looked up at a time


@dataclass
class Entry:
    """A model in memory: how many observations it has learnt, and of which snapshot."""

    model: Any
    seq: int
    snapshot: int
    regime: int
    generation: int = 0


class Shelf:
    """Models by stream, at most `capacity` of them, the least recently used leaving first."""

    def __init__(self, engine: Engine, capacity: int, snapshot_every: int) -> None:
        self._engine = engine
        self._capacity = capacity
        self._every = snapshot_every
        self._entries: OrderedDict[int, Entry] = OrderedDict()
        self.resting: list[Resting] = []
        self.replayed = 0
        self.differing = 0

    def get(self, stream: int, generation: int = 0) -> Entry:
        """The model of a stream, up to date with what is stored."""
        entry = self._entries.get(stream)
        if entry is None:
            entry = self._fetch(stream, generation)
            self._entries[stream] = entry
        self._entries.move_to_end(stream)
        while len(self._entries) > self._capacity:
            self._rest(*self._entries.popitem(last=False))
        return entry

    def drop(self, stream: int) -> None:
        """Forget the model in memory; the next use fetches it anew."""
        self._entries.pop(stream, None)

    def rest_all(self) -> None:
        """Pack every model that has learnt since its snapshot."""
        while self._entries:
            self._rest(*self._entries.popitem(last=False))

    def _rest(self, stream: int, entry: Entry) -> None:
        if entry.seq > entry.snapshot:
            data = entry.model.to_bytes()
            self.resting.append(Resting(stream, entry.seq, data, entry.generation))

    def _fetch(self, stream: int, generation: int) -> Entry:
        with self._engine.connect() as connection:
            about = connection.execute(select(streams).where(streams.c.id == stream)).first()
            if about is None:
                raise LookupError("The stream does not exist.")
            kept = connection.execute(select(snapshots).where(snapshots.c.stream == stream)).first()
        entry = _thawed(about, kept)
        entry.generation = generation
        while entry.seq < about.n_rows:
            self._replay(stream, entry)
        return entry

    def _replay(self, stream: int, entry: Entry) -> None:
        query = (
            select(observations)
            .where(observations.c.stream == stream, observations.c.seq >= entry.seq)
            .order_by(observations.c.seq)
            .limit(_REPLAY)
        )
        with self._engine.connect() as connection:
            stored = connection.execute(query).all()
        for some in _alike(stored):
            run = learning.learn(entry.model, [learning.row_of(row) for row in some])
            outputs = learning.output_rows(run)
            self.differing += sum(
                not learning.same_outputs(row, found)
                for row, (found, _) in zip(some, outputs, strict=True)
            )
            entry.regime = int(run.regime[-1])
        entry.seq += len(stored)
        self.replayed += len(stored)

    def learn(self, stream: int, parts: list[Part], generation: int) -> Learnt:
        """Learn parts in order; each is taken whole or refused, and the first error of a model
        that had already moved ends the job (the rest is to be sent again).
        """
        started = time.perf_counter()
        before = self.replayed, self.differing
        job = _Job(self.get(stream, generation), stream, self._known_ids(stream, parts))
        outcomes = job.run(parts)
        if job.spoilt:
            self.drop(stream)
        elif job.commit is not None and job.entry.seq - job.entry.snapshot >= self._every:
            job.commit.snapshot = job.entry.model.to_bytes()
            job.entry.snapshot = job.entry.seq
        return Learnt(
            outcomes,
            job.commit,
            time.perf_counter() - started,
            self.replayed - before[0],
            self.differing - before[1],
        )

    def _known_ids(self, stream: int, parts: list[Part]) -> set[str]:
        ids = [row.id for part in parts for row in part.rows if row.id is not None]
        known: set[str] = set()
        if not ids:
            return known
        with self._engine.connect() as connection:
            for i in range(0, len(ids), _IDS):
                query = select(observations.c.id).where(
                    observations.c.stream == stream, observations.c.id.in_(ids[i : i + _IDS])
                )
                known.update(connection.execute(query).scalars())
        return known


def _thawed(about: Any, kept: Any) -> Entry:
    """The model of the snapshot, or a new one where there is none that can be read."""
    if kept is not None:
        try:
            model = rk.from_bytes(bytes(kept.data))
        except rk.SnapshotError:
            pass
        else:
            return Entry(model, kept.seq, kept.seq, _present(about, kept.seq))
    return Entry(rk.make(about.model, **json.loads(about.settings)), 0, 0, -1)


def _present(about: Any, seq: int) -> int:
    """The regime reported last; after a replay it is read from the run."""
    return int(about.regime) if seq == about.n_rows else -1


def _alike(stored: Any) -> list[list[Any]]:
    """Stored rows in pieces that have covariates or have none."""
    pieces: list[list[Any]] = []
    for row in stored:
        if not pieces or (pieces[-1][0].x is None) != (row.x is None):
            pieces.append([])
        pieces[-1].append(row)
    return pieces


class _Job:
    """Parts of one stream on their way through its model."""

    def __init__(self, entry: Entry, stream: int, known: set[str]) -> None:
        self.entry, self.stream, self.known = entry, stream, known
        self.commit: Commit | None = None
        self.spoilt = False

    def run(self, parts: list[Part]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for part in parts:
            if self.spoilt:
                outcomes.append(Outcome(again=True))
                continue
            outcomes.append(self._part(part))
        return outcomes

    def _part(self, part: Part) -> Outcome:
        try:
            fresh = self._fresh(part.rows)
        except _Gap as gap:
            return Outcome(error=str(gap), conflict=True)
        if fresh:
            try:
                run = learning.learn(self.entry.model, fresh)
            except RegimekitError as error:
                self.spoilt = len(fresh) > 1  # it may have learnt the rows before the bad one
                return Outcome(error=str(error))
            except Exception as error:
                self.spoilt = True
                return Outcome(error=f"The model failed on these rows: {error!r}.")
            self._keep(part, fresh, run)
        return Outcome(len(fresh), len(part.rows) - len(fresh), self.entry.seq)

    def _fresh(self, rows: list[Row]) -> list[Row]:
        """Rows that were not stored before, by id and by sequence number."""
        fresh: list[Row] = []
        new: set[str] = set()
        for row in rows:
            here = self.entry.seq + len(fresh)
            if row.id is not None and (row.id in self.known or row.id in new):
                continue
            if row.seq is not None and row.seq < here:
                continue
            if row.seq is not None and row.seq > here:
                raise _Gap(f"seq {row.seq} leaves a gap: the next observation is {here}.")
            fresh.append(row)
            if row.id is not None:
                new.add(row.id)
        return fresh

    def _keep(self, part: Part, fresh: list[Row], run: rk.Run) -> None:
        entry = self.entry
        more = learning.commit_of(self.stream, entry.seq, part.received, fresh, run, entry.regime)
        entry.seq += len(fresh)
        entry.regime = int(run.regime[-1])
        self.known |= {row.id for row in fresh if row.id is not None}
        self.commit = more if self.commit is None else _joined(self.commit, more)


class _Gap(ValueError):
    """A sequence number beyond the next one."""


def _joined(first: Commit, then: Commit) -> Commit:
    first.rows += then.rows
    first.events += then.events
    first.segments += then.segments
    first.end, first.received = then.end, then.received
    first.outliers += then.outliers
    return first
