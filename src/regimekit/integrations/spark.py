"""Spark: one model per key, over tables (`run_groups`) and streams (`follow`).

The state of a key is `model.to_bytes()`. Over a stream it is in Spark's state store between
micro-batches, so a driver that is killed continues from its checkpoint.

Within a micro-batch the rows of a key are sorted by time and repeated times are dropped. A row
that is not later than the last processed one of its key is returned with `kind` "late" and does
not update the model; rows that Spark's watermark drops before are counted by `late_rows`. A key
without rows for the time `silence` yields one row of `kind` "silence". Timers use event time, so a
micro-batch that is repeated after a crash gives the same result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import regimekit as rk
from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.core.registry import DEFAULT_MODEL
from regimekit.integrations._common import make_model, require

require("spark", "pyspark", "pyarrow", "pandas", "google.protobuf")

# After `require`, which reports a missing library.
import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

__all__ = ["ROCKSDB", "STATE_STORE", "follow", "late_rows", "run_groups"]

STATE_STORE = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
# last: time of the last processed row in microseconds; late: number of late rows; timer: time of
# the registered timer in milliseconds.
_STATE_SCHEMA = "model BINARY, last LONG, late LONG, timer LONG"
_MICROSECONDS = "datetime64[us]"
_NULLABLE_DTYPES = {"double": "float64", "boolean": "boolean", "long": "Int64"}

RESULT_TYPES: dict[str, DataType] = {
    **dict.fromkeys(("y", "mean", "sd", "lower", "upper", "log_score", "weight"), DoubleType()),
    "outlier": BooleanType(),
    "anomaly_score": DoubleType(),
    "regime": LongType(),
    "regime_probability": DoubleType(),
    "change_probability": DoubleType(),
    "n_regimes": LongType(),
}


def run_groups(
    df: DataFrame,
    key: str | Sequence[str],
    time: str,
    target: str,
    *,
    covariates: Sequence[str] = (),
    model: str | None = None,
    settings: Mapping[str, Any] | None = None,
    level: float = 0.9,
) -> DataFrame:
    """Run one model per key over a table.

    The rows of a key are sorted by time and must fit into the memory of a worker. Of rows with
    the same time, one is used; rows without a time are ignored.

    Args:
        df: the table.
        key: column or columns that identify a series.
        time: column that orders a series.
        target: column to forecast; null means not observed.
        covariates: numeric columns that are known before the target.
        model: name of a regimekit model; None selects the default model.
        settings: settings of the model.
        level: nominal coverage of the interval `lower` to `upper`.

    Returns:
        One row per key and time: the key, the time and the columns `RESULT_TYPES`.

    Raises:
        RegimekitError: if a column is missing or the model cannot be created.
    """
    job = make_job(df, key, time, target, covariates, model, settings, level)

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        return job.run(job.make_model(), sort_rows(rows, job.time))

    return job.select(df).groupBy(*job.key).applyInPandas(run, job.schema(df))


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
        df: streaming frame with a watermark on `time`: `df.withWatermark("time", "1 hour")`.
        key: column or columns that identify a series.
        time: timestamp column.
        target: column to forecast; null means not observed.
        covariates: numeric columns that are known before the target.
        model: name of a regimekit model; None selects the default model.
        settings: settings of the model.
        level: nominal coverage of the interval `lower` to `upper`.
        silence: time without rows after which a key is reported, for example "10 minutes".

    Returns:
        The columns of `run_groups`, `kind` ("observation", "late" or "silence") and `late`, the
        number of late rows of the key so far.

    Raises:
        RegimekitError: if a column is missing, the model cannot be created, `time` is not a
            timestamp or the state store is not RocksDB.
    """
    job = make_job(df, key, time, target, covariates, model, settings, level)
    if df.sparkSession.conf.get(STATE_STORE, "") != ROCKSDB:
        raise RegimekitError(
            f"The state store must be RocksDB. Call spark.conf.set({STATE_STORE!r}, {ROCKSDB!r}) "
            "before the query starts."
        )
    if not isinstance(df.schema[time].dataType, TimestampType):
        raise RegimekitError(f"time={time!r} must be a timestamp, got {df.schema[time].dataType}.")
    wait = None if silence is None else int(pd.Timedelta(silence) / pd.Timedelta("1ms"))
    return (
        job.select(df)
        .groupBy(*job.key)
        .transformWithStateInPandas(
            statefulProcessor=KeyProcessor(job, wait),
            outputStructType=job.schema(df, kind=StringType(), late=LongType()),
            outputMode="append",
            timeMode="eventTime",
        )
    )


def late_rows(query: StreamingQuery) -> int:
    """Return the number of rows that the watermark dropped, over the query's recent progress."""
    operators = [part for report in query.recentProgress for part in report.stateOperators]
    return sum(part.numRowsDroppedByWatermark for part in operators)


class GroupJob(NamedTuple):
    """Column names, and the model that every key starts with."""

    key: tuple[str, ...]
    time: str
    target: str
    covariates: tuple[str, ...]
    model: str
    settings: Mapping[str, Any]
    level: float

    def make_model(self) -> Model:
        """Create the model of a new key."""
        return make_model(self.model, self.settings, covariates=bool(self.covariates))

    def run(self, model: Model, rows: pd.DataFrame, **more: Any) -> pd.DataFrame:
        """Run a model over sorted rows; return key, time, results and the columns `more`."""
        X = rows[list(self.covariates)].to_numpy(float) if self.covariates else None
        y = rows[self.target].to_numpy(float)
        run = model.run(y, X, level=self.level)
        # One constructor call: adding columns one by one takes longer than an update.
        columns = {name: rows[name].array for name in (*self.key, self.time)} | {"y": y}
        columns |= {name: getattr(run, name) for name in RESULT_TYPES if name != "y"}
        return pd.DataFrame(columns | more)

    def empty_results(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return key, time and y of rows that do not update the model, with null results."""
        table = rows[[*self.key, self.time]].reset_index(drop=True)
        table["y"] = rows[self.target].to_numpy(float)
        for name, kind in RESULT_TYPES.items():
            if name != "y":
                null = np.nan if isinstance(kind, DoubleType) else None
                dtype = _NULLABLE_DTYPES.get(kind.typeName())
                table[name] = pd.Series([null] * len(table), dtype=dtype)
        return table

    def schema(self, df: DataFrame, **more: DataType) -> StructType:
        """Return the output schema: key and time as in `df`, the results, and `more`."""
        fields = [df.schema[name] for name in (*self.key, self.time)]
        types = (RESULT_TYPES | more).items()
        return StructType(fields + [StructField(name, kind) for name, kind in types])

    def select(self, df: DataFrame) -> DataFrame:
        """Return the columns that are used, of the rows that have a time."""
        columns = [*self.key, self.time, self.target, *self.covariates]
        return df.select(*columns).where(df[self.time].isNotNull())


def make_job(
    df: DataFrame,
    key: str | Sequence[str],
    time: str,
    target: str,
    covariates: Sequence[str],
    model: str | None,
    settings: Mapping[str, Any] | None,
    level: float,
) -> GroupJob:
    """Validate the arguments on the driver, before any worker starts.

    Raises:
        RegimekitError: if a column is missing or the model cannot be created.
    """
    keys = (key,) if isinstance(key, str) else tuple(key)
    arguments = {"key": keys, "time": (time,), "target": (target,), "covariates": covariates}
    for argument, names in arguments.items():
        if absent := [name for name in names if name not in df.columns]:
            raise RegimekitError(
                f"{argument}={absent[0]!r} is not a column of the frame. Columns: "
                f"{', '.join(df.columns)}."
            )
    if taken := [name for name in (*keys, time) if name in RESULT_TYPES]:
        raise RegimekitError(f"The column {taken[0]!r} has the name of a result; rename it.")
    if not 0 < level < 1:
        raise RegimekitError(f"level must be strictly between 0 and 1, got {level!r}.")
    name = model or DEFAULT_MODEL
    job = GroupJob(keys, time, target, tuple(covariates), name, dict(settings or {}), level)
    job.make_model()
    return job


def sort_rows(rows: pd.DataFrame, time: str) -> pd.DataFrame:
    """Sort rows by time and keep the first of several rows with the same time."""
    return rows.sort_values(time, kind="stable").drop_duplicates(time).reset_index(drop=True)


class KeyProcessor(StatefulProcessor):
    """Process the rows of one key at a time: load its state, update the model, store the state."""

    def __init__(self, job: GroupJob, silence: int | None) -> None:
        """Store the job and the time without rows to report, in milliseconds."""
        self.job = job
        self.silence = silence

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state of the query."""
        self.handle = handle
        self.state = handle.getValueState("regimekit", _STATE_SCHEMA)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        """Yield the results of the new rows of a key, and its late rows."""
        arrived = sort_rows(pd.concat(list(rows), ignore_index=True), self.job.time)
        data, last, late, timer = self.state.get() or (None, None, 0, None)
        times = arrived[self.job.time].astype(_MICROSECONDS).astype("int64").to_numpy()
        new = times > (last if last is not None else times.min() - 1)
        late += int((~new).sum())
        if not new.all():
            yield self.job.empty_results(arrived[~new]).assign(kind="late", late=late)
        if new.any():
            model = self.job.make_model() if data is None else rk.from_bytes(bytes(data))
            yield self.job.run(model, arrived[new], kind="observation", late=late)
            data, last = model.to_bytes(), int(times.max())
            timer = self._restart_timer(last, timer)
        self.state.update((data, last, late, timer))

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        """Yield one row of kind "silence" with the time of the last row of the key."""
        data, last, late, _ = self.state.get() or (None, None, 0, None)
        row = pd.DataFrame([key], columns=list(self.job.key))
        row[self.job.time] = pd.Series([last]).astype(_MICROSECONDS)
        row[self.job.target] = float("nan")
        self.state.update((data, last, late, None))
        yield self.job.empty_results(row).assign(kind="silence", late=late)

    def close(self) -> None:
        """Do nothing: there are no resources besides the state."""

    def _restart_timer(self, last: int, timer: int | None) -> int | None:
        if self.silence is None:
            return None
        if timer is not None:
            self.handle.deleteTimer(timer)
        due = last // 1000 + self.silence
        self.handle.registerTimer(due)
        return due
