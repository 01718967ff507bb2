"""What a result was made by: data, source and versions. While they are the same, it stands.

`data`       names the numbers of the series.
`source`     names what the benchmark's own files mean, and for regimekit's own models also what the
             modules mean that these reach (`paper.state`): docs, comments, the command line and the
             like may change. A guest's result does not go by regimekit's source, though a forecast
             that it borrows and its score are computed there, exactly.
`versions`   of the library a peer comes from, and of what everybody computes with.

What is not installed here has not changed, so a result is never lost for want of its library.
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

# Peers whose code is regimekit's: what they do changes with its source.
OURS = {"regimekit", "bocd", "dsm_bocd", "last_value", "seasonal_last_value", "least_squares"}
LIBRARIES = ("river", "statsforecast", "ruptures")  # a guest's name begins with its library's
COMPUTE = ("numpy", "scipy")
ABSENT = "absent"
_FILES = {
    "changes": ("tasks", "series", "detectors"),
    "anomalies": ("tasks", "series", "detectors", "nab"),
    "forecasts": ("tasks", "series", "forecasters"),
}

Origin = dict[str, Any]


def origin(task: str, peer: str, whole: Series | Absent) -> Origin:
    """What a result of a peer on a series would be made by here and now."""
    data = ABSENT if isinstance(whole, Absent) else whole.digest()
    return {"data": data, "source": source(task, peer), "versions": versions(peer)}


@cache
def source(task: str, peer: str, root: Path = SOURCE) -> str:
    """A short name of the code that decides what a peer gives; `root` holds the library."""
    files = [Path(__file__).with_name(f"{name}.py") for name in _FILES[task]]
    return state((), files, root=root) if peer in OURS else state((), beside=files)


@cache
def versions(peer: str) -> dict[str, str]:
    """By name. That of regimekit is for the reader: its source is named more precisely."""
    ours = {"regimekit": regimekit.__version__} if peer in OURS else {}
    others = [name for name in LIBRARIES if peer.startswith(f"{name}_")]
    python = {"python": f"{sys.version_info[0]}.{sys.version_info[1]}"}
    return ours | python | {name: _version(name) for name in (*COMPUTE, *others)}


def stale(result: dict[str, Any], now: Origin) -> bool:
    """Whether a result would be made by something else now."""
    before, after = _parts(result), _parts(now)
    return any(before.get(name) != part for name, part in after.items() if part != ABSENT)


def renewable(now: Origin) -> bool:
    """Whether series and library are here."""
    return ABSENT not in _parts(now).values()


def _parts(made: Origin) -> dict[str, str]:
    parts = {"data": made["data"], "source": made["source"], **made["versions"]}
    return {name: part for name, part in parts.items() if name != "regimekit"}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ABSENT
