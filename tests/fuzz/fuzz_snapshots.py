"""Fuzz snapshots: change stored fields, load, and use what was loaded.

Run it from the top folder of a checkout:

    python tests/fuzz/fuzz_snapshots.py [SECONDS] [SEED]

It changes fields of valid snapshots at random (a number of an array, an entry of the header, or raw
bytes), loads the result and uses the model. A change must be refused with `SnapshotError` or
`RegimekitError`, or the model must work: finite forecasts, intervals in order, and a snapshot that
loads again. Anything else is printed with the seed that repeats it, and the exit code is 1.

If atheris is installed, `python tests/fuzz/fuzz_snapshots.py --atheris` fuzzes raw bytes with
coverage feedback instead (arguments after it are those of libFuzzer).
"""

from __future__ import annotations

import faulthandler
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "hardening"))

from crafted import opened, stored

import regimekit as rk
from regimekit.serialization import container

NAMES = [name for name in rk.models() if name != "beam_ihmm"]
NUMBERS = [
    *(0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-300, -1e-300, 5e-324, 1e-12, 1e12, -1e12, 1e100, -1e100),
    *(1e154, -1e155, 1e200, -1e300, 1.7e308, np.inf, -np.inf, np.nan),
]
WHOLES = [0, 1, -1, 2, 3, 7, 100, 2**31 - 1, 2**31, 2**53, -(2**53), 2**63 - 1, -(2**63)]
OTHERS: list[Any] = [None, True, False, "", "x", [], {}, [1], {"a": 1}, 1e400, -1, 0, 2**70, 0.5]
TIME_LIMIT = 60.0  # seconds for one model; a kernel without end is found by it


def mutate(data: bytes, rng: np.random.Generator) -> bytes:
    """Return a snapshot with one to three fields changed."""
    header, arrays = opened(data)
    for _ in range(rng.integers(1, 4)):
        filled = [name for name, array in arrays.items() if array.size]
        if filled and rng.random() < 0.75:
            name = filled[rng.integers(len(filled))]
            arrays[name] = _changed(arrays[name], rng)
        else:
            _change_entry(header, rng)
    return container.write(header, arrays)


def _changed(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    array = array.copy()
    at = rng.integers(array.size)
    if array.dtype.kind == "f":
        choice = rng.random()
        old = array.flat[at]
        near = old * rng.choice([-1.0, 0.5, 2.0, 1e6, 1e-6]) + rng.choice([0.0, 1e-9, -1.0])
        array.flat[at] = near if choice < 0.4 else NUMBERS[rng.integers(len(NUMBERS))]
        if choice > 0.95:
            array[...] = array.flat[at]
    elif array.dtype.kind == "i":
        old = int(array.flat[at])
        limits = np.iinfo(array.dtype)
        new = [old + 1, old - 1, -old, *WHOLES][rng.integers(3 + len(WHOLES))]
        array.flat[at] = min(max(new, limits.min), limits.max)
    else:
        array.flat[at] = ~array.flat[at]
    if rng.random() < 0.05:
        array = array[:-1] if array.ndim and len(array) > 1 else array[None]
    return array


def _change_entry(header: dict[str, Any], rng: np.random.Generator) -> None:
    """Change one entry of the header, at any depth."""
    place: Any = header
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = keys[rng.integers(len(keys))]
        inner = place[key]
        if isinstance(inner, dict | list) and inner and rng.random() < 0.9:
            place = inner
            continue
        if isinstance(inner, int | float) and not isinstance(inner, bool) and rng.random() < 0.6:
            place[key] = [inner + 1, inner - 1, -inner, 2 * inner, *WHOLES][
                rng.integers(4 + len(WHOLES))
            ]
        else:
            place[key] = OTHERS[rng.integers(len(OTHERS))]
        return


def use(model: Any) -> None:
    """Predict, update, save and load; raise AssertionError if the model does not work."""
    x = None
    try:
        model.predict()
    except rk.RegimekitError:
        x = {"x0": 0.5} if "x0" in str(model.settings()) else [0.5, -0.2]
        try:
            model.predict(x)
        except rk.RegimekitError:
            return  # other covariates than this program knows
    size = model.dim or 1
    for value in (0.1, 3.9, float("nan"), 0.2):
        forecast = model.predict(x)
        lower, upper = forecast.interval(0.9)
        middle = forecast.quantile(0.5)
        assert np.isfinite([forecast.mean, lower, upper, middle]).all(), "forecast is not finite"
        assert (np.asarray(lower) <= middle).all() and (middle <= np.asarray(upper)).all(), "order"
        model.update(value if size == 1 else np.full(size, value), x)
    assert all(np.isfinite(regime.mean).all() for regime in model.regimes()), "regime is not finite"
    transitions = np.asarray(model.transitions().matrix)
    assert np.isfinite(transitions).all(), "transition is not finite"
    again = rk.from_bytes(model.to_bytes())
    assert again.to_bytes() == model.to_bytes(), "another model was loaded"


def check(data: bytes) -> bool:
    """Load and use a snapshot; return whether it was accepted."""
    try:
        model = rk.from_bytes(data)
    except rk.RegimekitError:
        return False
    # Only what is accepted may take long; a kernel without end stops the process here.
    faulthandler.dump_traceback_later(TIME_LIMIT, exit=True)
    try:
        use(model)
    finally:
        faulthandler.cancel_dump_traceback_later()
    return True


def run(seconds: float, seed: int) -> int:
    """Fuzz for some seconds; return the number of findings."""
    began, tried, accepted, findings = time.monotonic(), 0, 0, 0
    while time.monotonic() - began < seconds:
        rng = np.random.default_rng([seed, tried])
        name = NAMES[rng.integers(len(NAMES))]
        try:
            accepted += check(mutate(stored(name), rng))
        except Exception as error:
            findings += 1
            print(f"finding: seed {seed}, number {tried}, {name}: {type(error).__name__}: {error}")
        tried += 1
    print(f"{tried} snapshots, {accepted} accepted, {findings} findings, seed {seed}")
    return findings


def run_atheris() -> None:
    """Fuzz raw bytes with coverage feedback."""
    import atheris

    def test(data: bytes) -> None:
        check(data)

    sys.argv.remove("--atheris")
    atheris.instrument_all()
    atheris.Setup(sys.argv, test)
    atheris.Fuzz()


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if "--atheris" in sys.argv:
        run_atheris()
    else:
        given = [float(word) for word in sys.argv[1:]]
        sys.exit(min(1, run(given[0] if given else 60.0, int(given[1]) if len(given) > 1 else 0)))
