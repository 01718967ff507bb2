"""Data and errors passed between the parts of the service, and conversions to table rows.

Outputs are those of `model.run`. It gives bit-identical results however a stream is divided into
pieces; replaying stored observations after a restart relies on that.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection

from regimekit import Event, RegimekitError, Run
from regimekit.alerts import Alert
from regimekit.preprocessing.frames import Table
from regimekit.server.config import INTERVAL_LEVEL
from regimekit.server.storage import observations, streams
from regimekit.server.storage.schema import INTEGER_OUTPUTS, OUTPUTS, VECTOR_OUTPUTS
from regimekit.server.storage.streams import Stream


class RequestError(Exception):
    """A request cannot be fulfilled; the message becomes the body of the response.

    Attributes:
        status: HTTP status of the response.
        retry_after: seconds after which the client may send the request again, or None.
    """

    status = 422
    retry_after: int | None = None

    def __init__(
        self, reason: str, *, status: int | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(reason)
        self.status = status or self.status
        self.retry_after = retry_after or self.retry_after


class Observation(NamedTuple):
    """One observation as received.

    Attributes:
        y: a number, None (not observed), or a list of them.
        x: covariates by name.
        id: identifier chosen by the client; a second observation with the same id is ignored.
        seq: sequence number expected by the client.
        time: time as text.
        at: the same time in seconds since 1970.
    """

    y: Any
    x: dict[str, float | None] | None = None
    id: str | None = None
    seq: int | None = None
    time: str | None = None
    at: float | None = None


@dataclass(frozen=True)
class ObservationBatch:
    """The observations of one request: stored together or not at all."""

    rows: list[Observation]
    received: float


@dataclass(frozen=True)
class BatchResult:
    """Result of a batch.

    Attributes:
        accepted: number of new observations.
        duplicates: number of observations stored before.
        rows: number of observations of the stream afterwards.
        out_of_order: new observations whose time is before that of an earlier one.
        error: why the batch was rejected, or None.
        conflict: whether it was rejected for its sequence numbers.
        retry: the batch was not processed, because an earlier one invalidated the model in memory.
    """

    accepted: int = 0
    duplicates: int = 0
    rows: int = 0
    out_of_order: int = 0
    error: str | None = None
    conflict: bool = False
    retry: bool = False


@dataclass
class StreamChange:
    """Everything that one transaction stores for a stream that moves from `start` to `end` rows.

    Attributes:
        rows: values of `schema.OBSERVATION_COLUMNS`.
        events: values of `schema.EVENT_COLUMNS` without stream and number.
        segments: pairs (first sequence number, regime).
        snapshot: the model after `end` rows, if it is time to store it.
        outliers: number of outliers among the rows.
        alerts: alerts opened or resolved by the rows.
        alert_state: state of the alert engine after `end` rows, or None without rules.
    """

    stream: int
    start: int
    end: int
    received: float
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    events: list[tuple[Any, ...]] = field(default_factory=list)
    segments: list[tuple[int, int]] = field(default_factory=list)
    snapshot: bytes | None = None
    outliers: int = 0
    alerts: list[Alert] = field(default_factory=list)
    alert_state: str | None = None

    def extend(self, later: StreamChange) -> None:
        """Append a change that starts where this one ends."""
        self.rows += later.rows
        self.events += later.events
        self.segments += later.segments
        self.end, self.received = later.end, later.received
        self.outliers += later.outliers
        self.alerts += later.alerts


class StoredModel(NamedTuple):
    """A snapshot of a model that leaves the cache, so that loading it needs no replay."""

    stream: int
    seq: int
    data: bytes
    generation: int


@dataclass
class UpdateResult:
    """Answer of a worker to an update.

    Attributes:
        results: one result per batch, valid once `change` is stored.
        change: what to store, or None.
        seconds: time spent.
        replayed: stored observations that were replayed first.
        differing: replayed observations whose outputs differ from the stored ones.
    """

    results: list[BatchResult]
    change: StreamChange | None
    seconds: float = 0.0
    replayed: int = 0
    differing: int = 0


def run_model(model: Any, rows: list[Observation]) -> Run:
    """Update a model with observations in order.

    Raises:
        RegimekitError: if the rows do not fit together or do not fit the model.
    """
    run: Run = model.run(_targets(rows), covariates([row.x for row in rows]), level=INTERVAL_LEVEL)
    return run


def _targets(rows: list[Observation]) -> NDArray[np.float64]:
    """Return y as an array of shape (T,), or (T, d) if some y is a list."""
    width = max((len(row.y) for row in rows if isinstance(row.y, list)), default=0)
    if not width:
        return np.array([_number(row.y) for row in rows])
    targets = np.full((len(rows), width), math.nan)
    for i, row in enumerate(rows):
        if isinstance(row.y, list) and len(row.y) == width:
            targets[i] = [_number(value) for value in row.y]
        elif row.y is not None:
            raise RegimekitError(f"Row {i}: y must have {width} values like the other rows.")
    return targets


def covariates(given: list[dict[str, float | None] | None] | None) -> Table | None:
    """Convert covariates by name to a table of shape (T, number of covariates).

    Returns:
        The table, or None if there are no covariates.

    Raises:
        RegimekitError: if rows have different names.
    """
    if not given:
        return None
    names = given[0]
    for i, x in enumerate(given):
        if (x is None) != (names is None) or set(x or ()) != set(names or ()):
            raise RegimekitError(f"Row {i}: x must have the same names as in row 0.")
    if not names:
        return None
    return Table(
        np.array([[_number(x[name]) for name in names] for x in given if x is not None]),
        tuple(names),
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def stream_change(
    stream: int, start: int, batch: list[Observation], received: float, run: Run, regime: int
) -> StreamChange:
    """Convert a run to the rows to store.

    Args:
        stream: id of the stream.
        start: sequence number of the first observation.
        batch: the observations.
        received: time of arrival in seconds since 1970.
        run: outputs of the model.
        regime: regime before the first observation.
    """
    change = StreamChange(stream, start, start + len(batch), received)
    rows = zip(batch, output_rows(run), vector_rows(run), strict=True)
    for seq, (row, outputs, vector) in enumerate(rows, start):
        y = row.y[0] if isinstance(row.y, list) else row.y
        y = None if y is None else float(y)
        wide = None if vector is None else {"y": row.y} | vector
        about = (stream, seq, row.id, row.time, row.at, received, y, _json(row.x), _json(wide))
        change.rows.append((*about, *outputs))
    change.events = [
        (event.time, int(event.since), event.kind, event.regime, event.previous, received)
        for event in run.events
    ]
    change.segments = _segments(start, run, regime)
    change.outliers = int(run.outlier.sum())
    return change


def output_rows(run: Run) -> list[tuple[Any, ...]]:
    """Return the values of `schema.OUTPUTS` per observation; NaN becomes None.

    If y has several coordinates, these are the values of the first one.
    """
    columns: list[list[Any]] = []
    for name in OUTPUTS:
        values = getattr(run, name, None)
        if values is None:
            columns.append([None] * len(run))
        elif name in INTEGER_OUTPUTS:
            columns.append([int(value) for value in values])
        else:
            columns.append(_floats(values if values.ndim == 1 else values[:, 0]))
    return list(zip(*columns, strict=True))


def vector_rows(run: Run) -> list[dict[str, Any] | None]:
    """Return the outputs per coordinate of each observation, or None if y is a number."""
    if run.mean.ndim == 1:
        return [None] * len(run)
    found = {name: getattr(run, name, None) for name in VECTOR_OUTPUTS}
    known = {name: values for name, values in found.items() if values is not None}
    return [{name: _floats(values[i]) for name, values in known.items()} for i in range(len(run))]


def _floats(values: NDArray[Any]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values.tolist()]


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"))


def _segments(start: int, run: Run, regime: int) -> list[tuple[int, int]]:
    """Return the changes of regime, dated to the first observation of the new regime."""
    dated = {event.time: int(event.since) for event in run.events if event.regime != event.previous}
    found: list[tuple[int, int]] = []
    for seq, current in enumerate(run.regime.tolist(), start):
        if current != regime:
            found.append((max(dated.get(seq, seq), 0), current))
            regime = current
    return found


def stored_observation(row: Any) -> Observation:
    """Convert a stored row back to the observation that was received."""
    y = json.loads(row.vector)["y"] if row.vector else row.y
    x = json.loads(row.x) if row.x else None
    return Observation(y, x, row.id, row.seq, row.time, row.at)


def has_outputs(row: Any, outputs: tuple[Any, ...]) -> bool:
    """Return whether a stored row has exactly these outputs, bit for bit.

    The anomaly score is not compared.
    """
    stored = tuple(getattr(row, name) for name in OUTPUTS)
    # The anomaly score in a fault depends on when the regime was labelled.
    return all(
        mine == theirs or name == "anomaly_score"
        for name, mine, theirs in zip(OUTPUTS, stored, outputs, strict=True)
    )


def stored_run(
    connection: Connection, stream: Stream, start: int
) -> tuple[Run, NDArray[np.datetime64] | None]:
    """Rebuild the run over the stored observations from `start` on.

    Returns:
        The run, with NaN for outputs that are not stored, and the times of the observations
        (None unless every observation has a time in order).
    """
    rows = observations.select_rows(connection, stream.id, start, stream.n_rows)
    found = streams.list_events(connection, stream.id, start, None, stream.n_events + 1, False)
    path = np.full(len(rows), -1, dtype=np.int64)
    for stay in observations.regime_segments(connection, stream, start, stream.n_rows):
        path[stay["start"] - start : stay["end"] - start] = stay["regime"]
    run = Run.of_stored(
        len(rows),
        **{name: _column(rows, name) for name in {"y", *OUTPUTS}},
        events=[Event(e["seq"], e["kind"], e["regime"], e["previous"], e["since"]) for e in found],
        path=path,
        level=INTERVAL_LEVEL,
        first=start,
    )
    if not stream.timed:
        return run, None
    microseconds = np.array([round(1e6 * row.at) for row in rows])
    return run, microseconds.astype("datetime64[us]")


def _column(rows: list[Any], name: str) -> NDArray[Any]:
    """Return one column, of shape (T,), or (T, d) if y has several coordinates."""
    kind = {"outlier": bool, "regime": int, "n_regimes": int}.get(name, float)
    if rows[-1].vector is None or name not in json.loads(rows[-1].vector):
        return np.array([getattr(row, name) for row in rows], dtype=kind)
    values = [json.loads(row.vector)[name] for row in rows]
    missing = [None] * max(len(value) for value in values if value is not None)
    return np.array([missing if value is None else value for value in values], dtype=float)
