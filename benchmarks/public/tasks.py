"""The three tasks: the question to a peer on a series, and the numbers from its answer."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from benchmarks.public import corpus, detectors, forecasters, nab
from benchmarks.public.series import Series
from regimekit import metrics as evaluate

WARM_UP = 20  # first rows, which are learnt but not scored


class Task(NamedTuple):
    """Series and peers of a task; `measure(series, peer name)` gives numbers."""

    series: dict[str, corpus.Maker]
    peers: dict[str, Any]
    measure: Any


def find_changes(one: Series, peer: str) -> dict[str, Any]:
    found = detectors.CHANGES[peer](one.y)
    return {
        "covering": evaluate.covering(one.annotations, found, n=len(one.y)),
        "f1": evaluate.f1(one.annotations, found),
        "found": len(found),
    }


def find_anomalies(one: Series, peer: str) -> dict[str, Any]:
    scores = np.asarray(detectors.ANOMALIES[peer](one.y))
    spans = nab.windows(one.anomalies, len(one.y))
    scored = sum(last >= nab.probation(len(one.y)) for _, last in spans)
    return {"windows": scored, "raw": nab.raw_scores(scores, one.anomalies)}


def forecast(one: Series, peer: str) -> dict[str, Any]:
    model = forecasters.PEERS[peer](one)
    steps: list[tuple[float, ...]] = []
    for t, y in enumerate(one.y):
        ahead = model.predict()
        if t >= WARM_UP and not np.isnan(y):
            low, high = ahead.interval(0.9)
            crps, error = evaluate.crps([ahead], [y]), abs(float(ahead.mean) - y)
            steps.append((crps, error, low <= y <= high, not model.own))
        model.learn(float(y))
    crps, mae, coverage, borrowed = np.mean(steps, axis=0)
    return {
        "crps": crps,
        "mae": mae,
        "coverage_90": coverage,
        "borrowed": borrowed,
        "rows": len(steps),
    }


TASKS = {
    "changes": Task(corpus.CHANGES, detectors.CHANGES, find_changes),
    "anomalies": Task(corpus.ANOMALIES, detectors.ANOMALIES, find_anomalies),
    "forecasts": Task(corpus.FORECASTS, forecasters.PEERS, forecast),
}
