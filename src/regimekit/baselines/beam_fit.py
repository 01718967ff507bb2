"""Chains of the beam sampler, and the posterior from their draws.

Every draw of the posterior is a hidden Markov model of its own. Averages over draws do not need
matching labels: they use the regression of an observation's regime, not the label of the regime.

Arguments of the functions:
    prior: the prior.
    draw: the draw.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.beam_regression import Regression
from regimekit.baselines.beam_sampler import Chain
from regimekit.distributions.forecast import Forecast
from regimekit.results import Regime, Transitions

Array = NDArray[np.float64]


class Data(NamedTuple):
    """The stream: observations y (T,), NaN if missing, and the design F (T, m)."""

    y: Array
    design: Array


class Prior(NamedTuple):
    """Prior of the regressions and of the concentrations.

    Attributes:
        mean: (m,) mu0.
        precision: (m, m) Lambda, in units of the noise: theta ~ N(mu0, v Lambda^-1).
        root: (m, m) with root root' = Lambda^-1.
        known: whether the noise variance is given.
        noise: v if it is given.
        shape: v ~ InverseGamma(shape, scale) if it is not.
        scale: see `shape`.
        concentration: (2, 2) shape and rate of the Gamma priors of alpha and gamma.
    """

    mean: Array
    precision: Array
    root: Array
    known: bool
    noise: float
    shape: float
    scale: float
    concentration: Array


class Sampling(NamedTuple):
    """Sizes of a run of the sampler.

    Attributes:
        iterations: number of sweeps of each chain.
        burn_in: number of sweeps discarded at the start.
        thin: every thin-th of the remaining sweeps is stored.
        chains: number of independent chains.
        initial_regimes: number of random segments that a chain starts with.
        max_regimes: capacity for regimes, including those represented but not in use.
    """

    iterations: int
    burn_in: int
    thin: int
    chains: int
    initial_regimes: int
    max_regimes: int


class Draw(NamedTuple):
    """One point of a chain, with K regimes numbered by first appearance.

    Attributes:
        path: (T,) regime of each observation.
        shares: (K + 1,) beta; the last is the mass of regimes not opened.
        rows: (K + 1, K + 1) transitions; row k + 1 leaves regime k, row 0 is the start.
        coefficients: (K, m).
        noise: (K,) variances.
        alpha: concentration of the rows.
        gamma: concentration of the shares.
    """

    path: NDArray[np.int32]
    shares: Array
    rows: Array
    coefficients: Array
    noise: Array
    alpha: float
    gamma: float

    @property
    def n_regimes(self) -> int:
        """Number of regimes K."""
        return len(self.noise)


class Trace(NamedTuple):
    """Values after every sweep, (chains, iterations) each.

    Attributes:
        log_joint: log p(y, path, alpha, gamma) with all else integrated out, up to a constant.
            alpha and gamma are those that the path was drawn with.
        n_regimes: number of regimes in use.
        alpha: concentration of the rows.
        gamma: concentration of the shares.
        cut: whether `max_regimes` was too small for the sweep.
    """

    log_joint: Array
    n_regimes: NDArray[np.int64]
    alpha: Array
    gamma: Array
    cut: NDArray[np.bool_]


class Posterior(NamedTuple):
    """Result of the chains: a trace, the stored draws, and the draw with the highest log joint."""

    trace: Trace
    draws: list[Draw]
    best: Draw


class Sampler:
    """Run the chains over one stream.

    The generator of a chain depends only on the seed, the length of y and the index of the chain.
    """

    def __init__(self, data: Data, prior: Prior, plan: Sampling) -> None:
        self.data, self.prior, self.plan = data, prior, plan
        shape = (plan.chains, plan.iterations)
        self.trace = Trace(
            np.empty(shape),
            np.empty(shape, np.int64),
            np.empty(shape),
            np.empty(shape),
            np.zeros(shape, np.bool_),
        )
        self.draws: list[Draw] = []
        self.best: Draw | None = None
        self.highest = -np.inf

    def run(self, seed: int, progress: bool = False) -> Posterior:
        """Run all chains, one after the other.

        Args:
            seed: seed of the random draws.
            progress: whether to show a progress bar.

        Returns:
            The trace, the stored draws and the best draw.
        """
        sweeps = _ticks(self.plan.chains * self.plan.iterations, progress)
        chain: Chain | None = None
        for tick in sweeps:
            number, iteration = divmod(tick, self.plan.iterations)
            if iteration == 0:
                rng = np.random.default_rng([seed, len(self.data.y), number])
                chain = begin(self.data, self.prior, self.plan, rng)
            assert chain is not None
            log_joint, cut = chain.sweep()
            self._record(number, iteration, chain, log_joint, cut)
        assert self.best is not None
        return Posterior(self.trace, self.draws, self.best)

    def _record(
        self, number: int, iteration: int, chain: Chain, log_joint: float, cut: bool
    ) -> None:
        alpha, gamma = chain.concentration
        row = (log_joint, chain.size, alpha, gamma, cut)
        for column, value in zip(self.trace, row, strict=True):
            column[number, iteration] = value
        late = iteration - self.plan.burn_in
        if late < 0:
            return
        if late % self.plan.thin == 0:
            self.draws.append(copy_out(chain))
        if self.best is None or log_joint > self.highest:
            self.best, self.highest = copy_out(chain), log_joint


def begin(data: Data, prior: Prior, plan: Sampling, rng: np.random.Generator) -> Chain:
    """Return a chain whose path is a few random segments, one regime each.

    Args:
        data: the stream.
        plan: sizes of the run.
        rng: generator of the draws of the chain.
    """
    length = len(data.y)
    n = min(plan.initial_regimes, length)
    cuts = np.sort(rng.choice(np.arange(1, length), n - 1, replace=False))
    path = np.searchsorted(cuts, np.arange(length), side="right")
    return Chain(data, prior, path, n, plan.max_regimes, rng)


def copy_out(chain: Chain) -> Draw:
    """Return a copy of the present point of a chain."""
    n = chain.size
    return Draw(
        np.asarray(chain.path).astype(np.int32),
        np.exp(np.asarray(chain.log_beta)[: n + 1]),
        np.exp(np.asarray(chain.log_rows)[: n + 1, : n + 1]),
        np.array(chain.coefficients)[:n],
        np.array(chain.noise)[:n],
        chain.concentration[0],
        chain.concentration[1],
    )


def _ticks(n: int, progress: bool) -> Iterable[int]:
    if not progress:
        return range(n)
    from rich.progress import track

    return track(range(n), description="sweeps")


@dataclass(frozen=True, eq=False)
class BeamFit:
    """Posterior of a whole stream, from `BeamIhmm.sample_posterior`.

    Attributes:
        data: the stream with its design.
        prior: the prior.
        trace: (chains, iterations) of log joint, number of regimes, alpha, gamma.
        draws: points of the chains after burn-in.
        best: the point after burn-in with the highest log joint; None for an empty stream.
    """

    data: Data
    prior: Prior
    trace: Trace
    draws: tuple[Draw, ...]
    best: Draw | None

    def __len__(self) -> int:
        return len(self.data.y)

    @property
    def path(self) -> NDArray[np.int64]:
        """(T,) regimes of the best draw, numbered by first appearance."""
        if self.best is None:
            return np.zeros(0, np.int64)
        return self.best.path.astype(np.int64)

    @cached_property
    def n_regimes(self) -> dict[int, float]:
        """Posterior probability of each number of regimes in use."""
        sizes, times = np.unique([draw.n_regimes for draw in self.draws], return_counts=True)
        return {int(n): float(c) / len(self.draws) for n, c in zip(sizes, times, strict=True)}

    @cached_property
    def fitted(self) -> Array:
        """(T,) posterior mean of F_t theta_{s_t}, in-sample."""
        return self._average(lambda draw: level(draw.coefficients, self.data.design, draw.path))

    @property
    def fitted_best(self) -> Array:
        """(T,) F_t theta_{s_t} on the best path with the posterior mean of the coefficients."""
        if self.best is None:
            return np.zeros(0)
        return level(np.asarray(self._regression().mean), self.data.design, self.path)

    @cached_property
    def one_step(self) -> Array:
        """(T,) posterior mean of y_t given the previous regime; the parameters are smoothed."""
        return self._average(lambda draw: one_step(draw, self.data.design, self.prior))

    @cached_property
    def change_probability(self) -> Array:
        """(T,) posterior probability that the regime is not that of the previous observation."""
        return self._average(lambda draw: np.diff(draw.path, prepend=draw.path[:1]) != 0)

    @cached_property
    def path_probability(self) -> Array:
        """(T,) fraction of draws that agree with `path`, after matching regimes by overlap."""
        path = self.path
        return self._average(lambda draw: matched(draw, path) == path)

    def smoothed(self, first: int, stop: int) -> list[Forecast]:
        """Return the smoothed predictive distributions of observations first .. stop - 1."""
        design = self.data.design[first:stop]
        parts = [(draw, draw.path[first:stop]) for draw in self.draws]
        location = np.stack([level(d.coefficients, design, path) for d, path in parts], axis=1)
        spread = np.stack([d.noise[path] for d, path in parts], axis=1)
        equal = np.ones(len(parts))
        return [Forecast.mixture(equal, location[i], spread[i]) for i in range(len(design))]

    def forecasts(self, designs: Iterator[Array]) -> Iterator[Forecast]:
        """Yield the forecasts after the last observation.

        Args:
            designs: features (m,) of each step.
        """
        steps = [regime_shares(draw) for draw in self.draws]
        for phi in designs:
            yield self._mixture([next(step) for step in steps], phi)

    def regimes(self) -> list[Regime]:
        """Return the regimes of the best path with the posterior of their coefficients."""
        if self.best is None:
            return []
        known = self._regression()
        variance = typical_noise(known, self.prior)
        return [self._regime(k, known, variance[k]) for k in range(self.best.n_regimes)]

    def transitions(self) -> Transitions:
        """Return the transition matrix of the best draw."""
        if self.best is None:
            return Transitions([], np.zeros((0, 0)))
        n = self.best.n_regimes
        return Transitions(list(range(n)), self.best.rows[1:, :n].copy())

    def _regression(self) -> Regression:
        """Return the posterior of the regressions given the best path."""
        assert self.best is not None
        regression = Regression(self.data, self.prior)
        regression.learn(self.path, self.best.n_regimes)
        return regression

    def _regime(self, k: int, known: Regression, noise: float) -> Regime:
        times = np.flatnonzero(self.path == k)
        root = np.tril(np.asarray(known.root)[k])
        inverse = np.linalg.inv(root)
        sd = np.sqrt(noise * (inverse**2).sum(axis=0))
        visits = int(known.seen[k])
        return Regime(k, visits, int(times[0]), int(times[-1]), np.array(known.mean)[k], sd)

    def _mixture(self, shares: list[Array], phi: Array) -> Forecast:
        """Return a mixture of the regimes of every draw and one for a regime not opened yet."""
        unseen, dof = prior_spread(self.prior, phi)
        unopened = float(np.sum([share[-1] for share in shares])) if shares else 1.0
        share = np.concatenate([*(share[:-1] for share in shares), np.array([unopened])])
        coefficients = np.vstack([*(draw.coefficients for draw in self.draws), self.prior.mean])
        spread = np.concatenate([*(draw.noise for draw in self.draws), np.array([unseen])])
        degrees = np.full(share.size, np.inf)
        degrees[-1] = dof
        return Forecast.mixture(share, coefficients @ phi, spread, degrees)

    def _average(self, of: Callable[[Draw], NDArray[Any]]) -> Array:
        total = np.zeros(len(self))
        for draw in self.draws:
            total += of(draw)
        return total / max(len(self.draws), 1)


def level(coefficients: Array, design: Array, path: NDArray[Any]) -> Array:
    """Return F_t theta along a path, (T,).

    Args:
        coefficients: (K, m).
        design: (T, m).
        path: (T,) regimes.
    """
    return np.asarray(np.einsum("tm,tm->t", design, coefficients[path]))


def one_step(draw: Draw, design: Array, prior: Prior) -> Array:
    """Return the mean of y_t given the previous regime of a draw, (T,).

    Args:
        design: (T, m).
    """
    expected = draw.rows @ np.vstack([draw.coefficients, prior.mean])
    return level(expected, design, np.concatenate([[0], draw.path[:-1] + 1]))


def matched(draw: Draw, path: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the path of a draw with each regime renamed to that of its largest overlap.

    Args:
        path: (T,) regimes of the best draw.
    """
    overlap = np.zeros((draw.n_regimes, path.max() + 1), np.int64)
    np.add.at(overlap, (draw.path, path), 1)
    return np.asarray(overlap.argmax(axis=1)[draw.path])


def regime_shares(draw: Draw) -> Iterator[Array]:
    """Yield the probability of each regime 1, 2, .. steps ahead; the last entry is a new regime.

    The expected transition row of a new regime is beta.
    """
    matrix = np.vstack([draw.rows[1:], draw.shares])
    share = matrix[draw.path[-1]]
    while True:
        yield share
        share = share @ matrix


def prior_spread(prior: Prior, phi: Array) -> tuple[float, float]:
    """Return squared scale and degrees of freedom of an observation of a new regime.

    Args:
        phi: (m,) features.
    """
    inflation = 1.0 + float(((prior.root.T @ phi) ** 2).sum())
    if prior.known:
        return prior.noise * inflation, np.inf
    return prior.scale / prior.shape * inflation, 2 * prior.shape


def typical_noise(known: Regression, prior: Prior) -> Array:
    """Return the posterior mean of the noise variance of each regime, (K,); infinity if undefined.

    Args:
        known: posterior of the regressions.
    """
    seen, misfit = np.asarray(known.seen), np.asarray(known.misfit)
    if prior.known:
        return np.full(seen.size, prior.noise)
    shape, scale = prior.shape + seen / 2, prior.scale + misfit / 2
    return np.where(shape > 1, scale / np.where(shape > 1, shape - 1, 1), np.inf)
