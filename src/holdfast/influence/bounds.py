"""A bound on the influence of *any* contamination, from what is known before it arrives.

Admissible weights lie between a / (1 + z^2/c^2) and A / (1 + z^2/c^2) with w^2 <= 1, and
w^2 z^2 <= C. Then, whatever is observed from some position of the batch on,

    score_k - score_l  <=  G_kl = sum_b [C + d log(A/a) + d log Lambda_kl + log |S_l| / |S_k|] / 2
    |mean moved|       <=  tau  = sum_b sqrt(C phi(h_b))            in prior standard deviations

and the influence of the regimes is at most log sum_k p_k exp(sum_l p_l (clean_l - clean_k + G_kl)),
p the clean posterior. docs/robustness.md has the proofs; the names are those used there. All
covariances are held in coordinates where the noise is the identity.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from holdfast.emissions.base import Array, Rows
from holdfast.emissions.linear_gaussian import LinearGaussian
from holdfast.errors import HoldfastError
from holdfast.influence.pif import Position, read_position
from holdfast.influence.posterior import Candidates, Outlook, read_batch
from holdfast.weights import IMQ, NONE, Caution


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
    regimes; an unweighted birth) give infinity.

    Args:
        model: a fitted model of the infinite HMM family with a linear-Gaussian emission.
        clean: the observations expected next, (n,) or (n, d), at most the rest of the batch.
        x: their covariates, one row each, if the features need any.
        position: which of them may be contaminated; only the first matters.

    Example:
        >>> import holdfast as hf
        >>> model = hf.br_ihmm(batch=4, particles=20)
        >>> _ = model.run([0.1, -0.2, 0.0, 0.3] * 5)
        >>> batch = [0.0, 0.1, 0.2, -0.1]
        >>> worst = hf.influence.bound(model, clean=batch, position=1)
        >>> bool(hf.influence.joint_pif(model, 1e9, clean=batch, position=1) < worst.joint)
        True
    """
    outlook = Outlook(model)
    batch = read_batch(outlook, clean)
    emission = _checked(outlook, batch)
    designs = outlook.designs(batch, outlook.covariates(x, len(batch)))
    first = int(read_position(position, len(batch)).min())
    prefix = outlook.follow(outlook.start, batch[:first], designs[:first])
    end = outlook.follow(prefix, batch[first:], designs[first:])
    white = [np.linalg.solve(emission.noise_root, design) for design in designs[first:]]
    log_posterior = outlook.log_posterior(end.score)
    reach = _reach(outlook, prefix.rows, white, emission.caution)
    gaps = _score_gaps(outlook, emission, prefix.rows, white, reach)
    state = _state_bound(log_posterior, end.score - prefix.score, gaps)
    parameter = _parameter_bound(np.exp(log_posterior), prefix, end, white, reach[-1])
    return Bound(state, parameter, state + parameter)


class Admissible(NamedTuple):
    """Constants of a weight: lower a and upper A of w^2 (1 + z^2/c^2), and C = sup w^2 z^2."""

    lower: float
    upper: float
    product: float


def admissible(caution: Caution) -> Admissible:
    """The constants of a weight of `holdfast.weights`; C is infinite where nothing is bounded."""
    if caution.kind == NONE or math.isinf(caution.threshold):
        return Admissible(1.0, 1.0, math.inf)
    return Admissible(1.0, 1.0 if caution.kind == IMQ else 2.0, caution.threshold**2)


def stretch(ratio: Array, gap: Array) -> Array:
    """Lambda(rho, D) = sup over u >= 0 of (1 + (sqrt(rho) u + D)^2) / (1 + u^2).

    The quotient is a quadratic form in (1, u), so its supremum is a 2 x 2 eigenvalue.
    """
    total = 1.0 + gap**2 + ratio
    root = np.hypot(1.0 + gap**2 - ratio, 2.0 * np.sqrt(ratio) * gap)
    return np.asarray(0.5 * (total + root))


def push(leverage: Array, predictive: bool) -> Array:
    """phi(h): the largest squared move of a mean in one step, per unit of C.

    z measured under the predictive S: (h + 1) / 4, or h / (1 + h) for h < 1. Under the noise
    alone (D2 off): 1 / 4, or h / (1 + h)^2.
    """
    if predictive:
        return np.where(leverage >= 1, (leverage + 1) / 4, leverage / (1 + leverage))
    return np.where(leverage >= 1, 0.25, leverage / (1 + leverage) ** 2)


def _checked(outlook: Outlook, batch: Array) -> LinearGaussian:
    """The emission, where the theory covers the question."""
    emission = outlook.emission
    if not isinstance(emission, LinearGaussian):
        raise HoldfastError(
            f"bound needs a linear-Gaussian emission; this model has {type(emission).__name__}."
        )
    if outlook.model.features.depth:
        raise HoldfastError(
            "bound needs features that do not depend on y: through a lag an outlier is a "
            "covariate of later observations, which no weight restrains."
        )
    missing = np.isnan(batch)
    if (missing.any(axis=1) & ~missing.all(axis=1)).any():
        raise HoldfastError("clean is missing in some coordinates only; bound needs all or none.")
    return emission


def _reach(outlook: Outlook, rows: Rows, white: list[Array], caution: Caution) -> Array:
    """(n + 1, K): tau, how far each candidate's mean can have moved before each observation.

    In standard deviations of the candidate as the contamination begins.
    """
    product = admissible(caution).product
    fresh = outlook.engine.batch.fresh
    start = outlook.engine.pool.take(outlook.engine.batch.live)
    reach = np.zeros((len(white) + 1, fresh.size))
    for b, design in enumerate(white):
        leverage = _largest(_squares(design @ rows[1]))
        if caution.sequential:
            step = _times(np.sqrt(push(leverage, caution.predictive)), math.sqrt(product))
        else:  # D4 off: the weight looks at the row as the batch began, the update does not
            before = 1 + _largest(_squares(design @ start[1])) if caution.predictive else 1.0
            behind = np.linalg.norm((start[0] - rows[0]) @ design.T, axis=1)
            seen = math.sqrt(product) * np.sqrt(before) + behind + np.sqrt(leverage) * reach[b]
            step = _times(np.sqrt(push(leverage, False)), seen)
        reach[b + 1] = reach[b] + step
    if not caution.weigh_births:  # D3 off: a newborn follows whatever it sees
        reach[1:, fresh] = math.inf
    return reach


def _score_gaps(
    outlook: Outlook, emission: LinearGaussian, rows: Rows, white: list[Array], reach: Array
) -> Array:
    """(K, K): G_kl, an upper bound on score_k - score_l over the contaminated observations."""
    caution, engine = emission.caution, outlook.engine
    if not caution.weigh_regimes or math.isinf(admissible(caution).product):
        return np.full((reach.shape[1],) * 2, math.inf)
    if not caution.sequential:
        rows, reach = engine.pool.take(engine.batch.live), np.zeros_like(reach)
    gaps = np.zeros((reach.shape[1],) * 2)
    shrunk = np.broadcast_to(np.eye(rows[0].shape[1]), rows[1].shape).copy()
    for b, design in enumerate(white):
        box = _Box.of(rows, design, shrunk, reach[b])
        if caution.unit_free:
            gaps += _unit_free_gap(box, caution)
        else:
            gaps += _paper_gap(box, admissible(caution).product, np.asarray(emission.noise_root))
        if caution.sequential:
            shrunk += _information(design @ rows[1])
    return gaps


class _Box(NamedTuple):
    """What one observation's predictive can be, for K candidates, in units of the noise.

    Attributes:
        location: (K, d) prediction as the contamination began.
        low: (K, d, d) least predictive covariance: every observation fully believed.
        high: (K, d, d) greatest: none believed.
        reach: (K,) how far the mean may have moved.
    """

    location: Array
    low: Array
    high: Array
    reach: Array

    @classmethod
    def of(cls, rows: Rows, design: Array, shrunk: Array, reach: Array) -> _Box:
        """From the rows as the contamination began and the precision gained since, if believed."""
        mean, root = rows
        seen = design @ root  # (K, d, m)
        unit = np.eye(design.shape[0])
        least = seen @ np.linalg.solve(shrunk, seen.transpose(0, 2, 1))
        return cls(mean @ design.T, unit + least, unit + _squares(seen), reach)


def _unit_free_gap(box: _Box, caution: Caution) -> Array:
    """G_kl of one observation under the score log N(y; yhat, S / w^2) (D1)."""
    dim = box.low.shape[1]
    constants = admissible(caution)
    unit = np.eye(dim)
    metric = box.low if caution.predictive else np.broadcast_to(unit, box.low.shape)
    # Residuals of l are measured by metric_l or more, so their length is at most this one.
    factor = np.asarray(np.linalg.cholesky(metric), np.float64)
    apart = box.location[:, None] - box.location[None]
    distance = np.linalg.norm(_whitened(factor, apart[..., None])[..., 0], axis=-1)
    wander = np.sqrt(_largest(_conjugate(factor, box.high - unit)))  # (k, l)
    moved = _times(wander, box.reach[:, None]) + _times(np.diagonal(wander), box.reach)[None]
    gap = (distance + moved) / caution.threshold
    ratio = _largest(_conjugate(factor, box.high)) if caution.predictive else np.ones_like(gap)
    volume = np.linalg.slogdet(box.high)[1][None] - np.linalg.slogdet(box.low)[1][:, None]
    spread = math.log(constants.upper / constants.lower)
    tail = np.log(stretch(ratio, gap))
    return np.asarray(0.5 * (constants.product + dim * (spread + tail) + volume))


def _paper_gap(box: _Box, product: float, noise_root: Array) -> Array:
    """G_kl of one observation under the score w^2 log N(y; yhat, S): each score has a range."""
    dim = box.low.shape[1]
    constant = dim * math.log(2 * math.pi) + 2 * float(np.log(np.diag(noise_root)).sum())
    highest = 0.5 * np.maximum(-(constant + np.linalg.slogdet(box.low)[1]), 0.0)
    lowest = -0.5 * (np.maximum(constant + np.linalg.slogdet(box.high)[1], 0.0) + product)
    return np.asarray(highest[:, None] - lowest[None])


def _state_bound(log_posterior: Array, clean: Array, gaps: Array) -> float:
    """log sum_k p_k exp(sum_l p_l U_lk), U_lk = clean_l - clean_k + G_kl, over possible rows."""
    possible = log_posterior > -np.inf
    log_p, clean = log_posterior[possible], clean[possible]
    excess = clean[None] - clean[:, None] + gaps[np.ix_(possible, possible)]  # (k, l)
    np.fill_diagonal(excess, 0.0)
    share = np.exp(log_p)
    exponent = log_p + _times(share, excess).sum(axis=1)
    top = exponent.max()
    if math.isinf(top):
        return math.inf if top > 0 else 0.0
    return max(float(top + np.log(np.exp(exponent - top).sum())), 0.0)


def _parameter_bound(
    share: Array, prefix: Candidates, end: Candidates, white: list[Array], reach: Array
) -> float:
    """Expected bound on the Gaussian KL; see docs/robustness.md, "Coefficients"."""
    mean, root = prefix.rows
    clean_mean, clean_root = end.rows
    believed = np.broadcast_to(np.eye(mean.shape[1]), root.shape).copy()
    for design in white:
        believed += _information(design @ root)
    spread = np.linalg.solve(root, clean_root)
    least = _eigenvalues(_information(spread))
    most = _eigenvalues(spread.transpose(0, 2, 1) @ believed @ spread)
    shape = np.maximum(_shape_cost(least), _shape_cost(most)).sum(axis=1)
    shift = np.linalg.solve(root, (clean_mean - mean)[:, :, None])
    own = np.sqrt((shift * (believed @ shift)).sum(axis=(1, 2)))
    worst = 0.5 * (shape + (own + np.sqrt(_largest(believed)) * reach) ** 2)
    return float(_times(share, worst).sum())


def _shape_cost(eigenvalue: Array) -> Array:
    """x - 1 - log x: what a covariance ratio of x costs, twice over."""
    return np.asarray(eigenvalue - 1.0 - np.log(eigenvalue))


def _times(share: Array, value: Array | float) -> Array:
    """share * value where a share of 0 beats a value of infinity."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(share > 0, share * value, 0.0))


def _squares(a: Array) -> Array:
    """A A' of each row."""
    return np.asarray(a @ a.transpose(0, 2, 1))


def _information(a: Array) -> Array:
    """A' A of each row."""
    return np.asarray(a.transpose(0, 2, 1) @ a)


def _largest(symmetric: Array) -> Array:
    """Largest eigenvalue, not below 0, of each matrix of a stack."""
    if symmetric.shape[-1] == 1:
        return np.asarray(np.maximum(symmetric[..., 0, 0], 0.0))
    return np.asarray(np.maximum(_eigenvalues(symmetric)[..., -1], 0.0))


def _eigenvalues(symmetric: Array) -> Array:
    """In ascending order, of each matrix of a stack."""
    return np.asarray(np.linalg.eigvalsh(symmetric), np.float64)


def _whitened(factor: Array, columns: Array) -> Array:
    """L_l^-1 columns_kl for every pair (k, l)."""
    factors = np.broadcast_to(factor, (len(columns), *factor.shape))
    return np.asarray(np.linalg.solve(factors, columns))


def _conjugate(factor: Array, covariance: Array) -> Array:
    """L_l^-1 V_k L_l^-T for every pair (k, l)."""
    k, dim = len(covariance), covariance.shape[1]
    pairs = np.broadcast_to(covariance[:, None], (k, k, dim, dim))
    half = _whitened(factor, pairs)
    return _whitened(factor, half.transpose(0, 1, 3, 2))
