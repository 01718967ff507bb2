"""What models hand back as plain columns of numbers, times and words, ready to be written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from regimekit.core.explain import coefficient_labels
from regimekit.core.model import Model
from regimekit.distributions.forecast import Forecast
from regimekit.io.reading import Block
from regimekit.preprocessing.time_index import Frequency, Time
from regimekit.results import Event, Regime, Run

Columns = dict[str, list[Any]]
EVENT_COLUMNS = ("time", "since", "kind", "regime", "previous")
FORECAST_COLUMNS = ("step", "time", "mean", "median", "lower", "upper", "sd")
_FIRST = ("mean", "median", "lower", "upper", "sd", "regime", "regime_probability", "weight")


def run_columns(block: Block, run: Run) -> Columns:
    """A run as columns that begin with the time and the observation."""
    values = {name: column.tolist() for name, column in run.columns().items()}
    first = {"time": block.times, "y": block.y.tolist()}
    known = {name: values[name] for name in _FIRST if name in values}
    return first | known | {n: v for n, v in values.items() if n not in first and n != "path"}


def event_columns(events: Iterable[Event], times: Sequence[Time | None], start: int = 0) -> Columns:
    """Events as columns; `times[0]` is the time of observation `start`."""
    rows = [
        (
            stamp(e.time, times, start),
            stamp(getattr(e, "since", e.time), times, start),
            e.kind,
            e.regime,
            e.previous,
        )
        for e in events
    ]
    return {name: [row[j] for row in rows] for j, name in enumerate(EVENT_COLUMNS)}


def stamp(index: int, times: Sequence[Time | None], start: int = 0) -> Time | int | None:
    """The time of an observation: its index in a stream without times, None if long forgotten."""
    if not times or times[0] is None:
        return index
    return times[index - start] if 0 <= index - start < len(times) else None


def regime_columns(model: Model, times: Sequence[Time | None] = (), start: int = 0) -> Columns:
    """The regimes a model remembers as columns: when seen, and their coefficients."""
    rows = []
    for regime in model.regimes():
        names = _names(model, regime)
        first, last = (stamp(t, times, start) for t in (regime.first_seen, regime.last_seen))
        row = {"regime": regime.id, "visits": regime.visits, "first_seen": first, "last_seen": last}
        row["probability"] = regime.probability
        for label, values in (("mean", regime.mean), ("sd", regime.sd)):
            pairs = zip(names, np.ravel(values), strict=True)
            row |= {f"{label}_{name}": float(value) for name, value in pairs}
        rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


def _names(model: Model, regime: Regime) -> list[str]:
    """What the coefficients are called, as names of columns."""
    return [name.replace(" ", "_") for name in coefficient_labels(model, regime.mean.size)]


def forecast_columns(
    ahead: Sequence[Forecast], level: float, last: Time | None, frequency: Frequency | None
) -> Columns:
    """Forecasts of the next steps as columns."""
    rows = [
        (step, _later(last, step, frequency), *_summary(forecast, level))
        for step, forecast in enumerate(ahead, start=1)
    ]
    return {name: [row[j] for row in rows] for j, name in enumerate(FORECAST_COLUMNS)}


def _summary(forecast: Forecast, level: float) -> tuple[float, ...]:
    lower, upper = forecast.interval(level)
    return tuple(
        float(v) for v in (forecast.mean, forecast.quantile(0.5), lower, upper, forecast.sd)
    )


def _later(last: Time | None, steps: int, frequency: Frequency | None) -> Time | None:
    return None if last is None or frequency is None else frequency.after(last, steps)
