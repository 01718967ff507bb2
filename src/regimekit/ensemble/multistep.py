"""Several steps ahead: what is fed back carries its uncertainty.

Members without lags know their law at every horizon: regimes by their transitions, smoothing by

    Var(y_{t+h}) = v (1 + sum_{i < h} (a + b i)^2),      a, b the gains of level and slope

Members with lags are simulated: each path draws a component, then value after value from lags that
are its own earlier draws. The law at a horizon mixes what the paths expect there (their components,
not their draws), so it is smooth with a few hundred paths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.ensemble.calibration import Components
from regimekit.ensemble.ensemble import Ensemble, Look
from regimekit.ensemble.horizon_weights import LinearMember, horizon_weights
from regimekit.ensemble.members import FAINT, RegimeMember, SimpleMembers, Spec, thinned
from regimekit.ensemble.seasonal import points, variances
from regimekit.ensemble.shared_lags import SharedPast
from regimekit.ensemble.smoothing import DOF, SMOOTHERS, gains
from regimekit.preprocessing.lag_buffer import CLEAN, RAW

Array = NDArray[np.float64]

Component = tuple[Array, Array, Array, Array]  # share, location, spread, dof

PATHS = 400
_LEAST = 40  # paths of a member, however small its weight
_FAINT_MEMBER = 0.005


def simulate(
    ensemble: Ensemble, look: Look, covariates: list[Array], rng: np.random.Generator
) -> list[Components]:
    """The laws of the observations after the next one, in units."""
    horizon = len(covariates)
    affine = {
        m: _affine(member, ensemble, look, m)
        for m, member in enumerate(ensemble.regimes)
        if member.spec.steps and ensemble.mixer.weight[m] >= _FAINT_MEMBER
    }
    weight = _weights(ensemble, affine, horizon)
    pieces: list[list[Component]] = [[] for _ in range(horizon - 1)]
    for m, member in enumerate(ensemble.regimes):
        own = weight[:, m]
        if m in affine:
            n = _count(float(own.max()))
            _add(pieces, _regime_paths(ensemble, member, affine[m], n, covariates, rng), own)
        elif own.any():
            _add(pieces, _without_lags(member, covariates), own)
    first = len(ensemble.regimes)
    for i, spec in enumerate(ensemble.simple.specs):
        own = weight[:, first + i]
        if own.any():
            n = _count(float(own.max()))
            _add(pieces, _squares_paths(ensemble, i, spec, n, covariates, rng), own)
    rest = weight[:, first + len(ensemble.simple.specs) :]
    for version, mass in zip((CLEAN, RAW), look.masses, strict=True):
        state = ensemble.doubted if version == RAW and ensemble.doubted else ensemble.simple
        if mass > 0:
            _add_smooth(pieces, state, ensemble.past, version, mass * rest)
    return [_components(piece) for piece in pieces]


def _weights(ensemble: Ensemble, affine: dict[int, tuple[Array, ...]], horizon: int) -> Array:
    """(horizon - 1, members): weights of the steps after the next; faint members have none."""
    weight = horizon_weights(ensemble, _linear(ensemble, affine), horizon)
    for m, member in enumerate(ensemble.regimes):
        if member.spec.steps and m not in affine:
            weight[:, m] = 0.0
    weight = np.where(weight < _FAINT_MEMBER, 0.0, weight)[1:]
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _components(piece: list[Component]) -> Components:
    share, location, spread, dof = (np.concatenate(c) for c in zip(*piece, strict=True))
    keep = share > 0
    return Components(share[keep] / share[keep].sum(), location[keep], spread[keep], dof[keep])


def _linear(ensemble: Ensemble, affine: dict[int, tuple[Array, ...]]) -> list[LinearMember]:
    """Members with lags as plain affine maps, by their leading component; covariates left out."""
    out = []
    for m, (base, slopes, share, _, _) in affine.items():
        spec, k = ensemble.regimes[m].spec, int(np.argmax(share))
        if not spec.width and ensemble.dim == 1:
            out.append(LinearMember(m, spec.steps, float(base[k, 0]), slopes[k, :, 0]))
    for i, spec in enumerate(ensemble.simple.specs):
        theta = ensemble.simple.squares[i][0].theta
        if not spec.width and spec.steps:
            at = len(ensemble.regimes) + i
            out.append(LinearMember(at, spec.steps, float(theta[0]), theta[1:]))
    return out


def _add(pieces: list[list[Component]], laws: list[Component], weight: Array) -> None:
    for piece, components, own in zip(pieces, laws, weight, strict=True):
        piece.append((own * components[0], *components[1:]))


def _without_lags(member: RegimeMember, covariates: list[Array]) -> list[Component]:
    table = None
    if member.spec.width:
        table = np.array([c[slice(*member.spec.columns)] for c in covariates])
    return [thinned(f, FAINT) for f in member.model.forecast(len(covariates), table)[1:]]


class _Paths:
    """Pasts of n paths: those of the stream, then what each path drew."""

    def __init__(self, ensemble: Ensemble, n: int, depth: int, horizon: int, rng: Any) -> None:
        self.version = (rng.random(n) < ensemble.past.masses[RAW]).astype(int)
        past = ensemble.past.values[self.version, -depth:]
        self.values = np.concatenate([past, np.zeros((n, horizon, ensemble.dim))], axis=1)
        self.depth, self.n, self.count = depth, n, ensemble.past.count

    def lags(self, steps: NDArray[np.int64], h: int) -> Array:
        """(n, k, d) lags of the observation h steps after the next, as the members know them."""
        values = self.values[:, self.depth + h - steps]
        values[:, 1:] -= values[:, :1]
        values[:, 1:][:, steps[1:] > self.count + h] = 0.0  # from before the first value
        return np.asarray(values)

    def draw(self, h: int, location: Array, spread: Array, dof: Array, rng: Any) -> None:
        root = np.linalg.cholesky(spread)
        noise = np.einsum("nij,nj->ni", root, rng.standard_normal(location.shape))
        finite = np.isfinite(dof)
        noise[finite] /= np.sqrt(rng.chisquare(dof[finite]) / dof[finite])[:, None]
        self.values[:, self.depth + h] = location + noise


def _count(weight: float) -> int:
    return max(_LEAST, round(PATHS * weight))


def _regime_paths(
    ensemble: Ensemble,
    member: RegimeMember,
    affine: tuple[Array, ...],
    n: int,
    covariates: list[Array],
    rng: np.random.Generator,
) -> list[Component]:
    paths = _Paths(ensemble, n, int(member.steps.max()), len(covariates), rng)
    base, slopes, share, spread, dof = affine
    component = rng.choice(share.size, n, p=share)
    out = []
    for h, now in enumerate(covariates):
        lags = paths.lags(member.steps, h).reshape(n, -1)
        extra = np.broadcast_to(now[slice(*member.spec.columns)], (n, member.spec.width))
        x = np.concatenate([lags, extra], axis=1)
        location = base[component] + np.einsum("nw,nwd->nd", x, slopes[component])
        paths.draw(h, location, spread[component], dof[component], rng)
        out.append((np.full(n, 1.0 / n), location, spread[component], dof[component]))
    return out[1:]


def _affine(member: RegimeMember, ensemble: Ensemble, look: Look, m: int) -> tuple[Array, ...]:
    """Each component's location as an affine map of x, asked for at 0 and at the unit vectors."""
    width = len(member.spec.steps) * ensemble.dim + member.spec.width
    at_zero = member.model.predict(np.zeros(width))
    keep = (at_zero.share > FAINT) & (at_zero.dof > 2)
    slopes = [member.model.predict(unit).location - at_zero.location for unit in np.eye(width)]
    own = look.parts.owner[: look.cut] == m
    share = at_zero.share[keep] / at_zero.share[keep].sum()
    spread = look.parts.spread[: look.cut][own]
    if len(spread) != keep.sum():  # components that come and go with x: take them as they are at 0
        spread = at_zero.spread[keep]
    return at_zero.location[keep], np.stack(slopes, axis=1)[keep], share, spread, at_zero.dof[keep]


def _squares_paths(
    ensemble: Ensemble,
    i: int,
    spec: Spec,
    n: int,
    covariates: list[Array],
    rng: np.random.Generator,
) -> list[Component]:
    d = ensemble.dim
    steps = np.array(spec.steps or (1,), np.int64)
    paths = _Paths(ensemble, n, int(steps.max()), len(covariates), rng)
    states = ensemble.simple.squares[i]
    out = []
    for h, now in enumerate(covariates):
        lags = paths.lags(steps, h)[:, : len(spec.steps)]
        extra = np.broadcast_to(now[slice(*spec.columns)], (n, spec.width))
        location, spread = np.zeros((n, d)), np.zeros((n, d, d))
        for j, state in enumerate(states):
            x = np.concatenate([np.ones((n, 1)), lags[:, :, j], extra], axis=1)
            location[:, j] = x @ state.theta
            leverage = np.minimum(np.einsum("ni,ij,nj->n", x, state.cover, x), 1.0)
            spread[:, j, j] = state.variance[0] * (1.0 + leverage)
        dof = np.full(n, DOF)
        paths.draw(h, location, spread, dof, rng)
        out.append((np.full(n, 1.0 / n), location, spread, dof))
    return out[1:]


def _add_smooth(
    pieces: list[list[Component]],
    state: SimpleMembers,
    past: SharedPast,
    version: int,
    weight: Array,
) -> None:
    """Smoothing and seasonal members at every horizon, in closed form."""
    n = len(SMOOTHERS)
    level = np.column_stack([s.level for s in state.smooth])
    slope = np.column_stack([s.slope for s in state.smooth])
    variance = np.column_stack([s.variance for s in state.smooth])
    a, b = (np.column_stack(pair) for pair in zip(*(gains(s) for s in state.smooth), strict=True))
    grown = np.ones_like(variance)
    for h, piece in enumerate(pieces, start=1):
        grown = grown + (a + b * h) ** 2
        piece.append(_diagonal(weight[h - 1, :n], level + (h + 1) * slope, variance * grown))
        if state.season:
            location = points(past, version, state.season, h)
            grown_scale = [variances(one, state.season, h) for one in state.seasonal]
            piece.append(_diagonal(weight[h - 1, n:], location, np.column_stack(grown_scale)))


def _diagonal(weight: Array, location: Array, variance: Array) -> Component:
    n, d = location.shape
    spread = np.zeros((n, d, d))
    spread[:, range(d), range(d)] = variance
    return weight, location, spread, np.full(n, DOF)
