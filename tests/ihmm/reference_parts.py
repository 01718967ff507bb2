"""The reference's small parts: what it is told, what a particle holds, densities and draws."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
ONE_BY_ONE = 16  # customers seated with a uniform each; after that one uniform per new table


@dataclass
class Settings:
    """What the model is told; names as in the public surface."""

    noise: Array
    prior_mean: Array
    prior_var: Array
    batch: Any = 1
    threshold: float = 2.0
    weight: str = "imq"
    weigh_regimes: bool = True
    particles: int = 6
    ess_threshold: float = 0.5
    max_regimes: int = 5
    prune_pool: int = 2
    paper: frozenset[str] = frozenset()
    resampling: str = "systematic"
    structure_sweeps: int | None = None
    structure_share: float | None = None
    sticky: float = 0.0
    alpha_prior: tuple[float, float] = (1.0, 1.0)
    gamma_prior: tuple[float, float] = (1.0, 1.0)
    lags: tuple[int, ...] = ()
    islands: int = 1
    outlier_rate: float = 0.05
    seed: int = 0

    def longest(self) -> int:
        """Observations of the longest batch: the first batches of islands may be twice as long."""
        largest = self.batch["largest"] if isinstance(self.batch, dict) else self.batch
        return int(largest) * (1 + (self.islands > 1))


class Candidate:
    """What a batch under way would make of a regime."""

    def __init__(self, mean: Array, covariance: Array) -> None:
        self.mean, self.covariance = mean.copy(), covariance.copy()
        self.score = 0.0
        self.weights: list[float] = []


class Regime:
    """Posterior of one regime of one particle, and what the batch under way would make of it."""

    def __init__(self, mean: Array, covariance: Array) -> None:
        self.mean, self.covariance = mean.copy(), covariance.copy()
        self.identity: int | None = None
        self.visits = self.batches = 0
        self.first_seen: int | None = None
        self.last_seen = 0
        self.candidate: Candidate

    def begin(self) -> None:
        """Start the candidate of a new batch."""
        self.candidate = Candidate(self.mean, self.covariance)

    def like(self, other: Regime) -> bool:
        """Whether it is another particle's copy of the same posterior."""
        alike = self.batches == other.batches and np.array_equal(self.mean, other.mean)
        return alike and np.array_equal(self.covariance, other.covariance)

    def apart(self, other: Regime) -> float:
        """Largest distance between coefficients, in posterior standard deviations, beyond chance.

        The largest of m standard normals is about sqrt(2 log m).
        """
        variance = np.diag(self.covariance) + np.diag(other.covariance)
        farthest = float((abs(self.mean - other.mean) / np.sqrt(variance)).max())
        return max(0.0, farthest - math.sqrt(2.0 * math.log(self.mean.size)))

    def within(self, other: Regime, most: float) -> bool:
        """So near in standard deviations: each coefficient, and all of them along any direction.

        The length of m standard normals is about sqrt(m - 1), give or take one.
        """
        gap = self.mean - other.mean
        length = math.sqrt(gap @ np.linalg.solve(self.covariance + other.covariance, gap))
        return self.apart(other) <= most and length - math.sqrt(gap.size - 1) <= most


class Particle:
    """One hypothesis of the path, with everything that follows from it."""

    def __init__(self, n: int, alpha: float, gamma: float) -> None:
        self.log_weight = -math.log(n)
        self.regimes: list[Regime] = []
        self.unopened: Regime
        self.current: int | None = None
        self.counts: list[list[int]] = []
        self.start: list[int] = []
        self.log_beta = [0.0]
        self.alpha, self.gamma = alpha, gamma
        self.log_nu: list[float] = []

    def everyone(self) -> list[Regime]:
        return [*self.regimes, self.unopened]


class Island:
    """Particles whose batches begin and end together."""

    def __init__(self, particles: list[Particle], first: int) -> None:
        self.particles, self.first = particles, first
        self.size = self.position = self.observed = self.commits = 0
        self.ess = float(len(particles))
        self.ended = 0  # size of the batch that ended with the latest observation

    def shares(self) -> list[list[float]]:
        """Posterior probability of each particle's each regime given the batch so far."""
        total = log_sum([p.log_weight + v for p in self.particles for v in p.log_nu])
        return [[math.exp(p.log_weight + v - total) for v in p.log_nu] for p in self.particles]

    def candidate_shares(self) -> list[tuple[float, Regime, Candidate]]:
        """The same for each candidate."""
        return [
            (share, regime, regime.candidate)
            for p, shares in zip(self.particles, self.shares(), strict=True)
            for share, regime in zip(shares, p.everyone(), strict=True)
        ]


@dataclass
class Report:
    """What the reference says after one observation."""

    regime: int
    regime_probability: float
    weight: float
    change_probability: float
    n_regimes: int
    ess: float
    committed: int


@dataclass
class Happened:
    """How often each rare thing happened."""

    births: int = 0
    resamplings: int = 0
    prunings: int = 0
    reconciled: int = 0
    disagreed: int = 0
    parted: int = 0
    followed: int = 0
    faded: int = 0
    sizes: list[int] = field(default_factory=list)


def log_sum(values: list[float]) -> float:
    top = max(values)
    if top == -math.inf:
        return top
    return top + math.log(math.fsum(math.exp(v - top) for v in values))


def squared_length(residual: Array, covariance: Array) -> float:
    return float(residual @ np.linalg.solve(covariance, residual))


def log_normal(residual: Array, covariance: Array) -> float:
    log_det = np.linalg.slogdet(2.0 * math.pi * covariance)[1]
    return -0.5 * float(log_det + squared_length(residual, covariance))


def weight2(kind: str, z2: float, c: float) -> float:
    if kind == "none" or z2 == 0.0:
        return 1.0
    if kind == "imq":
        return 1.0 / (1.0 + z2 / c**2)
    if kind == "huber":
        return min(1.0, c**2 / z2)
    return 1.0 if math.sqrt(z2) <= c else 0.0


def log_student(residual: Array, scale: Array, dof: float) -> float:
    """Log density of a multivariate t."""
    d = residual.size
    log_det = np.linalg.slogdet(dof * math.pi * scale)[1]
    constant = math.lgamma((dof + d) / 2) - math.lgamma(dof / 2) - 0.5 * float(log_det)
    return constant - (dof + d) / 2 * math.log1p(squared_length(residual, scale) / dof)


def kalman(mean: Array, covariance: Array, y: Array, design: Array, noise: Array) -> Any:
    """Condition N(mean, covariance) on y = design theta + N(0, noise), Joseph's form."""
    spread = design @ covariance @ design.T + noise
    gain = covariance @ design.T @ np.linalg.inv(spread)
    keep = np.eye(mean.size) - gain @ design
    return mean + gain @ (y - design @ mean), keep @ covariance @ keep.T + gain @ noise @ gain.T


def log_stick_rest(gamma: float, rng: np.random.Generator) -> float:
    """log (1 - v), v ~ Beta(1, gamma): by inversion 1 - v = U^(1 / gamma)."""
    return math.log(1.0 - rng.random()) / gamma


def draw_tables(n: int, concentration: float, kappa: float, rng: np.random.Generator) -> int:
    """Tables of n customers that beta explains: the j + 1st opens one w.p. a / (a + kappa + j)."""
    if n == 0:
        return 0
    tables = seated = int(kappa == 0.0)
    while seated < min(n, ONE_BY_ONE):
        tables += rng.random() * (concentration + kappa + seated) < concentration
        seated += 1
    while seated < n and concentration > 0.0:
        log_u, log_none = math.log(1.0 - rng.random()), 0.0
        while seated < n:
            log_none += math.log(kappa + seated) - math.log(concentration + kappa + seated)
            seated += 1
            if log_none <= log_u:
                tables += 1
                break
    return int(tables)


def draw_log_gamma(shape: float, rng: np.random.Generator) -> float:
    """Log of Gamma(shape, 1); for shape < 1 as Gamma(shape + 1, 1) U^(1 / shape)."""
    if shape == 0.0:
        return -math.inf
    if shape >= 1.0:
        return math.log(rng.gamma(shape, 1.0))
    boosted = math.log(rng.gamma(shape + 1.0, 1.0))
    return boosted + math.log(1.0 - rng.random()) / shape


def draw_log_beta(a: float, b: float, rng: np.random.Generator) -> float:
    """Log of Beta(a, b), as X / (X + Y) of two Gamma draws."""
    x, y = draw_log_gamma(a, rng), draw_log_gamma(b, rng)
    return x - float(np.logaddexp(x, y))


def draw_choice(log_values: list[float], rng: np.random.Generator) -> int:
    total = log_sum(log_values)
    shares = [math.exp(v - total) for v in log_values]
    u, cumulative = rng.random(), 0.0
    for k, share in enumerate(shares):
        cumulative += share
        if u < cumulative:
            return k
    return max(k for k, share in enumerate(shares) if share > 0.0)


def draw_parents(weights: Array, scheme: str, rng: np.random.Generator) -> list[int]:
    n = weights.size
    if scheme == "systematic":
        points = (np.arange(n) + rng.random()) / n
    elif scheme == "stratified":
        points = (np.arange(n) + rng.random(n)) / n
    else:
        points = np.sort(rng.random(n))
    found = np.searchsorted(np.cumsum(weights), points, side="right")
    return [int(min(parent, n - 1)) for parent in found]


def poisson_gamma(k: int, a: float, b: float, size: int) -> float:
    """P(k events) of Poisson(rate * size), rate ~ Gamma(a, b)."""
    log_p = math.lgamma(a + k) - math.lgamma(a) - math.lgamma(k + 1)
    return math.exp(log_p + a * math.log(b / (b + size)) + k * math.log(size / (b + size)))
