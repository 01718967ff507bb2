"""Chains of the beam sampler: where they start, how long they run, which points are kept."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.baselines.beam.kernels import Chain, resample_parameters, sweep
from regimekit.baselines.beam.regression import Data, Prior

Array = NDArray[np.float64]


class Sampling(NamedTuple):
    """How to sample.

    Attributes:
        iterations: sweeps of each chain.
        burn_in: how many of them are thrown away at the beginning.
        thin: keep every thin-th of the others.
        chains: independent chains.
        initial_regimes: segments that a chain begins with, cut at random.
        max_regimes: room for regimes, those represented but not in use included.
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
        return len(self.noise)


class Trace(NamedTuple):
    """(chains, iterations) of what every sweep ended with.

    Attributes:
        log_joint: log p(y, path, alpha, gamma) with all else integrated out, up to a constant;
            alpha and gamma are those that the path was drawn with.
        n_regimes: regimes in use.
        alpha: concentration of the rows.
        gamma: concentration of the shares.
        cut: whether `max_regimes` stopped the sweep from representing all it should.
    """

    log_joint: Array
    n_regimes: NDArray[np.int64]
    alpha: Array
    gamma: Array
    cut: NDArray[np.bool_]


class Found(NamedTuple):
    """What the chains found: a trace, the draws kept, and the draw of highest log joint."""

    trace: Trace
    draws: list[Draw]
    best: Draw


class Sampler:
    """Runs the chains of one plan over one stream.

    The generator of a chain depends on the seed, the length of y and the chain's number alone.
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

    def run(self, seed: int, progress: bool = False) -> Found:
        """Every chain, one after the other."""
        sweeps = _ticks(self.plan.chains * self.plan.iterations, progress)
        chain: Chain | None = None
        for tick in sweeps:
            number, iteration = divmod(tick, self.plan.iterations)
            if iteration == 0:
                rng = np.random.default_rng([seed, len(self.data.y), number])
                chain = begin(self.data, self.prior, self.plan, rng)
            assert chain is not None
            log_joint, cut = sweep(chain, self.data, self.prior, rng)
            self._record(number, iteration, chain, log_joint, cut)
        assert self.best is not None
        return Found(self.trace, self.draws, self.best)

    def _record(
        self, number: int, iteration: int, chain: Chain, log_joint: float, cut: bool
    ) -> None:
        alpha, gamma = chain.concentration
        row = (log_joint, chain.size[0], alpha, gamma, cut)
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
    """A complete chain whose path is a few segments, one regime each, cut at random."""
    length, room = len(data.y), plan.max_regimes
    n = min(plan.initial_regimes, length)
    cuts = np.sort(rng.choice(np.arange(1, length), n - 1, replace=False))
    log_beta = np.full(room + 1, -np.inf)
    log_beta[: n + 1] = -np.log(n + 1)
    chain = Chain(
        path=np.searchsorted(cuts, np.arange(length), side="right").astype(np.int64),
        size=np.array([n]),
        log_beta=log_beta,
        log_rows=np.full((room + 1, room + 1), -np.inf),
        coefficients=np.zeros((room, prior.mean.size)),
        noise=np.ones(room),
        concentration=np.ones(2),
    )
    resample_parameters(chain, data, prior, rng)
    return chain


def copy_out(chain: Chain) -> Draw:
    """The chain's present point, out of its working memory."""
    n = int(chain.size[0])
    return Draw(
        chain.path.astype(np.int32),
        np.exp(chain.log_beta[: n + 1]),
        np.exp(chain.log_rows[: n + 1, : n + 1]),
        chain.coefficients[:n].copy(),
        chain.noise[:n].copy(),
        float(chain.concentration[0]),
        float(chain.concentration[1]),
    )


def _ticks(n: int, progress: bool) -> Iterable[int]:
    if not progress:
        return range(n)
    from rich.progress import track

    return track(range(n), description="sweeps")
