"""A driver that follows a folder of files to its end; the tests start it, and kill it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

CHOICE: dict[str, Any] = {
    "model": "student_t_ihmm",
    "settings": {"particles": 10, "batch": 3},
    "silence": "15 minutes",
}


def session() -> Any:
    """A Spark of two threads and one partition that talks to nobody but itself."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
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


def start(spark: Any, folder: Path) -> Any:
    """Follow `folder`/in, one file a batch, into `folder`/out, and stop at its end."""
    from regimekit.integrations.spark import follow

    source = (
        spark.readStream.schema("k string, t timestamp, v double")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "in"))
        .withWatermark("t", "10 minutes")
    )
    return (
        follow(source, "k", "t", "v", **CHOICE)
        .writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    start(session(), Path(sys.argv[1])).awaitTermination()
