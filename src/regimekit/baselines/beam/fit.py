"""What a fit of the offline infinite HMM knows: paths, regimes, fitted values, forecasts.

Every draw of the posterior is a hidden Markov model of its own. Averages over draws need no
labels to agree: of an observation they use its regime's regression, not the regime's number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.beam.regression import Data, Emissions, Prior, learn
from regimekit.baselines.beam.sampler import Draw, Trace
from regimekit.distributions.forecast import Forecast
from regimekit.results import Regime, Transitions

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class BeamFit:
    """Posterior of a whole stream, from `BeamIhmm.fit`.

    Attributes:
        data: the stream as the sampler saw it.
        prior: what was believed before.
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
        """(T,) posterior mean of F_t theta_{s_t}: in-sample, each y_t has helped to fit itself."""
        return self._average(lambda draw: level(draw.coefficients, self.data.design, draw.path))

    @property
    def fitted_best(self) -> Array:
        """(T,) the same under the best path, its coefficients at their posterior mean."""
        if self.best is None:
            return np.zeros(0)
        mean = learn(self.path, self.best.n_regimes, self.data, self.prior).mean
        return level(mean, self.data.design, self.path)

    @cached_property
    def one_step(self) -> Array:
        """(T,) posterior mean of y_t given the regime before it; parameters saw the future."""
        return self._average(lambda draw: one_step(draw, self.data.design, self.prior))

    @cached_property
    def change_probability(self) -> Array:
        """(T,) posterior probability that an observation's regime is not its predecessor's."""

        return self._average(lambda draw: np.diff(draw.path, prepend=draw.path[:1]) != 0)

    @cached_property
    def path_probability(self) -> Array:
        """(T,) share of draws that agree with `path`, regimes matched where most overlap."""
        path = self.path
        return self._average(lambda draw: matched(draw, path) == path)

    def smoothed(self, first: int, stop: int) -> list[Forecast]:
        """Predictive distributions of observations first .. stop - 1, which have seen all of y."""
        design = self.data.design[first:stop]
        parts = [(draw, draw.path[first:stop]) for draw in self.draws]
        location = np.stack([level(d.coefficients, design, path) for d, path in parts], axis=1)
        spread = np.stack([d.noise[path] for d, path in parts], axis=1)
        equal = np.ones(len(parts))
        return [Forecast.mixture(equal, location[i], spread[i]) for i in range(len(design))]

    def forecasts(self, designs: Iterator[Array]) -> Iterator[Forecast]:
        """Of the observations after the last, one for each row of features that is asked for."""
        steps = [regime_shares(draw) for draw in self.draws]
        for phi in designs:
            yield self._mixture([next(step) for step in steps], phi)

    def regimes(self) -> list[Regime]:
        """Regimes of the best path with the posterior of their coefficients given it."""
        if self.best is None:
            return []
        known = learn(self.path, self.best.n_regimes, self.data, self.prior)
        spread = typical_noise(known, self.prior)
        return [self._regime(k, known, spread[k]) for k in range(self.best.n_regimes)]

    def transitions(self) -> Transitions:
        """Transition matrix of the best draw."""
        if self.best is None:
            return Transitions([], np.zeros((0, 0)))
        n = self.best.n_regimes
        return Transitions(list(range(n)), self.best.rows[1:, :n].copy())

    def _regime(self, k: int, known: Emissions, noise: float) -> Regime:
        times = np.flatnonzero(self.path == k)
        root = np.tril(known.root[k])
        inverse = np.linalg.inv(root)
        sd = np.sqrt(noise * (inverse**2).sum(axis=0))
        visits = int(known.seen[k])
        return Regime(k, visits, int(times[0]), int(times[-1]), known.mean[k].copy(), sd)

    def _mixture(self, shares: list[Array], phi: Array) -> Forecast:
        """Regimes of every draw, and one component for a regime not opened yet."""
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
    """(T,) F_t theta along a path."""
    return np.asarray(np.einsum("tm,tm->t", design, coefficients[path]))


def one_step(draw: Draw, design: Array, prior: Prior) -> Array:
    """(T,) mean of y_t given the draw's regime before it."""
    expected = draw.rows @ np.vstack([draw.coefficients, prior.mean])
    return level(expected, design, np.concatenate([[0], draw.path[:-1] + 1]))


def matched(draw: Draw, path: NDArray[np.int64]) -> NDArray[np.int64]:
    """The draw's path in the labels of `path`: each regime takes the one it overlaps most."""
    overlap = np.zeros((draw.n_regimes, path.max() + 1), np.int64)
    np.add.at(overlap, (draw.path, path), 1)
    return np.asarray(overlap.argmax(axis=1)[draw.path])


def regime_shares(draw: Draw) -> Iterator[Array]:
    """Probability of each regime 1, 2, .. steps after the end; the last entry: not opened yet.

    Nothing is known of the row of a regime not opened: beta is what to expect of it.
    """
    matrix = np.vstack([draw.rows[1:], draw.shares])
    share = matrix[draw.path[-1]]
    while True:
        yield share
        share = share @ matrix


def prior_spread(prior: Prior, phi: Array) -> tuple[float, float]:
    """Scale (a variance) and degrees of freedom of an observation of a regime never seen."""
    inflation = 1.0 + float(((prior.root.T @ phi) ** 2).sum())
    if prior.known:
        return prior.noise * inflation, np.inf
    return prior.scale / prior.shape * inflation, 2 * prior.shape


def typical_noise(known: Emissions, prior: Prior) -> Array:
    """Posterior mean of each regime's noise variance, infinite where it has none."""
    if prior.known:
        return np.full(len(known.seen), prior.noise)
    shape, scale = prior.shape + known.seen / 2, prior.scale + known.misfit / 2
    return np.where(shape > 1, scale / np.where(shape > 1, shape - 1, 1), np.inf)
