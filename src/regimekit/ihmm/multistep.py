"""Forecasts of several steps.

Without lags the candidates forecast every step, and regimes move by their transitions (D8). With
lags a step depends on those before it, so paths are simulated, each with its own regimes. The
forecast of a step is the mixture over the paths, which includes the uncertainty of the lags.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.regime_filter import RegimeFilter
from regimekit.preprocessing.features import Features
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.lag_buffer import RAW, LagBuffer

Array = NDArray[np.float64]
PATHS = 512  # simulated paths


def rows_ahead(engine: RegimeFilter, features: Features, rows: list[Row | None]) -> list[Forecast]:
    """Return the mixture of the candidates for each of the next observations, without lags.

    Args:
        engine: the filter.
        features: the feature map of its designs.
        rows: covariates of each observation.
    """
    if not engine.settings.mixture:
        return _from_batch_start(engine, features, rows)
    masses = [_masses(engine, g, len(rows)) for g in range(engine.islands)]
    places = np.concatenate([engine.candidate_places(g) for g in range(engine.islands)])
    work = {name: array.copy() for name, array in engine.emission.work_state().items()}
    found = []
    for h, x in enumerate(rows):
        design = _design(engine, features, x, h)
        location, spread, dof = engine.predict_places(
            places.tolist(), np.broadcast_to(design, (places.size, *design.shape))
        )
        if not engine.settings.one_noise:
            spread += h * np.asarray(engine.noise)  # Eq. (25), form:multistep_pred
        share = np.concatenate([mass[h] for mass in masses]) / engine.islands
        share = share * engine.faded(places)
        found.append(_with_outliers(engine, share, location, spread, dof))
        engine.skip_candidates()
    for name, array in engine.emission.work_state().items():
        array[...] = work[name]
    return found


def _masses(engine: RegimeFilter, g: int, horizon: int) -> Array:
    """Return masses (horizon, K) of the candidates of an island; regimes move once per batch."""
    clock = engine.clock
    batches = (clock.position[g] + np.arange(horizon)) // clock.size[g]
    if not engine.settings.one_noise:  # Deviation D8
        batches = np.zeros(horizon, np.int64)
    return np.asarray(engine.masses_ahead(g, int(batches[-1]) + 1)[batches])


def _with_outliers(
    engine: RegimeFilter, share: Array, location: Array, spread: Array, dof: Array
) -> Forecast:
    """Return the mixture with the component of outliers last, if the model has one."""
    rate = engine.rate()
    if rate == 0.0:
        return Forecast.mixture(share, location, spread, dof)
    centre = share @ location / share.sum()
    return Forecast.mixture(
        np.append((1 - rate) * share / share.sum(), rate),
        np.vstack([location, centre]),
        np.concatenate([spread, np.asarray(engine.outlier_scale)[None]]),
        np.append(dof, 2.0),
        outlier=rate,
    )


def _from_batch_start(
    engine: RegimeFilter, features: Features, rows: list[Row | None]
) -> list[Forecast]:
    """Return forecasts by the regime of each particle at the start of the batch (D7 off)."""
    found = []
    for h, x in enumerate(rows):
        share, location, spread, dof = engine.predict_one(_design(engine, features, x, h))
        if not engine.settings.one_noise:
            spread = spread + h * np.asarray(engine.noise)
        found.append(Forecast.mixture(share, location, spread, dof, outlier=engine.rate()))
    return found


def _design(engine: RegimeFilter, features: Features, x: Row | None, h: int) -> Array:
    phi = features.row(x, engine.clock.time + h, np.empty((0, engine.emission.dim)))
    return np.asarray(engine.designs(phi[None])[0])


def paths_ahead(
    engine: RegimeFilter, features: Features, past: LagBuffer, rows: list[Row | None]
) -> list[Forecast]:
    """Return mixtures over simulated paths; the draws depend on the state and do not change it.

    Args:
        engine: the filter.
        features: the feature map of its designs.
        past: earlier observations.
        rows: covariates of each observation.
    """
    rng = np.random.default_rng([engine.clock.time, 7])
    island, candidate = _first_candidates(engine, rng)
    pasts = past.values[_versions(past, rng)]
    matrices = [engine.expected_moves(g) for g in range(engine.islands)]
    found = []
    for h, x in enumerate(rows):
        if h:
            candidate = _move(engine, matrices, island, candidate, h, rng)
        phi = features.many(x, engine.clock.time + h, pasts)
        places = island * engine.candidates.capacity + candidate
        location, spread, dof = engine.predict_places(places.tolist(), engine.designs(phi))
        share = np.full(PATHS, 1.0 / PATHS)
        found.append(_with_outliers(engine, share, location, spread, dof))
        pasts = np.concatenate([pasts[:, 1:], _draw(location, spread, dof, rng)[:, None]], axis=1)
    return found


def _versions(past: LagBuffer, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the version of the past that each path starts from."""
    if not past.pending:
        return np.zeros(PATHS, np.int64)
    return (rng.random(PATHS) < past.masses[RAW]).astype(np.int64)


def _first_candidates(
    engine: RegimeFilter, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return island and candidate of every path, stratified by their masses."""
    islands = engine.islands
    island = np.arange(PATHS) * islands // PATHS
    candidate = np.empty(PATHS, np.int64)
    for g in range(islands):
        at = np.flatnonzero(island == g)
        mass = np.cumsum(np.asarray(engine.candidates.mass)[engine.candidate_places(g)])
        places = (rng.random() + np.arange(at.size)) / at.size * mass[-1]
        candidate[at] = np.minimum(np.searchsorted(mass, places, side="right"), mass.size - 1)
    return island, candidate


def _move(
    engine: RegimeFilter,
    matrices: list[Array],
    island: NDArray[np.int64],
    candidate: NDArray[np.int64],
    h: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw the next regime of the paths of islands whose batch ends before step h."""
    after = candidate.copy()
    for g, matrix in enumerate(matrices):
        if (engine.clock.position[g] + h) % engine.clock.size[g] == 0:
            at = np.flatnonzero(island == g)
            cumulative = np.cumsum(matrix[candidate[at]], axis=1)
            places = rng.random(at.size) * cumulative[:, -1]
            found = (cumulative <= places[:, None]).sum(axis=1)
            after[at] = np.minimum(found, matrix.shape[0] - 1)
    return after


def _draw(location: Array, spread: Array, dof: Array, rng: np.random.Generator) -> Array:
    """Draw one value of every path."""
    noise = np.einsum("pij,pj->pi", np.linalg.cholesky(spread), rng.standard_normal(location.shape))
    finite = np.isfinite(dof)
    noise[finite] /= np.sqrt(rng.chisquare(dof[finite]) / dof[finite])[:, None]
    return np.asarray(location + noise)
