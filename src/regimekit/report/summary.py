"""Summary of a run in five sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from regimekit.report.tables import count, number, percent, rounded
from regimekit.results import Run

_ENDING = 0.5  # largest probability of the current regime at which it may be ending
_SIMILAR = 0.02  # difference of two errors, as a share, that is not mentioned


def sentences(
    run: Run,
    labels: list[str],
    frequency: str,
    entries: list[dict[str, Any]],
    names: Mapping[int, str],
    scores: Mapping[str, Any],
    inside: float,
    level: float,
) -> list[str]:
    """Describe data, regimes, changes, outliers and forecasts, one sentence each.

    Args:
        run: the run.
        labels: times of the observations, or their row numbers, in words.
        frequency: name of the step between observations, "" if it is not known.
        entries: regimes, sorted by number of observations (`regimes.cards`).
        names: names of regimes by id.
        scores: errors of the model and of the last value.
        inside: coverage of the limits of the run.
        level: probability of these limits.

    Returns:
        The sentences, as plain text.
    """
    return [
        _data(run, labels, frequency),
        _regimes(entries, names),
        _changes(run, labels, names),
        _outliers(run, labels),
        _forecasts(scores, inside, level),
    ]


def regime_name(regime: int, names: Mapping[int, str]) -> str:
    """Return the name of a regime, by default its number."""
    return names.get(regime, f"regime {regime}")


def _data(run: Run, labels: list[str], frequency: str) -> str:
    missing = int(np.isnan(np.reshape(run.y, (len(run), -1))).all(axis=1).sum())
    gaps = f"; {count(missing)} of them are missing" if missing else ""
    step = f"{frequency}, " if frequency else ""
    return (
        f"There are {count(len(run))} observations, {step}from {labels[0]} to {labels[-1]}{gaps}."
    )


def _values(entry: dict[str, Any]) -> str:
    spread = entry["quantiles"]
    if spread is None:
        return ""
    return f"values around {spread['median']} (90 % between {spread['low']} and {spread['high']})"


def _regimes(entries: list[dict[str, Any]], names: Mapping[int, str]) -> str:
    visited = [entry for entry in entries if entry["observations"]]
    if not visited:
        return "No regime was reported."
    first = visited[0]
    if len(visited) == 1:
        return f"One regime describes all of them, with {_values(first)}."
    name = regime_name(first["id"], names)
    return (
        f"They form {len(visited)} regimes; the most frequent, {name}, covers {first['share']} of "
        f"the time, with {_values(first)}."
    )


def _changes(run: Run, labels: list[str], names: Mapping[int, str]) -> str:
    changes = run.changepoints
    reported = sum(event.is_change for event in run.events)
    if not changes and reported:
        verb = "1 change of regime was" if reported == 1 else f"{reported} changes of regime were"
        return f"{verb} reported, none of which remains in hindsight."
    if not changes:
        return "No change of regime was found."
    probability = float(run.regime_probability[-1])
    now = regime_name(int(run.path[-1]), names)
    doubt = "; it may be ending" if probability <= _ENDING else ""
    times = "once" if len(changes) == 1 else f"{count(len(changes))} times"
    begin = "The regime" if reported == len(changes) else "In hindsight the regime"
    return f"{begin} changed {times}, last at {labels[changes[-1]]}, to {now}{doubt}."


def _outliers(run: Run, labels: list[str]) -> str:
    flagged = np.flatnonzero(run.outlier)
    if not flagged.size:
        return "No observation was flagged as an outlier."
    share = percent(flagged.size / len(run))
    verb = "was flagged as an outlier" if flagged.size == 1 else "were flagged as outliers"
    noun = "observation" if flagged.size == 1 else "observations"
    return f"{count(flagged.size)} {noun} ({share}) {verb}, the latest at {labels[flagged[-1]]}."


def _forecasts(scores: Mapping[str, Any], inside: float, level: float) -> str:
    error, last = scores.get("mae"), scores.get("mae_last_value")
    if error is None:
        return "There are too few observations to score the forecasts."
    against = ""
    if last:
        change = error / last - 1
        if abs(change) < _SIMILAR:
            against = ", as much as those of the last value"
        else:
            against = (
                f", {percent(abs(change))} {'less' if change < 0 else 'more'} than the last value"
            )
    return (
        f"One step ahead the forecasts miss by {number(float(error))} on average{against}; the "
        f"{percent(level)} interval covered {percent(inside)} of the observations."
    )


def next_step(ahead: dict[str, Any], place: str, level: float) -> str:
    """Describe the forecast of the next observation, at `place`, in one sentence."""
    low, high = ahead["lower"][0], ahead["upper"][0]
    spread = high - low
    return (
        f"The next value, at {place}, is expected at "
        f"{rounded(ahead['median'][0], spread)}, with {percent(level)} probability between "
        f"{rounded(low, spread)} and {rounded(high, spread)}."
    )
