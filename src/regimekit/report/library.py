"""The library of regimes as a person wants it: what each looks like, when, how long, what next."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.plotting.palette import look
from regimekit.preprocessing.time_index import TimeIndex
from regimekit.report.words import number, percent, rounded
from regimekit.results import NO_REGIME, Regime, Transitions

Array = NDArray[np.float64]
_SAMPLE = 160  # observations of a stay that are drawn
_LISTED_STAYS = 12
_LISTED_COEFFICIENTS = 60
_MAPPED = 14  # regimes in the transition map


class Stay(NamedTuple):
    """Neighbouring observations in one regime: start <= t < end."""

    regime: int
    start: int
    end: int


def stays(path: NDArray[np.int64]) -> list[Stay]:
    """The stays along a path, in order; observations without a regime belong to none.

    Example:
        >>> stays(np.array([-1, 0, 0, 1]))
        [Stay(regime=0, start=1, end=3), Stay(regime=1, start=3, end=4)]
    """
    edges = [0, *(np.flatnonzero(np.diff(path)) + 1).tolist(), len(path)]
    found = [Stay(int(path[a]), a, b) for a, b in pairwise(edges) if b > a]
    return [stay for stay in found if stay.regime != NO_REGIME]


class Known(NamedTuple):
    """What the entries of the library are made from."""

    y: Array  # (T,) the first coordinate
    outlier: NDArray[np.bool_]
    times: TimeIndex
    words: list[str]  # of the times
    stays: list[Stay]
    regimes: dict[int, Regime]
    transitions: Transitions
    names: list[str] | None  # of the coefficients


def entries(known: Known) -> list[dict[str, Any]]:
    """One entry per regime that was visited or is remembered, the longest visited first."""
    ids = {stay.regime for stay in known.stays} | set(known.regimes)
    made = [_entry(known, regime) for regime in sorted(ids)]
    return sorted(made, key=lambda entry: -entry["observations"])


def _entry(known: Known, regime: int) -> dict[str, Any]:
    own = [stay for stay in known.stays if stay.regime == regime]
    lengths = [stay.end - stay.start for stay in own]
    remembered = known.regimes.get(regime)
    return {
        "id": regime,
        "look": look(regime)._asdict(),
        "observations": sum(lengths),
        "share": percent(sum(lengths) / max(len(known.y), 1)),
        "remembered": remembered is not None,
        "looks": _looks(known, own),
        "lasts": _lasts(known, lengths),
        "stays": [_when(known, stay) for stay in own[::-1][:_LISTED_STAYS]],
        "n_stays": len(own),
        "coefficients": _coefficients(remembered, known.names),
        "next": _next(known, regime),
        "sample": _sample(known, own),
    }


def _looks(known: Known, own: list[Stay]) -> dict[str, str] | None:
    """Level and spread of its observations, outliers apart."""
    if not own:
        return None
    inside = np.concatenate([np.arange(stay.start, stay.end) for stay in own])
    values = known.y[inside]
    values = values[~known.outlier[inside] & ~np.isnan(values)]
    if values.size == 0:
        return None
    low, level, high = np.quantile(values, [0.05, 0.5, 0.95])
    spread = float(high - low)
    words = (rounded(float(v), spread) for v in (level, low, high))
    return dict(zip(("level", "low", "high"), words, strict=True))


def _lasts(known: Known, lengths: list[int]) -> dict[str, Any] | None:
    if not lengths:
        return None
    usual = float(np.median(lengths))
    return {
        "usual": number(usual),
        "span": known.times.duration(usual),
        "shortest": min(lengths),
        "longest": max(lengths),
    }


def _when(known: Known, stay: Stay) -> dict[str, Any]:
    return {
        "start": stay.start,
        "end": stay.end,
        "from": known.words[stay.start],
        "to": known.words[stay.end - 1],
        "length": stay.end - stay.start,
    }


def _coefficients(regime: Regime | None, names: list[str] | None) -> list[dict[str, str]]:
    if regime is None:
        return []
    mean, sd = np.ravel(regime.mean), np.ravel(regime.sd)
    labels = names if names and len(names) == mean.size else _numbered(mean.size)
    rows = zip(labels, mean, sd, strict=True)
    found = [{"name": name, "mean": number(m), "sd": number(s)} for name, m, s in rows]
    return found[:_LISTED_COEFFICIENTS]


def _numbered(size: int) -> list[str]:
    return ["level"] if size == 1 else [f"coefficient {j}" for j in range(size)]


def _next(known: Known, regime: int) -> list[dict[str, Any]]:
    """Where it goes when it is left, the most probable first."""
    ids, matrix = known.transitions
    if regime not in ids or len(ids) == 1:
        return []
    here = ids.index(regime)
    row = np.asarray(matrix)[here]
    new = max(1.0 - float(row.sum()), 0.0)
    leave = float(row.sum()) - float(row[here]) + new
    if leave <= 1e-12:
        return []
    chances = [(float(row[j]) / leave, other) for j, other in enumerate(ids) if j != here]
    chances.append((new / leave, NO_REGIME))
    best = sorted(chances, key=lambda pair: -pair[0])[:3]
    return [
        {"id": other, "share": percent(chance), "look": look(max(other, 0))._asdict()}
        for chance, other in best
        if chance >= 0.005
    ]


def _sample(known: Known, own: list[Stay]) -> dict[str, Any] | None:
    """A stay to look at: the latest that is as long as usual, its last observations."""
    if not own:
        return None
    usual = float(np.median([stay.end - stay.start for stay in own]))
    stay = next(stay for stay in reversed(own) if stay.end - stay.start >= usual)
    start = max(stay.start, stay.end - _SAMPLE)
    values = np.where(known.outlier[start : stay.end], np.nan, known.y[start : stay.end])
    drawn = [None if np.isnan(v) else float(f"{v:.6g}") for v in values]
    return {"start": start, "values": drawn, "from": known.words[start]}


def transition_map(known: Known) -> dict[str, Any] | None:
    """The table of moves: expected probability, and how often it was seen to happen."""
    ids = known.transitions.ids
    if not ids:
        return None
    shown = _most_visited(known, ids)
    moves = Counter((a.regime, b.regime) for a, b in pairwise(known.stays))
    rows = [_row(known.transitions, regime, shown, moves) for regime in shown]
    heads = [{"id": regime, "look": look(regime)._asdict()} for regime in shown]
    left_out = len(ids) - len(shown)
    return {
        "heads": heads,
        "rows": rows,
        "left_out": left_out,
        "rest": "other or new" if left_out else "new",
    }


def _most_visited(known: Known, ids: list[int]) -> list[int]:
    """The regimes that have room in the map, in the order of their ids."""
    visits: Counter[int] = Counter()
    for stay in known.stays:
        visits[stay.regime] += stay.end - stay.start
    return sorted(sorted(ids, key=lambda regime: -visits[regime])[:_MAPPED])


def _row(
    transitions: Transitions, regime: int, shown: list[int], moves: Counter[tuple[int, int]]
) -> dict[str, Any]:
    place = {other: j for j, other in enumerate(transitions.ids)}
    chances = transitions.matrix[place[regime]].tolist()
    cells = [_cell(chances[place[other]], moves[regime, other]) for other in shown]
    rest = max(1.0 - sum(cell["p"] for cell in cells), 0.0)
    return {"id": regime, "look": look(regime)._asdict(), "cells": [*cells, _cell(rest, 0)]}


def _cell(p: float, seen: int) -> dict[str, Any]:
    return {"p": p, "text": percent(p), "seen": seen}
