"""Valid snapshots of every model, and functions that change them."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import regimekit as rk
from regimekit.core.registry import REGISTRY
from regimekit.serialization import container

ONLINE = [name for name, entry in REGISTRY.items() if entry.online]

_FAMILY: dict[str, Any] = {"particles": 6, "max_regimes": 5}
SMALL: dict[str, dict[str, Any]] = {
    "br_ihmm": _FAMILY | {"batch": 4},
    "wolf_ihmm": _FAMILY,
    "ihmm": _FAMILY,
    "student_t_ihmm": _FAMILY,
    "garch_ihmm": _FAMILY | {"cloud": 16},
    "beam_ihmm": {"iterations": 4, "initial_regimes": 2, "max_regimes": 6},
    "bocd": {"max_run_lengths": 6},
    "dsm_bocd": {"max_run_lengths": 6, "training": 20},
    "seasonal_last_value": {"period": 3},
}
HEAVY = ["auto", "garch_ihmm", "student_t_ihmm"]  # slower by an observation
X0 = np.array([0.5, -1.0])


def light(names: list[str], covariates: bool = False) -> list[Any]:
    """Models for tests with many examples; the slower ones have tests of their own."""
    return [
        name for name in names if name not in HEAVY and (not covariates or takes_covariates(name))
    ]


def takes_covariates(name: str) -> bool:
    """Whether the model regresses on covariates."""
    try:
        made(name, rk.features.columns()).predict(X0)
    except rk.RegimekitError:
        return False
    return "features" in rk.make(name).settings()


def made(name: str, features: Any = None, **more: Any) -> Any:
    """A small model, with features if it takes any."""
    given = {} if features is None else {"features": features}
    return rk.make(name, **{**SMALL.get(name, {}), **given, **more})


@cache
def stored(name: str) -> bytes:
    """A snapshot in the middle of a stream, with lags and covariates where there can be any."""
    rng = np.random.default_rng(3)
    y = np.repeat([0.0, 4.0], [7, 6]) + 0.3 * rng.standard_normal(13)
    y[4] = np.nan
    if name == "auto":
        y[-1] = 1e3  # in doubt: two versions of the past are kept
    if takes_covariates(name):
        map_ = rk.features.intercept() + rk.features.columns() + rk.features.lags(1, 3)
        model = made(name, map_)
        for t, value in enumerate(y):
            model.update(value, X0 + 0.1 * t)
    else:
        model = made(name)
        for value in y:
            model.update(value)
    return bytes(model.to_bytes())


def goes_on(model: Any) -> None:
    """Predict, learn and keep: what every model that was loaded must do."""
    x = X0 if _needs_x(model) else None
    for value in (0.1, 3.9, float("nan"), 0.2):
        forecast = model.predict(x)
        assert np.isfinite(forecast.mean).all()
        model.update(value if (model.dim or 1) == 1 else np.full(model.dim, value), x)
    assert rk.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()


def _needs_x(model: Any) -> bool:
    try:
        model.predict()
    except rk.RegimekitError as error:
        return "x is missing" in str(error)
    return False


def opened(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a snapshot."""
    header, arrays = container.read(data)
    return header, {name: arrays[name] for name in arrays.names()}


def sealed(text: bytes, content: bytes = b"", **claims: int) -> bytes:
    """A snapshot with any header and bytes of arrays, and with wrong sizes."""
    packed = zlib.compress(text, 9)
    sizes = {"header": len(text), "packed": len(packed)} | claims
    start = container.MAGIC + bytes([container.FORMAT])
    return start + struct.pack("<2I", *sizes.values()) + packed + content


def with_entry(data: bytes, name: str, code: Any, content: bytes, shape: Any) -> bytes:
    """The snapshot with one array replaced by compressed bytes of a claimed type and shape."""
    header, arrays = opened(data)
    arrays.pop(name, None)
    size = container.read(container.write(header, arrays))[1]
    table = {n: [e.code, len(e.packed), *e.shape] for n, e in size._entries.items()}
    table[name] = [code, len(content), *shape]
    parts = [e.packed for e in size._entries.values()]
    return sealed(json.dumps(header | {"arrays": table}).encode(), b"".join([*parts, content]))


def array_of(data: bytes, name: str) -> np.ndarray:
    return opened(data)[1][name].copy()


def with_array(data: bytes, name: str, array: np.ndarray) -> bytes:
    header, arrays = opened(data)
    return container.write(header, arrays | {name: array})


def with_header(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The snapshot after `change` of its header in place."""
    header, arrays = opened(data)
    change(header)
    return container.write(header, arrays)
