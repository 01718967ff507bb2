"""Functions that make models, and the types of their settings.

The signature of a maker lists every setting with its default, for `help`, editors and type
checkers; tests/core/test_makers.py compares signatures with settings. If a default depends on other
settings, it is None in the signature and described in the docstring; if it depends on the units, it
is a `ByUnits`. `maker` adds a suggestion to the error for a misspelt name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from regimekit.core.exceptions import unknown
from regimekit.preprocessing.features import Features

Settings = ParamSpec("Settings")
Made = TypeVar("Made")

Numbers = ArrayLike  # a number, a vector or a matrix
Pair = tuple[float, float] | Sequence[float]
Terms = Features | Sequence[Mapping[str, object]]  # features, or the JSON that describes them
Batch = int | Literal["adaptive"] | dict[str, float]
Rules = Literal["default", "paper"] | Mapping[str, str]
Robust = Literal["imq", "huber", "mahalanobis", "none"]
Weight = Literal["contamination"] | Robust
Units = Literal["auto", "given"]
Resampling = Literal["systematic", "stratified", "multinomial"]


class ByUnits(NamedTuple):
    """Default of a setting: in units estimated from the stream, and in the units of y."""

    learnt: float
    given: float


def maker(function: Callable[Settings, Made]) -> Callable[Settings, Made]:
    """Return a maker that raises an error with the nearest known name for an unknown setting."""
    known = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in known.values()):
        return function

    @wraps(function)
    def make(*arguments: Settings.args, **settings: Settings.kwargs) -> Made:
        for given in settings:
            if given not in known:
                raise unknown("setting", given, known)
        return function(*arguments, **settings)

    return make


def json_value(value: Any) -> Any:
    """Return a copy of a setting as a JSON value."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [json_value(entry) for entry in value]
    return value
