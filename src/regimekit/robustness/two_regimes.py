"""Influence with two known regimes and one batch: the examples of the paper's appendix.

Each regime is a fixed N(mean, sd^2). Nothing is learnt, so only the score and the batch matter. The
figures are "State-space PIF" and "Preference of regimes".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from regimekit.core.exceptions import RegimekitError, numbers, positive, whole
from regimekit.ihmm.deviations import read_rule
from regimekit.ihmm.weights import WEIGHTS, log_normal, log_score, log_weight2, weight_code
from regimekit.robustness.influence import discrete_kl
from regimekit.robustness.posterior import Array


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
    """Return the state PIF of one observation moved away from the mean of regime 0.

    The clean batch lies at the mean of regime 0; one of its observations is moved. Without batching
    (`batch=1, weigh_regimes=False`, the paper's "batch size of zero") the influence is unbounded
    for every weight.

    Args:
        offsets: (G,) distances from the mean of regime 0.
        batch: B.
        threshold: c (the paper's figure gives c^2).
        means: means of the regimes.
        sds: standard deviations of the regimes.
        weight: "imq", "huber", "mahalanobis" or "none".
        rule: "paper" or "default" for the score (D1).
        weigh_regimes: weight the score at all.

    Returns:
        (G,) divergences in nats.

    Raises:
        RegimekitError: If an argument is invalid.

    Example:
        >>> near, far = sandbox_pif([1.5, 1e6], batch=6)
        >>> unbounded = sandbox_pif([1e6], batch=1, weigh_regimes=False)[0]
        >>> bool(far < 10 < unbounded)
        True
    """
    distance = numbers("offsets", offsets).reshape(-1)
    clean = np.full((1, whole("batch", batch)), float(means[0]))
    moved = np.repeat(clean, distance.size, axis=0)
    moved[:, 0] += distance
    used = weight if weigh_regimes else "none"
    log_p, log_q = (
        _log_posterior(_scores(each, means, sds, used, threshold, rule)) for each in (clean, moved)
    )
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
    """Return the score of `path` minus the score of `other` for each batch.

    Args:
        observations: (G, B), or (G,) for batches of one.
        path: a regime for each observation of the batch.
        other: another such path.
        means: means of the regimes.
        sds: standard deviations of the regimes.
        weight: weight of the score; "none" is the plain log-likelihood.
        threshold: c.
        rule: "paper" or "default" for the score (D1).

    Returns:
        (G,) differences; a positive one prefers `path`.

    Raises:
        RegimekitError: If an argument is invalid.

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


def _log_posterior(scores: Array) -> Array:
    """Return the (G, K) log posterior of the regimes, equally probable before the batch."""
    total = scores.sum(axis=1)
    total = total - total.max(axis=1, keepdims=True)
    return np.asarray(total - np.log(np.exp(total).sum(axis=1, keepdims=True)))


def _scores(
    batches: Array,
    means: Sequence[float],
    sds: Sequence[float],
    weight: str,
    threshold: float,
    rule: Any,
) -> Array:
    """Return the (G, B, K) score of every observation under every regime."""
    if len(means) != len(sds):
        raise RegimekitError(f"sds must match means, got {len(sds)} and {len(means)}.")
    kind, c = weight_code(weight), positive("threshold", threshold)
    if kind == WEIGHTS["contamination"]:
        raise RegimekitError(
            "weight must be imq, huber, mahalanobis or none: the examples of the paper have no "
            'density of outliers, which "contamination" needs.'
        )
    scales = np.array([positive("sds", sd) for sd in sds])
    lengths = np.abs(batches[..., None] - numbers("means", means)) / scales
    unit_free = read_rule(rule).D1

    def score(z: float, log_scale: float) -> float:
        log_w2 = log_weight2(kind, z, c)
        if unit_free and log_w2 < 0.0:
            return float(log_score(z, log_scale, log_w2, 1))
        return float(np.exp(log_w2) * log_normal(z, log_scale, 1))

    return np.asarray(np.vectorize(score, otypes=[float])(lengths, np.log(scales)))
