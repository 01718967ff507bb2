"""Tables of all results, failures included, in Markdown."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.public import nab

Result = dict[str, Any]
BASE = "last_value"
_NOTE = (
    "Means are over the series that a peer managed: compare peers with equal counts. `borrowed` is "
    "the share of rows where a peer had no forecast of its own and repeated the latest value."
)


def markdown(results: list[Result], versions: dict[str, str]) -> str:
    """The whole report."""
    parts = ["# Public benchmarks", _versions(versions)]
    for task, table in (
        ("changes", _changes),
        ("anomalies", _anomalies),
        ("forecasts", _forecasts),
    ):
        rows = [row for row in results if row["task"] == task]
        if rows:
            parts += [f"## {task.capitalize()}", table(rows)]
    return "\n\n".join([*parts, "## Failures", _failures(results)]) + "\n"


def _versions(versions: dict[str, str]) -> str:
    return "Versions: " + ", ".join(f"{name} {number}" for name, number in versions.items()) + "."


def _peers(rows: list[Result]) -> dict[str, list[Result]]:
    """Results that are there by peer; a peer without any is still listed."""
    peers: dict[str, list[Result]] = {row["peer"]: [] for row in rows}
    for row in rows:
        if "error" not in row:
            peers[row["peer"]].append(row)
    return peers


def _table(head: list[str], lines: list[list[str]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *lines))


def _mean(rows: list[Result], name: str) -> str:
    return f"{np.mean([row[name] for row in rows]):.3f}" if rows else "-"


def _changes(rows: list[Result]) -> str:
    total = len({row["series"] for row in rows})
    lines = [
        [peer, f"{len(done)} of {total}", _mean(done, "covering"), _mean(done, "f1")]
        for peer, done in _peers(rows).items()
    ]
    return _table(["peer", "series", "covering", "F1"], lines)


def _anomalies(rows: list[Result]) -> str:
    total, lines = len({row["series"] for row in rows}), []
    for peer, done in _peers(rows).items():
        if not done:
            lines.append([peer, f"0 of {total}", "-", "-"])
            continue
        raw = np.sum([row["raw"] for row in done], axis=0)
        best = int(np.argmax(raw))
        score = nab.normalised(float(raw[best]), sum(row["windows"] for row in done))
        threshold = f"{nab.THRESHOLDS[best]:.6f}"
        lines.append([peer, f"{len(done)} of {total}", f"{score:.1f}", threshold])
    return _table(["peer", "series", "NAB score", "threshold"], lines)


def _forecasts(rows: list[Result]) -> str:
    """Scores against the last value's, as geometric means over the series a peer managed."""
    base = {row["series"]: row for row in rows if row["peer"] == BASE and "error" not in row}
    total, lines = len({row["series"] for row in rows}), []
    for peer, done in _peers(rows).items():
        shared = [row for row in done if row["series"] in base]
        ratios = [
            f"{np.exp(np.mean([np.log(row[m] / base[row['series']][m]) for row in shared])):.3f}"
            if shared
            else "-"
            for m in ("crps", "mae")
        ]
        shares = [_mean(done, "coverage_90"), _mean(done, "borrowed")]
        lines.append([peer, f"{len(done)} of {total}", *ratios, *shares])
    head = [
        "peer",
        "series",
        "CRPS / last value",
        "MAE / last value",
        "coverage of 90 %",
        "borrowed",
    ]
    return f"{_table(head, lines)}\n\n{_NOTE}"


def _failures(results: list[Result]) -> str:
    failed = [row for row in results if "error" in row]
    if not failed:
        return "None."
    lines = [[row["task"], row["series"], row["peer"], row["error"]] for row in failed]
    return _table(["task", "series", "peer", "why"], lines)
