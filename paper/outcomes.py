"""Outcome of a run: scores of rows that no search has used, and the columns for figures."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import regimekit
from paper.parts import Part, code_state
from paper.probes import PROBES
from paper.streams import Stream
from regimekit import metrics as evaluate
from regimekit.core.registry import REGISTRY

Array = NDArray[np.float64]
COLUMNS = ("mean", "sd", "lower", "upper", "regime", "path", "regime_probability")
# Figures show the run with this seed, these columns of each stream,
KEPT_SEED = 0
DRAWN = {
    **dict.fromkeys(("synthetic", "synthetic_small_signal", "well_log"), ("mean", "path")),
    **dict.fromkeys(("iid_gauss", "iid_t"), ("mean", "sd", "path")),
    "electricity": ("mean", "lower", "upper", "path"),
    "ofi": ("mean",),
    "garch": ("sd", "path", "regime_probability"),
}
# and these hours of electricity: 60 days around 7 March 2020, and the window of the error.
SHOWN = {"electricity": (24_600, 27_480)}
WINDOW = 100  # observations in the window of a rolling error
RUN_THRESHOLD = 2  # shorter minority runs are misses, not false alarms
RUN_THRESHOLDS = (1, 2, 5, 10, 20)
ALL_ROWS = "_all"  # suffix of a score over all rows, with those of a search
_DIGITS = 7  # of a score


@dataclass(frozen=True, eq=False)
class Outcome:
    """Outcome of a part: scores by name, the columns for figures, the state of the source."""

    scores: dict[str, float]
    columns: dict[str, NDArray[Any]]
    source: str = ""


def run_part(part: Part) -> Outcome:
    """Run a part; a setting that its model does not have raises an error."""
    if part.stream in PROBES:
        answer = PROBES[part.stream].ask(part.model, part.seed)
        return Outcome(_rounded(answer), {}, code_state(part))
    source = part.load()
    settings = _own(part.model, source, part.seed) | part.settings
    model = regimekit.make(part.model, **settings)
    _warm_up(part.model, settings, source)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    run = model.run(source.data.y, source.data.X)
    spent = {"seconds": time.perf_counter() - begin}
    spent["cpu_seconds"] = time.process_time() - begin_cpu
    columns = {name: getattr(run, name) for name in COLUMNS}
    scores = _rounded(all_scores(source, columns) | spent)
    kept = drawn_of(part.stream, columns) if part.seed == KEPT_SEED else {}
    return Outcome(scores, kept, code_state(part))


def drawn_of(stream: str, columns: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the columns for figures with reduced precision; rows that no figure shows are NaN.

    Args:
        stream: name of the stream.
        columns: columns of the run.
    """
    found: dict[str, NDArray[Any]] = {"path": columns["path"].astype(np.int32)}
    first, last = SHOWN.get(stream, (0, columns["path"].size))
    seen = slice(max(0, first - WINDOW), last)
    for name in DRAWN[stream]:
        if name != "path":
            most = np.finfo(np.float16).max
            short = np.clip(columns[name], -most, most).astype(np.float16)
            found[name] = short if short.size <= first else np.full_like(short, np.nan)
            found[name][seen] = short[seen]
    return {name: found[name] for name in DRAWN[stream]}


def _rounded(scores: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.{_DIGITS}g}") for name, value in scores.items()}


def _own(model: str, source: Stream, seed: int) -> dict[str, Any]:
    """Return the stream's features and the run's seed, for models that take them."""
    given = {"features": source.features.to_json(), "seed": seed}
    known = regimekit.make(model).settings()
    return {name: value for name, value in given.items() if name in known}


def _warm_up(name: str, settings: dict[str, Any], source: Stream) -> None:
    """Run a few rows first, so that loading code is not part of `seconds`."""
    few = source.head(8).data
    brief = settings | ({} if REGISTRY[name].online else {"iterations": 2})
    regimekit.make(name, **brief).run(few.y, few.X)


def all_scores(source: Stream, columns: dict[str, NDArray[Any]]) -> dict[str, float]:
    """Return every score of the rows that no search has used, and of all rows under `.._all`.

    Args:
        source: the stream.
        columns: columns of the run.
    """
    whole = _scores(source, columns)
    first = source.held_out
    kept = {name: column[first:] for name, column in columns.items()}
    unseen = source.rows(first)
    late = _scores(unseen, kept) if first else whole
    found = late | {name + ALL_ROWS: value for name, value in whole.items()}
    return found | _by_threshold(kept["path"], list(unseen.data.changepoints))


def _scores(source: Stream, columns: dict[str, NDArray[Any]]) -> dict[str, float]:
    y, mean = source.target, columns["mean"]
    trivial = evaluate.last_value(source.data.y)
    scores = {
        "rmse": evaluate.rmse(y, mean),
        "rmse_observed": evaluate.rmse(source.data.y, mean),
        "mae": evaluate.mae(y, mean),
        "lookahead_mae": evaluate.lookahead_mae(source.data.y, mean),
        "coverage": evaluate.coverage(source.data.y, columns["lower"], columns["upper"]),
        "regimes": float(evaluate.n_regimes(columns["path"])),
        "switches": float(evaluate.switches(columns["path"])),
        "rmse_last_value": evaluate.rmse(y, trivial),
        "rmse_observed_last_value": evaluate.rmse(source.data.y, trivial),
    }
    if source.data.changepoints:
        for label in ("path", "regime"):
            scores |= _segmentation(columns[label], source.data.changepoints, label)
    if source.data.regimes is not None:
        scores["adjusted_rand"] = evaluate.adjusted_rand(columns["path"], source.data.regimes)
        known = evaluate.adjusted_rand(columns["regime"], source.data.regimes)
        scores["adjusted_rand_online"] = known
        scores["true_switches"] = float(evaluate.switches(source.data.regimes))
        scores["true_regimes"] = float(evaluate.n_regimes(source.data.regimes))
    if "variance" in source.data.info:
        true = source.data.info["variance"][: y.size]
        scores["log_variance_error"] = log_error(columns["sd"] ** 2, true)
    if source.truth is not None:
        reference = evaluate.oracle(source.data, source.truth.noise, source.truth.prior_var)
        scores["rmse_oracle"] = evaluate.rmse(y, reference.mean)
        scores["oracle_ratio"] = scores["rmse"] / scores["rmse_oracle"]
    return scores


def log_error(estimate: Array, true: Array) -> float:
    """Return the root mean square of the log ratio of variances.

    Args:
        estimate: (T,) estimated variances.
        true: (T,) true variances.
    """
    return float(np.sqrt(np.mean(np.log(estimate / true) ** 2)))


def _segmentation(labels: NDArray[Any], truth: Iterable[int], label: str) -> dict[str, float]:
    """Return the paper's regime statistics, by `path` (its protocol) or by `regime` (as known)."""
    suffix = "" if label == "path" else "_online"
    truth = list(truth)
    match = evaluate.match_regimes(labels, truth, RUN_THRESHOLD)
    delay = evaluate.detection_delay(labels, truth)
    return {f"ppv{suffix}": match.ppv, f"tpr{suffix}": match.tpr, f"delay{suffix}": delay}


def _by_threshold(labels: NDArray[Any], truth: list[int]) -> dict[str, float]:
    """Return PPV and TPR with other run thresholds, for streams with known changes."""
    found: dict[str, float] = {}
    for n in RUN_THRESHOLDS if truth else ():
        match = evaluate.match_regimes(labels, truth, n)
        found |= {f"ppv_{n}": match.ppv, f"tpr_{n}": match.tpr}
    return found
