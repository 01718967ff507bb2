"""Two known regimes and a batch: the paper's toys, as curves.

Each regime is a fixed N(mean, sd^2): nothing is learnt, so what is left is the score and the
batch. The figures are "State-space PIF" and "Preference of regimes" of the paper's appendix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regimekit._numba import kernel
from regimekit.core.exceptions import RegimekitError, numbers, positive, whole
from regimekit.ihmm.deviations import read_rule
from regimekit.ihmm.emissions.base import Array
from regimekit.ihmm.weights import (
    COLLAPSED,
    CONTAMINATION,
    Residual,
    Scoring,
    judge,
    log_normal,
    no_outliers,
    weight_code,
)
from regimekit.robustness.pif import discrete_kl


def sandbox_pif(
    offsets: Any,
    *,
    batch: int = 6,
    threshold: float = 2.0,
    means: Sequence[float] = (0.0, 1.0),
    sds: Sequence[float] = (0.5, 0.5),
    weight: str = "imq",
    rule: Any = "paper",
    weigh_regimes: bool = True,
) -> Array:
    """State PIF of one observation moved away from regime 0's mean, for each offset.

    The clean batch lies at regime 0's mean; one observation of it is moved. Without batching
    (`batch=1, weigh_regimes=False`, the paper's "batch size of zero") the curve grows without
    bound, whatever the weight.

    Args:
        offsets: distances from regime 0's mean.
        batch: B.
        threshold: c (the paper's figure gives c^2).
        means: of the regimes.
        sds: of the regimes.
        weight: "imq", "huber", "mahalanobis" or "none".
        rule: "paper" or "default" for the score (D1).
        weigh_regimes: weight the score at all.

    Example:
        >>> near, far = sandbox_pif([1.5, 1e6], batch=6)
        >>> wild = sandbox_pif([1e6], batch=1, weigh_regimes=False)[0]
        >>> bool(far < 10 < wild)
        True
    """
    moved = np.full((numbers("offsets", offsets).size, whole("batch", batch)), float(means[0]))
    moved[:, 0] += numbers("offsets", offsets).reshape(-1)
    settings = {"weight": weight, "threshold": threshold, "rule": rule}
    log_p = _two_regimes(np.full((1, batch), float(means[0])), means, sds, weigh_regimes, settings)
    log_q = _two_regimes(moved, means, sds, weigh_regimes, settings)
    return discrete_kl(log_p, log_q)


def preference(
    observations: Any,
    path: Sequence[int],
    other: Sequence[int],
    *,
    means: Sequence[float] = (0.0, 5.0),
    sds: Sequence[float] = (1.0, 1.0),
    weight: str = "imq",
    threshold: float = 2.0,
    rule: Any = "paper",
) -> Array:
    """Score of `path` minus score of `other` for each batch (G, B): above 0 prefers `path`.

    Args:
        observations: (G, B), or (G,) for batches of one.
        path: a regime for each observation of the batch.
        other: another such path.
        means: of the regimes.
        sds: of the regimes.
        weight: of the score; "none" is the plain log-likelihood.
        threshold: c.
        rule: "paper" or "default" for the score (D1).

    Example:
        >>> batch = [[5.0, 0.0, 0.0, 0.0, 0.0, 0.0]]
        >>> switch, stay = [1, 0, 0, 0, 0, 0], [0] * 6
        >>> bool(preference(batch, switch, stay)[0] > 0 > preference(batch, [1] * 6, stay)[0])
        True
    """
    batches = numbers("observations", observations)
    batches = batches[:, None] if batches.ndim == 1 else batches
    for argument, given in (("path", path), ("other", other)):
        if len(given) != batches.shape[1] or not set(given) <= set(range(len(means))):
            raise RegimekitError(
                f"{argument} must name one of {len(means)} regimes for each of "
                f"{batches.shape[1]} observations, got {given!r}."
            )
    scores = _scores(batches, means, sds, weight, threshold, rule)
    steps = np.arange(batches.shape[1])
    chosen, rejected = np.asarray(path), np.asarray(other)
    return np.asarray((scores[:, steps, chosen] - scores[:, steps, rejected]).sum(axis=1))


def _two_regimes(
    batches: Array, means: Sequence[float], sds: Sequence[float], weigh: bool, settings: Any
) -> Array:
    """(G, K) log posterior of the regimes, alike before the batch."""
    chosen = settings if weigh else {**settings, "weight": "none"}
    total = _scores(batches, means, sds, **chosen).sum(axis=1)
    top = total.max(axis=1, keepdims=True)
    return np.asarray(total - top - np.log(np.exp(total - top).sum(axis=1, keepdims=True)))


def _scores(
    batches: Array,
    means: Sequence[float],
    sds: Sequence[float],
    weight: str,
    threshold: float,
    rule: Any,
) -> Array:
    """(G, B, K) score of every observation under every regime."""
    if len(means) != len(sds):
        raise RegimekitError(f"sds must match means, got {len(sds)} and {len(means)}.")
    locations = numbers("means", means)
    scales = np.array([positive("sds", sd) for sd in sds])
    residual = np.abs(batches[..., None] - locations) / scales
    out = np.empty(residual.shape)
    kind, c = weight_code(weight), positive("threshold", threshold)
    if kind == CONTAMINATION:
        raise RegimekitError(
            "weight must be imq, huber, mahalanobis or none here: the paper's toys have no "
            'density of outliers, which "contamination" needs.'
        )
    log_scale = np.broadcast_to(np.log(scales), residual.shape).copy()
    scoring = Scoring(kind, c, True, read_rule(rule).D1, True, True, True)
    _score_all(residual, log_scale, scoring, out)
    return out


@kernel
def _score_all(
    z: np.ndarray, log_scale: np.ndarray, scoring: Scoring, out_score: np.ndarray
) -> None:
    """The model's own score of residuals of length z."""
    lengths, scales, scores = z.ravel(), log_scale.ravel(), out_score.ravel()
    for k in range(lengths.size):
        plain = log_normal(lengths[k], scales[k], 1)
        seen = Residual(plain, lengths[k], lengths[k], scales[k], 1)
        scores[k] = judge(scoring, no_outliers(), seen, False, COLLAPSED)[0]
