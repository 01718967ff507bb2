"""The series: those of `holdfast.data.load` and those that ship inside installed packages.

Scores are taken on the scaled series: centred at the median of its first tenth (at least 20 rows)
and divided by that part's standard deviation, read off the mean absolute deviation. Nothing looks
further ahead than that. Forecasters of other libraries, for which zero may mean something
(multiplicative seasons, say), see the series in its own units, and their forecasts are scaled.
"""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from holdfast import data

_SD_OF_GAUSSIAN = np.sqrt(np.pi / 2)  # for a mean absolute deviation of 1
LONGEST = 3000  # rows; refitted peers would take days on more


class Absent(Exception):
    """A series whose package or file is not here."""


@dataclass(frozen=True)
class Series:
    """One series with what is known about it."""

    name: str
    y: np.ndarray
    period: int = 1
    annotations: Mapping[str, Sequence[int]] = field(default_factory=dict)
    anomalies: tuple[tuple[int, int], ...] = ()  # first and last row of each
    centre: float = 0.0  # of the series in its own units, where y is scaled
    scale: float = 1.0

    def first(self, n: int) -> Series:
        """The first n rows, with what is known about them."""
        marks = {who: [t for t in times if t < n] for who, times in self.annotations.items()}
        spans = tuple(span for span in self.anomalies if span[1] < n)
        return replace(self, y=self.y[:n], annotations=marks, anomalies=spans)


def _loaded(name: str, period: int = 1) -> Series:
    try:
        found = data.load(name)
    except ValueError as error:
        raise Absent(str(error)) from None
    return Series(name, found.y, period, found.annotations)


def _file(package: str, path: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise Absent(f"{package} is not installed")
    return Path(spec.origin).parent / path


def _column(package: str, path: str, column: int) -> np.ndarray:
    with _file(package, path).open() as lines:
        rows = list(csv.reader(lines))[1:]
    return np.array([float(row[column] or "nan") for row in rows])


def _packed(name: str, package: str, path: str, column: int, period: int) -> Series:
    return Series(name, _column(package, path, column), period)


def _labelled(name: str) -> Series:
    """A series of sktime with a 0/1 label per row; neighbouring ones are one anomaly."""
    path = f"datasets/data/{name}/{name}.csv"
    marked = np.flatnonzero(_column("sktime", path, 1))
    runs = np.split(marked, np.flatnonzero(np.diff(marked) > 1) + 1)
    spans = tuple((int(run[0]), int(run[-1])) for run in runs)
    return Series(f"sktime/{name}", _column("sktime", path, 0), anomalies=spans)


def _seatbelts() -> Series:
    path = "datasets/data/seatbelts/seatbelts.csv"
    law = int(np.flatnonzero(_column("sktime", path, 2))[0])
    y = _column("sktime", path, 1)
    return Series("sktime/seatbelts", y, 12, annotations={"law": [law]})


def _elnino() -> Series:
    with _file("statsmodels", "datasets/elnino/elnino.csv").open() as lines:
        rows = list(csv.reader(lines))[1:]
    y = np.array([float(value) for row in rows for value in row[1:]])
    return Series("statsmodels/elnino", y, 12)


Maker = Callable[[], Series]

CHANGES: dict[str, Maker] = {
    "tcpd/nile": lambda: _loaded("tcpd/nile"),
    "tcpd/quality_control_1": lambda: _loaded("tcpd/quality_control_1"),
    "tcpd/quality_control_2": lambda: _loaded("tcpd/quality_control_2"),
    "tcpd/run_log": lambda: _loaded("tcpd/run_log"),
    "well_log": lambda: _loaded("well_log"),
    "sktime/seatbelts": _seatbelts,
}
ANOMALIES: dict[str, Maker] = {
    "sktime/yahoo": lambda: _labelled("yahoo"),
    "sktime/mitdb": lambda: _labelled("mitdb"),
}
FORECASTS: dict[str, Maker] = {
    "tcpd/nile": lambda: _loaded("tcpd/nile"),
    "tcpd/quality_control_1": lambda: _loaded("tcpd/quality_control_1"),
    "tcpd/quality_control_2": lambda: _loaded("tcpd/quality_control_2"),
    "well_log": lambda: _loaded("well_log"),
    "electricity": lambda: _loaded("electricity", 24),
    "ofi_es": lambda: _loaded("ofi_es"),
    "ofi_amzn": lambda: _loaded("ofi_amzn"),
    "river/water_flow": lambda: _packed(
        "river/water_flow", "river", "datasets/water-flow.csv", 1, 24
    ),
    "statsmodels/sunspots": lambda: _packed(
        "statsmodels/sunspots", "statsmodels", "datasets/sunspots/sunspots.csv", 1, 11
    ),
    "statsmodels/co2": lambda: _packed(
        "statsmodels/co2", "statsmodels", "datasets/co2/co2.csv", 1, 52
    ),
    "statsmodels/elnino": _elnino,
    "sktime/airline": lambda: _packed(
        "sktime/airline", "sktime", "datasets/data/Airline/Airline.csv", 1, 12
    ),
    "sktime/lynx": lambda: _packed("sktime/lynx", "sktime", "datasets/data/Lynx/Lynx.csv", 1, 10),
    "sktime/shampoo": lambda: _packed(
        "sktime/shampoo", "sktime", "datasets/data/ShampooSales/ShampooSales.csv", 1, 12
    ),
    "sktime/seatbelts": _seatbelts,
}


def scaled(series: Series) -> Series:
    """The series as every peer sees it, no longer than LONGEST."""
    y = series.y[:LONGEST] if not (series.annotations or series.anomalies) else series.y
    early = y[: max(20, len(y) // 10)]
    centre = np.nanmedian(early, axis=0)
    spread = _SD_OF_GAUSSIAN * np.nanmean(np.abs(early - centre), axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    own = {"centre": float(centre), "scale": float(spread)} if y.ndim == 1 else {}
    return replace(series, y=(y - centre) / spread, **own)
