"""The state of the filter as JSON values and arrays, and back.

Free rows and unused slots are not stored. What follows from the rest is computed again, to the same
bit: which rows are candidates, their prior and posterior masses.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.ihmm.algorithm import RegimeFilter
from regimekit.serialization import schema
from regimekit.serialization.schema import COUNT, FLOAT, INTEGER, Field
from regimekit.serialization.validation import LATEST, Arrays, Values

MAX_STATISTIC = 1e155  # of any stored statistic of a row
MAX_DESIGN = 1e50
_CONCENTRATION = (1e-300, 1e300)

PARTICLES = (
    Field("log_weight", ("N",), FLOAT, -1e300, 1e-6),
    Field("alpha", ("N",), FLOAT, *_CONCENTRATION),
    Field("gamma", ("N",), FLOAT, *_CONCENTRATION),
    Field("current", ("N",), INTEGER, -1, "C"),  # type: ignore[arg-type]
    Field("n_regimes", ("N",), INTEGER, 0, "C"),  # type: ignore[arg-type]
)
SLOTS = (
    Field("slots", ("N", "C1"), INTEGER, *COUNT),
    Field("counts", ("N", "C", "C"), INTEGER, *COUNT),
    Field("start", ("N", "C"), INTEGER, *COUNT),
    Field("log_beta", ("N", "C1"), FLOAT, high=1e-6, infinite=True),
)
POOL = (
    Field("label", ("R",), INTEGER, -1, LATEST),
    Field("reported", ("R",), INTEGER, 0, 1),
    Field("first_seen", ("R",), INTEGER, -LATEST, LATEST),
    Field("last_seen", ("R",), INTEGER, -LATEST, LATEST),
    Field("visits", ("R",), INTEGER, *COUNT),
    Field("batches", ("R",), INTEGER, *COUNT),
)
CLOCK = (
    Field("size", ("G",), INTEGER, 1, 20_000),
    Field("position", ("G",), INTEGER, 0, 20_000),
    Field("observed", ("G",), INTEGER, 0, 20_000),
    Field("commits", ("G",), INTEGER, *COUNT),
    Field("ess", ("G",), FLOAT, 0.0, 1e6),
    Field("outliers", (2,), FLOAT, 0.0, 1e6),
    Field("batch_outliers", (2,), FLOAT, 0.0, float(LATEST)),
)
COUNTERS = ("time", "next_label", "reported", "n_known", "n_remembered")


def pack(filter: RegimeFilter) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return values and arrays of the whole state."""
    p, pool, clock = filter.particles, filter.pool, filter.clock
    values: dict[str, Any] = {name: int(getattr(clock, name)) for name in COUNTERS}
    values |= {
        "changed": int(filter.changed),
        "since": int(filter.since),
        "last_reported": int(filter.reported),
        "reported_ever": sorted(int(label) for label in filter.reported_ever),
        "rng": filter.random.generator.bit_generator.state,
    }
    most = int(np.asarray(p.n_regimes).max())
    arrays = schema.pack(p, PARTICLES, "particles.")
    arrays["particles.slots"] = _masked(p.slots, p.n_regimes, most + 1, 1)
    arrays["particles.log_beta"] = _masked(p.log_beta, p.n_regimes, most + 1, 1)
    arrays["particles.start"] = _masked(p.start, p.n_regimes, most, 0)
    counts = np.array(p.counts)[:, :most, :most]
    used = np.arange(most) < np.asarray(p.n_regimes)[:, None]
    arrays["particles.counts"] = np.where(used[:, :, None] & used[:, None, :], counts, 0)
    live = np.flatnonzero(pool.owners)
    arrays["pool.rows"] = live
    arrays |= {name: array[live] for name, array in schema.pack(pool, POOL, "pool.").items()}
    arrays |= schema.pack(clock, CLOCK, "clock.")
    places = _places(filter)
    arrays["candidates.score"] = np.asarray(filter.candidates.score)[places]
    arrays["candidates.outliers"] = np.asarray(filter.candidates.outliers)[places]
    emission = filter.emission
    arrays |= {f"row.{n}": array[live] for n, array in emission.row_state().items()}
    arrays |= {f"work.{n}": array[places] for n, array in emission.work_state().items()}
    y, designs = filter.recent()
    return values, arrays | {"recent_y": y, "recent_design": designs}


def _masked(array: Any, n_regimes: Any, width: int, more: int) -> NDArray[Any]:
    """The first columns of an array by slot, with 0 in slots that are not used."""
    columns = np.array(array)[:, :width]
    used = np.arange(width) < np.asarray(n_regimes)[:, None] + more
    return np.where(used, columns, 0)


def _places(filter: RegimeFilter) -> NDArray[np.int64]:
    """Places of the candidates of all islands, one after another."""
    return np.concatenate([filter.candidate_places(g) for g in range(filter.islands)])


def unpack(filter: RegimeFilter, values: Values, arrays: Arrays) -> None:
    """Restore what `pack` returned into a filter that was not initialized.

    Raises:
        SnapshotError: If the arrays are not a state that the filter could have been in.
    """
    clock, p, pool, emission = filter.clock, filter.particles, filter.pool, filter.emission
    n, groups = int(p.alpha.shape[0]), filter.islands
    n_slots = arrays.form("particles.counts")[1]
    if len(n_slots) != 3 or not 0 <= n_slots[1] <= filter.settings.max_regimes:
        raise SnapshotError(f"Invalid snapshot: transition counts have shape {n_slots}.")
    most = n_slots[1]
    sizes = {"N": n, "C": most, "C1": most + 1, "G": groups}
    fields = [f._replace(high=most) if f.high == "C" else f for f in PARTICLES]
    particles = schema.unpack(arrays, [*fields, *SLOTS], sizes, "particles.")
    live = arrays.wholes("pool.rows", (None,), 0, 10_000_000)
    _check_particles(particles, live)
    sizes["R"] = live.size
    rows = schema.unpack(arrays, POOL, sizes, "pool.")
    state = schema.unpack(arrays, CLOCK, sizes, "clock.")
    _check_clock(filter, state)
    for name in COUNTERS:
        setattr(clock, name, values.whole(name, -1 if name == "reported" else 0))
    if live.size and int(rows["label"].max()) >= clock.next_label:
        raise SnapshotError("Invalid snapshot: a regime label has not been given out yet.")
    filter.reserve_slots(most + 2)
    filter.reserve_rows(int(live.max(initial=0)) + 1)
    for name, array in particles.items():
        target = np.asarray(getattr(p, name))
        target[tuple(slice(0, k) for k in array.shape)] = array
    for name, array in rows.items():
        np.asarray(getattr(pool, name))[live] = array
    for name, array in state.items():
        np.asarray(getattr(clock, name))[:] = array
    for name, target in emission.row_state().items():
        kind = target.dtype.kind
        shape = (live.size, *target.shape[1:])
        if kind == "f":
            target[live] = arrays.floats(f"row.{name}", shape, -MAX_STATISTIC, MAX_STATISTIC)
        else:
            target[live] = arrays.wholes(f"row.{name}", shape, -LATEST, LATEST)
    emission.check_rows(live)
    pool.count_owners_of(p)
    _restore_candidates(filter, arrays)
    _restore_recent(filter, arrays)
    filter.changed = values.whole("changed", -1)
    filter.since = values.whole("since", -1)
    filter.reported = values.whole("last_reported", -1)
    filter.reported_ever = set(values.wholes("reported_ever", None, 0))
    filter.regime, filter.n_regimes = clock.reported, clock.n_known
    _restore_random(filter, values["rng"])


def _check_particles(particles: dict[str, NDArray[Any]], live: NDArray[np.int64]) -> None:
    n_regimes, current, slots = (particles[name] for name in ("n_regimes", "current", "slots"))
    if (current >= n_regimes).any() or ((current < 0) & (n_regimes > 0)).any():
        raise SnapshotError("Invalid snapshot: a particle is in a regime that it does not have.")
    used = np.arange(slots.shape[1]) <= n_regimes[:, None]
    if not np.isin(slots[used], live).all():
        raise SnapshotError("Invalid snapshot: a particle points at a row that is not stored.")
    if np.unique(live).size < live.size:
        raise SnapshotError("Invalid snapshot: a row is stored twice.")
    shares = np.where(used, np.exp(particles["log_beta"]), 0.0).sum(axis=1)
    if not np.allclose(shares, 1.0, atol=1e-6, rtol=0.0):
        raise SnapshotError("Invalid snapshot: the shares of regimes must sum to one.")


def _check_clock(filter: RegimeFilter, state: dict[str, NDArray[Any]]) -> None:
    size, position, observed = state["size"], state["position"], state["observed"]
    if (size > filter.longest).any() or (position >= size).any() or (observed > position).any():
        raise SnapshotError("Invalid snapshot: a batch is longer than the settings allow.")


def _restore_candidates(filter: RegimeFilter, arrays: Arrays) -> None:
    """Begin the batches under way again and set what the candidates had learnt."""
    clock = filter.clock
    position, observed = np.array(clock.position), np.array(clock.observed)
    counts = filter.count_candidates()
    filter.reserve_candidates(2 * int(max(counts)) + 1 + filter.extra_rows())
    for g in range(filter.islands):
        filter.restart_batch(g)
    np.asarray(clock.position)[:], np.asarray(clock.observed)[:] = position, observed
    places = _places(filter)
    n, emission = places.size, filter.emission
    score = arrays.floats("candidates.score", (n,), -1e300, 1e300)
    np.asarray(filter.candidates.score)[places] = score
    np.asarray(filter.candidates.outliers)[places] = arrays.wholes(
        "candidates.outliers", (n,), 0, filter.longest
    )
    work = emission.work_state()
    found: dict[str, NDArray[Any]] = {}
    for name, array in work.items():
        shape = (n, *array.shape[1:])
        if array.dtype.kind == "f":
            found[name] = arrays.floats(f"work.{name}", shape, -MAX_STATISTIC, MAX_STATISTIC)
        else:
            found[name] = arrays.wholes(f"work.{name}", shape, 0, emission.most_steps())
    for name, array in found.items():
        work[name][places] = array
    for g in range(filter.islands):
        filter.refresh_masses(g)


def _restore_recent(filter: RegimeFilter, arrays: Arrays) -> None:
    length, dim = filter.recent_y.shape
    y = arrays.floats("recent_y", (None, dim), missing=True)
    if len(y) > length:
        raise SnapshotError(f"Invalid snapshot: {len(y)} recent observations, at most {length}.")
    shape = (len(y), *filter.recent_design.shape[1:])
    designs = arrays.floats("recent_design", shape, -MAX_DESIGN, MAX_DESIGN)
    np.asarray(filter.recent_y)[: len(y)] = y
    np.asarray(filter.recent_design)[: len(y)] = designs
    filter.n_recent = len(y)


def _restore_random(filter: RegimeFilter, state: Any) -> None:
    try:
        filter.random.generator.bit_generator.state = state
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        raise SnapshotError("Invalid snapshot: the state of the random generator.") from None
