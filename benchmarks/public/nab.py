"""The scoring of the Numenta Anomaly Benchmark, from its description (Lavin and Ahmad 2015).

An anomaly has a window; windows together are a tenth of the series. The earliest alarm inside a
window scores sigma(position), with the position from -1 at the window's left end to 0 at its right
end; an alarm outside costs the more the farther it is behind the latest window, in widths of it:

    sigma(x) = 2 / (1 + exp(5 x)) - 1
    raw = sum over windows found sigma(x) / sigma(-1) + 0.11 sum over false alarms sigma(x)
          - windows missed                                             (the standard profile)
    score = 100 (raw - nothing) / (everything - nothing)

where `nothing` has no alarm and `everything` has one at the start of every window. The first 15 %
of a series (at most 750 rows) are for learning and are not scored. A detector returns a score per
row; one threshold for the whole corpus is chosen for the best score, for every detector alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

FALSE_ALARM = 0.11
MISSED = 1.0
WINDOW_SHARE = 0.1
# Even steps, finer ones for tail probabilities, and one that no score reaches.
THRESHOLDS = (*(k / 100 for k in range(1, 100)), *(1 - 10.0 ** (-k / 2) for k in range(5, 13)), 1.1)

Span = tuple[int, int]


def windows(anomalies: Iterable[Span], n: int) -> list[Span]:
    """Return first and last row of each anomaly's window; windows that overlap are joined."""
    spans = sorted(anomalies)
    if not spans:
        return []
    half = int(WINDOW_SHARE * n / len(spans)) // 2
    found: list[Span] = []
    for first, last in spans:
        middle = (first + last) // 2
        left, right = max(0, min(first, middle - half)), min(n - 1, max(last, middle + half))
        if found and left <= found[-1][1]:
            found[-1] = (found[-1][0], max(right, found[-1][1]))
        else:
            found.append((left, right))
    return found


def probation(n: int) -> int:
    """Return the number of rows that are for learning only."""
    return int(0.15 * min(n, 5000))


def sigmoid(x: float) -> float:
    """Return the reward of an alarm at position x; -1 far behind."""
    return -1.0 if x > 3 else 2 / (1 + math.exp(5 * x)) - 1


def raw_score(alarms: Iterable[int], spans: list[Span], n: int) -> float:
    """Return the unscaled score of alarms (row numbers) in a series of n rows."""
    start = probation(n)
    scored = [span for span in spans if span[1] >= start]
    fired = sorted(t for t in alarms if t >= start)
    total = 0.0
    for left, right in scored:
        inside = [t for t in fired if left <= t <= right]
        width = right - left + 1
        position = -(right - inside[0] + 1) / width if inside else 0.0
        total += sigmoid(position) / sigmoid(-1.0) if inside else -MISSED
    false = [t for t in fired if not any(left <= t <= right for left, right in scored)]
    return total + FALSE_ALARM * sum(_loss(t, scored) for t in false)


def _loss(t: int, spans: list[Span]) -> float:
    """Return the cost of a false alarm at row t: largest before any window, smaller behind one."""
    behind = [span for span in spans if span[1] < t]
    if not behind:
        return -1.0
    left, right = behind[-1]
    return sigmoid((t - right) / max(1, right - left))


def raw_scores(scores: np.ndarray, anomalies: Iterable[Span]) -> list[float]:
    """Return the unscaled score at every threshold of THRESHOLDS."""
    spans = windows(anomalies, len(scores))
    return [raw_score(np.flatnonzero(scores >= q).tolist(), spans, len(scores)) for q in THRESHOLDS]


def normalised(raw: float, n_windows: int) -> float:
    """Return the scaled score: 100 for a perfect detector, 0 for one without alarms."""
    return 100 * (raw + MISSED * n_windows) / (n_windows * (1 + MISSED))
