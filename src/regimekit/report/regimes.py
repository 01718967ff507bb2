"""Regime cards and the transition table of the report."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.explain import coefficient_labels
from regimekit.preprocessing.time_index import TimeIndex
from regimekit.report.tables import number, percent, rounded
from regimekit.results import NO_REGIME, UNKNOWN, Regime, Segment, Transitions

Array = NDArray[np.float64]
_MAX_SAMPLE = 160  # observations of a segment that are drawn
_MAX_SEGMENTS = 12  # listed per regime
_MAX_COEFFICIENTS = 60
_MAX_REGIMES = 14  # in the transition table


class RegimeData(NamedTuple):
    """Data of the cards.

    Attributes:
        y: (T,) first coordinate of the observations.
        outlier: (T,) outlier flags.
        times: time index.
        labels: time labels.
        segments: segments of the path with a regime.
        model: the model.
        regimes: its regimes by id.
        transitions: transition probabilities.
        names: coefficient names, if the model does not provide them.
    """

    y: Array
    outlier: NDArray[np.bool_]
    times: TimeIndex
    labels: list[str]
    segments: list[Segment]
    model: Any
    regimes: dict[int, Regime]
    transitions: Transitions
    names: list[str] | None


def cards(data: RegimeData) -> list[dict[str, Any]]:
    """Make one card per visited or active regime, sorted by number of observations."""
    ids = {segment.regime for segment in data.segments} | set(data.regimes)
    made = [_card(data, regime) for regime in sorted(ids)]
    return sorted(made, key=lambda card: -card["observations"])


def _card(data: RegimeData, regime: int) -> dict[str, Any]:
    own = [segment for segment in data.segments if segment.regime == regime]
    lengths = [segment.end - segment.start for segment in own]
    active = data.regimes.get(regime)
    return {
        "id": regime,
        "observations": sum(lengths),
        "share": percent(sum(lengths) / max(len(data.y), 1)),
        "active": active is not None,
        "quantiles": _quantiles(data, own),
        "duration": _duration(data, lengths),
        "segments": [
            {
                "start": start,
                "end": end,
                "from": data.labels[start],
                "to": data.labels[end - 1],
                "length": end - start,
            }
            for _, start, end in own[::-1][:_MAX_SEGMENTS]
        ],
        "n_segments": len(own),
        "coefficients": [] if active is None else _coefficients(data, active),
        "next": _next(data, regime),
        "sample": _sample(data, own),
        "differences": "" if active is None else _differences(active.summary),
        "status": "" if active is None or active.status == UNKNOWN else active.status,
    }


def _differences(summary: str) -> str:
    """Return what a summary says besides values and visits, which the table has in hindsight.

    Example:
        >>> _differences("only rows 3 to 9, typically 5.1 (4 to 6), the level of regime 0")
        'the same level as regime 0'
    """
    parts = summary.replace("the level of", "the same level as").split(", ")
    return ", ".join(p for p in parts if not p.startswith("only ") and "typically " not in p)


def _quantiles(data: RegimeData, own: list[Segment]) -> dict[str, str] | None:
    """Median and 90 % range of the observations of a regime, without outliers."""
    if not own:
        return None
    inside = np.concatenate([np.arange(segment.start, segment.end) for segment in own])
    values = data.y[inside]
    values = values[~data.outlier[inside] & ~np.isnan(values)]
    if values.size == 0:
        return None
    low, median, high = np.quantile(values, [0.05, 0.5, 0.95])
    spread = float(high - low)
    texts = (rounded(float(v), spread) for v in (median, low, high))
    return dict(zip(("median", "low", "high"), texts, strict=True))


def _duration(data: RegimeData, lengths: list[int]) -> dict[str, Any] | None:
    if not lengths:
        return None
    median = float(np.median(lengths))
    return {
        "median": number(median),
        "time": data.times.duration(median),
        "shortest": min(lengths),
        "longest": max(lengths),
    }


def _coefficients(data: RegimeData, regime: Regime) -> list[dict[str, str]]:
    mean, sd = np.ravel(regime.mean), np.ravel(regime.sd)
    labels = coefficient_labels(data.model, mean.size, data.names)
    rows = zip(labels, mean, sd, strict=True)
    found = [{"name": name, "mean": number(m), "sd": number(s)} for name, m, s in rows]
    return found[:_MAX_COEFFICIENTS]


def _next(data: RegimeData, regime: int) -> list[dict[str, Any]]:
    """The three most probable next regimes, given that this one ends."""
    ids, matrix = data.transitions
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


def _sample(data: RegimeData, own: list[Segment]) -> list[float | None] | None:
    """Values of the latest segment of at least median length; None for outliers and gaps."""
    if not own:
        return None
    median = float(np.median([segment.end - segment.start for segment in own]))
    latest = next(s for s in reversed(own) if s.end - s.start >= median)
    part = slice(max(latest.start, latest.end - _MAX_SAMPLE), latest.end)
    values = np.where(data.outlier[part], np.nan, data.y[part])
    return [None if np.isnan(v) else float(f"{v:.6g}") for v in values]


def transition_table(data: RegimeData) -> dict[str, Any] | None:
    """Arrange expected transition probabilities and observed counts as a table."""
    ids = data.transitions.ids
    if not ids:
        return None
    visits: Counter[int] = Counter()
    for segment in data.segments:
        visits[segment.regime] += segment.end - segment.start
    shown = sorted(sorted(ids, key=lambda regime: -visits[regime])[:_MAX_REGIMES])
    moves = Counter((a.regime, b.regime) for a, b in pairwise(data.segments))
    rows = [_row(data.transitions, regime, shown, moves) for regime in shown]
    left_out = len(ids) - len(shown)
    return {
        "heads": shown,
        "rows": rows,
        "left_out": left_out,
        "rest": "other or new" if left_out else "new",
    }


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
