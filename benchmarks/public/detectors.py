"""Peers that find changepoints in a whole series, and peers that score the anomaly of each row."""

from __future__ import annotations

from typing import Any

import numpy as np

import regimekit as rk
from regimekit.core.registry import DEFAULT_MODEL
from regimekit.integrations._common import regime_labels

# Known noise variance: in the scaled series that of the first tenth is 1.
KNOWN_NOISE = {"noise": 1.0, "prior_var": 10.0}


def _regimes(y: np.ndarray) -> list[int]:
    return rk.metrics.changepoints(regime_labels(rk.make(DEFAULT_MODEL).run(y)))


def _run_lengths(name: str) -> Any:
    """Return a finder by the most probable segmentation of a run-length model at the end."""

    def find(y: np.ndarray) -> list[int]:
        model: Any = rk.make(name, **KNOWN_NOISE)
        model.run(y)
        return [int(t) for t in model.segmentation()]

    return find


def _pelt(y: np.ndarray) -> list[int]:
    """Return the changes of an offline detector on the whole series, as an upper limit.

    The penalty is the BIC of a change of mean.
    """
    import ruptures

    signal = y.reshape(len(y), -1)
    signal = np.where(np.isnan(signal), np.nanmedian(signal, axis=0), signal)
    noise = np.median(np.abs(np.diff(signal, axis=0)), axis=0) / 0.9539  # of a difference: sqrt 2
    signal = signal / np.where(noise > 0, noise, 1.0)
    penalty = (signal.shape[1] + 1) * np.log(len(signal))
    found = ruptures.Pelt(model="l2", min_size=2, jump=1).fit(signal).predict(pen=penalty)
    return [int(t) for t in found[:-1]]


CHANGES = {
    "regimekit": _regimes,
    "no_change": lambda y: [],
    "bocd": _run_lengths("bocd"),
    "dsm_bocd": _run_lengths("dsm_bocd"),
    "ruptures_pelt_offline": _pelt,
}


def _tails(name: str) -> Any:
    """Return a scorer by the position of a row in its one-step forecast: 2 |cdf - 1/2|."""

    def score(y: np.ndarray) -> np.ndarray:
        model, scores = rk.make(name), np.zeros(len(y))
        for t, value in enumerate(y):
            scores[t] = 2 * abs(float(model.predict().cdf(value)) - 0.5)
            model.update(value)
        return scores

    return score


def _gaussian(y: np.ndarray) -> np.ndarray:
    from river import anomaly

    scorer, scores = anomaly.GaussianScorer(grace_period=20), np.zeros(len(y))
    for t, value in enumerate(y):
        scores[t] = scorer.score_one(None, value)
        scorer.learn_one(None, value)
    return scores


def _half_space_trees(y: np.ndarray) -> np.ndarray:
    from river import anomaly, compose, preprocessing

    trees, scores = anomaly.HalfSpaceTrees(seed=0), np.zeros(len(y))
    model = compose.Pipeline(preprocessing.MinMaxScaler(), trees)
    for t, value in enumerate(y):
        scores[t] = model.score_one({"y": value})
        model.learn_one({"y": value})
    return scores


ANOMALIES = {
    "regimekit": lambda y: _tails(DEFAULT_MODEL)(y),
    "never": lambda y: np.zeros(len(y)),
    "always": lambda y: np.ones(len(y)),
    "last_value": _tails("last_value"),
    "river_gaussian_scorer": _gaussian,
    "river_half_space_trees": _half_space_trees,
}
