"""Every stored field of every model, changed: refused, or the model works."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "fuzz"))

from crafted import opened, stored, with_array
from fuzz_snapshots import NAMES, NUMBERS, WHOLES, check, mutate

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_number_in_any_array(name: str, data: st.DataObject) -> None:
    snapshot = stored(name)
    _, arrays = opened(snapshot)
    field = data.draw(st.sampled_from(sorted(n for n, a in arrays.items() if a.size)))
    array = arrays[field].copy()
    at = data.draw(st.integers(0, array.size - 1))
    if array.dtype.kind == "f":
        finite = st.floats(allow_nan=True, allow_infinity=True)
        array.flat[at] = data.draw(st.sampled_from(NUMBERS) | finite)
    elif array.dtype.kind == "i":
        limits = np.iinfo(array.dtype)
        value = data.draw(st.sampled_from(WHOLES) | st.integers(limits.min, limits.max))
        array.flat[at] = min(max(value, limits.min), limits.max)
    else:
        array.flat[at] = ~array.flat[at]
    check(with_array(snapshot, field, array))


@pytest.mark.parametrize("name", NAMES)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_fields_of_header_and_arrays(name: str, seed: int) -> None:
    check(mutate(stored(name), np.random.default_rng(seed)))
