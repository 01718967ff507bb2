"""Rolling-origin comparison of `auto` with peers, several steps ahead.

    python -m benchmarks.horizons                             simple peers, held-out series
    python -m benchmarks.horizons --series development        the series used for design
    python -m benchmarks.horizons --peers AutoETS,flaircast   also models of other packages
    python -m benchmarks.horizons --out docs/measured/horizons.md

`auto` runs with default settings and is not given the season; peers are. Scores are continuous
ranked probability scores, averaged over the steps 1 .. h and over the origins. The reference of a
series is the peer that was best on it in hindsight. The rows "next observation" use every
observation after the first quarter of a series, the other rows the origins only.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np

import regimekit as rk
from benchmarks.horizons import corpus, packages, peers
from benchmarks.horizons.packages import Gaussian
from benchmarks.untuned import write_page
from regimekit.metrics.scores import crps_scores

HORIZONS = (1, 6, 12, 24, 48)
STEPS = (1, 2, 3, 6, 12, 24, 36, 48)
LEVELS = (0.5, 0.8, 0.9, 0.95)


class Scores(NamedTuple):
    """Scores of one series; H steps, N origins."""

    name: str
    own: np.ndarray  # (N, H) of auto
    peer: dict[str, np.ndarray]  # (N, H) of each peer
    pit: np.ndarray  # (N, H)
    peer_pit: dict[str, np.ndarray]
    next: float  # score of the next observation over that of its best simple peer
    next_pit: np.ndarray  # of auto, at every observation after the first quarter
    widest: float  # 90 % interval over the range of the past
    seconds: float  # per forecast of H steps
    cost: dict[str, float]


def evaluate(series: corpus.Series, n_origins: int, longest: int, chosen: list[str]) -> Scores:
    """Run `auto` and the peers on one series."""
    y = np.asarray(series.y, float)
    horizon = max(h for h in HORIZONS if h <= min(longest, max(1, len(y) // 4)))
    origins = sorted({int(n) for n in np.linspace(len(y) // 2, len(y) - horizon, n_origins)})
    model, known = rk.auto(), 0
    own, pit = np.empty((len(origins), horizon)), np.empty((len(origins), horizon))
    widest, spent = 0.0, 0.0
    scored, next_pit = [], []
    for i, n in enumerate(origins):
        part = rk.metrics.prequential(model, y[known:n])
        scored.append(part.crps[:, 0])
        next_pit.append(part.pit[:, 0])
        known = n
        begun = time.process_time()
        ahead = list(model.forecast(horizon))
        spent += time.process_time() - begun
        truth = y[n : n + horizon]
        own[i] = crps_scores(ahead, truth)[:, 0]
        pit[i] = [f.cdf(value) for f, value in zip(ahead, truth, strict=True)]
        width = max(float(np.diff(f.interval(0.9))[0]) for f in ahead)
        widest = max(widest, width / max(float(np.ptp(y[:n])), 1e-300))
    made: dict[str, packages.Forecasts] = {
        name: Gaussian(*law)
        for name, law in peers.forecasts(y, series.period, horizon, origins).items()
    }
    more, cost = packages.forecasts(y, series.periods, horizon, origins, chosen)
    made |= more
    truth = np.stack([y[n : n + horizon] for n in origins])
    return Scores(
        series.name,
        own,
        {name: law.crps(truth) for name, law in made.items()},
        pit,
        {name: law.pit(truth) for name, law in made.items()},
        _next(y, series.period, np.concatenate(scored)),
        np.concatenate(next_pit)[len(y) // 4 :],
        widest,
        spent / len(origins),
        cost,
    )


def _next(y: np.ndarray, period: int, own: np.ndarray) -> float:
    """Return the mean score of the next observation over that of the best simple peer."""
    at = list(range(len(y) // 4, len(own)))  # numbers of known observations
    made = peers.forecasts(y, period, 1, at)
    truth = y[at][:, None]
    best = min(float(Gaussian(*law).crps(truth).mean()) for law in made.values())
    return float(own[at].mean()) / max(best, 1e-300)


def ratio(scores: Scores, h: int, names: list[str]) -> tuple[float, str]:
    """Return the score of `auto` over that of the best of these peers, and its name.

    Scores below a thousandth of that of the mean count as that: some series repeat exactly.
    """
    floor = 1e-3 * float(scores.peer["mean"][:, :h].mean())
    means = {name: float(scores.peer[name][:, :h].mean()) for name in names if name in scores.peer}
    best = min(means, key=lambda name: means[name])
    return max(float(scores.own[:, :h].mean()), floor) / max(means[best], floor, 1e-300), best


def tables(found: list[Scores]) -> str:
    """Return the tables: pooled, by peer, coverage by step, by series."""
    names = sorted({name for scores in found for name in scores.peer})
    lines = _pooled(found, list(peers.PEERS))
    following = np.array([scores.next for scores in found])
    lines.append(
        f"| next observation | {len(following)} | {_geometric(following):.3f} "
        f"| {(following < 1).mean():.0%} | {(following > 1.3).sum()} | {following.max():.2f} |"
    )
    if len(names) > len(peers.PEERS):
        lines += ["", "Other packages among the peers:", "", *_pooled(found, names)]
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


def _pooled(found: list[Scores], names: list[str]) -> list[str]:
    """Return the table over the best of these peers."""
    lines = [
        "| steps | series | CRPS over the best peer in hindsight | first | above 1.3 | worst |",
        "|---|---|---|---|---|---|",
    ]
    for h in HORIZONS:
        part = [scores for scores in found if scores.own.shape[1] >= h]
        ratios = np.array([ratio(scores, h, names)[0] for scores in part])
        if len(ratios):
            lines.append(
                f"| 1 .. {h} | {len(ratios)} | {_geometric(ratios):.3f} "
                f"| {(ratios < 1).mean():.0%} | {(ratios > 1.3).sum()} | {ratios.max():.2f} |"
            )
    return lines


def _geometric(ratios: np.ndarray) -> float:
    return float(np.exp(np.log(np.maximum(ratios, 1e-12)).mean()))


def _coverage(found: list[Scores]) -> list[str]:
    lines = ["", "Coverage of 90 % intervals by step, auto and peers, all series pooled:", ""]
    lines += ["| | " + " | ".join(map(str, STEPS)) + " |", "|---" * (len(STEPS) + 1) + "|"]
    names = sorted({name for scores in found for name in scores.peer})
    for name in ("auto", *names):
        cells = []
        for h in STEPS:
            pit = _pits([s.pit if name == "auto" else s.peer_pit.get(name) for s in found], h)
            cells.append(f"{np.mean(np.abs(2 * pit - 1) <= 0.9):.3f}" if len(pit) else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", "Coverage of auto by step, all series pooled:", ""]
    lines += ["| step | " + " | ".join(f"{level:.0%}" for level in LEVELS) + " |"]
    lines += ["|---" * (len(LEVELS) + 1) + "|"]
    for h in STEPS:
        pit = _pits([s.pit for s in found], h)
        if len(pit):
            inside = [np.mean(np.abs(2 * pit - 1) <= level) for level in LEVELS]
            lines.append(f"| {h} | " + " | ".join(f"{share:.3f}" for share in inside) + " |")
    following = [np.abs(2 * s.next_pit - 1) for s in found]
    inside = [np.mean([np.mean(part <= level) for part in following]) for level in LEVELS]
    lines.append("| next observation | " + " | ".join(f"{share:.3f}" for share in inside) + " |")
    widest = max(found, key=lambda s: s.widest)
    milliseconds = 1e3 * float(np.median([s.seconds for s in found]))
    lines += ["", f"Largest 90 % interval over the range of the past: {widest.widest:.2f} "]
    lines[-1] += f"({widest.name}). Processor time of one forecast, median: {milliseconds:.1f} ms."
    return lines


def _pits(values: list[np.ndarray | None], h: int) -> np.ndarray:
    """Return the probability integral transforms at step h of all series that have it."""
    known = [one[:, h - 1] for one in values if one is not None and one.shape[1] >= h]
    return np.concatenate(known or [np.zeros(0)])


def _by_series(found: list[Scores]) -> list[str]:
    lines = ["", "By series, over the best peer in hindsight:", ""]
    lines += ["| series | " + " | ".join(f"1 .. {h}" for h in HORIZONS) + " | best peer, longest |"]
    lines += ["|---" * (len(HORIZONS) + 2) + "|"]
    for s in found:
        known = [h for h in HORIZONS if h <= s.own.shape[1]]
        cells = [f"{ratio(s, h, list(peers.PEERS))[0]:.2f}" for h in known]
        cells += [""] * (len(HORIZONS) - len(known)) + [ratio(s, known[-1], list(peers.PEERS))[1]]
        lines.append(f"| {s.name} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Run the comparison and write or print its tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", default="held_out", choices=("held_out", "development"))
    parser.add_argument("--origins", type=int, default=8)
    parser.add_argument("--horizon", type=int, default=48)
    parser.add_argument("--peers", default="", help=", ".join(packages.NAMES))
    parser.add_argument("--only", default="", help="part of the name of the series")
    parser.add_argument("--rows", type=int, default=10**9, help="most rows of a series")
    parser.add_argument("--out", default="")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    more = [name for name in chosen.peers.split(",") if name]
    packages.check(more)
    found = []
    for series in getattr(corpus, chosen.series)():
        if chosen.only in series.name and len(series.y) <= chosen.rows:
            found.append(evaluate(series, chosen.origins, chosen.horizon, more))
            h = found[-1].own.shape[1]
            print(series.name, *ratio(found[-1], h, list(peers.PEERS)), flush=True)
    head = (
        "# Forecasts several steps ahead\n\nMade by `python -m benchmarks.horizons"
        f" --series {chosen.series} --origins {chosen.origins} --horizon {chosen.horizon}"
        + (f" --peers {chosen.peers}`" if more else "`")
        + f": {len(found)} series, default settings, seed 0. Peers are given the season.\n\n"
    )
    text = head + tables(found) + "\n"
    if chosen.out:
        write_page(Path(chosen.out), text)
    print(text)


if __name__ == "__main__":
    main()
