"""What `auto` knows, in plain words."""

from __future__ import annotations

from typing import Any

import numpy as np

from regimekit.ensemble.stream import Stream
from regimekit.results import Regime

_LISTED = 6  # members, regimes and outliers named at most


def explain(stream: Stream | None, time: int) -> str:
    """Units, features, leading members, intervals, regimes and outliers, a line or a few each."""
    if stream is None:
        return "auto has seen nothing yet. Give it observations with update(y) or run(y)."
    lines = [
        f"auto after {time} observations ({stream.units.count} in the present units).",
        _units(stream),
        _features(stream),
        _members(stream),
        _intervals(stream),
        *_regimes(stream),
        _outliers(stream, time),
    ]
    return "\n".join(lines)


def number(value: float) -> str:
    """Five digits that matter."""
    return f"{value:.5g}"


def _numbers(values: Any) -> str:
    return ", ".join(number(v) for v in np.atleast_1d(values))


def _units(stream: Stream) -> str:
    u = stream.units
    return (
        f"Units: noise of about {_numbers(u.scale)} around {_numbers(u.centre)}, from differences."
    )


def _features(stream: Stream) -> str:
    steps = sorted({k for m in stream.ensemble.regimes for k in m.spec.steps})
    text = f"Features: lags {', '.join(map(str, steps))}"
    if stream.seasons:
        text += f"; a season of {' and '.join(map(str, stream.seasons))} observations was found"
    if stream.n_x:
        text += f"; {stream.n_x} covariate(s)"
    return text + "."


def _members(stream: Stream) -> str:
    pairs = list(stream.weights().items())[:_LISTED]
    told = [f"{name} {share:.0%}" for name, share in pairs if share >= 0.005]
    text = f"The forecast mixes: {'; '.join(told)}."
    ensemble = stream.ensemble
    resting = [
        name for name, up in zip(ensemble.names, ensemble.mixer.present, strict=True) if not up
    ]
    if resting:
        text += f" At rest, for they had not mattered: {'; '.join(resting)}."
    return text


def _intervals(stream: Stream) -> str:
    c = stream.calibration
    if not c.told:
        return "Intervals: nothing to check them against yet."
    return f"Intervals: 90 % intervals held {c.held / c.told:.1%} of {c.told} values."


def _regimes(stream: Stream) -> list[str]:
    reading = stream.reading
    known = stream.regimes()
    name = stream.reader.spec.name
    head = f"Regimes, read from {name}: {len(known)} so far"
    if reading.regime >= 0:
        head += f", now {reading.regime} since observation {reading.began}"
    latest = sorted(known, key=lambda regime: -regime.last_seen)[:_LISTED]
    return [head + ".", *(_regime(stream, regime) for regime in sorted(latest))]


def _regime(stream: Stream, regime: Regime) -> str:
    labels = stream.coefficient_names()
    told = [
        f"{label} {number(mean)} (sd {number(sd)})"
        for label, mean, sd in zip(labels, regime.mean, regime.sd, strict=False)
    ]
    seen = f"{regime.visits} observations, {regime.first_seen} to {regime.last_seen}"
    return f"  regime {regime.id}: {', '.join(told)}; {seen}."


def _outliers(stream: Stream, time: int) -> str:
    if not stream.outliers:
        return "Outliers: none."
    latest = ", ".join(map(str, stream.outliers[-_LISTED:]))
    return f"Outliers: {stream.n_outliers} of {time} observations; the latest at {latest}."
