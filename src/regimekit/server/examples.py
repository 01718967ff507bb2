"""Examples of answers for the OpenAPI document; a test holds each against its schema."""

from __future__ import annotations

from typing import Any

Example = dict[str, Any]

EVENT: Example = {
    "number": 4,
    "seq": 127,
    "since": 122,
    "kind": "regime returned",
    "regime": 2,
    "previous": 0,
    "regime_name": "night shift",
    "regime_note": "One press runs.",
    "previous_name": "day shift",
    "previous_note": "Both run.",
    "received": 1772366400.0,
    "acknowledged": 1772366460.0,
    "acknowledged_by": "wallboard",
    "note": "As planned.",
}
STREAM: Example = {
    "key": "plant1.press3.load",
    "model": "auto",
    "settings": {},
    "created": 1772359200.0,
    "rows": 128,
    "events": 5,
    "outliers": 3,
    "regimes": 3,
    "regime": 2,
    "regime_name": "night shift",
    "change_probability": 0.01,
    "last_received": 1772366400.0,
    "last_time": 1772366399.0,
    "timed": True,
    "health": "live",
    "spark": [1.4, 1.6, 1.5],
    "spark_regimes": [2, 2, 2],
    "last_event": EVENT,
}
STORED: Example = {
    "seq": 127,
    "id": "7",
    "time": "2026-03-01T12:00:00Z",
    "at": 1772366400.0,
    "received": 1772366400.2,
    "y": 1.5,
    "x": {"temperature": 3.0},
    "mean": 1.4,
    "median": 1.4,
    "sd": 0.3,
    "lower": 0.9,
    "upper": 1.9,
    "log_score": 0.2,
    "weight": 1.0,
    "outlier": False,
    "regime": 2,
    "regime_name": "night shift",
    "regime_probability": 0.97,
    "change_probability": 0.01,
    "n_regimes": 3,
}
OBSERVATIONS: Example = {
    "start": 127,
    "end": 128,
    "rows": 128,
    "aggregated": False,
    "observations": [STORED],
    "buckets": [],
    "segments": [{"start": 127, "end": 128, "regime": 2}],
}
FORECASTS: Example = {
    "rows": 128,
    "level": 0.9,
    "steps": [
        {"step": 1, "mean": 1.4, "median": 1.4, "sd": 0.3, "lower": 0.9, "upper": 1.9},
        {"step": 2, "mean": 1.4, "median": 1.4, "sd": 0.4, "lower": 0.8, "upper": 2.1},
    ],
}
REGIME: Example = {
    "id": 2,
    "name": "night shift",
    "note": "One press runs.",
    "remembered": True,
    "visits": 61,
    "first_seen": 40,
    "last_seen": 127,
    "mean": [1.4],
    "sd": [0.05],
    "probability": 1.0,
    "times": 2,
    "usual_length": 30.5,
    "sample": [1.4, 1.6, 1.5],
    "next": {"0": 1},
}
TRANSITIONS: Example = {"ids": [0, 2], "matrix": [[0.95, 0.04], [0.1, 0.88]]}
_HONESTY: Example = {
    "n": 128,
    "level": 0.9,
    "coverage": 0.91,
    "below": 0.05,
    "above": 0.04,
    "under_median": 0.49,
    "outliers": 0.02,
    "log_score": -0.4,
    "mae": 0.3,
}
REPORT: Example = {
    "stream": STREAM,
    "calibration": _HONESTY,
    "recent_calibration": _HONESTY,
    "regimes": [REGIME],
    "explanation": "auto after 128 observations ...",
    "weights": {"regimes, lag 1": 0.7, "last value": 0.3},
}
WEBHOOK: Example = {
    "id": 1,
    "prefix": "plant1.",
    "url": "https://example.org/hooks/regimekit",
    "kinds": ["regime opened"],
    "created": 1772359200.0,
    "last_delivered": 1772366401.0,
    "last_attempts": 1,
    "last_error": None,
}
WEBHOOK_MADE: Example = {"id": 1, "secret": "kept by the receiver, shown this once"}
