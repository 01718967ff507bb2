"""Follow a folder of Parquet files with Spark: one model per sensor, results in a table.

    python examples/spark_stream.py IN OUT

Every file IN/*.parquet is processed once, also those that appear later. OUT/table is a table with
one row per observation (forecast, interval, regime, outlier) and one per silence of a sensor;
OUT/checkpoint has the models and the position. After an interruption, also by kill -9, the same
command continues: no row is lost or processed twice. With --once it ends when all files are done.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any


def session() -> Any:
    """Return a Spark session of two threads on this machine."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    from regimekit.integrations.spark import ROCKSDB, STATE_STORE

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
        STATE_STORE: ROCKSDB,
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def start(
    spark: Any,
    folder_in: Path,
    folder_out: Path,
    key: str = "sensor",
    time: str = "time",
    target: str = "value",
    once: bool = True,
    **model: Any,
) -> Any:
    """Start the query: one file per micro-batch, the results in a Parquet table.

    Args:
        spark: a session.
        folder_in: folder of the files.
        folder_out: folder of the table and of the checkpoint.
        key: name of the column of keys, text.
        time: name of the column of times.
        target: name of the column of values.
        once: end when all files are processed.
        **model: further arguments of `follow`.
    """
    from regimekit.integrations.spark import follow

    source = (
        spark.readStream.schema(f"{key} string, {time} timestamp, {target} double")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder_in))
        .withWatermark(time, "10 minutes")
    )
    writer = (
        follow(source, key, time, target, **model)
        .writeStream.format("parquet")
        .option("path", str(folder_out / "table"))
        .option("checkpointLocation", str(folder_out / "checkpoint"))
        .outputMode("append")
    )
    return (writer.trigger(availableNow=True) if once else writer).start()


def main() -> None:
    """Follow the folder named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder_in", type=Path)
    parser.add_argument("folder_out", type=Path)
    for name, default in (("key", "sensor"), ("time", "time"), ("target", "value")):
        parser.add_argument(f"--{name}", default=default)
    parser.add_argument(
        "--silence", default="1 hour", help="report a sensor without rows for so long"
    )
    parser.add_argument("--model", default="auto")
    parser.add_argument("--particles", type=int, help="of the model, if it has particles")
    parser.add_argument("--once", action="store_true", help="end when all files are processed")
    given = vars(parser.parse_args())
    particles = given.pop("particles")
    given["settings"] = {} if particles is None else {"particles": particles}
    start(session(), **given).awaitTermination()


if __name__ == "__main__":
    main()
