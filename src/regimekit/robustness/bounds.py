"""A bound on the influence of *any* contamination, from what is known before it arrives.

Let T_k be the total score of hypothesis k at the end of the batch and `excess_kl` an upper bound
on T_k - T_l over all contaminations (`weighted`, `mixture`). With p and g the clean posterior and
the clean totals, the influence of the regimes of one island is at most

    log sum_k p_k exp( sum_l p_l (g_l - g_k + excess_kl) ),

and that of all islands the average: each has its share 1 / G whatever is observed. The influence
of the coefficients follows from how far a mean can have moved. docs/robustness.md has the proofs.

With lags an observation is a covariate of later ones, as far as it is believed (D13). Given the
designs that it leads to, the bound is that of fixed designs; over all values it is the largest of
those, and beyond some size every value leads to the same designs.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.core.logspace import logsumexp
from regimekit.ihmm.emissions.base import Array
from regimekit.ihmm.emissions.linear_gaussian import LinearGaussian
from regimekit.ihmm.weights import CONTAMINATION
from regimekit.preprocessing.frames import Row
from regimekit.robustness import mixture, weighted
from regimekit.robustness.pif import Position, read_position
from regimekit.robustness.posterior import Branches, Moment, Outlook, read_batch
from regimekit.robustness.shapes import eigenvalues, information, largest, times

# Distances from the clean value, in noise scales, at which designs are looked at.
_AWAY = np.concatenate([np.linspace(0.1, 12.0, 120), np.geomspace(12.5, 1e6, 60)])


class Bound(NamedTuple):
    """Suprema over contaminations from a position of the batch on; infinite where there is none.

    Attributes:
        state: of the regimes' influence.
        parameter: of the coefficients' influence, expected under the clean posterior.
        joint: of both together, their sum.
    """

    state: float
    parameter: float
    joint: float


def bound(model: Any, *, clean: Any, x: Any = None, position: Position = 0) -> Bound:
    """An upper bound on `state_pif`, `parameter_pif` and `joint_pif` over all contaminations.

    It holds for every value of every observation from the first contaminated position to the end
    of `clean`, at once. The settings that bound nothing (no weight; a plain likelihood for
    regimes; an unweighted birth) give infinity. With lags it holds for every value of *one*
    observation, to the resolution of a fine grid: two spikes alike one after the other are a jump.

    Args:
        model: a fitted model of the infinite HMM family with a linear-Gaussian emission.
        clean: the observations expected next, (n,) or (n, d), at most the rest of a batch.
        x: their covariates, one row each, if the features need any.
        position: which of them may be contaminated; only the first matters.

    Example:
        >>> import regimekit as rk
        >>> model = rk.br_ihmm(noise=0.25, batch=4, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> batch = [0.0, 0.1, 0.2, -0.1]
        >>> worst = rk.influence.bound(model, clean=batch, position=1)
        >>> bool(rk.influence.joint_pif(model, 1e9, clean=batch, position=1) < worst.joint)
        True
    """
    outlook = Outlook(model)
    batch = read_batch(outlook, clean)
    emission = _checked(outlook, batch)
    rows = outlook.covariates(x, len(batch))
    at = read_position(position, len(batch))
    first = int(at.min())
    prefix = outlook.follow(outlook.start, batch[:first], rows[:first])
    end = outlook.follow(prefix, batch[first:], rows[first:])
    lengths = np.clip(outlook.left - first, 0, len(batch) - first)
    paths = [end.designs]
    if outlook.model.features.depth:
        _check_lags(outlook, at)
        paths = _paths(outlook, prefix, batch[first:], rows[first:])
    found = []
    for designs in paths:
        white = [np.linalg.solve(emission.noise_root, design) for design in designs]
        if emission.scoring.kind == CONTAMINATION:
            worst = _mixture(outlook, prefix, white, lengths)
        else:
            worst = _weighted(outlook, emission, prefix, white, lengths)
        found.append(_collected(outlook, worst, end, white, lengths))
    return Bound(*np.max(found, axis=0).tolist())


def _paths(
    outlook: Outlook, prefix: Moment, batch: Array, rows: list[Row | None]
) -> list[list[Array]]:
    """The designs that every value of the first observation leads to, each path of them once."""
    noise = float(np.sqrt(outlook.emission.noise_covariance()[0, 0]))
    found: dict[bytes, list[Array]] = {}
    for away in [0.0, *_AWAY, *-_AWAY]:
        dirty = batch.copy()
        dirty[0] += away * noise
        designs = outlook.follow(prefix, dirty, rows).designs
        found[np.round(np.array(designs), 12).tobytes()] = designs
    return list(found.values())


class Worst(NamedTuple):
    """What can become of the hypotheses of one island.

    Attributes:
        excess: (K, K) upper bound on the total score of k minus that of l.
        of: (O,) the hypothesis that each option is of; a newborn has several.
        mean: (O, m) and `root` (O, m, m) of the option before the contamination.
        reach: (O,) how far its mean can move.
    """

    excess: Array
    of: NDArray[np.int64]
    mean: Array
    root: Array
    reach: Array


def _checked(outlook: Outlook, batch: Array) -> LinearGaussian:
    """The emission, where the theory covers the question."""
    emission = outlook.emission
    if not isinstance(emission, LinearGaussian):
        raise RegimekitError(
            f"bound needs a linear-Gaussian emission; this model has {type(emission).__name__}."
        )
    missing = np.isnan(batch)
    if (missing.any(axis=1) & ~missing.all(axis=1)).any():
        raise RegimekitError("clean is missing in some coordinates only; bound needs all or none.")
    if emission.scoring.kind == CONTAMINATION and not emission.scoring.sequential:
        raise RegimekitError('bound under contamination needs rule D4 as "default" has it.')
    return emission


def _check_lags(outlook: Outlook, at: NDArray[np.int64]) -> None:
    """Refuse lags that nothing restrains."""
    if not outlook.model.doubt:
        raise RegimekitError(
            "bound needs rule D13 for features with lags: through a raw lag an outlier is a "
            "covariate of later observations, which no weight restrains."
        )
    if outlook.emission.shape.dim > 1:
        raise RegimekitError("bound with lags needs one coordinate of y.")
    if at.size > 1:
        raise RegimekitError(
            "bound with lags needs one contaminated position: two spikes alike, one after the "
            "other, cannot be told from a jump, and a jump has to become a lag."
        )


def _weighted(
    outlook: Outlook,
    emission: LinearGaussian,
    prefix: Moment,
    white: list[Array],
    lengths: NDArray[np.int64],
) -> list[Worst]:
    """Under a weight: each island by itself."""
    found = []
    ledger, rows = outlook.engine.state.ledger, outlook.engine.rows
    log_noise = 2.0 * float(np.log(np.diag(emission.noise_root)).sum())
    for g, n in enumerate(lengths):
        ours = outlook.place[:, 0] == g
        row = outlook.row[ours]
        mean, root = prefix.rows.mean[ours, 0], prefix.rows.root[ours]
        stage = weighted.Stage(
            emission.scoring,
            mean,
            root,
            rows.mean[row, 0],
            rows.root[row],
            ledger.visits[row] == 0,
            white[:n],
            log_noise,
        )
        moved = weighted.reach(stage)
        score = prefix.score[ours]
        excess = score[:, None] - score[None] + weighted.score_gaps(stage, moved)
        found.append(Worst(excess, np.arange(row.size), mean, root, moved[-1]))
    return found


def _mixture(
    outlook: Outlook, prefix: Moment, white: list[Array], lengths: NDArray[np.int64]
) -> list[Worst]:
    """Under contamination: all islands at once, for q is centred on their common forecast."""
    state, plan = prefix.state, outlook.engine.plan
    parts = [outlook.candidates(prefix, g) for g in range(outlook.islands)]
    wild = [_wild(prefix, part, g) for g, part in enumerate(parts)]
    crowd = mixture.Crowd(
        np.concatenate([part.rows.mean[:, 0] for part in parts]),
        np.concatenate([part.rows.root for part in parts]),
        np.concatenate(wild),
        white,
        mixture.least_odds(state.clock.outliers, plan.outlier_prior, len(white)),
        max(int(flags.sum()) for flags in wild),
    )
    limits = mixture.limits(crowd)
    ends = np.cumsum([flags.size for flags in wild])
    found = []
    for g, part in enumerate(parts):
        ours = slice(int(ends[g]) - wild[g].size, int(ends[g]))
        gain, reach = limits.gain[lengths[g], ours], limits.reach[lengths[g], ours]
        low, high = _totals(part, int(state.clock.observed[g]), gain)
        excess = high[:, None] - low[None]
        if not plan.scoring.weigh_regimes:
            excess = np.full_like(excess, math.inf)
        found.append(Worst(excess, part.hypothesis, part.rows.mean[:, 0], part.rows.root, reach))
    return found


def _wild(moment: Moment, part: Branches, g: int) -> NDArray[np.bool_]:
    """Branches that have yet to believe an observation for sure; the last one never does."""
    clock = moment.state.clock
    return np.asarray((part.branch >= clock.observed[g]) & (part.branch < clock.size[g] // 2))


def _totals(part: Branches, observed: int, gain: Array) -> tuple[Array, Array]:
    """(K,) least and greatest total score of each hypothesis, from "all were outliers" on.

    Branches that have disbelieved everything are one until they part: counted once in the least.
    """
    counted = (part.branch <= observed).copy()
    low = np.empty(part.hypothesis.max() + 1)
    high = np.empty_like(low)
    for k in range(low.size):
        ours = part.hypothesis == k
        least, most = part.score[ours & counted], (part.score + gain)[ours]
        low[k] = logsumexp(least, least.size)
        high[k] = logsumexp(most, most.size)
    return low, high


def _collected(
    outlook: Outlook,
    worst: list[Worst],
    end: Moment,
    white: list[Array],
    lengths: NDArray[np.int64],
) -> Bound:
    """The average over islands; those whose batch has ended before feel nothing."""
    log_posterior = outlook.log_posterior(end.score) + math.log(outlook.islands)
    state = parameter = 0.0
    for g, island in enumerate(worst):
        if lengths[g]:
            ours = outlook.place[:, 0] == g
            log_p = log_posterior[ours]
            state += _state_bound(log_p, end.score[ours], island.excess) / outlook.islands
            clean = end.rows.mean[ours, 0], end.rows.root[ours]
            cost = _parameter_bound(np.exp(log_p), island, *clean, white[: lengths[g]])
            parameter += cost / outlook.islands
    return Bound(state, parameter, state + parameter)


def _state_bound(log_posterior: Array, clean: Array, excess: Array) -> float:
    """log sum_k p_k exp(sum_l p_l U_kl), U_kl = clean_l - clean_k + excess_kl, where possible."""
    possible = log_posterior > -np.inf
    log_p, clean = log_posterior[possible], clean[possible]
    gaps = clean[None] - clean[:, None] + excess[np.ix_(possible, possible)]  # (k, l)
    np.fill_diagonal(gaps, 0.0)
    share = np.exp(log_p)
    exponent = log_p + times(share, gaps).sum(axis=1)
    top = exponent.max()
    if math.isinf(top):
        return math.inf if top > 0 else 0.0
    return max(float(top + np.log(np.exp(exponent - top).sum())), 0.0)


def _parameter_bound(
    share: Array, island: Worst, clean_mean: Array, clean_root: Array, white: list[Array]
) -> float:
    """Expected bound on the Gaussian KL, each hypothesis at its worst option."""
    believed = np.broadcast_to(np.eye(island.mean.shape[1]), island.root.shape).copy()
    for design in white:
        believed += information(design @ island.root)
    spread = np.asarray(np.linalg.solve(island.root, clean_root[island.of]), np.float64)
    least = eigenvalues(information(spread))
    most = eigenvalues(spread.transpose(0, 2, 1) @ believed @ spread)
    shape = np.maximum(_shape_cost(least), _shape_cost(most)).sum(axis=1)
    shift = np.linalg.solve(island.root, (clean_mean[island.of] - island.mean)[:, :, None])
    own = np.sqrt((shift * (believed @ shift)).sum(axis=(1, 2)))
    cost = 0.5 * (shape + (own + np.sqrt(largest(believed)) * island.reach) ** 2)
    worst = np.zeros(share.size)
    np.maximum.at(worst, island.of, cost)
    return float(times(share, worst).sum())


def _shape_cost(eigenvalue: Array) -> Array:
    """x - 1 - log x: what a covariance ratio of x costs, twice over."""
    return np.asarray(eigenvalue - 1.0 - np.log(eigenvalue))
