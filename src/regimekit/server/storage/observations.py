"""Repository of observations with their outputs: single rows, buckets, segments, statistics.

A window is the half-open range [start, end) of sequence numbers. Buckets divide it into ranges of
equal length with the extremes of y and of the interval (so no outlier disappears), the mean
forecast, the number of outliers and the largest change probability.
"""

from __future__ import annotations

import json
import math
from contextlib import closing
from typing import Any

from sqlalchemy import Connection, Engine, Integer, Row, cast, func, select

from regimekit.server.config import INTERVAL_LEVEL
from regimekit.server.storage.database import placeholder
from regimekit.server.storage.schema import observations as o
from regimekit.server.storage.schema import segments
from regimekit.server.storage.streams import NO_LABEL, RegimeLabels, Stream, regime_labels

_SAMPLE_ROWS = 60  # latest values that illustrate a regime
_IDS_PER_QUERY = 400  # below the parameter limit of SQLite


def select_rows(connection: Connection, stream: int, start: int, end: int) -> list[Row[Any]]:
    """Return the stored rows of a window in order."""
    query = select(o).where(o.c.stream == stream, o.c.seq >= start, o.c.seq < end).order_by(o.c.seq)
    return list(connection.execute(query).all())


def stored_ids(engine: Engine, stream: int, ids: list[str]) -> set[str]:
    """Return those of the ids that observations of a stream have."""
    stored: set[str] = set()
    if not ids:
        return stored
    # Every request asks: a cursor of the driver costs a fifth of a query through SQLAlchemy.
    mark = placeholder(engine)
    with closing(engine.raw_connection()) as connection:
        cursor = connection.cursor()
        for i in range(0, len(ids), _IDS_PER_QUERY):
            part = ids[i : i + _IDS_PER_QUERY]
            marks = ", ".join([mark] * len(part))
            query = f"SELECT id FROM observations WHERE stream = {mark} AND id IN ({marks})"
            cursor.execute(query, (stream, *part))
            stored.update(row[0] for row in cursor.fetchall())
    return stored


def window(connection: Connection, stream: int, start: int, end: int) -> list[dict[str, Any]]:
    """Return the observations of a window as the API shows them."""
    labels = regime_labels(connection, stream)
    return [_row_dict(row, labels) for row in select_rows(connection, stream, start, end)]


def _row_dict(row: Row[Any], labels: RegimeLabels) -> dict[str, Any]:
    fields = row._mapping
    shown = {name: _finite(fields[name]) for name in fields if name not in ("stream", "vector")}
    shown["x"] = json.loads(row.x) if row.x else None
    shown["outlier"] = bool(row.outlier)
    shown["regime_name"] = labels.get(row.regime, NO_LABEL).name or None
    for name, values in (json.loads(row.vector) if row.vector else {}).items():
        shown[name] = None if values is None else [_finite(value) for value in values]
    return shown


def _finite(value: Any) -> Any:
    """Replace infinities and NaN, which JSON cannot represent, by None."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def buckets(
    connection: Connection, stream: int, start: int, end: int, points: int
) -> list[dict[str, Any]]:
    """Aggregate a window into at most `points` buckets."""
    width = -(-(end - start) // points)
    bucket = (o.c.seq - start) // width
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
            cast(func.sum(o.c.outlier), Integer).label("outliers"),
            func.max(o.c.change_probability).label("change_probability"),
        )
        .where(o.c.stream == stream, o.c.seq >= start, o.c.seq < end)
        .group_by(bucket)
        .order_by(func.min(o.c.seq))
    )
    return [
        {name: _finite(value) for name, value in row._mapping.items()}
        for row in connection.execute(query)
    ]


def regime_segments(
    connection: Connection, stream: Stream, start: int, end: int
) -> list[dict[str, int]]:
    """Return the regimes over a window as consecutive `start`, `end`, `regime`."""
    own = segments.c.stream == stream.id
    before = select(func.max(segments.c.start)).where(own, segments.c.start <= start)
    first = connection.execute(before).scalar()
    lowest = start if first is None else first
    query = select(segments).where(own, segments.c.start >= lowest, segments.c.start < end)
    found = connection.execute(query.order_by(segments.c.start)).all()
    ends = [*(row.start for row in found[1:]), end][: len(found)]
    return [
        {"start": max(row.start, start), "end": until, "regime": row.regime}
        for row, until in zip(found, ends, strict=True)
    ]


def position_of_time(connection: Connection, stream: Stream, at: float) -> int:
    """Return the first sequence number at or after a time, by bisection.

    Args:
        connection: a transaction.
        stream: a stream with `timed` set.
        at: seconds since 1970.
    """
    low, high = 0, stream.n_rows
    while low < high:
        middle = (low + high) // 2
        query = select(o.c.at).where(o.c.stream == stream.id, o.c.seq == middle)
        found = connection.execute(query).scalar()
        low, high = (low, middle) if found is not None and found >= at else (middle + 1, high)
    return low


def latest(connection: Connection, stream: Stream, n: int) -> list[Any]:
    """Return the last `n` observations, each with `y`, `regime`, `outlier`, `received`, `at`."""
    query = (
        select(o.c.y, o.c.regime, o.c.outlier, o.c.received, o.c.at)
        .where(o.c.stream == stream.id, o.c.seq >= stream.n_rows - n)
        .order_by(o.c.seq)
    )
    return list(connection.execute(query).all())


def calibration(connection: Connection, stream: int, start: int) -> dict[str, Any]:
    """Compare the observations from `start` on with their forecasts.

    Returns:
        The number of observations `n`, the nominal `level`, the fractions `coverage`, `below`,
        `above`, `under_median` and `outliers`, the mean `log_score` and the mean absolute error
        `mae`. Values without observations are None.
    """
    observed = o.c.y.is_not(None) & o.c.lower.is_not(None)
    row = connection.execute(
        select(
            func.count().label("n"),
            func.sum(cast(o.c.y < o.c.lower, Integer)).label("below"),
            func.sum(cast(o.c.y > o.c.upper, Integer)).label("above"),
            func.sum(cast(o.c.y < o.c.median, Integer)).label("under_median"),
            func.sum(o.c.outlier).label("outliers"),
            func.avg(o.c.log_score).label("log_score"),
            func.avg(func.abs(o.c.y - o.c.mean)).label("mae"),
        ).where(o.c.stream == stream, o.c.seq >= start, observed)
    ).one()
    shares = {
        name: None if row.n == 0 or (count := row._mapping[name]) is None else int(count) / row.n
        for name in ("below", "above", "under_median", "outliers")
    }
    below, above = shares["below"], shares["above"]
    return shares | {
        "n": int(row.n),
        "level": INTERVAL_LEVEL,
        "coverage": None if below is None or above is None else 1 - below - above,
        "log_score": _finite(row.log_score),
        "mae": _finite(row.mae),
    }


def regime_statistics(connection: Connection, stream: Stream) -> dict[int, dict[str, Any]]:
    """Summarize the stays in each regime.

    Returns:
        Per regime id: `lengths` of its stays in observations, counts of the `next` regimes, and
        a `sample` of the latest values without outliers.
    """
    found: dict[int, dict[str, Any]] = {}
    stays = regime_segments(connection, stream, 0, stream.n_rows)
    for i, stay in enumerate(stays):
        about = found.setdefault(stay["regime"], {"lengths": [], "next": {}})
        about["lengths"].append(stay["end"] - stay["start"])
        about["latest"] = stay
        if i + 1 < len(stays):
            following = stays[i + 1]["regime"]
            about["next"][following] = about["next"].get(following, 0) + 1
    for about in found.values():
        about["sample"] = _sample(connection, stream.id, about.pop("latest"))
    return found


def _sample(connection: Connection, stream: int, stay: dict[str, int]) -> list[float | None]:
    first = max(stay["start"], stay["end"] - _SAMPLE_ROWS)
    query = (
        select(o.c.y)
        .where(o.c.stream == stream, o.c.seq >= first, o.c.seq < stay["end"], o.c.outlier == 0)
        .order_by(o.c.seq)
    )
    return [_finite(y) for y in connection.execute(query).scalars()]
