"""Bounds on scores and on the movement of means over all contaminations.

**Under a weight** (IMQ, Huber, Mahalanobis) w^2 lies between a / (1 + z^2/c^2) and
A / (1 + z^2/c^2) with w^2 <= 1, and w^2 z^2 <= C. Then, whatever is observed from some position of
the batch on,

    score_k - score_l  <=  G_kl = sum_b [C + d log(A/a) + d log Lambda_kl + log |S_l| / |S_k|] / 2
    |mean moved|       <=  tau  = sum_b sqrt(C phi(h_b))            in prior standard deviations

**Under contamination** p_k = (1 - eps) f_k + eps q the score of every regime is at least
log eps q(y) and at most

    log eps q(y) + log(1 + (1 - eps) / eps * sup f_k / q),

so totals of two regimes differ by a bounded amount. A step of a mean is weighted by
r_k <= min(1, (1 - eps) f_k / (eps q)), which falls with exp(-z^2 / 2), so r z^2 is bounded. q is
centred on the forecast, which the contamination moves as well, so the bounds are carried from one
observation to the next.

docs/robustness.md has the proofs and uses the same names. Covariances are in units of the noise.

Arguments of the functions:
    scoring: weight and score.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.ihmm.weights import OUTLIER_SCALE, WEIGHTS, PythonScoring, outlier_constants
from regimekit.ihmm.within_batch import rate_memory

Array = NDArray[np.float64]

_OUTLIER_DOF, _MAX_OUTLIER_RATE = outlier_constants()
# 1 + |y - c|^2 / (dof scale^2) <= (1 + r^2 / _WIDE) (1 + |yhat - c|^2 / _WIDE)
_WIDE = 0.5 * _OUTLIER_DOF * OUTLIER_SCALE**2


class Rows(NamedTuple):
    """K rows before the first observation that may be contaminated.

    Attributes:
        mean: (K, m) and `root` (K, m, m) of the rows now.
        start_mean: (K, m) and `start_root` (K, m, m) at the start of the batch (D4).
        fresh: (K,) whether a row has not learnt anything before this batch (D3).
        extra: (n,) further terms R of the variance in each score, if D4 and D8 are off.
    """

    mean: Array
    root: Array
    start_mean: Array
    start_root: Array
    fresh: NDArray[np.bool_]
    extra: Array


class Limits(NamedTuple):
    """Bounds after 0 .. n contaminated observations.

    Attributes:
        gain: (n + 1, K) largest log evidence beyond that of "all were outliers".
        reach: (n + 1, K) largest movement of a mean, in standard deviations of the row at first.
    """

    gain: Array
    reach: Array


# ---------------------------------------------------------------------- stacks of small matrices


def times(share: Array, value: Array | float) -> Array:
    """Return share * value, with 0 * infinity = 0.

    Args:
        share: array.
        value: array or number.
    """
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(share > 0, share * value, 0.0))


def squares(a: Array) -> Array:
    """Return A A' of each matrix of a stack, (.., m, m).

    Args:
        a: (.., m, n).
    """
    return np.asarray(a @ a.transpose(0, 2, 1))


def information(a: Array) -> Array:
    """Return A' A of each matrix of a stack, (.., n, n).

    Args:
        a: (.., m, n).
    """
    return np.asarray(a.transpose(0, 2, 1) @ a)


def eigenvalues(symmetric: Array) -> Array:
    """Return the eigenvalues of each matrix of a stack in ascending order, (.., m).

    Args:
        symmetric: (.., m, m).
    """
    return np.asarray(np.linalg.eigvalsh(symmetric), np.float64)


def largest(symmetric: Array) -> Array:
    """Return the largest eigenvalue of each matrix of a stack, at least 0.

    Args:
        symmetric: (.., m, m).
    """
    if symmetric.shape[-1] == 1:
        return np.asarray(np.maximum(symmetric[..., 0, 0], 0.0))
    return np.asarray(np.maximum(eigenvalues(symmetric)[..., -1], 0.0))


def log_det(stack: Array) -> Array:
    """Return log |V| of each covariance of a stack.

    Args:
        stack: (.., m, m).
    """
    return np.asarray(np.linalg.slogdet(stack)[1])


# ---------------------------------------------------------------------- one observation


class PredictiveRange(NamedTuple):
    """Possible predictive distributions of one observation for K rows, in units of the noise.

    Attributes:
        location: (K, d) prediction when the contamination begins.
        low: (K, d, d) smallest predictive covariance: every observation was learnt in full.
        high: (K, d, d) largest: none was learnt.
        reach: (K,) largest movement of the mean.
    """

    location: Array
    low: Array
    high: Array
    reach: Array

    @classmethod
    def of(
        cls,
        mean: Array,
        root: Array,
        design: Array,
        gained: Array,
        reach: Array,
        extra: float = 0.0,
    ) -> PredictiveRange:
        """Return the range of predictive distributions of one observation.

        Args:
            mean: (K, m) of the rows when the contamination begins.
            root: (K, m, m) of these rows.
            design: (d, m), in units of the noise.
            gained: (K, m, m) largest present precision relative to that of these rows.
            reach: (K,) largest movement of the mean since.
            extra: further terms R of the variance.
        """
        projected = design @ root  # (K, d, m)
        unit = (1.0 + extra) * np.eye(design.shape[0])
        least = projected @ np.linalg.solve(gained, projected.transpose(0, 2, 1))
        return cls(mean @ design.T, unit + least, unit + squares(projected), reach)


def stretch(ratio: Array, gap: Array) -> Array:
    """Return Lambda(rho, D) = sup over u >= 0 of (1 + (sqrt(rho) u + D)^2) / (1 + u^2).

    The quotient is a quadratic form in (1, u), so its supremum is a 2 x 2 eigenvalue.

    Args:
        ratio: rho.
        gap: D.
    """
    total = 1.0 + gap**2 + ratio
    root = np.hypot(1.0 + gap**2 - ratio, 2.0 * np.sqrt(ratio) * gap)
    return np.asarray(0.5 * (total + root))


def push(leverage: Array, predictive: bool) -> Array:
    """Return phi(h): the largest squared move of a mean in one step, per unit of C.

    If z is measured under the predictive S: (h + 1) / 4, or h / (1 + h) for h < 1. Under the noise
    alone (D2 off): 1 / 4, or h / (1 + h)^2.

    Args:
        leverage: h.
        predictive: whether z is measured under S.
    """
    if predictive:
        return np.where(leverage >= 1, (leverage + 1) / 4, leverage / (1 + leverage))
    return np.where(leverage >= 1, 0.25, leverage / (1 + leverage) ** 2)


# ---------------------------------------------------------------------- under a weight


def weight_bounds(scoring: Any) -> tuple[float, float]:
    """Return A / a and C = sup w^2 z^2 of a weight; C is infinite without a bound.

    Raises:
        RegimekitError: if the weight is a function.
    """
    if isinstance(scoring, PythonScoring):
        raise RegimekitError("Bounds are known for named weights, not for a weight function.")
    if scoring.kind == WEIGHTS["none"] or math.isinf(scoring.threshold):
        return 1.0, math.inf
    return (1.0 if scoring.kind == WEIGHTS["imq"] else 2.0), scoring.threshold**2


def weighted_reach(rows: Rows, designs: list[Array], scoring: Any) -> Array:
    """Return tau, (n + 1, K): the largest movement of each mean before each observation.

    It is in standard deviations of the row when the contamination begins.

    Args:
        rows: the rows.
        designs: designs of the observations, in units of the noise.
    """
    _, product = weight_bounds(scoring)
    moved = np.zeros((len(designs) + 1, rows.fresh.size))
    for b, design in enumerate(designs):
        leverage = largest(squares(design @ rows.root))
        if scoring.sequential:
            step = times(np.sqrt(push(leverage, scoring.predictive)), math.sqrt(product))
        else:
            # D4 off: the weight uses the row at the start of the batch, the update does not.
            before = (
                1 + rows.extra[b] + largest(squares(design @ rows.start_root))
                if scoring.predictive
                else 1.0
            )
            behind = np.linalg.norm((rows.start_mean - rows.mean) @ design.T, axis=1)
            length = math.sqrt(product) * np.sqrt(before) + behind + np.sqrt(leverage) * moved[b]
            step = times(np.sqrt(push(leverage, False)), length)
        moved[b + 1] = moved[b] + step
    if not scoring.weigh_births:
        # D3 off: a new regime follows whatever it observes.
        moved[1:, rows.fresh] = math.inf
    return moved


def weighted_score_gaps(
    rows: Rows, designs: list[Array], scoring: Any, moved: Array, log_noise: float
) -> Array:
    """Return G_kl, (K, K): an upper bound on score_k - score_l over the contaminated observations.

    Args:
        rows: the rows.
        designs: designs of these observations, in units of the noise.
        moved: (n + 1, K) as from `weighted_reach`.
        log_noise: log |R|.
    """
    k = rows.fresh.size
    if not scoring.weigh_regimes or math.isinf(weight_bounds(scoring)[1]):
        return np.full((k, k), math.inf)
    mean, root = rows.mean, rows.root
    if not scoring.sequential:
        mean, root, moved = rows.start_mean, rows.start_root, np.zeros_like(moved)
    gaps = np.zeros((k, k))
    gained = np.broadcast_to(np.eye(mean.shape[1]), root.shape).copy()
    for b, design in enumerate(designs):
        box = PredictiveRange.of(mean, root, design, gained, moved[b], rows.extra[b])
        if scoring.unit_free:
            gaps += _unit_free_gap(box, scoring)
        else:
            gaps += _paper_gap(box, scoring, log_noise)
        if scoring.sequential:
            gained += information(design @ root)
    return gaps


def _unit_free_gap(box: PredictiveRange, scoring: Any) -> Array:
    """G_kl of one observation under the score log N(y; yhat, S / w^2) (D1)."""
    dim = box.low.shape[1]
    ratio_of_constants, product = weight_bounds(scoring)
    unit = np.eye(dim)
    metric = box.low if scoring.predictive else np.broadcast_to(unit, box.low.shape)
    # Residuals of l are measured by metric_l or more, so their length is at most this one.
    factor = np.asarray(np.linalg.cholesky(metric), np.float64)
    gap = box.location[:, None] - box.location[None]
    distance = np.linalg.norm(_whitened(factor, gap[..., None])[..., 0], axis=-1)
    wander = np.sqrt(largest(_conjugate(factor, box.high - unit)))  # (k, l)
    moved = times(wander, box.reach[:, None]) + times(np.diagonal(wander), box.reach)[None]
    apart = (distance + moved) / scoring.threshold
    ratio = largest(_conjugate(factor, box.high)) if scoring.predictive else np.ones_like(apart)
    volume = log_det(box.high)[None] - log_det(box.low)[:, None]
    tail = math.log(ratio_of_constants) + np.log(stretch(ratio, apart))
    return np.asarray(0.5 * (product + dim * tail + volume))


def _paper_gap(box: PredictiveRange, scoring: Any, log_noise: float) -> Array:
    """G_kl of one observation under the score w^2 log N(y; yhat, S): each score has a range."""
    constant = box.low.shape[1] * math.log(2 * math.pi) + log_noise
    highest = 0.5 * np.maximum(-(constant + log_det(box.low)), 0.0)
    product = weight_bounds(scoring)[1]
    lowest = -0.5 * (np.maximum(constant + log_det(box.high), 0.0) + product)
    return np.asarray(highest[:, None] - lowest[None])


def _whitened(factor: Array, columns: Array) -> Array:
    """L_l^-1 columns_kl for every pair (k, l)."""
    factors = np.broadcast_to(factor, (len(columns), *factor.shape))
    return np.asarray(np.linalg.solve(factors, columns))


def _conjugate(factor: Array, covariance: Array) -> Array:
    """L_l^-1 V_k L_l^-T for every pair (k, l)."""
    k, dim = len(covariance), covariance.shape[1]
    half = _whitened(factor, np.broadcast_to(covariance[:, None], (k, k, dim, dim)))
    return _whitened(factor, half.transpose(0, 1, 3, 2))


# ---------------------------------------------------------------------- under contamination


def largest_odds(counts: Array, prior: Array, n: int) -> Array:
    """Return the largest (1 - eps) / eps at each of n observations: all were taken for regular.

    The count of outliers moves towards its prior with the long or the short memory (D18).

    Args:
        counts: (2,) Beta counts of outliers and regular observations.
        prior: (2,) prior counts.
        n: number of observations.
    """
    long, short = (1.0 - 1.0 / memory for memory in rate_memory())
    regular, odds = float(counts[1]), np.empty(n)
    for b in range(n):
        outliers = prior[0] + min(keep**b * (counts[0] - prior[0]) for keep in (long, short))
        rate = min(outliers / (outliers + regular), _MAX_OUTLIER_RATE)
        odds[b] = (1.0 - rate) / rate
        regular = prior[1] + long * (regular - prior[1]) + 1.0
    return odds


def contamination_limits(mean: Array, root: Array, designs: list[Array], odds: Array) -> Limits:
    """Return bounds on evidence and movement of every candidate, observation by observation.

    Args:
        mean: (K, m) of the candidates of all islands before the contamination.
        root: (K, m, m).
        designs: designs of the contaminated observations, in units of the noise.
        odds: (n,) as from `largest_odds`.
    """
    n, k = len(designs), len(mean)
    gain, reach = np.zeros((n + 1, k)), np.zeros((n + 1, k))
    gained = np.broadcast_to(np.eye(mean.shape[1]), root.shape).copy()
    for b, design in enumerate(designs):
        box = PredictiveRange.of(mean, root, design, gained, reach[b])
        spread = np.sqrt(largest(box.high - np.eye(len(design))))
        wander = spread * reach[b]
        apart = np.linalg.norm(box.location[:, None] - box.location[None], axis=2)
        # From the centre of q, a mean of forecasts that may all have moved.
        distance = apart.max(axis=1) + wander.max() + wander
        evidence, product = DensityRatio.of(box, odds[b]).bounds(distance)
        gain[b + 1] = gain[b] + evidence
        reach[b + 1] = reach[b] + np.sqrt(product * push(spread**2, True))
        gained += information(design @ root)
    return Limits(gain, reach)


class DensityRatio(NamedTuple):
    """The largest (1 - eps) f / (eps q) of one observation for each candidate.

    Attributes:
        constant: (K,) log of (1 - eps) / eps times the ratio of the densities at their centres.
        high: (K,) largest eigenvalue of the predictive covariance.
        half: (dof + d) / 2, the power of the tail of q.
    """

    constant: Array
    high: Array
    half: float

    @classmethod
    def of(cls, box: PredictiveRange, odds: float) -> DensityRatio:
        """Return the ratios for a range of predictive distributions.

        Args:
            box: the range.
            odds: (1 - eps) / eps.
        """
        d = box.low.shape[1]
        half = 0.5 * (_OUTLIER_DOF + d)
        ratio = math.lgamma(0.5 * _OUTLIER_DOF) - math.lgamma(half)
        ratio += d * (math.log(OUTLIER_SCALE) + 0.5 * math.log(0.5 * _OUTLIER_DOF))
        return cls(math.log(odds) + ratio - 0.5 * log_det(box.low), largest(box.high), half)

    def bounds(self, distance: Array) -> tuple[Array, Array]:
        """Return sup log p / (eps q) and sup r z^2, (K,) each.

        Args:
            distance: (K,) distance from the centre of q.
        """
        start = self.constant + self.half * np.log1p(distance**2 / _WIDE)
        best = np.maximum(2.0 * self.half - _WIDE / self.high, 0.0)
        evidence = np.logaddexp(0.0, start + self._tail(best) - 0.5 * best)
        tangent = np.maximum(4.0 * self.half - _WIDE / self.high, 0.0)
        squared = np.maximum(4.0 * (start + self._tail(tangent)) - tangent, 0.0)
        for _ in range(30):  # from above towards the largest z^2 at which r can be 1
            outer = np.maximum(2.0 * (start + self._tail(squared)), 0.0)
            squared = np.minimum(squared, outer)
        return evidence, np.maximum(squared, 2.0 * (1.0 + self.half))

    def _tail(self, squared: Array) -> Array:
        """Return the growth of 1 / q with z^2."""
        return np.asarray(self.half * np.log1p(squared * self.high / _WIDE))
