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

from regimekit._numba import kernel
from regimekit.core.exceptions import RegimekitError, SnapshotError, positive, whole
from regimekit.core.logspace import logsumexp
from regimekit.ihmm.emissions.base import (
    Array,
    Emission,
    EmissionSpec,
    Rows,
    Sample,
    Shape,
    View,
    apart,
    begin,
    carry,
    close,
    draw_prior,
    learn,
    look,
    rest,
)
from regimekit.ihmm.emissions.particle_cloud import UNEVEN, carriers, even_cloud, redraw
from regimekit.ihmm.emissions.volatility import (
    SMALLEST,
    Correction,
    Impression,
    average,
    correction,
    from_coordinates,
    impress,
    long_run,
    move_on,
    summary,
    to_coordinates,
)
from regimekit.ihmm.weights import (
    BELIEVED,
    BROAD_SCALE,
    CONTAMINATION,
    DISBELIEVED,
    LONGEST,
    NONE,
    Broad,
    Scoring,
)


class GarchRows(NamedTuple):
    """The clouds of `cap` regimes.

    coefficients: (cap, J, 3), omega, a, b of each point. variance: (cap, J), of the next
    observation. log_weight: (cap, J), normalised. redraws: (cap,), how often points were redrawn.
    """

    coefficients: np.ndarray
    variance: np.ndarray
    log_weight: np.ndarray
    redraws: np.ndarray


class GarchWork(NamedTuple):
    """The clouds of the candidates (g, k): as GarchRows, with (G, K) in place of (cap,)."""

    coefficients: np.ndarray
    variance: np.ndarray
    log_weight: np.ndarray
    redraws: np.ndarray


class GarchFacts(NamedTuple):
    """correction: of the weight. centre, bandwidth, spread: of the cloud and of its prior."""

    correction: Correction
    centre: float
    bandwidth: float
    spread: np.ndarray


@dataclass(frozen=True)
class GarchSpec(EmissionSpec):
    """Settings of the GARCH emission; `regimekit.garch_ihmm` documents them."""

    variance_prior: Any = (1.0, 1.5)
    persistence_prior: Any = (0.9, 0.5)
    reaction_prior: Any = (0.1, 0.5)
    cloud: int = 192
    bandwidth: float = 0.7

    def build(self, shape: Shape, scoring: Scoring) -> Garch:
        return Garch(shape, self, scoring)

    def dim_hint(self) -> int | None:
        return None  # `build` says more clearly what is wrong with d > 1

    def check(self) -> None:
        whole("cloud", self.cloud, least=16)
        if not 0 < positive("bandwidth", self.bandwidth) < 1:
            raise RegimekitError(f"bandwidth must lie between 0 and 1, got {self.bandwidth!r}.")
        self.coordinates()

    def coordinates(self) -> tuple[Array, Array]:
        """Prior centre and spread of (log long-run variance, logit(a + b), logit(a / (a + b)))."""
        level, level_sd = _read_pair("variance_prior", self.variance_prior)
        if not 1e-200 < level < 1e200:
            raise RegimekitError(
                f"variance_prior must have a median a float can hold, got {level}."
            )
        pairs = [(math.log(level), level_sd)]
        for name in ("persistence_prior", "reaction_prior"):
            median, sd = _read_pair(name, getattr(self, name))
            if median >= 1:
                raise RegimekitError(f"{name} must have its median between 0 and 1, got {median}.")
            pairs.append((float(special.logit(median)), sd))
        centre, spread = np.array(pairs).T
        return centre, spread


class Garch(Emission):
    """Emission y ~ N(0, sigma_t^2) with the regime's own GARCH(1, 1) recursion.

    Args:
        shape: of a single series; its features are not used.
        spec: priors, size of the cloud, bandwidth.
        scoring: weight and deviations.
    """

    timeless = False  # every row's variance moves on with the series

    def __init__(self, shape: Shape, spec: GarchSpec, scoring: Scoring) -> None:
        if shape.dim != 1:
            raise RegimekitError(
                f"y has {shape.dim} coordinates; a GARCH regime describes one series. "
                "Use one model per series."
            )
        self.shape, self.scoring = shape, scoring
        self.size = spec.cloud
        centre, self.spread = spec.coordinates()
        self.centre, self.bandwidth = float(centre[0]), float(spec.bandwidth)
        self.facts = GarchFacts(correction(scoring), self.centre, self.bandwidth, self.spread)
        self.prior = np.empty((self.size, 4))
        self.prior[:, :3] = centre + self.spread * even_cloud(self.size, 3)
        self.prior[:, 3] = self.prior[:, 0]  # a regime that has seen nothing has settled

    def blank(self, capacity: int) -> GarchRows:
        return GarchRows(
            np.zeros((capacity, self.size, 3)),
            np.ones((capacity, self.size)),
            np.full((capacity, self.size), -math.log(self.size)),
            np.zeros(capacity, np.int64),
        )

    def write_prior(self, rows: Rows, row: int) -> None:
        self._write(rows, row, self.prior)

    def work(self, islands: int, candidates: int, longest: int) -> GarchWork:
        at = (islands, candidates)
        return GarchWork(
            np.zeros((*at, self.size, 3)),
            np.ones((*at, self.size)),
            np.zeros((*at, self.size)),
            np.zeros(at, np.int64),
        )

    def _write(self, rows: Rows, row: int, points: Array) -> None:
        clouds = cast(GarchRows, rows)
        from_coordinates(points, self.centre, clouds.coefficients[row], clouds.variance[row])
        clouds.log_weight[row] = -math.log(self.size)
        clouds.redraws[row] = 0

    def design(self, features: Array) -> Array:
        return features.reshape(1, -1)

    def designs(self, features: Array) -> Array:
        return features.reshape(len(features), 1, -1)

    def most_steps(self, longest: int) -> int:
        return 1 << 60  # redraws of a cloud

    def check_rows(self, rows: Rows, live: NDArray[np.int64]) -> None:
        coefficients, variance = rows.coefficients[live], rows.variance[live]
        total = coefficients[..., 1] + coefficients[..., 2]
        sound = (coefficients > 0).all() and (total < 1).all() and (variance > 0).all()
        if not sound or (rows.redraws[live] < 0).any():
            raise SnapshotError("The snapshot holds a volatility that no regime can have.")

    def noise_covariance(self) -> Array:
        return np.zeros((1, 1))  # no noise apart from the row's own variance, which `rest` moves

    def outlier_scale(self) -> Array:
        return np.full((1, 1), BROAD_SCALE**2 * math.exp(self.centre))

    def coefficients(self, rows: Rows, row: int) -> tuple[Array, Array]:
        """Posterior mean and standard deviation of (omega, a, b)."""
        clouds = cast(GarchRows, rows)
        share = np.exp(clouds.log_weight[row])
        mean = share @ clouds.coefficients[row]
        return mean, np.sqrt(share @ (clouds.coefficients[row] - mean) ** 2)


@begin.of(GarchRows)
@kernel
def _begin(rows: GarchRows, work: GarchWork, g: int, k: int, row: int) -> None:
    work.coefficients[g, k] = rows.coefficients[row]
    work.variance[g, k] = rows.variance[row]
    work.log_weight[g, k] = rows.log_weight[row]
    work.redraws[g, k] = rows.redraws[row]


@look.of(GarchRows)
@kernel
def _look(
    rows: GarchRows,
    work: GarchWork,
    facts: GarchFacts,
    g: int,
    k: int,
    row: int,
    sample: Sample,
    out: View,
) -> None:
    """A Student t per row, with the variance and the kurtosis of the cloud's mixture."""
    out.location[g, k] = 0.0
    out.start_location[g, k] = 0.0
    out.spread[g, k, 0, 0], out.dof[g, k] = summary(work.variance[g, k], work.log_weight[g, k])
    now = work.variance[g, k]  # the variance moves on; what was learnt of the points does not
    out.start_spread[g, k, 0, 0], out.start_dof[g, k] = summary(now, rows.log_weight[row])


@learn.of(GarchRows)
@kernel
def _learn(
    rows: GarchRows,
    work: GarchWork,
    facts: GarchFacts,
    g: int,
    k: int,
    row: int,
    sample: Sample,
    view: View,
    scoring: Scoring,
    broad: Broad,
    fresh: bool,
    belief: int,
) -> tuple[float, float]:
    """Score, reweigh the points, move the variances on."""
    n = work.variance.shape[2]
    y = min(max(sample.y[0], -LONGEST), LONGEST)
    seen = Impression(np.empty(n), np.empty(n), np.empty(n), np.empty(n))
    held = work.log_weight[g, k]
    impress(work.variance[g, k], y, scoring, broad, facts.correction, seen)
    if belief == DISBELIEVED:
        seen.believed[:] = 1.0
        move_on(work.coefficients[g, k], work.variance[g, k], seen.believed)
        return broad.log_rate + broad.log_density, 0.0
    weight = average(held, seen.w2) if scoring.kind != NONE else 1.0
    if (
        scoring.kind != CONTAMINATION and not scoring.unit_free
    ):  # D1: the paper's w^2 log N, one w per row
        seen.cautious[:] = weight * seen.plain
    if belief == BELIEVED:
        seen.cautious[:] = seen.plain + broad.log_rest
    learnt = seen.cautious if not fresh or scoring.weigh_births else seen.plain  # D3
    scored = seen.cautious if scoring.weigh_regimes else seen.plain
    prior = held if scoring.sequential else rows.log_weight[row]  # D4
    score = logsumexp(prior + scored, n)
    held += learnt
    held -= logsumexp(held, n)
    move_on(work.coefficients[g, k], work.variance[g, k], seen.believed)
    return score, 1.0 if belief == BELIEVED else weight


@rest.of(GarchRows)
@kernel
def _rest(rows: GarchRows, work: GarchWork, g: int, k: int) -> None:
    """E y^2 = sigma^2 drives the variances where nothing was observed."""
    move_on(work.coefficients[g, k], work.variance[g, k], np.ones(work.variance.shape[2]))


@carry.of(GarchRows)
@kernel
def _carry(rows: GarchRows, work: GarchWork, facts: GarchFacts, g: int, k: int, row: int) -> None:
    """The variance moves on in the row, before any of the candidate's points moves."""
    rows.variance[row] = work.variance[g, k]


@close.of(GarchRows)
@kernel
def _close(
    rows: GarchRows, work: GarchWork, facts: GarchFacts, g: int, k: int, row: int, into: int
) -> None:
    """The candidate's cloud, its points redrawn where their weights are uneven."""
    n = work.variance.shape[2]
    rows.coefficients[into] = work.coefficients[g, k]
    rows.variance[into] = work.variance[g, k]
    rows.log_weight[into] = work.log_weight[g, k]
    rows.redraws[into] = work.redraws[g, k]
    if carriers(rows.log_weight[into], 1.0) >= UNEVEN * n:
        return
    before, after = np.empty((n, 4)), np.empty((n, 4))
    to_coordinates(rows.coefficients[into], rows.variance[into], before)
    redraw(before, rows.log_weight[into], rows.redraws[into], facts.bandwidth, after)
    from_coordinates(after, facts.centre, rows.coefficients[into], rows.variance[into])
    rows.log_weight[into] = -math.log(n)
    rows.redraws[into] += 1


@draw_prior.of(GarchRows)
@kernel
def _draw_prior(
    rows: GarchRows, facts: GarchFacts, prior: int, row: int, rng: np.random.Generator
) -> None:
    """The whole cloud moved by one draw from the prior."""
    rows.log_weight[row] = rows.log_weight[prior]
    rows.redraws[row] = rows.redraws[prior]
    n = rows.variance.shape[1]
    points = np.empty((n, 4))
    to_coordinates(rows.coefficients[prior], rows.variance[prior], points)
    for a in range(3):
        shift = facts.spread[a] * rng.standard_normal()
        points[:, a] += shift
        if a == 0:
            points[:, 3] += shift
    from_coordinates(points, facts.centre, rows.coefficients[row], rows.variance[row])


@apart.of(GarchRows)
@kernel
def _apart(rows: GarchRows, a: int, b: int) -> float:
    """Of the long-run variance, in logs."""
    mean_a, var_a = long_run(rows.coefficients[a], rows.log_weight[a])
    mean_b, var_b = long_run(rows.coefficients[b], rows.log_weight[b])
    return abs(mean_a - mean_b) / math.sqrt(var_a + var_b + SMALLEST)


def _read_pair(argument: str, value: Any) -> tuple[float, float]:
    """(median, spread), both finite and above zero."""
    try:
        median, spread = value
    except (TypeError, ValueError):
        raise RegimekitError(f"{argument} must be (median, spread), got {value!r}.") from None
    pair = positive(argument, median), positive(argument, spread)
    if math.isinf(max(pair)):
        raise RegimekitError(f"{argument} must be finite, got {value!r}.")
    return pair
