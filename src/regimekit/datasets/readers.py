"""Files as they are published, turned into datasets. Each reader takes a path."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regimekit.core.exceptions import RegimekitError, numbers, whole
from regimekit.datasets.base import Dataset

Array = NDArray[np.float64]

# The paper's four covariates first, then the two it leaves out.
WEATHER = (
    "temperature_c",
    "pressure",
    "humidity_pct",
    "wind_speed_kmh",
    "cloud_cover_pct",
    "wind_direction_deg",
)


def read_text(path: Path) -> Dataset:
    """One number per line."""
    y = np.loadtxt(path)
    return Dataset(y=y, time=np.arange(len(y)))


def read_electricity(path: Path) -> Dataset:
    """Hourly load with weather: y in kW, X the columns `WEATHER`."""
    names = _header(path)
    values = np.loadtxt(path, delimiter=",", skiprows=1, usecols=range(1, len(names)))
    table = {name: values[:, j] for j, name in enumerate(names[1:])}
    return Dataset(
        y=table["load_kw"],
        X=np.column_stack([table[name] for name in WEATHER]),
        time=_stamps(path),
        columns=WEATHER,
    )


def read_ticks(path: Path, bucket: int) -> Dataset:
    """Trades with a tick-rule sign, as sums of signed volume over `bucket` trades."""
    volume, sign = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(2, 3), unpack=True)
    stamps = _stamps(path)
    return Dataset(y=bucketed(volume * sign, bucket), time=stamps[bucket - 1 :: bucket])


def read_executions(path: Path, bucket: int) -> Dataset:
    """Executions with their exact sign, as sums of signed size over `bucket` trades."""
    seconds, signed = np.loadtxt(path, delimiter=",", skiprows=1, usecols=(0, 6), unpack=True)
    return Dataset(y=bucketed(signed, bucket), time=seconds[bucket - 1 :: bucket])


def read_tcpd(path: Path) -> Dataset:
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


def bucketed(signed_volume: ArrayLike, bucket: int) -> Array:
    """Order flow imbalance: the sum of signed volume over each `bucket` trades in a row.

        y_t = sum_{j=1}^{z} v_{(t-1) z + j}

    Trades that do not fill the last bucket are left out.

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


def _header(path: Path) -> list[str]:
    first = np.loadtxt(path, delimiter=",", max_rows=1, dtype=str)
    return [str(name) for name in first]


def _stamps(path: Path) -> NDArray[Any]:
    text = np.loadtxt(path, delimiter=",", skiprows=1, usecols=0, dtype="U23")
    return text.astype("datetime64[ms]")
