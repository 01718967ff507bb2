"""Lags that are robust to outliers (D13): the filter with two versions of the past.

Through a lag an outlier would become a covariate of later observations, which no weight limits; a
jump of the stream has to be one. After a possible outlier both versions of the past are stored
(`preprocessing.lag_buffer`), the next forecast mixes the forecasts of the filter under each, and
the next observation decides with which version it is learnt. Without a possible outlier, or without
lags, the filter processes all observations in one call.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from regimekit.distributions.forecast import Forecast, Forecasts
from regimekit.ihmm.regime_filter import Outputs, RegimeFilter
from regimekit.preprocessing.features import Features
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.lag_buffer import CLEAN, RAW, LagBuffer, log_outlier, unmoved

Array = NDArray[np.float64]
Pair = tuple[Forecast, Forecast]  # under the clean and under the raw past

USUAL_RATE = 0.05  # of outliers, if they are down-weighted and no rate is learnt
MAX_VALUE = 1e150  # larger observations are clipped to this


def observe(
    engine: RegimeFilter,
    features: Features,
    past: LagBuffer,
    y: Array,
    rows: list[Row | None],
    doubt: float,
) -> Outputs:
    """Learn observations y (T, d) with their covariates.

    Args:
        engine: the filter.
        features: the feature map of its designs.
        past: earlier observations; it is updated.
        y: observations.
        rows: covariates of each observation.
        doubt: an observation with a smaller weight is a possible outlier; 0 for none.

    Returns:
        The outputs of all T observations.
    """
    parts: list[Outputs] = []
    t = 0
    while t < len(y):
        if past.pending:
            part = _observe_next(engine, features, past, y[t], rows[t])
        else:
            phi = features.block(rows[t:], engine.clock.time, past.values[CLEAN], y[t:])
            part = engine.run(y[t:], engine.designs(phi), doubt)
        parts.append(part)
        start, t = t, t + len(part.weight)
        if past.depth:
            # Only the last observation can be a possible outlier.
            latest = y[max(start, t - 1 - past.depth) : t - 1]
            # Before a gap all are needed: it repeats what was before it.
            for value in y[start : t - 1] if np.isnan(latest).any() else latest:
                past.push(value, value)
            _remember(past, y[t - 1], part.forecasts[-1], float(part.weight[-1]), doubt)
    return Outputs.joined(parts)


def _observe_next(
    engine: RegimeFilter, features: Features, past: LagBuffer, y: Array, x: Row | None
) -> Outputs:
    """Learn the observation after a possible outlier with the past that explains it better."""
    masses = past.masses
    designs, pair = _predict_both(engine, features, past, x)
    version = _choose_past(past, pair, y)
    part = engine.run(y[None], designs[version][None])
    return part._replace(forecasts=Forecasts.stack([_mixed(pair, masses)]))


def expect(engine: RegimeFilter, features: Features, past: LagBuffer, x: Row | None) -> Forecast:
    """Return the forecast of the next observation, mixed over both versions of the past.

    Args:
        engine: the filter.
        features: the feature map of its designs.
        past: earlier observations.
        x: covariates of the observation.
    """
    if past.pending:
        return _mixed(_predict_both(engine, features, past, x)[1], past.masses)
    return engine.forecast_for(features.row(x, engine.clock.time, past.values[CLEAN]))


def _predict_both(
    engine: RegimeFilter, features: Features, past: LagBuffer, x: Row | None
) -> tuple[list[Array], Pair]:
    """Return designs and forecasts of the next observation under the clean and the raw past."""
    phi = [features.row(x, engine.clock.time, past.values[version]) for version in (CLEAN, RAW)]
    # The clean one last: it is usually the one that is learnt.
    raw, clean = engine.forecast_for(phi[RAW]), engine.forecast_for(phi[CLEAN])
    # Without the regimes that the possible outlier has moved.
    n = clean.share.size - (clean.outlier > 0)
    keep = np.ones(clean.share.size, bool)
    keep[:n] = unmoved(clean.share[:n], clean.location[:n], np.zeros(n, np.int64), past)
    share = np.where(keep, clean.share, 0.0)
    share[:n] *= clean.share[:n].sum() / share[:n].sum()
    location, spread, dof = clean.location[keep], clean.spread[keep], clean.dof[keep]
    clean = Forecast(share[keep], location, spread, dof, clean.outlier)
    return [engine.designs(row[None])[0] for row in phi], (clean, raw)


def _choose_past(past: LagBuffer, pair: Pair, y: Array) -> int:
    """Return the version of the past with the larger density of y; a missing y is no evidence."""
    seen = ~np.isnan(y)
    if not seen.any():
        return CLEAN
    rate = pair[CLEAN].outlier or USUAL_RATE
    centre, noise = _centre_and_noise(_mixed(pair, past.masses))
    log_q = math.log(rate) + seen.sum() * log_outlier(_largest_error(y, centre, noise))
    log_q -= float(np.log(noise[seen]).sum())
    value = y if y.size > 1 else y[0]
    # Both densities include that y is an outlier, so a second spike has little influence.
    logs = [
        float(np.logaddexp(math.log1p(-rate) + float(f.ordinary.log_density(value)), log_q))
        for f in pair
    ]
    return past.decide(logs[CLEAN], logs[RAW])


def _remember(past: LagBuffer, y: Array, forecast: Forecast, weight: float, doubt: float) -> None:
    """Push y; if its weight is below `doubt`, store a clean version near the forecast too."""
    if past.pending or np.isnan(y).all() or weight >= doubt:
        past.push(y, y)  # pending: nothing was observed since the possible outlier
        return
    centre, noise = _centre_and_noise(forecast)
    away = np.clip(y, -MAX_VALUE, MAX_VALUE) - centre
    # At most one noise scale from the forecast, and equal to it in the limit of large y.
    believed = centre + np.clip(weight * away, -noise, noise)
    # No step is larger than the observed one, so that an extreme forecast does not amplify itself.
    before = past.values[CLEAN, -1]
    most = np.abs(np.clip(y, -MAX_VALUE, MAX_VALUE) - before)
    believed = before + np.clip(believed - before, -most, most)
    rate = forecast.outlier or USUAL_RATE
    past.doubt(believed, y, _largest_error(y, centre, noise), rate)


def _mixed(pair: Pair, masses: tuple[float, float]) -> Forecast:
    """Return one forecast from those of both pasts, with one component of outliers."""
    clean, raw = pair
    parts = []
    for mass, f in zip(masses, pair, strict=True):
        n = f.share.size - (f.outlier > 0)
        parts.append((mass * f.share[:n], f.location[:n], f.spread[:n], f.dof[:n]))
    if clean.outlier:
        centre = masses[CLEAN] * clean.location[-1:] + masses[RAW] * raw.location[-1:]
        parts.append((clean.share[-1:], centre, clean.spread[-1:], clean.dof[-1:]))
    share, location, spread, dof = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Forecast(share, location, spread, dof, clean.outlier)


def _centre_and_noise(forecast: Forecast) -> tuple[Array, Array]:
    """Return (d,) mean without outliers, and noise: the geometric mean of the scales."""
    f = forecast.ordinary
    scale = np.sqrt(np.einsum("kii->ki", f.spread))
    return f.share @ f.location, np.exp(f.share @ np.log(scale))


def _largest_error(y: Array, centre: Array, noise: Array) -> float:
    """Return the largest error of an observed coordinate, in noise scales."""
    return float(np.nanmax(np.abs(np.clip(y, -MAX_VALUE, MAX_VALUE) - centre) / noise))
