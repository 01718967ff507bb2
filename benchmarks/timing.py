"""Processor seconds on one core: what else the machine does is not the point.

All threads of the process count, so a job that spread over several cores would gain nothing. Jobs
are taken in turns and the best of several rounds is kept, so that one busy moment does not decide
a ratio.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

ONE_CORE = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
}


def one_core() -> None:
    """Libraries that are imported from here on keep to one thread."""
    os.environ.update(ONE_CORE)


def best(jobs: Mapping[str, Callable[[], Any]], rounds: int = 5) -> dict[str, float]:
    """Processor seconds of each job, best of `rounds`, taken in turns."""
    found = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            gc.collect()
            begin = time.process_time()
            job()
            found[name] = min(found[name], time.process_time() - begin)
    return found
