"""Origin of a result: data, source and versions. As long as they are the same, the result is valid.

    data       hash of the numbers of the series
    source     hash of the benchmark's own files, and for regimekit's own models also of the
               modules that they import (`paper.state`); docs, comments, the command line and the
               like may change. The results of other libraries do not depend on regimekit's source,
               although a replacement forecast and the score are computed by it
    versions   of the library of a peer, and of NumPy and SciPy

A library that is not installed counts as unchanged, so no result is lost without it.
"""

from __future__ import annotations

import importlib.metadata
import sys
from functools import cache
from pathlib import Path
from typing import Any

import regimekit
from benchmarks.public.corpus import Absent
from benchmarks.public.series import Series
from paper.state import SOURCE, state

# Peers of regimekit, whose results depend on its source.
OURS = {"regimekit", "bocd", "dsm_bocd", "last_value", "seasonal_last_value", "least_squares"}
LIBRARIES = ("river", "statsforecast", "ruptures")  # prefixes of the names of their peers
COMPUTE = ("numpy", "scipy")
ABSENT = "absent"
_FILES = {
    "changes": ("tasks", "series", "detectors"),
    "anomalies": ("tasks", "series", "detectors", "nab"),
    "forecasts": ("tasks", "series", "forecasters"),
}

Origin = dict[str, Any]


def origin(task: str, peer: str, whole: Series | Absent) -> Origin:
    """Return the origin that a result of a peer on a series would have on this machine."""
    data = ABSENT if isinstance(whole, Absent) else whole.digest()
    return {"data": data, "source": source(task, peer), "versions": versions(peer)}


@cache
def source(task: str, peer: str, root: Path = SOURCE) -> str:
    """Return a hash of the code that determines the result of a peer.

    Args:
        task: name of the task.
        peer: name of the peer.
        root: folder that contains the library.
    """
    files = [Path(__file__).with_name(f"{name}.py") for name in _FILES[task]]
    return state((), files, root=root) if peer in OURS else state((), beside=files)


@cache
def versions(peer: str) -> dict[str, str]:
    """Return the versions by name; that of regimekit is information only."""
    ours = {"regimekit": regimekit.__version__} if peer in OURS else {}
    others = [name for name in LIBRARIES if peer.startswith(f"{name}_")]
    python = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    return ours | python | {name: _version(name) for name in (*COMPUTE, *others)}


def stale(result: dict[str, Any], now: Origin) -> bool:
    """Return whether a result would have another origin now."""
    before, after = _parts(result), _parts(now)
    return any(before.get(name) != part for name, part in after.items() if part != ABSENT)


def renewable(now: Origin) -> bool:
    """Return whether series and library are available."""
    return ABSENT not in _parts(now).values()


def _parts(made: Origin) -> dict[str, str]:
    parts = {"data": made["data"], "source": made["source"], **made["versions"]}
    return {name: part for name, part in parts.items() if name != "regimekit"}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT
