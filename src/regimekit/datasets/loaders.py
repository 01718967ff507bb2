"""Real series by name: from a local folder, or downloaded once and checked by SHA-256.

The environment variable REGIMEKIT_DATA names a folder that is looked into first; a file found
there is checked against the same SHA-256. A series without a public direct address can only
be had that way, and the error says where the file comes from.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from regimekit.core.exceptions import RegimekitError, unknown
from regimekit.datasets import changepoints, readers
from regimekit.datasets.base import Dataset, standardise

FOLDER_VARIABLE = "REGIMEKIT_DATA"
_PATIENCE = 10.0  # seconds to wait for an answer
_WELL_LOG_URL = (
    "https://raw.githubusercontent.com/maltamiranomontero/DSM-bocd/"
    "9d05117bc8c6e971c836ee1df0c49e2d2950862b/data/well-log/well.txt"
)
_TCPD_URL = (
    "https://raw.githubusercontent.com/alan-turing-institute/TCPD/"
    "83b3039b5c67eaf21a720e3eac4ffdade3fb421c/datasets/{0}/{0}.json"
)


class Source(NamedTuple):
    """Where a file lies in the folder, what it must hash to, and where it can be had."""

    path: str
    sha256: str
    origin: str
    url: str | None = None


class _Entry(NamedTuple):
    source: Source
    read: Callable[..., Dataset]
    title: str
    changepoints: tuple[int, ...] = ()
    bucket: int | None = None  # trades per observation, for order flow


def _tcpd(name: str, sha256: str, title: str, known: tuple[int, ...] = ()) -> _Entry:
    origin = "Turing Change Point Dataset (van den Burg and Williams 2020), GitHub"
    source = Source(f"tcpd/{name}.json", sha256, origin, _TCPD_URL.format(name))
    return _Entry(source, readers.read_tcpd, title, known)


_ENTRIES: dict[str, _Entry] = {
    "well_log": _Entry(
        Source(
            "well_log/well.txt",
            "cd2a1be7dd895e92e28f00cc522d8c2721b67208ecb6ef942547b797d6dccb7a",
            "O Ruanaidh and Fitzgerald (1996), as kept by GitHub maltamiranomontero/DSM-bocd",
            _WELL_LOG_URL,
        ),
        readers.read_text,
        "nuclear-magnetic response of a drill, outliers kept",
        changepoints.WELL_LOG_PAPER,
    ),
    "electricity": _Entry(
        Source(
            "electricity/electricity_hourly_2017_2020.csv.gz",
            "50f9c7146dc3e286a4189a4a14bcfe48716d4037d24ba2702f57ac7b950bf45c",
            "Farrokhabadi, IEEE DataPort, doi 10.21227/67vy-bs34 (an account is needed), "
            "joined by hour",
        ),
        readers.read_electricity,
        "hourly electricity load and weather, 2017 to 2020",
    ),
    "ofi_es": _Entry(
        Source(
            "ofi_es/es_ticks_201309.csv.gz",
            "cd41471299832687c8ddb759d5b6410445e98b9f74720fa2cc42f3e4495762cb",
            "the E-mini S&P 500 tick sample shipped with the package mlfinpy, with tick-rule signs",
        ),
        readers.read_ticks,
        "order flow imbalance of E-mini S&P 500 futures, September 2013",
        bucket=60,
    ),
    "ofi_amzn": _Entry(
        Source(
            "ofi_amzn/amzn_executions_20120621_pm.csv.gz",
            "d7a5b581c4932109da59384d712c08df24c2a19c5bfb27b9829dc2a69d345d76",
            "LOBSTER sample files, AMZN 2012-06-21, executions of the afternoon",
        ),
        readers.read_executions,
        "order flow imbalance of AMZN, the afternoon of 2012-06-21",
        bucket=10,
    ),
    "tcpd/run_log": _tcpd(
        "run_log",
        "6d70ba6dde16e29609283fe8ebfaf3e03048f0e44493809e4f496bc1b89a6f65",
        "pace and distance of a runner who runs and walks in turn",
    ),
    "tcpd/quality_control_1": _tcpd(
        "quality_control_1",
        "faee7c4134fdea29cf5ab5b9a9884240622cf6f0c548a8605097aacc7ded2a62",
        "a production line with a known change",
        (146,),
    ),
    "tcpd/quality_control_2": _tcpd(
        "quality_control_2",
        "2cca35f891c9966c6fe98faf5b51249898de4ac2761b2f810f6ca7d956d4c316",
        "a production line with a known change",
        (97,),
    ),
    "tcpd/nile": _tcpd(
        "nile",
        "1d3bd0c3d8b4cbb5d1368aa1128d59631cfc71889f110def34ec42ba91ec9103",
        "yearly flow of the Nile at Aswan",
    ),
}


def names() -> list[str]:
    """What `load` knows.

    Example:
        >>> from regimekit import data
        >>> data.names()[:2]
        ['well_log', 'electricity']
    """
    return list(_ENTRIES)


def load(name: str, *, bucket: int | None = None, standardised: bool = False) -> Dataset:
    """A real series by name, in the units it was published in.

    Args:
        name: one of `names()`.
        bucket: trades per observation (order flow only; 60 for `ofi_es`, 10 for `ofi_amzn`).
        standardised: scale y and each column of X over *all* rows, as the paper does with
            electricity. That looks ahead; `standardise(dataset, train=n)` does not.

    Example:
        >>> from regimekit import data
        >>> data.load("well_lok")
        Traceback (most recent call last):
            ...
        regimekit.core.exceptions.RegimekitError: name='well_lok' is not known; choose from well_log, \
electricity, ofi_es, ofi_amzn, tcpd/run_log, tcpd/quality_control_1, tcpd/quality_control_2, \
tcpd/nile. Did you mean 'well_log'?
    """
    if name not in _ENTRIES:
        raise unknown("name", name, _ENTRIES)
    entry = _ENTRIES[name]
    if bucket is not None and entry.bucket is None:
        raise RegimekitError(f"bucket applies to order flow only, not to {name!r}.")
    path = locate(entry.source)
    if entry.bucket is None:
        dataset = entry.read(path)
    else:
        dataset = entry.read(path, entry.bucket if bucket is None else bucket)
    dataset = replace(
        dataset,
        changepoints=entry.changepoints,
        annotations=changepoints.BY_PEOPLE.get(name, {}),
        info={"name": name, "title": entry.title, "origin": entry.source.origin, **dataset.info},
    )
    return standardise(dataset) if standardised else dataset


def locate(source: Source) -> Path:
    """The file of `source`: in the folder REGIMEKIT_DATA, or downloaded to the user's cache."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and (path := Path(folder) / source.path).is_file():
        return _verified(path, source.sha256)
    if source.url is None:
        raise RegimekitError(
            f"{source.path} cannot be downloaded. Get it from: {source.origin}; put it at "
            f"{source.path} in a folder and set {FOLDER_VARIABLE} to that folder."
        )
    return _download(source.url, source)


def _verified(path: Path, sha256: str) -> Path:
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != sha256:
        raise RegimekitError(
            f"{path} is not the expected file: its SHA-256 is {found}, expected {sha256}."
        )
    return path


def _download(url: str, source: Source) -> Path:
    pooch = _pooch(source)
    cache = pooch.os_cache("regimekit") / "data"
    patient = pooch.HTTPDownloader(timeout=_PATIENCE)
    try:
        got = pooch.retrieve(
            url, f"sha256:{source.sha256}", source.path.replace("/", "-"), cache, downloader=patient
        )
    except (OSError, ValueError) as error:  # no network, or a file that is not the expected one
        raise RegimekitError(
            f"{source.path} could not be downloaded from {url}: {error}. "
            f"Set {FOLDER_VARIABLE} to a folder that holds it."
        ) from error
    return Path(got)


def _pooch(source: Source) -> Any:
    """The downloader, or an error that says how to get it."""
    try:
        import pooch
    except ImportError:
        raise RegimekitError(
            f"Downloading {source.path} needs pooch: pip install 'regimekit[data]', or set "
            f"{FOLDER_VARIABLE} to a folder that holds it."
        ) from None
    return pooch
