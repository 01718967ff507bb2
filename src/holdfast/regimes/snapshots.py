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

from holdfast.checks import LATEST, Arrays, Values, affordable
from holdfast.errors import SnapshotError
from holdfast.regimes import retrace, soundness
from holdfast.regimes.commit import write_prior_mass
from holdfast.regimes.filter import spread_mass
from holdfast.regimes.prior import LEAST
from holdfast.regimes.state import (
    PRIOR_ROW,
    START,
    UNBORN,
    Clock,
    Ledger,
    Particles,
    blank_ledger,
    blank_particles,
    padded,
)

if TYPE_CHECKING:
    from holdfast.regimes.engine import Engine

_KEPT = ("score", "outliers")  # of the candidates
_LOOKED = frozenset({"raw", "ahead", "q", "start_q"})  # a forecast must leave no trace
_STEPS = ("u", "shrink", "gain")  # of which `taken` are in use
_RETRACED = ("u", "gain", "taken")  # of the steps, where they can be made again
_FOLLOWS = ("first", "candidates")  # of the clock
_LARGEST = 1e300
_LARGEST_DESIGN = 1e50  # features are kept below it: see `models.covariates`


def pack(engine: Engine) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Values and arrays of the whole state."""
    state = engine.state
    p, clock = state.particles, state.clock
    live = np.flatnonzero(state.ledger.owners)
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
    return kept_slots


def _used(array: NDArray[Any], clock: Clock) -> NDArray[Any]:
    """What belongs to candidates; what earlier batches left behind is not worth keeping."""
    found = array[:, : int(clock.candidates.max())].copy()
    for g, n in enumerate(clock.candidates):
        found[g, n:] = 0
    return found


def _used_work(engine: Engine) -> dict[str, NDArray[Any]]:
    """The candidates' work space, without steps of earlier batches."""
    clock = engine.state.clock
    found = {name: _used(array, clock) for name, array in kept(engine.work).items()}
    if "taken" in found:
        for name in _STEPS:
            array = found[name]
            array[np.arange(array.shape[2]) >= found["taken"][..., None]] = 0
    told = retrace.tell(engine)
    if told is None:
        return found
    shorter = {name: array for name, array in found.items() if name not in _RETRACED}
    return shorter | {name: _used(array, clock) for name, array in told._asdict().items()}


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
    clock = _clock(engine, stored)
    particles = _particles(engine, stored, clock)
    live = _live(engine, stored, particles)
    _rows(engine, stored, live)
    _ledger(engine, stored, particles, clock, live)
    engine.state = engine.state._replace(
        particles=particles,
        clock=clock,
        log_row=np.zeros((particles.alpha.size, particles.log_beta.shape[1])),
    )
    _candidates(engine, stored)
    _recent(engine, stored)
    _work(engine, stored)
    _report(engine, told)


def spread(engine: Engine) -> None:
    """What follows from the rest: the candidates' prior and posterior masses."""
    for g in range(engine.state.clock.size.size):
        write_prior_mass(engine.ref, engine.plan_ref, g, True)
        spread_mass(engine.ref, g)


def _clock(engine: Engine, stored: Arrays) -> Clock:
    old, longest = engine.state.clock, engine.longest
    g, n = old.size.size, engine.state.particles.alpha.size
    clock = Clock(
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
    _same(stored, "clock_first", clock.first)
    if (clock.position >= clock.size).any() or (clock.observed > clock.position).any():
        raise SnapshotError("The snapshot stands beyond the end of a batch.")
    if max(clock.position.max(), clock.commits.max()) > clock.time[0]:
        raise SnapshotError("The snapshot's clock_time is before the end of batches it has seen.")
    if clock.vote[0] >= max(clock.next_id[0], 1) or clock.vote[1:].min() < 0:
        raise SnapshotError("The snapshot's clock_vote names a regime that was never born.")
    return clock


def _same(stored: Arrays, name: str, found: NDArray[np.int64]) -> None:
    """Where a file holds what follows from the rest, it must be that."""
    if name in stored and not np.array_equal(stored.wholes(name, found.shape, UNBORN), found):
        raise SnapshotError(f"The snapshot's {name} is not that of its particles.")


def _live(engine: Engine, stored: Arrays, p: Particles) -> NDArray[np.int64]:
    """The rows in use: those that a particle holds."""
    held = np.zeros(int(p.slots.max()) + 1, np.bool_)
    held[p.slots[np.arange(p.slots.shape[1]) <= p.n_regimes[:, None]]] = True
    live = np.flatnonzero(held)
    if live[-1] < p.slots.max():
        raise SnapshotError("The snapshot's particle_slots name rows that nobody holds.")
    _same(stored, "live", live)
    return live


def _particles(engine: Engine, stored: Arrays, clock: Clock) -> Particles:
    n = engine.state.particles.alpha.size
    # A row's number is below the most that were ever in use at once.
    last = 2 * (n * (engine.plan.max_regimes + 4) + 64) - 1
    held = stored.form("particle_start")[1]
    w = held[1] if len(held) == 2 else -1
    if not 0 <= w <= engine.plan.max_regimes:
        raise SnapshotError(f"The snapshot's particle_start of shape {held} is none of the model.")
    p = Particles(
        log_weight=stored.floats("particle_log_weight", (n,), most=1e-6, endless=True),
        current=stored.wholes("particle_current", (n,), START, w - 1),
        n_regimes=stored.wholes("particle_n_regimes", (n,), most=w),
        slots=stored.wholes("particle_slots", (n, w + 1), most=last),
        counts=stored.wholes("particle_counts", (n, w, w)),
        start=stored.wholes("particle_start", (n, w)),
        log_beta=stored.floats("particle_log_beta", (n, w + 1), most=1e-6, endless=True),
        alpha=stored.floats("particle_alpha", (n,), LEAST, _LARGEST),
        gamma=stored.floats("particle_gamma", (n,), LEAST, _LARGEST),
    )
    if (p.current >= p.n_regimes).any() or ((p.current == START) & (p.n_regimes > 0)).any():
        raise SnapshotError("The snapshot has particles in regimes that they do not have.")
    soundness.check_particles(p, clock, engine.plan)
    return _wide(p)


def _wide(p: Particles) -> Particles:
    """The same particles with room for regimes to come."""
    width, c = p.start.shape[1], blank_particles(1).start.shape[1]
    while c <= width:
        c *= 2
    return p._replace(
        slots=padded(p.slots, 1, c + 1),
        counts=padded(padded(p.counts, 1, c), 2, c),
        start=padded(p.start, 1, c),
        log_beta=padded(p.log_beta, 1, c + 1),
    )


def _rows(engine: Engine, stored: Arrays, live: NDArray[np.int64]) -> None:
    each = sum(array[0].size for array in engine.rows)
    capacity = engine.state.ledger.owners.size
    while capacity <= live[-1]:
        capacity *= 2
    affordable("the snapshot's live", float(capacity) * each)
    engine.rows = engine.emission.blank(capacity)
    engine.emission.write_prior(engine.rows, PRIOR_ROW)
    engine.state = engine.state._replace(ledger=blank_ledger(capacity))
    for name, array in engine.rows._asdict().items():
        shape = (live.size, *array.shape[1:])
        if array.dtype.kind == "i":
            array[live] = stored.wholes(f"row_{name}", shape)
        else:
            array[live] = stored.floats(f"row_{name}", shape, -_LARGEST, _LARGEST)
    soundness.check_rows(engine.emission, engine.rows, live)


def _ledger(
    engine: Engine, stored: Arrays, p: Particles, clock: Clock, live: NDArray[np.int64]
) -> None:
    """The rows' facts, and who holds them: nobody holds a row that is not there."""
    ledger, time = engine.state.ledger, int(clock.time[0])
    most = {"identity": int(clock.next_id[0]) - 1, "told": 1, "first_seen": time, "last_seen": time}
    for name in Ledger._fields[1:]:
        least = UNBORN if name == "identity" else 0
        column = stored.wholes(f"ledger_{name}", (live.size,), least, most.get(name, LATEST))
        getattr(ledger, name)[live] = column
    slot = np.arange(p.slots.shape[1])
    opened, fresh = slot < p.n_regimes[:, None], slot == p.n_regimes[:, None]
    ledger.owners[:] = np.bincount(p.slots[opened | fresh], minlength=ledger.owners.size)
    unborn = ledger.identity == UNBORN
    if unborn[p.slots[opened]].any() or not unborn[p.slots[fresh]].all():
        raise SnapshotError("The snapshot's ledger_identity is not that of opened regimes.")
    if engine.plan.shared_prior and (p.slots[fresh] != PRIOR_ROW).any():
        raise SnapshotError("The snapshot's particles have priors of their own.")


def _candidates(engine: Engine, stored: Arrays) -> None:
    """Every row that a particle of the island holds is a candidate once, and nothing else is."""
    clock = engine.state.clock
    held, clock.candidates[:] = _expected(engine)
    most = int(clock.candidates.max())
    engine.ensure_candidates(most)
    candidates, shape = engine.state.candidates, (clock.size.size, most)
    used = _in_use(clock, candidates.row.shape[1])
    for name, column in zip(("row", "branch"), held.T, strict=True):
        getattr(candidates, name)[used] = column
        _same(stored, f"candidate_{name}", _used(getattr(candidates, name), clock))
    _same(stored, "clock_candidates", clock.candidates)
    if "candidate_weight" in stored:  # nobody asks for it
        stored.floats("candidate_weight", shape, 0.0, 1.0)
    candidates.outliers[:, :most] = stored.wholes("candidate_outliers", shape)
    candidates.score[:, :most] = stored.floats("candidate_score", shape, -_LARGEST, _LARGEST)
    outliers, observed = candidates.outliers[used], np.repeat(clock.observed, clock.candidates)
    if (outliers > observed).any():
        raise SnapshotError("The snapshot's candidate_outliers are more than was observed.")


def _in_use(clock: Clock, width: int) -> NDArray[np.bool_]:
    """(G, width) which places of the islands are candidates."""
    return np.arange(width) < clock.candidates[:, None]


def _expected(engine: Engine) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(row, branch) of all islands' candidates, and how many each island has.

    It is what `start_batch` makes of the particles.
    """
    p, clock, plan = engine.state.particles, engine.state.clock, engine.plan
    islands, capacity = clock.size.size, engine.state.ledger.owners.size
    used = np.arange(p.slots.shape[1]) <= p.n_regimes[:, None]
    island = np.repeat(np.arange(islands), np.diff(clock.first))
    held = np.unique((island[:, None] * capacity + p.slots)[used])
    island, rows = np.divmod(held, capacity)
    times = np.where((rows == PRIOR_ROW) & plan.newborn, clock.size[island] // 2 + 1, 1)
    sizes = np.bincount(np.repeat(island, times), minlength=islands)
    place = np.arange(times.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)  # in its island
    branch = np.where(np.repeat(times > 1, times), place, -1)
    return np.column_stack([np.repeat(rows, times), branch]), sizes


def _work(engine: Engine, stored: Arrays) -> None:
    """What the candidates have learnt of the batch under way."""
    clock = engine.state.clock
    work, most = kept(engine.work), int(clock.candidates.max())
    told = retrace.steps_of(engine) and not any(f"work_{name}" in stored for name in _RETRACED)
    for name, array in work.items():
        shape = (clock.size.size, most, *array.shape[2:])
        if told and name in _RETRACED:
            continue
        if array.dtype.kind == "i":
            array[:, :most] = stored.wholes(f"work_{name}", shape)
        else:
            array[:, :most] = stored.floats(f"work_{name}", shape, -_LARGEST, _LARGEST)
    if told:
        _make_steps(engine, stored, (clock.size.size, most))
    used = _in_use(clock, most)
    own = {name: array[:, :most][used] for name, array in work.items()}
    steps = [engine.emission.most_steps(int(n)) for n in clock.observed]
    soundness.check_work(engine.emission, own, np.repeat(steps, clock.candidates))


def _make_steps(engine: Engine, stored: Arrays, shape: tuple[int, int]) -> None:
    """The steps that were told, each of an observation that its batch has seen."""
    longest = engine.work.steps.shrink.shape[2]
    learnt = stored.wholes("work_learnt", shape, most=retrace.MOST_LEARNT)
    off = stored.wholes("work_off", (*shape, longest), -retrace.FARTHEST, retrace.FARTHEST)
    if not retrace.possible(engine) or (learnt & ~retrace.seen_bits(engine)[:, None]).any():
        raise SnapshotError("The snapshot's work_learnt names what its batch has not seen.")
    retrace.make(engine, retrace.Told(learnt, off))


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
