"""The models still say what the goldens hold; `make.py` beside this file says what these are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import make
import numpy as np
import pytest

HERE = Path(__file__).resolve().parent
RTOL = 1e-9
ATOL = 1e-12  # in the scale of the column
STORED = sorted(path.stem for path in HERE.glob("*.npz"))
_SHARES = ("weight", "probability", "matrix", "log_score")  # their scale is 1
_SPREADS = {"run": "run_sd", "predict": "run_sd", "ahead": "run_sd", "regimes": "regimes_sd"}


def test_every_case_has_a_golden() -> None:
    assert sorted(make.CASES) == STORED
    assert (HERE / "names.txt").read_text().split() == list(make.CASES)


@pytest.mark.parametrize("name", STORED)
def test_golden(name: str) -> None:
    wanted, outputs = make.load(name), make.record(make.CASES[name])
    firm = [key for key in wanted if not key.startswith("loose_")]
    assert sorted(outputs) == sorted(firm)
    wrong = [line for key in firm if (line := _difference(key, outputs[key], wanted))]
    assert not wrong, "\n".join(wrong)


def _difference(key: str, outputs: Any, stored: dict[str, Any]) -> str:
    """In words, where a column is another; empty where it is not."""
    wanted, loose = stored[key], stored.get(f"loose_{key}", np.False_)
    if loose.ndim == 0 and loose:  # not even its length is sure
        return ""
    if outputs.shape != wanted.shape:
        return f"{key}: shape {outputs.shape}, not {wanted.shape}"
    if wanted.dtype.kind != "f":
        if outputs.dtype.kind != wanted.dtype.kind:
            return f"{key}: type {outputs.dtype}, not {wanted.dtype}"
        same = outputs == wanted
    else:
        same = np.isclose(outputs, wanted, RTOL, ATOL * _scale(key, stored), equal_nan=True)
    same |= loose
    if same.all():
        return ""
    at = tuple(np.argwhere(~same)[0].tolist())
    many = f"{(~same).sum()} of {same.size} differ"
    return f"{key}: {many}, first {at}: {outputs[at]!r}, not {wanted[at]!r}"


def _scale(key: str, stored: dict[str, Any]) -> Any:
    """The size of a usual value, for each coordinate; locations count their spread too."""
    if key.endswith(_SHARES):
        return 1.0
    spread = _SPREADS.get(key.split("_")[0])
    of_spread = 0.0 if spread is None or key == "run_ess" else _usual(stored[spread])
    return _usual(stored[key]) + of_spread


def _usual(array: Any) -> Any:
    """Medians of the finite sizes over rows; 0 where nothing is finite."""
    size = np.abs(np.where(np.isfinite(array), array, np.nan))
    known = ~np.isnan(size).all(axis=0)
    filled = np.where(known, size, 0.0)  # a column without a value counts 0
    return np.nanmedian(filled, axis=0) if len(array) else 0.0
