"""Whatever stands inside a valid container: refused, or a model that works."""

from __future__ import annotations

import math
import re
import tracemalloc
from collections.abc import Iterator
from typing import Any

import crafted
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regimekit as rk
from regimekit.core.registry import REGISTRY
from regimekit.serialization.validation import Arrays, Values

FLOATS = [math.nan, math.inf, -math.inf, 1.7e308, -1.7e308, 1e160, -1.0, 0.0, 1e-320, 0.5]
WHOLES = [-1, 0, 3, 10**6, 10**9, 2**62, -(2**63)]
JSON = [None, True, False, -1, 0, 3, 10**9, 2**63, 2**70, -0.5, 1e300, math.inf, math.nan, "x"]
JSON += [[], [1], {}, {"a": 1}, [[]], ["x", "x"]]


def refused(data: bytes) -> str:
    with pytest.raises(rk.SnapshotError) as caught:
        rk.from_bytes(data)
    return str(caught.value)


def refused_or_works(data: bytes) -> None:
    try:
        model = rk.from_bytes(data)
    except rk.SnapshotError as error:
        assert str(error)
    else:
        crafted.goes_on(model)


def leaves(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a JSON tree can be changed: every entry, inner ones included."""
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in entries:
        yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from leaves(value, (*path, key))


def put(header: dict[str, Any], path: tuple[Any, ...], value: Any) -> None:
    *way, last = path
    place: Any = header
    for key in way:
        place = place[key]
    place[last] = value


def changed(draw: Any, array: np.ndarray) -> np.ndarray:
    """An array with one number changed, or of another length, rank or type."""
    array = array.copy()
    kind = draw(st.sampled_from(["number", "number", "number", "short", "long", "rank", "type"]))
    if kind == "number" and array.size:
        at = draw(st.integers(0, array.size - 1))
        value = draw(st.sampled_from(FLOATS if array.dtype.kind == "f" else WHOLES))
        with np.errstate(all="ignore"):
            array.flat[at] = np.asarray(value).astype(array.dtype)
        return array
    if kind == "short":
        return array[:-1]
    if kind == "long":
        return np.concatenate([array, array])
    if kind == "rank":
        return array[None]
    with np.errstate(all="ignore"):
        return array.astype(draw(st.sampled_from([np.float64, np.int64, np.bool_, np.float32])))


@pytest.mark.parametrize("name", [name for name in REGISTRY if name != "auto"])
@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.data())
def test_changed_arrays(name: str, data: st.DataObject) -> None:
    change_arrays(name, data)


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_changed_arrays_of_auto(data: st.DataObject) -> None:
    change_arrays("auto", data)


def change_arrays(name: str, data: st.DataObject) -> None:
    whole = crafted.stored(name)
    arrays = list(crafted.opened(whole)[1])
    for _ in range(data.draw(st.integers(1, 2))):
        part = data.draw(st.sampled_from(arrays))
        whole = crafted.with_array(whole, part, changed(data.draw, crafted.array_of(whole, part)))
    refused_or_works(whole)


@pytest.mark.parametrize("name", list(REGISTRY))
@settings(max_examples=50, deadline=None, derandomize=True)
@given(data=st.data())
def test_changed_values_and_settings(name: str, data: st.DataObject) -> None:
    whole = crafted.stored(name)
    header, _ = crafted.opened(whole)
    places = [path for path in leaves(header) if path[0] in ("values", "settings")]
    path, value = data.draw(st.sampled_from(places)), data.draw(st.sampled_from(JSON))
    refused_or_works(crafted.with_header(whole, lambda h: put(h, path, value)))


# (model, array, place, value): each of these reached a kernel, or failed long after loading
CRAFTED = [
    ("bocd", "book_start", 0, 10**7),
    ("bocd", "book_start", 0, -1),
    ("bocd", "book_visits", 0, -5),
    ("bocd", "book_log_mass", 0, math.nan),
    ("bocd", "book_log_mass", 0, 3.0),
    ("bocd", "book_log_best", 0, math.inf),
    ("bocd", "rows_0", 0, math.nan),
    ("bocd", "rows_1", 0, math.inf),
    ("bocd", "trail", 0, 10**7),
    ("bocd", "trail", 1, 5),
    ("bocd", "past", 0, math.nan),
    ("bocd", "first_x", 0, math.nan),
    ("dsm_bocd", "rows_0", 0, -1e9),
    ("dsm_bocd", "seen", 0, math.inf),
    ("least_squares", "squares", 0, -1e9),
    ("least_squares", "count", 0, -5),
    ("least_squares", "rows_1", 0, math.nan),
    ("seasonal_last_value", "slots", 0, math.inf),
    ("last_value", "latest", 0, math.nan),
    ("running_mean", "seen", 0, 10**7),
    ("running_mean", "mean", 0, math.inf),
    ("beam_ihmm", "y", 0, math.inf),
    ("beam_ihmm", "design", 0, math.nan),
    ("beam_ihmm", "past", 0, math.nan),
    ("br_ihmm", "particles.slots", 0, 10**6),
    ("br_ihmm", "particles.n_regimes", 0, 8 + 41),
    ("br_ihmm", "particles.current", 0, 10**7),
    ("br_ihmm", "particles.current", 0, 20),
    ("br_ihmm", "particles.counts", 0, 2**50),
    ("br_ihmm", "clock.position", 0, 4),
    ("br_ihmm", "clock.size", 0, 0),
    ("br_ihmm", "work.taken", 0, 10**6),
    ("br_ihmm", "pool.label", 1, 10**6),
    ("br_ihmm", "row.root", 0, 1e6),
    ("br_ihmm", "work.shrink", 0, 1e200),
    ("student_t_ihmm", "row.dof", 0, 1e-300),
    ("student_t_ihmm", "row.factor", 0, 0.0),
    ("student_t_ihmm", "row.factor", 0, 1e200),
    ("student_t_ihmm", "work.work_factor", 0, 1e200),
    ("garch_ihmm", "row.parameters", 1, 1.0),
    ("garch_ihmm", "row.variance", 0, 1e-320),
    ("garch_ihmm", "work.work_log_weight", 0, 700.0),
    ("auto", "scaling.scale", 0, 1e-300),
    ("auto", "ensemble.buffer.values", 0, 1e9),
    ("auto", "ensemble.aggregation.square", 0, -1.0),
    ("auto", "member.0/particles.current", 0, 77),
    ("auto", "ensemble.simple.variance", 0, 0.0),
    ("auto", "ensemble.simple.covariance", 7, -0.03),
    ("br_ihmm", "recent_y", 0, math.inf),
    ("auto", "selection.reported_moves", 0, -1.0),
    ("auto", "selection.names", 0, 77),
]


@pytest.mark.parametrize(("model", "name", "at", "value"), CRAFTED)
def test_crafted_numbers_are_refused(model: str, name: str, at: int, value: float) -> None:
    data = crafted.stored(model)
    array = crafted.array_of(data, name)
    array.flat[at] = value
    message = refused(crafted.with_array(data, name, array))
    general = (
        "forecast",
        "row",
        "particles",
        "batch",
        "regime",
        "noise",
        "steps",
        "volatility",
        "covariance",
        "degrees",
        "live",
        "snapshot (",
        "statistics",
    )
    assert any(word in message for word in (name, re.split("[/_.]", name)[-1], *general)), message


# (model, place in the header, value): hours, gigabytes, or a model that fails later
CLAIMS: list[tuple[str, tuple[Any, ...], Any]] = [
    ("bocd", ("settings", "max_run_lengths"), 10**9),
    ("bocd", ("settings", "dim"), 10**9),
    ("bocd", ("settings", "features", 2, "steps"), [10**9]),
    ("bocd", ("settings", "noise"), 1e-300),
    ("bocd", ("values", "n"), 5),
    ("bocd", ("values", "n"), -1),
    ("bocd", ("values", "time"), 2**70),
    ("bocd", ("values", "gap"), 10**9),
    ("bocd", ("values", "shape"), [10**5, 10**5, True]),
    ("bocd", ("values", "announcer"), [0, 10**9, -1]),
    ("bocd", ("values", "columns"), ["a", "a"]),
    ("bocd", ("values", "columns"), ["a"]),
    ("bocd", ("values", "dropped"), math.nan),
    ("dsm_bocd", ("settings", "training"), 10**12),
    ("dsm_bocd", ("values", "training"), 3),
    ("dsm_bocd", ("values", "omega"), 0.0),
    ("seasonal_last_value", ("settings", "period"), 10**9),
    ("seasonal_last_value", ("values", "time"), -1),
    ("last_value", ("values", "shape"), [10**9, 0, True]),
    ("least_squares", ("values", "shape"), [1, 4, True]),
    ("beam_ihmm", ("settings", "iterations"), 10**12),
    ("beam_ihmm", ("settings", "chains"), 10**9),
    ("beam_ihmm", ("settings", "max_regimes"), 10**9),
    ("br_ihmm", ("settings", "particles"), 10**9),
    ("br_ihmm", ("settings", "particles"), 10**5),
    ("br_ihmm", ("settings", "max_regimes"), 10**9),
    ("br_ihmm", ("settings", "structure_sweeps"), 10**12),
    ("br_ihmm", ("settings", "islands"), 10**9),
    ("br_ihmm", ("settings", "batch"), 10**4),
    ("br_ihmm", ("settings", "batch"), 10**9),
    ("br_ihmm", ("settings", "dim"), 10**9),
    ("br_ihmm", ("settings", "features", 2, "steps"), [10**9]),
    ("br_ihmm", ("settings", "features", 0), {"term": "season", "period": 7, "harmonics": 10**9}),
    ("br_ihmm", ("settings", "features", 0), {"term": "powers", "degree": 10**9}),
    ("br_ihmm", ("settings", "features"), [{"term": "matrix", "width": 10**9}]),
    ("br_ihmm", ("settings", "features"), [{"term": "intercept"}] * 20_000),
    ("br_ihmm", ("values", "shape"), [10**4, 4, True]),
    ("br_ihmm", ("values", "reported"), 10**9),
    ("br_ihmm", ("values", "report", "names"), [[0, 0], [1, 0]]),
    ("garch_ihmm", ("settings", "cloud"), 10**9),
    ("auto", ("settings", "features", 2, "steps"), [10**9]),
    ("auto", ("values", "dim"), 10**4),
    ("auto", ("values", "seasons"), [10**9]),
    ("auto", ("values", "selection.chosen"), 9),
    ("auto", ("values", "selection.regime"), 9),
    ("auto", ("values", "ensemble.outlier_count"), 0.0),
    ("auto", ("values", "ensemble.buffer.p_innovational"), math.nan),
    ("auto", ("values", "calibration.size"), 1e9),
]


@pytest.mark.parametrize(("model", "path", "value"), CLAIMS)
def test_claims_are_refused_before_they_cost(
    model: str, path: tuple[Any, ...], value: object
) -> None:
    data = crafted.with_header(crafted.stored(model), lambda h: put(h, path, value))
    tracemalloc.start()
    try:
        assert refused(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 60e6


def test_settings_beyond_all_use_are_refused_by_the_makers() -> None:
    for name, setting, value in (
        ("bocd", "max_run_lengths", 10**9),
        ("seasonal_last_value", "period", 10**9),
        ("dsm_bocd", "training", 10**9),
        ("beam_ihmm", "chains", 10**6),
        ("beam_ihmm", "iterations", 10**9),
        ("last_value", "dim", 10**9),
        ("bocd", "features", rk.features.lags(10**10)),
    ):
        with pytest.raises(rk.RegimekitError, match=setting):
            rk.make(name, **{setting: value})


def test_requests_of_arrays() -> None:
    """Every method returns valid data and refuses the others."""
    arrays = Arrays(
        {
            "f": np.array([0.0, 0.25, 0.75]),
            "i": np.array([2, 0, 1]),
            "b": np.array([True]),
            "n": np.array([np.nan, 1.0]),
            "l": np.log([0.5, 0.5]),
            "e": np.array([-np.inf, 0.0]),
        }
    )
    assert arrays.floats("f", (3,), 0, 1).tolist() == [0.0, 0.25, 0.75]
    assert arrays.flags("b", (1,)).all()
    assert np.isnan(arrays.floats("n", (2,), missing=True)[0])
    assert arrays.log_shares("l", (2,)).size == 2 and arrays.log_shares("e", (2,)).size == 2
    for wrong in (
        lambda: arrays.floats("f", (3,), 0.1),
        lambda: arrays.floats("f", (3, 1)),
        lambda: arrays.floats("i", (3,)),
        lambda: arrays.floats("n", (2,)),
        lambda: arrays.floats("e", (2,)),
        lambda: arrays.wholes("i", (3,), 0, 1),
        lambda: arrays.wholes("f", (3,)),
        lambda: arrays.flags("i", (3,)),
        lambda: arrays.log_shares("f", (3,)),
        lambda: arrays.floats("absent", (3,)),
    ):
        with pytest.raises(rk.SnapshotError, match="Invalid snapshot"):
            wrong()


def test_requests_of_values() -> None:
    values = Values({"n": 3, "x": 0.5, "yes": True, "pair": [1, 2], "names": ["a", "b"]})
    assert values.whole("n", 0, 3) == 3 and values.number("x", 0, 1) == 0.5
    assert values.flag("yes") and values.wholes("pair", 2) == [1, 2]
    assert values.words("names") == ("a", "b")
    for wrong in (
        lambda: values.whole("n", 0, 2),
        lambda: values.whole("x"),
        lambda: values.whole("yes"),
        lambda: values.number("x", 1),
        lambda: values.number("names"),
        lambda: values.flag("n"),
        lambda: values.wholes("pair", 3),
        lambda: values.words("pair"),
        lambda: values.whole("absent"),
    ):
        with pytest.raises(rk.SnapshotError, match="Invalid snapshot"):
            wrong()
    with pytest.raises(rk.SnapshotError, match="'extra'"):
        Values({"extra": 1}).refuse_unread()
