"""Features: values worked by hand, rows against frames, causality, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from regimekit.core.covariates import read_past
from regimekit.core.exceptions import RegimekitError, SnapshotError
from regimekit.preprocessing import features as F
from regimekit.preprocessing.frames import Row, read_table
from regimekit.preprocessing.lag_buffer import LagBuffer
from regimekit.serialization.validation import Arrays

NAN = math.nan
NONE = np.zeros((0, 1))  # the past of features without lags
ANY: Any = F  # for arguments that the types already forbid
Array = NDArray[np.float64]


def rows(f: F.Features, X: Any, y: Any) -> Array:
    """What a model sees: one row at a time, the past pushed after each."""
    series = np.array(y, dtype=float)
    series = series.reshape(len(series), -1)
    table = read_table(X)
    past = LagBuffer(f.depth, series.shape[1])
    out = []
    for t, value in enumerate(series):
        x = f.check(None if table is None else table.row(t))
        out.append(f.row(x, t, past.clean).copy())
        past.push(value)
    return np.array(out)


def stream(dim: int, seed: int = 0, length: int = 60) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(length, dim))
    y[rng.random((length, dim)) < 0.3] = NAN
    return rng.normal(size=(length, 3)), y


MAPS = [
    F.intercept(),
    F.columns(),
    F.columns(2, 0),
    F.powers(3),
    F.powers(2, 1),
    F.season(24, harmonics=3),
    F.season(365.2425, harmonics=2),
    F.lags(1),
    F.lags(7, 1, 3),
    F.matrix(3),
    F.intercept() + F.powers(2) + F.season(7) + F.season(2.5) + F.lags(1, 5),
    F.lags(2) + F.intercept() + F.columns(1) + F.lags(1),
]


def test_intercept_is_one() -> None:
    assert F.intercept().row(None, 5, NONE).tolist() == [1.0]


def test_columns_by_name_position_and_all() -> None:
    x = {"rain": 2.0, "wind": 3.0, "sun": 5.0}
    for f, expected in [
        (F.columns("sun", "rain"), [5.0, 2.0]),
        (F.columns(1), [3.0]),
        (F.columns("sun", 0), [5.0, 2.0]),
        (F.columns(), [2.0, 3.0, 5.0]),
    ]:
        assert f.row(f.check(x), 0, NONE).tolist() == expected


def test_powers_go_power_by_power() -> None:
    f = F.powers(3, "b", "a")
    row = f.check({"a": 2.0, "b": -3.0})
    assert f.row(row, 0, NONE).tolist() == [-3.0, 2.0, 9.0, 4.0, -27.0, 8.0]


def test_electricity_features_in_the_order_of_the_paper() -> None:
    f = F.intercept() + F.powers(2) + F.season(24) + F.season(24 * 182)
    got = f.row(f.check([2.0, 3.0]), 6, NONE)
    year = 2 * math.pi * 6 / (24 * 182)
    expected = [1, 2, 3, 4, 9, 0, 1, math.cos(year), math.sin(year)]
    assert got == pytest.approx(expected, abs=1e-15)


def test_season_harmonics_alternate_cos_and_sin() -> None:
    got = F.season(8, harmonics=2).row(None, 1, NONE)
    half = math.sqrt(0.5)
    assert got == pytest.approx([half, half, 0, 1], abs=1e-15)


def test_season_is_exactly_periodic_and_sharp_far_out() -> None:
    f = F.season(24, harmonics=4)
    near, far = f.row(None, 5, NONE), f.row(None, 5 + 24 * 10**12, NONE)
    assert np.array_equal(near, far)


def test_season_counts_missing_observations() -> None:
    got = F.season(4).frame(None, [1.0, NAN, 1.0])
    assert got[2] == pytest.approx([-1, 0], abs=1e-15)


def test_lags_repeat_the_last_observed_value_and_start_at_zero() -> None:
    got = F.lags(1, 3).frame(None, [NAN, 5.0, NAN, NAN, 7.0, 8.0])
    assert got.tolist() == [[0, 0], [0, 0], [5, 0], [5, 0], [5, 5], [7, 5]]


def test_lags_of_vectors_are_step_major_and_filled_by_coordinate() -> None:
    got = F.lags(2, 1).frame(None, [[1.0, NAN], [NAN, 20.0], [3.0, 30.0]])
    assert got.tolist() == [[0, 0, 0, 0], [0, 0, 1, 0], [1, 0, 1, 20]]


def test_matrix_hands_x_through() -> None:
    design = [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    f = F.matrix(3)
    assert f.row(f.check(design), 0, np.zeros((0, 2))).tolist() == design
    assert f.row(f.check([1, 2, 3]), 0, NONE).tolist() == [1, 2, 3]
    assert f.row(f.check([[1, 2, 3]]), 0, NONE).tolist() == [1, 2, 3]
    assert f.width(f.check(design), 2) == 3


def test_matrix_frame_for_several_coordinates() -> None:
    designs = np.arange(24.0).reshape(4, 2, 3)
    assert np.array_equal(F.matrix(3).frame(designs, np.zeros((4, 2))), designs)
    assert np.array_equal(F.matrix(3).frame(designs, dim=2), designs)
    assert np.array_equal(F.matrix(3).frame(designs[:, :1], np.zeros(4)), designs[:, 0])


def test_joined_features_stand_end_to_end() -> None:
    f = F.intercept() + F.lags(1) + F.columns(0)
    assert f.frame([4.0, 5.0], [7.0, 8.0]).tolist() == [[1, 0, 4], [1, 7, 5]]


@pytest.mark.parametrize("f", MAPS, ids=repr)
@pytest.mark.parametrize("dim", [1, 2])
def test_frame_equals_rows_to_the_bit(f: F.Features, dim: int) -> None:
    X, y = stream(dim)
    if isinstance(f.terms[0], F.Matrix) and dim > 1:
        X = np.stack([X, -X], axis=1)
    assert np.array_equal(f.frame(X, y), rows(f, X, y))


parts = st.sampled_from([f for f in MAPS if not isinstance(f.terms[0], F.Matrix)])
values = st.one_of(st.just(NAN), st.floats(-1e300, 1e300))


@settings(max_examples=60, deadline=None)
@given(st.lists(parts, min_size=1, max_size=3), st.data())
def test_frame_equals_rows_for_any_sum_and_any_stream(picked: list[F.Features], data: Any) -> None:
    f = picked[0]
    for part in picked[1:]:
        f = f + part
    dim, length = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 12))
    y = np.array([[data.draw(values) for _ in range(dim)] for _ in range(length)])
    X = np.random.default_rng(length).normal(size=(length, 3)) * 1e3
    assert np.array_equal(f.frame(X, y), rows(f, X, y))


def test_frame_without_y_takes_its_length_from_x() -> None:
    f = F.intercept() + F.columns()
    assert f.frame([[1.0], [2.0]]).tolist() == [[1, 1], [1, 2]]
    assert F.intercept().frame([3.0, 4.0, 5.0]).shape == (3, 1)


def test_an_empty_frame_has_its_columns() -> None:
    f = F.intercept() + F.columns(0) + F.season(3)
    assert f.frame(np.zeros((0, 1))).shape == (0, 4)


@pytest.mark.parametrize("f", MAPS, ids=repr)
@pytest.mark.parametrize("dim", [1, 2])
def test_no_feature_uses_future_values(f: F.Features, dim: int) -> None:
    X, y = stream(dim, seed=1)
    if isinstance(f.terms[0], F.Matrix) and dim > 1:
        X = np.stack([X, -X], axis=1)
    before = f.frame(X, y)
    for t in (0, 1, 7, 30, 59):
        other_x, other_y = X.copy(), y.copy()
        other_x[t + 1 :] = 99.0
        other_y[t:] = 77.0
        assert np.array_equal(f.frame(other_x, other_y)[: t + 1], before[: t + 1])
        assert np.array_equal(f.frame(X[: t + 1], y[: t + 1]), before[: t + 1])


def test_past_resumes_exactly() -> None:
    _, y = stream(2, seed=2)
    whole, first = LagBuffer(5, 2), LagBuffer(5, 2)
    for value in y:
        whole.push(value)
    for value in y[:30]:
        first.push(value)
    packed = {"past": first.clean.copy()}
    first.push(y[0])
    second = read_past(Arrays.of(packed), F.lags(5), 2)
    for value in y[30:]:
        second.push(value)
    assert np.array_equal(whole.clean, second.clean)


def test_past_refuses_another_shape() -> None:
    with pytest.raises(SnapshotError, match="past"):
        read_past(Arrays.of({"past": LagBuffer(3, 1).clean}), F.lags(2), 1)


def test_joining_is_associative() -> None:
    a, b, c = F.intercept(), F.lags(1), F.season(24)
    assert (a + b) + c == a + (b + c)
    assert hash((a + b) + c) == hash(a + (b + c))
    assert a + b != b + a
    assert F.columns() != F.powers(1)


def test_depth_and_needs_x() -> None:
    f = F.intercept() + F.lags(3, 24) + F.lags(2)
    assert (f.depth, f.needs_x) == (24, False)
    assert (F.columns().depth, F.columns().needs_x) == (0, True)
    assert F.matrix(2).needs_x and (F.intercept() + F.powers(2)).needs_x


def test_repr_is_what_one_would_type() -> None:
    f = F.intercept() + F.powers(2, "a", 1) + F.season(24.0) + F.season(365.25, 2) + F.lags(1, 24)
    text = "intercept() + powers(2, 'a', 1) + season(24) + season(365.25, 2) + lags(1, 24)"
    assert repr(f) == text
    assert repr(F.columns()) == "columns()"
    assert repr(F.columns("a")) == "columns('a')"
    assert repr(F.matrix(3)) == "matrix(3)"


@pytest.mark.parametrize("f", [*MAPS, F.columns("a", 1), F.powers(2, "b")], ids=repr)
def test_json_round_trip(f: F.Features) -> None:
    spec = json.loads(json.dumps(f.to_json()))
    assert F.from_json(spec) == f
    assert F.read(spec) == f
    assert F.read(f) is f


def test_numpy_arguments_become_plain_ones() -> None:
    f = (
        ANY.lags(*np.array([1, 2]))
        + ANY.season(np.float64(24))
        + ANY.powers(np.int64(2), np.int64(0))
    )
    assert f == F.lags(1, 2) + F.season(24) + F.powers(2, 0)
    json.dumps(f.to_json())


def test_each_feature_has_a_name() -> None:
    f = F.intercept() + F.powers(2, "temperature") + F.season(24, 2) + F.lags(1, 24)
    x = f.check({"temperature": 20.0, "wind": 3.0})
    assert f.names(x, 1) == [
        "intercept",
        "temperature",
        "temperature^2",
        "cos 24",
        "sin 24",
        "cos 24/2",
        "sin 24/2",
        "lag 1",
        "lag 24",
    ]
    assert F.lags(1).names(None, 2) == ["lag 1 of y0", "lag 1 of y1"]
    assert F.columns(1).names(Row(np.ones(2)), 1) == ["x1"]
    assert F.columns().names(F.columns().check({"a": 1, "b": 2}), 1) == ["a", "b"]


@pytest.mark.parametrize("f", MAPS, ids=repr)
@pytest.mark.parametrize("dim", [1, 2])
def test_width_counts_rows_and_names(f: F.Features, dim: int) -> None:
    X, y = stream(dim)
    if isinstance(f.terms[0], F.Matrix) and dim > 1:
        X = np.stack([X, -X], axis=1)
    row = f.check(X[0])
    assert f.width(row, dim) == f.frame(X, y).shape[-1] == len(f.names(row, dim))


def covariates() -> Iterator[Any]:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    table = {"a": [1.0, 5.0], "b": [2.0, 6.0]}
    yield {"a": 1.0, "b": 2.0}
    yield {"b": 2, "a": np.float32(1)}
    yield Row(np.array([1.0, 2.0]), ("a", "b"))
    yield pandas.DataFrame(table).iloc[0]
    yield pandas.DataFrame(table).iloc[:1]
    yield polars.DataFrame(table).row(0, named=True)
    yield polars.DataFrame(table)[0]


def test_named_rows_of_every_kind() -> None:
    f = F.columns("a") + F.powers(2, "b")
    for x in covariates():
        assert f.row(f.check(x), 0, NONE).tolist() == [1, 2, 4], type(x)


def test_unnamed_rows_of_every_kind() -> None:
    polars = pytest.importorskip("polars")
    f = F.columns()
    for x in ([1, 2], (1.0, 2.0), np.array([1, 2]), polars.Series([1.0, 2.0])):
        assert f.row(f.check(x), 0, NONE).tolist() == [1, 2], type(x)
    assert f.row(f.check(3), 0, NONE).tolist() == [3]
    assert f.row(f.check(np.float64(3)), 0, NONE).tolist() == [3]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames(library: str) -> None:
    module = pytest.importorskip(library)
    X = module.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4, 5, 6]})
    y = module.Series([7.0, None, 9.0])
    f = F.intercept() + F.columns("b") + F.lags(1)
    assert f.frame(X, y).tolist() == [[1, 4, 0], [1, 5, 7], [1, 6, 7]]
    with pytest.raises(RegimekitError, match=r"x has no column 'c'; it has a, b"):
        F.columns("c").frame(X, y)


def test_unneeded_covariates_are_ignored() -> None:
    f = F.intercept() + F.lags(1)
    assert f.check("anything") is None
    assert f.frame(np.full((2, 3), NAN), [1.0, 2.0]).tolist() == [[1, 0], [1, 1]]


def test_an_earlier_row_fixes_order_and_width() -> None:
    f = F.columns()
    first = f.check({"a": 1.0, "b": 2.0})
    again = f.check({"b": 4.0, "c": 9.0, "a": 3.0}, like=first)
    assert again is not None and again.values.tolist() == [3.0, 4.0] and again.names == ("a", "b")
    with pytest.raises(RegimekitError, match="x has no column 'b'"):
        f.check({"a": 1.0, "c": 2.0}, like=first)
    with pytest.raises(RegimekitError, match=r"x must have shape \(2,\) as before"):
        f.check([1.0, 2.0, 3.0], like=first)


def test_results_never_alias_the_caller() -> None:
    past = np.array([[1.0], [2.0]])
    x = np.array([3.0, 4.0])
    for f in (F.columns(), F.powers(2), F.matrix(2), F.lags(1, 2), F.columns(0) + F.lags(2)):
        checked = f.check(x)
        assert checked is None or not np.shares_memory(checked.values, x)
        out = f.row(checked, 0, past)
        kept = out.copy()
        if checked is not None:
            assert not np.shares_memory(out, checked.values)
        out[:] = -1.0
        assert np.array_equal(f.row(checked, 0, past), kept)
    assert x.tolist() == [3.0, 4.0] and past.tolist() == [[1.0], [2.0]]


def test_a_shared_constant_cannot_be_written() -> None:
    row = F.intercept().row(None, 0, NONE)
    with pytest.raises(ValueError, match="read-only"):
        row[0] = 2.0


def test_frames_never_alias_the_caller() -> None:
    X, y = np.ones((3, 2)), np.ones(3)
    for f in (F.columns(), F.matrix(2), F.columns() + F.lags(1)):
        assert not np.shares_memory(f.frame(X, y), X)


def test_remembered_shapes_are_bounded() -> None:
    f = F.columns()
    for n in range(1, 100):
        f.check(np.ones(n))
    assert len(f._layouts) <= 8


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: ANY.powers(0), "degree"),
        (lambda: ANY.powers(1.5), "degree"),
        (lambda: ANY.powers(True), "degree"),
        (lambda: ANY.columns(1.5), "names"),
        (lambda: ANY.columns(-1), "names"),
        (lambda: ANY.columns(["a", "b"]), "names"),
        (lambda: ANY.columns("a", "a"), "names"),
        (lambda: ANY.season(0), "period"),
        (lambda: ANY.season(-24), "period"),
        (lambda: ANY.season(NAN), "period"),
        (lambda: ANY.season(math.inf), "period"),
        (lambda: ANY.season("daily"), "period"),
        (lambda: ANY.season(24, 0), "harmonics"),
        (lambda: ANY.season(24, 1.5), "harmonics"),
        (lambda: ANY.lags(), "steps"),
        (lambda: ANY.lags(0), "steps"),
        (lambda: ANY.lags(-1), "steps"),
        (lambda: ANY.lags(1.5), "steps"),
        (lambda: ANY.lags(1, 1), "steps"),
        (lambda: ANY.lags([1, 2]), "steps"),
        (lambda: ANY.matrix(0), "width"),
        (lambda: ANY.matrix(2) + F.intercept(), "features"),
        (lambda: ANY.lags(1) + F.matrix(2), "features"),
        (lambda: ANY.matrix(2) + F.matrix(2), "features"),
        (lambda: ANY.intercept() + 3, "features"),
        (lambda: ANY.read("intercept"), "features"),
        (lambda: ANY.read(3), "features"),
        (lambda: ANY.read([]), "features"),
        (lambda: ANY.from_json([3]), "features"),
        (lambda: ANY.from_json({"term": "intercept"}), "features"),
        (lambda: ANY.from_json([{"steps": [1]}]), "features"),
        (lambda: ANY.from_json([{"term": ["lags"]}]), "features"),
        (lambda: ANY.from_json([{"term": "lag", "steps": [1]}]), "features.*'lags'"),
        (lambda: ANY.from_json([{"term": "lags", "step": [1]}]), "features"),
        (lambda: ANY.from_json([{"term": "lags"}]), "features"),
        (lambda: ANY.from_json([{"term": "columns", "names": "abc"}]), "names"),
        (lambda: ANY.from_json([{"term": "columns", "degree": 2}]), "features"),
    ],
)
def test_bad_arguments_are_named(make: Any, argument: str) -> None:
    with pytest.raises(RegimekitError, match=argument):
        make()


@pytest.mark.parametrize(
    ("f", "x", "message"),
    [
        (F.columns(), None, "x is missing"),
        (F.columns(), [1.0, NAN], "x is NaN, or not a number, in column 1"),
        (F.columns("a"), {"a": NAN}, "x is NaN, or not a number, in column 'a'"),
        (F.columns("a"), {"a": None}, "x is NaN, or not a number, in column 'a'"),
        (F.columns(), [math.inf], "x is infinite in column 0"),
        (F.columns(), [], "x is empty"),
        (F.columns(), {}, "x is empty"),
        (F.columns(), [[1.0, 2.0]], "x must be a vector"),
        (F.columns(), "wind", "x must be numeric"),
        (F.columns(), object(), "x must be numeric"),
        (F.columns(), [[1.0], [1.0, 2.0]], "x must be numeric"),
        (F.columns(), {"a": 1.0, "city": "Oslo"}, "not a number, in column 'city'"),
        (F.columns("c"), {"a": 1.0, "b": 2.0}, "x has no column 'c'; it has a, b"),
        (F.columns("a"), [1.0], "x has no column names"),
        (F.powers(2, "a"), 1.0, "x has no column names"),
        (F.columns(2), [1.0, 2.0], r"x has 2 column\(s\)"),
        (F.columns(2), {"a": 1.0}, r"x has 1 column\(s\)"),
        (F.columns(), Row(np.ones(2), ("a",)), "x has 1 names for 2 values"),
        (F.powers(2), [1e200], r"x = 1e\+200 overflows in powers\(2\)"),
        (F.matrix(3), [1.0, 2.0], r"x must have shape \(3,\)"),
        (F.matrix(3), np.ones((2, 2)), r"x must have shape \(2, 3\)"),
        (F.matrix(3), np.ones((2, 2, 3)), "x must have shape"),
        (F.matrix(2), [[1.0, 2.0], [3.0, NAN]], "x is NaN, or not a number, in column 1"),
    ],
)
def test_bad_covariates_are_refused(f: F.Features, x: Any, message: str) -> None:
    with pytest.raises(RegimekitError, match=message):
        f.check(x)


def test_only_powers_limit_the_size_of_x() -> None:
    f = F.columns("big") + F.powers(2, "small")
    assert f.check({"big": 1e300, "small": 1.0}) is not None
    edge = F.powers(3)
    largest = edge._limit
    assert np.isfinite(edge.row(edge.check([largest]), 0, NONE)).all()


def test_a_frame_of_several_rows_is_not_a_row() -> None:
    polars = pytest.importorskip("polars")
    with pytest.raises(RegimekitError, match="x must be one row, got a frame of 2"):
        F.columns().check(polars.DataFrame({"a": [1.0, 2.0]}))


@pytest.mark.parametrize(
    ("f", "X", "y", "message"),
    [
        (F.intercept(), None, None, "X is missing"),
        (F.columns(), None, [1.0], "X is missing"),
        (F.lags(1), [1.0], None, "y is missing"),
        (F.columns(), [1.0, 2.0], [1.0], "X has 2 rows but y has 1"),
        (
            F.columns(),
            [[1.0, 2.0], [3.0, NAN]],
            None,
            "x is NaN, or not a number, in column 1 at row 1 of X",
        ),
        (F.powers(2), [1.0, 1e200], None, "at row 1 of X overflows"),
        (F.lags(1), None, [1.0, math.inf], "y is infinite at row 1"),
        (F.matrix(3), np.ones((4, 2)), None, "x must have shape"),
    ],
)
def test_bad_streams_are_refused(f: F.Features, X: Any, y: Any, message: str) -> None:
    with pytest.raises(RegimekitError, match=message):
        f.frame(X, y)


def test_a_design_matrix_must_fit_the_coordinates_of_y() -> None:
    f = F.matrix(2)
    with pytest.raises(RegimekitError, match=r"x must have shape \(2, 2\)"):
        f.row(f.check([1.0, 2.0]), 0, np.zeros((0, 2)))
