"""Sources of series: `regimekit.datasets.load`, and files inside installed packages."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.public.series import Series
from regimekit import datasets as data


class Absent(Exception):
    """A series whose package or file is not available."""


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
    found = Path(spec.origin).parent / path
    if not found.is_file():
        raise Absent(f"{package} has no {path}")
    return found


def _column(package: str, path: str, column: int) -> np.ndarray:
    with _file(package, path).open() as lines:
        rows = list(csv.reader(lines))[1:]
    return np.array([float(row[column] or "nan") for row in rows])


def _packed(name: str, package: str, path: str, column: int, period: int) -> Series:
    return Series(name, _column(package, path, column), period)


def _labelled(name: str) -> Series:
    """Return a series of sktime with a 0/1 label per row; neighbouring ones are one anomaly."""
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


@cache
def loaded(maker: Maker) -> Series | Absent:
    """Return a series, or why it is not available.

    Args:
        maker: function that returns the series.
    """
    try:
        return maker()
    except Absent as error:
        return error


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
