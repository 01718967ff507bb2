"""Counters of work: rows filtered, kernel calls, allocations.

Seconds depend on the machine and on who else is on it; these do not, so a test can hold them.
Compiled code hides its inner calls: those are counted where nothing is compiled
(NUMBA_DISABLE_JIT=1), what Python calls and what compiled code allocates where it is.
"""

from __future__ import annotations

import itertools
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import _nrt_python as _runtime
from numba.core.runtime import rtsys

from regimekit.ihmm.model import RegimeModel


def spied_rows(model: RegimeModel, y: Any, X: Any) -> tuple[float, float, float]:
    """(candidates filtered, distinct rows, regimes owned by all particles) per observation."""
    filtered, distinct, owned = [], [], []
    for t in range(len(y)):
        if model.engine is not None:
            state = model.engine.state
            filtered.append(int(state.clock.candidates.sum()))
            distinct.append(sum(len(rows) for rows in held_rows(model)))
            owned.append(int(state.particles.n_regimes.sum()))
        model.update(y[t], None if X is None else X[t])
    return float(np.mean(filtered)), float(np.mean(distinct)), float(np.mean(owned))


def held_rows(model: RegimeModel) -> list[np.ndarray]:
    """Distinct rows that the particles of each island point at, the one not opened yet included."""
    assert model.engine is not None
    p, first = model.engine.state.particles, model.engine.state.clock.first
    used = np.arange(p.slots.shape[1]) <= p.n_regimes[:, None]
    islands = itertools.pairwise(first.tolist())
    return [np.unique(p.slots[a:b][used[a:b]]) for a, b in islands]


@contextmanager
def kernel_calls() -> Iterator[Counter[str]]:
    """How often Python calls each compiled kernel.

    All that is called must be compiled before: a kernel cannot be compiled against its counter.
    """
    with _counted(lambda value: isinstance(value, Dispatcher)) as counts:
        yield counts


@contextmanager
def inner_calls(*functions: Callable[..., Any]) -> Iterator[Counter[str]]:
    """How often each of these is called from anywhere, where nothing is compiled."""
    wanted = {id(function) for function in functions}
    with _counted(lambda value: id(value) in wanted) as counts:
        yield counts


@contextmanager
def _counted(wanted: Callable[[Any], bool]) -> Iterator[Counter[str]]:
    """Every global of the package that is wanted counts its calls until the end of the block."""
    counts: Counter[str] = Counter()
    replaced: list[tuple[ModuleType, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "regimekit":
            replaced += [(module, k, v) for k, v in vars(module).items() if wanted(v)]
    for module, name, value in replaced:
        setattr(module, name, _counting(value, name, counts))
    try:
        yield counts
    finally:
        for module, name, value in replaced:
            setattr(module, name, value)


def _counting(function: Callable[..., Any], name: str, counts: Counter[str]) -> Callable[..., Any]:
    def counted(*arguments: Any) -> Any:
        counts[name] += 1
        return function(*arguments)

    return counted


class Memory(NamedTuple):
    """blocks: allocations of compiled code. kept, peak: bytes of Python and NumPy."""

    blocks: int
    kept: int
    peak: int


def memory(job: Callable[[], Any]) -> Memory:
    """What a job allocates, keeps, and holds at most beyond what there was before.

    It is done twice: what the first time replaces was made before anybody counted.
    """
    _runtime.memsys_enable_stats()
    tracemalloc.start()
    try:
        job()
        before, blocks = tracemalloc.get_traced_memory()[0], rtsys.get_allocation_stats().alloc
        tracemalloc.reset_peak()
        job()
        blocks = rtsys.get_allocation_stats().alloc - blocks
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        _runtime.memsys_disable_stats()
    return Memory(blocks, kept - before, peak - before)
