"""Description of the state of `auto` in words, and its warnings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.explain import describe_regime
from regimekit.core.warnings import warn_once
from regimekit.ensemble.engine import MAX_FOUND
from regimekit.ensemble.seasonality import TOLD_CYCLES as NAMED_CYCLES

if TYPE_CHECKING:
    from regimekit.ensemble.model import Auto

Array = NDArray[np.float64]

_MAX_LISTED = 6  # members, regimes and outliers named at most
_MIN_SHARE = 0.005  # members with a smaller weight are not named
_MIN_TIMESTAMP = 1e7  # a counter that begins beyond this is a time stamp

OUTLIERS = (
    "auto classifies most of the latest observations as outliers. If the stream has changed its "
    "units, auto adapts within some dozen observations; otherwise check the values, or begin with "
    "a new model."
)
COVERAGE = (
    "The 90 % intervals of auto have covered {:.0%} of the values so far. Several streams mixed "
    "into one, or values that are only a few codes, cause this; use one model per stream."
)
SEASON = "The season of {} observations that was named is {}. Forecasts do not repeat it."
TIMESTAMP = (
    "The target increases by the same step every time, from {:.0f} on: it looks like a time stamp "
    "or a row number. Choose another column as y."
)


class Advice:
    """Warnings, each emitted once."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def many_outliers(self) -> None:
        """Warn that most of the latest observations are outliers."""
        warn_once(self.said, "outliers", OUTLIERS)

    def wrong_coverage(self, coverage: float) -> None:
        """Warn that 90 % intervals cover another share of the values."""
        warn_once(self.said, "coverage", COVERAGE.format(coverage))

    def check_seasons(self, engine: Any, named: tuple[int, ...], first: bool) -> None:
        """Warn of each season that is not used; of too few data in the first run only."""
        for period in named:
            reason = "used" if period in engine.seasons else _reason(period, engine)
            early = reason.startswith("not used yet")
            if not reason.startswith("used") and (first or not early):
                key = f"season {period}{' yet' if early else ''}"
                warn_once(self.said, key, SEASON.format(period, reason))

    def check_target(self, values: Array) -> None:
        """Warn if the first observations of a scalar stream look like time stamps."""
        steps = np.diff(values)
        even = bool(np.isfinite(steps).all()) and bool((steps == steps[0]).all())
        if even and steps[0] > 0 and abs(values[0]) > _MIN_TIMESTAMP:
            warn_once(self.said, "timestamp", TIMESTAMP.format(values[0]))


def explain(model: Auto) -> str:
    """Describe units, features, leading members, intervals, regimes and outliers."""
    if model.engine is None:
        return "auto has no observations yet. Call update(y) or run(y)."
    scaling, calibration = model.engine.scaling, model.engine.calibration
    coverage = "Intervals: no observations to check them yet."
    if calibration.n_checked:
        coverage = (
            f"Intervals: 90 % intervals covered {calibration.n_inside / calibration.n_checked:.1%} "
            f"of {calibration.n_checked} values."
        )
    lines = [
        f"auto after {model.time} observations ({scaling.count} in the present units).",
        f"Units: noise scale about {_numbers(scaling.scale)} around {_numbers(scaling.centre)}, "
        "from differences.",
        _features(model),
        *_unused_seasons(model),
        _members(model),
        coverage,
        *_regimes(model),
        _outliers(model),
    ]
    return "\n".join(lines)


def number(value: float) -> str:
    """Return a number with five significant digits."""
    return f"{value:.5g}"


def _numbers(values: Any) -> str:
    return ", ".join(number(v) for v in np.atleast_1d(values))


def _features(model: Auto) -> str:
    engine: Any = model.engine
    steps = sorted({k for m in engine.ensemble.members for k in m.spec.steps})
    text = f"Features: lags {', '.join(map(str, steps))}"
    if engine.seasons:
        text += f"; a season of {' and '.join(map(str, engine.seasons))} observations was found"
    if engine.n_x:
        text += f"; {engine.n_x} covariate(s)"
    return text + "."


def _unused_seasons(model: Auto) -> list[str]:
    """Return a line for each season that was named, or implied by dates, and is not used."""
    engine: Any = model.engine
    named = [s for s in engine.lineup.seasons or () if s not in engine.seasons]
    return [f"Season of {s} observations: {_reason(s, engine)}." for s in named]


def _reason(period: int, engine: Any) -> str:
    """Return why a named season is not used for the next observation."""
    if period > MAX_FOUND:
        if engine.n_x:
            return "not used; too long for lags, and forecasts with covariates use no other"
        if engine.history.size > period:
            return "used for forecasts of several steps only; it is too long for lags"
        return f"not used yet; needs more than {period} observations, got {engine.history.size}"
    need = math.ceil(NAMED_CYCLES[bool(engine.seasons)] * period)
    if engine.scaling.size < need:
        return f"not used yet; needs {need} observations, got {engine.scaling.size}"
    return "not used; changes one season apart do not resemble each other more than by chance"


def _members(model: Auto) -> str:
    pairs = list(model.weights.items())[:_MAX_LISTED]
    named = [f"{name} {share:.0%}" for name, share in pairs if share >= _MIN_SHARE]
    text = f"Weights of the members: {'; '.join(named)}."
    ensemble: Any = model.engine.ensemble if model.engine else None
    present = np.asarray(ensemble.aggregation.present)
    inactive = [name for name, up in zip(ensemble.names, present, strict=True) if not up]
    if inactive:
        text += f" Inactive members (weight below 2 % on trial): {'; '.join(inactive)}."
    return text


def _regimes(model: Auto) -> list[str]:
    engine: Any = model.engine
    known, selection = model.regimes(), engine.selection
    source = "the level and spread of the observations"
    if engine.viewed and selection.chosen == engine.shape_model:
        source = "the shape of a periodic stream, none so far"
        if engine.shape.period:
            source = f"the shape of windows of {4 * engine.shape.period} observations"
    if engine.selected is not None:
        source = engine.selected.spec.name
    head = f"Regimes, inferred from {source}: {len(known)} so far"
    if selection.regime >= 0:
        head += f", now {selection.regime} since observation {selection.began}"
    latest = sorted(known, key=lambda regime: -regime.last_seen)[:_MAX_LISTED]
    latest.sort(key=lambda regime: regime.id)
    return [head + ".", *(describe_regime(regime) for regime in latest)]


def _outliers(model: Auto) -> str:
    engine: Any = model.engine
    if not engine.outliers:
        return "Outliers: none."
    latest = ", ".join(map(str, engine.outliers[-_MAX_LISTED:]))
    return f"Outliers: {engine.n_outliers} of {model.time} observations; the latest at {latest}."
