"""Questions about the paper's synthetic experiment: its scale, and interpretations of its text.

The text does not state the distribution of the features, R, N and how predicted labels are
compared, and its main algorithm and its appendix differ in one line. Each choice is a separate
question with few seeds: `QUESTIONS` lists them, `paper.probes` stores the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

import regimekit as rk
from regimekit import metrics as evaluate
from regimekit.datasets import Dataset

Answer = dict[str, float]
SCALES = (10.0, 100.0)  # signal standard deviation: features N(0, 1), and ten times those
RUN_THRESHOLD = 2
BEAM_ITERATIONS = 1000  # as in the paper
BEAM_SEGMENTS = (10, 30, 200)  # initial segments of the chain; 10 is the default
BEAM_PRINTED = 2.9  # RMSE
FIT_ROWS, FIT_PARTICLES = 800, 30
FIT_SCALES, FIT_NOISE = (50.0, 75.0, 100.0, 125.0, 150.0), (1.0, 100.0, 10_000.0)
# Line 6 of Algorithm 1 has no omega_t (D15); the algorithm of the appendix has it.
_SWITCHES = ("D1", "D2", "D3", "D4", "D5", "D6", "D7", "D8", "D9", "D12", "D13", "D14")
APPENDIX: dict[str, Any] = {
    "rule": dict.fromkeys(_SWITCHES, "paper") | {"D15": "default"},
    "resampling": "multinomial",
}
OURS: dict[str, Any] = {"rule": "default", "threshold": None, "ess_threshold": 0.5}
SEEDS = {"argument": 10, "fixed": 100, "fit": 2, "reading": 5, "ours": 10, "slow": 2}


class Question(NamedTuple):
    """A question in words, and the function that answers it for a seed."""

    words: str
    seeds: int
    ask: Callable[[int], Answer]


def label_rates(found: NDArray[Any], truth: NDArray[Any]) -> tuple[float, float]:
    """Return PPV and TPR of labels compared one by one, averaged over the true regimes.

    Each true regime is assigned one found label, by the best assignment; other labels are misses.

    Args:
        found: (T,) labels.
        truth: (T,) true regimes.

    Example:
        >>> label_rates(np.array([7, 7, 7, 9]), np.array([0, 0, 1, 1]))
        (0.8333333333333333, 0.75)
    """
    names, at = np.unique(found, return_inverse=True)
    table = np.zeros((int(truth.max()) + 1, names.size))
    np.add.at(table, (truth, at), 1)
    rows, columns = linear_sum_assignment(-table)
    hits, called = table[rows, columns], table[:, columns].sum(axis=0)
    present = table.sum(axis=1) > 0
    ppv = np.divide(hits, called, out=np.zeros_like(hits), where=called > 0)
    tpr = hits / np.maximum(table.sum(axis=1)[rows], 1)
    return float(ppv.sum() / present.sum()), float(tpr.sum() / present.sum())


def listed_rates(found: NDArray[Any], truth: Sequence[int]) -> tuple[float, float]:
    """Return PPV and TPR by the paper's listing as printed, in which no change can be missed.

    It never updates the majority label of the segment before, so every segment counts as found.

    Args:
        found: (T,) labels.
        truth: true changepoints.

    Example:
        >>> listed_rates(np.array([7, 7, 7, 7, 9, 7]), [3])
        (1.0, 0.8333333333333334)
    """
    matches = [
        evaluate.match_regimes(segment, [], RUN_THRESHOLD)
        for segment in np.split(found, list(truth))
        if segment.size
    ]
    tp, fp, fn = (sum(getattr(match, name) for match in matches) for name in ("tp", "fp", "fn"))
    return tp / max(tp + fp, 1), tp / max(tp + fn, 1)


def scores(data: Dataset, run: Any) -> Answer:
    """Return the paper's measures of a run, by its matching and by comparing labels."""
    match = evaluate.match_regimes(run.path, data.changepoints, RUN_THRESHOLD)
    listed = listed_rates(np.asarray(run.path), data.changepoints)
    ppv, tpr = label_rates(np.asarray(run.path), np.asarray(data.regimes))
    return {
        "rmse": evaluate.rmse(data.y, run.mean),
        "clean": evaluate.rmse(data.clean, run.mean),  # type: ignore[arg-type]
        "ppv": match.ppv,
        "tpr": match.tpr,
        "delay": evaluate.detection_delay(run.path, data.changepoints),
        "listed_ppv": listed[0],
        "listed_tpr": listed[1],
        "label_ppv": ppv,
        "label_tpr": tpr,
        "regimes": float(evaluate.n_regimes(run.path)),
    }


def _argument(seed: int) -> Answer:
    found: Answer = {}
    for scale in SCALES:
        data = rk.data.synthetic_regression(seed, signal_sd=scale)
        assert data.clean is not None
        oracle = evaluate.oracle(data, 1.0, 1.0).mean
        forecasts = {"zero": np.zeros(len(data)), "truth": data.clean, "oracle": oracle}
        found |= {f"{n} {scale:g}": evaluate.rmse(data.y, m) for n, m in forecasts.items()}
    return found


def _reading(model: str, changes: dict[str, Any], seed: int) -> Answer:
    data = rk.data.synthetic_regression(seed)
    return scores(data, rk.paper("synthetic", model, seed, **changes).run(data.y, data.X))


def _bocd(seed: int) -> Answer:
    data = rk.data.synthetic_regression(seed)
    model = rk.make("bocd", noise=1.0, prior_var=1.0, features=rk.features.columns())
    return scores(data, model.run(data.y, data.X))


def _fixed(seed: int) -> Answer:
    """Return the scores with another seed of the filter on the stream of seed 0."""
    data = rk.data.synthetic_regression(0)
    return scores(data, rk.paper("synthetic", "br_ihmm", seed, **OURS).run(data.y, data.X))


def _in_sample(data: Dataset, path: NDArray[Any]) -> float:
    """Return the in-sample RMSE given the states, with R = 1 and Sigma_0 = 1."""
    X, fitted = np.asarray(data.X), np.empty(len(data))
    for k in np.unique(path):
        own = path == k
        gram = X[own] @ X[own].T + np.eye(own.sum())
        fitted[own] = data.y[own] - np.linalg.solve(gram, data.y[own])
    return evaluate.rmse(data.y, fitted)


def _beam(seed: int) -> Answer:
    """Return the scores of the offline sampler, and the in-sample RMSE given the true states."""
    data = rk.data.synthetic_regression(seed)
    assert data.outliers is not None and data.regimes is not None
    features = rk.features.columns()
    alone = np.where(data.outliers, data.regimes.max() + 1 + np.arange(len(data)), data.regimes)
    found: Answer = {"shared": _in_sample(data, data.regimes), "alone": _in_sample(data, alone)}
    for segments in BEAM_SEGMENTS:
        given = {"initial_regimes": segments, "max_regimes": max(100, segments + 100)}
        given |= {"iterations": BEAM_ITERATIONS, "seed": seed}
        model = rk.make("beam_ihmm", features=features, noise=1.0, prior_var=1.0, **given)
        fit = model.sample_posterior(data.y, data.X)
        match = evaluate.match_regimes(fit.path, data.changepoints, RUN_THRESHOLD)
        scored = {
            "in_sample": evaluate.rmse(data.y, fit.fitted),
            "one_step": evaluate.rmse(data.y, fit.one_step),
            "ppv": match.ppv,
            "tpr": match.tpr,
            "states": float(np.unique(fit.path).size),
        }
        found |= {f"{name} {segments}": value for name, value in scored.items()}
    return found


def _fit(signal: float, noise: float, seed: int) -> Answer:
    """Return the printed rows at one signal scale and R, on the first rows with few particles."""
    data = rk.data.synthetic_regression(seed, n=FIT_ROWS, signal_sd=signal)
    given = {"noise": noise, "particles": FIT_PARTICLES}
    found: Answer = {"zero": evaluate.rmse(data.y, np.zeros(len(data)))}
    for model in ("ihmm", "wolf_ihmm", "br_ihmm"):
        run = rk.paper("synthetic", model, seed, **given).run(data.y, data.X)
        found[model] = evaluate.rmse(data.y, run.mean)
    ours = rk.paper("synthetic", "br_ihmm", seed, **OURS | given).run(data.y, data.X)
    found["br_ihmm, default rule"] = evaluate.rmse(data.y, ours.mean)
    features = rk.features.columns()
    bocd = rk.make("bocd", noise=noise, prior_var=1.0, features=features).run(data.y, data.X)
    found["bocd"] = evaluate.rmse(data.y, bocd.mean)
    return found


def _asked(words: str, model: str, seeds: int = SEEDS["reading"], **changes: Any) -> Question:
    return Question(words, seeds, partial(_reading, model, changes))


READINGS: dict[str, Question] = {
    "line 6": _asked("br_ihmm, text as printed (line 6)", "br_ihmm"),
    "appendix": _asked("br_ihmm, weights as in the appendix", "br_ihmm", **APPENDIX),
    "R 100": _asked("br_ihmm, text as printed, R 100", "br_ihmm", SEEDS["slow"], noise=100.0),
    "ours": _asked("br_ihmm, default rule, R 1, Sigma_0 1, B 2", "br_ihmm", SEEDS["ours"], **OURS),
    "ours R 100": _asked("br_ihmm, default rule, R 100", "br_ihmm", **OURS, noise=100.0),
    "ours 1000": _asked(
        "br_ihmm, default rule, 1000 particles", "br_ihmm", SEEDS["slow"], **OURS, particles=1000
    ),
    "wolf": _asked("wolf_ihmm, text as printed", "wolf_ihmm", SEEDS["slow"]),
    "ihmm": _asked("ihmm, text as printed", "ihmm", SEEDS["slow"]),
    "bocd": Question("bocd, R 1, default hazard", SEEDS["reading"], _bocd),
}
FITS = {f"fit {s:g} {r:g}": (s, r) for s in FIT_SCALES for r in FIT_NOISE}
QUESTIONS: dict[str, Question] = {
    "argument": Question("forecasts that need no model", SEEDS["argument"], _argument),
    **READINGS,
    "beam": Question("beam_ihmm, in-sample", SEEDS["slow"], _beam),
    "fixed": Question("one stream, many seeds of the filter", SEEDS["fixed"], _fixed),
    **{k: Question(k, SEEDS["fit"], partial(_fit, *pair)) for k, pair in FITS.items()},
}


def ask(name: str, seed: int) -> Answer:
    """Return the answer to a question, for `paper.probes`."""
    return QUESTIONS[name].ask(seed)
