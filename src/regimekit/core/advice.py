"""What a newcomer should be told after a run, once, with the cure.

A run can be perfectly legal and still not what its owner had in mind: the model thinks in other
units, lacks the one lag that matters, or was given a column of times to forecast.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.display import number
from regimekit.core.warnings import say_once
from regimekit.preprocessing.frames import Series, Table, misaligned
from regimekit.results import Run

Array = NDArray[np.float64]

SOME = 100  # observations before outliers and errors can be judged
MANY = 400  # and coverage
BEGINNING = 50  # first observations, which are not judged
MOSTLY = 0.5  # share of outliers that is worth a word
FAR = 0.08  # coverage this far from what was promised
WORSE = 1.05  # errors this many times those of the last value
LOOKS = 20  # first observations by which a column of times is known
_LATE = 1e7  # a counter that begins beyond this is a time stamp rather than a row number


class Cures(NamedTuple):
    """What to do, in the words of those who can do it: not to say the units where they would be
    learnt, to say them where they cannot be, to add a lag, to leave it all to `auto`."""

    untold: str
    told: str
    lag: str
    auto: str


IN_PYTHON = Cures(
    "Leave `noise` and `prior_var` out, so that they are learnt",
    "Say `noise` and `prior_var` in the units of y",
    "Add a lag (features=regimekit.preprocessing.features.intercept() + regimekit.preprocessing.features.lags(1))",
    "use regimekit.auto()",
)
OUTLIERS = (
    "{name} takes {share:.0%} of the observations for outliers: its noise level is not that of "
    "the stream. {units}."
)
COVERAGE = (
    "The {level:.0%} limits of {name} held {held:.0%} of the observations. {units}, whose limits "
    "are corrected as the stream goes on."
)
LAST_VALUE = (
    "The last value would have been the better forecast: its mean absolute error is {last}, that "
    "of {name}'s median {own}. {lags}."
)
TIMESTAMP = (
    "The target grows by the same step every time, from {first:.0f} on: it looks like a time stamp "
    "or a row number. Choose another column as y."
)
MISALIGNED = (
    "The indexes of y and X differ, first at row {row} ({one!r} and {other!r}); rows are taken in "
    "their order. If they should meet by label, pass X.reindex(y.index)."
)
HINDSIGHT = (
    "{name} reads the whole stream before it says anything: mean, lower and upper are a fit in "
    "hindsight, not forecasts, and cannot be compared with a forecaster's."
)


def labels_of(series: Series, table: Table | None, said: list[str]) -> Any:
    """The labels of a stream: those of y, else those of X; a word if the two differ."""
    if table is None:
        return series.index
    row = misaligned(series.index, table.index)
    if row is not None:
        one, other = series.index[row], table.index[row]
        message = MISALIGNED.format(row=row, one=str(one), other=str(other))
        say_once(said, "misaligned", message, stacklevel=5)
    return table.index if series.index is None else series.index


def look_at(run: Run, name: str, settings: Mapping[str, Any], said: list[str]) -> None:
    """Say what looks wrong with the forecasts of a run of a model with these settings."""
    for what, message in remarks(run, name, settings).items():
        say_once(said, what, message, stacklevel=5)


def remarks(
    run: Run, name: str, settings: Mapping[str, Any], cures: Cures = IN_PYTHON
) -> dict[str, str]:
    """What looks wrong with a scalar stream, by kind, each with a cure the model can take."""
    if run.y.ndim > 1:
        return {}
    found, words = {}, {"name": name} | _ways(settings, cures)
    if looks_like_time(run.y):
        found["timestamp"] = TIMESTAMP.format(first=run.y[0])
    part = slice(max(BEGINNING - run.first, 0), None)
    y, own = run.y[part], run.median[part]
    seen = ~np.isnan(y)
    if (share := run.outlier[part][seen].mean() if seen.sum() >= SOME else 0.0) > MOSTLY:
        found["outliers"] = OUTLIERS.format(share=share, **words)
    held = ((y >= run.lower[part]) & (y <= run.upper[part]))[seen]
    if held.size >= MANY and abs(held.mean() - run.level) > FAR:
        found["coverage"] = COVERAGE.format(level=run.level, held=held.mean(), **words)
    error, last = _errors(y[seen], own[seen])
    if seen.sum() >= SOME and error > WORSE * last:
        found["last value"] = LAST_VALUE.format(own=number(error), last=number(last), **words)
    return found


def _ways(settings: Mapping[str, Any], cures: Cures) -> dict[str, str]:
    """What to do about wrong units and about errors that a lag might mend."""
    units = settings.get("units", "fixed" if "noise" in settings else "auto")
    about_units = {"given": cures.untold, "fixed": cures.told}.get(units, "")
    about_lags = cures.lag if "features" in settings else ""
    return {"units": _either(about_units, cures.auto), "lags": _either(about_lags, cures.auto)}


def _either(first: str, auto: str) -> str:
    return f"{first}, or {auto}" if first else auto[0].upper() + auto[1:]


def looks_like_time(y: Array) -> bool:
    """Whether a stream begins as a clock does: late, and always the same step later."""
    first = y[:LOOKS]
    if len(first) < LOOKS or not np.isfinite(first).all() or abs(first[0]) <= _LATE:
        return False
    steps = np.diff(first)
    return bool(steps[0] > 0 and (steps == steps[0]).all())


def _errors(y: Array, own: Array) -> tuple[float, float]:
    """Mean absolute errors of the forecasts and of the last value."""
    if y.size < 2:
        return 0.0, 0.0
    return float(np.abs(y - own)[1:].mean()), float(np.abs(np.diff(y)).mean())
