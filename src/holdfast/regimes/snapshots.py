"""The engine's state as JSON values and arrays, and back, every value checked.

Kernels index without bounds, so nothing that was read may reach them before each index, count,
length and range has been found possible. Vacant rows and unused slots are not kept. What follows
from the rest (prior masses, posterior masses) is computed anew, to the same bit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.checks import Arrays
from holdfast.errors import SnapshotError
from holdfast.regimes.commit import write_prior_mass
from holdfast.regimes.filter import spread_mass
from holdfast.regimes.state import START, UNBORN, Clock, Ledger, Particles, padded

if TYPE_CHECKING:
    from holdfast.regimes.engine import Engine

_MOST_CANDIDATES = 1 << 22
_KEPT = ("row", "branch", "score", "weight", "outliers")  # of the candidates
_LOOKED = frozenset({"raw", "ahead", "q", "start_q"})  # a forecast must leave no trace


def pack(engine: Engine) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Values and arrays of the whole state."""
    state = engine.state
    p, clock = state.particles, state.clock
    live = np.flatnonzero(state.ledger.owners)
    widest = int(p.n_regimes.max())
    values = {
        "capacity": int(state.ledger.owners.size),
        "slots": int(p.start.shape[1]),
        "reported": engine.reported,
        "changed": engine.changed,
        "told": sorted(engine.told),
        "rng": engine.rng.bit_generator.state,
    }
    arrays = {"live": live}
    arrays |= {f"particle_{name}": array for name, array in _used_slots(p, widest).items()}
    arrays |= {f"ledger_{n}": a[live] for n, a in state.ledger._asdict().items() if n != "owners"}
    arrays |= {f"clock_{name}": array for name, array in clock._asdict().items()}
    arrays |= {f"candidate_{n}": _used(getattr(state.candidates, n), clock) for n in _KEPT}
    arrays |= {f"row_{j}": array[live] for j, array in enumerate(engine.rows)}
    arrays |= {f"work_{j}": array for j, array in enumerate(_used_work(engine))}
    return values, arrays | engine.recent.pack()


def _used_slots(p: Particles, widest: int) -> dict[str, NDArray[Any]]:
    """The particles' arrays, without what forgotten regimes left behind."""
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


def _used_work(engine: Engine) -> list[NDArray[Any]]:
    """The candidates' work space, without steps of earlier batches."""
    clock, steps = engine.state.clock, getattr(engine.work, "steps", None)
    found = [_used(array, clock) for array in kept(engine.work)]
    if steps is not None:
        taken = found[3]  # u, shrink, gain, taken: see `linear.Steps`
        for array in found[:3]:
            array[np.arange(array.shape[2]) >= taken[..., None]] = 0
    return found


def kept(work: Any) -> list[NDArray[Any]]:
    """The arrays of a nested work space, in order, without what `look` writes anew."""
    found: list[NDArray[Any]] = []
    for name, part in work._asdict().items():
        if not isinstance(part, np.ndarray):
            found += kept(part)
        elif name not in _LOOKED:
            found.append(part)
    return found


def unpack(engine: Engine, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Take up what `pack` gave."""
    reader = _Reader(Arrays.of(arrays))
    _check_scalars(engine, values)
    particles = _particles(engine, reader, values)
    clock = _clock(engine, reader)
    live = reader.take("live", (None,), 0, values["capacity"] - 1)
    gapless = live.size > 0 and (live[0] == 0 or not engine.plan.shared_prior)
    if not gapless or (np.diff(live) <= 0).any():
        raise SnapshotError("The snapshot's rows are not in order.")
    _rows(engine, reader, values, live)
    owned = np.zeros(values["capacity"], bool)
    owned[live] = True
    used = np.arange(particles.slots.shape[1]) <= particles.n_regimes[:, None]
    if not owned[particles.slots[used]].all():
        raise SnapshotError("The snapshot's particles point at rows that it does not hold.")
    engine.state.ledger.owners[:] = np.bincount(particles.slots[used], minlength=values["capacity"])
    engine.state = engine.state._replace(
        particles=particles, clock=clock,
        log_row=np.zeros((particles.alpha.size, particles.log_beta.shape[1])),
    )  # fmt: skip
    _candidates(engine, reader, owned)
    _recent(engine, reader)
    engine.reported, engine.told = values["reported"], set(values["told"])
    engine.changed = values["changed"]
    try:
        engine.rng.bit_generator.state = values["rng"]
    except (TypeError, ValueError, KeyError, OverflowError) as error:
        raise SnapshotError(f"The snapshot's random state is damaged: {error}.") from None
    for g in range(clock.size.size):
        write_prior_mass(engine.ref, engine.plan_ref, g, True)
        spread_mass(engine.ref, g)


class _Reader:
    """Arrays by name, refused unless they are what is expected."""

    def __init__(self, arrays: Arrays) -> None:
        self.arrays = arrays

    def take(
        self, name: str, shape: tuple[int | None, ...], low: float, high: float,
        kind: str = "i",
    ) -> NDArray[Any]:  # fmt: skip
        """A fresh array of this shape (None: any length) with values in a range."""
        if kind == "i":
            return self.arrays.wholes(name, shape, int(low), int(high))
        return self.arrays.floats(name, shape, low, high, endless=low == -np.inf)


def _check_scalars(engine: Engine, values: dict[str, Any]) -> None:
    for name in ("capacity", "slots", "reported", "changed"):
        if type(values[name]) is not int:
            raise SnapshotError(f"The snapshot's {name!r} is not a whole number.")
    # Memory doubles when it is short, and a particle holds no more than `max_regimes` rows.
    most = 2 * (engine.state.particles.alpha.size * (engine.plan.max_regimes + 4) + 64)
    if not 1 < values["capacity"] <= most or not 1 < values["slots"] <= most:
        raise SnapshotError("The snapshot claims more memory than any model needs.")
    told = values["told"]
    if not isinstance(told, list) or not all(type(one) is int for one in told):
        raise SnapshotError("The snapshot's 'told' is not a list of ids.")


def _particles(engine: Engine, reader: _Reader, values: dict[str, Any]) -> Particles:
    n, last = engine.state.particles.alpha.size, values["capacity"] - 1
    c = min(values["slots"], max(engine.plan.max_regimes, 8) * 2 + 2)
    held = reader.arrays.form("particle_start")[1]
    if len(held) != 2:
        raise SnapshotError("The snapshot's particle_start has the wrong shape.")
    w = held[1]
    if w >= c:
        raise SnapshotError(f"The snapshot holds {w} regimes, more than the model's limit.")
    take, inf = reader.take, np.inf
    p = Particles(
        log_weight=take("particle_log_weight", (n,), -inf, 1e-6, "f"),
        current=take("particle_current", (n,), START, w - 1),
        n_regimes=take("particle_n_regimes", (n,), 0, w),
        slots=padded(take("particle_slots", (n, w + 1), 0, last), 1, c + 1),
        counts=_square(take("particle_counts", (n, w, w), 0, 1 << 50), c),
        start=padded(take("particle_start", (n, w), 0, 1 << 50), 1, c),
        log_beta=padded(take("particle_log_beta", (n, w + 1), -inf, 1e-6, "f"), 1, c + 1),
        alpha=take("particle_alpha", (n,), 1e-300, 1e300, "f"),
        gamma=take("particle_gamma", (n,), 1e-300, 1e300, "f"),
    )
    if (p.current >= p.n_regimes).any() or ((p.current == START) & (p.n_regimes > 0)).any():
        raise SnapshotError("The snapshot has particles in regimes that they do not have.")
    first = engine.state.clock.first
    with np.errstate(all="ignore"):
        totals = np.add.reduceat(np.exp(p.log_weight), first[:-1])
    if not (abs(totals - 1.0) < 1e-6).all():
        raise SnapshotError("The snapshot's 'particle_log_weight' are not shares of a whole.")
    return p


def _square(counts: NDArray[Any], c: int) -> NDArray[Any]:
    return padded(padded(counts, 1, c), 2, c)


def _clock(engine: Engine, reader: _Reader) -> Clock:
    old = engine.state.clock
    g, n = old.size.size, engine.state.particles.alpha.size
    longest = engine.longest
    take, big = reader.take, 1 << 60
    clock = Clock(
        first=take("clock_first", (g + 1,), 0, n),
        candidates=take("clock_candidates", (g,), 1, _MOST_CANDIDATES),
        size=take("clock_size", (g,), 1, longest),
        position=take("clock_position", (g,), 0, longest - 1),
        observed=take("clock_observed", (g,), 0, longest - 1),
        ess=take("clock_ess", (g,), 0, n * (1 + 1e-6), "f"),
        commits=take("clock_commits", (g,), 0, big),
        time=take("clock_time", (1,), 0, big),
        next_id=take("clock_next_id", (1,), 0, big),
        outliers=take("clock_outliers", (2,), 0, 1e12, "f"),
        batch_outliers=take("clock_batch_outliers", (2,), 0, 1e18, "f"),
        vote=take("clock_vote", (3,), UNBORN, big),
    )
    if (clock.first != old.first).any():
        raise SnapshotError("The snapshot's islands are not those of the model.")
    if (clock.position >= clock.size).any() or (clock.observed > clock.position).any():
        raise SnapshotError("The snapshot stands beyond the end of a batch.")
    return clock


def _rows(engine: Engine, reader: _Reader, values: dict[str, Any], live: NDArray[Any]) -> None:
    capacity, big = values["capacity"], 1 << 60
    rows = engine.emission.blank(capacity)
    engine.emission.write_prior(rows, 0)
    for j, array in enumerate(rows):
        kind = "i" if array.dtype.kind == "i" else "f"
        most = big if kind == "i" else 1e300
        array[live] = reader.take(f"row_{j}", (live.size, *array.shape[1:]), -most, most, kind)
    engine.emission.check_rows(rows, live)
    engine.rows = rows
    ledger = Ledger(*(np.zeros(capacity, np.int64) for _ in Ledger._fields))
    ledger.identity[:] = UNBORN
    for name in Ledger._fields[1:]:
        most = 1 if name == "told" else big
        getattr(ledger, name)[live] = reader.take(f"ledger_{name}", (live.size,), UNBORN, most)
    engine.state = engine.state._replace(ledger=ledger)


def _candidates(engine: Engine, reader: _Reader, owned: NDArray[np.bool_]) -> None:
    state = engine.state
    g, most = state.clock.size.size, int(state.clock.candidates.max())
    limits = {
        "row": (0, owned.size - 1), "branch": (-1, engine.longest), "outliers": (0, engine.longest),
        "score": (-np.inf, 1e300), "weight": (0.0, 1.0),
    }  # fmt: skip
    kinds = {"score": "f", "weight": "f"}
    told = {
        name: reader.take(f"candidate_{name}", (g, most), *limits[name], kinds.get(name, "i"))
        for name in _KEPT
    }
    engine.ensure_candidates(most)
    state = engine.state
    for name, array in told.items():
        getattr(state.candidates, name)[:, :most] = array
    for j, array in enumerate(kept(engine.work)):
        kind = "i" if array.dtype.kind == "i" else "f"
        bound = engine.emission.most_steps(engine.longest) if kind == "i" else 1e300
        low = 0 if kind == "i" else -bound
        array[:, :most] = reader.take(f"work_{j}", (g, most, *array.shape[2:]), low, bound, kind)
    for island in range(g):
        _check_candidates(engine, island)
        _check_steps(engine, island)


def _check_steps(engine: Engine, g: int) -> None:
    """No candidate has learnt more than its batch has seen: there would be no room for the rest."""
    clock = engine.state.clock
    most = engine.emission.most_steps(int(clock.observed[g]))
    for array in kept(engine.work):
        if array.dtype.kind == "i" and (array[g, : clock.candidates[g]] > most).any():
            raise SnapshotError("The snapshot's candidates have learnt more than there was to see.")


def _check_candidates(engine: Engine, g: int) -> None:
    """Every row that a particle of the island holds is a candidate once, and nothing else is."""
    state = engine.state
    p, clock = state.particles, state.clock
    n = clock.candidates[g]
    rows, branch = state.candidates.row[g, :n], state.candidates.branch[g, :n]
    part = slice(clock.first[g], clock.first[g + 1])
    used = np.arange(p.slots.shape[1]) <= p.n_regimes[part][:, None]
    held = np.unique(p.slots[part][used])
    firsts = rows[branch <= 0]
    branches = clock.size[g] // 2 + 1
    wanted = np.arange(branches) if engine.plan.newborn and branches > 1 else np.array([-1])
    newborn = branch[rows == 0]
    proper = np.array_equal(firsts, held) and (np.diff(rows) >= 0).all()
    proper = proper and (branch[rows != 0] == -1).all()
    if not proper or (newborn.size and not np.array_equal(newborn, wanted)):
        raise SnapshotError("The snapshot's candidates are not those of its particles.")


def _recent(engine: Engine, reader: _Reader) -> None:
    shape = engine.emission.shape
    n = reader.arrays.form("recent_y")[1][:1]
    if not n or n[0] > engine.recent.length:
        raise SnapshotError("The snapshot remembers more observations than a model does.")
    wide = (shape.dim,) if n[0] else (None,)
    engine.recent.y = reader.arrays.floats("recent_y", (n[0], *wide), missing=True)
    wanted = engine.emission.design_shape() if n[0] else (None, None)
    engine.recent.design = reader.arrays.floats("recent_design", (n[0], *wanted))
