"""Valid snapshots of every model, and what a hostile hand may do to them."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import regimekit as rk
from regimekit.core.registry import REGISTRY
from regimekit.serialization import compact
from regimekit.serialization.words import WORDS

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
    """Header and arrays of a snapshot as it is written now."""
    header, arrays = compact.read(data)
    return header, {name: arrays[name] for name in arrays.names()}


def members(data: bytes) -> dict[str, bytes]:
    """A snapshot as the members of the zip that it would have been before."""
    header, arrays = opened(data)
    parts = {"header.json": json.dumps(header).encode()}
    return parts | {f"{name}.npy": npy(array) for name, array in arrays.items()}


def packed(parts: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Such a zip."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", method) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return target.getvalue()


def sealed(
    text: bytes, body: bytes = b"", behind: bytes = b"", version: int = 3, **claims: int
) -> bytes:
    """A compact snapshot with any header, lanes and large arrays, and with wrong sizes."""
    packer = zlib.compressobj(9, zdict=WORDS[version])
    packed = packer.compress(text + body) + packer.flush()
    sizes = {"header": len(text), "lanes": len(body), "packed": len(packed)}
    sizes |= {"noise": 0} if version == 3 else {}
    lengths = struct.pack(f"<{len(sizes)}I", *(sizes | claims).values())
    return b"regimekit" + bytes([version]) + lengths + packed + behind


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


def array_of(data: bytes, name: str) -> np.ndarray:
    return opened(data)[1][name].copy()


def with_array(data: bytes, name: str, array: np.ndarray) -> bytes:
    header, arrays = opened(data)
    return compact.write(header, arrays | {name: array})


def with_part(data: bytes, name: str, content: bytes) -> bytes:
    """As the zip it would have been before, with one member changed."""
    return packed(members(data) | {name: content})


def with_header(data: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The snapshot after `change` of its header in place."""
    header, arrays = opened(data)
    change(header)
    return compact.write(header, arrays)
