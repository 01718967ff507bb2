"""Common ground of the tests: where real data may lie, and a small stream to run on."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

if "REGIMEKIT_DATA" not in os.environ and _DATA.is_dir():
    os.environ["REGIMEKIT_DATA"] = str(_DATA)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20260117)


@pytest.fixture(scope="session")
def stream() -> np.ndarray:
    """A standardised series with two levels that return, a spike and two gaps."""
    rng = np.random.default_rng(7)
    y = np.repeat([-1.0, 1.0, -1.0, 1.0], 30) + 0.3 * rng.standard_normal(120)
    y = (y - y.mean()) / y.std()
    y[45] = 9.0
    y[[0, 70]] = np.nan
    y[100:103] = np.nan
    y.flags.writeable = False
    return y


# They are plugins, found by pytest itself; as modules their names would clash.
collect_ignore_glob = ["conftest.py", "*/conftest.py"]
