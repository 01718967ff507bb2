"""Describe regimes: typical values, range, visits, and a sentence that distinguishes each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.regime_statistics import RegimeStatistics
from regimekit.results import UNKNOWN, Regime

Array = NDArray[np.float64]
# Returns the time of a row, or None if it is not known.
TimeOf = Callable[[int], Any]

_MIN_ROWS = 8  # observed rows from which a regime is described
_OFTEN = 0.75  # share of a regime's rows in a part of the day or week
_LIFT = 1.4  # ratio of this share to that of the whole stream
_SPREADS = 1.4  # ratio of two spreads that is mentioned
_SAME_LEVEL = 0.25  # difference of two medians, in 90 % ranges
_MAX_COORDINATES = 3  # coordinates that a sentence describes
_DAYS = ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays")


class Label(NamedTuple):
    """Name and status that a user gave to a regime."""

    name: str = ""
    status: str = UNKNOWN


class _Facts(NamedTuple):
    """Sampled values (n, d), differences (n, d) and rows (n,) of a regime; its share."""

    values: Array
    steps: Array
    rows: NDArray[np.int64]
    share: float

    @property
    def spread(self) -> Array:
        """(d,) widths of the 90 % range."""
        low, high = np.nanquantile(self.values, [0.05, 0.95], axis=0)
        return np.asarray(high - low)

    @property
    def step(self) -> Array:
        """(d,) median absolute differences."""
        known = self.steps[~np.isnan(self.steps).any(axis=1)]
        if not len(known):
            return np.full(self.steps.shape[1], np.nan)
        return np.asarray(np.median(np.abs(known), axis=0))


def describe(
    regimes: Sequence[Regime],
    statistics: RegimeStatistics | None,
    labels: Mapping[int, Label],
    time_of: TimeOf,
) -> list[Regime]:
    """Return the regimes with the fields that describe their observations.

    Args:
        regimes: regimes in memory.
        statistics: of their observations; None if there are none.
        labels: names and statuses by id.
        time_of: time of a row.
    """
    found = []
    facts: dict[int, _Facts] = {}
    for regime in regimes:
        label = labels.get(regime.id, Label())
        regime = regime._replace(name=label.name, status=label.status)
        if statistics is not None:
            regime, own = _measured(regime, statistics)
            if own is not None:
                facts[regime.id] = own
        found.append(regime)
    # Ranges of values near the largest number overflow to infinity.
    with np.errstate(over="ignore", invalid="ignore"):
        return [regime._replace(summary=_summary(regime, facts, time_of)) for regime in found]


def _measured(regime: Regime, statistics: RegimeStatistics) -> tuple[Regime, _Facts | None]:
    """Return a regime with its statistics."""
    values, steps, rows = statistics.rows_of(regime.id)
    count, n_visits, duration = statistics.visits_of(regime.id)
    total = statistics.n_rows - statistics.start
    share = count / total if total else float("nan")
    regime = regime._replace(share=share, duration=duration, n_visits=n_visits)
    seen = ~np.isnan(values)
    if not seen.any():
        return regime, None
    known = seen.any(axis=0)
    quantiles = np.full((3, values.shape[1]), np.nan)
    quantiles[:, known] = np.nanquantile(values[:, known], [0.05, 0.5, 0.95], axis=0)
    low, typical, high = (float(q[0]) if len(q) == 1 else q for q in quantiles)
    regime = regime._replace(typical=typical, low=low, high=high)
    enough = known.all() and len(values) >= _MIN_ROWS
    return regime, _Facts(values, steps, rows, share) if enough else None


def _summary(regime: Regime, facts: Mapping[int, _Facts], time_of: TimeOf) -> str:
    """Return one sentence without a capital and a full stop."""
    if regime.n_visits == 0:
        return ""
    parts = []
    if regime.id in facts and len(facts) > 1:
        when = _when(regime.id, facts, time_of)
        if when:
            parts.append(when)
        elif regime.n_visits == 1:
            parts.append(_once(regime, time_of))
    parts.append(_levels(regime, facts))
    others = [own for own in facts if own != regime.id]
    if regime.id in facts and others:
        # The largest other regime is the most familiar one.
        other = max(others, key=lambda own: (facts[own].share, -own))
        parts += _compared(facts[regime.id], facts[other], other)
    return ", ".join(part for part in parts if part)


def _levels(regime: Regime, facts: Mapping[int, _Facts]) -> str:
    """Return typical value and range; of the most distinctive coordinates for d > 1."""
    typical, low, high = (np.atleast_1d(v) for v in (regime.typical, regime.low, regime.high))
    if np.isnan(typical).all():
        return "nothing observed"
    order = np.arange(typical.size)
    if typical.size > _MAX_COORDINATES:
        others = [np.nanmedian(own.values, axis=0) for i, own in facts.items() if i != regime.id]
        if others:
            distance = np.abs(typical - np.mean(others, axis=0)) / np.maximum(high - low, 1e-300)
            order = np.sort(np.argsort(-distance, kind="stable")[:_MAX_COORDINATES])
    texts = []
    for j in order[:_MAX_COORDINATES].tolist():
        spread = float(high[j]) - float(low[j])
        middle, bottom, top = (rounded(float(v[j]), spread) for v in (typical, low, high))
        name = f"y_{j} " if typical.size > 1 else ""
        texts.append(f"{name}typically {middle} ({bottom} to {top})")
    return ", ".join(texts)


def _compared(own: _Facts, other: _Facts, regime: int) -> list[str]:
    """Return what differs from another regime besides the level."""
    parts = []
    spread, usual = own.spread, other.spread
    gap = np.abs(np.nanmedian(own.values, axis=0) - np.nanmedian(other.values, axis=0))
    same_level = bool((gap <= _SAME_LEVEL * np.maximum(spread, usual)).all())
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        widths, steps = spread / usual, own.step / other.step
    if same_level:
        parts.append(f"the level of regime {regime}")
    width, step = _extreme(widths), _extreme(steps)
    if _differs(width):
        parts.append(f"{_times(width)} the spread of regime {regime}")
    if _differs(step) and (not _differs(width) or not 0.5 < step / width < 2.0):
        parts.append(f"{_times(step)} the change from row to row")
    return parts


def _extreme(ratios: Array) -> float:
    """Return the ratio that is farthest from 1."""
    usable = ratios[np.isfinite(ratios) & (ratios > 0)]
    return float(usable[np.argmax(np.abs(np.log(usable)))]) if usable.size else 1.0


def _differs(ratio: float) -> bool:
    return not 1 / _SPREADS < ratio < _SPREADS


def _times(ratio: float) -> str:
    for value, text in ((1 / 2, "half"), (1 / 3, "a third of"), (1 / 4, "a quarter of")):
        if abs(ratio / value - 1) < 0.12:
            return text
    if abs(ratio / 2 - 1) < 0.12:
        return "twice"
    return f"{ratio:.2g} times"


def _once(regime: Regime, time_of: TimeOf) -> str:
    """Return when the only visit was."""
    first, last = time_of(regime.first_seen), time_of(regime.last_seen)
    if isinstance(first, datetime) and isinstance(last, datetime):
        days = (last - first).days > 2
        begin, end = (t.date() if days else t.strftime("%Y-%m-%d %H:%M") for t in (first, last))
        return f"only from {begin} to {end}"
    return f"only rows {regime.first_seen} to {regime.last_seen}"


def _when(regime: int, facts: Mapping[int, _Facts], time_of: TimeOf) -> str:
    """Return the part of the day or week in which a regime is found most, or ""."""
    times = {i: [time_of(int(row)) for row in own.rows] for i, own in facts.items()}
    if not all(isinstance(t, datetime) for own in times.values() for t in own):
        return ""
    own = _parts(times[regime])
    whole: dict[str, float] = {}
    total = sum(fact.share for fact in facts.values())
    for i, fact in facts.items():
        for name, share in _parts(times[i]).items():
            whole[name] = whole.get(name, 0.0) + share * fact.share / total
    clear = [
        name for name, share in own.items() if share >= max(_OFTEN, _LIFT * whole.get(name, 0.0))
    ]
    return max(clear, key=lambda name: own[name] - whole[name]) if clear else ""


def _parts(times: list[datetime]) -> dict[str, float]:
    """Return the share of times in each part of the day and week."""
    hour = np.array([t.hour for t in times])
    day = np.array([t.weekday() for t in times])
    masks = {name: day == k for k, name in enumerate(_DAYS)}
    weekend, night = day >= 5, (hour >= 21) | (hour < 6)
    masks |= {"weekends": weekend, "weekdays": ~weekend}
    if np.ptp(hour) > 0:
        masks |= {
            "nights": night,
            "daytimes": ~night,
            "nights and weekends": night | weekend,
            "daytimes on weekdays": ~night & ~weekend,
            "mornings": (hour >= 6) & (hour < 12),
            "afternoons": (hour >= 12) & (hour < 17),
            "evenings": (hour >= 17) & (hour < 22),
        }
    return {name: float(mask.mean()) for name, mask in masks.items()}


def rounded(value: float, spread: float) -> str:
    """Format a value to a fiftieth of a spread, with thousands separated by spaces.

    Example:
        >>> rounded(9123.4, 7000.0), rounded(0.12345, 0.5)
        ('9 100', '0.12')
    """
    size = max(abs(value), spread)
    if not (math.isfinite(value) and math.isfinite(spread)) or not 1e-4 < size < 1e9:
        return f"{value:.4g}"
    unit = spread / 50 if spread > size * 1e-9 else size * 1e-4
    decimals = -math.floor(math.log10(unit))
    text = f"{round(value, decimals):,.{max(decimals, 0)}f}".replace(",", " ")
    return text.lstrip("-") if not text.strip("-0.") else text
