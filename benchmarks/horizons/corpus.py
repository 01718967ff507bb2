"""Series of the comparison: generated streams, and files that are not in the repository.

Every series belongs to one of two sets. The *development* set is for design and tuning: generated
streams with seeds below 100, a third of the public series (by a hash of the name) and the series
of two packages. The *held-out* set is for the tables only: generated streams with seeds from 1000
on, and all other public series. Hourly means are taken of series with a value every five minutes.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import importlib
import importlib.util
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

LONGEST = 1000  # rows, except for series with a yearly season
SHORTEST = 72  # rows


class Series(NamedTuple):
    """A series and its periods in observations, shortest first."""

    name: str
    y: np.ndarray
    periods: tuple[int, ...] = ()
    start: str = ""  # date of the first row, if the days of the year matter

    @property
    def period(self) -> int:
        """The period given to peers that take one; 1 for none."""
        return self.periods[0] if self.periods else 1


def is_development(name: str) -> bool:
    """Return whether a public series belongs to the development set."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 3 == 0


def development() -> list[Series]:
    """Return the series for design and tuning."""
    public = [one for one in _public() if is_development(one.name)]
    return _generated(range(2)) + public + list(_pmdarima()) + list(_vega())


def held_out() -> list[Series]:
    """Return the series of the tables."""
    public = [one for one in _public() if not is_development(one.name)]
    return _generated(range(1000, 1002)) + public + list(_packages())


# ---------------------------------------------------------------------------- generated


def _ar(rng: np.random.Generator, n: int, phi: float) -> np.ndarray:
    y = np.zeros(n)
    for t in range(1, n):
        y[t] = phi * y[t - 1] + rng.normal()
    return y


def _path(rng: np.random.Generator, n: int, k: int, stay: float) -> np.ndarray:
    s = np.zeros(n, int)
    for t in range(1, n):
        s[t] = s[t - 1] if rng.random() < stay else (s[t - 1] + 1 + rng.integers(k - 1)) % k
    return s


def _generated(seeds: range) -> list[Series]:
    return [one for seed in seeds for one in _streams(seed)]


def _streams(seed: int) -> Iterator[Series]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(300, 700))
    t = np.arange(n)
    day = np.tile(np.cumsum(rng.normal(size=24)), n // 24 + 1)[:n]
    day -= day.mean()
    year = np.tile(rng.normal(size=12), n // 12 + 1)[:n]
    levels = 3.0 * _path(rng, n, 4, 0.98)
    growth = np.exp(np.cumsum(rng.normal(0.005, 0.02, n)))
    week = np.where(t % 168 < 120, 1.0, 0.4)
    streams = {
        "levels": (levels + rng.normal(0, 0.5, n), ()),
        "noise": (37 * rng.normal(size=n), ()),
        "ar .9": (_ar(rng, n, 0.9), ()),
        "ar 2": (_ar2(rng, n), ()),
        "random walk": (np.cumsum(rng.normal(size=n)), ()),
        "local level": (np.cumsum(0.2 * rng.normal(size=n)) + rng.normal(size=n), ()),
        "trend": (0.3 * t + 4 * rng.normal(size=n), ()),
        "changing trend": (
            np.cumsum(np.cumsum(0.02 * rng.normal(size=n))) + rng.normal(size=n),
            (),
        ),
        "day": (day + _ar(rng, n, 0.6), (24,)),
        "day on a walk": (day + np.cumsum(0.5 * rng.normal(size=n)), (24,)),
        "day and week": (5 * day * week + _ar(rng, n, 0.6), (24, 168)),
        "year, multiplied": (100 * growth[:240] * np.exp(0.2 * year[:240]), (12,)),
        "volatility": (np.where(_path(rng, n, 2, 0.98) == 1, 5.0, 1.0) * rng.normal(size=n), ()),
        "lognormal": (np.exp(0.3 * _ar(rng, n, 0.8)), ()),
        "counts": (rng.poisson(np.exp(0.5 * _ar(rng, n, 0.7))).astype(float), ()),
        "spikes": (_ar(rng, n, 0.8) + np.where(rng.random(n) < 0.02, rng.normal(0, 30, n), 0), ()),
    }
    for name, (y, periods) in streams.items():
        yield Series(f"generated/{name} {seed}", y, periods)


def _ar2(rng: np.random.Generator, n: int) -> np.ndarray:
    y = np.zeros(n)
    for t in range(2, n):
        y[t] = 1.6 * y[t - 1] - 0.8 * y[t - 2] + rng.normal()
    return y


# ---------------------------------------------------------------------------- public files


def _public() -> Iterator[Series]:
    folder = os.environ.get("REGIMEKIT_DATA")
    if not folder:
        return
    root = Path(folder)
    for reader in (_nab, _tcpd, _tssb, _electricity, _skab):
        for one in reader(root):
            if len(one.y) >= SHORTEST and np.ptp(one.y) > 0:
                yield one._replace(y=one.y[:LONGEST])


def _rows(path: Path) -> list[list[str]]:
    with gzip.open(path, "rt") as lines:
        return list(csv.reader(lines))


def _blocks(y: np.ndarray, size: int) -> np.ndarray:
    n = len(y) // size * size
    return y[:n].reshape(-1, size).mean(axis=1)


def _nab(root: Path) -> Iterator[Series]:
    for path in sorted(root.glob("nab/*/*.csv.gz")):
        rows = _rows(path)[1:]
        y = np.array([float(row[1]) for row in rows])
        stamps = np.array([row[0] for row in rows[:200]], "datetime64[s]")
        step = int(np.median(np.diff(stamps).astype(int)))
        name = "nab/" + path.name.removesuffix(".csv.gz")
        if step == 300:
            yield Series(name, _blocks(y, 12), (24,))
        elif step in (1800, 3600):
            yield Series(name, y, (86_400 // step,))
        else:
            yield Series(name, y)


def _tcpd(root: Path) -> Iterator[Series]:
    periods = {"co2_canada": 12, "seatbelts": 12, "shanghai_license": 12, "us_population": 12}
    for path in sorted(root.glob("tcpd/*.json")):
        if path.stem in ("annotations", "run_log"):
            continue
        raw = json.loads(path.read_text())["series"][0]["raw"]
        y = np.array([np.nan if value is None else float(value) for value in raw])
        y = y[np.isfinite(y)]
        period = periods.get(path.stem)
        yield Series(f"tcpd/{path.stem}", y, (period,) if period else ())


def _tssb(root: Path) -> Iterator[Series]:
    csv.field_size_limit(10**8)
    for row in _rows(root / "tssb/tssb_part.csv.gz")[1:] if (root / "tssb").is_dir() else []:
        if not is_development(row[0] + " chosen"):
            continue  # a third of them: they are all traces of movements and shapes
        values = row[3].strip("[]").replace(",", " ").split()
        yield Series(f"tssb/{row[0]}", np.array([float(v) for v in values]))


def _electricity(root: Path) -> Iterator[Series]:
    path = root / "electricity/electricity_hourly_2017_2020.csv.gz"
    if not path.is_file():
        return
    head, *rows = _rows(path)
    for column in range(1, len(head)):
        try:
            y = np.array([float(row[column]) for row in rows])
        except ValueError:
            continue
        for start in (0, 9000, 20_000):
            part = y[start : start + LONGEST]
            yield Series(f"electricity/{head[column]} {start}", part, (24, 168))


def _skab(root: Path) -> Iterator[Series]:
    for path in sorted(root.glob("skab/valve1/*.csv.gz"))[:4]:
        with gzip.open(path, "rt") as lines:
            rows = list(csv.reader(lines, delimiter=";"))
        for column in (1, 3, 6):
            y = np.array([float(row[column]) for row in rows[1:]])
            yield Series(f"skab/{path.name.split('.')[0]} {rows[0][column]}", y)


# ---------------------------------------------------------------------------- packages


def _file(package: str, path: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        return None
    found = Path(spec.origin).parent / path
    return found if found.is_file() else None


def _columns(package: str, path: str, chosen: dict[int, str], period: int) -> Iterator[Series]:
    found = _file(package, path)
    if found is None:
        return
    opener = gzip.open if found.suffix == ".gz" else open
    with opener(found, "rt") as lines:
        rows = list(csv.reader(lines))[1:]
    for column, name in chosen.items():
        y = np.array([float(row[column] or "nan") for row in rows])
        y = np.where(np.isfinite(y), y, np.interp(np.arange(len(y)), *_seen(y)))
        yield Series(f"{package}/{name}", y[:LONGEST], (period,) if period > 1 else ())


def _seen(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    at = np.flatnonzero(np.isfinite(y))
    return at, y[at]


def _packages() -> Iterator[Series]:
    sm, sk = "statsmodels", "sktime"
    yield from _columns(sm, "datasets/co2/co2.csv", {1: "co2"}, 52)
    yield from _columns(sm, "datasets/sunspots/sunspots.csv", {1: "sunspots"}, 11)
    names = {2: "gdp", 3: "consumption", 4: "investment", 8: "m1", 9: "tbilrate", 10: "unemployed"}
    yield from _columns(sm, "datasets/macrodata/macrodata.csv", names, 4)
    path = _file(sm, "datasets/elnino/elnino.csv")
    if path is not None:
        rows = list(csv.reader(path.open()))[1:]
        y = np.array([float(value) for row in rows for value in row[1:]])
        yield Series("statsmodels/elnino", y[:LONGEST], (12,))
    data = "datasets/data/"
    yield from _columns(sk, data + "Airline/Airline.csv", {1: "airline"}, 12)
    yield from _columns(sk, data + "Lynx/Lynx.csv", {1: "lynx"}, 10)
    yield from _columns("river", "datasets/water-flow.csv", {1: "water flow"}, 24)
    yield from _columns("river", "datasets/trump_approval.csv.gz", {6: "trump approval"}, 7)


def _pmdarima() -> Iterator[Series]:
    if importlib.util.find_spec("pmdarima") is None:
        return
    datasets = importlib.import_module("pmdarima.datasets")
    periods = {"ausbeer": 4, "austres": 4, "heartrate": 1}
    periods |= {"wineind": 12, "woolyrnq": 4}
    for name, period in periods.items():
        y = np.asarray(getattr(datasets, f"load_{name}")(), float)
        known = (period,) if period > 1 else ()
        yield Series(f"pmdarima/{name}", y[:LONGEST], known)


def _vega() -> Iterator[Series]:
    if importlib.util.find_spec("vega_datasets") is None:
        return
    local = importlib.import_module("vega_datasets").local_data
    weather = local.seattle_weather()
    for column in ("temp_max", "temp_min", "wind"):
        y = np.asarray(weather[column], float)
        yield Series(f"vega/seattle {column}", y, (7, 365), "2012-01-01")
    temps = np.asarray(local.sf_temps()["temp"], float)
    yield Series("vega/sf temps", temps[:LONGEST], (24,))
