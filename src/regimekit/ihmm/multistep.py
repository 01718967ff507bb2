"""Several steps ahead.

Without lags the candidates forecast every step themselves, and regimes move by their transitions
(D8). With lags a step depends on those before it: paths are simulated, each in a regime of its
own that moves from batch to batch, and the forecast of a step is the mixture of what the paths
say of it, so that it carries the uncertainty of what it was fed.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regimekit._numba import kernel
from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.emissions.base import Array, Facts, Rows, Sample, View, Work, look
from regimekit.ihmm.emissions.base import rest as rest_one
from regimekit.ihmm.engine import Engine
from regimekit.ihmm.limits import within_reach
from regimekit.ihmm.state import State
from regimekit.ihmm.transitions import moves
from regimekit.preprocessing.features import Features
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.two_pasts import RAW, TwoPasts

PATHS = 512


def rows_ahead(engine: Engine, features: Features, rows: list[Row | None]) -> list[Forecast]:
    """Mixtures of the candidates for each of the next observations, where nothing looks back."""
    if not engine.plan.mixture:
        return _as_the_batch_began(engine, features, rows)
    work = engine.copied_work()
    masses = engine.masses(len(rows))
    if not engine.plan.one_noise:
        masses = [np.repeat(mass[:1], len(rows), axis=0) for mass in masses]
    found = []
    for h, x in enumerate(rows):
        engine.look(_design(engine, features, x, h), work)
        parts = [_island(engine, g, mass[h], h) for g, mass in enumerate(masses)]
        share, location, spread, dof = (np.concatenate(part) for part in zip(*parts, strict=True))
        found.append(_with_outliers(engine, share, location, spread, dof))
        rest_all(engine.rows, work, engine.ref)
    return found


def _island(engine: Engine, g: int, mass: Array, h: int) -> tuple[Array, ...]:
    view, n = engine.state.ahead, mass.size
    spread = view.spread[g, :n].copy()
    if not engine.plan.one_noise:
        spread += h * engine.scales.noise  # Eq. (multistep_pred)
    share = mass / engine.state.clock.size.size
    return share, view.location[g, :n].copy(), spread, view.dof[g, :n].copy()


def _with_outliers(
    engine: Engine, share: Array, location: Array, spread: Array, dof: Array
) -> Forecast:
    """The mixture with the outliers' component last, where the model has one."""
    rate = engine.outlier_rate
    if rate == 0.0:
        return Forecast.mixture(share, location, spread, dof)
    centre = share @ location / share.sum()
    return Forecast.mixture(
        np.append((1 - rate) * share / share.sum(), rate),
        np.vstack([location, centre]),
        np.concatenate([spread, engine.scales.scale[None]]),
        np.append(dof, 2.0),
        outlier=rate,
    )


def _as_the_batch_began(
    engine: Engine, features: Features, rows: list[Row | None]
) -> list[Forecast]:
    """D7 off: each particle's regime as the batch began."""
    found = []
    for h, x in enumerate(rows):
        share, location, spread, dof = engine.components(_design(engine, features, x, h))
        if not engine.plan.one_noise:
            spread = spread + h * engine.scales.noise
        found.append(Forecast.mixture(share, location, spread, dof, outlier=engine.outlier_rate))
    return found


def _design(engine: Engine, features: Features, x: Row | None, h: int) -> Array:
    phi = features.row(x, engine.time + h, np.empty((0, engine.emission.shape.dim)))
    return engine.emission.design(within_reach(engine.emission, phi))


def paths_ahead(
    engine: Engine, features: Features, past: TwoPasts, rows: list[Row | None]
) -> list[Forecast]:
    """Mixtures over simulated paths; the draws depend on the state alone and change nothing."""
    rng = np.random.default_rng([engine.time, 7])
    state, d = engine.state, engine.emission.shape.dim
    island, candidate = _first_candidates(state, rng)
    pasts = past.values[_versions(past, rng)]
    matrices = [moves(engine.ref, engine.plan_ref, g) for g in range(state.clock.size.size)]
    found = []
    for h, x in enumerate(rows):
        if h:
            candidate = _move(state, matrices, island, candidate, h, rng)
        phi = within_reach(engine.emission, features.many(x, engine.time + h, pasts))
        designs = np.ascontiguousarray(engine.emission.designs(phi))
        location, spread, dof = np.empty((PATHS, d)), np.empty((PATHS, d, d)), np.empty(PATHS)
        look_paths(
            engine.rows,
            engine.work,
            engine.emission.facts,
            engine.ref,
            island,
            candidate,
            designs,
            state.ahead,
            location,
            spread,
            dof,
        )
        share = np.full(PATHS, 1.0 / PATHS)
        found.append(_with_outliers(engine, share, location, spread, dof))
        pasts = np.concatenate([pasts[:, 1:], _draw(location, spread, dof, rng)[:, None]], axis=1)
    engine.forget_look()
    return found


def _versions(past: TwoPasts, rng: np.random.Generator) -> NDArray[np.int64]:
    """Which past each path goes on from, by how likely they are."""
    if not past.pending:
        return np.zeros(PATHS, np.int64)
    return (rng.random(PATHS) < past.masses[RAW]).astype(np.int64)


def _first_candidates(
    state: State, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Island and candidate of every path, by their masses, evenly."""
    islands = state.clock.size.size
    island = np.arange(PATHS) * islands // PATHS
    candidate = np.empty(PATHS, np.int64)
    for g in range(islands):
        at = np.flatnonzero(island == g)
        mass = np.cumsum(state.candidates.mass[g, : state.clock.candidates[g]])
        places = (rng.random() + np.arange(at.size)) / at.size * mass[-1]
        candidate[at] = np.minimum(np.searchsorted(mass, places, side="right"), mass.size - 1)
    return island, candidate


def _move(
    state: State,
    matrices: list[Array],
    island: NDArray[np.int64],
    candidate: NDArray[np.int64],
    h: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Paths of the islands whose batch ends before step h go where their regime goes."""
    after = candidate.copy()
    for g, matrix in enumerate(matrices):
        if (state.clock.position[g] + h) % state.clock.size[g] == 0:
            at = np.flatnonzero(island == g)
            cumulative = np.cumsum(matrix[candidate[at]], axis=1)
            places = rng.random(at.size) * cumulative[:, -1]
            found = (cumulative <= places[:, None]).sum(axis=1)
            after[at] = np.minimum(found, matrix.shape[0] - 1)
    return after


def _draw(location: Array, spread: Array, dof: Array, rng: np.random.Generator) -> Array:
    """One value of every path."""
    noise = np.einsum("pij,pj->pi", np.linalg.cholesky(spread), rng.standard_normal(location.shape))
    finite = np.isfinite(dof)
    noise[finite] /= np.sqrt(rng.chisquare(dof[finite]) / dof[finite])[:, None]
    return np.asarray(location + noise)


@kernel
def look_paths(
    rows: Rows,
    work: Work,
    facts: Facts,
    state: State,
    island: np.ndarray,
    candidate: np.ndarray,
    designs: np.ndarray,
    view: View,
    out_location: np.ndarray,
    out_spread: np.ndarray,
    out_dof: np.ndarray,
) -> None:
    """The forecast of every path's candidate with the path's own design."""
    d = out_location.shape[1]
    y, lower, seen = np.zeros(d), np.empty((d, d)), np.arange(d)
    for i in range(island.size):
        g, k = island[i], candidate[i]
        sample = Sample(y, seen, designs[i], lower)
        look(rows, work, facts, g, k, state.candidates.row[g, k], sample, view)
        out_location[i] = view.location[g, k]
        out_spread[i] = view.spread[g, k]
        out_dof[i] = view.dof[g, k]


@kernel
def rest_all(rows: Rows, work: Work, state: State) -> None:
    """A moment without an observation for every candidate."""
    for g in range(state.clock.size.size):
        for k in range(state.clock.candidates[g]):
            rest_one(rows, work, g, k)
