"""One year ahead: days and months, against last year's values, statsforecast and Prophet.

    python -m benchmarks.horizons.years FILE.csv [FILE.csv ..] [--out FILE]

Each file has the columns ds (dates) and y. The forecasts of the last year of the file are scored by
their mean absolute error over that of the value one year before. Peers that are not installed are
left out.
"""

from __future__ import annotations

import argparse
import csv
import importlib.util
import logging
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import regimekit as rk

Points = Callable[[list[str], np.ndarray, int, int], np.ndarray]


def read(path: str) -> tuple[list[str], np.ndarray]:
    """Return dates and values of a file; missing rows are left out."""
    with Path(path).open() as lines:
        rows = sorted((r for r in csv.DictReader(lines) if r["y"]), key=lambda row: row["ds"])
    return [row["ds"][:10] for row in rows], np.array([float(row["y"]) for row in rows])


def _auto(dates: list[str], y: np.ndarray, horizon: int, year: int) -> np.ndarray:
    """Return the forecast of `auto` from a frame of dates, without other information."""
    import pandas as pd

    model = rk.auto()
    model.run(pd.Series(y, index=pd.to_datetime(dates)))
    return np.array([forecast.median for forecast in model.forecast(horizon)])


def _last_year(dates: list[str], y: np.ndarray, horizon: int, year: int) -> np.ndarray:
    return y[len(y) - year + np.arange(horizon) % year]


def _mean(dates: list[str], y: np.ndarray, horizon: int, year: int) -> np.ndarray:
    return np.full(horizon, y.mean())


def _ets(dates: list[str], y: np.ndarray, horizon: int, year: int) -> np.ndarray:
    from statsforecast.models import AutoETS

    model = AutoETS(season_length=7 if year > 24 else year)
    return np.asarray(model.forecast(y=y, h=horizon)["mean"])


def _mstl(dates: list[str], y: np.ndarray, horizon: int, year: int) -> np.ndarray:
    from statsforecast.models import MSTL

    model = MSTL(season_length=[7, year] if year > 24 else year)
    return np.asarray(model.forecast(y=y, h=horizon)["mean"])


def _prophet(dates: list[str], y: np.ndarray, horizon: int, year: int) -> np.ndarray:
    import pandas as pd
    from prophet import Prophet

    logging.getLogger("cmdstanpy").disabled = True
    model = Prophet()
    model.fit(pd.DataFrame({"ds": pd.to_datetime(dates), "y": y}))
    ahead = model.make_future_dataframe(horizon, freq="D" if year > 24 else "MS")
    return np.asarray(model.predict(ahead)["yhat"])[-horizon:]


def peers() -> Iterator[tuple[str, Points]]:
    """Return the peers that can run here."""
    yield "regimekit auto", _auto
    yield "last year", _last_year
    yield "mean", _mean
    if importlib.util.find_spec("statsforecast"):
        yield "AutoETS", _ets
        yield "MSTL", _mstl
    if importlib.util.find_spec("prophet"):
        yield "Prophet", _prophet


def compare(path: str) -> dict[str, tuple[float, float]]:
    """Return mean absolute error over that of last year's value, and seconds, by peer."""
    dates, y = read(path)
    days = np.diff(np.array(dates[:50], "datetime64[D]")).astype(int)
    year = 365 if np.median(days) == 1 else 12
    past, truth = y[:-year], y[-year:]
    out: dict[str, Any] = {}
    for name, points in peers():
        begun = time.process_time()
        ahead = points(dates[:-year], past, year, year)
        out[name] = (float(np.abs(ahead - truth).mean()), time.process_time() - begun)
    base = out["last year"][0]
    return {name: (error / base, spent) for name, (error, spent) in out.items()}


def main() -> None:
    """Compare on every file and write a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", default="")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    found = {Path(path).stem: compare(path) for path in chosen.files}
    names = list(next(iter(found.values())))
    lines = ["| series | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for series, scores in found.items():
        lines.append(f"| {series} | " + " | ".join(f"{scores[n][0]:.2f}" for n in names) + " |")
    mean = [np.exp(np.mean([np.log(scores[n][0]) for scores in found.values()])) for n in names]
    spent = [np.mean([scores[n][1] for scores in found.values()]) for n in names]
    lines.append("| geometric mean | " + " | ".join(f"{value:.2f}" for value in mean) + " |")
    lines.append("| seconds | " + " | ".join(f"{value:.1f}" for value in spent) + " |")
    text = "\n".join(lines) + "\n"
    if chosen.out:
        Path(chosen.out).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
