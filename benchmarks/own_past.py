"""Anomaly scores calibrated against the past of their own stream: tried, not in the library.

    python -m benchmarks.own_past [--cache FOLDER] [--first N]

The forecasts of some streams are wrong in the tails, so one threshold on the anomaly score gives
many alerts on one stream and none on another. Five scores are compared, from the anomaly scores of
`auto` with default settings (seed 0):

    score       the anomaly score as it is
    past        calibrated against the past, see `calibrated`
    two scales  the larger of `past` for one row and for a weighted sum of about five rows,
                corrected for their number (Bonferroni)
    once        `two scales`, but 0 below the largest recent value, which fades over 200 rows; with
                three scales there are sums of about three and ten rows

All constants were chosen on the generated series of `benchmarks.alerts` and on the even series of
the Numenta Anomaly Benchmark in alphabetical order (the first one is number 0); the odd ones judge.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from scipy import stats

from benchmarks import alerts
from benchmarks.public import nab
from regimekit.alerts import Rule

N_LARGEST = 20  # past surprises that determine the tail
PRIOR = 5.0  # observations that the mean excess of right forecasts counts as
MAX_SURPRISE = 16 * math.log(10)  # nats: the spacing of scores near 1
MAX_EXCESS = 8.0  # mean excesses; one observation does not change the tail by more
ROWS = 5  # in the weighted sum, effectively
FADE = 200  # rows
Array = np.ndarray
Found = tuple[Array, list[alerts.Window], dict[str, Array]]
# Thresholds of the rule "anomaly", chosen on the even and the generated series.
RULES = {"score": 0.9999, "past": 0.998, "two scales": 0.9997}


def surprises(score: Array) -> Array:
    """Return -log(1 - score), exponential with mean 1 if the forecasts are right."""
    with np.errstate(divide="ignore"):
        return np.minimum(-np.log1p(-np.nan_to_num(score)), MAX_SURPRISE)


def calibrated(surprise: Array) -> Array:
    """Return -log P(surprise) with the tail of the past surprises of the stream.

    Let u be the k-th largest of the t past surprises and m the mean excess of the k largest over u
    (Hill 1975), at least 1. Then P(surprise > s) = k / (t + 1) exp(-(s - u) / m) for s > u. Below u
    the surprise counts as it is, but with a probability of at least k / (t + 1).
    """
    out, largest = np.empty(len(surprise)), list[float]()
    for t, value in enumerate(surprise.tolist()):
        if len(largest) < N_LARGEST:
            out[t] = value
            heapq.heappush(largest, value)
            continue
        known, least = math.log((t + 1) / N_LARGEST), largest[0]
        if value <= least:
            out[t] = min(value, known)
            continue
        excess = sum(largest) - N_LARGEST * least
        scale = max(1.0, (excess + PRIOR) / (N_LARGEST - 1 + PRIOR))
        out[t] = known + (value - least) / scale
        heapq.heapreplace(largest, min(value, least + MAX_EXCESS * scale))
    return out


def summed(surprise: Array, rows: int = ROWS) -> Array:
    """Return -log P of the exponentially weighted sum, approximated by a gamma distribution."""
    fade, total, sums = 1 - 1 / rows, 0.0, np.empty(len(surprise))
    for t, value in enumerate(np.minimum(surprise, 15.0).tolist()):
        total = sums[t] = fade * total + value
    mean, variance = 1 / (1 - fade), 1 / (1 - fade**2)
    return -stats.gamma.logsf(sums, mean**2 / variance, scale=variance / mean)


def scales(surprise: Array, rows: tuple[int, ...] = (ROWS,)) -> Array:
    """Return -log P of the most surprising of one row and the sums, each against its past."""
    each = [calibrated(surprise), *(calibrated(summed(surprise, n)) for n in rows)]
    return np.maximum(np.max(each, axis=0) - math.log(len(each)), 0.0)


def once(surprise: Array, rows: tuple[int, ...] = (ROWS,)) -> Array:
    """Return `scales` with 0 for values below the largest recent one."""
    out, top = scales(surprise, rows), 0.0
    for t, value in enumerate(out.tolist()):
        out[t] = value if value > top else 0.0
        top = max(value, top * (1 - 1 / FADE))
    return out


SCORES: dict[str, Callable[[Array], Array]] = {
    "score": lambda surprise: surprise,
    "past": calibrated,
    "two scales": scales,
    "once": once,
    "once, three scales": lambda surprise: once(surprise, (3, 10)),
}


def in_hindsight(found: list[tuple[Array, list[alerts.Window]]]) -> float:
    """Return the score of the benchmark with the best threshold for each series."""
    # A series without windows has the score 0, without alarms.
    best = [alerts.nab_scores([pair]) for pair in found if pair[1]]
    return sum(score * n for score, _, n in best) / sum(n for *_, n in best)


def at_threshold(found: Iterable[tuple[Array, list[alerts.Window]]], threshold: float) -> float:
    """Return the score of the benchmark at one threshold."""
    raw, n_windows = 0.0, 0
    for score, windows in found:
        raw += nab.raw_score(np.flatnonzero(score >= threshold).tolist(), windows, len(score))
        n_windows += sum(last >= nab.probation(len(score)) for _, last in windows)
    return nab.normalised(raw, n_windows)


def counted(series: list[Found], score: list[Array], rules: list[Rule]) -> str:
    """Return windows found and alerts of rules that read this score."""
    hit = n_alerts = 0
    for (y, windows, found), own in zip(series, score, strict=True):
        at = alerts.opened(rules, y, found | {"score": own})
        hit += sum(any(a <= t <= b for t in at) for a, b in windows)
        n_alerts += len(at)
    return f"{hit} / {n_alerts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, default=Path("build/alerts"))
    parser.add_argument("--first", type=int, help="number of series of each source")
    given = parser.parse_args()
    given.cache.mkdir(parents=True, exist_ok=True)
    numenta = list(itertools.islice(alerts.numenta(), given.first))
    generated = list(itertools.islice(alerts.generated(), given.first))
    series: list[Found] = [
        (y, windows, alerts.scores(name, y, "auto", given.cache))
        for name, y, windows in (*numenta, *generated)
    ]
    n = len(numenta)
    parts = {"even": range(0, n, 2), "odd": range(1, n, 2), "generated": range(n, len(series))}
    change = Rule("change", "regime change")
    columns = ("even, best", "odd, best", "odd, of even", "odd, of generated", "all, best")
    print(f"| score | {' | '.join(columns)} | all, by series |")
    print("|---" * (len(columns) + 2) + "|")
    lines = []
    for name, evidence in SCORES.items():
        scores = [-np.expm1(-evidence(surprises(found["score"]))) for _, _, found in series]
        pairs = [(own, windows) for own, (_, windows, _) in zip(scores, series, strict=True)]
        even, odd, made = ([pairs[i] for i in part] for part in parts.values())
        best, threshold, _ = alerts.nab_scores(even)
        elsewhere = alerts.nab_scores(made)[1]
        print(
            f"| {name} | {best:.1f} | {alerts.nab_scores(odd)[0]:.1f} "
            f"| {at_threshold(odd, threshold):.1f} | {at_threshold(odd, elsewhere):.1f} "
            f"| {alerts.nab_scores(pairs[:n])[0]:.1f} "
            f"| {in_hindsight(pairs[:n]):.1f} |",
            flush=True,
        )
        if name not in RULES:
            continue
        for rules in ([], [change]):
            rules = [Rule("anomaly", "anomaly", threshold=RULES[name]), *rules]
            cells = [
                counted([series[i] for i in part], [scores[i] for i in part], rules)
                for part in parts.values()
            ]
            rule = "both" if len(rules) > 1 else "anomaly"
            lines.append(f"| {name} | {RULES[name]} | {rule} | {' | '.join(cells)} |")
    print("\n| score | threshold | rules | even | odd | generated |\n|---|---|---|---|---|---|")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
