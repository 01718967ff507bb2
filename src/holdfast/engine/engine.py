"""Particle learning on shared regimes, one observation at a time.

Inside a batch every live row advances as a candidate (`observe`): its score, its successor and
its forecast are always up to date, and nothing is committed. When the batch is full (`_commit`):

    weigh      log omega += log sum_l P(l | s) exp(score_l)                          Alg. 1, line 6
    resample   if the effective sample size has fallen to the threshold             Alg. 1, line 8
    assign     draw l from nu, count the transition once                            Alg. 1, line 14
    learn      the slot points at the candidate's row; births that nobody tells
               apart get one id                                                    Alg. 1, line 24
    prune      forget the stalest of the least visited                              Alg. prune
    structure  tables, alpha, gamma, beta                                           Alg. 1, line 23
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.emissions.base import Array, Batch, Components, Emission, Rows
from holdfast.engine import particles as particle_arrays
from holdfast.engine import step
from holdfast.engine.identity import reconcile
from holdfast.engine.pool import PRIOR_ROW, UNBORN, Pool
from holdfast.engine.resampling import ancestors, effective_sample_size
from holdfast.engine.rule import Rule
from holdfast.engine.schedule import Schedule
from holdfast.hdp import Concentration
from holdfast.weights import CONTAMINATION

_LEAST_WEIGHT = float(np.finfo(float).tiny)  # reported weights lie in (0, 1]
MEMORY = 0.5  # a regime counts as known when particles with this much weight remember it


class EngineSettings(NamedTuple):
    """What the engine needs to know, checked by the facade.

    `structure_sweeps` of 0 follows the rule: one per batch, or the paper's one per observation.
    """

    particles: int
    ess_threshold: float
    max_regimes: int
    prune_pool: int
    resampling: int
    structure_sweeps: int
    concentration: Concentration
    rule: Rule


class Verdict(NamedTuple):
    """What the engine thinks after an observation.

    Attributes:
        weight: posterior mean of w^2 of the observation.
        change_probability: posterior probability that this batch's regime is not the last one's.
        ess: effective sample size at the last commit, before resampling.
        committed: observations of the batch just committed, 0 inside a batch.
    """

    weight: float
    change_probability: float
    ess: float
    committed: int


class Outlook(NamedTuple):
    """Who forecasts: the rows `which` of `rows`, with (horizon, K) shares `mass`."""

    rows: Rows
    which: NDArray[np.int64]
    mass: Array


class Engine:
    """The filter: particles over paths, a pool of regimes, and the batch under way."""

    def __init__(
        self, emission: Emission, schedule: Schedule, settings: EngineSettings,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self.emission, self.schedule, self.settings, self.rng = emission, schedule, settings, rng
        rule = settings.rule
        self.pool = Pool(emission)
        self.particles = particle_arrays.initial(
            settings.particles, settings.concentration, not rule.D6, rng
        )
        self.time = 0
        self.rate = np.array([1.0, 49.0])
        self.next_id = 0
        self.ess = float(settings.particles)
        self.log_nu = np.empty((0, 0))
        if not rule.D6:
            self._open_first()
        self._draw_prospects(np.ones(settings.particles, bool), slot_back=0)
        self._open_batch()

    # ------------------------------------------------------------------ one observation

    def observe(self, y: Array, design: Array) -> Verdict:
        """Let the candidates see one observation; commit when the batch is full."""
        seen = not np.isnan(y).all()
        if seen:
            self._set_broad(y, design)
            self.emission.advance(self.running, self.pool.rows, self.batch, y, design)
            self.n_observed += 1
        else:
            self.emission.rest(self.running)
            self.batch.weight[:] = 1.0
        self.batch_weights[:, self.position] = self.batch.weight
        self.position += 1
        self.time += 1
        change = self._weigh()
        weight = float(self.mass @ self.batch.weight) / float(self.mass.sum())
        if seen:
            self._learn_rate(weight)
        committed = 0
        if self.position == self.size:
            committed = self.size
            self._commit()
        return Verdict(min(max(weight, _LEAST_WEIGHT), 1.0), change, self.ess, committed)

    def _set_broad(self, y: Array, design: Array) -> None:
        """One broad density q for all rows: t with 2 dof around the forecast, 20 noise sds wide."""
        caution = self.emission.caution
        if caution.kind != CONTAMINATION:
            return
        parts = self.emission.predictive(self.running, np.arange(self.mass.size), design)
        opened = self.mass * (self.batch.live != PRIOR_ROW)
        if opened.sum() <= 1e-12 * self.mass.sum():
            opened = self.mass
        centre = opened @ parts.location / opened.sum()
        noise = self.emission.noise_covariance()
        root = 20.0 * np.linalg.cholesky(noise)
        seen = ~np.isnan(y)
        cov = (root @ root.T)[np.ix_(seen, seen)]
        factor = np.linalg.cholesky(cov)
        white = np.linalg.solve(factor, np.clip(y[seen] - centre[seen], -1e100, 1e100))
        d = int(seen.sum())
        z2 = float(white @ white)
        log_q = math.lgamma((2 + d) / 2) - 0.5 * d * math.log(2 * math.pi)
        log_q -= float(np.log(np.diag(factor)).sum()) + 0.5 * (2 + d) * math.log1p(z2 / 2)
        a, b = self.rate
        self.emission.caution = caution._replace(rate=min(a / (a + b), 0.3), log_broad=log_q)

    def _learn_rate(self, weight: float) -> None:
        """eps ~ Beta(a, b), with a memory of 1000 observations."""
        if self.emission.caution.kind != CONTAMINATION:
            return
        prior = np.array([1.0, 49.0])
        gain = np.array([1.0 - min(weight, 1.0), min(weight, 1.0)])
        self.rate = prior + 0.999 * (self.rate - prior) + gain

    def _weigh(self) -> float:
        """Refresh nu, the evidence and the candidates' masses; P(change)."""
        sticky = self.settings.concentration.sticky
        births = self.n_observed > 0 or self.position < self.size
        step.weigh(
            self.particles, sticky, self.lookup, self.batch.score, births,
            self.log_nu, self.evidence,
        )  # fmt: skip
        return step.spread_mass(self.particles, self.lookup, self.log_nu, self.evidence, self.mass)

    # ------------------------------------------------------------------ the end of a batch

    def _commit(self) -> None:
        self.emission.carry(self.running, self.pool.rows, self.batch.live)
        if self.n_observed or self.particles.n_regimes.all():
            self._settle()
            self._resample()
            self._learn(self._assign())
            self._prune()
            self._structure()
        self.pool.recount(self.particles.slots, self.particles.n_regimes)
        self._open_batch()

    def _settle(self) -> None:
        """Weigh the particles with the batch."""
        step.settle(self.particles, self.evidence)
        self.ess = effective_sample_size(self.particles.log_weight)

    def _resample(self) -> None:
        """Before the regime is drawn, so that every copy draws its own."""
        if self.ess > self.settings.ess_threshold * self.settings.particles:
            return
        parents = ancestors(self.particles.log_weight, self.settings.resampling, self.rng)
        self.particles = particle_arrays.descend(self.particles, parents)
        self.log_nu = self.log_nu[parents]

    def _assign(self) -> NDArray[np.int64]:
        """Draw every particle's regime; the pool rows they were drawn from."""
        self.particles = particle_arrays.with_room(self.particles)
        return step.assign(self.particles, self.log_nu, PRIOR_ROW, self.rng)

    def _learn(self, drawn: NDArray[np.int64]) -> None:
        """Point each chosen slot at its candidate, written once however many particles chose it."""
        chosen, inverse = np.unique(drawn, return_inverse=True)
        self._count_outliers(chosen, inverse)
        self.pool.recount(self.particles.slots, self.particles.n_regimes)
        rows = self.pool.free(chosen.size)
        self.pool.copy_rows(self.running, self.lookup[chosen], rows)
        self._write_ledger(chosen, rows)
        p = self.particles
        p.slots[np.arange(p.current.size), p.current] = rows[inverse]
        reconcile(p, self.pool.ledger.identity)
        self._draw_prospects(p.slots[np.arange(p.current.size), p.n_regimes] == PRIOR_ROW, 0)

    def _write_ledger(self, chosen: NDArray[np.int64], rows: NDArray[np.int64]) -> None:
        ledger = self.pool.ledger
        born = ledger.identity[chosen] == UNBORN
        birth = self._new_id() if born.any() else UNBORN
        ledger.identity[rows] = np.where(born, birth, ledger.identity[chosen])
        new = ledger.batches[chosen] == 0
        begun = self.time - self.size
        ledger.first_seen[rows] = np.where(new, begun, ledger.first_seen[chosen])
        ledger.last_seen[rows] = self.time - 1
        ledger.visits[rows] = ledger.visits[chosen] + self.n_observed
        ledger.batches[rows] = ledger.batches[chosen] + 1
        ledger.owners[rows] = 1  # until the next recount

    def _count_outliers(self, chosen: NDArray[np.int64], inverse: NDArray[np.int64]) -> None:
        """Tell the schedule how many observations the chosen regimes took for outliers."""
        if self.schedule.adaptive is None:
            return
        low = self.batch_weights[self.lookup[chosen]] < self.schedule.adaptive.outlier_weight
        outliers = low.sum(axis=1)[inverse]
        self.schedule.learn(float(np.exp(self.particles.log_weight) @ outliers), self.n_observed)

    def _prune(self) -> None:
        step.prune(
            self.particles, self.settings.max_regimes, self.settings.prune_pool,
            self.pool.ledger.last_seen, self.settings.rule.D6,
        )  # fmt: skip

    def _structure(self) -> None:
        rule = self.settings.rule
        sweeps = self.settings.structure_sweeps or (1 if rule.D5 else self.size)
        step.structure(self.particles, self.settings.concentration, sweeps, rule.D5, self.rng)

    def _open_batch(self) -> None:
        """Every live row becomes a candidate."""
        live = self.pool.live()
        k = live.size
        self.lookup = np.full(self.pool.capacity, -1, np.int64)
        self.lookup[live] = np.arange(k)
        self.running: Rows = self.pool.take(live)
        fresh = self.pool.ledger.visits[live] == 0
        self.batch = Batch(live, fresh, np.zeros(k), np.ones(k))
        self.size = self.schedule.next_size()
        self.batch_weights = np.ones((k, self.size))
        self.position = self.n_observed = 0
        n = self.settings.particles
        self.log_nu = np.empty((n, self.particles.log_beta.shape[1]))
        self.evidence, self.mass = np.empty(n), np.empty(k)
        self._weigh()

    def _draw_prospects(self, where: NDArray[np.bool_], slot_back: int) -> None:
        """D9: under the paper's rule every unopened regime has a mean of its own.

        `slot_back` is how far before the unopened slot to write (1 only for the paper's regime 1).
        """
        p = self.particles
        if not self.settings.rule.D9:
            rows = self.pool.free(int(where.sum()))
            for row, i in zip(rows, np.flatnonzero(where), strict=True):
                self.emission.draw_prior(self.pool.rows, int(row), self.rng)
                p.slots[i, p.n_regimes[i] - slot_back] = row
            _forget_rows(self.pool, rows)
        self.pool.recount(p.slots, p.n_regimes)

    def _open_first(self) -> None:
        """The paper's regime 1 exists before it has seen anything, in rows of its own.

        On the prior's row its id would pass to every regime opened later.
        """
        p = self.particles
        if self.settings.rule.D9:
            p.slots[:, 0] = self.pool.free(1)
            self.emission.write_prior(self.pool.rows, int(p.slots[0, 0]))
        self._draw_prospects(np.ones(p.alpha.size, bool), slot_back=1)
        self.pool.ledger.identity[np.unique(p.slots[:, 0])] = self._new_id()

    def _new_id(self) -> int:
        self.next_id += 1
        return self.next_id - 1

    # ------------------------------------------------------------------ what it knows

    def outlook(self, horizon: int = 1) -> Outlook:
        """Which rows forecast the next observations, with what shares.

        D7: the candidates, informed by the batch so far; the paper's text takes each particle's
        regime as the batch began. D8: beyond this batch regimes move by their transitions.
        """
        rule = self.settings.rule
        if not rule.D7:
            mass = self.row_mass(step.current_mass)
            which = np.flatnonzero(mass)
            return Outlook(self.pool.rows, which, np.tile(mass[which], (horizon, 1)))
        which = np.arange(self.mass.size)
        if horizon == 1 or not rule.D8:
            return Outlook(self.running, which, np.tile(self.mass, (horizon, 1)))
        return Outlook(self.running, which, self._propagated(horizon))

    def components(self, outlook: Outlook, h: int, design: Array) -> Components:
        """Predictives of the observation h steps after the next."""
        parts = self.emission.predictive(outlook.rows, outlook.which, design)
        if self.settings.rule.D8:
            return parts
        steps = h if self.settings.rule.D7 else self.position + h  # Eq. (multistep_pred)
        return parts._replace(spread=parts.spread + steps * self.emission.noise_covariance())

    def _propagated(self, horizon: int) -> Array:
        """(horizon, K) masses of the candidates, moved once per batch."""
        batches = (self.position + np.arange(horizon)) // self.size
        mass = np.empty((int(batches[-1]) + 1, self.mass.size))
        step.propagate(
            self.particles, self.settings.concentration.sticky, self.lookup, self.log_nu,
            int(batches[-1]), mass,
        )  # fmt: skip
        return np.asarray(mass[batches])

    def row_mass(self, measure: Any) -> Array:
        """A particle measure (`current_mass`, `held_mass`) per pool row."""
        mass = np.empty(self.pool.capacity)
        measure(self.particles, mass)
        return mass

    def identity_shares(self, measure: Any) -> dict[int, float]:
        """The same by regime id, oldest id first.

        Summed particle by particle, so that as many equal votes are equal to the bit and a tie
        goes to the oldest, not to rounding.
        """
        ids, place = np.unique(self.pool.ledger.identity, return_inverse=True)
        mass = np.empty(ids.size)
        measure(self.particles._replace(slots=place[self.particles.slots]), mass)
        shares = zip(ids.tolist(), mass.tolist(), strict=True)
        return {identity: m for identity, m in shares if m > 0 and identity != UNBORN}

    def probability_of(self, identity: int) -> float:
        """Posterior probability, inside the batch, that the regime is the one with this id."""
        ours = self.pool.ledger.identity[self.batch.live] == identity
        return min(1.0, float(self.mass[ours].sum() / self.mass.sum()))

    # ------------------------------------------------------------------ state

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        values = {
            "time": self.time, "next_id": self.next_id, "ess": self.ess, "size": self.size,
            "rate": self.rate.tolist(), "position": self.position, "n_observed": self.n_observed,
            "schedule": self.schedule.counts.tolist(), "rng": self.rng.bit_generator.state,
        }  # fmt: skip
        arrays = particle_arrays.pack(self.particles) | self.pool.pack()
        arrays |= {f"running_{j}": array for j, array in enumerate(self.running)}
        arrays |= {
            "batch_score": self.batch.score, "batch_weight": self.batch.weight,
            "batch_weights": self.batch_weights,
        }  # fmt: skip
        return values, arrays

    def unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.rng.bit_generator.state = values["rng"]
        self.schedule.counts[:] = values["schedule"]
        self.rate = np.array(values["rate"])
        self.time, self.next_id, self.ess = values["time"], values["next_id"], values["ess"]
        self.particles = particle_arrays.unpack(arrays, self.settings.particles)
        self.pool.unpack(arrays)
        self._open_batch()
        self.size, self.position = values["size"], values["position"]
        self.n_observed = values["n_observed"]
        for j, array in enumerate(self.running):
            array[:] = arrays[f"running_{j}"]
        self.batch.score[:] = arrays["batch_score"]
        self.batch.weight[:] = arrays["batch_weight"]
        self.batch_weights = arrays["batch_weights"].copy()
        self._weigh()


def _forget_rows(pool: Pool, rows: NDArray[np.int64]) -> None:
    """Rows start their life with an empty ledger."""
    ledger = pool.ledger
    ledger.identity[rows] = UNBORN
    for column in (ledger.first_seen, ledger.last_seen, ledger.visits, ledger.batches):
        column[rows] = 0
