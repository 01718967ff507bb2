"""Lags that are robust to outliers (D13): the filter with two versions of the past.

Through a lag an outlier would be a covariate of later observations, which no weight limits; a real
jump has to be one. After a possible outlier both versions of the past are stored
(`preprocessing.lag_buffer`), the next forecast mixes the forecasts of the filter under each, and
the next observation decides which version it is learnt with. Without a possible outlier, or without
lags, the filter processes all observations in one call.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.distributions.forecast import Forecast
from regimekit.ihmm.changepoint_dating import Change
from regimekit.ihmm.limits import within_reach
from regimekit.ihmm.regime_filter import RegimeFilter
from regimekit.preprocessing.features import Features
from regimekit.preprocessing.frames import Row
from regimekit.preprocessing.lag_buffer import CLEAN, RAW, LagBuffer, log_outlier, unmoved

Array = NDArray[np.float64]

USUAL_RATE = 0.05  # of outliers, if they are down-weighted and no rate is learnt
_LONGEST = 1e150  # larger errors are clipped to this


class Law(NamedTuple):
    """A forecast as components; that of outliers, if there is one, is the last."""

    share: Array
    location: Array
    spread: Array
    dof: Array


class Outputs(NamedTuple):
    """Outputs of the filter for T consecutive observations, (T,) each unless stated.

    Attributes:
        weight: posterior mean of w^2.
        change: posterior probability that the regime has just changed.
        ess: effective sample size.
        regime: label reported.
        known: regimes known.
        probability: of the regime reported.
        settled: size of the largest batch that ended with the observation, or 0.
        offset: (T + 1,) where the components of each forecast begin.
        share, location, spread, dof: components of the forecasts.
        changes: changes of the reported regime.
    """

    weight: Array
    change: Array
    ess: Array
    regime: NDArray[np.int64]
    known: NDArray[np.int64]
    probability: Array
    settled: NDArray[np.int64]
    offset: NDArray[np.int64]
    share: Array
    location: Array
    spread: Array
    dof: Array
    changes: list[Change]

    @classmethod
    def of(cls, n: int, trace: Any) -> Outputs:
        """The first n observations of a trace."""
        offset = np.asarray(trace.offset)[: n + 1]
        end = int(offset[n])
        own = (
            np.asarray(getattr(trace, name))[:n]
            for name in ("weight", "change", "ess", "regime", "n_known", "probability", "settled")
        )
        components = (
            np.asarray(getattr(trace.components, name))[:end]
            for name in ("share", "location", "spread", "dof")
        )
        return cls._make([*own, offset, *components, trace.changes])

    @classmethod
    def joined(cls, parts: list[Outputs]) -> Outputs:
        """Consecutive outputs as one."""
        if len(parts) == 1:
            return parts[0]
        joined = {n: np.concatenate([getattr(p, n) for p in parts]) for n in cls._fields[:-1]}
        sizes = np.concatenate([np.diff(part.offset) for part in parts])
        joined["offset"] = np.append(0, np.cumsum(sizes))
        return cls(**joined, changes=[change for part in parts for change in part.changes])


Ask = Callable[[Array], Law]  # what is expected with a design


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
    """
    parts: list[Outputs] = []
    t = 0
    while t < len(y):
        if past.pending:
            part = _second_look(engine, features, past, y[t], rows[t])
        else:
            phi = features.block(rows[t:], engine.clock.time, past.values[CLEAN], y[t:])
            designs = engine.emission.designs(within_reach(engine.emission, phi))
            part = Outputs.of(*engine.run(y[t:], designs, doubt))
        n = len(part.weight)
        _remember_all(engine, past, y[t : t + n], part, doubt)
        parts.append(part)
        t += n
    return Outputs.joined(parts)


def _second_look(
    engine: RegimeFilter, features: Features, past: LagBuffer, y: Array, x: Row | None
) -> Outputs:
    """Learn the observation after a possible outlier with the past that explains it better."""
    outliers, masses = has_outliers(engine), past.masses
    designs, laws = look_twice(engine, _ask(engine), features, past, x, engine.clock.time)
    version = decide(past, laws, outliers, y)
    part = Outputs.of(*engine.run(y[None], designs[version][None]))
    law = mixed(laws, masses, outliers)
    return part._replace(offset=np.array([0, len(law.share)]), **law._asdict())


def expect(engine: RegimeFilter, features: Features, past: LagBuffer, x: Row | None) -> Law:
    """What is expected next; mixed from both pasts while there are two."""
    if not past.pending:
        phi = features.row(x, engine.clock.time, past.values[CLEAN])
        return _ask(engine)(engine.emission.design(within_reach(engine.emission, phi)))
    outliers = has_outliers(engine)
    _, laws = look_twice(engine, _ask(engine), features, past, x, engine.clock.time)
    return mixed(laws, past.masses, outliers)


def look_twice(
    engine: RegimeFilter, ask: Ask, features: Features, past: LagBuffer, x: Row | None, time: int
) -> tuple[list[Array], list[Law]]:
    """Designs and laws of the next observation under the clean and the raw past."""
    emission, outliers = engine.emission, has_outliers(engine)
    designs = [
        emission.design(within_reach(emission, features.row(x, time, past.values[version])))
        for version in (CLEAN, RAW)
    ]
    raw = ask(designs[RAW])  # the clean one last: that is the one that is usually learnt with
    return designs, [_unbelieving(ask(designs[CLEAN]), past, outliers), raw]


def _unbelieving(law: Law, past: LagBuffer, outliers: bool) -> Law:
    """Return a law under the clean past, without the regimes moved by the possible outlier."""
    n = law.share.size - outliers
    owner = np.zeros(n, np.int64)
    keep = np.ones(law.share.size, bool)
    keep[:n] = unmoved(law.share[:n], law.location[:n], owner, past)
    share = np.where(keep, law.share, 0.0)
    share[:n] *= law.share[:n].sum() / share[:n].sum()
    return Law(share[keep], law.location[keep], law.spread[keep], law.dof[keep])


def decide(past: LagBuffer, laws: list[Law], outliers: bool, y: Array) -> int:
    """Choose the version of the past with the larger density of y; a missing y decides nothing.

    Both densities include that y is an outlier itself, so a second spike has little influence.
    """
    if np.isnan(y).all():
        return CLEAN
    rate = rate_of(laws[CLEAN], outliers)
    centre, noise = middle(mixed(laws, past.masses, outliers), outliers)
    seen = ~np.isnan(y)
    log_q = math.log(rate) + seen.sum() * log_outlier(error_of(y, centre, noise))
    log_q -= float(np.log(noise[seen]).sum())
    value = y if y.size > 1 else y[0]
    logs = []
    for law in laws:
        density = float(_ordinary(law, outliers).log_density(value))
        logs.append(float(np.logaddexp(math.log1p(-rate) + density, log_q)))
    return past.decide(logs[CLEAN], logs[RAW])


def remember(
    past: LagBuffer, y: Array, law: Law, outliers: bool, weight: float, doubt: float
) -> None:
    """Push y; if its weight is below `doubt`, store a cleaned value for the other version.

    The cleaned value is the forecast moved by at most one noise scale towards y, so it tends to the
    forecast as y grows. It is no farther from the previous value than y is.
    """
    if past.pending or np.isnan(y).all() or weight >= doubt:
        past.push(y, y)  # pending: nothing was observed since the possible outlier
        return
    centre, noise = middle(law, outliers)
    away = np.clip(y, -_LONGEST, _LONGEST) - centre
    believed = centre + np.clip(weight * away, -noise, noise)
    # A forecast that is wild itself must not feed itself: no step is larger than the observed one.
    before = past.values[CLEAN, -1]
    most = np.abs(np.clip(y, -_LONGEST, _LONGEST) - before)
    believed = before + np.clip(believed - before, -most, most)
    past.doubt(believed, y, error_of(y, centre, noise), rate_of(law, outliers))


def mixed(laws: list[Law], masses: tuple[float, float], outliers: bool) -> Law:
    """One law from those of both pasts, with one component of outliers."""
    cuts = [law.share.size - outliers for law in laws]
    parts = [
        Law(mass * law.share[:n], law.location[:n], law.spread[:n], law.dof[:n])
        for law, mass, n in zip(laws, masses, cuts, strict=True)
    ]
    if outliers:
        wide = laws[CLEAN]
        centre = sum(mass * law.location[-1:] for law, mass in zip(laws, masses, strict=True))
        parts.append(Law(wide.share[-1:], np.asarray(centre), wide.spread[-1:], wide.dof[-1:]))
    return Law(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def has_outliers(engine: RegimeFilter) -> bool:
    """Whether the engine's forecasts end with a component of outliers."""
    return bool(engine.scoring.is_contamination())


def rate_of(law: Law, outliers: bool) -> float:
    """How many observations are outliers, as far as the law knows."""
    return float(law.share[-1]) if outliers else USUAL_RATE


def middle(law: Law, outliers: bool) -> tuple[Array, Array]:
    """(d,) mean of a law without outliers, and its noise: the geometric mean of the scales."""
    n = law.share.size - outliers
    share = law.share[:n] / law.share[:n].sum()
    scale = np.sqrt(np.einsum("kii->ki", law.spread[:n]))
    return share @ law.location[:n], np.exp(share @ np.log(scale))


def error_of(y: Array, centre: Array, noise: Array) -> float:
    """The largest error of a coordinate that was seen, in noise scales."""
    away = np.abs(np.clip(y, -_LONGEST, _LONGEST) - centre) / noise
    return float(np.nanmax(away))


def _ordinary(law: Law, outliers: bool) -> Forecast:
    rate = rate_of(law, outliers) if outliers else 0.0
    return Forecast.mixture(*law, outlier=rate).ordinary


def _ask(engine: RegimeFilter) -> Ask:
    return lambda design: Law(*engine.predict_one(design))


def _remember_all(
    engine: RegimeFilter, past: LagBuffer, y: Array, track: Outputs, doubt: float
) -> None:
    """Push observations that were learnt; only the last one can be a possible outlier."""
    if not past.depth:
        return
    outliers = has_outliers(engine)
    latest = y[:-1][-past.depth :]
    for value in y[:-1] if np.isnan(latest).any() else latest:  # a gap repeats what was before it
        past.push(value, value)
    n = len(y)
    last = slice(int(track.offset[n - 1]), int(track.offset[n]))
    law = Law(track.share[last], track.location[last], track.spread[last], track.dof[last])
    remember(past, y[-1], law, outliers, float(track.weight[n - 1]), doubt)
