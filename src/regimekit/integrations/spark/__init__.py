"""regimekit on Spark: one model per key, over tables (`run_groups`) and streams (`follow`).

A key's model is its bytes. Over a table every key is one group; over a stream the bytes lie in
Spark's state store between micro-batches, so that a driver that dies loses nothing.
"""

from __future__ import annotations

from regimekit.integrations.making import need

need("spark", "pyspark", "pyarrow", "pandas", "google.protobuf")

# After the hint for those who lack the package.
from regimekit.integrations.spark.groups import run_groups
from regimekit.integrations.spark.stream import ROCKSDB, STATE_STORE, follow, late_rows

__all__ = ["ROCKSDB", "STATE_STORE", "follow", "late_rows", "run_groups"]
