"""Warnings after a run whose forecasts look wrong, each with a remedy, each given once.

A run can be valid and still not be what the user intended: the noise variance is in other units,
a lag is missing, or the target is a column of time stamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.display import number
from regimekit.results import Run

Array = NDArray[np.float64]

MIN_SCORED = 100  # observations needed to judge outliers and errors
MIN_SCORED_COVERAGE = 400  # observations needed to judge coverage
WARM_UP = 50  # observations at the start of a stream that are not judged
MAX_OUTLIER_SHARE = 0.5
MAX_COVERAGE_ERROR = 0.08  # absolute difference from the nominal level
MAX_ERROR_RATIO = 1.05  # mean absolute error over that of the last value
_TIME_STAMP_ROWS = 20  # observations from which a column of time stamps is recognised
_MIN_TIME_STAMP = 1e7  # a counter that starts below this is a row number


class Cures(NamedTuple):
    """Remedies, worded for the interface in use (Python or command line).

    Attributes:
        estimate: leave the variances out so that they are estimated.
        specify: pass the variances in the units of y.
        lag: add a lag.
        auto: use `auto`.
    """

    estimate: str
    specify: str
    lag: str
    auto: str


IN_PYTHON = Cures(
    "Leave out `noise` and `prior_var` to estimate them",
    "Pass `noise` and `prior_var` in the units of y",
    "Add a lag (features=rk.features.intercept() + rk.features.lags(1))",
    "use regimekit.auto()",
)
OUTLIERS = (
    "{name} flagged {share:.0%} of the observations as outliers: its noise variance does not fit "
    "the stream. {units}."
)
COVERAGE = (
    "The {level:.0%} intervals of {name} covered {covered:.0%} of the observations. {units}, whose "
    "intervals are calibrated online."
)
LAST_VALUE = (
    "The last value is the better forecast: its mean absolute error is {last}, that of the median "
    "of {name} is {own}. {lags}."
)
TIMESTAMP = (
    "The target increases by the same step each time, starting at {first:.0f}: it looks like a "
    "time stamp or a row number. Choose another column as y."
)
HINDSIGHT = (
    "{name} fits the whole stream at once: mean, lower and upper are in-sample, not forecasts, and "
    "cannot be compared with those of a forecaster."
)


def remarks(
    run: Run, name: str, settings: Mapping[str, Any], cures: Cures = IN_PYTHON
) -> dict[str, str]:
    """Return what looks wrong with the forecasts of a run.

    Args:
        run: a run over a scalar stream; others are not judged.
        name: name of the model.
        settings: settings of the model; they determine which remedies apply.
        cures: wording of the remedies.

    Returns:
        Messages by key: "timestamp", "outliers", "coverage", "last value".
    """
    if run.y.ndim > 1:
        return {}
    # Remedies that the model supports.
    units = settings.get("units", "fixed" if "noise" in settings else "auto")
    about_units = {"given": cures.estimate, "fixed": cures.specify}.get(units, "")
    about_lags = cures.lag if "features" in settings else ""
    words = {"units": _either(about_units, cures.auto), "lags": _either(about_lags, cures.auto)}
    words["name"] = name
    found = {}
    if looks_like_time(run.y):
        found["timestamp"] = TIMESTAMP.format(first=run.y[0])
    part = slice(max(WARM_UP - run.first, 0), None)
    y, own = run.y[part], run.median[part]
    seen = ~np.isnan(y)
    enough = seen.sum() >= MIN_SCORED
    if (share := run.outlier[part][seen].mean() if enough else 0.0) > MAX_OUTLIER_SHARE:
        found["outliers"] = OUTLIERS.format(share=share, **words)
    inside = ((y >= run.lower[part]) & (y <= run.upper[part]))[seen]
    if inside.size >= MIN_SCORED_COVERAGE and abs(inside.mean() - run.level) > MAX_COVERAGE_ERROR:
        found["coverage"] = COVERAGE.format(level=run.level, covered=inside.mean(), **words)
    if enough:
        error = float(np.abs(y[seen] - own[seen])[1:].mean())
        last = float(np.abs(np.diff(y[seen])).mean())
        if error > MAX_ERROR_RATIO * last:
            found["last value"] = LAST_VALUE.format(own=number(error), last=number(last), **words)
    return found


def _either(first: str, auto: str) -> str:
    return f"{first}, or {auto}" if first else auto[0].upper() + auto[1:]


def looks_like_time(y: Array) -> bool:
    """Return whether a stream starts like a column of time stamps: large, with equal steps.

    Args:
        y: (T,) observations.
    """
    first = y[:_TIME_STAMP_ROWS]
    if len(first) < _TIME_STAMP_ROWS or not np.isfinite(first).all():
        return False
    steps = np.diff(first)
    return bool(abs(first[0]) > _MIN_TIME_STAMP and steps[0] > 0 and (steps == steps[0]).all())
