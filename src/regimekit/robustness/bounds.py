"""A bound on the influence of every contamination, from what is known before it arrives.

Let T_k be the total score of hypothesis k at the end of the batch and `excess_kl` an upper bound on
T_k - T_l over all contaminations (`score_bounds`). With p and g the clean posterior and the clean
totals, the influence on the regimes of one island is at most

    log sum_k p_k exp( sum_l p_l (g_l - g_k + excess_kl) ),

and that of all islands the average, because each has the share 1 / G whatever is observed. The
influence on the coefficients follows from the largest movement of a mean. docs/robustness.md has
the proofs.

With lags an observation is a covariate of later ones, unless it is taken for an outlier (D13).
Given the designs that it leads to, the bound is that of fixed designs; over all values it is the
largest of those, and beyond some size every value leads to the same designs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.ihmm.emissions.linear_gaussian import LinearGaussian
from regimekit.preprocessing.frames import Row
from regimekit.robustness import score_bounds
from regimekit.robustness.influence import Position, read_position
from regimekit.robustness.posterior import Array, BatchPosterior, Moment
from regimekit.robustness.score_bounds import Rows, eigenvalues, information, largest, times

# Distances from the clean value, in noise standard deviations, at which designs are computed.
_DISTANCES = np.concatenate([np.linspace(0.1, 12.0, 120), np.geomspace(12.5, 1e6, 60)])


class Bound(NamedTuple):
    """Suprema over contaminations from a position of the batch on, in nats; may be infinite.

    Attributes:
        state: of the influence on the regimes.
        parameter: of the influence on the coefficients, expected under the clean posterior.
        joint: of both together, their sum.
    """

    state: float
    parameter: float
    joint: float


def bound(model: Any, *, clean: Any, x: Any = None, position: Position = 0) -> Bound:
    """Return an upper bound on `state_pif`, `parameter_pif` and `joint_pif`.

    The bound is for every value of every observation from the first contaminated position to the
    end of `clean` at once. Settings without a bound (no weight, a plain likelihood for regimes, an
    unweighted first batch of a new regime) give infinity. With lags it is for every value of *one*
    observation, to the resolution of a fine grid: two equal outliers in a row are a jump.

    Args:
        model: a fitted model of the infinite HMM family with a linear-Gaussian emission.
        clean: the observations expected next, (n,) or (n, d), at most the rest of a batch.
        x: their covariates, one row each, if the features need any.
        position: which of them may be contaminated; only the first matters.

    Returns:
        The bounds on the three influences.

    Raises:
        RegimekitError: If the theory does not cover the model or an argument is invalid.

    Example:
        >>> import regimekit as rk
        >>> model = rk.br_ihmm(noise=0.25, batch=4, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> batch = [0.0, 0.1, 0.2, -0.1]
        >>> worst = rk.influence.bound(model, clean=batch, position=1)
        >>> bool(rk.influence.joint_pif(model, 1e9, clean=batch, position=1) < worst.joint)
        True
    """
    posterior = BatchPosterior(model)
    batch = posterior.read_batch(clean)
    _check_emission(posterior, batch)
    rows = posterior.read_covariates(x, len(batch))
    at = read_position(position, len(batch))
    first = int(at.min())
    prefix = posterior.follow(posterior.start, batch[:first], rows[:first])
    end = posterior.follow(prefix, batch[first:], rows[first:])
    lengths = np.clip(posterior.left - first, 0, len(batch) - first)
    paths = [end.designs]
    if posterior.model.features.depth:
        _check_lags(posterior, at)
        paths = _design_paths(posterior, prefix, batch[first:], rows[first:])
    noise_root = np.linalg.cholesky(posterior.emission.noise_covariance())
    found = []
    for path in paths:
        designs: list[Array] = [
            np.asarray(np.linalg.solve(noise_root, f), np.float64) for f in path
        ]
        if posterior.emission.scoring.is_contamination():
            worst = _under_contamination(posterior, prefix, designs, lengths)
        else:
            log_noise = 2.0 * float(np.log(np.diag(noise_root)).sum())
            worst = _under_weight(posterior, prefix, designs, first, lengths, log_noise)
        found.append(_collect(posterior, worst, prefix, end, designs, lengths))
    return Bound(*np.max(found, axis=0).tolist())


class Worst(NamedTuple):
    """Bounds for the hypotheses of one island.

    Attributes:
        excess: (K, K) upper bound on the total score of k minus that of l.
        reach: (K,) largest movement of the mean.
    """

    excess: Array
    reach: Array


def _design_paths(
    posterior: BatchPosterior, prefix: Moment, batch: Array, rows: list[Row | None]
) -> list[list[Array]]:
    """The designs that every value of the first observation leads to, each path once."""
    noise = float(np.sqrt(posterior.emission.noise_covariance()[0, 0]))
    found: dict[bytes, list[Array]] = {}
    for distance in [0.0, *_DISTANCES, *-_DISTANCES]:
        dirty = batch.copy()
        dirty[0] += distance * noise
        designs = posterior.follow(prefix, dirty, rows).designs
        found[np.round(np.array(designs), 12).tobytes()] = designs
    return list(found.values())


def _check_emission(posterior: BatchPosterior, batch: Array) -> None:
    """Raise RegimekitError if the theory does not cover the question."""
    emission = posterior.emission
    if not isinstance(emission, LinearGaussian):
        raise RegimekitError(
            f"model must have a linear-Gaussian emission for bound, got {type(emission).__name__}."
        )
    missing = np.isnan(batch)
    if (missing.any(axis=1) & ~missing.all(axis=1)).any():
        raise RegimekitError("clean must be missing in all coordinates or in none for bound.")
    if emission.scoring.is_contamination() and not emission.scoring.sequential:
        raise RegimekitError('bound under contamination needs deviation D4 as in "default".')


def _check_lags(posterior: BatchPosterior, at: NDArray[np.int64]) -> None:
    """Raise RegimekitError if the theory does not cover the lags."""
    if not posterior.model.doubt:
        raise RegimekitError(
            "bound for features with lags needs deviation D13: through a raw lag an outlier is a "
            "covariate of later observations, which no weight limits."
        )
    if posterior.emission.shape.dim > 1:
        raise RegimekitError("bound for features with lags needs one coordinate of y.")
    if at.size > 1:
        raise RegimekitError(
            "bound for features with lags needs one contaminated position: two equal outliers in "
            "a row cannot be distinguished from a jump, and a jump has to become a lag."
        )


def _under_weight(
    posterior: BatchPosterior,
    prefix: Moment,
    designs: list[Array],
    first: int,
    lengths: NDArray[np.int64],
    log_noise: float,
) -> list[Worst]:
    """Bounds under a weight, island by island."""
    scoring, start = posterior.emission.scoring, posterior.rows_at_start()
    found = []
    for g, n in enumerate(lengths):
        own = posterior.island == g
        rows = Rows(
            prefix.mean[own],
            prefix.root[own],
            start[0][own],
            start[1][own],
            posterior.fresh[own],
            posterior.extra_noise(g, first, int(n)),
        )
        moved = score_bounds.weighted_reach(rows, designs[:n], scoring)
        gaps = score_bounds.weighted_score_gaps(rows, designs[:n], scoring, moved, log_noise)
        score = prefix.score[own]
        found.append(Worst(score[:, None] - score[None] + gaps, moved[-1]))
    return found


def _under_contamination(
    posterior: BatchPosterior, prefix: Moment, designs: list[Array], lengths: NDArray[np.int64]
) -> list[Worst]:
    """Bounds under contamination: of all islands at once, because they share the centre of q."""
    prior = np.asarray(posterior.filter.settings.outlier_prior)
    odds = score_bounds.largest_odds(prefix.outliers, prior, len(designs))
    limits = score_bounds.contamination_limits(*posterior.rows_at(prefix), designs, odds)
    found = []
    for g, n in enumerate(lengths):
        own = posterior.island == g
        score = prefix.score[own]
        excess = (score + limits.gain[n, own])[:, None] - score[None]
        if not posterior.emission.scoring.weigh_regimes:
            excess = np.full_like(excess, math.inf)
        found.append(Worst(excess, limits.reach[n, own]))
    return found


def _collect(
    posterior: BatchPosterior,
    worst: list[Worst],
    prefix: Moment,
    end: Moment,
    designs: list[Array],
    lengths: NDArray[np.int64],
) -> Bound:
    """The average over islands; one whose batch ended before the contamination has influence 0."""
    islands = posterior.islands
    log_posterior = posterior.log_posterior(end.score) + math.log(islands)
    state = parameter = 0.0
    for g, island in enumerate(worst):
        if lengths[g]:
            own = posterior.island == g
            log_p = log_posterior[own]
            state += _state_bound(log_p, end.score[own], island.excess) / islands
            cost = _parameter_costs(prefix, end, own, island.reach, designs[: lengths[g]])
            parameter += float(times(np.exp(log_p), cost).sum()) / islands
    return Bound(state, parameter, state + parameter)


def _state_bound(log_posterior: Array, clean: Array, excess: Array) -> float:
    """log sum_k p_k exp(sum_l p_l U_kl), U_kl = clean_l - clean_k + excess_kl."""
    possible = log_posterior > -np.inf
    log_p, clean = log_posterior[possible], clean[possible]
    gaps = clean[None] - clean[:, None] + excess[np.ix_(possible, possible)]  # (k, l)
    np.fill_diagonal(gaps, 0.0)
    exponent = log_p + times(np.exp(log_p), gaps).sum(axis=1)
    top = exponent.max()
    if math.isinf(top):
        return math.inf if top > 0 else 0.0
    return max(float(top + np.log(np.exp(exponent - top).sum())), 0.0)


def _parameter_costs(
    prefix: Moment, end: Moment, own: NDArray[np.bool_], reach: Array, designs: list[Array]
) -> Array:
    """(K,) bounds on the Gaussian KL divergence of the hypotheses of an island."""
    mean, root = prefix.mean[own], prefix.root[own]
    learnt = np.broadcast_to(np.eye(mean.shape[1]), root.shape).copy()
    for design in designs:
        learnt += information(design @ root)
    spread = np.asarray(np.linalg.solve(root, end.root[own]), np.float64)
    least = eigenvalues(information(spread))
    most = eigenvalues(spread.transpose(0, 2, 1) @ learnt @ spread)
    shape = np.maximum(_shape_cost(least), _shape_cost(most)).sum(axis=1)
    shift = np.linalg.solve(root, (end.mean[own] - mean)[:, :, None])
    moved = np.sqrt((shift * (learnt @ shift)).sum(axis=(1, 2)))
    return np.asarray(0.5 * (shape + (moved + np.sqrt(largest(learnt)) * reach) ** 2))


def _shape_cost(eigenvalue: Array) -> Array:
    """x - 1 - log x: twice the divergence due to a covariance ratio of x."""
    return np.asarray(eigenvalue - 1.0 - np.log(eigenvalue))
