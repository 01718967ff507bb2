"""Rolling-origin comparison of `auto` with peers, several steps ahead.

    python -m benchmarks.horizons                             simple peers, held-out series
    python -m benchmarks.horizons --series development        the series used for design
    python -m benchmarks.horizons --peers AutoETS,MSTL        also models of statsforecast
    python -m benchmarks.horizons --out docs/measured/horizons.md

`auto` runs with default settings and is not given the season; peers are. Scores are continuous
ranked probability scores, averaged over the steps 1 .. h and over the origins. The reference of a
series is the peer that was best on it in hindsight.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

import regimekit as rk
from benchmarks.horizons import corpus, peers, statsforecast_peers
from regimekit.metrics.scores import crps_scores

HORIZONS = (1, 6, 12, 24, 48)
LEVELS = (0.5, 0.8, 0.9, 0.95)


class Scores(NamedTuple):
    """Scores of one series; H steps, N origins."""

    name: str
    own: np.ndarray  # (N, H) of auto
    peer: dict[str, np.ndarray]  # (N, H) of each peer
    pit: np.ndarray  # (N, H)
    widest: float  # 90 % interval over the range of the past
    seconds: float  # per forecast of H steps
    cost: dict[str, float]


def gaussian_crps(y: np.ndarray, mean: np.ndarray, sd: np.ndarray) -> np.ndarray:
    """Return the score of Gaussian forecasts."""
    z = (y - mean) / sd
    density = np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)
    return np.asarray(sd * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)))


def evaluate(series: corpus.Series, n_origins: int, longest: int, chosen: list[str]) -> Scores:
    """Run `auto` and the peers on one series."""
    y = np.asarray(series.y, float)
    horizon = max(h for h in HORIZONS if h <= min(longest, max(1, len(y) // 4)))
    origins = sorted({int(n) for n in np.linspace(len(y) // 2, len(y) - horizon, n_origins)})
    model, known = rk.auto(), 0
    own, pit = np.empty((len(origins), horizon)), np.empty((len(origins), horizon))
    widest, spent = 0.0, 0.0
    for i, n in enumerate(origins):
        model.run(y[known:n])
        known = n
        begun = time.process_time()
        ahead = list(model.forecast(horizon))
        spent += time.process_time() - begun
        truth = y[n : n + horizon]
        own[i] = crps_scores(ahead, truth)[:, 0]
        pit[i] = [f.cdf(value) for f, value in zip(ahead, truth, strict=True)]
        width = max(float(np.diff(f.interval(0.9))[0]) for f in ahead)
        widest = max(widest, width / max(float(np.ptp(y[:n])), 1e-300))
    made = peers.forecasts(y, series.period, horizon, origins)
    cost: dict[str, float] = {}
    if chosen:
        more, cost = statsforecast_peers.forecasts(y, series.periods, horizon, origins, chosen)
        made |= more
    truth = np.stack([y[n : n + horizon] for n in origins])
    scored = {name: gaussian_crps(truth, *forecast) for name, forecast in made.items()}
    return Scores(series.name, own, scored, pit, widest, spent / len(origins), cost)


def ratio(scores: Scores, h: int, names: list[str]) -> tuple[float, str]:
    """Return the score of `auto` over that of the best of these peers, and its name."""
    means = {name: float(scores.peer[name][:, :h].mean()) for name in names if name in scores.peer}
    best = min(means, key=lambda name: means[name])
    return float(scores.own[:, :h].mean()) / max(means[best], 1e-300), best


def tables(found: list[Scores]) -> str:
    """Return the tables: pooled, by peer, coverage by step, by series."""
    lines = [
        "| steps | series | CRPS over the best peer in hindsight | first | above 1.3 | worst |",
        "|---|---|---|---|---|---|",
    ]
    names = sorted({name for scores in found for name in scores.peer})
    for h in HORIZONS:
        part = [scores for scores in found if scores.own.shape[1] >= h]
        ratios = np.array([ratio(scores, h, list(scores.peer))[0] for scores in part])
        if len(ratios):
            lines.append(
                f"| 1 .. {h} | {len(ratios)} | {_geometric(ratios):.3f} "
                f"| {(ratios < 1).mean():.0%} | {(ratios > 1.3).sum()} | {ratios.max():.2f} |"
            )
    lines += ["", "Over each peer, geometric mean:", ""]
    lines += ["| peer | " + " | ".join(f"1 .. {h}" for h in HORIZONS) + " | ms per forecast |"]
    lines += ["|---" * (len(HORIZONS) + 2) + "|"]
    for name in names:
        cells = []
        for h in HORIZONS:
            part = [s for s in found if s.own.shape[1] >= h and name in s.peer]
            ratios = np.array([ratio(s, h, [name])[0] for s in part])
            cells.append(f"{_geometric(ratios):.3f}" if len(ratios) else "")
        spent = [s.cost[name] for s in found if name in s.cost]
        cells.append(f"{1e3 * float(np.mean(spent)):.0f}" if spent else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines + _coverage(found) + _by_series(found))


def _geometric(ratios: np.ndarray) -> float:
    return float(np.exp(np.log(np.maximum(ratios, 1e-12)).mean()))


def _coverage(found: list[Scores]) -> list[str]:
    lines = ["", "Coverage by step, all series pooled:", ""]
    lines += ["| step | " + " | ".join(f"{level:.0%}" for level in LEVELS) + " |"]
    lines += ["|---" * (len(LEVELS) + 1) + "|"]
    for h in (1, 2, 3, 6, 12, 24, 36, 48):
        pit = np.concatenate([s.pit[:, h - 1] for s in found if s.pit.shape[1] >= h] or [[]])
        if len(pit):
            inside = [np.mean(np.abs(2 * pit - 1) <= level) for level in LEVELS]
            lines.append(f"| {h} | " + " | ".join(f"{share:.3f}" for share in inside) + " |")
    widest = max(found, key=lambda s: s.widest)
    milliseconds = 1e3 * float(np.median([s.seconds for s in found]))
    lines += ["", f"Largest 90 % interval over the range of the past: {widest.widest:.2f} "]
    lines[-1] += f"({widest.name}). Processor time of one forecast, median: {milliseconds:.1f} ms."
    return lines


def _by_series(found: list[Scores]) -> list[str]:
    lines = ["", "By series, over the best peer in hindsight:", ""]
    lines += ["| series | " + " | ".join(f"1 .. {h}" for h in HORIZONS) + " | best peer, longest |"]
    lines += ["|---" * (len(HORIZONS) + 2) + "|"]
    for s in found:
        known = [h for h in HORIZONS if h <= s.own.shape[1]]
        cells = [f"{ratio(s, h, list(s.peer))[0]:.2f}" for h in known]
        cells += [""] * (len(HORIZONS) - len(known)) + [ratio(s, known[-1], list(s.peer))[1]]
        lines.append(f"| {s.name} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Run the comparison and write or print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", default="held_out", choices=("held_out", "development"))
    parser.add_argument("--origins", type=int, default=8)
    parser.add_argument("--horizon", type=int, default=48)
    parser.add_argument("--peers", default="", help="models of statsforecast, by name")
    parser.add_argument("--only", default="", help="part of the name of the series")
    parser.add_argument("--out", default="")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    more = [name for name in chosen.peers.split(",") if name]
    found = []
    for series in getattr(corpus, chosen.series)():
        if chosen.only in series.name:
            found.append(evaluate(series, chosen.origins, chosen.horizon, more))
            h = found[-1].own.shape[1]
            print(series.name, *ratio(found[-1], h, list(found[-1].peer)), flush=True)
    head = (
        "# Forecasts several steps ahead\n\nMade by `python -m benchmarks.horizons"
        f" --series {chosen.series} --origins {chosen.origins} --horizon {chosen.horizon}"
        + (f" --peers {chosen.peers}`" if more else "`")
        + f": {len(found)} series, default settings, seed 0. Peers are given the season.\n\n"
    )
    text = head + tables(found) + "\n"
    if chosen.out:
        Path(chosen.out).write_text(text)
    print(text)


if __name__ == "__main__":
    main()
