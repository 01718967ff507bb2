"""All members on one stream, in units: forecasts mixed, observations learnt, the past decided.

Nothing here knows the user's units or the names of columns; `regimekit.ensemble.model` is the facade.
An observation z goes one way: components of every member under each version of the past, their
scores, the decision about the past, the updates, the new doubt.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.distributions.forecast import Forecast
from regimekit.ensemble import crps_grid as scores
from regimekit.ensemble import smoothing as simple
from regimekit.ensemble.aggregation import Mixer
from regimekit.ensemble.members import Parts, RegimeMember, SimpleMembers, Spec, worth
from regimekit.ensemble.shared_lags import LARGEST, SharedPast
from regimekit.ensemble.sleeping_experts import Parking
from regimekit.preprocessing.lag_buffer import (
    CLEAN,
    DOUBT,
    RAW,
    log_broad,
    unmoved,
    weighted_median,
)
from regimekit.results import Step
from regimekit.serialization.validation import Arrays, Part, Values

Array = NDArray[np.float64]

RATE = np.array([1.0, 49.0])  # prior of the rate of outliers: additive, regular
HIGHEST = 0.3  # of that rate
_FADE = 0.999
_FINEST = 1e-12  # of a scale, relative to where it is
RARE, PULL = (
    0.1,
    0.25,
)  # a weight below the one pulls the mean by the other at most, in noise scales
DEPTH = 700  # how far back lags may reach: two weeks of half hours


class Look(NamedTuple):
    """The next observation as all members see it, under one or both versions of the past."""

    parts: Parts
    cut: int  # components of the clean version come first
    masses: tuple[float, float]  # of the clean and the raw version
    weight: Array  # of each component in the mixture
    centre: Array  # (d,) mean of the mixture
    noise: Array  # (d,) its scale: the geometric mean of its components'


class Heard(NamedTuple):
    """What one observation did."""

    weight: float  # probability that it was no outlier
    steps: dict[int, Step]  # of the regime members that are awake
    log_scores: Array  # of the regime members, contaminated and so bounded below


class Ensemble:
    """Members, their weights, the past.

    Args:
        specs: designs of the regression members, regime models first of all.
        dim: coordinates of z.
        seed: of the regime members.
        season: period of the seasonal members, 0 for none.
    """

    def __init__(self, specs: list[Spec], dim: int, seed: int, season: int = 0) -> None:
        self.dim, self.seed = dim, seed
        self.regimes = [RegimeMember(spec, dim, seed + 101 * i) for i, spec in enumerate(specs)]
        self.simple = SimpleMembers([spec for spec in specs if spec.squares], dim, season)
        self.doubted: SimpleMembers | None = None  # as they would be if the latest value were real
        self.past = SharedPast(_depth(specs), dim)
        self.rate = RATE.copy()
        self.time = 0
        self.mixer = Mixer(self.forecasting, worth(self.names))
        self.parking = Parking(specs)

    @property
    def forecasting(self) -> NDArray[np.bool_]:
        """Which members forecast; the others only read regimes."""
        own = [member.spec.forecasts for member in self.regimes]
        return np.array(own + [True] * len(self.simple.names))

    @property
    def names(self) -> list[str]:
        """Of all members, regime models first."""
        return [f"regimes, {m.spec.name}" for m in self.regimes] + self.simple.names

    def look(self, covariates: Array) -> Look:
        """What is expected next; changes nothing."""
        clean = self._parts(CLEAN, covariates)
        masses = self.past.masses
        parts, cut = clean, clean.share.size
        if self.past.pending:
            clean = _unmoved(clean, self.past.jump)
            parts, cut = _joined(clean, self._parts(RAW, covariates), masses), clean.share.size
        weight = parts.share * self.mixer.weight[parts.owner]
        weight /= weight.sum()
        scale = np.sqrt(np.einsum("kii->ki", parts.spread))
        noise = np.exp(weight @ np.log(scale))
        weight = self._held_back(parts, weight, noise)
        return Look(parts, cut, masses, weight, weight @ parts.location, noise)

    def _held_back(self, parts: Parts, weight: Array, noise: Array) -> Array:
        """Weights with which no simple member that hardly counts pulls the mean far.

        One that followed a fault may be left a thousand noise scales away, and its weight falls
        slowly. A regime far away keeps the weight of its return, for that may be known well.
        """
        total = np.bincount(parts.owner, weight)[parts.owner]
        faint = (parts.owner >= len(self.regimes)) & (total < RARE)
        away = np.abs(parts.location - weighted_median(parts.location, weight)) / noise
        most = PULL / np.maximum(away.max(axis=1), PULL)
        held = np.where(faint, np.minimum(weight, most), weight)
        return np.asarray(held / held.sum())

    def observe(self, z: Array, covariates: Array, look: Look) -> Heard:
        """Learn one observation that `look` was made for."""
        self.time += 1
        seen = ~np.isnan(z)
        if not seen.any():
            return self._miss(z, covariates, look)
        rate = float(min(self.rate[0] / self.rate.sum(), HIGHEST))
        error = float(np.max(np.abs((z - look.centre) / look.noise)[seen]))
        log_q = (
            math.log(rate) + seen.sum() * log_broad(error) - float(np.log(look.noise[seen]).sum())
        )
        each = self._log_densities(look, z)
        regular = math.log1p(-rate) + _mixed(each, look.masses, self.mixer.weight)
        r = 1.0 / (1.0 + math.exp(min(log_q - regular, 700.0)))
        version = self._decide(each, rate, log_q)
        self._score(look, z)
        self._park()
        self.rate = RATE + _FADE * (self.rate - RATE) + np.array([1.0 - r, r])
        steps = self._learn(z, covariates, version, r)
        self._remember(z, look, r, error, rate)
        by_member = np.logaddexp(each[version][: len(self.regimes)], log_q)
        return Heard(r, steps, by_member)

    def join(self, other: Ensemble, season: int) -> None:
        """Take over the members of `other`, in place of namesakes, and its season."""
        old = self.names
        for newcomer in other.regimes:
            self._seat(newcomer)
        for mine in [self.simple] + ([self.doubted] if self.doubted else []):
            mine.take(season, other.simple)
        self.mixer.regroup(old, self.names, self.forecasting, worth(self.names))
        self.parking = Parking([member.spec for member in self.regimes])

    def _seat(self, newcomer: RegimeMember) -> None:
        at = [i for i, member in enumerate(self.regimes) if member.spec.name == newcomer.spec.name]
        if at:
            self.regimes[at[0]] = newcomer
        else:
            self.regimes.append(newcomer)

    def _parts(self, version: int, covariates: Array) -> Parts:
        chunks = [member.expect(self.past, version, covariates) for member in self._awake.values()]
        owner = np.repeat(list(self._awake), [len(chunk[0]) for chunk in chunks])
        state = self.doubted if version == RAW and self.doubted is not None else self.simple
        location, variance = state.points(self.past, version, covariates)
        n = len(location)
        spread = np.zeros((n, self.dim, self.dim))
        spread[:, range(self.dim), range(self.dim)] = variance
        chunks.append((np.ones(n), location, spread, np.full(n, simple.DOF)))
        owner = np.append(owner, np.arange(n) + len(self.regimes))
        share, location, spread, dof = (np.concatenate(c) for c in zip(*chunks, strict=True))
        return Parts(share, self.past.within_reach(version, location), spread, dof, owner)

    def _log_densities(self, look: Look, z: Array) -> list[Array]:
        """Log density of z under each member, for each version of the past."""
        p, cut = look.parts, look.cut
        pieces = [slice(0, cut)] + ([slice(cut, None)] if self.past.pending else [])
        return [
            self._log_density(p.some(piece), z, mass)
            for piece, mass in zip(pieces, look.masses, strict=False)
        ]

    def _log_density(self, p: Parts, z: Array, mass: float) -> Array:
        out = np.zeros(self.mixer.weight.size)
        share = p.share / max(mass, 1e-300)
        if self.dim == 1:
            scale = np.sqrt(p.spread[:, 0, 0])
            location = p.location[:, 0].copy()
            scores.log_densities(float(z[0]), share, location, scale, p.dof, p.owner, out)
            return out
        out[:] = -np.inf
        for m in np.unique(p.owner):
            own = p.owner == m
            f = Forecast.mixture(share[own], p.location[own], p.spread[own], p.dof[own])
            out[m] = f.log_density(z)
        return out

    def _decide(self, each: list[Array], rate: float, log_q: float) -> int:
        """Settle which past was right, if that was in doubt."""
        if not self.past.pending:
            return CLEAN
        logs = [
            float(np.logaddexp(math.log1p(-rate) + _mixed([e], (1.0,), self.mixer.weight), log_q))
            for e in each
        ]
        version = self.past.decide(logs[CLEAN], logs[RAW])
        if version == RAW and self.doubted is not None:
            self.simple = self.doubted
        self.doubted = None
        return version

    def _score(self, look: Look, z: Array) -> None:
        p, members = look.parts, self.mixer.weight.size
        losses, total, loss, gradient = np.zeros((4, members))
        mixed = 0.0
        for j in np.flatnonzero(~np.isnan(z)):
            # No two nodes may be the same float, however far away the forecast is.
            noise = max(float(look.noise[j]), _FINEST * abs(float(look.centre[j])))
            nodes = scores.grid(look.centre[j], noise)
            f = np.zeros((members, nodes.size))
            location, scale = p.location[:, j].copy(), np.sqrt(p.spread[:, j, j])
            scores.distribution_functions(nodes, p.share, location, scale, p.dof, p.owner, f)
            own = scores.ranked_losses(nodes, f, float(z[j]), self.mixer.weight, loss, gradient)
            mixed += own / noise
            total += gradient / noise
            losses += loss / noise
        self.mixer.learn(total)
        self.mixer.count(losses, mixed)

    @property
    def _awake(self) -> dict[int, RegimeMember]:
        """The regime members that do not rest, by their place."""
        return {i: m for i, m in enumerate(self.regimes) if self.parking.awake[i]}

    def _park(self) -> None:
        """Let those rest that do not matter, and wake those that have rested."""
        n = len(self.regimes)
        if self.parking.watch(self.mixer.weight[:n]):
            self.mixer.attend(self._present())

    def _present(self) -> NDArray[np.bool_]:
        """Which of all members are awake."""
        return np.append(self.parking.awake, np.ones(len(self.simple.names), bool))

    def _update(self, z: Array, covariates: Array, version: int) -> dict[int, Step]:
        """Teach the regime models that are awake."""
        return {i: m.learn(z, self.past, version, covariates) for i, m in self._awake.items()}

    def _learn(self, z: Array, covariates: Array, version: int, r: float) -> dict[int, Step]:
        bounded = np.clip(z, -LARGEST, LARGEST)  # no regime of theirs is born farther away
        steps = self._update(bounded, covariates, version)
        if r >= DOUBT:
            self.simple.learn(z, self.past, version, covariates, 0.0)
            return steps
        self.doubted = self.simple.copy()
        self.doubted.learn(z, self.past, version, covariates, 1.0)
        self.simple.learn(np.full(self.dim, np.nan), self.past, version, covariates, 0.0)
        return steps

    def _remember(self, z: Array, look: Look, r: float, error: float, rate: float) -> None:
        kept = np.where(np.isnan(z), look.centre, z)
        if r >= DOUBT:
            self.past.push(kept, kept)
            return
        part = np.clip(r * (kept - look.centre), -look.noise, look.noise)
        self.past.doubt(look.centre + part, kept, error, rate)

    def _miss(self, z: Array, covariates: Array, look: Look) -> Heard:
        """Nothing was seen: regimes move on, the past repeats what was expected."""
        steps = self._update(z, covariates, CLEAN)
        for members in [self.simple] + ([self.doubted] if self.doubted else []):
            members.learn(z, self.past, CLEAN, covariates, 0.0)
        raw = self.past.values[RAW, -1] if self.past.pending else look.centre
        self.past.push(look.centre, raw)
        return Heard(1.0, steps, np.zeros(len(self.regimes)))

    def pack(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """State for a snapshot."""
        values, arrays = self.past.pack()
        values["time"] = self.time
        arrays |= {"rate": self.rate.copy()} | self.mixer.pack() | self.parking.pack()
        arrays |= {f"regimes.{i}": member.pack() for i, member in enumerate(self.regimes)}
        arrays |= {f"simple.{key}": array for key, array in self.simple.pack().items()}
        if self.doubted is not None:
            arrays |= {f"doubted.{key}": array for key, array in self.doubted.pack().items()}
        return values, arrays

    @classmethod
    def unpack(
        cls, values: Values, arrays: Arrays, specs: list[Spec], dim: int, seed: int, season: int
    ) -> Ensemble:
        """What `pack` packed: members of these designs and this season, no others."""
        own = cls.__new__(cls)
        own.dim, own.seed = dim, seed
        own.past = SharedPast(_depth(specs), dim)
        own.past.unpack(values, arrays)
        own.regimes = [
            RegimeMember.unpack(spec, arrays, f"regimes.{i}", dim) for i, spec in enumerate(specs)
        ]
        squares = [spec for spec in specs if spec.squares]
        own.simple = SimpleMembers(squares, dim, season)
        own.simple.unpack(Part(arrays, "simple."))
        own.doubted = SimpleMembers(squares, dim, season) if own.past.pending else None
        if own.doubted is not None:
            own.doubted.unpack(Part(arrays, "doubted."))
        own.rate, own.time = arrays.floats("rate", (2,), 0.5, 1e4), values.whole("time")
        own.mixer = Mixer(own.forecasting, worth(own.names))
        own.mixer.unpack(arrays)
        own.parking = Parking(specs)
        own.parking.unpack(arrays)
        own.mixer.attend(own._present())
        return own


def _depth(specs: list[Spec]) -> int:
    """How far back the past must reach."""
    return max([DEPTH, *(step + 1 for spec in specs for step in spec.steps)])


def _mixed(each: list[Array], masses: tuple[float, ...], weight: Array) -> float:
    """Log of the members' densities mixed, over the versions of the past."""
    terms = [
        math.log(max(mass, 1e-300)) + np.log(np.maximum(weight, 1e-300)) + e
        for mass, e in zip(masses, each, strict=False)
    ]
    return float(np.logaddexp.reduce(np.concatenate(terms)))


def _unmoved(parts: Parts, jump: Array) -> Parts:
    """The components that do not follow a doubtful value, where that is taken for a spike."""
    kept = parts.some(unmoved(parts.share, parts.location, parts.owner, jump))
    total = np.bincount(kept.owner, kept.share)
    return kept._replace(share=kept.share / total[kept.owner])


def _joined(clean: Parts, raw: Parts, masses: tuple[float, float]) -> Parts:
    share = np.concatenate([masses[CLEAN] * clean.share, masses[RAW] * raw.share])
    rest = (np.concatenate(pair) for pair in zip(clean[1:], raw[1:], strict=True))
    return Parts(share, *rest)
