"""GARCH(1, 1) emission: regimes of volatility, learnt by a cloud of parameter points per row.

    y_t = sigma_t e_t,   e_t ~ N(0, 1),   sigma_t^2 = omega + a y_{t-1}^2 + b sigma_{t-1}^2

The coefficients have no conjugate prior, so a row carries J weighted points (omega, a, b), each
with the variance sigma^2 of the next observation under it. An observation multiplies a point's
weight by N(y; 0, sigma^2); at the end of a batch a cloud whose weights have become uneven is
redrawn and smoothed (`cloud.redraw`) in the coordinates

    x = (log omega / (1 - a - b), logit(a + b), logit(a / (a + b)), log sigma^2),

so a + b < 1 always, and a variance moves together with the coefficients that produced it.

Hidden variance. In the switching model the variance depends on the whole path of regimes. As in
Haas, Mittnik and Paolella (2004) every regime runs its own recursion, driven by the common
y_{t-1}, whether it was chosen or not; `carry` takes those variances (not the weights) back to
the row at the end of every batch, and `rest` lets them move on when nothing was observed, with
E y^2 = sigma^2. An unopened regime runs along too, so a regime is born with a variance that has
followed the series.

Sharing. Particles share rows because a row's successor is a function of the row and the batch.
Nothing here may therefore draw from the engine's generator: a redraw takes its numbers from a
low-discrepancy sequence, at a place that the row's own count of redraws decides. Equal rows given
equal batches stay equal to the last bit, whoever owns them; what happens to a row that was not
chosen (`carry`) does not depend on who holds it; and a snapshot needs no other random state.

Outliers. With a weight w(z), z = y / sigma, a point is scored by log N(y; 0, kappa sigma^2 / w^2)
(D1): as |y| grows every point and every row tends to the same score, so an extreme value says
nothing about regime or coefficients. Left alone, w would make every variance look too small;
kappa restores E[d score / d sigma^2] = 0 for Gaussian e. The recursion is driven by
lambda w^2 y^2 in place of y^2, lambda such that its mean is sigma^2: bounded by a multiple of
sigma^2, so one spike cannot blow up the variance. Under `mahalanobis` points score as under
`huber` (beyond c their score is flat already) and a value beyond c drives like a missing one.
Predictive and noise variance are one here, so D2 has nothing to choose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from scipy import special

from holdfast._numba import kernel
from holdfast.emissions.base import (
    Array,
    Batch,
    Components,
    Emission,
    EmissionSpec,
    Rows,
    Shape,
)
from holdfast.emissions.cloud import UNEVEN, carriers, even_cloud, redraw
from holdfast.errors import HoldfastError, positive, whole
from holdfast.logspace import logsumexp
from holdfast.weights import (
    IMQ,
    LONGEST,
    MAHALANOBIS,
    NONE,
    Caution,
    log_weight2,
    update_weight2,
)

_SMALLEST, _LARGEST = 1e-300, 1e300  # variances
_LEAST_SCORE = 1e-6  # kappa of a threshold so small that nothing is inside it
_REACH = 60.0  # a log long-run variance stays this near the prior's
_LOGIT_REACH = 12.0  # a + b up to 1 - 6e-6


class GarchRows(NamedTuple):
    """The clouds of `cap` regimes.

    coefficients: (cap, J, 3), omega, a, b of each point. variance: (cap, J), of the next
    observation. log_weight: (cap, J), normalised. redraws: (cap,), how often points were redrawn.
    """

    coefficients: np.ndarray
    variance: np.ndarray
    log_weight: np.ndarray
    redraws: np.ndarray


class Correction(NamedTuple):
    """What the weight takes from a Gaussian's spread: kappa of the score, lambda of the driver."""

    score: float
    driver: float


class Glance(NamedTuple):
    """One observation as each point of a cloud sees it, (J,) each."""

    plain: np.ndarray
    cautious: np.ndarray
    w2: np.ndarray
    believed: np.ndarray


@dataclass(frozen=True)
class GarchSpec(EmissionSpec):
    """Settings of the GARCH emission; `holdfast.garch_ihmm` documents them."""

    variance_prior: Any = (1.0, 1.5)
    persistence_prior: Any = (0.9, 0.5)
    reaction_prior: Any = (0.1, 0.5)
    cloud: int = 192
    bandwidth: float = 0.7

    def build(self, shape: Shape, caution: Caution) -> Garch:
        return Garch(shape, self, caution)

    def dim_hint(self) -> int | None:
        return None  # `build` says more clearly what is wrong with d > 1

    def check(self) -> None:
        whole("cloud", self.cloud, least=16)
        if not 0 < positive("bandwidth", self.bandwidth) < 1:
            raise HoldfastError(f"bandwidth must lie between 0 and 1, got {self.bandwidth!r}.")
        self.coordinates()

    def coordinates(self) -> tuple[Array, Array]:
        """Prior centre and spread of (log long-run variance, logit(a + b), logit(a / (a + b)))."""
        level, level_sd = _read_pair("variance_prior", self.variance_prior)
        if not 1e-200 < level < 1e200:
            raise HoldfastError(f"variance_prior must have a median a float can hold, got {level}.")
        pairs = [(math.log(level), level_sd)]
        for name in ("persistence_prior", "reaction_prior"):
            median, sd = _read_pair(name, getattr(self, name))
            if median >= 1:
                raise HoldfastError(f"{name} must have its median between 0 and 1, got {median}.")
            pairs.append((float(special.logit(median)), sd))
        centre, spread = np.array(pairs).T
        return centre, spread


class Garch(Emission):
    """Emission y ~ N(0, sigma_t^2) with the regime's own GARCH(1, 1) recursion.

    Args:
        shape: of a single series; its features are not used.
        spec: priors, size of the cloud, bandwidth.
        caution: weight and deviations.
    """

    def __init__(self, shape: Shape, spec: GarchSpec, caution: Caution) -> None:
        if shape.dim != 1:
            raise HoldfastError(
                f"y has {shape.dim} coordinates; a GARCH regime describes one series. "
                "Use one model per series."
            )
        self.shape, self.caution = shape, caution
        self.size = spec.cloud
        centre, self.spread = spec.coordinates()
        self.centre, self.bandwidth = float(centre[0]), float(spec.bandwidth)
        self.correction = correction(caution)
        self.prior = np.empty((self.size, 4))
        self.prior[:, :3] = centre + self.spread * even_cloud(self.size, 3)
        self.prior[:, 3] = self.prior[:, 0]  # a regime that has seen nothing has settled

    def blank(self, capacity: int) -> GarchRows:
        return GarchRows(
            np.zeros((capacity, self.size, 3)), np.ones((capacity, self.size)),
            np.full((capacity, self.size), -math.log(self.size)), np.zeros(capacity, np.int64),
        )  # fmt: skip

    def write_prior(self, rows: Rows, row: int) -> None:
        self._write(rows, row, self.prior)

    def draw_prior(self, rows: Rows, row: int, rng: np.random.Generator) -> None:
        shift = self.spread * rng.standard_normal(3)
        points = self.prior.copy()
        points[:, :3] += shift
        points[:, 3] += shift[0]
        self._write(rows, row, points)

    def _write(self, rows: Rows, row: int, points: Array) -> None:
        clouds = cast(GarchRows, rows)
        from_coordinates(points, self.centre, clouds.coefficients[row], clouds.variance[row])
        clouds.log_weight[row] = -math.log(self.size)
        clouds.redraws[row] = 0

    def design(self, features: Array) -> Array:
        return features.reshape(1, -1)

    def advance(self, running: Rows, pool: Rows, batch: Batch, y: Array, design: Array) -> None:
        _advance(running, pool, batch, y[0], self.caution, self.correction)

    def rest(self, rows: Rows) -> None:
        """What a step without an observation does to every row: E y^2 = sigma^2 drives it."""
        clouds = cast(GarchRows, rows)
        omega, a, b = np.moveaxis(clouds.coefficients, -1, 0)
        clouds.variance[:] = np.clip(omega + (a + b) * clouds.variance, _SMALLEST, _LARGEST)

    def carry(self, running: Rows, pool: Rows, live: NDArray[np.int64]) -> None:
        """Variances move on in every row; the candidates' points are redrawn where uneven."""
        _carry(running, pool, live, self.centre, self.bandwidth)

    def predictive(self, rows: Rows, which: NDArray[np.int64], design: Array) -> Components:
        """A Student t per row, with the variance and the kurtosis of the cloud's mixture."""
        spread, dof = np.empty(which.size), np.empty(which.size)
        _predictive(rows, which, spread, dof)
        return Components(np.zeros((which.size, 1)), spread.reshape(-1, 1, 1), dof)

    def noise_covariance(self) -> Array:
        return np.zeros((1, 1))  # no noise apart from the row's own variance, which `rest` moves

    def coefficients(self, rows: Rows, row: int) -> tuple[Array, Array]:
        """Posterior mean and standard deviation of (omega, a, b)."""
        clouds = cast(GarchRows, rows)
        share = np.exp(clouds.log_weight[row])
        mean = share @ clouds.coefficients[row]
        return mean, np.sqrt(share @ (clouds.coefficients[row] - mean) ** 2)


def correction(caution: Caution) -> Correction:
    """kappa and lambda of a weight under Gaussian noise.

    With V = sigma^2 / w^2 and e = d log V / d log sigma^2 (w^2 for imq, 1 inside c and 0 beyond
    for the others), the score's expected slope is zero when kappa = E[e w^2 z^2] / E[e].
    """
    z = (np.arange(4000) + 0.5) * 0.003
    chance = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    kind, c = caution.kind, caution.threshold
    w2 = np.exp([log_weight2(kind, length, c) for length in z])
    slope = chance * (w2 if kind == IMQ else w2 == 1.0)
    said = chance * [update_weight2(kind, length, c) for length in z]
    score = slope @ (w2 * z**2) / max(slope.sum(), _SMALLEST)
    driver = chance[said > 0].sum() / max(said @ z**2, _SMALLEST)
    return Correction(max(float(score), _LEAST_SCORE), float(driver))


@kernel
def look(
    variance: np.ndarray, y: float, caution: Caution, correction: Correction, out: Glance
) -> None:
    """What every point makes of y: its log likelihoods, w^2, and the share of y^2 it believes."""
    half_log = 0.5 * math.log(2.0 * math.pi)
    stretch = 0.5 * math.log(correction.score)
    for j in range(variance.size):
        z = min(abs(y) / math.sqrt(variance[j]), LONGEST)
        log_w2 = log_weight2(caution.kind, z, caution.threshold)
        w2 = math.exp(log_w2) if log_w2 < 0.0 else 1.0
        base = -half_log - 0.5 * math.log(variance[j])
        out.plain[j] = base - 0.5 * z * z
        out.cautious[j] = base - stretch + 0.5 * (log_w2 - w2 * z * z / correction.score)
        out.believed[j] = correction.driver * w2 * z * z
        out.w2[j] = w2
        if caution.kind == MAHALANOBIS and z > caution.threshold:
            out.w2[j], out.believed[j] = 0.0, 1.0


@kernel
def _advance(
    running: GarchRows, pool: GarchRows, batch: Batch,
    y: float, caution: Caution, correction: Correction,
) -> None:  # fmt: skip
    """One observation for every candidate: score, reweigh the points, move the variances on."""
    n = running.variance.shape[1]
    y = min(max(y, -LONGEST), LONGEST)
    seen = Glance(np.empty(n), np.empty(n), np.empty(n), np.empty(n))
    for k in range(batch.live.size):
        held = running.log_weight[k]
        look(running.variance[k], y, caution, correction, seen)
        batch.weight[k] = average(held, seen.w2) if caution.kind != NONE else 1.0
        if not caution.unit_free:  # D1: the paper's w^2 log N, one w per row
            seen.cautious[:] = batch.weight[k] * seen.plain
        weighed = not batch.fresh[k] or caution.weigh_births  # D3
        learnt = seen.cautious if weighed else seen.plain
        scored = seen.cautious if caution.weigh_regimes else seen.plain
        prior = held if caution.sequential else pool.log_weight[batch.live[k]]  # D4
        batch.score[k] += logsumexp(prior + scored, n)
        held += learnt
        held -= logsumexp(held, n)
        move_on(running.coefficients[k], running.variance[k], seen.believed)


@kernel
def average(log_weight: np.ndarray, values: np.ndarray) -> float:
    """Mean of values in (0, 1] over the cloud."""
    total = 0.0
    for j in range(values.size):
        total += math.exp(log_weight[j]) * values[j]
    return min(total, 1.0)


@kernel
def move_on(coefficients: np.ndarray, variance: np.ndarray, believed: np.ndarray) -> None:
    """The recursion of every point, in place; `believed` is y^2 / sigma^2 as far as trusted."""
    for j in range(variance.size):
        growth = coefficients[j, 1] * believed[j] + coefficients[j, 2]
        ahead = coefficients[j, 0] + growth * variance[j]
        variance[j] = min(max(ahead, _SMALLEST), _LARGEST)


@kernel
def _carry(
    running: GarchRows, pool: GarchRows, live: np.ndarray, centre: float, bandwidth: float
) -> None:
    """Variances back to every row, before any point moves; then redraw the uneven candidates."""
    n = running.variance.shape[1]
    before, after = np.empty((n, 4)), np.empty((n, 4))
    for k in range(live.size):
        pool.variance[live[k]] = running.variance[k]
        log_weight = running.log_weight[k]
        if carriers(log_weight, 1.0) >= UNEVEN * n:
            continue
        to_coordinates(running.coefficients[k], running.variance[k], before)
        redraw(before, log_weight, running.redraws[k], bandwidth, after)
        from_coordinates(after, centre, running.coefficients[k], running.variance[k])
        log_weight[:] = -math.log(n)
        running.redraws[k] += 1


@kernel
def to_coordinates(coefficients: np.ndarray, variance: np.ndarray, out_points: np.ndarray) -> None:
    """x of every point (module docstring)."""
    for j in range(variance.size):
        omega, a, b = coefficients[j, 0], coefficients[j, 1], coefficients[j, 2]
        out_points[j, 0] = math.log(omega / (1.0 - a - b))
        out_points[j, 1] = math.log((a + b) / (1.0 - a - b))
        out_points[j, 2] = math.log(a / b)
        out_points[j, 3] = math.log(variance[j])


@kernel
def from_coordinates(
    points: np.ndarray, centre: float, out_coefficients: np.ndarray, out_variance: np.ndarray
) -> None:
    """The points with coordinates x, held where floats and a + b < 1 are safe."""
    for j in range(out_variance.size):
        level = math.exp(centre + min(max(points[j, 0] - centre, -_REACH), _REACH))
        lost = 1.0 / (1.0 + math.exp(min(max(points[j, 1], -_LOGIT_REACH), _LOGIT_REACH)))
        reaction = 1.0 / (1.0 + math.exp(-min(max(points[j, 2], -_LOGIT_REACH), _LOGIT_REACH)))
        out_coefficients[j, 0] = level * lost
        out_coefficients[j, 1] = (1.0 - lost) * reaction
        out_coefficients[j, 2] = (1.0 - lost) * (1.0 - reaction)
        out_variance[j] = math.exp(min(max(points[j, 3], -690.0), 690.0))


@kernel
def _predictive(
    rows: GarchRows, which: np.ndarray, out_spread: np.ndarray, out_dof: np.ndarray
) -> None:
    """t with the mixture's moments: kurtosis 3 E[s^2] / E[s]^2 = 3 (dof - 2) / (dof - 4)."""
    for k in range(which.size):
        variance, log_weight = rows.variance[which[k]], rows.log_weight[which[k]]
        mean, squares = 0.0, 0.0
        for j in range(variance.size):
            mean += math.exp(log_weight[j]) * variance[j]
        for j in range(variance.size):
            squares += math.exp(log_weight[j]) * (variance[j] / mean - 1.0) ** 2
        out_dof[k] = 4.0 + 2.0 / squares if squares > 1e-6 else np.inf
        out_spread[k] = mean * (1.0 - 2.0 / out_dof[k])


def _read_pair(argument: str, value: Any) -> tuple[float, float]:
    """(median, spread), both finite and above zero."""
    try:
        median, spread = value
    except (TypeError, ValueError):
        raise HoldfastError(f"{argument} must be (median, spread), got {value!r}.") from None
    pair = positive(argument, median), positive(argument, spread)
    if math.isinf(max(pair)):
        raise HoldfastError(f"{argument} must be finite, got {value!r}.")
    return pair
