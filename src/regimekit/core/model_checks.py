"""Checks of the contract of a model, for models of other packages."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError
from regimekit.core.model import Model
from regimekit.results import Run

Array = NDArray[np.float64]


def check_model(make: Callable[[], Model], y: Any = None) -> None:
    """Check that a model has the properties that the library relies on.

    Args:
        make: function that returns a new model of one coordinate without covariates.
        y: (T,) stream to check with, at least 40 finite values; by default a generated one.

    Raises:
        AssertionError: if a property does not hold; the message names it.

    Example:
        >>> import regimekit as rk
        >>> rk.check_model(lambda: rk.make("last_value"))
    """
    stream = _default_stream() if y is None else np.asarray(y, dtype=float)
    for check in _CHECKS:
        check(make, stream)


def _default_stream() -> Array:
    y = np.repeat([-1.0, 1.0, -1.0], 30) + 0.3 * np.random.default_rng(7).standard_normal(90)
    y[45] = 9.0
    return y


def _require(condition: Any, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def _same(a: Run, b: Run) -> bool:
    names = ("mean", "sd", "lower", "upper", "regime", "weight", "log_score")
    return all(np.array_equal(getattr(a, n), getattr(b, n), equal_nan=True) for n in names)


def _predict_is_pure(make: Callable[[], Model], y: Array) -> None:
    model = make()
    run = make().run(y)
    for t, value in enumerate(y):
        before = model.to_bytes()
        mean = model.predict().mean
        _require(model.to_bytes() == before, "predict must not change the state")
        same = np.allclose(mean, run.mean[t], rtol=1e-9, atol=1e-12)
        _require(same, f"predict and run must give the same forecast, observation {t} differs")
        model.update(value)


def _no_future_values(make: Callable[[], Model], y: Array) -> None:
    half = len(y) // 2
    whole, part = make().run(y), make().run(y[:half])
    same = np.array_equal(whole.mean[:half], part.mean)
    _require(same, "later observations must not change earlier forecasts")


def _copies_continue(make: Callable[[], Model], y: Array) -> None:
    half = len(y) // 2
    model = make()
    model.run(y[:half])
    values, arrays = model._pack()
    _require(json.loads(json.dumps(values)) == values, "_pack must return JSON values")
    kinds = {array.dtype.kind for array in arrays.values()}
    _require(kinds <= set("fiub"), f"_pack must return numeric arrays, got kinds {kinds}")
    copies = {"copy": model.copy()}
    # A class of a notebook or a function cannot be imported, so it has no pickle.
    if getattr(sys.modules.get(type(model).__module__), type(model).__name__, None) is type(model):
        copies["pickle"] = pickle.loads(pickle.dumps(model))
    expected = model.run(y[half:])
    for name, twin in copies.items():
        _require(_same(twin.run(y[half:]), expected), f"a {name} must continue with the same bits")


def _settings_are_json(make: Callable[[], Model], y: Array) -> None:
    model = make()
    settings = model.settings()
    _require(json.loads(json.dumps(settings)) == settings, "settings must return JSON values")
    function, arguments = model._recipe()
    _require(function(*arguments).settings() == settings, "settings must make an equal model")


def _missing_and_extreme_values(make: Callable[[], Model], y: Array) -> None:
    for value in (np.nan, 1e100, -1e100, 0.0):
        model = make()
        model.run(y[:30])
        model.update(value)
        forecast = model.predict()
        finite = np.isfinite([forecast.mean, forecast.sd, *forecast.interval(0.9)]).all()
        _require(finite, f"the forecast after y = {value} must be finite")


def _invalid_values_change_nothing(make: Callable[[], Model], y: Array) -> None:
    model = make()
    model.run(y[:30])
    before = model.to_bytes()
    for value in (np.inf, "text", [[1.0]]):
        try:
            model.update(value)
        except RegimekitError:
            _require(model.to_bytes() == before, "an error must leave the state unchanged")
        else:
            raise AssertionError(f"update({value!r}) must raise RegimekitError")


_CHECKS = (
    _settings_are_json,
    _predict_is_pure,
    _no_future_values,
    _copies_continue,
    _missing_and_extreme_values,
    _invalid_values_change_nothing,
)
