"""Forecasts several steps ahead, learnt from what such forecasts missed before.

At the time of a forecast, the members of `regimekit.ensemble.hindcast` forecast 1, 2, .., H steps
ahead from up to `_MAX_ORIGINS` past origins and from the latest value, each from what was known
there. For every horizon h

    weights     of a linear pool of the members: the smallest mean absolute error over the origins,
                shrunk to weights ~ (mean absolute error)^-p, p larger the more origins there are
    spread      the errors of this pool at the origins are the distribution around its forecast;
                they are multiplied by (s_now / s_origin)^k, where s is the ensemble's noise scale
                and k the exponent under which the errors were most likely; the fewer of them are
                independent and the faster they grow with the
                horizon, the heavier are the tails
    range       no forecast leaves the range of the past, widened by the largest change seen over
                the same number of steps

so weights, spread, skewness and calibration belong to the horizon. Streams of positive values are
also forecast in logarithms. Everything is a function of the stored past: nothing is learnt by a
forecast, and a model that was saved and loaded forecasts the same.

The regimes enter by the one-step forecasts and their noise scales, which are stored: several
members start from the former, and the latter scale the errors. If there are covariates, the members
forecast the stream less their effect (`regimekit.ensemble.covariate_effect`); regimes in which the
effect differs are followed along simulated paths (`regimekit.ensemble.paths`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.ensemble.covariate_effect import Effect, fit
from regimekit.ensemble.engine import MAX_FOUND, Engine
from regimekit.ensemble.hindcast import START, Hindcast
from regimekit.ensemble.pooling import distribute, pool
from regimekit.ensemble.seasonality import propose

Array = NDArray[np.float64]
Component = tuple[Array, Array, Array, Array]  # share, location, spread, dof

_MAX_ORIGINS = 80
_GRID = (1, 2, 3, 4, 6, 8, 12, 16, 24, 36, 48, 72, 96, 144, 192, 288, 384)
_MAX_MEMBERS = 14  # in the pool of one horizon
_POWER = 4.0  # largest power of the mean absolute error in the prior weights of a pool
_STRENGTH = 0.05  # of the shrinkage of a pool to its prior
_ROUNDS = 25  # steps towards the best pool
_RECENT = 400.0  # observations after which an origin counts 1 / e
_MIN_LOG_RANGE = 1.5  # largest over smallest value from which logarithms are tried
_BANDS = 20  # components of a forecast
_NEAREST = (1, 2, 3)  # lags beside covariates
_DOF = 8.0
_INFLATION = 1.0  # of the variance, over the number of independent errors
_JOINT_INFLATION = 4.0  # the same for several coordinates, whose tails are not changed
_DOF_PER_ERROR = 0.5  # degrees of freedom of the scale of the errors, per independent error
_WIDE_WEIGHT = 3.0  # share of the wider law, times the squared number of such errors plus one
_ENOUGH = 6.0  # independent errors from which their growth with the horizon is known


class Past(NamedTuple):
    """The stored past of one coordinate, in the user's units."""

    y: Array  # (n,) observations, NaN if missing
    start: Array  # (n + 1,) one-step forecasts, the next one last
    noise: Array  # (n + 1,) their scales
    regular: Array  # (n,) probabilities of being no outlier


class Pooled(NamedTuple):
    """Forecasts of one coordinate for all horizons, with the errors of their past."""

    point: Array  # (H,)
    error: Array  # (origins, H), NaN where not known yet
    importance: Array  # (origins,)
    noise: Array  # (origins + 1,) noise scale at the origins and now
    independent: Array  # (H,) number of independent errors
    reach: Array  # (H,) length of the range of plausible values


def clean(past: Past) -> Array:
    """Return the observations with gaps and spikes replaced by their one-step forecasts.

    What is still far beyond the usual range is clipped.
    """
    y = past.y.copy()
    gap = ~np.isfinite(y)
    y[gap] = past.start[:-1][gap]
    if gap.any() and not np.isfinite(y).all():
        seen = np.isfinite(y)
        y = np.interp(np.arange(y.size), np.flatnonzero(seen), y[seen])
    after = np.append(y[1:], past.start[-1])
    returned = np.abs(after - past.start[:-1]) < np.abs(after - y)
    y = np.where((past.regular < 0.5) & returned, past.start[:-1], y)
    low, high = np.quantile(y, [0.01, 0.99])
    reach = max(3.0 * (high - low), 20.0 * float(np.median(past.noise)))
    return np.asarray(np.clip(y, low - reach, high + reach))


def limits(x: Array, origins: NDArray[np.int64], horizon: int) -> tuple[Array, Array]:
    """Return (origins, H) smallest and largest plausible values."""
    low, high = np.minimum.accumulate(x)[origins], np.maximum.accumulate(x)[origins]
    margin = 0.1 * (high - low)
    longest = max(1, x.size // 2)
    rise, fall = np.zeros(horizon), np.zeros(horizon)
    for h in _knots(horizon):
        lag = min(h, longest)
        change = x[lag:] - x[:-lag]
        growth = 1.2 * np.sqrt(h / lag)
        rise[h - 1] = growth * max(change.max(initial=0.0), 0.0)
        fall[h - 1] = growth * min(change.min(initial=0.0), 0.0)
    at, steps = np.array(_knots(horizon)), np.arange(1, horizon + 1)
    rise, fall = np.interp(steps, at, rise[at - 1]), np.interp(steps, at, fall[at - 1])
    here = x[origins][:, None]
    return (
        np.minimum((low - margin)[:, None], here + fall),
        np.maximum((high + margin)[:, None], here + rise),
    )


def _knots(horizon: int) -> list[int]:
    """Return the horizons at which weights are found."""
    return sorted({h for h in _GRID if h < horizon} | {horizon})


def choose_origins(n: int, period: int) -> NDArray[np.int64]:
    """Return the indices of the origins, evenly spaced, the latest value last."""
    first = min(max(3, n // 6, min(int(2.2 * period), n // 2)), n - 1)
    step = max(1, -(-(n - 1 - first) // _MAX_ORIGINS))
    return np.arange(n - 1, first - 1, -step)[::-1]


class Covariates(NamedTuple):
    """Standardized covariates, and the lags to be used beside them."""

    rows: Array  # (n + H, p)
    steps: tuple[int, ...]
    named: tuple[int, ...] | None  # seasons to expect beside them; None to look for none


class Seasons(NamedTuple):
    """What the members know of seasons."""

    periods: list[int]  # in observations, the one that matters most first
    slow: float = 0.0  # a long period that is described by waves; 0 for none


def forecast_points(
    past: Past, horizon: int, seasons: Seasons, covariates: Covariates | None = None
) -> Pooled:
    """Return the pooled forecasts of one coordinate.

    Args:
        past: n observations and their one-step forecasts.
        horizon: number of steps H.
        seasons: known seasons.
        covariates: of the past and of the horizon, if there are any.
    """
    x = clean(past)
    if covariates is not None:
        effect = fit(x, covariates.rows, covariates.steps)
        if effect is not None:
            if not seasons.periods and covariates.named is not None:
                # Covariates may have hidden them.
                rest = x - effect.direct[: x.size]
                seasons = seasons._replace(periods=propose(rest, named=covariates.named))
            return _with_effect(past, x, effect, horizon, seasons)
    origins = choose_origins(x.size, max(seasons.periods, default=0))
    low, high = limits(x, origins, horizon)
    families = _families(x, past.start, origins, horizon, seasons)
    point = np.concatenate(families) if len(families) > 1 else families[0]
    np.clip(point, low, high, out=point)
    return _pooled(past, x, point, origins, high[-1] - low[-1])


def _with_effect(past: Past, y: Array, effect: Effect, horizon: int, seasons: Seasons) -> Pooled:
    """Return the pooled forecasts of a coordinate that covariates have an effect on."""
    n = y.size
    x = y - effect.direct[:n]
    origins = choose_origins(n, max(seasons.periods, default=0))
    low, high = limits(x, origins, horizon)
    family = _family(x, past.start - effect.direct[: n + 1], origins, horizon, seasons)
    np.clip(family, low, high, out=family)
    point = np.concatenate([family, effect.iterate(y, origins, low, high)[None]])
    pooled = _pooled(past, x, point, origins, high[-1] - low[-1])
    return pooled._replace(
        point=pooled.point + effect.direct[n:], error=effect.inflation * pooled.error
    )


def _pooled(past: Past, x: Array, point: Array, origins: NDArray[np.int64], reach: Array) -> Pooled:
    """Return the pool of (members, origins, H) forecasts."""
    horizon = point.shape[2]
    importance = np.exp((origins - x.size) / _RECENT)
    weight = _weights(point, x, origins, importance, horizon)
    pooled = np.einsum("mh,moh->oh", weight, point)
    ahead = origins[:, None] + np.arange(1, horizon + 1)
    known = ahead < x.size
    error = np.where(known, x[np.minimum(ahead, x.size - 1)] - pooled, np.nan)
    span = (x.size - origins[0]) / np.arange(1, horizon + 1)
    independent = np.maximum(np.minimum(known.sum(axis=0), span), 1.0)
    noise = past.noise[origins + 1]
    return Pooled(pooled[-1], error[:-1], importance[:-1], noise, independent, reach)


def _families(
    x: Array, start: Array, origins: NDArray[np.int64], horizon: int, seasons: Seasons
) -> list[Array]:
    """Return (members, origins, H) forecasts, in logarithms too if all values are positive."""
    families = [_family(x, start, origins, horizon, seasons)]
    smallest, largest = float(x.min()), float(x.max())
    if smallest > 0 and largest > _MIN_LOG_RANGE * smallest:
        logs = np.log(np.maximum(start, smallest / 2))
        family = _family(np.log(x), logs, origins, horizon, seasons)
        np.clip(family, np.log(smallest / 4), np.log(4 * largest), out=family)
        families.append(np.exp(family, out=family))
    return families


def _family(
    x: Array, start: Array, origins: NDArray[np.int64], horizon: int, seasons: Seasons
) -> Array:
    """Return (members, origins, H) forecasts of a stream in its noise scales."""
    centre = float(np.median(x))
    steps = np.abs(np.diff(x))
    scale = 1.05 * float(np.median(steps)) or float(steps.mean()) or 1.0
    first = np.where(np.isfinite(start), start, x[0])
    hindcast = Hindcast((x - centre) / scale, (first - centre) / scale, origins, horizon)
    hindcast.run(seasons.periods, seasons.slow)
    point = np.asarray(hindcast.point)[: hindcast.n_members]
    point *= scale
    point += centre
    return point


def _weights(
    point: Array, x: Array, origins: NDArray[np.int64], importance: Array, horizon: int
) -> Array:
    """Return (members, H) weights of the pools."""
    knots = _knots(horizon)
    found = np.zeros((len(point), len(knots)))
    mean_error = np.full((len(point), len(knots)), np.nan)
    errors, counts = [], []
    for i, h in enumerate(knots):
        known = origins + h < x.size
        own = importance[known] / max(importance[known].sum(), 1e-300)
        error = x[origins[known] + h] - point[:, known, h - 1]
        errors.append((error, own))
        counts.append(known.sum())
        mean_error[:, i] = np.abs(error) @ own
    for i, h in enumerate(knots):
        if counts[i] < 4:
            continue
        found[:, i] = _pool_at(mean_error, errors[i], i, counts[i], x.size - origins[0], h)
    _fill(found, np.array(counts))
    at, steps = np.log(knots), np.log(np.arange(1, horizon + 1))
    return np.stack([np.interp(steps, at, own) for own in found])


def _pool_at(
    mean_error: Array, errors: tuple[Array, Array], i: int, count: int, span: int, h: int
) -> Array:
    """Return the weights at one knot; the prior uses the neighbouring knots as well."""
    near = mean_error[:, max(0, i - 1) : i + 2]
    near = near[:, np.isfinite(near).all(axis=0)]
    floor = 1e-9 * near.max(axis=0) + 1e-300
    loss = np.log((near + floor) / (near.min(axis=0) + floor)).mean(axis=1)
    independent = min(count, span / h)
    power = _POWER * independent / (independent + 4.0) + 2.0
    order = np.argsort(loss)[:_MAX_MEMBERS]
    prior = np.exp(-power * (loss[order] - loss[order[0]]))
    prior /= prior.sum()
    weight, residual = np.zeros(order.size), np.zeros(errors[0].shape[1])
    strength = _STRENGTH + 2.0 / independent
    error = np.ascontiguousarray(errors[0][order])
    pool(error, np.ascontiguousarray(errors[1]), prior, strength, _ROUNDS, weight, residual)
    out = np.zeros(len(mean_error))
    out[order] = weight
    return out


def _fill(found: Array, counts: NDArray[np.int64]) -> None:
    """Give horizons with too few origins the weights of the longest known horizon."""
    known = np.flatnonzero(counts >= 4)
    if not known.size:
        found[START] = 1.0
        return
    found[:, known[-1] + 1 :] = found[:, known[-1] : known[-1] + 1]


def distributions(pooled: Pooled) -> tuple[Array, Array, Array]:
    """Return share, location and squared scale (H, bands): the errors around the forecasts.

    Scales are those of t distributions with `_DOF` degrees of freedom.
    """
    horizon = pooled.point.size
    error = _with_long_horizons(np.ascontiguousarray(pooled.error.T))
    size = _sizes(error, pooled.importance)
    fitted = _increasing(size, pooled.independent)
    error *= np.exp(np.clip(fitted - size, -2.0, 2.0))[:, None]
    ratio = np.log(np.clip(pooled.noise[-1] / np.maximum(pooled.noise[:-1], 1e-300), 0.1, 10.0))
    inflation = np.sqrt(1.0 + _INFLATION / (pooled.independent + 2.0))
    share, mean, variance = (np.zeros((horizon, _BANDS)) for _ in range(3))
    work, order = np.zeros((3, error.shape[1])), np.zeros(error.shape[1], np.int64)
    # The present noise scale is less relevant for distant origins.
    penalty = 0.03 + 1.0 / pooled.independent
    dof = _DOF_PER_ERROR * pooled.independent + 2.0
    distribute(
        error, pooled.importance, ratio, penalty, inflation, dof, work, order, share, mean, variance
    )
    # The scale of few independent errors is uncertain, the more so the faster errors grow with the
    # horizon, so a wider law counts as well. Without any error, a random walk is the only one.
    count = np.isfinite(error).sum(axis=1)
    wide_factor = 1.0 + 2.0 * _growth(fitted, pooled.independent)
    wide = np.minimum(_WIDE_WEIGHT / (pooled.independent + 1.0) ** 2, 0.5)
    wide[count == 0] = 1.0
    now = pooled.noise[-1]
    second_moment = (share * (mean**2 + variance)).sum(axis=1)
    walk = now**2 * np.arange(1.0, horizon + 1.0)
    # One and a half standard deviations on either side stay within what is plausible.
    widest = np.maximum((pooled.reach / 3.0) ** 2, second_moment)
    wide_variance = np.minimum(wide_factor**2 * second_moment, widest)
    wide_variance[count == 0] = walk[count == 0]
    floor = (now * np.minimum(3.0 / (count + 1.0), 1.0) ** 2) ** 2
    floor = floor + (1e-9 * np.abs(pooled.point) + 1e-130) ** 2
    share = np.column_stack([(1.0 - wide)[:, None] * share, wide])
    mean = np.column_stack([mean, np.zeros(horizon)])
    variance = np.column_stack([variance, wide_variance])
    variance = np.maximum(variance, floor[:, None]) * (_DOF - 2.0) / _DOF
    return share, pooled.point[:, None] + mean, variance


def _sizes(error: Array, importance: Array) -> Array:
    """Return (H,) logs of the mean absolute error."""
    known = np.isfinite(error)
    total = np.where(known, importance, 0.0)
    mean = (total * np.abs(np.where(known, error, 0.0))).sum(axis=1)
    return np.asarray(np.log(mean / np.maximum(total.sum(axis=1), 1e-300) + 1e-300))


def _increasing(size: Array, independent: Array) -> Array:
    """Return (H,) sizes that do not fall with the horizon: errors of good forecasts grow with it.

    Isotonic regression, weighted by the number of independent errors.
    """
    blocks: list[list[float]] = []  # mean, weight, length
    for value, weight in zip(size.tolist(), independent.tolist(), strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            last, before = blocks.pop(), blocks[-1]
            both = before[1] + last[1]
            before[0] = (before[0] * before[1] + last[0] * last[1]) / both
            before[1], before[2] = both, before[2] + last[2]
    return np.concatenate([np.full(int(length), value) for value, _, length in blocks])


def _growth(size: Array, independent: Array) -> float:
    """Return the exponent b, from 0 to .5, if errors grow like h^b up to the last known size.

    Found over the two octaves below the longest horizon with enough independent errors. Errors of
    a stationary stream have 0, those of a random walk .5.
    """
    last = max(int((independent >= _ENOUGH).sum()), min(4, size.size))
    first = max(1, last // 4)
    growth = (size[last - 1] - size[first - 1]) / max(np.log(last / first), 1e-9)
    return float(np.clip(growth, 0.0, 0.5))


def _with_long_horizons(error: Array) -> Array:
    """Give horizons with few known errors those of the longest known one, as of a random walk."""
    counts = np.isfinite(error).sum(axis=1)
    enough = np.flatnonzero(counts >= min(5, counts[0]))
    if counts[0] == 0:
        return error
    last = int(enough[-1])
    growth = np.sqrt(np.arange(last + 2, len(error) + 1) / (last + 1.0))
    error[last + 1 :] = growth[:, None] * error[last]
    return error


def ahead(engine: Engine, raw: Array) -> list[Component]:
    """Return the laws of the observations after the next one, in the user's units.

    Args:
        engine: the state of `auto` after `expect` of the next observation.
        raw: (H, n_x) covariates of the next H observations, as given.
    """
    values, d, horizon = engine.history.values, engine.dim, len(raw)
    covariates = _covariates(engine, raw)
    if covariates is not None:
        # Covariates are stored for fewer observations.
        values = values[-(len(covariates.rows) - horizon) :]
    n = len(values)
    if n < 3:
        return [_grown(engine, h) for h in range(1, horizon)]
    scale = np.asarray(engine.scaling.scale)
    start = np.asarray(engine.scaling.centre) + scale * np.asarray(engine.ensemble.centre)
    noise = scale * np.asarray(engine.ensemble.noise)
    seasons = known_seasons(engine)
    pooled = [
        forecast_points(
            Past(
                np.array(values[:, j]),
                np.append(values[:, d + j], start[j]),
                np.append(values[:, 2 * d + j], noise[j]),
                np.array(values[:, 3 * d]),
            ),
            horizon,
            seasons,
            covariates,
        )
        for j in range(d)
    ]
    if d > 1:
        return [_joint(pooled, h) for h in range(1, horizon)]
    share, location, spread = distributions(pooled[0])
    return [_law(share[h], location[h], spread[h]) for h in range(1, horizon)]


def _covariates(engine: Engine, raw: Array) -> Covariates | None:
    """Return the covariates that forecasts use, of the stored past and of the horizon."""
    width = engine.n_x - engine.lineup.regime_width
    n = min(len(engine.history.values), len(engine.rows))
    if not width or not n:
        return None
    rows = engine.covariate_scaler.scaled(np.vstack([engine.rows[-n:], raw]))
    wanted = engine.lineup.wanted
    if wanted is not None:
        return Covariates(rows[:, :width], wanted.steps or (1,), None)
    named = tuple(s for s in engine.lineup.seasons or () if s <= MAX_FOUND)
    return Covariates(rows[:, :width], _NEAREST, named)


def known_seasons(engine: Engine) -> Seasons:
    """Return the seasons found, and the longest one that was named and is too long to be found."""
    long = [s for s in engine.lineup.seasons or () if s > MAX_FOUND]
    if not long:
        return Seasons(list(engine.seasons))
    # Years have a quarter of a day more.
    slow = 365.25 if long[-1] == 365 else float(long[-1])
    return Seasons([*engine.seasons, long[-1]], slow)


def _law(share: Array, location: Array, spread: Array) -> Component:
    keep = np.flatnonzero(share > 0)
    own = share[keep]
    return own, location[keep][:, None], spread[keep][:, None, None], np.full(own.size, _DOF)


def _grown(engine: Engine, h: int) -> Component:
    """Return the next forecast with the variance of a random walk."""
    law = engine.forecast
    n = law.size
    share, location = np.array(law.share[:n]), np.array(law.location[:n])
    return share, location, (h + 1.0) * np.array(law.spread[:n]), np.array(law.dof[:n])


def _joint(pooled: list[Pooled], h: int) -> Component:
    """Return the mixture of all coordinates: the joint errors of the origins."""
    d = len(pooled)
    inflation = np.sqrt(1.0 + _JOINT_INFLATION / (pooled[0].independent[h] + 2.0))
    error = [_with_long_horizons(np.ascontiguousarray(one.error.T))[h] for one in pooled]
    known = np.isfinite(error).all(axis=0)
    centre = np.array([one.point[h] for one in pooled])
    noise = np.array([one.noise[-1] for one in pooled])
    floor = noise * min(3.0 / (known.sum() + 1.0), 1.0) ** 2 + 1e-9 * np.abs(centre) + 1e-130
    if not known.any():
        spread = np.diag(noise**2 * (h + 1.0) + floor**2)
        return np.ones(1), centre[None], spread[None], np.full(1, 4.0)
    errors = inflation * np.array(error)[:, known].T
    share = pooled[0].importance[known]
    low, high = np.quantile(errors, [0.1, 0.9], axis=0)
    kernel = np.maximum(0.7 * (high - low) / 2.56 * len(errors) ** (-1.0 / (d + 4)), floor)
    spread = np.tile(np.diag(kernel**2), (len(errors), 1, 1))
    return share / share.sum(), centre + errors, spread, np.full(len(errors), _DOF)
