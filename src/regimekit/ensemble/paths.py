"""Forecasts several steps ahead by the members of the ensemble: what is fed back is uncertain.

They complete what is learnt from past origins (`regimekit.ensemble.multistep`), in two cases.

With n observations there are few past origins to learn from, while the members have priors: the
mixture of all members by their weights has the weight 1 / (1 + (n / n_0)^2).

If the effect of covariates differs between regimes, past origins know their mean only. With u the
odds of regime models with covariates in the forecast of the next observation, and p the probability
that a regime goes on for another step, these models have the weight

    p^h u^2 / (u_0^2 + u^2)

h steps ahead. Members without lags know their law at every horizon: regimes by their transitions,
smoothing by

    Var(y_{t+h}) = v (1 + sum_{i < h} (a + b i)^2),      a, b the gains of level and slope

Members with lags are simulated: each path draws a component, then value after value from lags that
are its own earlier draws. The law at a horizon mixes the components of the paths there, not their
draws, so it is smooth with a few hundred paths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.ensemble.design import Spec
from regimekit.ensemble.engine import Engine
from regimekit.ensemble.ensemble import Ensemble
from regimekit.ensemble.members import (
    DOF,
    MIN_SHARE,
    SEASON_RATES,
    SMOOTHERS,
    RegimeMember,
    SimpleMembers,
    smoothing_gains,
)
from regimekit.ihmm.multistep import rows_ahead
from regimekit.preprocessing import features as feature_maps
from regimekit.preprocessing.frames import Row

Array = NDArray[np.float64]

Component = tuple[Array, Array, Array, Array]  # share, location, spread, dof

PATHS = 200
_MIN_PATHS = 40  # of a member, however small its weight
_EVEN_ODDS = 4.0  # u_0
_PRIOR_COUNT = 60.0  # n_0
_MIN_WEIGHT = 0.02  # members with less are left out
_MIN_TOTAL = 0.1  # with less, all are left out


def mixed(
    engine: Engine, laws: list[Component], raw: Array, rng: np.random.Generator
) -> list[Component]:
    """Return the laws (user's units), mixed with those of the members where these are needed.

    Args:
        engine: the state of `auto` after `expect` of the next observation.
        laws: of the observations after the next one, learnt from past origins.
        raw: (H, n_x) covariates of the next H observations, as given.
        rng: for the paths.
    """
    ensemble, n = engine.ensemble, len(engine.history.values)
    own, stay = np.array(ensemble.aggregation.weight), 1.0
    weight = prior_weight(n)
    regimes = [m for m, one in enumerate(ensemble.members) if one.spec.width and one.spec.forecasts]
    by_regimes = regime_weight(float(own[regimes].sum()))
    if by_regimes > weight:
        weight = by_regimes
        own = np.where(np.isin(np.arange(own.size), regimes), own, 0.0)
        # A regime that has ended by then has no part in a forecast.
        moves = engine.selection.reported_moves
        stay -= (float(moves.sum() - np.trace(moves)) + 1.0) / (engine.time + 2.0)
    if weight < _MIN_TOTAL or not own.sum() > 0.0:
        return laws
    simulated = simulate(ensemble, own / own.sum(), engine.covariate_scaler.scaled(raw), rng)
    centre, scale = np.asarray(engine.scaling.centre), np.asarray(engine.scaling.reported_scale)
    size = np.exp(engine.calibration.usual_size)
    weight *= stay
    out: list[Component] = []
    for theirs, law in zip(simulated, laws, strict=True):
        weight *= stay
        share, location, spread, dof = theirs
        spread = spread * (size * scale)[:, None] * (size * scale)
        parts = (
            np.concatenate([weight * share, (1.0 - weight) * law[0]]),
            np.concatenate([centre + scale * location, law[1]]),
            np.concatenate([spread, law[2]]),
            np.concatenate([dof, law[3]]),
        )
        out.append(parts)
    return out


def prior_weight(n: int) -> float:
    """Return the weight of all members beside what is learnt from n past observations."""
    return 1.0 / (1.0 + (n / _PRIOR_COUNT) ** 2)


def regime_weight(share: float) -> float:
    """Return the weight of regime models with covariates, given that at the next observation."""
    odds = share / max(1.0 - share, 1e-9) / _EVEN_ODDS
    return odds**2 / (1.0 + odds**2)


def simulate(
    ensemble: Ensemble, weight: Array, covariates: Array, rng: np.random.Generator
) -> list[Component]:
    """Return the laws of the observations after the next one, in units.

    Args:
        ensemble: an ensemble after `expect` of the next observation.
        weight: (M,) weights of the members.
        covariates: (horizon, n_x) standardized covariates.
        rng: for the paths.
    """
    pieces: list[list[Component]] = [[] for _ in range(len(covariates) - 1)]
    weight = np.where(weight < _MIN_WEIGHT, 0.0, weight)
    weight /= weight.sum()
    for m, member in enumerate(ensemble.members):
        if weight[m] > 0.0 and member.spec.steps:
            laws = _regime_paths(
                ensemble, member, _affine(member, ensemble, m), _count(weight[m]), covariates, rng
            )
            _add(pieces, laws, weight[m])
        elif weight[m] > 0.0:
            _add(pieces, _without_lags(member, covariates), weight[m])
    first = len(ensemble.members)
    for i, spec in enumerate(ensemble.simple.specs):
        own = weight[first + i]
        if own > 0.0 and not (spec.difference or spec.logs):
            laws = _squares_paths(ensemble, i, spec, _count(own), covariates, rng)
            _add(pieces, laws, own)
    rest = np.tile(weight[first + len(ensemble.simple.specs) :], (len(covariates) - 1, 1))
    for version, mass in enumerate(ensemble.masses):
        if mass > 0:
            _add_smooth(pieces, ensemble, version, mass * rest)
    reach = Reach(ensemble)
    return [_bounded_law(_components(piece), *reach.at(h)) for h, piece in enumerate(pieces, 1)]


def _add(pieces: list[list[Component]], laws: list[Component], weight: float) -> None:
    for piece, law in zip(pieces, laws, strict=True):
        piece.append((weight * law[0], *law[1:]))


def _count(weight: float) -> int:
    return max(_MIN_PATHS, round(PATHS * weight))


def _bounded_law(law: Component, low: Array, high: Array) -> Component:
    """Return a mixture whose locations lie within reach, and whose scales are at most as wide."""
    share, location, spread, dof = law
    variance = np.diagonal(spread, axis1=1, axis2=2)
    largest = np.maximum(0.25 * (high - low), 1e-6) ** 2
    factor = np.sqrt(np.minimum(1.0, largest / variance).min(axis=1))[:, None, None]
    return share, np.clip(location, low, high), spread * factor**2, dof


def _components(piece: list[Component]) -> Component:
    share, location, spread, dof = (np.concatenate(c) for c in zip(*piece, strict=True))
    keep = share > 0
    return share[keep] / share[keep].sum(), location[keep], spread[keep], dof[keep]


def _without_lags(member: RegimeMember, covariates: Array) -> list[Component]:
    """Return the laws of a regime model without lags."""
    rows = [Row(now[slice(*member.spec.columns)], None) for now in covariates]
    features = feature_maps.intercept()
    if member.spec.width:
        features = features + feature_maps.columns()
    return [
        _thinned(f.share, f.location, f.spread, f.dof)
        for f in rows_ahead(member.filter, features, list(rows))[1:]
    ]


def _thinned(share: Array, location: Array, spread: Array, dof: Array) -> Component:
    """Drop components with little share and that of outliers, which has 2 degrees of freedom."""
    keep = (share > MIN_SHARE) & (dof > 2)
    if not keep.any():
        keep = share == share.max()
    kept = share[keep]
    return kept / kept.sum(), location[keep], spread[keep], dof[keep]


class Reach:
    """Plausible values h steps ahead: the range of the past, and its largest changes in h steps.

    With R the range of the past and U_h the largest rise within h steps so far, a value is expected
    below max(largest value + R / 4, latest value + 5 U_h / 4), and above the mirror image of that.
    Changes over more than half of the past grow as those of a random walk.
    """

    def __init__(self, ensemble: Ensemble) -> None:
        past = ensemble.buffer.values[0]
        self.past = past[len(past) - max(ensemble.buffer.count, 1) :]
        low, high = self.past.min(axis=0), self.past.max(axis=0)
        # As for the next observation (`LagBuffer.bounded`).
        margin = 0.25 * (high - low) + 1.0
        self.low, self.high = low - margin, high + margin

    def at(self, h: int) -> tuple[Array, Array]:
        """Return the (d,) smallest and largest plausible value h steps after the next."""
        steps = h + 1
        lag = min(steps, max(1, len(self.past) // 2))
        change = self.past[lag:] - self.past[:-lag]
        if not len(change):
            return self.low, self.high
        growth = 1.25 * np.sqrt(steps / lag)
        rise, fall = np.maximum(change.max(axis=0), 0.0), np.minimum(change.min(axis=0), 0.0)
        latest = self.past[-1]
        return (
            np.minimum(self.low, latest + growth * fall),
            np.maximum(self.high, latest + growth * rise),
        )


class _Paths:
    """Pasts of n paths: those of the stream, then what each path drew."""

    def __init__(self, ensemble: Ensemble, n: int, depth: int, horizon: int, rng: Any) -> None:
        self.version = (rng.random(n) < ensemble.masses[1]).astype(int)
        past = ensemble.buffer.values[self.version, -depth:]
        self.values = np.concatenate([past, np.zeros((n, horizon, ensemble.dim))], axis=1)
        self.depth, self.n, self.count = depth, n, ensemble.buffer.count
        self.reach = Reach(ensemble)

    def lags(self, steps: NDArray[np.int64], h: int) -> Array:
        """(n, k, d) lags of the observation h steps after the next, as the members know them."""
        values = self.values[:, self.depth + h - steps]
        values[:, 1:] -= values[:, :1]
        values[:, 1:][:, steps[1:] > self.count + h] = 0.0  # from before the first value
        return np.asarray(values)

    def draw(self, h: int, location: Array, spread: Array, dof: Array, rng: Any) -> None:
        """Draw the value h steps after the next; locations and draws stay within reach."""
        np.clip(location, *self.reach.at(h), out=location)
        root = np.linalg.cholesky(spread)
        noise = np.einsum("nij,nj->ni", root, rng.standard_normal(location.shape))
        finite = np.isfinite(dof)
        noise[finite] /= np.sqrt(rng.chisquare(dof[finite]) / dof[finite])[:, None]
        self.values[:, self.depth + h] = np.clip(location + noise, *self.reach.at(h))


def _regime_paths(
    ensemble: Ensemble,
    member: RegimeMember,
    affine: tuple[Array, ...],
    n: int,
    covariates: Array,
    rng: np.random.Generator,
) -> list[Component]:
    steps = np.array(member.spec.steps, np.int64)
    paths = _Paths(ensemble, n, int(steps.max()), len(covariates), rng)
    base, slopes, share, spread, dof = affine
    component = rng.choice(share.size, n, p=share)
    batch = member.spec.prior.batch
    out = []
    for h, now in enumerate(covariates):
        # Once per batch a path may move to another regime, by the probability of being in it.
        moves = (rng.random(n) < 1.0 / batch) & (h > 0)
        component = np.where(moves, rng.choice(share.size, n, p=share), component)
        lags = paths.lags(steps, h).reshape(n, -1)
        extra = np.broadcast_to(now[slice(*member.spec.columns)], (n, member.spec.width))
        x = np.concatenate([lags, extra], axis=1)
        location = base[component] + np.einsum("nw,nwd->nd", x, slopes[component])
        paths.draw(h, location, spread[component], dof[component], rng)
        out.append((np.full(n, 1.0 / n), location, spread[component], dof[component]))
    return out[1:]


def _affine(member: RegimeMember, ensemble: Ensemble, m: int) -> tuple[Array, ...]:
    """Return each component's location as an affine map of x, from 0 and the unit vectors."""
    width = len(member.spec.steps) * ensemble.dim + member.spec.width
    share, base, spread, dof = member.forecast_at(np.zeros(width))
    keep = (share > MIN_SHARE) & (dof > 2)
    slopes = [member.forecast_at(unit)[1] - base for unit in np.eye(width)]
    cut = ensemble.cut
    own = np.asarray(ensemble.parts.owner)[:cut] == m
    at_x = np.asarray(ensemble.parts.spread)[:cut][own]
    if len(at_x) != keep.sum():
        # Components come and go with x: take them as they are at 0.
        at_x = spread[keep]
    kept = share[keep] / share[keep].sum()
    return base[keep], np.stack(slopes, axis=1)[keep], kept, at_x, dof[keep]


def _squares_paths(
    ensemble: Ensemble, i: int, spec: Spec, n: int, covariates: Array, rng: np.random.Generator
) -> list[Component]:
    d = ensemble.dim
    steps = np.array(spec.steps or (1,), np.int64)
    paths = _Paths(ensemble, n, int(steps.max()), len(covariates), rng)
    simple, width = ensemble.simple, 1 + len(spec.steps) + spec.width
    covariance = np.array(simple.covariance)[0, i, :, :width, :width]
    out = []
    for h, now in enumerate(covariates):
        lags = paths.lags(steps, h)[:, : len(spec.steps)]
        extra = np.broadcast_to(now[slice(*spec.columns)], (n, spec.width))
        location, spread = np.zeros((n, d)), np.zeros((n, d, d))
        for j in range(d):
            x = np.concatenate([np.ones((n, 1)), lags[:, :, j], extra], axis=1)
            location[:, j] = x @ _coefficients(simple, i, spec, j)
            leverage = np.minimum(np.einsum("ni,ij,nj->n", x, covariance[j], x), 1.0)
            spread[:, j, j] = simple.square_variance[0, i, j] * (1.0 + leverage)
        dof = np.full(n, DOF)
        paths.draw(h, location, spread, dof, rng)
        out.append((np.full(n, 1.0 / n), location, spread, dof))
    return out[1:]


def _add_smooth(
    pieces: list[list[Component]], ensemble: Ensemble, version: int, weight: Array
) -> None:
    """Add smoothing and seasonal members at every horizon, in closed form."""
    n, simple = len(SMOOTHERS), ensemble.simple
    level, slope = np.array(simple.level)[version].T, np.array(simple.slope)[version].T
    variance = np.array(simple.variance)[version].T
    season_variance = np.array(simple.season_variance)[version].T
    gains = [
        [smoothing_gains(i, seen + 1.0) for seen in np.asarray(simple.seen)[version]]
        for i in range(n)
    ]
    a, b = np.moveaxis(np.array(gains), 2, 0)
    grown = np.ones_like(variance)
    for h, piece in enumerate(pieces, start=1):
        grown = grown + (a + b * h) ** 2
        piece.append(_diagonal(weight[h - 1, :n], level + (h + 1) * slope, variance * grown))
        if simple.period:
            location = simple.profile.points(ensemble.buffer, version, h)
            # A season ago counts once more for each season, steps add up.
            factor = [1.0 + h // simple.period, 1.0 + h, *(1.0 + h * a * a for a in SEASON_RATES)]
            grown_variance = season_variance * np.array(factor)[:, None]
            piece.append(_diagonal(weight[h - 1, n:], location, grown_variance))


def _diagonal(weight: Array, location: Array, variance: Array) -> Component:
    n, d = location.shape
    spread = np.zeros((n, d, d))
    spread[:, range(d), range(d)] = variance
    return weight, location, spread, np.full(n, DOF)


def _coefficients(simple: SimpleMembers, i: int, spec: Spec, j: int) -> Array:
    """Return the coefficients of least squares i, coordinate j."""
    return np.array(simple.coefficient)[0, i, j, : 1 + len(spec.steps) + spec.width]
