"""Regime cards and the transition table of the report."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.preprocessing.time_index import TimeIndex
from regimekit.report.tables import number, percent, rounded
from regimekit.results import NO_REGIME, Regime, Transitions

Array = NDArray[np.float64]
_MAX_SAMPLE = 160  # observations of a segment that are drawn
_MAX_SEGMENTS = 12  # listed per regime
_MAX_COEFFICIENTS = 60
_MAX_REGIMES = 14  # in the transition table


class Segment(NamedTuple):
    """Consecutive observations in one regime: start <= t < end."""

    regime: int
    start: int
    end: int


def segments(path: NDArray[np.int64]) -> list[Segment]:
    """Split a path into segments of equal regime; observations without a regime are left out.

    Example:
        >>> segments(np.array([-1, 0, 0, 1]))
        [Segment(regime=0, start=1, end=3), Segment(regime=1, start=3, end=4)]
    """
    edges = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    found = [Segment(int(path[a]), a, b) for a, b in pairwise(edges) if b > a]
    return [segment for segment in found if segment.regime != NO_REGIME]


class Source(NamedTuple):
    """Data of the cards.

    Attributes:
        y: (T,) first coordinate of the observations.
        outlier: (T,) outlier flags.
        times: time index.
        labels: time labels.
        segments: segments of the path.
        regimes: regimes of the model by id.
        transitions: transition probabilities.
        names: coefficient names, if known.
    """

    y: Array
    outlier: NDArray[np.bool_]
    times: TimeIndex
    labels: list[str]
    segments: list[Segment]
    regimes: dict[int, Regime]
    transitions: Transitions
    names: list[str] | None


def cards(source: Source) -> list[dict[str, Any]]:
    """Make one card per visited or active regime, sorted by number of observations."""
    ids = {segment.regime for segment in source.segments} | set(source.regimes)
    made = [_card(source, regime) for regime in sorted(ids)]
    return sorted(made, key=lambda card: -card["observations"])


def _card(source: Source, regime: int) -> dict[str, Any]:
    own = [segment for segment in source.segments if segment.regime == regime]
    lengths = [segment.end - segment.start for segment in own]
    active = source.regimes.get(regime)
    return {
        "id": regime,
        "observations": sum(lengths),
        "share": percent(sum(lengths) / max(len(source.y), 1)),
        "active": active is not None,
        "quantiles": _quantiles(source, own),
        "duration": _duration(source, lengths),
        "segments": [_visit(source, segment) for segment in own[::-1][:_MAX_SEGMENTS]],
        "n_segments": len(own),
        "coefficients": _coefficients(active, source.names),
        "next": _next(source, regime),
        "sample": _sample(source, own),
        "summary": getattr(active, "summary", ""),
        "status": _status(active),
    }


def _status(regime: Regime | None) -> str:
    status = getattr(regime, "status", "unknown")
    return "" if status == "unknown" else str(status)


def _quantiles(source: Source, own: list[Segment]) -> dict[str, str] | None:
    """Median and 90 % range of the observations of a regime, without outliers."""
    if not own:
        return None
    inside = np.concatenate([np.arange(segment.start, segment.end) for segment in own])
    values = source.y[inside]
    values = values[~source.outlier[inside] & ~np.isnan(values)]
    if values.size == 0:
        return None
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    spread = float(high - low)
    texts = (rounded(float(v), spread) for v in (median, low, high))
    return dict(zip(("median", "low", "high"), texts, strict=True))


def _duration(source: Source, lengths: list[int]) -> dict[str, Any] | None:
    if not lengths:
        return None
    median = float(np.median(lengths))
    return {
        "median": number(median),
        "time": source.times.duration(median),
        "shortest": min(lengths),
        "longest": max(lengths),
    }


def _visit(source: Source, segment: Segment) -> dict[str, Any]:
    return {
        "start": segment.start,
        "end": segment.end,
        "from": source.labels[segment.start],
        "to": source.labels[segment.end - 1],
        "length": segment.end - segment.start,
    }


def _coefficients(regime: Regime | None, names: list[str] | None) -> list[dict[str, str]]:
    if regime is None:
        return []
    mean, sd = np.ravel(regime.mean), np.ravel(regime.sd)
    labels = names if names and len(names) == mean.size else _numbered(mean.size)
    rows = zip(labels, mean, sd, strict=True)
    found = [{"name": name, "mean": number(m), "sd": number(s)} for name, m, s in rows]
    return found[:_MAX_COEFFICIENTS]


def _numbered(size: int) -> list[str]:
    return ["level"] if size == 1 else [f"coefficient {j}" for j in range(size)]


def _next(source: Source, regime: int) -> list[dict[str, Any]]:
    """The three most probable next regimes, given that this one ends."""
    ids, matrix = source.transitions
    if regime not in ids or len(ids) == 1:
        return []
    here = ids.index(regime)
    row = np.asarray(matrix)[here]
    new = max(1.0 - float(row.sum()), 0.0)
    leave = float(row.sum()) - float(row[here]) + new
    if leave <= 1e-12:
        return []
    options = [(float(row[j]) / leave, other) for j, other in enumerate(ids) if j != here]
    options.append((new / leave, NO_REGIME))
    best = sorted(options, key=lambda pair: -pair[0])[:3]
    return [{"id": other, "share": percent(p)} for p, other in best if p >= 0.005]


def _sample(source: Source, own: list[Segment]) -> list[float | None] | None:
    """Values of the latest segment of at least median length; None for outliers and gaps."""
    if not own:
        return None
    median = float(np.median([segment.end - segment.start for segment in own]))
    latest = next(s for s in reversed(own) if s.end - s.start >= median)
    part = slice(max(latest.start, latest.end - _MAX_SAMPLE), latest.end)
    values = np.where(source.outlier[part], np.nan, source.y[part])
    return [None if np.isnan(v) else float(f"{v:.6g}") for v in values]


def transition_table(source: Source) -> dict[str, Any] | None:
    """Arrange expected transition probabilities and observed counts as a table."""
    ids = source.transitions.ids
    if not ids:
        return None
    shown = _most_visited(source, ids)
    moves = Counter((a.regime, b.regime) for a, b in pairwise(source.segments))
    rows = [_row(source.transitions, regime, shown, moves) for regime in shown]
    left_out = len(ids) - len(shown)
    return {
        "heads": shown,
        "rows": rows,
        "left_out": left_out,
        "rest": "other or new" if left_out else "new",
    }


def _most_visited(source: Source, ids: list[int]) -> list[int]:
    """The regimes with the most observations, sorted by id."""
    visits: Counter[int] = Counter()
    for segment in source.segments:
        visits[segment.regime] += segment.end - segment.start
    return sorted(sorted(ids, key=lambda regime: -visits[regime])[:_MAX_REGIMES])


def _row(
    transitions: Transitions, regime: int, shown: list[int], moves: Counter[tuple[int, int]]
) -> dict[str, Any]:
    place = {other: j for j, other in enumerate(transitions.ids)}
    row = transitions.matrix[place[regime]].tolist()
    cells = [_cell(row[place[other]], moves[regime, other]) for other in shown]
    rest = max(1.0 - sum(cell["p"] for cell in cells), 0.0)
    return {"id": regime, "cells": [*cells, _cell(rest, 0)]}


def _cell(p: float, observed: int) -> dict[str, Any]:
    return {"p": p, "text": percent(p), "observed": observed}
