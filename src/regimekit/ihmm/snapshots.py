"""The state of the filter as JSON values and arrays, and back.

Free rows and unused slots are not stored. Derived quantities are computed again, to the same bit:
rows in use, candidates, and their prior and posterior masses.

A snapshot may come from any source, and the kernels index without bounds checks. So every array is
compared with limits that no stream can exceed: features are at most 1e50, residuals 1e100,
variances of the settings lie between 1e-50 and 1e50, and learning never increases a covariance. So
coefficients stay below 1e155, and sums of squares are finite and positive.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import SnapshotError
from regimekit.ihmm.regime_filter import RegimeFilter
from regimekit.serialization import schema
from regimekit.serialization.schema import COUNT
from regimekit.serialization.validation import LATEST, Arrays, Values, affordable

Named = Mapping[str, NDArray[Any]]

MAX_STATISTIC = 1e300  # of any stored statistic of a row
MAX_COEFFICIENT = 1e155
MAX_FACTOR = 1e152  # of a noise: residuals of 1e100 at a scale of 1e50, and its square is finite
MIN_SCALE = 1e-145  # standard deviation, in the units of y: its square must not vanish
MAX_DIRECTION = 1e150  # of a step: features times the root of a covariance, in units of the noise
MAX_MOVE = 1e128  # of a mean by one step, in standard deviations of the row
MAX_DESIGN = 1e50
MAX_TABLES = 1e8  # drawn at the end of one batch: more would take minutes
TOLERANCE = 1e-6  # of sums that must be one
# Coordinates of a GARCH cloud are cut to these (`emissions.garch`).
MIN_GARCH_COEFFICIENT, MIN_GARCH_LOSS, MAX_GARCH_LEVEL = 1e-11, 5e-6, 120.2
_CONCENTRATION = (1e-300, 1e300)
_STEPS = ("u", "shrink", "gain")

PARTICLES = {
    "log_weight": ("float64", ("N",), -1e300, TOLERANCE),
    "alpha": ("float64", ("N",), *_CONCENTRATION),
    "gamma": ("float64", ("N",), *_CONCENTRATION),
    "current": ("int64", ("N",), -1, "C"),
    "n_regimes": ("int64", ("N",), 0, "C"),
}
SLOTS = {
    "slots": ("int64", ("N", "C1"), 0, "R"),
    "counts": ("int64", ("N", "C", "C"), *COUNT),
    "start": ("int64", ("N", "C"), *COUNT),
    "log_beta": ("float64", ("N", "C1"), -math.inf, TOLERANCE, "infinite"),
}
POOL = {
    "label": ("int64", ("R",), -1, "labels"),
    "reported": ("int64", ("R",), 0, 1),
    "first_seen": ("int64", ("R",), 0, "time"),
    "last_seen": ("int64", ("R",), 0, "time"),
    "visits": ("int64", ("R",), 0, "time"),
    "batches": ("int64", ("R",), 0, "time"),
}
CLOCK = {
    "size": ("int64", ("G",), 1, "longest"),
    "position": ("int64", ("G",), 0, "longest"),
    "observed": ("int64", ("G",), 0, "longest"),
    "commits": ("int64", ("G",), 0, "time"),
    "ess": ("float64", ("G",), 0.0, "particles"),
    "outliers": ("float64", ("2",), 1e-300, 1e12),
    "batch_outliers": ("float64", ("2",), 0.0, float(LATEST)),
}
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
    arrays = schema.pack_state(p, "particles.", PARTICLES)[1]
    arrays["particles.slots"] = _masked(p.slots, p.n_regimes, most + 1, 1)
    arrays["particles.log_beta"] = _masked(p.log_beta, p.n_regimes, most + 1, 1)
    arrays["particles.start"] = _masked(p.start, p.n_regimes, most, 0)
    counts = np.array(p.counts)[:, :most, :most]
    used = np.arange(most) < np.asarray(p.n_regimes)[:, None]
    arrays["particles.counts"] = np.where(used[:, :, None] & used[:, None, :], counts, 0)
    live = np.flatnonzero(pool.owners)
    rows = schema.pack_state(pool, "pool.", POOL)[1]
    arrays |= {name: array[live] for name, array in rows.items()}
    arrays |= schema.pack_state(clock, "clock.", CLOCK)[1]
    places = _places(filter)
    arrays["candidates.score"] = np.asarray(filter.candidates.score)[places]
    arrays["candidates.outliers"] = np.asarray(filter.candidates.outliers)[places]
    emission = filter.emission
    arrays |= {f"row.{n}": array[live] for n, array in emission.row_state().items()}
    work = {name: array[places] for name, array in emission.work_state().items()}
    for name in work.keys() & set(_STEPS):  # without steps that earlier batches left behind
        later = np.arange(work[name].shape[1]) >= work["taken"][:, None]
        work[name][later] = 0.0
    arrays |= {f"work.{name}": array for name, array in work.items()}
    y, designs = filter.recent()
    return values, arrays | {"recent_y": y, "recent_design": designs}


def _masked(array: Any, n_regimes: Any, width: int, more: int) -> NDArray[Any]:
    """Return the first columns of an array by slot, with 0 in slots that are not used."""
    columns = np.array(array)[:, :width]
    used = np.arange(width) < np.asarray(n_regimes)[:, None] + more
    return np.where(used, columns, 0)


def _places(filter: RegimeFilter) -> NDArray[np.int64]:
    """Return the places of the candidates of all islands, one after another."""
    return np.concatenate([filter.candidate_places(g) for g in range(filter.islands)])


def unpack(filter: RegimeFilter, values: Values, arrays: Arrays) -> None:
    """Restore the output of `pack` into a filter that was not initialized.

    Raises:
        SnapshotError: If the arrays are not a state that the filter could have been in.
    """
    clock, p, pool = filter.clock, filter.particles, filter.pool
    time = values.whole("time")
    labels = values.whole("next_label") - 1
    limits = {
        "time": time,
        "labels": labels,
        "longest": filter.longest,
        "particles": p.alpha.shape[0] * (1.0 + TOLERANCE),
    }
    state = _read(arrays, "clock.", CLOCK, G=filter.islands, **limits)
    _check_clock(state, time)
    particles = _read_particles(filter, arrays)
    _check_particles(filter, particles, state)
    live = _live_rows(filter, particles)
    rows = _read(arrays, "pool.", POOL, R=live.size, **limits)
    clock.time, clock.next_label = time, labels + 1
    clock.reported = values.whole("reported", -1, max(labels, -1))
    clock.n_known = values.whole("n_known", 0, live.size)
    clock.n_remembered = values.whole("n_remembered", 0, live.size)
    filter.reserve_slots(particles["start"].shape[1] + 2)
    filter.reserve_rows(int(live.max()) + 1)
    for name, array in particles.items():
        target = np.asarray(getattr(p, name))
        target[tuple(slice(0, k) for k in array.shape)] = array
    for name, array in rows.items():
        np.asarray(getattr(pool, name))[live] = array
    for name, array in state.items():
        np.asarray(getattr(clock, name))[:] = array
    _check_labels(filter)
    prior = _restore_rows(filter, arrays, live)
    pool.count_owners_of(p)
    _restore_candidates(filter, arrays, prior)
    _restore_recent(filter, arrays)
    filter.changed = values.whole("changed", -1, time)
    filter.since = values.whole("since", -1, time)
    filter.reported = values.whole("last_reported", -1, max(labels, -1))
    filter.reported_ever = set(values.wholes("reported_ever", None, 0, max(labels, 0)))
    filter.regime, filter.n_regimes = clock.reported, clock.n_known
    _restore_random(filter, values["rng"])


def _read(
    arrays: Arrays, prefix: str, fields: schema.Schema, **names: float
) -> dict[str, NDArray[Any]]:
    """Return validated arrays by field; `names` are the lengths and bounds of the schema."""
    state = SimpleNamespace(**names)
    schema.unpack_state(state, Values(), arrays, prefix, fields)
    return {name: getattr(state, name) for name in fields}


def _read_particles(filter: RegimeFilter, arrays: Arrays) -> dict[str, NDArray[Any]]:
    n, most = filter.particles.alpha.shape[0], filter.settings.max_regimes
    shape = arrays.form("particles.counts")[1]
    if len(shape) != 3 or not 0 <= shape[1] <= most:
        raise SnapshotError(f"Invalid snapshot: particles.counts has shape {shape}.")
    width = shape[1]
    # A row number is below the largest number of rows that are in use at once.
    rows = 2 * (n * (most + 4) + 64) - 1
    return _read(arrays, "particles.", PARTICLES | SLOTS, N=n, C=width, C1=width + 1, R=rows)


def _live_rows(filter: RegimeFilter, particles: Named) -> NDArray[np.int64]:
    """Return the rows that a particle stores, if there is memory for all of them."""
    slots = particles["slots"]
    used = np.arange(slots.shape[1]) <= particles["n_regimes"][:, None]
    live = np.unique(slots[used])
    emission = filter.emission
    row = sum(array[0].size for array in emission.row_state().values())
    affordable("particles.slots", 2.0 * float(live.max()) * row)
    return live


def _check_clock(state: Named, time: int) -> None:
    size, position, observed = state["size"], state["position"], state["observed"]
    _demand((position < size).all(), "clock.position must be below the size of the batch")
    _demand((observed <= position).all(), "clock.observed exceeds clock.position")
    _demand((position <= time).all(), "clock.position exceeds the number of observations")


def _check_particles(filter: RegimeFilter, particles: Named, state: Named) -> None:
    """Raise SnapshotError unless shares sum to one and every batch is one transition."""
    first = np.asarray(filter.clock.first)
    weights = np.add.reduceat(np.exp(particles["log_weight"]), first[:-1])
    _demand(_is_one(weights), "exp(particles.log_weight) must sum to one within an island")
    n_regimes, current, log_beta = (particles[n] for n in ("n_regimes", "current", "log_beta"))
    absent = (current >= n_regimes) | ((current < 0) & (n_regimes > 0))
    _demand(not absent.any(), "a particle is in a regime that it does not have")
    used = np.arange(log_beta.shape[1]) <= n_regimes[:, None]
    last = np.take_along_axis(log_beta, n_regimes[:, None], 1)
    shares = np.where(used, np.exp(log_beta), 0.0).sum(axis=1)
    valid = np.isfinite(last).all() and _is_one(shares)
    _demand(valid, "exp(particles.log_beta) must sum to one")
    # As floats, because a sum of whole numbers may overflow. Pruning adds a table to the start.
    made = particles["counts"].sum(axis=(1, 2), dtype=float) + particles["start"].sum(1, float)
    commits = np.repeat(state["commits"], np.diff(first))
    valid = (made <= 2.0 * commits + n_regimes + 1.0).all()
    _demand(valid, "particles.counts exceed the number of batches")
    _check_tables(filter, particles)


def _check_tables(filter: RegimeFilter, particles: Named) -> None:
    """Raise SnapshotError if a structure sweep would draw too many tables."""
    counts = np.concatenate([particles["start"][:, None], particles["counts"]], axis=1)
    beta = np.exp(particles["log_beta"][:, : counts.shape[2]])
    share = np.maximum(particles["alpha"][:, None, None] * beta[:, None], 1e-300)
    with np.errstate(all="ignore"):
        tables = np.minimum(counts, 1.0 + share * np.log1p(counts / share))
    most = float(tables.sum()) * max(filter.settings.sweeps, 1)
    words = "particles.alpha is too large for particles.counts: a sweep would draw too many tables"
    _demand(most <= MAX_TABLES, words)


def _check_labels(filter: RegimeFilter) -> None:
    """Raise SnapshotError unless exactly the opened regimes have labels."""
    slots, n = np.asarray(filter.particles.slots), np.asarray(filter.particles.n_regimes)
    place, label = np.arange(slots.shape[1]), np.asarray(filter.pool.label)
    opened = label[slots[place < n[:, None]]]
    last = slots[place == n[:, None]]
    valid = (opened >= 0).all() and (label[last] < 0).all()
    _demand(valid, "pool.label must be set for exactly the opened regimes")
    if filter.settings.shared_prior and not filter.settings.follow:
        _demand((last == 0).all(), "particles must share the row of the prior")


def _restore_rows(filter: RegimeFilter, arrays: Arrays, live: NDArray[np.int64]) -> Named:
    """Set the statistics of the rows; return those of the prior."""
    emission = filter.emission
    own = emission.row_state()
    prior = {name: array[0].copy() for name, array in own.items()}
    found = {
        name: _statistic(arrays, f"row.{name}", array, live.size) for name, array in own.items()
    }
    _check_statistics(found, prior)
    if live[0] == 0 and emission.timeless:
        same = all(array[0].tobytes() == prior[name].tobytes() for name, array in found.items())
        _demand(same, "row 0 is not the prior of the settings")
    for name, array in found.items():
        own[name][live] = array
    emission.check_rows(live)
    return prior


def _statistic(
    arrays: Arrays, name: str, like: NDArray[Any], n: int, most: int = LATEST
) -> NDArray[Any]:
    """Return an array of n statistics with the form of those of the emission."""
    shape = (n, *like.shape[1:])
    if like.dtype.kind == "f":
        return arrays.floats(name, shape, -MAX_STATISTIC, MAX_STATISTIC)
    return arrays.wholes(name, shape, 0, most)


def _check_statistics(own: Named, prior: Named) -> None:
    """Compare the statistics of rows or candidates with what learning can lead to."""
    if "mean" in own:
        _demand((np.abs(own["mean"]) <= MAX_COEFFICIENT).all(), f"mean exceeds {MAX_COEFFICIENT}")
    if "root" in own:
        with np.errstate(over="ignore"):
            size = np.sqrt((own["root"] ** 2).sum(axis=2))
        most = 2.0 * np.sqrt((prior["root"] ** 2).sum())
        valid = (size >= MIN_SCALE).all() and (size <= most).all()
        _demand(valid, "root is singular or exceeds the covariance of the prior")
    if "factor" in own:
        factor = own["factor"]
        _demand((np.abs(factor) <= MAX_FACTOR).all(), f"factor exceeds {MAX_FACTOR}")
        positive = (np.einsum("kii->ki", factor) >= MIN_SCALE).all()
        _demand(positive and not np.triu(factor, 1).any(), "factor: the noise is not positive")
    if "dof" in own:  # they grow by at most one per observation
        least = float(prior["dof"]) * (1.0 - TOLERANCE)
        valid = (own["dof"] >= least).all() and (own["dof"] <= LATEST + least).all()
        _demand(valid, "dof: degrees of freedom are below those of the prior")
    if "parameters" in own:
        _check_cloud(own, prior)


def _check_cloud(own: Named, prior: Named) -> None:
    """Raise SnapshotError for an invalid cloud of GARCH coefficients, variances and shares."""
    omega, a, b = np.moveaxis(own["parameters"], -1, 0)
    lost = 1.0 - a - b
    valid = (np.minimum(a, b) >= MIN_GARCH_COEFFICIENT).all() and (lost >= MIN_GARCH_LOSS).all()
    _demand(valid and (omega > 0.0).all(), "parameters: GARCH coefficients are out of range")
    centre = np.log(prior["parameters"][:, 0] / (1.0 - prior["parameters"][:, 1:].sum(axis=1)))
    level = np.log(omega / lost)
    near = (level >= centre.min() - MAX_GARCH_LEVEL) & (level <= centre.max() + MAX_GARCH_LEVEL)
    words = "parameters: the long-run variance is too far from that of the prior"
    _demand(near.all(), words)
    _demand((own["variance"] >= 1e-300).all(), "variance must be positive")
    valid = (own["log_weight"] <= TOLERANCE).all() and _is_one(np.exp(own["log_weight"]).sum(-1))
    _demand(valid, "exp(log_weight) must sum to one within a cloud")


def _restore_candidates(filter: RegimeFilter, arrays: Arrays, prior: Named) -> None:
    """Begin the present batches again and set the statistics of the candidates."""
    clock, emission = filter.clock, filter.emission
    position, observed = np.array(clock.position), np.array(clock.observed)
    counts = filter.count_candidates()
    drawn = 0 if filter.settings.shared_prior else filter.particles.alpha.shape[0]  # D9
    filter.reserve_candidates(2 * int(max(counts)) + 1 + drawn)
    for g in range(filter.islands):
        filter.restart_batch(g)
    np.asarray(clock.position)[:], np.asarray(clock.observed)[:] = position, observed
    places = _places(filter)
    n = places.size
    score = arrays.floats("candidates.score", (n,), -1e300, 1e300)
    outliers = arrays.wholes("candidates.outliers", (n,), 0, filter.longest)
    seen = np.repeat(observed, counts)
    _demand((outliers <= seen).all(), "candidates.outliers exceed the observations of the batch")
    work = emission.work_state()
    found = {
        name: _statistic(arrays, f"work.{name}", array, n, emission.most_steps())
        for name, array in work.items()
    }
    _check_statistics({name.removeprefix("work_"): array for name, array in found.items()}, prior)
    if "taken" in found:
        _check_steps(found, seen * (emission.most_steps() // filter.longest))
    np.asarray(filter.candidates.score)[places] = score
    np.asarray(filter.candidates.outliers)[places] = outliers
    for name, array in found.items():
        work[name][places] = array
    for g in range(filter.islands):
        filter.refresh_masses(g)


def _check_steps(work: Named, most: NDArray[np.int64]) -> None:
    """Raise SnapshotError for more steps than observations, or steps that widen a covariance."""
    taken, u, shrink, gain = (work[name] for name in ("taken", "u", "shrink", "gain"))
    _demand((taken <= most).all(), "work.taken exceeds the number of observations")
    own = np.arange(shrink.shape[1]) < taken[:, None]
    with np.errstate(all="ignore"):
        length = np.sqrt((u**2).sum(axis=2))
        valid = (np.abs(u) <= MAX_DIRECTION).all(axis=2) & (shrink >= 0.0)
        valid &= shrink * length * length <= 1.0 + TOLERANCE
        valid &= (np.abs(gain) * length[..., None] <= MAX_MOVE).all(axis=2)
    _demand(valid[own].all(), "work.u, work.shrink or work.gain is out of range")


def _restore_recent(filter: RegimeFilter, arrays: Arrays) -> None:
    length, dim = filter.recent_y.shape
    # Fewer than the time, if the units have changed since.
    n = arrays.form("recent_y")[1][0]
    _demand(n <= min(length, filter.clock.time), "recent_y: more observations than have been seen")
    y = arrays.floats("recent_y", (n, dim), missing=True)
    shape = (n, *filter.recent_design.shape[1:])
    designs = arrays.floats("recent_design", shape, -MAX_DESIGN, MAX_DESIGN)
    np.asarray(filter.recent_y)[:n] = y
    np.asarray(filter.recent_design)[:n] = designs
    filter.n_recent = n


def _is_one(sums: NDArray[Any]) -> bool:
    return bool((np.abs(sums - 1.0) < TOLERANCE).all())


def _demand(valid: object, words: str) -> None:
    if not valid:
        raise SnapshotError(f"Invalid snapshot: {words}.")


def _restore_random(filter: RegimeFilter, state: Any) -> None:
    try:
        filter.random.generator.bit_generator.state = state
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError):
        raise SnapshotError(
            "Invalid snapshot: the state of the random generator cannot be read."
        ) from None
