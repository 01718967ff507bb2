"""From rows to what is stored: a model runs over them, and its outputs become table rows.

The outputs are those of `model.run`, which gives the same bits however a stream is cut into
pieces; that is what makes a replay exact.
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit import Event, RegimekitError, Run
from regimekit.preprocessing.frames import Table
from regimekit.server.config import LEVEL
from regimekit.server.rows import Commit, Row
from regimekit.server.storage.tables import OUTPUTS

_FORECAST = ("mean", "median", "sd", "lower", "upper")
_TWICE = "regime switched"  # some models say it beside "regime opened" or "regime returned"
_WHOLE = {"outlier", "regime", "n_regimes"}


def learn(model: Any, rows: list[Row]) -> Run:
    """Run the model over rows; a RegimekitError leaves it as it was."""
    run: Run = model.run(_targets(rows), _covariates([row.x for row in rows]), level=LEVEL)
    return run


def covariates(given: list[dict[str, float | None]] | None) -> Table | None:
    """Covariates of steps to come, as `model.forecast` takes them."""
    return _covariates(list(given)) if given else None


def _targets(rows: list[Row]) -> NDArray[np.float64]:
    width = max((len(row.y) for row in rows if isinstance(row.y, list)), default=0)
    if not width:
        return np.array([_number(row.y) for row in rows])
    full = np.full((len(rows), width), math.nan)
    for i, row in enumerate(rows):
        if isinstance(row.y, list) and len(row.y) == width:
            full[i] = [_number(value) for value in row.y]
        elif row.y is not None:
            raise RegimekitError(f"Row {i}: y must have {width} values like the other rows.")
    return full


def _covariates(given: list[Any]) -> Table | None:
    first = given[0]
    for i, x in enumerate(given):
        if (x is None) != (first is None) or (x is not None and set(x) != set(first)):
            raise RegimekitError(f"Row {i}: x must have the same names as in row 0.")
    if first is None or not first:
        return None
    names = tuple(first)
    return Table(np.array([[_number(x[name]) for name in names] for x in given]), names)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def commit_of(
    stream: int, start: int, received: float, rows: list[Row], run: Run, regime: int
) -> Commit:
    """What must be stored of a run that began at `start`, when the stream was in `regime`."""
    table = output_rows(run)
    commit = Commit(stream, start, start + len(rows), received)
    for i, (row, (outputs, vector)) in enumerate(zip(rows, table, strict=True)):
        commit.rows.append(
            (
                stream,
                start + i,
                row.id,
                row.time,
                row.at,
                received,
                _first(row.y),
                _json(row.x),
                _json(_with_target(vector, row.y)),
                *outputs,
            )
        )
    commit.events = [
        (stream, event.time, since(event), event.kind, event.regime, event.previous, received)
        for event in run.events
        if event.kind != _TWICE
    ]
    commit.segments = _segments(stream, start, run, regime)
    commit.outliers = int(run.outlier.sum())
    return commit


def output_rows(run: Run) -> list[tuple[tuple[Any, ...], dict[str, Any] | None]]:
    """Outputs of each observation as tables.OUTPUTS; all coordinates apart where there are more."""
    wide = {name: values for name in _FORECAST if (values := getattr(run, name, None)) is not None}
    columns = {name: values if values.ndim == 1 else values[:, 0] for name, values in wide.items()}
    for name in OUTPUTS:
        if name not in _FORECAST:
            columns[name] = getattr(run, name)
    lists = [
        _plain(columns[name], name in _WHOLE) if name in columns else [None] * len(run)
        for name in OUTPUTS
    ]
    vectors: list[dict[str, Any] | None] = [None] * len(run)
    if run.mean.ndim == 2:
        vectors = [
            {name: _plain(values[i]) for name, values in wide.items()} for i in range(len(run))
        ]
    return list(zip(zip(*lists, strict=True), vectors, strict=True))


def _plain(values: NDArray[Any], whole: bool = False) -> list[Any]:
    """Python numbers; NaN becomes None, as databases and JSON want it."""
    if whole:
        return [int(value) for value in values]
    return [None if math.isnan(value) else value for value in values.tolist()]


def _first(y: Any) -> float | None:
    value = (y[0] if y else None) if isinstance(y, list) else y
    return None if value is None else float(value)


def _with_target(vector: dict[str, Any] | None, y: Any) -> dict[str, Any] | None:
    if vector is None:
        return None
    return {"y": y} | vector


def _json(value: Any) -> str | None:
    return None if value is None else json.dumps(value, separators=(",", ":"))


def since(event: Event) -> int:
    """The first observation that belongs to an event."""
    return int(getattr(event, "since", event.time))


def _segments(stream: int, start: int, run: Run, regime: int) -> list[tuple[int, int, int]]:
    """Where the ribbon changes colour: at the first observation that belongs to the change."""
    begun = {event.time: since(event) for event in run.events if event.regime != event.previous}
    found: list[tuple[int, int, int]] = []
    for seq, now in enumerate(run.regime.tolist(), start=start):
        if now != regime:
            found.append((stream, max(begun.get(seq, seq), 0), now))
            regime = now
    return found


def row_of(stored: Any) -> Row:
    """A stored observation as it arrived, to be learnt again."""
    y = json.loads(stored.vector)["y"] if stored.vector else stored.y
    x = json.loads(stored.x) if stored.x else None
    return Row(y, x, stored.id, stored.seq, stored.time, stored.at)


def same_outputs(stored: Any, outputs: tuple[Any, ...]) -> bool:
    """Whether a replay gave, bit for bit, what is stored."""
    return tuple(getattr(stored, name) for name in OUTPUTS) == outputs
