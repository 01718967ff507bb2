"""Processor seconds on one core, which do not depend on other load.

All threads of the process count, so a job on several cores has no advantage. Jobs take turns and
the best of several rounds counts, so that one busy moment does not determine a ratio.
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
    """Restrict libraries that are imported later to one thread."""
    os.environ.update(ONE_CORE)


def best(jobs: Mapping[str, Callable[[], Any]], rounds: int = 5) -> dict[str, float]:
    """Return the processor seconds of each job, best of `rounds`, taken in turns."""
    found = dict.fromkeys(jobs, float("inf"))
    for _ in range(rounds):
        for name, job in jobs.items():
            gc.collect()
            begin = time.process_time()
            job()
            found[name] = min(found[name], time.process_time() - begin)
    return found
