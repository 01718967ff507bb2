"""All members on one stream, in units: forecasts mixed, observations learnt, the past decided.

Nothing here knows the user's units, names of columns or snapshots' frames; `holdfast.bank.model`
is the facade.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast import features as feature_maps
from holdfast.bank import scores, simple
from holdfast.bank.mixing import Mixer
from holdfast.bank.past import CLEAN, RAW, TwoPasts, log_broad
from holdfast.forecast import Forecast
from holdfast.models.base import Model
from holdfast.models.registry import make
from holdfast.results import Step

Array = NDArray[np.float64]

DOUBT = 0.5  # an observation less likely regular than this is looked at twice
FAINT = 1e-3  # components with a smaller share of their member are left out
RATE = np.array([1.0, 49.0])  # prior of the rate of outliers
_FADE = 0.999


class Spec(NamedTuple):
    """What a regression member is given: lags, and whether covariates."""

    name: str
    steps: tuple[int, ...]
    with_x: bool = False


class Parts(NamedTuple):
    """Components of all members under one version of the past, by owner."""

    share: Array
    location: Array  # (K, d)
    spread: Array  # (K, d, d)
    dof: Array
    owner: NDArray[np.int64]


class Heard(NamedTuple):
    """What one observation did to the ensemble."""

    weight: float  # probability that it was no outlier
    error: float  # from the mixture's centre, in noise scales
    steps: list[Step]  # of the regime members


def regime_model(width: int, seed: int, batch: int = 6) -> Model:
    """A regime model in units: noise about 1, levels of variance 100, coefficients about 1."""
    f = feature_maps.intercept()
    prior: Any = 100.0
    if width:
        f = f + feature_maps.columns()
        prior = [100.0] + [1.0] * width
    return make(
        "student_t_ihmm", features=f, weight="contamination", noise_shape=5.0, noise_scale=5.0,
        prior_var=prior, sticky=10.0, batch=batch, seed=seed,
    )  # fmt: skip


class RegimeMember:
    """A regime model fed with lags that the ensemble keeps."""

    def __init__(self, spec: Spec, seed: int) -> None:
        self.spec = spec
        self.steps = np.array(spec.steps, np.int64)
        self.seed = seed
        self.model: Model | None = None

    def begin(self, dim: int, n_x: int) -> None:
        self.model = regime_model(len(self.spec.steps) * dim + (n_x if self.spec.with_x else 0), self.seed)

    def x(self, past: TwoPasts, version: int, covariates: Array) -> Array | None:
        parts = []
        if self.steps.size:
            parts.append(past.design(version, self.steps).ravel())
        if self.spec.with_x:
            parts.append(covariates)
        return np.concatenate(parts) if parts and sum(map(len, parts)) else None


class Ensemble:
    """Members, their weights, the past."""

    def __init__(self, specs: list[Spec], dim: int, n_x: int, seed: int, depth: int = 512, smooth=True) -> None:
        self.dim, self.n_x, self.seed = dim, n_x, seed
        self.past = TwoPasts(depth, dim)
        self.rate = RATE.copy()
        self.regimes: list[RegimeMember] = []
        self.squares: list[tuple[Spec, list[simple.Squares]]] = []
        self.smooth = [simple.smoothers() for _ in range(dim)]
        self.doubted: Any = None
        self.season = 0
        self.mixer = Mixer()
        self.time = 0
        self.record = None
        for i, s in enumerate(specs):
            member = RegimeMember(s, seed + 101 * i)
            member.begin(dim, n_x)
            self.regimes.append(member)
            if s.steps not in ((), (1,)):
                width = 1 + len(s.steps) + (n_x if s.with_x else 0)
                self.squares.append((s, [simple.squares(width) for _ in range(dim)]))
        self.mixer.join(len(self.names))

    @property
    def names(self) -> list[str]:
        return (
            [f"regimes, {m.spec.name}" for m in self.regimes]
            + [f"least squares, {s.name}" for s, _ in self.squares]
            + list(simple.SMOOTHERS)
        )

    def parts(self, version: int, covariates: Array) -> Parts:
        """Components of every member, given this version of the past."""
        chunks: list[tuple[Array, Array, Array, Array]] = []
        for member in self.regimes:
            assert member.model is not None
            f = member.model.predict(member.x(self.past, version, covariates))
            chunks.append(self._thin(f))
        for spec, per in self.squares:
            chunks.append(self._squares(spec, per, version, covariates))
        smooth = self.smooth if version == CLEAN or self.doubted is None else self.doubted[0]
        owner = np.repeat(np.arange(len(chunks)), [len(c[0]) for c in chunks])
        n = len(simple.SMOOTHERS)
        location = np.column_stack([s.level + s.slope for s in smooth])
        spread = np.zeros((n, self.dim, self.dim))
        for j, s in enumerate(smooth):
            spread[:, j, j] = s.variance
        chunks.append((np.ones(n), location, spread, np.full(n, simple.DOF)))
        owner = np.append(owner, np.arange(n) + len(chunks) - 1)
        share, location, spread, dof = (np.concatenate(c) for c in zip(*chunks, strict=True))
        return Parts(share, location, spread, dof, owner)

    def _thin(self, f: Forecast) -> tuple[Array, Array, Array, Array]:
        keep = (f.share > FAINT) & (f.dof > 2)
        share = f.share[keep]
        return share / share.sum(), f.location[keep], f.spread[keep], f.dof[keep]

    def _row(self, spec: Spec, version: int, covariates: Array) -> list[Array]:
        lags = self.past.design(version, np.array(spec.steps))
        extra = covariates if spec.with_x else covariates[:0]
        return [np.concatenate([[1.0], lags[:, j], extra]) for j in range(self.dim)]

    def _squares(self, spec: Spec, per: list, version: int, covariates: Array) -> tuple[Array, Array, Array, Array]:
        states = per if version == CLEAN or self.doubted is None else self.doubted[1][spec.name]
        location = np.zeros((1, self.dim))
        spread = np.zeros((1, self.dim, self.dim))
        for j, (s, x) in enumerate(zip(states, self._row(spec, version, covariates), strict=True)):
            location[0, j] = s.theta @ x
            spread[0, j, j] = s.variance[0] * (1 + min(x @ s.cover @ x, 1e100))
        return np.ones(1), location, spread, np.full(1, simple.DOF)

    def outlook(self, covariates: Array) -> tuple[list[Parts], list[float]]:
        versions, masses = [self.parts(CLEAN, covariates)], [1.0]
        if self.past.pending:
            versions.append(self.parts(RAW, covariates))
            masses = [1 - self.past.p_raw, self.past.p_raw]
        return versions, masses

    def mixture(self, covariates: Array) -> Forecast:
        versions, masses = self.outlook(covariates)
        p = joined(versions, masses)
        share = p.share * self.mixer.weight[p.owner]
        keep = share > 1e-5
        return Forecast.mixture(share[keep], p.location[keep], p.spread[keep], p.dof[keep])

    def observe(self, z: Array, covariates: Array) -> Heard:
        versions, masses = self.outlook(covariates)
        p = joined(versions, masses)
        share = p.share * self.mixer.weight[p.owner]
        centre = share @ p.location
        seen = ~np.isnan(z)
        self.time += 1
        if not seen.any():
            steps = [m.model.update(z, m.x(self.past, CLEAN, covariates)) for m in self.regimes]
            for s in self.smooth:
                simple.drift(s)
            self.past.push(centre, self.past.values[RAW, -1] if self.past.pending else centre)
            return Heard(1.0, 0.0, steps)
        scale = np.sqrt(np.einsum("kii->ki", p.spread))
        noise = np.exp(share @ np.log(scale))
        rate = float(min(self.rate[0] / self.rate.sum(), 0.3))
        logs = [self._log_density(v, z, seen) for v in versions]
        error = float(np.max(np.abs((z - centre) / noise)[seen]))
        log_q = math.log(rate) + log_broad(error) * seen.sum() - float(np.log(noise[seen]).sum())
        log_each = [np.logaddexp(math.log1p(-rate) + l, log_q) for l in logs]
        version = CLEAN
        log_f = logs[0]
        if self.past.pending:
            log_f = np.logaddexp(math.log(masses[0] + 1e-300) + logs[0], math.log(masses[1] + 1e-300) + logs[1])
            version = self.past.decide(float(log_each[0]), float(log_each[1]))
            if version == RAW:
                self.smooth = self.doubted[0]
                self.squares = [(s, self.doubted[1][s.name]) for s, _ in self.squares]
            self.doubted = None
        r = 1.0 / (1.0 + math.exp(min(log_q - math.log1p(-rate) - log_f, 700.0)))
        self._score(p, share, z, seen, centre, noise)
        self.rate = RATE + _FADE * (self.rate - RATE) + np.array([1 - r, r])
        steps = [m.model.update(z, m.x(self.past, version, covariates)) for m in self.regimes]
        self._learn_simple(z, seen, version, covariates, r)
        kept = np.where(seen, z, centre)
        if r < DOUBT:
            self.past.push(np.where(seen, centre + r * (z - centre), centre), kept)
            self.past.doubt(error, rate)
        else:
            self.past.push(kept, kept)
        return Heard(r, error, steps)

    def _learn_simple(self, z, seen, version, covariates, r):
        clean = None
        if r < DOUBT:
            copy = lambda s: type(s)(*(a.copy() for a in s))
            clean = ([copy(s) for s in self.smooth], [(s, [copy(q) for q in per]) for s, per in self.squares])
            for s in clean[0]:
                simple.drift(s)
        trust = 1.0 if r < DOUBT else 0.0
        for j in np.flatnonzero(seen):
            simple.learn(self.smooth[j], float(np.clip(z[j], -1e6, 1e6)), trust)
        for spec, per in self.squares:
            for j, x in enumerate(self._row(spec, version, covariates)):
                if seen[j]:
                    simple.regress(per[j], x, float(np.clip(z[j], -1e6, 1e6)), trust, simple.FORGET)
        if clean is not None:
            self.doubted = (self.smooth, {s.name: per for s, per in self.squares})
            self.smooth, self.squares = clean

    def _log_density(self, p: Parts, z: Array, seen) -> float:
        share = p.share * self.mixer.weight[p.owner]
        if self.dim == 1:
            out = np.zeros(1)
            scores.densities(float(z[0]), share, p.location[:, 0], np.sqrt(p.spread[:, 0, 0]), p.dof, np.zeros(share.size, np.int64), out)
            return math.log(out[0] + 1e-300)
        return float(Forecast.mixture(share, p.location, p.spread, p.dof).log_density(z))

    def _score(self, p: Parts, share: Array, z, seen, centre, noise) -> None:
        members = self.mixer.weight.size
        gradient = np.zeros(members)
        loss = np.zeros(members)
        l, g = np.zeros(members), np.zeros(members)
        for j in np.flatnonzero(seen):
            scale = np.sqrt(p.spread[:, j, j])
            nodes = scores.grid(centre[j], noise[j])
            f = np.zeros((members, nodes.size))
            scores.distribution_functions(nodes, p.share, p.location[:, j].copy(), scale, p.dof, p.owner, f)
            scores.ranked_losses(nodes, f, float(z[j]), self.mixer.weight, l, g)
            gradient += g / noise[j]
            loss += l / noise[j]
            if self.record is not None:
                d = np.zeros(members)
                scores.densities(float(z[j]), p.share, p.location[:, j].copy(), scale, p.dof, p.owner, d)
                self.record.append((nodes, f, float(z[j]), d, noise[j]))
        self.mixer.learn(gradient / seen.sum())


def joined(versions: list[Parts], masses: list[float]) -> Parts:
    """Both versions of the past as one set of components."""
    if len(versions) == 1:
        return versions[0]
    share = np.concatenate([m * v.share for m, v in zip(masses, versions, strict=True)])
    rest = [np.concatenate(c) for c in zip(*(v[1:] for v in versions), strict=True)]
    return Parts(share, *rest)
