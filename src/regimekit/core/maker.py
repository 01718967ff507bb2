"""Makers of models: functions whose signature says what may be told, and what holds if it is not.

The signature is what `help`, editors and type checkers read, so it lists every setting with its
default, though relatives share most of them; tests/test_makers.py holds signatures and settings
together. A setting whose default depends on others is None there, and its docstring says what None
comes to; one that depends on the units says both (`ByUnits`). The body hands the settings on;
`maker` adds only a better word for a misspelt name.
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
    """A default: in units that are learnt from the stream, and in those of y."""

    learnt: float
    given: float


def maker(function: Callable[Settings, Made]) -> Callable[Settings, Made]:
    """The same function; a setting that it does not know is named, with the nearest it does."""
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
    """A setting as a JSON value of its own."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [json_value(entry) for entry in value]
    return value
