"""Observations with their outputs: as they are, or gathered into as many points as fit a screen.

A window is [from, to) in sequence numbers. When it holds more rows than points are asked for, it
is cut into buckets of equal length: extremes of y and of the band (nothing sticks out unseen),
the mean of the forecasts, the number of outliers, the largest change probability.
"""

from __future__ import annotations

import json
import math
from typing import Any

from sqlalchemy import Connection, Integer, cast, func, select

from regimekit.server.config import LEVEL
from regimekit.server.storage.streams import Stream, names
from regimekit.server.storage.tables import observations as o
from regimekit.server.storage.tables import segments

_SAMPLE = 60  # values that show what a regime looks like


def rows(connection: Connection, stream: int, start: int, end: int) -> list[dict[str, Any]]:
    """The observations of a window, each with its outputs beside it."""
    query = select(o).where(o.c.stream == stream, o.c.seq >= start, o.c.seq < end).order_by(o.c.seq)
    known = names(connection, stream)
    return [shape(row._mapping, known) for row in connection.execute(query)]


def shape(row: Any, known: dict[int, tuple[str, str]]) -> dict[str, Any]:
    """An observation as the API shows it."""
    shown = {name: _finite(row[name]) for name in row if name not in ("stream", "vector", "x")}
    shown["x"] = json.loads(row["x"]) if row["x"] else None
    shown["outlier"] = bool(row["outlier"])
    shown["regime_name"] = known.get(row["regime"], (None, ""))[0] or None
    if row["vector"]:
        wide = json.loads(row["vector"])
        shown |= {
            name: [_finite(v) for v in values] if values is not None else None
            for name, values in wide.items()
        }
    return shown


def _finite(value: Any) -> Any:
    """Infinities have no place in JSON."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def buckets(
    connection: Connection, stream: int, start: int, end: int, points: int
) -> list[dict[str, Any]]:
    """A window in at most `points` buckets."""
    width = -(-(end - start) // points)
    which = (o.c.seq - start) // width
    query = (
        select(
            func.min(o.c.seq).label("seq"),
            func.count().label("n"),
            func.min(o.c.at).label("at"),
            func.avg(o.c.y).label("y"),
            func.min(o.c.y).label("y_min"),
            func.max(o.c.y).label("y_max"),
            func.avg(o.c.mean).label("mean"),
            func.min(o.c.lower).label("lower"),
            func.max(o.c.upper).label("upper"),
            func.sum(o.c.outlier).label("outliers"),
            func.max(o.c.change_probability).label("change_probability"),
        )
        .where(o.c.stream == stream, o.c.seq >= start, o.c.seq < end)
        .group_by(which)
        .order_by(func.min(o.c.seq))
    )
    return [
        {name: _finite(value) for name, value in row._mapping.items()}
        | {"outliers": int(row.outliers)}
        for row in connection.execute(query)
    ]


def ribbon(connection: Connection, stream: Stream, start: int, end: int) -> list[dict[str, Any]]:
    """Which regime held when, over a window."""
    first = connection.execute(
        select(func.max(segments.c.start)).where(
            segments.c.stream == stream.id, segments.c.start <= start
        )
    ).scalar()
    query = (
        select(segments)
        .where(
            segments.c.stream == stream.id,
            segments.c.start >= (start if first is None else first),
            segments.c.start < end,
        )
        .order_by(segments.c.start)
    )
    found = connection.execute(query).all()
    ends = [*(row.start for row in found[1:]), end][: len(found)]
    return [
        {"start": max(row.start, start), "end": until, "regime": row.regime}
        for row, until in zip(found, ends, strict=True)
    ]


def position(connection: Connection, stream: Stream, at: float) -> int:
    """The first observation at or after a time, by halving; times are in order here."""
    low, high = 0, stream.n_rows
    while low < high:
        middle = (low + high) // 2
        there = connection.execute(
            select(o.c.at).where(o.c.stream == stream.id, o.c.seq == middle)
        ).scalar()
        low, high = (low, middle) if there is not None and there >= at else (middle + 1, high)
    return low


def latest(connection: Connection, found: list[Stream], length: int) -> dict[int, list[Any]]:
    """The last values of each stream, for sparklines: (y, regime, outlier, received)."""
    picked: dict[int, list[Any]] = {stream.id: [] for stream in found}
    for stream in found:
        query = (
            select(o.c.y, o.c.regime, o.c.outlier, o.c.received)
            .where(o.c.stream == stream.id, o.c.seq >= stream.n_rows - length)
            .order_by(o.c.seq)
        )
        picked[stream.id] = list(connection.execute(query).all())
    return picked


def calibration(connection: Connection, stream: int, start: int) -> dict[str, Any]:
    """How often observations fell where the forecasts said, from `start` on."""
    seen = o.c.y.is_not(None) & o.c.lower.is_not(None)
    row = connection.execute(
        select(
            func.count().label("n"),
            func.sum(cast(o.c.y < o.c.lower, Integer)).label("below"),
            func.sum(cast(o.c.y > o.c.upper, Integer)).label("above"),
            func.sum(cast(o.c.y < o.c.median, Integer)).label("under_median"),
            func.avg(o.c.log_score).label("log_score"),
            func.avg(func.abs(o.c.y - o.c.mean)).label("mae"),
            func.sum(o.c.outlier).label("outliers"),
        ).where(o.c.stream == stream, o.c.seq >= start, seen)
    ).one()
    n = int(row.n)
    below, above = _share(row.below, n), _share(row.above, n)
    return {
        "n": n,
        "level": LEVEL,
        "coverage": None if below is None or above is None else 1 - below - above,
        "below": below,
        "above": above,
        "under_median": _share(row.under_median, n),
        "outliers": _share(row.outliers, n),
        "log_score": _finite(row.log_score),
        "mae": _finite(row.mae),
    }


def _share(count: int | None, n: int) -> float | None:
    return None if count is None or n == 0 else int(count) / n


def visits(connection: Connection, stream: Stream) -> dict[int, dict[str, Any]]:
    """Of each regime: how often, how long, what came after it, and its latest values."""
    found: dict[int, dict[str, Any]] = {}
    pieces = ribbon(connection, stream, 0, stream.n_rows)
    followed = [*pieces[1:], None] if pieces else []  # a stream without a regime has no piece yet
    for piece, then in zip(pieces, followed, strict=True):
        about = found.setdefault(piece["regime"], {"lengths": [], "next": {}})
        about["lengths"].append(piece["end"] - piece["start"])
        about["latest"] = piece
        if then is not None:
            about["next"][then["regime"]] = about["next"].get(then["regime"], 0) + 1
    for about in found.values():
        about["sample"] = _sample(connection, stream.id, about.pop("latest"))
    return found


def _sample(connection: Connection, stream: int, stay: dict[str, Any]) -> list[float | None]:
    """The last values of a stay, outliers left out."""
    first = max(stay["start"], stay["end"] - _SAMPLE)
    query = (
        select(o.c.y)
        .where(o.c.stream == stream, o.c.seq >= first, o.c.seq < stay["end"], o.c.outlier == 0)
        .order_by(o.c.seq)
    )
    return [_finite(y) for y in connection.execute(query).scalars()]
