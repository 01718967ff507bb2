"""The engine's state as JSON values and arrays, and back, every value checked.

Kernels index without bounds, so nothing that was read may reach them before each index, count,
length and range has been found possible. Vacant rows and unused slots are not kept, and no size
is taken from the file's word: memory is made for the rows, regimes and candidates that are there.
What follows from the rest is not kept: which rows are held and who competes is read off the
particles, the steps of batches under way are made again (`retrace`), prior and posterior masses
are computed anew, to the same bit, when they are first wanted. Files that hold more of it are read
as well, and must say the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel
from regimekit.core.exceptions import SnapshotError
from regimekit.ihmm import delta_encoding as retrace
from regimekit.ihmm import simplex_encoding as shares
from regimekit.ihmm import state_validation as soundness
from regimekit.ihmm.batch_update import write_prior_mass
from regimekit.ihmm.hdp import LEAST
from regimekit.ihmm.state import PRIOR_ROW, START, UNBORN, Clock, Ledger, Particles, wider
from regimekit.ihmm.within_batch import spread_mass
from regimekit.serialization.validation import LATEST, Arrays, Values, affordable

if TYPE_CHECKING:
    from regimekit.ihmm.engine import Engine

_KEPT = ("score", "outliers")  # of the candidates
_LOOKED = frozenset({"raw", "ahead", "q", "start_q"})  # a forecast must leave no trace
_STEPS = ("u", "shrink", "gain")  # of which `taken` are in use
_RETRACED = frozenset({"u", "shrink", "gain", "taken"})  # of the steps, where made again
_FOLLOWS = ("first", "candidates")  # of the clock
_LARGEST = 1e300
_LARGEST_DESIGN = 1e50  # features are kept below it: see `models.covariates`


def pack(engine: Engine) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Values and arrays of the whole state."""
    state = engine.state
    p, clock = state.particles, state.clock
    live = state.ledger.owners.nonzero()[0]
    values = {
        "reported": engine.reported,
        "changed": engine.changed,
        "told": sorted(engine.told),
        "rng": engine.rng.bit_generator.state,
    }
    arrays = {f"particle_{name}": array for name, array in _used_slots(p).items()}
    arrays |= {f"ledger_{n}": a[live] for n, a in state.ledger._asdict().items() if n != "owners"}
    arrays |= {f"clock_{n}": array for n, array in clock._asdict().items() if n not in _FOLLOWS}
    arrays |= {f"candidate_{n}": _used(getattr(state.candidates, n), clock) for n in _KEPT}
    arrays |= {f"row_{name}": array[live] for name, array in engine.rows._asdict().items()}
    arrays |= {f"work_{name}": array for name, array in _used_work(engine).items()}
    return values, arrays | engine.recent.pack()


def _used_slots(p: Particles) -> dict[str, NDArray[Any]]:
    """The particles' arrays, without what forgotten regimes left behind."""
    widest = int(p.n_regimes.max())
    kept_slots = p._asdict() | {
        "slots": p.slots[:, : widest + 1].copy(),
        "log_beta": p.log_beta[:, : widest + 1].copy(),
        "start": p.start[:, :widest].copy(),
        "counts": p.counts[:, :widest, :widest].copy(),
    }
    beyond = np.arange(widest + 1) > p.n_regimes[:, None]
    for name in ("slots", "log_beta"):
        kept_slots[name][beyond] = 0
    kept_slots["start"][beyond[:, 1:]] = 0
    kept_slots["counts"][beyond[:, 1:]] = 0
    kept_slots["counts"].transpose(0, 2, 1)[beyond[:, 1:]] = 0
    left = shares.leave_out(kept_slots["log_beta"], p.n_regimes)
    if left is not None:
        del kept_slots["log_beta"]
        kept_slots |= left._asdict()
    return kept_slots


def _used(array: NDArray[Any], clock: Clock) -> NDArray[Any]:
    """What belongs to candidates; what earlier batches left behind is not worth keeping."""
    counts = clock.candidates
    found = array[:, : max(counts.tolist())].copy()
    found[np.arange(found.shape[1]) >= counts[:, None]] = 0
    return found


def _used_work(engine: Engine) -> dict[str, NDArray[Any]]:
    """The candidates' work space, without steps of earlier batches."""
    clock, work = engine.state.clock, kept(engine.work)
    told = retrace.tell(engine)
    names = work.keys() - _RETRACED if told else work.keys()
    found = {name: _used(array, clock) for name, array in work.items() if name in names}
    if "taken" in work:
        taken = _used(work["taken"], clock)[..., None]
        for name in names & set(_STEPS):
            found[name][np.arange(found[name].shape[2]) >= taken] = 0
    if told:
        found |= told._asdict() | {"learnt": _used(told.learnt, clock)}
    return found


def kept(work: Any) -> dict[str, NDArray[Any]]:
    """The arrays of a nested work space by name, without what `look` writes anew."""
    found: dict[str, NDArray[Any]] = {}
    for name, part in work._asdict().items():
        if not isinstance(part, np.ndarray):
            found |= kept(part)
        elif name not in _LOOKED:
            found[name] = part
    return found


def unpack(engine: Engine, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Take up what `pack` gave, into an engine as it was made; `spread` does the rest."""
    stored, told = Arrays.of(arrays), Values.of(values)
    prior = {name: array[PRIOR_ROW].copy() for name, array in engine.rows._asdict().items()}
    clock, particles = _clock(engine, stored), _particles(engine, stored)
    _same(stored, "clock_first", clock.first)
    soundness.check_particles(particles, clock, engine.plan)
    log_row = engine.state.log_row
    if log_row.shape != particles.log_beta.shape:
        log_row = np.zeros(particles.log_beta.shape)
    engine.state = engine.state._replace(particles=particles, clock=clock, log_row=log_row)
    live = _live(engine, stored)
    _rows(engine, stored, live)
    soundness.check_rows(engine.emission, engine.rows, live, prior)
    _ledger(engine, stored, live)
    _candidates(engine, stored)
    _recent(engine, stored)
    _work(engine, stored)
    steps = [engine.emission.most_steps(n) for n in clock.observed.tolist()]
    soundness.check_work(engine.work, clock, steps, prior)
    _report(engine, told)


def spread(engine: Engine) -> None:
    """What follows from the rest: the candidates' prior and posterior masses."""
    for g in range(engine.state.clock.size.size):
        write_prior_mass(engine.ref, engine.plan_ref, g, True)
        spread_mass(engine.ref, g)


def _clock(engine: Engine, stored: Arrays) -> Clock:
    old, longest = engine.state.clock, engine.longest
    g, n = old.size.size, engine.state.particles.alpha.size
    return Clock(
        first=old.first,
        candidates=np.zeros(g, np.int64),  # counted when the particles are known
        size=stored.wholes("clock_size", (g,), 1, longest),
        position=stored.indices("clock_position", (g,), longest),
        observed=stored.indices("clock_observed", (g,), longest),
        ess=stored.floats("clock_ess", (g,), 0.0, n * (1 + 1e-6)),
        commits=stored.wholes("clock_commits", (g,)),
        time=stored.wholes("clock_time", (1,)),
        next_id=stored.wholes("clock_next_id", (1,)),
        outliers=stored.floats("clock_outliers", (2,), 1e-300, 1e12),
        batch_outliers=stored.floats("clock_batch_outliers", (2,), 0.0, float(LATEST)),
        vote=stored.wholes("clock_vote", (3,), UNBORN),
    )


def _same(stored: Arrays, name: str, found: NDArray[np.int64]) -> None:
    """Where a file holds what follows from the rest, it must be that."""
    if name in stored and not np.array_equal(stored.wholes(name, found.shape, UNBORN), found):
        raise SnapshotError(f"The snapshot's {name} is not that of its particles.")


def _particles(engine: Engine, stored: Arrays) -> Particles:
    blank = engine.state.particles
    n = blank.alpha.size
    # A row's number is below the most that were ever in use at once.
    last = 2 * (n * (engine.plan.max_regimes + 4) + 64) - 1
    held = stored.form("particle_start")[1]
    w = held[1] if len(held) == 2 else -1
    if not 0 <= w <= engine.plan.max_regimes:
        raise SnapshotError(f"The snapshot's particle_start of shape {held} is none of the model.")
    n_regimes = stored.wholes("particle_n_regimes", (n,), most=w)
    p = Particles(
        log_weight=stored.floats("particle_log_weight", (n,), most=1e-6, endless=True),
        current=stored.wholes("particle_current", (n,), START, w - 1),
        n_regimes=n_regimes,
        slots=stored.wholes("particle_slots", (n, w + 1), most=last),
        counts=stored.wholes("particle_counts", (n, w, w)),
        start=stored.wholes("particle_start", (n, w)),
        log_beta=_log_beta(stored, n_regimes, w),
        alpha=stored.floats("particle_alpha", (n,), LEAST, _LARGEST),
        gamma=stored.floats("particle_gamma", (n,), LEAST, _LARGEST),
    )
    return _roomy(p, blank)


def _log_beta(stored: Arrays, n_regimes: NDArray[np.int64], w: int) -> NDArray[np.float64]:
    """The log shares of each particle, where the largest was left out with it put back."""
    n = n_regimes.size
    if not ("particle_shares" in stored or "particle_told" in stored):
        return stored.floats("particle_log_beta", (n, w + 1), most=1e-6, endless=True)
    others = stored.floats("particle_shares", (n, w), most=1e-6, endless=True)
    told = stored.wholes("particle_told", (2, n), -shares.MOST_LEFT, shares.MOST_LEFT)
    log_beta = shares.put_back(shares.Left(others, told), n_regimes)
    if log_beta is None:
        raise SnapshotError("The snapshot's particle_told are places that no share has.")
    return log_beta


def _roomy(p: Particles, blank: Particles) -> Particles:
    """The same particles with room for regimes to come."""
    w = p.start.shape[1]
    while blank.start.shape[1] <= w:
        blank = wider(blank)
    blank.slots[:, : w + 1] = p.slots
    blank.counts[:, :w, :w] = p.counts
    blank.start[:, :w] = p.start
    blank.log_beta[:, : w + 1] = p.log_beta
    return p._replace(
        slots=blank.slots, counts=blank.counts, start=blank.start, log_beta=blank.log_beta
    )


def _live(engine: Engine, stored: Arrays) -> NDArray[np.int64]:
    """The rows in use: those that a particle holds. There is room for all, and owners are told."""
    p, capacity = engine.state.particles, engine.state.ledger.owners.size
    owners = np.zeros(int(p.slots.max()) + 1, np.int64)
    soundness.count_owners(p, owners)
    if not owners[-1]:
        raise SnapshotError("The snapshot's particle_slots name rows that nobody holds.")
    live = owners.nonzero()[0]
    _same(stored, "live", live)
    while capacity < owners.size:
        capacity *= 2
    affordable("the snapshot's live", float(capacity) * sum(a[0].size for a in engine.rows))
    engine.ensure_rows(capacity)
    engine.state.ledger.owners[: owners.size] = owners
    return live


def _rows(engine: Engine, stored: Arrays, live: NDArray[np.int64]) -> None:
    for name, array in engine.rows._asdict().items():
        shape = (live.size, *array.shape[1:])
        if array.dtype.kind == "i":
            array[live] = stored.wholes(f"row_{name}", shape)
        else:
            array[live] = stored.floats(f"row_{name}", shape, -_LARGEST, _LARGEST)


def _ledger(engine: Engine, stored: Arrays, live: NDArray[np.int64]) -> None:
    """The rows' facts."""
    state, time = engine.state, engine.time
    newest = int(state.clock.next_id[0]) - 1
    most = {"identity": newest, "told": 1, "first_seen": time, "last_seen": time}
    for name in Ledger._fields[1:]:
        least = UNBORN if name == "identity" else 0
        column = stored.wholes(f"ledger_{name}", (live.size,), least, most.get(name, LATEST))
        getattr(state.ledger, name)[live] = column
    soundness.check_ledger(state.particles, state.ledger, engine.plan)


def _candidates(engine: Engine, stored: Arrays) -> None:
    """Every row that a particle of the island holds is a candidate once, and nothing else is."""
    _compete(engine)
    candidates, clock = engine.state.candidates, engine.state.clock
    most = max(clock.candidates.tolist())
    shape = (clock.size.size, most)
    for name in ("row", "branch"):
        _same(stored, f"candidate_{name}", getattr(candidates, name)[:, :most])
    _same(stored, "clock_candidates", clock.candidates)
    if "candidate_weight" in stored:  # nobody asks for it
        stored.floats("candidate_weight", shape, 0.0, 1.0)
    candidates.outliers[:, :most] = stored.wholes("candidate_outliers", shape)
    candidates.score[:, :most] = stored.floats("candidate_score", shape, -_LARGEST, _LARGEST)
    soundness.check_outliers(clock, candidates.outliers)


def _compete(engine: Engine) -> None:
    """Who competes, as `start_batch` finds it; done again where there was too little room."""
    most, room = 1, 0
    while room < most:
        engine.ensure_candidates(most)
        state = engine.state
        room, row, branch = state.candidates.row.shape[1], *state.candidates[:2]
        held = np.zeros(state.ledger.owners.size, np.bool_)
        most = find_candidates(state.particles, state.clock, engine.plan.newborn, held, row, branch)


@kernel
def find_candidates(
    p: Particles,
    clock: Clock,
    newborn: bool,
    held: np.ndarray,
    out_row: np.ndarray,
    out_branch: np.ndarray,
) -> int:
    """Rows and branches of each island's candidates as far as there is room, and the most."""
    most = 0
    for g in range(clock.size.size):
        held[:] = False
        for i in range(clock.first[g], clock.first[g + 1]):
            for l in range(p.n_regimes[i] + 1):
                held[p.slots[i, l]] = True
        k = 0
        for row in range(held.size):
            if held[row]:
                branches = clock.size[g] // 2 + 1 if newborn and row == PRIOR_ROW else 1
                for branch in range(branches):
                    if k < out_row.shape[1]:
                        out_row[g, k] = row
                        out_branch[g, k] = branch if branches > 1 else -1
                    k += 1
        clock.candidates[g] = k
        most = max(most, k)
    return most


def _work(engine: Engine, stored: Arrays) -> None:
    """What the candidates have learnt of the batch under way."""
    counts = engine.state.clock.candidates
    islands, most = counts.size, max(counts.tolist())
    whole = any(f"work_{name}" in stored for name in ("u", "gain", "taken"))
    made = retrace.steps_of(engine) is not None and not whole
    for name, array in kept(engine.work).items():
        sizes = (islands, most, *array.shape[2:])
        if made and name in _RETRACED:
            continue
        if array.dtype.kind == "i":
            array[:, :most] = stored.wholes(f"work_{name}", sizes)
        else:
            array[:, :most] = stored.floats(f"work_{name}", sizes, -_LARGEST, _LARGEST)
    if made:
        retrace.make(engine, _told(engine, stored, (islands, most)))


def _told(engine: Engine, stored: Arrays, shape: tuple[int, int]) -> retrace.Told:
    """The steps as they were told, each of an observation that its batch has seen."""
    bound, far = _LARGEST, retrace.FARTHEST
    learnt = stored.wholes("work_learnt", shape, most=retrace.MOST_LEARNT)
    if not retrace.seen(engine, learnt):
        raise SnapshotError("The snapshot's work_learnt names what its batch has not seen.")
    taken = [n.bit_count() for n in learnt.reshape(-1).tolist()]
    if (
        "work_shrink" in stored or "work_off" in stored
    ):  # files of before have room for as many steps of each candidate
        room = (*shape, engine.longest)
        used = np.arange(engine.longest) < np.reshape(taken, (*shape, 1))
        shrink = stored.floats("work_shrink", room, -bound, bound)[used]
        return retrace.Told(learnt, shrink, stored.wholes("work_off", room, -far, far)[used])
    n = (sum(taken),)
    shrink = stored.floats("work_step_shrink", n, -bound, bound)
    return retrace.Told(learnt, shrink, stored.wholes("work_step_off", n, -far, far))


def _recent(engine: Engine, stored: Arrays) -> None:
    """The latest observations: all that there were, up to what is remembered."""
    bound = _LARGEST_DESIGN
    n = min(engine.time, engine.recent.length)
    wide = (engine.emission.shape.dim, *engine.emission.design_shape()) if n else (None,) * 3
    engine.recent.y = stored.floats("recent_y", (n, wide[0]), missing=True)
    engine.recent.design = stored.floats("recent_design", (n, *wide[1:]), -bound, bound)


def _report(engine: Engine, told: Values) -> None:
    """What was reported last, and the state of the random draws."""
    newest = int(engine.state.clock.next_id[0]) - 1
    engine.reported = told.whole("reported", UNBORN, max(newest, UNBORN))
    engine.changed = told.whole("changed", -1, engine.time)
    engine.told = set(told.wholes("told", None, 0, max(newest, 0)))
    try:
        engine.rng.bit_generator.state = told["rng"]
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise SnapshotError(f"The snapshot's random state is damaged: {error}.") from None
