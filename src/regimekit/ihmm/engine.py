"""The online infinite HMM: particles over paths, shared rows, and the batches under way.

`Engine` holds the state and what is rare: making memory, joining duplicates, dating a change.
Observations go through `drive`; inside a batch `filter` works on rows, at its end `commit` on
particles.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import reference
from regimekit.ihmm import changepoint_dating as dates
from regimekit.ihmm import initialization as beginning
from regimekit.ihmm import merge, snapshots
from regimekit.ihmm.emissions.base import Array, Emission, Rows, Sample
from regimekit.ihmm.emissions.conjugate import Conjugate
from regimekit.ihmm.filter_loop import DONE, PAUSE, ROOM, Machine, Scales, drive, tell
from regimekit.ihmm.label_matching import reconcile, vote
from regimekit.ihmm.plan import Plan
from regimekit.ihmm.state import (
    PRIOR_ROW,
    UNBORN,
    State,
    blank_candidates,
    blank_clock,
    blank_ledger,
    blank_particles,
    blank_view,
    padded,
    stretched,
    wider,
)
from regimekit.ihmm.track import Track, blank_track, cut
from regimekit.ihmm.transitions import held_mass, propagate, transition_matrix
from regimekit.ihmm.weights import CONTAMINATION, LARGEST_RATE
from regimekit.ihmm.within_batch import look_all, write_components


class Change(NamedTuple):
    """The report changed after an observation.

    Attributes:
        time: the observation after which it was known.
        since: the first observation that belongs to the new regime.
        regime: id reported now, and `previous` before.
        lost: ids once reported that nobody remembers any more.
    """

    time: int
    since: int
    regime: int
    previous: int
    lost: tuple[int, ...]


class Engine:
    """The filter.

    Args:
        emission: what a regime says of an observation.
        plan: settings.
        particles: how many.
        islands: into how many they are divided.
        rng: of all draws.
        begin: draw the first particles; without it `unpack` must follow.
    """

    def __init__(
        self,
        emission: Emission,
        plan: Plan,
        particles: int,
        islands: int,
        rng: np.random.Generator,
        begin: bool = True,
    ) -> None:
        self.emission, self.plan, self.rng = emission, plan, rng
        if not emission.timeless:  # what it would have said then is not kept: births decide
            self.plan = plan._replace(agree=False)
        if not isinstance(emission, Conjugate):  # nothing can be joined
            self.plan = self.plan._replace(merge=False)
        self._made: tuple[Any, ...] = ()
        self._single: tuple[Track, Any] | None = None  # of observations told one at a time
        self._unspread = False
        self.scales = Scales(emission.outlier_scale(), emission.noise_covariance())
        longest = plan.schedule.longest
        self.longest = longest if islands == 1 else 2 * longest  # the first batch may be longer
        ledger = blank_ledger()
        self.rows: Rows = emission.blank(ledger.owners.size)
        emission.write_prior(self.rows, PRIOR_ROW)
        self.state = State(
            blank_particles(particles),
            ledger,
            blank_candidates(islands),
            blank_view(islands, emission.shape.dim),
            blank_clock(particles, islands),
            np.zeros((particles, blank_particles(1).log_beta.shape[1])),
        )
        self.work = emission.work(islands, self._n_candidates(), self.longest)
        self.reported = UNBORN  # id reported last
        self.changed = -1  # when the reported regime began
        self.told: set[int] = set()  # ids ever reported that somebody remembers
        self.recent = dates.Recent(2 * self.longest)
        self._looked: Array | None = None
        if begin:
            beginning.begin(self)

    # ------------------------------------------------------------------ observations

    def __getstate__(self) -> dict[str, Any]:
        """All but the references, which are made anew."""
        return self.__dict__ | {"_made": (), "_single": None}

    @property
    def state(self) -> State:
        """All that the filter remembers. What was read is finished when it is first wanted."""
        if self._unspread:
            self._unspread = False
            snapshots.spread(self)
        return self._state

    @state.setter
    def state(self, state: State) -> None:
        self._state = state

    @property
    def plan_ref(self) -> Any:
        """The settings as kernels take them."""
        return _shared_plan_ref(self.plan)

    @property
    def ref(self) -> Any:
        """The state as kernels take it."""
        self._machine()
        return self._made[4]

    def _machine(self) -> Any:
        """All that the loop works with, by reference; made anew when memory was."""
        parts = (self.rows, self.work, self.state, self.rng)
        if not self._made or any(a is not b for a, b in zip(self._made, parts, strict=False)):
            ref = reference(self.state)
            machine = Machine(
                self.rows, self.work, self.emission.facts, ref, self.plan_ref, self.scales, self.rng
            )
            self._made = (*parts, ref, reference(machine))
        return self._made[5]

    @property
    def time(self) -> int:
        """Observations so far."""
        return int(self.state.clock.time[0])

    def observe(
        self, y: Array, design: Array, keep: bool = True, doubt: float = 0.0
    ) -> tuple[Track, list[Change]]:
        """Learn observations y (T, d) with their designs (T, r, m).

        What is told of each stands in the Track; its forecasts were made before it was seen.
        The Track of one observation that need not be kept is written over by the next one.
        The first observation whose weight is below `doubt` is the last one that is learnt.
        """
        y, design = np.ascontiguousarray(y), np.ascontiguousarray(design)
        keep = keep or len(y) > 1
        track, told = self._new_track(len(y)) if keep or self._single is None else self._single
        looked = self._looked is not None and np.array_equal(self._looked, design[0])
        self._looked = None
        changes: list[Change] = []
        t, reason = 0, DONE
        while t < len(y):
            start = t
            if reason == ROOM:
                longer = self._make_room(track, t, len(y))
                if longer is not track:
                    track, told = longer, reference(longer)
            t, reason = drive(self._machine(), y, design, told, t, looked and t == 0, doubt)
            self.recent.add(y[start:t], design[start:t])
            if reason == PAUSE:
                changes += self._pause(told, t - 1)
            if t > start and track.weight[t - 1] < doubt and not np.isnan(y[t - 1]).all():
                track = track if t == len(y) else cut(track, t)
                break
        if not keep:
            self._single = track, told
        return track, changes

    def _pause(self, track: Any, t: int) -> list[Change]:
        """Join duplicates, and tell what changed with observation t of the chunk."""
        if self.plan.merge and merge.join_duplicates(self):
            reconcile(self.rows, self.ref, self.plan_ref)
            vote(self.ref)
            tell(self.ref, track, t)
        return self._changes()

    def _changes(self) -> list[Change]:
        now, before = int(self.state.clock.vote[0]), self.reported
        self.reported = now
        held = self.remembered()
        lost = tuple(sorted(self.told - held))
        self.told = (self.told & held) | ({now} if now != UNBORN else set())
        if now == before and not lost:
            return []
        since = self.time - 1
        if now != before and before != UNBORN:
            since = max(dates.since(self, before, now), min(self.changed + 1, since))
        elif now != before:
            since = 0
        if now != before:
            self.changed = since
        return [Change(self.time - 1, since, now, before, lost)]

    def remembered(self) -> set[int]:
        """Ids that any particle holds."""
        p, identity = self.state.particles, self.state.ledger.identity
        used = np.arange(p.slots.shape[1]) < p.n_regimes[:, None]
        return set(identity[p.slots[used]].tolist())

    # ------------------------------------------------------------------ forecasts

    def components(self, design: Array) -> tuple[Array, Array, Array, Array]:
        """Shares, locations, spreads and dof of the next observation; those of outliers last."""
        self.look(design)
        return self.looked_at(self.ref)

    def looked_at(self, state: Any) -> tuple[Array, Array, Array, Array]:
        """What every candidate of a state, this one's or a copy, was last seen to say."""
        size = int(self.state.clock.candidates.sum()) + 1
        d = self.emission.shape.dim
        share, dof = np.empty(size), np.empty(size)
        location, spread = np.empty((size, d)), np.empty((size, d, d))
        scale, noise = self.scales.scale, self.scales.noise
        n = write_components(state, self.plan_ref, scale, noise, 0, share, location, spread, dof)
        return share[:n], location[:n], spread[:n], dof[:n]

    def look(self, design: Array, work: Any = None) -> None:
        """Every candidate's forecast, kept for the observation that it is for.

        With a work space of the caller's, candidates that have gone on from here (`rest`).
        """
        d = self.emission.shape.dim
        sample = Sample(np.zeros(d), np.arange(d), np.ascontiguousarray(design), np.empty((d, d)))
        space = self.work if work is None else work
        look_all(self.rows, space, self.emission.facts, self.ref, sample)
        self._looked = np.array(design) if work is None else None

    def forget_look(self) -> None:
        """The candidates' forecasts are no longer those of the next observation."""
        self._looked = None

    def copied_work(self) -> Any:
        """The candidates' work space in memory of its own."""
        return _copied(self.work)

    @property
    def outlier_rate(self) -> float:
        """eps as learnt so far; 0 without contamination."""
        if self.plan.scoring.kind != CONTAMINATION:
            return 0.0
        a, b = self.state.clock.outliers.tolist()
        return float(min(a / (a + b), LARGEST_RATE))

    def masses(self, horizon: int) -> list[Array]:
        """Masses of the candidates of each island, (horizon, K): once per batch regimes move."""
        clock = self.state.clock
        found = []
        for g in range(clock.size.size):
            batches = (clock.position[g] + np.arange(horizon)) // clock.size[g]
            mass = np.empty((int(batches[-1]) + 1, int(clock.candidates[g])))
            propagate(self.ref, self.plan_ref, g, mass)
            found.append(mass[batches])
        return found

    # ------------------------------------------------------------------ what it knows

    def row_mass(self) -> Array:
        """Weight of the particles that remember each row as an opened regime."""
        mass = np.zeros(self.state.ledger.owners.size)
        held_mass(self.ref, mass)
        return mass

    def transition_matrix(self, i: int) -> Array:
        """P(l | s) of particle i among its regimes and, last, a new one."""
        return np.asarray(
            transition_matrix(self.state.particles, i, self.plan.concentration.sticky)
        )

    # ------------------------------------------------------------------ memory

    def _n_candidates(self) -> int:
        return int(self.state.candidates.row.shape[1])

    def _new_track(self, n: int) -> tuple[Track, Any]:
        """Room for what is told of n observations, and the same as kernels take it."""
        room = n * 8 + int(self.state.clock.candidates.sum()) + 1
        track = blank_track(n, room, self.emission.shape.dim)
        return track, reference(track)

    def _make_room(self, track: Track, t: int, n: int) -> Track:
        """Memory for the next commit and the next forecasts."""
        clock, p = self.state.clock, self.state.particles
        most = int(clock.candidates.max())
        longest = self.plan.schedule.longest
        extra = 0 if self.plan.shared_prior else p.alpha.size
        self.ensure_candidates(2 * most + max(longest, self.plan.schedule.largest) + 1 + extra)
        used = int((self.state.ledger.owners > 0).sum())
        self.ensure_rows(used + min(clock.size.size * most, p.alpha.size) + extra + 2)
        if p.n_regimes.max() + 1 >= p.start.shape[1]:
            particles = wider(p)
            rows = padded(self.state.log_row, 1, particles.log_beta.shape[1])
            self.state = self.state._replace(particles=particles, log_row=rows)
        need = int(track.offset[t]) + int(clock.candidates.sum()) + 1
        if need > track.share.size:
            share = max(2 * track.share.size, need * n // max(t, 1))
            longer = {
                name: padded(getattr(track, name), 0, share)
                for name in ("share", "location", "spread", "dof")
            }
            track = track._replace(**longer)
        return track

    def ensure_rows(self, n: int) -> None:
        """Room for so many rows in all."""
        capacity = self.state.ledger.owners.size
        if n <= capacity:
            return
        while capacity < n:
            capacity *= 2
        fresh = blank_ledger(capacity)
        for new, array in zip(fresh, self.state.ledger, strict=True):
            new[: array.size] = array
        self.state = self.state._replace(ledger=fresh)
        self.rows = stretched(self.rows, 0, capacity)

    def ensure_candidates(self, n: int) -> None:
        """Room for so many candidates in every island."""
        capacity = self._n_candidates()
        if n <= capacity:
            return
        while capacity < n:
            capacity *= 2
        view = stretched(self.state.ahead, 1, capacity)
        for column in (view.dof, view.start_dof):
            column[column == 0] = np.inf
        self.state = self.state._replace(
            candidates=stretched(self.state.candidates, 1, capacity), ahead=view
        )
        self.work = stretched(self.work, 1, capacity)

    # ------------------------------------------------------------------ state

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """The state as JSON values and arrays."""
        return snapshots.pack(self)

    def unpack(self, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Take up what `pack` gave, every value checked."""
        snapshots.unpack(self, values, arrays)
        self._unspread = True


@lru_cache(maxsize=64)
def _shared_plan_ref(plan: Plan) -> Any:
    """Nobody writes to a plan, so engines with equal plans share what takes long to make."""
    return reference(plan)


def _copied(arrays: Any) -> Any:
    parts = [part.copy() if isinstance(part, np.ndarray) else _copied(part) for part in arrays]
    return type(arrays)(*parts)
