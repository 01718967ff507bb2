"""Changes marked by annotators: covering and F1 on TCPD, TSSB and SKAB, next to published figures.

    python -m benchmarks.segmentation [--peers auto,views,level,none,every,pelt,bocd]
                                      [--only tcpd,run_log,tssb,skab,shapes]

Every model has its default settings and processes the rows one at a time; a change counts at its
date, and the delay is the median number of rows from its date until it was known. `none` never
reports a change, `every` one in every 20 rows; `pelt` uses the whole series (ruptures, penalty of
`benchmarks.public.detectors`); `views` infers the regimes of `auto` in a hundredth of the time,
without forecasts; `bocd` learns the noise variance and has a Student-t predictive.

The folder REGIMEKIT_DATA has the parts of the benchmarks that are scored: 15 of 30 univariate
series and run_log of TCPD, 37 of 75 series of TSSB, 16 valve series of SKAB. Constants of `auto`
were chosen with those of TCPD and TSSB: docs/measured/regimes.md. `shapes` are generated periodic
streams, on which the numbers that describe a shape were chosen; a third have no change.

SKAB also has the score of its own table, NAB: an alarm is the row at which a change became known,
and an alarm up to 60 s after one of the four marked changes of a series finds it (`nab`). An alarm
in every 20 rows beats all published detectors in the standard profile, so `low FP`, the profile in
which a false alarm costs twice as much, is printed as well.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import regimekit as rk
from benchmarks.public import detectors
from regimekit.ensemble.regime_selection import RegimeSelection
from regimekit.ensemble.regime_views import LevelView
from regimekit.ensemble.shape_view import ShapeView

PUBLISHED = {
    "tcpd": "the same 30 series: PELT .695 / .728, BINSEG .693 / .738, BOCPD .636 / .696, no "
    "change .575 / .668",
    "run_log": "BOCPD .815 / 1.0, ECP .657 / .792",
    "skab": "NAB / low FP, 34 series: MSCRED 32.4 / 16.5, isolation forest 26.2 / 19.5, T2 + Q "
    "25.4 / 14.5, Conv-AE 23.6 / 21.5, LSTM-AE 23.5 / 20.1",
    "shapes": "none",
    "tssb": "covering, all 75 series, streaming: ClaSS .807, DDM .523, Window .485, FLOSS .484, "
    "BOCD .464, ADWIN .391",
}
EVERY = 20  # rows between two changes of `every`
BAD = 5  # series with the lowest covering that are listed
TRAINING = 400  # rows that SKAB gives to the detectors; alarms in them do not count
N_SHAPES = 30  # generated streams
WINDOW = 60.0  # seconds after a marked change in which an alarm finds it
# Value of a false alarm in two profiles of NAB: standard, and few false positives.
FALSE_ALARM, LOW_FP = -0.11, -0.22


class Found(NamedTuple):
    """Changes by date, the median number of rows until they were known, and when that was."""

    changes: list[int]
    delay: float = float("nan")
    alarms: list[int] | None = None


def _auto(regimes: str) -> Callable[[np.ndarray], Found]:
    def find(y: np.ndarray) -> Found:
        run = rk.auto(regimes=regimes).run(y)
        return _found(run.changepoints, run.events)

    return find


def _views(y: np.ndarray) -> Found:
    """Infer regimes as the engine of `auto` does, from the views alone."""
    rows = y.reshape(len(y), -1)
    level, shape = LevelView(rows.shape[1]), ShapeView(rows.shape[1])
    selection = RegimeSelection(2 if y.ndim == 1 else 1, decided=True)
    scores, events = np.zeros(selection.n_models), list[rk.results.Event]()
    regime = np.zeros(len(y), np.int64)
    for t, row in enumerate(rows):
        for i, source in enumerate((level, shape)[: selection.n_models]):
            if i == 1 or selection.chosen == 0:
                source.observe(row, t)
                view = source.view
                selection.observe(i, view.regime, view.changed, t, view.since)
        ahead = shape.view.n_changes - level.view.n_changes
        speaks = shape.found if selection.chosen else ahead > 0 or ahead < -1
        if selection.n_models > 1 and shape.period and speaks:
            known = [(0, shape.origin), (shape.view.regime, shape.view.since)]
            if shape.found or shape.view.n_changes < 2:
                found = shape.segments if shape.found else known[: 1 + shape.view.n_changes]
                selection.revise(1, t, found)
            else:
                selection.chosen = 1
                selection.match()
        events += selection.hear(t, scores)
        regime[t] = selection.regime
    path = rk.results.retrospective_path(regime, events)
    return _found((np.flatnonzero(np.diff(path)) + 1).tolist(), events)


def _found(changes: list[int], events: list[rk.results.Event]) -> Found:
    """Return changes, and when those that were reported were known."""
    reported = [e for e in events if e.kind in rk.results.CHANGES and e.since]
    delay = np.median([e.time - e.since for e in reported]) if reported else np.nan
    return Found(changes, float(delay), [e.time for e in reported])


def _every(y: np.ndarray) -> Found:
    changes = list(range(EVERY, len(y), EVERY))
    return Found(changes, alarms=changes)


def _bocd(y: np.ndarray) -> Found:
    model = rk.bocd()
    model.run(y)
    return Found([int(t) for t in model.segmentation()])


PEERS: dict[str, Callable[[np.ndarray], Found]] = {
    "auto": _auto("auto"),
    "views": _views,
    "level": _auto("level"),
    "none": lambda y: Found([], alarms=[]),
    "every": _every,
    "pelt": lambda y: Found(detectors.CHANGES["ruptures_pelt_offline"](y)),
    "bocd": _bocd,
}


class Labelled(NamedTuple):
    """A series and the changes that each annotator marked; for NAB, when and at which seconds."""

    name: str
    y: np.ndarray
    truth: dict[str, list[int]]
    marked: list[int] | None = None
    seconds: np.ndarray | None = None


def tcpd(root: Path) -> Iterator[Labelled]:
    """Yield the series of TCPD."""
    truth = json.loads((root / "tcpd/annotations.json").read_text())
    for file in sorted((root / "tcpd").glob("*.json")):
        if file.stem == "annotations":
            continue
        each = [series["raw"] for series in json.loads(file.read_text())["series"]]
        y = np.array([[np.nan if v is None else v for v in raw] for raw in each], float).T
        yield Labelled(file.stem, y[:, 0] if y.shape[1] == 1 else y, truth[file.stem])


def tssb(root: Path) -> Iterator[Labelled]:
    """Yield the series of TSSB."""
    csv.field_size_limit(10**8)
    with gzip.open(root / "tssb/tssb_part.csv.gz", "rt", newline="") as lines:
        for row in csv.DictReader(lines):
            values = row["time_series"].strip("[]").replace(",", " ").split()
            marked = [int(t) for t in row["change_points"].strip("[]").replace(",", " ").split()]
            yield Labelled(row["dataset"], np.array(values, float), {"all": marked})


def skab(root: Path) -> Iterator[Labelled]:
    """Yield the valve series of SKAB, 8 coordinates; a change is where `anomaly` changes."""
    for file in sorted((root / "skab/valve1").glob("*.csv.gz")):
        with gzip.open(file, "rt", newline="") as lines:
            rows = list(csv.DictReader(lines, delimiter=";"))
        sensors = [name for name in rows[0] if name not in ("datetime", "anomaly", "changepoint")]
        y = np.array([[float(row[name]) for name in sensors] for row in rows])
        faulty = np.array([float(row["anomaly"]) for row in rows])
        truth = {"all": (np.flatnonzero(np.diff(faulty)) + 1).tolist()}
        marked = [t for t, row in enumerate(rows) if float(row["changepoint"]) == 1.0]
        times = np.array([row["datetime"] for row in rows], "datetime64[s]")
        seconds = (times - times[0]).astype(float)
        yield Labelled(f"valve {file.name.split('.')[0]}", y, truth, marked, seconds)


def cycle(rng: np.random.Generator, kind: int) -> np.ndarray:
    """Return one cycle of a shape, standardized: waves, bumps, steps or a closed random walk."""
    u = np.arange(256) / 256
    x = np.zeros(256)
    if kind == 0:
        for k in range(1, rng.integers(3, 9)):
            x += rng.normal() / k**0.8 * np.sin(2 * np.pi * (k * u + rng.random()))
    elif kind == 1:
        for _ in range(rng.integers(2, 6)):
            x += rng.normal() * np.exp(-0.5 * ((u - rng.random()) / rng.uniform(0.01, 0.12)) ** 2)
    elif kind == 2:
        cuts = np.sort(rng.random(rng.integers(2, 6)))
        x = rng.normal(size=cuts.size + 1)[np.searchsorted(cuts, u)]
    else:
        x = np.cumsum(rng.normal(size=256))
        x -= x[-1] * u
    return (x - x.mean()) / x.std()


def shapes(root: Path) -> Iterator[Labelled]:
    """Yield generated streams: cycles of two or three related shapes, in segments; or of one."""
    for seed in range(N_SHAPES):
        rng = np.random.default_rng([seed, 77])
        period, kind = int(np.exp(rng.uniform(np.log(14), np.log(120)))), int(rng.integers(4))
        n_segments = 1 if seed % 3 == 2 else int(rng.integers(2, 7))
        own, common = rng.uniform(0.15, 0.7), cycle(rng, kind)
        known = [np.sqrt(1 - own) * common + np.sqrt(own) * cycle(rng, kind) for _ in range(3)]
        warp, jitter, noise = rng.uniform(0, 0.5), rng.uniform(0, 0.04), rng.uniform(0.02, 0.3)
        parts: list[np.ndarray] = []
        truth, now = [], 0
        for segment in range(n_segments):
            if segment:
                truth.append(sum(part.size for part in parts))
                now = (now + int(rng.integers(1, 3))) % 3
            for _ in range(rng.integers(8, 45) if n_segments > 1 else rng.integers(25, 120)):
                n = max(8, round(period * (1 + jitter * rng.normal())))
                speed = np.interp(np.arange(n) / n, np.linspace(0, 1, 5), rng.normal(size=5))
                phase = np.cumsum(np.exp(warp * speed))
                x = np.interp(phase / phase[-1] * 255, np.arange(256), known[now])
                parts.append((x - x.mean()) / x.std())
        y = np.concatenate(parts)
        yield Labelled(f"{seed}", y + noise * rng.normal(size=y.size), {"all": truth})


SERIES = {"tcpd": tcpd, "run_log": tcpd, "tssb": tssb, "skab": skab, "shapes": shapes}


def nab(series: list[Labelled], alarms: list[list[int]], false_alarm: float) -> float:
    """Return the NAB score of changes, computed as in the leaderboard of SKAB.

    The first alarm in the window after a marked change counts 1 at its start and falls to
    `false_alarm` at its end; none in it counts -1; every alarm outside counts `false_alarm`. The
    sum is scaled so that no alarms at all have 0 and perfect ones 100.
    """
    total, count = 0.0, 0
    for one, own in zip(series, alarms, strict=True):
        assert one.seconds is not None and one.marked is not None
        times = np.array([one.seconds[t] for t in own if t >= TRAINING])
        starts = np.array([one.seconds[t] for t in one.marked if t >= TRAINING])
        # Where two windows meet, the second begins where the first ends.
        begins = np.maximum(starts, np.append(-np.inf, starts[:-1] + WINDOW))
        false = np.ones(len(times), bool)
        for begin, end in zip(begins, starts + WINDOW, strict=True):
            inside = (times >= begin) & (times <= end)
            false &= ~inside
            if inside.any():
                place = (times[inside][0] - begin) / (end - begin) - 0.5
                fall = np.tanh(np.pi * place) / np.tanh(np.pi / 2)
                total += 0.5 * (1.0 + false_alarm) - 0.5 * (1.0 - false_alarm) * fall
            else:
                total -= 1.0
        total += false_alarm * false.sum()
        count += len(starts)
    return 100.0 * (total + count) / (2.0 * count)


def score(series: list[Labelled], peer: str) -> str:
    """Return the row of a table for one peer, and its worst series."""
    begun, rows, alarms = time.process_time(), [], []
    for one in series:
        found = PEERS[peer](one.y)
        covering = rk.metrics.covering(one.truth, found.changes, n=len(one.y))
        f1 = rk.metrics.f1(one.truth, found.changes)
        rows.append((covering, f1, len(found.changes), found.delay, one))
        if found.alarms is not None:
            alarms.append(found.alarms)
    seconds = time.process_time() - begun
    false = [row[2] for row in rows if not any(row[4].truth.values())]
    delays = [row[3] for row in rows if not np.isnan(row[3])]
    text = f"{peer:8}{np.mean([r[0] for r in rows]):9.3f}{np.mean([r[1] for r in rows]):7.3f}"
    text += f"{np.mean([r[2] for r in rows]):9.1f}"
    text += f"{np.mean(false):9.1f}" if false else f"{'-':>9}"
    text += f"{np.median(delays):7.0f}" if delays else f"{'-':>7}"
    scored = series[0].marked is not None and len(alarms) == len(series)
    for profile in (FALSE_ALARM, LOW_FP):
        text += f"{nab(series, alarms, profile):8.1f}" if scored else f"{'-':>8}"
    text += f"{1e3 * seconds / sum(len(one.y) for one in series):8.2f}"
    if peer in ("auto", "views", "level"):
        worst = sorted(rows, key=lambda row: row[0])[:BAD]
        text += "   lowest: " + ", ".join(f"{r[4].name} {r[0]:.2f} ({r[2]} found)" for r in worst)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="auto,level,none,every,pelt,bocd")
    parser.add_argument("--only", default="tcpd,run_log,tssb,skab")
    options = parser.parse_args()
    root = Path(os.environ["REGIMEKIT_DATA"])
    warnings.simplefilter("ignore")
    for task in options.only.split(","):
        series = list(SERIES[task](root))
        if SERIES[task] is tcpd:
            series = [one for one in series if (one.name == "run_log") == (task == "run_log")]
        print(f"\n{task}, {len(series)} series. Published: {PUBLISHED[task]}")
        print(
            f"{'peer':8}{'covering':>9}{'F1':>7}{'changes':>9}{'false':>9}{'delay':>7}"
            f"{'NAB':>8}{'low FP':>8}{'ms/row':>8}"
        )
        for peer in options.peers.split(","):
            try:
                print(score(series, peer), flush=True)
            except ModuleNotFoundError as error:
                print(f"{peer:8} not run: {error}")
    print("\nfalse: changes per series without a marked change; delay: rows; ms: CPU time")


if __name__ == "__main__":
    main()
