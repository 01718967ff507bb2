"""The posterior of a model given further observations: a copy of the model, filtered ahead.

The score of a batch belongs to a row, shared by particles. With the prior mass of row r,

    pi_r = sum over particles i and slots l that point at r of omega_i P(l | s_i),

the posterior over (particle, regime) is P(i, l) = omega_i P(l | s_i) exp(score_r) / Z. The ratio of
two such posteriors depends on the row alone, so their KL divergence over (particle, regime) equals
the KL divergence over rows with masses pi_r exp(score_r) / Z: working with rows is exact.

Islands are weighted equally: each has its own Z and the share 1 / G.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.ihmm.emissions.linear_gaussian import LinearGaussian
from regimekit.ihmm.model import RegimeModel
from regimekit.ihmm.state import NO_LABEL
from regimekit.ihmm.varying_noise import VaryingNoise
from regimekit.preprocessing.frames import Row, read_table
from regimekit.preprocessing.lag_buffer import LagBuffer

Array = NDArray[np.float64]

_ENDLESS = 1 << 40  # observations: the size of a batch that does not end
_CANDIDATES = ("score", "weight", "outliers", "mass")
_CLOCK = ("position", "observed", "outliers")


class Moment(NamedTuple):
    """The copy of the model after some observations.

    Attributes:
        arrays: copies of the arrays that an observation changes inside a batch.
        time: observations so far.
        past: buffer of lagged values.
        score: (K,) log evidence of each hypothesis, at the end of its batch or so far.
        mean: (K, m) posterior mean of its coefficients, (K, 0) if they are not Gaussian.
        root: (K, m, m) root of their covariance.
        outliers: (2,) Beta counts of outliers and regular observations.
        designs: designs of the observations since the moment before.
    """

    arrays: list[NDArray[Any]]
    time: int
    past: LagBuffer
    score: Array
    mean: Array
    root: Array
    outliers: Array
    designs: list[Array]


class BatchPosterior:
    """A fitted model that can be filtered ahead from any moment of the batches under way.

    A *hypothesis* is a candidate of an island: a row of a regime, or of the regime that does not
    exist yet.

    Args:
        model: a fitted model of the infinite HMM family. It is copied and not changed.

    Attributes:
        start: the model as it is now, perhaps inside batches.
        place: (K,) place of each hypothesis among the candidates of the filter.
        island: (K,) its island.
        row: (K,) its row.
        label: (K,) label of its regime, NO_LABEL if the regime does not exist yet.
        fresh: (K,) whether its row has not learnt anything yet (D3).
        log_prior: (K,) log prior mass within the island.
        left: (G,) observations until the batch of each island ends.

    Raises:
        RegimekitError: If the model is not of the family, not fitted, or learns its units.
    """

    def __init__(self, model: Any) -> None:
        _check_model(model)
        self.model: RegimeModel = model.copy()
        self.filter: Any = self.model.engine
        self.islands = int(self.filter.islands)
        places = [self.filter.candidate_places(g) for g in range(self.islands)]
        self.place = np.concatenate(places)
        self.island = np.repeat(np.arange(self.islands), [len(own) for own in places])
        self.row = np.asarray(self.filter.candidates.row)[self.place]
        self.label = np.asarray(self.filter.pool.label)[self.row]
        self.fresh = np.asarray(self.filter.pool.visits)[self.row] == 0
        self.log_prior: Array = np.asarray(self.filter.candidates.log_prior)[self.place]
        clock = self.filter.clock
        self._end = np.array(clock.size)
        self.left = self._end - np.asarray(clock.position)
        # Batches of the copy do not end, so candidates can be read at any time.
        np.asarray(clock.size)[:] = _ENDLESS
        # A finished row is written to an additional row.
        self._spare = int(self.filter.pool.owners.shape[0])
        self.emission.resize_rows(self._spare + 1)
        n, m = self.place.size, self.emission.shape.coefficients if self.gaussian else 0
        self._score, self._mean, self._root = np.zeros(n), np.zeros((n, m)), np.zeros((n, m, m))
        self._read(np.ones(self.islands, bool))
        self.start = self._moment([])

    @property
    def emission(self) -> Any:
        """The emission of the copy."""
        return self.filter.emission

    @property
    def gaussian(self) -> bool:
        """Whether the coefficients of a regime have a Gaussian posterior."""
        return isinstance(self.emission, LinearGaussian)

    @property
    def is_new(self) -> NDArray[np.bool_]:
        """(K,) whether a hypothesis is the regime that does not exist yet."""
        return np.asarray(self.label == NO_LABEL)

    def rows_at(self, moment: Moment) -> tuple[Array, Array]:
        """Return mean (K, m) and root (K, m, m) of all candidates at a moment.

        Those of `Moment` are the same unless the batch of an island has ended.
        """
        self._restore(moment)
        self._read(np.ones(self.islands, bool))
        return self._mean.copy(), self._root.copy()

    def rows_at_start(self) -> tuple[Array, Array]:
        """Return mean (K, m) and root (K, m, m) of the rows at the start of their batches."""
        mean, root = np.asarray(self.emission.mean), np.asarray(self.emission.root)
        return mean[self.row, 0], root[self.row]

    def extra_noise(self, g: int, first: int, n: int) -> Array:
        """Return the terms R that D8 adds to the scores of n observations, (n,).

        Args:
            g: island.
            first: position of the first observation, from the moment on.
            n: number of observations.
        """
        if self.emission.scoring.sequential or self.filter.settings.one_noise:
            return np.zeros(n)
        return np.arange(n, dtype=np.float64) + (self._end[g] - self.left[g] + first)

    def follow(self, origin: Moment, y: Array, x: list[Row | None]) -> Moment:
        """Filter observations from a moment on.

        An island is read at the end of its batch. Later observations continue its batch, which
        influences the other islands only through the centre of the density of outliers.

        Args:
            origin: where to start.
            y: (n, d) observations; NaN means missing.
            x: n covariates.

        Returns:
            The moment after the observations.
        """
        self._restore(origin)
        position = np.asarray(self.filter.clock.position)
        ended = position >= self._end
        designs = []
        for value, row in zip(y, x, strict=True):
            self.model._learn(value[None], [row])
            designs.append(np.array(self.emission.observation.design))
            due = (position >= self._end) & ~ended
            self._read(due)
            ended |= due
        self._read(~ended)
        return self._moment(designs)

    def log_posterior(self, score: Array) -> Array:
        """Return the log posterior masses of the hypotheses, (.., K).

        Args:
            score: (.., K) scores.
        """
        joint = self.log_prior + score
        out = np.empty(joint.shape)
        for g in range(self.islands):
            own = self.island == g
            part = joint[..., own]
            top = part.max(axis=-1, keepdims=True)
            total = top + np.log(np.exp(part - top).sum(axis=-1, keepdims=True))
            out[..., own] = part - total - math.log(self.islands)
        return out

    def read_batch(self, clean: Any) -> Array:
        """Return the expected observations as (n, d), at most the rest of a batch.

        Raises:
            RegimekitError: If shape, length or values are invalid.
        """
        values = np.array(clean, dtype=np.float64)
        dim = self.emission.shape.dim
        if values.ndim == 0 or (values.ndim == 1 and dim > 1):
            values = values[None]
        if values.ndim == 1:
            values = values[:, None]
        if values.ndim != 2 or values.shape[1] != dim:
            raise RegimekitError(
                f"clean must be n observations of {dim} value(s), got shape {values.shape}."
            )
        most = int(self.left.max())
        if not 1 <= len(values) <= most:
            raise RegimekitError(
                f"clean must have 1 to {most} observations, the rest of the present batch, got "
                f"{len(values)}."
            )
        if np.isinf(values).any():
            raise RegimekitError("clean must be finite. Pass NaN for a missing value.")
        return values

    def read_covariates(self, x: Any, n: int) -> list[Row | None]:
        """Return the covariates of n observations.

        Raises:
            RegimekitError: If they do not suit the features of the model.
        """
        table = read_table(x)
        if table is None:
            return [self.model._check(None)] * n
        if len(table.values) != n:
            raise RegimekitError(
                f"x must have {n} rows, one for each of clean, got {len(table.values)}."
            )
        return [self.model._check(table.row(t)) for t in range(n)]

    def _changing(self) -> list[NDArray[Any]]:
        """The arrays that an observation changes inside a batch."""
        candidates, clock = self.filter.candidates, self.filter.clock
        own = [np.asarray(getattr(candidates, name)) for name in _CANDIDATES]
        own += [np.asarray(getattr(clock, name)) for name in _CLOCK]
        return own + list(self.emission.work_state().values())

    def _moment(self, designs: list[Array]) -> Moment:
        return Moment(
            [array.copy() for array in self._changing()],
            int(self.filter.clock.time),
            self.model.past.copy(),
            self._score.copy(),
            self._mean.copy(),
            self._root.copy(),
            np.array(self.filter.clock.outliers),
            designs,
        )

    def _restore(self, moment: Moment) -> None:
        for array, kept in zip(self._changing(), moment.arrays, strict=True):
            array[:] = kept
        self.filter.clock.time = moment.time
        self.filter.predicted = False
        self.emission.observation.number += 1  # so that no prediction is continued
        self.model.past = moment.past.copy()
        self._score[:], self._mean[:], self._root[:] = moment.score, moment.mean, moment.root

    def _read(self, islands: NDArray[np.bool_]) -> None:
        """Read scores and coefficients of the hypotheses of some islands."""
        own = islands[self.island]
        self._score[own] = np.asarray(self.filter.candidates.score)[self.place[own]]
        if not self.gaussian:
            return
        emission, spare = self.emission, self._spare
        mean, root = np.asarray(emission.mean), np.asarray(emission.root)
        for k in np.flatnonzero(own).tolist():
            emission.finalize_row(int(self.row[k]), spare, int(self.place[k]))
            self._mean[k], self._root[k] = mean[spare, 0], root[spare]


def _check_model(model: Any) -> None:
    if not isinstance(model, RegimeModel):
        raise RegimekitError(
            f"model must be of the infinite HMM family, got {type(model).__name__}."
        )
    if model.engine is None:
        raise RegimekitError("model must be fitted. Run it on some observations first.")
    if isinstance(model, VaryingNoise):
        raise RegimekitError("model must have a constant R: noise_column is not covered.")
    if model.chosen.units == "auto":
        raise RegimekitError(
            "model must have fixed units: the influence of an observation on estimated units is "
            'not covered. Pass the noise variance, or units="given".'
        )
