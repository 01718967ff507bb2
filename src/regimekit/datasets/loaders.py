"""Real series by name, from a local folder or downloaded once; files are verified by SHA-256.

If the environment variable REGIMEKIT_DATA names a folder, it is searched first. A series without a
public download address must be placed there by the user; the error names its origin.

Changepoint indices are 0-based and mark the first observation of a new segment. The annotations
are those of the Turing Change Point Dataset (van den Burg and Williams 2020; MIT licence).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regimekit.core.exceptions import RegimekitError, numbers, unknown, whole
from regimekit.datasets.base import Dataset, standardise

Array = NDArray[np.float64]
FOLDER_VARIABLE = "REGIMEKIT_DATA"
_TIMEOUT = 10.0  # seconds
_WELL_LOG_URL = (
    "https://raw.githubusercontent.com/maltamiranomontero/DSM-bocd/"
    "9d05117bc8c6e971c836ee1df0c49e2d2950862b/data/well-log/well.txt"
)
_TCPD_URL = (
    "https://raw.githubusercontent.com/alan-turing-institute/TCPD/"
    "83b3039b5c67eaf21a720e3eac4ffdade3fb421c/datasets/{0}/{0}.json"
)
# Covariates of the electricity data: the paper's four first, then two that it does not use.
_WEATHER = (
    "temperature_c",
    "pressure",
    "humidity_pct",
    "wind_speed_kmh",
    "cloud_cover_pct",
    "wind_direction_deg",
)
# The paper's benchmark: changepoints of its offline sampler without runs under 50 observations.
# They come from a model, not from annotators.
# fmt: off
_WELL_LOG_PAPER = (
    20, 84, 360, 445, 720, 825, 1071, 1223, 1433, 1527, 1718, 1867,
    2049, 2409, 2470, 2532, 2593, 2784, 3191, 3261, 3520, 3743, 3890, 3966,
)
# fmt: on
# The annotators saw every sixth observation of the well-log series: indices are exact to +-5.
_WELL_LOG_EVERY_SIXTH = {
    "6": (179, 255, 281, 311, 343, 402, 413, 422, 432, 462, 464),
    "7": (179, 255, 281, 312, 343, 402, 412, 422, 432),
    "8": (179, 255, 282, 312, 343, 402, 413, 422, 432),
    "12": (177, 467),
    "13": (4, 179, 255, 281, 311, 344, 402, 412, 422, 432, 462, 464, 521, 526, 620, 643, 661),
}
_RUN_LOG = (60, 96, 114, 174, 204, 240, 258, 317)
_ANNOTATIONS: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    "well_log": {who: tuple(6 * t for t in marks) for who, marks in _WELL_LOG_EVERY_SIXTH.items()},
    "tcpd/run_log": {
        "6": _RUN_LOG,
        "7": (60, 96, 114, 177, 204, 240, 258, 317),
        "8": _RUN_LOG,
        "10": (2, *_RUN_LOG),
        "12": (),
    },
    "tcpd/quality_control_1": {"6": (143,), "7": (144,), "8": (144,), "9": (146,), "12": (144,)},
    "tcpd/quality_control_2": {"6": (), "8": (98,), "9": (99,), "12": (97,), "13": (97,)},
    "tcpd/nile": {"6": (), "7": (28,), "8": (), "12": (28,), "13": (28,)},
}


def bucketed(signed_volume: ArrayLike, bucket: int) -> Array:
    """Compute order flow imbalance: the sum of signed volume over consecutive trades.

        y_t = sum_{j=1}^{z} v_{(t-1) z + j}

    Args:
        signed_volume: (n,) volume of each trade, negative for sells.
        bucket: trades per observation z.

    Returns:
        (n // bucket,) sums; trades that do not fill the last bucket are dropped.

    Example:
        >>> from regimekit import data
        >>> data.bucketed([1, -2, 3, 4, 5], bucket=2)
        array([-1.,  7.])
    """
    values = numbers("signed_volume", signed_volume)
    if values.ndim != 1:
        raise RegimekitError(f"signed_volume must be a vector, got shape {values.shape}.")
    count = len(values) // whole("bucket", bucket)
    return np.asarray(values[: count * bucket].reshape(count, bucket).sum(axis=1))


def _read_text(path: Path) -> Dataset:
    """One number per line."""
    y = np.loadtxt(path)
    return Dataset(y=y, time=np.arange(len(y)))


def _read_electricity(path: Path) -> Dataset:
    """Hourly load with weather: y in kW, X the columns `_WEATHER`."""
    names = [str(name) for name in np.loadtxt(path, delimiter=",", max_rows=1, dtype=str)]
    values = np.loadtxt(path, delimiter=",", skiprows=1, usecols=range(1, len(names)))
    table = {name: values[:, j] for j, name in enumerate(names[1:])}
    return Dataset(
        y=table["load_kw"],
        X=np.column_stack([table[name] for name in _WEATHER]),
        time=_read_stamps(path),
        columns=_WEATHER,
    )


def _read_ticks(path: Path, bucket: int) -> Dataset:
    """Trades with tick-rule signs."""
    volume, sign = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(2, 3), unpack=True)
    stamps = _read_stamps(path)
    return Dataset(y=bucketed(volume * sign, bucket), time=stamps[bucket - 1 :: bucket])


def _read_executions(path: Path, bucket: int) -> Dataset:
    """Executions with exact signs."""
    seconds, signed = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(0, 6), unpack=True)
    return Dataset(y=bucketed(signed, bucket), time=seconds[bucket - 1 :: bucket])


def _read_tcpd(path: Path) -> Dataset:
    """A series of the Turing Change Point Dataset (JSON); null is NaN."""
    content: dict[str, Any] = json.loads(path.read_text())
    columns = [np.array(series["raw"], dtype=float) for series in content["series"]]
    time = content.get("time", {})
    y = columns[0] if len(columns) == 1 else np.column_stack(columns)
    return Dataset(
        y=y,
        time=np.array(time.get("raw", time.get("index", range(len(y))))),
        info={"title": content["longname"], "series": [s["label"] for s in content["series"]]},
    )


def _read_stamps(path: Path) -> NDArray[Any]:
    text = np.loadtxt(path, delimiter=",", skiprows=1, usecols=0, dtype="U23")
    return text.astype("datetime64[ms]")


class Source(NamedTuple):
    """A series: its file, and what is known of it.

    Attributes:
        path: location inside the data folder.
        sha256: expected hash.
        origin: where the data come from.
        read: function that reads the file.
        title: description in a few words.
        url: download address, if there is a public one.
        changepoints: known changepoints.
        bucket: trades per observation, for order flow.
    """

    path: str
    sha256: str
    origin: str
    read: Callable[..., Dataset]
    title: str
    url: str | None = None
    changepoints: tuple[int, ...] = ()
    bucket: int | None = None


def _tcpd(name: str, sha256: str, title: str, known: tuple[int, ...] = ()) -> Source:
    origin = "Turing Change Point Dataset (van den Burg and Williams 2020), GitHub"
    path, url = f"tcpd/{name}.json", _TCPD_URL.format(name)
    return Source(path, sha256, origin, _read_tcpd, title, url, known)


SOURCES: dict[str, Source] = {
    "well_log": Source(
        "well_log/well.txt",
        "cd2a1be7dd895e92e28f00cc522d8c2721b67208ecb6ef942547b797d6dccb7a",
        "O Ruanaidh and Fitzgerald (1996), from GitHub maltamiranomontero/DSM-bocd",
        _read_text,
        "nuclear-magnetic response of a drill, outliers kept",
        _WELL_LOG_URL,
        _WELL_LOG_PAPER,
    ),
    "electricity": Source(
        "electricity/electricity_hourly_2017_2020.csv.gz",
        "50f9c7146dc3e286a4189a4a14bcfe48716d4037d24ba2702f57ac7b950bf45c",
        "Farrokhabadi, IEEE DataPort, doi 10.21227/67vy-bs34 (an account is needed), "
        "joined by hour",
        _read_electricity,
        "hourly electricity load and weather, 2017 to 2020",
    ),
    "ofi_es": Source(
        "ofi_es/es_ticks_201309.csv.gz",
        "cd41471299832687c8ddb759d5b6410445e98b9f74720fa2cc42f3e4495762cb",
        "the E-mini S&P 500 tick sample shipped with the package mlfinpy, with tick-rule signs",
        _read_ticks,
        "order flow imbalance of E-mini S&P 500 futures, September 2013",
        bucket=60,
    ),
    "ofi_amzn": Source(
        "ofi_amzn/amzn_executions_20120621_pm.csv.gz",
        "d7a5b581c4932109da59384d712c08df24c2a19c5bfb27b9829dc2a69d345d76",
        "LOBSTER sample files, AMZN 2012-06-21, executions of the afternoon",
        _read_executions,
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
    """Return the names of the datasets that `load` provides.

    Example:
        >>> from regimekit import data
        >>> data.names()[:2]
        ['well_log', 'electricity']
    """
    return list(SOURCES)


def load(name: str, *, bucket: int | None = None, standardised: bool = False) -> Dataset:
    """Load a real series by name, in the units it was published in.

    Args:
        name: one of `names()`.
        bucket: trades per observation (order flow only; 60 for `ofi_es`, 10 for `ofi_amzn`).
        standardised: scale y and each column of X over *all* rows, as the paper does for
            electricity. This uses future values; `standardise(dataset, train=n)` does not.

    Returns:
        The dataset, with changepoints and annotations where they are published.

    Raises:
        RegimekitError: if the name is not known, or the file is missing, differs from the
            expected one or cannot be downloaded.

    Example:
        >>> from regimekit import data
        >>> data.load("well_lok")
        Traceback (most recent call last):
            ...
        regimekit.core.exceptions.RegimekitError: name='well_lok' is not known; choose from \
well_log, electricity, ofi_es, ofi_amzn, tcpd/run_log, tcpd/quality_control_1, \
tcpd/quality_control_2, tcpd/nile. Did you mean 'well_log'?
    """
    if name not in SOURCES:
        raise unknown("name", name, SOURCES)
    entry = SOURCES[name]
    if bucket is not None and entry.bucket is None:
        raise RegimekitError(f"bucket applies to order flow only, got name={name!r}.")
    path = locate(entry)
    if entry.bucket is None:
        dataset = entry.read(path)
    else:
        dataset = entry.read(path, entry.bucket if bucket is None else bucket)
    dataset = replace(
        dataset,
        changepoints=entry.changepoints,
        annotations=_ANNOTATIONS.get(name, {}),
        info={"name": name, "title": entry.title, "origin": entry.origin, **dataset.info},
    )
    return standardise(dataset) if standardised else dataset


def locate(source: Source) -> Path:
    """Return the path of a data file: in the folder REGIMEKIT_DATA, else downloaded to the cache.

    Args:
        source: the series.

    Raises:
        RegimekitError: if the file is not available or its SHA-256 differs.
    """
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and (path := Path(folder) / source.path).is_file():
        return _verified(path, source.sha256)
    if source.url is None:
        raise RegimekitError(
            f"{source.path} cannot be downloaded. Get it from: {source.origin}; put it at "
            f"{source.path} in a folder and set {FOLDER_VARIABLE} to that folder."
        )
    return _download(source)


def _verified(path: Path, sha256: str) -> Path:
    with path.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != sha256:
        raise RegimekitError(
            f"{path} is not the expected file: its SHA-256 is {found}, expected {sha256}."
        )
    return path


def _download(source: Source) -> Path:
    try:
        import pooch
    except ImportError:
        raise RegimekitError(
            f"Downloading {source.path} needs pooch. Install it with pip install "
            f"'regimekit[data]', or set {FOLDER_VARIABLE} to a folder that contains the file."
        ) from None
    cache = pooch.os_cache("regimekit") / "data"
    downloader = pooch.HTTPDownloader(timeout=_TIMEOUT)
    name = source.path.replace("/", "-")
    try:
        got = pooch.retrieve(
            source.url, f"sha256:{source.sha256}", name, cache, downloader=downloader
        )
    except (OSError, ValueError) as error:  # no network, or another file than expected
        raise RegimekitError(
            f"{source.path} could not be downloaded from {source.url}: {error}. "
            f"Set {FOLDER_VARIABLE} to a folder that contains the file."
        ) from error
    return Path(got)
