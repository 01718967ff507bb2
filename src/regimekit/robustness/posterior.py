"""The model's own posterior of observations that it has not seen: the engine, run ahead.

The score of a batch belongs to a row, whoever owns it. With the prior mass of row r,

    pi_r = sum over particles i and slots l that point at r of omega_i P(l | s_i),

the posterior over (particle, regime) is P(i, l) = omega_i P(l | s_i) exp(score_r) / Z, so the
ratio of two such posteriors depends on the row alone, and their KL over (particle, regime) *is*
the KL over rows with masses pi_r exp(score_r) / Z. Nothing is approximated by working with rows.

Islands do not weigh each other: each has its own Z and the share 1 / G. A regime that is not
opened yet may have several candidates (D10); its score is theirs added up and its posterior that
of the best, as the engine opens it.

Nothing here filters. The engine's `look_all` and `observe` work on a copy of what they write.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel
from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.ihmm import lagged
from regimekit.ihmm.batch_update import best_branch, branch_scores
from regimekit.ihmm.emissions.base import Array, Emission, Facts, Rows, Sample, Work, close
from regimekit.ihmm.engine import Engine
from regimekit.ihmm.lagged import Ask, Law
from regimekit.ihmm.limits import within_reach
from regimekit.ihmm.model import RegimeModel
from regimekit.ihmm.state import UNBORN, State, stretched
from regimekit.ihmm.within_batch import look_all, observe
from regimekit.preprocessing.frames import Row, read_table
from regimekit.preprocessing.two_pasts import CLEAN, TwoPasts


class Moment(NamedTuple):
    """The engine's state after some observations more, and what was read off it.

    Attributes:
        state: candidates, clock and forecasts are a copy; the rest is the model's.
        work: the candidates' work space, a copy.
        rows: (K, ..) what each hypothesis has become at the end of its batch, or so far.
        score: (K,) its log evidence.
        past: what lags look back on.
        designs: of the observations since the moment before.
    """

    state: State
    work: Work
    rows: Rows
    score: Array
    past: TwoPasts
    designs: list[Array]


class Branches(NamedTuple):
    """The candidates of one island.

    Attributes:
        rows: (C, ..) what each has become so far.
        score: (C,) its log evidence.
        branch: (C,) how many observations a newborn disbelieves first; -1 for others.
        hypothesis: (C,) which of the island's hypotheses it belongs to.
    """

    rows: Rows
    score: Array
    branch: NDArray[np.int64]
    hypothesis: NDArray[np.int64]


class Outlook:
    """A fitted model as it stands, ready to be asked about observations it has not seen.

    A *hypothesis* is a row of an island: one of its regimes, or the one not opened yet.

    Attributes:
        start: the model as it stands now, perhaps in the middle of batches.
        place: (K, 2) island and first candidate of each hypothesis.
        log_prior: (K,) its log prior mass within the island.
        identity: (K,) its regime id, UNBORN for a regime not opened yet.
        left: (G,) observations until the batch of each island is full.
    """

    def __init__(self, model: Model) -> None:
        self.model, self.engine = _fitted(model)
        state = self.engine.state
        first = [
            (g, k)
            for g in range(state.clock.size.size)
            for k in range(int(state.clock.candidates[g]))
            if state.candidates.branch[g, k] <= 0
        ]
        self.place: NDArray[np.int64] = np.array(first, np.int64)
        g, k = self.place.T
        self.log_prior: Array = state.candidates.log_prior[g, k]
        self.row: NDArray[np.int64] = state.candidates.row[g, k]
        self.identity: NDArray[np.int64] = state.ledger.identity[self.row]
        self.left: NDArray[np.int64] = state.clock.size - state.clock.position
        self._capacity = state.ledger.owners.size
        self._rows = stretched(self.engine.rows, 0, self._capacity + len(first))
        blank = Moment(state, self.engine.work, None, np.zeros(len(first)), self.model.past, [])
        self.start = self.follow(blank, np.zeros((0, self.emission.shape.dim)), [])

    @property
    def emission(self) -> Emission:
        return self.engine.emission

    @property
    def islands(self) -> int:
        return int(self.left.size)

    @property
    def born(self) -> NDArray[np.bool_]:
        """Whether each hypothesis is an open regime."""
        return np.asarray(self.identity != UNBORN)

    def follow(self, origin: Moment, y: Array, x: list[Row | None]) -> Moment:
        """The engine after observing y (n, d) with covariates x; nothing of the model changes.

        An island is read at the end of its batch. What comes later it sees as though the batch
        went on: to the others that matters through the centre of the outliers alone.
        """
        state, work, past = _own(origin.state), copied(origin.work), origin.past.copy()
        score, designs = origin.score.copy(), []
        if origin.rows is not None:
            for whole, part in zip(self._rows, origin.rows, strict=True):
                whole[self._capacity :] = part
        ended = state.clock.position >= state.clock.size
        for b, row in enumerate(x):
            designs.append(self._observe(state, work, past, y[b], row))
            due = (state.clock.position >= state.clock.size) & ~ended
            self._read(state, work, due, score)
            ended |= due
        self._read(state, work, ~ended, score)
        rows = type(self._rows)(*(array[self._capacity :].copy() for array in self._rows))
        return Moment(state, work, rows, score, past, designs)

    def _observe(self, state: State, work: Work, past: TwoPasts, y: Array, x: Row | None) -> Array:
        """One observation more; the design that it was learnt with (D13)."""
        engine, facts = self.engine, self.emission.facts
        outliers = lagged.has_outliers(engine)

        def ask(design: Array) -> Law:
            look_all(engine.rows, work, facts, state, _sample(y, design))
            return Law(*engine.looked_at(state))

        phi = self.model.features.row(x, int(state.clock.time[0]), past.values[CLEAN])
        design = self.emission.design(within_reach(self.emission, phi))
        law = ask(design)
        if past.pending:
            design, law = self._second_look(state, ask, past, y, x)
            ask(design)
        plan, scale, sample = engine.plan, engine.scales.scale, _sample(y, design)
        weight, _ = observe(engine.rows, work, facts, state, plan, scale, sample)
        lagged.remember(past, y, law, outliers, float(weight), self.model.doubt)
        return np.ascontiguousarray(design)

    def _second_look(
        self, state: State, ask: Ask, past: TwoPasts, y: Array, x: Row | None
    ) -> tuple[Array, Law]:
        """The design of an observation after a doubtful one, and what had been expected of it."""
        outliers, masses = lagged.has_outliers(self.engine), past.masses
        features, time = self.model.features, int(state.clock.time[0])
        designs, laws = lagged.look_twice(self.engine, ask, features, past, x, time)
        design = designs[lagged.decide(past, laws, outliers, y)]
        return design, lagged.mixed(laws, masses, outliers)

    def _read(self, state: State, work: Work, islands: NDArray[np.bool_], score: Array) -> None:
        """Write score and row of every hypothesis of these islands."""
        facts = self.emission.facts
        _write(self._rows, work, facts, state, self.place, islands, self._capacity, score)

    def candidates(self, moment: Moment, g: int) -> Branches:
        """Every candidate of island g by itself, a newborn's branches too."""
        state = moment.state
        n = int(state.clock.candidates[g])
        rows = stretched(self.engine.rows, 0, self._capacity + n)
        _close_all(rows, moment.work, self.emission.facts, state, g, self._capacity)
        table = state.candidates
        ours = np.flatnonzero(self.place[:, 0] == g)
        hypothesis = np.searchsorted(self.place[ours, 1], np.arange(n), side="right") - 1
        return Branches(
            type(rows)(*(array[self._capacity :] for array in rows)),
            table.score[g, :n].copy(),
            table.branch[g, :n].copy(),
            hypothesis,
        )

    def log_posterior(self, score: Array) -> Array:
        """Log posterior mass of every hypothesis; scores may be (.., K)."""
        joint = self.log_prior + score
        out = np.empty(joint.shape)
        for g in range(self.islands):
            ours = self.place[:, 0] == g
            part = joint[..., ours]
            top = part.max(axis=-1, keepdims=True)
            total = top + np.log(np.exp(part - top).sum(axis=-1, keepdims=True))
            out[..., ours] = part - total - math.log(self.islands)
        return out

    def covariates(self, x: Any, n: int) -> list[Row | None]:
        """The covariates of n observations to come, checked."""
        table = read_table(x)
        if table is None:
            return [self.model.features.check(None)] * n
        if len(table.values) != n:
            raise RegimekitError(f"x has {len(table.values)} rows but clean has {n}.")
        return [self.model.features.check(table.row(t)) for t in range(n)]


def read_batch(outlook: Outlook, clean: Any) -> Array:
    """`clean` as (n, d): the observations expected next, at most the rest of a batch."""
    values = np.array(clean, dtype=np.float64)
    dim = outlook.emission.shape.dim
    if values.ndim == 0 or (values.ndim == 1 and dim > 1):
        values = values[None]
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or values.shape[1] != dim:
        raise RegimekitError(f"clean must be n observations of {dim} value(s), got {values.shape}.")
    most = int(outlook.left.max())
    if not 1 <= len(values) <= most:
        raise RegimekitError(
            f"clean has {len(values)} observations; the batch under way has room for {most}."
        )
    if np.isinf(values).any():
        raise RegimekitError("clean is infinite; pass NaN for a value that was not observed.")
    return values


def copied(arrays: Any) -> Any:
    """A NamedTuple of arrays, nested or not, in memory of its own."""
    parts = [part.copy() if isinstance(part, np.ndarray) else copied(part) for part in arrays]
    return type(arrays)(*parts)


def _sample(y: Array, design: Array) -> Sample:
    seen = np.flatnonzero(~np.isnan(y))
    y, design = np.ascontiguousarray(y), np.ascontiguousarray(design)
    return Sample(y, seen, design, np.empty((y.size, y.size)))


def _own(state: State) -> State:
    """The state with a copy of all that an observation inside a batch writes."""
    return state._replace(
        candidates=copied(state.candidates), clock=copied(state.clock), ahead=copied(state.ahead)
    )


def _fitted(model: Model) -> tuple[RegimeModel, Engine]:
    if not isinstance(model, RegimeModel):
        raise RegimekitError(
            f"model must be one of the infinite HMM family, got {type(model).__name__}."
        )
    if model.engine is None:
        raise RegimekitError("model has seen nothing yet; run it on some observations first.")
    if model.chosen.units == "auto":
        raise RegimekitError(
            "model learns its units, and what an observation does to them has no bound yet; tell "
            'it its noise, or make it with units="given".'
        )
    return model, model.engine


@kernel
def _write(
    rows: Rows,
    work: Work,
    facts: Facts,
    state: State,
    place: np.ndarray,
    islands: np.ndarray,
    into: int,
    out_score: np.ndarray,
) -> None:
    """Scores and rows of the hypotheses as the engine would commit them."""
    for g in range(islands.size):
        if islands[g]:
            score = branch_scores(state, g)
            for at in range(place.shape[0]):
                if place[at, 0] == g:
                    k = place[at, 1]
                    row = state.candidates.row[g, k]
                    out_score[at] = score[k]
                    close(rows, work, facts, g, best_branch(state, g, k), row, into + at)


@kernel
def _close_all(rows: Rows, work: Work, facts: Facts, state: State, g: int, into: int) -> None:
    """The row that every candidate of island g has become."""
    for k in range(state.clock.candidates[g]):
        close(rows, work, facts, g, k, state.candidates.row[g, k], into + k)
