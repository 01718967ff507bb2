"""Convert runs, events, regimes and forecasts into named columns, ready to be written to files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from regimekit.core.explain import coefficient_labels as labels
from regimekit.core.model import Model
from regimekit.distributions.forecast import Forecasts
from regimekit.io.observations import ObservationBlock
from regimekit.preprocessing.time_index import Time
from regimekit.results import CHANGES, Event, Regime, Run

Columns = dict[str, list[Any]]
EVENT_COLUMNS = ("time", "since", "kind", "regime", "previous")
FORECAST_COLUMNS = ("step", "time", "mean", "median", "lower", "upper", "sd")


def run_columns(block: ObservationBlock, run: Run, start: int = 0) -> Columns:
    """Return a run as columns: time, observation, forecast, regime, and the rest.

    Args:
        block: T observations.
        run: their run.
        start: index of the first observation; it numbers the rows of a table without times.

    Returns:
        Columns of length T.
    """
    values = {name: column.tolist() for name, column in run.columns().items() if name != "path"}
    times = block.times
    if times[0] is None:
        times = list(range(start, start + len(run)))
    return {"time": times, "y": block.y.tolist()} | values


def event_columns(events: Iterable[Event], times: Sequence[Time | None], start: int = 0) -> Columns:
    """Return events as columns.

    Args:
        events: events with observation indices.
        times: time stamps of the latest observations.
        start: index of the observation that `times[0]` belongs to.
    """
    found: Columns = {name: [] for name in EVENT_COLUMNS}
    for event in events:
        found["time"].append(time_of(event.time, times, start))
        found["since"].append(time_of(event.since, times, start))
        for name in ("kind", "regime", "previous"):
            found[name].append(getattr(event, name))
    return found


def standing_events(events: Iterable[Event]) -> list[Event]:
    """Return the changes of regime in retrospect, and the first regime, the oldest first.

    An event dates its regime back: changes that were reported from there on are revoked, and it is
    none itself if the regime before them was the same.
    """
    found: list[Event] = []
    for event in events:
        if event.kind not in CHANGES:
            continue
        previous = event.previous
        while found and found[-1].since >= event.since:
            previous = found.pop().previous
        if event.regime != previous:
            found.append(event._replace(previous=previous))
    return found


def time_of(index: int, times: Sequence[Time | None], start: int = 0) -> Time | int | None:
    """Return the time of an observation.

    Returns:
        Its time stamp; `index` if the stream has no times; None if it is older than `times`.
    """
    if not times or times[0] is None:
        return index
    return times[index - start] if 0 <= index - start < len(times) else None


def regime_columns(model: Model, times: Sequence[Time | None] = (), start: int = 0) -> Columns:
    """Return the regimes of a model as columns: labels, statistics, and coefficients.

    A coefficient that a regime does not have is None.
    """
    rows = []
    for regime in model.regimes():
        names = [name.replace(" ", "_") for name in labels(model, regime.mean.size)]
        row: dict[str, Any] = {
            "regime": regime.id,
            "name": regime.name,
            "status": regime.status,
            "summary": regime.summary,
            **_levels(regime),
            "share": regime.share,
            "n_visits": regime.n_visits,
            "duration": regime.duration,
            "visits": regime.visits,
            "first_seen": time_of(regime.first_seen, times, start),
            "last_seen": time_of(regime.last_seen, times, start),
            "probability": regime.probability,
        }
        for label, values in (("mean", regime.mean), ("sd", regime.sd)):
            pairs = zip(names, np.ravel(values), strict=True)
            row |= {f"{label}_{name}": float(value) for name, value in pairs}
        rows.append(row)
    return columns_of(rows)


def _levels(regime: Regime) -> dict[str, float]:
    """Return typical value and range by column name (`typical_0`, `typical_1`, .. for d > 1)."""
    found: dict[str, float] = {}
    for name in ("typical", "low", "high"):
        values = np.atleast_1d(getattr(regime, name)).tolist()
        found |= {f"{name}_{j}" if len(values) > 1 else name: v for j, v in enumerate(values)}
    return found


def forecast_columns(forecasts: Forecasts, level: float) -> Columns:
    """Return forecasts of the next steps as columns; without a calendar the times are None."""
    found = {name: values.tolist() for name, values in forecasts.columns(level).items()}
    found.setdefault("time", [None] * len(forecasts))
    return {name: found[name] for name in FORECAST_COLUMNS}


def columns_of(rows: Sequence[dict[str, Any]]) -> Columns:
    """Return records as columns; None where a record lacks a name."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}
