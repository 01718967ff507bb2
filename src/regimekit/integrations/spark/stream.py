"""Streams: a key's model lies in the state store as bytes and is run on in every micro-batch.

Within a micro-batch the rows of a key are sorted by time and repeated times are dropped. A row that
is not later than what its key has learnt comes out with `kind` "late" and is not learnt; rows that
Spark's watermark drops before that are counted by `late_rows`. A key that has been silent for
`silence` gives one row of `kind` "silence". All timers run on event time, so that a batch that is
run again after a crash says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StringType, TimestampType

import regimekit as rk
from regimekit.core.exceptions import RegimekitError
from regimekit.integrations.spark.recipe import Recipe, in_order, make_recipe, unlearnt

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_STATE = "model BINARY, last LONG, late LONG, timer LONG"
_MICROSECONDS = "datetime64[us]"


def follow(
    df: DataFrame,
    key: str | Sequence[str],
    time: str,
    target: str,
    *,
    covariates: Sequence[str] = (),
    model: str | None = None,
    settings: Mapping[str, Any] | None = None,
    level: float = 0.9,
    silence: str | None = None,
) -> DataFrame:
    """Run one model per key along a stream; write the result in output mode append.

    Args:
        df: a streaming frame with a watermark on `time`: `df.withWatermark("time", "1 hour")`.
        key: the column (or columns) that names a series.
        time: a timestamp column.
        target: the column that is forecast; null means not observed.
        covariates: numeric columns that are known before the target.
        model: name of a regimekit model; the default one if not given.
        settings: the model's settings.
        level: probability that the interval `lower` .. `upper` should hold.
        silence: how long a key may say nothing before that is reported, as in "10 minutes".

    The columns are the key, the time, the results of `run_groups`, `kind` ("observation", "late" or
    "silence") and `late`, how many late rows the key has had.
    """
    recipe = make_recipe(df, key, time, target, covariates, model, settings, level)
    if df.sparkSession.conf.get(STATE_STORE, "") != ROCKSDB:
        raise RegimekitError(
            f"The state store must be RocksDB: spark.conf.set({STATE_STORE!r}, "
            f"{ROCKSDB!r}) before the query starts."
        )
    if not isinstance(df.schema[time].dataType, TimestampType):
        raise RegimekitError(f"time={time!r} must be a timestamp, got {df.schema[time].dataType}.")
    wait = None if silence is None else int(pd.Timedelta(silence) / pd.Timedelta("1ms"))
    return (
        recipe.needed(df)
        .groupBy(*recipe.key)
        .transformWithStateInPandas(
            statefulProcessor=Follower(recipe, wait),
            outputStructType=recipe.schema(df, kind=StringType(), late=LongType()),
            outputMode="append",
            timeMode="eventTime",
        )
    )


def late_rows(query: StreamingQuery) -> int:
    """Rows that the watermark dropped, over the progress reports that the query still holds."""
    operators = [part for report in query.recentProgress for part in report.stateOperators]
    return sum(part.numRowsDroppedByWatermark for part in operators)


class Follower(StatefulProcessor):
    """One key at a time: its state in, its rows learnt, its state out."""

    def __init__(self, recipe: Recipe, silence: int | None) -> None:
        self.recipe = recipe
        self.silence = silence  # milliseconds

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.state = handle.getValueState("regimekit", _STATE)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        arrived = in_order(pd.concat(list(rows), ignore_index=True), self.recipe.time)
        packed, last, late, timer = self.state.get() or (None, None, 0, None)
        stamps = _microseconds(arrived[self.recipe.time])
        after = stamps > (last if last is not None else stamps.min() - 1)
        late += int((~after).sum())
        if not after.all():
            yield unlearnt(arrived[~after], self.recipe).assign(kind="late", late=late)
        if after.any():
            model = self.recipe.start() if packed is None else rk.from_bytes(bytes(packed))
            yield self.recipe.learn(model, arrived[after], kind="observation", late=late)
            packed, last = model.to_bytes(), int(stamps.max())
            timer = self._wait(last, timer)
        self.state.update((packed, last, late, timer))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        packed, last, late, _ = self.state.get() or (None, None, 0, None)
        row = pd.DataFrame([key], columns=list(self.recipe.key))
        row[self.recipe.time] = pd.Series([last]).astype(_MICROSECONDS)
        row[self.recipe.target] = float("nan")
        self.state.update((packed, last, late, None))
        yield unlearnt(row, self.recipe).assign(kind="silence", late=late)

    def close(self) -> None:
        """Nothing is held beyond the state."""

    def _wait(self, last: int, timer: int | None) -> int | None:
        """Set the timer of the key's silence anew."""
        if self.silence is None:
            return None
        if timer is not None:
            self.handle.deleteTimer(timer)
        due = last // 1000 + self.silence
        self.handle.registerTimer(due)
        return due


def _microseconds(stamps: pd.Series) -> Any:
    return stamps.astype(_MICROSECONDS).astype("int64").to_numpy()
